"""Iceberg tables that others made, or changed under an object: written right, or refused by name."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

import safewrite as sw
from safewrite.iceberg.data.schema import iceberg_schema
from safewrite.protocol.effects import Effect, Exists, Outcome
from safewrite.protocol.iceberg.change import SwapTable
from safewrite.testing.steps import At, Stepwise

LONG_MS = str(30 * 24 * 3600 * 1000)
KEPT = {"history.expire.max-snapshot-age-ms": LONG_MS}


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    made = SqlCatalog("local", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    made.create_namespace("db")
    yield made
    made.engine.dispose()


def of(tmp_path: Path) -> dict[str, str]:
    """The same catalog, as safewrite opens it."""
    return {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": tmp_path.as_uri(),
        "name": "local",
    }


def again(catalog: SqlCatalog) -> SqlCatalog:
    """Another object of PyIceberg's own for the same catalog."""
    return SqlCatalog(catalog.name, **catalog.properties)


def ids(catalog: SqlCatalog) -> list[int]:
    found: list[int] = catalog.load_table("db.t").scan().to_arrow()["id"].to_pylist()
    return sorted(found)


def partitioned(catalog: SqlCatalog, column: pa.Field, values: list[Any], version: int) -> Any:
    """A table of PyIceberg's, partitioned by the values of its second column."""
    schema = iceberg_schema(pa.schema([pa.field("id", pa.int64()), column]))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), column.name))
    properties = {"format-version": str(version), **KEPT}
    table = catalog.create_table("db.t", schema, partition_spec=spec, properties=properties)
    if values:
        table.append(pa.table({"id": range(len(values)), column.name: pa.array(values, column.type)}))
    return table


# --- partitioning -------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", [pa.binary(4), pa.float64(), pa.uuid()])
def test_partition_values_that_some_engine_reads_otherwise_are_refused(
    catalog: SqlCatalog, kind: Any
) -> None:
    """Java takes the first byte of a ``fixed`` partition value for its length: other values, or no table at all."""
    column = pa.field("c", kind)
    with pytest.raises(sw.InvalidInputError, match="Partition by another"):
        sw.create(
            "db.t", pa.schema([pa.field("id", pa.int64()), column]), catalog=catalog, partition_by=["c"]
        )
    partitioned(catalog, column, [], 2)
    with pytest.raises(sw.UnsupportedTableError, match="partitioned by the values of 'c'"):
        sw.open("db.t", catalog=catalog)


def test_a_partitioning_that_came_later_is_met_too(catalog: SqlCatalog) -> None:
    schema = pa.schema({"id": pa.int64(), "c": pa.binary(4)})
    table = sw.create("db.t", schema, catalog=catalog)
    data = pa.table({"id": [1], "c": pa.array([b"abcd"], pa.binary(4))})
    table.append(data)
    with catalog.load_table("db.t").update_spec() as update:
        update.add_identity("c")
    for call in (table.refresh, lambda: table.append(data), lambda: table.delete("id = 1"), table.refresh):
        with pytest.raises(sw.UnsupportedTableError, match="'c'"):
            call()
    assert ids(catalog) == [1]


@pytest.mark.sweep("1-kind2", "2-kind2", "2-kind3", "2-kind1", "2-kind0", "1-kind1", "1-kind3")
@pytest.mark.parametrize("kind", [pa.string(), pa.int32(), pa.date32(), pa.decimal128(12, 2)])
@pytest.mark.parametrize("version", [1, 2])
def test_a_column_that_was_partitioned_by_may_be_dropped(
    catalog: SqlCatalog, version: int, kind: Any
) -> None:
    """PyIceberg gives the field of a dropped column no type, and writes a manifest of it that nobody can read."""
    values = pa.array([1, 2, 2, None], pa.int32()).cast(kind).to_pylist()
    table = partitioned(catalog, pa.field("gone", kind), values, version)
    with table.update_spec() as update:
        update.remove_field("gone")
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("gone")
    ours = sw.open("db.t", catalog=catalog)
    ours.append(rows(4), key="a")
    assert ids(catalog) == [0, 1, 2, 3, 4]
    ours.delete("id = 1", key="b")
    ours.delete("id = 4", key="c")
    ours.overwrite(rows(7), where="id = 7", key="d")
    assert ids(catalog) == [0, 2, 3, 7]
    if version == 1:
        with catalog.load_table("db.t").transaction() as transaction:
            transaction.upgrade_table_version(2)
        ours.append(rows(8), key="e")
        ours.delete("id = 0", key="f")
        assert ids(catalog) == [2, 3, 7, 8]
    ours.overwrite(rows(9), key="g")
    assert ids(catalog) == [9]
    ours.delete("TRUE", key="h")
    assert ids(catalog) == []


def test_a_dropped_column_of_which_no_schema_tells_is_refused(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old schemas may be removed from a table's metadata."""
    from safewrite.iceberg.data import partitions

    table = partitioned(catalog, pa.field("gone", pa.string()), ["a"], 1)
    with table.update_spec() as update:
        update.remove_field("gone")
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("gone")
    ours = sw.open("db.t", catalog=catalog)
    real = partitions._column

    def column(name: Any, schema: Schema) -> Any:
        return None if name == 2 else real(name, schema)

    monkeypatch.setattr(partitions, "_column", column)
    for call in (lambda: ours.append(rows(1)), lambda: ours.delete("id = 0")):
        with pytest.raises(sw.UnsupportedTableError, match="'gone'"):
            call()
    assert ids(catalog) == [0]


def test_a_table_that_is_there_keeps_its_partitioning(catalog: SqlCatalog) -> None:
    """As for Delta: what ``create=True`` is given says how a table is made, and no more."""
    partitioned(catalog, pa.field("c", pa.string()), ["a"], 2)
    opened = sw.open("db.t", catalog=catalog, create=True, partition_by=["id"])
    assert opened.partition_by == ("c",)
    assert opened.append(pa.table({"id": [1], "c": ["b"]})).outcome == "committed"
    assert opened.refresh().partition_by == ("c",)


@pytest.mark.sweep("format-version-3", "write.parquet.compression-level", "write.target-file-size")
@pytest.mark.parametrize(
    ("property_", "value"),
    [
        ("write.parquet.compression-codec", "nope"),
        ("write.parquet.compression-level", "high"),
        ("write.metadata.metrics.default", "bad"),
        ("write.target-file-size-bytes", "x"),
        ("encryption.key-id", "k"),
        ("format-version", "3"),
        ("format-version", "x"),
    ],
)
def test_a_table_that_every_write_would_refuse_is_not_made(
    catalog: SqlCatalog, property_: str, value: str
) -> None:
    properties = {property_: value}

    with pytest.raises((sw.InvalidInputError, sw.UnsupportedTableError, sw.UnsafeConfigError), match=value):
        sw.create("db.new", rows(1).schema, catalog=catalog, properties=properties)

    table = sw.open("db.new", catalog=catalog, create=True, properties=properties)
    with pytest.raises((sw.InvalidInputError, sw.UnsupportedTableError, sw.UnsafeConfigError), match=value):
        table.append(rows(1))

    assert catalog.list_tables("db") == []


@pytest.mark.parametrize("type_", [pa.binary(4), pa.float64()])
def test_a_table_is_not_made_with_a_partition_spec_that_some_engine_misreads(
    catalog: SqlCatalog, type_: pa.DataType
) -> None:
    schema = pa.schema([("id", pa.int64()), ("by", type_)])
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "by"))

    with pytest.raises(sw.InvalidInputError, match="by"):
        sw.create("db.new", schema, catalog=catalog, partition_by=spec)

    assert catalog.list_tables("db") == []


@pytest.mark.sweep("5", "id1", "value5")
@pytest.mark.parametrize("name", ["partition_by", "sort_by"])
@pytest.mark.parametrize("value", ["id", 5, None, [5], b"id", {"id": 1}])
def test_columns_to_partition_or_sort_by_are_looked_at_at_once(
    catalog: SqlCatalog, name: str, value: Any
) -> None:
    """Also where the table is there and they say nothing, as for Delta."""
    for _ in range(2):
        with pytest.raises(sw.InvalidInputError, match=f"{name}= is a list of texts"):
            sw.open("db.t", catalog=catalog, create=True, **{name: value})
        if not catalog.table_exists("db.t"):
            sw.create("db.t", rows().schema, catalog=catalog)


# --- files that PyIceberg does not read ---------------------------------------------------------------
def add_file(catalog: SqlCatalog, path: Path, kind: FileFormat, *, records: int) -> None:
    """Add a data file to an unpartitioned table as an engine does that writes other formats."""
    metrics = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds")
    nothing: dict[str, Any] = {name: {} for name in (*metrics, "upper_bounds")}
    file = DataFile.from_args(
        content=DataFileContent.DATA, file_path=path.as_uri(), file_format=kind, partition=Record(),
        record_count=records, file_size_in_bytes=path.stat().st_size, spec_id=0, key_metadata=None,
        split_offsets=None, equality_ids=None, sort_order_id=None, **nothing,
    )  # fmt: skip
    with catalog.load_table("db.t").transaction() as transaction:
        mapping = create_mapping_from_schema(catalog.load_table("db.t").schema()).model_dump_json()
        transaction.set_properties({"schema.name-mapping.default": mapping})
        with transaction.update_snapshot().fast_append() as append:
            append.append_data_file(file)


@pytest.mark.filterwarnings("ignore::polars.exceptions.PerformanceWarning")
def test_null_lists_of_structs_in_a_file_of_orc_stay_null(catalog: SqlCatalog, tmp_path: Path) -> None:
    """T3-A4: fields of such a file have no ids, and the table's name mapping tells them."""
    import polars as pl
    from pyarrow import orc

    kind = pa.list_(pa.struct({"n": pa.int64()}))
    table = sw.create("db.t", pa.schema({"id": pa.int64(), "items": kind}), catalog=catalog)
    values = [[{"n": 1}], None, [], [None, {"n": None}]]
    rows = pa.table({"id": [0, 1, 2, 3], "items": pa.array(values, kind)})
    orc.write_table(rows, tmp_path / "some.orc")
    add_file(catalog, tmp_path / "some.orc", FileFormat.ORC, records=4)
    table.delete("id = 0")
    found = pl.scan_iceberg(catalog.load_table("db.t"), reader_override="native").sort("id").collect()
    assert found["items"].to_list() == values[1:]


@pytest.mark.long
def test_of_a_file_in_avro_or_orc_that_cannot_be_read_the_true_cause_is_told(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    """10f: it was "if the table has equality deletes"."""
    from pyarrow import orc

    schema = pa.schema({"id": pa.int64(), "ts": pa.timestamp("us")})
    table = sw.create("db.t", schema, catalog=catalog)
    late = pa.table({"id": [1, 2], "ts": [dt.datetime.fromisoformat("9999-12-31")] * 2}, schema=schema)
    orc.write_table(late, tmp_path / "late.orc")
    add_file(catalog, tmp_path / "late.orc", FileFormat.ORC, records=2)
    with pytest.raises(sw.UnsupportedTableError, match=r"late\.orc.*nanoseconds.*Rewrite") as of_orc:
        table.delete("id = 1")
    table.overwrite(late)
    (tmp_path / "some.avro").write_bytes(b"Obj")
    add_file(catalog, tmp_path / "some.avro", FileFormat.AVRO, records=2)
    with pytest.raises(
        sw.UnsupportedTableError, match=r"some\.avro.*no data or delete files in Avro"
    ) as of_avro:
        table.delete("id = 1")
    assert "equality" not in of_orc.value.message + of_avro.value.message
    assert catalog.load_table("db.t").scan(selected_fields=("id",)).count() == 4


# --- states that came later ---------------------------------------------------------------------------
LATER: dict[str, Callable[[Any], None]] = {
    "encryption": lambda t: t.set_properties({"encryption.key-id": "k"}),
    "retention": lambda t: t.set_properties({"history.expire.max-snapshot-age-ms": "1000"}),
}


@pytest.mark.parametrize("change", LATER)
def test_what_open_refuses_is_refused_by_an_object_that_was_opened_before(
    catalog: SqlCatalog, change: str
) -> None:
    """Also within the second for which a look at the table serves."""
    other = SqlCatalog(catalog.name, **catalog.properties)
    table = sw.create("db.t", rows().schema, catalog=catalog)
    table._format.connection = table._format.connection.__class__(
        **{**vars(table._format.connection), "bare": True}
    )  # type: ignore[attr-defined]
    table.append(rows(1))
    with other.load_table("db.t").transaction() as transaction:
        LATER[change](transaction)
    other.engine.dispose()
    table._format._cached.seen_s = None  # type: ignore[union-attr]
    for call in (lambda: table.append(rows(2)), table.refresh, lambda: table.delete("id = 1")):
        with pytest.raises(sw.NotCommittedError, match=r"encrypted|keeps snapshots"):
            call()
    assert ids(catalog) == [1]


def test_an_upgrade_of_the_format_between_two_writes_is_a_conflict_that_is_gone_over(
    catalog: SqlCatalog,
) -> None:
    """Within the second for which a look serves: PyIceberg refuses to add a snapshot of the old format."""
    schema = iceberg_schema(rows().schema)
    catalog.create_table("db.t", schema, properties={"format-version": "1", **KEPT})
    table = sw.open("db.t", catalog=catalog)
    table.append(rows(1), key="a")
    with SqlCatalog(catalog.name, **catalog.properties).load_table("db.t").transaction() as transaction:
        transaction.upgrade_table_version(2)
    assert table.append(rows(2), key="b").outcome == "committed"
    assert ids(catalog) == [1, 2]


def test_a_conflict_answered_for_an_old_base_is_gone_over_though_what_it_requires_holds(
    catalog: SqlCatalog,
) -> None:
    """Iceberg's REST server answers 409, not 400, to a snapshot of the old format: for as often as it is sent."""

    class OnItsBaseOnly(Stepwise):
        def _step(self, step: str, effect: Effect) -> Outcome:
            if isinstance(effect, SwapTable):
                base = effect.change.base.location  # type: ignore[attr-defined]
                if catalog.load_table("db.t").metadata_location != base:
                    return Exists()
            return self.world.perform(effect)

    table = sw.create("db.t", rows().schema, catalog=catalog, properties=KEPT)
    table.append(rows(1), key="a")
    with SqlCatalog(catalog.name, **catalog.properties).load_table("db.t").transaction() as transaction:
        transaction.set_properties({"owner": "somebody"})
    table.world = OnItsBaseOnly(table.world)
    receipt = table.append(rows(2), key="b")
    assert (receipt.outcome, receipt.attempts) == ("committed", 2)
    assert ids(catalog) == [1, 2]


def test_an_object_that_was_opened_before_the_table_was_made_resolves_keys(catalog: SqlCatalog) -> None:
    """Promise 3: None means that a new write is safe, so it is never said without a look."""
    early, maker = (sw.open("db.t", catalog=catalog, create=True) for _ in range(2))
    assert early.resolve("k") is None
    receipt = maker.append(rows(1), key="k")
    found = early.resolve("k")
    assert found is not None
    assert (found.version, found.rows) == (receipt.version, 1)
    assert early.append(rows(1), key="k").outcome == "already_committed"
    assert early.resolve("other") is None


# --- rollback and cherry-pick -------------------------------------------------------------------------
def cherry_pick(catalog: SqlCatalog, source_id: int, name: str = "db.t") -> int:
    """As Java does it: a new snapshot that names its source and has none of its summary's own properties."""
    table = catalog.load_table(name)
    metadata = table.metadata
    source = metadata.snapshot_by_id(source_id)
    current = metadata.current_snapshot()
    assert source is not None
    assert current is not None
    added = [m for m in source.manifests(table.io) if m.added_snapshot_id == source_id]
    kept = current.manifests(table.io)
    from pyiceberg.manifest import write_manifest_list

    number = metadata.new_snapshot_id()
    location = f"{metadata.location}/metadata/snap-{number}.avro"
    with write_manifest_list(
        format_version=2,
        output_file=table.io.new_output(location),
        snapshot_id=number,
        parent_snapshot_id=current.snapshot_id,
        sequence_number=metadata.next_sequence_number(),
        avro_compression="gzip",
    ) as writer:
        writer.add_manifests([*added, *kept])
    made = Snapshot(
        snapshot_id=number,
        parent_snapshot_id=current.snapshot_id,
        sequence_number=metadata.next_sequence_number(),
        timestamp_ms=metadata.last_updated_ms + 1,
        manifest_list=location,
        summary=Summary(operation=Operation.APPEND, **{"source-snapshot-id": str(source_id)}),
        schema_id=metadata.current_schema_id,
    )
    ref = {"ref-name": "main", "type": "branch", "snapshot-id": number}
    catalog.commit_table(
        table, (), (AddSnapshotUpdate(snapshot=made), SetSnapshotRefUpdate.model_validate(ref))
    )
    return number


@pytest.mark.long
@pytest.mark.parametrize("named", [{"key": "k"}, {"txn": ("app", 7)}])
def test_a_write_that_was_rolled_back_and_cherry_picked_is_in_the_table(
    catalog: SqlCatalog, named: dict[str, Any]
) -> None:
    table = sw.create("db.t", rows().schema, catalog=catalog, properties=KEPT)
    first = table.append(rows(1), key="first")
    receipt = table.append(rows(2), **named)
    with catalog.load_table("db.t").manage_snapshots() as manage:
        manage.rollback_to_snapshot(first.version)
    table.append(rows(3), key="third")
    assert table.resolve(receipt.key) is None
    cherry_pick(catalog, receipt.version)
    assert ids(catalog) == [1, 2, 3]
    fresh = sw.open("db.t", catalog=catalog)
    for one in (table, fresh):
        found = one.resolve(receipt.key)
        assert found is not None
        assert found.version == receipt.version
        again = one.append(rows(2), **named)
        assert (again.outcome, again.version) == ("already_committed", receipt.version)
        with pytest.raises(sw.ReplayMismatchError):
            one.append(rows(4), **named)
    assert ids(catalog) == [1, 2, 3]


def test_a_write_that_was_rolled_back_for_good_is_written_again(catalog: SqlCatalog) -> None:
    table = sw.create("db.t", rows().schema, catalog=catalog, properties=KEPT)
    first = table.append(rows(1), key="first")
    table.append(rows(2), key="k")
    with catalog.load_table("db.t").manage_snapshots() as manage:
        manage.rollback_to_snapshot(first.version)
    assert table.append(rows(2), key="k").outcome == "committed"
    assert ids(catalog) == [1, 2]


def test_a_table_that_is_made_anew_while_an_overwrite_is_under_way_is_not_overwritten(
    catalog: SqlCatalog,
) -> None:
    table = sw.create("db.t", rows().schema, catalog=catalog)
    table.append(rows(1))

    def anew() -> None:
        catalog.drop_table("db.t")
        sw.create("db.t", rows().schema, catalog=catalog).append(rows(5))

    table.world = At(table.world, "swap.commit", "before", anew)  # type: ignore[union-attr]
    with pytest.raises(
        sw.ConflictError, match="Open it again, and look at the table before you write"
    ) as caught:
        table.overwrite(rows(9))
    assert caught.value.kind is sw.Kind.TABLE_REPLACED
    assert ids(catalog) == [5]


@pytest.mark.sweep("by a stream's batch")
@pytest.mark.parametrize(
    "named", [{"key": "event"}, {"txn": ("app", 1)}], ids=["by a key", "by a stream's batch"]
)
def test_a_held_table_does_not_answer_for_one_that_was_dropped_a_moment_ago(
    tmp_path: Path, named: dict[str, Any]
) -> None:
    """The ledger and the head of the dropped table know the write; the new table of its name does not have the rows."""
    catalog = SqlCatalog("files", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    table = sw.open("db.t", catalog=catalog, create=True)
    assert table.append([{"id": 1}], **named).outcome == "committed"
    schema = catalog.load_table("db.t").schema()
    catalog.drop_table("db.t")
    catalog.create_table("db.t", schema)
    with pytest.raises(sw.ConflictError, match="created anew"):
        table.append([{"id": 1}], **named)
    again = sw.open("db.t", catalog=catalog).append([{"id": 1}], **named)
    assert again.outcome == "committed"
    assert catalog.load_table("db.t").scan().to_arrow()["id"].to_pylist() == [1]


def test_resolve_answers_for_the_table_that_the_object_was_opened_on(tmp_path: Path) -> None:
    """Its ledger may know keys that the new table does not have, and the new table has keys of its own."""
    catalog = SqlCatalog("files", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    table = sw.open("db.t", catalog=catalog, create=True)
    table.append([{"id": 1}], key="of the dropped one")
    schema = catalog.load_table("db.t").schema()
    catalog.drop_table("db.t")
    catalog.create_table("db.t", schema)
    sw.open("db.t", catalog=catalog).append([{"id": 2}], key="of the new one")
    for key in ("of the dropped one", "of the new one"):
        with pytest.raises(
            sw.ConflictError, match="Open it again, and look at the table before you write"
        ) as caught:
            table.resolve(key)
        assert caught.value.kind is sw.Kind.TABLE_REPLACED
    again = sw.open("db.t", catalog=catalog)
    assert again.resolve("of the dropped one") is None
    found = again.resolve("of the new one")
    assert found is not None
    assert found.rows == 1


# --- what others do between a look and a commit -------------------------------------------------------
def numbered(number: int, n: int = 0) -> pa.Table:
    return pa.table({"id": [number], "n": [n]})


WRITES: dict[str, Callable[[sw.Table], object]] = {
    "append": lambda table: table.append(numbered(1), key="k"),
    "append_many": lambda table: table.append_many([("k", numbered(1))]),
    "apply_changes": lambda table: table.apply_changes(numbered(0, 1), keys=["id"], sequence_by=["n"]),
    "delete": lambda table: table.delete([("id", "=", 0)]),
    "overwrite": lambda table: table.overwrite(numbered(0), where=[("id", "=", 0)]),
}


@pytest.mark.sweep("append_many", "delete", "overwrite", "apply_changes-False")
@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("verb", WRITES)
def test_a_table_that_became_encrypted_under_an_object_gets_no_plain_file(
    catalog: SqlCatalog, tmp_path: Path, verb: str, plain: bool
) -> None:
    """No requirement of Iceberg's speaks of properties: what the catalog has right before the commit is looked at.

    ``plain``: the catalog is an object of PyIceberg's own.
    """
    table = sw.open("db.t", catalog=again(catalog) if plain else of(tmp_path), create=True)
    table.append(numbered(0))
    with catalog.load_table("db.t").transaction() as change:
        change.set_properties({"encryption.key-id": "k"})
    before = catalog.load_table("db.t").metadata_location
    with pytest.raises(sw.UnsupportedTableError, match="encrypt"):
        WRITES[verb](table)
    assert catalog.load_table("db.t").metadata_location == before


@pytest.mark.parametrize("plain", [True, False])
def test_a_default_that_nobody_reads_is_refused_and_leaves_no_doubt(
    catalog: SqlCatalog, tmp_path: Path, plain: bool
) -> None:
    """The commit cannot have landed: the catalog could not read what it was to replace."""
    table = sw.open("db.t", catalog=again(catalog) if plain else of(tmp_path), create=True)
    table.append(rows(0))
    location = catalog.load_table("db.t").metadata_location.removeprefix("file://")
    written = json.loads(Path(location).read_text())
    field = {
        "id": 9,
        "name": "at",
        "type": "timestamp_ns",
        "required": False,
        "write-default": "2026-01-01T00:00:00.000000001",
    }
    written["schemas"][0]["fields"].append(field)
    Path(location + ".new.metadata.json").write_text(
        json.dumps(written | {"format-version": 3, "next-row-id": 0, "last-column-id": 9})
    )
    with catalog.engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE iceberg_tables SET metadata_location = metadata_location || '.new.metadata.json'"
        )
    with pytest.raises(sw.UnsupportedTableError, match="default of type timestamp_ns"):
        table.append(rows(1), key="k")


# --- services -----------------------------------------------------------------------------------------
AS_MADE: dict[str, tuple[dict[str, str], str]] = {
    # docs.aws.amazon.com/athena: querying-iceberg-creating-tables (properties that Athena sets or takes)
    "Athena": (
        {"write.object-storage.enabled": "true", "write.object-storage.path": "{}/data", "write.format.default": "parquet",
         "write.parquet.compression-codec": "ZSTD", "optimize_rewrite_delete_file_threshold": "10", "vacuum_min_snapshots_to_keep": "5",
         "vacuum_max_snapshot_age_seconds": "432000"},
        "id",
    ),
    # docs.aws.amazon.com/firehose: apache-iceberg-considerations (the table is the user's; its metadata may be gzipped)
    "Firehose": ({"write.metadata.compression-codec": "gzip", "write.metadata.delete-after-commit.enabled": "true",
                  "write.metadata.previous-versions-max": "3"}, "id"),
    "Redshift": ({"write.parquet.compression-codec": "snappy", "write.data.path": "{}/elsewhere"}, "id"),
    # docs.snowflake.com: names without quotes are kept in capitals
    "Snowflake": ({"write.target-file-size-bytes": "16777216", "write.update.mode": "merge-on-read", "write.delete.mode": "merge-on-read",
                   "write.merge.mode": "merge-on-read"}, "ID"),
}  # fmt: skip


@pytest.mark.sweep("Firehose", "Redshift")
@pytest.mark.parametrize("maker", AS_MADE)
def test_tables_with_the_settings_of_services_are_written_as_they_are(
    catalog: SqlCatalog, tmp_path: Path, maker: str
) -> None:
    """By every verb; their rows are PyIceberg's to read, their files where the table says, and its settings stay."""
    (given, key), place = AS_MADE[maker], f"{tmp_path.as_uri()}/t"
    settings = {name: value.format(place) for name, value in given.items()} | KEPT
    schema = iceberg_schema(pa.schema([pa.field(key, pa.int64()), pa.field("n", pa.int64())]))
    made = catalog.create_table("db.t", schema, place, properties=settings | {"format-version": "2"})

    def some(*pairs: tuple[int, int]) -> pa.Table:
        return pa.table({key: [one for one, _ in pairs], "n": [n for _, n in pairs]})

    made.append(some(*((one, 0) for one in range(10))))
    table = sw.open("db.t", catalog=catalog)
    table.append(some((10, 1)))
    table.apply_changes(some((1, 2), (11, 2)), keys=[key], sequence_by=["n"])
    table.delete([(key, "=", 2)])
    table.overwrite(some((3, 5)), where=[(key, "=", 3)])
    table.maintain()
    found = catalog.load_table("db.t")
    rows = {row[key]: row["n"] for row in found.scan().to_arrow().to_pylist()}
    assert rows == {one: 0 for one in range(10) if one != 2} | {1: 2, 3: 5, 10: 1, 11: 2}
    assert settings.items() <= found.properties.items()
    data = settings.get("write.object-storage.path") or settings.get("write.data.path")
    assert data is None or all(task.file.file_path.startswith(data) for task in found.scan().plan_files())
