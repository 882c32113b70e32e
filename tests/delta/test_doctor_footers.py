"""What doctor finds in data files that other writers, or earlier versions of safewrite, left in a Delta table."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import safewrite as sw
from safewrite.delta.log.actions import commit_path
from safewrite.delta.log.ranges import TAIL
from safewrite.delta.maintenance import data_files
from safewrite.delta.maintenance.doctor import examine
from safewrite.delta.maintenance.inspection import inspect_table
from safewrite.findings import Finding, Severity
from safewrite.protocol.effects import Unknown
from tests.delta.logs import PROTOCOL, add, body, metadata

FOR_EVER = dt.datetime(9999, 12, 31, tzinfo=dt.UTC)
LONG_AGO = dt.datetime(1500, 1, 1, tzinfo=dt.UTC)
MOMENT = dt.datetime(2020, 1, 2, tzinfo=dt.UTC)
COLUMNS = {"id": "long", "ts": "timestamp", "d": "date"}
KINDS = {"id": pa.int64(), "ts": pa.timestamp("us", "UTC"), "d": pa.date32()}
ROWS: dict[str, Any] = {"id": [1], "ts": [MOMENT], "d": [MOMENT.date()]}


def of(columns: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A metaData action; a column is its type, or a pair of type and physical name."""
    fields = []
    for name, given in columns.items():
        kind, physical = given if isinstance(given, tuple) else (given, None)
        described = {"delta.columnMapping.physicalName": physical} if physical else {}
        fields.append({"name": name, "type": kind, "nullable": True, "metadata": described})
    return metadata(columns=fields, **more)


def stats(rows: int = 1, **more: Any) -> str:
    return json.dumps({"numRecords": rows, **more})


class Made:
    """A local table of hand-made commits and of files by pyarrow."""

    def __init__(self, root: Path, *first: dict[str, Any]) -> None:
        self.root = root
        self.version = -1
        (root / "_delta_log").mkdir(parents=True)
        self.commit(PROTOCOL, *(first or (of(COLUMNS),)))

    def commit(self, *actions: dict[str, Any]) -> None:
        self.version += 1
        (self.root / commit_path(self.version)).write_bytes(body(*actions))

    def file(self, name: str, rows: pa.Table, *, marks: dict[str, str] | None = None, **how: Any) -> int:
        """Write a data file; returns its size."""
        if marks:
            rows = rows.replace_schema_metadata(marks)
        pq.write_table(rows, self.root / name, **how)
        return (self.root / name).stat().st_size

    def add(self, name: str, rows: pa.Table, *, said: str | None = None, **how: Any) -> None:
        """Write a data file and commit it."""
        size = self.file(name, rows, **how)
        self.commit(add(name, size=size, stats=said or stats(rows.num_rows)))

    def findings(self, **how: Any) -> dict[str, Finding]:
        before = sorted(self.root.rglob("*"))
        found = {
            finding.code: finding for finding in examine(inspect_table(self.root), environment={}, **how)
        }
        assert sorted(self.root.rglob("*")) == before  # looking leaves no trace
        return found


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path / "t")


def rows(**columns: Any) -> pa.Table:
    values = {**ROWS, **columns}
    return pa.table({name: pa.array(values[name], KINDS[name]) for name in values})


def test_nothing_is_found_in_files_of_deltalake_and_safewrite(tmp_path: Path) -> None:
    path = tmp_path / "t"
    old = rows(ts=[FOR_EVER], d=[dt.date(1, 1, 1)])
    deltalake.write_deltalake(path, old, partition_by=["id"])
    sw.open(path).append(old, key="event-1")
    sw.open(path).append(old.append_column("more", pa.array(["x"])), key="event-2", schema_mode="merge")
    sw.open(path).append(old.append_column("more", pa.array([None], pa.string())), key="event-3")
    sw.open(path).delete("ts IS NULL", key="event-4")
    for deep in (False, True):
        assert examine(inspect_table(path), environment={}, deep=deep) == []


# --- INT96 --------------------------------------------------------------------------------------------
def test_instants_in_int96_that_others_misread_are_found_by_reading_them(made: Made) -> None:
    made.add("good", rows(), use_deprecated_int96_timestamps=True)
    assert made.findings() == {}
    made.add("late", rows(ts=[FOR_EVER]), use_deprecated_int96_timestamps=True)
    made.add("early", rows(ts=[LONG_AGO]), use_deprecated_int96_timestamps=True)
    made.add("none", rows(ts=[None]), use_deprecated_int96_timestamps=True)
    made.add("plain", rows(ts=[FOR_EVER]))
    found = made.findings()
    assert list(found) == ["instants_out_of_range"]
    finding = found["instants_out_of_range"]
    assert finding.severity is Severity.WARNING
    assert sorted(finding.details["files"]) == ["early", "late"]
    assert "Footers of 5 of 5 data files" in finding.message
    assert "TIMESTAMP_MICROS" in finding.mend


def test_instants_in_structs_lists_and_maps_are_read_too(tmp_path: Path) -> None:
    ts = pa.timestamp("us")
    kinds: dict[str, tuple[pa.DataType, Callable[[Any], Any]]] = {
        "struct": (pa.struct({"x": ts}), lambda value: {"x": value}),
        "list": (pa.list_(ts), lambda value: [None, value]),
        "map": (pa.map_(pa.string(), ts), lambda value: [("k", value)]),
    }
    for name, (kind, value_of) in kinds.items():
        made = Made(tmp_path / name, of({"c": "string"}))  # the log's own type does not matter here
        for file, moment in (("good", MOMENT), ("late", FOR_EVER)):
            values = pa.array([value_of(moment.replace(tzinfo=None)), None], kind)
            made.add(file, pa.table({"c": values}), use_deprecated_int96_timestamps=True)
        assert made.findings()["instants_out_of_range"].details["files"] == ["late"]


def test_what_the_logs_statistics_tell_is_not_read(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "READ_BYTES", 0)
    for name, moment in (("good", MOMENT), ("late", FOR_EVER)):
        text = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        said = stats(minValues={"ts": text}, maxValues={"ts": text}, nullCount={"ts": 0})
        made.add(name, rows(ts=[moment]), said=said, use_deprecated_int96_timestamps=True)
    made.add("none", rows(ts=[None]), said=stats(nullCount={"ts": 1}), use_deprecated_int96_timestamps=True)
    found = made.findings()
    assert list(found) == ["instants_out_of_range"]
    assert found["instants_out_of_range"].details["files"] == ["late"]


def test_more_than_the_limit_is_not_read_and_that_is_said(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.add("late", rows(ts=[FOR_EVER]), use_deprecated_int96_timestamps=True)
    monkeypatch.setattr(data_files, "READ_BYTES", 10)
    found = made.findings()
    assert {code: str(one.severity) for code, one in found.items()} == {"instants_unread": "info"}
    assert found["instants_unread"].details["files"] == ["late"]
    assert list(made.findings(deep=True)) == ["instants_out_of_range"]


def test_without_deep_the_newest_files_are_looked_into(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    made.add("late", rows(ts=[FOR_EVER]), use_deprecated_int96_timestamps=True)
    made.add("good", rows())
    monkeypatch.setattr(data_files, "SAMPLE", 1)
    assert made.findings() == {}
    assert list(made.findings(deep=True)) == ["instants_out_of_range"]
    monkeypatch.setattr(data_files, "FOOTERS_MAX", 1)
    assert made.findings(deep=True) == {}


def test_a_long_footer_is_read_whole(tmp_path: Path) -> None:
    names = [f"column_with_a_long_name_{number}" for number in range(1500)]
    made = Made(tmp_path / "t", of({"ts": "timestamp", **dict.fromkeys(names, "long")}))
    wide = pa.table({"ts": pa.array([FOR_EVER], KINDS["ts"]), **dict.fromkeys(names, pa.array([1]))})
    made.add("late", wide, use_deprecated_int96_timestamps=True)
    assert int.from_bytes((made.root / "late").read_bytes()[-8:-4], "little") > TAIL
    assert list(made.findings()) == ["instants_out_of_range"]


def test_a_store_that_does_not_answer_leaves_instants_unread(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file that cannot be read is no reason to say nothing of the others."""
    made.add("late", rows(ts=[FOR_EVER]), use_deprecated_int96_timestamps=True)
    made.add("silent", rows(id=[1] * 20_000, ts=[FOR_EVER] * 20_000, d=[None] * 20_000),
             use_deprecated_int96_timestamps=True, use_dictionary=False, compression="none")  # fmt: skip
    seen = inspect_table(made.root)
    monkeypatch.setattr(seen.world.objects, "get_range", lambda *_: Unknown("no answer"))
    monkeypatch.setattr(seen.world, "sleep", lambda _: None)
    found = {one.code: one.details["files"] for one in examine(seen, environment={})}
    assert found == {"instants_out_of_range": ["late"], "instants_unread": ["silent"]}


# --- the old calendar ---------------------------------------------------------------------------------
MARKS = {
    "a session": {"org.apache.spark.version": "4.1.0", "org.apache.spark.legacyDateTime": ""},
    "INT96 of a session": {"org.apache.spark.version": "4.1.0", "org.apache.spark.legacyINT96": ""},
    "Spark 2": {"org.apache.spark.version": "2.4.8"},
    "Spark 3.0": {"org.apache.spark.version": "3.0.3"},
}
OLD = {"d": [dt.date(1500, 1, 1)]}, {"ts": [dt.datetime(1582, 12, 1, tzinfo=dt.UTC)]}
NEW = {"d": [dt.date(1583, 1, 1)]}, {"ts": [dt.datetime(1900, 1, 2, tzinfo=dt.UTC)]}


@pytest.mark.parametrize("marks", MARKS)
def test_files_of_the_old_calendar_are_found_where_they_have_old_days(made: Made, marks: str) -> None:
    for number, values in enumerate(NEW):
        made.add(f"new-{number}", rows(**values), marks=MARKS[marks])
    for number, values in enumerate(OLD):
        made.add(f"unmarked-{number}", rows(**values), marks={"org.apache.spark.version": "4.1.0"})
    assert made.findings() == {}
    for number, values in enumerate(OLD):
        made.add(f"old-{number}", rows(**values), marks=MARKS[marks])
    found = made.findings()
    assert list(found) == ["old_calendar"]
    assert found["old_calendar"].severity is Severity.WARNING
    assert sorted(found["old_calendar"].details["files"]) == ["old-0", "old-1"]


def test_marked_files_without_statistics_are_perhaps_of_old_days(made: Made) -> None:
    made.add("ids", rows().select(["id"]), marks=MARKS["Spark 2"], write_statistics=False)
    assert made.findings() == {}
    made.add("days", rows(), marks=MARKS["Spark 2"], write_statistics=False)
    found = made.findings()["old_calendar"]
    assert (found.severity, found.details["files"], found.details["known"]) == (Severity.INFO, ["days"], 0)


def test_what_doctor_names_is_what_a_rewrite_refuses(made: Made) -> None:
    made.add("old", rows(id=[1, 2], ts=[MOMENT] * 2, d=[dt.date(1500, 1, 1)] * 2), marks=MARKS["Spark 2"])
    with pytest.raises(sw.UnsupportedTableError, match="calendar"):
        sw.open(made.root).delete("id = 1")
    assert list(made.findings()) == ["old_calendar"]


# --- columns ------------------------------------------------------------------------------------------
SAFEWRITE = {"safewrite": {"commitId": "c", "writes": [{"key": "event-7", "rows": 1}]}}


def test_columns_of_a_table_that_stood_here_before_are_found_with_their_keys(tmp_path: Path) -> None:
    """A held object wrote {id, name} into a table that had been made anew with {id, city}."""
    path = tmp_path / "t"
    cities = pa.table({"id": pa.array([1], pa.int64()), "city": ["Rome"]})
    for _ in range(3):
        deltalake.write_deltalake(path, cities, mode="append")
    pq.write_table(pa.table({"id": pa.array([2], pa.int64()), "name": ["b"]}), path / "lost.parquet")
    size = (path / "lost.parquet").stat().st_size
    said = stats(minValues={"id": 2, "name": "b"}, nullCount={"id": 0, "name": 0})
    info = {"commitInfo": {"engineInfo": "safewrite/0.1.0", **SAFEWRITE}}
    (path / commit_path(3)).write_bytes(body(info, add("lost.parquet", size=size, stats=said)))
    assert deltalake.DeltaTable(path).to_pyarrow_table()["city"].null_count == 1
    (finding,) = examine(inspect_table(path), environment={})
    assert (finding.code, finding.severity) == ("unknown_columns", Severity.DANGER)
    assert finding.details == {
        "files": {"lost.parquet": ["name"]}, "count": 1, "versions": [3], "keys": ["event-7"], "checked": 4
    }  # fmt: skip
    assert "VACUUM" in finding.mend


def test_logical_names_in_a_table_with_column_mapping_are_found(tmp_path: Path) -> None:
    """A state that moved past the mapping: the file has column v, which the table's files call col-v."""
    mapped = {"delta.columnMapping.mode": "name"}
    made = Made(tmp_path / "t", of({"id": "long", "v": "long"}))
    made.add("before", pa.table({"id": [1], "v": [1]}))
    made.commit(of({"id": ("long", "id"), "v": ("long", "col-v")}, properties=mapped))
    made.add("right", pa.table({"id": [2], "col-v": [1]}))
    assert "unknown_columns" not in made.findings()
    made.add("wrong", pa.table({"id": [3], "v": [1]}))
    assert made.findings()["unknown_columns"].details["files"] == {"wrong": ["v"]}


def test_columns_that_were_there_when_the_file_was_added_are_known(tmp_path: Path) -> None:
    """Dropped with column mapping, renamed, added later; Delta's own row ids; another case."""
    mapped = {"delta.columnMapping.mode": "name"}
    made = Made(tmp_path / "t", of({"id": "long", "v": ("long", "col-v")}, properties=mapped))
    made.add("old", pa.table({"id": [1], "col-v": [1]}))
    ids = {"delta.rowTracking.materializedRowIdColumnName": "_row-id-col-1"}
    made.commit(of({"id": "long", "new": "long"}, properties={**mapped, **ids}))
    made.add("case", pa.table({"ID": [1], "new": [1], "_row-id-col-1": [1]}))
    assert not {"unknown_columns", "missing_columns"} & made.findings().keys()


def test_of_files_whose_commit_is_gone_the_present_columns_are_asked_for(tmp_path: Path) -> None:
    made = Made(tmp_path / "t", of({"id": "long"}))
    made.add("good", pa.table({"id": [1]}))
    made.add("wrong", pa.table({"id": [1], "name": ["a"]}))
    deltalake.DeltaTable(made.root).create_checkpoint()
    for version in range(2):
        (made.root / commit_path(version)).unlink()
    assert made.findings()["unknown_columns"].details["files"] == {"wrong": ["name"]}


def test_folders_of_a_column_that_the_table_does_not_have_are_found(made: Made) -> None:
    size = made.file("file", rows())
    made.commit(add("file", size=size, partitionValues={"region": "eu"}))
    assert made.findings()["unknown_columns"].details["files"] == {"file": ["region"]}


def test_a_column_of_which_the_log_has_statistics_and_the_file_nothing_is_found(made: Made) -> None:
    said = stats(nullCount={"id": 0, "ts": 0, "d": 1})
    made.add("later", rows().select(["id"]), said=stats(nullCount={"id": 0, "ts": 1, "d": 1}))
    assert made.findings() == {}
    made.add("hole", rows().select(["id"]), said=said)
    found = made.findings()["missing_columns"]
    assert (found.severity, found.details["files"]) == (Severity.DANGER, {"hole": ["ts"]})
