"""What Spark 3.5 must do as well: sinks, MERGE, and a batch of a killed driver once, in tables of both formats.

Its name keeps it out of `make test`, which runs with another Spark.  `make test-spark35` runs the change data job's tests
of tests/spark with this Spark too.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.errors import StreamingQueryException

from bench.servers.catalogs import CatalogKind
from safewrite.spark import configure, jars_from
from safewrite.testing.faults import FaultKind, RequestStep, Rule
from tests.integration.places import once, visible
from tests.spark.ends import End, delta, iceberg
from tests.spark.hooked import HookedTable
from tests.spark.lake import Lake
from tests.spark.session import JARS
from tests.spark.stream import Killed, Stream

# PySpark 3.5 looks at versions by Python's old distutils.
pytestmark = pytest.mark.filterwarnings("ignore:.*distutils:DeprecationWarning")
Hooked = Callable[[str], HookedTable]
Lakes = Callable[[CatalogKind], Lake]


@pytest.fixture(params=["delta", "sql"])
def end(request: pytest.FixtureRequest, hooked: Hooked, lakes: Lakes) -> End:
    """A new table of each format."""
    return delta(hooked("dynamodb")) if request.param == "delta" else iceberg(lakes("sql"))


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """Two batches."""
    stream = Stream(tmp_path)
    stream.feed("a", 1, 2, 3)
    stream.feed("b", 4, 5)
    return stream


def merge(end: End, *ids: int) -> None:
    """Rows that the table has get another value, the others are added; in plain SQL."""
    listed = ", ".join(f"({number}L)" for number in ids)
    end.spark.run(
        f"MERGE INTO {end.source} t USING (SELECT * FROM VALUES {listed} v(id)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET value = 'merged' "
        "WHEN NOT MATCHED THEN INSERT (id, value) VALUES (s.id, 'new')"
    )


def append(end: End, *ids: int, key: str) -> str:
    """Append a Spark DataFrame; what came of it."""
    with end.spark.careless():
        return end.open().append(end.frame(*ids), key=key).outcome


def values(end: End) -> dict[int, str]:
    """The value of each id, by Spark."""
    with end.spark.careless():
        return {row.id: row.value for row in end.spark.session.sql(f"SELECT * FROM {end.source}").collect()}


def test_this_is_spark_3_5_with_the_jars_that_are_pinned_for_it() -> None:
    assert pyspark.__version__.startswith("3.5.")
    pinned = {path.name for path in jars_from(JARS, iceberg=True, kafka=True)}
    assert {path.name for path in JARS.glob("*.jar")} - pinned == {"postgresql-42.7.7.jar"}
    builder: Any = configure(
        pyspark.sql.SparkSession.Builder(), jars=JARS, iceberg={"lake": {"type": "rest"}}
    )
    assert "delta-spark_2.12-" in builder._options["spark.jars"]


def test_every_batch_of_a_stream_is_one_commit(end: End, stream: Stream) -> None:
    before, sink = end.versions(), end.open().sink(app_id="orders")
    stream.run(end.spark, sink)
    assert end.ids() == once(1, 2, 3, 4, 5)
    assert end.versions() == before + 2
    assert sink.last_receipt is not None
    assert (sink.last_receipt.txn, sink.last_receipt.rows) == (("orders", 1), 2)


def test_a_batch_that_was_committed_and_not_checkpointed_is_written_once(end: End, stream: Stream) -> None:
    """E1."""
    sink = end.open().sink(app_id="orders")

    def dies_before_the_checkpoint(frame: Any, epoch: int) -> None:
        sink(frame, epoch)
        raise RuntimeError("the driver dies here")

    with pytest.raises(StreamingQueryException, match="the driver dies here"):
        stream.run(end.spark, dies_before_the_checkpoint)
    assert end.ids() == once(1, 2, 3)
    stream.run(end.spark, sink)
    assert end.ids() == once(1, 2, 3, 4, 5)


def test_two_streams_under_one_app_id_are_told_apart(end: End, stream: Stream, tmp_path: Path) -> None:
    """E3: rows are counted and named by 3.5's own hash, too."""
    stream.run(end.spark, end.open().sink(app_id="orders"))
    (tmp_path / "other").mkdir()
    other = Stream(tmp_path / "other")
    other.feed("a", 7, 8, 9)
    with pytest.raises(StreamingQueryException, match="ReplayMismatchError"):
        other.run(end.spark, end.open().sink(app_id="orders"))
    assert end.ids() == once(1, 2, 3, 4, 5)


def test_a_merge_beside_appends_with_keys_changes_and_adds_what_it_should(end: End) -> None:
    assert append(end, 1, 2, key="first") == "committed"
    merge(end, 2, 3)
    assert append(end, 4, key="second") == "committed"
    assert append(end, 1, 2, key="first") == "already_committed"
    assert values(end) == {1: "v1", 2: "merged", 3: "new", 4: "v4"}
    assert end.ids() == once(1, 2, 3, 4)


def test_changes_by_key_are_applied_by_tasks(end: End) -> None:
    """To rows that Spark's own library wrote, too; each batch once."""
    how: dict[str, Any] = {"keys": ["id"], "sequence_by": ["value"], "delete_when": "gone"}
    assert append(end, 1, 2, 3, key="first") == "committed"
    merge(end, 4)
    with end.spark.careless():
        for _ in range(2):
            changes = end.frame(2, 3, 5).selectExpr("id", "'w' AS value", "id = 3 AS gone")
            receipt = end.open().apply_changes(changes, key="changes", **how)
        assert receipt.outcome == "already_committed"
        assert (receipt.changes["updated"], receipt.changes["deleted"], receipt.changes["inserted"]) == (
            1,
            1,
            1,
        )
    assert values(end) == {1: "v1", 2: "w", 4: "new", 5: "w"}


@pytest.mark.parametrize(
    "step", [RequestStep.DDB_PUT_ENTRY, RequestStep.PUT_COMMIT], ids=lambda step: step.name
)
def test_a_merge_whose_answer_is_lost_at_the_hook_is_there_once(hooked: Hooked, step: RequestStep) -> None:
    """A2, A3: so it did come by the hook."""
    table = hooked("dynamodb")
    end = delta(table)
    end.spark.run(f"INSERT INTO {end.source} VALUES (1L, 'v1'), (2L, 'v2')")
    before = table.proxy.fired()
    table.proxy.plan(Rule(kind=FaultKind.LOST_ANSWER, steps=(step,), times=1))
    merge(end, 2, 3)
    assert table.proxy.fired() == before + 1
    table.proxy.plan()
    assert visible([end.ids(), table.place.ids(), table.place.replayed_ids()]) == once(1, 2, 3)
    assert [item["fileName"]["S"] for item in table.place.entries()] == [f"{v:020d}.json" for v in range(3)]


def test_a_driver_killed_between_commit_and_checkpoint_has_written_its_batch_once(
    hooked: Hooked, lakes: Lakes, stream: Stream
) -> None:
    """E1, with both formats in one driver and its Java process gone."""
    lake, table = lakes("sql"), hooked("dynamodb")
    ends = [delta(table), iceberg(lake)]
    sinks = [end.open().sink(app_id="orders") for end in ends]
    killed = Killed(stream, sinks, table.place, {lake.name: lake.properties})
    assert killed.run() == -signal.SIGKILL
    assert [end.ids() for end in ends] == [once(1, 2, 3)] * 2

    def both(frame: Any, epoch: int) -> None:
        for sink in sinks:
            sink(frame, epoch)

    stream.run(table.spark, both)
    assert [end.ids() for end in ends] == [once(1, 2, 3, 4, 5)] * 2
