"""Filters and computed columns by executors; the driver lands what they cannot compute alike."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from safewrite.cdc.records.change import KafkaRecord
from safewrite.cdc.table import shares
from tests.cdc.events import event, postgres, record
from tests.cdc.jobs import Job, change
from tests.cdc.on_executors import Executors
from tests.cdc.test_by_tasks import landed, told

GONE = "__debezium_unavailable_value"
TABLE = {
    "leave_out": ["mail"], "filter": "n > 0 OR n IS NULL", "partition_by": ["part"], "name_mapping": {"body": "Body"},
    "computed": {"part": "id % 2", "size": "length(Body) + n", "digest": "upper(mail)"},
}  # fmt: skip


def upsert(op: str, key: int, at: int, **values: Any) -> KafkaRecord:
    row = {"id": key, "body": "four", "n": 1, "mail": "m"} | values
    return change(op, "a", key, row, lsn=at + 1, offset=at)


def half(op: str, key: int, at: int, headers: Mapping[str, Any], **values: Any) -> KafkaRecord:
    """One half of a change of a key; both are at one position."""
    row = {"id": key} if op == "d" else {"id": key, "body": "four", "n": 1, "mail": "m"} | values
    before, after = (row, None) if op == "d" else (None, row)
    given = event(op, after, before, source=postgres(900, "a"))
    return record(given, {"id": key}, offset=at, headers=headers)


def both(old: int, new: int, at: int, **values: Any) -> list[KafkaRecord]:
    """A change of a key in two events."""
    first = half("d", old, at, {"__debezium.newkey": {"id": new}})
    return [first, half("c", new, at + 1, {"__debezium.oldkey": {"id": old}}, **values)]


FIRST = [upsert("c", key, key, n=key - 1) for key in range(5)]


def found_in(
    folder: Path, batches: list[list[KafkaRecord]], executors: Executors | None, fewest: int = 1, **job: Any
) -> Any:
    """Rows, letters and the ledger of a job; and how many records executors landed."""
    folder.mkdir()
    made = Job(folder, [{"table": "a", **TABLE}], **job)
    landing = made.landing
    made.landing = lambda **more: _with(landing(**more), fewest)  # type: ignore[method-assign]
    lines = landed(made, batches, executors)
    letters = sorted((one["offset"], one["reason"]) for one in made.letters())
    whole = sorted(made.read("a").to_pylist(), key=lambda row: int(row["id"]))
    of_table = [line for line in lines if line.table]
    return (whole, letters, told(lines, made.form)), [line.records - line.by_executors for line in of_table]


def _with(landing: Any, fewest: int) -> Any:
    landing.decoder.fewest = fewest
    return landing


def landed_there(
    tmp_path: Path, batches: list[list[KafkaRecord]], fewest: int = 1, **job: Any
) -> tuple[list[dict[str, Any]], list[int]]:
    """The rows, and how many records of each batch the driver landed."""
    there, left = found_in(tmp_path / "there", batches, Executors(), fewest, **job)
    return there[0], left


@pytest.mark.parametrize(
    ("form", "fewest"),
    [("delta", 3), *(pytest.param(*how, marks=pytest.mark.long) for how in (("delta", 80), ("iceberg", 1), ("iceberg", 80)))],
)  # fmt: skip
def test_executors_compute_and_filter_as_the_driver(tmp_path: Path, form: str, fewest: int) -> None:
    """Rows leave the filter and come back; a key changes in two events, to a row that does not pass either."""
    second = [
        upsert("u", 2, 5, n=0),
        upsert("u", 1, 6, n=3, body=None),
        upsert("u", 3, 7, mail=None, n=2**40),
    ]
    third = [upsert("u", 2, 8, n=9), *both(4, 14, 9), *both(3, 13, 11, n=0)]
    rows, left = landed_there(tmp_path, [FIRST, second, third], fewest, form=form, schemas=True)
    assert left == [0, 0, 0]
    found = [(row["id"], row["Body"], row["n"], row["part"], row["size"], row["digest"]) for row in rows]
    assert found == [(1, None, 3, 1, None, "M"), (2, "four", 9, 0, 13, "M"), (14, "four", 1, 0, 5, "M")]
    assert "mail" not in rows[0]


def test_values_that_the_source_left_out_are_the_driver_s(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "safewrite")
    second = [upsert("u", 3, 5, n=7, body=GONE), upsert("u", 4, 6, n=0)]
    rows, left = landed_there(tmp_path, [FIRST, second, [upsert("u", 3, 7)]], schemas=True)
    assert left == [0, 2, 0]
    assert [(row["id"], row["size"]) for row in rows] == [(2, 5), (3, 5)]
    (said,) = [one.message for one in caplog.records if "landed in one part" in one.message]
    assert said.endswith("because it has SQL (filter, computed), and its source left values out")


def test_a_changed_key_whose_halves_come_apart_is_the_driver_s(tmp_path: Path) -> None:
    first, second = both(3, 13, 5)
    rows, left = landed_there(tmp_path, [FIRST, [first], [second]], schemas=True)
    assert left == [0, 1, 0]
    assert [(row["id"], row["size"]) for row in rows] == [(2, 5), (4, 7), (13, 5)]


def test_a_row_that_the_sql_fails_for_is_the_driver_s(tmp_path: Path) -> None:
    """Its record alone is a dead letter."""
    second = [upsert("u", 3, 5, n=2**63 - 1), upsert("u", 4, 6, n=5)]
    rows, left = landed_there(tmp_path, [FIRST, second], schemas=True)
    assert left == [0, 2]
    assert [(row["id"], row["n"]) for row in rows] == [(2, 1), (3, 2), (4, 5)]


@pytest.mark.parametrize(("version", "why"), [(None, "no DuckDB"), ("0.1", "DuckDB 0.1, the driver")])
def test_executors_without_the_driver_s_duckdb_compute_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, version: Any, why: str
) -> None:
    monkeypatch.setattr(shares, "duckdb_version", lambda: version)
    caplog.set_level(logging.INFO, "safewrite")
    rows, left = landed_there(tmp_path, [FIRST], schemas=True)
    assert left == [5]
    assert [row["id"] for row in rows] == [2, 3, 4]
    assert why in caplog.text


def test_a_commit_of_executors_moves_what_guards_computed_rows(tmp_path: Path) -> None:
    """A driver that computes a row of what the table has notices it."""
    job = Job(tmp_path, [{"table": "a", **TABLE}], schemas=True)
    landed(job, [FIRST], Executors())
    landing = job.landing()
    _, positions = landing.job.targets.position(landing.job.config.tables[0])
    assert positions["cdc.revision"] == 1
