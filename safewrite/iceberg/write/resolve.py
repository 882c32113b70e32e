"""Finds out, without writing, whether a key was committed."""

from __future__ import annotations

from collections.abc import Generator

from safewrite.errors import CommitUnknownError
from safewrite.iceberg.write import in_doubt, members
from safewrite.iceberg.write import summary as names
from safewrite.iceberg.write.earlier_writes import (
    Resolved,
    base_of,
    before_branch,
    described,
    landed_and_expired,
    stands,
)
from safewrite.iceberg.write.write import Ledgers
from safewrite.protocol import keys, member_queue
from safewrite.protocol.ask import Limits, ask, unanswered
from safewrite.protocol.effects import Effect, Failed, List, Ok, Outcome, Unknown
from safewrite.protocol.iceberg.commit import load
from safewrite.protocol.iceberg.head import TableVersion


def resolve(
    key: str, *, helpers: Ledgers, limits: Limits, folder: str | None = None
) -> Generator[Effect, Outcome, tuple[Resolved | None, TableVersion]]:
    """Find out, without writing, whether a key was committed; returns the table version that shows it.

    ``folder`` is where members wait that writers share commits of; None: they share none.

    Raises:
        CommitUnknownError: an attempt ended in doubt, and its base still is the table; or the write waits where others may commit it.
        TableNotFoundError, StorageError: the catalog does not show the table.
    """
    record = (yield from keys.recall(key, limits)) if helpers.ledger else None
    # The queue is read before the table: what is committed in between then shows in the table.
    through = in_doubt.through_of(record)
    through = max(through, (yield from _waits_through(key, folder, limits)))
    head = yield from load(limits)
    found = members.carried(head, (key,)).get(key)
    if found is not None:
        return (yield from described(head, found, key, limits)), head
    batch = batch_under(key, head)
    if batch is not None:
        return batch, head
    if (
        record is not None
        and record.version is not None
        and stands(record.version, head, record.base_version)
    ):
        rows = int(record.fingerprint.split(":")[1])
        return Resolved(record.version, record.fingerprint, rows, 0), head
    if record is not None and record.version is None and record.in_doubt_at == base_of(head):
        raise in_doubt.may_land(key)
    in_doubt.check_shared(through, head, key)
    if record is not None and record.version is None:
        found_before = yield from landed_and_expired(key, record.base_version, head, limits)
        if found_before is not None:
            return found_before, head
    came, head = yield from before_branch((key,), head, limits)
    answer = came.get(key)
    if isinstance(answer, CommitUnknownError):
        raise answer
    return answer, head


def _waits_through(key: str, folder: str | None, limits: Limits) -> Generator[Effect, Outcome, int]:
    """The last sequence number with which others may commit the write, which waits in their queue; -1 if it does not."""
    if folder is None:
        return -1
    effect = List(folder, name="resolve.queue")
    listed = yield from ask(effect, limits)
    if isinstance(listed, Failed) or (isinstance(listed, Unknown) and listed.asks_max is not None):
        return -1  # whoever may not list does not share
    if not isinstance(listed, Ok):
        raise unanswered(effect, listed)
    return member_queue.waits_through(listed, key)


def batch_under(key: str, head: TableVersion) -> Resolved | None:
    """The batch that a stream's key names, where it is the app's last: the table's properties tell it."""
    app_id, _, version = key.rpartition("/")
    last = names.last_batch(head, app_id) if app_id else None
    if last is None or str(last.version) != version or not stands(last.snapshot_id, head):
        return None
    return Resolved(last.snapshot_id, last.fingerprint, last.rows, 0)
