"""``Table.added_since`` gives each row that came since a version once, or refuses: on both formats, whoever wrote."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles

import safewrite as sw
from safewrite.iceberg.read.added_rows import _only_arranges
from safewrite.table.added_rows import Followed
from tests.test_rows_by_key import MARKS, Given, row


def ids(rows: pa.Table) -> list[int]:
    return sorted(rows["id"].to_pylist())


def came(table: Any, version: int | None) -> list[list[int]]:
    return [ids(one.read()) for one in table.added_since(version)]


@pytest.fixture(params=["delta", "iceberg"])
def given(request: pytest.FixtureRequest, tmp_path: Path) -> Given:
    return Given(request.param, tmp_path, properties=MARKS[request.param])


def by_another(given: Given) -> Any:
    """The table as another engine has it."""
    return (
        deltalake.DeltaTable(given.folder / "t")
        if given.form == "delta"
        else given.catalog.load_table("db.t")
    )


def test_each_commit_brings_its_rows_once_and_in_order(given: Given) -> None:
    table = given.table
    empty = table.version
    versions = [table.append([row(number), row(10 + number)]).version for number in range(3)]
    assert came(table, -1) == came(table, empty) == [[0, 10], [1, 11], [2, 12]]
    assert [one.version for one in table.added_since(versions[0])] == versions[1:]
    assert came(table, versions[-1]) == []
    (whole,) = table.added_since(None)
    assert (whole.version, whole.row_count, ids(whole.read())) == (versions[-1], 6, [0, 1, 2, 10, 11, 12])
    for most, parts in ((1, [2, 2, 2]), (2, [2, 2, 2]), (5, [4, 2]), (6, [6])):
        assert [part.read(["id"]).num_rows for part in whole.split(most)] == parts
    assert table.row_count() == 6


@pytest.mark.sweep("iceberg")
def test_rows_are_read_with_all_columns_or_those_that_are_named(given: Given) -> None:
    given.table.append([row(1)])
    (one,) = given.table.added_since(-1)
    assert one.read().to_pylist() == [row(1)]
    assert one.read(["part", "id"]).to_pylist() == [{"part": "a", "id": 1}]
    assert [table.num_rows for table in one.tables(["id"])] == [1]
    for names in (["idd"], []):
        with pytest.raises(sw.InvalidInputError, match="It has:"):
            one.read(names)
    with pytest.raises(sw.InvalidInputError, match="added_since"):
        given.table.added_since("1")


@pytest.mark.sweep("iceberg")
def test_rows_of_another_engine_come_too(given: Given) -> None:
    at = given.table.append([row(1)]).version
    rows = given.table.rows({"id": [1]})
    if given.form == "delta":
        deltalake.write_deltalake(given.folder / "t", rows, mode="append")
    else:
        by_another(given).append(rows)
    assert came(given.table, at) == []  # as of the version that was seen
    assert came(given.table.refresh(), at) == [[1]]


# --- what removes rows ----------------------------------------------------------------------------------
def delete_by_marks(given: Given) -> None:
    """Deletion vectors and position delete files."""
    given.table.apply_changes(
        [{**row(3, price="9.00"), "_gone": True}], keys=["id"], sequence_by=["price"], delete_when="_gone"
    )
    assert len(given.data_files()) == (2 if given.form == "delta" else 3)


def delete_all_of_a_file(given: Given) -> None:
    given.table.delete("id >= 10")


def overwrite(given: Given) -> None:
    given.table.overwrite([row(7)])


def replace(given: Given) -> None:
    given.table.overwrite([row(3, "b")], where="id = 3")


def delete_by_another(given: Given) -> None:
    table = by_another(given)
    if given.form == "iceberg":  # PyIceberg warns that it would copy
        with table.transaction() as transaction:
            transaction.remove_properties("write.delete.mode")
    table.delete("id = 3")


REMOVALS = [delete_by_marks, delete_all_of_a_file, overwrite, replace, delete_by_another]


@pytest.mark.sweep(
    "iceberg-replace",
    "iceberg-delete_all_of_a_file",
    "iceberg-overwrite",
    "delta-replace",
    "delta-delete_all",
    "iceberg-delete_by_marks",
    "delta-overwrite",
)
@pytest.mark.parametrize("remove", REMOVALS)
def test_a_commit_that_removed_rows_is_refused_until_all_rows_are_read(
    remove: Callable[[Given], None], given: Given
) -> None:
    table = given.table
    first = table.append([row(number) for number in range(8)]).version
    second = table.append([row(number) for number in range(10, 15)]).version
    remove(given)
    table.refresh()
    for at in (-1, first, second):
        with pytest.raises(sw.HistoryGapError, match="removed rows") as told:
            table.added_since(at)
        assert told.value.kind == "history_gap"
        assert isinstance(told.value, sw.ConflictError)
    (whole,) = table.added_since(None)
    there = ids(by_engine(given))
    assert ids(whole.read()) == ids(table.rows(where="true")) == there
    assert table.row_count() == len(there)
    table.append([row(20)])
    assert came(table, whole.version) == [[20]]
    assert ids(table.added_by(second).read()) == list(range(10, 15))


def by_engine(given: Given) -> pa.Table:
    """All rows as an engine reads them that knows nothing of safewrite."""
    if given.form == "iceberg":
        return by_another(given).scan().to_arrow()
    found = deltalake.QueryBuilder().register("t", by_another(given)).execute("SELECT id FROM t")
    return pa.table(found.read_all())


def compact(given: Given) -> None:
    """As engines do that arrange rows in fewer files."""
    if given.form == "delta":
        assert by_another(given).optimize.compact()["numFilesRemoved"] == 2
        return
    table = by_another(given)
    rows = table.scan().to_arrow()
    tasks = list(table.scan().plan_files())

    class Replace(_OverwriteFiles):
        """PyIceberg (0.12.0) makes no such snapshots."""

        def _summary(self, snapshot_properties: Any = None) -> Any:
            found = super()._summary(snapshot_properties or {})
            return Summary(Operation.REPLACE, **found.additional_properties)

    from pyiceberg.io.pyarrow import _dataframe_to_data_files

    with table.transaction() as transaction, Replace(Operation.OVERWRITE, transaction, table.io) as update:
        for task in tasks:
            update.delete_data_file(task.file)
        for file in _dataframe_to_data_files(transaction.table_metadata, rows, table.io, update.commit_uuid):
            update.append_data_file(file)


@pytest.mark.sweep("iceberg")
def test_a_compaction_brings_nothing(given: Given) -> None:
    table = given.table
    first = table.append([row(1)]).version
    table.append([row(2)])
    compact(given)
    compacted = table.refresh().version
    table.append([row(3)])
    assert came(table, first) == [[2], [3]]
    assert came(table, compacted) == [[3]]
    (whole,) = table.added_since(None)
    assert (len(whole.files), ids(whole.read())) == (2, [1, 2, 3])


@pytest.mark.sweep("iceberg")
def test_rows_whose_file_a_vacuum_took_after_a_compaction_are_an_error(given: Given) -> None:
    table = given.table
    first = table.append([row(1)]).version
    table.append([row(2)])
    old = given.data_files()
    compact(given)
    for path in old:
        path.unlink()
    (one,) = table.refresh().added_since(first)
    with pytest.raises(sw.DataFileError, match="gone"):
        one.read()
    assert came(table, None) == [[1, 2]]


@pytest.mark.parametrize(
    ("operation", "counts", "is_passed_over"),
    [
        (Operation.REPLACE, {"added-records": "5", "deleted-records": "5"}, True),
        (Operation.REPLACE, {"added-records": "4", "deleted-records": "5"}, False),
        (Operation.REPLACE, {"deleted-records": "5"}, False),
        (Operation.OVERWRITE, {"added-records": "5", "deleted-records": "5"}, False),
        (Operation.DELETE, {"deleted-records": "5"}, False),
        (Operation.APPEND, {"added-records": "5", "added-delete-files": "1"}, False),
        (None, {}, False),
    ],
)
def test_of_snapshots_that_remove_files_only_a_replace_with_equal_rows_is_passed_over(
    operation: Operation | None, counts: dict[str, str], is_passed_over: bool
) -> None:
    table = Followed("db.t", lambda files, columns: pa.table({}))
    summary = None if operation is None else Summary(operation, **counts)
    snapshot = Snapshot(snapshot_id=5, manifest_list="none", sequence_number=9, summary=summary)
    if is_passed_over:
        assert _only_arranges(snapshot, table)
    else:
        with pytest.raises(sw.HistoryGapError, match="removed rows"):
            _only_arranges(snapshot, table)


# --- other histories ------------------------------------------------------------------------------------
@pytest.mark.sweep("delta")
def test_a_table_that_was_restored_is_followed_only_from_before(given: Given) -> None:
    table = given.table
    versions = [table.append([row(number)]).version for number in (1, 2, 3)]
    if given.form == "delta":
        by_another(given).restore(versions[0])
        again = "removed rows"
    else:
        by_another(given).manage_snapshots().rollback_to_snapshot(versions[0]).commit()
        again = "rolled back"
    table.refresh()
    for at in versions[1:]:
        with pytest.raises(sw.HistoryGapError, match=again):
            table.added_since(at)
    assert ids(table.rows(where="id > 0")) == ids(table.rows({"id": [1, 2, 3]})) == [1]
    assert came(table, None) == [[1]]
    at = table.version
    table.append([row(4)])
    assert came(table, at) == [[4]]
    assert ids(table.added_by(versions[1]).read()) == [2]


def test_a_snapshot_of_another_branch_is_no_position(tmp_path: Path) -> None:
    given = Given("iceberg", tmp_path)
    first = given.table.append([row(1)]).version
    plain = by_another(given)
    plain.manage_snapshots().create_branch(first, "side").commit()
    plain.append(given.table.rows({"id": [1]}), branch="side")
    plain.refresh()
    side = plain.metadata.refs["side"].snapshot_id
    given.table.append([row(2)])
    with pytest.raises(sw.HistoryGapError, match="rolled back"):
        given.table.added_since(side)
    assert came(given.table, first) == [[2]]


@pytest.mark.sweep("iceberg")
def test_a_table_that_was_dropped_and_made_again_is_another(given: Given) -> None:
    at = given.table.append([row(1)]).version
    known = given.table.table_id
    if given.form == "delta":
        shutil.rmtree(given.folder / "t")
        table: Any = sw.create(given.folder / "t", given.table.schema)
    else:
        given.catalog.drop_table("db.t")
        table = sw.create("db.t", given.table.schema, catalog=given.catalog)
    table.append([row(5)])
    table.append([row(6)])
    assert table.table_id != known
    with pytest.raises(sw.HistoryGapError, match="another table"):
        table.added_since(at, table_id=known)
    assert came(table, None) == [[5, 6]]
    with pytest.raises(sw.NotCommittedError, match=r"another|Another|anew"):
        given.table.refresh()
    if given.form == "delta":  # the same number is a version of this table, too
        assert came(table, at) == [[6]]
        with pytest.raises(sw.HistoryGapError, match="only version"):
            table.added_since(9)
    else:
        with pytest.raises(sw.HistoryGapError, match="expired"):
            table.added_since(at)


def test_commits_that_were_cleaned_up_or_expired_are_missed(given: Given) -> None:
    table = given.table
    versions = [table.append([row(number)]).version for number in (1, 2, 3)]
    if given.form == "delta":
        by_another(given).create_checkpoint()
        for version in range(versions[1] + 1):
            (given.folder / f"t/_delta_log/{version:020}.json").unlink()
        why = "cleaned up"
    else:
        by_another(given).maintenance.expire_snapshots().by_ids(versions[:1]).commit()
        why = "expired"
    table = given.open()
    for at in (-1, versions[0]):
        with pytest.raises(sw.HistoryGapError, match=why):
            table.added_since(at)
    with pytest.raises(sw.HistoryGapError, match=why):
        table.added_by(versions[0])
    assert came(table, versions[1]) == [[3]]
    assert came(table, None) == [[1, 2, 3]]


def test_a_log_of_another_table_at_the_address_is_refused(tmp_path: Path) -> None:
    """Spark's REPLACE TABLE gives an empty table a new id without removing anything."""
    given = Given("delta", tmp_path)
    at = given.table.append([row(1)]).version
    path = given.folder / f"t/_delta_log/{at:020}.json"
    first = (given.folder / "t/_delta_log/00000000000000000000.json").read_text()
    metadata = next(line for line in first.splitlines() if '"metaData"' in line)
    path.write_text(path.read_text() + metadata.replace(given.table.table_id, "other") + "\n")
    with pytest.raises(sw.HistoryGapError, match="made another table"):
        given.table.added_since(0)


def test_years_that_safewrite_does_not_write_are_read(tmp_path: Path) -> None:
    """The reader of a table that others write must not stop at a value: nothing is written by it."""
    kinds = {"id": pa.int64(), "day": pa.date32(), "at": pa.timestamp("us", "UTC")}
    days = pa.array([-719529, 0, 2932897], pa.int32()).cast(pa.date32())
    times = pa.array([-(10**17), 0, 3 * 10**17], pa.int64()).cast(kinds["at"])
    rows = pa.table([pa.array([1, 2, 3]), days, times], schema=pa.schema(kinds))
    deltalake.write_deltalake(tmp_path / "t", rows)
    table = sw.open(tmp_path / "t")
    (one,) = table.added_since(-1)
    assert one.read().equals(rows)
    assert table.rows({"id": [1, 2, 3]}).combine_chunks().equals(rows)
