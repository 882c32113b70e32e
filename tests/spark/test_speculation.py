"""Two attempts of one task run at once and both write a file: the table has the rows of one of them (E6)."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

import safewrite as sw
from bench.servers.catalogs import CatalogKind, load
from bench.servers.spark import Cluster
from safewrite.testing.faults import FaultKind, RequestStep, Rule
from tests.integration.places import Place, once, visible
from tests.servers import CatalogLab, PlannedProxy
from tests.spark.cluster import Appends

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.long]

ROWS = 8
SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.string())])
CATALOG = "lab"
"""As ``bench.servers.catalogs.load`` calls it: a SQL catalog keeps its tables under its name."""
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.multiplier": "1.1",
}
LATE_S = 40.0
"""How long the store keeps the first attempt waiting: long enough for a second one to be made meanwhile."""
LATE = (r"/part-00000-[^/]*\.parquet$", r"/data/00000-[^/]*\.parquet$")
"""Files of the first task, as Delta and as Iceberg name them."""


def test_the_file_of_a_slow_first_attempt_is_in_no_commit(
    catalog_lab: Callable[[CatalogKind], CatalogLab], bucket: str, dynamodb_table: str, tmp_path: Path
) -> None:
    lab = catalog_lab("sql")
    assert isinstance(lab.proxy, PlannedProxy)
    lab.proxy.plan(*(_slow(pattern) for pattern in LATE))
    place, identifier = _made(lab, bucket, dynamodb_table)
    tables = {
        f"delta.`{place.uri.replace('s3://', 's3a://')}`": functools.partial(
            sw.open, place.uri, lock_table=place.lock_table, storage_options=dict(place.storage_options)
        ),
        f"{CATALOG}.{identifier}": functools.partial(
            sw.open, identifier, catalog={"name": CATALOG, **lab.direct}
        ),
    }
    with Cluster(tmp_path) as cluster:
        application = Appends(
            tmp_path, cluster.master.endpoint_url, tables, ROWS, bucket, lab.proxy.endpoint_url,
            {CATALOG: lab.proxied}, SPECULATION,
        )  # fmt: skip
        receipts, events = application.run()
    # What was counted is what the table has, not what the other attempt made: else the repeat were refused (E5).
    assert [one["outcome"] for one in receipts] == ["committed", "already_committed"] * 2
    assert {(one["rows"], one["files"]) for one in receipts if one["outcome"] == "committed"} == {(ROWS, 2)}
    assert _won_by_the_second(events) >= len(LATE)
    late = _arrived(lab.proxy)

    expected = once(*range(ROWS))
    assert visible([place.ids(), place.replayed_ids()]) == expected
    objects = place.objects()
    written = {path for path in objects if path.endswith(".parquet") and "_delta_log" not in path}
    live = set(place.live(objects))
    assert written - live == {name.rpartition("/")[2] for name in late if "part-00000" in name}
    _check_iceberg(lab, identifier, late, expected)


def _slow(pattern: str) -> Rule:
    return Rule(
        kind=FaultKind.DELAY, steps=(RequestStep.PUT_DATA,), path_regex=pattern, times=1, delay_s=LATE_S
    )


def _made(lab: CatalogLab, bucket: str, dynamodb_table: str) -> tuple[Place, str]:
    """An empty table of each format."""
    endpoint = lab.direct["s3.endpoint"]
    options = lab.proxy.storage_options()
    direct = {name: endpoint if "ENDPOINT" in name else value for name, value in options.items()}
    place = Place(f"s3://{bucket}/delta", "dynamodb", direct, dynamodb_table)
    sw.create(place.uri, SCHEMA, lock_table=place.lock_table, storage_options=direct)
    identifier = f"{lab.namespace}.t"
    sw.create(identifier, SCHEMA, catalog={"name": CATALOG, **lab.direct})
    return place, identifier


def _won_by_the_second(events: list[dict[str, Any]]) -> int:
    """Of how many first tasks a second attempt was begun beside the first, and was the one that came to its end."""
    begun: Counter[tuple[int, bool]] = Counter()
    won: Counter[int] = Counter()
    for event in events:
        info = event.get("Task Info", {})
        if event["Event"] == "SparkListenerTaskStart" and info["Index"] == 0:
            begun[event["Stage ID"], info["Speculative"]] += 1
        elif event["Event"] == "SparkListenerTaskEnd" and info["Index"] == 0 and info["Speculative"]:
            won[event["Stage ID"]] += event["Task End Reason"]["Reason"] == "Success"
    return sum(1 for stage in won if won[stage] and begun[stage, False] and begun[stage, True])


def _arrived(proxy: PlannedProxy) -> list[str]:
    """Wait until the store has the files of the first attempts; their paths."""
    while len(proxy.events()) < len(LATE):
        time.sleep(0.2)
    events = proxy.events()
    assert {event["status"] for event in events} == {200}
    return [event["path"] for event in events]


def _check_iceberg(lab: CatalogLab, identifier: str, late: list[str], expected: Counter[int]) -> None:
    with closing(load(lab.direct)) as catalog:
        table = catalog.load_table(identifier)
        assert Counter(table.scan().to_arrow()["id"].to_pylist()) == expected
        live = {urlsplit(task.file.file_path).path for task in table.scan().plan_files()}
        root = urlsplit(table.location())
    (lost,) = (name for name in late if "/data/00000-" in name)
    assert len(live) == 2
    assert not any(lost.endswith(path) for path in live)
    prefix = f"{root.path.lstrip('/')}/data/"
    s3 = lab.proxy.boto3_client("s3")
    listed = s3.list_objects_v2(Bucket=root.netloc, Prefix=prefix)["Contents"]
    assert {f"/{item['Key']}" for item in listed} - live == {lost.removeprefix(f"/{root.netloc}")}
