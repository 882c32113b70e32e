"""Random tables of each source land as an oracle says that is none of ours: read by rows and by columns, in both formats.

T3-B7 to T3-B9 and T3-B13 are such rows.  ``make test-long`` runs many of them.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.cdc.jobs import Job
from tests.cdc.source_types import DEBEZIUM
from tests.cdc.test_column_batches import equal, inserts
from tests.cdc.value_worlds import World


def equal_rows(found: dict[Any, dict[str, Any]], expected: dict[int, dict[str, Any]]) -> None:
    assert sorted(found) == sorted(expected)
    for key, row in expected.items():
        for name, value in row.items():
            seen = found[key].get(name)
            if hasattr(seen, "isoformat") and isinstance(
                value, str
            ):  # a time of day, which Delta has as a text
                seen = seen.isoformat(timespec="microseconds" if "." in value else "auto")
            if isinstance(value, float) and math.isnan(value):
                assert math.isnan(seen)
            else:
                assert seen == value, (key, name)
        assert set(found[key]) - set(row) == set()


def landed(
    world: World, form: str, folder: Path, *, batches: int, changes: int, schemas: bool = False
) -> None:
    """Land the changes of a world in batches, and compare."""
    (folder / "lake").mkdir(parents=True)
    job = Job(folder, [world.table], form, schemas=schemas)
    for number in range(batches):
        job.land(*world.run(changes // batches), number=number)
    assert {letter["offset"] for letter in job.letters()} == world.dead
    equal_rows(job.rows("a"), world.rows)
    assert job.verdict().faults == ()


@pytest.mark.sweep("1", "2", "3", "4", "5")
@pytest.mark.parametrize("source", DEBEZIUM)
@pytest.mark.parametrize("seed", range(6))
def test_any_values_are_read_by_columns_as_one_by_one(source: str, seed: int) -> None:
    world = World(source, seed)
    records = world.run(120)
    table = {name: value for name, value in world.table.items() if name != "table"}
    found = equal(records, **table)
    # What the frame cannot know yet is whether the table has values that were left out.
    assert set(found.dead) <= world.dead
    kinds = world.counted
    assert kinds["numbers of more than 400 digits"] > 10
    assert kinds["deletes"] > 2


@pytest.mark.sweep("MySQL and MariaDB", "SQL Server")
@pytest.mark.parametrize(("source", "form"), [*zip(DEBEZIUM, ["delta", "iceberg"] * 2, strict=True)])
def test_a_table_of_a_source_is_what_the_oracle_says(source: str, form: str, tmp_path: Path) -> None:
    landed(World(source, 1), form, tmp_path, batches=2, changes=90)


@pytest.mark.long
@pytest.mark.parametrize("source", DEBEZIUM)
@pytest.mark.parametrize("form", ["delta", "iceberg"])
@pytest.mark.parametrize("seed", range(100, 110))
def test_many_tables_of_a_source_are_what_the_oracle_says(
    source: str, form: str, seed: int, tmp_path: Path
) -> None:
    landed(World(source, seed), form, tmp_path, batches=5, changes=400)


@pytest.mark.long
def test_one_row_of_a_thousand_that_is_no_number_leaves_the_others_to_the_columns() -> None:
    for value in ("NaN", "Infinity", "-Infinity"):
        values: list[Any] = [0.5] * 1000
        values[637] = value
        found = equal(inserts({"type": "double"}, values), primary_key=["id"])
        assert str(found.rows[637][0]["v"]) == str(float(value))
        assert found.by_columns > 900
