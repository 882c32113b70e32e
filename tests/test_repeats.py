"""Repeats that come after the table has changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import safewrite as sw
from tests.iceberg import v3_tables
from tests.test_append_many import told

ROWS = [{"id": 1, "x": 2.5}]


@pytest.mark.parametrize("name", [{"key": "event"}, {"txn": ("app", 1)}])
def test_a_repeat_is_recognised_after_another_writer_added_a_column(
    tmp_path: Path, name: dict[str, Any]
) -> None:
    """Else it would be told that nothing was written, although its rows are in the table."""
    table = sw.open(tmp_path, create=True)
    first = table.append(ROWS, **name)
    sw.open(tmp_path).append([{"id": 2, "x": 1.0, "added": "new"}], schema_mode="merge")
    for again in (table.refresh(), sw.open(tmp_path)):
        repeat = again.append(ROWS, **name)
        assert (repeat.outcome, repeat.version) == (sw.Outcome.ALREADY_COMMITTED, first.version)


@pytest.mark.parametrize("name", [{}, {"key": "event"}])
def test_new_rows_that_lack_a_column_are_refused_all_the_same(tmp_path: Path, name: dict[str, Any]) -> None:
    table = sw.open(tmp_path, create=True)
    table.append([{"id": 2, "x": 1.0, "added": "new"}])
    with pytest.raises(sw.WouldAlterError):
        table.append(ROWS, **name)
    assert table.refresh().version == 0


def test_other_rows_under_a_committed_key_are_refused_after_a_column_was_added(tmp_path: Path) -> None:
    table = sw.open(tmp_path, create=True)
    table.append(ROWS, key="event")
    table.append([{"id": 2, "x": 1.0, "added": "new"}], schema_mode="merge")
    with pytest.raises(sw.NotCommittedError):
        table.append([{"id": 3, "x": 2.5}], key="event")
    assert table.refresh().version == 1


# --- defaults that came since ------------------------------------------------------------------------------
SCHEMA = pa.schema({"id": pa.int64(), "x": pa.float64()})
KINDS = {"int": "integer", "long": "long"}


class Altered:
    """A table of either format that another engine gives columns, with defaults or without."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.log = None if kind == "iceberg" else folder / "t" / "_delta_log"
        if self.log is None:
            self.catalog = v3_tables.lake(folder)
            sw.create(v3_tables.NAME, SCHEMA, catalog=self.catalog, format_version=3)
        else:
            sw.create(folder / "t", SCHEMA)

    def open(self) -> Any:
        return sw.open(v3_tables.NAME, catalog=self.catalog) if self.log is None else sw.open(self.log.parent)

    def add(self, column: str, default: int | None = None) -> None:
        if self.log is None:
            more = {} if default is None else {"initial-default": default, "write-default": default}
            v3_tables.add_column(self.catalog, "int", column=column, **more)
            return
        more = {} if default is None else {"CURRENT_DEFAULT": str(default)}
        field = {"name": column, "type": "integer", "nullable": True, "metadata": more}
        self._alter(lambda fields: fields.append(field))

    def set_default(self, column: str, default: int) -> None:
        if self.log is None:
            v3_tables.edit(self.catalog, lambda metadata: _with_default(metadata, column, default))
            return
        named = {"CURRENT_DEFAULT": str(default)}
        self._alter(lambda fields: [one["metadata"].update(named) for one in fields if one["name"] == column])

    def _alter(self, change: Callable[[list[Any]], object]) -> None:
        assert self.log is not None
        commits = sorted(self.log.glob("0*.json"))
        actions = [json.loads(line) for path in commits for line in path.read_text().splitlines()]
        metadata = [one["metaData"] for one in actions if "metaData" in one][-1]
        schema = json.loads(metadata["schemaString"])
        change(schema["fields"])
        metadata["schemaString"] = json.dumps(schema)
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["allowColumnDefaults"]}
        body = "".join(json.dumps(one) + "\n" for one in ({"protocol": protocol}, {"metaData": metadata}))
        (self.log / f"{len(commits):020d}.json").write_text(body)


def _with_default(metadata: dict[str, Any], column: str, default: int) -> None:
    now = next(one for one in metadata["schemas"] if one["schema-id"] == metadata["current-schema-id"])
    fields = [one | ({"write-default": default} if one["name"] == column else {}) for one in now["fields"]]
    fresh = len(metadata["schemas"])
    metadata["schemas"].append({**now, "schema-id": fresh, "fields": fields})
    metadata["current-schema-id"] = fresh


@pytest.fixture(params=["delta", "iceberg"])
def altered(request: pytest.FixtureRequest, tmp_path: Path) -> Altered:
    return Altered(tmp_path, request.param)


def _applied(table: Any, rows: Any) -> Any:
    return table.apply_changes(rows, key="a", keys=["id"], sequence_by=["x"])


def _many_applied(table: Any, rows: Any) -> Any:
    return table.apply_changes_many([("a", rows), ("b", rows)], keys=["id"], sequence_by=["x"])[0]


VERBS: dict[str, Callable[[Any, Any], Any]] = {
    "append": lambda table, rows: table.append(rows, key="a"),
    "batch": lambda table, rows: table.append(rows, txn=("app", 1)),
    "member": lambda table, rows: table.append_many([("a", rows), ("b", rows)])[0],
    "overwrite": lambda table, rows: table.overwrite(rows, where="id < 5", key="a"),
    "changes": _applied,
    "changes of a member": _many_applied,
}


def _error(call: Callable[[], Any]) -> sw.SafewriteError:
    """What a call raises, or answers its member with."""
    try:
        found = call()
    except sw.SafewriteError as error:
        return error
    assert isinstance(found, sw.SafewriteError), found
    return found


@pytest.mark.parametrize("verb", VERBS)
def test_a_repeat_is_recognised_after_another_engine_added_columns_with_defaults(
    altered: Altered, verb: str
) -> None:
    """Else an event that is delivered twice around an ALTER TABLE would be an error for ever."""
    write, table = VERBS[verb], altered.open()
    first = write(table, ROWS)
    altered.add("few", 7)
    for again in (altered.open(), table.refresh()):
        repeat = write(again, ROWS)
        assert (repeat.outcome, repeat.version) == (sw.Outcome.ALREADY_COMMITTED, first.version)
    altered.add("plain")
    assert write(altered.open(), ROWS).outcome == sw.Outcome.ALREADY_COMMITTED
    assert altered.open().row_count() == 1 + (verb == "member")


def test_a_repeat_and_a_new_member_share_a_call_after_a_column_with_a_default_came(altered: Altered) -> None:
    altered.open().append(ROWS, key="a")
    altered.add("few", 7)
    new, other = [{"id": 2, "x": 1.0}], [{"id": 3, "x": 1.0}]
    answers = altered.open().append_many([("b", new), ("a", ROWS), ("a", other)])
    assert told(answers) == ["committed", "already_committed", "replay_mismatch"]
    found = altered.open().rows(where="true").sort_by("id").to_pylist()
    assert [(row["id"], row["few"]) for row in found] == [(1, 7 if altered.log is None else None), (2, 7)]


def test_a_repeat_is_recognised_after_a_default_that_filled_its_rows_was_changed(altered: Altered) -> None:
    altered.add("few", 7)
    altered.open().append(ROWS, key="a")
    altered.set_default("few", 8)
    altered.add("more", 9)
    assert altered.open().append(ROWS, key="a").outcome == sw.Outcome.ALREADY_COMMITTED
    altered.open().append([{"id": 2, "x": 1.0}], key="b")
    found = altered.open().rows(where="true").sort_by("id").to_pylist()
    assert [(row["few"], row["more"]) for row in found] == [(7, 9 if altered.log is None else None), (8, 9)]


@pytest.mark.parametrize("verb", VERBS)
def test_other_rows_are_refused_after_another_engine_added_columns_with_defaults(
    altered: Altered, verb: str
) -> None:
    write = VERBS[verb]
    write(altered.open(), ROWS)
    altered.add("few", 7)
    before = altered.open().row_count()
    for rows in ([{"id": 1, "x": 3.5, "few": None}], [ROWS[0] | {"few": 7}], [{"id": 1, "x": 3.5}]):
        expected = (
            (sw.ReplayMismatchError, sw.WouldAlterError)
            if "changes" in verb and "few" not in rows[0]
            else sw.ReplayMismatchError
        )
        assert isinstance(_error(lambda rows=rows: write(altered.open(), rows)), expected)  # type: ignore[misc]
    assert altered.open().row_count() == before


def test_a_repeat_brings_null_where_clean_up_of_the_log_took_what_the_table_was(tmp_path: Path) -> None:
    altered = Altered(tmp_path, "delta")
    altered.open().append(ROWS, key="a")
    altered.add("few", 7)
    table = altered.open()
    table.append([{"id": 2, "x": 1.0}])
    assert altered.log is not None
    table.checkpoint()
    for version in range(3):
        (altered.log / f"{version:020d}.json").unlink()
    with pytest.raises(sw.ReplayMismatchError):
        altered.open().append(ROWS, key="a")
    assert altered.open().append([ROWS[0] | {"few": None}], key="a").outcome == "already_committed"
