"""The configuration of a job: every fault is told by its field, and what would do nothing is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import safewrite as sw
from safewrite.cdc.config.job import load
from tests.each import each


def config(
    table: dict[str, Any] | None = None, kafka: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """A job of one Delta table."""
    given: dict[str, Any] = {
        "job": "inventory",
        "kafka": {"servers": "127.0.0.1:9092", "topics": ["pg"], **(kafka or {})},
        "envelope": "debezium-json",
        "checkpoint": "checkpoint",
        "warehouse": "lake",
        "tables": [{"database": "db", "table": "customers", **(table or {})}],
        **more,
    }
    return {name: value for name, value in given.items() if value is not ...}


def iceberg(table: dict[str, Any]) -> dict[str, Any]:
    """A job of one Iceberg table."""
    return config(
        {"format": "iceberg", **table}, catalog="prod", warehouse=..., job_tables={"format": "iceberg"}
    )


def test_a_configuration_is_a_dict_a_text_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "tables.json"
    file.write_text(json.dumps(config()))
    assert load(config()) == load(json.dumps(config())) == load(file) == load(str(file)) == load(load(file))
    assert load(file).tables[0].name == "db.customers"


FAULTS: list[tuple[dict[str, Any], str, str]] = [
    (config({"colour": "red"}), "tables.0.colour", "there is no such field"),
    (config({"primary_keys": ["id"]}), "tables.0.primary_keys", "did you mean primary_key?"),
    (config(kafka={"topic": ["pg"]}), "kafka.topic", "did you mean topics?"),
    (config(storage_option={}), "storage_option", "did you mean storage_options?"),
    (config({"primary_key": []}), "tables.0.primary_key", "at least 1"),
    (config({"primary_key": "id"}), "tables.0.primary_key", "valid array"),
    (config({"primary_key": ["a", "b", "a"]}), "tables.0", "primary_key has a twice"),
    (
        config({"sequence": "precombine", "precombine_key": ["a", "a"]}),
        "tables.0",
        "precombine_key has a twice",
    ),
    (config({"database": "a/b"}), "tables.0.database", "pattern"),
    (config({"epoch": -1}), "tables.0.epoch", "greater than or equal to 0"),
    (config({"epoch": "1"}), "tables.0.epoch", "valid integer"),
    (config({"write_mode": "merge-on-read"}), "tables.0", "not every engine reads them"),
    (
        config({"write_mode": "merge-on-read", "readers": ["spark", "athena"]}),
        "tables.0",
        "do not read them: athena",
    ),
    (config({"readers": ["excel"]}), "tables.0.readers.0", "athena"),
    (
        iceberg({"metadata": {"_partition": "partition"}}),
        "tables.0",
        "metadata names _partition, which iceberg keeps",
    ),
    (iceberg({"name_mapping": {"x": "_POS"}}), "tables.0", "name_mapping names _POS, which iceberg keeps"),
    (config({"format": "iceberg", "readers": ["spark"]}), "tables.0", "does nothing for format iceberg"),
    (config({"format_version": 2}), "tables.0", "does nothing for format delta"),
    (config({"format": "iceberg", "format_version": 1}), "tables.0.format_version", "2 or 3"),
    (config({"source": "orders_*", "shard_column": "shard"}), "tables.0", "is a pattern"),  # T4-B6
    (config({"precombine_key": ["at"]}), "tables.0", "go together"),
    (config({"sequence": "precombine"}), "tables.0", "go together"),
    (
        config({"sequence": "precombine", "precombine_key": ["id"], "primary_key": ["id"]}),
        "tables.0",
        "cannot order",
    ),
    (config({"primary_key": ["_cdc_epoch"]}), "tables.0", "job keeps"),
    *(  # T4-C9
        (
            made({"column_types": {name: "string"}}),
            "tables.0",
            f"column_types names columns that the job keeps: {name}",
        )
        for name in ("_CDC_EPOCH", "_Cdc_Sequence")
        for made in (config, iceberg)
    ),
    (config({"name_mapping": {"x": "_Cdc_Epoch"}}), "tables.0", "job keeps: _Cdc_Epoch"),
    (config({"leave_out": ["a"], "name_mapping": {"a": "b"}}), "tables.0", "name_mapping of a does nothing"),
    (config({"decimal_fields": {"a": [39, 0]}}), "tables.0", "precision up to 38"),
    (
        config({"decimal_fields": {"a": [9, 0]}, "timestamp_fields": {"a": "iso8601"}}),
        "tables.0",
        "cannot be in",
    ),
    (config({"name_mapping": {"a": "c", "b": "c"}}), "tables.0", "two columns one name"),
    (config({"partition_by": ["day(ts)"]}), "tables.0", "by columns, not by transforms"),
    (
        config(unknown_tables="create", unknown_database="raw", defaults={"partition_by": ["day(ts)"]}),
        "defaults",
        "not by transforms",
    ),
    *(
        (iceberg({"partition_by": [text]}), "tables.0", "no transform of Iceberg")
        for text in (
            "date(ts)",
            "bucket(id)",
            "bucket(0, id)",
            "bucket(id, 16)",
            "truncate(-1, s)",
            "days_of(ts)",
        )
    ),
    *(
        (config({"shard_column": name, **more}), "tables.0", "shard_column")
        for name, more in (
            ("_cdc_epoch", {}),
            ("_cdc_sequence", {}),
            ("s", {"name_mapping": {"a": "s"}}),
            ("n", {"sequence": "precombine", "precombine_key": ["n"]}),
        )
    ),
    (config({"shard_column": ""}), "tables.0.shard_column", "at least 1"),
    (config({"shard_column": ["a"]}), "tables.0.shard_column", "valid string"),
    (config({"leave_out": ["id"], "primary_key": ["id"]}), "tables.0", "which primary_key needs"),
    (
        config({"leave_out": ["id"], "primary_key": ["key"], "name_mapping": {"id": "key"}}),
        "tables.0",
        "leave_out",
    ),
    (
        config({"leave_out": ["n"], "sequence": "precombine", "precombine_key": ["n"]}),
        "tables.0",
        "which precombine_key needs",
    ),
    (config({"partition_by": ["day", "Day"]}), "tables.0", "partition_by has a column twice"),
    (config({"leave_out": ["day"], "partition_by": ["day"]}), "tables.0", "which partition_by needs"),
    (iceberg({"leave_out": ["ts"], "partition_by": ["day(ts)"]}), "tables.0", "which partition_by needs"),
    (config({"leave_out": ["a"], "column_types": {"a": "string"}}), "tables.0", "which column_types needs"),
    (config({"column_types": {"a": None}}), "tables.0.column_types.a", "'string'"),
    (config({"column_types": {"": "string"}}), "tables.0.column_types", "at least 1"),
    (config({"partition_by": "day"}), "tables.0.partition_by", "valid array"),
    (config({"column_types": {"a": "text"}}), "tables.0.column_types.a", "'string'"),
    (
        config({"column_types": {"a": "string"}, "decimal_fields": {"a": [5, 2]}}),
        "tables.0",
        "column_types and decimal_fields",
    ),
    (config(kafka={"pattern": "pg.*"}), "kafka", "one of them"),
    (config(kafka={"options": {"failOnDataLoss": "false"}}), "kafka", "failOnDataLoss itself"),
    (config(kafka={"starting_offsets": "somewhere"}), "kafka.starting_offsets", "earliest"),
    (config(trigger={}), "trigger", "one of them"),
    (config(envelope="debezium-avro"), "(whole)", "registry is needed"),
    (config(registry={"url": "http://x"}), "(whole)", "registry does nothing"),
    (config(before_image_field="b"), "(whole)", "before_image_field"),
    (config(envelope="debezium-avro", registry={}), "registry", "one of them"),
    (
        config(envelope="debezium-avro", registry={"glue_region": "r", "user": "u", "password": "env:P"}),
        "registry",
        "goes by the role",
    ),
    (config(route_field="b"), "(whole)", "route_field is of events"),
    (config(envelope="dms-json"), "(whole)", "primary_key"),
    (
        config({"primary_key": ["id"]}, envelope="dms-json", unavailable_value_placeholder="x"),
        "(whole)",
        "does nothing",
    ),
    (config(catalog="prod"), "(whole)", "catalog does nothing"),
    (config(warehouse=...), "(whole)", "warehouse is needed"),
    (config({"format": "iceberg"}), "(whole)", "catalog is needed"),
    (config(lock_table="t", arbiter="object-store"), "(whole)", "lock_table does nothing"),
    (config(tables=[]), "(whole)", "every row would be a dead letter"),
    (config({"mode": "append"}), "(whole)", "needs a metadata column of op"),
    (config({"sort_by": ["a"]}), "tables.0", "sort_by is of Iceberg tables"),
    (config({"format": "iceberg", "sort_by": ["week(a) desc"]}), "tables.0", "sort_by holds 'week(a)'"),
    (
        config({"format": "iceberg", "sort_by": ["a desc"], "leave_out": ["a"]}),
        "tables.0",
        "leave_out has a, which sort_by needs",
    ),
    (config({"properties": {"format-version": "2"}}), "tables.0", "set format_version"),
    (config({"properties": {"cdc.keys": "[]"}}), "tables.0", "the job keeps its key there"),
    (config({"metadata": {"x": "op"}}), "tables.0", "does nothing with mode upsert"),
    (config({"mode": "history", "metadata": {"x": "op"}}), "tables.0", "does nothing with mode history"),
    (
        config({"mode": "history", "metadata": {"_cdc_revision": "offset"}}),
        "tables.0",
        "columns that the job keeps",
    ),
    (config({"mode": "history", "partition_by": ["_cdc_epoch"]}), "tables.0", "columns that the job keeps"),
    (
        config({"mode": "history", "sequence": "precombine", "precombine_key": ["n"]}),
        "tables.0",
        "mode history needs sequence source",
    ),
    (config({"metadata": {"x": "place"}}), "tables.0.metadata.x", "'offset'"),
    (
        config({"metadata": {"x": "offset", "X": "topic"}}),
        "tables.0",
        "metadata names X, a column that is there already",
    ),
    (config({"metadata": {"_cdc_epoch": "offset"}}), "tables.0", "columns that the job keeps"),
    (config({"metadata": {"x": "offset"}, "primary_key": ["x"]}), "tables.0", "columns that the job keeps"),
    (
        config({"metadata": {"x": "offset"}, "name_mapping": {"a": "x"}}),
        "tables.0",
        "columns that the job keeps",
    ),
    (config({"metadata": {"x": "offset"}, "shard_column": "x"}), "tables.0", "columns that the job keeps"),
    *(
        (
            config({"mode": "append", "metadata": {"x": "op"}, **one}),
            "tables.0",
            f"{next(iter(one))} do nothing",
        )
        for one in (
            {"primary_key": ["id"]},
            {"readers": ["spark"]},
            {"all_late": "count"},
        )
    ),
    (config(envelope="events-json"), "(whole)", "tables need mode append for envelope events-json"),
    (
        config({"mode": "append", "metadata": {"x": "position"}}, envelope="events-json"),
        "(whole)",
        "do nothing for envelope events-json",
    ),
    (
        config({"metadata": {"x": "key"}, "partition_by": ["x"]}),
        "(whole)",
        "partition_by x: a table of format",
    ),
    (
        config(
            {"metadata": {"x": "headers"}, "partition_by": ["x"], "format": "iceberg"}, catalog={"name": "c"}
        ),
        "(whole)",
        "cannot be divided by metadata of headers",
    ),
    (
        config({"mode": "append", "source": "b"}, {"topics": ["a", "c"]}, envelope="events-json"),
        "(whole)",
        "no table's source is one of kafka.topics, so every row would be a dead letter",
    ),
    (config({"mode": "append"}, envelope="events-avro"), "(whole)", "registry is needed"),
    (config(tables=[], unknown_tables="ignore"), "(whole)", "every row would be ignored"),
    (config({"source": "a.b"}, ignored_tables=["a.b"]), "(whole)", "ignored_tables: a.b is in tables too"),
    (config(ignored_tables=[""]), "ignored_tables.0", "at least 1"),
    (config(defaults={}), "(whole)", "unless unknown_tables is create"),
    (config(unknown_tables="create"), "(whole)", "unknown_database"),
    (config(tables=[{"database": "d", "table": "t"}] * 2), "(whole)", "twice"),
    (config(job=""), "job", "at least 1"),
    (config(checkpoint=...), "checkpoint", "required"),
]


@each(("given", "field", "why"), FAULTS, ids=lambda one: one if isinstance(one, str) else "")
def test_a_fault_is_told_by_its_field(given: dict[str, Any], field: str, why: str) -> None:
    with pytest.raises(sw.InvalidInputError) as told:
        load(given)
    assert any(line.startswith(f"  {field}") and why in line for line in str(told.value).splitlines()), (
        told.value
    )
    assert "Nothing was read or written" in str(told.value)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(sw.InvalidInputError, match="has 3 faults"):
        load(config({"colour": 1, "epoch": -1}, job=""))


@pytest.mark.parametrize("given", ["", "{", "[]", "null", b"\xff", Path("nowhere.json"), {1: object()}])
def test_what_is_no_configuration_is_told_too(given: Any) -> None:
    with pytest.raises(sw.InvalidInputError, match="Nothing was read or written"):
        load(given)


def test_a_name_that_comes_twice_is_refused() -> None:
    """Readers of JSON keep the last: of two tables lists one would be left out."""
    text = json.dumps(config()).replace('"kafka"', '"job": "sales", "kafka"')
    with pytest.raises(sw.InvalidInputError, match=r"\['job'\] comes twice"):
        load(text)


def test_secrets_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    read = load(config(kafka={"options": {"kafka.sasl.jaas.config": "env:JAAS"}})).kafka
    with pytest.raises(sw.InvalidInputError, match="JAAS"):
        read.spark_options()
    monkeypatch.setenv("JAAS", "secret")
    assert read.spark_options()["kafka.sasl.jaas.config"] == "secret"
    assert "secret" not in repr(read)


def test_msk_by_iam_sets_its_options() -> None:
    options = load(config(kafka={"security": "msk-iam"})).kafka.spark_options()
    assert options["kafka.sasl.mechanism"] == "AWS_MSK_IAM"
    assert options["failOnDataLoss"] == "true"


def test_the_example_is_a_configuration() -> None:
    example = Path(__file__).parents[2] / "examples" / "cdc" / "tables.json"
    assert [table.name for table in load(example).tables] == ["shop.customers", "shop.orders"]
