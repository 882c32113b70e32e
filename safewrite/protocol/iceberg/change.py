"""States what an Iceberg commit asks of a catalog, and what can be committed."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.member_queue import Sharer, Steps


# --- what is asked of the world --------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class LoadTable(Effect):
    """The table as its catalog shows it now: ``Ok(TableVersion) | Missing | Failed | Unknown``."""

    SAYS = "Loading the table from its catalog"


@dataclass(frozen=True, slots=True)
class ReadMetadata(Effect):
    """The table as an earlier metadata file shows it: ``Ok(TableVersion) | Missing | Unknown``.

    ``of_main``: its main branch, where the table is open on another one.
    """

    SAYS = "Reading {0.location}"
    location: str
    of_main: bool = False


@dataclass(frozen=True, slots=True)
class SwapTable(Effect):
    """Apply a change if its base still is the table: ``Ok | Exists | Missing | Busy | Failed | Unknown``.

    ``Exists``: refused, because the base is not the table any more or another writer is just changing it.
    """

    SAYS = "Committing to the catalog"
    change: TableChange


@dataclass(frozen=True, slots=True)
class CreateTable(Effect):
    """Make a table if there is none of its name: ``Ok | Exists | Missing | Busy | Failed | Unknown``."""

    SAYS = "Creating the table in its catalog"
    creation: Creation


# --- what is committed -----------------------------------------------------------------------------
class TableChange(Protocol):
    """A change of a table's metadata, bound to one base and ready for the catalog."""

    @property
    def base(self) -> TableVersion:
        """The metadata that the change is bound to."""

    @property
    def written(self) -> tuple[str, ...]:
        """Files that only this change names, besides data files."""

    def landed_in(self, head: TableVersion) -> bool:
        """Whether this change is part of that metadata."""

    def stands_in(self, head: TableVersion) -> bool:
        """Whether the change is still in force there (its snapshot was not rolled back)."""

    def may_land_on(self, head: TableVersion) -> bool:
        """Whether the catalog could still apply it to that metadata."""

    def accounted_in(self, head: TableVersion) -> bool:
        """Whether that metadata would show the change if it had landed at any time since its base."""


class Creation(Protocol):
    """A table to be created."""

    def landed_in(self, head: TableVersion) -> bool:
        """Whether the table that is there is this one."""


class Plan(Protocol):
    """A write to be committed, on any base."""

    rebases: bool
    """Whether it is brought to a newer base at the cost of what others changed, so that the next try is shorter than the first."""
    rebased: int
    """How often it was staged again for what the commits of others changed alone; such a conflict may be met as often as it comes."""

    def holding(self, write_id: str, held_s: float) -> Plan:
        """A snapshot without rows that asks others to wait so many seconds for the next one."""

    def examine(self, head: TableVersion) -> int | None:
        """The snapshot that already carries this write, if there is one.

        Raises a ``NotCommittedError`` if that table version makes the write impossible.
        """

    def stage(self, head: TableVersion) -> Generator[Effect, Outcome, TableChange]:
        """Bind the plan to a base, and upload whatever the change will name.

        Raises BaseMovedError before much is done in vain.
        """


class CatalogSharer(Sharer, Protocol):
    """A plan as one that other writers may commit."""

    @property
    def folder(self) -> str:
        """Where members of the table wait."""

    def secure(self) -> Steps:
        """Upload what is not there yet: whoever leads names the files of a member."""

    def is_barred(self, head: TableVersion) -> bool:
        """Whether a table version shows that no leader can commit it any more, whatever comes after.

        A change of the schema alone does not: it takes no sequence number, and may be taken back before a leader commits.
        """

    def see(self, head: TableVersion) -> None:
        """Keep the newest table version that was examined: members are judged by it."""
