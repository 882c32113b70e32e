"""Batches that are known by the offsets of their source: where those tell the rows, and never where they do not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

import safewrite as sw
from bench.servers.catalogs import CatalogKind
from safewrite.delta.spark import write as spark_delta
from safewrite.frames.fingerprint import Fingerprint
from safewrite.frames.spark import stream as offsets
from safewrite.frames.spark import tallied
from safewrite.iceberg.spark import write as spark_iceberg
from safewrite.iceberg.table import IcebergTable
from safewrite.table.sink import Sink
from safewrite.testing.steps import At
from tests.integration.places import once, rows
from tests.spark.ends import SCHEMA, End, delta, iceberg
from tests.spark.hooked import HookedTable
from tests.spark.lake import Lake
from tests.spark.session import Spark
from tests.spark.stream import Batches, Stream, dies

Hooked = Callable[[str], HookedTable]
Lakes = Callable[[CatalogKind], Lake]


@dataclass(frozen=True)
class Feed:
    """A Delta table as the source of a stream: each commit is a batch."""

    spark: Spark
    folder: Path

    def add(self, *ids: int) -> None:
        """One more commit of one file."""
        self.spark.write(self.folder / "source", rows(*ids))

    def read(self) -> Any:
        """The stream."""
        stream = self.spark.session.readStream.format("delta").option("maxFilesPerTrigger", 1)
        return stream.load(str(self.folder / "source"))

    def run(self, batches: Batches) -> None:
        """Write all batches that there are."""
        writer = self.read().writeStream.foreachBatch(batches)
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        with self.spark.careless():
            writer.trigger(availableNow=True).start().awaitTermination()

    def forget(self, *parts: str) -> None:
        """Delete parts of the checkpoint, or all of it."""
        for part in parts or (".",):
            shutil.rmtree(self.folder / "checkpoint" / part)


@dataclass(frozen=True)
class IcebergFeed(Feed):
    """The same of an Iceberg table."""

    table: IcebergTable
    source: str

    def add(self, *ids: int) -> None:
        self.table.append(rows(*ids))

    def read(self) -> Any:
        stream = self.spark.session.readStream.format("iceberg")
        return stream.option("streaming-max-files-per-micro-batch", 1).load(self.source)


@pytest.fixture
def delta_end(hooked: Hooked) -> End:
    """A new Delta table."""
    return delta(hooked("dynamodb"))


@pytest.fixture(params=["delta", pytest.param("sql", marks=pytest.mark.long)])
def end(request: pytest.FixtureRequest, hooked: Hooked, lakes: Lakes) -> End:
    """A new table of each format."""
    return delta(hooked("dynamodb")) if request.param == "delta" else iceberg(lakes("sql"))


@pytest.fixture
def feed(spark: Spark, tmp_path: Path) -> Feed:
    """Two batches of a Delta table."""
    return filled(Feed(spark, tmp_path))


@pytest.fixture
def way(
    request: pytest.FixtureRequest, spark: Spark, hooked: Hooked, lakes: Lakes, tmp_path: Path
) -> tuple[Feed, End]:
    """From a Delta table into another, from an Iceberg table into another."""
    if request.param == "delta":
        return filled(Feed(spark, tmp_path)), delta(hooked("dynamodb"))
    lake = lakes("sql")
    table = lake.create(SCHEMA)
    return filled(IcebergFeed(spark, tmp_path, table, lake.sql(table))), iceberg(lake)


def filled(feed: Feed) -> Feed:
    """With two batches in it."""
    feed.add(1, 2, 3)
    feed.add(4, 5)
    return feed


def random_values(frame: Any) -> Any:
    """The ids with values that are others each time."""
    return frame.selectExpr("id", "uuid() AS value")


def stored(end: End) -> dict[int, str]:
    """The value of each id."""
    with end.spark.careless():
        return {row.id: row.value for row in end.spark.session.sql(f"SELECT * FROM {end.source}").collect()}


def halves(sink: Sink) -> list[Batches]:
    """What writes the rows below 3, and what writes the others."""
    return [
        lambda frame, epoch: sink(frame.where("id < 3"), epoch),
        lambda frame, epoch: sink(frame.where("id >= 3"), epoch),
    ]


@pytest.mark.long
@pytest.mark.parametrize("way", [pytest.param("delta", marks=pytest.mark.long), "iceberg"], indirect=True)
def test_a_replayed_batch_is_known_by_its_offsets_when_its_values_are_others(way: tuple[Feed, End]) -> None:
    """E1, with ``uuid()`` in the batch."""
    receipts: list[Any] = []
    feed, end = way

    def batches(frame: Any, epoch: int) -> None:
        sink = end.open().sink(app_id="orders")
        sink(random_values(frame), epoch)
        receipts.append(sink.last_receipt)

    with pytest.raises(StreamingQueryException, match="the driver dies here"):
        feed.run(dies(batches))
    first = stored(end)
    feed.run(batches)
    assert end.ids() == once(1, 2, 3, 4, 5)
    assert first.items() <= stored(end).items()
    assert [receipt.outcome for receipt in receipts] == ["committed", "already_committed", "committed"]
    assert receipts[0].fingerprint == receipts[1].fingerprint
    assert [receipt.fingerprint.split(":")[:2] for receipt in receipts[1:]] == [
        ["offsets1", "3"],
        ["offsets1", "2"],
    ]
    assert [receipt.rows for receipt in receipts] == [3, 3, 2]
    assert [receipts[0].files > 0, receipts[2].files > 0] == [True, True]
    resolved = end.open().resolve("orders/0")
    assert resolved is not None
    assert (resolved.rows, resolved.fingerprint) == (3, receipts[0].fingerprint)


@pytest.mark.sweep("delta")
@pytest.mark.parametrize("way", ["delta", pytest.param("iceberg", marks=pytest.mark.long)], indirect=True)
def test_a_batch_known_by_its_offsets_is_computed_once_and_not_hashed(
    way: tuple[Feed, End], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(spark_delta, "computed")
    for module in (spark_iceberg, tallied):
        monkeypatch.delattr(module, "computed")
    monkeypatch.delattr(spark_iceberg, "observed")
    feed, end = way
    feed.run(end.open().sink(app_id="orders"))
    assert end.ids() == once(1, 2, 3, 4, 5)


@pytest.mark.long
@pytest.mark.parametrize("ids", [(6, 7, 8), pytest.param((1, 2, 3), marks=pytest.mark.long)])
def test_nothing_is_skipped_or_doubled_after_a_checkpoint_was_deleted(
    end: End, feed: Feed, ids: tuple[int, ...]
) -> None:
    """E2: whether the same rows are to be written anew, by a new query perhaps, is not for us to guess."""
    feed.run(end.open().sink(app_id="orders"))
    feed.forget()
    shutil.rmtree(feed.folder / "source")
    feed.add(*ids)
    with pytest.raises(StreamingQueryException, match=r"another checkpoint.*new app.id"):
        feed.run(end.open().sink(app_id="orders"))
    assert end.ids() == once(1, 2, 3, 4, 5)


@pytest.mark.long
def test_the_same_versions_of_a_source_that_was_made_anew_are_other_rows(delta_end: End, feed: Feed) -> None:
    """E2: the checkpoint has the same id and the new table the same versions, but another table's id."""
    feed.run(delta_end.open().sink(app_id="orders"))
    feed.forget("offsets", "commits")
    shutil.rmtree(feed.folder / "source")
    feed.add(6, 7, 8)
    feed.add(9, 10)
    with pytest.raises(StreamingQueryException, match="other offsets"):
        feed.run(delta_end.open().sink(app_id="orders"))
    assert delta_end.ids() == once(1, 2, 3, 4, 5)


@pytest.mark.long
def test_other_pieces_of_the_same_source_are_other_rows(delta_end: End, feed: Feed) -> None:
    """E2, E7: a driver that cuts the batches otherwise."""
    feed.run(delta_end.open().sink(app_id="orders"))
    offsets = feed.folder / "checkpoint" / "offsets"
    (offsets / ".1.crc").unlink()
    *rest, cut = (offsets / "1").read_text().splitlines()
    feed.add(6)
    moved = {**json.loads(cut), "reservoirVersion": json.loads(cut)["reservoirVersion"] + 1}
    (offsets / "1").write_text("\n".join([*rest, json.dumps(moved)]))
    (feed.folder / "checkpoint" / "commits" / "1").unlink()
    with pytest.raises(StreamingQueryException, match="other offsets"):
        feed.run(delta_end.open().sink(app_id="orders"))
    assert delta_end.ids() == once(1, 2, 3, 4, 5)


@pytest.mark.long
def test_two_halves_of_a_batch_do_not_pass_for_one_another(end: End, feed: Feed) -> None:
    """E3: they have the same offsets and as many rows."""
    feed.add(2, 3)
    sink = end.open().sink(app_id="orders")
    low, high = halves(sink)

    def both(frame: Any, epoch: int) -> None:
        if epoch == 2:
            low(frame, epoch)
            high(frame, epoch)

    for _ in range(2):  # the second time, the first half is a repeat
        with pytest.raises(StreamingQueryException, match="two different frames"):
            feed.run(both)
        assert end.ids() == once(2)
    first = halves(end.open().sink(app_id="orders"))[0]
    second = halves(end.open().sink(app_id="orders-high"))[1]

    def apart(frame: Any, epoch: int) -> None:
        first(frame, epoch)
        second(frame, epoch)

    feed.run(apart)
    assert end.ids() == once(2, 3)


@pytest.mark.long
def test_a_batch_of_more_rows_than_were_committed_is_no_repeat(end: End, feed: Feed) -> None:
    """E2: whoever corrects the program between commit and checkpoint hears that the first rows stand."""
    sink = end.open().sink(app_id="orders")
    with pytest.raises(StreamingQueryException, match="the driver dies here"):
        feed.run(dies(halves(sink)[0]))
    with pytest.raises(StreamingQueryException, match="another number of rows"):
        feed.run(sink)
    assert end.ids() == once(1, 2)


@pytest.mark.long
def test_the_same_frame_may_be_given_again(end: End, feed: Feed) -> None:
    """A program that tries again after an error, whether or not the first call had written."""
    sink = end.open().sink(app_id="orders")
    outcomes = []

    def batches(frame: Any, epoch: int) -> None:
        with pytest.raises(sw.WouldAlterError):
            sink(frame.selectExpr("id", "value", "1 AS more"), epoch)
        for _ in range(2):
            sink(frame.where("id > 0"), epoch)
            assert sink.last_receipt is not None
            outcomes.append(sink.last_receipt.outcome)

    feed.run(batches)
    assert outcomes == ["committed", "already_committed"] * 2
    assert end.ids() == once(1, 2, 3, 4, 5)


@pytest.mark.long
def test_a_batch_whose_values_are_checked_is_known_by_its_offsets_too(hooked: Hooked, feed: Feed) -> None:
    """Bad values are refused before anything is uploaded, so these rows are kept and looked at first."""
    end = delta(
        hooked("object-store"), pa.schema([SCHEMA.field("id"), SCHEMA.field("value").with_nullable(False)])
    )
    sink = end.open().sink(app_id="orders")
    with pytest.raises(StreamingQueryException, match="NULL in 1 of 3 rows"):
        feed.run(lambda frame, epoch: sink(frame.selectExpr("id", "nullif(value, 'v2') AS value"), epoch))

    def batches(frame: Any, epoch: int) -> None:
        sink(frame.selectExpr("id", "nullif(uuid(), value) AS value"), epoch)

    with pytest.raises(StreamingQueryException, match="the driver dies here"):
        feed.run(dies(batches))
    feed.run(batches)
    assert sink.last_receipt is not None
    assert sink.last_receipt.fingerprint.startswith("offsets1:2:")
    assert end.ids() == once(1, 2, 3, 4, 5)


@pytest.mark.long
def test_overwrites_and_batches_without_rows_are_known_by_their_offsets(end: End, feed: Feed) -> None:
    sink = end.open().sink("overwrite", app_id="orders")
    emptied = end.open().sink(app_id="none")
    found: list[Any] = []

    def batches(frame: Any, epoch: int) -> None:
        sink(random_values(frame), epoch)
        emptied(frame.where("id > 9"), epoch)
        found.extend([sink.last_receipt, emptied.last_receipt])

    with pytest.raises(StreamingQueryException, match="the driver dies here"):
        feed.run(dies(batches))
    assert end.ids() == once(1, 2, 3)
    feed.run(batches)
    assert end.ids() == once(4, 5)
    assert [receipt.fingerprint.split(":")[:2] for receipt in found] == [
        ["offsets1", number] for number in ("3", "0", "3", "0", "2", "0")
    ]
    assert [receipt.outcome for receipt in found] == (
        ["committed"] * 2 + ["already_committed"] * 2 + ["committed"] * 2
    )


@pytest.mark.long
def test_a_batch_that_another_driver_commits_meanwhile_is_found_by_its_offsets(
    delta_end: End, feed: Feed
) -> None:
    """E7: the number of rows is known before the search of what was committed meanwhile."""
    table, rival, hook = delta_end.open(), delta_end.open(), delta_end.hooked.hook()  # type: ignore[union-attr]
    assert isinstance(rival, sw.Table)
    receipts = []

    def batches(frame: Any, epoch: int) -> None:
        known = offsets.batch_of(frame, epoch)
        assert known is not None
        name = rival._format.planner.name

        def named(prepared: Any, *rest: Any) -> Any:
            return name(Offered(known.origin.fingerprint(prepared.rows), prepared.rows), *rest)

        rival._format.planner.name = named  # type: ignore[method-assign,assignment]
        act = lambda: receipts.append(rival.append(rows(1, 2, 3), txn=("orders", 0)))  # noqa: E731
        healthy = hook.world
        hook.world = At(healthy, "commit.put_entry", "before", act)
        try:
            receipts.append(table.append(random_values(frame), txn=("orders", epoch)))
        finally:
            hook.world = healthy
        raise RuntimeError("the driver dies here")

    with pytest.raises(StreamingQueryException, match="the driver dies here"):
        feed.run(batches)
    assert [receipt.outcome for receipt in receipts] == ["committed", "already_committed"]
    assert delta_end.ids() == once(1, 2, 3)


@dataclass(frozen=True)
class Offered:
    """Rows under a fingerprint that is not of their values."""

    fingerprint: Fingerprint
    rows: int
    volatile: tuple[str, ...] = ()
    column_digests: str = ""


# --- where the rows must speak for themselves -----------------------------------------------------------
def test_the_offsets_of_a_file_source_say_nothing(delta_end: End, tmp_path: Path) -> None:
    """E2: they are numbers in the checkpoint's own list."""
    stream, kinds = Stream(tmp_path), []
    stream.feed("a", 1, 2, 3)
    sink = delta_end.open().sink(app_id="orders")

    def batches(frame: Any, epoch: int) -> None:
        assert offsets.batch_of(frame, epoch) is None
        sink(frame, epoch)
        assert sink.last_receipt is not None
        kinds.append(sink.last_receipt.fingerprint.split(":")[0])

    stream.run(delta_end.spark, batches)
    assert kinds == ["spark1"]


@pytest.mark.long
def test_frames_that_are_not_of_the_running_batch_have_no_offsets(delta_end: End, feed: Feed) -> None:
    found = []

    def batches(frame: Any, epoch: int) -> None:
        others = [delta_end.frame(1), frame.sparkSession.newSession().range(1)]
        found.append([offsets.batch_of(one, epoch) for one in others])
        found.append([offsets.batch_of(frame, epoch + 1)])
        assert offsets.batch_of(frame.where("id > 2"), epoch) is not None

    feed.run(batches)
    assert found == [[None, None], [None]] * 2
    with delta_end.spark.careless():
        assert offsets.batch_of(delta_end.frame(1), 0) is None


@pytest.mark.long
def test_a_session_without_statistics_of_files_has_them_in_ours(delta_end: End, feed: Feed) -> None:
    sink = delta_end.open().sink(app_id="orders")
    with delta_end.spark.setting("spark.databricks.delta.stats.collect", "false"):
        feed.run(sink)
    assert sink.last_receipt is not None
    assert sink.last_receipt.fingerprint.startswith("offsets1:2:")
    assert delta_end.ids() == once(1, 2, 3, 4, 5)


@pytest.mark.long
def test_a_batch_that_was_named_by_its_rows_is_known_by_them(
    end: End, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = end.open().sink(app_id="orders")
    monkeypatch.setattr(offsets, "batch_of", lambda *_: None)
    with pytest.raises(StreamingQueryException, match="the driver dies here"):
        feed.run(dies(sink))
    monkeypatch.undo()
    feed.run(sink)
    assert end.ids() == once(1, 2, 3, 4, 5)
