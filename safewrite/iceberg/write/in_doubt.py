"""Says until when a write may still land that ended in doubt: on one table version, or up to a sequence number."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol

from safewrite.errors import CommitUnknownError
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.members import MemberWrite
from safewrite.protocol.values import LedgerRecord, noted_sequence, sequence_noted


def record(noted: LedgerRecord | None, through: int, limits: Limits) -> Generator[Effect, Outcome, bool]:
    """Record up to which sequence number others may commit a write; False without a ledger."""
    return noted is not None and (yield from keys.doubt(noted, noted_sequence(through), limits))


def through_of(noted: LedgerRecord | None) -> int:
    """The sequence number up to which others may commit a write, by its record; -1 if it tells none."""
    found = sequence_noted(noted.in_doubt_at) if noted is not None and noted.version is None else None
    return -1 if found is None else found


class Doubted(Protocol):
    """A plan whose commit may have ended in doubt."""

    @property
    def write(self) -> MemberWrite: ...

    planned: TableVersion
    bound: TableVersion | None
    through: int | None


class AttemptsInDoubt:
    """What a process knows of its attempts that ended in doubt, by key: their bases, and up to when others may commit them."""

    def __init__(self) -> None:
        self._by_key: dict[str, tuple[TableVersion, int | None]] = {}

    def note(self, plan: Doubted) -> None:
        """Keep that an attempt ended in doubt."""
        base = plan.bound if plan.through is None else plan.planned
        if base is not None:
            members = plan.write.members or (plan.write,)
            self._by_key |= dict.fromkeys((write.key for write in members), (base, plan.through))

    def check(self, key: str, head: TableVersion) -> None:
        """Raise if an attempt may still land on ``head``."""
        base, through = self._by_key.get(key, (None, None))
        if base is None or base.scope != head.scope:
            return
        if through is not None:
            check_shared(through, head, key)
        elif base.current == head.current:
            raise may_land(key)


def check_shared(through: int, head: TableVersion, key: str) -> None:
    """Raise if others may still commit a write."""
    if through > head.last_sequence:
        raise may_land(
            key,
            f"as long as the table has not reached sequence number {through}: it had waited where others take waiting writes",
        )


def may_land(
    key: str, why: str = "an attempt ended in doubt and the table has not changed since"
) -> CommitUnknownError:
    """The error for a write that is not in the table yet."""
    return CommitUnknownError(
        f"The write with key {key!r} is not in the table, and may still land: {why}. Append the same rows with the same key to decide.",
        key=key,
    )
