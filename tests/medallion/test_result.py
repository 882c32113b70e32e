"""What silver would become is judged before its commit: a broken rule fails the table, and silver stays as it was."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from safewrite.errors import InvalidInputError
from safewrite.medallion import Pipeline, verify
from safewrite.medallion.config.job import load
from tests.medallion.test_evolution import FORMATS, rows, shop
from tests.medallion.test_jobs import HEAD, Shop, set_in

FIRST = HEAD + "I,1,1.00,10\nI,2,2.00,11\nI,3,3.00,12\n"
BAD = HEAD + "U,1,900.00,20\nU,1,-5.00,21\nD,2,,22\nD,3,,23\nU,4,NULL,24\n"
"""In the end silver would have 1: -5.00 and 4: NULL, and two deleted rows; 900.00 never stands in it."""


def is_small(new: pa.Table) -> pa.Array:
    return pc.fill_null(pc.less(pc.cast(new["price"], pa.float64()), 100.0), True).combine_chunks()


def tells_wrong(new: pa.Table) -> list[bool]:
    return [True] * (new.num_rows + 1)


def no_negatives(result: pa.Table, counts: Mapping[str, int]) -> str | None:
    lowest = pc.min(result["price"]).as_py()
    told = f"{lowest} is below 0, in {counts['updated']} updates"
    return told if lowest is not None and lowest < 0 else None


RULES: list[tuple[dict[str, Any], str]] = [
    ({"conditions": ["price >= 0"]}, "1 of 2 rows break a rule (1 times not true: price >= 0)"),
    ({"null_share_max": {"price": 0.4}}, "1 of 2 rows have NULL in price"),
    ({"deleted_max": 1}, "2 rows would be deleted, and result.deleted_max is 1"),
    ({"queries": ["SELECT count(*) FILTER (WHERE price < 0) = 0 FROM result"]}, "not true: SELECT"),
    ({"queries": ["SELECT NULL::BOOLEAN FROM result LIMIT 1"]}, "not true: SELECT NULL"),
    ({"queries": ["SELECT 1"]}, "does not answer with one true or false"),
    ({"queries": ["SELECT prize FROM result"]}, "cannot be applied"),
    ({"functions": [no_negatives]}, "no_negatives says: -5.00 is below 0, in 1 updates"),
    ({"functions": ["tests.medallion.test_result:no_negatives"]}, "no_negatives says"),
]


@pytest.mark.sweep("rules1", "rules4", "rules5", "rules8")
@pytest.mark.parametrize(("rules", "told"), RULES)
def test_a_result_that_breaks_a_rule_fails_the_table_and_silver_stays(
    rules: dict[str, Any], told: str, tmp_path: Path
) -> None:
    job = Shop(tmp_path)
    job.put("shop/orders/20261101-000000001.csv", FIRST)
    assert job.run().ok
    set_in(job, "defaults", "quality", "result", to=rules)
    job.put("shop/orders/20261101-000000002.csv", BAD)
    run = job.run()
    assert told in str(run.tables[0].error)
    assert job.silver() == {1: "1.00", 2: "2.00", 3: "3.00"}
    assert run.tables[0].landed.rows == 5  # bronze has them
    set_in(job, "defaults", "quality", "result", to={})
    assert job.run().ok
    assert job.silver() == {1: "-5.00", 4: "None"}
    assert [one.flaws for one in verify(Pipeline(job.config))] == [[]]


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("table_format", FORMATS)
def test_a_result_is_what_stands_in_the_end_and_not_each_change(table_format: str, tmp_path: Path) -> None:
    """A value that a later change of the batch replaces breaks no rule of the result."""
    job = shop(tmp_path, table_format)
    set_in(job, "defaults", "quality", "result", to={"conditions": ["price < 100"], "deleted_max": 2})
    job.put("shop/orders/20261101-000000001.csv", FIRST)
    job.put("shop/orders/20261101-000000002.csv", BAD)
    assert job.run().ok
    assert sorted(rows(job, "silver")) == [1, 4]
    before = rows(job, "silver")
    job.put("shop/orders/20261101-000000003.csv", HEAD + "U,4,100.00,30\nU,1,5.00,31\n")
    assert "1 of 2 rows break a rule" in str(job.run().tables[0].error)
    assert rows(job, "silver") == before
    set_in(job, "defaults", "quality", "result", to={"conditions": ["price < 100"], "failed_share_max": 0.5})
    assert job.run().ok


def test_a_failed_result_of_one_table_stops_no_other(tmp_path: Path) -> None:
    job = Shop(tmp_path)
    set_in(job, "tables", "shop.items", to=dict(job.config["tables"]["shop.orders"]))
    set_in(job, "tables", "shop.items", "quality", to={"result": {"conditions": ["price > 50"]}})
    for table in ("orders", "items"):
        job.put(f"shop/{table}/20261101-000000001.csv", FIRST)
    run = job.run()
    assert [one.ok for one in run.tables] == [True, False]
    assert job.silver() == {1: "1.00", 2: "2.00", 3: "3.00"}
    assert job.silver("items") == {}


def test_a_function_judges_the_rows_of_a_batch(tmp_path: Path) -> None:
    job = Shop(tmp_path)
    set_in(job, "defaults", "quality", "functions", to=["tests.medallion.test_result:is_small"])
    job.put("shop/orders/20261101-000000001.csv", FIRST)
    job.put("shop/orders/20261101-000000002.csv", HEAD + "I,7,700.00,20\nD,3,,22\n")
    run = job.run()
    assert run.ok, run.tables[0].error
    assert job.silver() == {1: "1.00", 2: "2.00"}
    assert [(row["line"], row["reason"]) for row in job.rows("aside")] == [(1, "refused by is_small")]
    set_in(job, "defaults", "quality", "functions", to=[tells_wrong])
    job.put("shop/orders/20261101-000000003.csv", HEAD + "I,8,8.00,30\n")
    assert "it judged 2 rows, and there are 1" in str(job.run().tables[0].error)
    assert job.silver() == {1: "1.00", 2: "2.00"}


@pytest.mark.parametrize("function", ["no.such.module:f", "tests.medallion.test_result:nothing", "json", 7])
def test_a_function_that_is_not_there_is_told_before_the_run(function: object, tmp_path: Path) -> None:
    job = Shop(tmp_path)
    set_in(job, "defaults", "quality", "functions", to=[function])
    with pytest.raises(InvalidInputError, match=r"quality\.functions"):
        load(job.config)
