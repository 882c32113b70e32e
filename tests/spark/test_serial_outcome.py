"""Statements of Spark beside changes by processes of pandas: the table is what one order of them leaves.

The order is that of the commits.  It must explain the rows after every statement, as Spark and a reader that
is not Spark find them, under the strictest isolation that the engine has.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from bench.servers.catalogs import CatalogKind
from safewrite.testing.steps import At
from tests.spark import ordered, serial
from tests.spark.hooked import HookedTable
from tests.spark.keyed_writer import KeyedWriter
from tests.spark.lake import Lake
from tests.spark.ordered import Order, persist
from tests.spark.serial import Append, Change, Remove, Statement, Update, difference, replayed

Hooked = Callable[[str], HookedTable]
Lakes = Callable[[CatalogKind], Lake]

PER_STATEMENT = 2
"""How many changes each writer is told to make when a statement begins."""
FIRST = Append("first", serial.FIRST)


@dataclass(frozen=True)
class Outcome:
    """What was meant, what was acknowledged, and how often a statement had to begin again."""

    changes: dict[str, Change]
    acked: dict[str, int | None]
    conflicts: int


def side_by_side(order: Order, seed: int, *, writers: int, count: int, removes: bool) -> Outcome:
    """Run ``count`` statements, each of them while every writer makes some changes."""
    ours = [
        serial.writes(seed, writer, PER_STATEMENT * count, removes=removes and writer == 0)
        for writer in range(writers)
    ]
    ids = [id_ for id_, _ in serial.FIRST] + _ids(*ours) + list(range(990_000, 990_020))
    statements = serial.statements(seed, count, ids=ids, copies=isinstance(order, ordered.DeltaOrder))
    acked: dict[str, int | None] = {"first": FIRST.write(order.reopen()).version}
    with ordered.each(*(KeyedWriter(order.reopen) for _ in range(writers))) as processes:
        for process in processes:
            process.ready()
        conflicts = sum(
            _run_beside(order, statement, processes, [of[at : at + PER_STATEMENT] for of in ours])
            for at, statement in zip(itertools.count(0, PER_STATEMENT), statements, strict=False)
        )
        acked |= {answer["name"]: answer["version"] for process in processes for answer in process.acked()}
    acked |= {one.name: None for one in statements if not isinstance(one, serial.Compact)}
    changes: list[Change] = [FIRST, *itertools.chain(*ours), *statements]
    return Outcome({change.name: change for change in changes}, acked, conflicts)


def _run_beside(
    order: Order, statement: Statement, processes: list[KeyedWriter], changes: list[list[Append | Remove]]
) -> int:
    for process, some in zip(processes, changes, strict=True):
        process.tell(some)
    return persist(order, statement)


def _ids(*writers: list[Append | Remove]) -> list[int]:
    return [id_ for one in writers for change in one if isinstance(change, Append) for id_, _ in change.rows]


def check(order: Order, outcome: Outcome) -> None:
    """One order explains the table, all of it and after each statement."""
    history = order.history()
    versions = {name: version for version, name in history}
    states = replayed([name for _, name in history], outcome.changes)
    assert versions.keys() == outcome.acked.keys(), "acknowledged, and once in the log; nothing else is"
    receipts = {name: version for name, version in outcome.acked.items() if version is not None}
    assert receipts.items() <= versions.items()
    for (version, name), expected in zip(history, states, strict=True):
        if name.startswith("spark") or version == history[-1][0]:
            wrong = difference(expected, order.by_another(version))
            assert not wrong, f"after {name} in version {version}: {wrong}"
    wrong = difference(states[-1], order.by_spark())
    assert not wrong, f"in the end, by Spark: {wrong}"


def _order(kind: str, hooked: Hooked, lakes: Lakes) -> Order:
    if kind == "sql":
        return ordered.iceberg(lakes("sql"), "copy-on-write")
    if kind == "rest":
        return ordered.iceberg(lakes("rest"), "merge-on-read")
    return ordered.delta(hooked(kind))


# --- the real thing ---------------------------------------------------------------------------------
@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", ["dynamodb", "object-store", "sql", "rest"])
def test_one_order_explains_what_spark_and_three_processes_of_pandas_leave(
    kind: str, seed: int, hooked: Hooked, lakes: Lakes
) -> None:
    """One of the processes deletes rows, too.  Without a conflict the run would have shown nothing."""
    order = _order(kind, hooked, lakes)
    outcome = side_by_side(order, seed, writers=3, count=12, removes=True)
    check(order, outcome)
    assert outcome.conflicts > 0


@pytest.mark.long
@pytest.mark.parametrize("kind", ["object-store", pytest.param("sql", marks=pytest.mark.long)])
def test_one_order_explains_a_few_statements(kind: str, hooked: Hooked, lakes: Lakes) -> None:
    order = _order(kind, hooked, lakes)
    check(order, side_by_side(order, 9, writers=1, count=2, removes=False))


@pytest.mark.long
@pytest.mark.parametrize("isolation", ["Serializable", "WriteSerializable"])
def test_an_update_that_passed_over_rows_of_before_is_noticed(hooked: Hooked, isolation: str) -> None:
    """The protection taken away: Delta's default lets an update commit after rows that it did not see."""
    order = ordered.delta(hooked("dynamodb"), isolation)
    update, late = Update("spark-0", 0, 17), Append("late", ((50_001, 3), (50_002, 4), (50_003, 5)))
    acked: dict[str, int | None] = {"first": FIRST.write(order.reopen()).version, update.name: None}
    hook = order.hooked.hook()
    hook.world = At(
        hook.world, "commit.entries", "before", lambda: acked.update(late=late.write(order.reopen()).version)
    )
    outcome = Outcome({one.name: one for one in (FIRST, update, late)}, acked, persist(order, update))
    if isolation == "Serializable":
        assert outcome.conflicts == 1
        check(order, outcome)
    else:
        with pytest.raises(
            AssertionError, match=r"spark-0 in version 3: missing \[\(50001, 26\)\], extra \[\(50001, 3\)\]"
        ):
            check(order, outcome)
