"""Settings of a DMS endpoint that change what stands in files: row delimiters, changes without operations, names of loads, times."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from safewrite.errors import InvalidInputError
from safewrite.medallion import Pipeline, verify
from safewrite.medallion.config.files import Files
from safewrite.medallion.config.job import load
from safewrite.medallion.files.layout import SourceFile
from safewrite.medallion.files.records import Records, split
from safewrite.medallion.files.storage import RawFile
from tests.medallion.test_evolution import rows, shop
from tests.medallion.test_jobs import Shop, set_in

NOTES = {"id": "int64", "note": "string"}


def job_of(
    folder: Path, table_format: str = "delta", columns: dict[str, str] | None = None, **files: Any
) -> Shop:
    job = shop(folder, table_format, columns or NOTES)
    set_in(job, "defaults", "files", to={"kind": "csv", "header": True, **files})
    return job


def put(job: Shop, name: str, content: bytes) -> None:
    place = job.folder / "raw/shop/orders" / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)


def silver(job: Shop) -> dict[Any, Any]:
    run = job.run()
    assert run.ok, run.tables[0].error
    assert [(one.clean, one.error) for one in verify(Pipeline(job.config))] == [(True, None)]
    return {key: row["note"] for key, row in rows(job, "silver").items()}


def split_of(content: bytes, **files: Any) -> Records:
    source = SourceFile(RawFile("shop/orders/LOAD00000001.csv", len(content), "", 0), "csv", True, 1)
    return split(source, content, Files(kind="csv", header=True, **files), ["id", "note"])


@pytest.mark.parametrize("end", ["|", "\x1e", "\r\n", "||\n", "<end>", "ä"])
@pytest.mark.parametrize("rfc4180", [None, True, False])
def test_records_end_with_what_the_endpoint_says(end: str, rfc4180: bool | None) -> None:
    """Line ends within values are values, with quotes around them or, where quotes are text, without."""
    inner = '"a\nb""c"' if rfc4180 is not False else "a\nb"
    found = split_of(
        end.join(["id,note", f"1,{inner}", "2,NULL", "3,x", ""]).encode(), row_delimiter=end, rfc4180=rfc4180
    )
    value = b'a\nb"c' if rfc4180 is not False else b"a\nb"
    assert found.rows.to_pylist() == [
        {"id": b"1", "note": value},
        {"id": b"2", "note": None},
        {"id": b"3", "note": b"x"},
    ]
    assert found.bad == []


@pytest.mark.parametrize("inner", ["a\rb\r", "a\r\n", "\n\rb"])
@pytest.mark.parametrize("rfc4180", [None, True, False])
@pytest.mark.parametrize("end", ["|~", "@", "\x1e", "\r|"])
def test_carriage_returns_within_values_are_values(end: str, rfc4180: bool | None, inner: str) -> None:
    """Readers of CSV take one for the end of a line: the rest of the record became a record of its own."""
    value = inner if rfc4180 is False else f'"{inner}"'
    content = end.join(["id,note,more", f"1,x,{value}", f"2,{value},y", ""]).encode()
    found = split_of(content, row_delimiter=end, rfc4180=rfc4180)
    assert found.bad == []
    assert found.rows.to_pylist() == [
        {"id": b"1", "note": b"x", "more": inner.encode()},
        {"id": b"2", "note": inner.encode(), "more": b"y"},
    ]


@pytest.mark.parametrize("rfc4180", [None, True, False])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_carriage_return_within_a_line_is_of_its_value(end: bytes, rfc4180: bool | None) -> None:
    """Without quotes too, as DMS writes texts under Rfc4180=false; before a line end it is one with it."""
    found = split_of(end.join([b"id,note", b"1,a\rb", b"2,\rc", b"3,d\r,e", b"4,f", b""]), rfc4180=rfc4180)
    assert [(row["id"], row["note"]) for row in found.rows.to_pylist()] == [
        (b"1", b"a\rb"),
        (b"2", b"\rc"),
        (b"4", b"f"),
    ]
    assert [(one.line, one.text) for one in found.bad] == [(3, "3,d\r,e")]
    assert found.lines.tolist() == [1, 2, 4]


def test_records_may_end_with_a_carriage_return() -> None:
    found = split_of(b"id,note\r1,a\nb\r2,c\r", row_delimiter="\r", rfc4180=False)
    assert (found.rows["note"].to_pylist(), found.bad) == ([b"a\nb", b"c"], [])


def test_a_quoted_value_may_hold_the_row_delimiter() -> None:
    for end, value in (("|", '"a|b\nc"'), ("<end>", '"a<end>b\nc"')):
        found = split_of(f"id,note{end}1,{value}{end}".encode(), row_delimiter=end, rfc4180=True)
        assert found.rows["note"].to_pylist() == [value[1:-1].encode()]


def test_a_file_that_leaves_no_byte_for_line_ends_is_refused() -> None:
    controls = bytes(range(1, 10)) + bytes(range(11, 13)) + bytes(range(14, 32))
    assert (
        split_of(
            b"id,note<end>1," + controls[1:] + b"<end>", row_delimiter="<end>", rfc4180=False
        ).rows.num_rows
        == 1
    )
    content = b"id,note<end>1," + controls[1:] + b"\r<end>"
    with pytest.raises(InvalidInputError, match="row_delimiter: every control character is in it"):
        split_of(content, row_delimiter="<end>", rfc4180=False)
    content = b"id,note<end>1," + controls + b"<end>"
    with pytest.raises(InvalidInputError, match="row_delimiter: every control character is in it"):
        split_of(content, row_delimiter="<end>", rfc4180=False)
    with pytest.raises(InvalidInputError, match="row_delimiter: every control character is in it"):
        split_of(b"id,note\n1,\r" + controls, rfc4180=False)


def test_a_bad_record_is_kept_as_it_stands_in_the_file(tmp_path: Path) -> None:
    job = job_of(tmp_path, row_delimiter="<end>", rfc4180=False)
    put(job, "LOAD00000001.csv", b"id,note<end>1,a\nb<end>x,c\nd<end>2,e,f\ng<end>")
    assert silver(job) == {1: "a\nb"}
    aside = sorted((row["line"], row["text"]) for row in job.rows("aside"))
    assert aside == [(2, 'x,"c\nd"'), (3, "2,e,f\ng")]


def test_mixed_files_end_records_so_too(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    job.config["raw"] |= {"layout": "mixed", "mixed_folder": "cdc", "schema_column": "s", "table_column": "t"}
    order = ["Op", "s", "t", "*"]
    set_in(
        job,
        "defaults",
        "files",
        to={"kind": "csv", "header": False, "order": order, "row_delimiter": "@@", "rfc4180": True},
    )
    (tmp_path / "raw/cdc").mkdir()
    (tmp_path / "raw/cdc/20261101-000000001.csv").write_bytes(
        b'I,shop,orders,1,"a\n@@b"@@I,shop,orders,2,c@@I,shop,tmp_1,3,d@@'
    )
    job.config["ignored_tables"] = ["shop.tmp_*"]
    assert silver(job) == {1: "a\n@@b", 2: "c"}


@pytest.mark.parametrize(
    ("changes", "op_in_full_load", "header"),
    [("inserts", False, False), ("inserts", True, True), ("inserts_and_updates", False, True), ("inserts_and_updates", True, False)],
)  # fmt: skip
def test_changes_without_deletes_name_their_operation_only_where_full_loads_do(
    tmp_path: Path, changes: str, op_in_full_load: bool, header: bool
) -> None:
    """DMS's CdcInsertsOnly and CdcInsertsAndUpdates write no operation unless IncludeOpForFullLoad does."""
    order = {} if header else {"header": False, "order": ["Op", "*"]}
    job = job_of(tmp_path, changes=changes, op_in_full_load=op_in_full_load, **order)
    has_updates = changes == "inserts_and_updates"
    head = f"{'Op,' * op_in_full_load}id,note\n" * header
    op = "I," * op_in_full_load
    put(job, "LOAD00000001.csv", f"{head}{op}1,one\n".encode())
    update = f"{op.replace('I', 'U')}1,uno\n" * has_updates
    deleted = "D,2,two\n" * op_in_full_load
    put(job, "20261101-000000001.csv", f"{head}{op}2,two\n{update}{deleted}".encode())
    assert silver(job) == {1: "uno" if has_updates else "one", 2: "two"}
    bronze = pa.table(deltalake.DeltaTable(str(tmp_path / "bronze/orders")).to_pyarrow_table()).to_pylist()
    ops = {row["id"]: row["_op"] for row in bronze if "LOAD" not in row["_file"]}
    assert ops[2] == ("U" if has_updates and not op_in_full_load else "I")
    aside = job.rows("aside")
    assert [row["reason"][:21] for row in aside] == ["the operation is none"] * op_in_full_load


def test_parquet_files_of_inserts_may_have_the_column_or_not(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    set_in(job, "defaults", "files", to={"kind": "parquet", "changes": "inserts"})
    (tmp_path / "raw/shop/orders").mkdir(parents=True)
    for day, more in ((1, {}), (2, {"Op": ["I"]})):
        path = tmp_path / f"raw/shop/orders/2026110{day}-000000001.parquet"
        pq.write_table(pa.table(more | {"id": [day], "note": ["x"]}), path)
    assert silver(job) == {1: "x", 2: "x"}


def test_full_loads_by_segments_are_taken(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    for number, name in enumerate(
        ("LOAD00001", "LOAD00000001", "LOAD0000000A_segment12", "LOAD00000001_3", "PART_1/LOAD00000001"), 1
    ):
        put(job, f"{name}.csv", f"id,note\n{number},a\n".encode())
    put(job, "20261101-000000001.csv", b"Op,id,note\nU,4,c\n")
    assert silver(job) == {1: "a", 2: "a", 3: "a", 4: "c", 5: "a"}


@pytest.mark.sweep("csv")
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_time_of_a_day_is_one_in_iceberg(tmp_path: Path, kind: str) -> None:
    job = job_of(tmp_path, "iceberg", {"id": "int64", "note": "time"})
    if kind == "csv":
        put(
            job,
            "LOAD00000001.csv",
            b"id,note\n1,10:15:30.1234560\n2,838:59:59\n3,NULL\n4,07:00\n5,10:00:00+02\n6,10\n",
        )
    else:
        set_in(job, "defaults", "files", to={"kind": "parquet"})
        (tmp_path / "raw/shop/orders").mkdir(parents=True)
        times = pa.array([dt.time(10, 15, 30, 123456), None, dt.time(7)], pa.time64("ns"))
        pq.write_table(
            pa.table({"id": [1, 3, 4], "note": times}), tmp_path / "raw/shop/orders/LOAD00000001.parquet"
        )
    assert silver(job) == {1: dt.time(10, 15, 30, 123456), 3: None, 4: dt.time(7)}
    if kind == "csv":
        aside = {row["line"]: row["reason"] for row in job.rows("aside")}
        assert set(aside) == {2, 5, 6}
        assert "note is no time64[us]: '838:59:59'" in aside[2]


def test_a_time_of_a_day_in_delta_is_refused_with_what_to_declare(tmp_path: Path) -> None:
    job = job_of(tmp_path, columns={"id": "int64", "note": "time"})
    with pytest.raises(InvalidInputError, match="Delta has no type for; declare them as string"):
        load(job.config)


def test_ignored_tables_are_named_by_patterns(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    job.config["ignored_tables"] = ["shop.tmp_*", "audit.?", "shop.order*"]
    for name in ("shop/tmp_", "shop/tmp_a.b", "audit/x"):
        path = tmp_path / "raw" / name / "LOAD00000001.csv"
        path.parent.mkdir(parents=True)
        path.write_text("id\n1\n")
    put(job, "LOAD00000001.csv", b"id,note\n1,a\n")
    assert silver(job) == {1: "a"}, "a configured table is never passed over"
    (tmp_path / "raw/audit/xy").mkdir()
    (tmp_path / "raw/audit/xy/LOAD00000001.csv").write_text("id\n1\n")
    assert "audit/xy" in job.run().errors[0]


@pytest.mark.parametrize(
    ("files", "says"),
    [({"row_delimiter": ""}, "row_delimiter"), ({"row_delimiter": ",\n"}, "it has the delimiter of columns in it"),
     ({"changes": "deletes"}, "changes")],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(tmp_path: Path, files: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        load(job_of(tmp_path, **files).config)
