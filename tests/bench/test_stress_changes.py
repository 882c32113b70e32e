"""Tables under a change log, small: the log and its checker in memory, a run end to end, and runs that must fail."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bench.stress import change_check, change_run
from bench.stress.change_check import Ack, ChangeFlaw, Checker, Seen
from bench.stress.change_target import FinalLooks
from bench.stress.plans import change_arms, menu
from bench.stress.plans.plan import Settings, place_traps
from bench.stress.writers import change_log
from bench.stress.writers.change_log import COLUMNS, ChangeLog, LogPlan, draw
from safewrite.testing.faults import FaultKind, Request, RequestStep, classify
from tests.bench.runs import arm, stress

pytestmark = pytest.mark.xdist_group("stress-changes")  # one worker makes the run that these tests look at

PLAN = LogPlan(changes=600, keys=40, batch=12)
LSN = COLUMNS.index("lsn")
SMALL = ("--seed", "5", "--writers", "4", "--changes", "160", "--pause-s", "1", "--limit-s", "120")
STEPS = ("--steps", "commit.put_entry,commit.put_commit")
QUIET = ("--steps", "none", "--no-proxy")
"""Without faults and kills: of what is taken out, races and late changes alone must tell."""
Rows = list[tuple[Any, ...]]


# --- the log ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(12))
def test_the_oracle_makes_the_sources_table_of_the_batches_in_whatever_order_they_come(seed: int) -> None:
    """Source and oracle are written apart, so an error in one shows here."""
    log = draw(seed, PLAN)
    assert dict(change_check.meaning_of(log).rows) == dict(log.source)


def test_a_log_has_every_kind_of_change() -> None:
    log = draw(1, PLAN)
    assert set(Counter(change.op for change in log.changes)) == {"c", "u", "d", "t"}
    born = Counter(change.key for change in log.changes if change.op == "c")
    assert log.moves
    assert max(born.values()) > 1, "nothing came back after its deletion"
    told = change_check.meaning_of(log)
    assert told.floor is not None


def test_a_log_has_values_that_few_have_thought_of() -> None:
    rows = [change.values for change in draw(1, LogPlan(changes=3000)).changes if change.values]
    scores = {repr(row[COLUMNS.index("score")]) for row in rows}
    assert {"nan", "inf", "-inf", "-0.0", "None"} <= scores
    assert {"", None} <= {row[COLUMNS.index("name")] for row in rows}
    assert any(row[COLUMNS.index("amount")] is None for row in rows)


def test_every_change_is_in_a_batch_and_both_halves_of_a_changed_key_are_in_one() -> None:
    log = draw(2, PLAN)
    assert {repr(change) for change in log.changes} == {repr(one) for batch in log.batches for one in batch}
    assert sum(map(len, log.batches)) > len(log.changes), "no change is in two batches"
    for old, new, lsn in log.moves:
        for batch in log.batches:
            halves = {(one.op, one.key) for one in batch if one.lsn == lsn} & {("d", old), ("c", new)}
            assert len(halves) in (0, 2)


def test_no_key_has_two_changes_of_one_sequence() -> None:
    log = draw(3, PLAN)
    assert max(Counter((change.key, change.lsn) for change in log.changes).values()) == 1
    cuts = {change.lsn for change in log.changes if change.op == "t"}
    assert not [change for change in log.changes if change.lsn in cuts and change.op != "t"]


def test_one_batch_in_five_is_delivered_twice_and_each_at_least_once() -> None:
    log = draw(4, PLAN)
    dealt = [log.of_writer(place, 3) for place in range(3)]
    assert Counter(number for mine in dealt for number in mine) == Counter(log.deliveries)
    assert set(log.deliveries) == set(range(len(log.batches)))
    assert change_log.twice(log) == pytest.approx(len(log.batches) / 5, abs=1)


def test_a_stream_that_has_delivered_all_delivers_again_until_its_kills_have_come() -> None:
    log = draw(4, PLAN)
    mine = log.of_writer(2, 5)
    again = [log.batch_of(2, 5, seq) for seq in range(len(mine) + 2)]
    assert tuple(again) == (*mine, *mine[:2])


def test_a_seed_replays_the_log_and_another_makes_another() -> None:
    assert repr(draw(7, PLAN)) == repr(draw(7, PLAN))
    assert draw(7, PLAN).deliveries != draw(8, PLAN).deliveries


def test_frames_keep_what_a_change_says() -> None:
    log = draw(1, PLAN)
    table = change_log.to_arrow(log.batches[0])
    assert [row["op"] for row in table.to_pylist()] == [change.op for change in log.batches[0]]
    rows = list(zip(*(table.column(name).to_pylist() for name in COLUMNS), strict=True))
    for change, row in zip(log.batches[0], rows, strict=True):
        if change.values is not None:
            assert change_check.spelled(row) == change_check.spelled(change.values)
    assert change_log.to_arrow([]).schema == table.schema


# --- the checker --------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def log() -> ChangeLog:
    return draw(1, PLAN)


def good_rows(log: ChangeLog) -> Rows:
    return list(log.source.values())


def good_acks(log: ChangeLog) -> list[Ack]:
    """Receipts as the oracle would write them, in the order of delivery."""
    oracle, acks = change_check.Oracle(), []
    for number in log.deliveries:
        if any(ack.batch == number for ack in acks):
            acks.append(next(ack for ack in acks if ack.batch == number))
            continue
        told = oracle.apply(
            [
                change_check.Change(
                    change_check.OPERATIONS[one.op],  # type: ignore[arg-type]
                    (one.lsn,),
                    one.key or (),
                    one.values,
                )
                for one in log.batches[number]
            ]
        )
        applied = sum(told[name] for name in change_check.EFFECTS)
        acks.append(Ack(number, {**told, "applied": applied}))
    return acks


def compare(log: ChangeLog, rows: Rows, acks: list[Ack] | None = None, **more: Any) -> dict[str, int]:
    reads = [Seen("reader", tuple(rows)), *more.get("reads", ())]
    found = Checker(log).check(reads, good_acks(log) if acks is None else acks, counted=True)
    return {name: count for name, count in found.counts().items() if count}


def test_the_table_of_the_log_has_no_flaw(log: ChangeLog) -> None:
    assert compare(log, good_rows(log)) == {}


def deleted_row(log: ChangeLog) -> tuple[Any, ...]:
    gone = [c for c in log.changes if c.values is not None and c.key not in log.source]
    assert gone[-1].values is not None
    return gone[-1].values


def older_row(log: ChangeLog, row: tuple[Any, ...]) -> tuple[Any, ...]:
    older = [c.values for c in log.changes if c.values and c.key == row[:2] and c.lsn < row[LSN]]
    return older[-1] if older else ()


def with_old_value(log: ChangeLog) -> Rows:
    rows = good_rows(log)
    place, older = next((at, old) for at, row in enumerate(rows) if (old := older_row(log, row)))
    return [*rows[:place], older, *rows[place + 1 :]]


SPOILED: dict[ChangeFlaw, Callable[[ChangeLog], Rows]] = {
    ChangeFlaw.DOUBLED: lambda log: [*good_rows(log), good_rows(log)[0]],
    ChangeFlaw.REVIVED: lambda log: [*good_rows(log), deleted_row(log)],
    ChangeFlaw.STALE: with_old_value,
    ChangeFlaw.MISSING: lambda log: good_rows(log)[1:],
    ChangeFlaw.ALTERED: lambda log: [
        (*good_rows(log)[0][:3], "other", *good_rows(log)[0][4:]),
        *good_rows(log)[1:],
    ],
    ChangeFlaw.PHANTOM: lambda log: [*good_rows(log), ("nowhere", 1, 1, None, None, None, None, None)],
}


@pytest.mark.parametrize("flaw", SPOILED)
def test_one_wrong_key_is_one_flaw(flaw: ChangeFlaw, log: ChangeLog) -> None:
    assert compare(log, SPOILED[flaw](log)) == {str(flaw): 1}


def test_the_same_key_wrong_for_two_readers_counts_once(log: ChangeLog) -> None:
    rows = good_rows(log)[1:]
    assert compare(log, rows, reads=[Seen("other", tuple(rows))]) == {"missing": 1}


def test_readers_that_differ_are_a_flaw_also_of_the_reader_that_is_right(log: ChangeLog) -> None:
    rows = good_rows(log)
    assert compare(log, rows, reads=[Seen("other", tuple(rows[1:]))]) == {"missing": 1, "disagreed": 1}


@pytest.mark.parametrize("value", [None, 0.0, math.inf])
def test_nan_null_and_zeros_are_told_apart(value: float | None) -> None:
    assert change_check.spelled((value,)) != change_check.spelled((math.nan,))
    assert change_check.spelled((-0.0,)) != change_check.spelled((0.0,))
    assert change_check.spelled((math.nan,)) == change_check.spelled((-math.nan,))


def test_half_of_a_changed_key_is_a_flaw_at_any_moment(log: ChangeLog) -> None:
    assert log.moves
    for old, new, lsn in log.moves:
        before = [c.values for c in log.changes if c.values and c.key == old and c.lsn < lsn]
        after = [c.values for c in log.changes if c.values and c.key == new and c.lsn == lsn]
        seen = Seen("meanwhile", (before[-1], after[0]), final=False)  # type: ignore[arg-type]
        assert compare(log, good_rows(log), reads=[seen]) == {"torn": 1}


def test_a_read_meanwhile_may_lack_rows_and_have_old_ones_but_none_twice(log: ChangeLog) -> None:
    old = with_old_value(log)[:5]
    assert compare(log, good_rows(log), reads=[Seen("meanwhile", tuple(old), final=False)]) == {}
    twice = Seen("meanwhile", (*old, old[0]), final=False)
    assert compare(log, good_rows(log), reads=[twice]) == {"doubled": 1}


def test_receipts_that_do_not_add_up_or_differ_are_a_flaw(log: ChangeLog) -> None:
    acks = good_acks(log)
    counts = dict(acks[0].counts or {})
    name = next(name for name, count in counts.items() if count and name != "applied")
    short = Ack(acks[0].batch, {**counts, name: counts[name] - 1})
    assert compare(log, good_rows(log), [short, *acks[1:]])["miscounted"] == 1
    assert compare(log, good_rows(log), [*acks, short])["miscounted"] == 1
    apart = Ack(acks[0].batch, acks[0].counts, "a stream")
    again = {"duplicate": len(log.batches[apart.batch]), "applied": 0}
    assert compare(log, good_rows(log), [apart, *acks, Ack(apart.batch, again, "another")]) == {}
    assert (
        compare(log, good_rows(log), [*acks, apart, Ack(apart.batch, again, "a stream")])["miscounted"] == 1
    )
    forgotten = Ack(acks[0].batch, None)
    assert compare(log, good_rows(log), [forgotten, *acks]) == {}, (
        "its commit has expired, only its key is known"
    )
    assert compare(log, good_rows(log), [forgotten, *acks[1:]])["miscounted"] == 1
    no_sum = Ack(acks[0].batch, {**counts, "applied": counts["applied"] + 1})
    assert compare(log, good_rows(log), [no_sum, *acks[1:]])["miscounted"] == 1


def test_a_batch_that_a_stream_applies_under_its_own_name_too_counts_for_each_name(log: ChangeLog) -> None:
    acks = good_acks(log)
    again = {"duplicate": len(log.batches[acks[0].batch]), "applied": 0}
    found = Checker(log).check(
        [Seen("reader", tuple(good_rows(log)))],
        [*acks, Ack(acks[0].batch, again, "a stream")],
        counted=True,
    )
    assert (found.acked_batches, found.receipts) == (len(log.batches), len(log.batches) + 1)
    assert found.told.total() == found.counted_changes
    assert found.counted_changes == sum(map(len, log.batches)) + len(log.batches[acks[0].batch])


def test_a_batch_that_nobody_acknowledged_leaves_its_keys_unjudged_and_the_run_unknown(
    log: ChangeLog,
) -> None:
    number = next(at for at, batch in enumerate(log.batches) if all(c.op != "t" for c in batch))
    acks = [ack for ack in good_acks(log) if ack.batch != number]
    mine = {change.key for change in log.batches[number]}
    rows = [row for row in good_rows(log) if row[:2] not in mine]
    found = Checker(log).check([Seen("reader", tuple(rows))], acks, counted=True)
    assert found.counts() == dict.fromkeys(map(str, ChangeFlaw), 0)
    readers = FinalLooks([Seen(name, ()) for name in "abc"])
    judgement = change_run.judge(found, readers, {"cut": 1}, log)
    assert judgement.valid is None
    assert "never acknowledged" in judgement.reasons[0]


def test_a_fault_that_never_fired_leaves_a_run_unknown_and_a_wrong_key_makes_it_invalid(
    log: ChangeLog,
) -> None:
    readers = FinalLooks([Seen(name, ()) for name in "abc"])
    right = Checker(log).check([Seen("reader", tuple(good_rows(log)))], good_acks(log), counted=True)
    assert change_run.judge(right, readers, {"cut": 1}, log).valid is True
    assert change_run.judge(right, readers, {"cut": 0}, log).valid is None
    wrong = Checker(log).check([Seen("reader", tuple(good_rows(log)[1:]))], good_acks(log), counted=True)
    assert change_run.judge(wrong, readers, {"cut": 0}, log).valid is False


# --- the plan -------------------------------------------------------------------------------------
def test_the_arms_under_a_change_log_run_only_where_they_are_asked_for() -> None:
    assert not set(menu.CHANGE_ARMS) & set(menu.choose(None, spark=True, lambda_=True))
    assert set(change_arms.USUAL) <= set(menu.choose(None, changes=True))
    assert not set(menu.CHANGE_ARMS) & set(menu.choose(None, changes=True, own=True))
    glue = set(menu.choose(None, catalog="glue", changes=True)) & set(menu.CHANGE_ARMS)
    assert glue == {"changes-glue"}
    assert not any(menu.is_iceberg(name) for name in menu.choose("delta", changes=True))


@pytest.mark.parametrize("name", change_arms.SAFE_ARMS)
def test_every_delivery_has_its_writer_and_every_step_its_kill(name: str) -> None:
    settings = Settings(seed=3, changes=400, spark=1)
    steps = {"key": ("apply.put_memory", "commit.put_commit")}
    planned = place_traps(menu.make_arm(name, settings), steps, settings)
    assert planned.log is not None
    delivering = [writer for writer in planned.writers if not writer.chores]
    assert sum(writer.appends for writer in delivering) == len(draw(3, planned.log).deliveries)
    assert [writer.spark for writer in delivering].count(True) == 1
    traps = [trap for writer in delivering if not writer.spark for trap in writer.traps]
    kills = Counter((trap["step"], trap["when"]) for trap in traps if trap["seq"] is not None)
    assert {(step, when) for step in steps["key"] for when in ("before", "after")} <= set(kills)


def test_keys_batches_and_writers_of_a_log_are_as_asked_for() -> None:
    asked = Settings(seed=3, changes=6000, change_keys=150, change_batch=500, change_writers=9, spark=1)
    planned = menu.make_arm("changes-dynamodb", asked)
    assert planned.log == LogPlan(changes=6000, keys=150, batch=500)
    kinds = [writer.spark for writer in planned.writers if not writer.chores]
    assert (kinds.count(False), kinds.count(True)) == (9, 1)
    naive = menu.make_arm("changes-merge", asked)
    assert naive.log is not None
    assert naive.log.changes == 2000


def test_a_library_that_does_not_look_at_its_uploads_meets_no_torn_ones() -> None:
    """deltalake's compaction commits a file of which half has arrived, and no reader can read the table then."""
    keepers = {
        name: next(w for w in menu.make_arm(name, Settings(seed=1)).writers if w.chores)
        for name in ("changes-dynamodb", "changes-sql")
    }
    assert {name: keeper.ours for name, keeper in keepers.items()} == {
        "changes-dynamodb": False, "changes-sql": True,
    }  # fmt: skip


def test_what_is_remembered_of_deleted_keys_meets_faults_of_its_own() -> None:
    own = Request(method="PUT", path="/b/t/_safewrite/changes/00ff.parquet")
    puffin = Request(method="GET", path="/b/t/metadata/safewrite-changes-1-0.puffin")
    assert (classify(own), classify(puffin)) == (RequestStep.PUT_MEMORY, RequestStep.GET_MEMORY)
    kinds = {rule.kind for rule in change_arms.memory_faults()}
    assert {FaultKind.LOST_ANSWER, FaultKind.TRUNCATE_BODY, FaultKind.CUT} <= kinds


# --- runs -----------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, Any], str]:
    """Four kinds of frames apply one log under faults and kills."""
    return stress(tmp_path_factory.mktemp("changes"), *SMALL, *STEPS, "--arms", "changes-dynamodb")


@pytest.mark.long
def test_the_table_is_what_the_log_means_under_faults_and_kills(small: Any) -> None:
    code, report, _ = small
    safe = arm(report, "changes-dynamodb")
    assert safe["changes"]["flaws"] == dict.fromkeys(map(str, ChangeFlaw), 0)
    assert (code, report["verdict"], report["reasons"]) == (0, "valid", [])
    assert safe["changes"]["acked_batches"] == safe["changes"]["batches"]
    assert sum(safe["changes"]["told"].values()) == safe["changes"]["in_batches"]
    assert len(safe["kinds"]) == 4


@pytest.mark.long
def test_every_kind_of_fault_came_and_every_planned_kill(small: Any) -> None:
    fired = arm(small[1], "changes-dynamodb")["fired"]
    planned = {f"kill {when} {step}" for step in STEPS[1].split(",") for when in ("before", "after")}
    assert planned | {"batch delivered twice", "truncate_body", "lost_answer", "throttle"} <= set(fired)
    assert {name for name, count in fired.items() if not count} == set()


@pytest.mark.long
def test_keys_are_wrong_after_merges_of_another_library(tmp_path: Path) -> None:
    """``make test`` sees what the checker makes of each flaw, and naive appends lose rows (tests/bench/test_stress.py)."""
    _, report, page = stress(tmp_path, *SMALL, *STEPS, "--arms", "changes-dynamodb,changes-kafka2delta")
    naive = arm(report, "changes-kafka2delta")
    assert naive["verdict"] == "bitten"
    assert naive["changes"]["flaws"]["revived"] + naive["changes"]["flaws"]["missing"] > 0
    assert "kafka2delta" in page[page.index('id="change-logs"') :]


@pytest.mark.long
def test_the_page_has_a_section_and_the_sentence_says_what_became_of_the_keys(small: Any) -> None:
    _, report, page = small
    assert report["sentence"].startswith("After 160 changes by apply_changes, 0 of ")
    assert html.escape(report["sentence"]) in page or report["sentence"] in html.unescape(page)
    assert 'id="change-logs"' in page
    assert report["replay"].startswith(
        "python -m bench.stress --seed 5 --writers 4 --pause-s 1.0 --changes 160"
    )
    assert 'href="#side-by-side"' not in page


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "arm_name", "options", "flaw"),
    [
        ("I7-changes_keep_their_first_plan", "changes-object-store", ("--changes", "320"), "doubled"),
        ("I3-a_deleted_key_is_forgotten", "changes-dynamodb", (), "revived"),
    ],
)
def test_a_run_with_a_fault_is_invalid(
    fault: str, arm_name: str, options: tuple[str, ...], flaw: str, tmp_path: Path
) -> None:
    code, report, _ = stress(tmp_path, *SMALL, *QUIET, *options, "--arms", arm_name, faults=(fault,))
    assert (code, report["verdict"]) == (1, "INVALID")
    assert arm(report, arm_name)["changes"]["flaws"][flaw] > 0


@pytest.mark.long
def test_an_iceberg_table_is_what_the_log_means_and_upserts_of_pyiceberg_are_not(tmp_path: Path) -> None:
    code, report, _ = stress(
        tmp_path, *SMALL, "--steps", "swap.commit,apply.put_memory", "--arms", "changes-sql,changes-upsert"
    )
    assert (code, report["verdict"], report["reasons"]) == (0, "valid", [])
    flaws = arm(report, "changes-upsert")["changes"]["flaws"]
    assert flaws["stale"] + flaws["revived"] + flaws["doubled"] > 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "step"), [("changes-dynamodb", "commit.put_commit"), ("changes-sql", "swap.commit")]
)
def test_a_spark_stream_that_is_killed_applies_its_share_of_the_log(
    name: str, step: str, tmp_path: Path
) -> None:
    """Two kills with the JVM: past a commit, before Spark notes it, and at the commit; the checkpoint goes on from there."""
    options = (
        "--spark",
        "1",
        "--spark-kills",
        "2",
        "--no-spark-reader",
        "--changes",
        "400",
        "--change-batch",
        "20",
    )
    code, report, _ = stress(tmp_path, *SMALL, "--steps", step, *options, "--arms", name, limit_s=600)
    assert (code, report["verdict"], report["reasons"]) == (0, "valid", [])
    safe = arm(report, name)
    found = safe["changes"]
    assert found["flaws"] == dict.fromkeys(map(str, ChangeFlaw), 0)
    assert sum(found["told"].values()) == found["counted_changes"] >= found["in_batches"]
    assert "safewrite Spark stream, sink" in safe["kinds"]


def test_a_table_of_arrow_has_the_schema_of_the_log() -> None:
    assert change_log.schema().names == list(COLUMNS)
    assert pa.types.is_decimal(change_log.schema().field("amount").type)
