"""Reads and checks the configuration of a medallion job."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pyarrow as pa
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from safewrite.errors import without_secrets
from safewrite.intake.job import JobConfig
from safewrite.intake.settings import Strict, Text, json_schema_of, read, twice
from safewrite.intake.tables import Reader, TableFormat, all_read_vectors, check_readers
from safewrite.medallion.config.bronze_columns import BRONZE_COLUMNS, COMMIT_DATE, STORED_FILE, UNCHANGED
from safewrite.medallion.config.column_types import arrow_type
from safewrite.medallion.config.commit_columns import Partitions, check_commit_columns, commit_fields
from safewrite.medallion.config.files import REST, Files
from safewrite.medallion.config.full_load_epochs import Reload, check_reload
from safewrite.medallion.config.quality_rules import Quality
from safewrite.medallion.config.watermark import Sync

if TYPE_CHECKING:
    from typing import Self

MORE = "docs/medallion/configuration.md lists all of them"
LANDING = ("files", "epoch", "reload", "on_overwritten", "restarted_load")
"""Settings of a table that say how its raw files land."""
_NEEDED = ("_delete", "_truncate", "_row", "_op")
"""Names that changes of silver need besides the table's own."""


def _is_type(name: Any) -> Any:
    arrow_type(name)
    return name


TypeName = Annotated[str, BeforeValidator(_is_type)]


def _name_of_table(name: str) -> str:
    if re.fullmatch(r"[^/.]+\.[^/.]+", name) is None:
        raise ValueError(
            "a table is named by its folders, schema.table, with one point and no slash. A table of the source with a point in its name cannot be "
            "landed: name it in ignored_tables"
        )
    return name


class TableConfig(Strict):
    """One table of the source, from its files to silver."""

    bronze: Text
    silver: Text
    format: TableFormat
    keys: Annotated[list[Text], Field(min_length=1)]
    columns: Annotated[dict[Text, TypeName], Field(min_length=1)] | None = None
    """Names and types, in the order of the source; without it those of the existing silver table."""
    readers: list[Reader] = Field(default_factory=list)
    """Of a Delta table: all engines that read silver.  Where each of them reads deletion vectors, a silver that is created marks rows
    that change in these, and rewrites no file for them."""
    partition_by: Partitions = Partitions()
    commit_time: Text | None = None
    """The column of silver that holds when the newest change of a row was committed; without it silver has none."""
    files: Files = Files(kind="parquet")
    """Of a table whose raw files are landed in bronze; it has this or ``sync``."""
    sync: Sync | None = None
    """Of a table whose bronze others write."""
    epoch: Annotated[int, Field(ge=1, lt=2**63)] = 1
    """The DMS task: a number that grows with each new one."""
    reload: Reload | None = None
    """From the second epoch on: whether a full load of a new epoch takes away all rows of the epochs before it."""
    on_overwritten: Literal["raise", "quarantine"] = "raise"
    restarted_load: Literal["raise", "fold"] = "raise"
    """What becomes of a LOAD file that was written again with other content."""
    quality: Quality = Quality()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        names = list(self.columns or {})
        self._check_source(names)
        if self.columns is not None:
            lacking = [key for key in self.keys if key not in self.columns]
            if lacking:
                raise ValueError(f"keys: {lacking} are not among columns")
            floats = [key for key in self.keys if pa.types.is_floating(arrow_type(self.columns[key]))]
            if floats:
                raise ValueError(
                    f"keys: {floats} are floating-point numbers, which engines do not compare alike"
                )
            clocks = [name for name, kind in self.columns.items() if kind == "time"]
            if clocks and self.format == "delta":
                raise ValueError(
                    f"columns: {clocks} are times of a day, which Delta has no type for; declare them as string"
                )
            alike = sorted(name for name in names if sum(name.lower() == one.lower() for one in names) > 1)
            if alike:
                raise ValueError(f"columns: {alike} differ only in case, and tables match names without it")
            unfit = sorted(name for name in self.files.optional if name not in names or name in self.keys)
            if unfit:
                raise ValueError(f"files.optional: {unfit} are not among columns, or are keys")
            quality = self.quality
            named = {
                *quality.not_null,
                *quality.ranges,
                *quality.null_share_max,
                *quality.result.null_share_max,
            }
            unknown = sorted(named - set(names))
            if unknown:
                raise ValueError(f"quality: {unknown} are not among columns")
        check_readers(self.readers, self.format)
        check_commit_columns(
            self.partition_by, self.format, None if self.columns is None else names, commit_time=self.commit_time,
            is_synced=self.sync is not None, has_time=self.files.timestamp is not None,
        )  # fmt: skip
        check_reload(self.reload, self.epoch)
        if len(set(self.keys)) < len(self.keys):
            raise ValueError("keys: a column comes twice")
        return self

    @property
    def marks_rows(self) -> bool:
        """Whether rows that go are marked in a silver that is created, and no file is rewritten for them."""
        return all_read_vectors(self.readers)

    @property
    def commit_fields(self) -> list[pa.Field]:
        """The columns of silver that say when a change was committed."""
        return commit_fields(self.partition_by.silver, self.commit_time)

    def _check_source(self, names: list[str]) -> None:
        """Raw files or another's bronze, and no column under a name that is needed."""
        needless = [name for name in LANDING if name in self.model_fields_set]
        if self.sync is None:
            if "files" not in self.model_fields_set:
                raise ValueError(
                    "files: needed, what files of DMS are like; or sync, where others write bronze"
                )
            taken = {*BRONZE_COLUMNS.names, COMMIT_DATE.name, UNCHANGED, "_delete", "_truncate", "_row"}
            stored = {*BRONZE_COLUMNS.names, *([STORED_FILE] if self.format == "iceberg" else [])}
            clash = [one for one in names if one in taken or one.lower() in stored or one.startswith("_old_")]
            also, what = {self.files.op, *self.files.ignore}, "files.op or in files.ignore"
        else:
            if needless:
                raise ValueError(
                    f"{', '.join(needless)}: of no use with sync, for nothing is landed in a bronze of others"
                )
            clash = [name for name in (*names, *self.sync.sequence) if name in _NEEDED]
            also, what = {self.sync.op or ""}, "sync.op"
        if clash:
            raise ValueError(f"columns: {sorted(clash)} are names that bronze needs for itself")
        if clash := sorted(name for name in also if name in names):
            raise ValueError(f"columns: {clash} are {what} too")


class Raw(Strict):
    """Where DMS puts its files."""

    location: Text
    layout: Literal["per_table", "mixed"] = "per_table"
    """``per_table``: schema/table/LOAD00000001.csv; ``mixed``: change files of all tables in ``mixed_folder``."""
    mixed_folder: Text | None = None
    table_column: Text | None = None
    schema_column: Text | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        mixed = ("mixed_folder", "table_column", "schema_column")
        given = [name for name in mixed if getattr(self, name) is not None]
        if self.layout == "per_table" and given:
            raise ValueError(f"{', '.join(given)}: for the layout 'mixed' only")
        if self.layout == "mixed" and set(given) != set(mixed):
            raise ValueError(f"{', '.join(mixed)} are needed for the layout 'mixed'")
        return self


NOWHERE = Raw(location="/dev/null")  # all tables follow a bronze of others


class Config(JobConfig):
    """A medallion job; :func:`load` reads it."""

    job: Annotated[str, Field(pattern=r"^[\w.-]{1,100}$")]
    raw: Raw = NOWHERE
    state: Text
    """A folder for what the job remembers to save requests; losing it loses no more than time."""
    quarantine: Text
    """The table of records that could not be taken, in the format ``quarantine_format``."""
    quarantine_format: TableFormat = "delta"
    workers: Annotated[int, Field(ge=1, le=64)] = 8
    unknown_tables: Literal["raise", "quarantine"] = "raise"
    """What becomes of files and rows of a table that is not configured."""
    tables: Annotated[dict[Annotated[str, AfterValidator(_name_of_table)], TableConfig], Field(min_length=1)]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        formats = {self.quarantine_format, *(table.format for table in self.tables.values())}
        if wrong := next(self.contradictions(formats), None):
            raise ValueError(wrong)
        addresses = [(self.quarantine_format, plain(self.quarantine))]
        for name, table in self.tables.items():
            addresses += [(table.format, plain(table.bronze)), (table.format, plain(table.silver))]
            if name in self.ignored_tables:
                raise ValueError(f"ignored_tables: {name} is configured too")
        if again := twice(addresses):
            raise ValueError(f"tables: {again[0][1]} is the address of two tables")
        if ("raw" in self.model_fields_set) != bool(self.landed):
            raise ValueError("raw: needed for tables with files, and of no use where all have sync")
        raw, state = plain(self.raw.location), plain(self.state)
        below = sorted(
            one for one in (state, *(address for _, address in addresses)) if f"{one}/".startswith(f"{raw}/")
        )
        if below:
            raise ValueError(f"raw.location: {below[0]} lies below it, and would be taken for raw files")
        tables = [address for of, address in addresses if of == "delta"]
        _check_within(tables, [*tables, state, *([raw] if self.landed else [])])
        if self.raw.layout == "mixed":
            self._check_mixed()
        return self

    @property
    def landed(self) -> dict[str, TableConfig]:
        """The tables that have raw files."""
        return {name: table for name, table in self.tables.items() if table.sync is None}

    @property
    def owner_columns(self) -> tuple[str, ...]:
        """Columns of mixed files that only say which table a record belongs to."""
        return tuple(name for name in (self.raw.table_column, self.raw.schema_column) if name is not None)

    def _check_mixed(self) -> None:
        first = next(iter(self.landed.values())).files
        for name, table in self.landed.items():
            files, order = table.files, table.files.order
            columns = [self.raw.table_column, self.raw.schema_column]
            if order is None or _head(order) != _head(first.order or [REST]):
                raise ValueError(
                    f"tables.{name}.files.order: mixed files are CSV without header, and what stands before '*' is the same "
                    "for all tables"
                )
            shared = ("rfc4180", "delimiter", "row_delimiter", "changes")
            unlike = [one for one in shared if getattr(files, one) != getattr(first, one)]
            if unlike or files.has_op(is_load=False) != first.has_op(is_load=False):
                raise ValueError(
                    f"tables.{name}.files: {', '.join(unlike or ['op_in_full_load'])} must be the same for all tables, as they share "
                    "mixed files"
                )
            lacking = [column for column in columns if column not in _head(order)]
            if lacking:
                raise ValueError(f"tables.{name}.files.order: {lacking} must stand before '*'")


def plain(address: str) -> str:
    """An address without what may be spelled in two ways."""
    return re.sub(r"^s3[an]?://", "s3://", address).rstrip("/")


def _check_within(tables: Sequence[str], others: Sequence[str]) -> None:
    """Refuse what lies in the folder of a Delta table: a VACUUM takes all files there that the table does not have, but hidden ones."""
    for table in tables:
        for one in others:
            within = one.removeprefix(f"{table}/")
            if within != one and not within.startswith(("_", ".")):
                raise ValueError(
                    f"tables: {one} lies in the folder of the Delta table {table}, whose VACUUM would delete it"
                )


def _head(order: list[str]) -> list[str]:
    return order[: order.index(REST)]


@without_secrets
def load(source: str | Path | Mapping[str, Any]) -> Config:
    """Read a configuration: a path of a JSON file, or what such a file holds, as a dict or as text.

    ``defaults`` holds settings that all tables share; ``{schema}`` and ``{table}`` in addresses are those of the source.

    Raises:
        InvalidInputError: it cannot be used; every wrong field is named.
    """
    return read(source, Config, lambda given: Config.model_validate(_with_defaults(given)), more=MORE)


def json_schema() -> dict[str, Any]:
    """The JSON schema of a configuration; what a table needs may stand in ``defaults``."""
    found = json_schema_of(Config)
    del found["$defs"]["TableConfig"]["required"]
    found["properties"]["defaults"] = {
        "$ref": "#/$defs/TableConfig",
        "description": "Settings that all tables share; {schema} and {table} in addresses are those of the source.",
    }
    return found


def _with_defaults(given: dict[str, Any]) -> dict[str, Any]:
    defaults = given.get("defaults", {})
    tables = given.get("tables")
    if not isinstance(defaults, dict) or not isinstance(tables, dict):
        return given
    of_others = {name: value for name, value in defaults.items() if name not in LANDING}
    merged = {
        name: _addressed(name, _merged(of_others if "sync" in table else defaults, table))
        if isinstance(table, dict)
        else table
        for name, table in tables.items()
    }
    return {key: value for key, value in given.items() if key != "defaults"} | {"tables": merged}


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """``above`` over ``below``, level by level; but for names and types of columns, which are one thing."""
    found = dict(below)
    for name, value in above.items():
        under = found.get(name)
        both = isinstance(value, dict) and isinstance(under, dict) and name != "columns"
        found[name] = _merged(under, value) if both else value  # type: ignore[arg-type]
    return found


def _addressed(name: str, table: dict[str, Any]) -> dict[str, Any]:
    schema, _, own = name.partition(".")
    places = {"{schema}": schema, "{table}": own}
    for layer in ("bronze", "silver"):
        if isinstance(table.get(layer), str):
            table[layer] = re.sub(r"\{(?:schema|table)\}", lambda found: places[found[0]], table[layer])
    return table
