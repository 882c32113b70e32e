"""Look-ups by kept indexes find what a look through the files finds, and read no file for it."""

from __future__ import annotations

import datetime as dt
import random
import shutil
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw
from safewrite.changes.lookup import key_index
from safewrite.changes.lookup.key_index import (
    KeyIndex,
    KeyLookup,
    KnownKeys,
    ascending,
    indexable,
    known_keys,
)
from safewrite.changes.meaning import row_vectors
from safewrite.delta.data import column_reads, vectors
from safewrite.errors import InvalidInputError, StorageError
from safewrite.frames.fingerprint import row_hashes
from safewrite.iceberg.catalog.effects import ReadRows
from safewrite.protocol.effects import Effect, Missing, Outcome
from safewrite.testing.steps import Answers, Stepwise
from tests.changes.test_decide import down, up
from tests.changes.test_many_files import lake_of
from tests.changes.test_marks import change, data, marked
from tests.changes.test_tables import SCHEMA, Lake, apply
from tests.changes.test_vectors import commit, of

pytestmark = pytest.mark.sweep("delta vectors", "iceberg")  # both formats go one way

KINDS = ["delta", "delta vectors", "iceberg", "merge-on-read"]
FINDS_DATA = ("apply.get_data", "keys.get_tail", "keys.get_range", "apply.read_rows")


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of these tests are small: they have indexes as large ones have."""
    monkeypatch.setattr(key_index, "SMALL_ROWS", 0)
    known_keys.forget()


class Steps(Stepwise):
    """Notes the steps that read data files to find rows."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.found: list[str] = []

    def _step(self, step: str, effect: Effect) -> Outcome:
        if step.partition("#")[0] in FINDS_DATA:
            path = (
                effect.task.file.file_path
                if isinstance(effect, ReadRows)
                else str(getattr(effect, "path", ""))
            )
            self.found.append(Path(path).name)
        return self.world.perform(effect)


def made(kind: str, folder: Path) -> Lake:
    return Lake("delta", folder, vectors=True) if kind == "delta vectors" else lake_of(kind, folder)


def reads(lake: Lake, batch: list[Any], **how: Any) -> list[str]:
    """The data files that a batch reads to find rows."""
    table = lake.open()
    table.world = steps = Steps(table.world)
    apply(table, batch, **how)
    return steps.found


# --- tables -----------------------------------------------------------------------------------------
@pytest.mark.sweep("merge-on-read")
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_read_for_its_keys_twice_and_then_no_more(kind: str, tmp_path: Path) -> None:
    lake = made(kind, tmp_path)
    apply(lake.open(), [up((1, 0), "old", (number, "x")) for number in range(0, 60, 2)])
    told = [reads(lake, [up((3, 0), "odd", (number, "x"))]) for number in (3, 5, 7)]
    (first,) = {name for some in told[:2] for name in some if name in told[0]}
    assert [first in some for some in told] == [True, True, False]
    late = [up((0, 0), "late", (number, "x")) for number in range(0, 60, 2)]
    fresh = [up((2, 0), "new", (number, "x")) for number in range(11, 60, 2)]
    assert first not in reads(lake, [*late, *fresh])
    assert lake.rows() == {
        **{(number, "x"): "old" for number in range(0, 60, 2)},
        **{(number, "x"): "new" for number in range(11, 60, 2)},
        **{(number, "x"): "odd" for number in (3, 5, 7)},
    }


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_random_batches_leave_what_they_leave_without_indexes(kind: str, tmp_path: Path) -> None:
    """Rows that went by vectors or position deletes, files that were rewritten, keys that came back."""
    rng, lake = random.Random(7), made(kind, tmp_path)
    wanted: dict[tuple[int, str], str] = {}
    for turn in range(1, 13):
        batch = []
        for number in rng.sample(range(40), 12):
            key = (number, rng.choice("xy"))
            if key in {one.key for one in batch}:
                continue
            batch.append(down((turn, 0), key) if rng.random() < 0.3 else up((turn, 0), f"row {turn}", key))
        apply(lake.open(), batch)
        for one in batch:
            wanted.pop(one.key, None)
            if one.op == "upsert":
                wanted[one.key] = one.row
        assert lake.rows() == wanted
    assert len(known_keys)


@pytest.mark.sweep("merge-on-read")
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_ties_with_a_change_is_read_whole(kind: str, tmp_path: Path) -> None:
    """An index has no other columns, and whether the same change came again is decided by all of them."""
    lake = made(kind, tmp_path)
    first = [up((1, 0), "old", (number, "x")) for number in range(10)]
    for _ in range(4):
        told = apply(lake.open(), first).changes
    assert told["duplicate"] == 10
    with pytest.raises(InvalidInputError, match="unequal changes"):
        apply(lake.open(), [up((1, 0), "other", (3, "x"))])


@pytest.mark.sweep("merge-on-read")
@pytest.mark.parametrize("kind", KINDS)
def test_a_key_that_a_file_holds_twice_is_refused_with_an_index_too(kind: str, tmp_path: Path) -> None:
    lake = made(kind, tmp_path)
    rows = [{"a": a, "b": "x", "s": s, "t": 0, "value": "old"} for a, s in ((1, 1), (1, 2), (20, 1))]
    lake.open().append(pa.Table.from_pylist(rows, SCHEMA))
    for turn in range(3):
        apply(lake.open(), [up((turn, 0), "other", (9 + turn, "x"))])
    with pytest.raises(InvalidInputError, match="is in the table twice"):
        apply(lake.open(), [up((5, 0), "new", (1, "x"))])


@pytest.mark.sweep("merge-on-read")
@pytest.mark.parametrize("kind", KINDS)
def test_a_receipt_says_how_much_was_copied_of_rows_that_stay(kind: str, tmp_path: Path) -> None:
    lake = made(kind, tmp_path)
    first = apply(lake.open(), [up((1, 0), "old", (number, "x")) for number in range(10)])
    assert first.copied_bytes == 0
    again = apply(lake.open(), [up((2, 0), "new", (3, "x"))])
    assert (again.copied_bytes > 0) == (kind in {"delta", "iceberg"})
    assert again.to_dict()["copied_bytes"] == again.copied_bytes


@pytest.mark.long
def test_a_table_that_took_the_place_of_another_is_not_answered_by_its_index(tmp_path: Path) -> None:
    """Same place, same names and sizes of files, other rows: as a restored copy of another table has them."""
    lake, wanted = marked(tmp_path / "a")
    other, _ = marked(tmp_path / "b")
    for turn in range(2, 6):
        change(lake, wanted, [up((turn, 0), "new", (turn, "y"))])
    apply(other.open(), [down((2, 0), (number, "x")) for number in range(45)])
    shutil.rmtree(lake.uri)
    shutil.copytree(other.uri, lake.uri)
    told = apply(lake.open(), [up((9, 0), "new", (number, "x")) for number in range(50)]).changes
    assert (told["inserted"], told["updated"]) == (45, 5)


def test_a_key_column_that_was_renamed_is_looked_up_by_its_new_name(tmp_path: Path) -> None:
    catalog = SqlCatalog("local", uri=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path.as_uri())
    kinds = pa.schema([("id", pa.int64()), ("other", pa.int64()), ("s", pa.int64())])
    sw.create("db.t", kinds, catalog=catalog)

    def applied(name: str, ids: range, s: int) -> Any:
        batch = pa.table({name: [*ids], "other": [0] * len(ids), "s": [s] * len(ids)})
        return sw.open("db.t", catalog=catalog).apply_changes(batch, keys=[name], sequence_by=["s"]).changes

    for turn in range(1, 5):
        applied("id", range(10), turn)
    with catalog.load_table("db.t").update_schema() as update:
        update.rename_column("id", "was")
    for turn in range(5, 9):
        told = applied("was", range(5, 15), turn)
        assert told["updated"] == (5 if turn == 5 else 10)


def test_a_file_that_was_rewritten_is_not_answered_for_by_its_old_index(tmp_path: Path) -> None:
    lake, wanted = marked(tmp_path, rows=20, files=2)
    for turn in range(2, 5):
        change(lake, wanted, [up((turn, 0), "new", (turn, "y"))])
    lake.open().overwrite(pa.Table.from_pylist([row(3, 1)], SCHEMA), where="a < 20 AND b = 'x'")
    wanted = {key: value for key, value in wanted.items() if not (key[0] < 20 and key[1] == "x")}
    wanted |= {(3, "x"): "back"}
    assert lake.rows() == wanted
    told = change(lake, wanted, [up((9, 0), "last", (number, "x")) for number in (3, 4, 25)]).changes
    assert (told["inserted"], told["updated"]) == (1, 2)
    assert lake.rows() == wanted


def row(a: int, s: int) -> dict[str, Any]:
    return {"a": a, "b": "x", "s": s, "t": 0, "value": "back"}


def test_a_vector_that_names_rows_that_the_file_does_not_have_is_noticed_with_an_index(
    tmp_path: Path,
) -> None:
    lake, wanted = marked(tmp_path)
    for turn in range(2, 5):
        change(lake, wanted, [down((turn, 0), (turn, "x")), up((turn, 0), "new", (turn, "y"))])
    (add,) = [one for one in of(lake, 4, "add") if one.get("deletionVector")]
    body = row_vectors.serialized(row_vectors.bitmap(np.array([1, 70])))
    name = uuid.uuid4()
    file, (told,) = vectors.file_of([(body, 2)], name)
    (Path(lake.uri) / vectors.file_name(name)).write_bytes(file)
    gone = {"path": add["path"], "dataChange": True, "deletionVector": add["deletionVector"]}
    commit(lake, {"remove": gone}, {"add": {**add, "deletionVector": dict(told)}})
    with pytest.raises(StorageError, match="cannot be read"):
        apply(lake.open(), [up((9, 0), "new", (1, "x"))])


# --- large files of Delta -----------------------------------------------------------------------------
@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A table of one file whose rows are mostly no keys, and of which parts are fetched."""
    monkeypatch.setattr(column_reads, "WHOLE_BYTES", 1_000)
    lake = Lake("delta", tmp_path)
    rng = np.random.default_rng(5)
    words = ["".join(chr(97 + n) for n in rng.integers(0, 26, 300)) for _ in range(4000)]
    rows = [{"a": n, "b": "x", "s": 1, "t": 0, "value": words[n]} for n in range(4000)]
    lake.open().append(pa.Table.from_pylist(rows, SCHEMA))
    return lake


def test_of_large_files_only_the_key_columns_are_fetched(
    large: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = large.open()
    (file,) = data(large)
    fetched: list[tuple[str, int]] = []

    class Sizes(Stepwise):
        def _step(self, step: str, effect: Effect) -> Outcome:
            answer = self.world.perform(effect)
            if str(getattr(effect, "path", "")).endswith(file.name) and step.partition("#")[0] in FINDS_DATA:
                value = getattr(answer, "value", b"")
                fetched.append((step, len(getattr(value, "data", value))))
            return answer

    table.world = Sizes(table.world)
    apply(table, [up((2, 0), "new", (4500, "x")), down((0, 0), (3, "x"))])
    assert {step.partition("#")[0] for step, _ in fetched} <= {"keys.get_tail", "keys.get_range"}
    assert sum(size for _, size in fetched) < file.stat().st_size / 4
    assert len(large.rows()) == 4001


@pytest.mark.parametrize("step", ["keys.get_tail", "keys.get_range"])
def test_a_large_file_that_is_gone_stops_the_write(large: Lake, step: str) -> None:
    table = large.open()
    table.world = Answers(table.world, step, Missing())
    with pytest.raises(StorageError, match="it is gone"):
        apply(table, [up((2, 0), "new", (3, "x"))])
    assert len(large.rows()) == 4000


def test_a_large_file_without_a_footer_stops_the_write(large: Lake) -> None:
    (file,) = data(large)
    file.write_bytes(file.read_bytes()[:-4] + b"torn")
    with pytest.raises(StorageError, match="no Parquet magic"):
        apply(large.open(), [up((2, 0), "new", (3, "x"))])


def test_parts_of_a_large_file_are_enough_for_updates(large: Lake) -> None:
    for turn in range(2, 6):
        told = apply(
            large.open(), [up((turn, 0), f"new {turn}", (number, "x")) for number in range(40)]
        ).changes
        assert told["updated"] == 40
    assert [large.rows()[number, "x"] for number in (0, 39)] == ["new 5", "new 5"]
    assert len(large.rows()) == 4000


# --- one index -----------------------------------------------------------------------------------------
VALUES: dict[str, tuple[pa.DataType, Any]] = {
    "int": (pa.int64(), st.integers(-5, 5)),
    "text": (pa.string(), st.text("aä\U0001f600", max_size=10)),
    "bytes": (pa.binary(), st.binary(max_size=9)),
    "flag": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates(dt.date(2026, 1, 1), dt.date(2026, 1, 5))),
    "instant": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(dt.UTC))),
    "decimal": (pa.decimal128(38, 2), st.decimals(-3, 3, places=2)),
}


@pytest.mark.sweep("date", "flag", "instant", "int", "bytes")
@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data())
def test_an_index_finds_the_rows_that_a_look_at_all_finds(kind: str, data: st.DataObject) -> None:
    """NULL, keys that are there twice, deleted rows; on disk and in memory."""
    column, values = VALUES[kind]
    schema = pa.schema([("k", column), ("n", pa.int32()), ("s", pa.float64())])
    some = st.fixed_dictionaries({"k": st.none() | values, "n": st.integers(0, 1), "s": st.floats(0, 9)})
    rows = pa.Table.from_pylist(data.draw(st.lists(some, min_size=1, max_size=30)), schema)
    asked = st.fixed_dictionaries({"k": values, "n": st.integers(0, 1)})
    batch = pa.Table.from_pylist(data.draw(st.lists(asked, max_size=10)), pa.schema([schema[0], schema[1]]))
    gone = np.array(sorted(data.draw(st.sets(st.integers(0, rows.num_rows - 1)))), np.int64)
    assert indexable(schema, ["k", "n"])
    weak = (lambda table: [row_hashes(table)[0] % 3]) if data.draw(st.booleans()) else row_hashes
    with mock.patch.object(key_index, "row_hashes", weak):
        index, lookup = KeyIndex.of(rows, ["k", "n"]), KeyLookup.of(batch)
    if data.draw(st.booleans()):
        index = index.on_disk()
    found, places = lookup.rows_in(index, gone)
    live = np.setdiff1d(np.arange(rows.num_rows), gone)
    there = rows.take(pa.array(live))
    pairs = {tuple(one.values()) for one in batch.to_pylist()}
    mine = [at for at, one in enumerate(there.to_pylist()) if (one["k"], one["n"]) in pairs]
    asked_for = [set(batch.column(name).to_pylist()) for name in ("k", "n")]
    likely = [one["k"] in asked_for[0] and one["n"] in asked_for[1] for one in there.to_pylist()]
    assert set(mine) <= set(places.tolist()) <= set(np.flatnonzero(likely).tolist())
    if weak is row_hashes:
        assert places.tolist() == mine
    assert found.to_pylist() == there.take(pa.array(places)).to_pylist()


@pytest.mark.parametrize(("rows", "sought"), [(50, 3), (3, 50), (20, 20), (0, 4), (4, 0), (0, 0)])
def test_an_index_of_more_rows_or_of_fewer_than_are_sought_finds_the_same(rows: int, sought: int) -> None:
    """Every third key is there twice."""
    keys = [one for number in range(rows) for one in [number] * (1 + (number % 3 == 0))]
    random.Random(rows).shuffle(keys)
    wanted = [*range(0, 2 * sought, 2)]
    hashes = {one: int(row_hashes(pa.table({"a": pa.array([one])}))[0][0]) for one in {*keys, *wanted}}
    asked = sorted(wanted, key=hashes.__getitem__)
    index = KeyIndex.of(pa.table({"a": pa.array(keys, pa.int64())}), ["a"])
    numbers, found = index.find(np.array([hashes[one] for one in asked], np.uint64))
    assert numbers.tolist() == [at for at, one in enumerate(keys) if one in wanted]
    assert found.tolist() == [one in keys for one in asked]


@pytest.mark.sweep("merge-on-read")
@pytest.mark.parametrize("kind", KINDS)
def test_keys_of_one_hash_are_told_apart_by_their_values(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashes = key_index.row_hashes
    monkeypatch.setattr(key_index, "row_hashes", lambda table: [hashes(table)[0] % 3])
    lake = made(kind, tmp_path)
    wanted = {}
    for turn in range(1, 6):
        batch = [up((turn, 0), f"row {turn}", (number, "x")) for number in range(turn, 40, 3)]
        apply(lake.open(), [*batch, down((turn, 0), (turn * 5, "y"))])
        wanted |= {one.key: one.row for one in batch}
        assert lake.rows() == wanted


def test_floats_and_nested_values_have_no_index() -> None:
    """Equal ones may have other bits."""
    for kind in (pa.float64(), pa.float32(), pa.list_(pa.int64()), pa.struct([("a", pa.int8())]), pa.null()):
        assert not indexable(pa.schema([("k", kind), ("n", pa.int8())]), ["n", "k"])
    assert not indexable(pa.schema([("k", pa.int8())]), [])


def test_decimals_and_texts_hash_alike_wherever_they_lie() -> None:
    values = [Decimal("1.50"), None, Decimal("-99999999999999999999.25")] * 5
    table = pa.table({"k": pa.array(values, pa.decimal128(38, 2))})
    assert (key_index.key_hashes(table, ["k"])[3:] == key_index.key_hashes(table.slice(3), ["k"])).all()
    texts = pa.table({"k": ["abcdefgh-1", "abcdefgh-2", "", "abcdefgh-1", "a longer text than others"]})
    whole = key_index.key_hashes(texts, ["k"])
    assert whole[0] == whole[3]
    for at in range(5):
        assert key_index.key_hashes(texts.slice(at, 1), ["k"])[0] == whole[at], "alone all have one length"


# --- what is kept --------------------------------------------------------------------------------------
def index_of(rows: int) -> KeyIndex:
    return KeyIndex.of(pa.table({"k": np.arange(rows), "s": np.arange(rows)}), ["k"])


def test_as_much_is_kept_as_there_is_room_for() -> None:
    """In memory, then on disk; only an index that was not used for long gives way to another."""
    size, now_s = index_of(100).nbytes, [0.0]
    known = KnownKeys(memory_bytes=2 * size, disk_bytes=2 * size, now_s=lambda: now_s[0])
    for number in range(6):
        known.put((number,), index_of(100))
    assert [number for number in range(6) if known.get((number,))] == [0, 1, 2, 3]
    now_s[0] = key_index.OLD_S - 1
    assert known.get((3,)) is not None
    known.put((8,), index_of(100))
    assert known.get((8,)) is None, "all others may be used again soon"
    now_s[0] = key_index.OLD_S + 1
    known.put((9,), index_of(100))
    assert known.get((9,)) is not None
    assert known.get((3,)) is not None
    assert len(known) == 4


def test_without_a_place_for_temporary_files_memory_is_all_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_index.tempfile, "tempdir", str(tmp_path / "gone"))
    known = KnownKeys(memory_bytes=0)
    known.put(("a",), index_of(10))
    assert known.get(("a",)) is None


def test_an_index_on_disk_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index.tempfile, "tempdir", str(tmp_path))
    index = index_of(1000).on_disk()
    assert not [*tmp_path.iterdir()]
    assert index.rows.equals(index_of(1000).rows)
    assert (index.hashes[1:] >= index.hashes[:-1]).all()


def test_an_index_is_made_when_keys_are_asked_for_a_second_time() -> None:
    known = KnownKeys()
    assert [known.is_worth(("a",)) for _ in range(3)] == [False, True, True]
    known.forget()
    assert not known.is_worth(("a",))


def test_an_index_of_few_rows_is_made_at_once_and_never_put_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would hold a file open."""
    monkeypatch.setattr(key_index, "SMALL_ROWS", 9)
    known = KnownKeys(memory_bytes=2 * index_of(9).nbytes)
    assert [known.is_worth(("a",), rows) for rows in (9, 10, None)] == [True, False, True]
    for number in range(4):
        known.put((number,), index_of(9))
    assert [known.get((number,)) is not None for number in range(4)] == [True, True, False, False]
    known.put(("large",), index_of(10))
    assert known.get(("large",)) is not None


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_file_is_read_for_its_keys_once(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a table of many small writers, reading the files of the others a second time cost more than all else."""
    monkeypatch.setattr(key_index, "SMALL_ROWS", 60)
    lake = made(kind, tmp_path)
    apply(lake.open(), [up((1, 0), "old", (number, "x")) for number in range(0, 60, 2)])
    told = [name for number in (3, 5, 7, 9) for name in reads(lake, [up((3, 0), "odd", (number, "x"))])]
    assert len(told) == len(set(told)) >= 1


@given(st.lists(st.lists(st.integers(0, 3) | st.integers(0, 2**64 - 1), max_size=6), min_size=1, max_size=4))
def test_hashes_of_several_tasks_ascend_and_come_once(some: list[list[int]]) -> None:
    found = ascending(*(np.array(sorted(one), np.uint64) for one in some))
    assert found.tolist() == sorted({one for each in some for one in each})
