"""Finds dead letters of a job, and keeps what became of them: they wait, are replayed, or are retired with a note.

A letter is never deleted here, so the books add up by its state.  Each change of states moves a position of the table of
letters: of two operators at once one is refused.  Letters of a batch that is not closed are left alone, because the batch
comes again and keeps them again.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

import safewrite as sw
from safewrite.cdc.ledger.ledger import LETTERS_KEY, LETTERS_SCHEMA, JobLedger
from safewrite.cdc.records.batch import Partition
from safewrite.cdc.records.change import KafkaRecord

LetterState = Literal["waiting", "replaying", "replayed", "retired"]
STATES: tuple[LetterState, ...] = get_args(LetterState)
LEFT: frozenset[str] = frozenset({"waiting", "replaying"})
"""States of letters whose rows are not decided about yet; one of a replay that broke off is replaying."""

BRIEF = ("job", "topic", "topic_id", "partition", "offset", "table", "state")
"""The columns that say what became of letters, without what their records hold."""


@dataclass(frozen=True)
class LetterFilter:
    """Which dead letters are meant; what is empty or None leaves none out.

    ``reason`` is a part of the reason.  Times are when the job met the record last, from ``since_ns`` on and before ``until_ns``.
    """

    tables: Collection[str] = ()
    reason: str | None = None
    since_ns: int | None = None
    until_ns: int | None = None
    ids: Collection[str] = ()

    def takes(self, letter: KeptLetter) -> bool:
        """Whether a letter is meant."""
        seen_ns = letter.row["seen_ns"]
        return (
            (not self.tables or letter.row["table"] in self.tables)
            and (self.reason is None or self.reason in letter.row["reason"])
            and (self.since_ns is None or seen_ns >= self.since_ns)
            and (self.until_ns is None or seen_ns < self.until_ns)
            and (not self.ids or letter.name in self.ids)
        )


@dataclass(frozen=True)
class KeptLetter:
    """A dead letter, as the table has it."""

    row: Mapping[str, Any]

    @property
    def name(self) -> str:
        """``topic/partition/offset``, by which a user names it."""
        return f"{self.row['topic']}/{self.row['partition']}/{self.row['offset']}"

    @property
    def place(self) -> tuple[str, int, int]:
        return self.row["topic"], self.row["partition"], self.row["offset"]

    @property
    def where(self) -> Partition:
        """The partition that it came in."""
        return Partition(self.row["topic"], self.row["partition"], self.row["topic_id"] or "")

    @property
    def state(self) -> LetterState:
        found: LetterState = self.row.get("state") or "waiting"
        return found

    def is_before(self, epochs: Mapping[str, int], table: str) -> bool:
        """Whether a table got a greater epoch, which is one of these, after the letter; one of an earlier version does not say so."""
        kept = self.row.get("epochs")
        before: Mapping[str, int] = epochs if kept is None else json.loads(kept)
        return epochs.get(table, epochs[""]) > before.get(table, before[""])

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        listed = json.loads(self.row["headers"] or "[]")
        return tuple((name, None if value is None else base64.b64decode(value)) for name, value in listed)

    @property
    def record(self) -> KafkaRecord:
        """The record, as Kafka had it."""
        row = self.row
        return KafkaRecord(*self.place, row["key"], row["value"], self.headers, row["timestamp_ms"])


class DeadLetters:
    """The dead letters of a job."""

    def __init__(self, ledger: JobLedger) -> None:
        self._ledger = ledger
        self._job = ledger.config.job
        self._table: sw.Table | None = None
        self._known: int | None = None

    @property
    def _position(self) -> str:
        return f"{self._job}//letters"

    def find(self, wanted: LetterFilter, states: Collection[str] = LEFT) -> list[KeptLetter]:
        """The letters of these states, in the order of their records."""
        self._table, positions = self._ledger.targets.position(self._ledger.letters)
        if self._table is None:
            return []
        self._known = positions.get(self._position)
        where: list[tuple[str, str, Any]] = [("job", "=", self._job)]
        if wanted.tables:
            where.append(("table", "in", list(wanted.tables)))
        rows = self._table.refresh().rows(where=where).to_pylist()
        found = [KeptLetter(row) for row in rows]
        return sorted(
            (one for one in found if one.state in states and wanted.takes(one)), key=lambda one: one.place
        )

    def closed(self, letters: Iterable[KeptLetter]) -> list[KeptLetter]:
        """The letters of batches that are closed."""
        done = self._ledger.positions()
        return [one for one in letters if one.row["offset"] < done.get(one.where.name(self._job), 0)]

    def retire(self, letters: Sequence[KeptLetter], note: str) -> None:
        """Keep that the rows of these letters are not needed any more, and why.

        Raises:
            InvalidInputError: the note is empty.
        """
        if not note.strip():
            raise sw.InvalidInputError(
                "A note says why the rows are not needed. Nothing was written. Give one."
            )
        self._keep(letters, state="retired", note=note)

    def begin(self, letters: Sequence[KeptLetter]) -> str:
        """Name a replay of these letters, which a replay that broke off is found by."""
        digest = hashlib.sha256(json.dumps([[*one.where, one.row["offset"]] for one in letters]).encode())
        name = digest.hexdigest()[:32]
        self._keep(letters, state="replaying", replay=name)
        return name

    def end(
        self, letters: Sequence[KeptLetter], reasons: Mapping[tuple[str, int, int], tuple[str, str | None]]
    ) -> None:
        """Keep what a replay came to.

        Args:
            reasons: why letters still cannot land, and in which table; the others have landed.
        """
        self._keep([one for one in letters if one.place not in reasons], state="replayed")
        left = [one for one in letters if one.place in reasons]
        again = [
            KeptLetter({**one.row, "reason": reasons[one.place][0], "table": reasons[one.place][1]})
            for one in left
        ]
        self._keep(again, state=None, replay=None)

    def _keep(self, letters: Sequence[KeptLetter], **changed: str | None) -> None:
        if not letters:
            return
        assert self._table is not None
        table = self._ledger.with_columns(self._table)
        now_ns = time.time_ns()
        rows = [{**one.row, **changed, "seen_ns": max(now_ns, one.row["seen_ns"] + 1)} for one in letters]
        moved = (self._known or 0) + 1
        table.apply_changes(
            pa.Table.from_pylist(rows, LETTERS_SCHEMA), keys=LETTERS_KEY, sequence_by=["seen_ns"],
            positions={self._position: (self._known, moved)},
        )  # fmt: skip
        self._known = moved


def dead_letters_waiting(letters: pa.Table | None, job: str) -> Counter[str | None]:
    """How many dead letters of each table wait."""
    if letters is None:
        return Counter()
    known = frozenset(letters.column_names)  # letters of an earlier version have no state
    rows = letters.filter(pc.equal(letters.column("job"), job)).select(
        [name for name in ("table", "state") if name in known]
    )
    return Counter(one["table"] for one in rows.to_pylist() if (one.get("state") or "waiting") in LEFT)
