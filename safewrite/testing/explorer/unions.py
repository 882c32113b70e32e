"""Marks rows of one data file as gone with safewrite's own code for deletion vectors, as processes of the explorer do.

A vector stands instead of the one before it.  If a writer put its own rows alone, or those that it saw before a rival was first, rows that the
rival deleted would be back.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from safewrite.changes.lookup.candidate_rows import GoneRows
from safewrite.changes.meaning.row_vectors import VectorError, numbers_in
from safewrite.changes.tasks.one_part import OnePart
from safewrite.delta.data import vectors
from safewrite.delta.data.vector_files import Vectors
from safewrite.delta.log.actions import Action, FileKey, file_key
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.write.abc import Write
from safewrite.delta.write.row_files import RowRemoval
from safewrite.protocol import staging
from safewrite.protocol.delta.commit import Arbiter, Found
from safewrite.protocol.effects import Effect, Outcome
from safewrite.testing.explorer.automaton import Program
from safewrite.testing.explorer.rows import (
    LIMITS,
    RowCandidate,
    action_of,
    entries_of,
    known,
    with_action,
    written,
)

Rows: TypeAlias = tuple[int, ...]
"""Rows of the one data file, by their numbers in it."""
COUNT = 8
"""How many rows the file has: a file of which more than half would be gone is written again, which is no union."""
ACTION = "marks"
HELD = "held"
HOLDING = replace(LIMITS, long_s=0.0)
"""The limits of a writer that holds the table once it lost a try."""
FIRST: Action = {
    "path": "f.parquet",
    "size": 1,
    "partitionValues": {},
    "modificationTime": 0,
    "stats": json.dumps({"numRecords": COUNT}),
}
_FEATURES = ["deletionVectors"]
_STATE = Snapshot(
    0,
    {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": _FEATURES, "writerFeatures": _FEATURES},
    {
        "id": "table",
        "schemaString": '{"type":"struct","fields":[]}',
        "partitionColumns": [],
        "configuration": {"delta.enableDeletionVectors": "true"},
    },
    txns={},
    domains={},
)


def gone_among(live: np.ndarray, rows: Rows) -> np.ndarray:
    """The numbers, among the live rows of the file, of those rows that are still live: what a look-up gives."""
    return np.flatnonzero(np.isin(np.flatnonzero(live), rows))


@dataclass(slots=True)
class Marking(RowCandidate):
    """A deletion of some rows as a candidate; its commit file also holds which, and the file under its next vector."""

    is_light: bool = False
    rows: Rows = ()
    newest: Action = field(default_factory=lambda: FIRST)
    """The file in the last version that was examined."""
    planned: Action = field(default_factory=lambda: FIRST)
    """The file as the plan leaves it."""
    vectors: Vectors = field(default_factory=Vectors)
    removal: RowRemoval | None = None
    left: tuple[str, ...] = ()
    """Files of vectors of earlier plans."""
    held_s: float = 0.0

    def holding(self, commit_id: str, held_s: float) -> Holder:
        return Holder(self.write, commit_id, self.accounted, table_id=self.table_id, held_s=held_s)

    def prepare(self) -> Generator[Effect, Outcome, None]:
        return self._plan()

    def renew(self) -> Generator[Effect, Outcome, None]:
        if file_key(self.newest) != file_key(self.planned):
            yield from self._plan()

    def _plan(self) -> Generator[Effect, Outcome, None]:
        """By the code of ``apply_changes``, but for the look-up: it takes the vector of the newest base, and makes one more."""
        nothing = OnePart(None, None, None)  # type: ignore[arg-type]  # it rewrites no file here
        self.removal = self.removal or RowRemoval(_STATE, nothing, self.vectors, LIMITS)
        yield from self.vectors.fetch([self.newest], LIMITS)
        gone = self.vectors.of(self.newest)
        live = np.ones(COUNT, np.bool_)
        live[[] if gone is None else numbers_in(gone, COUNT)] = False
        key, places = file_key(self.newest), gone_among(live, self.rows)
        self.left += tuple(mark.path for mark in self._stored())
        taken = GoneRows[FileKey]((), {key: places}, counts={key: int(live.sum())})
        losing = {key: self.newest} if len(places) else {}
        made = yield from self.removal.take_out(losing, taken)
        marked = made[key].marked if made else None
        self.planned = self.newest if marked is None else marked

    def _stored(self) -> list[staging.Mark]:
        return self.vectors.marks([self.planned] if self.planned.get("deletionVector") else [])

    def recheck(self) -> Generator[Effect, Outcome, None]:
        yield from staging.check(self._stored(), LIMITS)

    def unused(self) -> list[str]:
        """See ``Transaction.unused``."""
        named = [mark.path for mark in self._stored()]
        return [path for path in self.left if path not in named]

    def body(self, version: int) -> bytes:
        said = {"rows": self.rows, "add": self.planned}
        return with_action(RowCandidate.body(self, version), ACTION, said)

    def examine(self, version: int, body: bytes) -> Found | None:
        found = RowCandidate.examine(self, version, body)
        self.held_s = action_of(body, HELD) or 0.0
        if found is None and (told := told_by(body)) is not None:
            self.newest = told[1]
        return found


@dataclass(slots=True)
class Holder(RowCandidate):
    """A version without rows that holds the table."""

    held_s: float = 0.0

    def body(self, version: int) -> bytes:
        return with_action(entries_of([], self.attempt), HELD, self.held_s)


def told_by(body: bytes) -> tuple[Rows, Action] | None:
    """The rows that a commit file deletes, and the file as it leaves it; None of other commits."""
    said = action_of(body, ACTION)
    return None if said is None else (tuple(said["rows"]), said["add"])


def marking(
    key: str,
    rows: Rows,
    attempt: str,
    arbiter: Arbiter,
    *,
    again: bool,
    fresh: bool,
    queue_first: bool,
    holds: bool = False,
) -> Program:
    """One call that deletes rows of the file, and ``holds`` the table where it loses a try."""
    seen, table_id, body = yield from known(attempt, again=again)
    add = (told_by(body) or ((), FIRST))[1]
    row = Marking(
        Write(key, "1:0", 1), attempt, seen, table_id=table_id, rows=rows, newest=add, planned=FIRST
    )
    row.rebases, row.held_s = holds, action_of(body, HELD) or 0.0
    limits, fresh = HOLDING if holds else LIMITS, fresh and not again
    return (yield from written(row, arbiter, limits=limits, queue_first=queue_first, fresh=fresh))


def unequal(told: Iterable[tuple[str, Rows, Rows | str]]) -> str:
    """A commit after which the file does not lack exactly the rows that were deleted so far; "" if there is none.

    Each has a name, the rows that it deletes, and those that are gone by its vector, or why that cannot be read.
    """
    gone = set[int]()
    for name, rows, marked in told:
        gone.update(rows)
        if isinstance(marked, str):
            return f"unreadable: {name} has a vector that no reader can read: {marked}"
        if back := gone.difference(marked):
            return f"revived: after {name} the deleted rows {sorted(back)} are back"
        if lost := set(marked) - gone:
            return f"lost: after {name} the rows {sorted(lost)} are gone, and nobody deleted them"
    return ""


def unequal_in(log: Mapping[int, bytes], objects: Mapping[str, bytes]) -> str:
    """As :func:`unequal`, of the versions of a log."""
    told = ((f"version {at}", told_by(log[at])) for at in sorted(log))
    return unequal((name, one[0], _gone_in(one[1], objects)) for name, one in told if one is not None)


def _gone_in(add: Action, objects: Mapping[str, bytes]) -> Rows | str:
    vector = add.get("deletionVector")
    if not vector:
        return ()
    path = vectors.path_of(vector, "") or ""
    try:
        return tuple(vectors.decoded(vector, objects[path])) if path in objects else f"{path} is gone"
    except VectorError as error:
        return str(error)
