"""One Spark for the whole test session, and one Iceberg catalog of each kind that it knows."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from bench.servers.catalogs import CatalogKind, catalog_properties
from bench.servers.kafka import Kafka
from bench.servers.servers import Ministack, create_lock_table
from tests.integration.places import Place
from tests.servers import PlannedProxy, catalog_uri
from tests.spark.hooked import HookedTable
from tests.spark.lake import Lake
from tests.spark.session import Spark


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    """Started once: a JVM takes 10 seconds and more. Tests that use it go to one worker (tests/conftest.py)."""
    with Spark(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A cluster for all tests; take a topic of it."""
    with Kafka(tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture(scope="session")
def lakes(
    request: pytest.FixtureRequest, spark: Spark, ministack: Ministack
) -> Iterator[Callable[[CatalogKind], Lake]]:
    """``lakes("rest")``, ``("glue")`` or ``("sql")``; a server starts when its kind is first asked for."""
    known: dict[CatalogKind, Lake] = {}
    with ExitStack() as stack:

        def lake(kind: CatalogKind) -> Lake:
            if kind not in known:
                known[kind] = _made(kind, request, spark, ministack, stack)
            return known[kind]

        yield lake


@pytest.fixture(scope="session")
def shore(spark: Spark, ministack: Ministack) -> tuple[str, str]:
    """A bucket that Spark finds, and a lock table, for the Delta tables of all tests."""
    bucket = f"spark-delta-{uuid.uuid4().hex[:8]}"
    ministack.boto3_client("s3").create_bucket(Bucket=bucket)
    spark.reach(bucket, ministack.endpoint_url)
    return bucket, create_lock_table(ministack.boto3_client("dynamodb"), f"locks-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def hooked(
    spark: Spark, ministack: Ministack, shore: tuple[str, str], fault_proxy: PlannedProxy
) -> Callable[[str], HookedTable]:
    """``hooked("dynamodb")``, ``("object-store")``: where no table has been yet; Spark's commits go by the proxy."""
    bucket, lock_table = shore

    def make(arbiter: str) -> HookedTable:
        locks = lock_table if arbiter == "dynamodb" else None
        place = Place(f"s3://{bucket}/{uuid.uuid4().hex[:8]}", arbiter, ministack.storage_options(), locks)
        return HookedTable(spark, place, fault_proxy)

    return make


def _made(
    kind: CatalogKind, request: pytest.FixtureRequest, spark: Spark, ministack: Ministack, stack: ExitStack
) -> Lake:
    name = f"{kind}_{uuid.uuid4().hex[:8]}"
    bucket = f"spark-{kind}-{uuid.uuid4().hex[:8]}"
    ministack.boto3_client("s3").create_bucket(Bucket=bucket)
    uri = catalog_uri(kind, request, ministack)
    properties = catalog_properties(
        kind, uri=uri, s3_url=ministack.endpoint_url, warehouse=f"s3://{bucket}/lake"
    )
    made = Lake(kind, name, properties, f"ns_{uuid.uuid4().hex[:8]}", spark, stack)
    made.load().create_namespace(made.namespace)
    spark.know(name, properties)
    return made
