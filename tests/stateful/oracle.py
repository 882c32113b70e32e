"""The oracle: what was promised of every write, held against every new version of the table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from tests.stateful.calls import Write
from tests.stateful.reader import Bag, Snapshot, plain


class Oracle:
    """All writes that were asked for, and the rows that those that landed make of the table."""

    def __init__(self, blobs: dict[str, bytes]) -> None:
        self.snapshot = Snapshot(blobs)
        self.writes: list[Write] = []
        self.expected: list[dict[str, Any]] = []
        self._owner: dict[int, Write] = {}

    def add(self, write: Write) -> None:
        """Take in a write that is about to be asked for."""
        self.writes.append(write)
        self._owner.update({row["id"]: write for row in write.rows})

    def check(self) -> None:
        """Serialise what landed in the order of the log, and compare every new version with it."""
        known: Bag = Counter(plain(row) for row in self.expected)
        for entries in self.snapshot.read():
            rows = list(self.snapshot.rows())
            found = Counter(plain(row) for row in rows)
            self._land({self._owner[row["id"]] for row in rows if plain(row) not in known}, entries)
            known = Counter(plain(row) for row in self.expected)
            assert found == known, (
                f"version {self.snapshot.version}: {found - known} too many, {known - found} lost"
            )
        self.snapshot.check_unchanged()
        for write in self.writes:
            assert not write.acked or write.landed is not None or not write.rows, (
                "acknowledged, and not there"
            )

    def _land(self, new: set[Write], entries: list[dict[str, Any]]) -> None:
        """A version brings one write, whole, that may land and has not landed."""
        version = self.snapshot.version
        assert len(new) <= 1, f"version {version} mixes writes"
        for write in new:
            assert write.landed is None, f"version {version} doubles version {write.landed}"
            assert write.acked or write.open_attempts, (
                f"version {version} brings what was called not committed"
            )
            twins = [one for one in self.writes if one.key == write.key and one.landed is not None]
            assert write.key is None or not twins, f"version {version} is a second write under {write.key}"
            self.expected = [row for row in self.expected if not write.replaces(row)] + list(write.rows)
            write.landed = version
            if write.key is None and entries:
                write.key = entries[0]["key"]  # generated; a crashed caller never learns it
        named = [entry["key"] for entry in entries]
        assert not new or not named or named == [one.key for one in new], "the commit names another key"

    def check_with_deltalake(self, folder: Path) -> None:
        """deltalake reads the same rows from a copy of the table, by its checkpoint if there is one."""
        if self.snapshot.version < 0:
            return
        for path, body in self.snapshot.blobs.items():
            if not path.startswith(("_safewrite/", "_delta_log/.tmp/")):
                target = folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(body)
        table = DeltaTable(folder)
        assert table.version() == self.snapshot.version
        rows = pa.table(table.to_pyarrow_table()).to_pylist()
        assert Counter(plain(row) for row in rows) == Counter(plain(row) for row in self.expected)
