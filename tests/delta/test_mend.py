"""Repair finishes what was left unfinished, rescue brings back what vanished, once; sweep takes only rubbish."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from deltalake import DeltaTable

import safewrite as sw
from bench.servers.servers import Ministack
from safewrite.delta.connect import connect
from safewrite.delta.log.actions import commit_path
from safewrite.delta.maintenance import repair
from safewrite.delta.maintenance.inspection import Inspection
from safewrite.errors import InvalidInputError
from safewrite.protocol.ask import Limits
from safewrite.stores.aws import ServerClock
from tests.delta.logs import body
from tests.delta.spark import PREFIX, SPARK_INFO, Neighbourhood, neighbourhood, rows

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def here(ministack: Ministack) -> Neighbourhood:
    """A table on S3 with the rows 1 and 2 in version 1."""
    place = neighbourhood(ministack)
    place.create().append(rows(1, 2), key="event-1")
    return place


def finish(here: Neighbourhood, **more: Any) -> list[repair.Step]:
    found = here.inspect_table()
    return list(repair.finish(found, found.world, **more))


def rescue(here: Neighbourhood, found: Inspection | None = None, **more: Any) -> list[repair.Step]:
    world = connect(
        here.uri, lock_table=here.lock_table, arbiter=None, storage_options=here.options, boto3_session=None
    )
    return list(
        repair.rescue(
            found or here.inspect_table(), world.world, arbiter=world.arbiter, limits=Limits(), **more
        )
    )


def later(here: Neighbourhood, *, days: float) -> Inspection:
    """A survey made so many days from now, by the store's time."""
    found = here.inspect_table()
    found.clock = ServerClock(lambda: time.time() * 1000 + days * DAY_MS)
    return found


def exists(here: Neighbourhood, path: str) -> bool:
    listed = here.s3.list_objects_v2(Bucket=here.bucket, Prefix=f"{PREFIX}/{path}")
    return listed["KeyCount"] == 1


# --- finish -----------------------------------------------------------------------------------------
def test_an_unfinished_commit_is_finished_and_a_second_repair_finds_nothing(here: Neighbourhood) -> None:
    here.spark_entry(2, here.spark_temp(2, {"add": here.data_file(3)}), complete=False)
    assert here.ids() == [1, 2]
    steps = finish(here)
    assert [(step.status, step.version) for step in steps] == [("done", 2)]
    assert here.ids() == [1, 2, 3]
    assert finish(here) == []


def test_a_dry_run_finishes_nothing(here: Neighbourhood) -> None:
    here.spark_entry(2, here.spark_temp(2, {"add": here.data_file(3)}), complete=False)
    assert [step.status for step in finish(here, dry_run=True)] == ["would"]
    assert here.ids() == [1, 2]


def test_an_entry_of_a_dropped_table_is_not_finished_into_the_new_one(here: Neighbourhood) -> None:
    temp = here.spark_temp(2, {"add": here.data_file(3)})
    here.spark_entry(2, temp, complete=False, tableId="another")
    assert [step.status for step in finish(here)] == ["skipped"]
    assert here.ids() == [1, 2]


def test_an_entry_whose_temp_file_is_gone_is_reported_as_failed(here: Neighbourhood) -> None:
    here.spark_entry(2, f".tmp/{2:020d}.json.gone", complete=False)
    assert [step.status for step in finish(here)] == ["failed"]


# --- rescue -----------------------------------------------------------------------------------------
def test_a_vanished_append_is_rescued_once_however_often_it_is_asked_for(here: Neighbourhood) -> None:
    here.vanish(2, 7, 8)
    here.by_conditional_put(9)
    before = here.inspect_table()
    assert here.ids() == [1, 2, 9, 2000]
    first = rescue(here, before)
    assert [(step.status, step.version, step.rows) for step in first] == [("done", 4, 2)]
    # A second rescuer that looked before the first one had committed, and one that looks afterwards.
    second = rescue(here, before)
    assert [(step.status, step.version, step.detail) for step in second] == [
        ("done", 4, "by an earlier rescue")
    ]
    assert rescue(here) == []
    assert here.ids() == [1, 2, 7, 8, 9, 2000]


def test_a_rescue_that_landed_while_the_log_was_being_read_is_found_by_its_key(here: Neighbourhood) -> None:
    here.vanish(2, 7, 8)
    torn_look = here.inspect_table()
    rescue(here)
    torn_look.state = (
        here.inspect_table().state
    )  # commits were read before the first rescue, the state after it
    assert [(step.version, step.detail) for step in rescue(here, torn_look)] == [(3, "by an earlier rescue")]
    assert here.ids() == [1, 2, 7, 8, 2000]


def test_a_commit_whose_data_file_was_replaced_by_another_is_not_rescued(here: Neighbourhood) -> None:
    add, another = here.vanish(2, 7), here.data_file(*range(1000))
    source = {"Bucket": here.bucket, "Key": f"{PREFIX}/{another['path']}"}
    here.s3.copy_object(Bucket=here.bucket, Key=f"{PREFIX}/{add['path']}", CopySource=source)
    assert [step.status for step in rescue(here)] == ["skipped"]


def test_a_rescue_can_be_resolved_by_its_key(here: Neighbourhood) -> None:
    here.vanish(2, 7, 8)
    (step,) = rescue(here)
    key = step.detail.removeprefix("key ")
    receipt = sw.open(here.uri, lock_table=here.lock_table, storage_options=here.options).resolve(key)
    assert receipt is not None
    assert (receipt.version, receipt.rows) == (step.version, 2)


def test_a_dry_run_rescues_nothing(here: Neighbourhood) -> None:
    here.vanish(2, 7, 8)
    assert [(step.status, step.rows) for step in rescue(here, dry_run=True)] == [("would", 2)]
    assert here.ids() == [1, 2, 2000]


def test_a_commit_that_was_perhaps_not_acknowledged_is_not_rescued(here: Neighbourhood) -> None:
    here.vanish(2, 7, complete=False)
    assert rescue(here) == []


def test_a_stream_batch_is_rescued_with_its_txn_so_that_a_replay_is_skipped(here: Neighbourhood) -> None:
    here.vanish(2, 7, txn={"appId": "stream", "version": 5})
    assert [step.status for step in rescue(here)] == ["done"]
    assert DeltaTable(here.uri, storage_options=here.options).transaction_version("stream") == 5


@pytest.mark.long
def test_a_stream_that_went_on_is_not_set_back(here: Neighbourhood) -> None:
    here.vanish(2, 7, txn={"appId": "stream", "version": 5})
    here.put(commit_path(3), body({"commitInfo": {}}, {"txn": {"appId": "stream", "version": 6}}))
    assert [step.status for step in rescue(here)] == ["done"]
    assert DeltaTable(here.uri, storage_options=here.options).transaction_version("stream") == 6
    assert 7 in here.ids()


def test_rows_that_come_back_between_look_and_rescue_are_not_doubled(here: Neighbourhood) -> None:
    add = here.vanish(2, 7)
    found = here.inspect_table()
    here.put(commit_path(3), body({"commitInfo": SPARK_INFO}, {"add": add}))
    assert [step.status for step in rescue(here, found)] == ["failed"]
    assert here.ids() == [1, 2, 7, 2000]


@pytest.mark.sweep("info1", "info2")
@pytest.mark.parametrize(
    ("info", "more", "why"),
    [
        ({"isBlindAppend": False}, [], "read the table"),
        ({"operationParameters": {"mode": "Overwrite"}}, [], "read the table"),
        ({}, [{"remove": {"path": "x", "dataChange": True}}], "remove"),
        ({}, [{"metaData": {"id": "x"}}], "metaData"),
    ],
)
def test_what_is_no_blind_append_is_left_to_the_user(
    here: Neighbourhood, info: dict[str, Any], more: list[dict[str, Any]], why: str
) -> None:
    here.spark_entry(2, here.spark_temp(2, *more, {"add": here.data_file(7)}, info=info))
    here.by_conditional_put(9)
    (step,) = rescue(here)
    assert step.status == "skipped"
    assert why in step.detail


@pytest.mark.sweep("PAR1 cut")
@pytest.mark.parametrize("content", [None, b"PAR1 cut", b""])
def test_a_commit_whose_data_file_is_gone_or_cut_is_not_rescued(
    here: Neighbourhood, content: bytes | None
) -> None:
    add = here.vanish(2, 7)
    here.delete(add["path"]) if content is None else here.put(add["path"], content)
    (step,) = rescue(here)
    assert step.status == "skipped"
    assert add["path"] in step.detail
    assert here.ids() == [1, 2, 2000]


def test_a_commit_under_another_schema_is_not_rescued(here: Neighbourhood) -> None:
    here.vanish(2, 7)
    table = sw.open(here.uri, lock_table=here.lock_table, storage_options=here.options)
    table.append([{"id": 5, "note": "new"}], key="event-5", schema_mode="merge")
    (step,) = rescue(here)
    assert (step.status, "schema" in step.detail) == ("skipped", True)


# --- sweep ------------------------------------------------------------------------------------------
def test_only_old_temp_files_that_nobody_can_need_are_swept(here: Neighbourhood) -> None:
    landed, add = here.data_file(7), here.data_file(8)
    here.put(commit_path(2), body({"commitInfo": SPARK_INFO}, {"add": landed}))
    rubbish = here.spark_temp(1, {"add": landed})
    only_trace = here.spark_temp(1, {"add": add})
    under_way = here.spark_temp(3, {"add": add})
    found = later(here, days=8)
    steps = {step.target.removeprefix("_delta_log/"): step for step in repair.sweep(found, found.world)}
    assert {path: step.status for path, step in steps.items()} == {
        rubbish: "done", only_trace: "skipped", under_way: "skipped"
    }  # fmt: skip
    assert [exists(here, f"_delta_log/{path}") for path in (rubbish, only_trace, under_way)] == [
        False,
        True,
        True,
    ]


def test_temp_files_that_an_entry_names_or_that_are_young_are_not_swept(here: Neighbourhood) -> None:
    here.spark_temp(1)
    young, old = later(here, days=1.5), later(here, days=8)
    assert list(repair.sweep(young, young.world, older_than_days=2)) == []
    named = {entry.temp_path for entry in old.entries}
    swept = [step.target.removeprefix("_delta_log/") for step in repair.sweep(old, old.world, dry_run=True)]
    assert len(named) == 2
    assert not named & set(swept)
    assert len(swept) == 1


def test_nothing_is_swept_where_the_entries_are_not_known_or_the_age_is_less_than_a_day(
    here: Neighbourhood,
) -> None:
    without = here.inspect_table(arbiter="object-store")
    with pytest.raises(InvalidInputError):
        list(repair.sweep(without, without.world))
    found = here.inspect_table()
    with pytest.raises(InvalidInputError):
        list(repair.sweep(found, found.world, older_than_days=0.5))


# --- clear ------------------------------------------------------------------------------------------
def test_entries_of_a_dropped_table_are_cleared_and_those_of_versions_in_the_log_stay(
    here: Neighbourhood,
) -> None:
    here.spark_entry(1, f".tmp/{1:020d}.json.old", tableId="another")
    here.spark_entry(8, f".tmp/{8:020d}.json.old", tableId="another")
    here.spark_entry(9, f".tmp/{9:020d}.json.old", complete=False)
    steps = {step.version: step.status for step in repair.clear(here.inspect_table())}
    assert steps == {1: "skipped", 8: "done", 9: "done"}
    assert [int(entry.file_name[:20]) for entry in here.inspect_table().entries] == [0, 1]


def test_the_entry_of_the_next_version_is_cleared_only_by_force_and_without_its_temp_file(
    here: Neighbourhood,
) -> None:
    temp = here.spark_temp(2, {"add": here.data_file(3)})
    here.spark_entry(2, temp, complete=False)
    assert [step.status for step in repair.clear(here.inspect_table(), force=True)] == ["skipped"]
    here.delete(f"_delta_log/{temp}")
    assert [step.status for step in repair.clear(here.inspect_table())] == ["skipped"]
    assert [step.status for step in repair.clear(here.inspect_table(), force=True)] == ["done"]


def test_after_clearing_writers_go_on(here: Neighbourhood) -> None:
    here.spark_entry(8, f".tmp/{8:020d}.json.old", tableId="another")
    table = sw.open(here.uri, lock_table=here.lock_table, storage_options=here.options)
    with pytest.raises(sw.UnsafeConfigError):
        table.append(rows(3), key="event-3")
    list(repair.clear(here.inspect_table()))
    table.append(rows(3), key="event-3")
    assert here.ids() == [1, 2, 3]


def test_steps_are_ready_for_json(here: Neighbourhood) -> None:
    here.vanish(2, 7)
    (step,) = rescue(here)
    assert json.loads(json.dumps(step.to_dict()))["version"] == 3
