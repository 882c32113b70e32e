"""Names the columns in which a job keeps the order of rows, and of versions their beginnings and ends; refuses what clashes with them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

import pyarrow as pa

from safewrite.values import kept_names

if TYPE_CHECKING:
    from safewrite.cdc.config.table_config import TableOptions

INSTANT = pa.timestamp("us", tz="UTC")
OwnColumn = Literal[
    "_cdc_epoch", "_cdc_sequence", "_cdc_from_time", "_cdc_until_epoch", "_cdc_until_sequence", "_cdc_until_time",
    "_cdc_revision",
]  # fmt: skip
OF_FRAMES = frozenset({"_cdc_op", "_cdc_place", "_cdc_lacks", "_cdc_row"})
"""Columns that changes have on their way to a table; no table has them."""
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


class OwnNames(NamedTuple):
    """The columns of a table that the job keeps: a version is from the epoch and position of its change until those of the next one."""

    epoch: str = "_cdc_epoch"
    """Which count of the source's positions."""
    sequence: str = "_cdc_sequence"
    """The position of the change that made the row."""
    from_time: str = "_cdc_from_time"
    until_epoch: str = "_cdc_until_epoch"
    until: str = "_cdc_until_sequence"
    until_time: str = "_cdc_until_time"
    revision: str = "_cdc_revision"

    @classmethod
    def chosen(cls, names: Mapping[OwnColumn, str]) -> OwnNames:
        """The names, those that the configuration gives in the place of ours."""
        given = {str(name): to for name, to in names.items()}
        return cls(*(given.get(name, name) for name in cls()))

    @property
    def of_order(self) -> dict[str, pa.DataType]:
        """The columns of a table whose rows have keys."""
        return {self.epoch: pa.int64(), self.sequence: pa.string()}

    @property
    def of_versions(self) -> dict[str, pa.DataType]:
        """The further ones of a table that keeps all versions."""
        return {
            self.from_time: INSTANT, self.until_epoch: pa.int64(), self.until: pa.string(), self.until_time: INSTANT,
            self.revision: pa.int64(),
        }  # fmt: skip


def check_own(table: TableOptions) -> None:
    """Refuse names that the job keeps, and columns of it that do nothing in the mode.

    Raises:
        ValueError: what is wrong, for pydantic.
    """
    own = table.own
    check_kept(table, {*table.own_columns}, name_mapping=table.name_mapping.values())
    check_kept(table, {*table.own_columns}, column_types=table.column_types, computed=table.computed)
    check_kept(table, {own.epoch, own.sequence}, partition_by=table.partition_by)
    _check_added(table)
    _check_names(table)
    _check_of_format(table)
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


def check_kept(table: TableOptions, kept: Collection[str], **named: Iterable[str]) -> None:
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


def _check_of_format(table: TableOptions) -> None:
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
        check_kept(table, {name} if name.lower() in kept else (), **{setting: [name]})
        if before := [f"{where} {other}" for where, other in named[:at] if other.lower() == name.lower()]:
            raise ValueError(f"{setting} names {name}, a column that is there already ({before[0]})")


def _check_names(table: TableOptions) -> None:
    """Refuse chosen names that are not the column's alone, and those of columns that the table does not get."""
    chosen = table.own_names
    named = [(own, to) for own, to in zip(OwnNames(), table.own, strict=True)]
    for one, to in chosen.items():
        if others := [own for own, other in named if own != one and other.lower() == to.lower()]:
            raise ValueError(f"own_names gives {to} to {one}, and {others[0]} has that name")
        check_kept(table, {to} if to.lower() in OF_FRAMES else (), **{f"own_names of {one}": [to]})
    if not table.is_appended and (
        idle := sorted(name for name, to in chosen.items() if to not in table.own_columns)
    ):
        raise ValueError(f"own_names of {', '.join(idle)} does nothing: only mode history has these columns")
