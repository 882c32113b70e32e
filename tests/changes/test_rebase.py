"""A plan that is brought to a newer base is the plan that would be made there, whatever others committed in between."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from safewrite.changes.lookup.candidate_rows import Sought
from safewrite.changes.lookup.table_files import LiveFile, SmallReads
from safewrite.changes.meaning.memory import Memory
from safewrite.changes.meaning.positions import compared
from safewrite.changes.meaning.reading import Changes, fingerprint_of
from safewrite.changes.meaning.spec import Spec
from safewrite.changes.tasks import rebase
from safewrite.changes.tasks.abc import AppliedBatch
from safewrite.changes.tasks.one_part import OnePart
from safewrite.errors import InvalidInputError
from safewrite.protocol.effects import Effect, Outcome
from safewrite.testing.changes import Change, KeyEntry, Oracle, RefusedError
from tests.changes.test_decide import KEYS, SCHEMA, SEQUENCE, Target
from tests.sampling import no_more_than

SPEC = Spec(KEYS, SEQUENCE, all_late="count")
NOW_MS = 10**12


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
    """``TableFiles`` of files that are their own handles; nothing is written."""

    small = SmallReads()

    def look_up(self, files: Sequence[LiveFile], sought: Sought) -> Generator[Effect, Outcome, None]:
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
        assert applied.come is not None
        self.add(applied.come.cast(SCHEMA))
        self.memory = applied.outcome.memory


def part(batch: list[Change]) -> OnePart:
    changes = Target.batch(batch)
    return OnePart(SPEC, SCHEMA, MemoryFiles(), Changes(changes, fingerprint_of(changes)))  # type: ignore[arg-type]


def planned(work: OnePart, lake: Lake) -> AppliedBatch | str:
    """What a plan decides on a table, or why it refuses to."""
    steps = work.apply(lake.memory, lake.live, NOW_MS)
    try:
        next(steps)
    except StopIteration as end:
        applied: AppliedBatch = end.value
        return applied
    except InvalidInputError:
        return "refused"
    raise AssertionError("nothing is asked of the world")


def told(applied: AppliedBatch | str) -> Any:
    """All that a commit takes from a plan."""
    if isinstance(applied, str):
        return applied
    assert applied.come is not None
    settled, memory = applied.outcome.settled, applied.outcome.memory
    goes = {name: places.tolist() for name, places in applied.goes.items()}
    remembered = sorted(map(repr, memory.tombstones.to_pylist())), memory.floor
    return (
        applied.come.to_pylist(), goes, applied.counts, applied.cut, settled.decision.counts,
        settled.decision.dropped.tolist(), settled.decision.deletes.tolist(), remembered,
    )  # fmt: skip


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
)
def test_writers_in_any_order_of_commits_beside_other_engines_leave_what_one_after_another_would(
    first: list[Change], batches: list[list[Change]], steps: list[tuple[str, int]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rebase, "AGAIN_MAX", 1.0)
        lake, oracle = Lake(), Oracle()
        commit(lake, oracle, first, part(first))
        works = [part(batch) for batch in batches]
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


def commit(lake: Lake, oracle: Oracle, batch: list[Change], work: OnePart) -> None:
    """Commit a batch on the table as it is now, as a plan that is made there would."""
    applied, wanted = planned(work, lake), planned(part(batch), lake)
    assert told(applied) == told(wanted)
    if isinstance(applied, str):
        with pytest.raises(RefusedError):
            oracle.apply(batch)
        return
    event("rebased" if applied.is_rebased else "planned")
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
