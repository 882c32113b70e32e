"""Compares a table with what its change log means: every key, every value, and what the receipts counted.

The meaning comes from the oracle of ``safewrite.testing.changes``, the rows from readers that are not the writer.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from safewrite.testing.changes import Change, Oracle

from .writers.change_log import COLUMNS, KEYS, SEQUENCE, ChangeLog, Key

OPERATIONS = {"c": "upsert", "u": "upsert", "d": "delete", "t": "truncate"}
EFFECTS = ("inserted", "updated", "deleted", "tombstoned", "truncated")
"""Counts of a receipt whose sum is ``applied``; the others are of changes without an effect."""
_AT = COLUMNS.index(SEQUENCE)


class ChangeFlaw(StrEnum):
    """What can be wrong with a key of a table under a change log.  Keys are counted, except where it says batches."""

    DOUBLED = "doubled"  # in the table more than once; each row after the first counts
    REVIVED = "revived"  # in the table, and deleted in the log
    STALE = "stale"  # with an older value than the log's last
    MISSING = "missing"  # not in the table, and not deleted in the log
    ALTERED = "altered"  # with values that no change of the key has
    PHANTOM = "phantom"  # a key that the log does not have
    TORN = "torn"  # changed keys: the new one is in a read, and so is the row of the old one
    MISCOUNTED = "miscounted"  # batches: receipts that do not add up, or two that differ
    DISAGREED = "disagreed"  # in one reader's result and not in another's


@dataclass(frozen=True, slots=True)
class Seen:
    """What one reader saw: rows in the order of the columns.  ``final``: when all writers had ended."""

    name: str
    rows: tuple[tuple[Any, ...], ...]
    final: bool = True


@dataclass(frozen=True, slots=True)
class Ack:
    """What a writer was answered for one delivery of a batch; None where its library counts nothing."""

    batch: int
    counts: Mapping[str, int] | None = None
    name: str = ""
    """Under which the batch was applied: deliveries of one name are one write, and are answered alike."""


@dataclass(slots=True)
class Comparison:
    """What was found; ``uncertain`` are keys of batches that nobody acknowledged, which are not judged."""

    flaws: dict[ChangeFlaw, Counter[object]] = field(
        default_factory=lambda: {flaw: Counter() for flaw in ChangeFlaw}
    )
    examples: list[dict[str, str]] = field(default_factory=list)
    keys: int = 0
    uncertain: int = 0
    acked_batches: int = 0
    acked_changes: int = 0
    told: Counter[str] = field(default_factory=Counter)
    """The receipts of all acknowledged batches, each name of a batch once."""
    receipts: int = 0
    """How many these are: more than batches where a Spark stream applies under its own name what others apply too."""
    counted_changes: int = 0
    """The changes in their batches, which is what ``told`` must add up to."""

    def counts(self) -> dict[str, int]:
        """How many keys (or batches) have each flaw; for several readers a key counts once."""
        return {str(flaw): found.total() for flaw, found in self.flaws.items()}

    def note(self, flaw: ChangeFlaw, read: str, what: object, detail: str, times: int = 1) -> None:
        """Take in a finding of one read."""
        if what not in self.flaws[flaw] and len(self.flaws[flaw]) < 3:
            self.examples.append({"flaw": str(flaw), "read": read, "key": repr(what), "detail": detail})
        self.flaws[flaw][what] = max(self.flaws[flaw][what], times)


def spelled(row: Iterable[Any]) -> str:
    """Values as text that is equal where they are the same: NaN is itself, -0.0 is not 0.0, NULL is nothing else."""
    return repr(tuple(map(_plain, row)))


def _plain(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    # Readers have several names for UTC.
    return value.astimezone(dt.UTC).isoformat() if isinstance(value, dt.datetime) else value


def meaning_of(log: ChangeLog) -> Oracle:
    """The table after all batches, as the oracle has it."""
    oracle = Oracle()
    for batch in log.batches:
        oracle.apply(
            [
                Change(OPERATIONS[one.op], (one.lsn,), one.key or (), one.values)  # type: ignore[arg-type]
                for one in batch
            ]
        )
    return oracle


class Checker:
    """Judges reads and receipts of one log."""

    def __init__(self, log: ChangeLog) -> None:
        self.log = log
        self.wanted = {_key(key): spelled(row) for key, row in meaning_of(log).rows.items()}
        self._last = {key: log.source[key][_AT] for key in self.wanted}

    @cached_property
    def versions(self) -> Mapping[Key, Mapping[int, str]]:
        """What each key was at each of its sequences."""
        found: dict[Key, dict[int, str]] = {}
        for change in self.log.changes:
            if change.key is not None:
                known = found.setdefault(change.key, {})
                if change.values is not None:
                    known[change.lsn] = spelled(change.values)
        return found

    def check(self, reads: Sequence[Seen], acks: Sequence[Ack], *, counted: bool) -> Comparison:
        """Compare everything.  ``counted``: the writers' receipts tell what became of each change."""
        found = Comparison(keys=len(self.wanted))
        uncertain = self._check_receipts(found, acks, counted=counted)
        found.uncertain = len(uncertain)
        for read in reads:
            self._check_read(found, read, uncertain)
        final = [(read.name, Counter(map(spelled, read.rows))) for read in reads if read.final]
        for name, rows in final[1:]:
            for row in (rows - final[0][1]) + (final[0][1] - rows):
                found.note(ChangeFlaw.DISAGREED, f"{final[0][0]} and {name}", row, "")
        return found

    # --- rows -------------------------------------------------------------------------------------
    def _check_read(self, found: Comparison, read: Seen, uncertain: set[Key]) -> None:
        rows: dict[Key, list[tuple[Any, ...]]] = {}
        for row in read.rows:
            rows.setdefault(row[: len(KEYS)], []).append(row)  # type: ignore[arg-type]
        for key, copies in rows.items():
            if len(copies) > 1:
                lsns = sorted(row[_AT] for row in copies)
                found.note(ChangeFlaw.DOUBLED, read.name, key, f"rows of sequences {lsns}", len(copies) - 1)
            self._check_values(found, read.name, key, copies)
            if read.final and key not in uncertain:
                self._check_last(found, read.name, key, copies)
        if read.final:
            for key in self.wanted.keys() - rows.keys() - uncertain:
                found.note(ChangeFlaw.MISSING, read.name, key, f"its sequence is {self._last[key]}")
        self._check_moves(found, read.name, rows)

    def _check_values(self, found: Comparison, name: str, key: Key, copies: Sequence[Any]) -> None:
        """Check that each row is what the log once said of its key."""
        if key not in self.versions:
            found.note(ChangeFlaw.PHANTOM, name, key, spelled(copies[0]))
            return
        for row in copies:
            if self.versions[key].get(row[_AT]) != spelled(row):
                meant = self.versions[key].get(row[_AT], "nothing of that sequence")
                found.note(ChangeFlaw.ALTERED, name, key, f"{spelled(row)}, and the log has {meant}")

    def _check_last(self, found: Comparison, name: str, key: Key, copies: Sequence[Any]) -> None:
        """Check that the row is what the log said last of its key."""
        newest = max(row[_AT] for row in copies)
        if key not in self.versions:
            return
        if key not in self.wanted:
            found.note(ChangeFlaw.REVIVED, name, key, f"the row of sequence {newest} was deleted")
        elif newest < self._last[key]:
            found.note(ChangeFlaw.STALE, name, key, f"sequence {newest}, the last is {self._last[key]}")

    def _check_moves(self, found: Comparison, name: str, rows: Mapping[Key, Sequence[Any]]) -> None:
        """Check that a changed key is seen as a whole, at any moment."""
        for old, new, lsn in self.log.moves:
            left = [row for row in rows.get(old, ()) if row[_AT] < lsn]
            if left and any(row[_AT] == lsn for row in rows.get(new, ())):
                detail = (
                    f"it became {new!r} at sequence {lsn}, and the row of sequence {left[0][_AT]} is there"
                )
                found.note(ChangeFlaw.TORN, name, old, detail)

    # --- receipts ---------------------------------------------------------------------------------
    def _check_receipts(self, found: Comparison, acks: Sequence[Ack], *, counted: bool) -> set[Key]:
        """Add up the receipts of each name of a batch once; the keys of batches without any are returned."""
        by_batch: dict[int, list[Ack]] = {}
        for ack in acks:
            by_batch.setdefault(ack.batch, []).append(ack)
        uncertain: set[Key] = set()
        for number, batch in enumerate(self.log.batches):
            mine = by_batch.get(number, [])
            if not mine:
                keys = {one.key for one in batch if one.key is not None}
                uncertain |= set(self.versions) if any(one.op == "t" for one in batch) else keys
                continue
            found.acked_batches += 1
            found.acked_changes += len(batch)
            if counted:
                for name in dict.fromkeys(ack.name for ack in mine):
                    told = [dict(ack.counts or {}) for ack in mine if ack.name == name]
                    self._check_counts(found, number, told)
        return uncertain

    def _check_counts(self, found: Comparison, number: int, told: Sequence[dict[str, int]]) -> None:
        # A repeat whose commit has expired is known by its key alone: its receipt has no counts, and none is wrong.
        counted = [one for one in told if one]
        first, changes = (counted or [{}])[0], len(self.log.batches[number])
        if any(other != first for other in counted):
            found.note(ChangeFlaw.MISCOUNTED, "receipts", number, f"two that differ: {told}")
        without = {name: count for name, count in first.items() if name != "applied"}
        if sum(without.values()) != changes:
            found.note(ChangeFlaw.MISCOUNTED, "receipts", number, f"{without} of {changes} changes")
        if first.get("applied", 0) != sum(first.get(name, 0) for name in EFFECTS):
            found.note(
                ChangeFlaw.MISCOUNTED, "receipts", number, f"applied is not the sum of its parts: {first}"
            )
        found.told.update(without)
        found.receipts += 1
        found.counted_changes += changes


def _key(key: tuple[Any, ...]) -> Key:
    region, number = key
    return region, number
