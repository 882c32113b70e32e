"""Names the columns in which a job keeps the order of rows, and of versions their beginnings and ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import pyarrow as pa

INSTANT = pa.timestamp("us", tz="UTC")
OwnColumn = Literal[
    "_cdc_epoch", "_cdc_sequence", "_cdc_from_time", "_cdc_until_epoch", "_cdc_until_sequence", "_cdc_until_time",
    "_cdc_revision",
]  # fmt: skip
OF_FRAMES = frozenset({"_cdc_op", "_cdc_place", "_cdc_lacks", "_cdc_row"})
"""Columns that changes have on their way to a table; no table has them."""


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
        ours = cls()
        if not names:
            return ours
        given = {str(name): to for name, to in names.items()}
        return cls(*(given.get(name, name) for name in ours))

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
