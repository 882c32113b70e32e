"""Adds a job's ledger up again: every record that came in landed, or is a dead letter, and no offset was passed over."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from safewrite.cdc.ledger import Line

COLUMNS = tuple(one.name for one in fields(Line))


@dataclass(frozen=True)
class Account:
    """One table's sum over all batches; of no table: records that name none."""

    table: str | None
    totals: Mapping[str, int]


@dataclass(frozen=True)
class Verdict:
    """What the ledger adds up to; ``faults`` is empty where all is accounted for."""

    accounts: tuple[Account, ...]
    faults: tuple[str, ...]
    batches: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        accounts = [{"table": one.table, **one.totals} for one in self.accounts]
        return {"batches": self.batches, "tables": accounts, "faults": list(self.faults)}


def verify(job: str, ledger: pa.Table, letters: pa.Table | None = None) -> Verdict:
    """Add up the lines of a job.

    Args:
        ledger, letters: the rows of the job's two tables, by any reader.
    """
    lines = [
        Line(**{name: row.get(name) for name in COLUMNS}) for row in ledger.to_pylist() if row["job"] == job
    ]
    faults = [
        f"batch {line.batch}, {line.table or 'no table'}: {line.records} records came in, and what became of them adds up to "
        f"{line.earlier + line.ignored + line.dead + line.changes - line.split}"
        for line in lines
        if not line.adds_up
    ]
    faults += _gaps(lines)
    told = sum(line.dead for line in lines)
    kept = 0 if letters is None else sum(row["job"] == job for row in letters.select(["job"]).to_pylist())
    if told > kept:
        faults.append(f"{told} records are told as dead letters, and {kept} are kept")
    tables = sorted({line.table for line in lines}, key=lambda name: (name is not None, name or ""))
    accounts = tuple(_account(name, [line for line in lines if line.table == name]) for name in tables)
    return Verdict(accounts, tuple(faults), len({(line.batch, line.offsets) for line in lines}))


def _account(table: str | None, lines: Sequence[Line]) -> Account:
    skipped = {
        "job", "batch", "table", "version", "source_time_ms", "begins_at", "offsets", "commit_ms", "closed_ms",
    }  # fmt: skip
    names = [name for name in COLUMNS if name not in skipped]
    return Account(table, {name: sum(getattr(line, name) for line in lines) for name in names})


def _gaps(lines: Sequence[Line]) -> list[str]:
    """Offsets that no batch covers, or two do."""
    ranges: dict[tuple[str, int, str], set[tuple[int, int]]] = {}
    for offsets in {line.offsets for line in lines}:
        for topic, number, topic_id, start, end in json.loads(offsets or "[]"):
            ranges.setdefault((topic, number, topic_id), set()).add((start, end))
    found = []
    for (topic, number, _), covered in sorted(ranges.items()):
        ordered = sorted(covered)
        for (_, end), (start, _) in itertools.pairwise(ordered):
            if start != end:
                what = "in no batch" if start > end else "in two batches"
                found.append(f"{topic}/{number}: offsets {min(start, end)} to {max(start, end)} are {what}")
    return found
