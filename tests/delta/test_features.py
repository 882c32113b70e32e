"""Which tables are written to: every feature is honoured or refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.delta.log import properties
from safewrite.delta.log.features import (
    check_append,
    check_overwrite,
    check_retention,
    features,
    interval_s,
)
from safewrite.delta.log.snapshot import Snapshot
from safewrite.errors import InvalidInputError, Kind, StorageError, UnsafeConfigError, UnsupportedTableError
from tests.delta.logs import metadata

DAY_S = 86400


def state(
    *names: str,
    reader: int = 1,
    writer: int = 7,
    properties: dict[str, str] | None = None,
    column: dict[str, Any] | None = None,
    kind: Any = "long",
) -> Snapshot:
    """A table with these features, properties, and metadata on its one column."""
    protocol: dict[str, Any] = {"minReaderVersion": reader, "minWriterVersion": writer}
    if writer == 7:
        protocol["writerFeatures"] = list(names)
    if reader == 3:
        protocol["readerFeatures"] = list(names)
    columns = [{"name": "n", "type": kind, "nullable": True, "metadata": column or {}}]
    return Snapshot(3, protocol, metadata(properties=properties, columns=columns)["metaData"])


def refusal(table: Snapshot) -> str:
    with pytest.raises(UnsupportedTableError) as caught:
        check_append(table)
    assert caught.value.kind is Kind.UNSUPPORTED_FEATURE
    with pytest.raises(UnsupportedTableError):
        check_overwrite(table)
    return str(caught.value)


@pytest.mark.parametrize("writer", [1, 2, 3, 4, 5, 6])
def test_a_plain_table_of_every_legacy_version_is_fine(writer):
    check_append(state(writer=writer, reader=2 if writer >= 5 else 1))
    check_overwrite(state(writer=writer))


def test_legacy_versions_imply_features():
    assert features(state(writer=1)) == set()
    assert features(state(writer=2)) == {"appendOnly", "invariants"}
    assert features(state(writer=4)) == {
        "appendOnly",
        "invariants",
        "checkConstraints",
        "changeDataFeed",
        "generatedColumns",
    }
    assert features(state(writer=6)) >= {"columnMapping", "identityColumns"}
    assert features(state("appendOnly")) == {"appendOnly"}
    assert features(state(reader=2, writer=2)) >= {"columnMapping"}


@pytest.mark.parametrize(("reader", "writer"), [(4, 7), (1, 8), (9, 9)])
def test_newer_protocol_versions_are_refused(reader, writer):
    assert "newer than" in refusal(state(reader=reader, writer=writer))


def test_an_unknown_feature_is_refused_by_name():
    assert "rowsMustRhyme" in refusal(state("appendOnly", "rowsMustRhyme"))
    message = refusal(state("b2", "a1"))
    assert "a1" in message
    assert "b2" in message


def test_a_feature_that_only_readers_list_is_not_overlooked():
    table = state(reader=3)
    table.protocol["readerFeatures"] = ["novelReading"]
    assert "novelReading" in refusal(table)


@pytest.mark.parametrize(
    "name",
    [
        "adaptiveMetadata-preview",
        "icebergWriterCompatV1",
        "catalogManaged",
        "catalogOwned-preview",
        "coordinatedCommits-preview",
        "managedCommit-dev",
    ],
)
def test_features_that_are_not_honoured_are_refused_by_name(name):
    """B6 among them: commits of a catalog-managed table must not go round its catalog."""
    message = refusal(state(name, reader=3))
    assert f"{name}: " in message
    assert "does not know" not in message, "the reason is given"


def test_a_commit_coordinator_in_the_properties_is_refused_whatever_the_protocol_says():
    """B6."""
    key = "delta.coordinatedCommits.commitCoordinator-preview"
    assert "coordinatedCommits" in refusal(state(properties={key: "dynamodb"}))


@pytest.mark.parametrize(
    "name",
    [
        "appendOnly",
        "changeDataFeed",
        "deletionVectors",
        "domainMetadata",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "clustering",
        "vacuumProtocolCheck",
        "invariants",
        "checkConstraints",
        "generatedColumns",
        "identityColumns",
        "allowColumnDefaults",
        "columnMapping",
        "inCommitTimestamp",
        "rowTracking",
        "checkpointProtection",
        "icebergCompatV1",
        "icebergCompatV2",
        "icebergCompatV3",
        "variantType",
        "variantType-preview",
        "variantShredding",
        "variantShredding-preview",
    ],
)
def test_features_that_are_honoured_or_not_in_use_are_fine(name):
    names = (name, *["domainMetadata"] * (name == "rowTracking"))
    check_append(state(*names, reader=3))
    check_overwrite(state(*names, reader=3))


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        ("variant", "n"),
        ({"type": "array", "elementType": "variant", "containsNull": True}, "n.elementType"),
        (
            {"type": "map", "keyType": "string", "valueType": "variant", "valueContainsNull": True},
            "n.valueType",
        ),
        (
            {
                "type": "struct",
                "fields": [{"name": "a", "type": "variant", "nullable": True, "metadata": {}}],
            },
            "n.a",
        ),
    ],
)
def test_a_table_is_judged_by_its_variant_columns_and_not_by_the_feature(kind, where):
    """T3-A9: deltalake lists variantType in every table that it makes with deletion vectors.

    Rows do without the column where it may be NULL.
    """
    for found in (state("variantType", reader=3, kind=kind), state(kind=kind)):  # listed or not
        check_append(found)
        check_overwrite(found)
    needed = state(kind=kind)
    schema = json.loads(needed.schema_string)
    schema["fields"][0]["nullable"] = False
    needed = replace(needed, metadata={**needed.metadata, "schemaString": json.dumps(schema)})
    assert f"must be there ({where})" in refusal(needed)


def test_rows_without_a_variant_column_are_appended_and_have_null_there(tmp_path):
    root = tmp_path / "t"
    sw.open(root, create=True).append([{"id": 1, "v": "a"}], key="first")
    log = root / "_delta_log"
    meta = json.loads((log / f"{0:020d}.json").read_text().splitlines()[2])["metaData"]
    schema = json.loads(meta["schemaString"])
    schema["fields"].append({"name": "x", "type": "variant", "nullable": True, "metadata": {}})
    changed = {"metaData": {**meta, "schemaString": json.dumps(schema)}}
    (log / f"{1:020d}.json").write_text(json.dumps(changed) + "\n")
    table = sw.open(root).check_writable()
    receipt = table.append([{"id": 2, "v": "b"}], key="more")
    assert table.append([{"id": 2, "v": "b"}], key="more").version == receipt.version
    table.append([{"id": 3, "v": "c", "n": 1}], schema_mode="merge")
    table.append_many([("a", [{"id": 4, "v": "d", "n": 2}]), ("b", [{"id": 5, "v": "e", "n": 2}])])
    table.checkpoint()
    found = sw.open(root).rows({"id": [*range(9)]}, columns=["id", "v", "n"]).to_pylist()
    assert sorted((one["id"], one["n"]) for one in found) == [(1, None), (2, None), (3, 1), (4, 2), (5, 2)]
    last = [json.loads(line) for path in sorted(log.glob("*.json")) for line in path.read_text().splitlines()]
    newest = [one["metaData"]["schemaString"] for one in last if "metaData" in one][-1]
    assert [one["type"] for one in json.loads(newest)["fields"]] == ["long", "string", "variant", "long"]
    with pytest.raises(sw.InvalidInputError, match=r"'x' has the Delta type 'variant'.*Leave the column out"):
        table.append([{"id": 1, "v": "z", "n": 1, "x": "{}"}])


def test_a_table_that_deltalake_made_with_deletion_vectors_is_written_to_by_every_verb(tmp_path):
    """T3-A9."""
    rows = pa.table({"id": [1, 2, 3], "q": [1, 1, 1], "v": ["a", "b", "c"]})
    deltalake.write_deltalake(tmp_path / "t", rows, configuration={"delta.enableDeletionVectors": "true"})
    table = sw.open(tmp_path / "t")
    table.append([{"id": 4, "q": 1, "v": "d"}])
    table.apply_changes([{"id": 1, "q": 2, "v": "x"}], keys=["id"], sequence_by=["q"])
    table.delete("id = 2")
    table.overwrite([{"id": 3, "q": 9, "v": "y"}], where="id = 3")
    found = pa.table(
        deltalake.QueryBuilder()
        .register("t", deltalake.DeltaTable(tmp_path / "t"))
        .execute("SELECT * FROM t")
    )
    assert sorted(one["v"] for one in found.to_pylist()) == ["d", "x", "y"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delta.compatibility.symlinkFormatManifest.enabled", "True"),
        ("delta.universalFormat.enabledFormats", "hudi"),
        ("delta.universalFormat.enabledFormats", "iceberg, hudi"),
    ],
)
def test_a_table_of_which_others_read_a_copy_is_refused_as_one_that_is_to_be_made(name, value):
    """T4-A8: readers by the copy would miss new rows and show deleted ones for good; ``create`` always refused."""
    assert f"({name} = {value})" in refusal(state(writer=2, properties={name: value}))
    check_append(state(writer=2, properties={name: "false"}))
    with pytest.raises(InvalidInputError, match=name):
        properties.check({name: value}, horizon_s=0)


def test_an_append_only_table_takes_appends_and_no_overwrites():
    table = state(writer=2, properties={"delta.appendOnly": "true"})
    check_append(table)
    with pytest.raises(UnsupportedTableError, match="appendOnly"):
        check_overwrite(table)
    check_overwrite(state(writer=2, properties={"delta.appendOnly": "false"}))


def test_check_constraints_that_are_not_evaluated_are_refused_by_their_names():
    texts = {"positive": "abs(n) > 0", "odd": "bitcount(n) = 1", "even": "n % 2 = 0"}
    message = refusal(
        state(writer=3, properties={f"delta.constraints.{name}": text for name, text in texts.items()})
    )
    assert "checkConstraints: the check constraint 'odd' (bitcount(n) = 1) cannot be evaluated" in message
    assert "'positive' (abs(n) > 0)" in message
    assert "even" not in message
    check_append(state(writer=3, properties={"delta.constraints.even": texts["even"]}))


COLUMN_FEATURES = {
    "invariants": {"delta.invariants": '{"expression":{"expression":"abs(n) > 3"}}'},
    "generatedColumns": {"delta.generationExpression": "m + 1"},
    "identityColumns": {"delta.identity.start": 1, "delta.identity.step": 1},
    "allowColumnDefaults": {"CURRENT_DEFAULT": "current_timestamp()"},
}


@pytest.mark.parametrize("name", COLUMN_FEATURES)
def test_columns_with_values_of_their_own_are_refused_by_name(name):
    message = refusal(state(writer=6, column=COLUMN_FEATURES[name]))
    assert name in message
    assert " n" in message


def test_an_invariant_deep_in_a_nested_column_is_found():
    inner = {"name": "deep", "type": "long", "nullable": True, "metadata": COLUMN_FEATURES["invariants"]}
    struct = {"type": "struct", "fields": [inner]}
    array = {"type": "array", "elementType": struct, "containsNull": True}
    nested = {"type": "map", "keyType": "string", "valueType": array, "valueContainsNull": True}
    assert "deep" in refusal(state(writer=2, kind=nested))


@pytest.mark.parametrize(
    ("mode", "why"), [("name", "what files call "), ("id", "what files call "), ("ids", "'ids'")]
)
def test_columns_that_files_do_not_name_and_modes_that_are_not_known_are_refused(mode, why):
    assert why in refusal(state(reader=2, writer=5, properties={"delta.columnMapping.mode": mode}))
    check_append(state(reader=2, writer=5, properties={"delta.columnMapping.mode": "none"}))


def test_row_tracking_that_the_protocol_does_not_list_or_that_is_suspended_is_refused_where_it_is_enabled():
    """Its ids could be relied upon by nobody (PROTOCOL.md)."""
    enabled = {"delta.enableRowTracking": "true"}
    suspended = {"delta.rowTrackingSuspended": "true"}
    check_append(state("rowTracking", "domainMetadata"))
    assert "does not list domainMetadata" in refusal(state("rowTracking"))
    named = {
        "delta.rowTracking.materializedRowIdColumnName": "i",
        "delta.rowTracking.materializedRowCommitVersionColumnName": "v",
    }
    check_append(state("rowTracking", "domainMetadata", properties=enabled | named))
    assert "rowTracking" in refusal(state("rowTracking", "domainMetadata", properties=enabled))
    check_append(state("rowTracking", "domainMetadata", properties=suspended))
    assert "rowTracking" in refusal(state("domainMetadata", properties=enabled | named))
    assert "rowTracking" in refusal(state("rowTracking", properties=enabled | named | suspended))


def test_in_commit_timestamps_are_refused_where_nothing_tells_that_of_the_newest_commit():
    table = state("inCommitTimestamp", properties={"delta.enableInCommitTimestamps": "true"})
    assert "inCommitTimestamp" in refusal(table)
    check_append(replace(table, told_ms=1))


def test_a_change_feed_takes_appends_and_swaps_of_whole_files_and_no_rewrites():
    table = state(writer=4, properties={"delta.enableChangeDataFeed": "true"})
    check_append(table)
    check_overwrite(table)
    with pytest.raises(UnsupportedTableError, match="changeDataFeed"):
        check_overwrite(table, rewrites=True)
    check_overwrite(state(writer=4), rewrites=True)


def test_a_protocol_that_is_no_protocol_is_a_corrupt_log():
    table = state(writer=2)
    table.protocol["minWriterVersion"] = "2"
    with pytest.raises(StorageError) as caught:
        check_append(table)
    assert caught.value.kind is Kind.CORRUPT_LOG


# --- retention --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("interval 1 week", 7 * DAY_S),
        ("interval 30 days", 30 * DAY_S),
        ("INTERVAL 2 Days 12 Hours", 2.5 * DAY_S),
        ("90 minutes", 5400),
        ("interval '14' day", 14 * DAY_S),
        ("interval 1500 milliseconds", 1.5),
        ("interval 5 seconds 250000 microseconds", 5.25),
    ],
)
def test_intervals_are_read_as_spark_reads_them(text, seconds):
    assert interval_s(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "interval", "forever", "interval 1 month", "interval 3", "30 days or so", "1 year"]
)
def test_what_is_no_interval_of_fixed_length_is_refused(text):
    with pytest.raises(UnsafeConfigError, match="no interval"):
        interval_s(text)


def test_the_default_log_retention_of_thirty_days_covers_a_horizon_of_fourteen():
    check_retention(state(), horizon_s=14 * DAY_S)
    with pytest.raises(UnsafeConfigError, match="logRetentionDuration"):
        check_retention(state(), horizon_s=31 * DAY_S)


def test_a_log_retention_shorter_than_the_horizon_is_refused():
    """E4."""
    table = state(properties={"delta.logRetentionDuration": "interval 13 days"})
    with pytest.raises(UnsafeConfigError, match=r"delta\.logRetentionDuration") as caught:
        check_retention(table, horizon_s=14 * DAY_S)
    assert caught.value.kind is Kind.RETENTION_TOO_SHORT
    check_retention(table, horizon_s=13 * DAY_S)


def test_a_log_that_is_never_cleaned_up_is_long_enough():
    off = {"delta.logRetentionDuration": "interval 1 second", "delta.enableExpiredLogCleanup": "false"}
    check_retention(state(properties=off), horizon_s=14 * DAY_S)


def test_transaction_retention_matters_to_writes_named_by_transactions_only():
    """E4."""
    table = state(properties={"delta.setTransactionRetentionDuration": "interval 1 second"})
    check_retention(table, horizon_s=14 * DAY_S)
    with pytest.raises(UnsafeConfigError, match="setTransactionRetentionDuration") as caught:
        check_retention(table, horizon_s=14 * DAY_S, txn=True)
    assert caught.value.kind is Kind.RETENTION_TOO_SHORT
    check_retention(state(), horizon_s=14 * DAY_S, txn=True)


def test_a_retention_that_cannot_be_read_is_refused():
    with pytest.raises(UnsafeConfigError) as caught:
        check_retention(state(properties={"delta.logRetentionDuration": "2 months"}), horizon_s=1)
    assert caught.value.kind is Kind.UNSAFE_OPTION
