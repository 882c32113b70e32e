"""Keeps what a table remembers of deleted keys in an immutable file, which a ``txn`` action names.

Checkpoints keep such an action, and no reader or writer needs a table feature for it.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from safewrite.changes.meaning import memory
from safewrite.changes.meaning.memory import Memory
from safewrite.changes.meaning.spec import Spec
from safewrite.delta.data.rows import damaged
from safewrite.delta.log import column_names
from safewrite.delta.log.actions import Action
from safewrite.delta.log.snapshot import Snapshot
from safewrite.protocol import staging
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Get, Missing, NewId, Ok, Outcome
from safewrite.protocol.fetch import fetch_one
from safewrite.protocol.keys import MEMORY_APP

APP_ID = MEMORY_APP
"""App id of the ``txn`` whose version names the file that remembers deleted keys."""
_FOLDER = "_safewrite/changes"
_KNOWN_BYTES = 1 << 18


def memory_path(number: int) -> str:
    """The file that a ``txn`` of :data:`APP_ID` names."""
    return f"{_FOLDER}/{number:016x}.parquet"


def recorded_keys(state: Snapshot, limits: Limits) -> Generator[Effect, Outcome, tuple[str, ...]]:
    """The key columns that changes were applied by; none where none were.  Raises StorageError as :meth:`MemoryFile.recall`."""
    number = state.txns.get(APP_ID)
    if number is None:
        return ()
    path = memory_path(number)
    body = yield from _body(path, limits)
    return memory.recorded_keys(body, path, state.table_id, *column_names.ids(state.mapped))


def _body(path: str, limits: Limits) -> Generator[Effect, Outcome, bytes]:
    answer = yield from fetch_one(Get(path, name="apply.get_memory"), limits)
    if isinstance(answer, Missing):
        raise damaged(path, "it remembers the deleted keys of the table, and is gone")
    assert isinstance(answer.value, bytes)
    return answer.value


@dataclass(frozen=True)
class KnownMemory:
    """A file that was read or written, and what it says of the columns that a write asked it about."""

    body: bytes
    asked: tuple[Any, ...] | None = None
    says: Memory | None = None


@dataclass
class MemoryFile:
    """What a table remembers, as a write finds it on each base, and the file that the write names."""

    number: int
    """Names the file of what is to be remembered after this commit; drawn at random."""
    files: dict[str, KnownMemory] = field(default_factory=dict, repr=False)
    """The file that was read or written last, by its path, if it is small; shared by the writes of one table."""
    is_named: bool = False
    """Whether the commit names the file: what is remembered changes."""
    _found: tuple[int, Memory] | None = field(default=None, repr=False)
    """What the file says that was read last, and its number."""
    _written: Memory | None = field(default=None, repr=False)
    """What the file says that ``number`` names, once it is there."""

    def recall(self, state: Snapshot, spec: Spec, limits: Limits) -> Generator[Effect, Outcome, Memory]:
        """What the table remembers; nothing where the changes take the place of all that.

        Raises:
            StorageError: the file is gone or damaged, or the store gave no answer.
        """
        number = None if spec.full_refresh else state.txns.get(APP_ID)
        if number is not None and self._found is not None and self._found[0] == number:
            return self._found[1]
        ids, then = column_names.ids(state.mapped)
        asked = (spec.keys, spec.sequence_by, state.schema, state.table_id, ids, then)
        path = "" if number is None else memory_path(number)
        known = self.files.get(path)
        says = known.says if known is not None and known.asked == asked else None
        if says is None:
            says = Memory.empty(spec.keys, spec.sequence_by, state.schema, table_id=state.table_id, ids=ids)
            if number is None:
                return says
            body = (yield from _body(path, limits)) if known is None else known.body
            says = says.decode(body, path, then)
            self._keep(path, KnownMemory(body, asked, says))
        assert number is not None
        self._found = number, says
        return says

    def remember(
        self, state: Snapshot, before: Memory, after: Memory, limits: Limits, *, refreshes: bool
    ) -> Generator[Effect, Outcome, None]:
        """Upload what is to be remembered, where that is not what the table remembers or what was uploaded before."""
        same = not refreshes and after.says_the_same(before)
        self.is_named = APP_ID not in state.txns or not same
        is_there = self._written is not None and after.says_the_same(self._written)
        if not self.is_named or is_there:
            return
        if self._written is not None:  # an immutable file may not be written twice
            drawn = yield NewId(name="apply.id")
            assert isinstance(drawn, Ok)
            self.number = uuid.UUID(str(drawn.value)).int >> 65
        path, body = memory_path(self.number), after.encode()
        yield from staging.upload([staging.of_data(path, body)], limits)
        self._keep(path, KnownMemory(body))
        self._written = after

    def txns(self, now_ms: int) -> list[Action]:
        """What the commit says of the file."""
        return [{"appId": APP_ID, "version": self.number, "lastUpdated": now_ms}] if self.is_named else []

    def _keep(self, path: str, known: KnownMemory) -> None:
        """Keep an immutable file for the next call, and no other."""
        self.files.clear()
        if known.says is not None and known.says.tombstones.nbytes + known.says.carried.nbytes > _KNOWN_BYTES:
            known = KnownMemory(known.body)
        if len(known.body) <= _KNOWN_BYTES:
            self.files[path] = known
