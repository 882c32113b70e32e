"""How far a source was taken stands in the commit of its rows: whoever starts from elsewhere commits nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.errors import Kind
from safewrite.protocol.effects import Unknown
from safewrite.testing.steps import Answers, At
from tests.changes.test_decide import up
from tests.changes.test_tables import COMMIT, HOW, SCHEMA, Lake, frame, lake, log_lines

__all__ = ["lake"]

ROW = [{"a": 1, "b": "x", "s": 1, "t": 0, "value": "p"}]
WRITES: dict[str, Callable[..., Any]] = {
    "append": lambda table, **how: table.append(ROW, **how),
    "append_many": lambda table, key="k", **how: table.append_many([(key, ROW), (f"{key}2", ROW)], **how),
    "apply_changes": lambda table, **how: table.apply_changes(frame([up((9, 0))]), **HOW | how),
}


def refused(write: Callable[[], object]) -> sw.ConflictError:
    with pytest.raises(sw.ConflictError, match="Nothing was committed") as told:
        write()
    assert told.value.kind is Kind.POSITION_MOVED
    return told.value


@pytest.mark.sweep("delta-append_many", "iceberg-append", "delta-apply_changes")
@pytest.mark.parametrize("verb", WRITES)
def test_a_commit_moves_a_position_only_from_where_it_stands(lake: Lake, verb: str) -> None:
    write = WRITES[verb]
    assert lake.open().positions() == {}
    write(lake.open(), key="a", positions={"orders/0": (None, 5), "orders/1": (None, 7)})
    assert lake.open().positions() == {"orders/0": 5, "orders/1": 7}
    before = counted(lake)
    for start in (None, 4, 6):
        refused(lambda: write(lake.open(), key="b", positions={"orders/0": (start, 9)}))  # noqa: B023
    assert counted(lake) == before
    write(lake.open(), key="b", positions={"orders/0": (5, 9)})
    assert lake.open().positions() == {"orders/0": 9, "orders/1": 7}


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("verb", WRITES)
def test_of_two_jobs_with_one_source_the_second_commits_nothing(lake: Lake, verb: str) -> None:
    """It planned before the first one's commit, as a driver that was taken for dead (E7)."""
    table, rival = lake.open(), lake.open()
    write, moved = WRITES[verb], {"orders/0": (None, 5)}
    table.world = At(
        table.world, COMMIT[lake.format], "before", lambda: rival.append(ROW, key="first", positions=moved)
    )
    refused(lambda: write(table, key="second", positions=moved))
    assert counted(lake) == 1


@pytest.mark.sweep("iceberg")
def test_commits_of_other_sources_do_not_stand_in_the_way(lake: Lake) -> None:
    table, rival = lake.open(), lake.open()
    table.world = At(
        table.world, COMMIT[lake.format], "before", lambda: rival.append(ROW, positions={"b": (None, 1)})
    )
    table.append(ROW, positions={"a": (None, 1)})
    assert lake.open().positions() == {"a": 1, "b": 1}


@pytest.mark.sweep("delta", "iceberg-append_many")
@pytest.mark.parametrize("verb", WRITES)
def test_a_commit_whose_answer_is_lost_moves_the_position_once(lake: Lake, verb: str) -> None:
    table = lake.open()
    table.world = Answers(table.world, COMMIT[lake.format], times=1)
    moved = {"orders/0": (None, 5)}
    WRITES[verb](table, key="a", positions=moved)
    rows = counted(lake)
    WRITES[verb](lake.open(), key="a", positions=moved)  # the driver was killed before it saw the answer
    assert (counted(lake), lake.open().positions()) == (rows, {"orders/0": 5})


@pytest.mark.long
def test_a_call_in_doubt_is_decided_by_its_key_though_others_went_on_from_its_position(lake: Lake) -> None:
    table = lake.open()
    verify = "commit.read_back" if lake.format == "delta" else "swap.look"
    table.world = Answers(Answers(table.world, COMMIT[lake.format]), verify, Unknown("down"))
    with pytest.raises(sw.CommitUnknownError):
        table.append(ROW, key="a", positions={"orders/0": (None, 5)}, timeout_s=3)
    lake.open().append(ROW, key="b", positions={"orders/0": (5, 6)})
    again = lake.open().append(ROW, key="a", positions={"orders/0": (None, 5)})
    assert (again.outcome, counted(lake)) == ("already_committed", 2)


def test_a_group_of_which_nothing_is_left_leaves_positions_where_they_are(lake: Lake) -> None:
    lake.open().append_many([("a", ROW), ("b", ROW)])
    assert [one.outcome for one in lake.open().append_many([("b", ROW)], positions={"s": (3, 4)})] == [
        "already_committed"
    ]
    assert lake.open().positions() == {}


def test_no_rows_move_a_position_too(lake: Lake) -> None:
    """How a source that was set back, or a gap that was looked into, is declared."""
    lake.open().append(SCHEMA.empty_table(), positions={"s": (None, 9)})
    lake.open().append(SCHEMA.empty_table(), positions={"s": (9, 2)})
    assert (lake.open().positions(), counted(lake)) == ({"s": 2}, 0)


def test_a_table_that_is_made_by_the_first_append_has_its_position(tmp_path: Path) -> None:
    table = sw.open(str(tmp_path / "new"), create=True)
    table.append(ROW, positions={"s": (None, 1)})
    assert sw.open(str(tmp_path / "new")).positions() == {"s": 1}


def test_a_checkpoint_and_expiry_keep_positions(lake: Lake) -> None:
    for at in range(3):
        lake.open().append(ROW, positions={"s": (at or None, at + 1)})
    lake.tidy()
    lake.open().append(ROW, positions={"s": (3, 4)})
    assert lake.open().positions() == {"s": 4}


# --- tables that others set back -------------------------------------------------------------------------
def test_an_iceberg_table_that_was_rolled_back_has_the_positions_of_its_rows(tmp_path: Path) -> None:
    lake = Lake("iceberg", tmp_path)
    first = lake.open().append(ROW, positions={"s": (None, 5), "t": (None, 1)})
    lake.open().append(ROW, positions={"s": (5, 9)})
    lake._catalog.load_table("db.t").manage_snapshots().rollback_to_snapshot(first.version).commit()
    assert lake.open().positions() == {"s": 5, "t": 1}
    refused(lambda: lake.open().append(ROW, positions={"s": (9, 12)}))
    lake.open().append(ROW, positions={"s": (5, 9)})
    assert lake.open().positions() == {"s": 9, "t": 1}


@pytest.mark.long
def test_a_position_that_nothing_tells_after_a_roll_back_is_refused_and_not_guessed(tmp_path: Path) -> None:
    lake = Lake("iceberg", tmp_path)
    first = lake.open().append(ROW, positions={"s": (None, 5)})
    second = lake.open().append(ROW)
    lake.open().append(ROW, positions={"s": (5, 9)})
    table = lake._catalog.load_table("db.t")
    table.manage_snapshots().rollback_to_snapshot(second.version).commit()
    table.maintenance.expire_snapshots().by_id(first.version).commit()
    told = refused(lambda: lake.open().append(ROW, positions={"s": (5, 9)}))
    assert "'safewrite.position.s'" in str(told)
    refused(lambda: lake.open().positions())


def test_a_delta_table_that_replaced_another_has_none_of_its_positions(tmp_path: Path) -> None:
    """CREATE OR REPLACE gives the table a new id and keeps its log, txns included."""
    lake = Lake("delta", tmp_path)
    lake.open().append(ROW, positions={"s": (None, 5)})
    deltalake.write_deltalake(lake.uri, SCHEMA.empty_table(), mode="overwrite")
    log = max((tmp_path / "t" / "_delta_log").glob("*.json"))
    metadata = {
        **json.loads(next(line for line in log_lines(tmp_path) if "metaData" in line))["metaData"],
        "id": "another",
    }
    log.write_text(log.read_text().rstrip("\n") + "\n" + json.dumps({"metaData": metadata}) + "\n")
    assert lake.open().positions() == {}
    refused(lambda: lake.open().append(ROW, positions={"s": (5, 6)}))


@pytest.mark.parametrize("days", [1, 300])
def test_a_delta_table_that_forgets_txns_keeps_no_positions(tmp_path: Path, days: int) -> None:
    lake = Lake("delta", tmp_path)
    setting = {"delta.setTransactionRetentionDuration": f"interval {days} days"}
    deltalake.DeltaTable(lake.uri).alter.set_table_properties(setting, raise_if_not_exists=False)
    with pytest.raises(sw.UnsafeConfigError, match=r"how far sources.*Nothing was written.*UNSET"):
        lake.open().append(ROW, positions={"s": (None, 1)})


# --- what callers give -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "given",
    [
        {"s": 5},
        {"s": (1, None)},
        {"s": (0, -1)},
        {"s": (0, 2**63)},
        {"s": (0, 1.5)},
        {"s": (True, 1)},
        {"": (0, 1)},
        {"\ud800": (0, 1)},
        {"n" * 1025: (0, 1)},
        {1: (0, 1)},
        [("s", 0, 1)],
        "s",
    ],
)
def test_positions_that_mean_nothing_are_refused(given: Any, tmp_path: Path) -> None:
    table = sw.open(str(tmp_path / "t"), create=True)
    with pytest.raises(sw.InvalidInputError, match=r"\(from, to\).*Nothing was written"):
        table.append(ROW, positions=given)
    assert not (tmp_path / "t").exists() or not list((tmp_path / "t").rglob("*.parquet"))


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("name", ["größe/0", 'a"b', "a:b", "sp ace", "x" * 1024])
def test_names_of_sources_come_back_as_they_were_given(lake: Lake, name: str) -> None:
    lake.open().append(ROW, positions={name: (None, 2**63 - 1)})
    assert lake.open().positions() == {name: 2**63 - 1}


def counted(lake: Lake) -> int:
    if lake.format == "delta":
        return int(deltalake.DeltaTable(lake.uri).to_pyarrow_table().num_rows)
    found: pa.Table = lake._catalog.load_table("db.t").scan().to_arrow()
    return int(found.num_rows)


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("verb", WRITES)
def test_a_position_that_another_moved_since_this_table_was_looked_at_is_followed(
    lake: Lake, verb: str
) -> None:
    table, rival = lake.open(), lake.open()
    rival.append([], positions={"orders/0": (None, 5)})
    table.positions()
    table.positions()  # nothing is new: the next write need not look again
    rival.append(ROW, positions={"orders/0": (5, 9)})
    WRITES[verb](table, key="a", positions={"orders/0": (9, 12)})
    assert lake.open().positions() == {"orders/0": 12}


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("verb", WRITES)
def test_a_position_that_another_moved_from_where_this_table_saw_it_is_told(lake: Lake, verb: str) -> None:
    table, rival = lake.open(), lake.open()
    rival.append(ROW, positions={"orders/0": (None, 5)})
    table.positions()
    table.positions()
    rival.append(ROW, positions={"orders/0": (5, 9)})
    before = counted(lake)
    refused(lambda: WRITES[verb](table, key="a", positions={"orders/0": (5, 12)}))
    assert counted(lake) == before
    assert lake.open().positions() == {"orders/0": 9}


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("verb", ["delete", "overwrite", "apply_changes"])
def test_a_write_that_takes_rows_away_sees_those_that_came_since_the_last_look(lake: Lake, verb: str) -> None:
    """They were acknowledged before it was called, so it comes after them."""
    table, rival = lake.open(), lake.open()
    rival.append([ROW[0] | {"a": 5}])
    table.positions()
    table.positions()
    rival.append(ROW)
    where = [("a", "=", 1)]
    writes: dict[str, Callable[[], object]] = {
        "delete": lambda: table.delete(where),
        "overwrite": lambda: table.overwrite([ROW[0] | {"value": "new"}], where=where),
        "apply_changes": lambda: table.apply_changes(frame([up((5, 0), "new")]), **HOW),
    }
    writes[verb]()
    assert counted(lake) == (1 if verb == "delete" else 2)
