"""``check=`` of ``apply_changes`` sees what the commit would write, and stops it by what it raises."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import safewrite as sw
from tests.changes.tasked import by_tasks

pytestmark = pytest.mark.sweep("iceberg")  # both formats go one way

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), False), pa.field("n", pa.int64()), pa.field("seq", pa.int64(), False)]
)
HOW: dict[str, Any] = {"keys": ["id"], "sequence_by": ["seq"]}


def table(folder: Path, table_format: str) -> sw.Table:
    if table_format == "delta":
        return sw.create(str(folder / "t"), SCHEMA)
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": str(folder)}
    return sw.create("lake.t", SCHEMA, catalog=catalog)


def change(number: int, n: int, seq: int) -> dict[str, int]:
    return {"id": number, "n": n, "seq": seq}


@pytest.mark.sweep("iceberg-nullcontext", "delta-by_tasks")
@pytest.mark.parametrize("decided", [nullcontext, by_tasks])
@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_check_sees_the_rows_that_will_stand_and_stops_the_write(
    table_format: str, decided: Any, tmp_path: Path
) -> None:
    """Where the changes are decided here, and by tasks."""
    with decided():
        _judge(table_format, tmp_path)


def _judge(table_format: str, tmp_path: Path) -> None:
    place = table(tmp_path, table_format)
    place.apply_changes([change(1, 10, 1), change(2, 20, 1)], **HOW)
    seen: list[tuple[list[dict[str, Any]], dict[str, int]]] = []

    def look(rows: pa.Table, counts: Mapping[str, int]) -> None:
        seen.append((rows.to_pylist(), {name: n for name, n in counts.items() if n}))
        if counts["updated"] > 1:
            raise ValueError("too many")

    batch = [change(1, 11, 2), change(1, 12, 3), change(2, 19, 0)]
    place.apply_changes(batch, check=look, key="one", **HOW)
    assert seen == [([change(1, 12, 3)], {"applied": 1, "updated": 1, "late": 1, "superseded": 1})]
    version = place.refresh().version
    with pytest.raises(sw.InvalidInputError, match=r"ValueError: too many\. Nothing was written"):
        place.apply_changes([change(1, 1, 9), change(2, 1, 9)], check=look, **HOW)
    assert place.refresh().version == version
    again = place.apply_changes(batch, check=look, key="one", **HOW)  # a repeat is not judged again
    assert (again.outcome, len(seen)) == (sw.Outcome.ALREADY_COMMITTED, 2)


@pytest.mark.parametrize(("number", "left"), [(1, 0), (2, 1)], ids=["the same key", "another key"])
def test_a_check_judges_again_what_a_rival_made_of_the_plan(tmp_path: Path, number: int, left: int) -> None:
    """The rival's newer row of the key leaves nothing to be written; one of another key changes nothing, and it is asked too."""
    place, rival = table(tmp_path, "delta"), sw.open(str(tmp_path / "t"))
    place.apply_changes([change(1, 10, 1)], **HOW)
    seen: list[int] = []

    def look(rows: pa.Table, _: Mapping[str, int]) -> None:
        if not seen:
            rival.apply_changes([change(number, 30, 30)], **HOW)
        seen.append(rows.num_rows)

    receipt = place.apply_changes([change(1, 20, 20)], check=look, all_late="count", **HOW)
    assert (seen, receipt.rebased) == ([1, left], left)


def test_a_check_is_a_function(tmp_path: Path) -> None:
    with pytest.raises(sw.InvalidInputError, match="check= is a function"):
        table(tmp_path, "delta").apply_changes([change(1, 1, 1)], check="no", **HOW)  # type: ignore[arg-type]
