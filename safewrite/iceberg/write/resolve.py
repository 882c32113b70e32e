"""Finds out, without writing, whether a key was committed."""

from __future__ import annotations

from collections.abc import Generator

from safewrite.errors import CommitUnknownError
from safewrite.iceberg.write import members
from safewrite.iceberg.write import summary as names
from safewrite.iceberg.write.write import Ledgers, Resolved, base_of, described, landed_and_expired, stands
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.iceberg.commit import load
from safewrite.protocol.iceberg.head import TableVersion


def resolve(
    key: str, *, helpers: Ledgers, limits: Limits
) -> Generator[Effect, Outcome, tuple[Resolved | None, TableVersion]]:
    """Find out, without writing, whether a key was committed; returns the table version that shows it.

    Raises:
        CommitUnknownError: an attempt ended in doubt, and its base still is the table.
        TableNotFoundError, StorageError: the catalog does not show the table.
    """
    record = (yield from keys.recall(key, limits)) if helpers.ledger else None
    head = yield from load(limits)
    found = members.carried(head, (key,)).get(key)
    if found is not None:
        return (yield from described(head, found, key, limits)), head
    batch = batch_under(key, head)
    if batch is not None:
        return batch, head
    if record is not None and record.version is not None and stands(record.version, head):
        rows = int(record.fingerprint.split(":")[1])
        return Resolved(record.version, record.fingerprint, rows, 0), head
    if record is not None and record.version is None and record.in_doubt_at == base_of(head):
        raise _may_land(key)
    if record is not None and record.version is None:
        return (yield from landed_and_expired(key, record.base_version, head, limits)), head
    return None, head


def check_doubt(base: TableVersion | None, head: TableVersion, key: str) -> None:
    """Raise if an attempt that ended in doubt on ``base`` may still land on ``head``."""
    if base is not None and base.table_id == head.table_id and base.current == head.current:
        raise _may_land(key)


def _may_land(key: str) -> CommitUnknownError:
    return CommitUnknownError(
        f"The write with key {key!r} is not in the table, and may still land: an attempt ended in doubt and "
        "nobody has changed the table since. Append the same rows with the same key to decide.",
        key=key,
    )


def batch_under(key: str, head: TableVersion) -> Resolved | None:
    """The batch that a stream's key names, where it is the app's last: the table's properties tell it."""
    app_id, _, version = key.rpartition("/")
    last = names.last_batch(head, app_id) if app_id else None
    if last is None or str(last.version) != version or not stands(last.snapshot_id, head):
        return None
    return Resolved(last.snapshot_id, last.fingerprint, last.rows, 0)
