"""What a group leaves behind when it is cut off, and what its members find there: never other rows taken for a repeat."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import StringType

import safewrite as sw
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, LedgerCommit, Ok, Outcome, Together, Unknown
from safewrite.stores.world import Performer, run
from safewrite.testing.steps import Answers, At
from tests.test_append_many import Place, place, told  # noqa: F401 - a fixture

LONG = [(f"event-{n:06}", [{"id": 1_000 + n}]) for n in range(700)]


class Unheard(Performer):
    """The ledger is told of no commit, as after a crash between the commit and the note."""

    def __init__(self, world: Performer) -> None:
        self.world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self.world, name)

    def perform(self, effect: Effect) -> Outcome:
        if isinstance(effect, LedgerCommit):
            return Ok()
        if isinstance(effect, Together):
            heard = tuple(one for one in effect.effects if not isinstance(one, LedgerCommit))
            done = self.world.perform(replace(effect, effects=heard)) if heard else Ok(())
            assert isinstance(done, Ok)
            assert isinstance(done.value, tuple)
            answers = iter(done.value)
            return Ok(
                tuple(Ok() if isinstance(one, LedgerCommit) else next(answers) for one in effect.effects)
            )
        return self.world.perform(effect)


def unheard(place: Place, members: list[Any]) -> None:  # noqa: F811 - not the fixture
    """Commit a group of which the ledger knows the intents alone."""
    table = place.open()
    table.append([{"id": 0}])
    table.world = Unheard(table.world)
    assert set(told(table.append_many(members))) == {"committed"}


@pytest.mark.sweep("iceberg", "delta-long")
@pytest.mark.parametrize("members", [LONG[:3], LONG], ids=["short", "long"])
def test_other_rows_are_refused_however_often_they_come(place: Place, members: list[Any]) -> None:  # noqa: F811
    """A refusal must leave the ledger as it was: it would take the other rows for those that landed."""
    unheard(place, members)
    key, rows = members[1]
    for _ in range(2):
        with pytest.raises(sw.ReplayMismatchError):
            place.open().append([{"id": 7}], key=key)
        assert told(place.open().append_many([(key, [{"id": 8}])])) == ["replay_mismatch"]
    assert place.open().append(rows, key=key).outcome == "already_committed"
    assert place.ids() == [0, *(1_000 + n for n in range(len(members)))]


def test_rows_of_a_list_that_is_gone_are_not_taken_for_a_repeat(tmp_path: Path) -> None:
    here = Place(tmp_path, "delta")
    unheard(here, LONG)
    shutil.rmtree(tmp_path / "t" / "_safewrite" / "members")
    with pytest.raises(sw.StorageError, match="the list of a commit's writes, is gone"):
        here.open().append([{"id": 7}], key=LONG[1][0])


@pytest.mark.long
def test_a_long_list_whose_snapshot_was_expired_meanwhile_is_not_taken_for_a_repeat(tmp_path: Path) -> None:
    """Its rows cannot be compared any more, so its members are refused and not acknowledged."""
    here = Place(tmp_path, "iceberg")
    table, rival = here.open(), here.open()
    table.append([{"id": 0}])
    rival.refresh()

    def commit_and_expire() -> None:
        rival.append_many([*LONG, ("b", [{"id": 2}])])
        rival.append([{"id": 3}])
        listed = rival.iceberg.snapshots()
        rival.iceberg.maintenance.expire_snapshots().by_ids([one.snapshot_id for one in listed[:-1]]).commit()

    from tests.test_append_many import Between

    table.world = Between(table.world, "swap.commit", commit_and_expire)
    assert told(table.append_many([("a", [{"id": 1}]), ("b", [{"id": 9}])]))[1] == "replay_mismatch"
    assert 9 not in here.ids()


def test_members_of_a_dropped_table_are_written_to_the_new_one_and_remembered_there(tmp_path: Path) -> None:
    """The ledger outlives the table: what it then notes must be of the new one (A17)."""
    here, members = Place(tmp_path, "delta"), LONG[:2]
    here.open().append_many(members)
    shutil.rmtree(tmp_path / "t" / "_delta_log")
    table = here.open()
    assert told(table.append_many(members)) == ["committed"] * 2
    record = run(keys.recall(members[0][0], Limits()), table.world)
    assert record is not None
    assert (record.table_id, record.version) == (table._format._state.table_id, 0)
    assert told(here.open().append_many(members)) == ["already_committed"] * 2


@pytest.mark.long
def test_what_was_rolled_back_is_remembered_as_what_came_instead(tmp_path: Path) -> None:
    here = Place(tmp_path, "iceberg")
    table = here.open()
    first = table.append([{"id": 0}])
    table.append_many([("a", [{"id": 1}]), ("b", [{"id": 2}])])
    iceberg = table.refresh().iceberg
    iceberg.manage_snapshots().rollback_to_snapshot(first.version).commit()
    assert told(here.open().append_many([("a", [{"id": 5}]), ("b", [{"id": 2}])])) == ["committed"] * 2
    assert told(here.open().append_many([("a", [{"id": 1}])])) == ["replay_mismatch"]
    assert told(here.open().append_many([("a", [{"id": 5}])])) == ["already_committed"]
    assert here.ids() == [0, 2, 5]


def test_what_the_callers_generator_raises_is_told_as_its_own(place: Place) -> None:  # noqa: F811
    def members() -> Any:
        yield "a", [{"id": 1}]
        raise ValueError("no more")

    with pytest.raises(sw.InvalidInputError, match=r"no more.*Nothing was written"):
        place.open().append_many(members())


@pytest.mark.long
def test_a_catalog_that_fails_between_two_plans_names_a_member_too(tmp_path: Path) -> None:
    """Another writer changed the schema, and the look at the new one was refused: the error had no key."""
    here = Place(tmp_path, "iceberg")
    table = here.open()
    table.append([{"id": 0}])
    table.limits = Limits(asks=2)

    def widen() -> None:
        with here.open().iceberg.update_schema() as update:
            update.add_column("new", StringType())

    for call in (
        lambda: table.append_many([("a", [{"id": 1}]), (("app", 1), [{"id": 2}])]),
        lambda: table.append_many([(("app", 1), [{"id": 2}])]),
        lambda: table.append([{"id": 2}], txn=("app", 1)),
    ):
        world = table.world
        table.world = Answers(
            At(world, "swap.commit", "before", widen), "swap.load", Unknown("down"), perform=False
        )
        with pytest.raises(sw.NotCommittedError) as raised:
            call()
        assert raised.value.key in ("a", "app/1")
        table.world = world
        table.refresh()


class Torn(Performer):
    """A commit's answer is lost, and after it the ledger's: the look at the log, too, finds nobody."""

    def __init__(self, world: Performer) -> None:
        self.world = world
        self.is_lost = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.world, name)

    def perform(self, effect: Effect) -> Outcome:
        if self.is_lost:
            raise ConnectionError("nobody answers")
        outcome = self.world.perform(effect)
        if effect.name in ("commit.put_commit", "swap.commit"):
            self.is_lost = True
            return Unknown("the answer was lost")
        return outcome


@pytest.mark.long
def test_a_group_in_doubt_is_in_doubt_also_where_the_ledger_breaks(place: Place) -> None:  # noqa: F811
    table = place.open()
    table.append([{"id": 0}])
    world = table.world
    table.world = Torn(world)
    with pytest.raises(sw.CommitUnknownError):
        table.append_many(LONG[:3])
    table.world = world
    assert set(told(place.open().append_many(LONG[:3]))) == {"already_committed"}
    assert place.ids() == [0, 1_000, 1_001, 1_002]


def test_resolve_knows_that_a_group_ended_in_doubt(tmp_path: Path) -> None:
    here = Place(tmp_path, "delta")
    table = here.open()
    table.append([{"id": 0}])

    def fail() -> None:
        raise ConnectionError("nobody answers")

    table.world = At(table.world, "commit.put_commit", "before", fail)
    with pytest.raises(sw.CommitUnknownError):
        table.append_many(LONG[:3])
    for key, _ in LONG[:3]:
        with pytest.raises(sw.CommitUnknownError, match="may still land at version 1"):
            here.open().resolve(key)
