"""Rows of Spark frames that tasks on the executors write to Iceberg tables, without Iceberg's own library."""

from __future__ import annotations

import datetime as dt
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import safewrite as sw
from bench.servers.catalogs import CatalogKind
from bench.servers.servers import SECRET_ACCESS_KEY
from safewrite.engine import spark as engine
from safewrite.engine.abc import ExecutorsLackPythonError
from safewrite.frames.spark import tallied
from safewrite.iceberg.catalog.addresses import address_of
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.spark import by_tasks, files
from safewrite.iceberg.table import IcebergTable
from safewrite.iceberg.write.tasks import IcebergFiles, WriteFiles
from safewrite.protocol.ask import Limits
from tests.spark.lake import Lake
from tests.spark.session import Spark

IDS = [uuid.UUID(int=number) for number in range(60)]
KINDS = pa.schema(
    [
        ("id", pa.int64()), ("part", pa.string()), ("day", pa.date32()), ("amount", pa.decimal128(12, 2)), ("score", pa.float64()),
        ("at", pa.timestamp("us", "UTC")), ("clock", pa.timestamp("us")), ("data", pa.binary()), ("fixed", pa.binary(2)), ("key", pa.uuid()),
        ("dotted.name", pa.list_(pa.int32())), ("nested", pa.struct([("a", pa.string()), ("b", pa.map_(pa.string(), pa.int64()))])),
    ]
)  # fmt: skip
AT = dt.datetime(2024, 3, 31, 23, 59, 59, 999_990, tzinfo=dt.UTC)


def _rows(count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": id_, "part": None if id_ % 5 == 0 else f"p/{id_ % 3} =%", "day": dt.date(2024, 2, 28 + id_ % 2),
            "amount": None if id_ % 4 == 0 else Decimal(id_ * 7) / 4, "score": float("nan") if id_ % 7 == 0 else -0.0,
            "at": AT + dt.timedelta(microseconds=id_), "clock": dt.datetime(1960, 1, 1) + dt.timedelta(hours=id_),  # noqa: DTZ001
            "data": bytes([id_ % 256]) if id_ % 3 else None, "fixed": b"ab" if id_ % 2 else None, "key": None if id_ % 6 == 0 else str(IDS[id_]),
            "dotted.name": [id_, None] if id_ % 2 else [], "nested": {"a": str(id_), "b": {"k": id_}} if id_ % 6 else None,
        }
        for id_ in range(count)
    ]  # fmt: skip


TYPES = (
    "id LONG, part STRING, day DATE, amount DECIMAL(12, 2), score DOUBLE, at TIMESTAMP, clock TIMESTAMP_NTZ, data BINARY, fixed BINARY, "
    "key STRING, `dotted.name` ARRAY<INT>, nested STRUCT<a: STRING, b: MAP<STRING, LONG>>"
)


@contextmanager
def tasks_only() -> Iterator[None]:
    """Iceberg's own library is not there."""
    with (
        mock.patch.object(files.SparkIceberg, "write", side_effect=AssertionError("Iceberg's library wrote")),
        mock.patch("safewrite.iceberg.spark.files.has_library", return_value=False),
        mock.patch.object(by_tasks, "has_library", return_value=False),
    ):
        yield


@contextmanager
def by_library() -> Iterator[None]:
    """Iceberg's own library writes what it is asked to."""
    with mock.patch.object(by_tasks, "address_to_append", return_value=None):
        yield


@pytest.fixture
def lake(lakes: Callable[[CatalogKind], Lake]) -> Lake:
    return lakes("rest")


def _frame(spark: Spark, count: int) -> Any:
    return spark.session.createDataFrame(_rows(count), TYPES).repartition(3)


LAYOUTS: list[dict[str, Any]] = [
    {},
    {
        "partition_by": [
            "day(at)",
            "truncate(2, part)",
            "month(clock)",
            "truncate(3, amount)",
            "bucket(2, key)",
        ]
    },
    {"partition_by": ["hour(clock)", "nested.a", "year(day)"], "sort_by": ["score desc nulls last", "id"]},
]


@pytest.mark.sweep("parted", "sorted")
@pytest.mark.parametrize("layout", LAYOUTS, ids=["plain", "parted", "sorted"])
def test_every_reader_finds_the_rows(spark: Spark, lake: Lake, layout: dict[str, Any]) -> None:
    """By Spark and by PyIceberg, whose filters skip files by their partitions and bounds."""
    table = lake.create(KINDS, **layout)
    with spark.careless():
        with tasks_only():
            receipt = table.append(_frame(spark, 60), key="event-1")
        assert (receipt.rows, receipt.outcome.value) == (60, "committed")
        read = [
            row.asDict(recursive=True) for row in spark.session.table(lake.sql(table)).orderBy("id").collect()
        ]
        expected = [row.asDict(recursive=True) for row in _frame(spark, 60).orderBy("id").collect()]
        assert repr(read) == repr(expected)
        assert spark.sql(f"SELECT id FROM {lake.sql(table)} WHERE key = '{IDS[7]}' AND fixed = X'6162'")[
            "id"
        ].to_pylist() == [7]
    there = lake.load().load_table(table.uri)
    assert Counter(there.scan().to_arrow()["id"].to_pylist()) == Counter(range(60))
    found = there.scan(row_filter="day = '2024-02-29' and at >= '2024-04-01T00:00:00+00:00'").to_arrow()
    assert sorted(found["id"].to_pylist()) == [id_ for id_ in range(60) if id_ % 2 and id_ >= 10]
    entries = [task.file for task in there.scan().plan_files()]
    order = table_of(table._format.refresh()).metadata.sort_order()
    assert {one.sort_order_id for one in entries} == {None if order.is_unsorted else order.order_id}


@pytest.mark.long
def test_either_path_finds_what_the_other_wrote(spark: Spark, lake: Lake) -> None:
    """By key and by batch: a stream that is restarted after an upgrade finds its last batch, written by Iceberg's library."""
    table = lake.create(KINDS, partition_by=["day"])
    names: list[dict[str, Any]] = [{"key": "event"}, {"txn": ("app", 1)}]
    with spark.careless():
        for named in names:
            with by_library():
                assert table.append(_frame(spark, 20), **named).outcome.value == "committed"
            with tasks_only():
                again = table.append(_frame(spark, 20), **named)
                assert (again.outcome.value, again.rows) == ("already_committed", 20)
                with pytest.raises(sw.ReplayMismatchError):
                    table.append(_frame(spark, 19), **named)
        with tasks_only():
            table.append(_frame(spark, 20), txn=("app", 2))
        with by_library():
            assert table.append(_frame(spark, 20), txn=("app", 2)).outcome.value == "already_committed"
    assert table.row_count() == 60


@pytest.mark.long
def test_a_table_is_made_checked_widened_and_overwritten(spark: Spark, lake: Lake) -> None:
    """New columns come by the commit that brings their rows; rows that fail a check bring nothing."""
    table = sw.open(lake.new(), catalog=lake.load(), create=True, partition_by=["part"])
    ids = spark.session.range(0, 10, 1, 3).selectExpr("id", "id % 2 AS part")
    with spark.careless(), tasks_only():
        table.append(ids, key="made")
        wider = ids.selectExpr("id + 10 AS id", "part", "CAST(id AS STRING) AS name")
        assert table.append(wider, key="wider", schema_mode="merge").rows == 10
        assert table.append(ids, key="made").outcome.value == "already_committed"
        before = table.version
        with pytest.raises(sw.InvalidInputError, match="5 of 10 rows do not satisfy where="):
            table.overwrite(wider, where="part = 0")
        assert table.refresh().version == before
        table.overwrite(ids.where("id = 4").selectExpr("*", "'new' AS name"), where="id < 7", key="cut")
    found = lake.load().load_table(table.uri).scan().to_arrow().sort_by("id").to_pylist()
    kept = [(id_, None) for id_ in range(7, 10)] + [(id_, str(id_ - 10)) for id_ in range(10, 20)]
    assert [(row["id"], row["name"]) for row in found] == [(4, "new"), *kept]
    assert len(table.history()) == 3


@pytest.mark.sweep("library")
@pytest.mark.parametrize("path", [tasks_only, by_library], ids=["tasks", "library"])
def test_frames_go_to_the_branch_that_the_table_is_open_on(spark: Spark, lake: Lake, path: Any) -> None:
    """Files of both are committed by us: the main branch has other rows meanwhile, and neither meets those of the other."""
    main = lake.create(pa.schema({"id": pa.int64(), "s": pa.int64()}))
    main.append([{"id": 1, "s": 1}, {"id": 2, "s": 1}])
    branch = lake.open(main.uri, branch="audit")
    main.append([{"id": 9, "s": 9}])

    def frame(*ids: int, s: int) -> Any:
        return spark.session.createDataFrame([(one, s) for one in ids], "id LONG, s LONG")

    with spark.careless(), path():
        branch.append(frame(3, 4, s=1), key="event")
        assert branch.append(frame(3, 4, s=1), key="event").outcome.value == "already_committed"
        branch.overwrite(frame(4, s=2), where="id = 4")
        done = branch.apply_changes(frame(1, 9, s=5), keys=["id"], sequence_by=["s"], key="changes")
        assert done.changes is not None
        assert (done.changes["applied"], done.changes["late"]) == (2, 0)
        branch.sink(app_id="stream")(frame(6, s=1), 0)
    there = lake.load().load_table(main.uri)
    found = {
        name: sorted(map(tuple, (row.values() for row in there.scan().use_ref(name).to_arrow().to_pylist())))
        for name in ("main", "audit")
    }
    assert found == {
        "main": [(1, 1), (2, 1), (9, 9)],
        "audit": [(1, 5), (2, 1), (3, 1), (4, 2), (6, 1), (9, 5)],
    }


@pytest.mark.long
def test_rows_of_a_partition_come_together_unless_the_table_wants_none_of_it(
    spark: Spark, lake: Lake
) -> None:
    """Each of three tasks sees all three partitions; in another session's time zone, for days are those of UTC."""
    frame = spark.session.range(0, 90, 1, 3).selectExpr(
        "id", "timestamp_micros(id % 3 * 86400000000 + id * 900000000) AS at", "id % 3 AS _safewrite_part_0"
    )
    schema = pa.schema(
        [("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("_safewrite_part_0", pa.int64())]
    )
    made = {}
    for mode in ("hash", "none"):
        table = lake.create(schema, partition_by=["day(at)"], properties={"write.distribution-mode": mode})
        with spark.careless(), tasks_only(), spark.setting("spark.sql.session.timeZone", "Asia/Kolkata"):
            made[mode] = table.append(frame).files
        found = lake.load().load_table(table.uri)
        parts = len({str(task.file.partition) for task in found.scan().plan_files()})
        assert table.row_count() == 90
    assert made["hash"] == parts < made["none"]


@pytest.mark.long
def test_iceberg_s_library_writes_where_tasks_cannot(
    spark: Spark, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that Java alone takes for a UUID; then executors without safewrite; buckets, and a sort order."""
    schema = pa.schema([("id", pa.int64()), ("key", pa.uuid())])
    table = lake.create(schema)
    saved: list[str] = []
    save = files.SparkIceberg.write
    monkeypatch.setattr(files.SparkIceberg, "write", lambda *given: saved.append("library") or save(*given))
    odd = spark.session.range(2).selectExpr("id", "'1-1-1-1-1' AS key")
    plain = odd.selectExpr("id", f"'{IDS[1]}' AS key")
    with spark.careless():
        with tasks_only(), pytest.raises(sw.WouldAlterError, match="'key': '1-1-1-1-1' is not a UUID"):
            table.append(odd)
        assert table.append(odd, key="odd").rows == 2
        assert len(saved) == 1
        asked = mock.Mock(side_effect=ExecutorsLackPythonError("No module named safewrite"))
        with mock.patch("safewrite.frames.spark.tallied.SparkEngine.map", asked):
            try:
                table.append(plain, key="one")
                table.append(plain, key="two")
            finally:
                tallied._lacking.clear()
        assert (len(saved), asked.call_count) == (3, 1)
        for layout in ({"partition_by": ["bucket(2, id)"]}, {"sort_by": ["id"]}):
            other = lake.create(schema, **layout)
            other.append(plain)
            assert other.row_count() == 2
        assert len(saved) == 5
        table.append(plain, key="three")
    assert (len(saved), table.row_count()) == (5, 8)


HOW: dict[str, Any] = {"keys": ["id"], "sequence_by": ["seq"], "delete_when": "op = 'd'"}
CHANGED = pa.schema([("id", pa.int64()), ("seq", pa.int64()), ("name", pa.string())])


def _changes(spark: Spark, ids: range, seq: int, op: str = "u") -> Any:
    found = spark.session.range(ids.start, ids.stop, ids.step, 2)
    return found.selectExpr("id", f"{seq}L AS seq", f"'of {seq}' AS name", f"'{op}' AS op")


@pytest.mark.long
@pytest.mark.parametrize("mode", ["merge-on-read", pytest.param("copy-on-write", marks=pytest.mark.long)])
def test_changes_are_applied_without_iceberg_s_library(spark: Spark, lake: Lake, mode: str) -> None:
    """In buckets and in order, which only appends leave to the library."""
    table = lake.create(
        CHANGED, partition_by=["bucket(2, id)"], sort_by=["id desc"], properties={"write.merge.mode": mode}
    )
    with spark.careless():
        with tasks_only():
            table.apply_changes(_changes(spark, range(20), 1), key="one", **HOW)
            made = table.apply_changes(_changes(spark, range(0, 20, 2), 2), txn=("app", 1), **HOW)
            assert (made.changes["updated"], made.rows, made.removed_rows) == (10, 10, 10)
            gone = table.apply_changes(_changes(spark, range(0, 24, 4), 3, "d"), key="gone", **HOW)
            assert (gone.changes["deleted"], gone.changes["tombstoned"]) == (5, 1)
            again = table.apply_changes(_changes(spark, range(0, 20, 2), 2), txn=("app", 1), **HOW)
            assert (again.outcome.value, again.changes) == ("already_committed", made.changes)
            late = table.apply_changes(
                _changes(spark, range(0, 24, 4), 2), key="late", all_late="count", **HOW
            )
            assert late.changes["late"] == 6
            table.apply_changes(_changes(spark, range(1), 4), key="back", **HOW)
            with pytest.raises(sw.ReplayMismatchError):
                table.apply_changes(_changes(spark, range(2), 4), key="back", **HOW)
            assert (
                table.apply_changes(_changes(spark, range(1), 4), key="back", **HOW).outcome
                == "already_committed"
            )
        read = spark.session.table(lake.sql(table)).orderBy("id").collect()
    wanted = [(0, "of 4"), *((id_, "of 1" if id_ % 2 else "of 2") for id_ in range(1, 20) if id_ % 4)]
    assert [(row.id, row.name) for row in read] == wanted
    found = lake.load().load_table(table.uri).scan().to_arrow().sort_by("id")
    assert found["name"].to_pylist() == [name for _, name in wanted]


@pytest.mark.long
def test_changes_of_a_frame_find_uuids_which_spark_has_as_texts(spark: Spark, lake: Lake) -> None:
    """As keys and as values; a text that is none is refused by its column.  Files in Avro cannot be read: they have to be written again."""
    avro = lake.create(CHANGED)
    uuids = lake.create(CHANGED.append(pa.field("key", pa.uuid())))
    by_key = HOW | {"keys": ["key"]}
    with spark.careless(), tasks_only():
        old = _changes(spark, range(10), 1).drop("op").writeTo(lake.sql(avro))
        old.option("write-format", "avro").append()
        with pytest.raises(sw.UnsupportedTableError, match="in Avro"):
            avro.apply_changes(_changes(spark, range(0, 10, 2), 2), **HOW)
        for seq in (1, 2):
            one = _changes(spark, range(3), seq).selectExpr(
                "*", f"format_string('{IDS[1]!s:.35}%d', id) AS key"
            )
            uuids.apply_changes(one, key=f"seq {seq}", **by_key)
        gone = _changes(spark, range(1), 3, "d").selectExpr(
            "*", f"format_string('{IDS[1]!s:.35}%d', id) AS key"
        )
        assert uuids.apply_changes(gone, **by_key).changes["deleted"] == 1
        odd = _changes(spark, range(1), 4).selectExpr("*", "'1-1-1-1-1' AS key")
        with pytest.raises(sw.WouldAlterError, match="'key': '1-1-1-1-1' is not a UUID"):
            uuids.apply_changes(odd, **by_key)
        read = spark.session.table(lake.sql(uuids)).orderBy("id").collect()
    assert [(row.id, row.seq, row.key) for row in read] == [
        (id_, 2, f"{IDS[1]!s:.35}{id_}") for id_ in (1, 2)
    ]


def test_credentials_that_travel_are_in_no_text(spark: Spark, lake: Lake) -> None:
    """Neither Spark's plan, which its UI and log of events show, nor errors, nor what is printed of a task."""
    table = lake.create(pa.schema([("id", pa.int64())]))
    assert isinstance(table, IcebergTable)
    head, connection = table._format.refresh(), table._format.connection
    address = address_of(head, connection.catalog)
    assert address is not None
    assert dict(address.properties)["s3.secret-access-key"] == SECRET_ACCESS_KEY
    task = WriteFiles(IcebergFiles(address, table_of(head).metadata.schema(), "w", 1, Limits()))
    broken = spark.session.sql("SELECT CAST(raise_error('broken row') AS BIGINT) AS id")
    plan = engine._frame(broken, task)._jdf.queryExecution().toString()
    with spark.careless(), tasks_only(), pytest.raises(sw.StorageError) as raised:
        table.append(broken)
    chain = "".join(traceback.format_exception(raised.value))
    for text in (plan, chain, repr(task)):
        assert SECRET_ACCESS_KEY not in text
    assert "MapInArrow" in plan
    assert table.row_count() == 0
