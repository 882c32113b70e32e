"""Files that nothing needs are listed by one run, and removed by one of a later day; what a kept version needs stays."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw
from bench.servers.servers import Ministack
from safewrite.iceberg import expiry
from safewrite.table.verbs import Table
from safewrite.upkeep import unused
from safewrite.upkeep.unused import inner_tables
from tests.mutants.seams import no_steps

DAY_S = 24 * 3600
SCHEMA = pa.schema({"id": pa.int64()})


def grow_older(folder: Path, days: float) -> None:
    """Set all files of a folder back by so many days."""
    for path in (one for one in folder.rglob("*") if one.is_file()):
        os.utime(path, (path.stat().st_mtime - days * DAY_S,) * 2)


def let_a_day_pass(folder: Path) -> None:
    """Since the last list was written."""
    path = folder / "_safewrite/unused/list.json"
    if path.exists():
        os.utime(path, (path.stat().st_mtime - 1.1 * DAY_S,) * 2)


def names_in(folder: Path) -> set[str]:
    return {one.name for one in folder.rglob("*") if one.is_file()}


def removes(table: Table, **more: Any) -> Any:
    return table.maintain(budget_bytes=1, remove_unused=True, **more)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    found = SqlCatalog("local", uri=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path.as_uri())
    yield found
    found.engine.dispose()


def made(kind: str, tmp_path: Path, catalog: SqlCatalog, **properties: str) -> tuple[Table, Path]:
    if kind == "delta":
        return sw.create(str(tmp_path / "t"), SCHEMA, properties=properties or None), tmp_path / "t"
    sw.create("db.t", SCHEMA, catalog=catalog, create_namespace=True, properties=properties or None)
    return sw.open("db.t", catalog=catalog), tmp_path / "db" / "t"


def put_orphan(kind: str, folder: Path, name: str = "orphan.parquet") -> Path:
    path = folder / ("" if kind == "delta" else "data") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"of a writer that was killed")
    return path


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_killed_writers_file_is_listed_and_a_day_later_removed(
    kind: str, tmp_path: Path, catalog: SqlCatalog
) -> None:
    table, folder = made(kind, tmp_path, catalog)
    for number in range(3):
        table.append([{"id": number}])
    orphan, other = put_orphan(kind, folder), folder / "notes.txt"
    other.write_text("of a user")
    grow_older(folder, 6)
    young = removes(table)
    assert (young.removed, young.unused_listed) == ({}, 0)  # a write may take a week
    grow_older(folder, 2)
    foreseen = removes(table, dry_run=True)
    assert (foreseen.removed, foreseen.unused_listed) == ({}, 1)
    assert not (folder / "_safewrite/unused/list.json").exists()
    assert removes(table).unused_listed == 1
    assert "1 file that nothing needs are listed" in str(removes(table))  # and not listed as of today again
    assert orphan.exists()
    let_a_day_pass(folder)
    assert removes(table, dry_run=True).removed == {"unused_files": 1}
    assert orphan.exists()
    report = removes(table)
    assert (report.removed, report.unused_listed, report.unused_kept) == ({"unused_files": 1}, 0, "")
    assert not orphan.exists()
    assert other.exists()
    (record,) = (folder / "_safewrite/unused").glob("removed-*.json")
    assert orphan.name in json.loads(record.read_text())["removed"][0][0]
    assert sorted(table.rows(where="id >= 0")["id"].to_pylist()) == [0, 1, 2]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_file_that_was_listed_and_is_another_one_now_or_is_named_stays(
    kind: str, tmp_path: Path, catalog: SqlCatalog
) -> None:
    table, folder = made(kind, tmp_path, catalog)
    table.append([{"id": 1}])
    orphan = put_orphan(kind, folder)
    (named,) = (one for one in folder.rglob("*.parquet") if one != orphan)
    grow_older(folder, 8)
    removes(table)
    path = folder / "_safewrite/unused/list.json"
    listed = json.loads(path.read_text())
    at = [str(named.relative_to(folder)), named.stat().st_size, int(named.stat().st_mtime * 1000)]
    path.write_text(json.dumps({**listed, "files": [*listed["files"], at]}))
    orphan.write_bytes(b"written again")
    grow_older(orphan.parent, 9)
    assert removes(table).removed == {}
    assert orphan.exists()
    assert named.exists()


def test_what_a_list_of_another_table_has_is_not_removed(tmp_path: Path, catalog: SqlCatalog) -> None:
    table, folder = made("delta", tmp_path, catalog)
    orphan = put_orphan("delta", folder)
    grow_older(folder, 8)
    removes(table)
    path = folder / "_safewrite/unused/list.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "table": "another"}))
    let_a_day_pass(folder)
    assert removes(table).removed == {}
    assert orphan.exists()


def test_a_table_within_the_folder_keeps_its_files(tmp_path: Path, catalog: SqlCatalog) -> None:
    table, folder = made("delta", tmp_path, catalog)
    sw.open(str(tmp_path / "inner"), create=True).append([{"id": 1}])
    (tmp_path / "inner").rename(folder / "inner")
    inner = sw.open(str(folder / "inner"))
    grow_older(folder, 8)
    removes(table)
    let_a_day_pass(folder)
    assert removes(table).removed == {}
    assert inner.rows(where="id >= 0").num_rows == 1
    assert inner_tables(
        ["a/metadata/00001-x.metadata.json", "metadata/v1.metadata.json", "b/metadata/x.avro"]
    ) == ("a/",)


def test_files_of_snapshots_that_expired_go_and_those_of_a_tag_stay(
    tmp_path: Path, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, folder = made("iceberg", tmp_path, catalog)
    table.append([{"id": 1}])
    tagged = table.version
    catalog.load_table("db.t").manage_snapshots().create_tag(tagged, "first").commit()
    for number in range(2, 6):
        table.overwrite([{"id": number}])
    last = catalog.load_table("db.t").metadata.snapshots
    before = names_in(folder)
    grow_older(folder, 30)
    monkeypatch.setattr(expiry, "FEWEST", 1)
    monkeypatch.setattr(expiry, "really_old", lambda *_: no_steps(last[1:-1]))
    assert removes(table).removed == {"snapshots": len(last) - 2}
    monkeypatch.setattr(expiry, "really_old", lambda *_: no_steps([]))
    let_a_day_pass(folder)
    report = removes(table)
    gone = before - names_in(folder)
    assert (
        len(gone) == report.removed["unused_files"] >= 6
    )  # data files, manifests and lists of three snapshots
    found = catalog.load_table("db.t")
    assert found.scan(snapshot_id=tagged).to_arrow()["id"].to_pylist() == [1]
    assert found.scan().to_arrow()["id"].to_pylist() == [5]
    table.append([{"id": 6}])
    assert table.rows(where="id >= 0").num_rows == 2


def test_a_folder_with_metadata_of_another_table_is_left_alone(tmp_path: Path, catalog: SqlCatalog) -> None:
    """A table was renamed, and another one made in its place: both have files in one folder."""
    table, folder = made("iceberg", tmp_path, catalog)
    table.append([{"id": 1}])
    catalog.rename_table("db.t", "db.moved")
    second, _ = made("iceberg", tmp_path, catalog)
    second.append([{"id": 2}])
    grow_older(folder, 30)
    for _ in range(2):
        report = removes(sw.open("db.t", catalog=catalog))
        assert "metadata of another table" in report.unused_kept
        let_a_day_pass(folder)
    assert sw.open("db.moved", catalog=catalog).rows(where="id >= 0").num_rows == 1


def test_a_table_that_was_registered_twice_keeps_the_files_of_both(
    tmp_path: Path, catalog: SqlCatalog
) -> None:
    """As where a table is led over to another catalog, and both go on: both have one folder and one id."""
    table, folder = made("iceberg", tmp_path, catalog)
    table.append([{"id": 1}])
    second = catalog.register_table("db.second", catalog.load_table("db.t").metadata_location)
    for number in (2, 3):
        second.append(pa.table({"id": [number]}))
    table.append([{"id": 4}])
    orphan = put_orphan("iceberg", folder)
    grow_older(folder, 30)
    removes(table)
    let_a_day_pass(folder)
    assert removes(table).removed == {"unused_files": 1}
    assert not orphan.exists()
    assert sorted(catalog.load_table("db.second").scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]
    assert sorted(table.rows(where="id > 0")["id"].to_pylist()) == [1, 4]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_where_nobody_knows_what_is_needed_nothing_goes(
    kind: str, tmp_path: Path, catalog: SqlCatalog
) -> None:
    table, folder = made(kind, tmp_path, catalog, **({} if kind == "delta" else {"gc.enabled": "false"}))
    table.append([{"id": 1}])
    table.append([{"id": 2}])
    orphan = put_orphan(kind, folder)
    grow_older(folder, 8)
    if kind == "delta":
        queue = folder / "_safewrite/queue" / f"{1:020}-{17:020}-x"
        queue.parent.mkdir(parents=True)
        queue.write_bytes(b"{}")
        grow_older(folder, 8)
    for _ in range(2):
        assert removes(table).unused_kept in {unused.LEFT_WAITING, "gc.enabled is false"}
        let_a_day_pass(folder)
    assert orphan.exists()


def test_files_that_nothing_names_go_on_s3(
    ministack: Ministack, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one request for many; all times are those of the store, so that the waits are shortened here."""
    monkeypatch.setattr(unused, "KEPT_MS", -2000)
    monkeypatch.setattr(unused, "BETWEEN_MS", 0)
    uri, options, s3 = f"s3://{bucket}/t", ministack.storage_options(), ministack.boto3_client("s3")
    table = sw.create(
        uri,
        SCHEMA,
        arbiter="object-store",
        storage_options=options,
        properties={"delta.deletedFileRetentionDuration": "interval 0 seconds"},
    )
    table.append([{"id": 1}])
    strays = [f"t/part-{number}.parquet" for number in range(3)]
    for key in strays:
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    first, second = (table.maintain(budget_bytes=1, remove_unused=True) for _ in range(2))
    there = {one["Key"] for one in s3.list_objects_v2(Bucket=bucket, Prefix="t/")["Contents"]}
    assert (first.unused_listed, second.removed["unused_files"]) == (3, 3)
    assert there.isdisjoint(strays)
    assert table.rows({"id": [1]}).num_rows == 1
