"""Records a stress run: what each writer meant to write, and what it was answered.

It is kept outside the table and outside the store under test: one append-only file of JSON lines per writer,
one event per line.  Each line goes to the operating system before and after the call that it describes, so
that a SIGKILL of the writer loses none of them.

This module needs the standard library alone, so that writers of any environment can load it.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
import os
import random
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

ROWS_PER_APPEND_MAX = 10_000
APPENDS_PER_WRITER_MAX = 100_000

COLUMNS = ("id", "writer", "seq", "key", "amount", "text", "day", "check")

_TEXTS = (
    "",
    "plain",
    "naïve",
    "東京",
    "a/b=c%20d",
    'quote " and \\',
    "two\nlines",
    "🙂",
    "NULL",
    "  spaces  ",
)


class Row(NamedTuple):
    """One row of a stress table.  ``check`` is :func:`check_value` of the other seven."""

    id: int
    writer: int
    seq: int
    key: str | None
    amount: float
    text: str | None
    day: dt.date | None
    check: int


def first_id(writer: int, seq: int) -> int:
    """The first row id of an append: ids of two appends never overlap."""
    if not 0 <= seq < APPENDS_PER_WRITER_MAX:
        raise ValueError(f"seq must be in [0, {APPENDS_PER_WRITER_MAX}), not {seq}")
    return writer * APPENDS_PER_WRITER_MAX * ROWS_PER_APPEND_MAX + seq * ROWS_PER_APPEND_MAX


def check_value(values: Sequence[object]) -> int:
    """A 64-bit signed hash of the seven values before ``check``; the same in every Python."""
    id_, writer, seq, key, amount, text, day = values
    spelled = repr((id_, writer, seq, key, amount, text, None if day is None else str(day)))
    return int.from_bytes(hashlib.blake2b(spelled.encode(), digest_size=8).digest(), "little", signed=True)


def make_rows(seed: int, writer: int, seq: int, count: int, *, key: str | None = None) -> list[Row]:
    """The rows of one append: the same arguments give the same rows, in any process.

    NULL text and NULL days (a NULL partition value, H5) are among them.
    """
    if not 0 < count <= ROWS_PER_APPEND_MAX:
        raise ValueError(f"count must be in [1, {ROWS_PER_APPEND_MAX}], not {count}")
    rng = random.Random(f"{seed}/{writer}/{seq}")
    # Two days an append, now and then NULL: partitions are exercised without many tiny files.
    days: list[dt.date | None] = [
        dt.date(2026, 11, 1) + dt.timedelta(days=rng.randrange(4)) for _ in range(2)
    ]
    if rng.random() < 0.2:
        days[1] = None
    start = first_id(writer, seq)
    rows = []
    for index in range(count):
        text = None if rng.random() < 0.05 else f"{rng.choice(_TEXTS)}{rng.randrange(10**6)}"
        amount = rng.choice((rng.uniform(-1e6, 1e6), float(rng.randrange(100)), 1e-300 * rng.random()))
        values = (start + index, writer, seq, key, amount, text, days[rng.random() < 0.3])
        rows.append(Row(*values, check=check_value(values)))
    return rows


class EventKind(StrEnum):
    """The kind of a line of the ledger."""

    INVOKE = "invoke"  # the call is about to be made
    OK = "ok"  # it returned a receipt
    FAIL = "fail"  # it said that nothing was written, and that nothing will be
    INFO = "info"  # nobody knows
    KILL = "kill"  # the writer is about to SIGKILL itself at the named step
    PAUSE = "pause"  # the writer is about to SIGSTOP itself at the named step
    RESUME = "resume"  # ... and runs again
    START = "start"  # a process of this writer begins
    DONE = "done"  # the writer has nothing left to do
    CHORE = "chore"  # a round of table maintenance: done, or its result


class HistoryFile:
    """The file of one writer, opened to append; every event is one ``write(2)``."""

    def __init__(self, path: Path | str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def record(self, event: EventKind, **fields: Any) -> None:
        """Append one line; when this returns, the line survives a SIGKILL of the process."""
        line = json.dumps({"t": time.time(), "event": str(event), "pid": os.getpid(), **fields})
        # A leading newline would hide a line cut by a crash of the machine; a trailing one suffices here.
        data = line.encode() + b"\n"
        if os.write(self._fd, data) != len(data):
            raise OSError("the ledger took only a part of a line; the run cannot be judged")

    def invoke(self, rows: Sequence[Row], *, kind: str, attempt: int) -> None:
        """Record the intent to append ``rows``: all of one (writer, seq, key)."""
        head = rows[0]
        self.record(
            EventKind.INVOKE, kind=kind, writer=head.writer, seq=head.seq, key=head.key, first_id=head.id,
            rows=len(rows), checks=pack_checks(row.check for row in rows), attempt=attempt,
        )  # fmt: skip

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def pack_checks(checks: Iterable[int]) -> str:
    """Check values as one short text."""
    return base64.b64encode(array("q", checks).tobytes()).decode()


def unpack_checks(text: str) -> tuple[int, ...]:
    """The inverse of :func:`pack_checks`."""
    values = array("q")
    values.frombytes(base64.b64decode(text))
    return tuple(values)


@dataclass(frozen=True, slots=True)
class IntendedWrite:
    """One intended append and its result.

    ``outcome`` is ``ok`` (acked), ``fail`` (every call said "not committed") or ``info`` (some call
    ended without an answer, and none with an ack).  Ids run from ``first_id``, one check value each.
    Times are epoch seconds; ``acked_at`` is that of the first ack.
    """

    kind: str
    writer: int
    seq: int
    key: str | None
    first_id: int
    checks: tuple[int, ...]
    outcome: str
    invoked_at: float
    acked_at: float | None = None
    version: int | None = None
    calls: int = 1
    tries: int | None = None
    elapsed_s: float | None = None
    errors: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows were meant."""
        return len(self.checks)

    @property
    def ids(self) -> range:
        """The ids that were meant."""
        return range(self.first_id, self.first_id + len(self.checks))


class LedgerError(ValueError):
    """The ledger contradicts itself, so nothing can be concluded from it."""


def read_events(path: Path | str) -> Iterator[dict[str, Any]]:
    """The events of one file, in order.  A last line without its end (power cut) is left out."""
    with Path(path).open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)


def read_writes(paths: Iterable[Path | str]) -> list[IntendedWrite]:
    """All intended appends of these files, in (writer, seq) order."""
    by_write: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for path in paths:
        for event in read_events(path):
            if "seq" in event and event["event"] in (
                EventKind.INVOKE,
                EventKind.OK,
                EventKind.FAIL,
                EventKind.INFO,
            ):
                by_write.setdefault((event["writer"], event["seq"]), []).append(event)
    return [_fold(by_write[name]) for name in sorted(by_write)]


def _fold(events: Sequence[dict[str, Any]]) -> IntendedWrite:
    calls = [event for event in events if event["event"] == EventKind.INVOKE]
    acks = [event for event in events if event["event"] == EventKind.OK]
    fails = [event for event in events if event["event"] == EventKind.FAIL]
    if not calls or events[0] is not calls[0]:
        raise LedgerError(f"an answer without a call: {events[0]}")
    first = calls[0]
    if any(call["checks"] != first["checks"] or call["key"] != first["key"] for call in calls):
        raise LedgerError(f"writer {first['writer']} seq {first['seq']} was retried with other rows")
    # A call without an answer (killed) or with an unknown one leaves the write open for ever.
    outcome = "ok" if acks else "fail" if len(fails) == len(calls) else "info"
    ack = acks[0] if acks else {}
    return IntendedWrite(
        kind=first["kind"], writer=first["writer"], seq=first["seq"], key=first["key"], first_id=first["first_id"],
        checks=unpack_checks(first["checks"]), outcome=outcome, invoked_at=first["t"], acked_at=ack.get("t"),
        version=ack.get("version"), calls=len(calls), tries=ack.get("tries"), elapsed_s=ack.get("elapsed_s"),
        errors=tuple(event.get("error", "") for event in events if event["event"] in (EventKind.FAIL, EventKind.INFO)),
    )  # fmt: skip
