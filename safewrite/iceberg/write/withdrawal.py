"""Takes changes back by a snapshot without rows: see ``safewrite.table.withdrawal``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from safewrite.iceberg.write import in_doubt
from safewrite.iceberg.write.earlier_writes import base_of
from safewrite.iceberg.write.members import FILES, ROWS, WITHDRAWN
from safewrite.iceberg.write.summary import ENGINE, Write
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
from safewrite.version import __version__


@dataclass(frozen=True, slots=True)
class WithdrawnWrite(Write):
    """A write that its snapshot does not carry: no later one carries what was offered under its key before."""

    def summary(self) -> dict[str, str]:
        """Properties of the snapshot."""
        return {ROWS: "0", FILES: "0", ENGINE: __version__, WITHDRAWN: self.key}

    def list_header(self) -> dict[str, str]:
        """What the header of the snapshot's manifest list says: nothing."""
        return {}


class Withdrawable(WritePlan, Protocol):
    """A plan whose write others may hold."""

    @property
    def folder(self) -> str:
        """Where it waits."""

    def withdrawal(self, write_id: str) -> WritePlan:
        """A plan that takes back what was offered of its write."""


def taken_back(
    plan: Withdrawable, head: TableVersion, *, helpers: Ledgers, limits: Limits
) -> TakenBack[IcebergDone]:
    """Take back what was offered of a write; the commit of another that carries it, if one does.

    ``head`` is the table version that refused the write, or an older one.
    """
    named = plan.write
    drawn = yield NewId(name="withdraw.id")
    assert isinstance(drawn, Ok)
    taking = plan.withdrawal(str(drawn.value))
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
