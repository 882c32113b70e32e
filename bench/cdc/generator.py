"""Makes change data without a database: a seeded workload in memory, and the truth of its rows."""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, NamedTuple, Protocol

from bench.cdc.workload import Key, SourceTable

Draw = random.Random
Row = dict[str, Any]
Kind = Literal["int64", "string", "decimal", "timestamp", "boolean", "double"]
PARTITIONS = 3
_START = datetime(2024, 1, 1, tzinfo=UTC)
_WORDS = ("Ada", "Zoë", "O'Neil", "行", "a\tb\n", "null", "NULL", "{}", "x" * 40)
_AGAIN_MAX = 60
_KEPT_ROWS = 40
_NAN = 0.001


class Record(NamedTuple):
    """What goes to Kafka."""

    partition: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class Event:
    """One change of a row; ``position`` is of its transaction, ``number`` within it."""

    table: str
    op: Literal["load", "insert", "update", "delete"]
    row: Row
    """The row after the change; of a delete, the row that went."""
    before: Row | None
    position: int
    number: int
    at: datetime


class Envelope(Protocol):
    """How a tool writes events to Kafka."""

    dead: int
    """Records so far that no table can take, on purpose."""
    ignored: int
    """Records so far that carry no change."""
    has_nan: bool
    """Whether it has NaN and the infinities, which JSON has not."""

    def records(self, event: Event) -> list[Record]: ...

    def column_added(self, table: str, column: str, at: datetime) -> list[Record]: ...

    def poison(self, draw: Draw, event: Event) -> list[Record]: ...


def _text(draw: Draw) -> str:
    return draw.choice(_WORDS) + str(draw.randrange(1000))


def _decimal(digits: int, scale: int) -> Callable[[Draw], Decimal]:
    return lambda draw: Decimal(draw.randrange(-(10**digits) + 1, 10**digits)).scaleb(-scale)


def _whole(bits: int) -> Callable[[Draw], int]:
    return lambda draw: draw.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1))


def _moment(draw: Draw) -> datetime:
    return _START + timedelta(microseconds=draw.randrange(10**14))


@dataclass(frozen=True)
class Column:
    """A column, how its values are drawn, and its digits if it is a decimal."""

    kind: Kind
    draw: Callable[[Draw], Any]
    digits: tuple[int, int] | None = None


@dataclass(frozen=True)
class Shape:
    """A table of the generator."""

    key: dict[str, Column]
    columns: dict[str, Column]


def _key(bound: int, kind: Kind = "int64") -> Column:
    text = kind == "string"
    return Column(kind, lambda draw: f"K{draw.randrange(bound)}" if text else draw.randrange(bound))


SHAPES: Mapping[str, Shape] = {
    "accounts": Shape(
        {"id": _key(700)},
        {
            "name": Column("string", _text), "balance": Column("decimal", _decimal(12, 2), (12, 2)),
            "seen": Column("timestamp", _moment), "active": Column("boolean", lambda draw: draw.random() < 0.5),
        },
    ),
    "lines": Shape(
        {"order_no": _key(200), "line_no": _key(5)},
        {
            "quantity": Column("int64", _whole(32)), "price": Column("double", lambda draw: draw.uniform(-1e6, 1e6)),
            "sku": Column("string", lambda draw: f"S{draw.randrange(1000)}"),
        },
    ),
    "events": Shape(
        {"id": Column("int64", lambda draw: 2**53 + draw.randrange(2500))},
        {"kind": Column("string", _text), "at": Column("timestamp", _moment), "note": Column("string", _text)},
    ),
    "parcels": Shape(
        {"code": _key(400, "string")},
        {"weight": Column("decimal", _decimal(20, 6), (20, 6)), "city": Column("string", _text)},
    ),
}  # fmt: skip
TABLES = tuple(
    SourceTable(name, "", tuple(one.key), lambda *_: (), {}, (), ()) for name, one in SHAPES.items()
)
ADDED: tuple[tuple[float, str, str, Column], ...] = (
    (0.3, "accounts", "points", Column("int64", lambda draw: draw.randrange(1000))),
    (0.5, "parcels", "seal", Column("string", _text)),
    (0.7, "lines", "discount", Column("decimal", _decimal(8, 4), (8, 4))),
)
"""Part of the workload done, table, column."""


def declared_tables(schema: str) -> list[dict[str, Any]]:
    """Settings of all tables for an envelope that names no types: keys, times and decimals are declared."""
    tables = []
    for name, shape in SHAPES.items():
        columns = shape.columns | {column: made for _, table, column, made in ADDED if table == name}
        times = {column: "iso8601" for column, made in columns.items() if made.kind == "timestamp"}
        decimals = {column: list(made.digits) for column, made in columns.items() if made.digits}
        tables.append(
            {"table": name, "source": f"{schema}.{name}", "primary_key": [*shape.key], "timestamp_fields": times,
             "decimal_fields": decimals}
        )  # fmt: skip
    return tables


def partition_of(table: str, key: Key) -> int:
    """All changes of a key are in one partition."""
    return zlib.crc32(repr((table, key)).encode()) % PARTITIONS


@dataclass
class Generator:
    """Changes rows in memory and tells an envelope what it did.

    Args:
        send: takes each record; it is called in the order of the source's log.
    """

    seed: int
    envelope: Envelope
    send: Callable[[Record], None]
    told: dict[str, int] = field(default_factory=dict)
    rows: dict[str, dict[Key, Row]] = field(default_factory=lambda: {name: {} for name in SHAPES})
    columns: dict[str, dict[str, Column]] = field(
        default_factory=lambda: {name: dict(shape.columns) for name, shape in SHAPES.items()}
    )
    sent: int = 0

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)
        self._odd = random.Random(f"odd/{self.seed}")  # of its own, so that a seed says what it said before
        self._waiting = list(ADDED)
        self._position, self._number, self._left = 1000, 0, 0
        self._recent: list[Record] = []

    @property
    def changes(self) -> int:
        """Changes of rows so far, without those of the full load."""
        return sum(self.told.get(name, 0) for name in ("inserts", "updates", "deletes", "key changes"))

    def load(self) -> None:
        """The full load: some rows of each table, from before all changes."""
        for table, shape in SHAPES.items():
            for _ in range(_KEPT_ROWS):
                key = tuple(column.draw(self._draw) for column in shape.key.values())
                if key not in self.rows[table]:
                    self.rows[table][key] = self._values(table, key)
                    self._tell("load", table, self.rows[table][key], None)
                    self._count("loaded")

    def run(self, changes: int, of: int, start: int = 0) -> None:
        """Make so many changes of a workload of ``of``."""
        goal = self.changes + changes
        while self.changes < goal:
            self._change()
            self._add_columns((start + changes - (goal - self.changes)) / of)

    # --- one change -------------------------------------------------------------------------------
    def _change(self) -> None:
        draw = self._draw
        if self._left <= 0:
            self._left = draw.choice([1, 1, 2, 3, 8, 25])
            self._position, self._number = self._position + draw.randrange(1, 10**6), 0
        self._left -= 1
        table = draw.choice([*SHAPES])
        shape, live = SHAPES[table], self.rows[table]
        key = tuple(column.draw(draw) for column in shape.key.values())
        if key not in live:
            if live and draw.random() < 0.25:
                return self._rekey(table, draw.choice(list(live)), key)
            live[key] = self._values(table, key)
            self._tell("insert", table, live[key], None)
            self._count("inserts")
        elif draw.random() < 0.25:
            gone = live.pop(key)
            self._tell("delete", table, gone, gone)
            self._count("deletes")
        else:
            old, new = live[key], self._values(table, key)
            live[key] = {name: new[name] if draw.random() < 0.5 else value for name, value in old.items()}
            self._tell("update", table, live[key], old)
            self._count("updates")
        if draw.random() < 0.003:
            self._deliver_again()
        if draw.random() < 0.002:
            row = self._values(table, key)
            self._pass(self.envelope.poison(draw, self._event("insert", table, row, None)))
        return None

    def _rekey(self, table: str, old: Key, new: Key) -> None:
        live = self.rows[table]
        before = live.pop(old)
        live[new] = {**before, **dict(zip(SHAPES[table].key, new, strict=True))}
        self._tell("update", table, live[new], before)
        self._count("key changes")

    def _values(self, table: str, key: Key) -> Row:
        drawn = {
            name: None if self._draw.random() < 0.15 else column.draw(self._draw)
            for name, column in self.columns[table].items()
        }
        for name, column in self.columns[table].items():
            if column.kind == "double" and self.envelope.has_nan and self._odd.random() < _NAN:
                drawn[name] = self._odd.choice([math.nan, math.inf, -math.inf])
                self._count("NaN and infinities")
        return dict(zip(SHAPES[table].key, key, strict=True)) | drawn

    def _add_columns(self, part: float) -> None:
        while self._waiting and self._waiting[0][0] <= part:
            _, table, name, column = self._waiting.pop(0)
            self._left = 0
            self.columns[table][name] = column
            for row in self.rows[table].values():
                row[name] = None
            self._pass(self.envelope.column_added(table, name, self._now))
            self._count("columns added")

    def _deliver_again(self) -> None:
        """What a tool sends after a crash: its last records, from some point on, all of them."""
        for record in self._recent[-self._draw.randrange(1, _AGAIN_MAX) :]:
            self.send(record)
            self.sent += 1
            self._count("delivered again")
            if record.value is None:
                self.envelope.ignored += 1

    # --- records ----------------------------------------------------------------------------------
    @property
    def _now(self) -> datetime:
        return _START + timedelta(milliseconds=self.changes)

    def _event(self, op: Any, table: str, row: Row, before: Row | None) -> Event:
        self._number += 1
        return Event(table, op, dict(row), before, self._position, self._number, self._now)

    def _tell(self, op: Any, table: str, row: Row, before: Row | None) -> None:
        records = self.envelope.records(self._event(op, table, row, before))
        self._pass(records)
        if op != "load":
            self._recent = (self._recent + records)[-_AGAIN_MAX:]

    def _pass(self, records: list[Record]) -> None:
        for record in records:
            self.send(record)
            self.sent += 1

    def _count(self, what: str) -> None:
        self.told[what] = self.told.get(what, 0) + 1
