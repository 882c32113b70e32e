"""docs/values.md says in one table what each entry takes of one value: files, change data, frames."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from safewrite.cdc.connect.logical_types.column import UNREADABLE
from safewrite.cdc.connect.logical_types.schemas import column_of
from safewrite.values.casts import convert
from safewrite.values.declared import declared
from safewrite.values.fit import fit
from safewrite.values.objects import array_of
from safewrite.values.refusals import OtherMeaningError

PAGE = Path(__file__).parents[2] / "docs" / "values.md"
HEADS = ("value", "into a column of", "CSV file", "Parquet file", "change data", "frame")
NAIVE, ZONED = pa.timestamp("us"), pa.timestamp("us", "UTC")
DAY, NIGHT = date(2024, 2, 29), datetime(2024, 2, 29)  # noqa: DTZ001 - a time without zone on purpose
NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)


class Entry(NamedTuple):
    """A value as each entry gets it: a text, an array of Arrow, a value of Python."""

    shown: str
    into: str
    kind: pa.DataType
    text: str
    array: pa.Array
    value: Any
    lands: Any
    schema: str = ""
    """The logical type of the value in change data, where Python has no such value."""


def of(value: Any, kind: pa.DataType) -> pa.Array:
    return pa.array([value], kind)


YEAR_0 = of(-719_163, pa.int32()).view(pa.date32())
ROWS = (
    Entry("the text `5`", "`int64`", pa.int64(), "5", of("5", pa.string()), "5", 5),
    Entry("the decimal 0.1", "`float64`", pa.float64(), "0.1", of(Decimal("0.1"), pa.decimal128(2, 1)), Decimal("0.1"), 0.1),
    Entry("the float 0.5", "`decimal(2,1)`", pa.decimal128(2, 1), "0.5", of(0.5, pa.float64()), 0.5, Decimal("0.5")),
    Entry("7.0", "`int64`", pa.int64(), "7.0", of(7.0, pa.float64()), 7.0, 7),
    Entry("7.5", "`int64`", pa.int64(), "7.5", of(7.5, pa.float64()), 7.5, None),
    Entry("7", "`float64`", pa.float64(), "7", of(7, pa.int64()), 7, 7.0),
    Entry("300", "`int8`", pa.int8(), "300", of(300, pa.int64()), 300, None),
    Entry("0.05", "`decimal(2,1)`", pa.decimal128(2, 1), "0.05", of(Decimal("0.05"), pa.decimal128(3, 2)), Decimal("0.05"), None),
    Entry("NaN", "`decimal(2,1)`", pa.decimal128(2, 1), "NaN", of(float("nan"), pa.float64()), float("nan"), None),
    Entry("true", "`int64`", pa.int64(), "true", of(True, pa.bool_()), True, None),
    Entry("5", "`string`", pa.string(), "5", of(5, pa.int64()), 5, "5"),
    Entry("a date", "`timestamp`", NAIVE, "2024-02-29", of(DAY, pa.date32()), DAY, NIGHT),
    Entry("a midnight", "`date`", pa.date32(), "2024-02-29 00:00:00", of(NIGHT, NAIVE), NIGHT, DAY),
    Entry("a time without zone", "`timestamptz`", ZONED, "2024-02-29 12:00:00", of(NOON.replace(tzinfo=None), NAIVE), NOON.replace(tzinfo=None), NOON),
    Entry("a time with a zone", "`timestamp`", NAIVE, "2024-02-29 12:00:00Z", of(NOON, ZONED), NOON, NOON.replace(tzinfo=None)),
    Entry("nanoseconds", "`timestamp`", NAIVE, "2024-02-29 00:00:00.000000001", of(1, pa.timestamp("ns")), 1, None, "NanoTimestamp",),
    Entry("the year 0", "`date`", pa.date32(), "0000-01-01", YEAR_0, -719_163, None, "Date",),
)  # fmt: skip


def said(found: pa.Array, why: object, lands: Any) -> str:
    if why:
        return "refused"
    assert found.to_pylist() == [lands]
    return "lands"


def one_of(row: Entry) -> tuple[pa.Array, str]:
    """A value of a logical type, and why it cannot be read."""
    column = column_of({"type": "int64", "name": f"io.debezium.time.{row.schema}"})
    assert column.type == row.kind
    try:
        return of(column.read(row.value), row.kind), ""
    except UNREADABLE as error:
        return of(None, row.kind), str(error)


def cells(row: Entry) -> tuple[str, ...]:
    """A row of the page, by what becomes of the value."""
    csv = fit(of(row.text.encode(), pa.binary()), row.kind, declared(row.kind, texts=True))
    other = (None, "another meaning")
    try:
        parquet = fit(row.array, row.kind, declared(row.kind, texts=False))
    except OtherMeaningError:
        parquet = other
    change = array_of([row.value], row.kind) if not row.schema else one_of(row)
    try:
        frame = fit(row.array, row.kind, lambda array: convert(array, row.kind))
    except OtherMeaningError:
        frame = other
    ways = [csv, parquet, change, frame]
    return row.shown, row.into, *(said(found, why, row.lands) for found, why in ways)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.shown}-{row.into}")
def test_each_entry_takes_of_a_value_what_the_page_says(row: Entry) -> None:
    line = f"| {' | '.join(cells(row))} |"
    assert line in PAGE.read_text("utf-8").splitlines(), line


def test_the_page_has_no_other_row() -> None:
    """Where it fails, put the table that it prints in the page."""
    table = "\n".join(f"| {' | '.join(line)} |" for line in [HEADS, ("---",) * 6, *map(cells, ROWS)])
    assert f"\n\n{table}\n\n" in PAGE.read_text("utf-8"), table
