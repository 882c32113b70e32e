"""T4-A14: an array() or map() of Spark that has no type is told by its column, without a session."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import types as t

import safewrite as sw
from safewrite.frames.spark.columns import arrow_schema

EMPTY = t.ArrayType(t.NullType(), containsNull=False)
NOTHING = t.MapType(t.NullType(), t.NullType(), valueContainsNull=False)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (EMPTY, "c"),
        (NOTHING, "c"),
        (t.ArrayType(EMPTY), "c.element"),
        (t.StructType([t.StructField("f", NOTHING)]), "c.f"),
    ],
)
def test_an_untyped_array_or_map_is_told_by_its_column(kind: Any, path: str):
    with pytest.raises(sw.InvalidInputError, match=f"'{path}' has Spark's type .*void.*Cast it"):
        arrow_schema(t.StructType([t.StructField("c", kind)]))


def test_an_array_of_null_has_a_type():
    assert arrow_schema(t.StructType([t.StructField("c", t.ArrayType(t.NullType()))])).names == ["c"]
