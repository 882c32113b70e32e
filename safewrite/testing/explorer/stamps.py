"""Appends rows to a table whose commits tell their time and number its rows, with the stamper of safewrite's own writes.

Both rest on the version before, so a try after a rival has others (A21); one that is asked for its bytes again has the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.log.stamps import MARK, ROW_IDS, TIMED, TRACKING
from safewrite.delta.write.abc import Write
from safewrite.delta.write.stamped import Stamper
from safewrite.protocol.delta.commit import Arbiter, Found
from safewrite.testing.explorer.automaton import Program
from safewrite.testing.explorer.rows import RowCandidate, action_of, anchored, known, with_action, written

Stamp = tuple[int, int]
"""The time of a commit, and the id of its row."""
UNSTAMPED: Stamp = (0, -1)
ACTION = "stamps"
_PROTOCOL = {
    "minReaderVersion": 1,
    "minWriterVersion": 7,
    "writerFeatures": [TRACKING, "domainMetadata", "inCommitTimestamp"],
}
_METADATA = {
    "id": "table",
    "schemaString": '{"type":"struct","fields":[]}',
    "partitionColumns": [],
    "configuration": {TIMED[0]: "true"},
}


@dataclass(slots=True)
class _Clock:
    """Says another time at each look."""

    now: int = 0

    def __call__(self) -> int:
        self.now += 1
        return self.now


@dataclass(slots=True)
class StampedRow(RowCandidate):
    """A write of one row as a candidate; its commit file also holds its time and the row's id."""

    newest: Stamp = UNSTAMPED
    """Those of the last version that was examined."""
    stamper: Stamper = field(default_factory=lambda: Stamper(_Clock()))

    def body(self, version: int) -> bytes:
        time, last = self.newest
        domains = {ROW_IDS: json.dumps({MARK: last})}
        before = Snapshot(version - 1, _PROTOCOL, _METADATA, domains=domains, told_ms=time)
        stamps = self.stamper.at(version, self.attempt, before, 0)
        assert stamps.last is not None
        said = [stamps.time_ms, stamps.last + 1]
        return with_action(RowCandidate.body(self, version), ACTION, said)

    def examine(self, version: int, body: bytes) -> Found | None:
        found = RowCandidate.examine(self, version, body)
        if found is None and (told := told_by(body)) is not None:
            self.newest = told
        return found


def told_by(body: bytes) -> Stamp | None:
    """The stamp of a commit file; None of other commits."""
    said = action_of(body, ACTION)
    return None if said is None else (said[0], said[1])


def stale(log: Iterable[tuple[int, bytes]]) -> str:
    """A commit whose stamps are not those of the version before it; "" if there is none."""
    time, last = UNSTAMPED
    for version, body in log:
        told = told_by(body)
        if told is None:
            continue
        if told[0] <= time:
            return f"stale: version {version} tells the time {told[0]}, and the version before it {time}"
        if told[1] != last + 1:
            return f"stale: version {version} gives the row id {told[1]}, and the one that was given last is {last}"
        time, last = told
    return ""


def stamping(
    key: str, attempt: str, arbiter: Arbiter, *, again: bool, fresh: bool, queue_first: bool, light: bool
) -> Program:
    """One call of ``append``."""
    seen, table_id, body = yield from known(attempt, again=again)
    row = StampedRow(
        Write(key, "1:0", 1),
        attempt,
        seen,
        is_light=light,
        table_id=table_id,
        anchor=None if arbiter.lock_table else anchored(seen, table_id),
        newest=told_by(body) or UNSTAMPED,
    )
    return (yield from written(row, arbiter, queue_first=queue_first, fresh=fresh and not again))
