"""What NumPy 1 must do as well: writes of each kind of frame, to tables of both formats that deltalake and PyIceberg read.

Its name keeps it out of `make test`, whose environment has NumPy 2.  `make test-numpy-1` runs the tests of frames and values
with NumPy 1 too: its casts are other ones.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw

ROWS = [{"id": 1, "seq": 1, "name": "a", "price": 0.5}, {"id": 2, "seq": 1, "name": None, "price": None}]
SCHEMA = pa.schema([("id", pa.int64()), ("seq", pa.int64()), ("name", pa.string()), ("price", pa.float64())])


def test_this_is_numpy_1() -> None:
    assert np.__version__.startswith("1.")


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_writes_of_each_kind_land(form: str, tmp_path: Path) -> None:
    catalog = {
        "name": "c",
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/c.db",
        "warehouse": str(tmp_path / "w"),
    }
    how: dict[str, Any] = {"catalog": catalog, "create_namespace": True} if form == "iceberg" else {}
    table = sw.create("db.t" if how else tmp_path / "t", SCHEMA, **how)
    frames = (pd.DataFrame(ROWS), pl.DataFrame(ROWS), pa.Table.from_pylist(ROWS), ROWS)
    for number, frame in enumerate(frames):
        for _ in range(2):
            table.append(frame, key=f"append {number}")
    table.delete("id = 1", key="delete")
    table.overwrite([], where="seq = 1", key="overwrite")
    changes = [{**ROWS[0], "op": "u"}, {"id": 2, "seq": 1, "op": "d", "name": None, "price": None}]
    how = {"keys": ["id"], "sequence_by": ["seq"], "delete_when": "op = 'd'", "columns": SCHEMA.names}
    assert table.apply_changes(changes, key="changes", **how).rows == 1
    if form == "delta":
        rows = pa.table(deltalake.DeltaTable(tmp_path / "t").to_pyarrow_table())
    else:
        rows = (
            SqlCatalog("c", **{name: catalog[name] for name in ("uri", "warehouse")})
            .load_table("db.t")
            .scan()
            .to_arrow()
        )
    assert rows.select(SCHEMA.names).to_pylist() == ROWS[:1]


def test_the_command_line_runs(tmp_path: Path) -> None:
    sw.open(tmp_path / "t", create=True).append(ROWS)
    done = subprocess.run(
        [sys.executable, "-c", "from safewrite.cli import main; main()", "doctor", str(tmp_path / "t")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
