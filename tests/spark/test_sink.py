"""Streams into tables of both formats: each batch exactly once, whatever becomes of driver and checkpoint."""

from __future__ import annotations

import logging
import pickle
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

import safewrite as sw
from bench.servers.catalogs import CatalogKind
from tests.integration.places import once
from tests.spark.ends import End, delta, iceberg
from tests.spark.hooked import HookedTable
from tests.spark.lake import Lake
from tests.spark.stream import Killed, Stream

Hooked = Callable[[str], HookedTable]
Lakes = Callable[[CatalogKind], Lake]


BY_DELTA = pytest.mark.parametrize(
    "end", ["delta", pytest.param("sql", marks=pytest.mark.long)], indirect=True
)
BY_ICEBERG = pytest.mark.parametrize(
    "end", [pytest.param("delta", marks=pytest.mark.long), "sql"], indirect=True
)
"""Which format the short form has; each has some."""


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


@pytest.mark.long
@BY_ICEBERG
def test_every_batch_is_one_commit_and_its_receipt_is_logged(
    end: End, stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    before, sink = end.versions(), end.open().sink(app_id="orders")
    with caplog.at_level(logging.INFO, "safewrite"):
        stream.run(end.spark, sink)
    assert end.ids() == once(1, 2, 3, 4, 5)
    assert end.versions() == before + 2
    assert sink.last_receipt is not None
    assert (sink.last_receipt.txn, sink.last_receipt.rows) == (("orders", 1), 2)
    said = [record for record in caplog.records if hasattr(record, "epoch_id")]
    assert [record.receipt["rows"] for record in said] == [3, 2]
    assert f"2 rows in version {sink.last_receipt.version} of {end.open().uri}" in said[-1].getMessage()


@BY_DELTA
def test_a_batch_that_was_committed_and_not_checkpointed_is_written_once(end: End, stream: Stream) -> None:
    """E1."""
    sink = end.open().sink(app_id="orders")

    def dies_before_the_checkpoint(frame: Any, epoch: int) -> None:
        sink(frame, epoch)
        raise RuntimeError("the driver dies here")

    with pytest.raises(StreamingQueryException, match="the driver dies here"):
        stream.run(end.spark, dies_before_the_checkpoint)
    assert end.ids() == once(1, 2, 3)
    stream.run(end.spark, pickle.loads(pickle.dumps(sink)))
    assert end.ids() == once(1, 2, 3, 4, 5)


@pytest.mark.long
@BY_ICEBERG
def test_new_rows_after_a_lost_checkpoint_are_neither_skipped_nor_written_under_the_old_app_id(
    end: End, stream: Stream, tmp_path: Path
) -> None:
    """E2, the skip trap: epochs count from 0 again, and these rows are not those of epoch 0."""
    stream.run(end.spark, end.open().sink(app_id="orders"))
    before = end.versions()
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.rmtree(tmp_path / "source")
    stream.feed("c", 6, 7, 8)
    stream.feed("d", 9)
    with pytest.raises(StreamingQueryException, match=r"new app.id"):
        stream.run(end.spark, end.open().sink(app_id="orders"))
    assert end.ids() == once(1, 2, 3, 4, 5)
    assert end.versions() == before
    stream.run(end.spark, end.open().sink(app_id="orders-2"))
    assert end.ids() == once(1, 2, 3, 4, 5, 6, 7, 8, 9)


@pytest.mark.long
def test_two_streams_under_one_app_id_are_told_apart(end: End, stream: Stream, tmp_path: Path) -> None:
    """E3."""
    stream.run(end.spark, end.open().sink(app_id="orders"))
    (tmp_path / "other").mkdir()
    other = Stream(tmp_path / "other")
    other.feed("a", 7, 8, 9)
    with pytest.raises(StreamingQueryException, match="ReplayMismatchError"):
        other.run(end.spark, end.open().sink(app_id="orders"))
    assert end.ids() == once(1, 2, 3, 4, 5)


@pytest.mark.long
def test_overwrite_puts_each_batch_in_the_place_of_the_last(end: End, stream: Stream) -> None:
    stream.run(end.spark, end.open().sink("overwrite", app_id="orders"))
    assert end.ids() == once(4, 5)


@pytest.mark.long
def test_a_driver_killed_between_commit_and_checkpoint_has_written_its_batch_once(
    hooked: Hooked, lakes: Lakes, stream: Stream
) -> None:
    """E1, with both formats in one driver and its Java process gone."""
    lake = lakes("sql")
    ends = [delta(hooked("dynamodb")), iceberg(lake)]
    sinks = [end.open().sink(app_id="orders") for end in ends]
    assert ends[0].hooked is not None
    killed = Killed(stream, sinks, ends[0].hooked.place, {lake.name: lake.properties})
    assert killed.run() == -signal.SIGKILL
    assert [end.ids() for end in ends] == [once(1, 2, 3)] * 2

    def both(frame: Any, epoch: int) -> None:
        for sink in sinks:
            sink(frame, epoch)

    stream.run(ends[0].spark, both)
    assert [end.ids() for end in ends] == [once(1, 2, 3, 4, 5)] * 2


def test_a_table_that_forgets_batches_sooner_than_they_are_replayed_is_refused(hooked: Hooked) -> None:
    """E4."""
    end = delta(hooked("dynamodb"))
    assert end.hooked is not None
    end.hooked.run(
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 1 second')"
    )
    with end.spark.careless(), pytest.raises(sw.UnsafeConfigError, match="setTransactionRetentionDuration"):
        end.open().sink(app_id="orders")(end.frame(1), 0)
    assert end.ids() == once()
