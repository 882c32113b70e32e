"""States what a Delta write is to those who share its commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, Self

from safewrite.protocol import members

if TYPE_CHECKING:
    from safewrite.delta.log.snapshot import Snapshot
    from safewrite.delta.write.staging import StagedFile
    from safewrite.protocol.effects import Put


@dataclass(frozen=True, slots=True)
class Write(members.MemberWrite):
    """What identifies one write, in the commit that carries it."""

    fingerprint_int63: int = field(default=0, kw_only=True)

    def covering(self, mark: bytes) -> Self:
        """See ``MemberWrite.covering``."""
        mixed = self.fingerprint_int63 ^ (int.from_bytes(mark, "big") >> 1)
        return replace(members.MemberWrite.covering(self, mark), fingerprint_int63=mixed)


@dataclass(frozen=True, slots=True)
class WaitingWrite:
    """An append of another process, with the ``add`` actions of its files."""

    path: str
    write: Write
    adds: tuple[dict[str, Any], ...]


class SharedWrite(Protocol):
    """A transaction that may wait for others to commit it, and commit those that wait."""

    write: Write
    commit_id: str
    state: Snapshot | None
    files: Sequence[StagedFile]
    taken: tuple[WaitingWrite, ...]
    known: dict[int, Mapping[str, Any] | None]
    read: dict[str, tuple[str, Any]]

    @property
    def member_file(self) -> Put | None:
        """The file of the commit's writes, if they are too many for ``commitInfo``."""


class SharedApply(SharedWrite, Protocol):
    """The same of changes, which are planned again when others join."""

    def plan_again(self) -> None:
        """Make a plan before the next try."""
