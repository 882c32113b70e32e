"""The table changes between our open and our append, or asks for what an append must honour (H9)."""

from __future__ import annotations

import json
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from deltalake import schema as ds

import safewrite as sw
from safewrite.testing.steps import At, Recorder
from tests.integration.places import Place, once, rows, visible


@pytest.fixture
def place(s3_place: Place) -> Place:
    """A table of two rows, made by deltalake, on S3."""
    deltalake.write_deltalake(s3_place.uri, rows(1, 2), storage_options=dict(s3_place.storage_options))
    return s3_place


# --- H9: changes under way ---------------------------------------------------------------------------
def add_column(place: Place) -> None:
    place.delta().alter.add_columns([ds.Field("extra", ds.PrimitiveType("string"))])


def set_property(place: Place) -> None:
    place.delta().alter.set_table_properties({"delta.appendOnly": "true"})


def add_constraint(place: Place) -> None:
    """One that safewrite does not evaluate."""
    place.delta().alter.add_constraint({"small": "abs(id) < 100"})


@pytest.mark.sweep("object-store")
def test_a_new_column_is_met_by_refusing_rows_without_it(place: Place) -> None:
    """H9, H1: rows under the old schema would be filled with NULL."""
    table = place.open()
    add_column(place)
    with pytest.raises(sw.WouldAlterError, match="extra") as caught:
        table.append(rows(3), key="event")
    assert caught.value.key in (None, "event")
    assert place.ids() == once(1, 2)
    whole = rows(3).append_column("extra", pa.array(["x"]))
    assert table.append(whole, key="event").outcome == "committed"
    assert table.append(rows(4), key="event-4", schema_mode="merge").outcome == "committed"
    assert place.ids() == once(1, 2, 3, 4)


@pytest.mark.sweep("object-store", "dynamodb-stage.put_data")
@pytest.mark.parametrize("step", ["stage.put_data", "commit.put_commit"])
def test_a_schema_change_in_the_middle_of_our_commit_is_seen(place: Place, step: str) -> None:
    """H9: it takes the version that we were about to take."""
    table = place.open()
    table.world = trap = At(table.world, step, "before", lambda: add_column(place))
    with pytest.raises(sw.WouldAlterError, match="extra"):
        table.append(rows(3), key="event")
    assert trap.reached
    assert visible([place.ids(), place.replayed_ids()]) == once(1, 2)


@pytest.mark.long
def test_a_property_that_forbids_nothing_is_accepted_under_way(place: Place) -> None:
    table = place.open()
    table.world = trap = At(table.world, "commit.put_commit", "before", lambda: set_property(place))
    assert table.append(rows(3), key="event").outcome == "committed"
    assert trap.reached
    assert place.ids() == once(1, 2, 3)


@pytest.mark.sweep("object-store")
def test_a_constraint_added_under_way_stops_the_commit(place: Place) -> None:
    table = place.open()
    table.world = trap = At(table.world, "commit.put_commit", "before", lambda: add_constraint(place))
    with pytest.raises(sw.UnsupportedTableError, match=r"checkConstraints.*small"):
        table.append(rows(3), key="event")
    assert trap.reached
    assert place.ids() == once(1, 2)


@pytest.mark.long
def test_deletes_and_compaction_beside_an_append_disturb_nothing(place: Place) -> None:
    """B5, H9: an append reads nothing, so removed files are no conflict."""
    table = place.open()

    def meanwhile() -> None:
        place.delta().delete("id = 1")
        place.delta().optimize.compact()

    table.world = trap = At(table.world, "commit.put_commit", "before", meanwhile)
    table.append(rows(3), key="event")
    assert trap.reached
    assert visible([place.ids(), place.replayed_ids()]) == once(2, 3)


# --- features ------------------------------------------------------------------------------------------
@pytest.mark.sweep("object-store")
def test_an_append_only_table_takes_appends(place: Place) -> None:
    set_property(place)
    place.open().append(rows(3), key="event")
    assert place.ids() == once(1, 2, 3)


@pytest.mark.sweep("object-store")
def test_a_table_with_a_change_feed_shows_our_rows_in_it(place: Place) -> None:
    place.delta().alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    version = place.open().append(rows(3), key="event").version
    feed = pa.table(place.delta().load_cdf(starting_version=version).read_all())
    assert [(row["id"], row["_change_type"]) for row in feed.to_pylist()] == [(3, "insert")]


@pytest.mark.sweep("object-store")
def test_a_table_with_deletion_vectors_enabled_takes_appends(place: Place) -> None:
    change(place, protocol={"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]})
    place.open().append(rows(3), key="event")
    assert place.replayed_ids() == once(1, 2, 3)


@pytest.mark.sweep("object-store")
def test_rows_go_by_vectors_where_the_table_wants_it(place: Place) -> None:
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    change(place, protocol=features, properties={"delta.enableDeletionVectors": "true"})
    table = place.open()
    table.append(rows(*range(3, 13)), key="event")
    assert table.delete("id in (1, 5)", key="delete").removed_rows == 2
    assert len([path for path in place.objects() if path.endswith(".bin")]) == 1
    assert place.open().delete("id in (5, 7)", key="next").removed_rows == 1
    read = deltalake.QueryBuilder().register("t", place.delta()).execute("SELECT id FROM t ORDER BY id")
    assert pa.table(read.read_all())["id"].to_pylist() == [2, 3, 4, 6, *range(8, 13)]


@pytest.mark.sweep("object-store")
def test_check_constraints_that_are_not_evaluated_are_refused_by_name(place: Place) -> None:
    add_constraint(place)
    refused(place, r"checkConstraints.*small")


@pytest.mark.sweep(
    "object-store", "dynamodb-identityColumns", "dynamodb-rowTracking", "dynamodb-generatedColumns"
)
@pytest.mark.parametrize(
    ("feature", "protocol", "properties", "field"),
    [
        ("columnMapping", {}, {"delta.columnMapping.mode": "name"}, {}),
        ("generatedColumns", {}, {}, {"delta.generationExpression": "abs(id) + 1"}),
        ("identityColumns", {}, {}, {"delta.identity.start": 1, "delta.identity.step": 1}),
        (
            "rowTracking",  # it names no columns for ids
            {"writerFeatures": ["rowTracking", "domainMetadata"]},
            {"delta.enableRowTracking": "true"},
            {},
        ),
        ("madeUpFeature", {"writerFeatures": ["madeUpFeature"]}, {}, {}),
        (
            "catalogManaged",
            {"writerFeatures": ["catalogManaged"], "readerFeatures": ["catalogManaged"]},
            {},
            {},
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name_at_the_first_write_and_under_way(
    place: Place, feature: str, protocol: dict[str, Any], properties: dict[str, str], field: dict[str, Any]
) -> None:
    """B6; what only writers would have to honour does not keep anybody from reading (T4-D4)."""
    table = place.open()
    change(place, protocol=protocol, properties=properties, field=field)
    if feature == "catalogManaged":
        with pytest.raises(sw.UnsupportedTableError, match=feature):
            place.open()
    elif feature != "columnMapping":
        assert place.open().row_count() == 2
        assert table.refresh().rows({"id": [1]}).num_rows == 1
    refused(place, feature)
    with pytest.raises(sw.UnsupportedTableError, match=feature):
        table.append(rows(3), key="event")
    assert not [
        a for actions in place.commits() for a in actions if "safewrite" in json.dumps(a.get("commitInfo"))
    ]


def refused(place: Place, pattern: str) -> None:
    """A first write raises with the feature's name, and nothing is uploaded."""
    before = place.objects()
    with pytest.raises(sw.UnsupportedTableError, match=pattern) as caught:
        place.open().append(rows(9))
    assert caught.value.kind == "unsupported_feature"
    assert place.objects() == before


def change(
    place: Place,
    *,
    protocol: dict[str, Any] | None = None,
    properties: dict[str, str] | None = None,
    field: dict[str, Any] | None = None,
) -> None:
    """Commit new metadata and protocol by hand, as an engine would that has those features."""
    commits = place.commits()
    metadata = next(a["metaData"] for actions in reversed(commits) for a in actions if "metaData" in a)
    metadata["configuration"] |= properties or {}
    schema = json.loads(metadata["schemaString"])
    schema["fields"][0]["metadata"] |= field or {}
    metadata["schemaString"] = json.dumps(schema)
    versions = {"minReaderVersion": 3 if protocol else 2, "minWriterVersion": 7 if protocol else 6}
    actions = [
        {"commitInfo": {"operation": "SET TBLPROPERTIES"}},
        {"protocol": versions | ({"readerFeatures": []} | protocol if protocol else {})},
        {"metaData": metadata},
    ]
    body = "".join(json.dumps(action) + "\n" for action in actions).encode()
    place.put(f"_delta_log/{len(commits):020d}.json", body)


@pytest.mark.sweep("object-store")
def test_a_blind_append_does_not_read_the_file_list(place: Place) -> None:
    """Design, section 7: only protocol, metadata and txn."""
    table = place.open()
    table.world = recorder = Recorder(table.world)
    table.append(rows(3), key="event")
    assert not [step for step in recorder.steps if "checkpoint" in step or "sidecar" in step]
