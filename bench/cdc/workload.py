"""Runs a random workload on five tables of PostgreSQL; one seed gives the same statements."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Container, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import psycopg2
import psycopg2.extras

Draw = random.Random
Key = tuple[Any, ...]

_START = datetime(2024, 1, 1, tzinfo=UTC)
_WORDS = ("Ada", "Zoë", "", "O'Neil", "行", "a\tb\n", "null", "__debezium", "x" * 40)
_TOAST_BYTES = 9_000
"""PostgreSQL stores longer values out of line and leaves them out of updates that do not touch them."""


@dataclass(frozen=True)
class SourceTable:
    """One table: how it is made, its values drawn, its keys drawn, and how a checker selects it."""

    name: str
    ddl: str
    key: tuple[str, ...]
    keys: Callable[[Draw, int], Key]
    columns: Mapping[str, Callable[[Draw], Any]]
    marker: Key
    """The key of the row that is written last, after everything else."""
    plain: tuple[str, ...]
    """Columns whose values every reader of Debezium's JSON gets right."""
    toast: tuple[str, ...] = ()
    truncated: bool = False


def _often(make: Callable[[Draw], Any], null: float = 0.15) -> Callable[[Draw], Any]:
    return lambda draw: None if draw.random() < null else make(draw)


def _text(draw: Draw) -> str:
    return draw.choice(_WORDS) + str(draw.randrange(1000))


def _moment(draw: Draw) -> datetime:
    return _START + timedelta(microseconds=draw.randrange(10**14))


def _json(draw: Draw) -> str:
    return json.dumps({"a": draw.randrange(9), "b": [draw.choice(_WORDS), None, 1.5]}, ensure_ascii=False)


def _large(draw: Draw) -> str:
    return f"{draw.getrandbits(64):016x}" * (draw.randrange(_TOAST_BYTES, 2 * _TOAST_BYTES) // 16)


def _double(draw: Draw) -> float:
    return draw.choice([0.1, -1e300, 5e-324, float("nan"), float("inf"), draw.uniform(-1e6, 1e6)])


def _own(number: int, parity: int) -> int:
    """A whole number as key that belongs to one session."""
    return 2 * number + parity


def _uuid_key(draw: Draw, parity: int) -> Key:
    return (str(uuid.UUID(int=(draw.randrange(400) << 8) + parity)),)


TABLES = (
    SourceTable(
        "customers",
        "id int PRIMARY KEY, name text, email varchar(80), born date, balance numeric(12,2), seen timestamptz, "
        "active boolean, tags text[], address jsonb",
        ("id",),
        lambda draw, parity: (_own(draw.randrange(300), parity),),
        {
            "name": _often(_text),
            "email": _often(_text),
            "born": _often(lambda draw: date(1900, 1, 1) + timedelta(days=draw.randrange(60_000))),
            "balance": _often(lambda draw: Decimal(draw.randrange(-(10**12) + 1, 10**12)).scaleb(-2)),
            "seen": _often(_moment),
            "active": _often(lambda draw: draw.random() < 0.5),
            "tags": _often(lambda draw: [draw.choice([*_WORDS, None]) for _ in range(draw.randrange(4))]),
            "address": _often(_json),
        },
        (10**6,),
        ("name", "email", "active"),
    ),
    SourceTable(
        "orders",
        "order_id uuid PRIMARY KEY, customer int, amount numeric(20,6), placed timestamp, ordered_at time, note json, lines int[]",
        ("order_id",),
        _uuid_key,
        {
            "customer": _often(lambda draw: draw.randrange(-(2**31), 2**31)),
            "amount": _often(lambda draw: Decimal(draw.randrange(-(10**20) + 1, 10**20)).scaleb(-6)),
            "placed": _often(lambda draw: _moment(draw).replace(tzinfo=None)),
            "ordered_at": _often(
                lambda draw: time(draw.randrange(24), draw.randrange(60), 7, draw.randrange(10**6))
            ),
            "note": _often(_json),
            "lines": _often(lambda draw: [draw.randrange(100) for _ in range(draw.randrange(4))]),
        },
        (str(uuid.UUID(int=0)),),
        ("customer",),
    ),
    SourceTable(
        "documents",
        "id int PRIMARY KEY, title text, body text, raw bytea, n int",
        ("id",),
        lambda draw, parity: (_own(draw.randrange(60), parity),),
        {
            "title": _often(_text),
            "body": _often(_large, 0.05),
            "raw": _often(lambda draw: draw.choice([b"", b"\x00\xff", _large(draw).encode()])),
            "n": _often(lambda draw: draw.randrange(100)),
        },
        (10**6,),
        ("title", "body", "n"),
        toast=("body", "raw"),
    ),
    SourceTable(
        "lines",
        "order_no int, line_no int, quantity int, price double precision, discount real, sku char(8), PRIMARY KEY (order_no, line_no)",
        ("order_no", "line_no"),
        lambda draw, parity: (_own(draw.randrange(100), parity), draw.randrange(1, 5)),
        {
            "quantity": _often(lambda draw: draw.randrange(-(2**31), 2**31)),
            "price": _often(_double),
            "discount": _often(lambda draw: draw.choice([0.1, 0.25, 0.3])),
            "sku": _often(lambda draw: f"S{draw.randrange(1000)}"),
        },
        (10**6, 0),
        ("quantity",),
        truncated=True,
    ),
    SourceTable(
        "events",
        "id bigint PRIMARY KEY, at timestamptz, kind text, payload jsonb, took interval, weight numeric",
        ("id",),
        lambda draw, parity: (_own(draw.randrange(2**40, 2**40 + 400), parity),),
        {
            "at": _often(_moment),
            "kind": _often(_text),
            "payload": _often(_json),
            "took": _often(lambda draw: timedelta(seconds=draw.randrange(86_400))),
            "weight": _often(lambda draw: Decimal(draw.randrange(-(10**15), 10**15)).scaleb(-draw.randrange(12))),
        },
        (10**15,),
        ("kind",),
        truncated=True,
    ),
)  # fmt: skip
DDL: tuple[tuple[float, str, str, str, Callable[[Draw], Any]], ...] = (
    (0.3, "customers", "ADD COLUMN points int", "points", _often(lambda draw: draw.randrange(1000))),
    (
        0.45,
        "lines",
        "ALTER COLUMN quantity TYPE bigint",
        "quantity",
        _often(lambda draw: draw.randrange(2**62)),
    ),
    (
        0.6,
        "documents",
        "ADD COLUMN seal uuid",
        "seal",
        _often(lambda draw: str(uuid.UUID(int=draw.getrandbits(128)))),
    ),
    (
        0.75,
        "customers",
        "ALTER COLUMN points TYPE bigint",
        "points",
        _often(lambda draw: draw.randrange(2**62)),
    ),
)
"""Part of the workload done, table, statement, the column that it changes, and its values from then on."""


@dataclass
class _Session:
    """One connection; its keys are its own, so that two of them never wait for each other."""

    connection: Any
    parity: int
    live: dict[str, set[Key]]
    left: int = 0
    before: dict[str, set[Key]] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    """What its open transaction has done."""


class Workload:
    """Changes tables by two sessions whose transactions interleave.

    Args:
        address: of the database, ``postgresql://...``.
        key_changes_of_large: whether keys change of rows whose large values PostgreSQL leaves out.
        kept: tables that are not truncated.
        whole: tables whose rows PostgreSQL writes whole (REPLICA IDENTITY FULL).
    """

    def __init__(
        self,
        address: str,
        seed: int,
        *,
        key_changes_of_large: bool = True,
        kept: Container[str] = (),
        whole: Container[str] = (),
    ) -> None:
        self._address = address
        self._draw = random.Random(seed)
        self._values = {table.name: dict(table.columns) for table in TABLES}
        self._key_changes_of_large = key_changes_of_large
        self._kept, self._whole = kept, whole
        self._waiting = list(DDL)
        self.told: dict[str, int] = dict.fromkeys(
            ("inserts", "updates", "deletes", "key changes", "truncates", "rollbacks", "transactions", "ddl"),
            0,
        )
        self._sessions: list[_Session] = []

    def create(self) -> None:
        """Make the tables, each with some rows, before anyone captures them."""
        with closing(self.connect()) as connection, connection, connection.cursor() as cursor:
            for table in TABLES:
                cursor.execute(f"CREATE TABLE {table.name} ({table.ddl})")
                for name in table.toast:
                    cursor.execute(f"ALTER TABLE {table.name} ALTER COLUMN {name} SET STORAGE EXTERNAL")
                if table.name in self._whole:
                    cursor.execute(f"ALTER TABLE {table.name} REPLICA IDENTITY FULL")
        for parity in (0, 1):
            live: dict[str, set[Key]] = {table.name: set() for table in TABLES}
            self._sessions.append(_Session(self.connect(), parity, live))
        for session in self._sessions:
            for table in TABLES:
                for _ in range(20):
                    self._insert(session, table)
            self._end(session)

    def run(self, changes: int, of: int | None = None, start: int = 0) -> None:
        """Make so many changes of rows, of a workload of ``of``; those of a rollback do not count."""
        total = of or changes
        goal = self.changes + changes
        while self.changes < goal:
            session = self._draw.choice(self._sessions)
            if session.left <= 0:
                session.left = self._draw.choice([1, 1, 2, 3, 8, 20])
                session.before = {name: set(keys) for name, keys in session.live.items()}
            # A key that changes may send its table to the driver: in every other tenth none does.
            moves = int(10 * (start + changes - (goal - self.changes)) / total) % 2 == 0
            self._change(session, moves=moves)
            session.left -= 1
            if session.left <= 0:
                self._end(session)
            self._alone((start + changes - (goal - self.changes)) / total)
        for session in self._sessions:
            self._end(session)

    def mark(self) -> None:
        """Write the last rows: who has these has all before them."""
        session = self._sessions[0]
        for table in TABLES:
            self._insert(session, table, table.marker)
        self._end(session, commit=True)

    @property
    def changes(self) -> int:
        """Changes of rows so far, truncates counted as one."""
        return sum(self.told[name] for name in ("inserts", "updates", "deletes", "key changes", "truncates"))

    def close(self) -> None:
        for session in self._sessions:
            session.connection.close()

    # --- one change -------------------------------------------------------------------------------
    def _change(self, session: _Session, *, moves: bool) -> None:
        draw = self._draw
        table = draw.choice(TABLES)
        live = session.live[table.name]
        what = draw.random()
        if what < 0.35 or not live:
            self._insert(session, table)
        elif what < 0.8:
            self._update(session, table, draw.choice(sorted(live)))
        elif what < 0.93:
            key = draw.choice(sorted(live))
            self._do(session, f"DELETE FROM {table.name} WHERE {_where(table)}", key)
            live.discard(key)
            self._count(session, "deletes")
        elif moves:
            self._rekey(session, table, draw.choice(sorted(live)))
        else:
            self._update(session, table, draw.choice(sorted(live)))

    def _insert(self, session: _Session, table: SourceTable, key: Key | None = None) -> None:
        live = session.live[table.name]
        key = key or table.keys(self._draw, session.parity)
        if key in live:
            return self._update(session, table, key)
        values = self._values[table.name]
        names = [*table.key, *values]
        marks = ", ".join(["%s"] * len(names))
        row = [*key, *(make(self._draw) for make in values.values())]
        self._do(session, f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({marks})", row)
        live.add(key)
        return self._count(session, "inserts")

    def _update(self, session: _Session, table: SourceTable, key: Key) -> None:
        values = self._values[table.name]
        # Large columns are mostly left alone.
        names = [name for name in values if self._draw.random() < (0.15 if name in table.toast else 0.5)] or [
            next(name for name in values if name not in table.toast)
        ]
        sets = ", ".join(f"{name} = %s" for name in names)
        row = [values[name](self._draw) for name in names]
        self._do(session, f"UPDATE {table.name} SET {sets} WHERE {_where(table)}", [*row, *key])
        self._count(session, "updates")

    def _rekey(self, session: _Session, table: SourceTable, key: Key) -> None:
        live = session.live[table.name]
        new = table.keys(self._draw, session.parity)
        if new in live or (table.toast and not self._key_changes_of_large):
            return self._update(session, table, key)
        other = next(name for name in self._values[table.name] if name not in table.toast)
        sets = ", ".join(f"{name} = %s" for name in (*table.key, other))
        row = [*new, self._values[table.name][other](self._draw), *key]
        self._do(session, f"UPDATE {table.name} SET {sets} WHERE {_where(table)}", row)
        live.discard(key)
        live.add(new)
        return self._count(session, "key changes")

    def _alone(self, part: float) -> None:
        """What needs a table for itself: neither session has a transaction open."""
        if any(session.left > 0 for session in self._sessions):
            return
        session = self._sessions[0]
        while self._waiting and self._waiting[0][0] <= part:
            _, table, statement, column, make = self._waiting.pop(0)
            self._do(session, f"ALTER TABLE {table} {statement}", ())
            self._end(session, commit=True)
            self._values[table][column] = make
            self.told["ddl"] += 1
        if self._draw.random() < 0.01:
            name = self._draw.choice([one.name for one in TABLES if one.truncated])
            if name in self._kept:
                return
            self._do(session, f"TRUNCATE {name}", ())
            for one in self._sessions:
                one.live[name] = set()
            self._count(session, "truncates")
            self._end(session, commit=True)

    def _end(self, session: _Session, *, commit: bool = False) -> None:
        session.left = 0
        if commit or not session.before or self._draw.random() < 0.95:
            session.connection.commit()
            self.told["transactions"] += 1
        else:
            session.connection.rollback()
            session.live = {name: set(keys) for name, keys in session.before.items()}
            for what in session.told:
                self.told[what] -= 1
            self.told["rollbacks"] += 1
        session.before = {}
        session.told = []

    def _count(self, session: _Session, what: str) -> None:
        self.told[what] += 1
        session.told.append(what)

    def _do(self, session: _Session, statement: str, values: Any) -> None:
        with session.connection.cursor() as cursor:
            cursor.execute(statement, list(values))

    def connect(self) -> Any:
        connection = psycopg2.connect(self._address)
        psycopg2.extras.register_uuid(conn_or_curs=connection)
        return connection


def _where(table: SourceTable) -> str:
    return " AND ".join(f"{name} = %s" for name in table.key)
