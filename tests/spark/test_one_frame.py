"""One frame for each batch and app id, and the number of rows of a batch: what needs no Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

import safewrite as sw
from safewrite.delta.spark.transaction import SparkTransaction
from safewrite.delta.write.abc import Write
from safewrite.frames.spark import stream
from safewrite.frames.spark.batch import BatchOrigin
from safewrite.protocol.ask import Limits


@dataclass(frozen=True)
class Plan:
    """All that a frame is asked for."""

    text: str

    def sameSemantics(self, other: Plan) -> bool:  # noqa: N802 - PySpark's name
        return self == other


@dataclass(frozen=True)
class Running:
    """The queries that run."""

    ids: tuple[str, ...]

    def keySet(self) -> list[Any]:  # noqa: N802 - Java's name
        return [SimpleNamespace(toString=lambda one=one: one) for one in self.ids]


@pytest.fixture
def query(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What is written in a run and a batch of the query ``q``, by whatever says how it went."""
    monkeypatch.setattr(stream, "_slots", {})
    monkeypatch.setattr(stream, "_active", lambda _: Running(("q",)))

    def give(plan: str, *, run: str = "r", epoch: int = 0, error: Exception | None = None) -> None:
        batch = stream.StreamBatch("q", run, epoch, BatchOrigin("offsets1", "ab"))
        with stream.only_frame(Plan(plan), batch, "table", "orders"):  # type: ignore[arg-type]
            if error is not None:
                raise error

    return give


def test_another_frame_is_refused_in_the_run_and_batch_that_gave_one(query: Callable[..., None]) -> None:
    query("low")
    query("low")
    with pytest.raises(sw.ReplayMismatchError, match="two different frames"):
        query("high")
    query("low")
    query("high", epoch=1)
    query("other program", run="s", epoch=1)
    with pytest.raises(sw.ReplayMismatchError):
        query("high", run="s", epoch=1)


def test_a_frame_that_was_not_committed_may_be_followed_by_another(query: Callable[..., None]) -> None:
    with pytest.raises(sw.StorageError):
        query("low", error=sw.StorageError("Nothing was committed."))
    query("high")
    with pytest.raises(sw.StorageError):
        query("high", error=sw.StorageError("Nothing was committed by this second call."))
    with pytest.raises(sw.ReplayMismatchError):
        query("low")


def test_a_frame_in_doubt_is_followed_by_no_other(query: Callable[..., None]) -> None:
    with pytest.raises(sw.CommitUnknownError):
        query("low", error=sw.CommitUnknownError("It may have landed."))
    with pytest.raises(sw.ReplayMismatchError):
        query("high")
    query("low")


def test_queries_that_ended_are_forgotten(
    query: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    query("low")
    monkeypatch.setattr(stream, "_active", lambda _: Running(("p",)))
    batch = stream.StreamBatch("p", "r", 0, BatchOrigin("offsets1", "ab"))
    with stream.only_frame(Plan("low"), batch, "table", "orders"):  # type: ignore[arg-type]
        assert [name[2] for name in stream._slots] == ["p"]


@pytest.mark.parametrize("seems_there", [True, False])
def test_rows_are_asked_only_where_a_batch_seems_to_be_there_under_another_name(
    query: Callable[..., None], monkeypatch: pytest.MonkeyPatch, seems_there: bool
) -> None:
    batch = stream.StreamBatch("q", "r", 0, BatchOrigin("offsets1", "ab"))
    monkeypatch.setattr(stream, "batch_of", lambda *_: batch)
    asked = []

    def write(origin: BatchOrigin | None) -> str:
        asked.append(origin)
        if origin is not None:
            raise sw.ReplayMismatchError("Other offsets.")
        return "by its rows"

    def written() -> str:
        frame: Any = Plan("low")
        return stream.written(frame, ("orders", 0), "table", write, seems_there=seems_there)

    if seems_there:
        assert written() == "by its rows"
    else:
        with pytest.raises(sw.ReplayMismatchError, match="Other offsets"):
            written()
    assert asked == [batch.origin, None][: 1 + seems_there]


# --- the number of rows -----------------------------------------------------------------------------------
def commit_of(*stats: str | None) -> bytes:
    """A commit of Delta's, with a file for each of these statistics."""
    adds = [{"add": {"path": "f", **({"stats": one} if one else {})}} for one in stats]
    return b"\n".join(json.dumps(one, separators=(",", ":")).encode() for one in [{"commitInfo": {}}, *adds])


def candidate(named_by: Callable[[int], Write] | None = None) -> SparkTransaction:
    """A write of three rows."""
    write = Write("orders/7", "offsets1:3:ab", 3, fingerprint_int63=7)
    return SparkTransaction("mine", write, 0, Limits(), named_by=named_by)


def test_the_number_of_rows_is_that_of_the_files_and_never_guessed() -> None:
    two, three = '{"numRecords":2}', '{"numRecords":3}'
    write = candidate(lambda rows: Write("orders/7", f"offsets1:{rows}:ab", rows, fingerprint_int63=7))
    write.count(commit_of(two, three))
    assert (write.write.rows, write.write.files, write.write.fingerprint) == (5, 2, "offsets1:5:ab")
    with pytest.raises(sw.InternalError, match="does not say how many rows"):
        write.count(commit_of(two, None))
    with pytest.raises(sw.InternalError, match="3 rows were counted and 5 written"):
        candidate().count(commit_of(two, three))
