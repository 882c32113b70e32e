"""Names the columns in which a job keeps the order of rows, and of versions their beginnings and ends; refuses what clashes with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

import pyarrow as pa

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
    taken = sorted(
        {*table.own_columns} & {*table.name_mapping.values(), *table.column_types, *table.computed}
        | {own.epoch, own.sequence} & {*table.partition_by}
    )
    if taken:
        raise ValueError(f"{', '.join(taken)} are columns that the job keeps")
    names = [name.lower() for name in (*table.metadata, table.deleted_column) if name is not None]
    if len(set(names)) < len(names) or {*names} & {*OwnNames(), *OF_FRAMES, *(name.lower() for name in own)}:
        raise ValueError("metadata and deleted_column have a column twice, or one that the job keeps")
    _check_names(table)
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


def _check_names(table: TableOptions) -> None:
    """Refuse chosen names that are not the column's alone, and those of columns that the table does not get."""
    chosen = table.own_names
    lower = [name.lower() for name in table.own]
    twice = sorted(
        {name for name in chosen.values() if lower.count(name.lower()) > 1 or name.lower() in OF_FRAMES}
    )
    if twice:
        raise ValueError(
            f"own_names gives {', '.join(twice)} to two columns, or it is one that the job keeps"
        )
    if not table.is_appended and (
        idle := sorted(name for name, to in chosen.items() if to not in table.own_columns)
    ):
        raise ValueError(f"own_names of {', '.join(idle)} does nothing: only mode history has these columns")
