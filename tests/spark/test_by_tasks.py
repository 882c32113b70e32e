"""Rows of Spark frames that tasks on the executors write to Delta tables, without Delta's own library."""

from __future__ import annotations

import datetime as dt
import os
import signal
import threading
import traceback
import uuid
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import Observation, functions

import safewrite as sw
from bench.servers.servers import SECRET_ACCESS_KEY, Ministack
from safewrite.delta.connect import Connection
from safewrite.delta.data.datafiles import FileLayout
from safewrite.delta.spark import by_tasks, write
from safewrite.delta.write.tasks import WriteFiles
from safewrite.engine import spark as engine
from safewrite.engine.abc import ExecutorsLackPythonError
from safewrite.engine.spark import SparkEngine, arrow_of
from safewrite.frames.spark import tallied
from safewrite.frames.spark.batch import BatchOrigin, Check
from safewrite.frames.spark.tallied import marked, named_by
from safewrite.frames.tally import Tally
from safewrite.protocol.ask import Limits
from safewrite.spark import attach
from tests.spark.session import Spark
from tests.spark.test_source import Feed

KINDS = pa.schema(
    [
        ("id", pa.int64()), ("part", pa.string()), ("day", pa.date32()), ("amount", pa.decimal128(12, 2)), ("score", pa.float64()),
        ("at", pa.timestamp("us", "UTC")), ("data", pa.binary()), ("list", pa.list_(pa.int32())),
        ("nested", pa.struct([("a", pa.string()), ("b", pa.map_(pa.string(), pa.int64()))])),
    ]
)  # fmt: skip
AT = dt.datetime(2024, 3, 31, 1, 30, 0, 123456, tzinfo=dt.UTC)


def _rows(count: int) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "id": id_, "part": None if id_ % 5 == 0 else f"p/{id_ % 3} =%", "day": dt.date(2024, 2, 28 + id_ % 2),
                "amount": None if id_ % 4 == 0 else Decimal(id_ * 7) / 4, "score": float("nan") if id_ % 7 == 0 else -0.0,
                "at": AT + dt.timedelta(microseconds=id_), "data": bytes([id_ % 256]) if id_ % 3 else None,
                "list": [id_, None] if id_ % 2 else [], "nested": {"a": str(id_), "b": [("k", id_)]} if id_ % 6 else None,
            }
            for id_ in range(count)
        ],
        schema=KINDS,
    )  # fmt: skip


@contextmanager
def tasks_only() -> Iterator[None]:
    """Delta's own library writes nothing."""
    with (
        mock.patch("safewrite.delta.spark.write._save", side_effect=AssertionError("Delta wrote")),
        mock.patch.object(by_tasks, "_has_library", return_value=False),
    ):
        yield


def by_library() -> Any:
    """Delta's own library writes what it is asked to."""
    return mock.patch.object(Connection, "store", return_value=None)


@pytest.fixture
def on_s3(spark: Spark, ministack: Ministack, shore: tuple[str, str]) -> Callable[..., Any]:
    """Makes a table on S3, which Delta's library reaches by S3A and our hook."""
    bucket, locks = shore
    options = ministack.storage_options()

    def made(schema: pa.Schema, **settings: Any) -> Any:
        attach(spark.session, storage_options=options, lock_table=locks)
        uri = f"s3://{bucket}/{uuid.uuid4().hex[:8]}"
        return sw.create(uri, schema, lock_table=locks, storage_options=options, **settings)

    return made


@pytest.fixture
def frames(spark: Spark) -> Callable[[pa.Table], Any]:
    def made(table: pa.Table) -> Any:
        return spark.session.createDataFrame(table).repartition(3)

    return made


@pytest.mark.sweep("one")
@pytest.mark.parametrize("parts", [[], ["part", "day"]], ids=["one", "parted"])
def test_every_reader_finds_the_rows(
    spark: Spark, frames: Callable[[pa.Table], Any], tmp_path: Path, parts: list[str]
) -> None:
    """The same rows as a pandas path writes them, through Spark and through delta-rs; the table is made by the append."""
    rows = _rows(60)
    table = sw.open(tmp_path / "t", create=True, partition_by=parts)
    with spark.careless(), tasks_only():
        receipt = table.append(frames(rows), key="event-1")
    assert (receipt.rows, receipt.outcome.value) == (60, "committed")
    assert sw.open(tmp_path / "t").partition_by == tuple(parts)
    expected = rows.to_pylist()
    for found in (spark.read(tmp_path / "t"), DeltaTable(tmp_path / "t").to_pyarrow_table()):
        read = found.select(KINDS.names).sort_by("id").to_pylist()
        assert repr(read) == repr([{**row, "nested": row["nested"]} for row in expected])
    adds = pa.table(DeltaTable(tmp_path / "t").get_add_actions(flatten=True)).to_pydict()
    assert sum(adds["num_records"]) == 60
    assert (min(adds["min.id"]), max(adds["max.id"])) == (0, 59)


@pytest.mark.long
def test_either_path_finds_what_the_other_wrote(
    spark: Spark, frames: Callable[[pa.Table], Any], on_s3: Callable[..., Any]
) -> None:
    """By key and by batch: a stream that is restarted after an upgrade finds its last batch, written by Delta's library."""
    rows = _rows(20)
    table = on_s3(KINDS, partition_by=["day"])
    names: list[dict[str, Any]] = [{"key": "event"}, {"txn": ("app", 1)}]
    with spark.careless():
        for named in names:
            with by_library():
                assert table.append(frames(rows), **named).outcome.value == "committed"
            with tasks_only():
                again = table.append(frames(rows), **named)
                assert (again.outcome.value, again.rows) == ("already_committed", 20)
                with pytest.raises(sw.ReplayMismatchError):
                    table.append(frames(rows.slice(1)), **named)
        with tasks_only():
            table.append(frames(rows), txn=("app", 2))
        with by_library():
            assert table.append(frames(rows), txn=("app", 2)).outcome.value == "already_committed"
    assert spark.read(table.uri.replace("s3://", "s3a://")).num_rows == 60


@pytest.mark.long
def test_rows_that_are_counted_are_those_that_are_written(spark: Spark, tmp_path: Path) -> None:
    """A frame that gives other rows whenever it is computed: what the table has bears the fingerprint of the commit."""
    table = sw.create(
        tmp_path / "t",
        pa.schema([("id", pa.int64()), ("value", pa.string())]),
    )
    ids = spark.session.range(0, 50, 1, 3)
    drawn = ids.selectExpr("id", "reflect('java.util.UUID', 'randomUUID') AS value")
    frame = drawn.where("value < 'b'")  # as many rows as it happens
    with spark.careless(), tasks_only():
        receipt = table.append(frame, key="drawn")
        stored = spark.session.read.format("delta").load(str(tmp_path / "t"))
        assert stored.count() == receipt.rows
        again = table.append(stored, key="drawn")
        assert again.outcome.value == "already_committed"
        with pytest.raises(sw.ReplayMismatchError):
            table.append(frame, key="drawn")


@pytest.mark.long
def test_rows_that_fail_a_check_commit_nothing(
    spark: Spark, frames: Callable[[pa.Table], Any], tmp_path: Path
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("part", pa.string())])
    table = sw.create(tmp_path / "t", schema, partition_by=["part"])
    before = table.version
    bad = pa.table({"id": [1, None, None], "part": ["a", "b", None]})
    blank = pa.table({"id": [1, 2], "part": ["", "b"]})
    with spark.careless(), tasks_only():
        with pytest.raises(sw.WouldAlterError, match="'id': NULL in 2 of 3 rows"):
            table.append(frames(bad))
        with pytest.raises(
            sw.WouldAlterError, match="'part': '' or '__HIVE_DEFAULT_PARTITION__' in 1 of 2 rows"
        ):
            table.append(frames(blank))
    table.refresh()
    assert table.version == before
    assert spark.read(tmp_path / "t").num_rows == 0


@pytest.mark.long
def test_an_overwrite_replaces_the_rows_of_its_where(
    spark: Spark, frames: Callable[[pa.Table], Any], tmp_path: Path
) -> None:
    schema = pa.schema([("id", pa.int64()), ("part", pa.string())])
    table = sw.create(tmp_path / "t", schema, partition_by=["part"])
    with spark.careless(), tasks_only():
        table.append(frames(pa.table({"id": range(10), "part": ["a", "b"] * 5})))
        new = pa.table({"id": [100, 101], "part": ["a", "a"]})
        receipt = table.overwrite(frames(new), where="part = 'a'", key="over")
        assert (receipt.rows, table.overwrite(frames(new), where="part = 'a'", key="over").outcome.value) == (
            2,
            "already_committed",
        )
        with pytest.raises(sw.InvalidInputError, match="1 of 1 rows do not satisfy where="):
            table.overwrite(frames(pa.table({"id": [7], "part": ["b"]})), where="part = 'a'")
        assert spark.read(tmp_path / "t")["id"].to_pylist() == [1, 3, 5, 7, 9, 100, 101]
        table.overwrite(frames(new.slice(1)), key="whole")
    assert spark.read(tmp_path / "t")["id"].to_pylist() == [101]


@pytest.mark.long
def test_delta_s_library_writes_where_tasks_cannot(
    spark: Spark, on_s3: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A year after 9999; then executors without safewrite, which is known from then on; the rows are there each time once."""
    schema = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("part", pa.int32())])
    table = on_s3(schema, partition_by=["part"])
    late = spark.session.range(3).selectExpr(
        "id", "date_add(DATE '9999-12-31', 5) AS day", "CAST(1 AS INT) AS part"
    )
    saved: list[str] = []
    save = write._save
    monkeypatch.setattr(write, "_save", lambda *given: saved.append("library") or save(*given))
    with spark.careless():
        assert table.append(late, key="late").rows == 3
        assert saved == ["library"]
        error = ExecutorsLackPythonError("No module named safewrite")
        plain = late.selectExpr("id", "DATE '2024-01-01' AS day", "part")
        asked = mock.Mock(side_effect=error)
        with mock.patch("safewrite.frames.spark.tallied.SparkEngine.map", asked):
            try:
                assert table.append(plain, key="one").rows == 3
                assert table.append(plain, key="two").rows == 3
            finally:
                tallied._lacking.clear()
        assert (saved, asked.call_count) == (["library"] * 3, 1)
        stored = spark.session.read.format("delta").load(table.uri.replace("s3://", "s3a://"))
        assert stored.count() == 9


@pytest.mark.long
def test_an_overwrite_that_cuts_through_files_is_told_by_the_change_feed(
    spark: Spark, frames: Callable[[pa.Table], Any], on_s3: Callable[..., Any]
) -> None:
    """Tasks write the rows that come, in several files; this process those that stay, and the feed has both kinds, new columns too."""
    schema = pa.schema([("id", pa.int64()), ("part", pa.int32())])
    fed = on_s3(schema, partition_by=["part"], properties={"delta.enableChangeDataFeed": "true"})
    part = pa.array([1, 2, 2], pa.int32())
    with spark.careless(), tasks_only():
        fed.append(frames(pa.table({"id": [1, 2, 3], "part": part})).coalesce(1))
        fed.overwrite(frames(pa.table({"id": [4], "part": part[:1]})), where="part = 1")
        wider = pa.table({"id": [2, 2, 2], "part": pa.array([1, 2, 2], pa.int32()), "name": ["a", "b", "c"]})
        receipt = fed.overwrite(frames(wider), where="id = 2", schema_mode="merge", key="cut")
        assert (receipt.rows, receipt.removed_rows) == (3, 1)
        path = fed.uri.replace("s3://", "s3a://")
        changes = spark.session.sql(
            f"SELECT _commit_version, id, part, name, _change_type FROM table_changes_by_path('{path}', 2)"
        )
        found = sorted(map(tuple, changes.collect()), key=str)
    assert found == [
        (2, 1, 1, None, "delete"),
        (2, 4, 1, None, "insert"),
        (3, 2, 1, "a", "insert"),
        (3, 2, 2, "b", "insert"),
        (3, 2, 2, "c", "insert"),
        (3, 2, 2, None, "delete"),
    ]


def test_what_tasks_alone_do_is_refused_with_the_remedy_where_they_cannot(
    spark: Spark, tmp_path: Path
) -> None:
    """Decision 0065: a frame is not handed to Delta's library to overwrite, or to apply its changes."""
    table = sw.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("seq", pa.int64())]))
    frame = spark.session.range(3).selectExpr("id", "1L AS seq")
    calls: list[Callable[[], Any]] = [
        lambda: table.overwrite(frame),
        lambda: table.apply_changes(frame, keys=["id"], sequence_by=["seq"]),
    ]
    lacking = ExecutorsLackPythonError("Spark's executors need Python with safewrite")
    with spark.careless():
        for call in calls:
            with by_library(), pytest.raises(sw.InvalidInputError, match=r"cannot be sent.*frame\.toArrow"):
                call()
            with (
                mock.patch.object(SparkEngine, "map", side_effect=lacking),
                pytest.raises(ExecutorsLackPythonError, match="need Python with safewrite"),
            ):
                call()
    assert (table.row_count(), len(tallied._lacking)) == (0, 0)


@pytest.mark.long
def test_two_halves_of_a_batch_do_not_pass_for_one_another(spark: Spark, tmp_path: Path) -> None:
    """E3: they have the same offsets and as many rows, and the first of them makes the table."""
    feed = Feed(spark, tmp_path)
    feed.add(1, 2, 3, 4)
    target = tmp_path / "t"

    def both(frame: Any, epoch: int) -> None:
        sink = sw.open(target, create=True, partition_by=["id"]).sink(app_id="orders")
        sink(frame.where("id < 3"), epoch)
        sink(frame.where("id >= 3"), epoch)

    with tasks_only(), pytest.raises(StreamingQueryException, match="two different frames"):
        feed.run(both)
    assert spark.read(target)["id"].to_pylist() == [1, 2]


def _killed(batches: Any, noted: Path) -> Iterator[pa.RecordBatch]:
    """Give rows, and kill whoever has them once, when it has them all: the worker that is to write their file."""
    from pyspark import TaskContext

    yield from batches
    context = TaskContext.get()
    if context is None or context.partitionId() != 1 or noted.exists():
        return
    noted.touch()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        pid, parent = int(stat.parent.name), int(stat.read_text().rpartition(")")[2].split()[1])
        if parent == os.getppid() and pid != os.getpid():
            os.kill(pid, signal.SIGKILL)


def test_a_worker_that_is_killed_leaves_files_and_no_row(spark: Spark, tmp_path: Path) -> None:
    """The second call under the key writes each row once; what the first wrote is in no commit."""
    schema = pa.schema([("id", pa.int64()), ("part", pa.int64())])
    table = sw.create(tmp_path / "t", schema, partition_by=["part"])
    ids = spark.session.range(0, 9, 1, 3).selectExpr("id", "id % 2 AS part")
    frame = ids.mapInArrow(partial(_killed, noted=tmp_path / "noted"), "id LONG, part LONG")
    with spark.careless(), tasks_only():
        with pytest.raises(sw.StorageError, match="could not run the tasks"):
            table.append(frame, key="event-1")
        lost = {*(tmp_path / "t").rglob("*.parquet")}
        assert lost
        assert spark.read(tmp_path / "t").num_rows == 0
        assert table.append(frame, key="event-1").rows == 9
    assert spark.read(tmp_path / "t")["id"].to_pylist() == [*range(9)]
    live = {Path(unquote(uri.removeprefix("file://"))) for uri in DeltaTable(tmp_path / "t").file_uris()}
    assert live
    assert not lost & live


def test_credentials_that_travel_are_in_no_text(
    spark: Spark, on_s3: Callable[..., Any], frames: Callable[[pa.Table], Any]
) -> None:
    """Neither Spark's plan, which its UI and log of events show, nor errors, nor what is printed of a task."""
    table = on_s3(pa.schema([("id", pa.int64()), ("part", pa.string())]), partition_by=["part"])
    store = table._format.connection.store()
    assert dict(store.options)["AWS_SECRET_ACCESS_KEY"] == SECRET_ACCESS_KEY
    task = WriteFiles(store, FileLayout(table.schema, ("part",), "w"), 0, Limits())
    broken = frames(pa.table({"id": [1], "part": ["a"]})).selectExpr(
        "CAST(raise_error('broken row') AS BIGINT) AS id", "part"
    )
    plan = engine._frame(broken, task)._jdf.queryExecution().toString()
    with spark.careless(), tasks_only(), pytest.raises(sw.StorageError) as raised:
        table.append(broken)
    chain = "".join(traceback.format_exception(raised.value))
    for text in (plan, chain, repr(task), repr(table._format.connection)):
        assert SECRET_ACCESS_KEY not in text
    assert "MapInArrow" in plan


def test_every_check_of_many_is_counted(spark: Spark) -> None:
    """Of the first check that fails, all rows that fail it."""
    names = [f"c{number}" for number in range(70)]
    frame = spark.session.range(6).selectExpr(
        *(f"IF(id < 2, NULL, id) AS {name}" for name in names[:-1]), "IF(id = 5, NULL, 1) AS c69"
    )
    checks = [
        Check(
            f"{name} IS NULL", lambda count, rows, name=name: sw.WouldAlterError(f"{name}: {count} of {rows}")
        )
        for name in names
    ]
    for some, told in ((checks, "c0: 2 of 6"), (checks[69:], "c69: 1 of 6")):
        tally = Tally()
        with spark.careless():
            found = arrow_of(marked(frame, some, None, ()))
        assert not [*tally.counted(found.to_batches(), found.schema, 1)]
        with pytest.raises(sw.WouldAlterError, match=told):
            named_by(tally, some, None, ())


def test_an_origin_names_a_batch_by_its_number_of_rows(
    spark: Spark, frames: Callable[[pa.Table], Any]
) -> None:
    """Then no row is hashed."""
    origin = BatchOrigin("offsets1", "abc")
    frame = frames(_rows(3))
    assert marked(frame, [], origin, ()).columns == frame.columns
    assert named_by(Tally(rows=3), [], origin, ()) == origin.fingerprint(3)


@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        ("id, id * 1.5D AS d, current_date() AS at, CAST(id AS DECIMAL(9, 2)) AS n", tallied.ROWS),
        ("id, CAST(id AS STRING) AS s", tallied.ROWS_OF_TEXT),
        ("id, CAST(CAST(id AS STRING) AS BINARY) AS b", tallied.ROWS_OF_TEXT),
        ("id, array(id) AS a", None),
    ],
)
def test_rows_come_to_python_unweighed_where_no_value_is_large(
    spark: Spark, columns: str, rows: int | None
) -> None:
    assert tallied.rows_a_batch(spark.session.sql(f"SELECT {columns} FROM range(3)")) == rows


@pytest.mark.sweep("BINARY")
@pytest.mark.parametrize("kind", ["STRING", "BINARY"])
def test_a_large_row_lets_spark_weigh_all_rows_from_then_on(
    spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Hundreds of them in one batch have no room in Java's heap."""
    asked: list[int | None] = []

    class Engine(SparkEngine):
        @contextmanager
        def map(self, source: Any, task: Any, rows_a_batch: int | None = None) -> Iterator[Any]:
            asked.append(rows_a_batch)
            with super().map(source, task, rows_a_batch) as mapped:
                yield mapped

    monkeypatch.setattr(tallied, "SparkEngine", Engine)
    monkeypatch.setattr(tallied, "_weighing", weakref.WeakSet())
    table = sw.open(str(tmp_path / "t"), create=True)
    half = tallied.ROW_BYTES_MAX // 2
    with spark.careless():
        for times in (half, half + 1, half):
            rows = f"SELECT id, CAST(repeat('x', {times}) AS {kind}) AS `a.b`, 'y' AS c, "
            frame = spark.session.sql(f"{rows} CAST(repeat('z', {half} - 1) AS {kind}) AS d FROM range(3)")
            table.append(frame, key=str(len(asked)))
    assert asked == [tallied.ROWS_OF_TEXT, tallied.ROWS_OF_TEXT, None, None]
    found = DeltaTable(str(tmp_path / "t")).to_pyarrow_table()
    assert sorted(pc.binary_length(found["a.b"]).to_pylist()) == [half] * 6 + [half + 1] * 3


@pytest.mark.sweep("partition_by0")
@pytest.mark.parametrize("partition_by", [[], ["s"]])
def test_what_a_user_observes_of_a_frame_comes_with_its_append(
    spark: Spark, tmp_path: Path, partition_by: list[str]
) -> None:
    """An observation that no query answers is waited for for ever."""
    observation, answers = Observation(), list[dict[str, Any]]()
    frame = spark.session.sql("SELECT id, 'x' AS s FROM range(3)")
    observed = frame.observe(observation, functions.count("*").alias("rows"))
    table = sw.create(
        str(tmp_path / "t"),
        schema=pa.schema([("id", pa.int64()), ("s", pa.string())]),
        partition_by=partition_by,
    )
    with spark.careless():
        table.append(observed, key="a")
    waiting = threading.Thread(target=lambda: answers.append(observation.get), daemon=True)
    waiting.start()
    waiting.join(20.0)
    assert answers == [{"rows": 3}]


def test_empty_lists_within_lists_land(spark: Spark, tmp_path: Path) -> None:
    """Java sends no offsets with them, and Arrow crashed in the task where it looked for some."""
    kinds = {
        "a": "ARRAY<ARRAY<DOUBLE>>",
        "d": "ARRAY<ARRAY<ARRAY<INT>>>",
        "m": "MAP<INT, ARRAY<STRUCT<x: INT, y: MAP<STRING, DECIMAL(38, 10)>>>>",
        "s": "STRUCT<l: ARRAY<ARRAY<TIMESTAMP>>>",
    }
    schema = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    table = sw.open(str(tmp_path / "t"), create=True)
    with spark.careless(), tasks_only():
        table.append(spark.session.createDataFrame([([[]], [[]], {}, ([],))], schema), key="a")
    (row,) = DeltaTable(str(tmp_path / "t")).to_pyarrow_table().to_pylist()
    assert row == {"a": [[]], "d": [[]], "m": [], "s": {"l": []}}
