"""Describes an Iceberg table so that another process, such as an executor of Spark, reads and writes its files too."""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from safewrite.engine.settings_sent import travelling
from safewrite.iceberg.catalog.lending import ACCESS_KEYS, Loan, lends
from safewrite.iceberg.catalog.metadata_v3 import dumped
from safewrite.iceberg.catalog.s3 import direct
from safewrite.iceberg.catalog.world import FilesWorld
from safewrite.iceberg.data.opaque import opaque_types
from safewrite.iceberg.metadata import head_of, table_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

    from safewrite.protocol.effects import Effect, Outcome
    from safewrite.protocol.iceberg.head import TableVersion

_PLACES = ("s3.", "client.", "adls.", "gcs.", "hdfs.", "hf.")
"""Properties of PyIceberg's own FileIOs.  Others of a catalog, such as its password, stay where they are."""
_IN_S3 = {
    "AWS_ACCESS_KEY_ID": "s3.access-key-id",
    "AWS_SECRET_ACCESS_KEY": "s3.secret-access-key",
    "AWS_SESSION_TOKEN": "s3.session-token",
    "AWS_DEFAULT_REGION": "s3.region",
    "AWS_REGION": "s3.region",
    "AWS_ENDPOINT_URL": "s3.endpoint",
    "AWS_ENDPOINT_URL_S3": "s3.endpoint",
}
"""What botocore finds, and the property that says the same; of two for one property the last counts."""
_PROFILES = ("s3.profile-name", "client.profile-name")
TABLES_MAX = 64


@dataclass(frozen=True)
class TableAddress:
    """A version of a table without its history, and how its files are reached; picklable."""

    identifier: tuple[str, ...]
    location: str
    metadata: str = field(repr=False)
    file_io: tuple[str, str]
    """The module and the name of the FileIO's class."""
    properties: tuple[tuple[str, str], ...] = field(repr=False)
    lender: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    """The properties of a catalog that lends credentials: they may run out before a task has its turn."""
    lent_s: float = 0.0
    """The time of the last loan."""

    def open(self) -> OpenedTable:
        """The table in this process."""
        return _opened(self, os.getpid())


@dataclass(frozen=True)
class OpenedTable:
    """A version of a table that another process described.

    ``head`` has no snapshots: which files a task reads, its plan says.  ``world`` reads and writes files, and commits nothing.
    """

    head: TableVersion
    world: FilesWorld


class _BorrowingWorld(FilesWorld):
    """Lets the catalog lend credentials again, where the last ones are old."""

    def __init__(self, table: Table, address: TableAddress) -> None:
        super().__init__(table, address.identifier)
        self._lender, self._loan = address.lender, Loan(address.lent_s)
        self._borrowing = threading.Lock()

    def perform(self, effect: Effect) -> Outcome:
        if self._lender is not None:
            with self._borrowing:
                if self._loan.is_old:
                    self._borrow(dict(self._lender))
        return super().perform(effect)

    def _borrow(self, lender: dict[str, Any]) -> None:
        from safewrite.iceberg.catalog.loading import load

        assert self.table is not None
        catalog = load(str(lender.pop("name")), **lender)
        with opaque_types():
            self.table.io = catalog.load_table(self.table.name()).io
        self._loan = Loan()


def address_of(head: TableVersion, catalog: Catalog) -> TableAddress | None:
    """Describe a version of a table; None where another process cannot reach its files as this one does."""
    table = table_of(head)
    cls = type(table.io)
    if "<" in cls.__qualname__:
        return None
    lent = lends(catalog, table.io.properties)
    properties = _travelling(table, cls, lent=lent)
    if properties is None:
        return None
    return TableAddress(
        tuple(table.name()),
        table.metadata_location,
        _without_history(table),
        (cls.__module__, cls.__qualname__),
        tuple(sorted(properties.items())),
        {"name": catalog.name, **catalog.properties} if lent else None,
        time.time() if lent and "s3.signer" not in properties else 0.0,
    )


def _travelling(table: Table, cls: type, *, lent: bool) -> dict[str, str] | None:
    """The FileIO's properties, and what of this process another one may lack; None where its credentials cannot be sent."""
    texts = {name: value for name, value in table.io.properties.items() if isinstance(value, str)}
    if not cls.__module__.startswith("pyiceberg."):
        return texts
    found = {name: value for name, value in texts.items() if name.startswith(_PLACES)}
    is_s3 = table.location().partition("://")[0] in ("s3", "s3a", "s3n")
    if not is_s3 or lent or any(name in found for name in ACCESS_KEYS) or found.get("s3.anonymous") == "true":
        return found
    profile = next((found.pop(name) for name in _PROFILES if name in found), None)
    reached = direct(table.io, f"{table.location().rstrip('/')}/data")
    own = travelling({} if profile is None else {"AWS_PROFILE": profile}, reached and reached[0].client)
    if own is None:
        return None
    return {_IN_S3[name]: own[name] for name in _IN_S3 if name in own} | found


def _without_history(table: Table) -> str:
    """The metadata as JSON.  Snapshots, which may be many, are the plan's affair."""
    nothing: dict[str, Any] = {
        "snapshots": [],
        "refs": {},
        "snapshot_log": [],
        "metadata_log": [],
        "statistics": [],
        "partition_statistics": [],
        "current_snapshot_id": None,
    }
    return dumped(table.metadata.model_copy(update=nothing))


def _file_io(address: TableAddress) -> FileIO:
    module, name = address.file_io
    made: FileIO = getattr(importlib.import_module(module), name)(dict(address.properties))
    return made


@lru_cache(maxsize=TABLES_MAX)
def _opened(address: TableAddress, process: int) -> OpenedTable:
    """Kept for the tasks to come: a forked child makes its own, for connections are its parent's."""
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadataUtil

    with opaque_types():
        metadata = TableMetadataUtil.parse_raw(address.metadata)
    table = Table(address.identifier, metadata, address.location, _file_io(address), None)  # type: ignore[arg-type]
    return OpenedTable(head_of(table), _BorrowingWorld(table, address))
