"""Records of files: what is none is told with its number, and a file that misleads its reader is refused."""

from __future__ import annotations

import datetime as dt
import gzip
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.medallion.config.column_types import arrow_type
from safewrite.medallion.config.files import Files
from safewrite.medallion.config.job import load
from safewrite.medallion.files.layout import SourceFile, sort_out
from safewrite.medallion.files.mixed import split_mixed
from safewrite.medallion.files.records import Records, split
from safewrite.medallion.files.storage import RawFile
from safewrite.medallion.files.text_parsing import read
from tests.medallion.test_config import GOOD, MIXED, ORDER

HEADED = Files(kind="csv", header=True)
BARE = Files(kind="csv", header=False, order=["Op", "*"])


def source(
    name: str = "20261123-102030405.csv", *, is_load: bool = False, is_mixed: bool = False
) -> SourceFile:
    return SourceFile(RawFile(f"shop/orders/{name}", 1, "m", 1), name.split(".")[1], is_load, 1, is_mixed)


def records(text: str | bytes, files: Files = HEADED, name: str = "20261123-102030405.csv") -> Records:
    content = text.encode() if isinstance(text, str) else text
    return split(source(name), content, files, ["id", "note"])


def rows(found: Records) -> list[tuple[bytes | None, ...]]:
    return [tuple(row.values()) for row in found.rows.to_pylist()]


def test_values_are_what_stands_in_the_file() -> None:
    found = records('Op,id,note\nI,1,NULL\nU,2,"NULL"\nU,3,""\nU,4,\nD,5,"a\n""b"", c"\n')
    assert rows(found) == [
        (b"I", b"1", None), (b"U", b"2", b"NULL"), (b"U", b"3", b""), (b"U", b"4", b""), (b"D", b"5", b'a\n"b", c'),
    ]  # fmt: skip
    assert found.lines.tolist() == [1, 2, 3, 4, 5]
    assert rows(records("Op,id,note\nI,1,\nI,2,NULL\n", Files(kind="csv", header=True, null_value=""))) == [
        (b"I", b"1", None), (b"I", b"2", b"NULL")
    ]  # fmt: skip


@pytest.mark.parametrize("null_value", [None, "", "n/a"])
def test_the_text_for_quarantine_is_read_back_as_the_same_values(null_value: str | None) -> None:
    files = Files(kind="csv", header=True, null_value=null_value)
    found = records('Op,id,note\nI,1,NULL\nU,2,"NULL"\nU,3,""\nU,4,\nU,n/a,"n/a"\nD,5,"a\n""b"", c"\n', files)
    texts = "\n".join(map(found.text, range(found.rows.num_rows)))
    assert rows(records(f"Op,id,note\n{texts}\n", files)) == rows(found)


def test_a_record_with_too_few_or_too_many_values_is_told_with_its_number() -> None:
    found = records("I,1,a\nI,2\n\nI,3,c\nI,4,d,e\nI,5,f", BARE)
    assert rows(found)[0] == (b"I", b"1", b"a")
    assert [(one.line, one.text) for one in found.bad] == [(2, "I,2"), (5, "I,4,d,e")]
    assert found.lines.tolist() == [1, 3, 4, 6]
    assert found.count == 6


def test_files_of_other_systems_are_read_alike() -> None:
    assert rows(records("\ufeffOp,id,note\r\nI,1,a\r\n")) == [(b"I", b"1", b"a")]
    packed = gzip.compress(b"Op,id,note\nI,1,a\n")
    assert rows(records(packed, name="20261123-102030405.csv.gz")) == [(b"I", b"1", b"a")]
    empty = [records(text, BARE).count for text in ("",)] + [
        records(text).count for text in ("Op,id,note", "Op,id,note\n")
    ]
    assert empty == [0, 0, 0]


@pytest.mark.parametrize("text", ['I,1,"never closed\nI,2,b\n', 'I,1,"a"b\n', 'I,1,"a\nI,2,"b\n'])
def test_a_quote_that_swallows_records_is_refused(text: str) -> None:
    """Arrow alone reads all that follows an open quote as one value, and the records in it are gone without a word."""
    with pytest.raises(sw.InvalidInputError, match="quote"):
        records(text, BARE)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"\x1f\x8b torn", "20261123-102030405.csv.gz"),
        (b"Op,id,id\n", "20261123-102030405.csv"),
        (b"PAR1", "20261123-1.parquet"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(content: bytes, name: str) -> None:
    files = Files(kind="parquet") if name.endswith("parquet") else HEADED
    with pytest.raises(sw.InvalidInputError, match=name):
        records(content, files, name)


GOOD_VALUES: list[tuple[str, str, Any]] = [
    ("int64", "-9223372036854775808", -(2**63)), ("int8", "127", 127), ("decimal(38,2)", "1" * 36 + ".25", Decimal("1" * 36 + ".25")),
    ("float64", "-0.0", -0.0), ("float64", "NaN", float("nan")), ("float64", "-Infinity", float("-inf")),
    ("bool", "true", True), ("bool", "0", False), ("date", "9999-12-31", dt.date(9999, 12, 31)),
    ("timestamp", "0001-01-01 00:00:00.000001", dt.datetime(1, 1, 1, 0, 0, 0, 1)),  # noqa: DTZ001 - has no zone
    ("timestamptz", "2026-03-29 02:30:00+02:00", dt.datetime(2026, 3, 29, 0, 30, tzinfo=dt.UTC)),
    ("timestamptz", "2026-03-29 02:30:00", dt.datetime(2026, 3, 29, 2, 30, tzinfo=dt.UTC)),
    ("string", "", ""), ("string", "Ünï 🦆\u0000", "Ünï 🦆\u0000"), ("binary", "00fF", b"\x00\xff"), ("binary", "", b""),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "value"), GOOD_VALUES)
def test_a_text_is_read_as_its_declared_type(kind: str, text: str, value: Any) -> None:
    found, bad = read(pa.chunked_array([[text.encode(), None]]), arrow_type(kind), texts=True)
    assert repr(found.to_pylist()[0]).replace(
        "zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc"
    ) == repr(value)
    assert found.to_pylist()[1] is None
    assert not bad.any()


SAME_VALUES = [
    ("int64", "7.0000000000", "7"), ("int64", "+7", "7"), ("int64", "1E3", "1000"), ("date", "2004-05-26 00:00:00", "2004-05-26"),
    ("date", "2004-05-26T00:00:00.0000000", "2004-05-26"), ("decimal(10,2)", "+1.2300000", "1.23"), ("float64", "+1.5", "1.5"),
    ("timestamp", "2024-01-01 00:00:00.1234560", "2024-01-01 00:00:00.123456"),
    ("timestamp", "2024-01-01 00:00:00.123456000", "2024-01-01 00:00:00.123456"),
    ("timestamptz", "2024-01-01 00:00:00.0000000 +01:00", "2023-12-31 23:00:00+00:00"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "value"), SAME_VALUES)
def test_a_value_that_is_exact_is_read_whatever_its_spelling(kind: str, text: str, value: str) -> None:
    """T3-C9"""
    found, bad = read(pa.chunked_array([[text.encode(), None]]), arrow_type(kind), texts=True)
    assert ([str(found[0].as_py()), found[1].as_py()], bad.tolist()) == ([value, None], [False, False])


BAD_VALUES = [
    ("int64", b"9223372036854775808"), ("int8", b"128"), ("int64", b"0x1F"), ("int64", b" 1"), ("int64", b"1.5"), ("int64", b""),
    ("decimal(5,2)", b"1.005"), ("decimal(5,2)", b"1000"), ("float64", b"1e999"), ("bool", b"yes"), ("date", b"2026-02-30"),
    ("timestamp", b"2026-01-01 00:00:00Z"), ("timestamp", b"2026-01-01 00:00:00.1234567"), ("timestamp", b"2026-01-01 00:00:000"), ("timestamp", b"2026-01-01 10:000"),
    ("date", b"2004-05-26 00:00:01"), ("date", b"0000-01-01"), ("timestamp", b"0000-01-01 00:00:00"), ("int64", b"1e-1"), ("int64", b"1E400"),
    ("string", b"\xff"), ("binary", b"abc"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text"), BAD_VALUES)
def test_a_text_that_is_no_value_of_its_type_is_told_and_its_neighbours_are_read(
    kind: str, text: bytes
) -> None:
    good = {one: text.encode() for one, text, _ in GOOD_VALUES}.get(kind, b"1.25")
    found, bad = read(pa.chunked_array([[good, text, None, good]]), arrow_type(kind), texts=True)
    assert bad.tolist() == [False, True, False, False]
    assert [value is None for value in found.to_pylist()] == [False, True, True, False]


@pytest.mark.parametrize(
    ("kind", "value"),
    [("float64", pa.array([2**53 + 1])), ("int32", pa.array([1.5])), ("float32", pa.array([0.1])), ("string", pa.array([1])),
     ("bool", pa.array([2])), ("timestamp", pa.array([1], pa.timestamp("ns"))), ("int8", pa.array([300]))],
)  # fmt: skip
def test_a_value_of_parquet_is_not_altered(kind: str, value: pa.Array) -> None:
    _, bad = read(pa.chunked_array([value]), arrow_type(kind), texts=False)
    assert bad.tolist() == [True]


def test_each_file_goes_to_its_table_and_none_is_passed_over() -> None:
    config = load(GOOD | {"ignored_tables": ["shop.logs"]})
    names = [
        "shop/orders/LOAD0000000A.csv", "shop/orders/LOAD00000009.csv", "shop/orders/20261123-102030405.csv",
        "shop/orders/2026/11/23/20261123-102030.csv.gz", "shop/orders/other.csv", "shop/customers/LOAD00000001.csv",
        "shop/logs/LOAD00000001.csv", "orders.csv", "shop/orders/20261399-102030405.csv", "shop/orders/_SUCCESS", ".hidden/x/y.csv",
        "shop/orders/LOAD00000001.csv.tmp",
    ]  # fmt: skip
    found = sort_out([RawFile(name, 1, "m", 1) for name in names], config)
    assert [one.path.rpartition("/")[2] for one in found.tables["shop.orders"]] == [
        "LOAD00000009.csv", "LOAD0000000A.csv", "20261123-102030.csv.gz", "20261123-102030405.csv",
    ]  # fmt: skip
    assert {one.path for one in found.unknown} == {
        "shop/orders/other.csv", "shop/customers/LOAD00000001.csv", "orders.csv", "shop/orders/20261399-102030405.csv",
        "shop/orders/LOAD00000001.csv.tmp",
    }  # fmt: skip


def test_a_mixed_file_is_split_by_table_and_keeps_its_numbers() -> None:
    config = load(
        GOOD
        | {"raw": MIXED, "ignored_tables": ["shop.logs"], "defaults": GOOD["defaults"] | {"files": ORDER}}
    )
    data = b'I,orders,shop,1,"a\nb"\nI,logs,shop,1\n"I",orders,"shop",2,c\r\nI,customers,shop,7\nbad\nD,orders,shop,3,x'
    found = split_mixed(source(is_mixed=True), "tag", data, config)
    part = found.parts["shop.orders"]
    assert part.lines == [1, 3, 6]
    own = split(
        source(is_mixed=True),
        bytes(part.data),
        config.tables["shop.orders"].files,
        ["id", "note"],
        config.owner_columns,
    )
    assert [row[3:] for row in rows(own)] == [(b"1", b"a\nb"), (b"2", b"c"), (b"3", b"x")]
    assert [(one.line, one.text) for one in found.strangers] == [(4, "I,customers,shop,7"), (5, "bad")]
    assert (found.ignored, found.count) == (1, 6)
    with pytest.raises(sw.InvalidInputError, match="quote"):
        split_mixed(source(is_mixed=True), "tag", b'I,orders,shop,1,"a\n', config)


# --- values of any text, written as DMS writes them -----------------------------------------------------------
ODD = ('"', ",", "\n", "a", "NULL", "?", " ", "")


def written(rows: list[tuple[int, str, int]], *, rfc4180: bool) -> bytes:
    """Rows as DMS writes them, under Rfc4180 and without."""
    lines = []
    for key, text, count in rows:
        needs_quotes = rfc4180 and (any(one in text for one in '",\n') or text == "NULL")
        shown = '"' + text.replace('"', '""') + '"' if needs_quotes else text
        lines.append(f"{key},{shown},{count}\n")
    return "".join(lines).encode()


@pytest.mark.parametrize("seed", range(20))
def test_odd_texts_are_read_as_they_were_written_or_are_told(seed: int) -> None:
    """T3-C4: a generator of texts; what cannot be told apart is a record of quarantine, and no record is nowhere."""
    draw = random.Random(seed)
    rows = [(n, "".join(draw.choices(ODD, k=draw.randint(0, 4))), 10 * n) for n in range(1, 13)]
    for rfc4180 in (True, False):
        files = Files(kind="csv", header=False, order=["Op", "*"], rfc4180=rfc4180)
        content = written(rows, rfc4180=rfc4180)
        found = split(source("LOAD00000001.csv", is_load=True), content, files, ["id", "text", "count"])
        seen = {one["id"]: one["text"] for one in found.rows.to_pylist()}
        told = {b"%d" % key: text.encode() for key, text, _ in rows}
        if rfc4180:
            assert (seen, found.bad) == (told, [])
        else:
            plain = {key: text for key, text in told.items() if b"," not in text and b"\n" not in text}
            assert {key: seen[key] for key in plain} == {
                k: None if v == b"NULL" else v for k, v in plain.items()
            }
            assert found.count == content.count(b"\n")
    unsaid = Files(kind="csv", header=False, order=["Op", "*"])
    content = written(rows, rfc4180=True)
    found = split(source("LOAD00000001.csv", is_load=True), content, unsaid, ["id", "text", "count"])
    seen = {one["id"]: one["text"] for one in found.rows.to_pylist()}
    assert len(seen) + len(found.bad) == len(rows)
    assert seen.items() <= {b"%d" % key: text.encode() for key, text, _ in rows}.items()
