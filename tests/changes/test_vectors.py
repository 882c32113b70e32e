"""Tables whose files have deletion vectors, as other engines write them: deleted rows are neither seen nor brought back."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.cdc.rows.rows_by_key import rows_with
from safewrite.changes.meaning import row_vectors
from safewrite.delta.data import vectors
from safewrite.delta.data.vector_files import Vectors
from safewrite.delta.log import actions
from safewrite.delta.maintenance.doctor import examine
from safewrite.delta.maintenance.inspection import inspect_table
from safewrite.delta.maintenance.vanished import LogIndex
from safewrite.delta.maintenance.verify import read_rows
from safewrite.findings import Severity
from safewrite.testing.changes import Change
from safewrite.testing.reading import rows_of
from tests.changes.test_decide import down, up
from tests.changes.test_tables import SCHEMA, Lake, apply

GONE = (3, 4, 7, 11, 18, 29)
FEATURES = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}


def marked(folder: Path, stored: str = "i") -> Lake:
    """A table whose one file, of keys 0 to 39, has lost six rows to a vector, as Spark's DELETE commits it."""
    lake = Lake("delta", folder)
    rows = [{"a": a, "b": "x", "s": 1, "t": 0, "value": "old"} for a in range(40)]
    lake.open().append(pa.Table.from_pylist(rows, SCHEMA))
    (add,) = of(lake, 1, "add")
    commit(
        lake,
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **FEATURES}},
        {"remove": {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}},
        {"add": {**add, "deletionVector": vector(lake, stored)}},
        {"commitInfo": {"timestamp": 1, "operation": "DELETE", "operationParameters": {}}},
    )
    return lake


def vector(lake: Lake, stored: str) -> dict[str, Any]:
    """The descriptor of a vector of six rows, whose file is there if it has one."""
    data = row_vectors.serialized(row_vectors.bitmap(np.array(GONE)))
    if stored == "i":
        return inline(data, len(GONE))
    name = uuid.UUID(int=7)
    other = row_vectors.serialized(row_vectors.bitmap(np.arange(9)))
    body, (_, ours) = vectors.file_of([(other, 9), (data, len(GONE))], name)
    folder = "a1/" if stored == "prefix" else ""
    path = Path(lake.uri) / folder / vectors.file_name(name)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(body)
    if stored == "p":
        return {**ours, "storageType": "p", "pathOrInlineDv": path.as_uri()}
    return {**ours, "pathOrInlineDv": folder.rstrip("/") + ours["pathOrInlineDv"]}


def inline(data: bytes, rows: int) -> dict[str, Any]:
    """The descriptor of a vector that the log itself holds."""
    text = vectors.z85(data + bytes(-len(data) % 4))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": rows}


def commit(lake: Lake, *actions: dict[str, Any]) -> None:
    """A commit of another engine."""
    log = Path(lake.uri) / "_delta_log"
    version = len(list(log.glob("*.json")))
    (log / f"{version:020d}.json").write_text("".join(json.dumps(one) + "\n" for one in actions))


def of(lake: Lake, version: int, name: str) -> list[dict[str, Any]]:
    """The actions called ``name`` of one version."""
    lines = (Path(lake.uri) / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    return [action[name] for action in map(json.loads, lines) if name in action]


def read(lake: Lake) -> dict[int, str]:
    """Values by key, as deltalake's engine reads the table: it knows deletion vectors."""
    table = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(lake.uri))
    pairs = [
        (one["a"], one["value"]) for one in pa.table(table.execute("SELECT * FROM t").read_all()).to_pylist()
    ]
    assert len(pairs) == len(dict(pairs)), f"a key is there twice: {pairs}"
    return dict(pairs)


def files(lake: Lake) -> set[Path]:
    return {path for path in Path(lake.uri).rglob("*") if path.is_file()}


LEFT = {a: "old" for a in range(40) if a not in GONE}
VERBS: dict[str, tuple[Callable[[Any], Any], dict[int, str]]] = {
    "update": (lambda t: apply(t, [up((2, 0), "new", (5, "x"))]), LEFT | {5: "new"}),
    "a deleted row comes again": (lambda t: apply(t, [up((2, 0), "new", (7, "x"))]), LEFT | {7: "new"}),
    "delete": (lambda t: apply(t, [down((2, 0), (1, "x"))]), {a: v for a, v in LEFT.items() if a != 1}),
    "truncate": (lambda t: apply(t, [Change("truncate", (2, 0))]), {}),
    "delete where": (lambda t: t.delete("a > 5"), {a: v for a, v in LEFT.items() if a <= 5}),
    "delete of deleted rows": (lambda t: t.delete("a in (3, 4)"), LEFT),
    "delete of all that is left": (lambda t: t.delete("a not in (3, 4, 7, 11, 18, 29)"), {}),
    "overwrite where": (
        lambda t: t.overwrite(pa.Table.from_pylist([], SCHEMA), where="a = 5"),
        {a: v for a, v in LEFT.items() if a != 5},
    ),
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_deleted_rows_are_neither_seen_nor_brought_back(verb: str, tmp_path: Path) -> None:
    lake = marked(tmp_path)
    assert read(lake) == LEFT
    call, expected = VERBS[verb]
    receipt = call(lake.open())
    assert read(lake) == expected
    newest = lake.open().history()[0]
    if verb != "truncate":  # a MERGE's counts do not say how many rows that took
        assert newest.rows_added - newest.rows_removed == len(expected) - len(LEFT)
    lost = sum(expected.get(a) != v for a, v in LEFT.items())
    assert receipt.removed_rows == lost
    for remove in of(lake, newest.version, "remove"):
        assert remove["deletionVector"]["cardinality"] == len(GONE), (
            "the file that goes is the one with its vector"
        )
    assert all("deletionVector" not in add for add in of(lake, newest.version, "add"))


@pytest.mark.sweep("prefix")
@pytest.mark.parametrize("stored", ["u", "prefix", "p"])
def test_vectors_are_read_wherever_they_are_stored(stored: str, tmp_path: Path) -> None:
    lake = marked(tmp_path, stored)
    receipt = apply(lake.open(), [up((2, 0), "new", (7, "x")), up((2, 0), "new", (8, "x"))])
    assert (receipt.changes["inserted"], receipt.changes["updated"]) == (1, 1)
    assert read(lake) == LEFT | {7: "new", 8: "new"}


def test_bounds_that_deleted_rows_widened_take_no_file_whole(tmp_path: Path) -> None:
    """The file's statistics still count its deleted rows: key 29 is in its bounds, key 50 is not."""
    lake = marked(tmp_path)
    assert lake.open().delete("a = 29").removed_rows == 0
    assert lake.open().delete("a >= 50").removed_rows == 0
    assert read(lake) == LEFT


def test_changes_of_keys_that_no_such_file_has_do_not_look_at_it(tmp_path: Path) -> None:
    lake = marked(tmp_path, "u")
    for path in Path(lake.uri).glob("*.bin"):
        path.unlink()
    assert apply(lake.open(), [up((2, 0), "new", (50, "x"))]).changes["inserted"] == 1
    newest, marking, *_ = lake.open().history()
    assert (newest.rows_added, newest.rows_removed) == (1, 0)
    assert marking.rows_added == 34  # the file under its vector


# --- vectors that cannot be read --------------------------------------------------------------------------
def spoilt(lake: Lake, change: Callable[[bytes], bytes]) -> None:
    (path,) = Path(lake.uri).glob("*.bin")
    path.write_bytes(change(path.read_bytes()))


SPOILT: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "another version": (lambda b: b"\2" + b[1:], "of a format that is not known"),
    "a flipped bit": (lambda b: b[:-8] + bytes([b[-8] ^ 1]) + b[-7:], "checksum"),
    "a flipped checksum": (lambda b: b[:-1] + bytes([b[-1] ^ 1]), "checksum"),
    "cut off": (lambda b: b[:-1], "cut off"),
    "empty": (lambda b: b"", "of a format that is not known"),
    "other vectors": (lambda b: b[:1] + b[-60:] + b[1:-60], "another vector at that place"),
}


@pytest.mark.sweep("empty", "other vectors", "a flipped checksum")
@pytest.mark.parametrize("how", SPOILT)
def test_a_damaged_vector_is_refused_and_nothing_is_written(how: str, tmp_path: Path) -> None:
    lake = marked(tmp_path, "u")
    change, why = SPOILT[how]
    spoilt(lake, change)
    before = files(lake)
    for verb in ("update", "delete where", "overwrite where"):
        with pytest.raises(sw.StorageError, match=why) as caught:
            VERBS[verb][0](lake.open())
        assert caught.value.kind is sw.Kind.DATA_FILE_DAMAGED
        assert "Nothing was committed" in str(caught.value)
    assert files(lake) == before


@pytest.mark.sweep("change1", "change3", "change8", "change2", "change4")
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"cardinality": 5}, "it names 6 rows, not 5"),
        ({"sizeInBytes": 400}, "bytes, not 400"),
        ({"storageType": "x"}, "not known"),
        ({"pathOrInlineDv": "~~~~~"}, "not Base85"),
        ({"pathOrInlineDv": "0" * 55}, "format that is not known"),
        ({"storageType": "u", "pathOrInlineDv": "~" * 20}, "names no file"),
        ({"storageType": "p", "pathOrInlineDv": "file:///elsewhere/v.bin"}, "outside the table"),
        ({"storageType": "u", "pathOrInlineDv": "0" * 20}, "is gone"),
        # The example of Delta's PROTOCOL.md (3 of its section) is of an older form, which Spark refuses, too.
        (
            {"pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", "sizeInBytes": 40},
            "format that is not known",
        ),
    ],
)
def test_a_vector_that_the_log_describes_wrongly_is_refused(
    change: dict[str, Any], why: str, tmp_path: Path
) -> None:
    lake = marked(tmp_path)
    (add,) = of(lake, 2, "add")
    commit(
        lake,
        {"remove": {"path": add["path"], "dataChange": True, "deletionVector": add["deletionVector"]}},
        {"add": {**add, "deletionVector": {**add["deletionVector"], **change}}},
    )
    with pytest.raises(sw.StorageError, match=why):
        apply(lake.open(), [up((2, 0), "new", (5, "x"))])


def test_a_vector_at_the_head_of_its_file_is_refused(tmp_path: Path) -> None:
    """The version of the file's format stands there."""
    lake = marked(tmp_path, "u")
    (add,) = of(lake, 2, "add")
    commit(
        lake,
        {"remove": {"path": add["path"], "dataChange": True, "deletionVector": add["deletionVector"]}},
        {"add": {**add, "deletionVector": {**add["deletionVector"], "offset": 0}}},
    )
    with pytest.raises(sw.StorageError, match="cut off"):
        apply(lake.open(), [up((2, 0), "new", (5, "x"))])


def test_a_vector_of_another_file_is_refused(tmp_path: Path) -> None:
    """It names rows that the file does not have."""
    lake = marked(tmp_path)
    (add,) = of(lake, 2, "add")
    data = row_vectors.serialized(row_vectors.bitmap(np.array([40])))
    commit(
        lake,
        {"add": {**add, "deletionVector": inline(data, 1)}},
        {"remove": {**add, "dataChange": True}},
    )
    with pytest.raises(sw.StorageError, match="names row 40 of 40"):
        lake.open().delete("a = 1")


def test_without_pyroaring_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = marked(tmp_path)
    monkeypatch.setitem(sys.modules, "pyroaring", None)
    before = files(lake)
    with pytest.raises(sw.MissingExtraError, match=r"pip install .*pyroaring"):
        apply(lake.open(), [up((2, 0), "new", (5, "x"))])
    assert files(lake) == before
    assert apply(lake.open(), [up((2, 0), "new", (50, "x"))]).changes["inserted"] == 1


# --- looking at such a table ------------------------------------------------------------------------------
def test_marked_files_of_deltalakes_merge_are_read_and_compacted(tmp_path: Path) -> None:
    schema = pa.schema(
        {"id": pa.int64(), "s": pa.int64(), "name": pa.string(), "inner": pa.struct([("x", pa.string())])}
    )
    folder = str(tmp_path / "t")
    table = sw.create(folder, schema, properties={"delta.enableDeletionVectors": "true"})
    rows = [{"id": number, "s": 1, "name": "a", "inner": {"x": "b"}} for number in range(4)]
    merge = deltalake.DeltaTable(folder).merge(pa.Table.from_pylist(rows, schema), "t.id = n.id", "n", "t")
    merge.when_not_matched_insert_all().execute()  # its file says that texts are views

    assert table.delete("id = 1", key="marks").removed_rows == 1
    table.apply_changes(
        [{**rows[2], "s": 2, "name": "new"}], keys=["id"], sequence_by=["s"], key="marks more"
    )
    assert {row["id"]: row["name"] for row in table.refresh().rows(where="name <> ''").to_pylist()} == {
        0: "a",
        2: "new",
        3: "a",
    }
    assert table.maintain().rows == 3
    assert table.delete("name = 'a'", key="reads").removed_rows == 2


def test_verify_reads_the_rows_that_are_left(tmp_path: Path) -> None:
    lake = marked(tmp_path, "u")
    assert read_rows(inspect_table(lake.uri), ("a", "b")) == {"a": sorted(LEFT), "b": ["x"] * len(LEFT)}


def test_the_readers_of_change_data_jobs_and_checks_leave_deleted_rows_out(tmp_path: Path) -> None:
    """deltalake's dataset refuses such tables, so its query engine reads them."""
    lake = marked(tmp_path, "u")
    table = lake.open()
    assert sorted(rows_of(table).column("a").to_pylist()) == sorted(LEFT)
    found = rows_with(table, ["a", "b"], [(5, "x"), (7, "x"), (8, "y")])
    assert found == [{"a": 5, "b": "x", "s": 1, "t": 0, "value": "old"}]


@pytest.mark.parametrize("deep", [False, True])
def test_doctor_looks_for_the_files_of_vectors(deep: bool, tmp_path: Path) -> None:
    lake = marked(tmp_path, "u")
    assert not [
        one.code for one in examine(inspect_table(lake.uri), deep=deep) if one.severity is not Severity.INFO
    ]
    (path,) = Path(lake.uri).glob("*.bin")
    path.unlink()
    (found,) = [
        one for one in examine(inspect_table(lake.uri), deep=deep) if one.code == "deletion_vectors_missing"
    ]
    assert found.details["missing"] == [path.name]


def test_a_commit_that_gave_a_file_another_vector_is_not_found_by_the_file_alone(tmp_path: Path) -> None:
    """The file was in the log before; a commit of Spark that vanished would be taken for one that landed."""
    lake = marked(tmp_path)
    (add,) = of(lake, 2, "add")
    log = [
        actions.parse(path.read_bytes(), v)
        for v, path in enumerate(sorted(Path(lake.uri, "_delta_log").glob("*.json")))
    ]
    vector = inline(row_vectors.serialized(row_vectors.bitmap(np.arange(9))), 9)
    lost = actions.parse(json.dumps({"add": {**add, "deletionVector": vector}}).encode(), 3)
    assert not LogIndex(log).holds(lost)
    assert LogIndex(log).holds(log[2])


ROOTS = (
    "s3://lake/a/t",
    "s3://lake/a+b/t",
    "s3://lake/a b/t",
    "s3://lake/é/t",
    "/lake/a b/t",
    "/lake/a[1]/t",
)


def test_an_address_that_readers_spell_otherwise_gets_rewritten_files(tmp_path: Path) -> None:
    """T4-A6: deltalake encodes such an address twice where it looks for a vector, and could not read the table."""
    add = {"path": "part-0.parquet", "stats": json.dumps({"numRecords": 10})}
    assert [Vectors(root).taking(add, np.arange(2)) is not None for root in ROOTS] == [
        True,
        True,
        *[False] * 4,
    ]
    for name, vectors_of in (("plain", 1), ("a b", 0), ("é", 0)):
        table = sw.create(tmp_path / name / "t", SCHEMA, properties={"delta.enableDeletionVectors": "true"})
        rows = [{"a": a, "b": "x", "s": 1, "t": 0, "value": "old"} for a in range(40)]
        table.append(pa.Table.from_pylist(rows, SCHEMA))
        table.delete("a < 5")
        found = deltalake.DeltaTable(str(tmp_path / name / "t"))
        read = deltalake.QueryBuilder().register("t", found).execute("SELECT a FROM t").read_all()
        assert pa.table(read).num_rows == table.refresh().row_count() == 35
        log = (tmp_path / name / "t" / "_delta_log" / f"{2:020d}.json").read_text()
        assert log.count('"deletionVector"') == vectors_of, name
