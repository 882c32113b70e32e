"""A source whose truth is known, and the files that DMS writes of it: late, twice, out of order, begun again."""

from __future__ import annotations

import datetime as dt
import os
import random
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

START = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
TEXTS = ("Ada", "Bøb", "", "NULL", 'say "hi"', "a,b", "two\nlines", "Ünï 🦆", " spaced ", "'; --", None)
COLUMNS = {
    "id": "int64", "region": "string", "name": "string", "price": "decimal(12,2)", "score": "float64",
    "at": "timestamp", "day": "date", "flag": "bool", "raw": "binary",
}  # fmt: skip
ARROW = pa.schema(
    [
        ("id", pa.int64()), ("region", pa.string()), ("name", pa.string()), ("price", pa.decimal128(12, 2)),
        ("score", pa.float64()), ("at", pa.timestamp("us")), ("day", pa.date32()), ("flag", pa.bool_()),
        ("raw", pa.binary()),
    ]
)  # fmt: skip

Row = dict[str, Any]
Key = tuple[int, str]


@dataclass(frozen=True)
class Change:
    """One line of a change file."""

    op: str
    seq: str
    row: Row
    old: Key | None = None


@dataclass
class SourceTable:
    """A table of the source: its truth, and which files were written of it."""

    name: str
    kind: str
    header: bool
    by_seq: bool
    is_mixed: bool = False
    epoch: int = 1
    truth: dict[Key, Row] = field(default_factory=dict)
    gone: list[Key] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    written: dict[str, bytes] = field(default_factory=dict)
    held: dict[str, bytes] = field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        """The table's ``files``."""
        found: dict[str, Any] = {"kind": self.kind, "op": "Op", "timestamp": "ts", "before_image": "BI_"}
        if self.by_seq:
            found["change_seq"] = "AR_H_CHANGE_SEQ"
        if self.kind == "csv":
            found["header"] = self.header
            if not self.header:
                more = ["AR_H_CHANGE_SEQ"] if self.by_seq else []
                whose = ["sch", "tab"] if self.is_mixed else []
                found["order"] = ["Op", *whose, "*", "ts", *more, "BI_id", "BI_region"]
        return found


class Dms:
    """Writes files of ``count`` tables under ``root``; the same seed writes the same."""

    def __init__(
        self, root: Path, seed: int, count: int, *, key_changes: bool = True, mixed: bool = False
    ) -> None:
        self.root, self.random, self.key_changes = root, random.Random(seed), key_changes
        self.clock, self.number = START, 10**34
        kinds = (("csv", True, True), ("parquet", True, True), ("csv", False, True), ("csv", True, False))
        if mixed:
            kinds = (("csv", False, True),) * 4
        self.tables = {
            f"shop.t{n:02}": SourceTable(f"shop.t{n:02}", *kinds[n % len(kinds)], mixed) for n in range(count)
        }
        self.arrivals: list[str] = []
        """Paths of files as they were put, each time that they were."""
        self.root.mkdir(parents=True, exist_ok=True)

    # --- what happens in the source ---------------------------------------------------------------------
    def row(self, key: Key) -> Row:
        draw = self.random
        return {
            "id": key[0], "region": key[1], "name": draw.choice(TEXTS),
            "price": draw.choice((None, Decimal(draw.randrange(-(10**11), 10**11)).scaleb(-2), Decimal("0.00"))),
            "score": draw.choice((None, float("nan"), -0.0, 1e308, 0.1, draw.random())),
            "at": draw.choice((None, START.replace(tzinfo=None) + dt.timedelta(microseconds=draw.randrange(10**12)))),
            "day": draw.choice((None, dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2026, 2, 28))),
            "flag": draw.choice((None, True, False)), "raw": draw.choice((None, b"", b"\x00\xff", draw.randbytes(5))),
        }  # fmt: skip

    def fill(self, table: SourceTable, rows: int) -> None:
        """Rows that were there before DMS began: no change tells of them."""
        for n in range(rows):
            key = (n + 1, self.random.choice(("eu", "us", "ä")))
            table.truth[key] = self.row(key)

    def change(self, table: SourceTable, times: int) -> None:
        """Insert, update, delete, revive, change keys."""
        for _ in range(times):
            kind = self.random.choice("iiuuuddrk")
            keys = list(table.truth)
            if kind == "r" and table.gone:
                key = self.random.choice(table.gone)
                self._put(table, "U" if key in table.truth else "I", key)
            elif kind == "k" and keys and self.key_changes:
                old, new = self.random.choice(keys), (self.random.randrange(1, 10**9), "moved")
                del table.truth[old]
                table.gone.append(old)
                self._put(table, "U", new, old)
            elif kind == "d" and keys:
                key = self.random.choice(keys)
                table.changes.append(Change("D", self._next(), table.truth.pop(key)))
                table.gone.append(key)
            elif kind == "u" and keys:
                self._put(table, "U", self.random.choice(keys))
            else:
                self._put(table, "I", (self.random.randrange(10**9, 2**62), self.random.choice(("eu", ""))))

    def _put(self, table: SourceTable, op: str, key: Key, old: Key | None = None) -> None:
        table.truth[key] = self.row(key)
        if op == "I" and key in table.gone:
            table.gone.remove(key)
        table.changes.append(Change(op, self._next(), table.truth[key], old or (key if op == "U" else None)))

    def _next(self) -> str:
        self.number += self.random.randrange(1, 1000)
        return str(self.number)

    # --- the files of it ---------------------------------------------------------------------------------
    def load(self, table: SourceTable, files: int = 2) -> None:
        """A full load of what is there now."""
        rows = list(table.truth.values())
        for n in range(files):
            part = [Change("L", "", row) for row in rows[n::files]]
            self._write(table, f"LOAD{n + 1:08X}", part, is_load=True)

    def new_task(self) -> None:
        """Begin anew, as where DMS was stopped for a while: rows went that no file tells of, and positions count from the start.

        Of each table the last row or none is gone, so that a file of its load has the content of the last load.
        """
        self.number = 10**20
        for table in self.tables.values():
            table.epoch += 1
            if table.truth and self.random.random() < 0.7:
                table.truth.popitem()
            self.load(table)

    def flush(self, table: SourceTable, *, hold: bool = False) -> None:
        """Write the changes since the last time: in several files, out of order, and some of them twice."""
        changes, table.changes = table.changes, []
        if not changes:
            return
        if table.by_seq:
            self.random.shuffle(changes)
            changes += self.random.sample(changes, len(changes) // 5)
        cut = self.random.randrange(len(changes) + 1)
        for part in (changes[:cut], changes[cut:]):
            if part:
                self._write(table, self._stamp(), part, is_load=False, hold=hold)

    def _stamp(self) -> str:
        self.clock += dt.timedelta(milliseconds=self.random.randrange(1, 10**6))
        return self.clock.strftime("%Y%m%d-%H%M%S") + f"{self.clock.microsecond // 1000:03}"

    def flush_mixed(self, *, hold: bool = False) -> None:
        """Write the changes of all tables into common files: out of order, and some of them twice."""
        changes = [(table, one) for table in self.tables.values() for one in table.changes]
        for table in self.tables.values():
            table.changes = []
        if not changes:
            return
        self.random.shuffle(changes)
        changes += self.random.sample(changes, len(changes) // 5)
        owner = next(iter(self.tables.values()))
        size = -(-len(changes) // (len(self.tables) + 1))
        for start in range(0, len(changes), size):
            part = changes[start : start + size]
            path = f"cdc/{self._stamp()}.csv"
            lines = [self._content(table, [one], is_load=False) for table, one in part]
            if hold:
                owner.held[path] = b"".join(lines)
            else:
                self._put_file(owner, path, b"".join(lines))

    def deliver_copy(self, table: SourceTable) -> None:
        """The changes of a file once more, under another name."""
        paths = [path for path in sorted(table.written) if "LOAD" not in path]
        if table.by_seq and paths:
            path = self.random.choice(paths)
            copy = f"{path.rpartition('/')[0]}/{self._stamp()}.{table.kind}"
            self._put_file(table, copy, table.written[path])

    def deliver_held(self, table: SourceTable) -> None:
        """Files that were on their way for long, newest first."""
        for path in sorted(table.held, reverse=True):
            self._put_file(table, path, table.held.pop(path))

    def deliver_again(self, table: SourceTable) -> None:
        """A file that is there already, with the same content."""
        path = self.random.choice(sorted(table.written))
        place = self.root / path
        place.write_bytes(table.written[path])
        later = place.stat().st_mtime + 5
        os.utime(place, (later, later))
        self.arrivals.append(path)

    def overwrite(self, table: SourceTable) -> str:
        """Another content under the name of a change file; its path."""
        path = self.random.choice([path for path in sorted(table.written) if "LOAD" not in path])
        wrong = Change("I", self._next(), self.row((77, "wrong")))
        content = self._content(table, [wrong], is_load=False)
        (self.root / path).write_bytes(content)
        return path

    def _write(
        self, table: SourceTable, name: str, changes: list[Change], *, is_load: bool, hold: bool = False
    ) -> None:
        path = f"{table.name.replace('.', '/')}/{name}.{table.kind}"
        content = self._content(table, changes, is_load=is_load)
        if hold:
            table.held[path] = content
        else:
            self._put_file(table, path, content)

    def _put_file(self, table: SourceTable, path: str, content: bytes) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        newer = place.stat().st_mtime + 5 if place.exists() else None
        place.write_bytes(content)
        if newer is not None:
            os.utime(place, (newer, newer))
        table.written[path] = content
        self.arrivals.append(path)

    def _content(self, table: SourceTable, changes: list[Change], *, is_load: bool) -> bytes:
        names, rows = _columns(table, changes, self.clock, is_load=is_load)
        if table.kind == "parquet":
            return _parquet(names, rows)
        head = [",".join(names)] if table.header else []
        return ("\n".join([*head, *(",".join(map(_text, row)) for row in rows)]) + "\n").encode()


def _columns(
    table: SourceTable, changes: list[Change], clock: dt.datetime, *, is_load: bool
) -> tuple[list[str], list[list[Any]]]:
    whose = ["sch", "tab"] if table.is_mixed else []
    names = [*([] if is_load else ["Op", *whose]), *COLUMNS, "ts"]
    names += ["AR_H_CHANGE_SEQ"] if table.by_seq else []
    names += ["BI_id", "BI_region"]
    rows = []
    for change in changes:
        given = change.row | {
            "Op": change.op,
            "ts": clock.replace(tzinfo=None),
            "AR_H_CHANGE_SEQ": change.seq or None,
            "sch": table.name.partition(".")[0], "tab": table.name.partition(".")[2],
        }  # fmt: skip
        given["BI_id"], given["BI_region"] = change.old or (None, None)
        rows.append([given[name] for name in names])
    return names, rows


def _parquet(names: list[str], rows: list[list[Any]]) -> bytes:
    kinds = {**{one.name: one.type for one in ARROW}, "ts": pa.timestamp("us"), "BI_id": pa.int64()}
    columns = [
        pa.array([row[n] for row in rows], kinds.get(name, pa.string())) for n, name in enumerate(names)
    ]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns, names=names), sink)
    return sink.getvalue().to_pybytes()


def _text(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return value.hex() if value else '""'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dt.datetime):
        return f"{value:%Y-%m-%d %H:%M:%S.%f}"
    text = repr(value) if isinstance(value, float) else str(value)
    if text in ("", "NULL") or any(mark in text for mark in '",\n\r'):
        return '"' + text.replace('"', '""') + '"'
    return text


def same(found: pa.Table, truth: dict[Key, Row]) -> list[str]:
    """What differs between a table and the truth, in every value and bit; empty if nothing does."""
    rows = [{name: row[name] for name in COLUMNS} for row in found.to_pylist()]
    by_key: dict[Key, Row] = {(row["id"], row["region"]): row for row in rows}
    told = [f"{len(rows) - len(by_key)} keys come twice"] if len(by_key) < len(rows) else []
    told += [f"lost {key}" for key in sorted(truth.keys() - by_key.keys())]
    told += [f"ghost {key}" for key in sorted(by_key.keys() - truth.keys())]
    for key in sorted(truth.keys() & by_key.keys()):
        for name in COLUMNS:
            want, have = truth[key][name], by_key[key][name]
            if repr(want) != repr(have):
                told.append(f"{key} {name}: {have!r}, and not {want!r}")
    return told
