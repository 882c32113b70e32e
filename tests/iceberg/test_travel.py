"""How an executor opens the table that the driver opened: what travels, what stays, and whose credentials it uses."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from botocore.credentials import Credentials, RefreshableCredentials
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import FileScanTask, Table

from safewrite.iceberg.catalog import addresses
from safewrite.iceberg.catalog.addresses import TableAddress, address_of
from safewrite.iceberg.catalog.effects import ReadRows
from safewrite.iceberg.catalog.lending import LENT_S
from safewrite.iceberg.catalog.world import CatalogWorld
from safewrite.iceberg.metadata import head_of, table_of
from safewrite.protocol.effects import Get, Ok, Put
from tests.iceberg.tables import Warehouse, append, warehouse

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Warehouse]:
    with warehouse(tmp_path) as made:
        yield made


def _there(address: TableAddress | None) -> Any:
    """The table as another process opens it, which has no cache."""
    assert address is not None
    sent = pickle.loads(pickle.dumps(address))
    addresses._opened.cache_clear()
    return sent.open()


def test_another_process_reads_and_writes_the_files(house: Warehouse) -> None:
    table = house.create(SCHEMA, partition_by=["bucket(4, id)"], sort_by=["id"])
    append(table, pa.table({"id": [1, 2, 3], "part": ["a", "b", None]}, schema=SCHEMA))
    table = house.catalog.load_table(table.name())
    address = address_of(head_of(table), house.catalog)
    opened = _there(address)
    there, here = table_of(opened.head).metadata, table.metadata
    assert (there.schema(), there.spec(), there.sort_order()) == (
        here.schema(),
        here.spec(),
        here.sort_order(),
    )
    assert (there.table_uuid, there.location, there.snapshots) == (here.table_uuid, here.location, [])
    task: FileScanTask = next(iter(table.scan().plan_files()))
    assert isinstance(opened.world.perform(ReadRows(opened.head, task, None)), Ok)
    path = table_of(opened.head).location_provider().new_data_location("x.parquet")
    assert isinstance(opened.world.perform(Put(path, b"body")), Ok)
    assert opened.world.perform(Get(path)) == Ok(b"body")
    assert isinstance(address, TableAddress)
    assert address.open() is address.open()


def test_history_stays(house: Warehouse) -> None:
    table = house.create(SCHEMA)
    sizes = []
    for number in range(3):
        append(table, pa.table({"id": [number], "part": ["a"]}, schema=SCHEMA))
        table = house.catalog.load_table(table.name())
        address = address_of(head_of(table), house.catalog)
        assert address is not None
        sizes.append(len(address.metadata))
    assert sizes[2] <= sizes[0] + 10


# --- credentials ------------------------------------------------------------------------------------------
def _on_s3(house: Warehouse, properties: dict[str, str]) -> Table:
    table = house.create(SCHEMA)
    table.metadata = table.metadata.model_copy(update={"location": "s3://bucket/t"})
    table.io = PyArrowFileIO(properties)
    return table


def _session(found: object) -> Any:
    return mock.patch("botocore.session.Session.get_credentials", return_value=found)


def test_storage_settings_travel_and_a_password_stays(house: Warehouse) -> None:
    given = {"uri": "postgresql://u:password@h/db", "credential": "c:s", "s3.access-key-id": "A", "s3.secret-access-key": "B"}  # fmt: skip
    address = address_of(head_of(_on_s3(house, given)), house.catalog)
    assert address is not None
    assert dict(address.properties) == {"s3.access-key-id": "A", "s3.secret-access-key": "B"}
    sent = pickle.dumps(address)
    assert b"password" not in sent
    assert b"c:s" not in sent
    assert "'B'" not in repr(address)


def test_keys_of_this_process_travel_unless_they_run_out(
    house: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "E")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "F")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://s3")
    head = head_of(_on_s3(house, {"s3.region": "eu-west-1"}))
    address = address_of(head, house.catalog)
    assert address is not None
    assert dict(address.properties) == {
        "s3.access-key-id": "E",
        "s3.secret-access-key": "F",
        "s3.endpoint": "http://s3",
        "s3.region": "eu-west-1",
    }
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    assert address_of(head, house.catalog) == address  # an open table stays as it was opened
    head = head_of(_on_s3(house, {"s3.region": "eu-west-1"}))
    with _session(RefreshableCredentials("K", "S", "T", mock.Mock(), dict, "sso")):
        assert address_of(head, house.catalog) is None
    profile = head_of(_on_s3(house, {"s3.profile-name": "other"}))
    config = mock.patch("botocore.session.Session.full_config", {"profiles": {"other": {}}})
    with config, _session(Credentials("K", "S", method="shared-credentials-file")):
        address = address_of(profile, house.catalog)
    assert address is not None
    assert {"s3.access-key-id", "s3.endpoint"} <= {name for name, _ in address.properties}
    assert "s3.profile-name" not in dict(address.properties)


def test_a_catalog_lends_again_before_its_credentials_run_out(house: Warehouse) -> None:
    """The driver's loan serves at first; a task that has its turn later asks the catalog, and not for each request."""
    table = _on_s3(house, {"s3.access-key-id": "first", "s3.session-token": "T"})
    catalog = mock.Mock(spec=RestCatalog, properties={"uri": "http://c", "credential": "c:s"})
    catalog.name = "lending"
    lent = mock.Mock(io=PyArrowFileIO({"s3.access-key-id": "second"}))
    opened = _there(address_of(head_of(table), catalog))
    clock = mock.patch("safewrite.iceberg.catalog.lending.time")
    with clock as time, mock.patch("safewrite.iceberg.catalog.loading.load") as load:
        load.return_value.load_table.return_value = lent
        time.time.return_value = opened.world._loan.begun_s + LENT_S - 1
        opened.world.perform(Get("s3:///"))
        assert table_of(opened.head).io.properties["s3.access-key-id"] == "first"
        time.time.return_value += 2
        for _ in range(3):
            opened.world.perform(Get("s3:///"))
        assert table_of(opened.head).io.properties["s3.access-key-id"] == "second"
        load.assert_called_once_with("lending", uri="http://c", credential="c:s")


def test_a_catalog_lends_again_where_a_write_takes_longer_than_its_credentials_live(house: Warehouse) -> None:
    """Such as one whose tasks took an hour before the manifests are put; a catalog that does not answer is asked once in a while."""
    table = _on_s3(house, {"s3.access-key-id": "first", "s3.session-token": "T"})
    catalog = mock.Mock(spec=RestCatalog, properties={"uri": "http://c", "credential": "c:s"})
    there = CatalogWorld(catalog, ("db", "t"))
    there.table = table
    lent = mock.Mock(io=PyArrowFileIO({"s3.access-key-id": "second"}))
    with (
        mock.patch("safewrite.iceberg.catalog.lending.time") as time,
        mock.patch("safewrite.iceberg.catalog.world.load_table") as load,
    ):
        load.side_effect = [OSError("no answer"), lent]
        begun = there._loan.begun_s
        for passed_s, asked, key in (
            (LENT_S - 1, 0, "first"),
            (LENT_S + 1, 1, "first"),
            (LENT_S + 2, 1, "first"),
            (2 * LENT_S + 2, 2, "second"),
            (2 * LENT_S + 3, 2, "second"),
        ):
            time.time.return_value = begun + passed_s
            there.perform(Get("s3:///"))
            assert (load.call_count, table.io.properties["s3.access-key-id"]) == (asked, key)


def test_one_that_signs_requests_is_asked_at_once(house: Warehouse) -> None:
    table = _on_s3(house, {"s3.signer": "S3V4RestSigner", "uri": "http://c"})
    catalog = mock.Mock(spec=RestCatalog, properties={"uri": "http://c"})
    catalog.name = "signing"
    with mock.patch("safewrite.iceberg.catalog.loading.load") as load:
        opened = _there(address_of(head_of(table), catalog))
        opened.world.perform(Get("s3:///"))
        load.assert_called_once()


def test_a_file_io_that_cannot_be_named_does_not_travel(house: Warehouse) -> None:
    class Own(PyArrowFileIO):
        pass

    table = house.create(SCHEMA)
    table.io = Own({})
    assert address_of(head_of(table), house.catalog) is None
