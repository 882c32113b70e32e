"""docs/values.md says of each source's types what a table gets: each of its rows is a row here, and holds."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from safewrite.cdc.envelopes.decoding import Decoder
from safewrite.medallion.config.column_types import arrow_type
from safewrite.medallion.files import text_parsing
from tests.cdc.both_ways import outcomes
from tests.cdc.source_types import DEBEZIUM, DMS_JSON, FILES, Misfit, SourceType, Value
from tests.cdc.test_column_batches import equal, inserts
from tests.cdc.test_column_batches_bare import of_dms

PAGE = Path(__file__).parents[2] / "docs" / "values.md"
HEADS = ("source's type", "column", "does not fit", "what lands it")
NAMES: dict[str, pa.DataType] = {
    "`bool`": pa.bool_(), "`int64`": pa.int64(), "`float64`": pa.float64(), "`string`": pa.string(), "`binary`": pa.binary(),
    "`date`": pa.date32(), "`time`": pa.time64("us"), "`timestamp`": pa.timestamp("us"), "`timestamptz`": pa.timestamp("us", "UTC"),
    "`string` of JSON": pa.string(),
}  # fmt: skip
ALL = [pytest.param(one, id=f"{source}-{one.types}") for source, rows in DEBEZIUM.items() for one in rows]


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, float) and math.isnan(expected):
        return isinstance(found, float) and math.isnan(found)
    return bool(found == expected) and type(found) is type(expected)


@pytest.mark.parametrize("form", ["delta", pytest.param("iceberg", marks=pytest.mark.long)])
@pytest.mark.parametrize("given", ALL)
def test_a_type_of_a_source_gets_the_column_of_the_page(given: SourceType, form: str) -> None:
    """T3-B13: by rows and by columns."""
    wires = [one for one, _ in given.fits]
    found = equal(inserts(given.schema, wires), primary_key=["id"], format=form)  # type: ignore[arg-type]
    assert not found.dead
    if given.column in NAMES:
        is_text = given.column == "`time`" and form == "delta"
        assert found.types["v"] == (pa.string() if is_text else NAMES[given.column])
    for at, (_, expected) in enumerate(given.fits):
        value = found.rows[at][0]["v"]
        assert same(value if given.column != "`time`" or form == "delta" else value.isoformat(), expected)


@pytest.mark.parametrize("given", [one for one in ALL if one.values[0].misfits])
def test_a_value_of_a_source_that_does_not_fit_lands_as_the_page_says(given: SourceType) -> None:
    for misfit in given.misfits:
        _lands_as_said(given, misfit)


def _lands_as_said(given: SourceType, misfit: Misfit) -> None:
    records = inserts(given.schema, [misfit.wire, given.fits[0][0]])  # type: ignore[arg-type]
    dead = equal(records, primary_key=["id"]).dead
    assert list(dead) == [0], "a dead letter, unless the table says otherwise"
    for mode, expected in (("null", None), ("text", misfit.text), ("floor", misfit.floor)):
        found = equal(records, primary_key=["id"], on_misfit={"v": mode})
        if mode == "floor" and misfit.floor is None:
            assert list(found.dead) == [0]
        else:
            assert same(found.rows[0][0]["v"], expected)


@pytest.mark.parametrize("given", [pytest.param(one, id=one.kind) for one in DMS_JSON])
def test_a_value_of_dms_in_json_gets_the_column_of_the_page(given: Value) -> None:
    def read(wires: Iterable[Any], **more: Any) -> Any:
        records = []
        for at, wire in enumerate(wires):
            made = of_dms("insert", {"id": at, "v": "<v>"}, at)
            text = wire if isinstance(wire, str) else json.dumps(wire)
            records.append(replace(made, value=(made.value or b"").replace(b'"<v>"', text.encode())))
        table = {"primary_key": ["id"], **given.settings, **more}
        ways = outcomes(
            records, decoder=partial(Decoder, "dms-json"), job_settings={"envelope": "dms-json"}, **table
        )
        assert ways[0].told() == ways[1].told()
        return ways[0]

    found = read([one for one, _ in given.fits])
    assert not found.dead
    if given.column in NAMES:
        assert found.types["v"] == NAMES[given.column]
    for at, (_, expected) in enumerate(given.fits):
        assert same(found.rows[at][0]["v"], expected) or found.rows[at][0]["v"] == expected
    for name, wire in given.unfit:
        assert read([given.fits[0][0], wire]).dead, name


@pytest.mark.parametrize("given", [pytest.param(one, id=one.kind) for one in FILES])
def test_a_text_of_a_file_gets_the_type_that_is_declared(given: Value) -> None:
    kind = arrow_type(given.settings["type"])
    texts = pa.chunked_array([pa.array([one.encode() for one, _ in given.fits], pa.binary())])
    read, bad = text_parsing.read(texts, kind, texts=True)
    assert read.to_pylist() == [expected for _, expected in given.fits]
    assert not bad.any()
    for name, wire in given.unfit:
        _, bad = text_parsing.read(
            pa.chunked_array([pa.array([wire.encode()], pa.binary())]), kind, texts=True
        )
        assert bad.all(), name


def table_of(rows: Sequence[tuple[str, ...]], heads: Sequence[str]) -> str:
    """A table as the page has it."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def tables() -> dict[str, str]:
    """The tables of the page, by the heading above them."""
    found = {source: table_of([one.cells for one in rows], HEADS) for source, rows in DEBEZIUM.items()}
    found["AWS DMS, JSON"] = table_of(
        [one.cells for one in DMS_JSON], ("value", "column", "does not fit", "what lands it")
    )
    found["AWS DMS, CSV and Parquet"] = table_of(
        [(one.kind, ", ".join(name for name, _ in one.unfit), one.note) for one in FILES],
        ("declared type", "goes to quarantine", ""),
    )
    return found


def test_the_page_has_each_row_that_holds_and_no_other() -> None:
    """Where it fails, put the table that it prints in the page."""
    page = PAGE.read_text("utf-8")
    for heading, table in tables().items():
        assert f"## {heading}\n" in page
        part = page.split(f"## {heading}\n")[1].split("\n## ")[0]
        found = "\n".join(line for line in part.splitlines() if line.startswith("|"))
        assert found == table, f"{heading}:\n{table}"
