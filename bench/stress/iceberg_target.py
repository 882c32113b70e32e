"""Stresses an Iceberg table in one kind of catalog, with proxies in front of catalog and store."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from safewrite.testing.checker import Read
from safewrite.testing.faults import FaultKind, FaultPlan, Rule
from safewrite.testing.history import make_rows

from ..servers import catalogs
from . import iceberg_readers, target
from .plans.plan import ArmPlan, Settings, WriterPlan
from .proxies.pgproxy import STEPS as PG_STEPS
from .proxies.pgproxy import PgProxy
from .proxies.proxy import FaultProxy
from .stage import Stage
from .target import FinalReads, UnreadableTableError, Way
from .writers import common

CATALOG, NAMESPACE = "stress", "stress"
_HTTP_ONLY = (FaultKind.TRUNCATE_BODY, FaultKind.FLIP_BIT)


class IcebergTarget:
    """The table of one arm; see :class:`bench.stress.target.Ground`."""

    def __init__(self, arm: ArmPlan, settings: Settings, stage: Stage, folder: Path) -> None:
        assert arm.catalog is not None
        self.arm = arm
        self.kind = arm.catalog
        self.settings = settings
        self.stage = stage
        self.folder = folder
        self.table = f"{NAMESPACE}.{arm.name.replace('-', '_')}"
        self._uri = stage.catalogs[self.kind]
        self._direct = self._properties(self._uri, stage.cloud.endpoint_url)
        self._catalog: Any = None

    @property
    def catalog(self) -> Any:
        """PyIceberg's catalog, past the proxies."""
        if self._catalog is None:
            from pyiceberg.catalog import load_catalog

            self._catalog = load_catalog(**self._direct)
        return self._catalog

    def _properties(self, uri: str, s3_url: str) -> dict[str, str]:
        warehouse = f"s3://{self.stage.bucket}/{self.kind}"
        properties = catalogs.catalog_properties(self.kind, uri=uri, s3_url=s3_url, warehouse=warehouse)
        # Tables of a SQL catalog are listed under its name, so all writers must use one.
        return {"name": CATALOG, **properties}

    @property
    def _lock_table(self) -> dict[str, str]:
        """The lock table; none for a SQL catalog, whose ledger and queue are in its own database."""
        return {} if self.kind == "sql" else {"lock_table": self.settings.lock_table}

    # --- making ---------------------------------------------------------------------------------
    def rehearse(self) -> dict[str, tuple[str, ...]]:
        import safewrite as sw

        name = self.table + "_rehearsal"
        self._create(name)
        options: dict[str, Any] = {"storage_options": self.stage.cloud.storage_options(), **self._lock_table}
        return target.rehearse(lambda: sw.open(name, catalog=self._direct, **options), schema_mode="merge")

    def create(self) -> None:
        self._create(self.table)

    def _create(self, name: str) -> None:
        """Create the table by safewrite where safewrite is judged, else as a user of PyIceberg does."""
        schema = common.to_arrow(make_rows(0, 0, 0, 1)).schema
        if self.arm.arbiter is None:
            self.catalog.create_namespace_if_not_exists(NAMESPACE)
            self.catalog.create_table(name, schema)
            return
        import safewrite as sw

        options: dict[str, Any] = {"storage_options": self.stage.cloud.storage_options(), **self._lock_table}
        sw.create(name, schema, catalog=self._direct, partition_by=["day"], create_namespace=True, **options)

    # --- ways -------------------------------------------------------------------------------------
    def way(self, stack: contextlib.ExitStack, name: str, rules: Sequence[Rule], seed: int) -> Way:
        options = self.stage.cloud.storage_options()
        if not rules or not self.stage.can_proxy:
            return Way({"catalog": self._direct, "storage_options": options})
        http = FaultProxy(
            self.stage.cloud.endpoint_url,
            self.folder,
            plan=FaultPlan(seed, _of_http(rules) if self.kind == "sql" else tuple(rules)),
            name=name,
            dynamodb_upstream=options.get("AWS_ENDPOINT_URL_DYNAMODB"),
            catalog_upstream=None if self.kind == "sql" else self._uri,
        )
        url = stack.enter_context(http).endpoint_url
        proxies: list[FaultProxy | PgProxy] = [http]
        uri = url
        if self.kind == "sql":
            database = stack.enter_context(PgProxy(self._uri, plan=FaultPlan(seed, _of_database(rules))))
            proxies.append(database)
            uri = database.through(self._uri)
        through = {**options, "AWS_ENDPOINT_URL": url, "AWS_ENDPOINT_URL_DYNAMODB": url}
        return Way({"catalog": self._properties(uri, url), "storage_options": through}, proxies)

    def config(self, writer: WriterPlan, way: Way) -> dict[str, Any]:
        return {"table": self.table, **self._lock_table, **way.settings}

    # --- reading ----------------------------------------------------------------------------------
    def read_now(self) -> Read:
        return iceberg_readers.read_now(self.catalog, self.table)

    def read_all(self, folder: Path) -> FinalReads:
        objects = iceberg_readers.Objects(self.stage.cloud.boto3_client("s3"))
        location = self.catalog.load_table(self.table).metadata_location
        lineage = iceberg_readers.follow(objects, location)
        plain, log = iceberg_readers.read_lineage(objects, lineage)
        try:
            scanned = iceberg_readers.read_pyiceberg(self.catalog, self.table)
        except Exception as error:
            raise UnreadableTableError(f"PyIceberg: {type(error).__name__}: {error}") from error
        reads = [scanned, plain, iceberg_readers.read_duckdb(objects, lineage, folder)]
        if self.settings.spark_reader:
            reads.append(iceberg_readers.read_spark(self._direct, self.table))
        return FinalReads(reads, log, lineage.states, iceberg_readers.repeated_files(lineage))


def _of_database(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """The rules as PostgreSQL's proxy takes them."""
    return _narrowed([rule for rule in rules if rule.kind not in _HTTP_ONLY], database=True)


def _of_http(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """The rules left for the store's proxy, where the catalog has a proxy of its own."""
    return _narrowed(rules, database=False)


def _narrowed(rules: Sequence[Rule], *, database: bool) -> tuple[Rule, ...]:
    """The rules for one proxy's steps; rules for all steps go to both proxies, those that name a method are for HTTP."""
    return tuple(
        replace(rule, steps=steps)
        for rule in rules
        if (steps := tuple(step for step in rule.steps if (step in PG_STEPS and not rule.method) is database))
        or not rule.steps
    )
