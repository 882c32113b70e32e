"""The command line on Iceberg tables: what it prints, and its exit codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

import safewrite as sw
from safewrite.iceberg.retention import KEEP
from safewrite.iceberg.write.summary import KEY
from safewrite.protocol.values import LedgerRecord, noted_sequence
from safewrite.stores.sql import SqlLedger
from safewrite.testing.history import EventKind, HistoryFile, make_rows
from tests.iceberg.command_line import NAME, Place, current, data_files, ids, set_properties, sqlite_place
from tests.servers import CatalogLab
from tests.test_cli import frame, keys_file, run, run_json


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with sqlite_place(tmp_path) as here:
        yield here


# --- doctor -----------------------------------------------------------------------------------------
def test_doctor_says_that_a_sound_table_is_sound(place: Place) -> None:
    code, printed = place.text("doctor")
    assert (code, "Nothing unsafe was found." in printed) == (0, True)
    code, answer = place.json("doctor", "--deep", "--probe")
    assert (code, answer["findings"]) == (0, [])
    assert (answer["table"], answer["version"]) == (NAME, place.open().version)
    assert (answer["arbiter"], answer["catalog"]) == ("catalog", "sql")


def test_doctor_of_a_table_without_snapshots_finds_nothing(place: Place) -> None:
    sw.create("db.empty", ids().schema, catalog=place.catalog)
    place.name = "db.empty"
    code, answer = place.json("doctor", "--deep")
    assert (code, answer["version"], answer["findings"]) == (0, -1, [])


def test_a_table_that_is_not_there_is_a_danger(place: Place) -> None:
    place.name = "db.nothing"
    code, answer = place.json("doctor")
    assert (code, [finding["code"] for finding in answer["findings"]]) == (1, ["no_table"])


def test_doctor_makes_no_tables_in_the_catalogs_database(tmp_path: Path) -> None:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/bare.db", "warehouse": tmp_path.as_uri()}
    catalog = load_catalog("bare", **properties)
    catalog.create_namespace("db")
    catalog.create_table(NAME, ids().schema)
    bare = Place(catalog, properties)
    assert bare.findings() == {}
    assert bare.json("resolve", "event-1") == (
        0, {"outcome": "not_committed", "table": NAME, "key": "event-1"}
    )  # fmt: skip
    assert bare.json("locks", "list")[0] == 2
    from sqlalchemy import inspect

    assert "safewrite_ledger" not in inspect(catalog.engine).get_table_names()  # type: ignore[attr-defined]
    catalog.close()


# --- resolve ------------------------------------------------------------------------------------------
def test_resolve_prints_the_receipt_or_that_nothing_was_committed(place: Place) -> None:
    code, receipt = place.json("resolve", "event-2")
    assert (code, receipt["version"], receipt["rows"], receipt["key"]) == (
        0, place.open().version, 1, "event-2"
    )  # fmt: skip
    code, answer = place.json("resolve", "event-9")
    assert (code, answer["outcome"]) == (0, "not_committed")
    assert "committed in snapshot" in place.text("resolve", "event-1")[1]
    assert "not committed: event-9 is in no snapshot" in place.text("resolve", "event-9")[1]


def test_resolve_exits_with_1_while_a_write_may_still_land(place: Place) -> None:
    ledger, now = ledger_of(place), place.open().version
    ledger.intend(LedgerRecord("event-3", now, "v1:1:0", in_doubt_at=now), 1 << 40)
    code, answer = place.json("resolve", "event-3")
    assert (code, answer["error"]["kind"]) == (1, "commit_unknown")


def ledger_of(place: Place) -> SqlLedger:
    return SqlLedger(place.catalog.engine, str(place.table().metadata.table_uuid))  # type: ignore[attr-defined]


def test_a_table_or_catalog_that_is_not_there_is_wrong_usage(place: Place) -> None:
    assert run("resolve", NAME, "event-1", "--catalog", "no-such-catalog")[0] == 2
    assert run("resolve", NAME, "event-1", "--catalog-property", "type")[0] == 2
    assert run("resolve", "orders", "event-1", *place.options)[0] == 2
    place.name = "db.nothing"
    code, answer = place.json("resolve", "event-1")
    assert (code, answer["error"]["kind"]) == (2, "table_not_found")


def test_each_command_tells_which_table_is_missing_from_which_catalog(place: Place) -> None:
    """They said that the catalog had no such table; of a SQL catalog under another name it shows none."""
    place.name = "db.nothing"
    for command in (["history"], ["resolve", "key"], ["changes"], ["maintain"], ["locks", "list"]):
        code, answer = place.json(*command)
        told = f"There is no Iceberg table db.nothing in the SQL catalog {place.catalog.name!r}"
        assert (code, answer["error"]["message"].partition(",")[0]) == (2, told), command


def test_a_catalog_of_pyicebergs_configuration_is_found_by_its_name(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in place.properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__HERE__{name.upper()}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", configuration())
    code, receipt = run_json("resolve", NAME, "event-1", "--catalog", "here")
    assert (code, receipt["rows"]) == (0, 2)
    code, printed = run("resolve", NAME, "event-1", env={"SAFEWRITE_CATALOG": "here"})
    assert (code, "committed in snapshot" in printed) == (0, True)


def configuration() -> Any:
    from pyiceberg.utils.config import Config

    return Config()


# --- repair -------------------------------------------------------------------------------------------
def test_repair_raises_the_retention_only_if_asked(place: Place) -> None:
    set_properties(place, {KEEP: "1000"})
    assert place.text("repair")[1].startswith("Nothing to repair.")  # a SQL catalog has a ledger
    code, plan = place.json("repair", "--set-retention", "--dry-run")
    assert (code, [step["status"] for step in plan["steps"]]) == (0, ["would"])
    assert place.table().properties[KEEP] == "1000"
    code, done = place.json("repair", "--set-retention")
    assert (code, [step["status"] for step in done["steps"]]) == (0, ["done"])
    assert place.table().properties[KEEP] == str(15 * 24 * 3600 * 1000)
    assert place.text("repair", "--set-retention")[1].startswith("Nothing to repair.")


def test_options_of_the_other_format_are_wrong_usage(place: Place, tmp_path: Path) -> None:
    for option in ("--rescue", "--sweep"):
        code, answer = place.json("repair", option)
        assert (code, answer["error"]["kind"]) == (2, "invalid_input")
    assert place.json("doctor", "--arbiter", "dynamodb")[0] == 2
    assert place.json("locks", "clear")[0] == 2
    sw.open(tmp_path / "delta", create=True).append(ids(1))
    assert run_json("repair", tmp_path / "delta", "--set-retention")[1]["steps"] == []


# --- locks --------------------------------------------------------------------------------------------
def test_locks_list_shows_ledger_and_queue_of_a_sql_catalog(place: Place) -> None:
    ledger = ledger_of(place)
    ledger.intend(LedgerRecord("event\n3", -1, "v1:1:0"), 1 << 40)
    ledger.intend(LedgerRecord("event-4", 7, "v1:1:0", in_doubt_at=noted_sequence(12)), 1 << 40)
    code, listed = place.json("locks", "list")
    assert code == 0
    assert listed["open_keys"] == [
        {"key": "event\n3", "base_snapshot": None, "in_doubt_at": None, "may_land_through": None},
        {"key": "event-4", "base_snapshot": 7, "in_doubt_at": None, "may_land_through": 12},
    ]
    assert (listed["committed_keys"], listed["whole"], listed["lock_table"]) == (2, True, None)
    assert listed["queue"] == {"serving": 0, "next": 0}
    code, printed = run("locks", "list", NAME, *place.options)
    assert (code, "2 keys with a noted commit" in printed) == (0, True)
    assert not {"None", "-1", str(noted_sequence(12))} & {*printed.split()}


# --- verify -------------------------------------------------------------------------------------------
def test_verify_counts_keys_that_are_there_once(place: Place, tmp_path: Path) -> None:
    code, answer = place.json("verify", "--ledger", keys_file(tmp_path, "event-1", "event-2"))
    assert (code, answer["clean"], answer["version"]) == (0, True, place.open().version)
    assert answer["keys"] == {"present": 2, "rows": 3, "lost": 0, "doubled": 0, "torn": 0, "unknown": 0}


def test_verify_exits_with_1_for_a_lost_a_doubled_and_a_torn_key(place: Place, tmp_path: Path) -> None:
    place.table().append(ids(1, 2), snapshot_properties={KEY: "event-1", "safewrite.rows": "2"})
    place.table().append(ids(7), snapshot_properties={KEY: "event-3", "safewrite.rows": "5"})
    sent = keys_file(tmp_path, "event-1", "event-3", "event-9")
    code, answer = place.json("verify", "--ledger", sent)
    assert code == 1
    assert answer["examples"] == {"lost": ["event-9"], "doubled": ["event-1"], "torn": ["event-3"]}


def test_an_overwrite_that_kept_rows_is_not_torn(place: Place, tmp_path: Path) -> None:
    place.open().overwrite(ids(1), where="id = 1", key="event-3")
    place.open().delete("id = 2", key="event-4")
    sent = keys_file(tmp_path, "event-1", "event-2", "event-3", "event-4")
    code, answer = place.json("verify", "--ledger", sent)
    assert (code, answer["clean"]) == (0, True)


def test_verify_asks_the_ledger_where_snapshots_were_expired(place: Place, tmp_path: Path) -> None:
    place.open().append(ids(5, 6, 7), txn=("stream", 4))
    place.open().append(ids(8), key="event-3")
    table = place.table()
    gone = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != current(table).snapshot_id]
    table.maintenance.expire_snapshots().by_ids(gone).commit()
    sent = keys_file(tmp_path, "event-1", "event-3", "event-9", "stream/4")
    code, answer = place.json("verify", "--ledger", sent)
    assert (code, answer["examples"]) == (1, {"unknown": ["event-9"]})
    assert (answer["keys"]["present"], answer["keys"]["rows"]) == (3, 6)


@pytest.fixture
def history(place: Place, tmp_path: Path) -> Path:
    """The history of two acked appends of a stress run to a partitioned table."""
    place.name = "db.stress"
    table = place.open(create=True, partition_by=["day"])
    path = tmp_path / "writer-1.jsonl"
    file = HistoryFile(path)
    for seq in range(2):
        made = make_rows(1, 1, seq, 20, key=f"key-{seq}")
        file.invoke(made, kind="safewrite", attempt=1)
        receipt = table.append(frame(made), key=f"key-{seq}")
        file.record(EventKind.OK, writer=1, seq=seq, key=f"key-{seq}", version=receipt.version)
    file.close()
    return path


def test_verify_compares_every_row_of_a_history(place: Place, history: Path) -> None:
    code, answer = place.json("verify", "--ledger", history)
    assert (code, answer["clean"]) == (0, True)
    assert (answer["rows"]["acked_rows"], answer["rows"]["lost"]) == (40, 0)


@pytest.mark.long
def test_verify_finds_rows_of_a_history_that_are_lost_and_that_are_there_twice(
    place: Place, history: Path
) -> None:
    place.open().delete("seq = 1", key="undone")
    place.open().append(frame(make_rows(1, 1, 0, 20, key="key-0")), key="another")
    code, answer = place.json("verify", "--ledger", history)
    assert (code, answer["rows"]["lost"], answer["rows"]["doubled"]) == (1, 20, 20)


def test_verify_exits_with_1_where_a_file_cannot_be_read(place: Place, history: Path) -> None:
    data_files(place.table())[0].unlink()
    code, answer = place.json("verify", "--ledger", history)
    assert (code, answer["error"]["kind"]) == (1, "data_file_damaged")


# --- real catalogs ----------------------------------------------------------------------------------------
def lab_place(lab: CatalogLab) -> Place:
    return Place(lab.load(), lab.direct, f"{lab.namespace}.orders")


@pytest.mark.long
def test_every_command_works_on_a_catalog_in_postgresql(
    catalog_lab: Callable[[Any], CatalogLab], tmp_path: Path
) -> None:
    place = lab_place(catalog_lab("sql"))
    place.open(create=True).append(ids(1, 2), key="event-1")
    assert place.json("doctor", "--deep", "--probe")[1]["findings"] == []
    assert place.json("resolve", "event-1")[1]["rows"] == 2
    assert place.json("verify", "--ledger", keys_file(tmp_path, "event-1"))[0] == 0
    assert place.json("locks", "list")[1]["committed_keys"] == 1
    assert place.json("repair")[1]["steps"] == []


def test_a_glue_table_is_judged_by_the_ledger_that_it_names(
    catalog_lab: Callable[[Any], CatalogLab], dynamodb_table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = catalog_lab("glue")
    for own, theirs in (
        ("AWS_ENDPOINT_URL", "glue.endpoint"),
        ("AWS_REGION", "glue.region"),
        ("AWS_ACCESS_KEY_ID", "glue.access-key-id"),
        ("AWS_SECRET_ACCESS_KEY", "glue.secret-access-key"),
    ):
        monkeypatch.setenv(own, lab.direct[theirs])
    place = lab_place(lab)
    place.open(create=True, lock_table=dynamodb_table).append(ids(1, 2), key="event-1")
    found = place.findings("--deep", "--probe")
    assert {code: one["severity"] for code, one in found.items()} == {
        "metadata_size": "info",
        "other_ledger": "warning",
    }
    with_ledger = place.findings("--lock-table", dynamodb_table)
    assert {code: one["severity"] for code, one in with_ledger.items()} == {
        "lock_table_no_ttl": "warning",
        "metadata_size": "info",
    }
    assert place.json("repair")[1]["steps"] == []
    assert place.json("repair", "--set-retention")[1]["steps"][0]["status"] == "done"

    assert place.json("locks", "list")[0] == 2
    code, listed = place.json("locks", "list", "--lock-table", dynamodb_table)
    assert (code, listed["committed_keys"], listed["open_keys"]) == (0, 1, [])
    assert place.findings("--lock-table", "nowhere")["lock_table_missing"]["severity"] == "danger"


# --- branches -----------------------------------------------------------------------------------------
def test_commands_look_at_the_branch_that_is_named_and_fast_forward_publishes_it(place: Place) -> None:
    table = sw.open(NAME, catalog=place.catalog, branch="audit")
    audited = table.append(ids(71), key="on the branch").version
    assert place.json("resolve", "on the branch")[1]["outcome"] == "not_committed"
    assert place.json("resolve", "on the branch", "--branch", "audit")[1]["version"] == audited
    assert place.json("doctor", "--branch", "audit")[1]["version"] == audited
    assert place.json("history", "--branch", "audit", "--limit", "1")[1]["history"][0]["version"] == audited
    assert place.json("locks", "list", "--branch", "audit")[0] == 0
    code, printed = place.text("fast-forward", "--branch", "audit", "--version", "1")
    assert (code, "audit it again" in printed) == (1, True)
    code, answer = place.json("fast-forward", "--branch", "audit", "--version", str(audited))
    assert (code, answer["outcome"], answer["version"]) == (0, "committed", audited)
    assert place.json("resolve", "on the branch")[1]["version"] == audited
    code, printed = place.text("fast-forward", "--branch", "audit")
    assert (code, "already_committed" in printed) == (0, True)


@pytest.mark.parametrize(
    "command", [("fast-forward",), ("doctor", "--branch", "none"), ("resolve", "k", "--branch", "none")]
)
def test_a_branch_that_is_not_there_or_not_named_is_refused(place: Place, command: tuple[str, ...]) -> None:
    code, printed = place.text(*command)
    assert (code != 0, "branch" in printed, "Nothing was written" in printed) == (True, True, True)
