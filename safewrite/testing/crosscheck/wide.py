"""Runs programs on tables of many columns, and bounds the work of safewrite by the number of columns: calls are counted, not time."""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any

from safewrite.testing.crosscheck.draw import Format
from safewrite.testing.crosscheck.machine import ProgramRun, Tally
from safewrite.testing.crosscheck.oracle import DisagreementError
from safewrite.testing.crosscheck.program import Column, Program, Row
from safewrite.testing.crosscheck.runs import FailedSeed, SeedReport, check, local_home

TIMES = 4
"""A program runs twice, the second time with so many times the columns."""
SLACK = 1.15
"""The second run may make ``TIMES * SLACK`` as many calls; the square of the columns would be ``TIMES`` times more."""
OTHERS = {
    "delta": {"deltalake": {"append": 3, "delete": 1, "merge": 1, "compact": 1, "checkpoint": 1}},
    "iceberg": {"pyiceberg": {"append": 3, "delete": 1, "upsert": 1, "expire": 1}},
}
"""What other engines do to wide tables: nothing by which a column goes."""
_VALUES: list[tuple[str, Callable[[int], Any]]] = [
    ("int64", lambda number: number),
    ("string", str),
    ("bool", lambda number: number % 2 == 0),
    ("float64", lambda number: None if number % 3 else number / 2),
]


def check_wide(format_: Format, *, seeds: Iterable[int], columns: int = 1000) -> SeedReport:
    """Run each seed's program on a table with this many columns more, and on one with a quarter of them."""
    whole = SeedReport()
    for seed in seeds:
        whole.seeds += 1
        for program in _drawn(format_, seed):
            try:
                compare_work(program, columns, whole.tally)
            except DisagreementError as error:
                whole.failed.append(FailedSeed(seed, program, str(error)))
    return whole


def _drawn(format_: Format, seed: int) -> list[Program]:
    """The seed's program, which is not run yet."""
    found: list[Program] = []

    def keep(program: Program) -> bool:
        found.append(program)
        return False

    check(format_, seeds=[seed], others=OTHERS[format_], concerns=keep)
    return found


def compare_work(program: Program, columns: int, tally: Tally) -> None:
    """Run a program at two widths.

    Raises:
        DisagreementError: a reader disagrees, or the work grows faster than the columns.
    """
    few, many = (_work(widened(program, count), tally) for count in (columns // TIMES, columns))
    if many.total() > TIMES * SLACK * few.total():
        growth = {name: many[name] - TIMES * few[name] for name in many}
        worst = sorted(growth, key=growth.__getitem__, reverse=True)[:3]
        raise DisagreementError(
            f"{TIMES} times the columns are {many.total() / few.total():.1f} times the calls: "
            + ", ".join(f"{name} {few[name]} and {many[name]}" for name in worst)
        )


def widened(program: Program, count: int) -> Program:
    """The program with so many columns more, each with a value in every row."""
    listed = [(f"w{number}", *_VALUES[number % len(_VALUES)]) for number in range(count)]

    def row(known: Row) -> Row:
        return {**known, **{name: value(known["id"] + at) for at, (name, _, value) in enumerate(listed)}}

    steps = tuple(dataclasses.replace(one, rows=tuple(map(row, one.rows))) for one in program.steps)
    columns = (*program.columns, *(Column(name, kind) for name, kind, _ in listed))
    return dataclasses.replace(program, columns=columns, steps=steps)


def _work(program: Program, tally: Tally) -> Counter[str]:
    """How often each function of safewrite was called, or called one of another library."""
    found: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        module = str(frame.f_globals.get("__name__"))
        if event in {"call", "c_call"} and module.startswith("safewrite.") and ".testing." not in module:
            found[f"{module}:{frame.f_code.co_name}"] += 1

    home: AbstractContextManager[Any] = local_home(program.format)
    with home as one:
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            ProgramRun(program, one, tally).play()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return found
