"""Every public call ends in a result or a SafewriteError, whatever is given and whatever a library raises.

What is odd is drawn from ``tests.oddities``; ``tests.every_call`` says how a call must end, and what the table holds.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import safewrite as sw
from safewrite.iceberg.catalog.world import CatalogWorld
from safewrite.protocol.effects import Effect, Outcome
from safewrite.stores.world import World
from safewrite.testing.steps import Side
from tests.every_call import (
    ERRORS,
    KINDS,
    ODD_CONDITIONS,
    ODD_ROWS,
    SETTINGS,
    SOUND,
    Bench,
    Drawn,
    Lab,
    Trouble,
    row,
)
from tests.oddities import ANYTHING, CONDITIONS, DATA


# --- drawing ----------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab(tmp_path_factory.mktemp("every-call"))


SOUND_WRITES = ("append", "overwrite", "delete", "apply")
OTHERS = (
    *(
        "apply keys",
        "apply sequence_by",
        "apply delete_when",
        "apply truncate_when",
        "key",
        "txn",
        "schema_mode",
        "batch",
        "resolve",
        "resolve known",
        "history",
        "history known",
        "committed writes",
        "refresh",
        "checkpoint",
        "look",
        "repr",
    ),
    *("pickle", "open", "create", "sink mode", "sink app", "sink schema_mode"),
)
TROUBLES = st.builds(
    Trouble,
    st.integers(1, 14),
    st.sampled_from(("before", "after")),
    st.sampled_from(sorted(ERRORS)),
)


def calls() -> st.SearchStrategy[Drawn]:
    """Any public call."""

    def of(*verbs: str) -> st.SearchStrategy[Drawn]:
        return st.builds(
            Drawn,
            st.sampled_from(verbs),
            st.integers(0, 2**32),
            st.sampled_from(sorted(SOUND)),
            st.sampled_from((None, "merge")),
            st.sampled_from(SETTINGS),
            st.none() | st.none() | TROUBLES,
        )

    return st.one_of(of(*SOUND_WRITES), of(*ODD_ROWS), of(*ODD_CONDITIONS), of(*OTHERS))


def run(bench: Bench, some: list[Drawn]) -> None:
    for drawn in some:
        bench.one(drawn)
    for ending in sorted(set(bench.endings)):
        event(ending)
    bench.table = bench.open(create=True)
    assert bench.read() == bench.known


@given(st.booleans(), st.sampled_from(((), ("day",))), st.lists(calls(), min_size=1, max_size=5))
def test_every_call_on_a_delta_table_ends_in_a_result_or_one_of_our_errors(
    lab: Lab, there: bool, partition_by: tuple[str, ...], some: list[Drawn]
) -> None:
    bench = lab.bench("delta")
    bench.make(there, partition_by)
    run(bench, some)


@settings(max_examples=max(10, settings().max_examples // 3))
@given(
    st.booleans(),
    st.sampled_from(((), ("day",), ("bucket(4, id)",))),
    st.lists(calls(), min_size=1, max_size=4),
)
def test_every_call_on_an_iceberg_table_ends_in_a_result_or_one_of_our_errors(
    lab: Lab, there: bool, partition_by: tuple[str, ...], some: list[Drawn]
) -> None:
    bench = lab.bench("iceberg")
    bench.make(there, partition_by)
    run(bench, some)


# --- each odd thing once --------------------------------------------------------------------------------
@pytest.mark.sweep("delta")
@KINDS
def test_rows_of_any_type_are_written_or_refused(lab: Lab, kind: str) -> None:
    bench = lab.bench(kind)
    bench.make(True, (), pa.schema({"id": pa.int64()}))
    for number, (name, make) in enumerate(DATA.items()):
        data = make()
        mode = "merge" if number % 5 == 0 else None
        ending = bench.ended(lambda: bench.table.append(data, schema_mode=mode))  # noqa: B023 - called at once
        assert isinstance(ending, sw.Receipt | sw.SafewriteError), name
    bench.ended(bench.table.refresh)


@pytest.mark.sweep("iceberg")
@KINDS
def test_a_condition_of_any_type_is_understood_or_refused(lab: Lab, kind: str) -> None:
    bench = lab.bench(kind)
    bench.make(True, ())
    bench.table.append([row(1)])
    for name, make in CONDITIONS.items():
        if kind == "iceberg" and name.partition(":")[0] in ("date", "time", "amount", "ratio", "text"):
            continue  # one parser reads them for both formats
        where = make()
        ending = bench.ended(lambda: bench.table.delete(where))  # noqa: B023 - called at once
        assert isinstance(ending, sw.Receipt | sw.SafewriteError), name


@pytest.mark.sweep("iceberg")
@KINDS
def test_a_setting_of_any_type_is_taken_or_refused(lab: Lab, kind: str) -> None:
    bench = lab.bench(kind)
    bench.make(True, (), pa.schema({"id": pa.int64()}))
    for setting in SETTINGS:
        for make in ANYTHING.values():
            value = make()
            bench.ended(lambda: bench.open(**{setting: value}))  # noqa: B023 - called at once


# --- a library that raises while a table is opened or made -----------------------------------------------
def trapped(monkeypatch: pytest.MonkeyPatch, number: int, side: Side, error: Exception) -> list[str]:
    """Let every world raise at its ``number``-th effect; what was reached is noted in the list."""
    reached: list[str] = []
    count = itertools.count(1)

    def wrap(perform: Callable[[Any, Effect], Outcome]) -> Callable[[Any, Effect], Outcome]:
        def performed(world: Any, effect: Effect) -> Outcome:
            here = next(count) == number
            outcome = None if here and side == "before" else perform(world, effect)
            if here:
                reached.append(effect.name)
                raise error
            assert outcome is not None
            return outcome

        return performed

    for cls in (World, CatalogWorld):
        monkeypatch.setattr(cls, "perform", wrap(cls.perform))
    return reached


MAKERS: dict[str, Callable[[Bench], Any]] = {
    "create": lambda bench: sw.create(bench.name, pa.schema({"id": pa.int64()}), **bench.where),
    "first append": lambda bench: bench.open(create=True).append([{"id": 7}], key="event"),
    "open": lambda bench: bench.open(),
    "resolve": lambda bench: bench.open(create=True).resolve("event"),
    "refresh": lambda bench: bench.open(create=True).refresh(),
}


@pytest.mark.sweep(
    "iceberg", "first append-iceberg", "create-delta", "resolve-delta", "refresh-delta", "open-delta"
)
@KINDS
@pytest.mark.parametrize("maker", MAKERS)
def test_a_library_that_raises_while_a_table_is_made_or_opened(
    lab: Lab, kind: str, maker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = itertools.cycle(ERRORS)
    sides: Iterator[Side] = itertools.cycle(("after", "before", "before", "after", "after"))
    for number, side in zip(range(1, 100), sides, strict=False):
        bench = lab.bench(kind)
        error = bench.error(next(errors))
        with monkeypatch.context() as broken:
            reached = trapped(broken, number, side, error)
            try:
                MAKERS[maker](bench)
            except sw.SafewriteError as ours:
                if not reached and not isinstance(ours, sw.TableNotFoundError):
                    raise AssertionError(ours) from ours
                if "7" in bench.read() and isinstance(ours, sw.NotCommittedError):
                    raise AssertionError(reached) from ours
        bench.open(create=True).append([{"id": 7}], key="event")
        assert bench.read() == Counter(["7"]), (reached, error)
        if not reached:
            return
