"""Sets up where Iceberg tables are compared: catalog, S3 and lock table, near and by a slower way."""

from __future__ import annotations

import contextlib
import uuid
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeAlias

from safewrite.testing.faults import FaultKind, FaultPlan, Rule

from ..servers import servers
from ..servers.catalogs import IcebergRest, Postgres, catalog_properties, load
from ..stress.proxies.pgproxy import PgProxy
from ..stress.proxies.proxy import FaultProxy
from .iceberg_writers import Place

Catalog: TypeAlias = Literal["sql", "rest", "glue"]

_NAMESPACE, _BUCKET, _LOCK_TABLE = "bench", "iceberg", "locks"


class IcebergHarness:
    """One catalog on loopback with S3 and DynamoDB; a context manager.

    ``delay_s`` is held back before each request of the slow way; a statement to PostgreSQL is one. The REST
    catalog's own requests to S3 are not slowed down: such a service lives next to its store.
    """

    def __init__(self, folder: Path | str, catalog: Catalog, *, delay_s: float = 0.03) -> None:
        self.folder = Path(folder).resolve()
        self.catalog = catalog
        self._delay_s = delay_s
        self._stack = contextlib.ExitStack()
        self._proxy: FaultProxy | None = None
        self._database_proxy: PgProxy | None = None
        self._cloud: servers.Ministack | None = None
        self._uri = ""

    def place(self, name: str, *, slow: bool = False) -> Place:
        """A place for a new table."""
        assert self._cloud is not None
        s3_url = self.proxy.endpoint_url if slow else self._cloud.endpoint_url
        warehouse = f"s3://{_BUCKET}/{self.catalog}"
        properties = catalog_properties(
            self.catalog, uri=self._catalog_uri(slow=slow), s3_url=s3_url, warehouse=warehouse
        )
        table = f"{_NAMESPACE}.{name.replace(' ', '_')}_{uuid.uuid4().hex[:8]}"
        return Place(table, properties, _LOCK_TABLE, servers.storage_options(s3_url, dynamodb_url=s3_url))

    @property
    def proxy(self) -> FaultProxy:
        """The slow way to all that speaks HTTP, which also counts requests; started when first asked for."""
        if self._proxy is None:
            assert self._cloud is not None
            self._proxy = self._stack.enter_context(
                FaultProxy(
                    self._cloud.endpoint_url,
                    self.folder,
                    catalog_upstream=self._uri if self.catalog == "rest" else None,
                    extra_latency_s=self._delay_s,
                )
            )
        return self._proxy

    def requests(self) -> Counter[str]:
        """Requests that took the slow way so far, by what they are for; PostgreSQL's under ``sql``."""
        found = Counter({str(step): count for step, count in self.proxy.requests().items()})
        if self._database_proxy is not None:
            found["sql"] = self._database_proxy.requests().total()
        return found

    def _catalog_uri(self, *, slow: bool) -> str:
        if not slow:
            return self._uri
        if self.catalog != "sql":
            return self.proxy.endpoint_url
        if self._database_proxy is None:
            late = FaultPlan(rules=(Rule(kind=FaultKind.DELAY, delay_s=self._delay_s),))
            self._database_proxy = self._stack.enter_context(PgProxy(self._uri, plan=late))
        return self._database_proxy.through(self._uri)

    def _start_catalog(self) -> str:
        assert self._cloud is not None
        if self.catalog == "sql":
            return self._stack.enter_context(Postgres(self.folder)).database()
        if self.catalog == "rest":
            warehouse = f"s3://{_BUCKET}/rest"
            # On PostgreSQL, for the catalog's own SQLite refuses concurrent commits.
            database = self._stack.enter_context(Postgres(self.folder)).jdbc_database()
            rest = IcebergRest(self.folder, s3=self._cloud, warehouse=warehouse, jdbc_uri=database)
            return self._stack.enter_context(rest).uri
        return self._cloud.endpoint_url

    def __enter__(self) -> Self:
        self._cloud = self._stack.enter_context(servers.Ministack(self.folder))
        self._cloud.boto3_client("s3").create_bucket(Bucket=_BUCKET)
        self._uri = self._start_catalog()
        catalog = load(self.place("any").properties)
        catalog.create_namespace(_NAMESPACE)
        catalog.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
