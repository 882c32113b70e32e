"""Tables whose changed rows are marked, and the warning of those whose files are rewritten."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from safewrite.cdc.ledger import target_tables
from tests.cdc.jobs import Job, change


@pytest.mark.parametrize(
    ("readers", "marks"), [(["spark", "deltalake"], True), (["spark", "athena"], False), ([], False)]
)
def test_a_delta_table_gets_deletion_vectors_if_all_of_its_readers_read_them(
    tmp_path: Path, readers: list[str], marks: bool
) -> None:
    job = Job(tmp_path, [{"table": "a", "readers": readers}])
    job.land(*(change("c", "a", n, {"id": n, "v": "old"}, lsn=n, offset=n) for n in range(5)))
    job.land(
        change("u", "a", 1, {"id": 1, "v": "new"}, lsn=10, offset=10),
        change("d", "a", 2, None, lsn=11, offset=11),
    )
    table = DeltaTable(tmp_path / "db" / "a")
    asked = QueryBuilder().register("t", table).execute("SELECT id, v FROM t").read_all()
    found = {row["id"]: row["v"] for row in pa.table(asked).to_pylist()}
    assert found == {0: "old", 1: "new", 3: "old", 4: "old"}
    assert ("deletionVectors" in (table.protocol().reader_features or [])) == marks
    assert bool([*(tmp_path / "db" / "a").glob("deletion_vector_*.bin")]) == marks


def test_a_batch_that_rewrites_far_more_than_it_changes_is_warned_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(target_tables, "COPIED_BYTES", 500)
    monkeypatch.setattr(target_tables, "COPIED_PER_CHANGE", 100)
    job = Job(tmp_path, [{"table": "a"}])
    job.land(*(change("c", "a", n, {"id": n, "v": "old"}, lsn=n, offset=n) for n in range(5)))
    assert "rewrote files" not in caplog.text
    for n in (10, 11):
        job.land(change("u", "a", 1, {"id": 1, "v": f"new {n}"}, lsn=n, offset=n))
    told = [record.getMessage() for record in caplog.records if "rewrote files" in record.getMessage()]
    assert len(told) == 1
    assert "table db.a: 1 changes" in told[0]
    assert "readers" in told[0]
