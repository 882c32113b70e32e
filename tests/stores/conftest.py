"""Fixtures: databases of both kinds with the two tables in them, one of them behind a relay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from bench.servers.catalogs import Postgres
from safewrite.stores import sql
from tests.stores.relay import Relay
from tests.stores.together import WRITERS

Engines = Callable[..., sa.Engine]


@pytest.fixture
def engines() -> Iterator[Engines]:
    """Makes engines, and disposes of them in the end."""
    made: list[sa.Engine] = []

    def make(uri: str | sa.URL, **settings: Any) -> sa.Engine:
        made.append(sa.create_engine(uri, **settings))
        return made[-1]

    yield make
    for engine in made:
        engine.dispose()


@pytest.fixture(params=["postgres", "sqlite"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new, empty database of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/catalog.db"
    server: Postgres = request.getfixturevalue("postgres")
    return server.database()


@pytest.fixture
def engine(uri: str, engines: Engines) -> sa.Engine:
    """A database of either kind in which the tables are."""
    made = engines(uri, pool_size=WRITERS)
    sql.ensure(made)
    return made


@pytest.fixture
def relay(postgres: Postgres) -> Iterator[Relay]:
    """A relay in front of the PostgreSQL server."""
    made = Relay(postgres.port)
    yield made
    made.close()


@pytest.fixture
def relayed(postgres: Postgres, relay: Relay, engines: Engines) -> sa.Engine:
    """A PostgreSQL database with the tables, over the relay, with one connection open already."""
    made = engines(sa.make_url(postgres.database()).set(port=relay.port))
    sql.ensure(made)
    return made
