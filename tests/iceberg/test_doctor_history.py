"""What doctor finds in Iceberg tables that earlier versions of safewrite, or other writers, left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform, IdentityTransform, VoidTransform

import safewrite as sw
from safewrite.iceberg.data import manifests
from safewrite.iceberg.data.schema import iceberg_schema
from safewrite.iceberg.write.members import MEMBER_KEYS, MEMBERS
from safewrite.iceberg.write.summary import KEY
from safewrite.protocol.members import hashed
from tests.iceberg.command_line import NAME, Place, current, ids, put_metadata, set_properties, sqlite_place
from tests.iceberg.test_foreign_tables import cherry_pick

KEPT = {"history.expire.max-snapshot-age-ms": str(30 * 24 * 3600 * 1000)}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with sqlite_place(tmp_path) as here:
        yield here


# --- partitions ---------------------------------------------------------------------------------------
def partitioned(
    place: Place, column: pa.Field, values: list[Any], transform: Any = None, version: int = 2
) -> Any:
    """Another table, by PyIceberg, partitioned by its second column."""
    schema = iceberg_schema(pa.schema([pa.field("id", pa.int64()), column]))
    spec = PartitionSpec(PartitionField(2, 1000, transform or IdentityTransform(), column.name + "_"))
    place.name = "db.parts"
    table = place.catalog.create_table(
        place.name, schema, partition_spec=spec, properties={"format-version": str(version), **KEPT}
    )
    if values:
        table.append(pa.table({"id": range(len(values)), column.name: pa.array(values, column.type)}))
    return table


FIXED = pa.field("c", pa.binary(4))
KINDS: dict[str, tuple[pa.Field, list[Any], str]] = {
    "fixed": (FIXED, [b"\x06xyz"], "danger"),
    "double": (pa.field("c", pa.float64()), [0.1], "warning"),
    "uuid": (pa.field("c", pa.uuid()), [], "warning"),  # PyIceberg writes none
}


@pytest.mark.sweep("fixed")
@pytest.mark.parametrize("kind", KINDS)
def test_partition_values_that_some_engine_misreads_are_found(place: Place, kind: str) -> None:
    column, values, severity = KINDS[kind]
    partitioned(place, column, values)
    finding = place.findings()["misread_partitions"]
    assert finding["severity"] == severity
    assert (finding["details"]["field"], finding["details"]["manifests"]) == ("c_", len(values))
    assert kind in finding["message"]
    assert "bucket(16, c_)" in finding["mend"]
    assert ("with PyIceberg (table.scan().to_arrow())" in finding["mend"]) is (kind == "fixed")


def test_what_java_wrote_into_fixed_partitions_is_no_danger(place: Place) -> None:
    table = partitioned(place, FIXED, [])
    assert place.findings()["misread_partitions"]["severity"] == "warning"
    data = pa.table({"id": [1], "c": pa.array([b"abcd"], FIXED.type)})
    table.append(data, snapshot_properties={"engine-name": "spark", "engine-version": "4.0.1"})
    finding = place.findings()["misread_partitions"]
    assert (finding["severity"], finding["details"]["manifests"]) == ("warning", 1)


@pytest.mark.parametrize("transform", [BucketTransform(4), VoidTransform()])
def test_other_partitions_of_such_columns_are_sound(place: Place, transform: Any) -> None:
    partitioned(place, FIXED, [], transform)
    place.open().append(pa.table({"id": [1], "c": pa.array([b"\x06xyz"], FIXED.type)}), key="event-1")
    assert place.findings("--deep") == {}


def dropped(place: Place) -> Any:
    """A table whose partition column was dropped, with a file of the old partitioning."""
    table = partitioned(place, pa.field("gone", pa.string()), ["a", "b"], version=1)
    with table.update_spec() as update:
        update.remove_field("gone_")
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("gone")
    return sw.open(place.name, catalog=place.catalog)


@pytest.mark.long
def test_manifests_of_a_dropped_partition_column_that_nobody_can_read_are_found(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = dropped(place)
    table.append(ids(7), key="good")
    assert sorted(place.findings("--deep")) == ["format_v1", "other_writers"]
    whole = table.version
    monkeypatch.setattr(manifests, "typed", lambda spec, metadata: spec)  # as it was before
    table.append(ids(8), key="event-9")
    found = place.findings()
    assert found["untyped_partitions"]["severity"] == "danger"
    assert found["untyped_partitions"]["details"]["fields"] == ["gone_"]
    assert found["files_missing"]["details"]["whole_snapshot"] == whole
    assert found["files_missing"]["details"]["keys_since"] == ["event-9"]


def test_a_dropped_partition_column_of_which_no_schema_tells_is_found(place: Place) -> None:
    dropped(place)
    assert "lost_partition_type" not in place.findings()

    def forget(metadata: Any) -> Any:
        return metadata.model_copy(update={"schemas": [metadata.schema()]})

    put_metadata(place, forget)
    finding = place.findings()["lost_partition_type"]
    assert (finding["severity"], finding["details"]["fields"]) == ("warning", ["gone_"])
    with pytest.raises(sw.UnsupportedTableError, match="gone_"):
        sw.open(place.name, catalog=place.catalog).delete("id = 0")


# --- cherry-picks -------------------------------------------------------------------------------------
def rolled_back(place: Place) -> int:
    """A keyed write that was rolled back, with another one after it; returns its snapshot."""
    table = place.open()
    before = table.version
    picked: int = table.append(ids(4), key="event-3").version
    with place.table().manage_snapshots() as manage:
        manage.rollback_to_snapshot(before)
    place.open().append(ids(5), key="event-4")
    return picked


def pick(place: Place, snapshot: int) -> None:
    cherry_pick(place.catalog, snapshot, NAME)  # type: ignore[arg-type]


def test_a_cherry_picked_write_is_in_the_table_and_no_other_writers(place: Place) -> None:
    picked = rolled_back(place)
    assert list(place.findings()) == ["rolled_back_keys"]
    pick(place, picked)
    assert place.findings("--deep") == {}


def test_a_key_that_was_written_again_and_cherry_picked_is_in_the_table_twice(place: Place) -> None:
    picked = rolled_back(place)
    place.open().append(ids(4), key="event-3")
    pick(place, picked)
    assert sorted(place.table().scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 4, 4, 5]
    code, answer = place.json("doctor")
    assert (code, answer["findings"][0]["code"]) == (1, "key_cherry_picked_twice")
    assert list(answer["findings"][0]["details"]["keys"]) == ["event-3"]


def test_a_key_that_was_written_again_after_a_cherry_pick_is_found_too(place: Place) -> None:
    """What safewrite did before: the key of a cherry-picked write was not known."""
    pick(place, rolled_back(place))
    place.table().append(ids(4), snapshot_properties={KEY: "event-3", "safewrite.rows": "1"})
    assert "key_cherry_picked_twice" in place.findings()
    assert "key_committed_twice" not in place.findings()


# --- long lists ---------------------------------------------------------------------------------------
def long_group(place: Place, first: int = 0) -> int:
    """A group whose summary has only the hashes of its keys; returns its snapshot."""
    members = [(f"event-{number}", ids(number)) for number in range(first + 1000, first + 1100)]
    answers = place.open().append_many(members)
    assert {one.outcome for one in answers} == {sw.Outcome.COMMITTED}
    return int(answers[0].version)


def test_a_key_of_a_long_list_that_stands_by_itself_too_is_found_and_named(place: Place) -> None:
    group = long_group(place)
    place.table().append(ids(1050), snapshot_properties={KEY: "event-1050", "safewrite.rows": "1"})
    again = current(place.table()).snapshot_id
    finding = place.findings()["key_committed_twice"]
    assert finding["details"] == {
        "keys": {"event-1050": [again, group]},
        "count": 1,
    }


def test_keys_of_two_long_lists_are_found_by_their_hashes(place: Place) -> None:
    long_group(place)
    listed = current(place.table()).summary.additional_properties[MEMBER_KEYS]
    more = {"safewrite.rows": "100", MEMBERS: '{"count": 100, "in": "manifest-list"}', MEMBER_KEYS: listed}
    place.table().append(ids(7), snapshot_properties=more)
    details = place.findings()["key_committed_twice"]["details"]
    assert details["count"] == 100
    assert f"sha256:{hashed('event-1000')}" in details["keys"]


@pytest.mark.long
def test_a_long_list_that_was_rolled_back_and_written_again_in_parts_is_whole(place: Place) -> None:
    before = place.open().version
    long_group(place)
    with place.table().manage_snapshots() as manage:
        manage.rollback_to_snapshot(before)
    finding = place.findings()["rolled_back_keys"]
    assert finding["details"]["count"] == 100
    place.open().append(ids(1000), key="event-1000")
    place.open().append_many([(f"event-{number}", ids(number)) for number in range(1001, 1100)])
    assert "rolled_back_keys" not in place.findings()


# --- write, audit, publish ----------------------------------------------------------------------------
def test_writes_past_the_audit_of_a_table_are_worth_knowing(place: Place) -> None:
    set_properties(place, {"write.wap.enabled": "false"})
    assert place.findings() == {}
    set_properties(place, {"write.wap.enabled": "true"})
    finding = place.findings()["wap_passed_over"]
    assert (finding["severity"], sorted(finding["details"]["keys"])) == ("info", ["event-1", "event-2"])


def test_staged_snapshots_that_nobody_published_are_worth_knowing(place: Place) -> None:
    place.table().append(ids(6), snapshot_properties={"wap.id": "audit-1"})
    staged = current(place.table()).snapshot_id
    assert list(place.findings()) == ["other_writers"]
    with place.table().manage_snapshots() as manage:
        manage.rollback_to_snapshot(current(place.table()).parent_snapshot_id or 0)
    finding = place.findings()["wap_unpublished"]
    assert (finding["severity"], finding["details"]["snapshots"]) == ("info", {str(staged): "audit-1"})
    assert "publish_changes('db.orders'" in finding["mend"]
    place.table().append(ids(6), snapshot_properties={"published-wap-id": "audit-1"})
    assert "wap_unpublished" not in place.findings()
