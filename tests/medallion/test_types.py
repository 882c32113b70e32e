"""Values of every type come from files through bronze to silver and back from other readers, also as keys."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog

from safewrite.errors import InvalidInputError
from safewrite.medallion import Pipeline, verify
from safewrite.medallion.config.column_types import arrow_type
from safewrite.medallion.files.layout import SourceFile
from safewrite.medallion.files.parquet import ParquetRows
from safewrite.medallion.files.records import of_parquet
from safewrite.medallion.files.storage import RawFile
from safewrite.medallion.files.text_parsing import read

COLUMNS = {
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "f32": "float32", "f64": "float64",
    "dec": "decimal(38,18)", "s": "string", "b": "bool", "d": "date", "t": "timestamp", "tz": "timestamptz",
    "bin": "binary", "Ünïcödé🦆": "string", "nothing": "int64",
}  # fmt: skip
HEAD = ["Op", *COLUMNS, "seq"]


def line(op: str, n: int, seq: int, note: str) -> str:
    values = [
        n, n, n, n, 0.5, -0.0, f"{n}.000000000000000001", f"ä{n}", "true", f"2026-11-{n:02}", f"2026-11-01 00:00:00.00000{n}",
        f"2026-11-01 00:00:{n:02}", f"0{n}", note, "NULL",
    ]  # fmt: skip
    return ",".join(map(str, [op, *values, seq])) + "\n"


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
@pytest.mark.parametrize("keys", [["i8", "s"], ["tz", "dec"], ["bin", "d"], ["t", "b", "i16"]], ids="-".join)
def test_every_type_is_taken_as_value_and_as_key(keys: list[str], table_format: str, tmp_path: Path) -> None:
    raw = tmp_path / "raw" / "s" / "t"
    raw.mkdir(parents=True)
    head = ",".join(HEAD) + "\n"
    (raw / "20261101-000000001.csv").write_text(head + "".join(line("I", n, n, "x") for n in range(1, 6)))
    (raw / "20261101-000000002.csv").write_text(head + line("U", 1, 10, "new") + line("D", 2, 11, ""))
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"{tmp_path}/warehouse"}
    is_iceberg = table_format == "iceberg"
    where = {
        name: f"lake.{name}" if is_iceberg else f"{tmp_path}/{name}"
        for name in ("bronze", "silver", "quarantine")
    }
    files = {"kind": "csv", "header": True, "change_seq": "seq"}
    job: dict[str, Any] = {
        "job": "types", "raw": {"location": f"{tmp_path}/raw"}, "state": f"{tmp_path}/state",
        "quarantine": where.pop("quarantine"), "quarantine_format": table_format,
        "tables": {"s.t": where | {"format": table_format, "keys": keys, "columns": COLUMNS, "files": files}},
    } | ({"catalog": catalog} if is_iceberg else {})  # fmt: skip
    run = Pipeline(job).run()
    assert run.ok, run.tables[0].error
    assert (run.tables[0].landed.rows, run.tables[0].landed.quarantined) == (7, 0)
    assert [(one.clean, one.silver_rows) for one in verify(Pipeline(job))] == [(True, 4)]
    if is_iceberg:
        found = load_catalog("default", **catalog).load_table(where["silver"]).scan().to_arrow()
    else:
        found = pa.table(deltalake.DeltaTable(where["silver"]).to_pyarrow_table())
    rows = {row["i64"]: row for row in found.to_pylist()}
    assert {n: row["Ünïcödé🦆"] for n, row in rows.items()} == {1: "new", 3: "x", 4: "x", 5: "x"}
    assert str(rows[1]["dec"]) == "1.000000000000000001"
    assert (str(rows[5]["f64"]), rows[5]["bin"], rows[5]["nothing"]) == ("-0.0", b"\x05", None)


FIVE = dt.datetime.fromisoformat("2026-01-01T05:00")
MIDNIGHT = dt.datetime.fromisoformat("2026-01-02")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([FIVE], pa.timestamp("us")), "date"),
        (pa.array([1]), "timestamp"),
        (pa.array([1], pa.int32()), "date"),
        (pa.array([FIVE], pa.timestamp("us")), "int64"),
        (pa.array([dt.time(1)], pa.time64("us")), "int64"),
        (pa.array([1.239]), "decimal(10,2)"),
        (pa.array([1.5]), "int64"),
        (pa.array([2**53 + 1]), "float64"),
        (pa.array([True]), "int8"),
        (pa.array([b"1"]), "string"),
    ],
)
def test_a_value_of_parquet_keeps_its_digits_and_its_meaning(values: pa.Array, kind: str) -> None:
    """Arrow's safe cast drops the time of a day, rounds floats to decimals, and takes numbers for times."""
    found, bad = read(pa.chunked_array([values]), arrow_type(kind), texts=False)
    assert (found.to_pylist(), bad.tolist()) == ([None], [True])


@pytest.mark.parametrize(
    ("values", "kind", "wanted"),
    [
        (pa.array([1.25]), "decimal(10,2)", Decimal("1.25")),
        (pa.array([dt.date(2026, 1, 2)]), "timestamp", MIDNIGHT),
        (pa.array([7], pa.int16()), "float32", 7.0),
        (pa.array([Decimal("3.00")]), "int64", 3),
        (pa.array([MIDNIGHT], pa.timestamp("ns")), "date", dt.date(2026, 1, 2)),
    ],
)
def test_a_value_of_parquet_that_fits_is_taken(values: pa.Array, kind: str, wanted: object) -> None:
    found, bad = read(pa.chunked_array([values]), arrow_type(kind), texts=False)
    assert (found.to_pylist(), bad.tolist()) == ([wanted], [False])


@pytest.mark.parametrize(
    "kind",
    [*(getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)), pa.decimal128(1, 0), pa.decimal128(38, 2),
     pa.decimal256(40, 0)],
    ids=str,
)  # fmt: skip
def test_one_and_zero_of_parquet_are_flags_as_in_csv(kind: pa.DataType) -> None:
    """T4-C7: tinyint(1) of MySQL and NUMBER(1) of Oracle; other numbers are no flags."""
    given = pa.chunked_array([pa.array([1, 0, None, 2, 9], pa.int64()).cast(pa.decimal128(38, 0)).cast(kind)])
    found, bad = read(given, pa.bool_(), texts=False)
    assert (found.to_pylist(), bad.tolist()) == ([True, False, None, None, None], [False] * 3 + [True] * 2)


def of_file(values: pa.Array, kind: str, **how: Any) -> tuple[list[Any], list[bool]]:
    """What becomes of a column of a Parquet file that says nothing of Arrow."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"v": values}), sink, store_schema=False, row_group_size=2, **how)
    read_at_once = ParquetRows(lambda: pa.BufferReader(sink.getvalue()))
    ways = [[read_at_once.read()], read_at_once.batches(2, range(read_at_once.metadata.num_row_groups))]
    found = [[read(some["v"], arrow_type(kind), texts=False) for some in way] for way in ways]
    whole, pieces = ([([*values], [*bad]) for values, bad in way] for way in found)
    taken = (
        [value.as_py() for values, _ in pieces for value in values],
        [bool(one) for _, bad in pieces for one in bad],
    )
    assert taken == ([value.as_py() for value in whole[0][0]], [bool(one) for one in whole[0][1]])
    return taken


def test_int96_is_read_in_all_years_and_to_the_nanosecond() -> None:
    """64 bits of nanoseconds end in 1677 and 2262: what is beyond came as other years, and went to quarantine under these."""
    far = [
        dt.datetime.fromisoformat(one)
        for one in ("0001-01-01", "9999-12-31T23:59:59.000007", "1969-12-31T23:59:59.999999", "2026-01-02")
    ]
    times = pa.array([*far, None], pa.timestamp("us"))
    assert of_file(times, "timestamp", use_deprecated_int96_timestamps=True) == ([*far, None], [False] * 5)
    assert of_file(times, "date", use_deprecated_int96_timestamps=True)[1] == [
        False,
        True,
        True,
        False,
        False,
    ]
    fine = pa.array([1, -1, 1_001, 2_000, None], pa.timestamp("ns"))
    assert of_file(fine, "timestamp", use_deprecated_int96_timestamps=True) == (
        [None, None, None, dt.datetime.fromisoformat("1970-01-01T00:00:00.000002"), None], [True, True, True, False, False]
    )  # fmt: skip


UUID_BYTES = bytes(range(16))


@pytest.mark.parametrize(
    ("values", "kind", "wanted"),
    [
        (pa.array([0.5, 2.0, 0.1]).cast(pa.float32()).cast(pa.float16()), "decimal(4,1)", [Decimal("0.5"), Decimal("2.0"), None]),
        (pa.array([1.0, 0.0, 0.5]), "bool", [True, False, None]),
        (pa.array(["1.000", "+0", "2"]), "bool", [True, False, None]),
        (pa.array([dt.time(1, 2), dt.time(1, 2, 3, 500_000)], pa.time64("us")), "string", ["01:02:00", "01:02:03.5"]),
        (pa.array([dt.time(0)], pa.time32("ms")), "string", ["00:00:00"]),
        (pa.array([b"\x01"], pa.binary_view()), "binary", [b"\x01"]),
        (pa.array(["1", "x"], pa.string_view()), "int8", [1, None]),
        *([(pa.array([UUID_BYTES], pa.uuid()), "binary", [UUID_BYTES]), (pa.array([UUID_BYTES], pa.uuid()), "string", [str(UUID(bytes=UUID_BYTES))])]
          if hasattr(pa, "uuid") else []),
        *([(pa.array(["{}"], pa.json_()), "string", ["{}"])] if hasattr(pa, "json_") else []),
    ],
    ids=lambda one: str(getattr(one, "type", one)),
)  # fmt: skip
def test_each_layout_of_a_type_is_taken(values: pa.Array, kind: str, wanted: list[Any]) -> None:
    """T4-C7 and its class: half floats, and views with one value that does not fit, ended the run with an InternalError."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"v": values}), sink)
    found, bad = read(
        ParquetRows(lambda: pa.BufferReader(sink.getvalue())).read()["v"], arrow_type(kind), texts=False
    )
    assert (found.to_pylist(), bad.tolist()) == (wanted, [one is None for one in wanted])


def test_a_parquet_file_with_a_column_twice_is_refused_as_a_csv_file_is() -> None:
    rows = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    with pytest.raises(InvalidInputError, match="one twice"):
        of_parquet(SourceFile(RawFile("s/t/LOAD00000001.parquet", 1, "m", 1), "parquet", True, 1), rows, 1)
