"""Tells what came into an append-only bronze table since a position, and refuses every gap."""

from __future__ import annotations

import datetime as dt
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from safewrite.errors import ConflictError


class BronzeGapError(ConflictError):
    """Silver cannot follow bronze from where it is; the message names the way out."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of bronze; ``handle`` is what its reader needs."""

    path: str
    rows: int
    handle: Any = None


@dataclass(frozen=True, slots=True)
class BronzeCommit:
    """What one commit brought; ``version`` is the Delta version or Iceberg snapshot id."""

    version: int
    files: tuple[DataFile, ...]
    at_ms: int | None = None
    """When it was made, as its writer says."""


def stamped(version: int, content: bytes) -> int:
    """A version and a sum of its commit in one number."""
    return (version << 32) | zlib.crc32(content)


def stamp_of_other(version: int, stamp: int) -> bool:
    """Whether a stamp is of another version: whoever moved the position since, an earlier safewrite, made none."""
    return stamp >> 32 != version


class Lineage(ABC):
    """A bronze table as silver reads it, at the newest state that :meth:`look` saw.

    ``way_out`` is the command or call that mends what silver cannot follow: refusals name it.
    """

    def __init__(self, name: str, uri: str, way_out: str) -> None:
        self.name, self.uri, self.way_out = name, uri, way_out

    @abstractmethod
    def look(self) -> None:
        """Read the newest state.  Raises StorageError, TableNotFoundError."""

    @property
    @abstractmethod
    def table_id(self) -> str:
        """Tells the table from one that is made anew at its address."""

    @property
    @abstractmethod
    def head(self) -> int:
        """The newest version or snapshot id; -1 for an Iceberg table without one."""

    @abstractmethod
    def mark(self) -> str | None:
        """Marks this state of the table for :meth:`Places.stands`; None if there is a newer one already."""

    @abstractmethod
    def since(self, position: int) -> list[BronzeCommit]:
        """The commits after a position up to the head, oldest first, without those that only rearrange rows.

        Raises:
            BronzeGapError: rows were removed, or the way from the position to the head is gone.
        """

    @abstractmethod
    def from_time(self, since_ms: int) -> list[BronzeCommit]:
        """As :meth:`since`, of the commits that were made at a time or later, by the clocks of their writers.

        Raises:
            BronzeGapError: also where what is left of the history does not go back so far.
        """

    @abstractmethod
    def commit(self, version: int) -> BronzeCommit:
        """What one commit brought, whether the head still has it or not.

        Raises:
            BronzeGapError: nothing is left of it, or it is not one that only appended.
        """

    @abstractmethod
    def whole(self) -> list[DataFile]:
        """All files of the head.  Raises BronzeGapError for rows that were removed in part."""

    @abstractmethod
    def read(self, files: Sequence[DataFile], columns: Sequence[str] | None = None) -> pa.Table:
        """Rows of files.

        Raises:
            BronzeGapError: a file is gone.
        """

    @property
    def position_name(self) -> str:
        """Under this name silver keeps how far it has come."""
        return f"bronze/{self.table_id}"

    @property
    def commit_name(self) -> str:
        """Under this name silver keeps which commit of bronze it came to, where another may take its number."""
        return f"{self.position_name}/commit"

    def stamp(self, version: int) -> int | None:
        """Tells a commit from another that took its number after bronze was put back; None if it needs no telling, or is gone."""
        return None

    def is_same(self, version: int, stamp: int | None) -> bool:
        """Whether bronze has the commit that a stamp was made of; true where nothing tells."""
        return stamp is None or stamp_of_other(version, stamp) or self.stamp(version) in (None, stamp)

    # --- refusals -----------------------------------------------------------------------------------
    def gap(self, what: str) -> BronzeGapError:
        """Refuse what silver cannot follow, and name the way out."""
        return BronzeGapError(
            f"Bronze of {self.name} ({self.uri}) cannot be followed: {what}. Nothing was written to silver, which is as it "
            f"was. `{self.way_out}` lands files again whose rows bronze lost, applies all that bronze "
            "holds and goes on from there; what silver took from rows that bronze no longer has stays in silver."
        )

    def forgot(self, since_ms: int) -> BronzeGapError:
        """What is left of the history begins after a time."""
        at = dt.datetime.fromtimestamp(since_ms / 1000, dt.UTC).isoformat(sep=" ", timespec="seconds")
        return self.gap(f"its history no longer goes back to {at}")

    def removed(self, version: int, by: str) -> BronzeGapError:
        """Rows of bronze were removed or replaced."""
        return self.gap(f"version {version} removed rows ({by}), and bronze is append-only")
