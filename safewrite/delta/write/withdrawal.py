"""Takes changes back by a version without rows: see ``safewrite.table.withdrawal``."""

from __future__ import annotations

from dataclasses import replace

from safewrite.delta.write.recalled import DeltaDone
from safewrite.delta.write.transaction import Transaction, saying
from safewrite.delta.write.waiting import WITHDRAWN
from safewrite.delta.write.write import found_again, in_ledger
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta.candidate import Arbiter
from safewrite.protocol.delta.commit import commit
from safewrite.protocol.effects import NewId, Ok
from safewrite.protocol.members import Found
from safewrite.protocol.values import LedgerRecord
from safewrite.table.withdrawal import TakenBack


def taken_back(plan: Transaction, *, arbiter: Arbiter, limits: Limits) -> TakenBack[DeltaDone]:
    """Take back what was offered of a write; the commit of another that carries it, if one does."""
    named = plan.write
    drawn = yield NewId(name="withdraw.id")
    assert isinstance(drawn, Ok)
    candidate = saying(plan, str(drawn.value), {WITHDRAWN: [named.key]})
    record = LedgerRecord(named.key, plan.reached, named.fingerprint, table_id=plan.table_id)
    landed = yield from commit(candidate, plan.reached, arbiter=replace(arbiter, shares=0), limits=limits)
    if landed.already:
        plan.found, plan.followed = candidate.found, candidate.followed
        found = Found(landed.version, own=False, members=landed.members)
        return (yield from found_again(plan, found, record, limits, attempts=0)), False
    if in_ledger(named):
        yield from keys.doubt(record, landed.version, limits)  # it is decided there
    return None, landed.version == plan.reached + 1
