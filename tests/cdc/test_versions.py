"""Which rows a batch adds to a table of versions, by the rule alone: times, copies, and what most keys have."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from safewrite.cdc.config.job import load
from safewrite.cdc.table.versions import VersionRule

TABLE = load(
    {
        "job": "job", "kafka": {"servers": "none", "topics": ["t"]}, "envelope": "debezium-json", "checkpoint": "none",
        "warehouse": "none", "tables": [{"database": "db", "table": "t", "primary_key": ["id"], "mode": "history"}],
    }
).tables[0]  # fmt: skip
OWN = TABLE.own
ENDS = (OWN.until_epoch, OWN.until, OWN.until_time)


def schema(begins: pa.DataType, ends: pa.DataType) -> pa.Schema:
    numbers, texts = pa.int64(), pa.string()
    return pa.schema(
        {
            "id": numbers, "v": texts, OWN.epoch: numbers, OWN.sequence: texts, OWN.from_time: begins,
            OWN.until_epoch: numbers, OWN.until: texts, OWN.until_time: ends, OWN.revision: numbers,
        }
    )  # fmt: skip


MICROS = pa.timestamp("us", tz="UTC")


def at(second: float) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


def landed(
    stored: pa.Table, changes: list[tuple[int, str | None, str, datetime | None]], revision: int = 1
) -> tuple[pa.Table, int]:
    """A table after some changes (key, value, sequence, time; without a value a delete), and how many were late."""
    rows = [
        {"id": key, "v": value, OWN.epoch: 0, OWN.sequence: sequence, OWN.from_time: time}
        for key, value, sequence, time in changes
    ]
    deletes = np.array([value is None for _, value, _, _ in changes])
    ruled = VersionRule(TABLE, ("id",), revision).decided(
        pa.Table.from_pylist(rows, stored.schema), deletes, stored
    )
    stays = np.ones(len(stored), bool)
    stays[ruled.gone] = False
    return pa.concat_tables([stored.filter(pa.array(stays)), ruled.come]), ruled.late


def told(table: pa.Table) -> list[tuple[Any, ...]]:
    names = ("id", "v", OWN.sequence, OWN.from_time, OWN.until, OWN.until_time)
    return sorted(zip(*(table.column(name).to_pylist() for name in names), strict=True), key=str)


@pytest.mark.parametrize("unit", ["us", "ms"])
def test_the_version_of_a_key_ends_where_its_next_change_begins(unit: str) -> None:
    """Ends are told in the unit of their own column."""
    empty = schema(MICROS, pa.timestamp(unit, tz="UTC")).empty_table()
    table, _ = landed(empty, [(1, "a", "01-0", at(1)), (2, "b", "02-1", None)])
    table, late = landed(
        table, [(1, "c", "03-2", at(3)), (3, "d", "04-3", at(4)), (2, None, "05-4", at(5.25))]
    )
    assert late == 0
    assert told(table) == [
        (1, "a", "01-0", at(1), "03-2", at(3)),
        (1, "c", "03-2", at(3), None, None),
        (2, "b", "02-1", None, "05-4", at(5.25)),
        (3, "d", "04-3", at(4), None, None),
    ]
    table, late = landed(table, [(2, "x", "04-9", at(4.5))])
    assert late == 1
    assert [row[1:] for row in told(table) if row[0] == 2] == [
        ("b", "02-1", None, "04-9", at(4.5)),
        ("x", "04-9", at(4.5), "05-4", at(5.25)),
    ]


def test_a_change_that_comes_twice_is_no_second_version() -> None:
    """The source's position is the same, Kafka's is not; with other values it is another change."""
    table, _ = landed(schema(MICROS, MICROS).empty_table(), [(1, "a", "01-0", at(1))])
    again, late = landed(table, [(1, "a", "01-7", at(1))])
    assert (told(again), late) == (told(table), 0)
    other, _ = landed(table, [(1, "b", "01-7", at(1))])
    assert [row[1:3] for row in told(other)] == [("a", "01-0"), ("b", "01-7")]


def test_a_late_change_ends_where_the_version_behind_it_begins() -> None:
    table, _ = landed(
        schema(MICROS, MICROS).empty_table(), [(1, "b", "02-1", at(2)), (2, None, "03-0", at(3))]
    )
    table, late = landed(table, [(1, "a", "01-0", at(1)), (2, "c", "01-5", at(1))])
    assert late == 2
    assert told(table) == [
        (1, "a", "01-0", at(1), "02-1", at(2)),
        (1, "b", "02-1", at(2), None, None),
        (2, "c", "01-5", at(1), "03-0", at(3)),
        (2, None, "03-0", at(3), "03-0", at(3)),  # no row goes
    ]
