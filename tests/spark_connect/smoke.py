"""What frames and streams of Spark Connect must do: each batch once, in tables of both formats that other readers read.

Its name keeps it out of `make test`, whose environment has no gRPC.  The server is one of Spark's own.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw
import safewrite.spark
from safewrite.changes.tasks import apply_job
from safewrite.engine.spark import is_connect

SCHEMA = pa.schema(
    [("id", pa.int64()), ("seq", pa.int64()), ("day", pa.string()), ("at", pa.timestamp("us", "UTC"))]
)
HOW: dict[str, Any] = {"keys": ["id"], "sequence_by": ["seq"], "delete_when": "op = 'd'"}
# The client leaves connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"
)


@pytest.fixture(scope="session")
def session() -> Iterator[Any]:
    """A session of a server that this process starts; executors find safewrite where it is."""
    root = str(Path(__file__).parents[2])
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    with mock.patch.dict(os.environ, {"PYTHONPATH": root, **python}):
        from pyspark.sql import SparkSession

        made = SparkSession.builder.remote("local[2]")
        session = made.config("spark.sql.session.timeZone", "America/New_York").getOrCreate()
        assert is_connect(session)
        yield session
        session.stop()


class End:
    """A table of a format, and its rows as a library reads them that wrote none."""

    def __init__(self, form: str, folder: Path) -> None:
        self.form, self.folder = form, folder
        self.catalog = {
            "name": "local", "type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": folder.as_uri(),
        }  # fmt: skip
        self.address: dict[str, Any] = {"catalog": self.catalog} if form == "iceberg" else {}
        self.uri = "lake.t" if form == "iceberg" else str(folder / "t")
        if form == "iceberg":
            with closing(SqlCatalog(**self.catalog)) as made:
                made.create_namespace("lake")

    def create(self, **settings: Any) -> Any:
        return sw.create(self.uri, SCHEMA, **self.address, **settings)

    def open(self) -> Any:
        return sw.open(self.uri, **self.address)

    def read(self) -> pa.Table:
        if self.form == "delta":
            return deltalake.DeltaTable(self.uri).to_pyarrow_table()
        with closing(SqlCatalog(**self.catalog)) as made:
            return made.load_table(self.uri).scan().to_arrow()

    def rows(self) -> list[tuple[int, int, str]]:
        found = self.read().sort_by("id").to_pylist()
        return [(one["id"], one["seq"], one["day"]) for one in found]


@pytest.fixture(params=["delta", "iceberg"])
def end(request: pytest.FixtureRequest, tmp_path: Path) -> End:
    return End(request.param, tmp_path)


def rows(session: Any, ids: range, seq: int, *more: str) -> Any:
    """Rows of two days, from two partitions."""
    columns = [
        "id",
        f"{seq}L AS seq",
        "concat('day ', id % 2) AS day",
        "timestamp_micros(id * 1000003) AS at",
    ]
    return session.range(ids.start, ids.stop, ids.step, 2).selectExpr(*columns, *more)


def wanted(ids: range, seq: int) -> list[tuple[int, int, str]]:
    return [(id_, seq, f"day {id_ % 2}") for id_ in ids]


@pytest.mark.parametrize("partition_by", [[], ["day"]])
def test_frames_are_written_once_and_read_by_others(session: Any, end: End, partition_by: list[str]) -> None:
    table = end.create(partition_by=partition_by)
    first = table.append(rows(session, range(6), 1), key="one")
    again = end.open().append(rows(session, range(6), 1).repartition(3), key="one")
    assert (first.outcome, first.rows, again.outcome) == ("committed", 6, "already_committed")
    with pytest.raises(sw.ReplayMismatchError):
        table.append(rows(session, range(7), 1), key="one")
    table.overwrite(rows(session, range(1, 9, 2), 2), where="day = 'day 1'", key="two")
    assert end.rows() == sorted(wanted(range(0, 6, 2), 1) + wanted(range(1, 9, 2), 2))
    assert [one["at"].timestamp() for one in end.read().sort_by("id").to_pylist()][1] == 1.000003
    with pytest.raises(sw.WouldAlterError):
        table.append(rows(session, range(2), 3).selectExpr("id", "seq + 0.5D AS seq", "day", "at"))
    table.append(rows(session, range(9, 10), 3, "1 AS more"), schema_mode="merge", key="wider")
    table.overwrite(rows(session, range(2), 4, "2 AS more"), key="all")
    assert end.rows() == wanted(range(2), 4)
    assert end.read().column("more").to_pylist() == [2, 2]


@pytest.mark.parametrize("few", [-1, 50_000])
def test_changes_are_applied_here_or_by_executors(
    session: Any, end: End, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply_job, "FEW_ROWS", few)
    table = end.create()
    table.append(rows(session, range(10), 1), key="base")
    seen: list[int] = []
    how = {**HOW, "check": lambda frame, counts: seen.append(frame.count())}
    made = table.apply_changes(rows(session, range(0, 12, 2), 2, "'u' AS op"), key="up", **how)
    assert (made.changes["updated"], made.changes["inserted"], seen) == (5, 1, [6])
    gone = table.apply_changes(rows(session, range(1, 4), 3, "'d' AS op"), txn=("app", 0), **HOW)
    assert gone.changes["deleted"] == 3
    again = end.open().apply_changes(rows(session, range(1, 4), 3, "'d' AS op"), txn=("app", 0), **HOW)
    assert (again.outcome, again.changes) == ("already_committed", gone.changes)
    assert end.rows() == [(id_, 1 if id_ % 2 else 2, f"day {id_ % 2}") for id_ in (0, 4, 5, 6, 7, 8, 9, 10)]


def test_a_stream_writes_each_batch_once_and_a_repeated_one_no_second_time(
    session: Any, end: End, tmp_path: Path
) -> None:
    """Spark calls the sink in a Python of the server, again with the batch that its checkpoint has not noted as done."""
    table, source, checkpoint = end.create(), tmp_path / "source", tmp_path / "checkpoint"

    def drain() -> None:
        read = session.readStream.schema("id LONG, seq LONG, day STRING, at TIMESTAMP").parquet(str(source))
        writer = read.writeStream.foreachBatch(table.sink("append", app_id="orders"))
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        until = time.monotonic() + 120
        while query.isActive and time.monotonic() < until:
            time.sleep(0.2)
        assert query.exception() is None, query.exception()
        assert not query.isActive

    for number in range(2):
        rows(session, range(3 * number, 3 * number + 3), 1).write.mode("append").parquet(str(source))
        drain()
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    drain()
    assert end.rows() == wanted(range(6), 1)
    named = {write.txn for entry in end.open().history() for write in entry.writes}
    assert named - {None} == {("orders", 0), ("orders", 1)}


def test_what_needs_a_driver_here_is_refused_by_name(session: Any, tmp_path: Path) -> None:
    with pytest.raises(sw.InvalidInputError, match="Spark Connect"):
        safewrite.spark.attach(session)
    uri = str(tmp_path / "t")
    table = sw.create(uri, SCHEMA, properties={"delta.enableChangeDataFeed": "true"})
    for found in (rows(session, range(2), 1), rows(session, range(2), 1).toArrow()):
        table.overwrite(found)
        assert table.row_count() == 2


def test_the_first_frame_of_a_stream_makes_the_table(session: Any, tmp_path: Path) -> None:
    """By a transaction, whose rows are checked before there is a table."""
    uri = str(tmp_path / "t")
    made: Callable[..., Any] = sw.open(uri, create=True).append
    assert made(rows(session, range(3), 1), txn=("app", 0)).rows == 3
    assert made(rows(session, range(3), 1), txn=("app", 0)).outcome == "already_committed"
    assert sw.open(uri).row_count() == 3
