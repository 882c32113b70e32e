"""How a protocol asks: again while an answer is not clear, side by side, and in its turn."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from safewrite.errors import StorageError
from safewrite.protocol import ticket_queue
from safewrite.protocol.ask import Limits, ask, overdue, side_by_side, unanswered
from safewrite.protocol.effects import (
    Backoff,
    Busy,
    Effect,
    Exists,
    Failed,
    Get,
    Missing,
    Ok,
    Outcome,
    PassTurn,
    Sleep,
    Together,
    Unknown,
)
from safewrite.protocol.fetch import BATCH, fetch, fetch_one
from safewrite.protocol.values import Entry, Queue
from tests.protocol.scripts import script

LIMITS = Limits(asks=3, timeout_s=10.0, lease_s=3.0)
GET, OTHER, THIRD = (Get(path, name=path) for path in ("a", "b", "c"))


@pytest.mark.parametrize("clear", [Ok(b""), Missing(), Exists(), Failed("no")])
def test_a_clear_answer_is_taken_and_others_are_asked_for_again(clear: Outcome) -> None:
    assert script(clear).run(ask(GET, LIMITS)) == clear
    asked = script(Busy(), Ok(), Unknown(), Ok(), clear)
    assert asked.run(ask(GET, LIMITS)) == clear
    assert asked.names == ["a", "a.backoff", "a", "a.backoff", "a"]
    assert [effect.attempt for effect in asked.asked if isinstance(effect, Backoff)] == [1, 2]


def test_nothing_is_asked_for_more_often_than_the_limit_says() -> None:
    assert script(Busy(), Ok(), Busy(), Ok(), Unknown("cut")).run(ask(GET, LIMITS)) == Unknown("cut")
    assert script().run(ask(GET, Limits(asks=0))) == Unknown("never asked")


def test_a_write_is_overdue_once_its_time_is_used_up() -> None:
    assert [script(Ok(now_s)).run(overdue(LIMITS, 5.0)) for now_s in (14.0, 15.0, 15.1)] == [
        False,
        False,
        True,
    ]


def test_an_error_says_what_was_asked_and_what_helps() -> None:
    said = str(unanswered(GET, Unknown("cut")))
    assert "Reading a failed: cut. Nothing was committed by this call. This often passes" in said
    assert "Reading a failed: Missing" in str(unanswered(Get("a"), Missing()))
    assert "Check permissions" in str(unanswered(GET, Failed("no")))


def _two(first: Effect, second: Effect) -> Generator[Effect, Outcome, list[Outcome]]:
    return [(yield first), (yield second)]


def _one(effect: Effect) -> Generator[Effect, Outcome, list[Outcome]]:
    return [(yield effect)]


def _none() -> Generator[Effect, Outcome, str]:
    return "nothing"
    yield GET


def test_steps_side_by_side_get_their_own_answers() -> None:
    pair = Together((OTHER, THIRD))
    asked = script(Ok((Ok(1), Ok(2), Ok(3))), Ok(4))
    found = asked.run(side_by_side(_two(GET, GET), _one(pair), _none()))
    assert found == ([Ok(1), Ok(4)], [Ok((Ok(2), Ok(3)))], "nothing")
    assert asked.asked == [Together((GET, OTHER, THIRD), name="together"), GET]


# --- many reads ---------------------------------------------------------------------------------------
def test_reads_are_performed_together_and_those_without_an_answer_again() -> None:
    asked = script(Ok((Ok(1), Unknown(), Missing())), Ok(2))
    assert asked.run(fetch([GET, OTHER, THIRD], LIMITS, name="all")) == [Ok(1), Ok(2), Missing()]
    assert asked.asked == [Together((GET, OTHER, THIRD), name="all"), OTHER]
    assert script(Unknown(), Ok(1), Ok(2)).run(fetch([GET, OTHER], LIMITS, name="all")) == [Ok(1), Ok(2)]


def test_one_read_is_performed_alone() -> None:
    asked = script(Ok(1))
    assert asked.run(fetch([GET], LIMITS, name="all")) == [Ok(1)]
    assert asked.asked == [GET]
    assert script(Missing()).run(fetch_one(GET, LIMITS)) == Missing()


def test_no_more_reads_than_a_batch_are_in_flight() -> None:
    gets = [Get(str(number)) for number in range(BATCH + 2)]
    asked = script(*(Ok(tuple(Ok(n) for n in part)) for part in (range(BATCH), range(2))))
    assert asked.run(fetch(gets, LIMITS, name="all")) == [*map(Ok, range(BATCH)), Ok(0), Ok(1)]
    assert [len(effect.effects) for effect in asked.asked if isinstance(effect, Together)] == [BATCH, 2]


def test_a_read_that_is_refused_is_an_error() -> None:
    with pytest.raises(StorageError, match="no"):
        script(Ok((Ok(1), Failed("no"))), Failed("no")).run(fetch([GET, OTHER], LIMITS, name="all"))
    with pytest.raises(StorageError, match="no"):
        script(Failed("no")).run(fetch_one(GET, LIMITS))


# --- the queue ----------------------------------------------------------------------------------------
def test_who_is_served_at_once_does_not_wait() -> None:
    assert script(Ok((4, Queue(4, 5))), Ok(0.0)).run(ticket_queue.wait_turn(LIMITS)) == 4


def test_who_cannot_use_the_queue_goes_on_without_it() -> None:
    assert script(Unknown()).run(ticket_queue.wait_turn(LIMITS)) is None


def test_who_waits_looks_until_it_is_served() -> None:
    turns = [(Ok(Queue(3, 6)), 1.0), (Ok(Queue(5, 6)), 2.0)]
    answers = [part for queue, at in turns for part in (Ok(), queue, Ok(at))]
    asked = script(Ok((5, Queue(2, 6))), Ok(0.0), *answers)
    assert asked.run(ticket_queue.wait_turn(LIMITS)) == 5
    assert asked.names == ["lease.take", "Now", *(["lease.wait", "lease.read", "Now"] * 2)]
    naps = [effect.seconds for effect in asked.asked if isinstance(effect, Sleep)]
    assert naps == pytest.approx(
        [0.07, 0.1]
    )  # two turns of 0.05 s are guessed; then one before us, of a second each


def test_a_holder_that_does_not_move_is_passed_over_after_the_lease_and_not_before() -> None:
    still = [(Ok(Queue(4, 6)), at) for at in (3.0, 3.1, 6.1)]
    answers: list[Outcome] = [Ok((5, Queue(4, 6))), Ok(0.0)]
    for queue, at in still:
        answers += [Ok(), queue, Ok(at), *([Ok()] if at == 3.1 else [])]
    answers += [Ok(), Ok(Queue(5, 6)), Ok(6.2)]
    asked = script(*answers)
    assert asked.run(ticket_queue.wait_turn(LIMITS)) == 5
    passed = [effect for effect in asked.asked if isinstance(effect, PassTurn)]
    assert passed == [PassTurn(4, name="lease.pass_over")]


def test_a_queue_that_cannot_be_read_any_more_is_left_after_the_lease_and_not_before() -> None:
    answers = [part for at in (3.0, 3.1) for part in (Ok(), Unknown(), Ok(at))]
    assert script(Ok((5, Queue(4, 6))), Ok(0.0), *answers).run(ticket_queue.wait_turn(LIMITS)) is None


@pytest.mark.parametrize(
    ("ahead", "pace_s", "unmoved_s", "pause_s"),
    [
        *((1, 0.01, 0.0, 0.01), (1, 0.2, 0.0, 0.03), (1, 9.0, 0.0, 0.05)),
        *((2, 0.1, 0.0, 0.07), (2, 0.1, 0.05, 0.035), (2, 0.1, 5.0, 0.015), (3, 9.0, 0.0, 0.2)),
        (40, 9.0, 0.0, 1.0),
    ],
)
def test_who_is_next_naps_and_the_others_sleep(
    ahead: int, pace_s: float, unmoved_s: float, pause_s: float
) -> None:
    assert ticket_queue._pause_s(ahead, pace_s, unmoved_s) == pytest.approx(pause_s)


def test_a_turn_is_passed_on_by_its_ticket() -> None:
    assert ticket_queue.pass_turn(4) == PassTurn(4, name="lease.pass")


@pytest.mark.parametrize(
    ("complete", "expire_time_s", "digest", "settled"),
    [
        *((True, None, None, True), (True, 9, "ab", True), (True, 9, None, True)),
        *((True, None, "ab", False), (False, 9, None, False)),
    ],
)
def test_a_commit_file_stands_where_its_entry_is_complete_and_not_merely_sealed(
    complete: bool, expire_time_s: int | None, digest: str | None, settled: bool
) -> None:
    entry = Entry(
        "00000000000000000012.json", "temp", complete=complete, expire_time_s=expire_time_s, digest=digest
    )
    assert (entry.version, entry.settled) == (12, settled)
