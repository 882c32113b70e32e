"""Doctor finds each danger in a table that was prepared to have it, and nothing in a sound one."""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import safewrite as sw
from bench.servers.servers import Ministack
from safewrite.delta import upkeep
from safewrite.delta.log.actions import commit_path
from safewrite.delta.maintenance.doctor import examine
from safewrite.delta.maintenance.inspection import inspect_table, same_place
from safewrite.findings import Finding, Severity
from safewrite.protocol.effects import Ok, Outcome
from safewrite.protocol.members import packed
from safewrite.stores.aws import ServerClock
from safewrite.stores.memory import MemoryObjects
from tests.delta.logs import PROTOCOL, add, body, metadata, remove
from tests.delta.spark import PREFIX, Neighbourhood, neighbourhood, rows
from tests.test_cli import run_json

DAY_MS = 24 * 3600 * 1000


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DELTA_DYNAMO_TABLE_NAME", raising=False)


@pytest.fixture
def here(ministack: Ministack) -> Neighbourhood:
    """A table on S3 with one append of safewrite: versions 0 and 1."""
    place = neighbourhood(ministack)
    place.create().append(rows(1, 2), key="event-1")
    return place


def table_of(root: Path, *commits: tuple[dict[str, Any], ...], first: dict[str, Any] | None = None) -> Path:
    """A local table of hand-made commits; version 0 is made of protocol and metadata."""
    (root / "_delta_log").mkdir(parents=True)
    for version, actions in enumerate(((PROTOCOL, first or metadata()), *commits)):
        (root / commit_path(version)).write_bytes(body(*actions))
    return root


def with_files(root: Path, *names: str) -> Path:
    """Data files of the size that ``add`` says."""
    for name in names:
        (root / name).write_bytes(b"x" * 100)
    return root


def findings(root: Any, **more: Any) -> dict[str, Finding]:
    """Findings by code; a code that is found twice is an error of the test."""
    upkeep.finish()  # a checkpoint that is being made has no _last_checkpoint yet
    found = examine(inspect_table(root), environment={}, **more)
    return {finding.code: finding for finding in found}


def on_s3(here: Neighbourhood, *, clock: ServerClock | None = None, **more: Any) -> dict[str, Finding]:
    upkeep.finish()
    found = examine(here.inspect_table(clock=clock), environment={}, **more)
    return {finding.code: finding for finding in found}


# --- sound tables -------------------------------------------------------------------------------------
def test_nothing_is_found_in_a_sound_local_table(tmp_path: Path) -> None:
    table = sw.open(tmp_path / "orders", create=True)
    for number in range(12):
        table.append(pa.table({"id": [number]}), key=f"event-{number}")
    assert findings(tmp_path / "orders", deep=True, probe=True) == {}


@pytest.mark.long
def test_nothing_is_found_in_a_sound_table_on_s3(here: Neighbourhood) -> None:
    assert on_s3(here, deep=True, probe=True) == {}


def test_looking_leaves_no_trace(here: Neighbourhood) -> None:
    def everything() -> tuple[list[str], int]:
        objects = here.s3.list_objects_v2(Bucket=here.bucket)["Contents"]
        return [item["Key"] for item in objects], here.dynamodb.scan(TableName=here.lock_table)["Count"]

    before = everything()
    on_s3(here, deep=True)
    assert everything() == before


def test_an_address_without_a_table_is_a_danger(tmp_path: Path) -> None:
    assert findings(tmp_path)["no_table"].severity is Severity.DANGER


# --- the log ------------------------------------------------------------------------------------------
def test_a_torn_commit_is_found_by_its_version(tmp_path: Path) -> None:
    table_of(tmp_path, (add("a"),), (add("b"),))
    whole = (tmp_path / commit_path(2)).read_bytes()
    (tmp_path / commit_path(2)).write_bytes(whole[: len(whole) // 2])
    assert findings(tmp_path)["torn_commit"].details == {"version": 2}


def test_a_commit_that_was_cut_at_the_end_of_a_line_is_found(tmp_path: Path) -> None:
    table = sw.open(tmp_path, create=True)
    table.append([{"id": 1}])
    table.append([{"id": 2}], key="cut")
    commit = tmp_path / commit_path(1)
    commit.write_bytes(commit.read_bytes().splitlines(keepends=True)[0])
    found = findings(tmp_path)["torn_commit"]
    assert (found.severity, found.details) == (Severity.DANGER, {"version": 1, "files": 1})


def test_a_hole_in_the_log_is_found_by_its_versions(tmp_path: Path) -> None:
    table_of(tmp_path, *[(add(str(number)),) for number in range(5)])
    (tmp_path / commit_path(2)).unlink()
    (tmp_path / commit_path(3)).unlink()
    found = findings(tmp_path)
    assert found["log_hole"].details["versions"] == [2, 3]
    assert found["log_hole"].severity is Severity.DANGER


def test_a_log_that_was_cleaned_up_behind_a_checkpoint_has_no_hole(tmp_path: Path) -> None:
    table = sw.open(tmp_path / "orders", create=True)
    for number in range(12):
        table.append(pa.table({"id": [number]}), key=f"event-{number}")
    upkeep.finish()
    for version in range(10):
        (tmp_path / "orders" / commit_path(version)).unlink()
    assert findings(tmp_path / "orders") == {}


def test_a_file_that_two_commits_add_is_found_with_both_versions(tmp_path: Path) -> None:
    with_files(table_of(tmp_path, (add("a"),), (add("b"),), (add("a"),)), "a", "b")
    found = findings(tmp_path)
    assert found["file_added_twice"].details == {"files": {"a": [1, 3]}, "count": 1}


def test_a_file_that_was_removed_in_between_or_only_described_anew_is_no_double(tmp_path: Path) -> None:
    restored = (add("a"),), (remove("a"),), (add("a"),)
    with_files(table_of(tmp_path, *restored, (add("a", dataChange=False),)), "a")
    assert findings(tmp_path) == {}


def test_a_compaction_of_files_that_another_one_took_is_found_with_both_versions(tmp_path: Path) -> None:
    """deltalake lets it land: should this fail with an error of deltalake's, take the warning out of docs/other-engines.md."""
    table = sw.open(tmp_path / "t", create=True)
    for number in range(3):
        table.append(pa.table({"id": [number]}))
    stale = DeltaTable(tmp_path / "t")
    assert table.maintain().commits == (3,)
    assert findings(tmp_path / "t") == {}
    stale.optimize.compact()
    found = findings(tmp_path / "t")["compacted_twice"]
    assert found.severity is Severity.DANGER
    assert found.details == {"versions": {4: [3]}, "count": 1}
    assert DeltaTable(tmp_path / "t").count() == 6


def test_a_remove_said_again_and_a_compaction_of_files_that_were_brought_back_double_nothing(
    tmp_path: Path,
) -> None:
    moved = {"dataChange": False}
    first = (add("a"),), (remove("a", **moved), add("b", **moved))
    restored = (remove("b"), add("a")), (remove("a", **moved), add("c", **moved))
    overwritten = remove("b"), add("d")  # of a file that was gone, and no compaction
    with_files(
        table_of(tmp_path, *first, first[1], (remove("a", **moved),), *restored, overwritten), "c", "d"
    )
    assert findings(tmp_path) == {}


def test_a_key_in_two_commits_is_found(tmp_path: Path) -> None:
    info = {"commitInfo": {"safewrite": {"commitId": "c", "writes": [{"key": "k", "rows": 1}]}}}
    with_files(table_of(tmp_path, (info, add("a")), (info, add("b"))), "a", "b")
    assert findings(tmp_path)["key_committed_twice"].details["keys"] == {"k": [1, 2]}


def test_a_key_of_a_long_list_that_stands_by_itself_too_is_found_and_named(tmp_path: Path) -> None:
    """The list is in a file of its own, and commitInfo has the hashes of its keys."""
    pointer = {"count": 2, "path": "_safewrite/members/x.json", "md5": "", "keys": packed(["k", "other"])}
    group = {"commitInfo": {"safewrite": {"commitId": "g", "writes": [], "members": pointer}}}
    alone = {"commitInfo": {"safewrite": {"commitId": "c", "writes": [{"key": "k", "rows": 1}]}}}
    with_files(table_of(tmp_path, (group, add("a")), (alone, add("b"))), "a", "b")
    assert findings(tmp_path)["key_committed_twice"].details == {"keys": {"k": [1, 2]}, "count": 1}


def test_a_long_log_without_a_checkpoint_and_many_small_files_are_found(tmp_path: Path) -> None:
    names = [f"f{number}" for number in range(102)]
    with_files(table_of(tmp_path, *[(add(name),) for name in names]), *names)
    found = findings(tmp_path)
    assert found["long_log"].details == {"commits": 103}
    assert (found["small_files"].details["requests_saved"], found["small_files"].mend) == (
        101,
        f"safewrite maintain {tmp_path}",
    )


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (None, "no_last_checkpoint"),
        (b"{", "bad_last_checkpoint"),
        (b'{"version": 7, "size": 1}', "bad_last_checkpoint"),
    ],
)
def test_a_pointer_to_the_checkpoint_that_is_missing_or_wrong_is_found(
    tmp_path: Path, content: bytes | None, code: str
) -> None:
    table = sw.open(tmp_path, create=True)
    table.append(pa.table({"id": [1]}), key="event-1")
    table.checkpoint()
    pointer = tmp_path / "_delta_log" / "_last_checkpoint"
    pointer.unlink() if content is None else pointer.write_bytes(content)
    assert list(findings(tmp_path)) == [code]


# --- what the table asks of its writers ---------------------------------------------------------------
@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ({"delta.constraints.positive": "abs(n) > 0"}, "unsupported_feature"),
        ({"delta.logRetentionDuration": "interval 2 days"}, "retention_too_short"),
        ({"delta.setTransactionRetentionDuration": "interval 1 hour"}, "retention_too_short"),
        ({"delta.deletedFileRetentionDuration": "interval 1 hour"}, "vacuum_too_soon"),
    ],
)
def test_a_property_that_endangers_writes_is_found(
    tmp_path: Path, properties: dict[str, str], code: str
) -> None:
    table_of(tmp_path, first=metadata(properties=properties))
    assert list(findings(tmp_path)) == [code]


def test_a_retention_that_is_too_short_has_a_command_that_raises_it(tmp_path: Path) -> None:
    table_of(tmp_path, first=metadata(properties={"delta.logRetentionDuration": "interval 2 days"}))
    assert "safewrite repair TABLE --set-retention" in findings(tmp_path)["retention_too_short"].mend
    assert run_json("repair", tmp_path, "--set-retention")[1]["steps"][0]["status"] == "done"
    assert findings(tmp_path) == {}


@pytest.mark.parametrize(
    ("name", "code"),
    [("AWS_S3_ALLOW_UNSAFE_RENAME", "unsafe_setting"), ("AWS_S3_LOCKING_PROVIDER", "ignored_lock_setting")],
)
def test_an_unsafe_setting_is_found_in_the_environment_and_in_the_options(
    tmp_path: Path, name: str, code: str
) -> None:
    seen = inspect_table(table_of(tmp_path))
    by_environment = examine(seen, environment={name: "true"})
    by_options = examine(seen, storage_options={name.lower(): "true"}, environment={})
    assert [f.code for f in by_environment] == [f.code for f in by_options] == [code]
    assert "environment" in by_environment[0].message
    assert "options" in by_options[0].message


# --- data files ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("deep", [False, True])
def test_data_files_that_are_gone_or_cut_are_found(tmp_path: Path, deep: bool) -> None:
    with_files(table_of(tmp_path, (add("whole"), add("gone"), add("cut"))), "whole")
    (tmp_path / "cut").write_bytes(b"x")
    found = findings(tmp_path, deep=deep)["data_files_missing"]
    assert (found.details["missing"], found.details["changed"]) == (["gone"], ["cut"])


def test_a_removed_file_that_is_gone_is_no_loss(tmp_path: Path) -> None:
    table_of(tmp_path, (add("a"),), (remove("a"),))
    assert findings(tmp_path, deep=True) == {}


def test_only_a_deep_look_finds_data_files_that_no_commit_names(tmp_path: Path) -> None:
    with_files(table_of(tmp_path, (add("a"),)), "a", "stray.parquet")
    assert findings(tmp_path) == {}
    assert findings(tmp_path, deep=True)["unreferenced_files"].details["files"] == ["stray.parquet"]


# --- the lock table -----------------------------------------------------------------------------------
def test_a_conditional_put_writer_beside_the_lock_table_is_named(here: Neighbourhood) -> None:
    here.by_conditional_put(3)
    found = on_s3(here)["mixed_writers"]
    assert found.severity is Severity.DANGER
    assert found.details["versions"] == [2]
    assert found.details["engines"] == ["delta-rs:py-1.6.6"]


def test_old_commits_whose_entries_have_expired_are_no_mixed_writers(here: Neighbourhood) -> None:
    here.by_conditional_put(3)
    seen = here.inspect_table()
    seen.clock = ServerClock(lambda: time.time() * 1000 + 3 * DAY_MS)
    assert "mixed_writers" not in {finding.code for finding in examine(seen, environment={})}


def test_an_unfinished_entry_is_found_with_its_owner_and_key(here: Neighbourhood) -> None:
    writes = {"safewrite": {"commitId": "c", "writes": [{"key": "event-2", "rows": 1}]}}
    temp = here.spark_temp(2, info={"engineInfo": "safewrite/0.1.0", **writes})
    here.spark_entry(2, temp, complete=False)
    found = on_s3(here)["incomplete_entry"]
    assert found.severity is Severity.WARNING
    assert found.details == {
        "version": 2, "engine": "safewrite/0.1.0", "keys": ["event-2"], "versions_since": 0
    }  # fmt: skip


def test_an_entry_left_open_behind_the_log_is_aged_by_versions(here: Neighbourhood) -> None:
    temp = here.spark_temp(2)
    here.spark_entry(2, temp, complete=False)
    body_ = here.s3.get_object(Bucket=here.bucket, Key=f"{PREFIX}/_delta_log/{temp}")["Body"].read()
    here.put(commit_path(2), body_)
    for version in (3, 4, 5):
        here.put(commit_path(version), body_)
        here.spark_entry(version, f".tmp/{version:020d}.json.gone")
    found = on_s3(here)["incomplete_entry"]
    assert (found.details["version"], found.details["versions_since"]) == (2, 3)
    assert found.details["engine"].startswith("Apache-Spark")


def test_an_entry_whose_temp_file_and_commit_are_gone_is_a_danger(here: Neighbourhood) -> None:
    here.spark_entry(2, f".tmp/{2:020d}.json.gone", complete=False)
    found = on_s3(here)["commit_unfinishable"]
    assert (found.severity, found.details["version"]) == (Severity.DANGER, 2)


def test_entries_of_a_dropped_table_are_found(here: Neighbourhood) -> None:
    for version in (1, 2, 7):
        here.spark_entry(version, f".tmp/{version:020d}.json.old", tableId="another")
    found = on_s3(here)["dropped_table_entries"]
    assert found.details["entries"] == [f"{version:020d}.json" for version in (1, 2, 7)]


def test_an_acknowledged_spark_commit_that_vanished_is_found_with_its_rows(here: Neighbourhood) -> None:
    lost = here.vanish(2, 7, 8, 9)
    found = on_s3(here)["vanished_commit"]
    assert found.severity is Severity.DANGER
    assert found.details["version"] == 2
    assert found.details["rows"] == 3
    assert found.details["files"] == [lost["path"]]
    assert "repair --rescue" in found.mend


def test_a_beaten_spark_commit_that_may_not_be_acknowledged_is_a_warning(here: Neighbourhood) -> None:
    here.vanish(2, 7, complete=False)
    found = on_s3(here)
    assert "vanished_commit" not in found
    assert found["beaten_commit"].severity is Severity.WARNING


def test_a_commit_whose_files_or_batch_landed_later_has_not_vanished(here: Neighbourhood) -> None:
    again = here.vanish(2, 7)
    here.put(commit_path(3), body({"commitInfo": {}}, {"add": again}))
    here.vanish(4, 8, txn={"appId": "stream", "version": 5})
    replayed = {"txn": {"appId": "stream", "version": 5}}
    here.put(commit_path(5), body({"commitInfo": {}}, replayed, {"add": here.data_file(8)}))
    assert not {"vanished_commit", "beaten_commit"} & on_s3(here).keys()


def test_a_safewrite_attempt_that_lost_its_version_has_not_vanished(here: Neighbourhood) -> None:
    add_ = here.data_file(5)
    writes = {"safewrite": {"commitId": "c", "writes": [{"key": "event-2", "rows": 1}]}}
    here.spark_entry(2, here.spark_temp(2, {"add": add_}, info=writes))
    here.by_conditional_put(6)
    assert not {"vanished_commit", "beaten_commit", "unclaimed_temps"} & on_s3(here).keys()


def test_temp_files_without_an_entry_are_counted_and_foreign_rows_in_them_are_named(
    here: Neighbourhood,
) -> None:
    add_ = here.data_file(5, 6)
    here.spark_temp(1, {"add": add_})
    found = on_s3(here)
    assert found["orphan_temps"].details["count"] == 1
    assert found["unclaimed_temps"].details["commits"][0]["rows"] == 2


def test_another_spelling_of_the_path_is_found_and_another_table_is_not(here: Neighbourhood) -> None:
    spellings = [
        f"s3://{here.bucket}/{PREFIX}",
        f"s3a://{here.bucket}/{PREFIX}/",
        f"s3a://{here.bucket}/lake/Orders",
    ]
    for path in (*spellings, f"s3a://{here.bucket}/{PREFIX}2"):
        here.spark_entry(1, ".tmp/x", path=path)
    assert sorted(on_s3(here)["other_spellings"].details["spellings"]) == sorted(spellings)


def test_entries_are_looked_up_under_the_spelling_that_the_writers_use(here: Neighbourhood) -> None:
    name = f"{here.bucket}-old"
    create(here.dynamodb, name, "tablePath", "fileName")
    place = Neighbourhood(here.server, here.bucket, name)
    for version in range(2):
        place.spark_entry(version, ".tmp/gone", path=f"s3://{here.bucket}/{PREFIX}")
    body_ = here.s3.get_object(Bucket=here.bucket, Key=f"{PREFIX}/{commit_path(0)}")["Body"].read()
    here.put(commit_path(0), body_.replace(b"safewrite.lock-path", b"forgotten.lock-path"))
    seen = here.inspect_table(lock_table=name)
    assert [seen.version(entry) for entry in seen.entries] == [0, 1]
    assert seen.spellings == {}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("s3a://b/t", "s3://b//t/", True),
        ("s3a:/b/t", "s3n://B/T", True),
        ("s3a://b/t", "s3a://b/t2", False),
        ("s3a://b/t", "s3a://b/x/t", False),
    ],
)
def test_places_are_the_same_whatever_scheme_slashes_and_case(one: str, other: str, same: bool) -> None:
    assert same_place(one, other) is same


def test_a_lock_table_without_ttl_is_found(here: Neighbourhood) -> None:
    name, uri = f"{here.bucket}-no-ttl", f"s3://{here.bucket}/another"
    create(here.dynamodb, name, "tablePath", "fileName")
    sw.create(uri, schema=rows().schema, lock_table=name, storage_options=here.options)
    seen = inspect_table(uri, storage_options=here.options)
    assert [finding.code for finding in examine(seen, environment={})] == ["lock_table_no_ttl"]


@pytest.mark.parametrize(
    ("name", "code"), [("nowhere", "lock_table_missing"), ("wrong", "lock_table_schema")]
)
def test_a_lock_table_that_is_missing_or_of_another_schema_is_a_danger(
    here: Neighbourhood, name: str, code: str
) -> None:
    name = f"{name}-{here.bucket}"
    if code == "lock_table_schema":
        create(here.dynamodb, name, "table_path", "file_name")
    found = examine(here.inspect_table(lock_table=name), environment={})
    assert [f.severity for f in found if f.code == code] == [Severity.DANGER]


def create(dynamodb: Any, name: str, hash_key: str, range_key: str) -> None:
    dynamodb.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in (hash_key, range_key)],
        KeySchema=[
            {"AttributeName": hash_key, "KeyType": "HASH"},
            {"AttributeName": range_key, "KeyType": "RANGE"},
        ],
        BillingMode="PAY_PER_REQUEST",
    )


def test_traces_of_a_lock_table_beside_conditional_put_alone_are_a_danger(here: Neighbourhood) -> None:
    found = examine(here.inspect_table(arbiter="object-store"), environment={})
    assert [finding.code for finding in found] == ["lock_table_writers"]


# --- the store ----------------------------------------------------------------------------------------
def test_a_clock_that_is_off_is_found(here: Neighbourhood) -> None:
    ahead = ServerClock(lambda: time.time() * 1000 + 600_000)
    found = on_s3(here, clock=ahead)["clock_skew"]
    assert found.details["skew_ms"] == pytest.approx(-600_000, abs=5_000)


def test_a_lifecycle_rule_is_found_if_it_expires_files_of_the_table(here: Neighbourhood) -> None:
    def rule(name: str, prefix: str, **more: Any) -> dict[str, Any]:
        return {
            "ID": name,
            "Status": "Enabled",
            "Filter": {"Prefix": prefix},
            "Expiration": {"Days": 7},
            **more,
        }

    rules = [
        rule("whole", "lake/"), rule("inside", f"{PREFIX}/_delta_log/"), rule("other", "lake/orders2"),
        rule("off", "", Status="Disabled"),
    ]  # fmt: skip
    here.s3.put_bucket_lifecycle_configuration(Bucket=here.bucket, LifecycleConfiguration={"Rules": rules})
    found = [f for f in examine(here.inspect_table(), environment={}) if f.code == "lifecycle_rule"]
    assert [finding.details["rule"] for finding in found] == ["whole", "inside"]


def test_a_probe_finds_a_store_that_lets_two_creates_win(tmp_path: Path) -> None:
    class Liar(MemoryObjects):
        def put_if_absent(self, path: str, body: bytes) -> Outcome:
            self.blobs[path] = body
            return Ok()

    seen = inspect_table(table_of(tmp_path))
    liar = Liar()
    for path in tmp_path.rglob("*.json"):
        liar.blobs[path.relative_to(tmp_path).as_posix()] = path.read_bytes()
    seen.world.objects = liar
    assert [finding.code for finding in examine(seen, environment={})] == []
    assert [finding.code for finding in examine(seen, environment={}, probe=True)] == ["dishonest_store"]


def test_dangers_come_first_and_findings_are_ready_for_json(tmp_path: Path) -> None:
    table = sw.open(tmp_path, create=True)
    table.append(pa.table({"id": [1]}), key="event-1")
    table.checkpoint()
    (tmp_path / "_delta_log" / "_last_checkpoint").unlink()
    for folder in tmp_path.glob("*.parquet"):
        folder.unlink()
    found = examine(inspect_table(tmp_path), environment={"AWS_S3_LOCKING_PROVIDER": "dynamodb"})
    assert [str(finding.severity) for finding in found] == ["danger", "warning", "info"]
    assert json.loads(json.dumps([finding.to_dict() for finding in found]))[0]["code"] == "data_files_missing"
    shutil.rmtree(tmp_path)


def test_a_table_within_the_tables_folder_is_told_and_its_rows_are_no_failed_writes(tmp_path):
    """T4-A13: such tables can be there; safewrite makes none."""
    sw.open(tmp_path / "inner", create=True).append([{"id": 2}])
    sw.open(tmp_path, create=True).append([{"id": 1}])
    found = findings(tmp_path, deep=True)
    assert found["table_within"].details["tables"] == ["inner"]
    assert "unreferenced_files" not in found
    assert findings(tmp_path / "inner")["table_within"].details == {"outer": str(tmp_path)}
    assert "table_within" not in findings(tmp_path)


def test_t4_a3_keys_that_somebody_removed_from_the_ledger_are_found_and_put_back(tmp_path: Path) -> None:
    table = sw.open(tmp_path / "t", create=True)
    for number in range(4):
        table.append(pa.table({"id": [number]}), key=f"event-{number}")
    assert findings(tmp_path / "t") == {}
    with closing(sqlite3.connect(tmp_path / "t" / "_safewrite" / "ledger.sqlite")) as database, database:
        database.execute("DELETE FROM ledger WHERE key IN ('event-0', 'event-2')")
    assert findings(tmp_path / "t")["keys_forgotten"].details["keys"] == ["event-0", "event-2"]
    assert run_json("repair", tmp_path / "t", "--dry-run")[1]["steps"][0]["status"] == "would"
    assert run_json("repair", tmp_path / "t")[0] == 0
    assert findings(tmp_path / "t") == {}
    assert table.append(pa.table({"id": [0]}), key="event-0").outcome == "already_committed"


@pytest.mark.parametrize("arbiter", ["dynamodb", "object-store"])
def test_keys_of_commits_that_a_log_lost_are_found_until_they_are_written_again(
    arbiter: str, here: Neighbourhood
) -> None:
    """A bucket that was restored from a backup has an older log, and its ledger was called sound (E9)."""
    place, uri = here, f"s3://{here.bucket}/other"
    how: dict[str, Any] = {"storage_options": here.options}
    how |= {"lock_table": here.lock_table} if arbiter == "dynamodb" else {"arbiter": arbiter}
    table = sw.create(uri, rows(1).schema, **how)
    table.append(rows(1), key="kept")
    table.append_many([(f"many-{number}", rows(number)) for number in range(3)])
    table.append(rows(9), key="alone")
    for version in (2, 3):
        place.s3.delete_object(Bucket=here.bucket, Key=f"other/{commit_path(version)}")
    upkeep.finish()
    found = {one.code: one for one in examine(inspect_table(uri, **how), environment={})}["set_back"]
    assert found.details == {
        "keys": ["many-0", "many-1", "many-2", "alone"], "versions": [2, 3], "count": 4
    }  # fmt: skip


def test_keys_that_a_log_lost_and_got_again_are_no_finding(tmp_path: Path) -> None:
    """An object that has seen what was lost is refused (E9)."""
    table = sw.open(tmp_path / "t", create=True)
    for number in range(4):
        table.append(pa.table({"id": [number]}), key=f"event-{number}")
    upkeep.finish()
    for version in (2, 3):
        (tmp_path / "t" / commit_path(version)).unlink()
    assert findings(tmp_path / "t")["set_back"].details["versions"] == [2, 3]
    for call in (lambda: table.append(pa.table({"id": [4]})), lambda: table.delete("id = 0"), table.refresh):
        with pytest.raises(sw.ConflictError, match=r"version 1,.*version 3.*Nothing was written.*doctor"):
            call()
    again = sw.open(tmp_path / "t")
    again.append(pa.table({"id": [3]}), key="event-3")
    assert findings(tmp_path / "t")["set_back"].details["keys"] == ["event-2"]
    again.append(pa.table({"id": [2]}), key="event-2")
    assert findings(tmp_path / "t") == {}
    assert sorted(again.rows(where="true")["id"].to_pylist()) == [0, 1, 2, 3]
