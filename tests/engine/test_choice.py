"""What ``engine: auto`` chooses, from measures alone."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from typing import Any

import pytest

from safewrite.engine.abc import EngineError, ExecutorsLackPythonError, Task, TaskReport
from safewrite.engine.choice import Choice, Cost, Executors, chosen
from safewrite.engine.local import LocalEngine

HERE, THERE = Cost(0.1, 100e-6, 100_000), Cost(2.0, 20e-6, 100_000)
MOST = 10**9


def test_a_small_piece_is_done_here_and_a_large_one_there() -> None:
    there = [chosen(size, HERE, THERE, MOST).is_there for size in (0, 1000, 23_000, 24_000, 1_000_000)]
    assert there == [False, False, False, True, True]
    assert chosen(50_000, HERE, THERE, MOST).why == "some 3.00 s by executors and 5.10 s in this process"


def test_what_is_too_much_for_this_process_goes_there_whatever_it_takes() -> None:
    slow = Cost(100.0, 1.0, 100_000)
    assert [chosen(size, HERE, slow, 5000).is_there for size in (5000, 5001)] == [False, True]


def test_measures_change_the_line_and_fade() -> None:
    cost = Cost(1.0, 0.0, 1000)
    for _ in range(20):
        cost = cost.faded().after(1000, 5.0).faded().after(2000, 9.0)
    assert cost.of(1000) == pytest.approx(5.0, rel=0.2)
    assert cost.of(2000) == pytest.approx(9.0, rel=0.2)
    for _ in range(120):
        cost = cost.faded()
    assert cost.of(1000) == pytest.approx(1.0, rel=0.05)
    assert [Cost(0.0, 1e-3, 1000).after(9000, 0.1).of(size) >= 0 for size in (0, 10, 10**6)] == [True] * 3


def test_a_job_whose_executors_are_slow_does_its_work_here_and_tries_them_again_later() -> None:
    choice, went = Choice("records", (HERE, THERE)), []
    for _ in range(60):
        went.append(choice.is_there(100_000, small=0, most=MOST))
        choice.took(100_000, 40.0 if went[-1] else 10.1, is_there=went[-1])
    assert went[0]
    assert 0 < sum(went[1:]) < 6
    assert "100,000 records by" in choice.last


FEW = 20_000
"""Records of a batch that take 1.25 s in this process, and 1.8 s by executors, as the figures of elsewhere have it."""
FIGURES = Cost(0.05, 60e-6, 100_000), Cost(1.0, 40e-6, 100_000)


def sides(here_s: float, there_s: float, *, first: float = 1.0, pieces: int = 60) -> list[bool]:
    """Where a job does each of its pieces, which take so long on either side; the first one of a side so many times as long."""
    choice, went = Choice("records", FIGURES), list[bool]()
    for _ in range(pieces):
        is_there = choice.is_there(FEW, small=0, most=MOST)
        choice.took(
            FEW, (there_s if is_there else here_s) * (1.0 if is_there in went else first), is_there=is_there
        )
        went.append(is_there)
    return went


@pytest.mark.parametrize("slow", [1, 3, 8, 30])
def test_a_machine_that_is_slow_on_both_sides_changes_no_choice(slow: int) -> None:
    """The side that was not measured lately had the figures of an idle machine: a job went there at every third batch."""
    assert sum(sides(1.2 * slow, 2.5 * slow)) <= 6
    assert sum(sides(1.2 * slow, 0.9 * slow)) >= 50


@pytest.mark.parametrize(("there_s", "least", "most"), [(0.8, 50, 60), (1.6, 1, 6)])
def test_what_starts_and_compiles_in_the_first_piece_of_a_side_is_not_what_pieces_take(
    there_s: float, least: int, most: int
) -> None:
    assert least <= sum(sides(1.2, there_s, first=20.0)) <= most


def test_a_side_is_tried_that_figures_of_elsewhere_speak_against() -> None:
    """A table of history took less with executors, and no batch ever went there."""
    went = sides(1.2, 0.7)
    assert not any(went[:2])
    assert sum(went[2:20]) >= 17, "the other side is tried once more, for it was cold"


def test_a_side_that_was_measured_while_it_was_cold_is_tried_again_soon() -> None:
    """A job with a table of history stayed with executors, at nearly twice the time: the driver's only measure was of its second batch."""
    here, there = (9.0, 3.1, 2.2, 1.8, 1.7, 1.5), (6.0, 2.4, 2.6, 2.5)
    choice, went = Choice("records", FIGURES), list[bool]()
    for _ in range(40):
        is_there = choice.is_there(FEW, small=0, most=MOST)
        took, place = there if is_there else here, went.count(is_there)
        choice.took(FEW, took[min(place, len(took) - 1)], is_there=is_there)
        went.append(is_there)
    assert sum(went[:12]) <= 6
    assert sum(went[12:]) <= 2


def test_a_job_whose_batches_are_of_all_sizes_takes_little_longer_than_at_its_best() -> None:
    rng, choice, spent, best = random.Random(5), Choice("records", FIGURES), 0.0, 0.0
    for _ in range(300):
        size = rng.choice((3000, 20_000, 60_000))
        here, there = 0.2 + 600e-6 * size, 4.0 + 160e-6 * size  # a machine ten and four times as slow
        is_there = choice.is_there(size, small=500, most=MOST)
        choice.took(size, there if is_there else here, is_there=is_there)
        spent, best = spent + (there if is_there else here), best + min(here, there)
    assert spent < 1.15 * best


def test_small_work_has_no_job_and_without_costs_all_else_has_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "safewrite")
    forced, auto = Choice("rows"), Choice("rows", (HERE, Cost(0.0, 0.0, 1)))
    for choice in (forced, auto):
        assert [choice.is_there(size, small=10, most=20) for size in (0, 10, 11)] == [False, False, True]
    few, much = caplog.messages  # said once, until another is chosen
    assert few == "engine auto: 10 rows by this process: they are worth no job of Spark's"
    assert much == "engine auto: " + auto.last
    forced.took(5, 1.0, is_there=True)
    assert forced.costs is None


class Lacking(LocalEngine):
    """Executors that answer a probe thus."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = [*answers], 0

    def run(self, tasks: Sequence[Task]) -> list[TaskReport]:
        self.asked += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        found = super().run(tasks)
        return [TaskReport(one.at, answer or one.body) for one in found]


def test_executors_without_python_are_said_once_and_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    lacking = Executors(Lacking(ExecutorsLackPythonError("Install safewrite on every node.")), ("json",), 2)
    assert [lacking.ready(), lacking.ready()] == [None, None]
    other = Executors(Lacking("0.0.9"), ("json",), 2)
    assert other.ready() is None
    first, second = caplog.messages
    assert "this process does all work, for executors cannot. Install safewrite on every node." in first
    assert "They have safewrite 0.0.9" in second


def test_executors_that_give_no_answer_are_asked_again() -> None:
    engine = Lacking(EngineError("no executor is there"), None)
    executors = Executors(engine, ("json",), 2)
    assert (executors.ready(), executors.ready(), executors.ready()) == (None, engine, engine)
    assert engine.asked == 2
    executors.lack("a new node has none")
    assert (executors.ready(), executors.lacking) == (None, "a new node has none")
