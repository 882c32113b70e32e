"""Files that may have one of many values are found by their bounds, and the values are put in order once."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from safewrite.iceberg.data import pruning
from safewrite.iceberg.data.pruning import SoughtValues

DAY, NOON = dt.date(2026, 1, 1), dt.datetime(2026, 1, 1, 12)  # noqa: DTZ001 - a type without zone
KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "long": (pa.int64(), lambda n: n),
    "string": (pa.string(), lambda n: f"é{n:03}"),
    "date": (pa.date32(), lambda n: DAY + dt.timedelta(n)),
    "timestamp": (pa.timestamp("us"), lambda n: NOON + dt.timedelta(seconds=n)),
    "decimal": (pa.decimal128(9, 2), lambda n: Decimal(n).scaleb(-2).quantize(Decimal("0.01"))),
}
FILES = [(0, 9), (10, 19), (15, 30), (40, 40)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_left_out_if_all_values_lie_beside_its_bounds(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrow, of = KINDS[kind]
    here = SqlCatalog("t", uri=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path.as_uri())
    here.create_namespace("n")
    table = here.create_table("n.t", pa.schema([("k", arrow)]))
    tasks, numbers = dict[str, Any](), dict[str, tuple[int, int]]()
    for low, high in FILES:
        table.append(pa.table({"k": pa.array([of(low), of(high)], arrow)}))
        tasks |= {task.file.file_path: task for task in table.scan().plan_files()}
        numbers |= {path: (low, high) for path in tasks if path not in numbers}
    wanted = [41, 17, 9, 35]
    sought = SoughtValues({"k": pa.array([of(number) for number in wanted], arrow)})
    for _ in range(2):
        held = sought.holding([*tasks.values()], table.metadata)
        found = sorted(numbers[task.file.file_path] for task in held)
        assert found == [(low, high) for low, high in FILES if any(low <= one <= high for one in wanted)]
        monkeypatch.setattr(pruning.pc, "array_sort_indices", None)  # the next plan needs it no more
    here.close()
