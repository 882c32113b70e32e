"""Reading the rows of a data file from its bytes, a few columns at a time, as they are read through a FileIO."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import LongType, StringType

from safewrite.errors import UnsupportedTableError
from safewrite.frames.parallel import Handed
from safewrite.iceberg.branch_properties import MAIN
from safewrite.iceberg.catalog import rows
from safewrite.iceberg.catalog.effects import ReadRows
from safewrite.iceberg.catalog.files import MemoryIO
from safewrite.iceberg.catalog.rows import column_groups, decoded, read_rows
from safewrite.iceberg.data.reading import _decoded
from safewrite.iceberg.data.schema import arrow_schema
from safewrite.iceberg.metadata import head_of
from safewrite.protocol.effects import Failed, Missing, Ok, Outcome

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "a.b": ["x", None, "z"],
        "s": pa.array([{"n": 1, "t": ["p"]}, None, {"n": None, "t": []}], pa.struct([("n", pa.int32()), ("t", pa.list_(pa.string()))])),
        "day": [date(2026, 1, 1), None, date(1, 1, 1)],
        "m": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
    }
)  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table of one file, to which columns came, of which one was renamed and one widened, after it was written."""
    catalog = SqlCatalog("local", uri=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path.as_uri())
    catalog.create_namespace("n")
    made = catalog.create_table("n.t", ROWS.schema)
    made.append(ROWS)
    with made.update_schema() as update:
        update.add_column("late", StringType())
        update.add_column("later", LongType())
        update.rename_column("day", "on")
        update.update_column(("s", "n"), LongType())
    return catalog.load_table("n.t")


def task_and_body(table: Table) -> tuple[FileScanTask, bytes]:
    (task,) = table.scan().plan_files()
    return task, Path(task.file.file_path.removeprefix("file://")).read_bytes()


def tables(outcomes: list[Outcome]) -> list[pa.Table]:
    assert all(isinstance(one, Ok) for one in outcomes)
    return [one.value for one in outcomes if isinstance(one, Ok)]


@pytest.mark.parametrize("group_bytes", [0, 100, 2**20])
def test_columns_one_after_another_are_the_rows_that_are_read_at_once(
    group_bytes: int, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "GROUP_BYTES", group_bytes)
    task, body = task_and_body(table)
    names = [field.name for field in table.schema().fields]
    groups = list(column_groups(table.metadata, task))
    assert [name for group in groups for name in group] == names
    assert len(groups) == (len(names) if group_bytes == 0 else len(groups))
    assert (len(groups) > 1) is (group_bytes < 2**20)
    (whole,) = tables([read_rows(table.metadata, table.io, task)])
    parts = tables([*decoded(table.metadata, body, task)])
    assert [part.num_rows for part in parts] == [3] * len(groups)
    joined = pa.table([c for part in parts for c in part.columns], names=names)
    assert joined.to_pylist() == whole.to_pylist()
    assert whole.to_pylist()[0]["late"] is None


def test_sizes_of_columns_say_which_are_decoded_together(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [field.field_id for field in table.schema().fields]
    sizes = dict(zip(ids, [60, 60, 30, 30, 30, 200, 1], strict=True))
    task: Any = SimpleNamespace(file=SimpleNamespace(column_sizes=sizes, file_size_in_bytes=411))
    monkeypatch.setattr(rows, "GROUP_BYTES", 100)
    assert list(column_groups(table.metadata, task)) == [
        ("id",), ("a.b", "s"), ("on", "m"), ("late",), ("later",),
    ]  # fmt: skip


def test_columns_that_have_other_rows_are_refused(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "GROUP_BYTES", 0)
    task, body = task_and_body(table)
    read = rows.read_rows

    def shortened(*args: Any, **more: Any) -> Outcome:
        outcome = read(*args, **more)
        short = args[3] == ("on",)
        return Ok(outcome.value.slice(1)) if short and isinstance(outcome, Ok) else outcome

    monkeypatch.setattr(rows, "read_rows", shortened)
    *_, last = decoded(table.metadata, body, task)
    assert last == Failed("columns ['on'] have 2 rows, those before 3")
    effect = ReadRows(head_of(table, MAIN), task, name="apply.read_rows")
    with pytest.raises(UnsupportedTableError, match="those before 3"):
        _decoded(effect, Handed(body), arrow_schema(table.schema()))


def test_bytes_that_are_no_file_are_told_as_a_scan_tells_them(table: Table) -> None:
    task, body = task_and_body(table)
    (outcome,) = decoded(table.metadata, body[: len(body) // 2], task)
    assert outcome == read_rows(table.metadata, MemoryIO(body[: len(body) // 2]), task)
    assert not isinstance(outcome, Ok | Missing)
