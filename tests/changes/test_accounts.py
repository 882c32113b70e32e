"""A commit whose files hold other rows than its plan says is not made, by whatever verb and on both formats."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import safewrite as sw
from safewrite.delta.data.datafiles import FileLayout, encoded
from safewrite.iceberg.data.datafiles import encode
from tests.changes.test_decide import OTHER, K, up
from tests.changes.test_tables import Lake, apply

pytestmark = pytest.mark.sweep("iceberg")  # both formats go one way


@pytest.mark.sweep("append-iceberg", "delete-iceberg", "overwrite-iceberg")
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("verb", ["append", "overwrite", "delete", "apply_changes"])
def test_rows_that_are_written_twice_are_not_committed(
    kind: str, verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of an encoder that reads its rows twice are sound by themselves."""
    lake = Lake(kind, tmp_path)
    apply(lake.open(), [up((1, 0)), up((1, 0), "p", OTHER)])

    def twice(*args: Any, **how: Any) -> list[Any]:
        write_id = how.pop("write_id")
        return [file for name in "ab" for file in encode(*args, write_id=f"{write_id}{name}", **how)]

    def encoded_twice(rows: Any, layout: FileLayout) -> list[Any]:
        layouts = [replace(layout, write_id=f"{layout.write_id}{name}") for name in "ab"]
        return [file for one in layouts for file in encoded(rows, one)]

    monkeypatch.setattr("safewrite.iceberg.data.datafiles.encode", twice)
    for module in ("data.datafiles", "write.matching_files"):
        monkeypatch.setattr(f"safewrite.delta.{module}.encoded", encoded_twice)
    row = {"a": 7, "b": "x", "s": 1, "t": 0, "value": "p"}
    calls: dict[str, Any] = {
        "append": lambda table: table.append([row]),
        "overwrite": lambda table: table.overwrite([row], where="a = 7"),
        "delete": lambda table: table.delete([("a", "=", K[0]), ("b", "=", K[1])]),
        "apply_changes": lambda table: apply(table, [up((2, 0), "q")]),
    }
    with pytest.raises(sw.SafewriteError, match=r"The commit would .*Nothing was committed"):
        calls[verb](lake.open())
    assert lake.rows() == {K: "p", OTHER: "p"}
