"""A random table of one source: its changes as the connector writes them, and what a lake has of them by an oracle of its own.

Every column is a type of ``tests/cdc/source_types.py``, whose values are written out beside what they become.  Rows before a
change are whole, with values that no column holds; updates of PostgreSQL leave values out in each form that Debezium has.
"""

from __future__ import annotations

import base64
import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from uuid import UUID

from safewrite.cdc.records.change import KafkaRecord
from tests.cdc.events import SOURCE, event, postgres, record, struct, with_schema
from tests.cdc.source_types import (
    DEBEZIUM,
    DOUBLE,
    VARIABLE,
    SourceType,
    decimals,
    of,
)

Row = dict[str, Any]
LEFT_OUT: Any = object()
DEAD: Any = object()
UNKNOWN: Any = object()
ID = {"type": "int32", "optional": False, "field": "id"}
RAW = b"__debezium_unavailable_value"
TEXT = RAW.decode()
CODED = [base64.b64encode(bytes([one])).decode() for one in RAW]
PLACEHOLDERS: tuple[tuple[Mapping[str, Any], Any, Any, Any], ...] = (
    (of("string"), "text", "text", TEXT),
    (of("bytes"), "AP8=", b"\x00\xff", base64.b64encode(RAW).decode()),
    (of("string", "io.debezium.data.Json"), '{"a":"b"}', '{"a":"b"}', f'{{"{TEXT}":"{TEXT}"}}'),
    (of("array", items=of("string")), ["a"], ["a"], [TEXT]),
    (of("array", items=of("bytes")), ["AA=="], [b"\x00"], [base64.b64encode(RAW).decode()]),
    (of("array", items=of("string", "io.debezium.data.Uuid")), ["x"], ["x"], [str(UUID(bytes=hashlib.md5(RAW).digest(), version=3))]),
    *((of("array", items=of(kind)), [1, 2], [1, 2], list(RAW)) for kind in ("int16", "int32", "int64")),
    *((of("array", items=of(kind)), [1.5], [1.5], [float(one) for one in RAW]) for kind in ("float", "double")),
    (of("array", items=decimals(10, 2)), ["MDk="], [Decimal("123.45")], CODED),
    (of("array", items=VARIABLE), [{"scale": 1, "value": "Bw=="}], ["0.7"], [{"scale": 0, "value": one} for one in CODED]),
)  # fmt: skip
"""A column, a value of it as it comes and as it lands, and what stands for one that was left out."""
SOURCES: dict[str, Row] = {
    "PostgreSQL": postgres(0, "a"),
    "MySQL and MariaDB": {"connector": "mysql", "db": "shop", "table": "a", "ts_ms": 5, "file": "binlog.000017", "pos": 4, "row": 0},
    "SQL Server": {"connector": "sqlserver", "db": "d", "schema": "dbo", "table": "a", "ts_ms": 5, "commit_lsn": "", "change_lsn": None, "event_serial_no": 1},
    "Oracle": {"connector": "oracle", "db": "d", "schema": "S", "table": "a", "ts_ms": 5, "scn": "", "commit_scn": None, "rs_id": None, "ssn": 0},
}  # fmt: skip


@dataclass
class World:
    """A table ``a`` of a source.

    Args:
        has_modes: whether tables say what becomes of values that do not fit; else such are dead letters.
    """

    source: str
    seed: int
    has_modes: bool = True
    odd: float = 0.08
    """How many values of a column that may have such are misfits."""
    rows: dict[int, Row] = field(default_factory=dict)
    """What the lake has."""
    dead: set[int] = field(default_factory=set)
    """Offsets of dead letters."""
    records: list[KafkaRecord] = field(default_factory=list)
    counted: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        draw = self._draw = random.Random(f"{self.source}/{self.seed}")
        self._batch: dict[int, list[tuple[int, Row | None]]] = {}
        """What the changes of the batch make of each row, by their offsets."""
        self._stored: dict[int, Row] = {}
        """What the source has: the value as it comes, by column."""
        types = list(DEBEZIUM[self.source])
        with_misfits = [one for one in types if one.misfits]
        chosen = draw.sample(types, 3) + draw.sample(with_misfits, min(2, len(with_misfits)))
        self._columns: dict[str, SourceType] = {f"c{at}": one for at, one in enumerate(chosen)}
        self._columns |= {
            "f": SourceType("", "", DOUBLE, [(0.5, 0.5)]),
            "n": SourceType("", "", VARIABLE, []),
        }
        self._left_out: dict[str, Any] = {}
        if self.source == "PostgreSQL":
            for at, (schema, wire, value, placeholder) in enumerate(draw.sample(PLACEHOLDERS, 4)):
                self._columns[f"p{at}"] = SourceType("", "", schema, [(wire, value)])
                self._left_out[f"p{at}"] = placeholder
        modes = ("dead-letter", "null", "text", "floor") if self.has_modes else ("dead-letter",)
        self.modes = {name: draw.choice(modes) for name, one in self._columns.items() if one.misfits}
        self.left = [draw.choice(list(self.modes))] if self.modes and draw.random() < 0.5 else []
        self.modes = {name: mode for name, mode in self.modes.items() if name not in self.left}

    @property
    def table(self) -> dict[str, Any]:
        """What the configuration says of the table."""
        given: dict[str, Any] = {"table": "a", "primary_key": ["id"], "leave_out": self.left}
        return {**given, "on_misfit": self.modes} if self.has_modes else given

    def run(self, changes: int) -> list[KafkaRecord]:
        """A batch of so many changes; returns their records."""
        before = len(self.records)
        for _ in range(changes):
            self._change()
        for key, made in self._batch.items():
            self._settle(key, made)
        self._batch.clear()
        return self.records[before:]

    def _settle(self, key: int, made: Sequence[tuple[int, Row | None]]) -> None:
        """A change that lacks a value which nobody has is a dead letter, unless a later one of its batch has the row whole."""
        for offset, row in reversed(made):
            if row is None:
                self.rows.pop(key, None)
                return
            if UNKNOWN not in row.values():
                self.rows[key] = row
                return
            self.dead.add(offset)

    # --- one change -------------------------------------------------------------------------------
    def _change(self) -> None:
        draw, key = self._draw, self._draw.randrange(12)
        old = self._stored.get(key)
        if old is not None and draw.random() < 0.2:
            del self._stored[key]
            self._batch.setdefault(key, []).append((len(self.records), None))
            self._count("deletes")
            self._tell("d", key, None, old)
            return
        wires, lands = {}, {}
        for name, one in self._columns.items():
            if old is not None and name in self._left_out and draw.random() < 0.4:
                wires[name], lands[name] = self._left_out[name], LEFT_OUT
                self._count("left out")
            else:
                wires[name], lands[name] = self._value(name, one)
        self._land(key, lands)
        # The source has the value that it left out; a row before a change shows what was told of it.
        self._stored[key] = {
            name: old[name] if old is not None and lands[name] is LEFT_OUT else wire
            for name, wire in wires.items()
        }
        self._tell("c" if old is None else "u", key, wires, old)

    def _value(self, name: str, one: SourceType) -> tuple[Any, Any]:
        """A value as it comes, and as it lands."""
        draw = self._draw
        if draw.random() < 0.15:
            return None, None
        if one.schema is DOUBLE:
            special = draw.random() < 0.001
            if not special:
                number = draw.uniform(-1e9, 1e9)
                return number, number
            self._count("NaN and infinities")
            text = draw.choice(["NaN", "Infinity", "-Infinity"])
            return text, float(text)
        if one.schema is VARIABLE:
            return self._number()
        if one.misfits and draw.random() < self.odd:
            misfit, mode = draw.choice(one.misfits), self.modes.get(name)
            self._count("misfits")
            landing = {
                "text": misfit.text,
                "null": None,
                "floor": DEAD if misfit.floor is None else misfit.floor,
            }
            return misfit.wire, landing.get(mode or "", DEAD)
        wire, value = draw.choice(one.fits)
        return wire, one_text(value) if self.modes.get(name) == "text" else value

    def _number(self) -> tuple[Any, Any]:
        """A decimal of its own scale, of up to 900 digits, and its text."""
        draw = self._draw
        digits, scale = draw.choice([1, 5, 38, 399, 401, 900]), draw.choice([0, 0, 2, 30])
        number = draw.randrange(10 ** (digits - 1), 10**digits) * draw.choice([1, -1])
        coded = number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
        written = str(abs(number)).rjust(scale + 1, "0")
        point = f"{written[:-scale]}.{written[-scale:]}" if scale else written
        self._count("numbers of more than 400 digits" if digits > 400 else "numbers")
        return {"scale": scale, "value": base64.b64encode(coded).decode()}, (
            "-" if number < 0 else ""
        ) + point

    def _land(self, key: int, lands: Row) -> None:
        """What a change makes of a row, unless its record is a dead letter."""
        kept = {name: value for name, value in lands.items() if name not in self.left}
        if any(value is DEAD for value in kept.values()):
            self.dead.add(len(self.records))
            return
        made = self._batch.setdefault(key, [])
        known = made[-1][1] if made else self.rows.get(key)
        row = {"id": key} | {
            name: (known or {}).get(name, UNKNOWN) if value is LEFT_OUT else value
            for name, value in kept.items()
        }
        made.append((len(self.records), row))

    # --- records ----------------------------------------------------------------------------------
    def _tell(self, op: str, key: int, after: Row | None, before: Row | None) -> None:
        at = len(self.records)
        row = None if after is None else {"id": key, **after}
        old = None if before is None or op == "c" else {"id": key, **before}
        if self.source == "PostgreSQL" and op == "u" and self._draw.random() < 0.5:
            old = None  # its default REPLICA IDENTITY
        fields = [ID, *({**one.schema, "field": name} for name, one in self._columns.items())]
        source = self._source(at)
        content = with_schema(event(op, row, old, source=source), fields, _fields(source))
        self.records.append(
            record(content, {"schema": struct([ID], "a.Key"), "payload": {"id": key}}, offset=at)
        )

    def _source(self, at: int) -> Row:
        lsn = f"0000002A:{at + 1:08X}:0003"
        of_connector: Mapping[str, Row] = {
            "PostgreSQL": {"lsn": 1000 + at, "sequence": f'["{900 + at}","{1000 + at}"]'}, "MySQL and MariaDB": {"pos": 4 + at},
            "SQL Server": {"commit_lsn": lsn, "change_lsn": lsn}, "Oracle": {"scn": str(2868 + at), "commit_scn": str(2869 + at)},
        }  # fmt: skip
        return {**SOURCES[self.source], **of_connector[self.source]}

    def _count(self, what: str) -> None:
        self.counted[what] = self.counted.get(what, 0) + 1


def one_text(value: Any) -> Any:
    """The text of a value that fits, of the types that have misfits."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        inner = [
            f'"{one_text(one)}"' if hasattr(one, "isoformat") else "null" if one is None else str(one)
            for one in value
        ]
        return f"[{','.join(inner)}]"
    text = str(value.isoformat())
    return text.replace("+00:00", "Z")


def _fields(source: Row) -> Sequence[Mapping[str, Any]]:
    if source["connector"] == "postgresql":
        return SOURCE
    texts = {"change_lsn", "commit_scn", "rs_id"}
    return [
        {
            "type": "int64" if isinstance(value, int) and name not in texts else "string",
            "optional": True,
            "field": name,
        }
        for name, value in source.items()
    ]
