"""A user of the Glue and EMR recipe brings its table file and its arguments; the job runs with what they become."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import safewrite as sw
from safewrite.cdc.config.job import load
from safewrite.cdc.config.recipe import convert
from safewrite.cli.app import app
from tests.cdc.events import event, postgres, record
from tests.cdc.jobs import Job

TABLE: dict[str, Any] = {
    "db": "db", "table": "orders", "primary_key": "id, line", "format-version": 2, "write.merge.mode": "merge-on-read",
    "write.update.mode": "merge-on-read", "write.delete.mode": "copy-on-write", "timestamp.fields": ["at"], "precombine_key": "at",
}  # fmt: skip
ARGUMENTS = {
    "jobname": "sales", "topics": "topic", "kafkaserver": "b-1:9098,b-2:9098", "icebergdb": "db", "warehouse": "s3://lake/data",
    "region": "eu-west-1", "checkpointpath": "s3://lake/checkpoints/", "cdcformat": "debezium",
    "starting_offsets_of_kafka_topic": "earliest",
}  # fmt: skip


def run(folder: Path, tables: Any, arguments: dict[str, str], *more: str) -> Result:
    file = folder / "table.json"
    file.write_text(json.dumps(tables))
    given = [text for name, value in arguments.items() for text in (f"--{name}", value)]
    return CliRunner().invoke(app, ["cdc", "convert", "--tablejsonfile", str(file), *given, *more])


def test_the_recipes_file_is_converted_and_lands(tmp_path: Path) -> None:
    """The walk of a user: convert, check, land two batches, read, verify.  Glue is a local catalog here."""
    made = tmp_path / "tables.json"
    found = run(tmp_path, [TABLE], ARGUMENTS, "--write", str(made))
    assert found.exit_code == 0, found.output
    assert CliRunner().invoke(app, ["cdc", "check", "--config", str(made)]).exit_code == 0
    config = json.loads(made.read_text())
    job = Job(tmp_path, [], "iceberg", config | {"catalog": Job(tmp_path, [], "iceberg").catalog()})
    (tmp_path / "lake").mkdir()
    job.settings |= {"create_namespace": True}
    rows = [{"id": 1, "line": 2, "at": "2024-05-01T10:00:00"}, {"id": 1, "line": 3, "at": None}]
    keys = [{"id": row["id"], "line": row["line"]} for row in rows]
    sent = [
        record(event("c", row, source=postgres(n, "orders")), key, offset=n)
        for n, (row, key) in enumerate(zip(rows, keys, strict=True))
    ]
    unnamed = record(event("c", {"id": 9}, source=postgres(5, "others")), {"id": 9}, offset=2)
    landing = job.landing()
    landing.land(job.batch([*sent, unnamed]))
    gone = record(event("d", None, rows[1], source=postgres(9, "orders")), keys[1], offset=3)
    landing.land(job.batch([gone], 1))
    assert [(row["id"], row["line"], str(row["at"])) for row in job.read("orders").to_pylist()] == [
        (1, 2, "2024-05-01 10:00:00+00:00")
    ]
    assert [row["id"] for row in job.read("public_others").to_pylist()] == [9]


def test_what_each_setting_becomes_is_said_and_nothing_is_left_out() -> None:
    found = convert(json.dumps([TABLE]), ARGUMENTS | {"glueconnect": "kafka", "--TempDir": "s3://lake/tmp"})
    said = {one.name: one for one in found.settings}
    own = {
        f"db.orders: {name}"
        for name in (
            "db, table",
            "primary_key",
            "format-version",
            "write.*.mode",
            "timestamp.fields",
            "precombine_key",
        )
    }
    assert said.keys() == {*ARGUMENTS, "glueconnect", "(new)", *own}
    assert said["db.orders: precombine_key"].becomes == "nothing"
    assert "sequence precombine" in said["db.orders: precombine_key"].changes
    assert said["db.orders: write.*.mode"].changes == "one mode for all changes"
    config = load(found.config)
    (table,) = config.tables
    assert (table.primary_key, table.write_mode, table.sequence) == (
        ["id", "line"],
        "merge-on-read",
        "source",
    )
    assert (config.kafka.security, config.checkpoint) == ("msk-iam", "s3://lake/checkpoints/safewrite-sales")
    assert config.catalog == {"type": "glue", "warehouse": "s3://lake/data", "client.region": "eu-west-1"}


def test_a_job_of_dms_names_its_keys_and_makes_no_tables_unasked() -> None:
    table = {"db": "db", "table": "orders"}
    found = convert(json.dumps([table]), ARGUMENTS | {"cdcformat": "dms", "kafkaserver": "b:9092"})
    config = load(found.config)
    assert (config.envelope, config.unknown_tables, config.kafka.security) == (
        "dms-json",
        "dead-letter",
        "none",
    )
    assert config.tables[0].primary_key == ["ID"]


FAULTS: list[tuple[Any, dict[str, str], str]] = [
    (
        [TABLE | {"primary_keys": "id"}],
        {},
        "tables.0.primary_keys: there is no such field; did you mean primary_key?",
    ),
    ([TABLE | {"write.merge.mod": "x"}], {}, "did you mean write.merge.mode?"),
    (
        [TABLE | {"write.merge.mode": "merge_on_read"}],
        {},
        "'merge_on_read' is not a write mode; did you mean merge-on-read?",
    ),
    ([TABLE], {"topic": "t"}, "--topic: the recipe has no such argument; did you mean topics?"),
    ([TABLE], {"kafkaserver": "", "glueconnect": "msk"}, "aws glue get-connection --name msk"),
    ([TABLE], {"cdcformat": "debezum"}, "did you mean debezium?"),
    ({"db": "db"}, {}, "tables"),
    ([], {"icebergdb": ""}, "--icebergdb: is needed"),
    ([TABLE], {"kafkaserver": "b1"}, "--kafkaserver: 'b1' has no port; give host:port,host:port"),
    ([TABLE], {"kafkaserver": "b-1:9098,b-2:"}, "--kafkaserver: 'b-2:' has no port"),
    (
        [TABLE | {"primary_key": 1}],
        {},
        "1 fault:\n  tables.0.primary_key: give a text with commas, or a list of texts\n",
    ),
    ([TABLE | {"precombine_key": ["a", 1]}], {}, "1 fault:\n  tables.0.precombine_key: give a text"),
    ([TABLE | {"format-version": [2]}], {}, "1 fault:\n  tables.0.format-version: "),
    ([TABLE | {"primary_key": "a,,b, a"}], {}, "tables.0.primary_key: a comes twice"),
]


@pytest.mark.parametrize(("tables", "arguments", "told"), FAULTS)
def test_a_wrong_field_or_argument_is_named_with_the_right_one(
    tables: Any, arguments: dict[str, str], told: str
) -> None:
    with pytest.raises(sw.InvalidInputError) as caught:
        convert(json.dumps(tables), ARGUMENTS | arguments)
    assert told in caught.value.message


@pytest.mark.parametrize("nothing", [None, "", " ", []])
def test_a_key_that_is_empty_is_not_set(nothing: Any) -> None:
    given = TABLE | {"primary_key": nothing, "precombine_key": nothing}
    found = convert(json.dumps([given]), ARGUMENTS)
    assert "primary_key" not in found.config["tables"][0]
    assert not any("precombine_key" in one.name for one in found.settings)


def test_files_with_a_byte_order_mark_are_read_and_empty_ones_are_named(tmp_path: Path) -> None:
    made, file = tmp_path / "job.json", tmp_path / "table.json"
    assert run(tmp_path, [TABLE], ARGUMENTS, "--write", str(made)).exit_code == 0
    given = ["cdc", "convert", "--tablejsonfile", str(file)]
    given += [text for name, value in ARGUMENTS.items() for text in (f"--{name}", value)]
    for one in (file, made):
        one.write_bytes(b"\xef\xbb\xbf" + one.read_bytes())
    for command in (given, ["cdc", "check", "--config", str(made)]):
        found = CliRunner().invoke(app, command)
        assert found.exit_code == 0, found.output
    for content in ("", "\n"):
        file.write_text(content)
        found = CliRunner().invoke(app, given)
        assert (found.exit_code, f"{file} is empty" in found.stderr) == (2, True), found.output


def test_arguments_come_from_glues_answer_too_and_no_file_is_overwritten(tmp_path: Path) -> None:
    file, made = tmp_path / "job.json", tmp_path / "tables.json"
    given = {f"--{name}": value for name, value in ARGUMENTS.items()}
    file.write_text(json.dumps({"Job": {"Name": "x", "DefaultArguments": given}}))
    found = run(tmp_path, [TABLE], {"jobname": "other"}, "--arguments", str(file), "--write", str(made))
    assert (found.exit_code, json.loads(made.read_text())["job"]) == (0, "other"), found.output
    again = run(tmp_path, [TABLE], ARGUMENTS, "--write", str(made))
    assert (again.exit_code, "Name a new file" in again.stderr) == (2, True)
    shown = run(tmp_path, [TABLE], ARGUMENTS, "--output", "json")
    assert json.loads(shown.stdout)["config"]["tables"][0]["table"] == "orders"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--arguments", "none.json"], "cannot be read"),
        (["stray"], "not an argument"),
        (["--jobname"], "not an argument"),
    ],
)
def test_wrong_calls_exit_with_2(tmp_path: Path, more: list[str], told: str) -> None:
    found = run(tmp_path, [TABLE], ARGUMENTS, *more)
    assert (found.exit_code, told in found.stderr) == (2, True), found.output
    far = CliRunner().invoke(app, ["cdc", "convert", "--tablejsonfile", "s3://lake/table.json"])
    assert "aws s3 cp s3://lake/table.json table.json" in far.stderr
