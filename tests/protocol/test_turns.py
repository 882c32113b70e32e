"""What a writer does with the moments before its turn in the queue of tickets."""

from __future__ import annotations

from dataclasses import replace

from safewrite.protocol.delta import claim as claims
from safewrite.protocol.delta import turn
from safewrite.protocol.delta.candidate import Arbiter, Try
from safewrite.protocol.delta.catch_up import catch_up
from safewrite.protocol.effects import Delete, Ok, Put, Together, Unknown
from safewrite.protocol.values import Queue
from tests.protocol.scripts import Script, script
from tests.protocol.test_log import LIMITS, Rows, entry, listed

WAITING, SERVED = Ok(Queue(0, 2)), Ok(Queue(1, 2))
TAKEN, NOW = Ok((1, Queue(0, 2))), Ok(0.0)
DONE = replace(entry(4), complete=True, expire_time_s=1, summary="theirs", digest="d")
IDLE = (Ok((DONE,)), Ok(listed(3, 4, etag="d")))
CLAIMED = (Ok((DONE, entry(5))), Ok(listed(3, 4, etag="d")))
STANDING = (Ok((DONE, entry(5))), Ok(listed(3, 4, 5, etag="d")))
LANDED = (
    Ok((DONE, replace(DONE, file_name=claims.file_name(5)))),
    Ok(listed(3, 4, 5, etag="d")),
)


def waited(*polls: tuple[object, ...], **settings: object) -> tuple[Try, Script]:
    """A writer that saw version 3 and waits for its turn, with the answers to each look at the queue and the log."""
    state = Try(Rows(**settings), 3, Arbiter(True, lease=True, ahead=True), LIMITS)  # type: ignore[arg-type]
    answers: list[Ok] = [TAKEN, NOW]
    drawn = 0
    for number, poll in enumerate(polls):
        answers += [Ok(), Ok(poll)]
        if number in (settings.get("draws") or (0,)):
            answers.append(Ok(f"unique{(drawn := drawn + 1)}"))
        answers.append(NOW)
    asked = script(*answers)
    assert asked.run(turn.queue(state)) is True
    return state, asked


def uploads(asked: Script) -> list[str]:
    """The temp files that were uploaded while it waited."""
    parts = [one for effect in asked.asked if isinstance(effect, Together) for one in effect.effects]
    return [one.path for one in parts if isinstance(one, Put)]


def test_who_is_next_has_its_temp_file_there_and_has_seen_the_log_when_its_turn_comes() -> None:
    for seen in (IDLE, CLAIMED, STANDING):
        version = 6
        state, asked = waited((WAITING, *seen), (SERVED, *LANDED, Ok()))
        name = f"_delta_log/.tmp/{claims.file_name(version)}.unique1"
        assert uploads(asked) == [name]
        assert script().run(catch_up(state)) is None, "the log is not asked for again"
        assert (state.seen, state.seen_ahead) == (5, None)
        draft, temp = script().run(turn.entry_for(state, 6, b"rows"))
        assert claims.LOG + draft.temp_path == name
        script().run(temp)


def test_a_temp_file_for_another_version_or_of_other_bytes_is_taken_away_beside_the_right_one() -> None:
    for version, body in ((7, b"rows"), (6, b"other rows")):
        state, _ = waited((WAITING, *IDLE), (SERVED, *LANDED, Ok()))
        draft, temp = script(Ok("right")).run(turn.entry_for(state, version, body))
        assert draft.temp_path == f".tmp/{claims.file_name(version)}.right"
        asked = script(Ok((Ok(), Ok())))
        asked.run(temp)
        (both,) = asked.asked
        assert isinstance(both, Together)
        assert [type(one) for one in both.effects] == [Put, Delete]
        assert (state.ahead, state.uploaded) == (None, None)


def test_an_upload_without_an_answer_is_made_again() -> None:
    state, asked = waited((WAITING, *IDLE), (WAITING, *CLAIMED, Unknown()), (SERVED, *LANDED, Ok()))
    assert len(uploads(asked)) == 2
    assert len(set(uploads(asked))) == 1
    assert state.uploaded is True
    state, _ = waited((WAITING, *IDLE), (SERVED, *LANDED, Unknown()))
    draft, _ = script(Ok("right")).run(turn.entry_for(state, 6, b"rows"))
    assert draft.temp_path.endswith("right")


def test_a_log_in_which_a_commit_is_under_way_is_looked_at_again_in_the_turn() -> None:
    for seen in (CLAIMED, STANDING):
        state, _ = waited((WAITING, *IDLE), (SERVED, *seen, Ok()))
        assert state.seen_ahead is None


def test_a_writer_whose_commit_others_must_read_uploads_nothing_ahead() -> None:
    state = Try(Rows(), 3, Arbiter(True, lease=True, ahead=True), LIMITS)  # type: ignore[arg-type]
    state.candidate.summary = lambda version: None  # type: ignore[method-assign]
    asked = script(TAKEN, NOW, Ok(), Ok((WAITING, *IDLE)), NOW, Ok(), Ok((SERVED, *LANDED)), NOW)
    asked.run(turn.queue(state))
    assert uploads(asked) == []
    assert state.ahead is None
