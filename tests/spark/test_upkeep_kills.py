"""Executors that are killed while they put files together: their tasks are done again, or their groups are left, and no row is lost."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from bench.perf.upkeep_executors import Driver, Place
from bench.servers.spark import Cluster

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.long]


def rows(place: Place) -> pa.Table:
    """All rows, by another reader than safewrite."""
    name, how = place.how
    if place.kind == "delta":
        found = pa.table(DeltaTable(name).to_pyarrow_table())
    else:
        found = load_catalog(**how["catalog"]).load_table(name).scan().to_arrow()
    return found.sort_by("id").combine_chunks()


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_kills_of_executors_lose_no_row_and_name_no_file_twice(tmp_path: Path, kind: str) -> None:
    place, draw = Place(kind, tmp_path / "place"), random.Random(1)
    place.fill(60, 8)
    before, kills, ends = rows(place), list[bool](), threading.Event()
    with Cluster(tmp_path, 2, "2g") as cluster, Driver(place, "spark", cluster) as driver:

        def kill() -> None:
            while not ends.wait(draw.uniform(0.3, 1.5)) and sum(kills) < 4:
                python = draw.random() < 0.5
                kills.append(cluster.kill_python_worker(draw) if python else cluster.kill_executor(draw))

        killing = threading.Thread(target=kill)
        killing.start()
        try:
            report = driver.maintain()["report"]
        finally:
            ends.set()
            killing.join()
    assert any(kills)
    assert report["groups"] > 0, report
    assert rows(place).equals(before)
