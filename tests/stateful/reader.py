"""A reader of Delta tables that shares no code with safewrite: JSON commits and Parquet, nothing else."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

COMMIT = re.compile(r"_delta_log/\d{20}\.json")
Bag = Counter[tuple[tuple[str, str], ...]]


def commit_path(version: int) -> str:
    """Path of a commit file."""
    return f"_delta_log/{version:020d}.json"


def plain(row: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """A row as something that can be counted; a column that is NULL and one that is not there are alike."""
    return tuple(sorted((name, repr(value)) for name, value in row.items() if value is not None))


@dataclass
class Snapshot:
    """What a reader knows of a table, brought forward one commit at a time by ``read``."""

    blobs: dict[str, bytes]
    version: int = -1
    columns: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    live: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    commits: list[bytes] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every row, with the columns that the table has now."""
        for rows in self.live.values():
            for row in rows:
                yield {name: value for name, value in row.items() if name in self.columns}

    def bag(self) -> Bag:
        """Every row, and how often."""
        return Counter(plain(row) for row in self.rows())

    def read(self) -> Iterator[list[dict[str, Any]]]:
        """Read each new commit; yields the ``commitInfo`` writes of each (none for other engines)."""
        while (body := self.blobs.get(commit_path(self.version + 1))) is not None:
            self.version += 1
            self.commits.append(body)
            actions = [json.loads(line) for line in body.decode().splitlines()]
            writes: list[dict[str, Any]] = []
            for action in actions:
                writes += self._apply(action)
            yield writes

    def _apply(self, action: dict[str, Any]) -> list[dict[str, Any]]:
        ((name, what),) = action.items()
        if name == "metaData":
            columns = tuple(one["name"] for one in json.loads(what["schemaString"])["fields"])
            assert set(self.columns) <= set(columns), "a column went"
            self.columns, self.partitions = columns, tuple(what["partitionColumns"])
        elif name == "add":
            self._add(what)
        elif name == "remove":
            path = unquote(what["path"])
            assert path in self.live, f"version {self.version} removes {path}, which is not there"
            del self.live[path]
        return list((what.get("safewrite") or {}).get("writes", ())) if name == "commitInfo" else []

    def _add(self, add: dict[str, Any]) -> None:
        path = unquote(add["path"])
        assert path not in self.files, f"version {self.version} adds {path}, which was added before"
        body = self.files[path] = self.blobs[path]
        assert len(body) == add["size"]
        assert set(add["partitionValues"]) == set(self.partitions)
        found = pq.ParquetFile(io.BytesIO(body)).read().to_pylist()
        self.live[path] = [row | add["partitionValues"] for row in found]

    def check_unchanged(self) -> None:
        """No commit and no file that a commit ever named was replaced or deleted, and the log has no hole."""
        for version, body in enumerate(self.commits):
            assert self.blobs.get(commit_path(version)) == body, f"version {version} was replaced"
        for path, body in self.files.items():
            assert self.blobs.get(path) == body, f"{path} was replaced or deleted"
        last = max((path for path in self.blobs if COMMIT.fullmatch(path)), default=None)
        assert last in (None, commit_path(self.version)), f"the log has a hole before {last}"
