"""Finds dead letters of a job, lands them through the configuration of today, each once, and keeps what became of them.

Letters that are replayed are marked with the name of the replay first.  The tables and the ledger know their commits by it, so a
replay that breaks off is finished by the next one and doubles nothing.  The letters that landed are marked last.  Each change of
states moves a position of the table of letters: of two operators at once one is refused.  Letters of a batch that is not closed
are left alone, because the batch comes again and keeps them again.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import safewrite as sw
from safewrite.cdc.config.job import RECORDS_HERE
from safewrite.cdc.landing.landing import Landing
from safewrite.cdc.ledger.ledger import LETTERS_KEY, LETTERS_SCHEMA
from safewrite.cdc.records.batch import Batch, Partition, Range
from safewrite.cdc.records.change import KafkaRecord
from safewrite.cdc.records.records import KafkaRecords
from safewrite.intake.letters import (
    EVERY,
    LEFT,
    Letter,
    LetterFilter,
    Letters,
    LetterState,
    Replayed,
    ReplayedTable,
)

log = logging.getLogger("safewrite")

NO_BATCH = -1
"""The number of the batch in the ledger's lines of a replay."""
_OLDER = (
    "it is from before its table's epoch was raised, and would take the place of newer rows. The snapshot of the new epoch has what the "
    "source still had: look whether it has the row, and retire the letter"
)


@dataclass(frozen=True)
class KeptLetter(Letter):
    """A dead letter, as the table has it; its name is ``topic/partition/offset``."""

    row: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> KeptLetter:
        """Of a row of the table; one of an earlier version has no state, and waits."""
        name = f"{row['topic']}/{row['partition']}/{row['offset']}"
        state: LetterState = row.get("state") or "waiting"
        return cls(name, row["table"], state, row["reason"], row.get("note"), seen_ns=row["seen_ns"], row=row)

    @property
    def place(self) -> tuple[str, int, int]:
        return self.row["topic"], self.row["partition"], self.row["offset"]

    @property
    def where(self) -> Partition:
        """The partition that it came in."""
        return Partition(self.row["topic"], self.row["partition"], self.row["topic_id"] or "")

    def is_before(self, epochs: Mapping[str, int], table: str) -> bool:
        """Whether a table got a greater epoch, which is one of these, after the letter; one of an earlier version does not say so."""
        kept = self.row.get("epochs")
        before: Mapping[str, int] = epochs if kept is None else json.loads(kept)
        return epochs.get(table, epochs[""]) > before.get(table, before[""])

    @property
    def record(self) -> KafkaRecord:
        """The record, as Kafka had it."""
        row = self.row
        listed = json.loads(row["headers"] or "[]")
        headers = tuple((name, None if value is None else base64.b64decode(value)) for name, value in listed)
        return KafkaRecord(*self.place, row["key"], row["value"], headers, row["timestamp_ms"])

    def content(self) -> dict[str, Any]:
        record = self.record
        return {
            "key": _text(record.key),
            "value": _text(record.value),
            "headers": {name: _text(value) for name, value in record.headers},
            "timestamp_ms": record.timestamp_ms,
        }


class DeadLetters(Letters[KeptLetter]):
    """The dead letters of a job."""

    def __init__(self, landing: Landing) -> None:
        self._landing, self._ledger = landing, landing.ledger
        self._job = landing.config.job
        self._table: sw.Table | None = None
        self._known: int | None = None

    @property
    def _position(self) -> str:
        return f"{self._job}//letters"

    def find(self, wanted: LetterFilter = EVERY, states: Collection[LetterState] = LEFT) -> list[KeptLetter]:
        """The letters of these states, in the order of their records."""
        self._table, positions = self._ledger.targets.position(self._ledger.letters)
        if self._table is None:
            return []
        self._known = positions.get(self._position)
        where: list[tuple[str, str, Any]] = [("job", "=", self._job)]
        if wanted.tables:
            where.append(("table", "in", list(wanted.tables)))
        found = map(KeptLetter.of, self._table.refresh().rows(where=where).to_pylist())
        return sorted(
            (one for one in found if one.state in states and wanted.takes(one)), key=lambda one: one.place
        )

    def ready(self, letters: Sequence[KeptLetter]) -> list[KeptLetter]:
        """The letters of batches that are closed."""
        done = self._ledger.positions()
        return [one for one in letters if one.row["offset"] < done.get(one.where.name(self._job), 0)]

    def replay(self, wanted: LetterFilter = EVERY) -> Replayed:
        """Land the dead letters that are meant, and first those of a replay that broke off."""
        done = Replayed()
        begun = self.find(states={"replaying"})
        begun.sort(key=lambda one: one.row["replay"])
        for name, some in itertools.groupby(begun, lambda one: one.row["replay"]):
            log.warning("the replay %s of job %s broke off; it is finished", name, self._job)
            self._land(list(some), name, done)
        chosen = self.find(wanted, {"waiting"})
        closed = self.ready(chosen)
        done.open_batch = len(chosen) - len(closed)
        judged = [(one, self._is_older(one)) for one in closed]
        closed = [one for one, is_older in judged if not is_older]
        done.dead |= {one.name: _OLDER for one, is_older in judged if is_older}
        closed.sort(key=lambda one: one.where.topic_id)  # a topic that was created again has each place twice
        for _, of_topics in itertools.groupby(closed, lambda one: one.where.topic_id):
            left, size = list(of_topics), self._landing.config.parts.records or RECORDS_HERE
            for start in range(0, len(left), size):
                part = left[start : start + size]
                self._land(part, self.begin(part), done)
        return done

    def _is_older(self, letter: KeptLetter) -> bool:
        """Whether a table of the letter's got a greater epoch since: each row there may be newer, and under that epoch the letter would win."""
        epochs, table = self._landing.config.epochs, letter.table
        names = {*epochs} if table is None else {table}  # a tombstone without a table may be of any
        if table is None and letter.record.value is not None and any(epochs.values()):
            names = {*self._landing.tables_of(letter.record)}
        return any(letter.is_before(epochs, name) for name in names)

    def _land(self, some: Sequence[KeptLetter], name: str, done: Replayed) -> None:
        records = KafkaRecords.of(one.record for one in some)
        ranges = {one.where: Range(0, 0) for one in some}
        lines, dead = self._landing.replay(Batch(NO_BATCH, records, ranges, replay=name))
        reasons = {one.record.place: (one.reason, one.table) for one in reversed(dead)}
        self.end(some, reasons)
        done.tables += [
            ReplayedTable(one.table, one.records, one.applied, one.late, one.ignored) for one in lines
        ]
        done.landed += len(some) - len(reasons)
        done.dead |= {one.name: reasons[one.place][0] for one in some if one.place in reasons}

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
            KeptLetter.of({**one.row, "reason": reasons[one.place][0], "table": reasons[one.place][1]})
            for one in left
        ]
        self._keep(again, state=None, replay=None)

    def _retire(self, letters: Sequence[KeptLetter], note: str) -> int:
        self._keep(letters, state="retired", note=note)
        return len(letters)

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


def _text(data: bytes | None) -> str | None:
    """Bytes as the text that they are, else in base64."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(data).decode()}"
