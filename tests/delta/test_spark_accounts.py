"""T3-E1, T3-E2: what Delta's library tells of an overwrite is compared with the table's log; no Java runs here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.delta.log.replay import load_files
from safewrite.delta.spark.transaction import SparkTransaction
from safewrite.delta.write.transaction import Write
from safewrite.errors import InternalError, StorageError
from safewrite.protocol.accounts import check_read
from safewrite.stores.world import run

ROWS = 1000


@pytest.fixture
def table(tmp_path: Path) -> Any:
    """Two files, of 1,000 rows and of 3."""
    table = sw.create(tmp_path / "t", pa.schema([("id", pa.int64())]))
    for count in (ROWS, 3):
        table.append(pa.table({"id": range(count)}))
    return table


def body_of(table: Any, removes: list[int], added: list[int], **metrics: int) -> bytes:
    """A commit as Delta's library makes it; ``removes`` are files by their numbers of rows."""
    live = run(load_files(table._format._state, limits=table.limits), table.world).adds
    paths = {json.loads(add["stats"])["numRecords"]: add["path"] for add in live.values()}
    told = {name: str(number) for name, number in metrics.items()}
    info = {"readVersion": table.version, "operation": "WRITE", "operationMetrics": told}
    lines: list[dict[str, Any]] = [{"commitInfo": info}]
    lines += [{"remove": {"path": paths[rows], "dataChange": True}} for rows in removes]
    stats = [json.dumps({"numRecords": rows}) for rows in added]
    lines += [{"add": {"path": f"new-{at}.parquet", "stats": one}} for at, one in enumerate(stats)]
    return "\n".join(json.dumps(line, separators=(",", ":")) for line in lines).encode()


def account(table: Any, body: bytes, *, whole: bool) -> None:
    write = Write("k", "v1:1:0", 1, fingerprint_int63=1)
    made = SparkTransaction(
        commit_id="c", write=write, timestamp_ms=0, limits=table.limits, state=table._format._state, exact=whole, mode="Overwrite"
    )  # fmt: skip
    run(made.account(body), table.world)


def test_an_overwrite_of_some_rows_must_have_read_all_rows_of_the_files_that_it_replaces(table: Any) -> None:
    sound = body_of(table, [ROWS], [1, ROWS - 1], numDeletedRows=1, numCopiedRows=ROWS - 1)
    account(table, sound, whole=False)
    account(table, body_of(table, [ROWS], [1], numDeletedRows=ROWS, numCopiedRows=0), whole=False)
    account(
        table, body_of(table, [ROWS], [1, 5]), whole=False
    )  # Delta tells nothing of partitions that go whole
    skipped = body_of(table, [ROWS], [1, 99], numDeletedRows=1, numCopiedRows=99)
    with pytest.raises(StorageError, match=r"1000 rows are in the files.*100 could be read"):
        account(table, skipped, whole=False)


def test_an_overwrite_of_everything_must_remove_every_file(table: Any) -> None:
    account(table, body_of(table, [ROWS, 3], [1]), whole=True)
    for removes in ([ROWS], []):
        with pytest.raises(InternalError, match=f"remove {len(removes)} files, and the table has 2"):
            account(table, body_of(table, removes, [1]), whole=True)


def test_more_rows_may_be_read_than_there_are_and_never_fewer() -> None:
    """Spark runs a task again where an executor is lost, and counts its rows twice."""
    check_read(5, 5)
    check_read(6, 5)
    check_read(0, None)
    with pytest.raises(StorageError, match="Call again"):
        check_read(4, 5)
