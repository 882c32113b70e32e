"""Puts the file of the one key's row together with safewrite's own rule of what is left out, as a process of the explorer.

A compaction writes the row again as it read it.  If it committed after another writer had changed the key, the old row would be back: but
for where the row went by a mark, which the compaction carries on to its own file.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from safewrite.delta.write.abc import Write
from safewrite.protocol.delta.commit import Arbiter, Found
from safewrite.protocol.effects import Effect, Outcome
from safewrite.table.regrouping import Regrouped, Regrouping
from safewrite.testing.explorer.automaton import Program
from safewrite.testing.explorer.changes import ACTION, Change, Changing, State, begun, changing, told_by
from safewrite.testing.explorer.rows import RowCandidate, with_action, written
from safewrite.upkeep.groups import Group, StoredFile

FILE, REWRITES = "the file of the row", b'"rewrites": true'
T = TypeVar("T")
GROUPS = (Group((StoredFile(FILE, "", 1),), 1),)


@dataclass(slots=True)
class Rewriting(Changing):
    """A change of a writer that writes the row's file again, and marks nothing."""

    def body(self, version: int) -> bytes:
        return Changing.body(self, version).rstrip().removesuffix(b"}}") + b", " + REWRITES + b"}}\n"


@dataclass(slots=True)
class Compacting(Changing):
    """A compaction as a candidate; its commit file says what it leaves of the key, and that it changes nothing."""

    read: State | None = None
    """The key as it was read and written again."""
    is_there: bool = True
    """Whether the file that was read is still there."""

    def prepare(self) -> Generator[Effect, Outcome, None]:
        self.planned = self.read = self.newest
        yield from ()

    def renew(self) -> Generator[Effect, Outcome, None]:
        """By the rule of the product: what became of the row that was read, by the file's name on the newest base."""
        assert self.read is not None
        made: Regrouped[State, str, None] = Regrouped((self.read,), ("ours",), (1,), (1,))
        nobody: Any = None  # what was made of the group is there
        work: Regrouping[State, str, None] = Regrouping(GROUPS, nobody, nobody, made={0: made})
        live = {FILE: self.newest} if self.is_there else {}
        work.make(live)
        found = yield from work.follow(
            live, lambda state: state, lambda files: _left([np.array([was == now]) for was, now in files])
        )
        work.check()
        is_marked = any(len(places[0]) for _, places in found.values() if 0 in places)
        self.planned = self.newest if is_marked else self.read

    def body(self, version: int) -> bytes:
        said = {"changes": [], "makes": self.planned}
        return with_action(RowCandidate.body(self, version), ACTION, said)

    def examine(self, version: int, body: bytes) -> Found | None:
        found = Changing.examine(self, version, body)
        told = told_by(body)
        if found is None and told is not None and self.read is not None:
            self.is_there &= bool(told[0]) and REWRITES not in body
        return found


def _left(value: T) -> Generator[Effect, Outcome, T]:
    """A step that asks for nothing."""
    yield from ()
    return value


def compacting(
    key: str, change: Change, attempt: str, arbiter: Arbiter, *, again: bool, fresh: bool, queue_first: bool
) -> Program:
    """One commit of ``maintain``."""
    seen, table_id, newest = yield from begun(attempt, again=again)
    row = Compacting(Write(key, "1:0", 1), attempt, seen, table_id=table_id, newest=newest)
    return (yield from written(row, arbiter, queue_first=queue_first, fresh=fresh and not again))


rewriting = partial(changing, kind=Rewriting)
"""One call of ``apply_changes`` on a table whose files are written again."""
