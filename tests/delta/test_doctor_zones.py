"""T3-E8: doctor names partition values and folders that readers take for other times."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import safewrite as sw
from safewrite.findings import Severity
from tests.delta.test_doctor import findings

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
ROWS = pa.table({"id": [1, 2], "k": pa.array([NOON, None], pa.timestamp("us", "UTC"))})


def test_values_without_a_zone_are_told(tmp_path: Path) -> None:
    write_deltalake(tmp_path, ROWS, partition_by=["k"])
    found = findings(tmp_path)["zoneless_partition_values"]
    assert (found.severity, found.details["columns"], found.details["files"]) == (Severity.WARNING, ["k"], 1)
    assert "session.timeZone=UTC" in found.mend


@pytest.mark.parametrize("zone", ["UTC", None])
def test_values_of_ours_and_times_that_are_no_instants_are_sound(tmp_path: Path, zone: str | None) -> None:
    rows = pa.table(
        {"id": [1, 2], "k": pa.array([NOON.replace(tzinfo=None), None], pa.timestamp("us", zone))}
    )
    sw.open(tmp_path / "t", create=True, partition_by=["k"]).append(rows)
    assert findings(tmp_path / "t", deep=True) == {}


def test_folders_of_a_local_time_are_told(tmp_path: Path) -> None:
    """As Spark spells them in a session of New York: the log has the instant, the folder the clock of its zone."""
    table = sw.open(tmp_path / "t", create=True, partition_by=["k"])
    table.append(ROWS)
    (commit,) = (tmp_path / "t/_delta_log").glob("*0.json")
    ours = "k=2026-01-01T12%253A00%253A00.000000Z"
    text = commit.read_text()
    assert ours in text
    local = "k=2026-01-01 07%253A00%253A00"
    commit.write_text(text.replace(ours, local))
    folder = ours.replace("%25", "%")
    (tmp_path / "t" / folder).rename(tmp_path / "t" / local.replace("%25", "%"))
    found = findings(tmp_path / "t")
    assert set(found) == {"local_partition_folders"}
    assert found["local_partition_folders"].details["files"] == 1
