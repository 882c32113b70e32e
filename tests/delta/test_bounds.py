"""Bounds of a file's columns as readers of others take them: none loses a row to a filter."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import safewrite as sw


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (
            pa.timestamp("us", "UTC"),
            [
                dt.datetime(1914, 7, 13, tzinfo=dt.UTC),
                dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
            ],
        ),
        (pa.decimal128(38, 18), [Decimal("0.5"), Decimal("12345678901234567890.123456789012345678")]),
        (pa.float64(), [1.0, math.inf]),
        (pa.bool_(), [False, True]),
    ],
    ids=["the last millisecond", "a wide decimal", "infinity", "a flag"],
)
def test_a_bound_that_cannot_be_given_loses_no_row_to_a_filter(
    tmp_path: Path, kind: pa.DataType, values: list[Any]
) -> None:
    """deltalake takes a bound that is missing for NULL: no row would pass a filter by that column."""
    table = sw.open(tmp_path / "t", create=True)
    table.append(pa.table({"id": [1, 2], "v": pa.array(values, kind)}))
    dataset = deltalake.DeltaTable(tmp_path / "t").to_pyarrow_dataset()
    first = pa.scalar(values[0], kind)
    for condition, ids in (
        (ds.field("v") == first, [1]),
        (ds.field("v") != first, [2]),
        (ds.field("v") >= first, [1, 2]),
    ):
        assert dataset.to_table(filter=condition)["id"].to_pylist() == ids
    deltalake.DeltaTable(tmp_path / "t").create_checkpoint()
    assert (
        deltalake.DeltaTable(tmp_path / "t")
        .to_pyarrow_dataset()
        .to_table(filter=ds.field("v") == first)
        .num_rows
        == 1
    )
