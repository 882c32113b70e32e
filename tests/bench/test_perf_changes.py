"""The bench of changes by key, tiny: every arm makes the same table, and one that is wrong is told; no time is judged."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from bench.perf import __main__ as perf
from bench.perf import change_tables, change_writers, changes
from bench.perf.change_tables import RECENT, SCATTERED, Keys, Load
from bench.perf.changes_child import (
    MERGE,
    OURS_DELTA,
    OURS_ICEBERG,
    OURS_MARKED,
    OURS_V3,
    OURS_V3_MARKED,
    OURS_VECTORS,
    UPSERT,
)
from bench.perf.figures import Line
from bench.perf.scale import TINY

LOAD = Load(rows=400, files=4, changes=30, rounds=2, keys=SCATTERED)


def applied(load: Load) -> dict[int, int]:
    """The table as a dictionary: ids and their sequences."""
    table = dict.fromkeys(range(load.rows), 1)
    for number in range(load.rounds):
        for row in change_tables.batch(load, number).to_pylist():
            if row["op"] == "d":
                del table[row["id"]]
            else:
                assert (row["id"] in table) is (row["op"] == "u")
                table[row["id"]] = row["lsn"]
    return table


@pytest.mark.parametrize("keys", [RECENT, SCATTERED])
def test_what_a_table_must_add_up_to_is_what_its_changes_say(keys: Keys) -> None:
    load = Load(**{**LOAD.to_dict(), "keys": keys, "changes": 10})
    table = applied(load)
    assert change_tables.wanted(load) == {
        "rows": len(table), "ids": sum(table), "lsns": sum(table.values()),
    }  # fmt: skip


def test_recent_keys_are_of_the_newest_part_and_scattered_ones_of_every_file() -> None:
    for keys, files in ((RECENT, {3}), (SCATTERED, {0, 1, 2, 3})):
        load = Load(rows=4000, files=4, changes=60, rounds=2, keys=keys)
        there = change_tables.batch(load, 0).filter(pa.compute.field("op") != "c").column("id").to_pylist()
        assert {number // 1000 for number in there} == files


def test_no_two_batches_have_a_key_in_common() -> None:
    ids = Counter(
        number for at in range(2) for number in change_tables.batch(LOAD, at).column("id").to_pylist()
    )
    assert max(ids.values()) == 1


@pytest.mark.long
@pytest.mark.parametrize(
    "arms",
    [
        (OURS_DELTA, MERGE),
        (OURS_ICEBERG, UPSERT),
        (OURS_MARKED, UPSERT),
        (OURS_VECTORS, MERGE),
        (OURS_V3_MARKED, OURS_V3),
    ],
)
def test_both_arms_of_a_format_make_the_same_table_and_the_ratio_is_to_the_peer(
    arms: tuple[str, str], tmp_path: Path
) -> None:
    broken: list[str] = []
    ours, peers = changes._pair(LOAD, tmp_path, arms, broken)
    assert broken == []
    assert (ours.arm, ours.peer, peers.peer) == (arms[0], arms[1], None)
    assert len(ours.values) == len(ours.ratios) == LOAD.rounds
    assert all(math.isfinite(value) and value > 0 for value in (*ours.values, *peers.values))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_of_wide_rows_the_memory_that_was_needed_at_one_time_is_told(tmp_path: Path) -> None:
    wide = Load(**{**LOAD.to_dict(), "columns": 2, "rounds": 1})
    assert change_tables.batch(wide, 0).column_names[-3:] == ["more_0", "more_1", "op"]
    broken: list[str] = []
    (line,) = changes._pair(wide, tmp_path, (MERGE,), broken)
    assert broken == []
    assert "of wide rows" in line.case
    assert {"peak MiB", "needed MiB", "needed files"} <= set(line.extra)


def test_a_table_that_does_not_add_up_is_told(tmp_path: Path) -> None:
    change_tables.make_delta(LOAD, tmp_path / "t")
    seen = change_tables.read_delta(tmp_path / "t")
    (said,) = changes._differences(LOAD, seen, "nobody's batches")
    assert said.startswith("nobody's batches: the table adds up to")


def test_a_doubled_key_of_many_writers_is_told(tmp_path: Path) -> None:
    place = change_writers.Place(str(tmp_path / "t"))
    change_writers.create_for(change_writers.DELTALAKE, place, 2)
    assert change_writers.wrong(place, 2) == ""
    assert change_writers.wrong(place, 3).startswith("2000 rows of 2000 keys")


def test_a_writer_that_meets_a_conflict_calls_again_with_the_same_name() -> None:
    called: list[str] = []

    def apply(batch: pa.Table, key: str) -> bool:
        called.append(key)
        return len(called) == 3

    assert change_writers._until_acked(apply, pa.table({}), "batch") == 3
    assert called == ["batch"] * 3


def test_each_ratio_has_its_aim_and_wide_rows_one_for_memory() -> None:
    def line(case: str, arm: str, peer: str, ratio: float, **extra: float) -> Line:
        return Line(case=case, arm=arm, unit="CPU s", values=(1.0,), peer=peer, ratios=(ratio,), extra=extra)

    aims = changes._aims(
        [
            line("recent keys, 9 changes", OURS_DELTA, MERGE, 0.26),
            line("recent keys, 9 changes, beside upsert", OURS_ICEBERG, UPSERT, 0.2),
            line("scattered keys, 9 changes", OURS_ICEBERG, MERGE, 1.01),
            line("scattered keys, 9 changes", OURS_MARKED, MERGE, 0.3),
            line("scattered keys, 9 changes, beside copy-on-write", OURS_V3_MARKED, OURS_V3, 0.4),
            line("scattered keys of wide rows, 9 changes", OURS_DELTA, MERGE, 9.0, **{"needed files": 2.9}),
            line("2 writers of disjoint keys", "safewrite dynamodb", change_writers.DELTALAKE, 5.1),
            line("1 writers of disjoint keys", "safewrite dynamodb", change_writers.DELTALAKE, 1.0),
        ],
        TINY,
    )
    assert [(aim.bound, round(aim.limit, 2), aim.met) for aim in aims] == [
        ("<=", 0.25, False), ("<=", 0.2, True), ("<=", 1.0, False), ("<=", 0.3, True), ("<=", 0.8, True), ("<=", 3.1, True), (">=", 5.0, True),
    ]  # fmt: skip


@pytest.mark.long
def test_the_whole_scenario_tiny_has_every_arm_and_no_wrong_table() -> None:
    scenario = perf.measure("changes", TINY)
    assert scenario.broken == ()
    assert {line.arm for line in scenario.lines} == {
        OURS_DELTA, OURS_VECTORS, MERGE, OURS_ICEBERG, OURS_MARKED, UPSERT, OURS_V3, OURS_V3_MARKED, *change_writers.ARMS,
    }  # fmt: skip
    assert all(line.extra["acked"] > 0 for line in scenario.lines if "writers" in line.case)
