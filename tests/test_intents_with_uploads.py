"""A key goes into the ledger while its rows are uploaded: where it was known, nothing is doubled, lost or left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pytest

import safewrite as sw
from safewrite.testing.steps import At, Recorder

ROWS, MORE = [{"id": 1}], [{"id": 2}]
MEMBERS = [("a", ROWS), ("b", MORE)]


@pytest.fixture
def table(tmp_path: Path) -> Any:
    made = sw.open(tmp_path, create=True)
    made.append([{"id": 0}])
    return made


def ids(folder: Path) -> list[int]:
    return sorted(row["id"] for row in deltalake.DeltaTable(str(folder)).to_pyarrow_table().to_pylist())


def unnamed(folder: Path) -> set[str]:
    """Data files that no commit names."""
    named = {Path(uri).name for uri in deltalake.DeltaTable(str(folder)).file_uris()}
    return {path.name for path in folder.glob("*.parquet")} - named


def dead(table: Any, step: str, write: Any) -> None:
    """A call that ends at a step, as where its process is killed."""

    def end() -> None:
        raise KeyboardInterrupt

    world = table.world
    table.world = at = At(world, step, "before", end)
    with pytest.raises(KeyboardInterrupt):
        write()
    assert at.reached
    table.world = world


def test_a_repeat_leaves_no_file(table: Any, tmp_path: Path) -> None:
    first = table.append(ROWS, key="a")
    for again in (table, sw.open(tmp_path)):
        again.world = seen = Recorder(again.world)
        repeat = again.append(ROWS, key="a")
        assert (repeat.outcome, repeat.version) == (sw.Outcome.ALREADY_COMMITTED, first.version)
        assert "stage.discard" in seen.steps
    assert (ids(tmp_path), unnamed(tmp_path)) == ([0, 1], set())


def test_files_of_an_attempt_that_follows_a_dead_one_stay(table: Any, tmp_path: Path) -> None:
    dead(table, "commit.put_commit", lambda: table.append(ROWS, key="a"))
    left = unnamed(tmp_path)
    assert len(left) == 1
    assert sw.open(tmp_path).append(ROWS, key="a").outcome == sw.Outcome.COMMITTED
    assert (ids(tmp_path), unnamed(tmp_path)) == ([0, 1], left)


def test_files_of_members_that_follow_a_dead_group_stay(table: Any, tmp_path: Path) -> None:
    dead(table, "commit.put_commit", lambda: table.append_many(MEMBERS))
    left = unnamed(tmp_path)
    assert len(left) == 1
    found = sw.open(tmp_path).append_many(MEMBERS)
    assert [one.outcome for one in found] == [sw.Outcome.COMMITTED] * 2
    assert (ids(tmp_path), unnamed(tmp_path)) == ([0, 1, 2], left)


def test_of_members_some_of_which_are_known_one_file_stays(table: Any, tmp_path: Path) -> None:
    table.append(ROWS, key="a")
    found = sw.open(tmp_path).append_many([*MEMBERS, ("c", [{"id": 3}])])
    assert [str(one.outcome) for one in found] == ["already_committed", "committed", "committed"]
    assert (ids(tmp_path), unnamed(tmp_path)) == ([0, 1, 2, 3], set())


def test_a_batch_that_was_found_before_does_not_take_the_files_of_the_others(
    table: Any, tmp_path: Path
) -> None:
    """The batch is left out before the upload, so the files are those of the members that stay."""
    batch = (("app", 1), ROWS)
    table.append(ROWS, txn=("app", 1))
    dead(table, "commit.put_commit", lambda: table.append_many([("b", MORE)]))
    left = unnamed(tmp_path)
    found = sw.open(tmp_path).append_many([batch, ("b", MORE)])
    assert [str(one.outcome) for one in found] == ["already_committed", "committed"]
    assert (ids(tmp_path), unnamed(tmp_path)) == ([0, 1, 2], left)


def test_other_rows_under_a_known_key_are_refused(table: Any, tmp_path: Path) -> None:
    table.append(ROWS, key="a")
    again = sw.open(tmp_path)
    with pytest.raises(sw.ReplayMismatchError):
        again.append(MORE, key="a")
    assert [str(getattr(one, "kind", "")) for one in again.append_many([("a", MORE)])] == ["replay_mismatch"]
    assert ids(tmp_path) == [0, 1]


def test_large_rows_are_not_uploaded_before_the_ledger_has_answered(table: Any, tmp_path: Path) -> None:
    import random

    noise = [{"id": n, "body": random.Random(n).randbytes(400_000)} for n in range(4)]
    table.append(noise, key="large", schema_mode="merge")
    for known in (lambda: table.append(noise, key="large"), lambda: table.append_many([("large", noise)])):
        world = table.world
        table.world = seen = Recorder(world)
        known()
        table.world = world
        assert "ledger.intend" in seen.steps
        assert not [step for step in seen.steps if step.startswith("stage.")]


def test_a_repeat_of_moved_positions_is_a_repeat(table: Any) -> None:
    moved = {"source": (None, 5)}
    table.append(ROWS, key="a", positions=moved)
    assert table.append(ROWS, key="a", positions=moved).outcome == sw.Outcome.ALREADY_COMMITTED
