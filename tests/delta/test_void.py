"""T4-A14: a column of Delta's type void, as awswrangler's first frame of None leaves it, holds NULL and hinders no verb."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import safewrite as sw


def test_every_verb_writes_a_table_with_a_void_column(tmp_path: Path):
    at = tmp_path / "t"
    first = pa.table({"id": [1], "n": [1], "note": pa.array([None], pa.string()), "v": ["x"]})
    deltalake.write_deltalake(at, first)
    log = at / "_delta_log" / f"{0:020}.json"
    log.write_text(
        log.read_text().replace(
            r"\"name\":\"note\",\"type\":\"string\"", r"\"name\":\"note\",\"type\":\"void\""
        )
    )
    assert "void" in log.read_text()
    table = sw.open(at)
    table.append(
        [{"id": 2, "n": 1, "note": None, "v": "y"}, {"id": 3, "n": 1, "note": None, "v": "z"}], key="k"
    )
    assert (
        table.append(
            [{"id": 2, "n": 1, "note": None, "v": "y"}, {"id": 3, "n": 1, "note": None, "v": "z"}], key="k"
        ).outcome
        == "already_committed"
    )
    table.append([{"id": 4, "n": 1, "v": "q"}], schema_mode="merge")
    table.apply_changes([{"id": 1, "n": 2, "note": None, "v": "new"}], keys=["id"], sequence_by=["n"])
    table.overwrite([{"id": 2, "n": 5, "note": None, "v": "o"}], where="id = 2")
    table.delete("id = 3")
    assert table.append_many([("a", [{"id": 7, "n": 1, "note": None, "v": "m"}])])[0].outcome == "committed"
    with pytest.raises(sw.WouldAlterError, match="note"):
        table.append([{"id": 8, "n": 1, "note": "text", "v": "m"}])
    assert table.checkpoint()
    expected = {1: "new", 2: "o", 4: "q", 7: "m"}
    for found in (table.rows(where="id > 0"), deltalake.DeltaTable(at).to_pyarrow_table()):
        assert dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == expected
        assert found["note"].null_count == 4
    newest = max(at.glob("*.parquet"), key=lambda path: path.stat().st_mtime)
    assert "note" not in pq.read_schema(newest).names
