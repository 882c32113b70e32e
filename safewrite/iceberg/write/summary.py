"""Names a write in its snapshot's summary, and a stream's batches in table properties."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from safewrite.errors import ReplayMismatchError
from safewrite.iceberg.own_properties import BATCH, TABLE, told
from safewrite.iceberg.write import members
from safewrite.iceberg.write.members import CHANGES, FILES, FINGERPRINT, KEY, ROWS, TXN, VOLATILE
from safewrite.protocol import keys
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.keys import Identity
from safewrite.protocol.members import MemberWrite, Met
from safewrite.version import __version__

ENGINE = "safewrite.version"


@dataclass(frozen=True, slots=True)
class Write(MemberWrite):
    """What identifies one write, in the snapshot that carries it."""

    def summary(self) -> dict[str, str]:
        """Properties of the snapshot."""
        named = {ROWS: str(self.rows), FILES: str(self.files), ENGINE: __version__}
        if self.members:
            return named | members.summary(self.members)
        named |= {KEY: self.key, FINGERPRINT: self.fingerprint}
        if self.volatile:
            named[VOLATILE] = json.dumps(self.volatile)
        if self.changes is not None:
            named[CHANGES] = json.dumps(self.changes)
        return named if self.txn is None else named | {TXN: json.dumps(self.txn)}

    def list_header(self) -> dict[str, str]:
        """What the header of the snapshot's manifest list says."""
        return members.header(self.each)

    def table_properties(self, table_id: str, snapshot_id: int) -> dict[str, str]:
        """Properties of the table, set in the same commit."""
        batches = {}
        for write in self.each:
            if write.txn is not None:
                app_id, version = write.txn
                batch = {
                    "version": version,
                    "fingerprint": write.fingerprint,
                    "snapshot": snapshot_id,
                    "rows": write.rows,
                    TABLE: table_id,
                }
                batches[BATCH + app_id] = json.dumps(batch)
        return batches


@dataclass(frozen=True, slots=True)
class RowlessWrite(Write):
    """A write that its snapshot does not carry: what the snapshot says is for other writers."""

    said: Mapping[str, str] = field(default_factory=dict)

    def summary(self) -> dict[str, str]:
        """Properties of the snapshot."""
        return {ROWS: "0", FILES: "0", ENGINE: __version__, **self.said}

    def list_header(self) -> dict[str, str]:
        """What the header of the snapshot's manifest list says: nothing."""
        return {}


@dataclass(frozen=True, slots=True)
class AppBatch:
    """The last batch of an app, from a table property."""

    version: int
    fingerprint: str
    snapshot_id: int
    rows: int


def last_batch(head: TableVersion, app_id: str) -> AppBatch | None:
    """The app's last batch, if it has one."""
    return told(head, BATCH + app_id, _batch)


def _batch(fields: Mapping[str, Any]) -> AppBatch:
    return AppBatch(
        int(fields["version"]), str(fields["fingerprint"]), int(fields["snapshot"]), int(fields["rows"])
    )


def find(head: TableVersion, write: Write) -> Met | None:
    """The snapshot of the branch that carries this write already, or None; whoever reads a list compares the rows.

    Raises:
        ReplayMismatchError: it carries other rows under the same name (promise 6).
    """
    return _met(head, write, members.carried(head, (write.key,)).get(write.key), members.Summaries(head))


def find_members(head: TableVersion, writes: Collection[MemberWrite]) -> dict[str, Met | ReplayMismatchError]:
    """As :func:`find`, for those of a group's members that some snapshot carries, or that are at fault, by key."""
    carried = members.carried(head, {write.key for write in writes})
    summaries = members.Summaries(head)
    found: dict[str, Met | ReplayMismatchError] = {}
    for write in writes:
        try:
            met = _met(head, write, carried.get(write.key), summaries)
        except ReplayMismatchError as error:
            found[write.key] = error
        else:
            found |= {} if met is None else {write.key: met}
    return found


def _met(
    head: TableVersion, write: MemberWrite, found: int | None, summaries: members.Summaries
) -> Met | None:
    """What the snapshot that carries a write means to it."""
    if found is not None:
        entry = summaries.entry(found, write.key)
        if entry is not None:
            keys.must_match(write.key, entry["fingerprint"], write.fingerprint, found)
        return Met(found, entry)
    return None if write.txn is None else _find_batch(head, write, *write.txn)


def carries(head: TableVersion, name: Identity) -> bool:
    """Whether a table version may hold a write of that name: then rows are compared before any are uploaded."""
    if name.txn is None:
        return name.key is not None and bool(members.carried(head, (name.key,)))
    app_id, version = name.txn
    last = last_batch(head, app_id)
    seems_later = last is not None and last.version >= version
    return seems_later or bool(members.carried(head, (keys.of_batch(*name.txn),)))


def _find_batch(head: TableVersion, write: MemberWrite, app_id: str, version: int) -> Met | None:
    """What the table's properties say of a batch whose snapshot is not in the metadata."""
    last = last_batch(head, app_id)
    if last is None or last.version < version:
        return None
    if last.version > version:
        raise _skipped(write, last.version)
    if head.is_rolled_back(last.snapshot_id):
        return None  # it was rolled back, so its rows are not in the table
    keys.must_match(write.key, last.fingerprint, write.fingerprint, last.snapshot_id)
    return Met(last.snapshot_id, {"fingerprint": last.fingerprint, "rows": last.rows})


def _skipped(write: MemberWrite, last: int) -> ReplayMismatchError:
    assert write.txn is not None
    app_id, version = write.txn
    return ReplayMismatchError(
        f"Batch {version} of app {app_id!r} counts as written before, but the app's last batch is {last}, and no snapshot "
        "that is kept shows these rows: skipping it would lose rows, writing it could double some. Nothing was written. "
        "If the stream's checkpoint was deleted or replaced, start it under a new app id.",
        key=write.key,
    )
