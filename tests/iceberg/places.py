"""Where an Iceberg table is and how to open it, in this process or another; and two readers that are not the writer."""

from __future__ import annotations

import io
import json
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, get_args

import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestEntryStatus, read_manifest_list
from pyiceberg.table import Table

import safewrite as sw
from bench.servers import catalogs, servers
from bench.servers.catalogs import CatalogKind
from safewrite.iceberg.catalog.files import MemoryFile, MemoryIO
from safewrite.iceberg.catalog.safe_catalog import SafeCatalog
from safewrite.iceberg.table import IcebergTable
from safewrite.iceberg.write import summary
from tests.integration.places import LEASE_S, once, rows
from tests.servers import CatalogLab

KINDS: tuple[CatalogKind, ...] = get_args(CatalogKind)
_catalogs: dict[str, Catalog] = {}


@dataclass(frozen=True)
class Place:
    """Everything that a process needs to open one table."""

    kind: CatalogKind
    properties: Mapping[str, Any]
    name: str
    lock_table: str | None = None

    # --- other ways to it ---------------------------------------------------------------------
    def through(self, lab: CatalogLab, properties: Mapping[str, Any] | None = None) -> Place:
        """The same table by way of the lab's proxies, with further ``properties`` of the catalog."""
        return replace(self, properties={**lab.proxied, **(properties or {})})

    def another(self) -> Place:
        """A place for another table in the same catalog."""
        return replace(self, name=f"{self.name.partition('.')[0]}.t_{uuid.uuid4().hex[:12]}")

    def locked(self, lock_table: str) -> Place:
        """The same table with ledger and queue in DynamoDB."""
        return replace(self, lock_table=lock_table)

    # --- opening --------------------------------------------------------------------------------
    def catalog(self) -> Catalog:
        """PyIceberg's catalog; this process has one for each set of properties."""
        mark = json.dumps(dict(self.properties), sort_keys=True)
        if mark not in _catalogs:
            _catalogs[mark] = catalogs.load(self.properties)
        return _catalogs[mark]

    def open(self, **settings: Any) -> IcebergTable:
        """Open with little patience for queues."""
        settings = {"lease_s": LEASE_S, **settings}
        if self.lock_table is not None:
            options = servers.storage_options(
                self.properties["s3.endpoint"], dynamodb_url=self.properties["s3.endpoint"]
            )
            settings |= {"lock_table": self.lock_table, "storage_options": options}
        table = sw.open(self.name, catalog=self.catalog(), **settings)
        assert isinstance(table, IcebergTable)
        return table

    def create(self, *ids: int, **settings: Any) -> IcebergTable:
        """Open a new table with some rows in it."""
        table = self.open(create=True, **settings)
        table.append(rows(*ids), key="before")
        return table

    def plain(self) -> Table:
        """The table as PyIceberg opens it."""
        return self.catalog().load_table(self.name)

    def safe(self) -> Table:
        """The table as a user of PyIceberg has it from a ``SafeCatalog``."""
        table: Table = SafeCatalog(self.catalog()).load_table(self.name)
        return table

    # --- readers --------------------------------------------------------------------------------
    def ids(self) -> Counter[int]:
        """How often each id is in the table, by PyIceberg's scan."""
        return Counter(self.plain().scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())

    def listed_ids(self) -> Counter[int]:
        """The same by the files that the current snapshot lists, each read whole by pyarrow alone.

        A table with delete files cannot be read so; safewrite makes none.
        """
        found: Counter[int] = Counter()
        for path in self.live():
            found.update(pq.read_table(io.BytesIO(self.object(path)), columns=["id"])["id"].to_pylist())
        return found

    def live(self) -> list[str]:
        """Paths of the data files in the current snapshot; one that is listed twice is an error (C10)."""
        table = self.plain()
        current = table.current_snapshot()
        if current is None:
            return []
        listed = MemoryFile(current.manifest_list, self.object(current.manifest_list)).to_input_file()
        live: list[str] = []
        for manifest in read_manifest_list(listed):
            entries = manifest.fetch_manifest_entry(MemoryIO(self.object(manifest.manifest_path)))
            live += [e.data_file.file_path for e in entries if e.status != ManifestEntryStatus.DELETED]
        assert len(set(live)) == len(live), live
        return live

    def history(self) -> list[str]:
        """The keys of the current snapshot and its ancestors, oldest first; "" where there is none."""
        by_id = {s.snapshot_id: s for s in self.plain().snapshots()}
        at, found = self.plain().current_snapshot(), []
        while at is not None:
            assert at.summary is not None
            found.append(at.summary.additional_properties.get(summary.KEY, ""))
            at = by_id.get(at.parent_snapshot_id) if at.parent_snapshot_id is not None else None
        return found[::-1]

    # --- the store itself -------------------------------------------------------------------------
    def object(self, location: str) -> bytes:
        """One object of the table."""
        bucket, _, key = location.partition("://")[2].partition("/")
        body: bytes = self.s3().get_object(Bucket=bucket, Key=key)["Body"].read()
        return body

    def objects(self) -> set[str]:
        """Locations of all files below the table's own."""
        bucket, _, prefix = self.plain().location().partition("://")[2].partition("/")
        pages = self.s3().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/")
        return {f"s3://{bucket}/{item['Key']}" for page in pages for item in page.get("Contents", ())}

    def s3(self) -> Any:
        """A plain S3 client."""
        return _client("s3", self.properties["s3.endpoint"])


@cache
def _client(service: str, endpoint_url: str) -> Any:
    return servers.boto3_client(service, endpoint_url)


def close_catalogs() -> None:
    """Close what :meth:`Place.catalog` opened."""
    for catalog in _catalogs.values():
        catalog.close()
    _catalogs.clear()


def check(place: Place, *ids: int) -> None:
    """These ids are in the table, each once, whoever reads it, and every snapshot has a key of its own."""
    assert place.ids() == once(*ids)
    assert place.listed_ids() == once(*ids)
    keys = [key for key in place.history() if key]
    assert len(set(keys)) == len(keys), keys
