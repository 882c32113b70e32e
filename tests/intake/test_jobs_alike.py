"""What jobs do alike: a table that two runs create at once is one, and reports are lines with numbers and events."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import safewrite as sw
from safewrite.cli.app import app
from safewrite.intake import duck
from safewrite.intake.reporting import command, report
from safewrite.intake.tables import TableAccess

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_table_that_another_run_made_meanwhile_is_opened_as_it_is(
    table_format: str, tmp_path: Path
) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}
    access = TableAccess(
        catalog=catalog if table_format == "iceberg" else None, create_namespace=table_format == "iceberg"
    )
    address = "db.t" if table_format == "iceberg" else str(tmp_path / "t")
    opening = access.opening(table_format, None)
    made, again = (access.created(address, schema, table_format, opening) for schema in (SCHEMA, SCHEMA))
    made.append(SCHEMA.empty_table().slice(0), key="a")
    assert again.refresh().resolve("a") is not None, "it is one table"


def test_a_report_is_a_line_with_numbers_and_an_event(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[sw.Event] = []
    event = sw.Event("stream", "job", "100 % behind", {"lag": 3})
    with caplog.at_level(logging.INFO, "safewrite"):
        report("stream of job: 100 % behind", event, heard.append)
        report("stream of job: 100 % behind", event, None)
    (first, second) = caplog.records
    assert (first.getMessage(), first.__dict__["lag"], first.__dict__["kind"]) == (
        "stream of job: 100 % behind",
        3,
        "stream",
    )
    assert (heard, second.getMessage()) == ([event], first.getMessage())


@pytest.mark.parametrize(
    ("job", "table", "fields", "needed"),
    [
        ("cdc", "TargetTable", {"database", "primary_key", "dead_letters"}, ["database", "table"]),
        ("medallion", "TableConfig", {"bronze", "keys", "quality"}, []),
    ],
)
def test_a_schema_describes_every_field_of_a_job(
    job: str, table: str, fields: set[str], needed: list[str]
) -> None:
    """What ``defaults`` may give a table is not asked of each."""
    schema = json.loads(CliRunner().invoke(app, [job, "schema"]).stdout)
    assert schema["additionalProperties"] is schema["$defs"][table]["additionalProperties"] is False
    assert {"catalog", "ignored_tables", "defaults", "tables"} <= {*schema["properties"]}
    assert fields <= {*schema["$defs"][table]["properties"]}
    assert schema["$defs"][table].get("required", []) == needed


def test_a_command_can_be_copied_into_a_shell() -> None:
    assert command("cdc", "restart", "db.t") == "safewrite cdc restart --config FILE --table db.t"
    assert "'my jobs/a.json'" in command("medallion", "reset", "s.t", Path("my jobs/a.json"))


def test_a_connection_of_duckdb_is_used_again_by_its_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps no rows; one whose use failed is closed."""
    monkeypatch.setattr(duck, "_kept", {})
    used: list[object] = []

    def use(*, fails: bool = False) -> None:
        with duck.kept_duckdb("This is done", "sql", "the table", name="rows") as connection:
            views = connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
            assert views == []
            connection.register("rows", pa.table({"n": [1]}))
            used.append(connection)
            if fails:
                raise ValueError

    use()
    use()
    with pytest.raises(ValueError):
        use(fails=True)
    use()
    assert used[0] is used[1] is used[2] is not used[3]
    monkeypatch.setattr("os.getpid", lambda: -1)
    use()
    assert used[4] is not used[3]
