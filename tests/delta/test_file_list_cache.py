"""The list of files that is kept from write to write is the one that reading anew gives, and costs the commits since."""

from __future__ import annotations

import json
import random
from functools import partial

import pyarrow as pa
import pytest

from safewrite.delta.data.pruning import Pruning
from safewrite.delta.log import actions
from safewrite.delta.log.checkpoint import write_checkpoint
from safewrite.delta.log.file_list_cache import KnownFiles
from safewrite.delta.log.replay import load_files
from safewrite.delta.log.snapshot import load
from safewrite.delta.table import DeltaTable
from safewrite.errors import StorageError
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Get, Ok, Outcome
from safewrite.stores.world import Performer, run
from safewrite.testing.steps import At, Stepwise
from tests.changes.test_decide import OTHER, K, up
from tests.changes.test_tables import COMMIT, Lake, apply
from tests.delta.logs import PROTOCOL, Table, add, metadata, plain_state, remove

SCHEMA = pa.schema({"n": pa.int64(), "day": pa.string()})


def through(table: Table, files: KnownFiles):
    """What the next write would plan on, and how many files of the log that took."""
    state = table.run(load())
    table.asked.clear()
    return table.run(files.load(state, Limits())), table.asked["Get"]


def said(files):
    """What a plan reads of a list; a checkpoint writes ``dataChange: false``."""
    adds = {key: {**one, "dataChange": None} for key, one in files.adds.items()}
    return adds, files.domains, files.state


def test_a_list_that_is_kept_equals_one_that_is_read_anew():
    """Random commits, a checkpoint now and then, plans at random versions."""
    draw, files = random.Random(1), KnownFiles()
    table, live = Table(PROTOCOL, metadata()), set()
    for number in range(120):
        gone = draw.sample(sorted(live), min(len(live), draw.randrange(3)))
        live = (live - set(gone)) | {f"f{number}"}
        txn = {"txn": {"appId": f"a{number % 5}", "version": number}}
        table.commit(add(f"f{number}"), *map(remove, gone), txn)
        if number % 25 == 24:
            table.run(write_checkpoint(table.run(load())))
        if draw.random() < 0.3:
            found, _ = through(table, files)
            anew = table.run(load_files(table.run(load())))
            assert said(found) == said(anew)
            assert {path for path, _ in found.adds} == live


def test_only_commits_since_are_read():
    table, files = Table(PROTOCOL, metadata(), add("a")), KnownFiles()
    for number in range(8):
        table.commit(add(f"{number}"))
    assert through(table, files)[1] > 8
    assert through(table, files)[1] == 0
    table.commit(add("b"))
    table.commit(remove("a"))
    found, asked = through(table, files)
    assert asked == 2
    assert len(found.adds) == 9


def test_an_older_version_and_a_table_that_was_made_anew_are_read_whole():
    table, files = Table(PROTOCOL, metadata(), add("a")), KnownFiles()
    old = table.run(load())
    table.commit(add("b"))
    through(table, files)
    assert list(table.run(files.load(old, Limits())).adds) == [("a", None)]
    through(table, files)
    other = metadata()
    other["metaData"]["id"] = "0a7a3a2e-0000-4000-8000-000000000002"
    anew = Table(PROTOCOL, other, add("x"))
    anew.commit(add("y"))
    assert [path for path, _ in through(anew, files)[0].adds] == ["x", "y"]


def test_a_commit_that_was_cleaned_away_since_is_no_gap():
    table, files = Table(PROTOCOL, metadata(), add("a")), KnownFiles()
    through(table, files)
    for name in "bcd":
        table.commit(add(name))
    table.run(write_checkpoint(table.run(load())))
    for version in range(3):
        del table.blobs[actions.commit_path(version)]
    assert [path for path, _ in through(table, files)[0].adds] == ["a", "b", "c", "d"]


def test_an_answer_that_is_anothers_is_refused():
    """Faults A8: a list with a hole would be kept for all writes to come."""
    table, files = Table(PROTOCOL, metadata(), add("a")), KnownFiles()
    through(table, files)
    table.commit(add("b1"))
    table.commit(remove("a"))
    state, wrong = table.run(load()), table.blobs[actions.commit_path(1)]
    get = Get(actions.commit_path(2), name="files.get_commit")
    table.answer = lambda effect: Ok(wrong) if effect == get else None
    with pytest.raises(StorageError, match="other bytes"):
        table.run(files.load(state, Limits()))
    table.answer = lambda _: None
    assert [path for path, _ in table.run(files.load(state, Limits())).adds] == ["b1"]


def test_a_long_list_is_not_kept():
    table, files = Table(PROTOCOL, metadata(), add("a"), add("b"), add("c")), KnownFiles(files_max=3)
    through(table, files)
    assert files.replay is not None
    table.commit(add("d"))
    assert len(through(table, files)[0].adds) == 4
    assert files.replay is None


def test_the_ends_of_a_batch_leave_out_no_file_that_its_keys_would_keep():
    """Against each key by itself, on cut texts and open ends too."""
    draw = random.Random(2)
    texts = ["", "a", "aa", "ab", "b", "é", "行", "a行"]
    for _ in range(120):
        numbers, days = draw.choices(range(12), k=3), draw.choices(texts, k=3)
        low, high = sorted(draw.choices(texts, k=2))
        stats = {
            "numRecords": 5, "minValues": {"n": draw.randrange(12), "day": low},
            "maxValues": {"n": draw.randrange(12), "day": high}, "nullCount": {"n": 0, "day": draw.choice([0, 5])},
        }  # fmt: skip
        for end in ("minValues", "maxValues"):
            if draw.random() < 0.2:
                del stats[end][draw.choice(["n", "day"])]
        file = add("f", stats=json.dumps(stats))["add"]
        keys = {"n": pa.array(numbers, pa.int64()), "day": pa.array(days)}
        alone = [{"n": pa.array([n], pa.int64()), "day": pa.array([day])} for n in numbers for day in days]
        if any(Pruning(one, plain_state(SCHEMA)).may_hold(file) for one in alone):
            assert Pruning(keys, plain_state(SCHEMA)).may_hold(file)
        for name, values in keys.items():
            expected = any(Pruning({name: one[name]}, plain_state(SCHEMA)).may_hold(file) for one in alone)
            assert Pruning({name: values}, plain_state(SCHEMA)).may_hold(file) == expected


class Steps(Stepwise):
    """Notes the steps of a write."""

    def __init__(self, world: Performer) -> None:
        super().__init__(world)
        self.named: list[str] = []

    def _step(self, step: str, effect: Effect) -> Outcome:
        self.named.append(step)
        return self.world.perform(effect)


def kept(table: DeltaTable):
    """The list that a handle keeps, and the one that is read anew of the same version."""
    files = table._format.planner.known_files.replay
    assert files is not None
    world = table._format.world
    anew = run(load_files(run(load(at=files.state.version), world)), world)
    return said(files), said(anew)


def test_a_handle_keeps_the_list_that_its_own_commit_leaves(tmp_path):
    """Also where rivals committed between its plan and its commit; then it reads their commits, and none of its own."""
    lake = Lake("delta", tmp_path, partitioned=True)
    table, rival = lake.open(), lake.open()
    for number in range(4):
        meets = number % 2
        if meets:  # before the commit: the plan is made again where the rival touched its key
            theirs = [up((number, 0), "theirs", K if number == 3 else OTHER)]
            table.world = At(table._format.world, COMMIT["delta"], "before", partial(apply, rival, theirs))
        apply(table, [up((number, 1), f"of {number}")])
        found, anew = kept(table)
        assert found == anew
        assert found[2].version == table.version
    table.world = steps = Steps(table._format.connection.world)
    apply(table, [up((9, 0), "alone")])
    assert [step for step in steps.named if step.startswith("files.")] == []
    apply(rival, [up((9, 0), "theirs", OTHER)])
    steps.named.clear()
    apply(table, [up((10, 0), "after it")])
    assert [step for step in steps.named if step.startswith("files.get")] == ["files.get_commit"]
    found, anew = kept(table)
    assert found == anew
    assert lake.rows() == {K: "after it", OTHER: "theirs"}
