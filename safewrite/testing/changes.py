"""Says what a change log does to a table, one change after another in plain Python: the oracle of ``apply_changes``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Key = tuple[Any, ...]
Sequenced = tuple[Any, ...]


class RefusedError(ValueError):
    """The batch must be refused as a whole."""


@dataclass(frozen=True)
class Change:
    """One change; ``row`` is what an upsert brings."""

    op: Literal["upsert", "delete", "truncate"]
    sequence: Sequenced
    key: Key = ()
    row: Any = None


@dataclass
class KeyEntry:
    """What is known of a key: its row, or None after a delete."""

    sequence: Sequenced
    row: Any


@dataclass
class Oracle:
    """A table under a change log.  ``floor`` is the sequence of the last truncate."""

    entries: dict[Key, KeyEntry] = field(default_factory=dict)
    floor: Sequenced | None = None
    forgotten: Sequenced | None = None

    @property
    def rows(self) -> dict[Key, Any]:
        """What the table shows."""
        return {key: entry.row for key, entry in self.entries.items() if entry.row is not None}

    def apply(self, batch: Sequence[Change]) -> Counter[str]:
        """Apply a batch whole, or refuse it whole; returns how many changes did what."""
        before, after, told = self._copy(), self._copy(), dict[int, str]()
        ties: dict[Key, Sequenced] = {}
        in_order = sorted(range(len(batch)), key=lambda place: (batch[place].sequence, place))
        for place in in_order:
            told[place] = after.one(batch[place], ties, before)
        for key, sequence in ties.items():
            if key in after.entries and after.entries[key].sequence == sequence:
                raise RefusedError(f"{key} has unequal changes with one sequence")
        after.check_remembered(before)
        if after.floor != before.floor and any(
            one.sequence == after.floor for one in before.entries.values()
        ):
            raise RefusedError("a row or tombstone has the sequence of a truncate")
        self.entries, self.floor = after.entries, after.floor
        return Counter(after.final(batch, in_order, told, before).values())

    def _copy(self) -> Oracle:
        return Oracle(dict(self.entries), self.floor, self.forgotten)

    def check_remembered(self, before: Oracle) -> None:
        """Refuse new rows from before the horizon: their keys may have been deleted since."""
        for key, entry in self.entries.items():
            known = before.entries.get(key)
            if known is None and entry.sequence == before.floor:
                raise RefusedError(f"{key} comes with the sequence of an earlier truncate")
            is_new = known is None or (self.floor is not None and known.sequence < self.floor)
            if (
                entry.row is not None
                and is_new
                and self.forgotten is not None
                and entry.sequence <= self.forgotten
            ):
                raise RefusedError(f"{key} comes from before the horizon")

    def one(self, change: Change, ties: dict[Key, Sequenced], before: Oracle) -> str:
        """Apply one change; ``ties`` gets the keys whose changes of one sequence differ."""
        if change.op == "truncate":
            return self._truncate(change, before.floor, ties)
        old, known = before.entries.get(change.key), self.entries.get(change.key)
        if old is not None and change.sequence <= old.sequence:
            if change.sequence < old.sequence:
                return "late"
            if change.row == old.row:
                return "duplicate"
            ties[change.key] = change.sequence  # refused, unless a later change is the one that stays
            return "superseded"
        if before.floor is not None and change.sequence < before.floor:
            return "late"
        if self.floor is not None and change.sequence < self.floor:
            return "superseded"
        if known is not None and change.sequence == known.sequence:
            if change.row == known.row:
                return "repeat"
            if change.row is not None and known.row is not None:
                ties[change.key] = change.sequence
                return "superseded"
        return self._take(change)

    def _take(self, change: Change) -> str:
        self.entries[change.key] = KeyEntry(change.sequence, change.row)
        return "applied"

    def _truncate(self, change: Change, old_floor: Sequenced | None, ties: dict[Key, Sequenced]) -> str:
        if old_floor is not None and change.sequence <= old_floor:
            return "late" if change.sequence < old_floor else "duplicate"
        self.entries = {key: one for key, one in self.entries.items() if one.sequence > change.sequence}
        self.floor = change.sequence
        for key in [key for key, sequence in ties.items() if sequence <= change.sequence]:
            del ties[key]  # what is gone ties with nothing that comes after
        return "applied"

    def final(
        self, batch: Sequence[Change], in_order: Sequence[int], told: dict[int, str], before: Oracle
    ) -> dict[int, str]:
        """Tell what came of each change that was applied, now that the last one of its key is known."""
        last: dict[Key | None, int] = {}
        for place in in_order:
            if told[place] == "applied":
                last[None if batch[place].op == "truncate" else batch[place].key] = place
        for place, what in list(told.items()):
            change = batch[place]
            if what == "repeat":
                entry, cut = self.entries.get(change.key), last.get(None)
                is_cut = cut is not None and (change.sequence, place) < (batch[cut].sequence, cut)
                stands = entry is not None and entry.sequence == change.sequence and not is_cut
                told[place] = "duplicate" if stands else "superseded"
            if what != "applied":
                continue
            if change.op == "truncate":
                told[place] = "truncated" if last[None] == place else "superseded"
                continue
            known = before.entries.get(change.key)
            had_row = (
                known is not None
                and known.row is not None
                and (self.floor is None or known.sequence >= self.floor)
            )
            stays = (
                last[change.key] == place
                and change.key in self.entries
                and self.entries[change.key].sequence == change.sequence
            )
            names = ("updated", "deleted") if had_row else ("inserted", "tombstoned")
            told[place] = names[change.op == "delete"] if stays else "superseded"
        return told
