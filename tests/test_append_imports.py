"""A new process imports for its first append what stands in a list, and nothing else: a cold start pays for each module."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import safewrite as sw
from bench.servers import servers

if TYPE_CHECKING:
    from bench.servers.servers import Ministack

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).parent / "append_imports.txt"
NEVER = {
    "boto3", "botocore.client", "botocore.session", "difflib", "pandas", "pyarrow.compute", "safewrite.cli", "safewrite.spark",
    "safewrite.stores.local", "safewrite.stores.lock_watch", "safewrite.stores.probe", "safewrite.stores.sql", "safewrite.testing",
    "sqlite3",
}  # fmt: skip
"""What one call in a hundred needs, or none: imported where it is used."""
FRAME = """
import datetime as dt, decimal
import pyarrow as pa
frame = pa.table({
    "id": [1, 2], "number": [0.5, None], "text": ["a", None], "yes": [True, False], "day": [dt.date(2026, 1, 1)] * 2,
    "at": pa.array([dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)] * 2, pa.timestamp("us", "UTC")),
    "price": [decimal.Decimal("1.25")] * 2, "list": [[1, 2], []], "struct": [{"a": "x"}, {"a": None}],
    "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
})
"""
"""Columns of many kinds.  No list, map or struct is NULL: pyarrow itself imports its compute to mask one."""
PROGRAM = """
import sys

class NoPandas:  # as in the Lambda layer: where pandas is installed pyarrow imports it
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "pandas":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, NoPandas)
import safewrite as sw
# FRAME

uri, lock_table = sys.argv[1:]
arbiter = {"lock_table": lock_table} if lock_table else {"arbiter": "object-store"}
sw.open(uri, **arbiter).append(frame, key="event-1")
for name, module in list(sys.modules.items()):
    print(name, "site-packages" in (getattr(module, "__file__", None) or ""))
""".replace("# FRAME", FRAME)


def imported_by(uri: str, lock_table: str, options: dict[str, str]) -> set[str]:
    """Names of what a process imports that opens a table and appends once, settings in its environment as in Lambda."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        "HOME": "/nowhere",
        **options,
    }
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, uri, lock_table],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    modules = dict(line.split() for line in ran.stdout.splitlines())
    assert NEVER & modules.keys() == set()
    return {
        _named(name)
        for name, is_installed in modules.items()
        if is_installed == "True" or name.startswith("safewrite")
    }


def _named(module: str) -> str:
    """How a module is listed: botocore's by their names, ours by their folder, and others by their package, for they vary by version."""
    if module.startswith("botocore."):
        return module
    if module.startswith("safewrite."):
        is_folder = (ROOT / module.replace(".", "/")).is_dir()
        return module if is_folder else module.rpartition(".")[0]
    return module.partition(".")[0]


@pytest.mark.parametrize("arbiter", ["object-store", "lock-table"])
def test_an_append_imports_what_is_listed(
    arbiter: str, ministack: Ministack, bucket: str, dynamodb_table: str
) -> None:
    options = servers.storage_options(ministack.endpoint_url, dynamodb_url=ministack.endpoint_url)
    uri = f"s3://{bucket}/{uuid.uuid4().hex}"
    settings = {"lock_table": dynamodb_table} if arbiter == "lock-table" else {"arbiter": "object-store"}
    made: dict[str, pa.Table] = {}
    exec(FRAME, made)
    sw.create(uri, schema=made["frame"].schema, storage_options=options, **settings)  # type: ignore[arg-type]
    listed = {
        words[0]: words[1:]
        for words in (line.split() for line in LIST.read_text().splitlines())
        if words and words[0] != "#"
    }
    wanted = {name for name, only in listed.items() if only in ([], [arbiter])}
    found = imported_by(uri, dynamodb_table if arbiter == "lock-table" else "", options)
    assert sorted(found - wanted) == [], (
        "import it where it is used, or list it with its reason in the commit"
    )
    assert sorted(wanted - found) == [], "take it out of the list"
