"""Fixtures: real servers on loopback, and a fault proxy in front of them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

from bench.catalogs import IcebergRest, Postgres
from bench.servers import Ministack, SeaweedFS, create_lock_table
from bench.stress.proxy import FaultProxy
from safewrite.testing.faults import FaultPlan, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class PlannedProxy(FaultProxy):
    """A fault proxy for tests: ``proxy.plan(Rule(...), ...)`` is the plan from now on."""

    def plan(self, *rules: Rule, seed: int = 0) -> None:
        """Apply ``rules`` from their beginning."""
        self.set_plan(FaultPlan(seed, rules))

    def fired(self) -> int:
        """How many faults there were, of any kind, since the proxy started."""
        return self.counts().total()


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


@pytest.fixture
def fault_proxy(ministack: Ministack, tmp_path: Path) -> Iterator[PlannedProxy]:
    """A proxy in front of ministack, without faults until ``fault_proxy.plan(...)``."""
    with PlannedProxy(ministack.endpoint_url, tmp_path) as proxy:
        yield proxy


@pytest.fixture
def s3(ministack: Ministack) -> Any:
    """A boto3 S3 client that goes straight to ministack, without retries."""
    return ministack.boto3_client("s3")


@pytest.fixture
def dynamodb(ministack: Ministack) -> Any:
    """A boto3 DynamoDB client that goes straight to ministack, without retries."""
    return ministack.boto3_client("dynamodb")
