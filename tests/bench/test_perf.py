"""The bench: each scenario in a tiny form gives whole figures; no time is judged here."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from bench.perf import __main__ as perf
from bench.perf import contention, imports, lone, report, writers
from bench.perf.contest import DELTA
from bench.perf.figures import Aim, Line, Scenario, at_least, at_most, interleave, paired
from bench.perf.lab import Lab
from bench.perf.log_length import make_table
from bench.perf.scale import TINY

if TYPE_CHECKING:
    from pathlib import Path


def measured(name: str) -> Scenario:
    """A tiny run, checked for what every scenario owes."""
    scenario = perf.measure(name, TINY)
    assert scenario.broken == ()
    assert scenario.name == name
    assert {writers.DELTALAKE} < {line.arm for line in scenario.lines}
    for line in scenario.lines:
        assert all(math.isfinite(value) and value > 0 for value in line.values), line
        assert (line.peer is None) == (line.ratios == ())
    plain = scenario.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    return scenario


def test_the_lone_append_counts_the_requests_of_every_arm() -> None:
    scenario = measured("lone")
    counted = [line for line in scenario.lines if "away" in line.case]
    assert {line.arm for line in counted} >= {*writers.ARMS, "safewrite dynamodb, keyed"}
    assert all(line.extra["requests_by_step"]["put_commit"] == 1 for line in counted)
    # Two temperatures, near and far, two arbiters.
    assert len(scenario.aims) == 8


@pytest.mark.long
def test_contention_acks_every_append_and_counts_attempts() -> None:
    scenario = measured("contention")
    for line in scenario.lines:
        assert line.extra["acked"] > 0
        if line.arm in writers.SAFE:
            assert line.extra["errors"] == 0
            assert line.extra["attempts/ack"] >= 1
    far = {line.arm: line for line in scenario.lines if "away" in line.case}
    assert far[writers.DELTALAKE].extra["attempts/ack"] >= 1
    assert far[writers.DYNAMODB].extra["requests_by_step"]["ddb_put_entry"] >= 1


@pytest.mark.long
def test_the_length_of_the_log_is_measured_on_both_ends() -> None:
    scenario = measured("log-length")
    assert {line.case for line in scenario.lines} == {
        f"version {version}, {temperature}" for version in TINY.log_versions for temperature in ("warm", "cold")
    }  # fmt: skip


@pytest.mark.long
def test_memory_is_measured_from_before_the_frame_to_the_peak() -> None:
    scenario = measured("memory")
    assert {line.case for line in scenario.lines} == {"local disk", "S3"}
    assert all(line.extra["peak MiB"] >= line.extra["held MiB"] for line in scenario.lines)


@pytest.mark.long
def test_imports_are_counted_up_to_the_first_ack() -> None:
    scenario = measured("imports")
    modules = {(line.case, line.arm): line.extra["modules"] for line in scenario.lines}
    for arm in writers.ARMS:
        assert 0 < modules["import", arm] < modules["to first ack", arm]


def test_awswrangler_is_held_against_the_first_append_in_time_and_memory() -> None:
    cell = {
        "steps": {name: {"s": 0.1, "modules": 9} for name in imports._STEPS},
        "peak_kib": 102_400,
        "modules": 1,
    }
    theirs = {"steps": {"import": {"s": 1.5, "modules": 9}}, "peak_kib": 204_800, "modules": 1}
    found = {**{arm: [cell] for arm in (*writers.ARMS, imports.LEAN)}, imports.WRANGLER: [theirs]}
    aims = imports._aims(imports._beside_wrangler(found))
    assert [round(aim.measured, 3) for aim in aims] == [0.2] * 3 + [0.5] * 3
    assert imports._beside_wrangler({writers.DELTALAKE: [cell]}) == []


def test_members_are_held_against_one_append_of_the_same_rows() -> None:
    scenario = perf.measure("members", TINY)
    assert scenario.broken == ()
    assert {line.peer for line in scenario.lines} == {None, "append", "append, keyed"}
    assert len(scenario.aims) == 8  # two arbiters, two forms, two peers


def test_a_long_log_made_of_copies_reads_as_a_table_and_takes_appends(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    with Lab(tmp_path, seaweed=True) as lab:
        for arm in writers.ARMS:
            place = make_table(lab, arm, 12)
            writers.opening(arm, place)(writers.make_frame(7))
            assert DeltaTable(place.uri, storage_options=dict(place.storage_options)).version() == 13
            assert writers.rows_in(place) == 12 * 100 + 7


def test_arms_take_turns_and_each_is_first_as_often() -> None:
    calls: list[str] = []
    found = interleave({name: lambda name=name: calls.append(name) or len(calls) for name in "abc"}, 3)
    assert "".join(calls) == "abcbcacab"
    assert found == {"a": [1, 6, 8], "b": [2, 4, 9], "c": [3, 5, 7]}


def test_ratios_are_of_the_same_round() -> None:
    assert paired([2.0, 9.0], [1.0, 3.0]) == (2.0, 3.0)
    assert paired([1.0], [0.0]) == (math.inf,)
    assert paired([0.0], [0.0]) == (1.0,)


@pytest.mark.parametrize(
    ("aim", "met"),
    [
        (at_most("", 1.0, 1.0), True),
        (at_most("", 1.0, 1.004), False),
        (at_least("", 2.0, 2.0), True),
        (at_least("", 2.0, 1.996), False),
    ],
)
def test_an_aim_that_is_nearly_met_is_missed(aim: Aim, met: bool) -> None:
    assert aim.met is met


def line(arm: str, **fields: object) -> Line:
    return replace(Line(case="4 processes", arm=arm, unit="ms", values=(1.0, 3.0)), **fields)  # type: ignore[arg-type]


def cell(**fields: object) -> dict[str, object]:
    return {"errors": {}, "missing_rows": 0, **fields}


@pytest.mark.parametrize(
    "bad", [cell(errors={"RetriesExhaustedError": 1}), cell(missing_rows=3), cell(missing_rows=-3)]
)
def test_a_row_that_is_not_safe_fails_the_bench(bad: dict[str, object]) -> None:
    good = {arm: [cell()] for arm in writers.ARMS}
    assert contention._broken("case", good, DELTA) == []
    assert contention._broken("case", {**good, writers.DYNAMODB: [cell(), bad]}, DELTA) != []


def test_errors_of_the_peer_are_shown_and_break_nothing() -> None:
    good = {arm: [cell()] for arm in writers.ARMS}
    assert (
        contention._broken(
            "case", {**good, writers.DELTALAKE: [cell(errors={"CommitFailedError": 9})]}, DELTA
        )
        == []
    )


def test_the_page_is_self_contained_and_says_missed() -> None:
    safe = line(writers.DYNAMODB, peer="deltalake", ratios=(1.5, 2.5), extra={"requests": 9})
    aims = tuple(lone._aims([safe], DELTA))
    scenario = Scenario(
        name="lone", title="A <lone> append", measures="ms", lines=(line(writers.DELTALAKE), safe), aims=aims,
        notes=("a note",),
    )  # fmt: skip
    plain = report.summary({"started": "now", "elapsed": "1 s"}, "python -m bench.perf", [scenario])
    page = report.render(plain, [scenario])
    assert "A &lt;lone&gt; append" in page
    assert "missed" in page
    assert "<svg" in page
    assert "<script" not in page
    assert "src=" not in page
    assert 'href="http' not in page
