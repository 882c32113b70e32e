"""What users of DMS met from outside (T3-C1 to T3-C11): each story once in each format, silver read by deltalake or PyIceberg."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog

from safewrite.medallion import Pipeline, verify
from tests.medallion.test_evolution import rows as rows_of
from tests.medallion.test_evolution import shop
from tests.medallion.test_jobs import HEAD, Shop, set_in

START_S = 1_790_000_000
TABLE = "shop.orders"
LOAD, FIRST, SECOND = "LOAD00000001", "20261101-000000001", "20261102-000000001"


class Job:
    """A job in a format."""

    def __init__(self, folder: Path, table_format: str, columns: dict[str, str] | None = None) -> None:
        self.folder, self.table_format = folder, table_format
        self.shop: Shop = shop(folder, table_format, columns)
        self.count = 0

    def put(self, name: str, text: str) -> None:
        self.count += 1
        path = f"shop/orders/{name}.csv"
        self.shop.put(path, text)
        os.utime(self.folder / "raw" / path, (START_S + 100 * self.count,) * 2)

    def say(self, **more: Any) -> None:
        self.shop.config["tables"][TABLE] |= more

    def files(self, **more: Any) -> None:
        set_in(self.shop, "defaults", "files", to={"kind": "csv", "header": True, **more})

    def run(self, how: Callable[[Pipeline], Any] = Pipeline.run) -> Any:
        done = how(Pipeline(self.shop.config))
        assert done.ok, done.tables[0].error
        return done.tables[0]

    def fails(self) -> Any:
        done = Pipeline(self.shop.config).run()
        assert not done.ok
        return done.tables[0]

    def silver(self, column: str = "price") -> dict[Any, Any]:
        found = rows_of(self.shop, "silver")
        return {key: None if row[column] is None else str(row[column]) for key, row in found.items()}

    def aside(self) -> list[dict[str, Any]]:
        found = deltalake.DeltaTable(str(self.folder / "aside"))
        return sorted(
            pa.table(found.to_pyarrow_table()).to_pylist(), key=lambda row: (row["file"], row["line"])
        )

    def flaws(self) -> list[str]:
        return [
            flaw
            for one in verify(Pipeline(self.shop.config))
            for flaw in [*one.flaws, *([one.error] if one.error else [])]
        ]

    def take_away(self) -> None:
        shutil.rmtree(self.folder / "raw/shop/orders")

    # --- a bronze that goes back ------------------------------------------------------------------------
    def mark(self) -> Any:
        if self.table_format == "iceberg":
            return self._iceberg().current_snapshot().snapshot_id
        shutil.copytree(self.folder / "bronze", self.folder / "before")
        return None

    def go_back(self, mark: Any) -> None:
        if self.table_format == "iceberg":
            with self._iceberg().manage_snapshots() as snapshots:
                snapshots.rollback_to_snapshot(mark)
        else:
            shutil.rmtree(self.folder / "bronze")
            shutil.copytree(self.folder / "before", self.folder / "bronze")

    def _iceberg(self) -> Any:
        return load_catalog("default", **self.shop.config["catalog"]).load_table("bronze.orders")


@pytest.fixture(params=["delta", "iceberg"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    return Job(tmp_path, request.param)


def replay(pipeline: Pipeline) -> Any:
    return pipeline.replay([TABLE])


def reset(pipeline: Pipeline) -> Any:
    return pipeline.reset([TABLE])


def truncate(pipeline: Pipeline) -> Any:
    return pipeline.truncate([TABLE])


# --- T3-C1 ---
def loaded(job: Job) -> Any:
    job.put(LOAD, "id,price\n1,1.00\n2,2.00\n")
    job.run()
    mark = job.mark()
    job.put(FIRST, HEAD + "U,1,1.50,10\nI,3,3.00,11\n")
    return mark


@pytest.mark.sweep("iceberg")
def test_a_bronze_that_goes_back_after_silver_was_refused_hides_no_file(job: Job) -> None:
    """T3-C1: what is remembered of files is noted with the head of bronze that has them."""
    mark = loaded(job)
    job.say(quality={"result": {"conditions": ["false"]}})
    job.fails()
    job.go_back(mark)
    job.say(quality={})
    job.run()
    assert (job.silver(), job.flaws()) == ({1: "1.50", 2: "2.00", 3: "3.00"}, [])


@pytest.mark.sweep("iceberg")
def test_a_bronze_that_goes_back_and_grows_to_the_same_number_is_told(job: Job) -> None:
    """T3-C1: another commit has the number that silver took, with a new file in it; Iceberg's snapshots have no such numbers."""
    mark = loaded(job)
    job.run()
    job.go_back(mark)
    job.put(SECOND, HEAD + "I,4,4.00,12\n")
    failed = job.fails()
    assert failed.error_kind == "conflict"
    job.run(replay)
    assert (job.silver(), job.flaws()) == ({1: "1.50", 2: "2.00", 3: "3.00", 4: "4.00"}, [])


@pytest.mark.sweep("iceberg")
def test_a_replay_believes_bronze_and_not_what_is_remembered(job: Job) -> None:
    """T3-C1: a state that an earlier version wrote knows a file that bronze has lost, and names the head of before it."""
    place = job.folder / "state/shop/shop.orders.json"
    mark = loaded(job)
    before = json.loads(place.read_text())
    job.run()
    known = json.loads(place.read_text())
    job.go_back(mark)
    del known["bronze_stamp"]
    place.write_text(json.dumps(known | {"bronze_head": before["bronze_head"], "heads": {}}))
    job.run(replay)
    assert (job.silver(), job.flaws()) == ({1: "1.50", 2: "2.00", 3: "3.00"}, [])


# --- T3-C2 ---
def nothing(job: Job) -> None:
    """DMS writes no file for an empty table."""


def only_a_header(job: Job) -> None:
    job.put(LOAD, "id,price\n")


def all_in_quarantine(job: Job) -> None:
    job.put(LOAD, "id,price\nx,1.00\n")


@pytest.mark.sweep(
    "iceberg-all_in_quarantine",
    "iceberg-nothing",
    "iceberg-only_a_header",
    "delta-all_in_quarantine",
    "delta-only_a_header",
)
@pytest.mark.parametrize("how", [nothing, only_a_header, all_in_quarantine])
def test_a_new_task_that_is_declared_to_be_the_whole_table_empties_it_though_no_row_comes(
    job: Job, how: Callable[[Job], None]
) -> None:
    """T3-C2"""
    loaded(job)
    job.run()
    job.take_away()
    (job.folder / "raw/shop/orders").mkdir()
    job.say(epoch=2, reload="truncate", restarted_load="fold")
    how(job)
    job.run()
    assert (job.silver(), job.flaws()) == ({}, [])
    assert job.run().news is False
    job.put(SECOND, HEAD + "I,9,9.00,1\n")
    job.run()
    assert (job.silver(), job.flaws()) == ({9: "9.00"}, [])
    job.run(reset)
    assert (job.silver(), job.flaws()) == ({9: "9.00"}, [])
    for epoch in (3, 4):  # bronze is as it was
        job.say(epoch=epoch, reload={str(one): "truncate" for one in range(2, epoch + 1)})
        job.run()
        assert (job.silver(), job.flaws()) == ({}, [])
    job.say(epoch=1, reload=None)
    job.put("20261103-000000001", HEAD + "I,8,8.00,99\n")
    shutil.rmtree(job.folder / "state")
    assert "says epoch 1" in str(job.fails().error), "rows below the truncate would be passed over"


# --- T3-C3 ---
@pytest.mark.sweep("iceberg", "delta-None")
@pytest.mark.parametrize("change_seq", ["seq", None])
def test_a_truncate_of_the_source_is_told_and_can_be_followed(job: Job, change_seq: str | None) -> None:
    """T3-C3: DMS removes the table's files, and tells nothing in files."""
    job.files(change_seq=change_seq, ignore=[] if change_seq else ["seq"])
    loaded(job)
    job.run()
    job.take_away()
    job.put(SECOND, HEAD + "I,9,9.00,20\n")
    first = job.run()
    assert f"All 2 files of {TABLE} that were there at the last run are gone" in str(first.warning)
    assert job.run().warning is None
    assert job.silver() == {1: "1.50", 2: "2.00", 3: "3.00", 9: "9.00"}
    (audit,) = verify(Pipeline(job.shop.config))
    assert audit.gone == 2
    assert job.run(truncate).refined.changes["truncated"] == 1
    assert (job.silver(), job.flaws()) == ({9: "9.00"}, [])
    assert job.run(truncate).refined.rows == 0, "it was said before"
    for again in (reset, replay):
        job.run(again)
        assert (job.silver(), job.flaws()) == ({9: "9.00"}, [])
    job.put(FIRST, HEAD + "U,1,7.00,10\n")
    shutil.rmtree(job.folder / "state")
    assert "written again" in str(job.fails().error)


@pytest.mark.long
def test_a_table_that_was_dropped_and_made_with_other_columns_is_refused_until_they_are_declared(
    tmp_path: Path,
) -> None:
    job = Job(tmp_path, "delta")
    loaded(job)
    job.run()
    job.take_away()
    assert "if the source was truncated or dropped" in str(job.run().warning).lower()
    (job.folder / "raw/shop/orders").mkdir()
    job.run(truncate)
    assert (job.silver(), job.flaws()) == ({}, [])
    job.put(SECOND, "Op,id,colour,seq\nI,1,red,20\n")
    assert "missing ['price'], not known ['colour']" in str(job.fails().error)
    job.say(columns={"id": "int64", "price": "decimal(10,2)", "colour": "string"})
    job.files(change_seq="seq", optional=["price"])
    job.run()
    assert (job.silver("colour"), job.silver(), job.flaws()) == ({1: "red"}, {1: None}, [])
    job.run(reset)
    assert (job.silver("colour"), job.flaws()) == ({1: "red"}, [])


@pytest.mark.long
def test_a_change_with_the_very_sequence_of_a_truncate_is_put_aside(job: Job) -> None:
    """T3-C3: and where the next change has it already, the truncate has no place, and is refused."""
    loaded(job)
    job.run()
    job.take_away()
    (job.folder / "raw/shop/orders").mkdir()
    job.run(truncate)
    job.put(SECOND, HEAD + "I,8,8.00,12\nI,9,9.00,13\n")
    job.run()
    assert (job.silver(), job.flaws()) == ({9: "9.00"}, [])
    (aside,) = job.aside()
    assert "its sequence 12 is that of a truncate" in aside["reason"]
    job.take_away()
    job.put("20261103-000000001", HEAD + "I,7,7.00,14\n")
    job.run()
    (failed,) = Pipeline(job.shop.config).truncate([TABLE]).tables
    assert "has the next sequence, 14" in str(failed.error)
    assert (job.run().news, job.silver()) == (False, {7: "7.00", 9: "9.00"})


@pytest.mark.sweep("iceberg")
def test_a_truncate_needs_files_that_are_gone_or_the_last_before_it(job: Job) -> None:
    """T3-C3"""
    loaded(job)
    job.put(SECOND, HEAD + "I,9,9.00,20\n")
    job.run()
    pipeline = Pipeline(job.shop.config)
    for after, told in ((None, "no file of it is gone"), ("x.csv", "no rows of a change file 'x.csv'")):
        (failed,) = pipeline.truncate([TABLE], after=after).tables
        assert (failed.error_kind, told in str(failed.error)) == ("invalid_input", True), failed.error
    assert pipeline.truncate([TABLE], after=f"shop/orders/{FIRST}.csv").ok
    assert (job.silver(), job.flaws()) == ({9: "9.00"}, [])


# --- T3-C4 ---
RAW = 'id,price\n1,"quoted"\n2,"starts here\n3,lost\n4,ends here"\n5,in"side\n'


@pytest.mark.sweep("False")
@pytest.mark.parametrize("rfc4180", [None, True, False])
def test_quotes_are_text_where_the_endpoint_says_so_and_swallow_no_record_where_nobody_says(
    tmp_path: Path, rfc4180: bool | None
) -> None:
    """T3-C4"""
    job = Job(tmp_path, "delta", {"id": "int64", "price": "string"})
    job.files(rfc4180=rfc4180)
    job.put(LOAD, RAW)
    job.run()
    seen, aside = job.silver(), [(row["line"], row["text"]) for row in job.aside()] if rfc4180 is None else []
    assert job.flaws() == []
    if rfc4180 is False:
        assert seen == {1: '"quoted"', 2: '"starts here', 3: "lost", 4: 'ends here"', 5: 'in"side'}
    elif rfc4180:
        assert seen == {1: "quoted", 2: "starts here\n3,lost\n4,ends here", 5: 'in"side'}
    else:
        assert seen == {1: "quoted", 5: 'in"side'}
        assert aside == [(2, '2,"starts here\n3,lost\n4,ends here"')]
        assert "set files.rfc4180 to false" in job.aside()[0]["reason"]


def test_a_text_of_several_lines_is_read_as_it_is(tmp_path: Path) -> None:
    """T3-C4: the doubt is for records whose lines would be records."""
    job = Job(tmp_path, "delta", {"id": "int64", "price": "string"})
    job.files()
    job.put(LOAD, 'id,price\n1,"two\nlines"\n2,"a ""quote"", and\r\na comma"\n')
    job.run()
    assert job.silver() == {1: "two\nlines", 2: 'a "quote", and\r\na comma'}


# --- T3-C5 ---
@pytest.mark.parametrize("table_format", ["delta", pytest.param("iceberg", marks=pytest.mark.long)])
def test_a_value_that_the_log_lacks_stays_as_it_is(tmp_path: Path, table_format: str) -> None:
    """T3-C5: Oracle with supplemental logging of keys."""
    job = Job(tmp_path, table_format, {"id": "int64", "name": "string", "price": "decimal(10,2)"})
    job.files(no_sup_value="?", change_seq="seq")
    job.say(quality={"not_null": ["name"]})
    job.put(LOAD, "id,name,price,seq\n1,Ada,1.00,NULL\n2,Bea,2.00,NULL\n")
    job.put(FIRST, "Op,id,name,price,seq\nU,1,?,7.00,30\nD,2,?,?,31\nU,5,?,5.00,32\nI,6,?,6.00,33\n")
    job.run()
    assert job.silver("name") == {1: "Ada", 6: "?"}
    assert job.silver() == {1: "7.00", 6: "6.00"}
    (aside,) = job.aside()
    assert "the log lacks its name, and silver has no row of its key" in aside["reason"]
    job.put(SECOND, "Op,id,name,price,seq\nU,1,Eve,4.00,20\n")
    job.run()
    assert (job.silver("name")[1], job.silver()[1]) == ("Eve", "7.00"), "a late value is the newer one"
    for again in (reset, replay):
        assert job.flaws() == []
        job.run(again)
        assert (job.silver("name"), job.silver()) == ({1: "Eve", 6: "?"}, {1: "7.00", 6: "6.00"})


def test_a_late_delete_takes_no_values_from_a_row_of_silver(tmp_path: Path) -> None:
    """Another record of the batch is put aside; those that silver has the values of are not, and what is missing comes later."""
    job = Job(tmp_path, "delta", {"id": "int64", "name": "string", "price": "string"})
    job.files(no_sup_value="?", change_seq="seq")
    job.put(LOAD, "id,name,price,seq\n1,Ada,1.00,NULL\n2,Bea,2.00,NULL\n")
    job.put(FIRST, "Op,id,name,price,seq\nU,1,?,7.00,30\n")
    job.run()
    late = "D,1,?,?,25\nU,1,?,8.00,40\n"
    job.put(SECOND, f"Op,id,name,price,seq\n{late}U,5,?,5.00,41\nD,2,?,?,42\nU,2,?,9.00,43\n")
    job.run()
    assert (job.silver("name"), job.silver()) == ({1: "Ada"}, {1: "8.00"})
    assert [row["line"] for row in job.aside()] == [3, 5]
    job.put("20261103-000000001", "Op,id,name,price,seq\nI,1,Ann,6.00,26\n")
    job.run()
    assert (job.silver("name"), job.silver(), job.flaws()) == ({1: "Ann"}, {1: "8.00"}, [])


def test_a_change_of_a_key_without_its_other_values_is_put_aside(tmp_path: Path) -> None:
    """T3-C5: nobody knows the values of the new row."""
    job = Job(tmp_path, "delta", {"id": "int64", "price": "string"})
    job.files(no_sup_value="?", before_image="BI_")
    job.put(LOAD, "id,price,BI_id\n1,a,NULL\n2,b,NULL\n")
    job.put(FIRST, "Op,id,price,BI_id\nU,3,?,1\nU,2,?,?\nU,4,d,2\n")
    job.run()
    assert (job.silver(), job.flaws()) == ({1: "a", 4: "d"}, [])
    assert [row["line"] for row in job.aside()] == [1]


# --- T3-C6 ---
@pytest.mark.sweep("iceberg", "delta-True")
@pytest.mark.parametrize("state_is_lost", [False, True])
def test_a_table_that_is_loaded_anew_in_a_running_task_is_refused_and_the_advice_is_right(
    job: Job, state_is_lost: bool
) -> None:
    """T3-C6: folded, the new load would be older than the changes from before it."""
    loaded(job)
    job.run()
    job.take_away()
    job.put(LOAD, "id,price\n1,9.00\n")
    if state_is_lost:
        shutil.rmtree(job.folder / "state")
    assert '"epoch": 2, "reload": "truncate"' in str(job.fails().error)
    job.say(restarted_load="fold")
    refused = job.fails()
    assert "rows of a full load are older than all changes" in str(refused.error)
    assert job.silver() == {1: "1.50", 2: "2.00", 3: "3.00"}
    job.say(epoch=2, reload="truncate")
    job.run()
    assert (job.silver(), job.flaws()) == ({1: "9.00"}, [])


# --- T3-C7 ---
@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("table_format", ["delta", pytest.param("iceberg", marks=pytest.mark.long)])
def test_a_date_of_no_year_from_1_to_9999_is_put_aside_and_the_others_land(
    tmp_path: Path, table_format: str, kind: str
) -> None:
    """T3-C7: Oracle's zero dates, and DMS's own 0000-01-01."""
    job = Job(tmp_path, table_format, {"id": "int64", "price": "date"})
    job.files()
    if kind == "csv":
        job.put(LOAD, "id,price\n1,2020-01-01\n2,0000-01-01\n3,9999-12-31\n")
    else:
        set_in(job.shop, "defaults", "files", to={"kind": "parquet"})
        (tmp_path / "raw/shop/orders").mkdir(parents=True)
        dates = pa.array([18262, -719528, 2932896], pa.int32()).cast(pa.date32())
        pq.write_table(
            pa.table({"id": [1, 2, 3], "price": dates}), tmp_path / f"raw/shop/orders/{LOAD}.parquet"
        )
    job.run()
    assert (job.silver(), job.flaws()) == ({1: "2020-01-01", 3: "9999-12-31"}, [])
    (aside,) = job.aside()
    assert (aside["line"], "of the years 1 to 9999" in aside["reason"]) == (2, True)


# --- T3-C8 ---
@pytest.mark.sweep("iceberg")
def test_of_two_changes_of_one_key_and_sequence_the_last_in_the_files_counts(job: Job) -> None:
    """T3-C8: and what comes in a later batch is put aside, for silver has the first: no table stops."""
    seq = "20261123101500000000000000000000001"
    job.put(FIRST, HEAD + f"I,1,1.00,{seq}\nU,1,2.00,{seq}\nI,2,1.00,{seq}\n")
    assert job.run().refined.changes["superseded"] == 1
    assert (job.silver(), job.flaws()) == ({1: "2.00", 2: "1.00"}, [])
    job.put(SECOND, HEAD + f"U,1,3.00,{seq}\nI,2,1.00,{seq}\nI,4,4.00,{seq}\n")
    job.run()
    assert (job.silver(), job.flaws()) == ({1: "2.00", 2: "1.00", 4: "4.00"}, [])
    (aside,) = job.aside()
    assert (aside["file"], aside["line"]) == (f"shop/orders/{SECOND}.csv", 1)
    assert f"another change of its key has the same sequence {seq}" in aside["reason"]
    job.run(replay)
    assert (job.silver(), job.flaws()) == ({1: "2.00", 2: "1.00", 4: "4.00"}, [])
    job.run(reset)
    assert (job.silver(), job.flaws()) == ({1: "3.00", 2: "1.00", 4: "4.00"}, [])


def test_a_change_that_stands_behind_one_in_quarantine_is_none_that_silver_lacks(tmp_path: Path) -> None:
    """Two changes come with a sequence that silver took before: one is superseded, the other put aside, and verify adds up."""
    job = Job(tmp_path, "delta")
    job.put(FIRST, HEAD + "I,1,3.00,20\nU,1,4.00,20\n")
    job.run()
    job.put(SECOND, HEAD + "U,1,5.00,20\nU,1,6.00,20\nI,2,2.00,21\n")
    refined = job.run().refined
    assert (refined.quarantined, sum(refined.changes.values())) == (1, refined.rows + refined.split)
    assert [row["line"] for row in job.aside()] == [2]
    assert (job.silver(), job.flaws()) == ({1: "4.00", 2: "2.00"}, [])
    job.run(replay)
    assert (job.silver(), job.flaws()) == ({1: "4.00", 2: "2.00"}, [])


# --- T3-C10 ---
@pytest.mark.sweep("iceberg")
def test_a_file_without_a_byte_has_no_record(job: Job) -> None:
    """T3-C10"""
    job.put(LOAD, "")
    job.put(FIRST, "")
    job.put(SECOND, HEAD + "I,1,1.00,1\n")
    assert job.run().landed.files == 3
    assert (job.silver(), job.flaws()) == ({1: "1.00"}, [])


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_parquet_record_with_a_text_that_is_no_utf8_goes_to_quarantine(
    tmp_path: Path, table_format: str
) -> None:
    """T4-A10: as one of a CSV file does; the job failed whole, run after run, and named neither file nor record."""
    raw = pa.array([b"1.5", b"\xff", b"2.5"], pa.binary())
    job = Job(tmp_path, table_format, {"id": "int64", "price": "string"})
    set_in(job.shop, "defaults", "files", to={"kind": "parquet"})
    path = tmp_path / "raw" / "shop" / "orders" / f"{LOAD}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    pq.write_table(pa.table({"id": pa.array([1, 2, 3], pa.int64()), "price": texts}), path)
    table = job.run()
    assert table.landed.quarantined == 1
    assert job.silver() == {1: "1.5", 3: "2.5"}
