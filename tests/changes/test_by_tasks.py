"""Changes that tasks apply do to a table what those do that this process applies: rows, counts, receipts, feed."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import deltalake
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import safewrite as sw
from safewrite.changes.lookup.key_index import HashSet
from safewrite.changes.lookup.table_files import FileRemainder
from safewrite.changes.members import table_pool
from safewrite.changes.members.table_pool import Decisions
from safewrite.changes.tasks import apply_job, read_task
from safewrite.changes.tasks.apply_job import ApplyJob
from safewrite.changes.tasks.apply_tasks import LookUp
from safewrite.engine.abc import TaskAttempt, TaskReport, performed
from safewrite.engine.exchange import Whole
from safewrite.engine.local import LocalEngine
from safewrite.iceberg.table import IcebergTable
from safewrite.testing.changes import Change
from safewrite.testing.steps import At
from tests.changes.tasked import by_tasks
from tests.changes.test_decide import OTHER, K, changes, down, up
from tests.changes.test_tables import COMMIT, SCHEMA, Lake, apply

ICEBERG = ("iceberg", "merge-on-read")
FEED = {"delta.enableChangeDataFeed": "true"}


def outcome(table: Any, batch: list[Change], name: str) -> tuple[Any, ...]:
    """What a call says of a batch, but for names and times."""
    try:
        receipt = apply(table, batch, key=name)
    except sw.InvalidInputError as error:
        return type(error), error.message.partition(": {")[
            0
        ]  # which of several keys it names goes by their order
    version = (
        len(table.history()) if isinstance(table, IcebergTable) else receipt.version
    )  # ids of snapshots are drawn
    return receipt.outcome, version, receipt.rows, receipt.changes, str(receipt.fingerprint)


@pytest.mark.sweep("vectors-False-250000", "iceberg-True-2")
@pytest.mark.parametrize(
    ("kind", "partitioned", "task_rows"),
    [
        ("delta", True, 2),
        ("vectors", False, 250_000),
        ("iceberg", True, 2),
        pytest.param("iceberg", False, 250_000, marks=pytest.mark.long),
        pytest.param("merge-on-read", False, 2, marks=pytest.mark.long),
        pytest.param("delta", True, 250_000, marks=pytest.mark.long),
        pytest.param("vectors", False, 2, marks=pytest.mark.long),
    ],
)
def test_any_log_in_any_split_does_the_same_by_tasks(
    kind: str, partitioned: bool, task_rows: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.tuples(st.lists(changes, max_size=8), st.booleans()), min_size=1, max_size=5))
    def check(steps: list[tuple[list[Change], bool]]) -> None:
        form, marks = ("iceberg" if kind in ICEBERG else "delta"), kind in {"vectors", "merge-on-read"}
        root = tmp_path_factory.mktemp("lakes")
        one, other = (Lake(form, root / name, partitioned, marks) for name in ("one", "other"))
        for number, (batch, by_hash) in enumerate(steps):
            here = outcome(one.open(), batch, f"batch-{number}")
            hashes = 100 if by_hash else 0
            with by_tasks(), mock.patch.object(read_task, "HASHES_MAX", hashes):
                assert outcome(other.open(), batch, f"batch-{number}") == here
            assert other.rows() == one.rows()

    with mock.patch.object(apply_job, "TASK_ROWS", task_rows):
        check()


@pytest.mark.sweep("True")
@pytest.mark.parametrize("marks", [False, True])
def test_the_change_feed_has_what_tasks_did(marks: bool, tmp_path: Path) -> None:
    found = []
    properties = FEED | ({"delta.enableDeletionVectors": "true"} if marks else {})
    batches = [
        [up((1, 0), "a"), up((1, 0), "b", OTHER)],
        [up((2, 0), "c"), down((2, 0), OTHER)],
        [up((3, 0), "d", (9, "z"))],
        [Change("truncate", (4, 0)), up((5, 0), "e")],
    ]
    for name in ("one", "other"):
        uri = str(tmp_path / name)
        sw.create(uri, SCHEMA, properties=properties)
        for batch in batches:
            if name == "one":
                apply(sw.open(uri), batch)
            else:
                with by_tasks():
                    apply(sw.open(uri), batch)
        rows = pa.table(deltalake.DeltaTable(uri).load_cdf(starting_version=1).read_all()).to_pylist()
        found.append(
            Counter((one["_commit_version"], one["_change_type"], one["a"], one["value"]) for one in rows)
        )
    assert found[0] == found[1]
    assert sum(found[0].values()) == 9
    assert {kind: count for (version, kind, *_), count in found[0].items() if version == 4} == {
        "delete": 1,
        "update_preimage": 1,
        "update_postimage": 1,
    }


def test_the_feed_of_a_refresh_by_tasks_has_no_row_that_was_gone_before(tmp_path: Path) -> None:
    """Of a file that goes with its deletion vector readers take the vector's rows, but for the change files."""
    uri = str(tmp_path / "t")
    table = sw.create(uri, SCHEMA, properties=FEED | {"delta.enableDeletionVectors": "true"})
    apply(table, [up((1, 0), "a"), up((1, 0), "b", OTHER), up((1, 0), "d", (9, "z"))])
    assert apply(table, [down((2, 0), OTHER)]).changes["deleted"] == 1
    with by_tasks():
        version = apply(sw.open(uri), [up((3, 0), "c")], full_refresh=True).version
    rows = pa.table(deltalake.DeltaTable(uri).load_cdf(starting_version=version).read_all()).to_pylist()
    assert sorted((one["_change_type"], one["value"]) for one in rows) == [
        ("delete", "a"),
        ("delete", "d"),
        ("insert", "c"),
    ]


def test_a_rival_makes_a_plan_look_through_its_files_alone(tmp_path: Path) -> None:
    lake = Lake("delta", tmp_path)
    apply(lake.open(), [up((1, 0), "old")])
    looked: list[list[str]] = []
    call = LookUp.__call__

    def noted(self: LookUp, *args: Any) -> Any:
        looked.append([file.name for group in self.groups for file in group])
        return call(self, *args)

    table, rival = lake.open(), lake.open()
    theirs = [up((2, 0), "theirs", OTHER)]
    table.world = At(table.world, COMMIT["delta"], "before", lambda: apply(rival, theirs))
    with mock.patch.object(LookUp, "__call__", noted), by_tasks():
        assert apply(table, [up((3, 0), "ours"), up((3, 0), "ours", OTHER)]).changes["updated"] == 2
    assert [len(names) for names in looked] == [1, 1]
    assert lake.rows() == {K: "ours", OTHER: "ours"}


class Copying(LocalEngine):
    """An engine whose tasks are copies, as executors have: what they learn stays with them."""

    def map(self, source: Any, task: Any, rows_a_batch: int | None = None) -> Any:
        return super().map(source, pickle.loads(pickle.dumps(task)))

    def run(self, tasks: Any) -> Any:
        return super().run(pickle.loads(pickle.dumps(tasks)))


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_file_that_tasks_looked_through_and_of_which_rows_were_marked_before_is_followed(
    form: str, tmp_path: Path
) -> None:
    """The driver reads the vector under which tasks looked, besides the rival's."""
    lake = Lake(form, tmp_path, vectors=True)
    apply(lake.open(), [up((1, 0), "old", (key, "x")) for key in range(20)])
    rival, table = lake.open(), lake.open()
    apply(rival, [up((2, 0), "first", (0, "x"))])
    theirs = [up((2, 0), "theirs", (1, "x"))]
    table.world = At(table.world, COMMIT[form], "before", lambda: apply(rival, theirs))
    with by_tasks(engine=Copying()):
        assert apply(table, [up((3, 0), "ours", (7, "x"))]).rebased == 1
    made = {(key, "x"): "old" for key in range(20)}
    assert lake.rows() == made | {(0, "x"): "first", (1, "x"): "theirs", (7, "x"): "ours"}


@dataclass
class Elsewhere(LocalEngine):
    """An engine that gives few rows to this process; ``tasks`` are those that it ran."""

    tasks: list[str] = field(default_factory=list)

    def here(self, source: Any) -> Any:
        return source

    def map(self, source: Any, task: Any, rows_a_batch: int | None = None) -> Any:
        self.tasks.append(type(task).__name__)
        return super().map(source, task)

    def run(self, tasks: Any) -> Any:
        self.tasks += [type(task).__name__ for task in tasks]
        return super().run(tasks)


@pytest.mark.long
@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_few_changes_of_few_bytes_are_read_by_the_engine_and_applied_in_this_process(
    form: str, tmp_path: Path
) -> None:
    jobs = ["ReadChanges", "LookUp", "ApplyPart", "Rewrite"]
    cases: list[tuple[dict[str, int], Any, list[str]]] = [
        ({"FEW_ROWS": 2}, None, jobs[:1]),
        ({"FEW_ROWS": 1}, None, jobs),
        ({"FEW_BYTES": 300}, None, jobs),  # less than the file that may have the keys
        ({"FEW_ROWS": 2}, lambda rows, counts: None, jobs),  # rows for a check stay where they are
    ]
    lake = Lake(form, tmp_path)
    apply(lake.open(), [up((1, 0)), up((1, 0), "p", OTHER), up((1, 0), "stays", (9, "z"))])
    for number, (limits, check, expected) in enumerate(cases, 2):
        engine = Elsewhere()
        with mock.patch.multiple(apply_job, **limits), by_tasks(engine=engine):
            apply(lake.open(), [up((number, 0), f"of {number}"), up((number, 0), "p", OTHER)], check=check)
        assert engine.tasks == expected
        assert lake.rows() == {K: f"of {number}", OTHER: "p", (9, "z"): "stays"}


def test_a_rival_of_other_keys_lets_what_was_written_stand(tmp_path: Path) -> None:
    lake = Lake("delta", tmp_path, partitioned=True)
    apply(lake.open(), [up((1, 0), "old")])
    table, rival = lake.open(), lake.open()
    table.world = At(
        table.world, COMMIT["delta"], "before", lambda: apply(rival, [up((2, 0), "theirs", OTHER)])
    )
    with by_tasks():
        assert apply(table, [up((3, 0), "ours")]).changes["updated"] == 1
    files = {path for path in tmp_path.rglob("part-*.parquet") if "_safewrite" not in str(path)}
    assert len(files) == 3, "one of each commit"
    assert lake.rows() == {K: "ours", OTHER: "theirs"}


def test_files_of_tasks_with_other_rows_than_were_decided_are_not_committed(tmp_path: Path) -> None:
    lake = Lake("delta", tmp_path)
    apply(lake.open(), [up((1, 0)), up((1, 0), "p", OTHER)])
    rewrite = ApplyJob.rewrite

    def twice(self: ApplyJob, *args: Any) -> Any:
        rests = yield from rewrite(self, *args)
        return {name: FileRemainder(one.rows, one.of, one.files * 2) for name, one in rests.items()}

    refused = pytest.raises(sw.SafewriteError, match="Nothing was committed")
    with mock.patch.object(ApplyJob, "rewrite", twice), by_tasks(), refused:
        apply(lake.open(), [up((2, 0), "new")])
    assert lake.rows() == {K: "p", OTHER: "p"}


def test_a_chunk_that_is_lost_on_its_way_is_noticed(tmp_path: Path) -> None:
    lake = Lake("delta", tmp_path)
    together = apply_job.ApplyJob._decided

    def lossy(self: ApplyJob, *args: Any, **how: Any) -> Any:
        self.source = [batches[1:] for batches in self.source]
        return together(self, *args, **how)

    refused = pytest.raises(sw.SafewriteError, match="0 and 0 came")
    with mock.patch.object(ApplyJob, "_decided", lossy), by_tasks(), refused:
        apply(lake.open(), [up((1, 0))])
    assert lake.rows() == {}


@pytest.mark.parametrize("count", [0, 1, 5_000])
def test_a_set_of_hashes_has_those_that_it_was_made_of(count: int) -> None:
    hashes = np.unique(np.random.default_rng(7).integers(0, 2**64, count, np.uint64))
    others = hashes ^ np.uint64(1 << 40)  # the same low bits
    asked = np.concatenate([others, hashes, others])
    assert HashSet(hashes).among(asked).tolist() == [*range(len(hashes), 2 * len(hashes))]


@pytest.mark.parametrize(("most", "read"), [(10_000, [1, 5]), (2, [1, 1, 2, 2])])
def test_changes_of_a_table_that_came_from_several_tasks_are_read_together(
    most: int, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reading costs as much as that of a thousand changes, and forty tables in many partitions were read by the hundred."""
    monkeypatch.setattr(table_pool, "JOINED", most)
    shares = [Whole(pa.table({"k": [number]}), "t") for number in range(5)]
    shares += [Whole(pa.table({"row": [b"one by one"]}), "t"), Whole(pa.table({"k": [9]}), "other")]
    read_of, told = list[int](), list[int]()

    def read_some(rows: pa.Table) -> pa.Table:
        read_of.append(rows.num_rows)
        return rows

    @dataclass(frozen=True)
    class Count:
        columns: None = None

        def __call__(self, given: Any, at: TaskAttempt) -> Any:
            yield from ()
            told.append(sum(share.table().num_rows for share in given))

    reports = [*performed(Decisions({"t": (Count(), read_some)}, 1), shares, TaskAttempt(0, 0))]
    assert [type(one) for one in reports] == [TaskReport]
    assert (sorted(read_of), told) == (read, [6])
