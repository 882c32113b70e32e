"""Puts the file of the one key's row together with safewrite's own rule of what is left out, as a process of the explorer.

A compaction writes the row again as it read it.  If it committed after another writer had changed the key, the old row would be back.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass

from safewrite.delta.write.abc import Write
from safewrite.errors import ConflictError
from safewrite.protocol.delta.commit import Arbiter, Found
from safewrite.protocol.effects import Effect, Outcome
from safewrite.testing.explorer.automaton import Program
from safewrite.testing.explorer.changes import ACTION, Change, Changing, begun, told_by
from safewrite.testing.explorer.rows import body_of, written
from safewrite.upkeep.groups import Group, StoredFile, untouched

FILE = "the file of the row"
GROUP = {0: Group((StoredFile(FILE, "", 1),), 1)}


@dataclass(slots=True)
class Compacting(Changing):
    """A compaction as a candidate; its commit file says what it leaves of the key, and that it changes nothing."""

    is_read: bool = False

    def prepare(self) -> Generator[Effect, Outcome, None]:
        self.planned, self.is_read = self.newest, True
        yield from ()

    def renew(self) -> Generator[Effect, Outcome, None]:
        yield from ()

    def body(self, version: int) -> bytes:
        said = json.dumps({ACTION: {"changes": [], "makes": self.planned}})
        return body_of(self.write.key, self.attempt) + said.encode() + b"\n"

    def examine(self, version: int, body: bytes) -> Found | None:
        found = Changing.examine(self, version, body)
        touched = {FILE} if told_by(body) is not None else set()
        if found is None and self.is_read and not untouched(GROUP, touched):
            raise ConflictError("No group is left.")
        return found


def compacting(
    key: str, change: Change, attempt: str, arbiter: Arbiter, *, again: bool, fresh: bool, queue_first: bool
) -> Program:
    """One commit of ``maintain``."""
    seen, table_id, newest = yield from begun(attempt, again=again)
    row = Compacting(Write(key, "1:0", 1), attempt, seen, table_id=table_id, newest=newest)
    return (yield from written(row, arbiter, queue_first=queue_first, fresh=fresh and not again))
