"""T3-E8: instants as partition values without a zone, as deltalake writes them, are UTC to every verb."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import safewrite as sw

SCHEMA = pa.schema([("id", pa.int64()), ("seq", pa.int64()), ("k", pa.timestamp("us", "UTC"))])
NEW_YEAR, TWICE = dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 11, 1, 6, 30, tzinfo=dt.UTC)
"""The second is an hour that New York has twice."""
ROWS = [(1, 1, NEW_YEAR), (2, 1, NEW_YEAR), (3, 1, TWICE), (4, 1, None)]
HOW: dict[str, Any] = {"keys": ["id"], "sequence_by": ["seq"]}


def table_of(*rows: tuple[Any, ...]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


CASES: dict[str, tuple[Callable[[Any], Any], list[tuple[Any, ...]]]] = {
    "delete": (lambda t: t.delete([("k", "=", NEW_YEAR)]), ROWS[2:]),
    "delete by id": (lambda t: t.delete("id = 1"), ROWS[1:]),
    "overwrite": (
        lambda t: t.overwrite(table_of((9, 2, TWICE)), where=[("k", "=", TWICE)]),
        [*ROWS[:2], ROWS[3], (9, 2, TWICE)],
    ),
    "apply_changes": (
        lambda t: t.apply_changes(table_of((1, 2, TWICE), (5, 1, NEW_YEAR)), **HOW),
        [(1, 2, TWICE), *ROWS[1:], (5, 1, NEW_YEAR)],
    ),
    "changes by id and k": (
        lambda t: t.apply_changes(table_of((1, 2, NEW_YEAR), (3, 2, TWICE)), **HOW | {"keys": ["id", "k"]}),
        [(1, 2, NEW_YEAR), ROWS[1], (3, 2, TWICE)],
    ),
    "append": (lambda t: t.append(table_of((7, 1, TWICE))), [*ROWS, (7, 1, TWICE)]),
}


@pytest.fixture(autouse=True)
def _own_zone() -> Iterator[None]:
    """The machine's zone again, after the test has put its own into the environment and back."""
    yield
    time.tzset()


@pytest.mark.parametrize("case", CASES)
def test_a_table_that_deltalake_partitioned_by_an_instant_takes_every_verb(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the machine is."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    act, left = CASES[case]
    made = ROWS if case != "changes by id and k" else ROWS[:3]  # keys are never NULL
    write_deltalake(tmp_path / "t", table_of(*made), partition_by=["k"])
    act(sw.open(tmp_path / "t"))
    found = DeltaTable(tmp_path / "t").to_pyarrow_table().select(SCHEMA.names).to_pylist()
    assert sorted(tuple(row.values()) for row in found) == sorted(left)
