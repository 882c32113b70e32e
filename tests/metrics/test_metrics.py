"""Metrics of writes: nothing unless asked for, each write once, and never in the way of a write."""

from __future__ import annotations

import json
import pickle
import sys
import threading
import types
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

import safewrite as sw
from bench.servers.servers import Ministack
from safewrite import metrics
from safewrite.metrics import cloudwatch
from safewrite.metrics.measures import measured
from safewrite.stores.dynamodb import DynamoDBQueue
from tests.delta.spark import PREFIX, neighbourhood, rows
from tests.test_public_surface import run_without


def event(kind: Any, **details: Any) -> sw.Event:
    return sw.Event(kind, "s3://lake/orders", "text", details)


COMMIT = event("commit", operation="append", outcome="committed", attempts=3, rows=7, files=1, version=4,
               removed_rows=None, elapsed_s=0.25, key="event-1")  # fmt: skip


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def problems(line: dict[str, Any]) -> list[str]:
    """What CloudWatch would not take, by the JSON schema of the format's specification and by its text."""
    found = []
    about = line["_aws"]
    if not (isinstance(about["Timestamp"], int) and about["Timestamp"] > 1_600_000_000_000):
        found.append("Timestamp")
    for directive in about["CloudWatchMetrics"]:
        if not 1 <= len(directive["Namespace"]) <= 1024:
            found.append("Namespace")
        if not 1 <= len(directive["Metrics"]) <= 100:
            found.append("Metrics")
        for dimensions in directive["Dimensions"]:
            if len(dimensions) > 30 or len(set(dimensions)) != len(dimensions):
                found.append("Dimensions")
            found += [
                name
                for name in dimensions
                if not isinstance(line.get(name), str) or not 1 <= len(line[name]) <= 1024
            ]
        for metric in directive["Metrics"]:
            if metric["Unit"] not in ("Count", "Seconds") or set(metric) != {"Name", "Unit"}:
                found.append(metric["Name"])
            if type(line.get(metric["Name"])) not in (int, float):
                found.append(f"value of {metric['Name']}")
    return found


# --- what is measured ---------------------------------------------------------------------------------
def test_a_write_is_measured_and_a_repeat_counts_no_rows_twice() -> None:
    found = {metric.name: value for metric, value in measured(COMMIT).items()}
    assert found == {"CommitAttempts": 3, "CommitConflicts": 2, "RowsCommitted": 7, "CommitLatency": 0.25}
    again = event("commit", **(dict(COMMIT.details) | {"outcome": "already_committed", "attempts": 0}))
    found = {metric.name: value for metric, value in measured(again).items()}
    assert found == {"CommitAttempts": 0, "CommitConflicts": 0, "RowsCommitted": 0, "CommitLatency": 0.25}


def test_a_shared_commit_is_measured_by_its_leader_and_the_wait_by_who_waited() -> None:
    def shared(**more: Any) -> dict[str, float]:
        found = measured(event("commit", **(dict(COMMIT.details) | more)))
        return {metric.name: value for metric, value in found.items() if metric.name.startswith("Shared")}

    assert shared(members=4, led_by_us=True, waited_s=0.5) == {
        "SharedCommitWrites": 4,
        "SharedCommitWait": 0.5,
    }
    assert shared(members=4, led_by_us=False, waited_s=0.5) == {"SharedCommitWait": 0.5}
    assert shared(members=1, led_by_us=True, waited_s=0.0) == {}
    passed = measured(event("repair", passed_over=True))
    assert {metric.name: value for metric, value in passed.items()} == {"SharedCommitTakeovers": 1}


def test_a_failed_write_and_a_turn_are_measured_and_nothing_else() -> None:
    assert {m.name: v for m, v in measured(event("failed", error="conflict")).items()} == {
        "CommitFailures": 1
    }
    assert {m.name: v for m, v in measured(event("turn", wait_s=1.5)).items()} == {"TurnWait": 1.5}
    assert {m.name: v for m, v in measured(event("checkpoint", elapsed_s=0.5)).items()} == {
        "CheckpointTime": 0.5
    }
    assert {m.name: v for m, v in measured(event("checkpoint", elapsed_s=0.5, error="storage")).items()} == {
        "CheckpointFailures": 1
    }
    assert [measured(event(kind)) for kind in ("retry", "wait", "repair", "new")] == [{}, {}, {}, {}]


# --- CloudWatch ---------------------------------------------------------------------------------------
def test_a_line_is_what_cloudwatch_reads(capsys: pytest.CaptureFixture[str]) -> None:
    tell = metrics.emf(namespace="lake", dimensions={"Service": "orders"})
    for told in (
        COMMIT,
        event("failed", operation="append", error="conflict", elapsed_s=1.0, key=None),
        event("turn", wait_s=0.5),
        event("retry", attempt=1),
    ):
        tell(told)
    commit, failed, turn = lines(capsys)
    assert [problems(line) for line in (commit, failed, turn)] == [[], [], []]
    (directive,) = commit["_aws"]["CloudWatchMetrics"]
    assert directive == {
        "Namespace": "lake",
        "Dimensions": [["Service", "Table"]],
        "Metrics": [
            {"Name": "CommitAttempts", "Unit": "Count"}, {"Name": "CommitConflicts", "Unit": "Count"},
            {"Name": "RowsCommitted", "Unit": "Count"}, {"Name": "CommitLatency", "Unit": "Seconds"},
        ],
    }  # fmt: skip
    assert (commit["Table"], commit["Service"], commit["RowsCommitted"]) == ("s3://lake/orders", "orders", 7)
    assert (commit["operation"], commit["outcome"], commit["key"], commit["version"]) == (
        "append",
        "committed",
        "event-1",
        4,
    )
    assert (failed["CommitFailures"], failed["error"], "key" in failed) == (1, "conflict", False)
    assert turn["TurnWait"] == 0.5


def test_a_line_of_a_job_is_under_its_name_too(capsys: pytest.CaptureFixture[str]) -> None:
    metrics.emf(dimensions={"Service": "orders"}, job="küche")(COMMIT)
    (line,) = lines(capsys)
    assert problems(line) == []
    assert line["_aws"]["CloudWatchMetrics"][0]["Dimensions"] == [["Service", "Table"], ["Service", "Job"]]
    assert line["Job"] == r"k\xfcche"


def test_a_table_that_is_asked_for_metrics_prints_one_line_for_each_write_and_else_none(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    table = sw.open(tmp_path / "t", create=True, on_event=metrics.emf())
    for _ in range(2):
        table.append([{"id": 1}, {"id": 2}], key="event-1")
    with pytest.raises(sw.WouldAlterError):
        table.append([{"id": "x"}])
    found = lines(capsys)
    assert [problems(line) for line in found] == [[], [], []]
    assert [(line.get("RowsCommitted"), line.get("CommitFailures")) for line in found] == [
        (2, None),
        (0, None),
        (None, 1),
    ]
    assert {line["Table"] for line in found} == {table.uri}
    sw.open(tmp_path / "t").append([{"id": 3}])
    assert lines(capsys) == []


def test_a_closed_output_fails_no_write(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def write(self, _: str) -> int:
            raise ValueError("I/O operation on closed file")

    table = sw.open(tmp_path / "t", create=True, on_event=metrics.emf())
    monkeypatch.setattr(sys, "stdout", Closed())
    assert table.append([{"id": 1}], key="event-1").outcome == "committed"


def test_lines_of_threads_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[str] = []

    class Output:
        def write(self, text: str) -> int:
            pieces.append(text)
            return len(text)

        def flush(self) -> None:
            pass

    monkeypatch.setattr(sys, "stdout", Output())
    threads = [threading.Thread(target=metrics.emf(), args=(COMMIT,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(pieces) == 8
    assert all(piece.endswith("\n") and json.loads(piece) for piece in pieces)


@pytest.mark.parametrize("table", ["", "é" * 2000, "s3://lake/" + "x" * 2000])
def test_any_tables_name_becomes_a_dimension_that_cloudwatch_takes(table: str) -> None:
    line = json.loads(cloudwatch.line("lake", [{"Table": table}], measured(COMMIT), {}))
    assert problems(line) == []
    assert line["Table"].isascii()


@pytest.mark.parametrize(
    "wrong",
    [
        {"namespace": ""}, {"namespace": "AWS/Lambda"}, {"namespace": ":x"}, {"namespace": "a b"}, {"namespace": None},
        {"namespace": "x" * 256}, {"dimensions": {"": "x"}}, {"dimensions": {":a": "x"}}, {"dimensions": {"Table": "x"}},
        {"dimensions": {"RowsCommitted": "x"}}, {"dimensions": {"a": ""}}, {"dimensions": {"a": " "}}, {"dimensions": {"a": 1}},
        {"dimensions": {1: "a"}}, {"dimensions": {"a": "é"}}, {"dimensions": {f"d{n}": "x" for n in range(30)}},
        {"job": ""}, {"job": 5}, {"job": "x", "dimensions": {"Job": "y"}}, {"dimensions": 5}, {"dimensions": "ab"}, {"dimensions": {"_aws": "x"}}, {"dimensions": {"operation": "x"}},
    ],
    ids=str,
)  # fmt: skip
def test_what_cloudwatch_would_not_take_is_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(sw.InvalidInputError, match="Nothing was written"):
        metrics.emf(**wrong)


def test_a_listener_travels_with_its_table(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    table = sw.open(tmp_path / "t", create=True, on_event=metrics.emf(dimensions={"Service": "orders"}))
    table.append([{"id": 1}])
    capsys.readouterr()
    pickle.loads(pickle.dumps(table)).append([{"id": 2}])
    assert [line["Service"] for line in lines(capsys)] == ["orders"]


# --- OpenTelemetry ------------------------------------------------------------------------------------
class Meter:
    """A meter that remembers: names with units, and every measurement."""

    def __init__(self) -> None:
        self.made: dict[str, tuple[str, str]] = {}
        self.seen: list[tuple[str, float, dict[str, str]]] = []

    def _make(self, kind: str, name: str, unit: str) -> Any:
        self.made[name] = (kind, unit)

        def note(value: float, attributes: dict[str, str]) -> None:
            self.seen.append((name, value, attributes))

        return types.SimpleNamespace(add=note) if kind == "counter" else types.SimpleNamespace(record=note)

    def create_counter(self, name: str, *, unit: str, description: str) -> Any:
        assert description
        return self._make("counter", name, unit)

    def create_histogram(self, name: str, *, unit: str, description: str) -> Any:
        assert description
        return self._make("histogram", name, unit)


def test_a_meter_gets_counters_and_histograms(tmp_path: Any) -> None:
    meter = Meter()
    table = sw.open(
        tmp_path / "t", create=True, on_event=metrics.otel(meter, attributes={"service": "orders"})
    )
    table.append([{"id": 1}, {"id": 2}], key="event-1")
    with pytest.raises(sw.WouldAlterError):
        table.append([{"id": "x"}])
    assert meter.made == {
        "safewrite.commit.attempts": ("counter", "{attempt}"), "safewrite.commit.conflicts": ("counter", "{attempt}"),
        "safewrite.commit.failures": ("counter", "{write}"), "safewrite.rows.committed": ("counter", "{row}"),
        "safewrite.commit.latency": ("histogram", "s"), "safewrite.turn.wait": ("histogram", "s"),
        "safewrite.commit.shared.writes": ("histogram", "{write}"), "safewrite.commit.shared.wait": ("histogram", "s"),
        "safewrite.commit.shared.takeovers": ("counter", "{writer}"),
        "safewrite.checkpoint.time": ("histogram", "s"), "safewrite.checkpoint.failures": ("counter", "{checkpoint}"),
        "safewrite.medallion.files": ("counter", "{file}"), "safewrite.medallion.rows": ("counter", "{row}"),
        "safewrite.medallion.quarantined": ("counter", "{row}"), "safewrite.medallion.applied": ("counter", "{row}"),
        "safewrite.medallion.failures": ("counter", "{run}"), "safewrite.medallion.time": ("histogram", "s"),
        "safewrite.medallion.lag.files": ("histogram", "{file}"), "safewrite.medallion.lag.commits": ("histogram", "{commit}"),
        "safewrite.medallion.lag.time": ("histogram", "s"),
        "safewrite.cdc.records": ("counter", "{record}"), "safewrite.cdc.applied": ("counter", "{change}"),
        "safewrite.cdc.late": ("counter", "{change}"), "safewrite.cdc.duplicate": ("counter", "{change}"),
        "safewrite.cdc.superseded": ("counter", "{change}"), "safewrite.cdc.tombstoned": ("counter", "{change}"),
        "safewrite.cdc.dead": ("counter", "{record}"), "safewrite.cdc.commit.time": ("histogram", "s"),
        "safewrite.cdc.lag.time": ("histogram", "s"), "safewrite.cdc.valid.through": ("histogram", "s"),
        "safewrite.cdc.lag.records": ("histogram", "{record}"), "safewrite.cdc.batch.time": ("histogram", "s"),
        "safewrite.cdc.failures": ("counter", "{stream}"),
        "safewrite.upkeep.files": ("counter", "{file}"), "safewrite.upkeep.live.files": ("histogram", "{file}"),
        "safewrite.upkeep.time": ("histogram", "s"), "safewrite.upkeep.failures": ("counter", "{table}"),
    }  # fmt: skip
    found = {name: (value, attributes) for name, value, attributes in meter.seen}
    named = {"service": "orders", "safewrite.table": table.uri, "safewrite.operation": "append"}
    assert found["safewrite.rows.committed"] == (2, named | {"safewrite.outcome": "committed"})
    assert found["safewrite.commit.failures"] == (1, named | {"safewrite.error": "would_alter"})
    assert Counter(name for name, _, _ in meter.seen)["safewrite.commit.latency"] == 1


def test_without_a_meter_that_of_the_global_provider_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    meters: dict[str, Meter] = {}
    api = types.ModuleType("opentelemetry")
    api.metrics = types.SimpleNamespace(get_meter=lambda name: meters.setdefault(name, Meter()))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "opentelemetry", api)
    metrics.otel()(COMMIT)
    assert meters["safewrite"].seen[0][0] == "safewrite.commit.attempts"
    pickle.loads(pickle.dumps(metrics.otel(attributes={"a": "b"})))(COMMIT)
    assert meters["safewrite"].seen[-1][2]["a"] == "b"
    with pytest.raises(TypeError):
        pickle.dumps(metrics.otel(Meter()))


def test_without_opentelemetry_the_error_names_the_extra_and_the_rest_works() -> None:
    code = """
import safewrite as sw
from bench.servers.servers import Ministack
from safewrite import metrics
metrics.emf()
try:
    metrics.otel()
except sw.MissingExtraError as error:
    print(error.kind, "pip install 'opentelemetry-api>=" in str(error))
"""
    done = run_without(("opentelemetry",), code)
    assert (done.stdout.strip(), done.stderr) == ("missing_extra True", "")


@pytest.mark.parametrize(
    "wrong", [{"meter": 5}, {"attributes": {"a": 1}}, {"attributes": {"": "a"}}, {"attributes": 7}], ids=str
)
def test_a_meter_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(sw.InvalidInputError, match="Nothing was written"):
        metrics.otel(**({"meter": Meter()} | wrong))


def test_importing_safewrite_imports_no_metrics() -> None:
    done = run_without(
        (),
        "import safewrite, sys; print([m for m in sys.modules if 'safewrite.metrics' in m or 'opentelemetry' in m])",
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


# --- turns --------------------------------------------------------------------------------------------
def test_a_writer_that_waits_for_its_turn_is_measured_on_a_real_queue(
    ministack: Ministack, capsys: pytest.CaptureFixture[str]
) -> None:
    here = neighbourhood(ministack)
    here.create()
    table: Any = sw.open(here.uri, storage_options=here.options, lease_s=0.2, on_event=metrics.emf())
    DynamoDBQueue(
        here.dynamodb, here.lock_table, f"s3a://{here.bucket}/{PREFIX}"
    ).take()  # a writer that died
    table._writer.queue_first = 1
    table.append(rows(1), key="event-1")
    turn, commit = lines(capsys)
    assert (turn["kind"], commit["kind"], turn["Table"]) == ("turn", "commit", table.uri)
    assert 0.2 < turn["TurnWait"] <= commit["CommitLatency"]


def test_what_lasts_has_buckets_below_a_second() -> None:
    """T4-E3: the SDK's own bounds begin at 5, so that every commit fell into one bucket."""
    advised: dict[str, Any] = {}

    class Meter:
        def create_counter(self, name: str, **_: Any) -> Any:
            return SimpleNamespace(add=None)

        def create_histogram(
            self, name: str, *, unit: str, description: str, explicit_bucket_boundaries_advisory: Any = None
        ) -> Any:
            advised[name] = explicit_bucket_boundaries_advisory
            return SimpleNamespace(record=None)

    metrics.otel(Meter())
    assert sum(bound < 1 for bound in advised["safewrite.commit.latency"]) > 3
    assert advised["safewrite.commit.shared.writes"] is None
