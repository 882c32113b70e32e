"""A table of many small commits: manifests are opened once in a process, and merged where there are many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import ManifestEntryStatus, ManifestFile

import safewrite as sw
from safewrite.iceberg.data.known_manifests import KnownManifests
from safewrite.iceberg.write.merging import to_merge
from safewrite.testing.steps import At

SCHEMA = pa.schema({"id": pa.int64(), "part": pa.string(), "seq": pa.int64()})
HOW: dict[str, Any] = {"keys": ["id"], "sequence_by": ["seq"], "delete_when": [("seq", "<", 0)]}


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return SqlCatalog("local", uri=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path.as_uri())


def made(catalog: SqlCatalog, **properties: str) -> Any:
    return sw.create("db.t", SCHEMA, catalog=catalog, properties=properties)


def put(table: Any, ids: Iterable[int], seq: int = 1, **how: Any) -> Any:
    rows = pa.Table.from_pylist([{"id": one, "part": "a", "seq": seq} for one in ids], SCHEMA)
    return table.apply_changes(rows, **HOW, **how)


def manifests(catalog: SqlCatalog) -> list[ManifestFile]:
    table = catalog.load_table("db.t")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return [one for one in snapshot.manifests(table.io) if one.content == 0]


def test_a_manifest_is_read_once_by_a_warm_table(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(catalog)
    read: Counter[str] = Counter()
    own = ManifestFile.fetch_manifest_entry

    def counting(self: ManifestFile, *given: Any, **named: Any) -> Any:
        read[self.manifest_path] += 1
        return own(self, *given, **named)

    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", counting)
    for number in range(6):
        put(table, [number], key=str(number))
    put(table, [0, 3], seq=2)
    put(table, [0, 4], seq=3)
    assert read
    assert set(read.values()) == {1}
    monkeypatch.undo()
    assert found(catalog) == {0: 3, 1: 1, 2: 1, 3: 2, 4: 3, 5: 1}


def found(catalog: SqlCatalog) -> dict[int, int]:
    return {one["id"]: one["seq"] for one in catalog.load_table("db.t").scan().to_arrow().to_pylist()}


def test_what_is_kept_is_bounded_and_the_oldest_goes_first(catalog: SqlCatalog) -> None:
    table = made(catalog)
    for number in range(3):
        put(table, [number])
    first, second, third = (
        (one, one.fetch_manifest_entry(catalog.load_table("db.t").io)) for one in manifests(catalog)
    )
    columns = 2 + len(SCHEMA)
    known = KnownManifests(2 * columns)
    for manifest, entries in (first, second):
        known.note(manifest, entries)
    assert known.entries(first[0]) == first[1]
    known.note(*third)
    kept = [known.entries(manifest) is not None for manifest, _ in (first, second, third)]
    assert kept == [True, False, True]
    tiny = KnownManifests(1)
    tiny.note(*first)
    assert tiny.entries(first[0]) is None, "one that is larger than all"


def test_manifests_are_merged_from_the_count_on_that_the_table_names(catalog: SqlCatalog) -> None:
    table = made(catalog, **{"commit.manifest.min-count-to-merge": "4"})
    counts = []
    for number in range(9):
        put(table, [number, 100], seq=number + 1, key=str(number))
        counts.append(len(manifests(catalog)))
    assert (max(counts), counts[-1] < 9) == (5, True)
    assert found(catalog) == {**{n: n + 1 for n in range(9)}, 100: 9}
    again = put(sw.open("db.t", catalog=catalog), [2, 100], seq=3, key="2")
    assert again.outcome == "already_committed"
    live = [
        one
        for m in manifests(catalog)
        for one in m.fetch_manifest_entry(table.iceberg.io, discard_deleted=False)
    ]
    told = {one.data_file.file_path: one for one in live if one.status != ManifestEntryStatus.DELETED}
    sequences = {one.sequence_number for one in told.values()}
    assert len(sequences) > 5, "entries keep the sequence numbers that they came with"


def test_nothing_is_merged_where_the_table_forbids_it_or_has_few(catalog: SqlCatalog) -> None:
    names = {"commit.manifest.min-count-to-merge": "2", "commit.manifest-merge.enabled": "false"}
    table = made(catalog, **names)
    for number in range(5):
        put(table, [number])
    assert len(manifests(catalog)) == 5


def test_a_rival_between_plan_and_commit_is_merged_with(catalog: SqlCatalog) -> None:
    table = made(catalog, **{"commit.manifest.min-count-to-merge": "3"})
    for number in range(4):
        put(table, [number])
    rival = sw.open("db.t", catalog=catalog)
    table.world = At(table.world, "swap.commit", "before", lambda: put(rival, [10, 0], seq=5))
    put(table, [0, 11], seq=7)
    assert found(catalog) == {0: 7, 1: 1, 2: 1, 3: 1, 10: 5, 11: 7}
    rival.delete("id = 10")
    assert found(catalog) == {0: 7, 1: 1, 2: 1, 3: 1, 11: 7}


@pytest.mark.parametrize(
    ("properties", "sizes", "expected"),
    [
        ({}, [1] * 99, []),
        ({}, [1] * 100, [100]),
        ({"commit.manifest.min-count-to-merge": "2", "commit.manifest.target-size-bytes": "10"}, [4, 4, 4, 9, 20, 1], [2]),
        ({"commit.manifest.min-count-to-merge": "nonsense"}, [1] * 99, []),
        ({"commit.manifest-merge.enabled": "FALSE"}, [1] * 200, []),
    ],
)  # fmt: skip
def test_manifests_are_merged_up_to_the_target_size(
    properties: dict[str, str], sizes: list[int], expected: list[int]
) -> None:
    many = [
        ManifestFile.from_args(manifest_path=str(n), manifest_length=size, partition_spec_id=0)
        for n, size in enumerate(sizes)
    ]
    assert [len(group) for group in to_merge(many, properties)] == expected


def test_manifests_of_two_partitionings_stay_apart() -> None:
    many = [
        ManifestFile.from_args(manifest_path=str(n), manifest_length=1, partition_spec_id=n % 2)
        for n in range(6)
    ]
    groups = to_merge(many, {"commit.manifest.min-count-to-merge": "3"})
    assert [{one.partition_spec_id for one in group} for group in groups] == [{0}, {1}]
