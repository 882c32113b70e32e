"""Data files that tasks write: every row once, whatever the order, and a union that notices what is lost or doubled."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from safewrite.delta.data.datafiles import FileLayout
from safewrite.delta.write.staging import StagedFile
from safewrite.delta.write.tasks import WriteFiles
from safewrite.engine.local import LocalEngine
from safewrite.errors import InternalError
from safewrite.frames.task_files import TalliedFiles, added_up
from safewrite.protocol.ask import Limits
from safewrite.stores.addresses import StoreAddress

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("score", pa.float64())])


def _written(root: Path, target_file_size: int = 2**20) -> list[TalliedFiles[StagedFile]]:
    """What three tasks report of 30 rows; one of them has none."""
    rows = [
        {"id": id_, "part": (None, "a", "b/ c")[id_ % 3], "score": (math.nan, None, -0.0)[id_ % 3]}
        for id_ in range(30)
    ]
    inputs = [pa.RecordBatch.from_pylist(some, SCHEMA) for some in (rows[:20], [], rows[20:])]
    layout = FileLayout(SCHEMA, ("part", "score"), "write", target_file_size=target_file_size)
    task = WriteFiles(StoreAddress(str(root)), layout, 0, Limits())
    with LocalEngine().map(
        [one.to_batches() for one in map(pa.Table.from_batches, ([b] for b in inputs))], task
    ) as mapped:
        return mapped.bodies()


@pytest.mark.parametrize("target_file_size", [1, 2**20])
def test_every_row_is_in_one_file_of_its_partition(tmp_path: Path, target_file_size: int) -> None:
    made = added_up(_written(tmp_path, target_file_size))
    found: Counter[tuple[int, str | None]] = Counter()
    for file in made.files:
        add = file.action["add"]
        table = pq.ParquetFile(tmp_path / file.mark.path).read()
        found.update((id_, add["partitionValues"]["part"]) for id_ in table["id"].to_pylist())
        assert (table.num_rows, table.column_names) == (file.rows, ["id"])
    assert found == Counter((id_, (None, "a", "b/ c")[id_ % 3]) for id_ in range(30))
    assert made.tally.rows == 30
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.parquet")} == {
        file.mark.path for file in made.files
    }


def test_a_union_that_lacks_or_doubles_something_is_refused(tmp_path: Path) -> None:
    first, empty, last = _written(tmp_path)
    assert added_up([first, empty, last]).tally.rows == 30
    for wrong in (
        [first, first],
        [replace(first, files=first.files[1:]), last],
        [first, replace(empty, files=last.files)],
    ):
        with pytest.raises(InternalError, match="Nothing was committed"):
            added_up(wrong)
