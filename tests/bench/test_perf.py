"""The bench: each scenario in a tiny form gives whole figures; no time is judged here."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from bench.perf import __main__ as perf
from bench.perf import contender, contention, curves, functions, group, imports, lone, plots, report, writers
from bench.perf.contest import DELTA, alone, iceberg
from bench.perf.figures import Aim, Curve, Line, Scenario, at_least, at_most, interleave, paired
from bench.perf.harness import Harness
from bench.perf.log_length import make_table
from bench.perf.scale import TINY
from bench.servers.aws_lambda.function import Invocation

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


@pytest.mark.long
def test_the_lone_append_counts_the_requests_of_every_arm() -> None:
    scenario = measured("lone")
    counted = [line for line in scenario.lines if "away" in line.case]
    assert {line.arm for line in counted} >= {*writers.ARMS, "safewrite dynamodb, keyed"}
    assert all(line.extra["requests_by_step"]["put_commit"] == 1 for line in counted)
    # Two temperatures, near and far, two arbiters; warm and near with a key, too.
    assert len(scenario.aims) == 10


@pytest.mark.long
def test_contention_acks_every_append_and_counts_attempts() -> None:
    scenario = measured("contention")
    for line in scenario.lines:
        assert line.extra["acked"] > 0
        if line.arm != writers.DELTALAKE:
            assert line.extra["errors"] == 0
            assert line.extra["attempts/ack"] >= 1
    far = {line.arm: line for line in scenario.lines if "away" in line.case}
    assert far[writers.DELTALAKE].extra["attempts/ack"] >= 1
    assert far[f"{writers.DYNAMODB} alone"].extra["requests_by_step"]["ddb_put_entry"] >= 1


@pytest.mark.long
def test_writers_that_share_are_measured_next_to_those_that_do_not_and_to_mere_uploads() -> None:
    scenario = measured("group")
    found = {line.arm: line for line in scenario.lines}
    judged = (*writers.SAFE, *alone(writers.SAFE))
    assert set(found) == {*judged, writers.STAGED, writers.DELTALAKE}
    assert all(found[arm].extra["acks/commit"] >= 1 for arm in judged)
    assert found[writers.STAGED].extra["acks/commit"] is None
    assert found[writers.STAGED].extra["requests_by_step"] == {"put_data": 1.0}


def test_the_aims_of_shared_commits_are_held_against_deltalake_uploads_and_writers_alone() -> None:
    def cell_at(rate: float, *, versions: int = 0, slowest_s: float = 1.0) -> dict[str, Any]:
        return {
            "commits_per_s": rate, "acked": 100, "versions": versions, "latencies_s": [0.1, slowest_s], "attempts": [1],
            "requests": {}, "errors": {}, "last_s": 1.0, "fewest": 1,
        }  # fmt: skip

    found = {
        **{key: [cell_at(40.0, versions=4, slowest_s=2.0)] for key in writers.SAFE},
        **{key: [cell_at(5.0, versions=100, slowest_s=3.0)] for key in alone(writers.SAFE)},
        writers.STAGED: [cell_at(60.0)],
        writers.DELTALAKE: [cell_at(4.0, versions=100)],
    }
    aims = {aim.text.partition(": ")[2]: aim for aim in group._aims("64 processes", 64, found, DELTA)}
    assert [round(aim.measured, 2) for aim in aims.values()] == [0.83, 25.0, 1.0]
    assert [aim.met for aim in aims.values()] == [False, True, True]
    sql = iceberg("sql")
    theirs = {
        sql.safe[0]: found[writers.DYNAMODB],
        alone(sql.safe)[0]: found[writers.STAGED],
        writers.STAGED: [cell_at(200.0)],
        sql.peer: [cell_at(1.0)],
    }
    assert group._aims("64 processes", 64, theirs, sql)[0].measured == pytest.approx(40.0 / 20.0)
    few = group._aims("16 processes", 16, found, DELTA)
    assert not [aim for aim in few if "acks/commit" in aim.text]


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
    modules = {
        (line.case, line.arm): line.extra["modules"] for line in scenario.lines if "modules" in line.extra
    }
    for arm in writers.ARMS:
        assert 0 < modules["import", arm] < modules["to first ack", arm]
    costs = {line.arm for line in scenario.lines if line.case.startswith("import, by package")}
    assert {"safewrite", "pyarrow", "numpy", "urllib3", "botocore", "the standard library"} <= costs


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


@pytest.mark.long
def test_members_are_held_against_one_append_of_the_same_rows() -> None:
    scenario = perf.measure("members", TINY)
    assert scenario.broken == ()
    assert {line.peer for line in scenario.lines} == {None, "append", "append, keyed"}
    assert len(scenario.aims) == 8  # two arbiters, two forms, two peers


@pytest.mark.long
def test_a_long_log_made_of_copies_reads_as_a_table_and_takes_appends(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    with Harness(tmp_path, seaweed=True) as lab:
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
    good = {arm: [cell()] for arm in (*DELTA.contended, DELTA.peer)}
    assert contention._broken("case", good, DELTA) == []
    assert contention._broken("case", {**good, f"{writers.DYNAMODB} alone": [cell(), bad]}, DELTA) != []


def test_contenders_share_no_commit_and_the_figures_say_so() -> None:
    place = writers.Place("s3://lake/table")
    for arm in DELTA.contended:
        assert writers.settings(arm, place) == {
            **writers.settings(arm.removesuffix(" alone"), place),
            "group": "never",
        }
    assert "group" not in writers.settings(writers.OBJECT_STORE, place)
    assert 'group="never"' in DELTA.contending


def test_errors_of_the_peer_are_shown_and_break_nothing() -> None:
    good = {arm: [cell()] for arm in (*DELTA.contended, DELTA.peer)}
    assert (
        contention._broken(
            "case", {**good, writers.DELTALAKE: [cell(errors={"CommitFailedError": 9})]}, DELTA
        )
        == []
    )


# --- what a message costs in Lambda ---------------------------------------------------------------------
@pytest.mark.long
def test_a_message_in_lambda_is_billed_for_every_arm_and_none_of_safewrites_is_lost() -> None:
    scenario = perf.measure("lambda", TINY)
    assert scenario.broken == ()
    arms = [line.arm for line in scenario.lines]
    assert arms[:2] == list(writers.SAFE)
    assert all(line.extra["acked"] == TINY.function_messages for line in scenario.lines[:2])
    assert len(scenario.aims) == (4 if functions.WRANGLER in arms else 0)


def invocation(duration_ms: float, init_ms: float = 0, status: str = "result") -> Invocation:
    body = (
        b"[]" if status == "result" else b'{"errorType": "CommitFailedError", "errorMessage": "a conflict"}'
    )
    return Invocation(
        "id", status, body, 1, cold=bool(init_ms), duration_ns=round(duration_ms * 1e6), init_ns=round(init_ms * 1e6)
    )  # type: ignore[arg-type]  # fmt: skip


def test_a_bill_has_every_invocation_rounded_up_the_failed_ones_too() -> None:
    cell = functions.Cell(acked=4)
    for one in (invocation(10.2, init_ms=100.5), invocation(10.2), invocation(30, status="error")):
        cell.add(one)
    assert cell.billed_ms == 111 + 11 + 30
    assert (cell.per_ack, round(cell.warm_per_ack, 3)) == (152 / 4, 12.6)
    assert (cell.init_ms, dict(cell.errors)) == ([100.5], {"CommitFailedError: a conflict": 1})


def test_without_an_ack_the_bill_is_for_nothing() -> None:
    assert functions.Cell(billed_ms=9).per_ack == math.inf


def test_lost_and_doubled_rows_are_those_of_the_table_against_the_acks() -> None:
    whole = [0, 1, 2, 3, 4, 5]
    assert functions.flaws(whole, {0, 1, 2}, 2) == (0, 0)
    assert functions.flaws(whole, {0, 2}, 2) == (0, 0), "a message may land before its answer is lost"
    assert functions.flaws([0, 1, 4, 5], {0, 1, 2}, 2) == (2, 0)
    assert functions.flaws([*whole, 4, 5, 5], {0, 1, 2}, 2) == (0, 3)


def test_the_bill_is_held_against_awswranglers_of_the_same_round() -> None:
    def cells(*bills: int) -> list[functions.Cell]:
        return [functions.Cell(billed_ms=bill, acked=10, warm_ms=[bill / 2], init_ms=[1.0]) for bill in bills]

    found = {
        writers.DYNAMODB: cells(100, 90),
        writers.OBJECT_STORE: cells(50, 30),
        functions.WRANGLER: cells(100, 30),
    }
    assert [aim.measured for aim in functions._aims(found)] == [2.0, 2.0, 0.75, 0.75]
    assert [line.ratios for line in functions._lines(found, TINY)] == [(1.0, 3.0), (0.5, 1.0), ()]
    assert functions._aims({arm: found[arm] for arm in writers.SAFE}) == []


@pytest.mark.parametrize("flaw", ["unacked", "failed", "lost", "doubled"])
def test_a_message_that_safewrite_fails_without_a_fault_fails_the_bench(flaw: str) -> None:
    good = {arm: [functions.Cell(acked=1)] for arm in writers.SAFE}
    assert functions._broken({**good, functions.WRANGLER: [functions.Cell(**{flaw: 1})]}) == []
    bad = functions.Cell(**{flaw: 1})
    assert len(functions._broken({**good, writers.OBJECT_STORE: [functions.Cell(), bad]})) == 1


# --- curves -----------------------------------------------------------------------------------------------
@pytest.mark.long
def test_the_curves_have_a_point_for_every_cell_and_each_event_is_there_once(tmp_path: Path) -> None:
    scenario = perf.measure("curves", TINY)
    assert scenario.broken == ()
    assert len(scenario.lines) == len(curves.cells(TINY)) + len(TINY.curve_files)
    assert [sum(map(len, curve.series.values())) for curve in scenario.curves] == [8, 8, 8, 4, 2]
    plain = report.summary({"started": "now", "elapsed": "1 s"}, "python -m bench.perf", [scenario])
    report.write(plain, [scenario], tmp_path)
    assert (tmp_path / "curves.svg").read_text().startswith("<svg")


def test_a_cell_that_cannot_end_in_time_is_left_out_and_the_others_come_for_both_arbiters() -> None:
    found = curves.cells(perf.FULL)
    arms = {
        cell: {one.arm for one in found if (one.case, one.events) == (cell.case, cell.events)}
        for cell in found
    }
    alone = {(cell.writers, cell.events) for cell, of in arms.items() if of == {writers.DYNAMODB}}
    assert alone == {(64, 100)}
    assert len(found) == len(set(found)) == 2 * (5 + 4 * 3) - 1


def test_commits_are_counted_in_the_window_or_to_the_last_where_none_was() -> None:
    found = {"window_s": 4.0, "acked_in_window": 8, "acked": 9, "last_s": 5.0}
    assert curves.commits_per_s(found) == 2.0
    assert curves.commits_per_s({**found, "acked_in_window": 0}) == 9 / 5
    assert curves.commits_per_s({**found, "acked_in_window": 0, "acked": 0}) == 0.0


def test_a_quantile_is_one_of_the_values() -> None:
    assert [curves.quantile([1.0, 2.0, 3.0, 4.0], q) for q in (0, 0.5, 0.99)] == [1.0, 3.0, 4.0]
    assert math.isnan(curves.quantile([], 0.5))


@pytest.mark.parametrize(("bad", "count"), [({}, 0), ({"errors": {"E": 1}}, 1), ({"missing_rows": -10}, 1)])
def test_a_cell_whose_writes_are_not_safe_is_told(bad: dict[str, object], count: int) -> None:
    assert len(contention.unsound("case", {"errors": {}, "missing_rows": 0, **bad})) == count


class Clock:
    """A clock that only sleeping and appending move."""

    def __init__(self, append_s: float) -> None:
        self.now = 100.0
        self._append_s = append_s

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def append(self, frame: object) -> int:
        self.now += self._append_s
        return 1


@pytest.mark.parametrize(
    ("append_s", "acks"),
    [(0.25, [(0.75, 0.25), (1.75, 0.25), (2.75, 0.25)]), (1.5, [(2.0, 1.5), (3.5, 2.0)])],
    ids=["in time", "late"],
)
def test_a_commit_that_was_due_while_another_was_under_way_has_waited(
    monkeypatch: pytest.MonkeyPatch, append_s: float, acks: list[tuple[float, float]]
) -> None:
    clock = Clock(append_s)
    monkeypatch.setattr(contender, "time", clock)
    config = {"window_s": 3.0, "every_s": 1.0}
    found = contender._append_until(clock.append, None, 100.5, 100.0, config)
    assert [ack[:2] for ack in found["acks"]] == acks


def test_flat_out_a_commit_begins_when_the_last_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(0.75)
    monkeypatch.setattr(contender, "time", clock)
    found = contender._append_until(clock.append, None, 100.0, 100.0, {"window_s": 2.0})
    assert [ack[:2] for ack in found["acks"]] == [(0.75, 0.75), (1.5, 0.75), (2.25, 0.75)]


def test_a_page_draws_curves_where_there_are_some() -> None:
    points = {"one": [(1, 2.0), (64, 0.5)], "other": [(1, 3.0), (64, 1.0)]}
    drawn = Curve(title="Flat <out>", x="writers", y="commits/s", series=points)
    scenario = Scenario(name="curves", title="", measures="", lines=(line("one"),), curves=(drawn,) * 3)
    text = str(plots.curves(scenario))
    assert text.count("Flat &lt;out&gt;") == 3
    plain = report.summary({"started": "now", "elapsed": "1 s"}, "python -m bench.perf", [scenario])
    assert "commits/s" in report.render(plain, [scenario])


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
