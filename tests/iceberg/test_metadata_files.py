"""Metadata files of Glue and SQL catalogs: written and read once each, and PyIceberg's own way where that fails."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog as OpenSqlCatalog
from pyiceberg.table.update import SetPropertiesUpdate

import safewrite as sw
from safewrite.iceberg import SafeCatalog
from safewrite.iceberg.catalog import metadata_files
from safewrite.iceberg.catalog.glue_catalog import GlueCatalog
from safewrite.iceberg.catalog.loading import load
from safewrite.protocol.effects import PROVED, Failed, Missing, Ok, Outcome
from tests.upkeep.test_clocks import clock

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "db.events"
SCHEMA = pa.schema([("id", pa.int64())])


class Store:
    """A store as our own client shows it; ``written`` is what it answers to an upload."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}
        self.reads: list[str] = []
        self.written: Outcome = Ok(PROVED)

    def put(self, path: str, body: bytes) -> Outcome:
        if isinstance(self.written, Ok):
            self.bodies[path] = body
        return self.written

    def get(self, path: str) -> Outcome:
        self.reads.append(path)
        return Ok(self.bodies[path]) if path in self.bodies else Missing()


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    with mock.patch.object(metadata_files, "direct", lambda file_io, location: (made, location)):
        yield made


@pytest.fixture
def properties(tmp_path: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}


def created(properties: dict[str, str]) -> Any:
    catalog = load("lab", **properties)
    catalog.create_namespace("db")
    catalog.create_table(NAME, SCHEMA)
    return catalog


def version_of(catalog: Any) -> str:
    return str(catalog.load_table(NAME).properties.get("version"))


def test_what_was_written_or_read_once_is_not_read_again(store: Store, properties: dict[str, str]) -> None:
    catalog = created(properties)
    catalog.load_table(NAME).transaction().set_properties(version="1").commit_transaction()
    assert version_of(catalog) == "1"
    assert store.reads == []
    other = load("lab", **properties)
    assert [version_of(other), version_of(other)] == ["1", "1"]
    assert len(store.reads) == 1
    other.load_table(NAME).transaction().set_properties(version="2").commit_transaction()
    assert version_of(catalog) == "2", "the catalog says which file is the table's"
    assert store.reads[1:] == [catalog.load_table(NAME).metadata_location]


def test_a_file_whose_upload_did_not_show_its_bytes_is_read_from_the_store(
    store: Store, properties: dict[str, str]
) -> None:
    store.written = Ok()
    catalog = created(properties)
    catalog.load_table(NAME).transaction().set_properties(version="1").commit_transaction()
    assert version_of(catalog) == "1"
    assert store.reads == sorted(store.bodies), "each was read once"


@pytest.mark.parametrize("written", [Failed("denied"), Missing()], ids=["refused", "missing"])
def test_where_our_own_client_is_refused_pyicebergs_way_goes_on(
    store: Store, properties: dict[str, str], written: Outcome
) -> None:
    store.written = written
    catalog = created(properties)
    catalog.load_table(NAME).transaction().set_properties(version="1").commit_transaction()
    assert version_of(catalog) == "1"
    assert Path(catalog.load_table(NAME).metadata_location.removeprefix("file://")).exists()
    assert version_of(OpenSqlCatalog("lab", **properties)) == "1"


def test_the_files_that_were_kept_for_longest_are_forgotten(store: Store, properties: dict[str, str]) -> None:
    catalog = created(properties)
    first = catalog.load_table(NAME).metadata_location
    with mock.patch.object(metadata_files, "KEPT_BYTES_MAX", len(store.bodies[first]) * 3 // 2):
        catalog.load_table(NAME).transaction().set_properties(version="1").commit_transaction()
        assert version_of(catalog) == "1"
        assert store.reads == []
        assert catalog.known_table(("db", "events"), first).properties == {}
        assert store.reads == [first]


# --- one client for Glue catalogs ----------------------------------------------------------------
def glue(**properties: Any) -> Any:
    return GlueCatalog(
        "lab",
        **{
            "glue.region": "eu-central-1",
            "glue.access-key-id": "a",
            "glue.secret-access-key": "b",
            **properties,
        },
    ).glue


def test_glue_catalogs_of_the_same_properties_and_variables_share_a_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = glue()
    assert glue() is first
    assert glue(**{"glue.region": "eu-west-1"}).meta.region_name == "eu-west-1"
    assert GlueCatalog("lab", client=(own := mock.Mock())).glue is own
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", "http://127.0.0.1:1")
    assert glue().meta.endpoint_url == "http://127.0.0.1:1"


def test_a_database_is_asked_once_whether_it_is_one_of_s3_tables_and_only_if_it_has_a_table() -> None:
    client = mock.Mock()
    client.exceptions.EntityNotFoundException = KeyError
    client.get_database.return_value = {"Database": {"FederatedDatabase": {"ConnectionType": "aws:s3tables"}}}
    catalog = GlueCatalog("lab", client=client)
    if not hasattr(super(GlueCatalog, catalog), "_is_s3tables_database"):
        pytest.skip("PyIceberg before 0.12 asks for nothing")
    assert [catalog._is_s3tables_database("db") for _ in range(2)] == [True, True]
    assert client.get_database.call_count == 2
    described = {
        "DatabaseName": "db",
        "Name": "t",
        "Parameters": {"table_type": "ICEBERG", "metadata_location": "s3://b/m"},
    }
    with mock.patch.object(catalog, "known_table") as known:
        assert catalog._convert_glue_to_iceberg(described) is known.return_value
    assert [catalog._is_s3tables_database("db") for _ in range(2)] == [True, True]
    assert client.get_database.call_count == 3


def test_no_change_copies_all_snapshots_and_each_is_written_as_pyiceberg_writes_it(
    properties: dict[str, str],
) -> None:
    """Copies of all snapshots were most of what a commit cost in a table of many."""
    catalog = created(properties)
    theirs = OpenSqlCatalog("lab", **properties)
    rows = pa.table({"id": [1]}, SCHEMA)
    for number in range(3):
        catalog.load_table(NAME).append(rows)
        catalog.load_table(NAME).transaction().set_properties(version=str(number)).commit_transaction()
    first, second = (one.snapshot_id for one in catalog.load_table(NAME).metadata.snapshots[:2])
    catalog.load_table(NAME).manage_snapshots().create_tag(first, "first").commit()
    catalog.load_table(NAME).maintenance.expire_snapshots().by_id(second).commit()
    ours = catalog.load_table(NAME)
    assert ours.metadata == theirs.load_table(NAME).metadata
    assert [len(ours.metadata.snapshots), ours.scan().to_arrow().num_rows] == [2, 3]
    again = catalog.load_table(NAME)
    changed = catalog._update_and_stage_table(
        again, again.name(), (), (SetPropertiesUpdate(updates={"a": "b"}),)
    )
    assert [len({id(one.metadata.snapshots[at]) for one in (again, changed)}) for at in (0, 1)] == [
        1,
        1,
    ]


def test_a_change_after_a_writer_whose_clock_was_ahead_is_of_no_earlier_time(
    properties: dict[str, str],
) -> None:
    """Java's library reads no metadata that is older than its newest snapshot, nor snapshots out of their order: Spark lost the table."""
    catalog = created(properties)
    rows = pa.table({"id": [1]}, SCHEMA)
    with clock(2.0):
        catalog.load_table(NAME).append(rows)
    catalog.load_table(NAME).transaction().set_properties(a="b").commit_transaction()
    changed = catalog.load_table(NAME).metadata
    assert changed.last_updated_ms >= changed.snapshot_log[-1].timestamp_ms


def test_a_snapshot_is_of_no_earlier_time_than_the_one_before_though_a_change_between_was(
    properties: dict[str, str],
) -> None:
    """PyIceberg made the change, by the time of now: a history out of its order stays unreadable for Java's library."""
    created(properties)
    catalog, rows = OpenSqlCatalog("lab", **properties), pa.table({"id": [1]}, SCHEMA)
    with clock(2.0):
        catalog.load_table(NAME).append(rows)
    catalog.load_table(NAME).transaction().set_properties(a="b").commit_transaction()
    sw.open(NAME, catalog=catalog).append(rows)
    times = [one.timestamp_ms for one in catalog.load_table(NAME).metadata.snapshot_log]
    assert times == sorted(times)


def test_an_object_of_pyicebergs_catalog_is_used_as_ours_are_and_stays_as_it_is(
    properties: dict[str, str],
) -> None:
    created(properties)
    given, rows = OpenSqlCatalog("lab", **properties), pa.table({"id": [1]}, SCHEMA)
    before = {**vars(given)}
    with clock(2.0):
        sw.open(NAME, catalog=given).append(rows)
    SafeCatalog(given).load_table(NAME).transaction().set_properties(a="b").commit_transaction()
    changed = given.load_table(NAME).metadata
    assert changed.properties["a"] == "b"
    assert changed.last_updated_ms >= changed.snapshot_log[-1].timestamp_ms
    assert (vars(given), type(given)) == (before, OpenSqlCatalog)
    ours = SafeCatalog(given).inner
    assert (ours.engine, ours) == (given.engine, SafeCatalog(given).inner)


def test_an_object_of_a_users_own_class_is_used_as_it_is(properties: dict[str, str]) -> None:
    class Theirs(OpenSqlCatalog):
        pass

    given = Theirs("lab", **properties)
    assert SafeCatalog(given).inner is given
