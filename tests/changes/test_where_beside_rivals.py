"""A delete or an overwrite by a condition does not lose to others: what was decided about files that stayed stands."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from safewrite.delta.write import matching_files as matching_delta
from safewrite.iceberg.catalog.effects import ReadRows
from safewrite.iceberg.write import matching_files as matching_iceberg
from safewrite.protocol.effects import Backoff, Effect, Get, Ok, Outcome, Put, Sleep, Together
from safewrite.testing.steps import Stepwise
from tests.changes.test_decide import down, up
from tests.changes.test_tables import COMMIT, SCHEMA, Lake, apply

KINDS = ["delta", "vectors", "iceberg", "marks"]
"""Files are written again, or rows are marked as gone, in either format."""
WHERE = "value = 'go'"
NEW = [(90, "x", 5, 0, "go"), (91, "x", 5, 0, "go")]
Rows = dict[tuple[int, str], str]


def table_of(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def lake_of(kind: str, folder: Path, files: int = 3) -> Lake:
    """A table of files of six rows, every third one of which matches; the last has none that does."""
    lake = Lake(
        "delta" if kind in {"delta", "vectors"} else "iceberg", folder, vectors=kind in {"vectors", "marks"}
    )
    table = lake.open()
    for file in range(files):
        last = "a" if file == files - 1 else "go"  # between them by the statistics
        keys = range(file * 6, file * 6 + 6)
        values = [last if key % 3 == 1 else "stay" for key in keys]
        table.append(table_of([(key, "x", 1, 0, value) for key, value in zip(keys, values, strict=True)]))
    return lake


class Beside(Stepwise):
    """Lets each rival act before one try after another, notes which data files are read, and waits for nobody."""

    def __init__(self, world: Any, step: str, acts: Sequence[Callable[[], object]]) -> None:
        super().__init__(world)
        self.acts, self.step, self.read = [*acts], step, list[str]()

    def _step(self, step: str, effect: Effect) -> Outcome:
        if isinstance(effect, Backoff | Sleep):
            return Ok(None)
        if step.partition("#")[0] == self.step and self.acts:
            self.acts.pop(0)()
        if isinstance(effect, ReadRows):
            self.read.append(Path(effect.task.file.file_path).name)
        if isinstance(effect, Get) and effect.path.endswith(".parquet") and "_safewrite" not in effect.path:
            self.read.append(Path(effect.path).name)
        return self.world.perform(effect)


def beside(lake: Lake, table: Any, *acts: Callable[[], object]) -> Beside:
    table.world = world = Beside(table.world, COMMIT[lake.format], acts)
    return world


def data_files(lake: Lake) -> set[str]:
    """The data files, delete files and files of vectors in the table's folder."""
    root = lake.folder
    found = [*root.rglob("*.parquet"), *root.rglob("deletion_vector_*.bin")]
    return {one.name for one in found if not {"_delta_log", "_safewrite", "metadata"} & {*one.parts}}


def named_files(lake: Lake) -> set[str]:
    """Those that some commit names."""
    if lake.format == "iceberg":
        table, found = lake._catalog.load_table("db.t"), set[str]()
        for snapshot in table.snapshots():
            for manifest in snapshot.manifests(table.io):
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
                found |= {Path(one.data_file.file_path).name for one in entries}
        return found
    log = "".join(one.read_text() for one in sorted((Path(lake.uri) / "_delta_log").glob("*.json")))
    actions = [json.loads(line) for line in log.splitlines()]
    paths = {one[kind]["path"] for one in actions for kind in ("add", "cdc") if kind in one}
    names = {Path(path).name for path in paths}
    stored = {
        one["add"]["deletionVector"]["pathOrInlineDv"]
        for one in actions
        if (one.get("add") or {}).get("deletionVector")
    }
    return names | {
        path.name for path in Path(lake.uri).glob("*.bin") if any(_is_of(path, one) for one in stored)
    }


def _is_of(path: Path, spelled: str) -> bool:
    from safewrite.delta.data import vectors

    told = {"storageType": "u", "pathOrInlineDv": spelled, "offset": 1, "sizeInBytes": 1, "cardinality": 1}
    return Path(str(vectors.path_of(told, ""))).name == path.name


# --- what rivals do -----------------------------------------------------------------------------------------
def append(lake: Lake) -> None:
    lake.open().append(table_of([(50, "x", 2, 0, "go"), (51, "x", 2, 0, "stay")]))


def mark_others(lake: Lake) -> None:
    apply(lake.open(), [down((2, 0), (0, "x")), down((2, 0), (12, "x"))])


def mark_the_same(lake: Lake) -> None:
    apply(lake.open(), [down((2, 0), (1, "x")), down((2, 0), (0, "x"))])


def mark_all_that_match(lake: Lake) -> None:
    apply(lake.open(), [down((2, 0), (key, "x")) for key in (1, 4)])


def change_to_match(lake: Lake) -> None:
    apply(lake.open(), [up((2, 0), "go", (2, "x"))])


def drop_a_file(lake: Lake) -> None:
    lake.open().delete("a < 6")


def compact(lake: Lake) -> None:
    lake.open().maintain()


RIVALS: dict[str, tuple[Callable[[Lake], None], Callable[[Rows], Rows]]] = {
    "append": (append, lambda rows: rows | {(50, "x"): "go", (51, "x"): "stay"}),
    "mark others": (mark_others, lambda rows: {key: v for key, v in rows.items() if key[0] not in {0, 12}}),
    "mark the same": (
        mark_the_same,
        lambda rows: {key: v for key, v in rows.items() if key[0] not in {0, 1}},
    ),
    "mark all": (
        mark_all_that_match,
        lambda rows: {key: v for key, v in rows.items() if key[0] not in {1, 4}},
    ),
    "change": (change_to_match, lambda rows: rows | {(2, "x"): "go"}),
    "drop": (drop_a_file, lambda rows: {key: v for key, v in rows.items() if key[0] >= 6}),
    "compact": (compact, lambda rows: rows),
}


def write(table: Any, verb: str) -> Any:
    return table.delete(WHERE) if verb == "delete" else table.overwrite(table_of(NEW), where=WHERE)


def after(rows: Rows, verb: str) -> Rows:
    """What is left where the condition is applied last, as the order of commits demands."""
    left = {key: value for key, value in rows.items() if value != "go"}
    return left if verb == "delete" else left | {(row[0], row[1]): row[4] for row in NEW}


# --- each cell of the matrix --------------------------------------------------------------------------------
@pytest.mark.sweep(
    *(
        f"{rival}-{kind}"
        for rival in RIVALS
        if rival.startswith(("append", "mark"))
        for kind in ("delta", "iceberg")
    )
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rival", RIVALS)
def test_what_a_rival_did_costs_one_try_and_no_other_work(rival: str, kind: str, tmp_path: Path) -> None:
    lake = lake_of(kind, tmp_path)
    act, told = RIVALS[rival]
    verb = "overwrite" if rival in {"append", "compact"} else "delete"
    rows, table = lake.rows(), lake.open()
    world = beside(lake, table, lambda: act(lake))
    receipt = write(table, verb)
    assert lake.rows() == after(told(rows), verb)
    assert (receipt.attempts, receipt.rebased) == (2, 1)
    assert receipt.removed_rows in {None, sum(1 for value in told(rows).values() if value == "go")}
    if kind in {"vectors", "marks"} or rival in {"append", "drop", "compact"}:
        assert {world.read.count(name) for name in world.read} == {1}, (
            "a file that stayed was read for each try"
        )
    assert data_files(lake) == named_files(lake), "files were left over"


@pytest.mark.parametrize("kind", ["vectors", "marks"])
def test_a_plan_that_failed_at_its_upload_says_nothing_of_the_next(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was to be marked, and whose mark was never stored, had become one that goes whole, or one that keeps all rows."""
    lake = lake_of(kind, tmp_path)
    of_kind = matching_delta if kind == "vectors" else matching_iceberg
    plan = of_kind.MatchingFiles.change
    broken: list[str] = []

    def twice(self: Any, *given: Any) -> Any:
        steps = plan(self, *given)
        effect = next(steps)
        while not (isinstance(effect, Put | Together) and "stage" in effect.name):
            broken.append(effect.name)
            effect = steps.send((yield effect))
        steps.close()
        return (yield from plan(self, *given))

    monkeypatch.setattr(of_kind.MatchingFiles, "change", twice)
    rows = lake.rows()
    lake.open().delete(WHERE)
    assert broken
    assert lake.rows() == after(rows, "delete")


# --- in any order -------------------------------------------------------------------------------------------
keys = st.sets(st.integers(0, 17), min_size=1, max_size=6)
acts = st.one_of(
    st.tuples(st.just("append"), st.integers(20, 40)),
    st.tuples(st.sampled_from(["mark", "change", "unchange"]), keys),
    st.tuples(st.just("drop"), st.integers(0, 17)),
    st.tuples(st.just("compact"), st.none()),
)


def act(lake: Lake, rows: Rows, sequence: int, what: str, with_: Any) -> None:
    """What a rival does, to the table and to what its rows should be."""
    if what == "append" and (with_, "x") not in rows:
        value = "go" if with_ % 2 else "stay"
        lake.open().append(table_of([(with_, "x", sequence, 0, value)]))
        rows[with_, "x"] = value
    elif what == "drop":
        lake.open().delete(f"a > {with_ - 3} AND a <= {with_}")
        for key in range(with_ - 2, with_ + 1):
            rows.pop((key, "x"), None)
    elif what == "compact":
        lake.open().maintain()
    elif what == "mark":
        apply(lake.open(), [down((sequence, 0), (key, "x")) for key in sorted(with_)])
        for key in with_:
            rows.pop((key, "x"), None)
    elif what in {"change", "unchange"}:
        value = "go" if what == "change" else "stay"
        apply(lake.open(), [up((sequence, 0), value, (key, "x")) for key in sorted(with_)])
        rows |= {(key, "x"): value for key in with_}


@pytest.mark.parametrize(
    "kind", [*KINDS[:2], *(pytest.param(one, marks=pytest.mark.long) for one in KINDS[2:])]
)
def test_any_rivals_before_each_try_leave_what_one_write_after_another_would(
    kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(
        st.lists(st.lists(acts, min_size=1, max_size=2), min_size=1, max_size=3),
        st.sampled_from(["delete", "overwrite"]),
    )
    def check(tries: list[list[tuple[str, Any]]], verb: str) -> None:
        lake = lake_of(kind, tmp_path_factory.mktemp("lake"))
        rows, table, matched = lake.rows(), lake.open(), list[int]()

        def rivals(number: int) -> None:
            for place, (what, with_) in enumerate(tries[number]):
                act(lake, rows, 2 + 2 * number + place, what, with_)
            matched[:] = [sum(1 for value in rows.values() if value == "go")]

        beside(lake, table, *(lambda number=number: rivals(number) for number in range(len(tries))))  # type: ignore[misc]
        receipt = write(table, verb)
        assert lake.rows() == after(rows, verb)
        assert receipt.removed_rows in {None, *matched}
        assert receipt.attempts - receipt.rebased == 1
        assert data_files(lake) == named_files(lake), "files were left over"

    check()


@pytest.mark.parametrize("kind", KINDS)
def test_what_changes_by_key_made_for_a_try_that_was_lost_goes_by_name(kind: str, tmp_path: Path) -> None:
    lake = lake_of(kind, tmp_path)
    rows, table = lake.rows(), lake.open()
    beside(lake, table, lambda: mark_the_same(lake), lambda: mark_all_that_match(lake))
    receipt = apply(table, [up((9, 0), "ours", (key, "x")) for key in (0, 2, 60)] + [down((9, 0), (3, "x"))])
    assert receipt.rebased == 2
    gone = {0, 1, 3, 4}
    wanted = {key: value for key, value in rows.items() if key[0] not in gone}
    assert lake.rows() == wanted | {(key, "x"): "ours" for key in (0, 2, 60)}
    assert data_files(lake) == named_files(lake), "files were left over"
