"""T3-D10, T3-D11: AWS expires snapshots by settings of its own; keys are remembered all the same, and metadata stays small."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.validate import ParamValidator
from pyiceberg.schema import Schema
from pyiceberg.table.update import SetLocationUpdate
from pyiceberg.types import LongType, NestedField, StringType

import safewrite as sw
from bench.servers import servers
from safewrite.iceberg import connect, ledger_place
from safewrite.iceberg.catalog.s3 import direct
from safewrite.iceberg.maintenance import aws, doctor
from safewrite.iceberg.own_properties import LEDGER
from safewrite.iceberg.retention import KEEP
from safewrite.iceberg.write.creation import DELETE_METADATA, PREVIOUS_MAX
from safewrite.protocol.iceberg.settle import METADATA_READ_MAX
from tests.iceberg.places import Place
from tests.iceberg.test_remembered import expire_all
from tests.integration.places import once, rows

pytestmark = pytest.mark.parametrize("lab", ["glue"], indirect=True)


def by_pyiceberg(place: Place, properties: dict[str, str] | None = None) -> None:
    """A table of another library, with one row."""
    catalog = place.catalog()
    catalog.create_namespace_if_not_exists(place.name.partition(".")[0])
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    table = catalog.create_table(place.name, schema, properties=properties or {})
    table.append(place_rows(1))


def place_rows(*ids: int) -> Any:
    import pyarrow as pa

    return pa.table({"id": pa.array(ids, pa.int64()), "name": pa.array([f"n{i}" for i in ids])})


def test_keys_outlive_their_snapshots_on_a_table_of_ours(place: Place) -> None:
    place.create(1)
    receipts = {f"event-{n}": place.open().append(rows(n), key=f"event-{n}") for n in range(2, 6)}
    many = place.open().append_many([("six", rows(6)), ("seven", rows(7))])
    expire_all(place)
    for key, receipt in receipts.items():
        again = place.open().append(rows(int(key[-1])), key=key)
        assert (again.outcome, again.version) == ("already_committed", receipt.version)
    again_many = place.open().append_many([("seven", rows(7)), ("six", rows(6)), ("eight", rows(8))])
    assert [one.outcome for one in again_many if isinstance(one, sw.Receipt)] == [
        "already_committed",
        "already_committed",
        "committed",
    ]
    with pytest.raises(sw.ReplayMismatchError):
        place.open().append(rows(9), key="event-2")
    assert all(isinstance(one, sw.Receipt) for one in many)
    assert place.ids() == once(1, 2, 3, 4, 5, 6, 7, 8, 99)


@pytest.mark.long
def test_keys_outlive_their_snapshots_on_a_table_of_pyiceberg(place: Place) -> None:
    """It says nothing of snapshots: Iceberg's default is five days, and Athena's VACUUM has its own."""
    by_pyiceberg(place)
    first = place.open().append(place_rows(2), key="event")
    place.open().append(place_rows(99), key="last")
    table = place.plain()
    table.maintenance.expire_snapshots().by_ids([s.snapshot_id for s in table.snapshots()[:-1]]).commit()
    found = place.open().resolve("event")
    assert found is not None
    assert found.version == first.version
    assert place.open().append(place_rows(2), key="event").outcome == "already_committed"
    assert place.ids() == once(1, 2, 99)


def test_a_clean_up_of_the_tables_folder_finds_no_key_there(place: Place) -> None:
    """Athena's VACUUM removes each file of the folder that no metadata names."""
    place.create(1).append(rows(2), key="event")
    home = json.loads(place.plain().properties[LEDGER])["at"]
    assert not home.startswith(place.plain().location() + "/")
    assert [path for path in place.objects() if "_safewrite" in path] == []
    assert home.rpartition("/_safewrite/")[0] == place.plain().location().rpartition("/")[0]


@pytest.mark.long
def test_a_table_that_moved_keeps_its_ledger(place: Place) -> None:
    place.create(1)
    first = place.open().append(rows(2), key="event")
    table = place.plain()
    moved = SetLocationUpdate(location=table.location().replace("/ns_", "/moved/ns_"))
    place.catalog().commit_table(table, (), (moved,))
    assert place.plain().location() == moved.location
    expire_all(place)
    assert place.open().append(rows(2), key="event").version == first.version
    assert place.ids() == once(1, 2, 99)


@pytest.mark.long
def test_a_table_that_was_dropped_and_made_again_knows_no_key_of_the_first(place: Place) -> None:
    place.create(1).append(rows(2), key="event")
    place.catalog().drop_table(place.name)
    place.create(1)
    assert place.open().append(rows(3), key="event").outcome == "committed"
    assert place.ids() == once(1, 3)


def test_writers_with_another_ledger_are_refused_where_snapshots_go_soon(
    place: Place, lock_table: str
) -> None:
    """None of the two knows the keys of the other once snapshots are gone."""
    place.create(1)
    with pytest.raises(sw.UnsafeConfigError, match="without lock_table=") as caught:
        place.locked(lock_table).open()
    assert caught.value.kind == "retention_too_short"
    locked = place.another().locked(lock_table)
    locked.create(1)
    with pytest.raises(sw.UnsafeConfigError, match=f"lock_table='{lock_table}'"):
        Place(locked.kind, locked.properties, locked.name).open()
    assert locked.open().append(rows(2), key="event").outcome == "committed"


@pytest.mark.long
def test_a_table_with_long_retention_takes_writers_with_either_ledger(place: Place, lock_table: str) -> None:
    """As before there were records of ledgers: snapshots remember both."""
    place.create(1, properties={KEEP: str(15 * 24 * 3600 * 1000)})
    place.open().append(rows(2), key="two")
    assert place.locked(lock_table).open().append(rows(2), key="two").outcome == "already_committed"
    assert place.ids() == once(1, 2)


def test_a_table_of_ours_keeps_little_metadata(place: Place) -> None:
    table = place.create(1)
    assert int(table.properties[KEEP]) == 3 * 24 * 3600 * 1000
    assert (table.properties[DELETE_METADATA], table.properties[PREVIOUS_MAX]) == (
        "true",
        str(METADATA_READ_MAX),
    )
    with place.plain().transaction() as transaction:
        transaction.set_properties({PREVIOUS_MAX: "3"})
    table.refresh()
    for number in range(6):
        table.append(rows(10 + number), key=f"event-{number}")
    assert len([path for path in place.objects() if path.endswith(".metadata.json")]) <= 5


# --- doctor -----------------------------------------------------------------------------------------
def findings(place: Place, lock_table: str | None = None) -> dict[str, Any]:
    options = servers.storage_options(
        place.properties["s3.endpoint"], dynamodb_url=place.properties["s3.endpoint"]
    )
    connection = connect.look(place.name, place.catalog(), lock_table=lock_table, storage_options=options)
    return {finding.code: finding for finding in doctor.examine(connection).findings}


def answering(
    monkeypatch: pytest.MonkeyPatch, place: Place, retention: dict[str, Any] | None, kind: str = "retention"
) -> None:
    """Let Glue answer, in the shape of AWS's model, what its optimizers do with the table."""
    glue = place.catalog().glue  # type: ignore[attr-defined]
    model = glue.meta.service_model.operation_model("GetTableOptimizer")

    def get_table_optimizer(**request: Any) -> dict[str, Any]:
        assert not ParamValidator().validate(request, model.input_shape).has_errors()
        if retention is None or request["Type"] != kind:
            raise glue.exceptions.EntityNotFoundException(
                {"Error": {"Code": "EntityNotFoundException"}}, "Get"
            )
        configuration = {"enabled": True, f"{kind}Configuration": {"icebergConfiguration": retention}}
        answer = {"TableOptimizer": {"type": kind, "configuration": configuration}}
        assert not ParamValidator().validate(answer, model.output_shape).has_errors()
        return answer

    monkeypatch.setattr(glue, "get_table_optimizer", get_table_optimizer, raising=False)


def test_doctor_tells_how_large_the_metadata_is_and_who_expires_snapshots(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.create(1)
    answering(monkeypatch, place, {"snapshotRetentionPeriodInDays": 5, "numberOfSnapshotsToRetain": 1})
    found = findings(place)
    assert found["metadata_size"].severity == "info"
    assert "Glue rejects more than 20 MB" in found["metadata_size"].message
    assert found["snapshots_expired_by_service"].severity == "info"
    assert found["snapshots_expired_by_service"].details["kept_hours"] == 120
    answering(monkeypatch, place, None)
    assert "snapshots_expired_by_service" not in findings(place)


def test_maintain_stands_aside_where_glue_puts_files_together(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = place.create(1)
    for number in range(4):
        table.append(rows(10 + number))
    answering(monkeypatch, place, {"strategy": "binpack"}, "compaction")
    glue = place.catalog().glue  # type: ignore[attr-defined]
    monkeypatch.setattr(
        table.iceberg.catalog.glue, "get_table_optimizer", glue.get_table_optimizer, raising=False
    )
    assert table.maintain().left == {"Glue's optimizer puts the table's files together by itself": 1}
    answering(monkeypatch, place, None)
    monkeypatch.setattr(
        table.iceberg.catalog.glue, "get_table_optimizer", glue.get_table_optimizer, raising=False
    )
    assert table.maintain().groups == 1


def test_doctor_says_when_nobody_can_be_asked(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulator has no optimizers, which is nothing to tell."""
    place.create(1)
    assert "expiry_unknown" not in findings(place)
    monkeypatch.setattr(aws, "_is_aws", lambda _: True)
    found = findings(place)["expiry_unknown"]
    assert found.severity == "info"
    assert "glue:GetTableOptimizer" in found.mend


@pytest.mark.sweep("9000000", "1000000")
@pytest.mark.parametrize(
    ("size", "days", "severity"),
    [(1_000_000, 10.0, "info"), (9_000_000, 5.0, "warning"), (17_000_000, 90.0, "danger")],
)
def test_metadata_that_is_soon_too_large_is_told(
    place: Place, monkeypatch: pytest.MonkeyPatch, size: int, days: float, severity: str
) -> None:
    place.create(1)
    place.open().append(rows(2), key="two")
    table = place.plain()
    sizes = {table.metadata_location: size, table.metadata.metadata_log[0].metadata_file: 100_000}
    monkeypatch.setattr(aws, "_size", lambda _, location: sizes.get(location))
    object.__setattr__(
        table.metadata,
        "last_updated_ms",
        table.metadata.metadata_log[0].timestamp_ms + int(days * aws.DAY_MS),
    )
    connection = connect.look(place.name, place.catalog())
    (found,) = aws.growth(connection, table)
    assert found.severity == severity
    assert found.details["bytes_a_day"] == pytest.approx((size - 100_000) / days, rel=0.01)


def test_doctor_tells_of_writers_with_another_ledger(place: Place, lock_table: str) -> None:
    place.create(1)
    assert findings(place, lock_table)["other_ledger"].severity == "warning"


@pytest.mark.parametrize(
    ("properties", "aws_expires", "beside"),
    [
        ({"warehouse": "s3://lake/w"}, True, True),
        ({"warehouse": "s3://lake/w", "s3.role-arn": "arn:aws:iam::1:role/r"}, True, False),
        ({"glue.id": "123456789012:s3tablescatalog/bucket"}, True, False),
    ],
)
def test_a_ledger_of_objects_is_where_s3_is_reached_by_plain_settings(
    place: Place, properties: dict[str, str], aws_expires: bool, beside: bool
) -> None:
    class Catalog:
        glue = None

        def __init__(self) -> None:
            self.properties = properties

    assert (ledger_place.on_aws(Catalog()), ledger_place.keeps_objects(Catalog())) == (aws_expires, beside)


def test_a_table_of_s3_tables_needs_a_lock_table_or_long_retention(
    place: Place, lock_table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_pyiceberg(place)
    monkeypatch.setattr(ledger_place, "in_s3_tables", lambda _: True)
    with pytest.raises(sw.UnsafeConfigError, match="lock_table=") as caught:
        place.open()
    assert caught.value.kind == "retention_too_short"
    assert place.locked(lock_table).open().append(place_rows(2), key="event").outcome == "committed"


def test_t4_a3_a_rule_of_the_bucket_that_takes_files_or_keys_is_found(place: Place) -> None:
    place.create(1).append(rows(2), key="event")
    table = place.plain()
    reached = direct(table.io, f"{table.location()}/")
    assert reached is not None
    objects, folder = reached
    keys = json.loads(table.properties[LEDGER])["at"].partition(f"://{objects.bucket}/")[2]

    def found(prefix: str, days: int) -> list[list[str]]:
        rule = {"ID": "r", "Status": "Enabled", "Filter": {"Prefix": prefix}, "Expiration": {"Days": days}}
        objects.client.put_bucket_lifecycle_configuration(
            Bucket=objects.bucket, LifecycleConfiguration={"Rules": [rule]}
        )
        told = doctor.examine(connect.look(place.name, place.catalog())).findings
        return [one.details["takes"] for one in told if one.code == "lifecycle_rule"]

    try:
        assert found("", 7) == [[folder], [keys]]
        assert found(f"{folder}data/", 99) == [[folder]]
        assert found(keys, 7) == [[keys]]
        assert found(keys, 15) == []
    finally:
        objects.client.delete_bucket_lifecycle(Bucket=objects.bucket)
