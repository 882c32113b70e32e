"""Replays dead letters: their records land through the configuration of today, each once, however often it is tried.

The letters are marked with the name of the replay first.  The tables and the ledger know their commits by it, so a replay that
breaks off is finished by the next one and doubles nothing.  The letters that landed are marked last.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from safewrite.cdc.landing.landing import Landing
from safewrite.cdc.ledger.dead_letters import DeadLetters, KeptLetter, LetterFilter
from safewrite.cdc.ledger.ledger import LedgerEntry
from safewrite.cdc.records.batch import Batch, Range
from safewrite.cdc.records.records import KafkaRecords

log = logging.getLogger("safewrite")

NO_BATCH = -1
"""The number of the batch in the ledger's lines of a replay."""
_OLDER = (
    "it is from before its table's epoch was raised, and would take the place of newer rows. The snapshot of the new epoch has what the "
    "source still had: look whether it has the row, and retire the letter"
)


@dataclass
class ReplayedLetters:
    """What a replay came to: how many letters landed, and why others did not, by their names."""

    landed: int = 0
    dead: dict[str, str] = field(default_factory=dict)
    open_batch: int = 0
    """Letters of a batch that the job has not closed, which were left alone."""
    lines: list[LedgerEntry] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        tables = [
            {
                "table": one.table,
                "records": one.records,
                "applied": one.applied,
                "late": one.late,
                "ignored": one.ignored,
            }
            for one in self.lines
        ]
        return {"landed": self.landed, "dead": self.dead, "open_batch": self.open_batch, "tables": tables}


def replay(landing: Landing, wanted: LetterFilter) -> ReplayedLetters:
    """Land the dead letters that are meant, and first those of a replay that broke off.

    Raises:
        ConflictError: another replay or retirement came between; the same call again goes on.
        SafewriteError: a table failed; the same call again finds what was committed.
    """
    letters, found = DeadLetters(landing.ledger), ReplayedLetters()
    begun = letters.find(LetterFilter(), {"replaying"})
    begun.sort(key=lambda one: one.row["replay"])
    for name, some in itertools.groupby(begun, lambda one: one.row["replay"]):
        log.warning("the replay %s of job %s broke off; it is finished", name, landing.config.job)
        _landed(landing, letters, list(some), name, found)
    chosen = letters.find(wanted, {"waiting"})
    closed = letters.closed(chosen)
    found.open_batch = len(chosen) - len(closed)
    judged = [(one, _is_older(landing, one)) for one in closed]
    closed = [one for one, is_older in judged if not is_older]
    found.dead |= {one.name: _OLDER for one, is_older in judged if is_older}
    closed.sort(key=lambda one: one.where.topic_id)  # a topic that was created again has each place twice
    for _, of_topics in itertools.groupby(closed, lambda one: one.where.topic_id):
        left, size = list(of_topics), landing.config.parts.records
        for start in range(0, len(left), size):
            part = left[start : start + size]
            _landed(landing, letters, part, letters.begin(part), found)
    return found


def _is_older(landing: Landing, letter: KeptLetter) -> bool:
    """Whether a table of the letter's got a greater epoch since: each row there may be newer, and under that epoch the letter would win."""
    epochs, table = landing.config.epochs, letter.row["table"]
    names = {*epochs} if table is None else {table}  # a tombstone without a table may be of any
    if table is None and letter.record.value is not None and any(epochs.values()):
        names = {*landing.tables_of(letter.record)}
    return any(letter.is_before(epochs, name) for name in names)


def _landed(
    landing: Landing, letters: DeadLetters, some: Sequence[KeptLetter], name: str, found: ReplayedLetters
) -> None:
    records = KafkaRecords.of(one.record for one in some)
    ranges = {one.where: Range(0, 0) for one in some}
    lines, dead = landing.replay(Batch(NO_BATCH, records, ranges, replay=name))
    reasons = {
        (one.record.topic, one.record.partition, one.record.offset): (one.reason, one.table)
        for one in reversed(dead)
    }
    letters.end(some, reasons)
    found.lines += lines
    found.landed += len(some) - len(reasons)
    found.dead |= {one.name: reasons[one.place][0] for one in some if one.place in reasons}
