"""Tables in memory for tests of the log: hand-made commits, a world that counts, folders read in."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from safewrite.delta.log import actions
from safewrite.delta.log.schema import from_arrow
from safewrite.delta.log.snapshot import Snapshot
from safewrite.protocol import effects as fx
from safewrite.protocol import values
from safewrite.protocol.effects import Effect, Ok, Outcome
from safewrite.stores.memory import MemoryLedger, MemoryObjects
from safewrite.stores.world import World, run

T = TypeVar("T")

PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}


def metadata(
    *, properties: dict[str, str] | None = None, partition_by: tuple[str, ...] = (), columns: Any = None
) -> dict[str, Any]:
    """A metaData action; columns default to ``n: long, day: string``."""
    fields = columns or [
        {"name": "n", "type": "long", "nullable": True, "metadata": {}},
        {"name": "day", "type": "string", "nullable": True, "metadata": {}},
    ]
    return {
        "metaData": {
            "id": "0a7a3a2e-0000-4000-8000-000000000001",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": list(partition_by),
            "configuration": properties or {},
            "createdTime": 1,
        }
    }


def add(path: str, **more: Any) -> dict[str, Any]:
    """An add action of a small file that need not exist."""
    return {
        "add": {
            "path": path,
            "partitionValues": {},
            "size": 100,
            "modificationTime": 1_700_000_000_000,
            "dataChange": True,
            "stats": json.dumps({"numRecords": 1}),
            **more,
        }
    }


def remove(path: str, **more: Any) -> dict[str, Any]:
    """A remove action."""
    return {"remove": {"path": path, "deletionTimestamp": 1_700_000_000_000, "dataChange": True, **more}}


def body(*actions: dict[str, Any]) -> bytes:
    """A commit file."""
    return b"".join(json.dumps(action, separators=(",", ":")).encode() + b"\n" for action in actions)


def plain_state(schema: pa.Schema) -> Snapshot:
    """A snapshot of a table of these columns that has no partitions."""
    return Snapshot(0, {}, {"schemaString": from_arrow(schema), "id": "t"})


class Table:
    """A table in memory, with a count of what was asked of it and how many bytes came back."""

    def __init__(self, *first: dict[str, Any]) -> None:
        self.objects = MemoryObjects()
        self.world = World(self.objects, ledger=MemoryLedger(), threads=1, sleep=lambda _: None)
        self.asked: Counter[str] = Counter()
        self.rounds: list[str] = []
        self.bytes_read = 0
        self.answer: Callable[[Effect], Outcome | None] = lambda _: None
        self._inside = False
        if first:
            self.commit(*first)

    @classmethod
    def of_folder(cls, folder: Path) -> Table:
        """A copy of a table that another engine wrote."""
        table = cls()
        for path in folder.rglob("*"):
            if path.is_file():
                table.objects.blobs[path.relative_to(folder).as_posix()] = path.read_bytes()
        return table

    def to_folder(self, folder: Path) -> Path:
        """Write the table out, for another engine to read."""
        for name, blob in self.objects.blobs.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(blob)
        return folder

    @property
    def blobs(self) -> dict[str, bytes]:
        return self.objects.blobs

    @property
    def next_version(self) -> int:
        versions = [v for v in map(actions.version_of, self.blobs) if v is not None]
        return max(versions, default=-1) + 1

    def commit(self, *lines: dict[str, Any]) -> int:
        """Append a commit and return its version."""
        version = self.next_version
        self.blobs[actions.commit_path(version)] = body(*lines)
        return version

    def perform(self, effect: Effect) -> Outcome:
        outermost = not self._inside
        if outermost:
            self.rounds.append(type(effect).__name__ + (":" + effect.name if effect.name else ""))
        if isinstance(effect, fx.Together):
            self._inside = True
            try:
                return Ok(tuple(self.perform(one) for one in effect.effects))
            finally:
                self._inside = False
        self.asked[type(effect).__name__] += 1
        outcome = self.answer(effect) or self.world.perform(effect)
        value = outcome.value if isinstance(outcome, Ok) else None
        if isinstance(value, bytes):
            self.bytes_read += len(value)
        elif isinstance(value, values.Tail):
            self.bytes_read += len(value.data)
        elif isinstance(value, tuple):
            self.bytes_read += sum(len(entry.path) for entry in value)
        return outcome

    def run(self, steps: Generator[Effect, Outcome, T]) -> T:
        """Drive steps on this table, counting anew."""
        self.asked, self.rounds, self.bytes_read = Counter(), [], 0
        return run(steps, self)
