"""Commits tell their time, and give each row an id, by the version before them (PROTOCOL.md, "In-Commit Timestamps", "Row Tracking"; A21)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.delta.log.checkpoint import write_checkpoint
from safewrite.delta.log.snapshot import Snapshot, load
from safewrite.delta.log.stamps import ID_COLUMN, MARK, ROW_IDS, VERSION_COLUMN
from safewrite.delta.maintenance import doctor, inspection
from safewrite.delta.write.abc import Write
from safewrite.delta.write.staging import StagedFile
from safewrite.delta.write.stamped import Stamper
from safewrite.delta.write.transaction import Transaction
from safewrite.errors import UnsupportedTableError
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta.candidate import Arbiter
from safewrite.protocol.delta.commit import commit
from safewrite.protocol.staging import Mark
from safewrite.stores.ledger import ObjectLedger
from safewrite.stores.memory import MemoryLocks, MemoryQueue
from safewrite.stores.world import World, run
from tests.delta.logs import Table, add, metadata
from tests.each import each

BOTH = {"delta.enableInCommitTimestamps": "true", "delta.enableRowTracking": "true"}
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
NAMED = {ID_COLUMN: "_row-id", VERSION_COLUMN: "_row-version"}
ASLEEP = 4_000_000_000_000
"""A time that no clock shows yet."""


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": [*ids], "v": [f"v{number}" for number in ids]}, schema=SCHEMA)


def made(folder: Path, **properties: str) -> sw.Table:
    return sw.create(folder / "t", SCHEMA, properties=BOTH | properties)


def commits(folder: Path) -> list[list[dict[str, Any]]]:
    """The actions of every version."""
    files = sorted((folder / "t" / "_delta_log").glob("*[0-9].json"))
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


def of(actions: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [one[name] for one in actions if name in one]


def ids_of(adds: list[dict[str, Any]]) -> list[int]:
    """The ids that the rows of these files begin with."""
    counts = [json.loads(one["stats"])["numRecords"] for one in adds]
    return [one["baseRowId"] + at for one, count in zip(adds, counts, strict=True) for at in range(count)]


def check(versions: list[list[dict[str, Any]]]) -> None:
    """Times grow, no id is given twice, versions are those of the commits, and the mark is the last id."""
    before, given = -1, list[int]()
    for version, actions in enumerate(versions):
        info = actions[0]["commitInfo"]
        assert info["inCommitTimestamp"] > before
        assert info["tags"]["delta.rowTracking.preserved"] == "true"
        before = info["inCommitTimestamp"]
        adds = of(actions, "add")
        given += ids_of(adds)
        assert all(one["defaultRowCommitVersion"] == version for one in adds)
        marks = [json.loads(one["configuration"]) for one in of(actions, "domainMetadata")]
        assert marks == ([{MARK: max(given)}] if adds else [])
    assert sorted(given) == [*range(len(given))]


def test_a_table_is_made_with_both_and_each_append_goes_on_from_the_one_before(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.append(rows(1, 2, 3))
    table.append_many([rows(4), rows(5, 6)])
    sw.open(tmp_path / "t").append(rows(7))
    check(commits(tmp_path))
    protocol = of(commits(tmp_path)[0], "protocol")[0]
    assert {"inCommitTimestamp", "rowTracking", "domainMetadata"} <= {*protocol["writerFeatures"]}
    assert protocol["minReaderVersion"] == 1
    assert "readerFeatures" not in protocol
    told = commits(tmp_path)[-1][0]["commitInfo"]["inCommitTimestamp"]
    assert [one.timestamp and one.timestamp.timestamp() for one in table.history()][:1] == [told / 1000]


@each("group", [None, "always"])
def test_twenty_writers_at_once_take_ids_and_times_of_their_own(tmp_path: Path, group: Any) -> None:
    folder = tmp_path / str(group)
    made(folder)
    barrier, failed = threading.Barrier(20), list[BaseException]()

    def write(number: int) -> None:
        table = sw.open(
            folder / "t", checkpoints=False, attempts_max=100, **({"group": group} if group else {})
        )
        barrier.wait()
        try:
            table.append(rows(*range(number * 10, number * 10 + 1 + number % 3)))
        except BaseException as error:  # noqa: BLE001 - shown below
            failed.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(20)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failed == []
    check(commits(folder))
    assert sum(len(ids_of(of(one, "add"))) for one in commits(folder)) == sum(1 + n % 3 for n in range(20))


# --- one try after another, in memory ---------------------------------------------------------------------
FEATURES = ["inCommitTimestamp", "rowTracking", "domainMetadata"]
PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": FEATURES}}


def stamped(time_ms: int, last: int, *actions: dict[str, Any]) -> list[dict[str, Any]]:
    """A commit of another engine."""
    mark = {"domain": ROW_IDS, "configuration": json.dumps({MARK: last}), "removed": False}
    return [{"commitInfo": {"inCommitTimestamp": time_ms}}, *actions, {"domainMetadata": mark}]


def begun(time_ms: int = 5, last: int = 9, properties: Mapping[str, str] = {}) -> Table:
    table = Table()
    table.commit(*stamped(time_ms, last, PROTOCOL, metadata(properties={**BOTH, **NAMED, **properties})))
    objects = table.objects
    table.world = World(
        objects,
        locks=MemoryLocks(),
        queue=MemoryQueue(),
        ledger=ObjectLedger(objects),
        threads=1,
        sleep=lambda _: None,
    )
    return table


def candidate(state: Snapshot | None, name: str, count: int = 2) -> Transaction:
    assert state is not None
    action = add(f"{name}.parquet", stats=json.dumps({"numRecords": count}))
    file = StagedFile(Mark(f"{name}.parquet", 0, 0), count, action)
    write = Write(name, f"v1:{count}:ab", count, 1)
    return Transaction(
        name, write, 7, Limits(lease_s=0.0), state, files=(file,), stamper=Stamper(lambda: 100)
    )


def last_of(table: Table, version: int) -> tuple[int, int, int, int]:
    """Time, first id, version and mark of a commit."""
    lines = [json.loads(line) for line in table.blobs[f"_delta_log/{version:020d}.json"].splitlines()]
    (one,), (mark,) = of(lines, "add"), of(lines, "domainMetadata")
    info = lines[0]["commitInfo"]
    last = json.loads(mark["configuration"])[MARK]
    return info["inCommitTimestamp"], one["baseRowId"], one["defaultRowCommitVersion"], last


@each("lock_table", [False, True])
def test_a_try_after_a_rival_is_stamped_anew(lock_table: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the rival is known by the summary of its claim alone."""
    monkeypatch.setattr(Transaction, "recheck", lambda self: iter(()))
    table = begun()
    state = table.run(load())
    arbiter = Arbiter(lock_table)
    first, second, third = (candidate(state, name) for name in ("first", "second", "third"))
    for number, one in enumerate((first, second, third), start=1):
        landed = run(commit(one, 0, arbiter=arbiter, limits=one.limits, fresh=True), table.world)
        assert landed.version == number
        assert landed.attempts == min(number, 2)
    assert [last_of(table, version) for version in (1, 2, 3)] == [
        (100, 10, 1, 11),
        (101, 12, 2, 13),
        (102, 14, 3, 15),
    ]
    assert second.body(1) != second.body(2)
    again = table.run(load())
    assert again is not None
    assert third.landed(3) == again
    assert second.examine(2, table.blobs["_delta_log/" + "0" * 19 + "2.json"]) is not None, "it is ours"


def test_the_clock_of_a_rival_may_be_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transaction, "recheck", lambda self: iter(()))
    table = begun(time_ms=ASLEEP)
    one = candidate(table.run(load()), "one")
    table.run(commit(one, 0, arbiter=Arbiter(False), limits=one.limits))
    assert last_of(table, 1)[0] == ASLEEP + 1


@each("told_by", ["commit", "checksum", "nothing"])
def test_after_a_checkpoint_the_time_is_that_of_its_commit(told_by: str) -> None:
    table = begun(time_ms=50)
    newest = table.run(load())
    assert newest is not None
    table.run(write_checkpoint(newest))
    path = "_delta_log/" + "0" * 20
    if told_by != "commit":
        del table.blobs[f"{path}.json"]
    if told_by == "checksum":
        table.blobs[f"{path}.crc"] = b'{"inCommitTimestampOpt": 50}'
    state = table.run(load())
    assert state is not None
    assert state.told_ms == (None if told_by == "nothing" else 50)
    assert state.domains == {ROW_IDS: json.dumps({MARK: 9})}


def test_a_table_that_only_lists_row_tracking_gets_ids_and_one_that_suspends_it_none() -> None:
    for properties, wanted in (
        ({"delta.enableRowTracking": "false"}, 10),
        ({"delta.enableRowTracking": "false", "delta.rowTrackingSuspended": "true"}, None),
    ):
        one = candidate(begun(properties=properties).run(load()), "one")
        lines = [json.loads(line) for line in one.body(1).splitlines()]
        assert of(lines, "add")[0].get("baseRowId") == wanted
        assert "tags" not in lines[0]["commitInfo"], "no row keeps an id"


@pytest.mark.parametrize("spelled", [str, str.upper])
def test_a_column_of_row_ids_does_not_become_one_of_the_table(
    spelled: Callable[[str], str], tmp_path: Path
) -> None:
    """Whoever reads one data file gets it, and may append what was read."""
    table = made(tmp_path)
    table.append(rows(1, 2))
    name = spelled(table.properties[ID_COLUMN])
    for verb in (table.append, table.overwrite):
        with pytest.raises(sw.InvalidInputError, match="has a name that Delta keeps for itself"):
            verb(rows(3).append_column(name, pa.array([0])), schema_mode="merge")
    table.delete("id = 1")
    check(commits(tmp_path))


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ({ID_COLUMN: "V"}, "v would hold ids of rows"),
        ({VERSION_COLUMN: "id"}, "id would hold ids of rows"),
        ({ID_COLUMN: "_x", VERSION_COLUMN: "_X"}, "_x would hold ids of rows"),
    ],
)
def test_columns_of_row_ids_that_are_others_too_are_refused(
    named: dict[str, str], told: str, tmp_path: Path
) -> None:
    made(tmp_path)
    log = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    actions = commits(tmp_path)[0]
    of(actions, "metaData")[0]["configuration"] |= named
    log.write_text("".join(json.dumps(one) + "\n" for one in actions))
    table = sw.open(tmp_path / "t")
    for write in (lambda: table.append(rows(1)), lambda: table.delete("id = 1"), table.check_writable):
        with pytest.raises(UnsupportedTableError, match=told):
            write()


@pytest.mark.parametrize(
    ("action", "told"),
    [
        ({"domainMetadata": {"domain": ROW_IDS, "configuration": json.dumps({MARK: 2**63 - 2}), "removed": False}}, "no row ids left"),
        ({"commitInfo": {"inCommitTimestamp": 2**63 - 1}}, "no times of commits left"),
    ],
)  # fmt: skip
def test_numbers_end_where_their_type_ends(action: dict[str, Any], told: str, tmp_path: Path) -> None:
    made(tmp_path)
    log = tmp_path / "t" / "_delta_log" / f"{1:020}.json"
    actions = [{"commitInfo": {"inCommitTimestamp": ASLEEP}} | action]
    log.write_text("".join(json.dumps({name: one}) + "\n" for both in actions for name, one in both.items()))
    with pytest.raises(UnsupportedTableError, match=told):
        sw.open(tmp_path / "t").append(rows(1, 2))


def test_a_new_file_that_does_not_say_its_rows_gets_no_ids() -> None:
    one = candidate(begun().run(load()), "one")
    one.files[0].action["add"]["stats"] = "{}"
    with pytest.raises(UnsupportedTableError, match="how many rows"):
        one.body(1)


def test_a_commit_of_ids_alone_leaves_what_follows_from_the_table() -> None:
    """A schema that is read again with each commit costs more than the commit."""
    table = begun()
    state = table.run(load())
    assert state is not None
    schema = state.schema
    table.commit(*stamped(6, 11, add("x")))
    after = table.run(load(state))
    assert after is not None
    assert (after.told_ms, after.domains[ROW_IDS]) == (6, json.dumps({MARK: 11}))
    assert after.schema is schema


@each("mark", [{MARK: 0}, None])
@each("tells_rows", [True, False])
def test_doctor_tells_of_a_mark_that_was_set_back_below_ids_of_live_files(
    mark: Any, tells_rows: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Only all files together show it, and the next writer gives their ids again; so where it was removed."""
    tmp_path = tmp_path_factory.mktemp("lake")
    table = made(tmp_path)
    table.append(rows(9))
    table.append(rows(1, 2, 3))
    assert "row_ids_again" not in {
        one.code for one in doctor.examine(inspection.inspect_table(str(tmp_path / "t")))
    }
    if not tells_rows:
        newest = tmp_path / "t" / "_delta_log" / f"{table.version:020}.json"
        newest.write_text(newest.read_text().replace('"numRecords', '"no'))
    back = {
        "domainMetadata": {
            "domain": ROW_IDS,
            "configuration": json.dumps(mark or {}),
            "removed": mark is None,
        }
    }
    lines = [{"commitInfo": {"inCommitTimestamp": ASLEEP}}, back]
    log = tmp_path / "t" / "_delta_log" / f"{table.version + 1:020}.json"
    log.write_text("".join(json.dumps(one) + "\n" for one in lines))
    (found,) = (
        one
        for one in doctor.examine(inspection.inspect_table(str(tmp_path / "t")))
        if one.code == "row_ids_again"
    )
    last, count = (0, 1) if mark else (-1, 2)
    assert (found.details["last"], found.details["count"]) == (last, count)
    assert found.details["highest"] == (3 if tells_rows else 1)


def test_a_table_whose_newest_time_nothing_told_is_written_once_something_does(tmp_path: Path) -> None:
    """The same object, which knew the version without its time: nobody else need write first."""
    made(tmp_path).append(rows(1))
    table: Any = sw.open(tmp_path / "t")
    table._format._state = replace(table._format._state, told_ms=None)
    table.check_writable().append(rows(2))
    assert [len(of(one, "add")) for one in commits(tmp_path)] == [0, 1, 1]
    check(commits(tmp_path))


@each(
    "name",
    [
        "delta.rowTrackingSuspended",
        "delta.inCommitTimestampEnablementVersion",
        "delta.rowTracking.materializedRowIdColumnName",
    ],
)
def test_properties_that_engines_write_are_refused_with_what_they_are_for(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.raises(sw.InvalidInputError, match=r"it stops row ids|engines write it|safewrite chooses"):
        sw.create(tmp_path_factory.mktemp("lake") / "t", SCHEMA, properties={name: "1"})
