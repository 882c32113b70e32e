"""T3-D12: docs/lambda.md lists every permission that the calls need: the requests of each are recorded and compared."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import botocore.client
import pyarrow as pa
import pytest

import safewrite as sw
from bench.servers.servers import Ministack
from tests.servers import CatalogLab
from tests.test_cli import run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "lambda.md"
SCHEMA = pa.schema([("id", pa.int64())])
IAM = {
    "ListObjectsV2": "ListBucket", "HeadObject": "GetObject", "HeadBucket": "ListBucket", "DeleteObjects": "DeleteObject",
    "GetBucketLifecycleConfiguration": "GetLifecycleConfiguration",
    "CreateMultipartUpload": "PutObject", "UploadPart": "PutObject", "CompleteMultipartUpload": "PutObject",
}  # fmt: skip
"""IAM's names of requests that have others."""


def documented(row: str, *, always: bool = False) -> set[str]:
    """The actions in a row of the page's table, as ``service:Action``; a name without a service has that before it.

    ``always``: only those before the first semicolon of the last cell.
    """
    (line,) = re.findall(rf"^\| {re.escape(row)} \|(.*)$", PAGE.read_text(), re.MULTILINE)
    cells, found = line.split(" | "), set()
    if always:
        cells[-1] = cells[-1].partition(";")[0]
    for cell, first in zip(cells, ("s3", "dynamodb"), strict=False):
        service = first
        for named, action in re.findall(r"`(?:(\w+):)?([A-Z]\w+)`", cell):
            service = named or service
            found.add(f"{service}:{action}")
    return found


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What botocore's clients ask for from now on."""
    found: set[str] = set()
    really = botocore.client.BaseClient._make_api_call  # type: ignore[attr-defined]

    def noted(client: Any, operation: str, given: Any) -> Any:
        # A transaction needs the rights of what it holds: Get, Put, Update, Delete, ConditionCheck.
        inner = {f"{kind}Item" for item in given.get("TransactItems", ()) for kind in item}
        service = client.meta.service_model.service_name
        found.update(f"{service}:{one}" for one in inner or {IAM.get(operation, operation)})
        return really(client, operation, given)

    monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", noted)
    return found


@pytest.mark.long
def test_t3_d12_the_calls_of_a_delta_writer_and_of_doctor_are_on_the_page(
    ministack: Ministack,
    bucket: str,
    dynamodb_table: str,
    recorded: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options, uri = ministack.storage_options(), f"s3://{bucket}/t"
    sw.create(uri, SCHEMA, lock_table=dynamodb_table, storage_options=options)
    recorded.clear()
    table = sw.open(uri, lock_table=dynamodb_table, storage_options=options)
    table.append_many([(f"k{number}", [{"id": number}]) for number in range(3)])
    table.overwrite([{"id": 1}], where="id = 1", key="o")
    assert sw.open(uri, lock_table=dynamodb_table, storage_options=options).resolve("k1") is not None
    assert recorded <= documented("writes Delta, DynamoDB arbiter")
    recorded.clear()
    for name, value in options.items():
        monkeypatch.setenv(name, value)
    run("doctor", uri, "--lock-table", dynamodb_table)
    assert "s3:GetLifecycleConfiguration" in recorded
    assert recorded <= documented("`safewrite doctor`")


@pytest.mark.sweep("True")
@pytest.mark.parametrize("create", [False, True])
def test_t3_d12_the_calls_of_a_writer_on_glue_are_on_the_page(
    catalog_lab: Callable[[str], CatalogLab], recorded: set[str], create: bool
) -> None:
    """The page lacked ``glue:GetDatabase``, and the probe made and deleted a table in the user's database."""
    lab = catalog_lab("glue")
    name, namespace = f"t_{uuid.uuid4().hex[:8]}", f"new_{uuid.uuid4().hex[:8]}" if create else lab.namespace
    recorded.clear()
    table = sw.create(f"{namespace}.{name}", SCHEMA, catalog=lab.direct, create_namespace=create)
    made = {one for one in recorded if one.startswith("glue:")}
    table.append([{"id": 1}], key="k")
    recorded.clear()
    again = sw.open(f"{namespace}.{name}", catalog=lab.direct)
    again.append([{"id": 2}], key="l")
    again.delete("id = 1")
    writes = {one for one in recorded if one.startswith("glue:")}
    # An emulator is probed, by a table that is made and deleted; AWS's own Glue is not.
    assert writes - {"glue:CreateTable", "glue:DeleteTable"} <= documented(
        "writes Iceberg on Glue", always=True
    )
    assert made - {"glue:DeleteTable"} <= documented("writes Iceberg on Glue")
    assert ("glue:CreateDatabase" in made) is create
