"""Data files that tasks read in parts, compared with the same files at once."""

from __future__ import annotations

import pickle
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import safewrite as sw
from safewrite.delta.data import column_reads
from safewrite.delta.log.ranges import GAP, TAIL, RangedFile

ROWS, GROUP = 4096, 512


@pytest.mark.sweep("False")
@pytest.mark.parametrize("vectors", [False, True])
def test_parts_of_a_file_are_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vectors: bool) -> None:
    """Parts that end within row groups, or are smaller than one: each row comes once, and of others no byte is fetched."""
    monkeypatch.setattr(column_reads, "WHOLE_BYTES", 0)
    rows = pa.table(
        {"p": ["a"] * ROWS, "id": range(ROWS), "text": [f"{n * 7919:x}" * 9 for n in range(ROWS)]}
    )
    settings = {"delta.enableDeletionVectors": str(vectors).lower()}
    few = deltalake.WriterProperties(max_row_group_size=GROUP)
    deltalake.write_deltalake(
        tmp_path, rows, partition_by=["p"], configuration=settings, writer_properties=few
    )
    table = sw.open(tmp_path)
    if vectors:
        table.delete(where="id >= 500 AND id < 1110", key="gone")
    (place,) = tmp_path.rglob("*.parquet")
    assert pq.read_metadata(place).num_row_groups == ROWS // GROUP
    here = table.in_tasks()
    assert here is not None
    reader = pickle.loads(pickle.dumps(here.reader))
    (file,) = table.added_since(None)[0].files
    whole, add, fetched = reader([file], None), RangedFile.add, list[int]()
    assert whole.num_rows == ROWS - 610 * vectors

    def counted(ranged: RangedFile, start: int, data: bytes) -> None:
        fetched.append(len(data))
        add(ranged, start, data)

    monkeypatch.setattr(RangedFile, "add", counted)
    for rows_max, most in ((ROWS, 8), (1200, 3 + vectors), (GROUP, 1 + vectors), (100, 1 + vectors)):
        parts = pickle.loads(pickle.dumps(reader.cut(file, rows_max)))
        assert len(parts) == -(-whole.num_rows // rows_max)
        for columns in (None, ("id", "p"), ("p",)):
            expected = whole if columns is None else whole.select(columns)
            found = []
            for one in parts:
                fetched.clear()
                found.append(reader([one], columns))
                if len(parts) > 1:
                    assert sum(fetched) <= most * place.stat().st_size * GROUP // ROWS + TAIL + GAP * 4
            assert max(one.num_rows for one in found) <= most * GROUP
            assert pa.concat_tables(found).equals(expected)
        assert reader(parts, None).equals(whole)
