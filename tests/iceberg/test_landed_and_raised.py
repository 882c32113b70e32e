"""A library that raises in the middle of an Iceberg write, or after it: an ack stays an ack, every error is ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw
from safewrite.iceberg.catalog.files import FileStore
from safewrite.iceberg.table import IcebergTable
from safewrite.protocol.effects import Failed
from safewrite.testing.steps import At, Recorder, Side

VERBS: dict[str, Callable[[IcebergTable], sw.Receipt]] = {
    "append": lambda table: table.append([{"id": 7}], key="event"),
    "append in a stream": lambda table: table.append([{"id": 7}], txn=("app", 7)),
    "append without a name": lambda table: table.append([{"id": 7}]),
    "overwrite": lambda table: table.overwrite([{"id": 7}], where="id = 7", key="event"),
    "delete": lambda table: table.delete("id = 0", key="event"),
}
ERRORS = [
    RuntimeError("cannot schedule new futures"),
    pa.ArrowInvalid("no"),
    OSError(28, "no space"),
    KeyError("x"),
    sw.UnsupportedTableError("what a look met"),
]
DROPS_OLD_METADATA = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "1",
}


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return SqlCatalog("files", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())


def prepared(catalog: SqlCatalog, name: str) -> IcebergTable:
    table = sw.open(f"db.{name}", catalog=catalog, create=True, properties=DROPS_OLD_METADATA)
    assert isinstance(table, IcebergTable)
    table.append([{"id": 0}, {"id": 1}], key="before")
    return table


def ids(catalog: SqlCatalog, name: str) -> Counter[Any]:
    return Counter(catalog.load_table(f"db.{name}").scan().to_arrow().column("id").to_pylist())


@pytest.mark.sweep("delete-False", "append without a name-False", "append-False", "overwrite-False")
@pytest.mark.parametrize("both", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("verb", VERBS)
def test_whatever_is_raised_at_any_step_the_rows_are_there_once_or_not_at_all(
    catalog: SqlCatalog, verb: str, both: bool
) -> None:
    """Before each step and after it; the short form takes turns."""
    expected = Counter([1] if verb == "delete" else [0, 1, 7])
    table = prepared(catalog, "first")
    table.world = recorder = Recorder(table.world)
    VERBS[verb](table)
    assert "swap.commit" in recorder.steps
    for number, step in enumerate(recorder.steps):
        sides = ("before", "after")
        for side in sides if both or step == "swap.commit" else sides[number % 2 :][:1]:
            name = f"t{number}{side}"
            check(catalog, name, verb, step, side, ERRORS[number % len(ERRORS)], expected)


def check(  # noqa: PLR0917 - one caller, just above
    catalog: SqlCatalog, name: str, verb: str, step: str, side: Side, error: Exception, expected: Counter[Any]
) -> None:
    """One write in which a library raises at a step, and its repeat."""

    def fail() -> None:
        raise error

    table = prepared(catalog, name)
    table.world = trap = At(table.world, step, side, fail)
    receipt = raised = None
    try:
        receipt = VERBS[verb](table)
    except sw.SafewriteError as caught:
        raised = caught
    assert trap.reached, step
    there = ids(catalog, name) == expected
    assert there or receipt is None, (step, side)
    assert not (there and isinstance(raised, sw.NotCommittedError)), (step, side, raised)
    assert not (raised is None and receipt is None)
    repeat = sw.open(f"db.{name}", catalog=catalog)
    assert isinstance(repeat, IcebergTable)
    if verb == "append without a name":
        drawn = receipt.key if receipt is not None else raised.key if raised is not None else None
        again = repeat.append([{"id": 7}], key=drawn or "")
    else:
        again = VERBS[verb](repeat)
    assert receipt is None or again.outcome == "already_committed", (step, side)
    assert ids(catalog, name) == expected, (step, side)


def test_a_commit_is_acknowledged_whatever_its_tidying_up_meets(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faults A6, for Iceberg: what is learnt of the table after the commit, and old metadata that cannot be removed."""
    table = prepared(catalog, "t")

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the interpreter is shutting down")

    with monkeypatch.context() as broken:
        broken.setattr(FileStore, "delete", fail)
        assert table.append([{"id": 2}], key="2").outcome == "committed"
    known, see = table.version, table._format._cached.see
    with monkeypatch.context() as broken:
        broken.setattr(
            table._format._cached, "see", lambda head: see(head) if head.current == known else fail()
        )
        assert table.append([{"id": 3}], key="3").outcome == "committed"
    assert table.append([{"id": 4}], key="4").outcome == "committed"
    assert ids(catalog, "t") == Counter(range(5))


def test_old_metadata_that_another_writer_dropped_first_is_no_fault(
    catalog: SqlCatalog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """PyIceberg warned of each file that is gone already, and of two writers each drops what the other has dropped."""
    one = prepared(catalog, "t")
    other = sw.open("db.t", catalog=catalog)
    for number in range(4):
        other.append([{"id": 2 + number}])
    one.append([{"id": 6}])
    assert not caplog.records
    assert len([*tmp_path.rglob("*.metadata.json")]) == 1 + 1
    assert ids(catalog, "t") == Counter(range(7))


def test_old_metadata_that_cannot_be_dropped_is_told(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = prepared(catalog, "t")
    monkeypatch.setattr(FileStore, "delete", lambda *_: Failed("read only"))
    assert table.append([{"id": 2}]).outcome == "committed"
    assert "is left" in caplog.text
    assert "read only" in caplog.text
