"""A raw zone as users have it, drawn by chance: keys that are not unique, every spelling of a type, texts that are no UTF-8, files that come twice.

Beside the job stands a model of a few lines: the latest change of each key, and the place of each record that is put aside.
"""

from __future__ import annotations

import datetime as dt
import gzip
import io
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

START_S = 1_790_000_000
TABLE = "shop.orders"
BAD = "what its column does not take"
ODD = "odd"
"""A note that breaks the rule."""
NO_VALUE = "?"
LATIN = b"Z\xfcrich"
_FIVE, _DAY = dt.datetime.fromisoformat("2026-01-01T05:00:00.000007"), dt.datetime.fromisoformat("2026-01-02")
_FIRST, _LAST = dt.datetime.fromisoformat("0001-01-01"), dt.datetime.fromisoformat("9999-12-31T23:59:59")
_UUID = UUID("00000000-0000-4000-8000-00000000002a")
_UTC = dt.UTC


@dataclass(frozen=True)
class Form:
    """How a file has a column: an Arrow type, or the texts of CSV, and values with what they are to become."""

    values: tuple[tuple[Any, Any], ...]
    kind: pa.DataType | None = None
    int96: bool = False


def _same(kind: pa.DataType, *values: Any) -> Form:
    return Form(tuple((one, one) for one in values), kind)


def _of(kind: pa.DataType | None, *pairs: tuple[Any, Any], int96: bool = False) -> Form:
    return Form(pairs, kind, int96)


def _coded(form: Form) -> Form:
    return Form(form.values, pa.dictionary(pa.int32(), form.kind))


def _zoned(form: Form) -> Form:
    values = [
        (given, wanted if wanted is BAD else wanted.replace(tzinfo=_UTC)) for given, wanted in form.values
    ]
    return Form(tuple(values), form.kind, form.int96)


_D = Decimal
_NOTES = (("a", "a"), ("é😀", "é😀"), ('q"x', 'q"x'), (ODD, ODD), (LATIN, BAD), (None, None), ("", ""))
_TIMES = [
    _same(pa.timestamp("us"), _FIVE, _FIRST, _LAST),
    _same(pa.timestamp("ms"), _DAY, _FIRST, _LAST),
    _same(pa.timestamp("s"), _DAY, _LAST),
    _of(pa.timestamp("ns"), (_FIVE, _FIVE), (1_000, dt.datetime.fromisoformat("1970-01-01T00:00:00.000001")), (1, BAD)),
    _of(pa.timestamp("ns"), (_FIVE, _FIVE), (1_001, BAD), int96=True),
    _of(pa.timestamp("us"), (_FIVE, _FIVE), (_FIRST, _FIRST), (_LAST, _LAST), int96=True),
    _of(pa.date32(), (dt.date(2026, 1, 2), _DAY)),
    _of(pa.timestamp("us", "UTC"), (_FIVE.replace(tzinfo=_UTC), _FIVE)),
    _of(pa.string(), ("2026-01-01 05:00:00.000007", _FIVE), ("2026-01-02T00:00:00.0000000", _DAY), ("x", BAD), (LATIN, BAD)),
]  # fmt: skip
PARQUET: dict[str, list[Form]] = {
    "bool": [
        _same(pa.bool_(), True, False),
        *(_of(kind, (1, True), (0, False), (2, BAD)) for kind in (pa.int8(), pa.int16(), pa.uint8())),
        _of(pa.decimal128(1, 0), (_D(1), True), (_D(0), False), (_D(3), BAD)),
        _of(pa.float64(), (1.0, True), (0.0, False), (0.5, BAD)),
        _of(pa.string(), ("true", True), ("0", False), ("Y", BAD), (LATIN, BAD)),
    ],
    "int32": [
        _same(pa.int16(), 7, -7),
        _of(pa.int64(), (2**31 - 1, 2**31 - 1), (2**31, BAD)),
        _of(pa.uint64(), (5, 5), (2**63, BAD)),
        _of(pa.decimal128(12, 2), (_D("7.00"), 7), (_D("7.50"), BAD)),
        _of(pa.decimal256(40, 0), (_D(9), 9), (_D(10**39), BAD)),
        _of(pa.float32(), (7.0, 7), (7.5, BAD), (float("nan"), BAD)),
        _of(pa.string(), ("7", 7), ("-7.0000000000", -7), ("0x1F", BAD), (LATIN, BAD)),
        _coded(_same(pa.int32(), 7, 8)),
    ],
    "float64": [
        _same(pa.float64(), 0.1, -0.0, float("inf")),
        _of(pa.float32(), (0.5, 0.5)),
        _of(pa.float16(), (0.5, 0.5), (2.0, 2.0)),
        _of(pa.decimal128(9, 2), (_D("0.10"), 0.1)),
        _of(pa.int64(), (7, 7.0), (2**53 + 1, BAD)),
        _of(pa.string(), ("1e3", 1000.0), ("1e999", BAD), ("x", BAD)),
    ],
    "decimal(10,2)": [
        _same(pa.decimal128(10, 2), _D("1.50"), _D("-99999999.99")),
        _of(pa.decimal128(12, 3), (_D("1.500"), _D("1.50")), (_D("1.505"), BAD)),
        _of(pa.decimal128(5, 1), (_D("1.5"), _D("1.50"))),
        _of(pa.decimal256(50, 4), (_D("1.5000"), _D("1.50")), (_D("123456789.0000"), BAD)),
        _of(pa.float64(), (1.25, _D("1.25")), (1.239, BAD), (float("inf"), BAD)),
        _of(pa.int32(), (3, _D("3.00")), (10**9, BAD)),
        _of(pa.string(), ("1.5", _D("1.50")), ("1.505", BAD), ("NaN", BAD)),
    ],
    "timestamp": _TIMES,
    "timestamptz": [_zoned(form) for form in _TIMES],
    "date": [
        _same(pa.date32(), dt.date(2026, 1, 2), dt.date(1, 1, 1), dt.date(9999, 12, 31)),
        _of(pa.date64(), (dt.date(2026, 1, 2), dt.date(2026, 1, 2))),
        *(_of(pa.timestamp(unit), (_DAY, _DAY.date()), (dt.datetime.fromisoformat("2026-01-01T05:00"), BAD), int96=int96)
          for unit, int96 in (("ms", False), ("us", False), ("ns", False), ("ns", True))),
        _of(pa.timestamp("us"), (_DAY, _DAY.date()), (_FIRST, _FIRST.date()), (dt.datetime.fromisoformat("9999-12-31"), dt.date(9999, 12, 31)), int96=True),
        _of(pa.string(), ("2026-01-02", _DAY.date()), ("2026-01-02 00:00:00", _DAY.date()), ("2026-02-30", BAD)),
    ],
    "string": [
        *(_of(kind, *_NOTES) for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()))),
        _same(pa.string_view(), "a", "é😀", ODD),
        *([_of(pa.json_(), ("{}", "{}"), ("[1]", "[1]"))] if hasattr(pa, "json_") else []),
    ],
    "binary": [
        *(_same(kind, b"\x00\xff", b"") for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
        _same(pa.binary(16), _UUID.bytes),
        *([_of(pa.uuid(), (_UUID.bytes, _UUID.bytes))] if hasattr(pa, "uuid") else []),
        _of(pa.string(), ("0aFF", b"\x0a\xff"), ("0x0a", BAD), (LATIN, BAD)),
    ],
}  # fmt: skip
CSV: dict[str, Form] = {
    "bool": _of(None, ("true", True), ("1", True), ("0", False), ("1.0000000000", True), ("Y", BAD), ("2", BAD)),
    "int32": _of(None, ("7", 7), ("7.0000000000", 7), ("+7", 7), ("7.5", BAD), ("2147483648", BAD)),
    "float64": _of(None, ("0.1", 0.1), ("-0", -0.0), ("1e999", BAD)),
    "decimal(10,2)": _of(None, ("1.5", _D("1.50")), ("1.505", BAD), ("NaN", BAD)),
    "timestamp": _of(None, ("2026-01-01 05:00:00.000007", _FIVE), ("9999-12-31 23:59:59", _LAST), ("0000-01-01", BAD)),
    "timestamptz": _of(None, ("2026-01-01 05:00:00.000007Z", _FIVE.replace(tzinfo=_UTC)), ("0000-01-01", BAD)),
    "date": _of(None, ("2026-01-02", _DAY.date()), ("2026-01-02 00:00:00.000000", _DAY.date()), ("2026-01-02 05:00", BAD)),
    "string": _of(None, *_NOTES, ("a,b", "a,b"), ("NULL", "NULL"), ("x\ny", "x\ny")),
    "binary": _of(None, ("0aFF", b"\x0a\xff"), ("", b""), ("0a0", BAD)),
}  # fmt: skip
KEYS = [_of(kind, *((one, one) for one in range(1, 7))) for kind in (pa.int64(), pa.int16(), pa.uint32())] + [
    _of(pa.decimal128(9, 0), *((_D(one), one) for one in range(1, 7))),
    _of(pa.string(), *((str(one), one) for one in range(1, 7)), ("x", BAD), (LATIN, BAD)),
]
MARKERS = (
    "shop_$folder$", "shop/orders_$folder$", "shop/orders/2026_$folder$", "_SUCCESS", "shop/_SUCCESS", "shop/orders/_SUCCESS",
    "shop/orders/_committed_7", "shop/orders/.part.crc", "shop/orders/_manifest/m.json", "awsdms-manifests/full-load/x.json", "shop/other_$folder$",
)  # fmt: skip


@dataclass(frozen=True)
class Record:
    """A record of a file: what it says, and what it is to become."""

    op: str
    given: tuple[Any, ...]
    """The key, the value and the note as the file has them."""
    wanted: tuple[Any, ...]
    seq: int = 0
    lacks: bool = False
    """Whether it brings no note."""

    @property
    def is_good(self) -> bool:
        key, *others = self.wanted
        return key is not BAD and key is not None and self.op != "Q" and (self.op == "D" or BAD not in others)


@dataclass(frozen=True)
class File:
    """A raw file of the table."""

    path: str
    records: tuple[Record, ...]
    at: int

    @property
    def is_load(self) -> bool:
        return "LOAD" in self.path


Place = tuple[str, int]


@dataclass(frozen=True)
class Taken:
    """A row of bronze."""

    place: Place
    order: tuple[Any, ...]
    record: Record

    @property
    def is_load(self) -> bool:
        return self.order[0] == 0


@dataclass
class Model:
    """What silver and quarantine are to hold."""

    by_column: bool
    files: dict[str, File] = field(default_factory=dict)
    rows: dict[Place, Taken] = field(default_factory=dict)
    raw: set[Place] = field(default_factory=set)
    aside: set[Place] = field(default_factory=set)
    given: dict[Place, Taken] = field(default_factory=dict)

    def run(
        self, files: Mapping[str, File], *, takes_deletes: bool, has_rule: bool, again: bool = False
    ) -> None:
        """Land new files, and give silver the new rows; with ``again`` all files and all rows."""
        new = [one for path, one in files.items() if again or path not in self.files]
        before = set(self.rows)
        for one in new:
            self.files[one.path] = one
            for line, record in enumerate(one.records, 1):
                if record.is_good and (takes_deletes or record.op != "D"):
                    self.rows.setdefault(
                        (one.path, line), Taken((one.path, line), self._order(one, line, record), record)
                    )
                else:
                    self.raw.add((one.path, line))
        brought = [row for place, row in self.rows.items() if again or place not in before]
        shared = self._shared() if any(row.is_load for row in brought) else set()
        self.aside |= shared
        there = {key: row.order for key, row in self._last().items() if row.record.op != "D"}
        for row in sorted(brought, key=lambda row: row.order):
            key, _, note = row.record.wanted
            is_odd = row.record.op != "D" and note == ODD and has_rule
            if is_odd or row.place in shared or (row.record.lacks and key not in there):
                self.aside.add(row.place)
                continue
            self.given[row.place] = row
            if row.record.op != "D":
                there[key] = max(row.order, there.get(key, row.order))
            elif key in there and there[key] <= row.order:
                del there[key]

    def _order(self, file: File, line: int, record: Record) -> tuple[Any, ...]:
        number = file.path.rpartition("/")[2].partition(".")[0]
        return (
            (0, file.at, number, line)
            if file.is_load
            else (1, record.seq)
            if self.by_column
            else (1, number, line)
        )

    def _shared(self) -> set[Place]:
        """Rows of the load of which a later one has the key."""
        loaded = [row for row in self.rows.values() if row.is_load]
        last = {row.record.wanted[0]: row.place for row in sorted(loaded, key=lambda row: row.order)}
        return {row.place for row in loaded if row.place != last[row.record.wanted[0]]}

    def _last(self) -> dict[Any, Taken]:
        """The latest change of each key that silver was given."""
        return {row.record.wanted[0]: row for row in sorted(self.given.values(), key=lambda row: row.order)}

    def silver(self) -> dict[Any, tuple[Any, Any]]:
        """The latest change of each key; a note that a change lacks is that of before."""
        found: dict[Any, tuple[Any, Any]] = {}
        for row in sorted(self.given.values(), key=lambda row: row.order):
            key, value, note = row.record.wanted
            if row.record.op == "D":
                found.pop(key, None)
            elif key in found or not row.record.lacks:
                found[key] = (value, found[key][1] if row.record.lacks else note)
        return found

    def states(self) -> dict[tuple[str, str], str]:
        """What is to be said of each record in quarantine."""
        last = self._last()
        raw = {
            ("raw", f"{path}#{line}"): "replayed" if (path, line) in self.rows else "waiting"
            for path, line in self.raw
        }
        return raw | {
            ("silver", f"{path}#{line}"): self._state(self.rows[path, line], last)
            for path, line in self.aside
        }

    def _state(self, row: Taken, last: Mapping[Any, Taken]) -> str:
        newest = last.get(row.record.wanted[0])
        if newest is None or newest.order < row.order:
            return "waiting"
        if newest.order == row.order:
            return "waiting" if row.record.op == "D" else "replayed"
        return "waiting" if row.is_load and newest.is_load else "overtaken"


class Zone:
    """Files of one table, and what lies among them."""

    def __init__(
        self,
        folder: Path,
        draw: random.Random,
        kind: str,
        declared: str,
        *,
        header: bool,
        by_column: bool,
        lacking: bool,
    ) -> None:
        self.folder, self.draw, self.kind, self.declared = folder, draw, kind, declared
        self.header, self.by_column, self.lacking = header, by_column, lacking
        self.files: dict[str, File] = {}
        self.held: list[tuple[File, bytes]] = []
        self.at = self.seq = self.number = self.loads = 0
        self.told: list[str] = []

    @property
    def settings(self) -> dict[str, Any]:
        """``files`` of the configuration."""
        found: dict[str, Any] = {"kind": self.kind}
        if self.kind == "csv":
            found |= {"header": self.header, "rfc4180": True}
            found |= {} if self.header else {"order": ["Op", "*", *(["seq"] if self.by_column else [])]}
        found |= {"change_seq": "seq"} if self.by_column else {}
        return found | ({"no_sup_value": NO_VALUE} if self.lacking else {})

    # --- files ----------------------------------------------------------------------------------------
    def load(self) -> None:
        self.loads += 1
        self._write(f"shop/orders/LOAD{self.loads:08X}", self._forms(), "L" * self.draw.randint(1, 4))

    def change(self) -> None:
        ops = self.draw.choices("IUUUDQ", k=self.draw.randint(1, 4))
        path, forms = self._next_name(), self._forms()
        self._write(path, forms, ops)

    def change_that_waits(self) -> None:
        """A file that comes later than those behind it."""
        path, forms = self._next_name(), self._forms()
        self._write(path, forms, self.draw.choices("IUUD", k=2), is_held=True)

    def release(self) -> None:
        while self.held:
            file, content = self.held.pop(0)
            self._put(file, content)

    def nothing(self) -> None:
        """A file without a byte, or with a header alone."""
        path = self._next_name()
        empty = self.kind == "csv" and self.draw.random() < 0.5 and self.header
        self._write(path, self._forms(), []) if not empty and self.draw.random() < 0.7 else self._put(
            self._file(path, ()), b""
        )

    def again(self) -> None:
        """A file comes once more under another name."""
        # Values that a change keeps are those of the changes before it: there none comes late.
        known = [one for _, one in sorted(self.files.items()) if one.is_load or not self.lacking]
        if not known:
            return
        first = self.draw.choice(known)
        content = (self.folder / "raw" / first.path).read_bytes()
        if first.is_load:
            self.loads += 1
        name = f"shop/orders/LOAD{self.loads:08X}" if first.is_load else self._next_name()
        _, _, suffix = first.path.rpartition("/")[2].partition(".")
        self._put(File(f"{name}.{suffix}", first.records, self._tick()), content)

    def marker(self) -> None:
        path = self.folder / "raw" / self.draw.choice(MARKERS)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"" if path.name.endswith("$") else b"{}")
        self.told.append(f"  {path.name}")

    def _next_name(self) -> str:
        self.number += 1
        folder = self.draw.choice(("", "2026/11/01/"))
        return f"shop/orders/{folder}20261101-{self.number:09}"

    def _tick(self) -> int:
        self.at += 1
        return self.at

    def _file(self, path: str, records: Sequence[Record]) -> File:
        suffix = (
            "parquet" if self.kind == "parquet" else self.draw.choice(("csv", "csv.gz")) if records else "csv"
        )
        return File(f"{path}.{suffix}", tuple(records), self._tick())

    def _put(self, file: File, content: bytes) -> None:
        place = self.folder / "raw" / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        os.utime(place, (START_S + 100 * file.at,) * 2)
        self.files[file.path] = file
        self.told.append(f"  {file.path} at {file.at}: {file.records}")

    # --- records --------------------------------------------------------------------------------------
    def _forms(self) -> list[Form]:
        """How one file has the columns."""
        if self.kind == "csv":
            keys = _of(None, *((str(one), one) for one in range(1, 7)), ("x", BAD), (LATIN, BAD))
            return [keys, CSV[self.declared], CSV["string"]]
        return [self.draw.choice(some) for some in (KEYS, PARQUET[self.declared], PARQUET["string"])]

    def _write(self, path: str, forms: Sequence[Form], ops: Sequence[str], *, is_held: bool = False) -> None:
        records = [self._record(op, forms) for op in ops]
        file = self._file(path, records)
        content = self._csv(file) if self.kind == "csv" else self._parquet(file, forms)
        if is_held:
            self.held.append((file, content))
        else:
            self._put(file, content)

    def _record(self, op: str, forms: Sequence[Form]) -> Record:
        pairs = [self.draw.choice(form.values) for form in forms]
        if self.draw.random() < 0.1:
            pairs[1] = (None, None)
        self.seq += op != "L"
        lacks = self.lacking and op == "U"
        if lacks:
            pairs[2] = (NO_VALUE, None)
        return Record(
            op, tuple(given for given, _ in pairs), tuple(wanted for _, wanted in pairs), self.seq, lacks
        )

    def _csv(self, file: File) -> bytes:
        names = ["Op", "id", "v", "note", "seq"]
        rows = [[one.op, *one.given, str(one.seq)] for one in file.records]
        keep = [
            at
            for at, name in enumerate(names)
            if not (name == "Op" and file.is_load) and (name != "seq" or self.by_column)
        ]
        if self.header:
            self.draw.shuffle(keep)
        end = self.draw.choice((b"\n", b"\r\n"))
        cells = [names[at].encode() for at in keep]
        lines = ([b",".join(cells)] if self.header else []) + [
            b",".join(_cell(row[at]) for at in keep) for row in rows
        ]
        text = (
            b"\xef\xbb\xbf" * self.draw.choice((0, 1)) * bool(lines)
            + end.join(lines)
            + end * self.draw.choice((0, 1)) * bool(lines)
        )
        return gzip.compress(text, mtime=0) if file.path.endswith(".gz") else text

    def _parquet(self, file: File, forms: Sequence[Form]) -> bytes:
        texts = self.draw.choice((pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())))
        columns = {} if file.is_load else {"Op": array([one.op for one in file.records], texts)}
        for at, (name, form) in enumerate(zip(("id", "v", "note"), forms, strict=True)):
            assert form.kind is not None
            columns[name] = array([one.given[at] for one in file.records], form.kind)
        if self.by_column and not file.is_load:
            kind = self.draw.choice((pa.string(), pa.int64(), pa.decimal128(38, 0)))
            columns["seq"] = array(
                [str(one.seq) if pa.types.is_string(kind) else one.seq for one in file.records], kind
            )
        names = [*columns]
        self.draw.shuffle(names)
        sink = io.BytesIO()
        pq.write_table(
            pa.table({name: columns[name] for name in names}), sink, row_group_size=2,
            use_deprecated_int96_timestamps=forms[1].int96, store_schema=self.draw.random() < 0.5,
        )  # fmt: skip
        return sink.getvalue()


def _cell(value: str | bytes | None) -> bytes:
    if value is None:
        return b"NULL"
    raw = value if isinstance(value, bytes) else value.encode()
    is_quoted = raw in (b"", b"NULL") or any(one in raw for one in (b'"', b",", b"\n"))
    return b'"' + raw.replace(b'"', b'""') + b'"' if is_quoted else raw


def array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """An array of any type, with texts that are no UTF-8 where there are such."""
    if pa.types.is_dictionary(kind):
        known = list(dict.fromkeys(one for one in values if one is not None))
        codes = pa.array([None if one is None else known.index(one) for one in values], kind.index_type)
        return pa.DictionaryArray.from_arrays(codes, array(known, kind.value_type))
    if any(isinstance(one, bytes) for one in values) and not _is_bytes(kind):
        raw = [one if one is None or isinstance(one, bytes) else one.encode() for one in values]
        plain = pa.array(raw, pa.binary())
        texts = pa.Array.from_buffers(pa.string(), len(plain), plain.buffers())
        return texts if kind == pa.string() else _as(texts, kind)
    if pa.types.is_float16(kind):
        return pa.array([None if one is None else float(one) for one in values], pa.float32()).cast(kind)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    return pa.array(values, kind)


def _as(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    return texts.cast(kind, safe=False)


def _is_bytes(kind: pa.DataType) -> bool:
    stored = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    return bool(
        pa.types.is_binary(stored)
        or pa.types.is_large_binary(stored)
        or pa.types.is_binary_view(stored)
        or pa.types.is_fixed_size_binary(stored)
    )
