"""Fixtures: real servers on loopback, and a fault proxy in front of them."""

from __future__ import annotations

import uuid
from collections import Counter
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from bench.servers.catalogs import (
    CatalogKind,
    IcebergRest,
    Postgres,
    catalog_properties,
    load,
)
from bench.servers.servers import Ministack, SeaweedFS, create_lock_table
from bench.stress.proxies.pgproxy import PgProxy
from bench.stress.proxies.proxy import FaultProxy
from safewrite.testing.faults import FaultKind, FaultPlan, RequestStep, Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class PlannedProxy(FaultProxy):
    """A fault proxy for tests: ``proxy.plan(Rule(...), ...)`` is the plan from now on.

    Counts are of the test, if it is one that tests share: :meth:`begin` begins them anew.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._faults_before: Counter[tuple[RequestStep, FaultKind]] = Counter()
        self._requests_before: Counter[RequestStep] = Counter()
        self._failures_before = self._events_before = 0

    def begin(self) -> None:
        """Neither faults nor latency, and counts from zero."""
        self.clear()
        self.set_extra_latency(0.0)
        self._faults_before, self._requests_before = super().counts(), super().requests()
        self._failures_before, self._events_before = super().upstream_failures(), len(super().events())

    def counts(self) -> Counter[tuple[RequestStep, FaultKind]]:
        return super().counts() - self._faults_before

    def requests(self) -> Counter[RequestStep]:
        return super().requests() - self._requests_before

    def upstream_failures(self) -> int:
        return super().upstream_failures() - self._failures_before

    def events(self) -> list[dict[str, Any]]:
        return super().events()[self._events_before :]

    def plan(self, *rules: Rule, seed: int = 0) -> None:
        """Apply ``rules`` from their beginning."""
        self.set_plan(FaultPlan(seed, rules))

    def fired(self) -> int:
        """How many faults there were, of any kind, since the counts began."""
        return self.counts().total()


class PlannedPgProxy(PgProxy):
    """The same in front of PostgreSQL."""

    def plan(self, *rules: Rule, seed: int = 0) -> None:
        """Apply ``rules`` from their beginning."""
        self.set_plan(FaultPlan(seed, rules))

    def fired(self) -> int:
        """How many faults there were, of any kind, since the proxy started."""
        return self.counts().total()


@dataclass(frozen=True)
class CatalogLab:
    """An Iceberg catalog of one kind on ministack's S3, with proxies in front of both.

    ``direct`` and ``proxied`` are PyIceberg's properties for the two ways; ``namespace`` is new and
    empty.  ``proxy`` sees S3 and a catalog that speaks HTTP; ``commits`` is the proxy that sees the
    catalog's commits, the same one or that of PostgreSQL.
    """

    kind: CatalogKind
    direct: dict[str, str]
    proxied: dict[str, str]
    namespace: str
    proxy: PlannedProxy
    commits: PlannedProxy | PlannedPgProxy
    closing: ExitStack

    def load(self, *, proxied: bool = False) -> Any:
        """A PyIceberg catalog of its own; closed when the test ends."""
        return self.closing.enter_context(closing(load(self.proxied if proxied else self.direct)))


def object_at(location: str) -> dict[str, str]:
    """How boto3 names the object of a file."""
    parts = urlsplit(location)
    return {"Bucket": parts.netloc, "Key": parts.path.lstrip("/")}


@pytest.fixture(scope="session")
def ministack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ministack]:
    """S3, DynamoDB, Glue and SQS in one process, for the whole test session."""
    with Ministack(tmp_path_factory.mktemp("ministack")) as server:
        yield server


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFS]:
    """A real S3 store for the whole session; take a prefix of its ``bucket``."""
    with SeaweedFS(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A PostgreSQL for the whole session; take a ``database()`` of it."""
    with Postgres(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture(scope="session")
def iceberg_rest(ministack: Ministack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergRest]:
    """Iceberg's REST catalog on ministack's S3 for the whole session; take a namespace of it."""
    bucket = f"rest-{uuid.uuid4().hex[:12]}"
    ministack.boto3_client("s3").create_bucket(Bucket=bucket)
    run_dir = tmp_path_factory.mktemp("iceberg-rest")
    with IcebergRest(run_dir, s3=ministack, warehouse=f"s3://{bucket}") as server:
        yield server


@pytest.fixture
def bucket(ministack: Ministack) -> str:
    """The name of a new, empty bucket."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    ministack.boto3_client("s3").create_bucket(Bucket=name)
    return name


@pytest.fixture
def dynamodb_table(ministack: Ministack) -> str:
    """The name of a new, empty lock table."""
    return create_lock_table(ministack.boto3_client("dynamodb"), f"locks-{uuid.uuid4().hex[:12]}")


@pytest.fixture(scope="session")
def _shared_proxy(ministack: Ministack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlannedProxy]:
    """One process, and one set of clients to it, for all tests."""
    with PlannedProxy(ministack.endpoint_url, tmp_path_factory.mktemp("proxy")) as proxy:
        yield proxy


@pytest.fixture
def fault_proxy(_shared_proxy: PlannedProxy) -> Iterator[PlannedProxy]:
    """A proxy in front of ministack, without faults until ``fault_proxy.plan(...)``, and after the test."""
    _shared_proxy.begin()
    yield _shared_proxy
    _shared_proxy.begin()


@pytest.fixture
def catalog_lab(
    request: pytest.FixtureRequest, ministack: Ministack, bucket: str, tmp_path: Path
) -> Iterator[Callable[[CatalogKind], CatalogLab]]:
    """``catalog_lab("rest")``, ``("glue")`` or ``("sql")``; the servers start when first asked for."""
    with ExitStack() as stack:

        def lab(kind: CatalogKind) -> CatalogLab:
            return new_lab(
                kind,
                request=request,
                ministack=ministack,
                bucket=bucket,
                run_dir=tmp_path,
                stack=stack,
            )

        yield lab


def new_lab(
    kind: CatalogKind,
    *,
    request: pytest.FixtureRequest,
    ministack: Ministack,
    bucket: str,
    run_dir: Path,
    stack: ExitStack,
) -> CatalogLab:
    """A lab with tables in ``bucket``; its proxies end with ``stack``."""
    uri = catalog_uri(kind, request, ministack)
    upstream = None if kind == "sql" else uri
    http = PlannedProxy(ministack.endpoint_url, run_dir, catalog_upstream=upstream, name=f"{kind}-proxy")
    commits: PlannedProxy | PlannedPgProxy
    commits = proxy = stack.enter_context(http)
    proxied_uri = proxy.endpoint_url
    if kind == "sql":
        commits = stack.enter_context(PlannedPgProxy(uri))
        proxied_uri = commits.through(uri)
    warehouse = f"s3://{bucket}/{kind}"
    direct = catalog_properties(kind, uri=uri, s3_url=ministack.endpoint_url, warehouse=warehouse)
    proxied = catalog_properties(kind, uri=proxied_uri, s3_url=proxy.endpoint_url, warehouse=warehouse)
    namespace = f"ns_{uuid.uuid4().hex[:12]}"
    made = CatalogLab(kind, direct, proxied, namespace, proxy, commits, stack)
    made.load().create_namespace(namespace)
    return made


def catalog_uri(kind: CatalogKind, request: pytest.FixtureRequest, ministack: Ministack) -> str:
    """Where a catalog answers; only now is the server needed that serves it."""
    if kind == "sql":
        postgres: Postgres = request.getfixturevalue("postgres")
        return postgres.database()
    if kind == "rest":
        rest: IcebergRest = request.getfixturevalue("iceberg_rest")
        return rest.uri
    return ministack.endpoint_url


@pytest.fixture
def s3(ministack: Ministack) -> Any:
    """A boto3 S3 client that goes straight to ministack, without retries."""
    return ministack.boto3_client("s3")


@pytest.fixture
def dynamodb(ministack: Ministack) -> Any:
    """A boto3 DynamoDB client that goes straight to ministack, without retries."""
    return ministack.boto3_client("dynamodb")
