"""The way back from quarantine: list, show, replay and retire, as a user calls them; the books add up after each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
        f"{one['record']} {one['stage']}": one["state"]
        for one in ask(job, "list", "--state", "all")["records"]
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


def test_records_come_back_through_the_configuration_of_today(job: Shop) -> None:
    """One that stays bad waits on; a second replay takes nothing twice, and books add up each time."""
    set_in(job, "defaults", "files", to={"kind": "csv", "header": True, "rfc4180": True})
    set_in(job, "defaults", "quality", to={"quarantined_share_max": 1.0})
    assert ask(job, "replay", "--all", "--dry-run")["would_replay"] == [f"{LOAD}#1", f"{LOAD}#2", f"{LOAD}#3"]
    assert notes(job) == {4: "d"}
    said = ask(job, "replay", "--all", code=1)
    assert (said["taken"], [one["name"] for one in said["waiting"]]) == (2, [f"{LOAD}#2"])
    assert notes(job) == {1: "a,b", 3: "odd", 4: "d"}
    assert clean(job)
    assert ask(job, "replay", "--all", code=1)["taken"] == 0
    assert notes(job) == {1: "a,b", 3: "odd", 4: "d"}
    assert clean(job)
    assert states(job) == {
        f"{LOAD}#1 raw": "replayed",
        f"{LOAD}#2 raw": "waiting",
        f"{LOAD}#3 silver": "replayed",
    }
    assert ask(job, "retire", f"{LOAD}#2", "--note", "a test row")["retired"] == 1
    assert ask(job, "retire", "--all", "--note", "a test row")["retired"] == 0
    assert ask(job, "list")["count"] == 0
    (shown,) = ask(job, "show", f"{LOAD}#2")["records"]
    assert (shown["state"], shown["note"], shown["text"]) == ("retired", "a test row", "x,c")
    assert clean(job)


def test_a_change_that_a_later_one_overtook_does_not_wait(job: Shop) -> None:
    job.put("shop/orders/20261101-000000001.csv", "Op,id,note\nU,3,good\n")
    assert job.run().ok
    assert states(job)[f"{LOAD}#3 silver"] == "overtaken"
    assert notes(job) == {3: "good", 4: "d"}


def test_records_whose_file_is_gone_wait_and_are_said_to(job: Shop) -> None:
    (job.folder / "raw" / LOAD).unlink()
    set_in(job, "defaults", "files", to={"kind": "csv", "header": True, "rfc4180": True})
    said = ask(job, "replay", f"{LOAD}#1", code=1)
    assert [one["name"] for one in said["waiting"]] == [f"{LOAD}#1"]
    assert notes(job) == {4: "d"}


def test_files_of_a_table_that_is_configured_later_come_back(job: Shop) -> None:
    job.config["unknown_tables"] = "quarantine"
    job.put("shop/items/LOAD00000001.csv", "id,note\n7,x\n")
    assert job.run().ok
    assert ask(job, "list", "--table", "shop.items")["count"] == 1
    assert "No record of a configured table" in str(ask_text(job, "replay", "--table", "shop.items"))
    job.config["tables"]["shop.items"] = job.config["tables"]["shop.orders"]
    said = ask(job, "replay", "--table", "shop.items")
    assert (said["taken"], said["waiting"]) == (1, [])
    assert [row["id"] for row in job.rows("silver/items")] == [7]


def ask_text(job: Shop, *words: str) -> str:
    done = CliRunner().invoke(
        app, ["medallion", "quarantine", *words, "--config", str(job.folder / "job.json")]
    )
    assert done.exit_code == 2
    return " ".join(done.output.split())


def test_a_record_that_waits_no_longer_is_said_to(job: Shop) -> None:
    assert ask(job, "retire", "--all", "--note", "x")["retired"] == 3
    name = f"{LOAD}#1"
    assert ask(job, "replay", "--all") == {"taken": 0, "waiting": [], "failed": {}}
    for words in (["replay"], ["retire", "--note", "x"]):
        said = CliRunner().invoke(
            app, ["medallion", "quarantine", *words, "--all", "--config", str(job.folder / "job.json")]
        )
        assert said.stdout.strip() == "No record that is meant waits."
        for more in ([], ["--dry-run"]):
            assert ask(job, *words, name, *more)["already"] == {name: "retired"}
            assert "a#1 is not in quarantine" in ask_text(job, *words, name, "a#1", *more)


def test_it_must_be_said_which_records_are_meant(job: Shop) -> None:
    for words in (["replay"], ["replay", "--all", "--table", "shop.orders"], ["retire", "--note", "n"]):
        assert "Say which records are meant" in ask_text(job, *words)
    assert "a#1 is not in quarantine" in ask_text(job, "show", "a#1")
    assert "'open' is not a state" in ask_text(job, "list", "--state", "open")
    assert "A note says why" in ask_text(job, "retire", "--all", "--note", " ")
