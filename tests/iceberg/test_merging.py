"""Merging of manifests at commit: what Java's properties ask for, and no entry altered, lost or doubled by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    read_manifest_list,
)

import safewrite as sw
from safewrite.iceberg.catalog.files import MemoryFile
from safewrite.iceberg.data.known_manifests import KnownManifests
from safewrite.iceberg.data.manifests import manifest_list
from safewrite.iceberg.table import IcebergTable
from safewrite.iceberg.write import append
from safewrite.iceberg.write.merging import COUNT_MIN, ENABLED, TARGET_BYTES, MergeRule
from safewrite.protocol.effects import Effect, Failed, Get, Ok, Outcome
from safewrite.stores.world import Performer
from safewrite.testing.steps import At, Stepwise

KEYS: dict[str, Any] = {"keys": ["id"], "sequence_by": "seq"}


def rows(*ids: int, seq: int = 1) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "seq": pa.array([seq] * len(ids), pa.int64())})


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    made = SqlCatalog("local", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    made.create_namespace("db")
    yield made
    made.close()


def opened(catalog: SqlCatalog, properties: Mapping[str, str] = MappingProxyType({})) -> IcebergTable:
    given = {COUNT_MIN: "3", **properties}
    table = sw.create("db.t", rows().schema, catalog=catalog, properties=given)
    assert isinstance(table, IcebergTable)
    return table


def manifests(catalog: SqlCatalog, content: ManifestContent = ManifestContent.DATA) -> list[ManifestFile]:
    table = catalog.load_table("db.t")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return [one for one in snapshot.manifests(table.io) if one.content == content]


def entries(catalog: SqlCatalog, content: ManifestContent = ManifestContent.DATA) -> list[ManifestEntry]:
    io = catalog.load_table("db.t").io
    found = [one for manifest in manifests(catalog, content) for one in manifest.fetch_manifest_entry(io)]
    return sorted(found, key=lambda one: one.sequence_number or 0)


def said(found: list[ManifestEntry]) -> list[tuple[Any, ...]]:
    """What must outlive a merge of each entry."""
    return [
        (
            one.data_file.file_path,
            one.snapshot_id,
            one.sequence_number,
            one.file_sequence_number,
            one.data_file,
        )
        for one in found
    ]


def ids(catalog: SqlCatalog) -> list[int]:
    found: list[int] = catalog.load_table("db.t").scan().to_arrow()["id"].to_pylist()
    return sorted(found)


def rival(catalog: SqlCatalog, *numbers: int) -> Callable[[], None]:
    return lambda: catalog.load_table("db.t").append(rows(*numbers))


class Unread(Stepwise):
    """Fails each reading of a manifest that is to be merged."""

    def _step(self, step: str, effect: Effect) -> Outcome:
        if isinstance(effect, Get) and effect.name == "merge.get_manifest":
            return Failed("no such luck")
        return self.world.perform(effect)


class Garbled(Stepwise):
    """Answers with other bytes where a manifest that is to be merged is read."""

    def _step(self, step: str, effect: Effect) -> Outcome:
        if isinstance(effect, Get) and effect.name == "merge.get_manifest":
            return Ok(b"Obj\x01 no manifest")
        return self.world.perform(effect)


# --- what is merged --------------------------------------------------------------------------------------
def test_a_commit_merges_the_manifests_of_its_base_when_they_are_many(catalog: SqlCatalog) -> None:
    table = opened(catalog)
    table.append(rows(1))
    table.append(rows(2))
    before = said(entries(catalog))
    table.append(rows(3))
    new, merged = manifests(catalog)
    assert (new.added_files_count, new.existing_files_count) == (1, 0)
    assert (merged.added_files_count, merged.existing_files_count, merged.deleted_files_count) == (0, 2, 0)
    assert (merged.existing_rows_count, merged.min_sequence_number, merged.sequence_number) == (2, 1, 3)
    assert said(entries(catalog))[:2] == before
    assert [one.status for one in entries(catalog)][:2] == [ManifestEntryStatus.EXISTING] * 2
    assert ids(catalog) == [1, 2, 3]


@pytest.mark.sweep("properties2", "properties3")
@pytest.mark.parametrize(
    "properties", [{ENABLED: "false"}, {COUNT_MIN: "4"}, {TARGET_BYTES: "1"}, {COUNT_MIN: "a few"}]
)
def test_no_manifest_is_merged_where_the_table_says_so(
    catalog: SqlCatalog, properties: dict[str, str]
) -> None:
    table = sw.open("db.t", catalog=catalog, create=True, properties={COUNT_MIN: "3", **properties})
    for number in range(3):
        table.append(rows(number))
    assert len(manifests(catalog)) == 3


def test_a_table_without_these_properties_is_merged_as_java_does() -> None:
    assert MergeRule.of({}) == MergeRule(enabled=True, count_min=100, target_bytes=8 * 2**20)


def test_a_merged_manifest_has_no_more_bytes_than_the_table_says() -> None:
    made = [manifest(f"m{number}", length=10) for number in range(5)]
    assert [
        [one.manifest_path for one in some] for some in MergeRule(count_min=5, target_bytes=20).bins(made, [])
    ] == [
        ["m3", "m4"],
        ["m1", "m2"],
    ]


def test_a_merged_manifest_has_a_limit_of_files() -> None:
    made = [manifest(f"m{number}", files=4_000) for number in range(4)]
    assert [len(some) for some in MergeRule(count_min=2).bins(made, [])] == [2, 2]


def test_deletes_and_data_and_specs_are_merged_each_for_themselves() -> None:
    made = [
        manifest("a"), manifest("b", content=ManifestContent.DELETES), manifest("c", spec_id=1), manifest("d"),
        manifest("e", content=ManifestContent.DELETES), manifest("f", spec_id=1),
    ]  # fmt: skip
    found = {tuple(one.manifest_path for one in some) for some in MergeRule(count_min=2).bins(made, [])}
    assert found == {("a", "d"), ("b", "e"), ("c", "f")}


@pytest.mark.long
def test_position_deletes_are_merged_among_themselves(catalog: SqlCatalog) -> None:
    table = opened(catalog, {"write.merge.mode": "merge-on-read"})
    table.apply_changes(rows(*range(8)), **KEYS)
    for number in range(4):
        table.apply_changes(rows(number, seq=2 + number), **KEYS)
    found = manifests(catalog, ManifestContent.DELETES)
    assert sorted((one.added_files_count, one.existing_files_count) for one in found) == [(0, 3), (1, 0)]
    kept = [one.data_file.file_path for one in entries(catalog, ManifestContent.DELETES)]
    assert len(kept) == len(set(kept)) == 4
    assert ids(catalog) == list(range(8))


def test_changes_are_applied_right_across_many_merges(catalog: SqlCatalog) -> None:
    """Inserts, updates and deletes; the table's objects keep what they decoded, and another reads afresh."""
    table, expected = opened(catalog), {}
    for number in range(9):
        some = [number, number + 1, (number * 7) % 5]
        table.apply_changes(rows(*dict.fromkeys(some), seq=number), **KEYS)
        expected |= dict.fromkeys(some, number)
    table.delete("id = 3")
    expected.pop(3)
    found = catalog.load_table("db.t").scan().to_arrow()
    assert dict(zip(found["id"].to_pylist(), found["seq"].to_pylist(), strict=True)) == expected
    assert len(found) == len(expected)
    assert len(manifests(catalog)) <= 3


# --- others come between ---------------------------------------------------------------------------------
def test_a_merged_manifest_serves_the_attempt_after_a_rival(catalog: SqlCatalog) -> None:
    table = opened(catalog)
    table.append(rows(1))
    table.append(rows(2))
    table.world = At(table.world, "swap.commit", "before", rival(catalog, 7))
    assert table.append(rows(3)).attempts == 2
    assert ids(catalog) == [1, 2, 3, 7]
    assert sorted(one.existing_files_count or 0 for one in manifests(catalog)) == [0, 0, 2]
    assert [one.sequence_number for one in entries(catalog)] == [1, 2, 3, 4]


@pytest.mark.long
def test_a_merged_manifest_is_left_out_where_a_rival_took_some_of_it_away(catalog: SqlCatalog) -> None:
    table = opened(catalog)
    table.append(rows(1))
    table.append(rows(2))
    table.world = At(
        table.world, "swap.commit", "before", lambda: catalog.load_table("db.t").delete("id = 1")
    )
    assert table.append(rows(3)).attempts == 2
    assert ids(catalog) == [2, 3]


def test_the_manifest_of_a_later_attempt_is_as_new_as_its_snapshot(catalog: SqlCatalog) -> None:
    """Else deletes that a rival committed before would take rows away that came after them."""
    table = opened(catalog)
    table.append(rows(1))
    table.world = At(table.world, "swap.commit", "before", rival(catalog, 7))
    assert table.append(rows(3)).attempts == 2
    snapshot = catalog.load_table("db.t").current_snapshot()
    assert snapshot is not None
    ours = [one for one in manifests(catalog) if one.added_snapshot_id == snapshot.snapshot_id]
    assert [one.sequence_number for one in ours] == [snapshot.sequence_number] == [3]


@pytest.mark.sweep("Unread")
@pytest.mark.parametrize("broken", [Unread, Garbled])
def test_no_commit_fails_for_a_manifest_that_cannot_be_merged(
    catalog: SqlCatalog, broken: Callable[[Performer], Performer]
) -> None:
    table = opened(catalog)
    table.append(rows(1))
    table.append(rows(2))
    table.world = broken(table.world)
    table.append(rows(3))
    assert ids(catalog) == [1, 2, 3]
    assert len(manifests(catalog)) == 3


# --- what is known ---------------------------------------------------------------------------------------
def test_a_plan_reads_no_manifest_twice(catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = opened(catalog, {COUNT_MIN: "100"})
    for number in range(3):
        table.apply_changes(rows(number), **KEYS)
    read: list[str] = []
    real = ManifestFile.fetch_manifest_entry

    def noted(self: ManifestFile, io: Any, discard_deleted: bool = True) -> list[ManifestEntry]:
        read.append(self.manifest_path)
        return real(self, io, discard_deleted)

    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", noted)
    table.apply_changes(rows(0, 5, seq=4), **KEYS)
    assert len(read) == 1
    assert ids(catalog) == [0, 1, 2, 5]


def test_what_is_known_of_a_dropped_table_is_not_believed_of_the_next(catalog: SqlCatalog) -> None:
    table = opened(catalog)
    table.apply_changes(rows(1), **KEYS)
    table.apply_changes(rows(2, seq=2), **KEYS)
    catalog.drop_table("db.t")
    opened(catalog).append(rows(9))
    with pytest.raises(sw.ConflictError, match="Open it again"):
        table.refresh()
    sw.open("db.t", catalog=catalog).apply_changes(rows(1, seq=5), **KEYS)
    assert ids(catalog) == [1, 9]


def test_entries_are_kept_for_the_snapshot_that_was_planned_and_up_to_a_limit(catalog: SqlCatalog) -> None:
    table = opened(catalog)
    known = table._format.planner.known = KnownManifests(files_max=2)
    for number in range(6):
        table.apply_changes(rows(number, seq=number), **KEYS)
        assert sum(len(one.entries) for one in known) <= 2
    assert ids(catalog) == list(range(6))


def test_bounds_rule_files_out_as_pyiceberg_would(catalog: SqlCatalog) -> None:
    """Files with and without bounds of the column, NULL in all rows."""
    table = opened(catalog)
    table.append(rows(1, 2))
    table.append(rows(10, 12))
    table.append(pa.table({"id": pa.array([None], pa.int64()), "seq": pa.array([1], pa.int64())}))
    table.delete("id >= 2 and id <= 10")
    table.delete("id >= 11 and id <= 99")
    found = catalog.load_table("db.t").scan().to_arrow()["id"].to_pylist()
    assert sorted(found, key=str) == [1, None]


def manifest(
    path: str,
    *,
    length: int = 10,
    files: int = 1,
    spec_id: int = 0,
    content: ManifestContent = ManifestContent.DATA,
) -> ManifestFile:
    return ManifestFile.from_args(
        manifest_path=path, manifest_length=length, partition_spec_id=spec_id, content=content, sequence_number=1,
        min_sequence_number=1, added_snapshot_id=1, added_files_count=files, existing_files_count=0,
        deleted_files_count=0, added_rows_count=files, existing_rows_count=0, deleted_rows_count=0,
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("version", ["1", "2"])
def test_what_a_writer_keeps_of_its_own_list_is_what_the_list_says(catalog: SqlCatalog, version: str) -> None:
    kept: list[int] = []

    def compared(*args: Any, **named: Any) -> tuple[bytes, tuple[ManifestFile, ...], Mapping[str, int]]:
        body, listed, lineage = manifest_list(*args, **named)
        read = read_manifest_list(MemoryFile("listed.avro", body).to_input_file())
        said = len(MANIFEST_LIST_FILE_SCHEMAS[2].fields)  # the first row id of version 3 follows
        assert [one._data[:said] for one in listed] == [one._data for one in read]
        kept.append(len(listed))
        return body, listed, lineage

    given = {COUNT_MIN: "3", "format-version": version}
    table = sw.create("db.t", rows().schema, catalog=catalog, partition_by=["id"], properties=given)
    with mock.patch.object(append, "manifest_list", compared):
        for number in range(4):
            table.append(rows(number, number + 1))
        table.overwrite(rows(2, 2, 9), where="id in (2, 9)")
        table.delete(where="id = 9")
        table.append(rows(5))
    assert max(kept) > 1
    assert min(kept[1:]) < max(kept), "some were merged"
    assert table.iceberg.scan().count() == 9
