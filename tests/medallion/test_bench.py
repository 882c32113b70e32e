"""The bench of medallion jobs: it tells a story with kills, and counts what the copied recipe does to the same rows."""

from __future__ import annotations

import csv
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from decimal import Decimal
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bench.medallion.dms import ARROW, Row
from bench.medallion.recipe import damage
from bench.medallion.spark import session
from bench.medallion.speed import OURS, PYTHON, SPARK, Race, change_file, lines
from bench.medallion.truth import tell_story
from safewrite.changes.tasks import apply_job
from safewrite.medallion.bronze import tasks as bronze_tasks
from safewrite.medallion.silver import apply, tasks

BRONZE = pa.schema([*ARROW, ("_op", pa.string()), ("_seq", pa.decimal128(38, 0)), ("_file", pa.string())])


def row(number: int, name: str, **more: Any) -> Row:
    return dict.fromkeys(ARROW.names) | {"id": number, "region": "eu", "name": name} | more


@pytest.mark.parametrize("path_of", ["_file", "_raw_file"])  # of a Delta and of an Iceberg bronze
def test_the_copied_recipe_loses_an_update_that_comes_before_its_insert(path_of: str, tmp_path: Path) -> None:
    """The update matches nothing and is dropped; the insert that comes later is the old row."""
    bronze = pa.Table.from_pylist(
        [
            row(1, "new", _op="U", _seq=Decimal(2), _file="a"),
            row(1, "old", _op="I", _seq=Decimal(1), _file="b"),
            row(2, "kept", _op="I", _seq=Decimal(3), _file="a"),
            row(3, "only", _op="U", _seq=Decimal(4), _file="a"),
        ],
        schema=BRONZE,
    )
    truth = {(n, "eu"): row(n, name) for n, name in ((1, "new"), (2, "kept"), (3, "only"))}
    names = [path_of if name == "_file" else name for name in bronze.column_names]
    bronze = bronze.rename_columns(names)
    _, each_round = damage(tmp_path, {"shop.t": bronze}, [["a"], ["b"]], {"shop.t": truth})
    assert (each_round.lost, each_round.ghosts, each_round.stale) == (1, 0, 1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("table_format", "engine"), [("delta", "local"), ("iceberg", "local"), ("delta", "tasks")]
)
@pytest.mark.parametrize("mixed", [False, True])
def test_a_story_with_kills_ends_in_the_truth(
    table_format: str, engine: str, mixed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[tuple[Any, str]] = [
        (apply, "SMALL_ROWS"), (tasks, "PIECE_ROWS"), (bronze_tasks, "SMALL_BYTES"), (apply_job, "FEW_ROWS"),
    ]  # fmt: skip
    for module, name in limits:  # set by a run by tasks
        monkeypatch.setattr(module, name, getattr(module, name))
    found = tell_story(
        tmp_path,
        table_format,
        mixed=mixed,
        tables=4,
        files=60,
        kills=3,
        seed=2,
        tell=lambda _: None,
        engine=engine,
    )
    assert found.flaws == []
    assert (found.wrong_tables, found.silver_rows) == (0, found.truth_rows)
    assert found.rows_in_files == found.landed + found.put_aside
    assert found.killed >= 3
    assert found.recipe is not None
    assert found.recipe.total > 0


@pytest.mark.parametrize("table_format", ["delta", pytest.param("iceberg", marks=pytest.mark.long)])
def test_the_race_compares_what_does_the_same(table_format: str, tmp_path: Path) -> None:
    race = Race(tmp_path, table_format, 1, 40)
    for number in range(3):
        _, rows = race.round(number)
        assert rows == (8 if number else 40)
    assert race.unlike() == []
    race.rivals[PYTHON].table("t0", [change_file(tmp_path, race.draw, 99, 5, 40)])
    assert race.unlike() == [f"t0: {PYTHON}"]


def test_a_line_says_what_our_time_is_as_a_multiple_of_a_rivals() -> None:
    figures = [({OURS: 2.0, PYTHON: 1.0, SPARK: 4.0}, 300), ({OURS: 4.0, PYTHON: 2.0, SPARK: 8.0}, 300)]
    assert lines(figures, tables=5) == [
        [OURS, "6.0", "100", "100", ""],
        [PYTHON, "3.0", "200", "200", "2.00"],
        [SPARK, "12.0", "50", "50", "0.50"],
    ]


def truth(paths: list[Path]) -> dict[int, tuple[str, Decimal, datetime]]:
    """What a table is after its files, in order."""
    found: dict[int, tuple[str, Decimal, datetime]] = {}
    for path in sorted(paths, key=lambda one: (not one.name.startswith("LOAD"), one.name)):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                if row.get("Op") == "D":
                    found.pop(int(row["id"]), None)
                else:
                    at = datetime.fromisoformat(row["at"])
                    found[int(row["id"])] = row["name"], Decimal(row["price"]), at
    return found


def spark_rows(folder: Path, table_format: str) -> tuple[list[str], list[list[Row]]]:
    """Two tables in a race with plain Spark: what differs, and silver of Spark."""
    with session(folder / "session", 1) as spark:
        race = Race(folder, table_format, 2, 40, spark)
        for number in range(3):
            race.round(number)
        return race.unlike(), [race.rivals[SPARK].rows(name).to_pylist() for name in race.names]


@pytest.mark.long
@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_silver_of_plain_spark_is_the_truth(table_format: str, tmp_path: Path) -> None:
    """In a process of its own: a session of other tests would lend its JVM and its settings."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        unlike, tables = pool.submit(spark_rows, tmp_path, table_format).result()
    assert unlike == []
    for number, rows in enumerate(tables):
        files = [*(tmp_path / "raw" / "db" / f"t{number}").iterdir()]
        assert len(files) == 5
        assert {row["id"]: (row["name"], row["price"], row["at"]) for row in rows} == truth(files)
        assert len(rows) == len(truth(files))
