"""The example takes its shop to silver, and silver is the shop."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from examples.medallion import shop


def test_silver_of_the_example_is_the_shop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = shop.main(str(tmp_path))
    said = capsys.readouterr().out
    assert said.count("all adds up") == 3
    for name, columns in shop.TABLES.items():
        table = pa.table(
            deltalake.DeltaTable(f"{tmp_path}/silver/{name.replace('.', '/')}").to_pyarrow_table()
        )
        rows = {row["id"]: [str(row[column]) for column in columns] for row in table.to_pylist()}
        assert rows == {key: [str(value) for value in row] for key, row in found.rows[name].items()}
