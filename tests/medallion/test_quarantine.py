"""What only quarantine knows: stages, records that are overtaken, files that are gone, tables that are configured later.

The commands, as both jobs have them, are in ``tests/intake/test_letters.py``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import pytest
from typer.testing import CliRunner

from safewrite.cli.app import app
from safewrite.medallion import Pipeline, verify
from tests.medallion.test_jobs import Shop, set_in

LOAD = "shop/orders/LOAD00000001.csv"


def ask(job: Shop, *words: str, code: int = 0) -> Any:
    path = job.folder / "job.json"
    path.write_text(json.dumps(job.config))
    done = CliRunner().invoke(
        app, ["medallion", "quarantine", words[0], *words[1:], "--config", str(path), "--output", "json"]
    )
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def states(job: Shop) -> dict[str, str]:
    return {
        f"{one['letter']} {one['stage']}": one["state"]
        for one in ask(job, "list", "--state", "all")["letters"]
    }


def clean(job: Shop) -> bool:
    return [(one.clean, one.error) for one in verify(Pipeline(job.config))] == [(True, None)]


@pytest.fixture
def job(tmp_path: Path) -> Shop:
    """Record 1 is cut at its comma, because quotes are said to be text; row 3 breaks a rule before silver."""
    found = Shop(tmp_path, {"id": "int64", "note": "string"})
    set_in(found, "defaults", "files", to={"kind": "csv", "header": True, "rfc4180": False})
    set_in(found, "defaults", "quality", to={"quarantined_share_max": 1.0, "conditions": ["note <> 'odd'"]})
    found.put(LOAD, 'id,note\n1,"a,b"\nx,c\n3,odd\n4,d\n')
    assert found.run().ok
    assert states(found) == {
        f"{LOAD}#1 raw": "waiting",
        f"{LOAD}#2 raw": "waiting",
        f"{LOAD}#3 silver": "waiting",
    }
    return found


def notes(job: Shop) -> dict[int, str]:
    return {row["id"]: row["note"] for row in job.rows("silver/orders")}


def test_records_of_files_and_rows_of_bronze_come_back(job: Shop) -> None:
    """One that stays bad waits on, and has its text."""
    set_in(job, "defaults", "files", to={"kind": "csv", "header": True, "rfc4180": True})
    set_in(job, "defaults", "quality", to={"quarantined_share_max": 1.0})
    said = ask(job, "replay", "--all", code=1)
    assert (said["landed"], [*said["dead"]]) == (2, [f"{LOAD}#2"])
    (line,) = said["tables"]
    assert (line["table"], line["applied"]) == ("shop.orders", 2)
    assert notes(job) == {1: "a,b", 3: "odd", 4: "d"}
    assert clean(job)
    assert states(job) == {
        f"{LOAD}#1 raw": "replayed",
        f"{LOAD}#2 raw": "waiting",
        f"{LOAD}#3 silver": "replayed",
    }
    (shown,) = ask(job, "show", f"{LOAD}#2")["letters"]
    assert (shown["stage"], shown["text"]) == ("raw", "x,c")


def test_a_change_that_a_later_one_overtook_does_not_wait(job: Shop) -> None:
    job.put("shop/orders/20261101-000000001.csv", "Op,id,note\nU,3,good\n")
    assert job.run().ok
    assert states(job)[f"{LOAD}#3 silver"] == "overtaken"
    assert notes(job) == {3: "good", 4: "d"}


def test_records_whose_file_is_gone_wait_and_are_said_to(job: Shop) -> None:
    (job.folder / "raw" / LOAD).unlink()
    set_in(job, "defaults", "files", to={"kind": "csv", "header": True, "rfc4180": True})
    said = ask(job, "replay", f"{LOAD}#1", code=1)
    assert [*said["dead"]] == [f"{LOAD}#1"]
    assert notes(job) == {4: "d"}


def test_files_of_a_table_that_is_configured_later_come_back(job: Shop) -> None:
    job.config["unknown_tables"] = "quarantine"
    job.put("shop/items/LOAD00000001.csv", "id,note\n7,x\n")
    assert job.run().ok
    assert ask(job, "list", "--table", "shop.items")["count"] == 1
    refused = ask(job, "replay", "--table", "shop.items", code=2)["error"]["message"]
    assert "No record of a configured table" in refused
    job.config["tables"]["shop.items"] = job.config["tables"]["shop.orders"]
    said = ask(job, "replay", "--table", "shop.items")
    assert (said["landed"], said["dead"]) == (1, {})
    assert [row["id"] for row in job.rows("silver/items")] == [7]


def test_times_that_the_log_of_quarantine_does_not_tell_are_refused(job: Shop) -> None:
    deltalake.DeltaTable(str(job.folder / "aside")).delete("line = 2")
    assert "nothing is left" in ask(job, "list", "--since", "2020-01-01", code=2)["error"]["message"]
    assert ask(job, "list", "--since", "2999-01-01")["count"] == 0
