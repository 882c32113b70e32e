"""An object belongs to the table that it was opened on, whatever it looked at since (decision 0018)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import safewrite as sw
from tests.iceberg.tables import Warehouse, warehouse

ROW = [{"id": 7, "lsn": 1}]
HOW: dict[str, Any] = {"keys": ["id"], "sequence_by": ["lsn"]}
LOOKS: dict[str, Callable[[sw.Table], object]] = {
    "none": lambda _: None,
    "resolve": lambda table: table.resolve("first"),
    "history": lambda table: table.history(),
    "refresh": lambda table: table.refresh(),
    "positions": lambda table: table.positions(),
    "append": lambda table: table.append(ROW, key="refused"),
}
VERBS: dict[str, Callable[[sw.Table], object]] = {
    "append": lambda table: table.append(ROW, key="late"),
    "append_many": lambda table: raised(table.append_many([("late", ROW)])[0]),
    "overwrite": lambda table: table.overwrite(ROW, where="id = 2"),
    "delete": lambda table: table.delete("id = 2"),
    "apply_changes": lambda table: table.apply_changes(ROW, **HOW),
}


def raised(answer: object) -> object:
    if isinstance(answer, sw.SafewriteError):
        raise answer
    return answer


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Warehouse]:
    with warehouse(tmp_path) as lake:
        yield lake


def held(lake: Warehouse) -> sw.Table:
    """An object whose table was dropped, and another made under its name."""
    table: sw.Table = sw.open("db.orders", catalog=lake.catalog, create=True)
    table.append([{"id": 1, "lsn": 0}], key="first")
    lake.catalog.drop_table("db.orders")
    return table


def made_again(lake: Warehouse) -> None:
    sw.open("db.orders", catalog=lake.catalog, create=True).append([{"id": 2, "lsn": 0}], key="second")


def ids(lake: Warehouse) -> list[int]:
    found: list[int] = lake.catalog.load_table("db.orders").scan().to_arrow()["id"].to_pylist()
    return found


@pytest.mark.sweep(
    "append_many",
    "append_many-history",
    "append_many-refresh",
    "append_many-resolve",
    "delete-history",
    "delete-refresh",
    "overwrite-resolve",
    "overwrite-history",
    "overwrite-refresh",
    "overwrite-positions",
    "overwrite-append",
    "delete-resolve",
    "delete-positions",
    "delete-append",
    "apply_changes-resolve",
    "apply_changes-history",
    "apply_changes-refresh",
    "apply_changes-positions",
    "apply_changes-append",
    "append-positions",
    "append-history",
    "append-refresh",
    "overwrite-none",
    "append-resolve",
    "delete-none",
)
@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("verb", VERBS)
def test_nothing_is_written_into_another_table_of_the_name(lake: Warehouse, look: str, verb: str) -> None:
    table = held(lake)
    with suppress(sw.TableNotFoundError):
        LOOKS[look](table)  # while there is none
    made_again(lake)
    for _ in range(2):
        with suppress(sw.ConflictError):
            LOOKS[look](table)
        with pytest.raises(
            sw.ConflictError, match="Open it again, and look at the table before you write"
        ) as caught:
            VERBS[verb](table)
        assert caught.value.kind is sw.Kind.TABLE_REPLACED
    assert ids(lake) == [2]


@pytest.mark.sweep("history", "positions", "refresh")
@pytest.mark.parametrize("look", [name for name in LOOKS if name != "none"])
def test_no_look_lets_an_object_read_from_another_table_of_the_name(lake: Warehouse, look: str) -> None:
    """``refresh`` raised, and the rows that were read next were those of the new table; ``resolve`` told of its writes."""
    table = held(lake)
    made_again(lake)
    sw.open("db.orders", catalog=lake.catalog).append([{"id": 3, "lsn": 0}], key="first")
    with pytest.raises(sw.ConflictError) as refused:
        LOOKS[look](table)
    assert refused.value.kind is sw.Kind.TABLE_REPLACED
    assert [entry.version for entry in table.added_since(None)] == [table.version]
    assert table.rows(where="id >= 0")["id"].to_pylist() == [1]


def test_a_table_opened_again_is_the_new_one(lake: Warehouse) -> None:
    held(lake)
    made_again(lake)
    sw.open("db.orders", catalog=lake.catalog).append(ROW, key="late")
    assert sorted(ids(lake)) == [2, 7]


def test_an_object_that_waits_for_its_table_takes_the_one_that_comes(lake: Warehouse) -> None:
    waiting: sw.Table = sw.open("db.orders", catalog=lake.catalog, create=True)
    held(lake)
    made_again(lake)
    waiting.append(ROW, key="late")
    assert sorted(ids(lake)) == [2, 7]
