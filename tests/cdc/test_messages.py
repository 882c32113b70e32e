"""What an operator reads: one line each, with what happened, where, and what to do (T3-B15)."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deltalake
import pytest
from typer.testing import CliRunner

import safewrite as sw
from safewrite.cdc import Pipeline
from safewrite.cdc.kafka.admin import PATIENCE_S, KafkaAdmin, reason_of, refuse_without_jars
from safewrite.cli.app import Level, _Lines, _log
from tests.cdc.events import record
from tests.cdc.jobs import Job, change
from tests.cdc.test_commands import answer


class JavaPackage:
    """What py4j gives for a name that no class has."""


class JavaClass:
    """What py4j gives for a class."""


def jvm(client: Any, source: Any) -> Any:
    return SimpleNamespace(
        org=SimpleNamespace(
            apache=SimpleNamespace(
                kafka=SimpleNamespace(clients=SimpleNamespace(admin=SimpleNamespace(Admin=client))),
                spark=SimpleNamespace(
                    sql=SimpleNamespace(kafka010=SimpleNamespace(KafkaSourceProvider=source))
                ),
            )
        )
    )


@pytest.mark.parametrize(
    ("client", "source", "said"),
    [
        (JavaPackage(), JavaPackage(), "the Kafka client and Spark's source for Kafka"),
        (JavaClass(), JavaPackage(), "no jars for Spark's source for Kafka"),
        (JavaPackage(), JavaClass(), "no jars for the Kafka client"),
    ],
)
def test_a_session_without_jars_for_kafka_says_which_and_where_from(
    client: Any, source: Any, said: str
) -> None:
    """It was ``'JavaPackage' object is not callable``."""
    with pytest.raises(sw.MissingExtraError, match=said) as told:
        refuse_without_jars(jvm(client, source), "4.1.4")
    assert "spark-sql-kafka-0-10_2.13:4.1.4" in str(told.value)
    assert "--jars" in str(told.value)
    with pytest.raises(sw.MissingExtraError, match=r"_2\.12:3\.5\.8"):
        refuse_without_jars(jvm(client, source), "3.5.8")
    refuse_without_jars(jvm(JavaClass(), JavaClass()), "4.1.4")


AWAY = (
    "An error occurred while calling o58.get.\n: java.util.concurrent.ExecutionException: org.apache.kafka.common.errors."
    "TimeoutException: Timed out waiting for a node assignment.\n\tat java.base/x.reportGet(Unknown Source)\n"
    "Caused by: org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment."
)
REFUSED = "An error occurred while calling o58.get.\n: org.apache.kafka.common.errors.SaslAuthenticationException: no such user\n\tat a.b"


def admin(now: list[float]) -> KafkaAdmin:
    """One whose clock goes on by ten seconds each time it is looked at."""

    def clock() -> float:
        now[0] += 10.0
        return now[0]

    return KafkaAdmin("broker:9092", {}, sleep=lambda _: None, clock=clock)


def test_a_broker_that_is_away_is_told_of_at_each_try_and_then_the_job_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It was two minutes of silence, then 159 lines."""
    asked = []

    def question() -> None:
        asked.append(1)
        raise RuntimeError(AWAY)

    with pytest.raises(sw.StorageError) as told:
        admin([0.0]).asked(question, "its topics")
    text = str(told.value)
    assert "\n" not in text
    assert all(
        part in text
        for part in ("broker:9092", "Timed out waiting", "Nothing of this batch was written", "kafka.options")
    )
    assert len(asked) == PATIENCE_S / 10
    warnings = [one.getMessage() for one in caplog.records]
    assert len(warnings) == len(asked) - 1
    assert "asked again for 50 s more" in warnings[0]


def test_a_broker_that_comes_back_is_heard_and_one_that_refuses_is_not_asked_again() -> None:
    answers: list[Any] = [RuntimeError(AWAY), RuntimeError(AWAY), 7]

    def question() -> Any:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    assert admin([0.0]).asked(question, "its topics") == 7
    answers = [RuntimeError(REFUSED), 7]
    with pytest.raises(sw.StorageError, match="no such user"):
        admin([0.0]).asked(question, "its topics")
    answers = [sw.InvalidInputError("no such topic"), 7]
    with pytest.raises(sw.InvalidInputError, match="no such topic"):
        admin([0.0]).asked(question, "its topics")


def test_an_error_of_java_is_one_line() -> None:
    assert reason_of(RuntimeError(AWAY)) == (
        "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment."
    )
    assert reason_of(RuntimeError(REFUSED)).endswith("SaslAuthenticationException: no such user")
    assert reason_of(RuntimeError("")) == ""


def test_a_stream_ends_with_the_error_of_its_batch_or_with_one_line_of_sparks(tmp_path: Path) -> None:
    """A second job of one name was 449 lines of Java and Python."""
    pipeline = Pipeline(Job(tmp_path, [{"table": "a"}]).landing().config)

    def ended(timeout: float) -> None:
        raise RuntimeError(
            "[STREAM_FAILED] Query terminated\nTraceback\n: org.x.Y: offset out of range\n\tat z"
        )

    query: Any = SimpleNamespace(awaitTermination=ended)
    with pytest.raises(sw.StorageError) as told:
        pipeline.wait(query)
    assert "offset out of range" in str(told.value)
    assert "\n" not in str(told.value)
    pipeline.error = sw.ConflictError("Another job was faster.", kind=sw.Kind.POSITION_MOVED)
    with pytest.raises(sw.ConflictError, match="Another job was faster"):
        pipeline.wait(query)
    pipeline.error = OSError("disk full")
    with pytest.raises(sw.StorageError, match="OSError: disk full"):
        pipeline.wait(query)
    pipeline.wait(SimpleNamespace(awaitTermination=lambda timeout: True))  # type: ignore[arg-type]


def test_a_line_of_the_log_has_its_time_and_its_table() -> None:
    line = logging.LogRecord("safewrite", logging.WARNING, "x.py", 1, "write retries: %s", ("busy",), None)
    line.created = 0.25
    line.msecs = 250.0
    shown = _Lines("%(asctime)s %(levelname)s %(name)s: %(message)s")
    assert shown.format(line) == "1970-01-01T00:00:00.250Z WARNING safewrite: write retries: busy"
    line.table = "db.a"
    assert shown.format(line).endswith("WARNING safewrite: db.a: write retries: busy")
    named = logging.LogRecord(
        "safewrite", logging.INFO, "x.py", 1, "batch 1 of job: db.a: 5 records", (), None
    )
    named.table = "db.a"
    assert shown.format(named).endswith("safewrite: batch 1 of job: db.a: 5 records")


def test_each_line_of_a_batch_names_a_table(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """``committed in version 5`` was a line that stood twice, of the table and of the ledger."""
    with caplog.at_level(logging.INFO, "safewrite"):
        Job(tmp_path, [{"table": "a"}]).land(change("c", "a", 1, {"id": 1}, lsn=1, offset=0))
    shown = _Lines("%(levelname)s %(name)s: %(message)s")
    lines = [shown.format(one) for one in caplog.records if "committed in version" in one.getMessage()]
    assert len(lines) == 2
    assert "db/a" in lines[0]
    assert "job_ledger" in lines[1]


def test_calls_between_python_and_java_are_lines_of_debug_only() -> None:
    root, py4j = logging.getLogger(), logging.getLogger("py4j")
    before = root.handlers[:], root.level, py4j.level
    try:
        _log(Level.INFO)
        assert not py4j.isEnabledFor(logging.ERROR)
        py4j.setLevel(logging.NOTSET)
        _log(Level.DEBUG)
        assert py4j.level == logging.NOTSET
    finally:
        root.handlers[:], level, py4j.level = before
        root.setLevel(level)


@pytest.mark.parametrize(
    ("table", "said"),
    [({}, "raise epoch"), ({"sequence": "precombine", "precombine_key": ["n"]}, "that order them (n)")],
)
def test_a_batch_that_is_late_is_told_in_words_of_the_configuration(
    tmp_path: Path, table: dict[str, Any], said: str
) -> None:
    job = Job(tmp_path, [{"table": "a", **table}])
    job.land(*(change("c", "a", at, {"id": at, "n": 9}, lsn=100 + at, offset=at) for at in range(3)))
    late = [change("u", "a", at, {"id": at, "n": 1}, lsn=1 + at, offset=10 + at, ts_ms=1) for at in range(3)]
    for one in range(len(late)):
        value = (late[one].value or b"").replace(b"1714000000000", b"1714999999999")
        late[one] = type(late[one])("topic", 0, 10 + one, late[one].key, value)
    with pytest.raises(sw.InvalidInputError) as told:
        job.land(*late, number=1)
    text = str(told.value)
    assert said in text
    assert "all_late to count" in text
    assert "db.a" in text
    assert "=" not in text, "no argument of a call that the operator does not make"


@pytest.mark.long
def test_dead_letters_that_were_deleted_by_age_are_no_fault_and_others_are(tmp_path: Path) -> None:
    """``verify`` failed for ever once old letters were deleted."""
    (tmp_path / "lake").mkdir()
    job = Job(tmp_path, [{"table": "a"}])
    for number in range(3):
        first = 10 * number
        job.land(
            record(b"?", offset=first), record(b"?", offset=first + 1),
            change("c", "a", number, {"id": number}, lsn=number + 1, offset=first + 2), number=number,
        )  # fmt: skip
    letters = deltalake.DeltaTable(str(tmp_path / "cdc" / "job_dead_letters"))
    assert answer(job, "verify")["notes"] == []
    letters.delete("offset < 10")
    told = answer(job, "verify")
    assert told["faults"] == []
    assert told["notes"] == [
        "2 of 6 dead letters are not kept any more: those of the oldest batches, as where they were deleted by age"
    ]
    letters = deltalake.DeltaTable(str(tmp_path / "cdc" / "job_dead_letters"))
    letters.delete("offset = 20")
    file = tmp_path / "job.json"
    from safewrite.cli.app import app

    found = CliRunner().invoke(app, ["cdc", "verify", "--config", str(file)])
    assert found.exit_code == 1
    assert "6 records are told as dead letters, and 3 are kept" in found.output
