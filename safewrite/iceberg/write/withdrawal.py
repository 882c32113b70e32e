"""Takes changes back by a snapshot without rows: see ``safewrite.table.withdrawal``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from safewrite.iceberg.write import in_doubt
from safewrite.iceberg.write.earlier_writes import base_of
from safewrite.iceberg.write.members import WITHDRAWN
from safewrite.iceberg.write.write import IcebergDone, Ledgers, WritePlan, already_there
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Delete, Effect, List, NewId, Ok, Together
from safewrite.protocol.iceberg.commit import commit
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.member_queue import waiting
from safewrite.protocol.members import hashed
from safewrite.protocol.values import LedgerRecord
from safewrite.table.withdrawal import TakenBack


class Withdrawable(WritePlan, Protocol):
    """A plan whose write others may hold."""

    @property
    def folder(self) -> str:
        """Where it waits."""

    def saying(self, write_id: str, said: Mapping[str, str]) -> WritePlan:
        """A snapshot without rows, with these properties."""


def taken_back(
    plan: Withdrawable, head: TableVersion, *, helpers: Ledgers, limits: Limits
) -> TakenBack[IcebergDone]:
    """Take back what was offered of a write; the commit of another that carries it, if one does.

    ``head`` is the table version that refused the write, or an older one.
    """
    named = plan.write
    drawn = yield NewId(name="withdraw.id")
    assert isinstance(drawn, Ok)
    taking = plan.saying(str(drawn.value), {WITHDRAWN: named.key})
    is_noted = helpers.ledger and named.txn is None and keys.base_of_generated(named.key) is None
    record = LedgerRecord(named.key, base_of(head), named.fingerprint) if is_noted else None
    swapped = yield from commit(taking, head, limits=limits, lease_queue=helpers.queue)
    if swapped.already:
        at = swapped.snapshot_id
        assert at is not None
        plan.met |= taking.met
        return (yield from already_there(plan, at, swapped.head, record, limits, attempts=0)), False
    plan.through = swapped.head.sequences[taking.snapshot_id]  # it is decided there
    yield from in_doubt.record(record, plan.through, limits)
    listed = yield List(plan.folder, name="withdraw.queue")
    there = waiting(listed) if isinstance(listed, Ok) else []
    own: list[Effect] = [
        Delete(one.path, name="withdraw.delete") for one in there if one.key_hash == hashed(named.key)
    ]
    if own:
        yield Together(tuple(own), name="withdraw.delete")
    return None, swapped.attempts == 1
