"""From a claim to its ack: what each answer to the create of a commit file means, and whose turn ends with it."""

from __future__ import annotations

import pytest

from safewrite.errors import CommitUnknownError, ConflictError, ForeignWriterError, StorageError
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta import commit
from safewrite.protocol.delta.candidate import Arbiter, Try
from safewrite.protocol.delta.catch_up import catch_up
from safewrite.protocol.effects import Busy, Exists, Failed, Missing, Ok, Outcome, Together, Unknown
from safewrite.protocol.values import Queue
from tests.protocol.scripts import Script, script
from tests.protocol.test_log import LIMITS, Rows, attempt, entry, listed

MINE, OTHER = Ok(b"rows"), Ok(b"other")
CLOSED = Ok((MINE, Ok()))


def put(*answers: Outcome, claimed: bool) -> tuple[bool, Try, Script]:
    """Whether version 4 is ours with these answers."""
    state = attempt(3, lock_table=claimed)
    asked = script(*answers)
    ours = asked.run(commit._put_commit(state, 4, b"rows", entry(4) if claimed else None))
    return ours, state, asked


def test_a_version_is_ours_once_our_bytes_are_read_back() -> None:
    ours, _, asked = put(Ok(), Ok((MINE,)), claimed=False)
    assert (ours, asked.names) == (True, ["commit.put_commit", "commit.verify_and_close"])
    for unclear in (Unknown(), Exists(), Busy()):
        assert put(unclear, MINE, claimed=False)[0]
    ours, _, asked = put(Exists(), MINE, Ok((Ok(),)), claimed=True)
    assert (ours, asked.names[-1]) == (True, "commit.close")


def test_a_version_with_other_bytes_is_anothers() -> None:
    ours, state, asked = put(Exists(), OTHER, claimed=False)
    assert (ours, state.mixed, asked.names) == (False, False, ["commit.put_commit", "commit.read_back"])
    ours, state, asked = put(Exists(), OTHER, Ok(), claimed=True)
    assert (ours, state.mixed, asked.names[-1]) == (False, True, "commit.complete")


def test_a_create_that_nothing_is_known_of_is_tried_again() -> None:
    ours, _, asked = put(Busy(), Missing(), Ok(1.0), Ok(), Ok(), Ok((MINE,)), claimed=False)
    assert ours
    assert asked.names[:5] == [
        "commit.put_commit",
        "commit.read_back",
        "Now",
        "commit.put_commit.backoff",
        "commit.put_commit",
    ]


def test_a_create_is_in_doubt_unless_every_answer_denied_it() -> None:
    with pytest.raises(StorageError, match="forbidden"):
        put(Failed("forbidden"), claimed=False)
    with pytest.raises(StorageError):
        put(Busy(), Missing(), Ok(1.0), Ok(), Busy(), Missing(), claimed=False)
    for unclear in (Unknown(), Exists()):
        with pytest.raises(CommitUnknownError) as told:
            put(unclear, Missing(), Ok(1.0), Ok(), Failed("forbidden"), Missing(), claimed=False)
        assert told.value.version == 4
        with pytest.raises(CommitUnknownError):
            put(unclear, Missing(), Ok(10.5), claimed=False)
    for claimed_answers in ((Failed("forbidden"), Missing()), (Busy(), Missing(), Ok(10.5))):
        with pytest.raises(CommitUnknownError):  # a repairer may commit what was claimed
            put(*claimed_answers, claimed=True)


def test_an_accepted_commit_that_is_not_there_is_an_alarm() -> None:
    for standing in (OTHER, Missing()):
        again = (standing,) if standing == Missing() else ()
        with pytest.raises(ForeignWriterError):
            put(Ok(), Ok((standing,)), *again, claimed=False)
    with pytest.raises(CommitUnknownError):
        put(Ok(), Ok((Unknown(),)), Unknown(), Ok(), Unknown(), claimed=False)
    assert put(Ok(), Ok((Unknown(),)), MINE, claimed=False)[0]


def test_an_ack_closes_the_entry_and_ends_the_turn() -> None:
    state = attempt(3, lock_table=True)
    state.ticket = 7
    asked = script(Ok(), Ok((MINE, Ok(), Ok())))
    assert asked.run(commit._put_commit(state, 4, b"rows", entry(4)))
    assert isinstance(asked.asked[1], Together)
    assert [effect.name for effect in asked.asked[1].effects] == [
        "commit.verify",
        "commit.complete",
        "lease.pass",
    ]
    assert state.ticket is None
    state.ticket = 8
    asked = script(Ok((Ok(), Ok())))
    asked.run(commit._acknowledge(state, entry(4)))
    assert state.ticket is None
    script().run(commit._acknowledge(state, None))


def test_a_temp_file_that_no_entry_names_does_not_stay_in_another_table() -> None:
    state = attempt(3, lock_table=True)
    state.fresh = True
    asked = script(Ok("unique"), Ok((Ok(()), Ok())), Ok())
    with pytest.raises(ConflictError):
        asked.run(commit.try_version(state, 4, 0.0))
    assert asked.names[-1] == "commit.delete_temp"


def test_who_meets_an_unfinished_entry_waits_for_its_turn_and_looks_again() -> None:
    state = Try(Rows(), 3, Arbiter(True, lease=True), LIMITS)  # type: ignore[arg-type]
    asked = script(
        Ok((Ok((entry(4),)), Ok(listed(3)))),
        *(Ok((0, Queue(0, 1))), Ok(0.0)),
        Ok((Ok((entry(4, complete=True),)), Ok(listed(3, 4)))),
        Ok((Ok(b"4"),)),
    )
    assert asked.run(catch_up(state)) is None
    assert (state.ticket, state.seen, state.contended) == (0, 4, True)
    assert asked.names == ["commit.look", "lease.take", "Now", "commit.look", "commit.read_new"]


def test_an_interrupted_write_ends_its_turn_and_is_in_doubt_only_while_a_version_is_tried() -> None:
    steps = commit.commit(Rows(), 3, arbiter=Arbiter(False), limits=Limits(), fresh=True)  # type: ignore[arg-type]
    assert next(steps).name == ""
    with pytest.raises(RuntimeError):
        steps.throw(RuntimeError("before any try"))
    steps = commit.commit(Rows(), 3, arbiter=Arbiter(False), limits=Limits(), fresh=True)  # type: ignore[arg-type]
    next(steps)
    for answer in (Ok(0.0), Ok(0.0), Ok(listed(3))):
        effect = steps.send(answer)
    assert effect.name == "commit.put_commit"
    with pytest.raises(CommitUnknownError, match="RuntimeError: while it was tried") as told:
        steps.throw(RuntimeError("while it was tried"))
    assert told.value.version == 4


def test_a_commit_that_meets_nobody_takes_one_attempt() -> None:
    asked = script(Ok(0.0), Ok(0.0), Ok(listed(3)), Ok(), Ok((MINE,)))
    steps = commit.commit(Rows(), 3, arbiter=Arbiter(False), limits=LIMITS, fresh=True)  # type: ignore[arg-type]
    assert asked.run(steps) == commit.Landed(4, 1, already=False, contended=False)
