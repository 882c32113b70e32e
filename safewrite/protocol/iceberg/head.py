"""Describes one table version: its snapshots, how they descend, what they carry.

A table version shows that a snapshot landed if it holds it.  It shows that one cannot have landed only if
every snapshot since the base is accounted for.  Expiry takes snapshots out of the metadata, and one that
landed and was expired must not pass for one that never landed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from safewrite.protocol.held_version import held_s_of

HELD, HELD_OF = "safewrite.held-s", "safewrite.held-branch"
"""What a snapshot's summary calls for how many seconds it holds the table, and which branch of it; without that the main one."""


def scope_of(table_id: str, branch_id: str) -> str:
    """What keys are unique in: a table, or one branch of it."""
    return f"{table_id}/{branch_id}" if branch_id else table_id


@dataclass(frozen=True)
class TableVersion:
    """One version of a table's metadata.

    ``table_id`` is the table's UUID, ``location`` the metadata file, which is new with every table version.
    ``current`` is the newest snapshot of the branch that is written to (None: an empty table).
    ``parents`` and ``sequences`` hold every snapshot that the metadata still knows, ``summaries`` what
    each carries, ``previous`` the locations of earlier metadata, oldest first.  ``picked`` maps a cherry-pick
    to its source snapshot: the source's rows are in the branch too.  ``raw`` is the catalog client's own
    object.  ``branch_id`` is drawn when safewrite begins a branch: one that is dropped and made again has another ("": the main one).
    ``began`` is the sequence number of the newest snapshot that it has from the main branch (0: not known); None for the main one.
    """

    table_id: str
    location: str
    current: int | None
    parents: Mapping[int, int | None]
    sequences: Mapping[int, int]
    summaries: Mapping[int, Mapping[str, str]]
    properties: Mapping[str, str]
    last_sequence: int = 0
    previous: tuple[str, ...] = ()
    picked: Mapping[int, int] = field(default_factory=dict, hash=False)
    raw: object = field(default=None, compare=False, repr=False)
    branch_id: str = ""
    began: int | None = None

    @property
    def scope(self) -> str:
        """What keys are unique in: the table, or one branch of it."""
        return scope_of(self.table_id, self.branch_id)

    @property
    def held_s(self) -> float:
        """For how many seconds the newest snapshot of the branch asks others to wait for the next one.

        A branch that begins with a snapshot of another one, or is moved to it, is not meant.
        """
        told = {} if self.current is None else self.summaries.get(self.current, {})
        return held_s_of(told.get(HELD)) if told.get(HELD_OF, "") == self.branch_id else 0.0

    def ancestors(self) -> Iterator[int]:
        """Snapshots of the branch from the newest back, as far as the metadata knows them."""
        return self._line(self.current)

    def _line(self, at: int | None) -> Iterator[int]:
        """A snapshot and those that it descends from, as far as the metadata knows them."""
        while at is not None and at in self.parents:
            yield at
            at = self.parents[at]

    def is_current(self, snapshot_id: int) -> bool:
        """Whether a snapshot's rows came to the branch: by it, by one that descends from it, or by a cherry-pick."""
        return any(snapshot_id in (known, self.picked.get(known)) for known in self.ancestors())

    def is_rolled_back(self, snapshot_id: int) -> bool:
        """Whether a snapshot that the metadata knows, and that was once the branch's newest, is none of it any more.

        A tag, or a branch that was made of it, keeps a snapshot that expiry would take, and expiry takes those between it and
        the branch.  So it was rolled back only if the branch left its line before it, or is known back to before it; else it
        counts as one that landed and expired.
        """
        if snapshot_id not in self.parents or self.is_current(snapshot_id):
            return False
        line = list(self.ancestors())
        if not line:
            return True
        oldest = line[-1]
        # The parents of the oldest ones may be reported though they expired.
        if {*line, self.parents[oldest]} & {self.parents[one] for one in self._line(snapshot_id)} - {None}:
            return True
        # Some engines take the parent's id away when that expires; only the first snapshot of a table has number 1.
        is_cut_off = self.parents[oldest] is not None or self.sequences.get(oldest, 0) > 1
        return not (is_cut_off and self.sequences.get(oldest, 0) >= self.sequences.get(snapshot_id, 0))

    def never_had(self, snapshot_id: int, sequence: int) -> bool:
        """Whether no version before this one had a snapshot with this number, which the table had: it was set back to older metadata.

        Numbers only grow, and two snapshots never share one.
        """
        later = sequence > self.last_sequence or sequence in self.sequences.values()
        return snapshot_id not in self.parents and later

    def accounts_since(self, base: TableVersion) -> bool:
        """Whether no snapshot of the branch since ``base`` can be missing here.

        A chain that reaches the base has no gap.  Where the base was empty the oldest snapshot must be
        the first after it; parent ids do not show that, for expiry cuts them off.
        """
        if self.current == base.current:
            return True
        oldest = None
        for oldest in self.ancestors():
            if self.parents[oldest] == base.current and base.current is not None:
                return True
        if base.current is not None or oldest is None:
            return False
        return self.sequences.get(oldest, 0) == base.last_sequence + 1

    def carriers(self) -> Iterator[int]:
        """Snapshots whose writes are in the branch, newest first.

        A cherry-pick has a summary of its own, and brings what its source carries.
        """
        for at in self.ancestors():
            yield at
            if at in self.picked:
                yield self.picked[at]
