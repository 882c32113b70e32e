"""States what an Iceberg write is to those who share its commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from safewrite.iceberg.write.summary import Write

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema

    from safewrite.iceberg.write.staging import Staging
    from safewrite.protocol.iceberg.head import TableVersion


@dataclass(frozen=True, slots=True)
class WaitingFiles:
    """An append of another process, with its data files."""

    path: str
    write: Write
    files: tuple[DataFile, ...]


class SharedPlan(Protocol):
    """A plan that may wait for others to commit it, and commit those that wait."""

    write: Write
    write_id: str
    snapshot_id: int
    branch: str
    planned: TableVersion
    staging: Staging

    @property
    def schema(self) -> Schema:
        """The schema that the rows were written under."""

    @property
    def added(self) -> Sequence[DataFile]:
        """Data files that the snapshot adds."""

    def carry(self, taken: Sequence[WaitingFiles], write_id: str) -> None:
        """Commit these writes too."""

    def begin_again(self, write_id: str) -> None:
        """Be another attempt: with another body go a snapshot and manifests of its own."""
