"""``Table.rows(where=)`` gives what ``delete(where)`` would remove, and both kinds of questions open few files."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record

import safewrite as sw
from safewrite.iceberg.write.position_deletes import manifest
from safewrite.protocol.effects import Effect, Get, Outcome
from safewrite.testing.steps import Stepwise
from tests.test_rows_by_key import MARKS, Given, found, row

pytestmark = pytest.mark.sweep("iceberg")  # both formats go one way


class Opened(Stepwise):
    """Notes the data files that are read."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.files: set[str] = set()

    def _step(self, step: str, effect: Effect) -> Outcome:
        if step.startswith(("read.rows", "read.get_data")):
            self.files.add(effect.path if isinstance(effect, Get) else effect.task.file.file_path)  # type: ignore[attr-defined]
        return self.world.perform(effect)


def opened(table: Any, keys: Any = None, **how: Any) -> tuple[int, int]:
    """How many files a question opens, and how many rows it finds."""
    world, table.world = table.world, Opened(table.world)
    try:
        rows = table.rows(keys, **how).num_rows
        return len(table.world.files), rows
    finally:
        table.world = world


@pytest.fixture(params=["delta", "iceberg"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


KINDS: dict[str, Any] = {
    "long": lambda n: n,
    "text": lambda n: f"{n:04}",
    "day": lambda n: dt.date(2026, 1, 1) + dt.timedelta(days=n),
    "time": lambda n: dt.datetime(2026, 1, 1, n % 24, tzinfo=dt.UTC) + dt.timedelta(days=n // 24),
    "money": lambda n: Decimal(n) / 4,
}
TYPES = [pa.int64(), pa.string(), pa.date32(), pa.timestamp("us", "UTC"), pa.decimal128(9, 2)]


# Delta's engines spell the bounds of decimals in their own ways, so that none is used.
KINDS_OF = [
    (one, kind) for one in ("delta", "iceberg") for kind in KINDS if (one, kind) != ("delta", "money")
]


@pytest.mark.sweep(
    "iceberg-money", "iceberg-time", "iceberg-text", "iceberg-day", "delta-day", "delta-time", "delta-text"
)
@pytest.mark.parametrize(("form", "kind"), KINDS_OF)
def test_keys_that_lie_far_apart_open_the_files_that_may_hold_one(
    form: str, kind: str, tmp_path: Path
) -> None:
    """Between the least and the greatest key lie all ten files, and two of them hold one."""
    schema = pa.schema([("key", dict(zip(KINDS, TYPES, strict=True))[kind]), ("v", pa.int64())])
    value = KINDS[kind]
    place: Any = {"uri": tmp_path / "t"} if form == "delta" else {"uri": "db.t", "catalog": catalog(tmp_path)}
    table = sw.create(place.pop("uri"), schema, **place)
    for file in range(10):
        table.append([{"key": value(10 * file + n), "v": n} for n in range(5)])
    assert opened(table, {"key": [value(3), value(92)]}) == (2, 2)
    assert opened(table, {"key": [value(7), value(97)]}) == (0, 0)  # between files
    assert opened(table, {"key": [value(n) for n in range(100)]}) == (10, 50)
    assert opened(table, where=[("key", "=", value(31))]) == (1, 1)
    assert opened(table, where=[("key", ">", value(83))]) == (2, 6)


class Fetched(Stepwise):
    """Notes which data files of Delta are fetched whole."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.whole: list[str] = []

    def _step(self, step: str, effect: Effect) -> Outcome:
        if isinstance(effect, Get) and effect.path.endswith(".parquet"):
            self.whole.append(effect.path)
        return self.world.perform(effect)


def test_of_a_large_file_only_the_columns_that_are_asked_for_are_fetched(tmp_path: Path) -> None:
    texts = Random(1)
    table = sw.create(tmp_path / "t", pa.schema({"id": pa.int64(), "text": pa.string()}))
    table.append([{"id": number, "text": texts.randbytes(40_000).hex()} for number in range(0, 60, 2)])
    (one,) = table.added_since(-1)
    assert one.files[0].size > 2**20
    world = table.world = Fetched(table.world)
    assert one.read(["id"])["id"].to_pylist() == [*range(0, 60, 2)]
    assert table.rows({"id": [3]}).num_rows == table.rows(where="id = 5").num_rows == 0
    assert world.whole == []
    assert table.rows({"id": [4]})["id"].to_pylist() == [4]
    assert len(world.whole) == 1


def catalog(folder: Path) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog("local", uri=f"sqlite:///{folder}/c.db", warehouse=folder.as_uri())


@pytest.mark.sweep(
    "iceberg",
    "by1",
    "delta-NOT",
    "delta-id = 3",
    "delta-false",
    "delta-tags IS NULL",
    "delta-where10",
    "delta-true",
    "delta-price",
)
@pytest.mark.parametrize("by", [[], ["part"]])
@pytest.mark.parametrize(
    "where",
    [
        "id = 3",
        "id > 5 AND part = 'b'",
        "part IS NULL",
        "part = 'b' OR id IN (1, 2, 40)",
        "NOT (id < 35)",
        "price > 1.40",
        "tags IS NULL",
        "share = 0.5 AND id = 7",
        "true",
        "false",
        [("part", "in", ["b"]), ("id", "<", 4)],
    ],
)
def test_the_rows_of_a_condition_are_those_that_a_delete_removes(
    form: str, by: list[str], where: Any, tmp_path: Path
) -> None:
    given = Given(form, tmp_path, partition_by=by, properties=MARKS[form])
    table = given.table
    table.append([row(1), row(2, "b"), row(3, None), row(4, "b")])
    table.append([row(number, "c") for number in range(5, 40)])
    table.apply_changes([{**row(4, "b", "9.00"), "gone": True}], keys=["id", "part"], sequence_by=["price"], delete_when="gone")  # fmt: skip
    there = table.row_count()
    wanted = table.rows(where=where)
    assert wanted.schema.names == table.schema.names
    assert table.delete(where).removed_rows in {wanted.num_rows, None}
    assert table.refresh().row_count() == there - wanted.num_rows
    assert table.rows(where=where).num_rows == 0
    assert 4 not in wanted["id"].to_pylist()


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({}, "one of the two"),
        ({"keys": {"id": [1]}, "where": "id = 1"}, "one of the two"),
        ({"where": "idd = 1"}, "idd"),
        ({"where": [("id", "~", 1)]}, "~"),
    ],
)
def test_a_question_is_by_keys_or_by_a_condition(form: str, how: Any, text: str, tmp_path: Path) -> None:
    given = Given(form, tmp_path)
    with pytest.raises(sw.InvalidInputError, match=text):
        given.table.rows(**how)


def test_rows_are_those_of_a_table_after_it_was_replaced_and_restored(form: str, tmp_path: Path) -> None:
    given = Given(form, tmp_path)
    table = given.table
    first = table.append([row(1), row(2)]).version
    table.overwrite([row(2, "b"), row(3)])
    assert found(table, {"id": [1, 2, 3]}) == [row(2, "b"), row(3)]
    if form == "delta":
        from deltalake import DeltaTable

        DeltaTable(tmp_path / "t").restore(first)
    else:
        given.catalog.load_table("db.t").manage_snapshots().rollback_to_snapshot(first).commit()
    assert found(table, {"id": [1, 2, 3]}) == [row(2, "b"), row(3)]  # as of the version that was seen
    assert found(table.refresh(), {"id": [1, 2, 3]}) == [row(1), row(2)]
    assert table.rows(where="id > 1").num_rows == 1
    assert table.row_count() == 2


def delete_by_equality(given: Given, number: int) -> None:
    """As Flink deletes a row: by a file of values of a column."""
    table = given.catalog.load_table("db.t")
    path = given.folder / "equality.parquet"
    kind = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
    pq.write_table(pa.table({"id": [number]}, schema=kind), path)
    nothing: dict[str, Any] = {
        name: {} for name in ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
    }  # fmt: skip
    file = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES, file_path=path.as_uri(), file_format=FileFormat.PARQUET, partition=Record(),
        record_count=1, file_size_in_bytes=path.stat().st_size, equality_ids=[1], sort_order_id=None, key_metadata=None,
        split_offsets=None, **nothing,
    )  # fmt: skip
    file.spec_id = 0

    class Deletes(_FastAppendFiles):
        """PyIceberg (0.12.0) writes no delete files."""

        def _manifests(self) -> Any:
            at = (given.folder / "deletes.avro").as_uri()
            made, body = manifest(table.metadata, table.schema(), self.snapshot_id, [file], at)
            (given.folder / "deletes.avro").write_bytes(body)
            return [made, *self._existing_manifests()]

    from pyiceberg.table.snapshots import Operation

    with table.transaction() as transaction, Deletes(Operation.OVERWRITE, transaction, table.io):
        pass


def test_rows_under_equality_deletes_are_refused_and_not_shown(tmp_path: Path) -> None:
    """Nothing here applies them: an answer could have rows that were deleted."""
    given = Given("iceberg", tmp_path)
    at = given.table.append([row(1), row(2)]).version
    delete_by_equality(given, 1)
    table = given.open()
    questions = (
        lambda: table.rows({"id": [1]}),
        lambda: table.rows(where="id = 1"),
        table.row_count,
        lambda: table.added_since(None),
    )
    for ask in questions:
        with pytest.raises(sw.UnsupportedTableError, match="equality deletes"):
            ask()
    with pytest.raises(sw.HistoryGapError, match="removed rows"):
        table.added_since(at)
