"""Silver of Delta tables whose readers all read deletion vectors: rows that change are marked, and no file is rewritten."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from safewrite.errors import InvalidInputError
from safewrite.medallion import Pipeline, verify
from safewrite.medallion.config.job import load
from tests.medallion.test_evolution import shop
from tests.medallion.test_jobs import HEAD, Shop, set_in


@pytest.mark.sweep("readers2")
@pytest.mark.parametrize("readers", [["deltalake", "duckdb"], ["duckdb", "athena"], []])
def test_silver_is_marked_where_every_reader_reads_marks(tmp_path: Path, readers: list[str]) -> None:
    job = Shop(tmp_path)
    set_in(job, "defaults", "readers", to=readers)
    job.put("shop/orders/LOAD00000001.csv", "id,price\n" + "".join(f"{n},{n}.00\n" for n in range(5)))
    assert job.run().ok
    job.put("shop/orders/20261101-000000001.csv", HEAD + "U,1,9.00,10\nD,2,2.00,11\n")
    assert job.run().ok
    table = deltalake.DeltaTable(tmp_path / "silver/orders")
    asked = deltalake.QueryBuilder().register("t", table).execute("SELECT id, price FROM t").read_all()
    found = {row["id"]: str(row["price"]) for row in pa.table(asked).to_pylist()}
    assert found == {0: "0.00", 1: "9.00", 3: "3.00", 4: "4.00"}
    marks = readers == ["deltalake", "duckdb"]
    assert bool([*(tmp_path / "silver/orders").glob("deletion_vector_*.bin")]) is marks
    bronze = deltalake.DeltaTable(tmp_path / "bronze/orders")
    assert "deletionVectors" not in (bronze.protocol().reader_features or [])
    assert [(one.clean, one.error) for one in verify(Pipeline(job.config))] == [(True, None)]


def test_readers_of_iceberg_are_refused(tmp_path: Path) -> None:
    job = shop(tmp_path, "iceberg")
    set_in(job, "defaults", "readers", to=["duckdb"])
    with pytest.raises(InvalidInputError, match="readers is of Delta tables"):
        load(job.config)
