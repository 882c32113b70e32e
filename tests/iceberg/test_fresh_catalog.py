"""A fleet that comes to a catalog whose database is empty: each opens it, and none is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from sqlalchemy.exc import OperationalError

import safewrite as sw
from bench.servers.catalogs import Postgres
from safewrite.iceberg import connect

FLEET = 8


@pytest.mark.long
@pytest.mark.parametrize("database", ["postgres", "sqlite"])
def test_a_fleet_opens_one_table_in_a_fresh_database_at_once(
    database: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """PyIceberg looks for its tables and then makes them: between the two, another may have made them."""
    uri = f"sqlite:///{tmp_path}/catalog.db"
    if database == "postgres":
        postgres: Postgres = request.getfixturevalue("postgres")
        uri = postgres.database()
    catalog = {"type": "sql", "uri": uri, "warehouse": tmp_path.as_uri()}
    ready = Barrier(FLEET)

    def work(number: int) -> str:
        ready.wait()
        table = sw.open("db.orders", catalog=catalog, create=True)
        return str(table.append([{"id": number}], key=f"event-{number}").outcome)

    with ThreadPoolExecutor(FLEET) as pool:
        assert list(pool.map(work, range(FLEET))) == ["committed"] * FLEET
    found = sw.open("db.orders", catalog=catalog).iceberg.scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == list(range(FLEET))


def test_a_catalog_that_cannot_be_loaded_for_another_reason_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []

    def load() -> None:
        calls.append(1)
        raise OperationalError("SELECT 1", {}, Exception("connection refused"))

    with pytest.raises(OperationalError):
        connect._loaded(load)
    assert len(calls) == 1
