"""The example of upserts leaves what its log says."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pytest

from examples import upserts


def test_the_table_is_what_the_log_says_though_it_came_shuffled_and_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = upserts.main(str(tmp_path), changes=120, keys=20)
    rows = deltalake.DeltaTable(str(tmp_path / "customers")).to_pyarrow_table().to_pylist()
    assert {row["id"]: row["name"] for row in rows} == wanted
    assert len(rows) == len(wanted)
    said = capsys.readouterr().out
    assert "already_committed" in said
    assert "late" in said
