"""Adds a job's ledger up again: every record that came in landed, or is a dead letter, and no offset was passed over."""

from __future__ import annotations

import itertools
import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.ledger.ledger import LedgerEntry
from safewrite.intake.letters import LEFT, STATES

COLUMNS = tuple(one.name for one in fields(LedgerEntry))
BRIEF = ("job", "topic", "topic_id", "partition", "offset", "table", "state")
"""The columns that say what became of letters, without what their records hold."""


@dataclass(frozen=True)
class Account:
    """One table's sum over all batches; of no table: records that name none."""

    table: str | None
    totals: Mapping[str, int]


@dataclass(frozen=True)
class Verdict:
    """What the ledger adds up to; ``faults`` is empty where all is accounted for.  ``notes`` tell what is no fault."""

    accounts: tuple[Account, ...]
    faults: tuple[str, ...]
    batches: int
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        accounts = [{"table": one.table, **one.totals} for one in self.accounts]
        return {
            "batches": self.batches,
            "tables": accounts,
            "faults": list(self.faults),
            "notes": list(self.notes),
        }


def verify(job: str, ledger: pa.Table, letters: pa.Table | None = None) -> Verdict:
    """Add up the lines of a job.

    Args:
        ledger, letters: the rows of the job's two tables, by any reader.
    """
    lines = [
        LedgerEntry(**{name: row.get(name) for name in COLUMNS})
        for row in ledger.to_pylist()
        if row["job"] == job
    ]
    faults = [
        f"batch {line.batch}, {line.table or 'no table'}: {line.records} records came in, and what became of them adds up to "
        f"{line.earlier + line.ignored + line.dead + line.changes - line.split}"
        for line in lines
        if not line.adds_up
    ]
    faults += _gaps(lines)
    missing, notes = _letters(job, lines, letters)
    faults += missing
    if letters is not None:
        kept = letters.filter(pc.equal(letters.column("job"), job))
        counts = states_of(kept)
        faults += _replays(lines, counts, gone=bool(notes))
        if counts.keys() - {"waiting"}:
            each = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
            notes = (*notes, f"{kept.num_rows} dead letters: {each}")
    tables = sorted({line.table for line in lines}, key=lambda name: (name is not None, name or ""))
    accounts = tuple(_account(name, [line for line in lines if line.table == name]) for name in tables)
    batches = {(line.batch, line.offsets) for line in lines if not line.is_replay}
    return Verdict(accounts, tuple(faults), len(batches), notes)


def states_of(letters: pa.Table) -> Counter[str]:
    """How many letters are in each state; those of an earlier version all wait."""
    return Counter(_states(letters))


def dead_letters_waiting(letters: pa.Table | None, job: str) -> Counter[str | None]:
    """How many dead letters of each table wait."""
    if letters is None:
        return Counter()
    rows = letters.filter(pc.equal(letters.column("job"), job))
    pairs = zip(rows.column("table").to_pylist(), _states(rows), strict=True)
    return Counter(table for table, state in pairs if state in LEFT)


def _states(letters: pa.Table) -> list[str]:
    known = "state" in letters.column_names
    return (
        [one or "waiting" for one in letters.column("state").to_pylist()]
        if known
        else ["waiting"] * letters.num_rows
    )


def _replays(lines: Sequence[LedgerEntry], states: Mapping[str, int], *, gone: bool) -> list[str]:
    """Replayed letters whose rows the ledger does not count, or the other way round; one that broke off may be either."""
    counted, kept = sum(line.replayed or 0 for line in lines), states["replayed"]
    if kept <= counted <= kept + states["replaying"] or (gone and kept <= counted):
        return []
    return [f"{counted} dead letters are counted as replayed, and {kept} are marked so"]


def _letters(
    job: str, lines: Sequence[LedgerEntry], letters: pa.Table | None
) -> tuple[list[str], tuple[str, ...]]:
    """Dead letters that the ledger tells of and that are not kept: faults, but for those that were deleted by age.

    Whoever deletes old letters takes all of the oldest batches; what gets lost by another way are newer ones.
    """
    told: dict[str, int] = {}
    for line in sorted(lines, key=lambda one: one.closed_ms or 0):
        told[line.offsets] = told.get(line.offsets, 0) + line.dead
    names = ["topic", "topic_id", "partition", "offset"]
    rows = (
        []
        if letters is None
        else letters.filter(pc.equal(letters.column("job"), job)).select(names).to_pylist()
    )
    places: dict[tuple[str, str, int], list[int]] = {}
    for row in rows:
        places.setdefault((row["topic"], row["topic_id"] or "", row["partition"]), []).append(row["offset"])
    for found in places.values():
        found.sort()

    def kept(offsets: str) -> int:
        return sum(
            bisect_left(here, end) - bisect_left(here, start)
            for topic, number, topic_id, start, end in json.loads(offsets or "[]")
            if (here := places.get((topic, topic_id or "", number))) is not None
        )

    batches = [(dead, min(dead, kept(offsets))) for offsets, dead in told.items() if dead]
    gone = 0
    for dead, found_here in batches if letters is not None else []:
        if found_here:
            break
        gone += dead
    lost = sum(dead - found_here for dead, found_here in batches) - gone
    every = sum(dead for dead, _ in batches)
    faults = [f"{every} records are told as dead letters, and {every - gone - lost} are kept"] if lost else []
    note = f"{gone} of {every} dead letters are not kept any more: those of the oldest batches, as where they were deleted by age"
    return faults, (note,) if gone and not lost else ()


def _account(table: str | None, lines: Sequence[LedgerEntry]) -> Account:
    skipped = {
        "job", "batch", "table", "version", "source_time_ms", "begins_at", "offsets", "commit_ms", "closed_ms",
        "engine",
    }  # fmt: skip
    names = [name for name in COLUMNS if name not in skipped]
    return Account(table, {name: sum(getattr(line, name) or 0 for line in lines) for name in names})


def _gaps(lines: Sequence[LedgerEntry]) -> list[str]:
    """Offsets that no batch covers, or two do."""
    ranges: dict[tuple[str, int, str], set[tuple[int, int]]] = {}
    for offsets in {line.offsets for line in lines}:
        for topic, number, topic_id, start, end in json.loads(offsets or "[]"):
            ranges.setdefault((topic, number, topic_id), set()).add((start, end))
    found = []
    for (topic, number, _), covered in sorted(ranges.items()):
        ordered = sorted(covered)
        for (_, end), (start, _) in itertools.pairwise(ordered):
            if start != end:
                what = "in no batch" if start > end else "in two batches"
                found.append(f"{topic}/{number}: offsets {min(start, end)} to {max(start, end)} are {what}")
    return found
