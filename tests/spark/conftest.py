"""One Spark for the whole test session, and one Iceberg catalog of each kind that it knows."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from bench.catalogs import CatalogKind, catalog_properties
from bench.servers import Ministack
from tests.servers import catalog_uri
from tests.spark.lake import Lake
from tests.spark.session import Spark


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    """Started once: a JVM takes 10 seconds and more. Every test that uses it is in the xdist group ``spark``."""
    with Spark(tmp_path_factory.mktemp("spark")) as session:
        yield session


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
