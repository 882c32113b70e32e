"""On S3: the same truth, and how much a run without news asks."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from bench.medallion.dms import COLUMNS, Dms, same
from bench.medallion.harness import lab
from bench.servers.servers import Ministack
from safewrite.medallion import Pipeline
from safewrite.medallion.files.storage import storage
from tests.medallion.test_tasks import by_tasks
from tests.servers import CatalogLab, PlannedProxy

REQUESTS_MAX = 5
"""For each table without news, besides one listing and one small document for the whole job."""


def upload(s3: Any, bucket: str, dms: Dms) -> None:
    """Put files as DMS does; those that are there already as they are stay."""
    there = {
        one["Key"]: one["ETag"]
        for one in s3.list_objects_v2(Bucket=bucket, Prefix="raw/").get("Contents", [])
    }
    for path in sorted(dms.root.rglob("*.*")):
        key = f"raw/{path.relative_to(dms.root).as_posix()}"
        if key not in there:
            s3.put_object(Bucket=bucket, Key=key, Body=path.read_bytes())


def config(dms: Dms, bucket: str, options: dict[str, str], **more: Any) -> dict[str, Any]:
    defaults = {"format": "delta", "keys": ["id", "region"], "columns": COLUMNS}
    defaults |= {layer: f"s3://{bucket}/{layer}/{{schema}}/{{table}}" for layer in ("bronze", "silver")}
    defaults |= more.pop("defaults", {})
    found = {
        "job": "shop", "raw": {"location": f"s3://{bucket}/raw"}, "state": f"s3://{bucket}/state",
        "quarantine": f"s3://{bucket}/quarantine", "storage_options": options, "defaults": defaults, "workers": 2,
        "tables": {name: {"files": table.settings()} for name, table in dms.tables.items()},
    }  # fmt: skip
    return found | more


def tell(
    job: dict[str, Any], dms: Dms, s3: Any, bucket: str, made: Callable[[dict[str, Any]], Pipeline] = Pipeline
) -> None:
    """A full load, changes before it and after it, and a run after each; the second by this process alone."""
    for table in dms.tables.values():
        dms.fill(table, 10)
        dms.load(table)
        dms.change(table, 10)
        dms.flush(table)
    for pipeline in (made, Pipeline):
        upload(s3, bucket, dms)
        run = pipeline(job).run()
        assert run.ok, [one.error for one in run.tables]
        for table in dms.tables.values():
            dms.change(table, 10)
            dms.flush(table)
    upload(s3, bucket, dms)
    assert made(job).run().ok


def ask_again(job: dict[str, Any], proxy: PlannedProxy, tables: int) -> None:
    """A run without news in a process that knows nothing: few requests for each table, and no write."""
    before = proxy.requests()
    started_s = time.monotonic()
    run = Pipeline(job).run()
    elapsed_s = time.monotonic() - started_s
    asked = proxy.requests() - before
    assert run.ok
    assert [one.news for one in run.tables] == [False] * tables
    each = (sum(asked.values()) - 2) / tables
    print(f"\nwithout news: {each:.1f} requests and {elapsed_s / tables:.3f} s a table ({dict(asked)})")  # noqa: T201
    assert each <= REQUESTS_MAX
    assert not [step for step in asked if "PUT" in str(step).upper()]


@pytest.mark.sweep("object-store")
@pytest.mark.parametrize("arbiter", ["object-store", "dynamodb"])
def test_delta_on_s3(
    arbiter: str, fault_proxy: PlannedProxy, bucket: str, s3: Any, request: pytest.FixtureRequest
) -> None:
    tmp_path: Path = request.getfixturevalue("tmp_path")
    dms = Dms(tmp_path / "raw", 5, 3)
    how = (
        {"arbiter": arbiter}
        if arbiter == "object-store"
        else {"lock_table": request.getfixturevalue("dynamodb_table")}
    )
    job = config(dms, bucket, fault_proxy.storage_options(), **how)
    tell(job, dms, s3, bucket, by_tasks)
    for name, table in dms.tables.items():
        uri = f"s3://{bucket}/silver/{name.replace('.', '/')}"
        found = deltalake.DeltaTable(uri, storage_options=fault_proxy.storage_options()).to_pyarrow_table()
        assert same(pa.table(found), table.truth) == []
    ask_again(job, fault_proxy, 3)
    written = dms.tables["shop.t00"].written
    path = next(one for one in sorted(written) if "LOAD" not in one)
    s3.put_object(Bucket=bucket, Key=f"raw/{path}", Body=written[path] + b"x")
    run = Pipeline(job).run()
    assert [one.error_kind for one in run.tables] == ["replay_mismatch", None, None]
    s3.put_object(Bucket=bucket, Key=f"raw/{path}", Body=written[path])  # the first content, at another time
    run = Pipeline(job).run()
    assert [(one.error, one.landed.files) for one in run.tables] == [(None, 0)] * 3


@pytest.mark.long
@pytest.mark.parametrize(
    "kind",
    ["glue", pytest.param("rest", marks=pytest.mark.long), pytest.param("sql", marks=pytest.mark.long)],
)
def test_iceberg_in_catalogs(
    kind: str, catalog_lab: Callable[[str], CatalogLab], bucket: str, s3: Any, tmp_path: Path
) -> None:
    """Requests to a SQL catalog's database are not among those that are counted."""
    place = catalog_lab(kind)
    dms = Dms(tmp_path / "raw", 6, 3)
    space = place.namespace
    job = config(
        dms, bucket, place.proxy.storage_options(), catalog=place.proxied | {"name": "lab"}, quarantine=f"{space}.aside",
        quarantine_format="iceberg",
        defaults={"format": "iceberg", "bronze": f"{space}.bronze_{{table}}", "silver": f"{space}.silver_{{table}}"},
    )  # fmt: skip
    tell(job, dms, s3, bucket)
    for name, table in dms.tables.items():
        found = place.load().load_table(f"{space}.silver_{name.split('.')[1]}").scan().to_arrow()
        assert same(found, table.truth) == []
    ask_again(job, place.proxy, 3)


def test_an_object_that_changed_since_it_was_listed_is_not_read(
    bucket: str, ministack: Ministack, s3: Any
) -> None:
    s3.put_object(Bucket=bucket, Key="raw/a.csv", Body=b"first")
    place = storage(f"s3://{bucket}/raw", ministack.storage_options())
    (listed,) = place.files()
    assert place.read(listed) == (b"first", listed.tag)
    assert [place.read_part(listed, start, 3) for start in (0, 3, 5)] == [b"fir", b"st", b""]
    s3.put_object(Bucket=bucket, Key="raw/a.csv", Body=b"other")
    with pytest.raises(Exception, match="no longer what was listed"):
        place.read(listed)
    with pytest.raises(Exception, match="no longer what was listed"):
        place.read_part(listed, 1, 2)
    s3.delete_object(Bucket=bucket, Key="raw/a.csv")
    with pytest.raises(Exception, match="no longer what was listed"):
        place.read(listed)


@pytest.mark.long
def test_eighty_tables_without_news_take_little_time(tmp_path: Path) -> None:
    """The figures are printed; no time is asserted."""
    job = lab(tmp_path, "delta", tables=80)
    job.begin(5)
    job.run()
    started_s = time.monotonic()
    run = job.run()
    print(f"\n80 tables without news: {time.monotonic() - started_s:.2f} s")  # noqa: T201
    assert not any(one.news for one in run.tables)
