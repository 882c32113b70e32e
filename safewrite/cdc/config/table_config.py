"""Declares how the changes of one source table land: key, order, columns, format."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Literal, Self

import pyarrow as pa
from pydantic import AfterValidator, Field, StringConstraints, model_validator

from safewrite.cdc.config.column_options import ColumnOptions
from safewrite.cdc.config.own_columns import INSTANT, OF_FRAMES, OwnColumn, OwnNames
from safewrite.cdc.connect.misfits import OnMisfit
from safewrite.intake.partitioning import check_partitions, partition_columns
from safewrite.intake.settings import Text, twice
from safewrite.intake.tables import (
    READ_VECTORS,
    READ_WIDENED,
    Reader,
    TableFormat,
    all_read_vectors,
    check_readers,
)
from safewrite.values import kept_names
from safewrite.values.limits import DECIMAL_DIGITS_MAX
from safewrite.values.widening import Way

Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\s./\\]+$")]
ColumnType = Literal["string", "int64", "float64", "boolean"]
_TYPES = {"string": pa.string(), "int64": pa.int64(), "float64": pa.float64(), "boolean": pa.bool_()}
MetadataKind = Literal[
    "topic", "partition", "offset", "timestamp", "key", "headers", "op", "position", "source_time"
]
METADATA: Mapping[MetadataKind, pa.DataType] = {
    "topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "timestamp": INSTANT, "key": pa.binary(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])), "op": pa.string(),
    "position": pa.string(), "source_time": INSTANT,
}  # fmt: skip
"""The types of columns that tell of a record; those of Kafka's are as Spark's source has them."""
_DIRECTION = re.compile(r"\s+(?:asc|desc|nulls)\b", re.IGNORECASE)
_PROPERTIES = {
    "cdc.keys": "the job keeps its key there",
    "cdc.own_names": "set own_names",
    "format-version": "set format_version",
    "write.merge.mode": "set write_mode",
    "delta.enableDeletionVectors": "name all engines that read the table in readers",
}
"""Properties that have a field of their own."""


_OF_KEYS = (
    "primary_key",
    "precombine_key",
    "sequence",
    "write_mode",
    "readers",
    "all_late",
    "deleted_column",
    "own_names",
)
"""Fields that mean something only where changes of one key follow each other."""


class TableOptions(ColumnOptions):
    """How changes of one source table land; also of tables that the configuration does not name, where ``unknown_tables`` creates them."""

    format: Annotated[TableFormat, Field(description="table format")] = "delta"
    format_version: Annotated[
        Literal[2, 3] | None,
        Field(
            description="Iceberg's format version, of a table that is created: 2 without it; 3 has row ids, and deletion vectors with "
            "write_mode merge-on-read, which not all engines read"
        ),
    ] = None
    write_mode: Annotated[
        Literal["copy-on-write", "merge-on-read"],
        Field(
            description="of a table that is created: files are rewritten, or rows that go are marked: in position deletes (Iceberg), or in "
            "deletion vectors (Delta), for which readers must be named"
        ),
    ] = "copy-on-write"
    readers: Annotated[
        list[Reader],
        Field(
            description="of a Delta table that is created: all engines that read it. Where each of them reads deletion vectors (databricks, deltalake, "
            "duckdb, polars, spark, trino), changes are marked in these as with write_mode merge-on-read; athena, pyarrow and redshift are taken not to"
        ),
    ] = Field(default_factory=list)
    widen: Annotated[
        bool | None,
        Field(
            description="whether a column of a table that is there becomes wider for a value that does not fit: int to long, float to double, "
            "decimals of more digits, new fields of structs; default: yes, but of Delta only new fields. With true Delta tables get the feature "
            "typeWidening, for which all readers must be named, and be databricks or spark (4.0 or later)"
        ),
    ] = None
    mode: Annotated[
        Literal["upsert", "append", "history"],
        Field(
            description="upsert: the table is as its source is; append: each record is a row of its own, and no row goes or changes; "
            "history: the table keeps every version of a row, with its beginning and its end"
        ),
    ] = "upsert"
    deleted_column: Annotated[
        Text | None,
        Field(
            description="a column of booleans that the job writes: a row that the source deletes stays, with true there and the values that it had"
        ),
    ] = None
    metadata: Annotated[
        dict[Text, MetadataKind],
        Field(description="columns that tell of a row's record, by names of one's choice"),
    ] = Field(default_factory=dict)
    own_names: Annotated[
        dict[OwnColumn, Text],
        Field(
            description="columns that the job keeps for itself, by names of one's choice, such as _cdc_sequence: source_position"
        ),
    ] = Field(default_factory=dict)
    sequence: Annotated[
        Literal["source", "precombine"],
        Field(
            description="what orders the changes of a key: the source's log position, or columns of the rows"
        ),
    ] = "source"
    precombine_key: Annotated[
        list[Text] | None,
        Field(min_length=1, description="the columns of sequence=precombine, as in the table"),
    ] = None
    timestamp_fields: Annotated[
        dict[Text, str],
        Field(
            description="source columns that are times but do not come as such: iso8601, epoch_s, epoch_ms, epoch_us, or a "
            "pattern of strptime"
        ),
    ] = Field(default_factory=dict)
    decimal_fields: Annotated[
        dict[Text, tuple[int, int]],
        Field(
            description="source columns that are decimals but come as texts or numbers: [precision, scale]"
        ),
    ] = Field(default_factory=dict)
    column_types: Annotated[
        dict[Text, ColumnType],
        Field(
            description="types of columns that a table gets where no schema names them, as in the table: string, int64, float64 or "
            "boolean; a column that is NULL in the first batch has no type else"
        ),
    ] = Field(default_factory=dict)
    partition_by: Annotated[
        list[Text], Field(description="of a table that is created; Iceberg takes transforms such as day(ts)")
    ] = Field(default_factory=list)
    sort_by: Annotated[
        list[Text],
        Field(
            description="the sort order of an Iceberg table that is created, for engines that rewrite its files: a column, with desc, or a transform"
        ),
    ] = Field(default_factory=list)
    properties: Annotated[
        dict[Text, str],
        Field(
            description="properties of a table that is created: of Iceberg, or of Delta's configuration, such as delta.logRetentionDuration"
        ),
    ] = Field(default_factory=dict)
    on_misfit: Annotated[
        Literal["dead-letter", "null", "floor"] | dict[Text, OnMisfit],
        Field(
            description="what becomes of a value that its column cannot hold as it is, for all columns or by source column: "
            "dead-letter, null, floor (a time, to the microsecond before it); by column also text: all values of it are texts"
        ),
    ] = "dead-letter"
    dead_letters: Annotated[
        Literal["collect", "fail"],
        Field(description="what becomes of records that cannot land: the table, or an error"),
    ] = "collect"
    epoch: Annotated[
        int,
        Field(ge=0, description="raise it when the source's positions start again (restored, failed over)"),
    ] = 0
    all_late: Annotated[
        Literal["error", "count"],
        Field(
            description="a batch of which every change is late, or one change that is newer by the source's clock, looks like a source that was set back: an error"
        ),
    ] = "error"

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        _check_format(self)
        if (self.sequence == "precombine") != (self.precombine_key is not None):
            raise ValueError("sequence precombine and precombine_key go together")
        for name, (precision, scale) in self.decimal_fields.items():
            if not 0 <= scale <= precision or not 1 <= precision <= DECIMAL_DIGITS_MAX:
                raise ValueError(
                    f"decimal_fields of {name}: a precision up to {DECIMAL_DIGITS_MAX} and a scale up to that"
                )
        if ours := sorted(_PROPERTIES.keys() & self.properties.keys()):
            raise ValueError(
                f"properties has {', '.join(ours)}: {'; '.join(_PROPERTIES[name] for name in ours)}"
            )
        _check_columns(self)
        check_partitions(self.partition_by, self.format)
        check_partitions(self.sort_terms, self.format, field="sort_by")
        _check_own(self)
        return self

    @property
    def is_appended(self) -> bool:
        """Whether each record is a row of its own."""
        return self.mode == "append"

    @property
    def own_columns(self) -> dict[str, pa.DataType]:
        """The columns that the job writes besides the source's."""
        found = {name: METADATA[kind] for name, kind in self.metadata.items()}
        if self.deleted_column is not None:
            found[self.deleted_column] = pa.bool_()
        if self.has_versions:
            found |= self.own.of_order | self.own.of_versions
        elif not self.is_appended:
            found |= self.own.of_order
        return found

    @property
    def sequence_by(self) -> list[str]:
        """The columns that order the changes of a key."""
        return [self.own.epoch, *(self.precombine_key or ()), self.own.sequence]

    @property
    def own(self) -> OwnNames:
        """The names of the columns that order rows, and of those of versions."""
        return OwnNames.chosen(self.own_names)

    @property
    def has_versions(self) -> bool:
        """Whether the table keeps every version of its rows."""
        return self.mode == "history"

    @property
    def keeps_deleted(self) -> bool:
        """Whether something stays of a row that was deleted."""
        return self.has_versions or self.deleted_column is not None

    @property
    def of_records(self) -> dict[str, MetadataKind]:
        """The columns that tell of a row's record."""
        return self.metadata | ({self.own.from_time: "source_time"} if self.has_versions else {})

    @property
    def marks_rows(self) -> bool:
        """Whether rows that go are marked in a table that is created, and no file is rewritten for them."""
        if self.format == "delta":
            return all_read_vectors(self.readers) and not self.is_appended
        return self.write_mode == "merge-on-read"

    @property
    def widening(self) -> Way | None:
        """Which columns of a table that is there become wider for values that do not fit."""
        if self.widen is False:
            return None
        return "iceberg" if self.format == "iceberg" else "delta" if self.widen else "fields"

    @property
    def sort_terms(self) -> list[str]:
        """The columns and transforms of the sort order, without their directions."""
        return [_DIRECTION.split(text.strip(), maxsplit=1)[0] for text in self.sort_by]

    def on_misfit_of(self, column: str) -> OnMisfit:
        """What becomes of misfits of a source column."""
        return (
            self.on_misfit if isinstance(self.on_misfit, str) else self.on_misfit.get(column, "dead-letter")
        )

    @property
    def has_misfits(self) -> bool:
        """Whether misfits of any column are more than dead letters."""
        return self.on_misfit not in ("dead-letter", {})

    @property
    def declared(self) -> dict[str, pa.DataType]:
        """The types of columns that the configuration names, as in the table."""
        named: dict[str, pa.DataType] = dict.fromkeys(self.timestamp_fields, INSTANT)
        named |= {name: pa.decimal128(*digits) for name, digits in self.decimal_fields.items()}
        found = {
            self.column_of(name): pa.string() if self.on_misfit_of(name) == "text" else kind
            for name, kind in named.items()
        }
        return found | {name: _TYPES[kind] for name, kind in self.column_types.items()}


class TargetTable(TableOptions):
    """One table and where its rows come from."""

    database: Name
    table: Name
    source: Annotated[
        str | None,
        Field(
            min_length=1,
            description="source table: table, schema.table or database.schema.table; default: table",
        ),
    ] = None
    primary_key: Annotated[
        list[Text] | None,
        Field(
            min_length=1, description="columns as in the table; default: those of the record's key (Debezium)"
        ),
    ] = None

    location: Annotated[
        Text | None,
        Field(
            description="where the table is: of a Delta table its address; of an Iceberg table that is created where its files go"
        ),
    ] = None
    branch: Annotated[
        Text | None,
        Field(
            description="Iceberg: the branch that the job writes to; one that is not there begins at the newest snapshot of main"
        ),
    ] = None
    shard_column: Annotated[
        Text | None,
        Field(
            description="the table takes the rows of every source that source matches (shards), and this column, which is part of the "
            "key, tells them apart: one of primary_key, or else a column in which the job writes the source's name"
        ),
    ] = None

    @property
    def name(self) -> str:
        return f"{self.database}.{self.table}"

    @property
    def writes_shard(self) -> bool:
        """Whether the job writes the name of a row's source in a column."""
        return self.shard_column is not None and self.shard_column not in (self.primary_key or ())

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that name a row; none where records' keys say it."""
        first = (self.shard_column,) if self.shard_column is not None and self.writes_shard else ()
        return (*first, *self.primary_key) if self.primary_key else ()

    @model_validator(mode="after")
    def _check_key(self) -> Self:
        if self.branch is not None and self.format == "delta":
            raise ValueError("branch is of Iceberg tables, and a table of format delta has none")
        for field in ("primary_key", "precombine_key"):
            names = getattr(self, field) or []
            if again := twice(names):
                raise ValueError(f"{field} has {', '.join(again)} twice")
        keys, order = set(self.primary_key or ()), set(self.precombine_key or ())
        if keys & order:
            raise ValueError(
                f"{sorted(keys & order)} are primary_key and precombine_key: a key cannot order its changes"
            )
        wrong = sorted(
            name
            for name, mode in ({} if isinstance(self.on_misfit, str) else self.on_misfit).items()
            if mode in {"null", "floor"} and self.column_of(name) in keys
        )
        if wrong:
            raise ValueError(
                f"on_misfit of {', '.join(wrong)} would make one row of two: they are primary_key, of which only text lands "
                "values that do not fit"
            )
        shard = () if self.shard_column is None else (self.shard_column,)
        _check_kept(self, self.own, shard_column=shard)
        for setting, names in {"precombine_key": order, "name_mapping": self.name_mapping.values()}.items():
            if {*shard} & {*names}:
                raise ValueError(f"shard_column names {self.shard_column}, which {setting} has too")
        _check_kept(self, {*self.own_columns}, primary_key=keys, precombine_key=order, shard_column=shard)
        if taken := (keys | order | {self.shard_column}) & {*self.computed}:
            raise ValueError(
                f"computed makes {', '.join(sorted(map(str, taken)))}, which is a key or an order of changes"
            )
        return self


def _checked_source(table: TargetTable) -> TargetTable:
    if table.source is not None and {*table.source} & {*"*?"}:
        raise ValueError(
            f"source {table.source!r} is a pattern, and source takes a name: one table takes sources of one name in several schemas or "
            "databases (shard_column). Give each of these source tables a table of its own; or let the source send all under one name, "
            "as a PostgreSQL publication does with publish_via_partition_root for partitions"
        )
    return table


NamedTable = Annotated[TargetTable, AfterValidator(_checked_source)]
"""A table of a configuration.  One that is made unasked may come from a source with any letters in its name."""


# --- what its format and its readers have ---------------------------------------------------------------
def _check_format(table: TableOptions) -> None:
    """Refuse options that the table's format, or its readers, do not have.

    Raises:
        ValueError: what is wrong, for pydantic.
    """
    if table.write_mode == "merge-on-read" and table.format == "delta" and not table.marks_rows:
        lacking = sorted({*table.readers} - READ_VECTORS)
        raise ValueError(
            "write_mode merge-on-read marks rows of Delta tables in deletion vectors, and "
            + (
                f"these readers do not read them: {', '.join(lacking)}"
                if lacking
                else "not every engine reads them"
            )
            + ". Name all engines that read the table in readers, or leave write_mode out: files are rewritten then"
        )
    if table.widen and table.format == "delta" and not (table.readers and {*table.readers} <= READ_WIDENED):
        lacking = sorted({*table.readers} - READ_WIDENED)
        raise ValueError(
            "widen gives Delta tables the feature typeWidening, and "
            + (
                f"these readers do not know it: {', '.join(lacking)}"
                if lacking
                else "not every engine knows it"
            )
            + ". Name all engines that read the table in readers, or leave widen out: values that do not fit are dead letters then"
        )
    check_readers(table.readers, table.format)
    if table.format_version is not None and table.format == "delta":
        raise ValueError("format_version is of Iceberg tables, and does nothing for format delta")
    if table.sort_by and table.format == "delta":
        raise ValueError("sort_by is of Iceberg tables, and does nothing for format delta")


def _check_columns(table: TableOptions) -> None:
    """Refuse options that contradict each other.

    Raises:
        ValueError: what is wrong, for pydantic.
    """
    left = set(table.leave_out)
    by_column = {} if isinstance(table.on_misfit, str) else table.on_misfit
    for name, given in (
        ("on_misfit", by_column),
        ("name_mapping", table.name_mapping),
        ("timestamp_fields", table.timestamp_fields),
        ("decimal_fields", table.decimal_fields),
    ):
        idle = sorted(table.dropped & set(given))
        if idle:
            raise ValueError(f"{name} of {', '.join(idle)} does nothing: leave_out has them too")
    mapped = {
        table.column_of(name): field
        for field in ("timestamp_fields", "decimal_fields")
        for name in getattr(table, field)
    }
    for name in sorted(set(mapped) & set(table.column_types)):
        raise ValueError(f"{name} cannot be in column_types and {mapped[name]}")
    both = sorted(set(table.timestamp_fields) & set(table.decimal_fields))
    if both:
        raise ValueError(f"{', '.join(both)} cannot be in timestamp_fields and decimal_fields")
    declared = {**table.timestamp_fields, **table.decimal_fields}
    as_text = sorted(name for name, mode in by_column.items() if mode == "text" and name in declared)
    if as_text:
        raise ValueError(
            f"on_misfit text of {', '.join(as_text)} makes a text of the column, and timestamp_fields or decimal_fields "
            "something else: leave one of them out"
        )
    idle = sorted(
        name for name, mode in by_column.items() if mode == "floor" and name in table.decimal_fields
    )
    if idle:
        raise ValueError(
            f"on_misfit floor of {', '.join(idle)} does nothing: it is of times, and they are decimals"
        )
    needed = {
        "primary_key": getattr(table, "primary_key", None) or (),
        "precombine_key": table.precombine_key or (),
        "partition_by": partition_columns(table.partition_by),
        "sort_by": partition_columns(table.sort_terms),
        "column_types": table.column_types,
    }
    for field, names in needed.items():
        lost = sorted(
            name
            for name in left - (table.only_read if field == "column_types" else set())
            if table.column_of(name) in names
        )
        if lost:
            raise ValueError(
                f"leave_out has {', '.join(lost)}, which {field} needs: no row would have a value there"
            )
    targets = list(table.name_mapping.values())
    if len(set(targets)) < len(targets):
        raise ValueError("name_mapping gives two columns one name")


# --- columns that the job keeps ---------------------------------------------------------------------------
def _check_own(table: TableOptions) -> None:
    """Refuse names that the job keeps, and columns of it that do nothing in the mode.

    Raises:
        ValueError: what is wrong, for pydantic.
    """
    own = table.own
    _check_kept(table, {*table.own_columns}, name_mapping=table.name_mapping.values())
    _check_kept(table, {*table.own_columns}, column_types=table.column_types, computed=table.computed)
    _check_kept(table, {own.epoch, own.sequence}, partition_by=table.partition_by)
    _check_added(table)
    _check_names(table)
    _check_own_of_format(table)
    if not table.is_appended:
        if table.deleted_column is not None and (table.has_versions or table.sequence != "source"):
            raise ValueError(
                "deleted_column needs mode upsert and sequence source: with mode history a delete ends a version"
            )
        if table.deleted_column is not None and table.filter is not None:
            raise ValueError(
                "filter and deleted_column do not go together: a row that leaves the filter was not deleted, and one that never passed "
                "would be there as deleted"
            )
        if "op" in table.metadata.values():
            raise ValueError(
                f"metadata op does nothing with mode {table.mode}: a row tells of an upsert, and of no delete"
            )
        if table.has_versions and table.sequence != "source":
            raise ValueError(
                "mode history needs sequence source: positions of the source tell versions apart"
            )
        return
    fields = type(table).model_fields
    idle = [
        name
        for name in _OF_KEYS
        if name in fields
        and getattr(table, name) != fields[name].get_default(call_default_factory=True)
        and not (name == "readers" and table.widen)
    ]
    if idle:
        raise ValueError(f"{', '.join(idle)} do nothing with mode append: each record is a row of its own")


def _check_kept(table: TableOptions, kept: Collection[str], **named: Iterable[str]) -> None:
    """Refuse settings that name columns which the job keeps, also in other letters' case: engines tell no case apart.

    Raises:
        ValueError: which setting, which columns, and what the job calls them.
    """
    for setting, names in named.items():
        known = {name.lower() for name in kept}
        if taken := sorted({name for name in names if name.lower() in known}):
            lower = {name.lower() for name in taken}
            ours = [
                own
                for own, to in zip(OwnNames(), table.own, strict=True)
                if to != own and to.lower() in lower
            ]
            why = f" (own_names of {', '.join(ours)})" if ours else ""
            raise ValueError(f"{setting} names columns that the job keeps: {', '.join(taken)}{why}")


def _check_own_of_format(table: TableOptions) -> None:
    """Refuse columns of names that the table's format keeps for itself."""
    kept = kept_names.of_table(table.format, table.properties)
    settings: Mapping[str, Iterable[str]] = {
        "name_mapping": table.name_mapping.values(),
        "column_types": table.column_types,
        "computed": table.computed,
        "metadata": table.metadata,
        "deleted_column": [] if table.deleted_column is None else [table.deleted_column],
        "own_names": table.own_names.values(),
    }
    for setting, names in settings.items():
        if taken := kept_names.among(names, kept):
            raise ValueError(
                f"{setting} names {', '.join(taken)}, which {table.format} keeps for itself: Spark could not read the table"
            )


def _check_added(table: TableOptions) -> None:
    """Refuse columns that tell of a row's record, or that it was deleted, by names that are there already; engines tell no case apart."""
    named = [("metadata", name) for name in table.metadata]
    named += [] if table.deleted_column is None else [("deleted_column", table.deleted_column)]
    kept = {*OwnNames(), *OF_FRAMES, *(name.lower() for name in table.own)}
    for at, (setting, name) in enumerate(named):
        _check_kept(table, {name} if name.lower() in kept else (), **{setting: [name]})
        if before := [f"{where} {other}" for where, other in named[:at] if other.lower() == name.lower()]:
            raise ValueError(f"{setting} names {name}, a column that is there already ({before[0]})")


def _check_names(table: TableOptions) -> None:
    """Refuse chosen names that are not the column's alone, and those of columns that the table does not get."""
    chosen = table.own_names
    named = [(own, to) for own, to in zip(OwnNames(), table.own, strict=True)]
    for one, to in chosen.items():
        if others := [own for own, other in named if own != one and other.lower() == to.lower()]:
            raise ValueError(f"own_names gives {to} to {one}, and {others[0]} has that name")
        _check_kept(table, {to} if to.lower() in OF_FRAMES else (), **{f"own_names of {one}": [to]})
    if not table.is_appended and (
        idle := sorted(name for name, to in chosen.items() if to not in table.own_columns)
    ):
        raise ValueError(f"own_names of {', '.join(idle)} does nothing: only mode history has these columns")
