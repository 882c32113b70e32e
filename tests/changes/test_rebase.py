"""A plan that is brought to a newer base is the plan that would be made there, whatever others committed in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import currently_in_test_context, event, given
from hypothesis import strategies as st

from safewrite.changes.lookup.candidate_rows import KeySearch
from safewrite.changes.lookup.table_files import LiveFile, RowsThatCame, SmallReads
from safewrite.changes.meaning.member_batches import MemberChanges
from safewrite.changes.meaning.memory import Memory
from safewrite.changes.meaning.positions import compared
from safewrite.changes.meaning.reading import Changes, fingerprint_of
from safewrite.changes.meaning.spec import Spec
from safewrite.changes.tasks import rebase
from safewrite.changes.tasks.abc import AppliedBatch, BatchWork
from safewrite.changes.tasks.apply_job import ApplyJob
from safewrite.changes.tasks.apply_tasks import ApplyPart
from safewrite.changes.tasks.one_part import OnePart
from safewrite.changes.tasks.read_task import ReadBatch, ReadChanges
from safewrite.engine.local import LocalEngine
from safewrite.errors import InvalidInputError
from safewrite.protocol.effects import Effect, Outcome
from safewrite.testing.changes import Change, KeyEntry, Oracle, RefusedError
from tests.changes.test_decide import KEYS, SCHEMA, SEQUENCE, Target, down, up
from tests.sampling import no_more_than

SPEC = Spec(KEYS, SEQUENCE, all_late="count")
NOW_MS = 10**12
NONE = SCHEMA.empty_table()


@dataclass(frozen=True)
class File:
    """A data file: all of its rows, and the numbers of those that are marked as gone."""

    path: str
    rows: pa.Table
    gone: frozenset[int] = frozenset()

    @property
    def name(self) -> str:
        return f"{self.path}#{sorted(self.gone)}"

    @property
    def stays(self) -> Any:
        flags = np.ones(self.rows.num_rows, np.bool_)
        flags[list(self.gone)] = False
        return flags

    @property
    def live(self) -> pa.Table:
        return self.rows.filter(pa.array(self.stays))


class MemoryFiles:
    """``TableFiles`` of files that are their own handles; rows that are written are files."""

    small = SmallReads()

    def named(self, write_id: str) -> MemoryFiles:
        return self

    def run(self, steps: Generator[Effect, Outcome, Any]) -> Any:
        return ended(steps)

    def write(self, come: pa.Table, gone: pa.Table, at: str) -> Generator[Effect, Outcome, RowsThatCame]:
        yield from ()
        return RowsThatCame(come.num_rows, (come,) if come.num_rows else ())

    def look_up(self, files: Sequence[LiveFile], sought: KeySearch) -> Generator[Effect, Outcome, None]:
        yield from ()
        for file in files:
            hits = sought.search(file.handle.live.select(sought.columns))
            sought.note(file.name, hits if sought.suffices(hits) else sought.search(file.handle.live))

    def followed(
        self, before: Sequence[LiveFile], after: Sequence[LiveFile]
    ) -> Generator[Effect, Outcome, list[tuple[str, str, Any]]]:
        yield from ()
        was = {one.handle.path: one for one in before}
        pairs = [(was[now.handle.path], now) for now in after if now.handle.path in was]
        return [
            (old.name, now.name, now.handle.stays[old.handle.stays])
            for old, now in pairs
            if old.handle.gone <= now.handle.gone
        ]

    def gathered(self, after: Sequence[LiveFile]) -> tuple[()]:
        return ()


@dataclass
class Lake:
    """A table in memory, and how many files it ever had."""

    files: dict[str, File] = field(default_factory=dict)
    memory: Memory = field(default_factory=lambda: Memory.empty(KEYS, SEQUENCE, SCHEMA))
    made: int = 0

    @property
    def live(self) -> list[LiveFile]:
        return [LiveFile(file.name, file, 1) for file in self.files.values()]

    @property
    def rows(self) -> dict[tuple[int, str], str]:
        whole = [row for file in self.files.values() for row in file.live.to_pylist()]
        found = {(one["a"], one["b"]): one["value"] for one in whole}
        assert len(found) == len(whole), "a key is there twice"
        return found

    def add(self, rows: pa.Table) -> None:
        if rows.num_rows:
            self.made += 1
            self.files[f"f{self.made}"] = File(f"f{self.made}", rows)

    def mark(self, path: str, numbers: Sequence[int]) -> None:
        """Take live rows out of a file, by their numbers in it."""
        file = self.files[path]
        self.files[path] = File(path, file.rows, file.gone | {*numbers})

    def rewrite(self, paths: Sequence[str]) -> None:
        """What is left of some files, in one that is in another order."""
        rows = pa.concat_tables([self.files.pop(path).live for path in paths])
        self.add(rows.take(pa.array(np.arange(rows.num_rows)[::-1])))

    def commit(self, applied: AppliedBatch) -> None:
        for path, file in [*self.files.items()]:
            live = np.flatnonzero(file.stays)
            gone = live[applied.goes.get(file.name, np.zeros(0, np.int64))]
            self.mark(path, gone.tolist())
            if applied.cut is not None:
                columns = [file.rows.column(name) for name in SEQUENCE]
                self.mark(path, np.flatnonzero(compared(columns, applied.cut) < 0).tolist())
        self.add(come_of(applied).cast(SCHEMA))
        self.memory = applied.outcome.memory


def part(batch: list[Change]) -> BatchWork:
    changes = Target.batch(batch)
    return OnePart(SPEC, SCHEMA, MemoryFiles(), Changes(changes, fingerprint_of(changes)))  # type: ignore[arg-type]


def group(batch: list[Change]) -> BatchWork:
    """The same as a member of a group."""
    changes = Target.batch(batch)
    member = MemberChanges("m", Changes(changes, fingerprint_of(changes)))
    return OnePart(SPEC, SCHEMA, MemoryFiles(), group=(member,))  # type: ignore[arg-type]


def has_members(work: BatchWork) -> bool:
    return isinstance(work, OnePart) and bool(work.group)


def job(batch: list[Change]) -> BatchWork:
    """The same by tasks, of few keys each."""
    changes = Target.batch(batch)
    task = ReadChanges(SPEC, SCHEMA, ())
    dealt, report = task.dealt(Changes(changes, fingerprint_of(changes)))
    read = ReadBatch(SPEC, SCHEMA, report, report.fingerprint, parts=4)
    return ApplyJob(LocalEngine(), read, [[dealt]], MemoryFiles(), lambda: "")  # type: ignore[arg-type]


def come_of(applied: AppliedBatch) -> pa.Table:
    """The rows that come, written or not."""
    return (
        pa.concat_tables([*applied.files]) if applied.come is None and applied.rows else applied.come or NONE
    )


def ended(steps: Generator[Effect, Outcome, Any]) -> Any:
    try:
        next(steps)
    except StopIteration as end:
        return end.value
    raise AssertionError("nothing is asked of the world")


def planned(work: BatchWork, lake: Lake) -> AppliedBatch | str:
    """What a plan decides on a table, or why it refuses to."""
    try:
        applied: AppliedBatch = ended(work.apply(lake.memory, lake.live, NOW_MS))
    except InvalidInputError:
        return "refused"
    return "refused" if applied.outcome.faults else applied


def told(applied: AppliedBatch | str) -> Any:
    """All that a commit takes from a plan."""
    if isinstance(applied, str):
        return applied
    settled, memory = applied.outcome.settled, applied.outcome.memory
    goes = {name: places.tolist() for name, places in applied.goes.items()}
    remembered = sorted(map(repr, memory.tombstones.to_pylist())), memory.floor
    come = sorted(map(repr, come_of(applied).to_pylist()))
    return come, goes, applied.counts, applied.cut, settled.decision.counts, remembered


sequences = st.tuples(st.integers(0, 1), st.integers(0, 2))
names = st.tuples(st.integers(0, 3), st.sampled_from("xy"))
upserts = st.builds(
    lambda key, seq, value: Change("upsert", seq, key, value), names, sequences, st.sampled_from("pq")
)
deletes = st.builds(lambda key, seq: Change("delete", seq, key), names, sequences)
batches = st.lists(st.one_of(upserts, upserts, deletes), max_size=8)
truncates = st.just(Change("truncate", (0, 9)))  # no row has its sequence
steps = st.one_of(
    st.tuples(st.just("commit"), st.integers(0, 2)),
    st.tuples(st.just("commit"), st.integers(0, 2)),
    st.tuples(st.just("plan"), st.integers(0, 2)),
    st.tuples(st.sampled_from(["rewrite", "compact", "drop", "append"]), st.integers(0, 7)),
)


@no_more_than(150)
@given(
    batches,
    st.lists(batches | st.lists(truncates | upserts, max_size=3), min_size=2, max_size=3),
    st.lists(steps, max_size=9),
    st.sampled_from([part, job, group]),
)
def test_writers_in_any_order_of_commits_beside_other_engines_leave_what_one_after_another_would(
    first: list[Change], batches: list[list[Change]], steps: list[tuple[str, int]], work_of: Any
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rebase, "AGAIN_MAX", 1.0)
        lake, oracle = Lake(), Oracle()
        commit(lake, oracle, first, part(first))
        works = [work_of(batch) for batch in batches]
        for work in works:
            planned(work, lake)
        committed = set[int]()
        for what, at in [*steps, *(("commit", number) for number in range(len(batches)))]:
            number = at % len(batches)
            if what == "commit" and number not in committed:
                committed.add(number)
                commit(lake, oracle, batches[number], works[number])
            elif what == "plan":
                assert told(planned(works[number], lake)) == told(planned(part(batches[number]), lake))
            else:
                disturb(lake, oracle, what, at)
        assert lake.rows == oracle.rows


def test_by_tasks_what_others_leave_alone_is_neither_decided_nor_written_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each rival does one thing before the next plan: what is run is bounded by what it did."""
    lake, oracle = Lake(), Oracle()
    rows = [up((1, 1), "old", (key, "x")) for key in range(20)]
    commit(lake, oracle, rows, part(rows))
    deleted = [down((1, 2), (key, "x")) for key in (2, 13)] + [down((3, 0), (12, "x"))]
    commit(lake, oracle, deleted, part(deleted))
    ours = [up((2, 0), "ours", (key, "x")) for key in range(10, 21)] + [down((2, 0), (9, "x"))]
    work, ran = job(ours), Counter[str]()
    call = ApplyPart.__call__

    def noted(self: ApplyPart, *args: Any) -> Any:
        ran["decided"] += 1
        applied = yield from call(self, *args)
        ran["written"] += applied.written is not None and applied.written.rows > 0
        return applied

    def by(batch: list[Change]) -> Any:
        return lambda: commit(lake, oracle, batch, part(batch))

    monkeypatch.setattr(ApplyPart, "__call__", noted)
    planned(work, lake)
    assert ran.pop("decided") == 4
    rivals: list[tuple[str, Any, bool, bool]] = [
        ("marks a row before ours", by([up((2, 0), "theirs", (0, "x"))]), False, False),
        ("deletes a row of another key", by([down((2, 0), (1, "x"))]), False, False),
        ("brings a deleted key back", by([up((4, 0), "theirs", (2, "x"))]), False, False),
        ("rewrites a file that we mark", lambda: lake.rewrite(["f1"]), True, False),
        ("has an older row of our key", by([up((1, 5), "theirs", (15, "x"))]), True, False),
        ("marks another row of each", by([up((5, 0), "theirs", (k, "x")) for k in (3, 14)]), True, True),
        ("deletes a row as other engines do", lambda: drop(lake, (18, "x")), True, False),
        ("deletes a row of our key", by([down((6, 0), (17, "x"))]), True, True),
    ]
    for what, act, decides, writes in rivals:
        act()
        ran.clear()
        applied = planned(work, lake)
        assert (ran["decided"] > 0, ran["written"] > 0) == (decides, writes), what
        assert told(applied) == told(planned(job(ours), lake)), what
        assert isinstance(applied, AppliedBatch)
        assert applied.is_rebased, what
    lake.memory = replace(lake.memory, forgotten=(2, 0))
    assert told(planned(work, lake)) == told(planned(job(ours), lake))


def test_members_are_decided_about_again_only_where_others_changed_rows_of_theirs() -> None:
    lake, oracle = Lake(), Oracle()
    rows = [up((1, 1), "old", (key, "x")) for key in range(4)]
    commit(lake, oracle, rows, part(rows))
    ours = [up((2, 0), "ours", (2, "x")), up((2, 0), "ours", (3, "x"))]
    work = group(ours)
    planned(work, lake)
    for key, stands in ((0, True), (3, False), (1, True)):
        theirs = [up((1, 2), "theirs", (key, "x"))]
        commit(lake, oracle, theirs, part(theirs))
        applied = planned(work, lake)
        assert told(applied) == told(planned(group(ours), lake))
        assert isinstance(applied, AppliedBatch)
        assert applied.is_rebased is stands


def drop(lake: Lake, key: tuple[int, str]) -> None:
    """Delete the row of a key, of which nothing is remembered."""
    for path, file in [*lake.files.items()]:
        rows = [(one["a"], one["b"]) for one in file.rows.to_pylist()]
        if key in rows and rows.index(key) not in file.gone:
            lake.mark(path, [rows.index(key)])


def commit(lake: Lake, oracle: Oracle, batch: list[Change], work: BatchWork) -> None:
    """Commit a batch on the table as it is now, as a plan that is made there would."""
    applied, wanted = planned(work, lake), planned(part(batch), lake)
    assert told(applied) == told(wanted)
    if isinstance(applied, str):
        with pytest.raises(RefusedError):
            oracle.apply(batch)
        return
    if currently_in_test_context():
        event(f"{type(work).__name__}{' of a group' * has_members(work)} rebased: {applied.is_rebased}")
    lake.commit(applied)
    oracle.apply(batch)


def disturb(lake: Lake, oracle: Oracle, what: str, at: int) -> None:
    """What another engine does: it rewrites a file, compacts all, deletes a row, or appends one of a key that no one knows."""
    paths = [*lake.files]
    if what == "rewrite" and paths:
        lake.rewrite([paths[at % len(paths)]])
    elif what == "compact" and paths:
        lake.rewrite(paths)
    elif what == "drop":
        rows = [
            (path, number, row)
            for path, file in lake.files.items()
            for number, row in enumerate(file.rows.to_pylist())
            if number not in file.gone
        ]
        if rows:
            path, number, row = rows[at % len(rows)]
            lake.mark(path, [number])
            del oracle.entries[row["a"], row["b"]]
    elif what == "append" and (key := (at % 4, "xy"[at % 2])) not in oracle.entries:
        lake.add(pa.Table.from_pylist([dict(zip(SCHEMA.names, (*key, 1, 1, "other"), strict=True))], SCHEMA))
        oracle.entries[key] = KeyEntry((1, 1), "other")


@pytest.mark.parametrize("work_of", [part, group, job])
def test_every_plan_of_a_batch_asks_files_by_the_same_values(work_of: Any) -> None:
    """By these a plan knows that what it was told of a file holds; jobs had others for each plan, and asked about all files again."""
    work = work_of([up((1, 0), "new", (1, "x"))])
    assert work.values is work.values
