"""A Spark DataFrame moves the position of its source in the commit of its rows, as any frame does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import safewrite as sw
from bench.servers.catalogs import CatalogKind
from safewrite.errors import Kind
from tests.integration.places import once, rows
from tests.spark.ends import End, delta, iceberg
from tests.spark.hooked import HookedTable
from tests.spark.lake import Lake


@pytest.fixture(params=["delta", "sql"])
def end(
    request: pytest.FixtureRequest, hooked: Callable[[str], HookedTable], lakes: Callable[[CatalogKind], Lake]
) -> End:
    """A new table of each format."""
    return delta(hooked("dynamodb")) if request.param == "delta" else iceberg(lakes("sql"))


@pytest.mark.long
def test_a_frame_of_spark_moves_a_position_only_from_where_it_stands(end: End) -> None:
    """Rows of pandas and of Spark, one source."""
    end.open().append(rows(1), key="a", positions={"orders/0": (None, 1)})
    moved = {"orders/0": (1, 3)}
    with end.spark.careless():
        end.open().append(end.frame(2, 3), key="b", positions=moved)
    assert end.open().positions() == {"orders/0": 3}
    for frame in (end.frame(2, 3, 4), rows(2, 3, 4)):
        with end.spark.careless(), pytest.raises(sw.ConflictError, match="Nothing was committed") as told:
            end.open().append(frame, key="c", positions=moved)
        assert told.value.kind is Kind.POSITION_MOVED
    with end.spark.careless():
        again = end.open().append(end.frame(2, 3), key="b", positions=moved)
    assert again.outcome == "already_committed"
    assert end.ids() == once(1, 2, 3)
