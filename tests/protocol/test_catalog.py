"""What the metadata of an Iceberg table says of a change: landed, cannot land, or nothing yet."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

import pytest

from safewrite.errors import (
    CommitUnknownError,
    ConflictError,
    ForeignWriterError,
    Kind,
    RetriesExhaustedError,
    StorageError,
    TableNotFoundError,
)
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import (
    Backoff,
    Busy,
    Effect,
    Exists,
    Failed,
    Missing,
    Ok,
    Outcome,
    PassTurn,
    Unknown,
)
from safewrite.protocol.iceberg import commit, failures
from safewrite.protocol.iceberg.change import ReadMetadata
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.iceberg.settle import SettledChange, settle, settle_creation
from safewrite.protocol.values import Queue
from tests.protocol.scripts import Script, script

LIMITS = Limits(attempts=3, asks=2, timeout_s=10.0)


def head(*chain: int, **settings: object) -> TableVersion:
    """A table whose branch has these snapshots, oldest first, with sequence numbers from 1."""
    made = TableVersion(
        table_id="id",
        location="-".join(map(str, ("at", *chain))),
        current=chain[-1] if chain else None,
        parents=dict(zip(chain, (None, *chain[:-1]), strict=False)),
        sequences={at: number for number, at in enumerate(chain, start=1)},
        summaries={at: {"key": str(at)} for at in chain},
        properties={},
        last_sequence=len(chain),
    )
    return replace(made, **settings)  # type: ignore[arg-type]


BASE = head(1, 2)


@dataclass(frozen=True)
class Adds:
    """A change that adds snapshot 9 to the base."""

    base: TableVersion = BASE
    written: tuple[str, ...] = ()

    def landed_in(self, at: TableVersion) -> bool:
        return 9 in at.parents

    def stands_in(self, at: TableVersion) -> bool:
        return at.is_current(9)

    def may_land_on(self, at: TableVersion) -> bool:
        return at.current == self.base.current

    def accounted_in(self, at: TableVersion) -> bool:
        return at.accounts_since(self.base)


def settled(*answers: Outcome) -> tuple[SettledChange, Script]:
    """What became of the change with these answers."""
    asked = script(*answers)
    return asked.run(settle(Adds(), LIMITS, 0.0)), asked


# --- heads --------------------------------------------------------------------------------------------
def test_a_branch_is_followed_as_far_as_the_metadata_knows_it() -> None:
    assert list(head(1, 2, 3).ancestors()) == [3, 2, 1]
    assert list(head().ancestors()) == []
    assert list(head(1, 2, 3, parents={3: 2}).ancestors()) == [3]


def test_a_snapshot_is_current_by_itself_by_descent_or_by_a_cherry_pick() -> None:
    picked = head(1, 2, picked={2: 7})
    assert [picked.is_current(at) for at in (1, 2, 7, 8)] == [True, True, True, False]
    assert list(picked.carriers()) == [2, 7, 1]


@pytest.mark.parametrize(
    ("now", "base", "accounts"),
    [
        (head(1, 2), head(1, 2), True),
        (head(), head(), True),
        (head(1, 2, 3), head(1), True),
        (head(1, 2, 3), head(), True),
        (head(1, 2, 3), head(5), False),
        (head(), head(1), False),
        (head(2, 3, parents={3: 2}, sequences={3: 4, 2: 3}), head(1), False),
        (head(2, 3, parents={3: 2, 2: 1}), head(1), True),
        (head(3, parents={3: None}, sequences={3: 3}), head(), False),
        (head(3, parents={3: None}, sequences={}), head(last_sequence=-1), True),
        (head(3, parents={3: None}, sequences={3: 5}), head(last_sequence=4), True),
        (head(current=4), head(), False),
    ],
)
def test_a_gap_in_a_branch_is_seen(now: TableVersion, base: TableVersion, accounts: bool) -> None:
    assert now.accounts_since(base) is accounts


# --- one change ---------------------------------------------------------------------------------------
LANDED, RIVAL = head(1, 2, 9), head(1, 2, 5)


def test_a_change_that_the_table_shows_has_landed_whatever_the_answer_was() -> None:
    for answer in (Ok(), Unknown(), Exists(), Busy(), Failed("x"), Missing()):
        found, asked = settled(answer, Ok(LANDED))
        assert (found.landed, found.head) == (True, LANDED)
        assert (found.closed, found.in_doubt) == (isinstance(answer, Ok), isinstance(answer, Unknown))
        assert asked.names == ["swap.commit", "swap.verify" if answer == Ok() else "swap.look"]


def test_a_change_that_a_rival_outran_has_not_landed() -> None:
    for answer in (Unknown(), Exists(), Busy(), Failed("x")):
        found, _ = settled(answer, Ok(RIVAL))
        assert (found.landed, found.head) == (False, RIVAL)


def test_a_change_that_nothing_is_known_of_is_asked_for_again() -> None:
    found, asked = settled(Unknown(), Ok(BASE), Ok(1.0), Ok(), Ok(), Ok(LANDED))
    assert (found.landed, found.in_doubt) == (True, True)
    assert asked.names == ["swap.commit", "swap.look", "Now", "swap.backoff", "swap.commit", "swap.verify"]
    assert [one.attempt for one in asked.asked if isinstance(one, Backoff)] == [1]


def test_an_accepted_change_is_not_asked_for_twice() -> None:
    _, asked = settled(Ok(), Unknown(), Ok(1.0), Ok(), Ok(LANDED))
    assert asked.names.count("swap.commit") == 1
    with pytest.raises(ForeignWriterError, match="not compare before it sets"):
        settled(Ok(), Ok(RIVAL))
    with pytest.raises(CommitUnknownError):
        settled(Ok(), Ok(BASE), Ok(1.0), Ok(), Ok(BASE))


def test_a_change_that_was_taken_back_is_not_acknowledged() -> None:
    with pytest.raises(ForeignWriterError, match="rolled the table back"):
        settled(Ok(), Ok(replace(LANDED, current=2)))


@pytest.mark.parametrize(
    ("first", "second", "error"),
    [
        *((Unknown(), Unknown(), CommitUnknownError), (Unknown(), Busy(), CommitUnknownError)),
        *((Exists(), Exists(), RetriesExhaustedError), (Busy(), Busy(), RetriesExhaustedError)),
        (Busy(), Unknown(), CommitUnknownError),
    ],
)
def test_a_change_is_given_up_with_its_base_still_the_table(
    first: Outcome, second: Outcome, error: type[Exception]
) -> None:
    with pytest.raises(error):
        settled(first, Ok(BASE), Ok(1.0), Ok(), second, Ok(BASE))


@pytest.mark.parametrize(
    ("answer", "error"),
    [(Unknown(), CommitUnknownError), (Exists(), RetriesExhaustedError), (Busy(), RetriesExhaustedError)],
)
def test_a_change_is_given_up_once_its_time_is_used_up(answer: Outcome, error: type[Exception]) -> None:
    with pytest.raises(error):
        settled(answer, Ok(BASE), Ok(10.5))


def test_a_conflict_that_no_look_explained_stays_in_doubt() -> None:
    with pytest.raises(CommitUnknownError):
        settled(Exists(), Unknown(), Ok(10.5))
    with pytest.raises(CommitUnknownError):
        settled(Exists(), Unknown(), Ok(1.0), Ok(), Busy(), Unknown())
    with pytest.raises(RetriesExhaustedError):
        settled(Exists(), Unknown(), Ok(1.0), Ok(), Busy(), Ok(BASE))


def test_a_refusal_is_an_error_at_once_unless_something_is_in_doubt() -> None:
    with pytest.raises(StorageError, match="forbidden"):
        settled(Failed("forbidden"), Ok(BASE))
    with pytest.raises(CommitUnknownError):
        settled(Unknown(), Ok(BASE), Ok(1.0), Ok(), Failed("forbidden"), Ok(BASE))
    moved = replace(BASE, location="elsewhere")
    found, _ = settled(Failed("another format"), Ok(moved))
    assert (found.landed, found.head) == (False, moved)


def test_a_table_that_is_gone_takes_the_change_with_it() -> None:
    with pytest.raises(TableNotFoundError):
        settled(Failed("x"), Missing())
    for answer in (Ok(), Unknown(), Exists()):
        with pytest.raises(CommitUnknownError):
            settled(answer, Missing())
    for answer, doubt in ((Failed("x"), False), (Unknown(), True), (Ok(), True)):
        with pytest.raises(ConflictError) as told:
            settled(answer, Ok(replace(LANDED, table_id="another")))
        assert told.value.kind is Kind.TABLE_REPLACED
        assert ("may have been part" in str(told.value)) is doubt


def test_a_change_that_was_expired_is_found_in_earlier_metadata() -> None:
    expired = head(5, 6, location="now", previous=("older", BASE.location, "one", "two"))
    found, asked = settled(Unknown(), Ok(expired), Ok(RIVAL), Ok(LANDED))
    assert found.landed
    assert [one.location for one in asked.asked if isinstance(one, ReadMetadata)] == ["two", "one"]
    assert not settled(Unknown(), Ok(expired), Ok(RIVAL), Ok(RIVAL))[0].landed
    with pytest.raises(CommitUnknownError):
        settled(Unknown(), Ok(expired), Missing(), Ok(10.5))
    for previous in ((), (BASE.location, *map(str, range(101)))):
        with pytest.raises(CommitUnknownError):
            settled(Unknown(), Ok(replace(expired, previous=previous)), Ok(10.5))


def test_what_ends_the_turn_comes_with_the_look_and_once() -> None:
    closing = (PassTurn(4),)
    asked = script(Ok(), Ok((Ok(LANDED), Ok())))
    assert asked.run(settle(Adds(), LIMITS, 0.0, lambda: closing)).closed
    assert asked.names == ["swap.commit", "swap.verify_and_close"]
    asked = script(Ok(), Unknown(), Ok(1.0), Ok(), Ok(LANDED))
    asked.run(settle(Adds(), LIMITS, 0.0, lambda: closing))
    assert asked.names[-1] == "swap.verify"
    asked = script(Unknown(), Ok(BASE), Ok(1.0), Ok(), Ok(), Ok((Ok(LANDED), Ok())))
    asked.run(settle(Adds(), LIMITS, 0.0, lambda: closing))
    assert asked.names[-1] == "swap.verify_and_close"


def test_what_a_library_raises_says_nothing_of_the_commit() -> None:
    steps = settle(Adds(), LIMITS, 0.0)
    next(steps)
    look = steps.throw(RuntimeError("broken"))
    assert look.name == "swap.look"
    with pytest.raises(StopIteration) as ended:
        steps.send(Ok(LANDED))
    assert ended.value.value.in_doubt

    steps = settle(Adds(), LIMITS, 0.0)
    next(steps)
    steps.send(Unknown())
    steps.send(Ok(BASE))
    with pytest.raises(CommitUnknownError, match="RuntimeError: broken"):
        steps.throw(RuntimeError("broken"))


# --- creations ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Makes:
    """The creation of a table."""

    table_id: str = "id"

    def landed_in(self, at: TableVersion) -> bool:
        return at.table_id == self.table_id


def made(*answers: Outcome) -> SettledChange:
    """What became of the creation with these answers."""
    found = script(*answers).run(settle_creation(Makes(), LIMITS, 0.0))
    assert isinstance(found, SettledChange)
    return found


def test_a_table_is_ours_if_its_id_is() -> None:
    for answer in (Ok(), Unknown(), Exists(), Failed("x")):
        assert made(answer, Ok(head())) == SettledChange(True, head())
        assert not made(answer, Ok(head(table_id="another"))).landed
    assert made(Busy(), Missing(), Ok(1.0), Ok(), Ok(), Ok(head())).landed


def test_a_creation_is_in_doubt_unless_it_was_denied() -> None:
    for refusal in (Failed("forbidden"), Missing()):
        with pytest.raises(StorageError, match="Nothing was committed"):
            made(refusal, Missing())
        with pytest.raises(CommitUnknownError):
            made(Unknown(), Missing(), Ok(1.0), Ok(), refusal, Missing())
    for answer in (Ok(), Unknown()):
        with pytest.raises(CommitUnknownError):
            made(answer, Missing(), Ok(10.5))
    with pytest.raises(StorageError):
        made(Busy(), Missing(), Ok(1.0), Ok(), Busy(), Missing())
    with pytest.raises(StorageError):
        made(Failed("forbidden"), Unknown(), Ok(1.0), Ok(), Failed("forbidden"), Unknown())


# --- plans --------------------------------------------------------------------------------------------
@dataclass
class Finds:
    """A plan that is found where snapshot 9 is, and stages nothing."""

    rebases: bool = False
    rebased: int = 0

    def examine(self, at: TableVersion) -> int | None:
        return 9 if 9 in at.parents else None

    def stage(self, at: TableVersion) -> Generator[Effect, Outcome, Adds]:
        return Adds(at)
        yield


def test_a_plan_is_looked_for_in_every_state_since_the_last() -> None:
    assert script().run(commit._examine(Finds(), BASE, LANDED)) == 9
    assert script().run(commit._examine(Finds(), BASE, RIVAL)) is None
    expired = head(5, 6, location="now", previous=(BASE.location, "one"))
    assert script(Ok(LANDED)).run(commit._examine(Finds(), BASE, expired)) == 9
    assert script(Ok(RIVAL)).run(commit._examine(Finds(), BASE, expired)) is None
    with pytest.raises(CommitUnknownError, match="Snapshots were expired"):
        script(Missing()).run(commit._examine(Finds(), BASE, expired))


def test_a_plan_is_tried_again_on_what_a_rival_made_of_the_table() -> None:
    after = head(1, 2, 5, 9)
    asked = script(
        *(Ok(0.0), Ok(0.0), Ok(1.0), Exists(), Ok(RIVAL), Ok(2.0), Ok(), Ok(RIVAL)),
        *(Ok(3.0), Ok(3.0), Ok(), Ok(after)),
    )
    done = asked.run(commit.commit(Finds(), BASE, limits=LIMITS))
    assert (done.head, done.attempts, done.already, done.contended) == (after, 2, False, True)
    assert [change.base for change in done.lost] == [BASE]
    assert [one.ceiling_s for one in asked.asked if isinstance(one, Backoff)] == [2.0]


TURN = (Ok(0.0), Ok((4, Queue(4, 5))), Ok(0.0))


def in_turn(*answers: Outcome) -> tuple[commit.Swapped, Script]:
    """A commit that waits for its turn first, which is served at once."""
    asked = script(*TURN, *answers)
    return asked.run(commit.commit(Finds(), BASE, limits=LIMITS, lease_queue=True, queue_first=True)), asked


def test_a_turn_ends_with_the_write_however_that_ends() -> None:
    found, asked = in_turn(Ok(LANDED), Ok())
    assert (found.already, asked.asked[-1]) == (True, PassTurn(4, name="lease.pass"))
    begun = (Ok(BASE), Ok(0.0), Ok(0.0))
    found, asked = in_turn(*begun, Unknown(), Ok(LANDED), Ok())
    assert (found.already, found.contended, found.lost) == (False, False, [])
    assert asked.asked[-1] == PassTurn(4, name="lease.pass")
    found, asked = in_turn(*begun, Ok(), Ok((Ok(LANDED), Ok())))
    assert asked.names[-1] == "swap.verify_and_close"
    failing = script(*TURN, *begun, Ok(), Unknown(), Ok(10.5), Ok())
    with pytest.raises(CommitUnknownError):
        failing.run(commit.commit(Finds(), BASE, limits=LIMITS, lease_queue=True, queue_first=True))
    assert failing.asked[-1] == PassTurn(4, name="lease.pass")


def test_who_has_no_queue_does_not_wait_and_who_has_waits_once() -> None:
    lost = (Ok(0.0), Ok(0.0), Exists(), Ok(RIVAL), Ok(0.0))
    taken = (Ok((4, Queue(4, 5))), Ok(0.0))
    asked = script(
        Ok(0.0), *lost, *taken, Ok(RIVAL), Ok(0.0), Ok(0.0), Ok(), Ok((Ok(head(1, 2, 5, 9)), Ok()))
    )
    done = asked.run(commit.commit(Finds(), BASE, limits=LIMITS, lease_queue=True))
    assert (done.attempts, asked.names.count("lease.take"), asked.names.count("swap.spread")) == (2, 1, 0)


def test_a_plan_gives_up_after_its_attempts_or_its_time() -> None:
    done = commit.Swapped(BASE, None, 3, already=False, contended=True)
    with pytest.raises(RetriesExhaustedError, match="3 attempts"):
        script().run(commit._check_patience(done, LIMITS, 0.0))
    done.attempts = 2
    script(Ok(10.0)).run(commit._check_patience(done, LIMITS, 0.0))
    with pytest.raises(RetriesExhaustedError):
        script(Ok(10.5)).run(commit._check_patience(done, LIMITS, 0.0))


def test_a_plan_that_was_found_is_no_new_commit() -> None:
    done = script(Ok(0.0)).run(commit.commit(Finds(), LANDED, limits=LIMITS))
    assert (done.already, done.snapshot_id, done.attempts) == (True, 9, 0)


@pytest.mark.parametrize(
    ("tried", "attempts", "ceiling_s"), [(head(1), 1, 8.0), (RIVAL, 2, 6.0), (BASE, 1, 4.0)]
)
def test_who_loses_waits_for_as_many_turns_as_there_are_rivals(
    tried: TableVersion, attempts: int, ceiling_s: float
) -> None:
    done = commit.Swapped(head(1, 2, 5, 6) if tried.current == 1 else RIVAL, None, attempts, False, True)
    assert commit._spread(done, tried, 2.0) == Backoff(attempts, ceiling_s, name="swap.spread")


def test_a_table_is_loaded_or_it_is_told_why_not() -> None:
    assert script(Unknown(), Ok(), Ok(BASE)).run(commit.load(LIMITS)) == BASE
    with pytest.raises(TableNotFoundError):
        script(Missing()).run(commit.load(LIMITS))
    with pytest.raises(StorageError, match="forbidden"):
        script(Failed("forbidden")).run(commit.load(LIMITS))


def test_every_failure_says_whether_rows_may_be_in_the_table() -> None:
    swap = commit.LoadTable(name="swap.commit")
    assert isinstance(failures.undecided(swap, Failed("x"), True), CommitUnknownError)
    assert isinstance(failures.undecided(swap, Failed("x"), False), StorageError)
    assert isinstance(failures.gone(True), CommitUnknownError)
    assert isinstance(failures.gone(False), TableNotFoundError)
    assert isinstance(failures.unaccounted(), CommitUnknownError)
    assert isinstance(failures.rolled_back(), ForeignWriterError)
    assert isinstance(failures.clobbered(), ForeignWriterError)
