"""Takes changes back that were refused while others may still hold them, by a version that says so.

Who waits cannot take its member back from a writer that has read it.  So it commits a version without rows that names its key:
whoever leads has examined every commit since a member's base, and carries none whose key is named there.  That holds for what
earlier calls offered under the key as well, so the key is decided.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

from safewrite.delta.log.actions import Action
from safewrite.delta.write.recalled import DeltaDone
from safewrite.delta.write.transaction import Transaction
from safewrite.delta.write.waiting import WITHDRAWN
from safewrite.delta.write.write import found_again, in_ledger
from safewrite.errors import (
    CommitUnknownError,
    InvalidInputError,
    ReplayMismatchError,
    UnsupportedTableError,
    WouldAlterError,
)
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta.candidate import Arbiter
from safewrite.protocol.delta.commit import commit
from safewrite.protocol.effects import Effect, NewId, Ok, Outcome, Put
from safewrite.protocol.members import Found
from safewrite.protocol.values import LedgerRecord
from safewrite.table.operation import keyed_until_landed

log = logging.getLogger("safewrite")
REFUSALS = (InvalidInputError, WouldAlterError, UnsupportedTableError)


@dataclass
class Withdrawal(Transaction):
    """A version without rows, after which no commit carries what was offered; it looks for the key in all before it."""

    @property
    def _listed(self) -> tuple[dict[str, Any], Put | None]:
        return {"writes": [], WITHDRAWN: [self.write.key]}, None

    def _txns(self, version: int) -> list[Action]:
        return []


def or_withdrawn(
    steps: Generator[Effect, Outcome, DeltaDone], plan: Transaction, *, arbiter: Arbiter, limits: Limits
) -> Generator[Effect, Outcome, DeltaDone]:
    """Write, and take back what is refused while others may hold it."""
    try:
        return (yield from steps)
    except CommitUnknownError as error:
        return (yield from keyed_until_landed(withdrawn(plan, error, arbiter, limits), plan))


def withdrawn(
    plan: Transaction, error: CommitUnknownError, arbiter: Arbiter, limits: Limits
) -> Generator[Effect, Outcome, DeltaDone]:
    """What became of a write that ended in this doubt: who committed it, if another did.

    Raises:
        InvalidInputError, WouldAlterError, UnsupportedTableError: the refusal that caused the doubt, which no one can undo any more.
        CommitUnknownError: ``error``, for another reason, or where no version could be had.
    """
    cause, named = error.__cause__, plan.write
    if not isinstance(cause, REFUSALS) or not named.offer:
        raise error
    try:
        done, at = yield from _withdrawn(plan, arbiter, limits)
    except ReplayMismatchError:
        raise
    except Exception:  # of a library too
        log.info("refused changes could not be taken back: they stay in doubt", exc_info=True)
        raise error from cause
    if done is not None:
        return done
    # Where no other commit came in between, no second plan is made: it would be refused as well, and cost another version.
    cause.is_settled = at == plan.reached + 1
    raise cause


def _withdrawn(
    plan: Transaction, arbiter: Arbiter, limits: Limits
) -> Generator[Effect, Outcome, tuple[DeltaDone | None, int]]:
    """The commit of another that carries the write, or the version that takes it back."""
    named = plan.write
    drawn = yield NewId(name="withdraw.id")
    assert isinstance(drawn, Ok)
    candidate = Withdrawal(
        commit_id=str(drawn.value),
        write=replace(named, rows=0, files=0, txn=None, changes=None, offer=""),
        timestamp_ms=plan.timestamp_ms,
        limits=limits,
        state=plan.state,
        engine_version=plan.engine_version,
        accounted=plan.reached,
        table_id=plan.table_id,
    )
    record = LedgerRecord(named.key, plan.reached, named.fingerprint, table_id=plan.table_id)
    landed = yield from commit(candidate, plan.reached, arbiter=replace(arbiter, shares=0), limits=limits)
    if landed.already:
        plan.found, plan.followed = candidate.found, candidate.followed
        found = Found(landed.version, own=False, members=landed.members)
        return (yield from found_again(plan, found, record, limits, attempts=0)), landed.version
    if in_ledger(named):
        yield from keys.doubt(record, landed.version, limits)  # it is decided there
    return None, landed.version
