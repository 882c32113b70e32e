"""Catalogs of every kind behind fault proxies, which the tests of one session share, and places for tables in them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import botocore.retries.standard
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw
from bench.servers.catalogs import CatalogKind
from bench.servers.servers import Ministack, create_lock_table
from safewrite.iceberg.table import IcebergTable
from tests.iceberg import places
from tests.iceberg.branch_tables import rows
from tests.iceberg.places import Place
from tests.integration.children import Nursery
from tests.servers import CatalogLab, new_lab


@pytest.fixture(scope="session")
def labs(
    request: pytest.FixtureRequest, ministack: Ministack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[CatalogKind], CatalogLab]]:
    """``labs("rest")``, ``("glue")`` or ``("sql")``: one lab of each kind for the whole session."""
    bucket = f"labs-{uuid.uuid4().hex[:12]}"
    ministack.boto3_client("s3").create_bucket(Bucket=bucket)
    made: dict[CatalogKind, CatalogLab] = {}
    with ExitStack() as stack:
        stack.callback(places.close_catalogs)

        def lab(kind: CatalogKind) -> CatalogLab:
            if kind not in made:
                run_dir = tmp_path_factory.mktemp(f"lab-{kind}")
                made[kind] = new_lab(
                    kind,
                    request=request,
                    ministack=ministack,
                    bucket=bucket,
                    run_dir=run_dir,
                    stack=stack,
                )
            return made[kind]

        yield lab


@pytest.fixture(params=places.KINDS)
def lab(request: pytest.FixtureRequest, labs: Callable[[CatalogKind], CatalogLab]) -> Iterator[CatalogLab]:
    """A catalog of each kind in turn, without faults when the test begins and when it ends."""
    found = labs(request.param)
    yield found
    found.proxy.clear()
    found.commits.clear()


@pytest.fixture
def place(lab: CatalogLab) -> Place:
    """Where no table has been yet, straight to the servers; ``place.through(lab)`` goes by the proxies."""
    return Place(lab.kind, lab.direct, f"{lab.namespace}.t_{uuid.uuid4().hex[:12]}")


@pytest.fixture(scope="session")
def lock_table(ministack: Ministack) -> str:
    """A lock table that the tables of all tests share."""
    return create_lock_table(ministack.boto3_client("dynamodb"), f"locks-{uuid.uuid4().hex[:12]}")


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Where child processes come from."""
    nursery = Nursery("tests.iceberg.children")
    yield nursery
    nursery.stop()


@pytest.fixture(autouse=True)
def _hasty_aws_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyIceberg's Glue client repeats requests by itself; whether it does matters here, not how long it waits."""
    backoff = botocore.retries.standard.ExponentialBackoff
    monkeypatch.setattr(backoff, "delay_amount", lambda *_: 0.01)


# --- branches, on SQLite ------------------------------------------------------------------------------
@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    made = SqlCatalog("local", uri=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path.as_uri())
    made.create_namespace("db")
    return made


@pytest.fixture
def main(catalog: SqlCatalog) -> IcebergTable:
    """The table on its main branch: rows 1 and 2, and position 1 of source p."""
    made = sw.create("db.t", rows(1).schema, catalog=catalog)
    made.append(rows(1, 2), key="begin", positions={"p": (None, 1)})
    return made
