"""What a sink is without Spark: its arguments are looked at early, and it travels without connections."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest

import safewrite as sw

ROWS = pa.table({"id": [1, 2]})


@pytest.fixture
def table(tmp_path: Path) -> sw.Table:
    """A table in a local folder."""
    table = sw.open(tmp_path / "t", create=True, partition_by=["id"], attempts_max=7)
    assert isinstance(table, sw.Table)
    return table


def test_an_epoch_is_a_batch_of_the_stream_wherever_the_sink_is_called(tmp_path: Path) -> None:
    table = sw.create(tmp_path / "t", ROWS.schema)
    sink = table.sink(app_id="orders")
    assert sink(ROWS, 0) is None
    travelled = pickle.loads(pickle.dumps(sink))
    assert repr(travelled) == repr(sink)
    assert travelled.last_receipt is None
    travelled(ROWS, 0)
    assert travelled.last_receipt.outcome is sw.Outcome.ALREADY_COMMITTED
    assert travelled.last_receipt.txn == ("orders", 0)
    with pytest.raises(sw.ReplayMismatchError, match="new app id"):
        travelled(ROWS.slice(1), 0)


def test_a_sink_of_a_table_that_was_made_anew_says_what_a_stream_can_do_and_goes_on(tmp_path: Path) -> None:
    """T3-E9: "open it again" helped no stream, whose sink kept the old table through every restart."""
    sink = sw.create(tmp_path / "t", ROWS.schema).sink(app_id="orders")
    sink(ROWS, 0)
    shutil.rmtree(tmp_path / "t")
    sw.create(tmp_path / "t", ROWS.schema)
    with pytest.raises(sw.ConflictError, match=r"start the stream again.*new checkpoint") as raised:
        sink(ROWS, 1)
    assert raised.value.kind is sw.Kind.TABLE_REPLACED
    sink(ROWS, 1)
    assert sink.last_receipt is not None
    assert sink.last_receipt.outcome is sw.Outcome.COMMITTED


def test_a_table_is_opened_again_as_it_was_opened(table: sw.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    assert table.reopen is not None
    monkeypatch.chdir("/")
    again = pickle.loads(pickle.dumps(table.reopen))()
    assert again.uri == table.uri
    assert again.limits == table.limits
    assert again._format.planner.first == table._format.planner.first


def test_a_table_whose_session_cannot_travel_has_no_sink(tmp_path: Path) -> None:
    session = boto3.Session(region_name="us-east-1")
    table = sw.open(tmp_path / "t", create=True, boto3_session=session)
    with pytest.raises(sw.InvalidInputError, match="boto3_session="):
        table.sink(app_id="orders")


@pytest.mark.parametrize(
    "arguments",
    [
        {"app_id": ""},
        {"app_id": None},
        {"app_id": "orders", "mode": "merge"},
        {"app_id": "orders", "schema_mode": "overwrite"},
    ],
)
def test_arguments_that_cannot_be_are_refused_at_once(table: sw.Table, arguments: dict[str, Any]) -> None:
    with pytest.raises(sw.InvalidInputError):
        table.sink(**arguments)


def test_an_app_id_is_asked_for(table: sw.Table) -> None:
    with pytest.raises(TypeError, match="app_id"):
        table.sink()  # type: ignore[call-arg]
