"""Many events in one commit: one answer for each, each once, whatever group it comes in."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import deltalake
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import safewrite as sw
from safewrite.protocol.effects import Effect, Outcome, Unknown
from safewrite.stores.world import Performer
from tests.iceberg import v3_tables
from tests.test_cli import run_json

pytestmark = pytest.mark.sweep("iceberg")  # both formats go one way

Ids = Callable[[], list[int]]


class Place:
    """A table of either format, and a reader of it that is not safewrite."""

    def __init__(self, folder: Path, format_: str) -> None:
        self.folder, self.format = folder, format_
        self.name = str(folder / "t") if format_ == "delta" else "db.t"
        self.catalog = {
            "type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": str(folder / "w")
        }  # fmt: skip

    def open(self, **settings: Any) -> Any:
        given = {} if self.format == "delta" else {"catalog": self.catalog}
        return sw.open(self.name, create=True, **given, **settings)

    def rows(self) -> list[dict[str, Any]]:
        if self.format == "delta":
            return deltalake.DeltaTable(self.name).to_pyarrow_table().to_pylist()
        return self.open().iceberg.scan().to_arrow().to_pylist()

    def lock_up(self) -> None:
        """Make it a table that safewrite may only read: another engine turns on what safewrite does not know."""
        if self.format == "iceberg":
            v3_tables.add_column(self.catalog, "long", self.name, column="_row_id")
            v3_tables.upgrade(self.catalog, self.name)  # whose row ids have that name
            return
        log = Path(self.name) / "_delta_log"
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["novel"]}
        body = json.dumps({"protocol": protocol})
        (log / f"{len([*log.glob('0*.json')]):020d}.json").write_text(body)

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.rows())

    def command(self, *words: object) -> tuple[int, Any]:
        """A command of the command line on the table: its exit code and its answer."""
        more = [part for item in self.catalog.items() for part in ("--catalog-property", "=".join(item))]
        return run_json(
            words[0],
            self.name,
            *words[1:],
            *([] if self.format == "delta" else ["--catalog", "default", *more]),
        )


@pytest.fixture(params=["delta", "iceberg"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path, request.param)


def told(answers: list[Any]) -> list[str]:
    """What became of each member."""
    return [str(one.outcome if isinstance(one, sw.Receipt) else one.kind) for one in answers]


class Between(Performer):
    """Runs something else just before an effect of one name is performed for the first time, or after it."""

    def __init__(self, world: Performer, name: str, step: Callable[[], Any], *, lose: bool = False) -> None:
        self.world, self.name, self.step, self.lose = world, name, step, lose
        self.done = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.world, name)

    def perform(self, effect: Effect) -> Outcome:
        if effect.name != self.name or self.done:
            return self.world.perform(effect)
        self.done = True
        if self.lose:
            self.world.perform(effect)
            return Unknown("the answer was lost")
        self.step()
        return self.world.perform(effect)


COMMIT = {"delta": "commit.put_commit", "iceberg": "swap.commit"}


# --- answers ------------------------------------------------------------------------------------------
def test_each_member_has_its_answer_in_the_order_of_the_call(place: Place) -> None:
    table = place.open()
    answers = table.append_many(
        [
            ("a", [{"id": 1}]),
            ("b", pd.DataFrame({"id": [2, 3]})),
            ("bad", [{"id": "x"}]),
            ("c", pl.DataFrame({"id": [4]})),
            (("app", 7), pa.table({"id": [5]})),
            (None, [{"id": 6}]),
        ]
    )
    assert told(answers) == [
        "committed",
        "committed",
        "would_alter",
        "committed",
        "committed",
        "invalid_input",
    ]
    receipts = [one for one in answers if isinstance(one, sw.Receipt)]
    assert [(one.key, one.rows, one.txn) for one in receipts] == [
        ("a", 1, None), ("b", 2, None), ("c", 1, None), ("app/7", 1, ("app", 7))
    ]  # fmt: skip
    assert len({one.version for one in receipts}) == 1
    assert [one.files for one in receipts] == [1] * 4
    assert answers[2].key == "bad"
    assert place.ids() == [1, 2, 3, 4, 5]


def test_members_that_were_committed_before_are_left_out(place: Place) -> None:
    table = place.open()
    table.append([{"id": 1}], key="a")
    table.append_many([("b", [{"id": 2}]), ("c", [{"id": 3}])])
    again = place.open().append_many(
        [("c", [{"id": 3}]), ("d", [{"id": 4}]), ("a", [{"id": 1}]), ("b", [{"id": 9}])]
    )
    assert told(again) == ["already_committed", "committed", "already_committed", "replay_mismatch"]
    assert "other rows" in str(again[3])
    assert table.append([{"id": 4}], key="d").outcome == "already_committed"
    assert place.ids() == [1, 2, 3, 4]


def test_a_group_that_is_known_makes_no_commit(place: Place) -> None:
    table = place.open()
    first = table.append_many([("a", [{"id": 1}]), ("b", [{"id": 2}])])
    again = table.append_many([("b", [{"id": 2}]), ("a", [{"id": 1}])])
    assert told(again) == ["already_committed"] * 2
    assert {one.version for one in again} == {first[0].version} == {table.refresh().version}
    assert table.append_many([]) == []


def test_a_key_that_comes_twice_counts_once(place: Place) -> None:
    table = place.open()
    table.append([{"id": 0}])
    answers = table.append_many(
        [("a", [{"id": "x"}]), ("a", [{"id": 1}]), ("a", [{"id": 1}]), ("a", [{"id": 2}]), ("b", [{"id": 3}])]
    )
    assert told(answers) == ["would_alter", "committed", "already_committed", "replay_mismatch", "committed"]
    assert answers[2].version == answers[1].version
    assert place.ids() == [0, 1, 3]


def test_two_batches_of_one_app_need_two_commits(place: Place) -> None:
    table = place.open()
    answers = table.append_many(
        [(("app", 1), [{"id": 1}]), (("app", 2), [{"id": 2}]), (("app", 1), [{"id": 1}])]
    )
    assert told(answers) == ["committed", "invalid_input", "already_committed"]
    assert told(table.append_many([(("app", 2), [{"id": 2}]), ("e", [{"id": 3}])])) == ["committed"] * 2
    assert place.ids() == [1, 2, 3]


def test_each_member_may_bring_columns(place: Place) -> None:
    table = place.open()
    table.append([{"id": 0}])
    members = [("a", [{"id": 1, "x": 1.5}]), ("b", [{"id": 2, "y": "text"}]), ("c", [{"id": 3, "x": "no"}])]
    assert told(table.append_many(members)) == ["would_alter", "would_alter", "would_alter"]
    assert told(table.append_many(members, schema_mode="merge")) == ["committed", "committed", "would_alter"]
    assert sorted(place.rows(), key=lambda row: row["id"]) == [
        {"id": 0, "x": None, "y": None},
        {"id": 1, "x": 1.5, "y": None},
        {"id": 2, "x": None, "y": "text"},
    ]
    again = place.open().append_many(members[:2], schema_mode="merge")
    assert told(again) == ["already_committed"] * 2
    # Rows that the schema has outgrown since are recognised all the same.
    assert told(place.open().append_many([("a", members[0][1])])) == ["already_committed"]


def test_data_files_have_no_column_that_the_table_lacks(place: Place) -> None:
    """Also where the member that brought the column is at fault, and was checked before the others."""
    table = place.open()
    table.append([{"id": 0}])
    answers = table.append_many(
        [("a", [{"id": 1}]), ("a", [{"id": 2, "x": 1}]), ("b", [{"id": 3}])], schema_mode="merge"
    )
    assert told(answers) == ["committed", "replay_mismatch", "committed"]
    files = [pq.read_schema(file).names for file in place.folder.glob("**/*.parquet")]
    assert set().union(*files) <= set(place.open().schema.names)
    assert place.ids() == [0, 1, 3]


def test_rows_land_in_few_files_whatever_the_number_of_members(place: Place) -> None:
    table = place.open()
    answers = table.append_many([(f"k{n}", [{"id": n}]) for n in range(300)])
    assert {one.files for one in answers} == {1}
    assert place.ids() == list(range(300))


@pytest.mark.parametrize("members", [None, 5, "ab", {"a": [{"id": 1}]}, [("a",)], [("a", 1, 2)], ["ab", 5]])
def test_what_is_no_list_of_pairs_is_refused(place: Place, members: Any) -> None:
    with pytest.raises(
        sw.InvalidInputError, match=r"append_many takes a list of pairs .* Nothing was written"
    ):
        place.open().append_many(members)


def test_a_group_of_a_queue_keeps_its_order_after_a_member_at_fault(place: Place) -> None:
    table = place.open()
    table.append([{"id": 0}])
    members = [
        ("a", [{"id": 1}]),
        ("b", [{"id": "x"}]),
        ("c", [{"id": 3}]),
        ("d", [{"id": 4}]),
        ("e", [{"id": 5}]),
    ]
    answers = table.append_many(members, groups=["g", "g", "g", "h", None])
    assert told(answers) == ["committed", "would_alter", "held_back", "committed", "committed"]
    assert "comes after 'b'" in str(answers[2])
    assert answers[2].key == "c"
    assert place.ids() == [0, 1, 4, 5]
    members[1] = ("b", [{"id": 2}])
    again = table.append_many(members[1:3], groups=["g", "g"])
    assert told(again) == ["committed", "committed"]
    for wrong in (["g"], 5, [["g"], ["g"]]):
        with pytest.raises(sw.InvalidInputError, match="groups= names the group of each member"):
            table.append_many(members[1:3], groups=wrong)


# --- races and faults ---------------------------------------------------------------------------------
def test_a_member_that_another_writer_commits_meanwhile_is_left_out(place: Place) -> None:
    table, rival = place.open(), place.open()
    table.append([{"id": 0}])
    rival.refresh()
    theirs: list[Any] = []
    table.world = Between(
        table.world, COMMIT[place.format],
        lambda: theirs.extend(rival.append_many([("b", [{"id": 2}]), ("c", [{"id": 9}]), ("x", [{"id": 4}])])),
    )  # fmt: skip
    answers = table.append_many([("a", [{"id": 1}]), ("b", [{"id": 2}]), ("c", [{"id": 3}])])
    assert told(theirs) == ["committed"] * 3
    assert told(answers) == ["committed", "already_committed", "replay_mismatch"]
    assert answers[1].version == theirs[0].version != answers[0].version
    assert place.ids() == [0, 1, 2, 4, 9]


def test_all_members_may_be_committed_by_another_writer_meanwhile(place: Place) -> None:
    table, rival = place.open(), place.open()
    table.append([{"id": 0}])
    rival.refresh()
    step = lambda: rival.append_many([("b", [{"id": 2}]), ("a", [{"id": 1}])])  # noqa: E731
    table.world = Between(table.world, COMMIT[place.format], step)
    assert told(table.append_many([("a", [{"id": 1}]), ("b", [{"id": 2}])])) == ["already_committed"] * 2
    assert place.ids() == [0, 1, 2]


def test_a_lost_answer_of_the_commit_doubles_nothing(place: Place) -> None:
    table = place.open()
    table.append([{"id": 0}])
    table.world = Between(table.world, COMMIT[place.format], lambda: None, lose=True)
    assert told(table.append_many([("a", [{"id": 1}]), ("b", [{"id": 2}])])) == ["committed"] * 2
    assert place.ids() == [0, 1, 2]


def test_what_concerns_all_names_a_member_that_decides_it(place: Place) -> None:
    table = place.open()
    table.append([{"id": 0}], key="a")
    world = table.world

    def lost() -> None:
        raise OSError("cut")

    table.world = Between(world, COMMIT[place.format], lost)
    members = [("a", [{"id": 0}]), ("b", [{"id": 1}]), ("c", [{"id": 2}])]
    try:
        answers = table.append_many(members)
    except sw.CommitUnknownError as error:
        assert error.key == "b"  # noqa: PT017 - not "a", which was committed before
        table.world = world
        answers = table.append_many(members)
    assert told(answers) == ["already_committed", "committed", "committed"]
    assert place.ids() == [0, 1, 2]


# --- many, long lists ---------------------------------------------------------------------------------
@pytest.mark.long
@pytest.mark.parametrize("count", [700, pytest.param(10_000, marks=pytest.mark.long)])
def test_a_long_list_of_members_stays_readable(place: Place, count: int) -> None:
    table = place.open()
    members = [(f"event-{n:06}", [{"id": n}]) for n in range(count)]
    assert set(told(table.append_many(members))) == {"committed"}
    assert place.ids() == list(range(count))
    other = place.open()
    found = other.resolve("event-000321")
    assert (found.rows, found.version) == (1, table.version)
    assert other.resolve(f"event-{count:06}") is None
    regrouped = [*members[count - 10 :], ("new", [{"id": count}]), ("event-000003", [{"id": 77}])]
    assert told(other.append_many(regrouped)) == [*["already_committed"] * 10, "committed", "replay_mismatch"]
    assert other.append([{"id": 5}], key="event-000005").outcome == "already_committed"
    with pytest.raises(sw.ReplayMismatchError):
        other.append([{"id": 6}], key="event-000005")
    assert place.ids() == list(range(count + 1))


@pytest.mark.long
def test_rows_behind_a_long_list_are_compared(place: Place) -> None:
    table, rival = place.open(), place.open()
    table.append([{"id": 0}])
    rival.refresh()
    many = [(f"event-{n:06}", [{"id": 1_000 + n}]) for n in range(400)]
    step = lambda: rival.append_many([*many, ("b", [{"id": 2}]), ("c", [{"id": 9}])])  # noqa: E731
    table.world = Between(table.world, COMMIT[place.format], step)
    answers = table.append_many([("a", [{"id": 1}]), ("b", [{"id": 2}]), ("c", [{"id": 3}])])
    assert told(answers) == ["committed", "already_committed", "replay_mismatch"]
    table.world = Between(table.world.world, COMMIT[place.format], lambda: rival.append_many(many[:3]))
    assert told(table.append_many([("d", [{"id": 4}])])) == ["committed"]
    assert [n for n in place.ids() if n < 1_000] == [0, 1, 2, 4, 9]


def test_verify_and_doctor_know_the_members(place: Place, tmp_path: Path) -> None:
    table = place.open()
    sent = [(f"event-{n:04}", [{"id": n}]) for n in range(600)]
    table.append_many(sent[:3])
    table.append_many(sent[3:])
    keys = tmp_path / "keys.txt"
    keys.write_text("".join(f"{key}\n" for key, _ in [*sent, ("never", [])]))
    code, found = place.command("verify", "--ledger", keys)
    assert code != 0
    assert found.get("keys") == {
        "present": 600,
        "rows": 600,
        "lost": 1,
        "doubled": 0,
        "torn": 0,
        "unknown": 0,
    }, found
    _, answer = place.command("doctor")
    findings = answer["findings"]
    assert not [one for one in findings if one["severity"] == "danger"], findings


def test_the_history_tells_what_the_caller_said(place: Place) -> None:
    table = place.open()
    table.append_many([("a", [{"id": 1}]), ("b", [{"id": 2}])], properties={"etl.run": "7"})
    table.append([{"id": 3}], properties={"etl.run": "8"})
    if place.format == "delta":
        history = deltalake.DeltaTable(place.name).history()
        assert [one["etl.run"] for one in history] == ["8", "7"]
    else:
        snapshots = place.open().iceberg.snapshots()
        assert [one.summary.additional_properties["etl.run"] for one in snapshots] == ["7", "8"]


@pytest.mark.parametrize("name", ["safewrite.key", "operation", "added-records", " "])
def test_names_that_engines_use_are_refused_in_properties(place: Place, name: str) -> None:
    with pytest.raises(sw.InvalidInputError, match="a name that engines or safewrite give a meaning"):
        place.open().append([{"id": 1}], properties={name: "x"})


# --- time ---------------------------------------------------------------------------------------------
def test_no_commit_is_begun_when_too_little_time_is_left(place: Place) -> None:
    table = place.open()
    table.append([{"id": 0}])
    for call in (
        lambda: table.append([{"id": 1}], key="a", timeout_s=1e-9),
        lambda: table.append_many([("b", [{"id": 2}])], timeout_s=1e-9),
        lambda: table.overwrite([{"id": 3}], timeout_s=1e-9),
        lambda: table.delete("id = 0", timeout_s=1e-9),
    ):
        with pytest.raises(sw.RetriesExhaustedError, match="Nothing was committed"):
            call()
    assert place.ids() == [0]
    assert table.limits.timeout_s == 300
    assert table.append([{"id": 1}], key="a", timeout_s=60).outcome == "committed"
    with pytest.raises(sw.InvalidInputError, match="timeout_s= is a number of seconds"):
        table.append([{"id": 1}], timeout_s=0)


@pytest.mark.parametrize("alone", [False, True])
def test_a_repeat_on_a_table_that_may_not_be_written_to_any_more_is_a_repeat(
    place: Place, alone: bool
) -> None:
    """Its rows are there: "nothing was written" made a queue deliver it until it was a dead letter, or to another table."""
    table = place.open()
    table.append_many([("a", [{"id": 1}]), ("b", [{"id": 2}])])
    place.lock_up()
    with suppress(sw.UnsupportedTableError):
        table.refresh()
    for one in (table, place.open()) if place.format == "delta" else (table,):
        with pytest.raises(sw.UnsupportedTableError):
            one.append([{"id": 3}], key="c")
        with pytest.raises(sw.UnsupportedTableError) as refused:
            one.append_many([("c", [{"id": 3}]), ("d", [{"id": 4}])])
        assert refused.value.key == "c"
        if alone:
            assert told([one.append([{"id": 2}], key="b")]) == ["already_committed"]
            with pytest.raises(sw.UnsupportedTableError):
                one.append([{"id": 5}], key="b")
        else:
            answers = one.append_many([("a", [{"id": 1}]), ("c", [{"id": 3}]), ("b", [{"id": 5}])])
            assert told(answers) == ["already_committed", "unsupported_feature", "unsupported_feature"]
            assert [answer.key for answer in answers] == ["a", "c", "b"]
    assert table.row_count() == 2
