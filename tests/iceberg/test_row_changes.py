"""``changes_since`` on Iceberg tables: which histories it follows, and what it says where it cannot."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyiceberg.manifest as avro
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.typedef import Record

import safewrite as sw
from tests.iceberg import v3_tables as v3

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("seq", pa.int64())])


@pytest.fixture
def lake(tmp_path: Path) -> dict[str, str]:
    return v3.lake(tmp_path)


def made(lake: dict[str, str], **settings: Any) -> Any:
    return sw.create(v3.NAME, SCHEMA, catalog=lake, **settings)


def rows(*ids: int, v: str = "x", seq: int = 1) -> list[dict[str, Any]]:
    return [{"id": one, "v": v, "seq": seq} for one in ids]


def kinds(reader: Any) -> list[tuple[Any, ...]]:
    return [(row["_change_type"], row["id"]) for row in reader.read().to_pylist()]


def plain(lake: dict[str, str]) -> Any:
    return SqlCatalog("default", **lake).load_table(v3.NAME)


def expire(lake: dict[str, str], *ids: int) -> None:
    """As Java's library does: a snapshot keeps the id of its parent."""

    def change(metadata: dict[str, Any]) -> None:
        metadata["snapshots"] = [one for one in metadata["snapshots"] if one["snapshot-id"] not in ids]
        metadata["snapshot-log"] = [one for one in metadata["snapshot-log"] if one["snapshot-id"] not in ids]

    v3.edit(lake, change)


def test_each_row_has_its_snapshot_and_the_sequence_number_that_orders_it(lake: dict[str, str]) -> None:
    table = made(lake)
    versions = [table.append(rows(1, 2)).version]
    changed = [{**one, "seq": 2, "gone": False} for one in rows(2, 3, v="new")]
    versions.append(
        table.apply_changes(changed, keys=["id"], sequence_by=["seq"], delete_when="gone").version
    )
    found = table.changes_since(-1).read()
    assert found.schema.names[-4:] == [
        "_change_type",
        "_commit_version",
        "_commit_timestamp",
        "_change_ordinal",
    ]
    assert list(
        zip(found["_commit_version"].to_pylist(), found["_change_ordinal"].to_pylist(), strict=True)
    ) == [
        *[(versions[0], 1)] * 2,
        *[(versions[1], 2)] * 3,
    ]
    assert found["_change_type"].to_pylist()[2:] == ["update_preimage", "update_postimage", "insert"]
    (first, *_) = table.changes_since(None)
    assert first.rows["_change_ordinal"].to_pylist() == [2, 2, 2]


def test_a_branch_is_followed_as_itself_and_another_ones_snapshots_are_no_position(
    lake: dict[str, str],
) -> None:
    main = made(lake)
    main.append(rows(1))
    audit = sw.open(v3.NAME, catalog=lake, branch="audit")
    begin = audit.changes_since(None)
    assert kinds(begin) == [("insert", 1)]
    audit.append(rows(2))
    audit.delete("id = 1")
    there = audit.changes_since(begin.position)
    assert kinds(there) == [("insert", 2), ("delete", 1)]
    main.append(rows(3))
    assert kinds(main.refresh().changes_since(begin.position)) == [("insert", 3)]
    with pytest.raises(sw.HistoryGapError, match="rolled back"):
        main.changes_since(there.position).read()


def test_histories_that_are_gone_are_refused(lake: dict[str, str]) -> None:
    """Rolled back, expired, without the snapshot that tells what went, of a table that was made again, without a file."""
    table = made(lake)
    positions = []
    for number in range(4):
        table.append(rows(number, number + 10))
        positions.append(table.changes_since(table.version).position)
    table.delete("id = 3")
    plain(lake).manage_snapshots().rollback_to_snapshot(int(positions[2].split("@")[0])).commit()
    table.refresh()
    with pytest.raises(sw.HistoryGapError, match=r"rolled back.*changes_since\(None\)"):
        table.changes_since(positions[3]).read()
    assert kinds(table.changes_since(positions[1])) == [("insert", 2), ("insert", 12)]
    table.delete("id = 1")
    ids = [int(one.split("@")[0]) for one in positions]
    expire(lake, ids[0], ids[2])
    table.refresh()
    with pytest.raises(sw.HistoryGapError, match="expired"):
        table.changes_since(positions[0]).read()
    with pytest.raises(sw.HistoryGapError, match=f"snapshot {ids[2]} before .* has expired"):
        table.changes_since(positions[2]).read()
    assert sorted(kinds(table.changes_since(None))) == [("insert", one) for one in (0, 2, 10, 11, 12)]
    at = table.changes_since(table.version).position
    before = v3.data_files(lake)
    table.delete("id = 12")
    for path in {*before} - {*v3.data_files(lake)}:
        Path(path.removeprefix("file://")).unlink()
    with pytest.raises(sw.HistoryGapError, match="orphan files"):
        table.changes_since(at).read()
    SqlCatalog("default", **lake).drop_table(v3.NAME)
    again = made(lake)
    again.append(rows(1))
    with pytest.raises(sw.HistoryGapError, match="another table"):
        again.changes_since(at)


def test_an_append_whose_parent_has_expired_is_told_by_its_own_manifests(lake: dict[str, str]) -> None:
    table = made(lake)
    first = table.append(rows(1)).version
    table.append(rows(2))
    expire(lake, first)
    assert kinds(table.refresh().changes_since(first)) == [("insert", 2)]


@pytest.mark.parametrize("lost", ["list", "manifest"])
def test_a_file_of_metadata_that_is_gone_is_named_and_no_reader_is_told_to_call_again(
    lake: dict[str, str], lost: str
) -> None:
    table = made(lake)
    first, second = table.append(rows(1)).version, table.append(rows(2)).version
    snapshot = plain(lake).snapshot_by_id(second)
    (own,) = [one for one in snapshot.manifests(plain(lake).io) if one.added_snapshot_id == second]
    path = snapshot.manifest_list if lost == "list" else own.manifest_path
    Path(path.removeprefix("file://")).unlink()
    fresh = sw.open(v3.NAME, catalog=lake)
    with pytest.raises(sw.HistoryGapError, match="is gone") as gap:
        fresh.changes_since(first).read()
    assert Path(path).name in str(gap.value)
    with pytest.raises(sw.DataFileError, match="restore it from a versioned copy") as whole:
        fresh.changes_since(None).read()
    assert Path(path).name in str(whole.value)
    write = partial(fresh.append, rows(3)) if lost == "list" else partial(fresh.delete, "id = 1")
    with pytest.raises(sw.DataFileError, match="restore it from a versioned copy") as refused:
        write()
    assert Path(path).name in str(refused.value)


def test_an_append_is_told_without_the_snapshot_before_it(lake: dict[str, str]) -> None:
    table = made(lake)
    first, second = table.append(rows(1)).version, table.append(rows(2)).version
    Path(plain(lake).snapshot_by_id(first).manifest_list.removeprefix("file://")).unlink()
    fresh = sw.open(v3.NAME, catalog=lake)
    assert kinds(fresh.changes_since(first)) == [("insert", 2)]
    table.delete("id = 2")
    assert kinds(sw.open(v3.NAME, catalog=lake).changes_since(first)) == [("insert", 2), ("delete", 2)]
    assert fresh.version == second


def test_vectors_of_format_version_3_tell_which_rows_went(lake: dict[str, str]) -> None:
    """The next vector of a file stands in the place of the one before it, with its rows."""
    table = made(lake)
    table.append(rows(*range(6)))
    v3.upgrade(lake)
    at = table.refresh().version
    (path,) = v3.data_files(lake)
    v3.mark(lake, {path: [1, 4]}, spare={path: [0]})
    table.refresh()
    assert kinds(table.changes_since(at)) == [("delete", 1), ("delete", 4)]
    table.append(rows(9))
    assert kinds(table.changes_since(at)) == [("delete", 1), ("delete", 4), ("insert", 9)]


def test_equality_deletes_are_refused_by_name(lake: dict[str, str]) -> None:
    table = made(lake)
    at = table.append(rows(1, 2)).version
    location = plain(lake).location()
    equality = avro.DataFile.from_args(
        content=avro.DataFileContent.EQUALITY_DELETES, file_path=f"{location}/data/eq.parquet", file_format=avro.FileFormat.PARQUET,
        partition=Record(), record_count=1, file_size_in_bytes=9, equality_ids=[1], column_sizes=None, split_offsets=None,
    )  # fmt: skip
    v3.commit_deletes(lake, [equality])
    reader = table.refresh().changes_since(-1)
    assert next(reader).version == at
    with pytest.raises(sw.UnsupportedTableError, match="equality deletes"):
        next(reader)
    assert reader.position == f"{at}@{table.table_id}"


def test_the_beginning_of_a_table_without_sequence_numbers_is_asked_for_by_none(lake: dict[str, str]) -> None:
    """Nothing shows that no snapshot before the oldest one expired; from that one on it is followed."""
    catalog = SqlCatalog("default", **lake)
    catalog.create_namespace("n")
    table = catalog.create_table("n.first", SCHEMA, properties={"format-version": "1"})
    table.append(pa.Table.from_pylist(rows(1), SCHEMA))
    first = table.refresh().current_snapshot().snapshot_id
    table.append(pa.Table.from_pylist(rows(2), SCHEMA))
    ours = sw.open("n.first", catalog=catalog)
    with pytest.raises(sw.HistoryGapError, match=r"format version 1 .*changes_since\(None\)"):
        ours.changes_since(-1).read()
    assert kinds(ours.changes_since(first)) == [("insert", 2)]
    assert sorted(kinds(ours.changes_since(None))) == [("insert", 1), ("insert", 2)]
