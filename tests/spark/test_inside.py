"""T3-S2 on Spark: a log's path leads no write of a Spark frame out of the table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import safewrite as sw
from safewrite.delta.spark.transaction import check_places
from tests.spark.session import Spark
from tests.test_inside import SPELLINGS, Place


@pytest.mark.sweep("encoded slash", "absolute, climbing through the table")
@pytest.mark.parametrize("spelling", ["plain", "encoded slash", "absolute, climbing through the table"])
def test_changes_of_a_spark_frame_leave_a_file_alone_that_lies_elsewhere(
    spark: Spark, tmp_path: Path, spelling: str
) -> None:
    """T3-S2"""
    place = Place(tmp_path)
    table = place.delta(place.add(place.spelled(SPELLINGS[spelling])))
    before = table.version
    rows = spark.session.sql("SELECT 2L id, 'new' v")
    with spark.careless(), pytest.raises(sw.UnsupportedTableError, match=r"outside|leads out"):
        table.apply_changes(rows, keys=["id"], sequence_by="v")
    place.check_untouched()
    assert sw.open(place.root / "table").version == before


@pytest.mark.parametrize("spelling", ["plain", "encoded slash", "behind a folder"])
def test_a_commit_that_sparks_library_made_of_such_a_file_is_refused(spelling: str) -> None:
    """T3-S2: an overwrite with ``where=`` is Delta's own plan, which has read the file by then; nothing is committed of it."""
    lines = [{"commitInfo": {}}, {"remove": {"path": SPELLINGS[spelling], "dataChange": True}}]
    with pytest.raises(sw.UnsupportedTableError, match="leads out"):
        check_places("\n".join(json.dumps(line, separators=(",", ":")) for line in lines).encode())
    check_places(
        b'{"commitInfo":{}}\n{"remove":{"path":"part-1.parquet"}}\n{"remove":{"path":"s3://other/x"}}\n'
    )
