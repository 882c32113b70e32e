"""What only dead letters of change data know: tables, epochs, batches that are open, replays that broke off, ledgers.

The commands, as both jobs have them, are in ``tests/intake/test_letters.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import safewrite as sw
from safewrite.cdc.landing.dead_letters import DeadLetters
from safewrite.cdc.ledger.ledger import JobLedger
from safewrite.cdc.records.change import KafkaRecord
from safewrite.cdc.table.table_batch import TableBatch
from safewrite.cli.app import app
from safewrite.intake.letters import LetterFilter
from tests.cdc.events import event, postgres, record
from tests.cdc.jobs import Job, change
from tests.cdc.test_commands import answer, run


@pytest.fixture(params=["delta", "iceberg"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    (tmp_path / "lake").mkdir()
    return Job(tmp_path, [{"table": "a"}], request.param)


def created(
    key: int, offset: int, table: str = "a", *, ms: int | None = 1714000000000, **row: Any
) -> KafkaRecord:
    source = postgres(offset + 1, table, ts_ms=ms)
    return record(event("c", {"id": key, **row}, source=source, ts_ms=ms), {"id": key}, offset=offset)


def letters(job: Job, *arguments: str) -> Result:
    """A command on dead letters."""
    file = job.folder / "job.json"
    file.write_text(job.landing().config.model_dump_json())
    return CliRunner().invoke(app, ["cdc", "dead-letters", *arguments, "--config", str(file)])


def told(job: Job, *arguments: str, code: int = 0) -> Any:
    found = letters(job, *arguments, "--output", "json")
    assert found.exit_code == code, found.output
    return json.loads(found.stdout)


def states(job: Job) -> list[tuple[int, str]]:
    return sorted((one["offset"], one["state"] or "waiting") for one in job.letters())


def books(job: Job) -> dict[str | None, tuple[int, int, int]]:
    """Records, dead letters and replayed ones by table; everything has to add up."""
    verdict = job.verdict()
    assert verdict.faults == ()
    return {
        one.table: (one.totals["records"], one.totals["dead"], one.totals["replayed"])
        for one in verdict.accounts
    }


@pytest.mark.sweep("iceberg")
def test_a_table_that_was_not_configured_is_and_its_letters_land(job: Job) -> None:
    """The walk: a job meets a table that it does not know; the operator looks, adds the table, replays, and verifies."""
    unclocked = created(7, 1, "b", ms=None)
    job.land(created(1, 0), unclocked, created(8, 2, "b", ms=None), record(b"?", offset=3))
    listed = told(job, "list")
    assert [(one["letter"], one["state"]) for one in listed["letters"]] == [
        (f"topic/0/{n}", "waiting") for n in (1, 2, 3)
    ]
    (whole,) = told(job, "show", "topic/0/1")["letters"]
    assert "no table of the configuration takes rows of inventory.public.b" in whole["reason"]
    assert '"id":7' in whole["value"]
    job.tables.append({"table": "b"})
    assert told(job, "replay", "--reason", "no table of", "--dry-run")["would_replay"] == [
        "topic/0/1",
        "topic/0/2",
    ]
    done = told(job, "replay", "--reason", "no table of")
    assert (done["landed"], done["dead"]) == (2, {})
    assert job.rows("b") == {7: {"id": 7}, 8: {"id": 8}}
    assert states(job) == [(1, "replayed"), (2, "replayed"), (3, "waiting")]
    assert books(job) == {None: (3, 3, 0), "db.a": (1, 0, 0), "db.b": (2, 0, 2)}
    # The job goes on in the table that the replay made, and a second replay finds nothing.
    job.land(created(9, 4, "b"), number=1)
    assert set(job.rows("b")) == {7, 8, 9}
    assert told(job, "replay", "--all", code=1)["landed"] == 0
    assert told(job, "retire", "topic/0/3", "--note", "a test of the producer")["retired"] == 1
    assert states(job)[2] == (3, "retired")
    assert told(job, "list")["count"] == 0
    (gone,) = told(job, "list", "--state", "retired")["letters"]
    assert gone["note"] == "a test of the producer"
    status = answer(job, "status")
    assert (status["dead_nowhere"], status["dead_nowhere_waiting"], status["batches"]) == (3, 0, 2)
    assert {one["table"]: (one["state"], one["last_batch"]) for one in status["tables"]} == {
        "db.a": ("ok", 0),
        "db.b": ("ok", 1),
    }
    assert "3 dead letters: 2 replayed, 1 retired" in run(job, "verify").stdout


@pytest.mark.sweep("iceberg")
def test_a_letter_never_beats_a_newer_change(job: Job) -> None:
    """The time is declared by the configuration; meanwhile a newer change of one row landed, and a delete of another."""
    job.schemas = False
    job.tables = [{"table": "a", "timestamp_fields": {"at": "epoch_ms"}}]
    job.land(created(0, 0, at=5), *(created(n, n, at="2024-05-01T00:00:00") for n in (1, 2, 3)))
    newer = change("u", "a", 1, {"id": 1, "at": 7}, lsn=90, offset=4)
    job.land(newer, change("d", "a", 2, None, lsn=91, offset=5), number=1)
    job.tables = [{"table": "a", "timestamp_fields": {"at": "iso8601"}}]
    found = DeadLetters(job.landing()).replay()
    assert (found.landed, found.dead) == (3, {})
    (line,) = [one for one in found.tables if one.table]
    assert (line.records, line.applied, line.late) == (3, 1, 2)
    assert {key: row["at"].year for key, row in job.rows("a").items()} == {0: 1970, 1: 1970, 3: 2024}
    assert books(job)["db.a"] == (9, 3, 3)


@pytest.mark.long
def test_letters_that_are_all_late_are_not_a_source_that_was_set_back(tmp_path: Path) -> None:
    """Their clock ran ahead, and what came after them landed first."""
    job = Job(tmp_path, [{"table": "b"}])
    job.land(created(1, 0, ms=1814000000000, n=1), created(1, 1, "b"))
    job.tables.append({"table": "a"})
    job.land(change("u", "a", 1, {"id": 1, "n": 2}, lsn=90, offset=2), number=1)
    assert DeadLetters(job.landing()).replay().landed == 1
    assert job.rows("a") == {1: {"id": 1, "n": 2}}


class CrashError(Exception):
    """The process dies here."""


def crash(*_: object, **__: object) -> None:
    raise CrashError


def test_a_replay_lands_by_tasks_and_looks_at_no_other_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path, [{"table": "b"}, {"table": "c"}])
    job.land(created(1, 0, "b"), created(2, 1), created(3, 2, "c"))
    job.tables.append({"table": "a"})
    monkeypatch.setattr(TableBatch, "prepared", crash)
    landing = job.landing()
    assert DeadLetters(landing).replay().landed == 1
    assert set(job.rows("a")) == {2}
    assert {*landing.by_tasks.views} == {"db.a"}


STEPS: list[tuple[type, str, Callable[..., Any]]] = [
    (JobLedger, "write_replay", crash),
    (DeadLetters, "end", crash),
]


@pytest.mark.sweep("iceberg", "before the letters")
@pytest.mark.parametrize(("where", "step", "dies"), STEPS, ids=["before the ledger", "before the letters"])
def test_a_replay_that_broke_off_is_finished_and_counts_once(
    job: Job, monkeypatch: pytest.MonkeyPatch, where: type, step: str, dies: Callable[..., Any]
) -> None:
    """The process dies after the tables, or after the ledger; the next replay is of other letters too."""
    job.land(created(7, 0, "b", n=1), created(1, 1), created(8, 2, "b", n=2))
    job.tables.append({"table": "b"})
    with monkeypatch.context() as patch:
        patch.setattr(where, step, dies)
        with pytest.raises(CrashError):
            DeadLetters(job.landing()).replay(LetterFilter(names=("topic/0/0",)))
    assert job.rows("b") == {7: {"id": 7, "n": 1}}
    assert states(job) == [(0, "replaying"), (2, "waiting")]
    assert job.verdict().faults == ()
    job.tables[-1]["leave_out"] = ["n"]  # what was committed counts, whatever the configuration says by now
    found = DeadLetters(job.landing()).replay()
    assert (found.landed, set(job.rows("b"))) == (2, {7, 8})
    assert books(job) == {None: (2, 2, 0), "db.a": (1, 0, 0), "db.b": (2, 0, 2)}
    assert sum(one.applied for one in found.tables) == 2


@pytest.mark.sweep("iceberg")
def test_a_replay_that_broke_off_still_knows_what_did_not_land(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source left out a value that nobody has; the process dies once the table has the other letter."""
    lacks = record(
        event("u", {"id": 9, "n": "__debezium_unavailable_value", "m": 2}, source=postgres(3, "b")),
        {"id": 9},
        offset=2,
    )
    job.tables.append({"table": "b"})
    job.land(created(7, 0, "b", n="x", m="no number"), created(8, 1, "b", n="y", m=1), lacks)
    assert states(job) == [(0, "waiting"), (2, "waiting")]
    job.tables[-1]["leave_out"] = ["m"]
    with monkeypatch.context() as patch:
        patch.setattr(JobLedger, "write_replay", crash)
        with pytest.raises(CrashError):
            DeadLetters(job.landing()).replay()
    assert set(job.rows("b")) == {7, 8}
    found = DeadLetters(job.landing()).replay()
    assert (found.landed, [*found.dead]) == (1, ["topic/0/2"])
    assert states(job) == [(0, "replayed"), (2, "waiting")]
    assert books(job)["db.b"] == (4, 2, 1)


@pytest.mark.sweep("iceberg")
def test_letters_of_a_batch_that_is_not_closed_are_left_alone(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies before the ledger: the batch comes again, and keeps its letters again."""
    sent = (created(1, 0), record(b"?", offset=1))
    with monkeypatch.context() as patch:
        patch.setattr(JobLedger, "write", crash)
        with pytest.raises(CrashError):
            job.land(*sent)
    found = DeadLetters(job.landing()).replay()
    assert (found.landed, found.open_batch, states(job)) == (0, 1, [(1, "waiting")])
    assert told(job, "retire", "--all", "--note", "x") == {"retired": 0, "open_batch": 1}
    job.land(*sent)
    assert told(job, "retire", "--all", "--note", "x")["retired"] == 1


@pytest.mark.sweep("iceberg")
def test_of_two_operators_at_once_one_is_refused(job: Job) -> None:
    job.land(record(b"?", offset=0), record(b"?", offset=1))
    one, other = (DeadLetters(job.landing()) for _ in range(2))
    mine, theirs = one.find(), other.find()
    one.retire(mine, "x")
    with pytest.raises(sw.ConflictError):
        other.begin(theirs)
    assert states(job) == [(0, "retired"), (1, "retired")]


@pytest.mark.sweep("iceberg")
def test_what_still_cannot_land_waits_with_its_new_reason(job: Job) -> None:
    job.land(record(b"?", offset=0, headers={"trace": b"\xff"}), created(7, 1, "b"), created(1, 2))
    found = letters(job, "replay", "--all")
    assert (found.exit_code, "0 landed, 2 still cannot" in found.stdout) == (1, True), found.output
    job.tables.append({"table": "b", "leave_out": ["id"]})
    assert (
        "leave_out has all of the record's key"
        in told(job, "replay", "topic/0/1", code=1)["dead"]["topic/0/1"]
    )
    (one,) = [one for one in job.letters() if one["offset"] == 1]
    assert (one["table"], one["state"], one["replay"]) == ("db.b", None, None)
    (whole,) = told(job, "show", "topic/0/0")["letters"]
    assert whole["headers"] == {"trace": "base64:/w=="}
    assert answer(job, "status")["dead_nowhere_waiting"] == 1
    assert books(job) == {None: (2, 2, 0), "db.a": (1, 0, 0)}


@pytest.mark.sweep("iceberg")
def test_verify_finds_a_replay_that_the_ledger_does_not_have(job: Job) -> None:
    job.land(created(7, 0, "b"))
    job.tables.append({"table": "b"})
    DeadLetters(job.landing()).replay()
    landing = job.landing()
    ledger = landing.targets.find(landing.ledger.table)
    assert ledger is not None
    ledger.delete([("replayed", ">", 0)])
    assert job.verdict().faults == ("0 dead letters are counted as replayed, and 1 are marked so",)


@pytest.mark.sweep("iceberg")
def test_letters_of_an_earlier_version_get_the_new_columns(job: Job) -> None:
    """The table of dead letters was made before letters had states."""
    job.land(record(b"?", offset=0))
    landing = job.landing()
    table = landing.targets.find(landing.ledger.letters)
    assert table is not None
    rows = table.rows(where=[("job", "=", "job")])
    old = [one for one in rows.column_names if one not in {"state", "replay", "note"}]
    table.overwrite(rows.slice(0, 0))
    if job.form == "iceberg":
        with table.iceberg.update_schema() as update:  # type: ignore[attr-defined]
            for name in ("state", "replay", "note"):
                update.delete_column(name)
    else:
        import deltalake

        deltalake.write_deltalake(table.uri, rows.select(old), mode="overwrite", schema_mode="overwrite")
    fresh = job.landing()
    again = fresh.targets.find(fresh.ledger.letters)
    assert again is not None
    if job.form == "iceberg":
        again.append(rows.select(old))
    assert told(job, "list")["count"] == 1
    assert answer(job, "status")["dead_nowhere_waiting"] == 1
    assert told(job, "retire", "--all", "--note", "x")["retired"] == 1


@pytest.mark.sweep("iceberg", "misfit")
@pytest.mark.parametrize("why", ["misfit", "unknown"])
def test_a_letter_from_before_a_raised_epoch_never_takes_the_place_of_newer_rows(job: Job, why: str) -> None:
    """A failover: positions of the new primary are smaller, and letters of the old one wait still."""
    job.schemas = False
    other = {"table": "c", "epoch": 3}
    job.tables = [other] if why == "unknown" else [{"table": "a", "column_types": {"n": "int64"}}, other]
    job.land(change("u", "a", 1, {"id": 1, "n": "x" if why == "misfit" else 5}, lsn=500, offset=0))
    assert states(job) == [(0, "waiting")]
    job.tables = [
        {"table": "a", "epoch": 1, "on_misfit": {"n": "null"}, "column_types": {"n": "int64"}},
        other,
    ]
    job.land(change("r", "a", 1, {"id": 1, "n": 7}, lsn=9, offset=1), number=1)
    done = told(job, "replay", "--all", code=1)
    assert done["landed"] == 0
    assert "before its table's epoch was raised" in done["dead"]["topic/0/0"]
    assert job.rows("a") == {1: {"id": 1, "n": 7}}
    assert states(job) == [(0, "waiting")]
    told(job, "retire", "--all", "--note", "the snapshot has it")
    assert job.verdict().faults == ()


@pytest.mark.long
def test_a_letter_lands_under_the_epoch_that_its_table_had_and_has(job: Job) -> None:
    """Another table's epoch is not its own."""
    job.schemas = False
    ours = {"table": "a", "epoch": 2, "column_types": {"n": "int64"}}
    job.tables = [ours, {"table": "c"}]
    job.land(change("u", "a", 1, {"id": 1, "n": "x"}, lsn=500, offset=0), created(4, 1, "b"))
    job.tables = [ours | {"on_misfit": {"n": "null"}}, {"table": "b"}, {"table": "c", "epoch": 1}]
    assert told(job, "replay", "--all")["landed"] == 2
    assert (set(job.rows("a")), set(job.rows("b"))) == ({1}, {4})


@pytest.mark.long
def test_a_letter_of_a_table_made_unasked_knows_the_epoch_of_such_tables(job: Job) -> None:
    """Their epoch is raised in defaults, and the configuration has no name of theirs."""
    job.schemas, job.tables = False, []
    made = {"column_types": {"n": "int64"}, "format": job.form}
    unasked = {"unknown_tables": "create", "unknown_database": "db"}
    job.settings = {**unasked, "defaults": made}
    job.land(change("u", "a", 1, {"id": 1, "n": "x"}, lsn=500, offset=0), record(b"?", offset=1))
    job.settings = {**unasked, "defaults": made | {"epoch": 1, "on_misfit": {"n": "null"}}}
    job.land(change("r", "a", 1, {"id": 1, "n": 7}, lsn=9, offset=2), number=1)
    done = told(job, "replay", "--all", code=1)
    assert "before its table's epoch was raised" in done["dead"]["topic/0/0"]
    assert "before its table's" not in done["dead"]["topic/0/1"]
    assert job.rows("public_a") == {1: {"id": 1, "n": 7}}
