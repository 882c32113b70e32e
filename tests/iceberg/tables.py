"""Iceberg tables on local disk, to which PyIceberg itself adds what the code under test encoded."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.sorting import SortOrder

from safewrite.frames.prepare import prepare
from safewrite.iceberg.data import partitions
from safewrite.iceberg.data.datafiles import StagedFile, encode
from safewrite.iceberg.data.schema import arrow_schema, iceberg_schema

_numbers = itertools.count()


@dataclass(frozen=True)
class Warehouse:
    """A SQLite catalog with its files in one folder."""

    catalog: SqlCatalog

    def create(
        self,
        schema: Schema | pa.Schema,
        *,
        partition_by: Sequence[str] | PartitionSpec = (),
        sort_by: Sequence[str] | SortOrder = (),
        properties: Mapping[str, str] | None = None,
    ) -> Table:
        """A new table."""
        iceberg = iceberg_schema(schema) if isinstance(schema, pa.Schema) else schema
        return self.catalog.create_table(
            f"db.t{next(_numbers)}",
            iceberg,
            partition_spec=partitions.spec(partition_by, iceberg),
            sort_order=partitions.sort(sort_by, iceberg),
            properties=dict(properties or {}),
        )


@contextmanager
def warehouse(folder: Path) -> Iterator[Warehouse]:
    """A warehouse in ``folder``; its connections are closed in the end."""
    catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())
    catalog.create_namespace("db")
    try:
        yield Warehouse(catalog)
    finally:
        catalog.engine.dispose()


def staged(table: Table, data: object, **options: Any) -> list[StagedFile]:
    """What ``data`` is encoded to for ``table``."""
    metadata = table.metadata
    location = load_location_provider(metadata.location, metadata.properties)
    prepared = prepare(data, arrow_schema(metadata.schema()))
    settings = {"write_id": f"w{next(_numbers)}", "target_file_size": 2**27} | options
    return list(encode(prepared, metadata=metadata, location=location, **settings))


def append(table: Table, data: object, **options: Any) -> list[StagedFile]:
    """Encode ``data``, store the files, and let PyIceberg commit them."""
    files = staged(table, data, **options)
    for file in files:
        path = local(file.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.body)
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as snapshot:
        for file in files:
            snapshot.append_data_file(file.data_file)
    table.refresh()
    return files


def read(table: Table, row_filter: BooleanExpression = AlwaysTrue()) -> pa.Table:  # noqa: B008 - immutable
    """The rows that PyIceberg finds, by ``id``."""
    return table.scan(row_filter).to_arrow().sort_by("id")


def local(path: str) -> Path:
    """Where a file of the warehouse is on disk: PyIceberg does not decode its names."""
    return Path(path.removeprefix("file://"))
