"""Many batches in one commit do what as many commits would do, each member exactly once, in whatever group it comes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import safewrite as sw
from safewrite.changes.meaning.decide import KnownRows
from safewrite.changes.meaning.member_batches import MemberChanges, one_by_one
from safewrite.changes.meaning.memory import Memory
from safewrite.changes.meaning.reading import read
from safewrite.changes.meaning.spec import Spec
from safewrite.changes.meaning.unchanged_values import nothing_carried
from safewrite.testing.changes import Change, Oracle, RefusedError
from safewrite.testing.steps import Answers, At
from tests.changes.test_decide import KEYS, OTHER, SEQUENCE, K, changes, down, up
from tests.changes.test_tables import COMMIT, HOW, SCHEMA, Lake, apply, frame
from tests.sampling import no_more_than

pytestmark = pytest.mark.sweep("iceberg")  # both formats go one way

logs = st.lists(st.lists(changes, max_size=5), min_size=1, max_size=6)


def many(table: Any, members: list[tuple[Any, list[Change]]], **how: Any) -> list[Any]:
    return list(table.apply_changes_many([(key, frame(some)) for key, some in members], **(HOW | how)))


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(request.param, tmp_path)


def said(oracle: Oracle, batch: list[Change]) -> Counter[str] | None:
    try:
        return oracle.apply(batch)
    except RefusedError:
        return None


def counted(told: Any) -> Counter[str]:
    return Counter({name: count for name, count in dict(told).items() if count and name != "applied"})


# --- what members do, without a table -----------------------------------------------------------------
@no_more_than(60)
@given(logs, st.lists(st.integers(0, 2), max_size=6))
def test_members_in_any_grouping_do_what_the_oracle_says(log: list[list[Change]], cuts: list[int]) -> None:
    """Each member counts, and is refused, as if it had come alone; the rows that are left are those of the oracle."""
    spec = Spec(KEYS, SEQUENCE, "op = 'delete'", [("op", "=", "truncate")], "count")
    nothing = read(frame([]), spec, SCHEMA).batch.table
    rows, memory, oracle = nothing, Memory.empty(KEYS, SEQUENCE, SCHEMA), Oracle()
    at = 0
    while at < len(log):
        size = cuts[at % len(cuts)] + 1 if cuts else len(log)
        group = log[at : at + size]
        members = [
            MemberChanges(str(at + n), read(frame(some), spec, SCHEMA)) for n, some in enumerate(group)
        ]
        known = KnownRows(
            rows,
            memory.tombstones.select([*KEYS, *SEQUENCE]),
            memory.floor,
            memory.forgotten,
            nothing_carried(KEYS, SEQUENCE, SCHEMA),
        )
        done = one_by_one(members, spec, known, memory, 1_000)
        for number, some in enumerate(group):
            told, key = said(oracle, some), str(at + number)
            assert (key in done.faults) is (told is None)
            if told is not None:
                assert counted(done.counts[key].to_dict()) == told
        decision = done.settled.decision
        assert done.settled.rows.num_rows + done.again == decision.counts.inserted + decision.counts.updated
        gone = set(decision.dropped.tolist())
        kept = rows.take(pa.array([n for n in range(rows.num_rows) if n not in gone], pa.int64()))
        rows, memory = pa.concat_tables([kept, done.settled.rows.cast(kept.schema)]), done.memory
        assert {(one["a"], one["b"]): one["value"] for one in rows.to_pylist()} == oracle.rows
        stones = {(one["a"], one["b"]) for one in memory.tombstones.to_pylist()}
        assert stones == {key for key, entry in oracle.entries.items() if entry.row is None}
        at += size


# --- tables --------------------------------------------------------------------------------------------
def test_members_land_in_one_commit_and_each_has_counts_of_its_own(lake: Lake) -> None:
    table = lake.open()
    apply(table, [up((1, 0))], key="first")
    before = table.version
    found = many(
        table,
        [
            ("a", [up((2, 0), "a"), down((1, 0), OTHER)]),
            ("b", [up((3, 0), "b"), up((0, 5), "late", OTHER)]),
            ("c", []),
        ],
    )
    assert {one.version for one in found} == {table.version} != {before}
    assert [counted(one.changes) for one in found] == [
        Counter(updated=1, tombstoned=1),
        Counter(updated=1, late=1),
        Counter(),
    ]
    assert [one.rows for one in found] == [1, 1, 0]
    assert lake.rows() == {K: "b"}
    assert table.resolve("b").changes == found[1].changes


def test_members_that_were_committed_before_are_left_out_and_told(lake: Lake) -> None:
    table = lake.open()
    alone = apply(table, [up((1, 0))], key="a")
    first = many(lake.open(), [("a", [up((1, 0))]), ("b", [up((1, 0), "b", OTHER)])])
    assert [one.outcome for one in first] == ["already_committed", "committed"]
    again = many(lake.open(), [("b", [up((1, 0), "b", OTHER)]), ("c", [down((2, 0))]), ("a", [up((1, 0))])])
    assert [one.outcome for one in again] == ["already_committed", "committed", "already_committed"]
    assert [one.changes for one in again] == [first[1].changes, again[1].changes, alone.changes]
    assert apply(lake.open(), [down((2, 0))], key="c").changes == again[1].changes
    version = lake.open().version
    many(lake.open(), [("a", [up((1, 0))]), ("c", [down((2, 0))])])
    assert (lake.open().version, lake.rows()) == (version, {OTHER: "b"})


def test_a_member_whose_truncate_ties_with_a_row_of_another_key_is_refused_alone(lake: Lake) -> None:
    table = lake.open()
    apply(table, [up((1, 0)), up((5, 0), "tied", OTHER)])
    found = many(table, [("tied", [Change("truncate", (5, 0))]), ("good", [up((6, 0), "good")])])
    assert [type(one) for one in found] == [sw.InvalidInputError, sw.Receipt]
    assert "neither comes first" in str(found[0])
    assert lake.rows() == {K: "good", OTHER: "tied"}


def test_a_member_at_fault_does_not_hold_up_the_others_and_leaves_no_trace(lake: Lake) -> None:
    table = lake.open()
    apply(table, [up((1, 0))], key="first")
    tied, null = [up((1, 0), "other"), up((9, 9), "gone", OTHER)], pa.table({"a": [None]})
    members = [("tied", frame(tied)), ("null", null), ("good", frame([up((2, 0), "good")]))]
    found = table.apply_changes_many([*members, ("first", frame([up((1, 0), "else")]))], **HOW)
    kinds = [type(one) for one in found]
    assert kinds == [sw.InvalidInputError, kinds[1], sw.Receipt, sw.ReplayMismatchError]
    assert issubclass(kinds[1], sw.InvalidInputError | sw.WouldAlterError)
    assert [one.key for one in found] == ["tied", "null", "good", "first"]
    assert lake.rows() == {K: "good"}
    late = many(table, [("late", [up((1, 5))]), ("more", [up((1, 0), "x", OTHER)])], all_late="error")
    assert "source was set back" in str(late[0])
    assert counted(late[1].changes) == Counter(inserted=1)
    nothing = many(table, [("late2", [up((1, 5))])], all_late="error")
    assert isinstance(nothing[0], sw.InvalidInputError)


def test_what_comes_after_a_refused_member_of_its_group_is_left_out(lake: Lake) -> None:
    table = lake.open()
    apply(table, [up((1, 0))])
    members = [
        ("bad", [up((1, 0), "other")]),
        ("held", [up((3, 0), "h")]),
        ("free", [up((1, 0), "f", OTHER)]),
    ]
    found = many(table, members, groups=["g", "g", "h"])
    assert [getattr(one, "kind", None) for one in found] == ["invalid_input", "held_back", None]
    assert lake.rows() == {K: "p", OTHER: "f"}


def test_check_is_asked_of_each_member_and_positions_are_of_the_commit(lake: Lake) -> None:
    asked: list[int] = []

    def check(rows: pa.Table, counts: Any) -> None:
        asked.append(rows.num_rows)
        if "bad" in rows.column("value").to_pylist():
            raise ValueError("bad rows")

    table = lake.open()
    members = [("a", [up((1, 0), "bad")]), ("b", [up((1, 0), "b", OTHER)])]
    bad, good = many(table, members, check=check, positions={"t/0": (None, 5)})
    assert "check= refused" in str(bad)
    assert (counted(good.changes), table.positions()) == (Counter(inserted=1), {"t/0": 5})
    assert set(asked) == {1}
    (refused,) = many(table, [("a", [up((1, 0), "bad")])], check=check, positions={"t/0": (5, 9)})
    assert (type(refused), table.positions()) == (sw.InvalidInputError, {"t/0": 5})


@pytest.mark.long
def test_a_rival_that_commits_one_member_meanwhile_takes_it_out(lake: Lake) -> None:
    table, rival = lake.open(), lake.open()
    a, b = [up((1, 0), "a")], [up((1, 0), "b", OTHER)]
    table.world = At(table.world, COMMIT[lake.format], "before", lambda: many(rival, [("a", a)]))
    found = many(table, [("a", a), ("b", b)])
    assert [one.outcome for one in found] == ["already_committed", "committed"]
    assert lake.rows() == {K: "a", OTHER: "b"}


def test_a_rival_that_makes_one_member_late_gets_it_refused_and_the_others_land(lake: Lake) -> None:
    table, rival = lake.open(), lake.open()
    table.world = At(table.world, COMMIT[lake.format], "before", lambda: apply(rival, [up((5, 0), "newer")]))
    found = many(table, [("a", [up((1, 0), "a")]), ("b", [up((1, 0), "b", OTHER)])], all_late="error")
    assert "source was set back" in str(found[0])
    assert counted(found[1].changes) == Counter(inserted=1)
    assert lake.rows() == {K: "newer", OTHER: "b"}


def test_a_group_whose_answer_is_lost_is_applied_once(lake: Lake) -> None:
    table = lake.open()
    table.world = Answers(table.world, COMMIT[lake.format], times=1)
    members = [("a", [up((1, 0))]), ("b", [down((2, 0))])]
    many(table, members)
    assert {one.outcome for one in many(lake.open(), members)} == {"already_committed"}
    assert lake.rows() == {}


def test_an_app_has_one_batch_in_a_call_and_a_batch_is_known_again(lake: Lake) -> None:
    table = lake.open()
    members = [(("app", 1), [up((1, 0))]), (("app", 2), [up((2, 0))])]
    first, second = many(table, members)
    assert (first.txn, type(second)) == (("app", 1), sw.InvalidInputError)
    again = many(lake.open(), members[:1])[0]
    assert (again.outcome, again.changes) == ("already_committed", first.changes)
    assert many(table, []) == []


@pytest.mark.long
def test_a_long_list_of_members_tells_what_became_of_each(lake: Lake) -> None:
    members = [(f"{'k' * 400}{n}", [up((1, 0), "p", (n, "x"))]) for n in range(90)]
    table = lake.open()
    assert len({one.version for one in many(table, members)}) == 1
    again = many(lake.open(), members[:2])
    assert [(one.outcome, counted(one.changes)) for one in again] == [
        ("already_committed", Counter(inserted=1))
    ] * 2


def test_the_list_of_members_is_that_of_the_last_plan(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rival's commit changes what a member's changes do, and the list may have gone out with the first plan."""
    monkeypatch.setattr("safewrite.delta.write.members.INLINE_BYTES_MAX", 10)
    monkeypatch.setattr("safewrite.iceberg.write.members.INLINE_CHARS_MAX", 10)
    table, rival = lake.open(), lake.open()
    table.world = At(table.world, COMMIT[lake.format], "before", lambda: apply(rival, [up((1, 0), "rival")]))
    members = [("one", [up((2, 0), "one")]), ("two", [up((1, 0), "two", OTHER)])]
    told = [counted(one.changes) for one in many(table, members)]
    assert told == [Counter(updated=1), Counter(inserted=1)]
    again = many(lake.open(), members)
    assert [(one.outcome, counted(one.changes)) for one in again] == [
        ("already_committed", counts) for counts in told
    ]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_any_log_in_any_groups_with_repeats_gives_the_table_of_the_oracle(
    kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @settings(
        max_examples=40 if kind == "delta" else 15,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(logs, st.integers(1, 4), st.booleans())
    def check(log: list[list[Change]], size: int, repeats: bool) -> None:
        lake, oracle = Lake(kind, tmp_path_factory.mktemp("lake")), Oracle()
        named = [(f"m{number}", some) for number, some in enumerate(log)]
        landed: list[tuple[str, list[Change]]] = []
        for at in range(0, len(named), size):
            group = named[at : at + size]
            found = many(lake.open(), [*(landed if repeats else []), *group])
            for one in found[: len(found) - len(group)]:
                assert one.outcome == "already_committed"
            for answer, member in zip(found[-len(group) :], group, strict=True):
                told = said(oracle, member[1])
                assert isinstance(answer, sw.Receipt) is (told is not None)
                if told is not None:
                    landed.append(member)
                    assert counted(answer.changes) == told
            assert lake.rows() == oracle.rows

    check()
