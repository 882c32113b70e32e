"""What doctor finds in Iceberg tables that something was done to, by the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import SnapshotLogEntry

import safewrite
from safewrite.errors import UnsafeConfigError
from safewrite.findings import Finding
from safewrite.iceberg.connect import Connection
from safewrite.iceberg.maintenance import doctor
from safewrite.iceberg.metadata import head_of
from safewrite.iceberg.opening import check_table
from safewrite.iceberg.retention import KEEP
from safewrite.iceberg.write.summary import KEY
from tests.iceberg.command_line import (
    NAME,
    Place,
    current,
    data_files,
    data_files_at,
    ids,
    path_of,
    put_metadata,
    set_properties,
    sqlite_place,
)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with sqlite_place(tmp_path) as here:
        yield here


def test_a_destroyed_table_is_a_danger_and_the_advice_leads_back(place: Place) -> None:
    orders = place.open()
    whole = orders.version
    orders.append(ids(4, 5), key="event-3")
    new = set(data_files(place.table())) - set(data_files_at(place, whole))
    for path in new:
        path.unlink()
    code, answer = place.json("doctor")
    assert code == 1
    (finding,) = answer["findings"]
    assert (finding["code"], finding["details"]["whole_snapshot"]) == ("files_missing", whole)
    assert [path_of(path) for path in finding["details"]["missing"]] == list(new)
    assert finding["details"]["keys_since"] == ["event-3"]
    assert f"manage_snapshots().rollback_to_snapshot({whole}).commit()" in finding["mend"]
    assert f"system.rollback_to_snapshot('{NAME}', {whole})" in finding["mend"]

    orders.refresh().iceberg.manage_snapshots().rollback_to_snapshot(whole).commit()
    assert list(place.findings("--deep")) == ["rolled_back_keys"]
    place.open().append(ids(4, 5), key="event-3")
    assert place.findings("--deep") == {}
    assert sorted(place.table().scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 4, 5]


def test_keys_of_snapshots_that_older_metadata_does_not_have_are_found_until_they_are_written_again(
    place: Place,
) -> None:
    """It was registered, as doctor advises where the newest is gone, or a catalog was restored; the ledger answered for lost rows (E9)."""
    before = place.table().metadata_location
    place.open().append(ids(4), key="event-3")
    place.open().append(ids(5), key="event-4")
    assert place.findings() == {}
    place.catalog.drop_table(NAME)
    place.catalog.register_table(NAME, before)
    found = place.findings()["set_back"]
    assert (found["severity"], found["details"]) == ("danger", {"keys": ["event-3", "event-4"], "count": 2})
    assert place.open().append(ids(4), key="event-3").outcome == "committed"
    assert place.findings()["set_back"]["details"]["keys"] == ["event-4"]
    assert place.open().append(ids(5), key="event-4").outcome == "committed"
    assert place.findings() == {}
    assert sorted(place.table().scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 4, 5]


def test_a_manifest_list_that_a_cleaning_writer_deleted_is_found(place: Place) -> None:
    before = place.open().version
    place.open().append(ids(4), key="event-3")
    lost = current(place.table()).manifest_list
    path_of(lost).unlink()
    details = place.findings()["files_missing"]["details"]
    assert (details["manifests_missing"], details["whole_snapshot"]) == ([lost], before)


def test_a_manifest_that_is_garbled_is_found_and_so_is_one_that_is_gone(place: Place) -> None:
    table = place.table()
    newest, oldest = (path_of(m.manifest_path) for m in current(table).manifests(table.io))
    newest.write_bytes(newest.read_bytes()[:50])
    oldest.unlink()
    finding = place.findings()["files_missing"]
    assert [len(finding["details"][name]) for name in ("manifests_garbled", "manifests_missing")] == [1, 1]
    assert finding["details"]["whole_snapshot"] is None
    assert "None of the last" in finding["mend"]


def test_a_data_file_of_another_size_is_found(place: Place) -> None:
    with data_files(place.table())[0].open("ab") as file:
        file.write(b"more")
    details = place.findings()["files_missing"]["details"]
    assert (len(details["changed"]), details["missing"]) == (1, [])


def test_only_deep_looks_for_every_data_file(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safewrite.iceberg.maintenance.missing_files.SAMPLE", 1)
    first = min(data_files(place.table()), key=lambda path: path.stat().st_mtime_ns)
    first.unlink()
    assert place.findings() == {}
    assert "files_missing" in place.findings("--deep")


def test_a_metadata_file_that_is_gone_is_a_danger(place: Place) -> None:
    path_of(place.table().metadata_location).unlink()
    code, answer = place.json("doctor")
    assert (code, [finding["code"] for finding in answer["findings"]]) == (1, ["metadata_missing"])


def test_data_files_that_are_added_twice_are_found(place: Place) -> None:
    table = place.table()
    (path, *_) = table.inspect.files()["file_path"].to_pylist()
    table.add_files([path], check_duplicate_files=False)
    found = place.findings()
    assert found["file_added_twice"]["severity"] == "danger"
    assert list(found["file_added_twice"]["details"]["files"]) == [path]


def test_a_key_in_two_snapshots_is_found(place: Place) -> None:
    place.table().append(ids(1, 2), snapshot_properties={KEY: "event-1", "safewrite.rows": "2"})
    found = place.findings()
    assert list(found["key_committed_twice"]["details"]["keys"]) == ["event-1"]


def test_times_that_go_back_are_found(place: Place) -> None:
    def go_back(metadata: Any) -> Any:
        *earlier, last = metadata.snapshot_log
        first = SnapshotLogEntry(snapshot_id=earlier[0].snapshot_id, timestamp_ms=last.timestamp_ms + 61_000)
        return metadata.model_copy(update={"snapshot_log": [first, last]})

    put_metadata(place, go_back)
    finding = place.findings()["times_go_back"]
    assert finding["severity"] == "danger"
    assert finding["details"] == {"log": "snapshot-log", "back_ms": finding["details"]["back_ms"]}
    assert finding["details"]["back_ms"] >= 61_000


def test_times_that_go_back_by_less_than_a_minute_are_fine(place: Place) -> None:
    def go_back(metadata: Any) -> Any:
        *earlier, last = metadata.snapshot_log
        first = SnapshotLogEntry(snapshot_id=earlier[0].snapshot_id, timestamp_ms=last.timestamp_ms + 50_000)
        return metadata.model_copy(update={"snapshot_log": [first, last]})

    put_metadata(place, go_back)
    assert place.findings() == {}


def test_writers_without_keys_are_worth_knowing_and_no_danger(place: Place) -> None:
    place.table().append(ids(9))
    place.table().append(ids(10), snapshot_properties={"engine-name": "spark", "engine-version": "4.0.1"})
    code, answer = place.json("doctor")
    (finding,) = answer["findings"]
    assert (code, finding["code"], finding["severity"]) == (0, "other_writers", "info")
    assert finding["details"]["engines"]["spark 4.0.1"] == 1


def test_few_previous_metadata_files_are_a_warning_where_older_ones_are_deleted(place: Place) -> None:
    name = "write.metadata.delete-after-commit.enabled"
    set_properties(place, {"write.metadata.previous-versions-max": "5", name: "false"})
    assert place.findings()["few_previous_versions"]["severity"] == "info"
    set_properties(place, {name: "true"})
    assert place.findings()["few_previous_versions"]["severity"] == "warning"


def test_many_small_manifests_are_worth_knowing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safewrite.iceberg.maintenance.missing_files.MANIFESTS", 1)
    assert place.findings()["many_manifests"]["severity"] == "info"


def test_a_first_format_table_is_worth_knowing(place: Place) -> None:
    place.catalog.create_table("db.old", ids().schema, properties={"format-version": "1"})
    place.name = "db.old"
    assert list(place.findings()) == ["format_v1"]


# --- without a ledger, and in catalogs that do not compare -------------------------------------------
class Stranger:
    """A catalog of a kind that safewrite does not know, over one that it does."""

    def __init__(self, inner: Catalog) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class NoopCatalog(Stranger):
    """Of a kind that is known not to compare."""


class Agreeable(Stranger):
    """Commits whatever it is asked to, whatever the table is."""

    def commit_table(self, *_: Any) -> None:
        return


def unknown(place: Place, catalog: Any = None) -> Connection:
    return Connection(catalog or Stranger(place.catalog), "other", ("db", "orders"))


def examined(place: Place, catalog: Any = None, **how: bool) -> dict[str, Finding]:
    """Doctor's findings on the table of a catalog without a ledger."""
    return {finding.code: finding for finding in doctor.examine(unknown(place, catalog), **how).findings}


@pytest.mark.parametrize(
    ("kept", "code", "severity"),
    [
        ("1000", "retention_too_short", "danger"),
        (str(14 * 24 * 3600 * 1000 - 1), "retention_too_short", "danger"),
        ("5 days", "unreadable_retention", "danger"),
    ],
)
def test_without_a_ledger_too_short_a_retention_is_a_danger(
    place: Place, kept: str, code: str, severity: str
) -> None:
    assert examined(place) == {}
    set_properties(place, {KEEP: kept})
    (finding,) = examined(place).values()
    assert (finding.code, finding.severity) == (code, severity)
    assert "repair --set-retention" in finding.mend
    assert place.findings() == {}  # the same table with its SQL catalog's ledger
    with pytest.raises(UnsafeConfigError, match="14 days"):
        check_table(unknown(place), head_of(place.table()), strict=False)


def test_without_a_ledger_an_unset_retention_is_a_warning(place: Place) -> None:
    with place.table().transaction() as transaction:
        transaction.remove_properties(KEEP)
    assert examined(place)["retention_unset"].severity == "warning"


def test_a_branch_that_keeps_its_snapshots_for_less_than_the_table_is_found(place: Place) -> None:
    def keep_less(metadata: Any) -> Any:
        main = metadata.refs["main"].model_copy(update={"max_snapshot_age_ms": 1000})
        assert isinstance(main, SnapshotRef)
        return metadata.model_copy(update={"refs": {"main": main}})

    put_metadata(place, keep_less)
    assert "REPLACE BRANCH main" in examined(place)["retention_too_short"].mend
    code, done = place.json("repair", "--set-retention")
    assert (code, [step["status"] for step in done["steps"]]) == (1, ["failed"])


def test_a_catalog_that_does_not_compare_is_a_danger(place: Place) -> None:
    assert examined(place, NoopCatalog(place.catalog))["dishonest_catalog"].severity == "danger"


def test_a_catalog_that_accepts_what_it_must_refuse_is_found_by_a_probe(place: Place) -> None:
    assert examined(place, Agreeable(place.catalog)) == {}
    assert examined(place, Agreeable(place.catalog), probe=True)["dishonest_catalog"].severity == "danger"
    assert examined(place, probe=True) == {}


def test_a_table_within_another_ones_folder_is_told(place: Place) -> None:
    """T4-A13: a clean-up of the outer one's folder takes its files; a folder that is called metadata is none."""
    outer = place.open()
    catalog = outer.iceberg.catalog
    for name, folder, found in (
        ("db.inner", f"{outer.iceberg.location()}/a/inner", [outer.iceberg.location()]),
        ("db.other", f"{outer.iceberg.location()}-2/metadata/other", []),
        ("db.third", f"{outer.iceberg.location()}-2/b/third", []),
    ):
        inner = safewrite.create(name, ids(1).schema, catalog=catalog, location=folder, create_namespace=True)
        told = doctor.examine(inner._format.connection).findings
        assert [one.details["outer"] for one in told if one.code == "table_within"] == found
    assert "table_within" not in {one.code for one in doctor.examine(outer._format.connection).findings}
