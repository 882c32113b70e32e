"""The reader that knows the specification alone, on tables of PyIceberg: what it sees, and what it must not overlook."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.table import Table

from bench.stress.iceberg_readers import Objects, follow, read_duckdb, read_lineage, repeated_files
from bench.stress.target import UnreadableTableError
from bench.stress.writers.common import to_arrow
from safewrite.testing.checker import Flaw, check
from safewrite.testing.history import IntendedWrite, make_rows
from tests.iceberg.tables import Warehouse, warehouse


class _NoSuchKeyError(Exception):
    """What boto3 raises for an object that is not there."""


class Disk:
    """Files on disk, asked for as boto3 is asked for objects."""

    exceptions = SimpleNamespace(NoSuchKey=_NoSuchKeyError)

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:  # noqa: N803 - boto3's names
        path = Path("/") / Key
        if not path.exists():
            raise _NoSuchKeyError(Key)
        return {"Body": io.BytesIO(path.read_bytes())}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Warehouse]:
    with warehouse(tmp_path) as lake:
        yield lake


@pytest.fixture
def table(lake: Warehouse) -> Table:
    """Three appends; the first snapshot is expired, the second's rows were rewritten."""
    table = lake.create(to_arrow(make_rows(1, 7, 0, 1)).schema, partition_by=["day"])
    for seq in range(2):
        table.append(to_arrow(make_rows(1, 7, seq, 20)))
    rows = table.scan(row_filter="seq = 1").to_arrow()
    table.overwrite(rows, overwrite_filter="seq = 1")
    table.append(to_arrow(make_rows(1, 7, 2, 20)))
    first = table.metadata.snapshots[0].snapshot_id
    table.maintenance.expire_snapshots().by_id(first).commit()
    table.append(to_arrow(make_rows(1, 7, 3, 20)))
    return table


def write(seq: int) -> IntendedWrite:
    rows = make_rows(1, 7, seq, 20)
    return IntendedWrite(
        kind="k", writer=7, seq=seq, key=None, first_id=rows[0].id, checks=tuple(row.check for row in rows),
        outcome="ok", invoked_at=1.0, acked_at=2.0,
    )  # fmt: skip


def test_both_ways_of_reading_the_files_see_every_row_once(table: Table, tmp_path: Path) -> None:
    objects = Objects(Disk())
    lineage = follow(objects, table.metadata_location)
    plain, log = read_lineage(objects, lineage)
    reads = [plain, read_duckdb(objects, lineage, tmp_path / "files")]
    verdict = check([write(seq) for seq in range(4)], reads, log=log)
    assert verdict.findings == ()
    assert repeated_files(lineage) == []


def test_the_lineage_has_expired_snapshots_and_what_they_appended(table: Table) -> None:
    lineage = follow(Objects(Disk()), table.metadata_location)
    known = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    assert len(lineage.snapshots.keys() - known) == 1
    appended = {snapshot for snapshot, _ in lineage.added}
    assert appended - known
    # The creation, and one state for each commit.
    assert lineage.states == 7


def test_rows_that_were_appended_twice_are_doubled(table: Table) -> None:
    table.append(to_arrow(make_rows(1, 7, 3, 20)))
    objects = Objects(Disk())
    plain, _ = read_lineage(objects, follow(objects, table.metadata_location))
    counts = check([write(seq) for seq in range(4)], [plain]).counts()
    assert counts[Flaw.DOUBLED] == 20


def test_a_file_that_is_listed_twice_is_named(table: Table) -> None:  # C10
    (path, *_) = follow(Objects(Disk()), table.metadata_location).live
    table.add_files([path], check_duplicate_files=False)
    (said,) = repeated_files(follow(Objects(Disk()), table.metadata_location))
    assert said == f"{path} is listed 2 times"


@pytest.mark.parametrize("what", ["manifest list", "manifest", "earlier metadata"])
def test_a_table_of_which_a_file_is_missing_is_unreadable(table: Table, what: str) -> None:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    victim = {
        "manifest list": snapshot.manifest_list,
        "manifest": snapshot.manifests(table.io)[0].manifest_path,
        "earlier metadata": table.metadata.metadata_log[0].metadata_file,
    }[what]
    Path(victim.removeprefix("file://")).unlink()
    with pytest.raises(UnreadableTableError, match="is missing"):
        follow(Objects(Disk()), table.metadata_location)


def test_history_is_followed_further_back_than_one_state_remembers(lake: Warehouse) -> None:
    table = lake.create(
        to_arrow(make_rows(1, 7, 0, 1)).schema, properties={"write.metadata.previous-versions-max": "2"}
    )
    for seq in range(5):
        table.append(to_arrow(make_rows(1, 7, seq, 5)))
    assert len(table.metadata.metadata_log) == 2
    table.maintenance.expire_snapshots().older_than(dt.datetime.now(dt.UTC)).commit()
    lineage = follow(Objects(Disk()), table.metadata_location)
    assert len(lineage.snapshots) == 5
    assert lineage.states == 7
