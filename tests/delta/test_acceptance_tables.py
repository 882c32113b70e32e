"""The acceptance tables of the format's own projects: each is read as expected, or refused by name.

They are not in this repository.  ``SAFEWRITE_DELTA_TABLES`` names a folder that has them somewhere below it: delta-io/delta
(``connectors/golden-tables``, ``kernel/kernel-defaults``, ``spark/src/test/resources``), delta-io/delta-kernel-rs (``kernel/tests``, its archives
unpacked), delta-io/delta-rs (``crates/test/tests/data``) and the archive of delta-incubator/dat.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import safewrite as sw

FOLDER = os.environ.get("SAFEWRITE_DELTA_TABLES", "")
pytestmark = [pytest.mark.long, pytest.mark.skipif(not FOLDER, reason="SAFEWRITE_DELTA_TABLES is not set")]
FORESEEN = (sw.UnsupportedTableError, sw.StorageError, sw.TableNotFoundError, sw.UnsafeConfigError)
"""What a table that is damaged, or needs what safewrite lacks, may be refused by."""
MISREAD = {"table_with_edge_timestamps"}
"""deltalake 1.6.6 reads instants of the year 9999 in INT96 as others of 1816; the table's statistics say which it is."""


def tables() -> Iterator[Path]:
    return (path.parent for path in sorted(Path(FOLDER).rglob("_delta_log")) if path.is_dir())


def plain(value: Any) -> Any:
    """A value without what readers differ in: zones, kinds of mappings, NaN."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat()
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def rows_of(table: pa.Table, names: list[str]) -> list[str]:
    found = table.select(sorted(names)).to_pylist()
    return sorted(json.dumps(plain(row), sort_keys=True, default=str) for row in found)


def is_like(found: pa.Table, want: pa.Table) -> bool:
    names = [one for one in found.column_names if one in want.column_names]
    return rows_of(found, names) == rows_of(want, names)


def expected(root: Path) -> Iterator[pa.Table]:
    """What the project says that readers find, and what deltalake finds, as far as they do.

    Either will do: where a partition value is a time without a zone, the projects' own answers take it for their machine's.
    """
    beside = root.parent / "expected"
    files = sorted(beside.rglob("*.parquet")) if root.name == "delta" else []
    latest = [path for path in files if "latest" in path.parts] or files
    if latest:
        read = [pq.read_table(path, partitioning=None) for path in latest]
        yield pa.concat_tables(read, promote_options="permissive")
    if root.name in MISREAD:
        return
    with suppress(BaseException):  # Rust's panics, too: then it does not tell
        query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(root))
        yield pa.table(query.execute("SELECT * FROM t"))


def test_each_table_is_read_right_or_refused_by_name() -> None:
    failed, read = {}, 0
    for root in tables():
        name = str(root.relative_to(FOLDER))
        try:
            table = sw.open(root)
            if not table.schema.names:
                continue  # each column is of a type that Arrow lacks
            found = table.rows(where="true", columns=table.schema.names)
        except FORESEEN:
            continue
        except Exception as error:  # noqa: BLE001 - all of them are told of at once
            failed[name] = f"{type(error).__name__}: {error}"[:300]
            continue
        read += 1
        told = [*expected(root)]
        if told and not any(is_like(found, one) for one in told):
            failed[name] = f"{found.num_rows} rows are others than the {told[0].num_rows} expected"
    assert read, "no table was found"
    assert failed == {}


def test_each_table_that_takes_rows_keeps_the_others(tmp_path: Path) -> None:
    """A copy of each gets the rows that it has once more, and loses them again: readers find what they found before."""
    failed = {}
    every = [*tables()]
    for number, root in enumerate(random.Random(5).sample(every, min(60, len(every)))):
        copy = tmp_path / str(number) / "t"
        try:
            shutil.copytree(root, copy)
            table = sw.open(copy).check_writable()
            names = table.schema.names
            before = table.rows(where="true", columns=names)
        except FORESEEN:
            continue
        try:
            if before.num_rows:
                table.append(before.slice(0, 1))
            table.maintain()
            after = sw.open(copy).rows(where="true", columns=names)
            want = rows_of(pa.concat_tables([before, before.slice(0, 1)]), names)
            if rows_of(after, names) != want:
                failed[str(root)] = f"{after.num_rows} rows, {len(want)} expected"
        except sw.NotCommittedError as error:  # such as for a partition value that no reader would find
            if "Nothing was" not in error.message:
                failed[str(root)] = error.message[:300]
        except Exception as error:  # noqa: BLE001 - all of them are told of at once
            failed[str(root)] = f"{type(error).__name__}: {error}"[:300]
        shutil.rmtree(copy.parent)
    assert failed == {}
