"""Records that a job could not take, as an operator handles them: seen, repaired and replayed, retired; the same of each job.

What only dead letters know is in ``tests/cdc/test_dead_letters.py``, what only quarantine knows in ``tests/medallion/test_quarantine.py``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from safewrite.cli.app import app
from safewrite.medallion import Pipeline, verify
from tests.cdc.events import record
from tests.cdc.jobs import Job
from tests.cdc.test_dead_letters import created
from tests.medallion.test_jobs import Shop, set_in

LOAD = "shop/orders/LOAD00000001.csv"
LATER = "2999-01-01"


@dataclass
class Refused:
    """A job with three letters: the first lands once its cause is corrected, the others are no records."""

    folder: Path
    group: tuple[str, str]
    names: tuple[str, str, str]
    table: str
    noun: str

    def run(self, *words: str) -> Result:
        path = self.folder / "job.json"
        path.write_text(self.config())
        return CliRunner().invoke(app, [*self.group, *words, "--config", str(path)])

    def ask(self, *words: str, code: int = 0) -> Any:
        done = self.run(*words, "--output", "json")
        assert done.exit_code == code, done.output
        return json.loads(done.stdout)

    def wrong(self, *words: str) -> str:
        done = self.run(*words)
        assert done.exit_code == 2, done.output
        return " ".join(done.stderr.split())

    def states(self) -> dict[str, str]:
        return {one["letter"]: one["state"] for one in self.ask("list", "--state", "all")["letters"]}

    def config(self) -> str:
        raise NotImplementedError

    def repair(self) -> None:
        raise NotImplementedError

    def rows(self) -> set[int]:
        raise NotImplementedError

    def adds_up(self) -> bool:
        raise NotImplementedError


class OfKafka(Refused):
    def __init__(self, folder: Path) -> None:
        names = ("topic/0/1", "topic/0/2", "topic/0/3")
        super().__init__(folder, ("cdc", "dead-letters"), names, "db.a", "dead letter")
        self.job = Job(folder, [{"table": "a", "timestamp_fields": {"at": "epoch_ms"}}], schemas=False)

    def land(self) -> OfKafka:
        bad = (record(b"?", offset=2), record(b"?", offset=3))
        self.job.land(created(4, 0, at=5), created(1, 1, at="2024-05-01T00:00:00"), *bad)
        return self

    def config(self) -> str:
        return self.job.landing().config.model_dump_json()

    def repair(self) -> None:
        self.job.tables = [{"table": "a", "timestamp_fields": {"at": "iso8601"}}]

    def rows(self) -> set[int]:
        return set(self.job.rows("a"))

    def adds_up(self) -> bool:
        return self.job.verdict().faults == ()


class OfFiles(Refused):
    """Record 1 is cut at its comma, because quotes are said to be text."""

    def __init__(self, folder: Path) -> None:
        names = (f"{LOAD}#1", f"{LOAD}#2", f"{LOAD}#3")
        super().__init__(folder, ("medallion", "quarantine"), names, "shop.orders", "quarantined record")
        self.job = Shop(folder, {"id": "int64", "note": "string"})
        set_in(self.job, "defaults", "files", to={"kind": "csv", "header": True, "rfc4180": False})

    def land(self) -> OfFiles:
        self.job.put(LOAD, 'id,note\n1,"a,b"\nx,c\ny,c\n4,d\n')
        assert self.job.run().ok
        return self

    def config(self) -> str:
        return json.dumps(self.job.config)

    def repair(self) -> None:
        set_in(self.job, "defaults", "files", to={"kind": "csv", "header": True, "rfc4180": True})

    def rows(self) -> set[int]:
        return {row["id"] for row in self.job.rows("silver/orders")}

    def adds_up(self) -> bool:
        return [(one.clean, one.error) for one in verify(Pipeline(self.job.config))] == [(True, None)]


@pytest.fixture(params=[OfKafka, OfFiles], ids=["cdc", "medallion"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return request.param(tmp_path)


@pytest.fixture
def job(empty: Any) -> Any:
    return empty.land()


@pytest.mark.long
def test_the_walk_of_an_operator(job: Refused) -> None:
    """List, show, correct, replay, retire: what still cannot be taken waits on, nothing lands twice, the books add up each time."""
    good, bad, other = job.names
    assert job.states() == {good: "waiting", bad: "waiting", other: "waiting"}
    (whole,) = job.ask("show", good)["letters"]
    assert (whole["letter"], whole["table"], whole["state"]) == (good, job.table, "waiting")
    assert whole["reason"] in job.ask("list", good)["letters"][0]["reason"]
    job.repair()
    assert job.ask("replay", "--all", "--dry-run") == {"would_replay": [*job.names]}
    assert job.rows() == {4}
    for landed in (1, 0):
        done = job.ask("replay", "--all", code=1)
        assert (done["landed"], {*done["dead"]}, done["failed"]) == (landed, {bad, other}, {})
        assert job.rows() == {1, 4}
        assert job.adds_up()
    assert job.ask("retire", other, "--note", "a test row", "--dry-run") == {"would_retire": [other]}
    assert job.ask("retire", other, "--note", "a test row") == {"retired": 1, "open_batch": 0}
    assert job.states() == {good: "replayed", bad: "waiting", other: "retired"}
    listed = job.ask("list")
    assert (listed["count"], listed["states"]) == (1, {"waiting": 1, "replayed": 1, "retired": 1})
    assert "1 waiting, 1 replayed, 1 retired" in " ".join(job.run("list").stdout.split())
    (gone,) = job.ask("list", "--state", "retired")["letters"]
    assert (gone["letter"], gone["note"]) == (other, "a test row")
    assert job.ask("retire", "--all", "--note", "a test row")["retired"] == 1
    assert job.ask("retire", "--all", "--note", "a test row")["retired"] == 0
    assert job.ask("list")["count"] == 0
    assert job.adds_up()


@pytest.mark.sweep("medallion")
def test_letters_are_chosen_by_table_reason_time_and_name(job: Refused) -> None:
    good, bad, other = job.names
    reason = job.ask("show", good)["letters"][0]["reason"]

    def listed(*words: str) -> set[str]:
        return {one["letter"] for one in job.ask("list", *words)["letters"]}

    assert good in listed("--table", job.table, "--table", "no.table")
    assert listed("--table", "no.table") == set()
    assert listed("--reason", reason) == {good}
    assert listed("--since", "2020-01-01T00:00+02:00", "--until", LATER) == {*job.names}
    assert listed("--since", LATER) == listed("--until", "2020-01-01") == set()
    assert listed(bad, other, "--since", "2020-01-01") == {bad, other}
    found = job.ask("list", "--limit", "1")
    assert (found["count"], len(found["letters"])) == (3, 1)
    job.repair()
    assert job.ask("replay", "--reason", reason)["landed"] == 1
    assert job.ask("retire", "--since", LATER, "--note", "x")["retired"] == 0
    assert job.ask("retire", bad, "--since", "2020-01-01", "--note", "x")["retired"] == 1
    assert listed() == {other}


@pytest.mark.sweep("cdc")
def test_a_letter_that_waits_no_longer_is_said_to(job: Refused) -> None:
    """What became of it is said, and nothing is done; a name that no letter has is refused before anything is."""
    good, bad, other = job.names
    job.repair()
    assert job.ask("replay", good)["landed"] == 1
    assert job.ask("retire", bad, "--note", "x")["retired"] == 1
    gone, before = {good: "replayed", bad: "retired"}, job.states()
    for words in (["replay"], ["retire", "--note", "y"]):
        for more in ([], ["--dry-run"]):
            assert job.ask(*words, good, bad, *more)["already"] == gone
            said = " ".join(job.run(*words, good, bad, *more).stdout.split())
            assert f"{good} is replayed already. {bad} is retired already." in said
            assert "has no" in job.wrong(*words, other, "topic/0/9#9", *more)
        none = f"No {job.noun} that is meant waits."
        assert job.run(*words, "--table", "no.table").stdout.startswith(none)
    assert "A note says why" in job.wrong("retire", other, "--note", " ")
    assert job.states() == before


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["replay"], "Say which {}s are meant"),
        (["replay", "--all", "--table", "db.a"], "Say which {}s are meant"),
        (["retire", "--note", "x"], "Say which {}s are meant"),
        (["list", "--state", "lost"], "'lost' is not a state"),
        (["list", "--since", "yesterday"], "is not a time of ISO 8601"),
        (["show", "topic/0/9#9"], "The job has no {} topic/0/9#9"),
    ],
)
def test_wrong_calls_exit_with_2(empty: Refused, words: list[str], why: str) -> None:
    assert why.format(empty.noun) in empty.wrong(*words)


def test_nothing_waits_in_a_job_without_letters(empty: Refused) -> None:
    assert empty.ask("list") == {"count": 0, "states": {}, "letters": []}
    assert empty.ask("replay", "--all") == {
        "landed": 0, "dead": {}, "open_batch": 0, "failed": {}, "tables": [],
    }  # fmt: skip
