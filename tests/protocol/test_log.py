"""What is read of a Delta log before a try: the newest version, proofs that it is the same log, summaries, waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from safewrite.errors import (
    CommitUnknownError,
    ConflictError,
    Kind,
    RetriesExhaustedError,
    StorageError,
    UnsafeConfigError,
)
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta import catch_up, claim, commit
from safewrite.protocol.delta.candidate import Anchor, Arbiter, Found, Try
from safewrite.protocol.effects import (
    Backoff,
    Busy,
    CompleteEntry,
    Exists,
    Failed,
    Get,
    Missing,
    Ok,
    PutEntryIfAbsent,
    Together,
    Unknown,
)
from safewrite.protocol.values import Entry, LedgerRecord, Listed
from tests.protocol.scripts import script

LIMITS = Limits(attempts=3, asks=2, timeout_s=10.0, recheck_s=60.0)


@dataclass
class Rows:
    """A candidate that notes what it is shown, and finds itself in versions that it is told."""

    table_id: str | None = "id"
    accounted: int = 3
    rebases: bool = False
    rebased: int = 0
    anchor: Anchor | None = None
    own: Sequence[int] = ()
    examined: list[tuple[int, str]] = field(default_factory=list)
    rechecks: int = 0

    def body(self, version: int) -> bytes:
        return b"rows"

    def examine(self, version: int, body: bytes) -> Found | None:
        self.examined.append((version, body.decode()))
        return Found(version, own=False) if version in self.own else None

    def summary(self, version: int) -> str | None:
        return "ours"

    def suffices(self, summary: str) -> bool:
        return summary != "not enough"

    def examine_summary(self, version: int, summary: str, digest: str) -> Found | None:
        self.examined.append((version, summary))
        return Found(version, own=False) if version in self.own else None

    def renew(self):  # type: ignore[no-untyped-def]
        yield from ()

    def recheck(self):  # type: ignore[no-untyped-def]
        self.rechecks += 1
        return
        yield


def attempt(seen: int = 3, *, lock_table: bool = False, **settings: object) -> Try:
    """A try that has seen versions up to ``seen``."""
    return Try(Rows(**settings), seen, Arbiter(lock_table), LIMITS, anchor=settings.get("anchor"))  # type: ignore[arg-type]


def listed(*versions: int, etag: str = "") -> tuple[Listed, ...]:
    """What a listing shows of commit files."""
    return tuple(Listed(claim.commit_path(version), 1, 0, etag) for version in versions)


def entry(version: int, **settings: object) -> Entry:
    """An entry of the lock table."""
    return replace(Entry(claim.file_name(version), f".tmp/{version}", table_id="id"), **settings)  # type: ignore[arg-type]


# --- names and listings -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("_delta_log/00000000000000000012.json", 12),
        ("_delta_log/00000000000000000012.checkpoint.parquet", None),
        ("_delta_log/0000000000000000012.json", None),
        ("_delta_log/0000000000000000001x.json", None),
        ("_delta_log/00000000000000000012", None),
    ],
)
def test_only_a_commit_file_has_a_version(path: str, version: int | None) -> None:
    assert catch_up.version_of(path) == version


def test_the_head_of_a_log_is_the_highest_version_that_is_listed() -> None:
    state = attempt(3)
    assert [catch_up._head(state, one) for one in ((), listed(3), listed(3, 4, 5))] == [3, 3, 5]


@pytest.mark.parametrize(
    ("seen", "after"), [(-1, "_delta_log//"), (0, f"_delta_log/{0:020d}"), (3, f"_delta_log/{3:020d}")]
)
def test_a_listing_begins_with_the_version_that_was_seen(seen: int, after: str) -> None:
    assert catch_up._list_effect(attempt(seen)).start_after == after


# --- the same log -------------------------------------------------------------------------------------
BODY, DIGEST = b"body", "841a2d689ad86bd1611447453c22c6fc"
ANCHOR = Anchor(3, claim.commit_path(3), DIGEST)


def test_the_commit_that_was_seen_last_proves_that_the_log_is_the_same() -> None:
    for answers in ([Ok(BODY)], [Unknown(), Ok(), Ok(BODY)]):
        asked = script(*answers)
        asked.run(catch_up.prove(attempt(3, anchor=ANCHOR)))
        assert asked.names[0] == "commit.get_anchor"
    script().run(catch_up.prove(attempt(-1, accounted=-1)))
    for other in (Ok(b"other"), Missing()):
        with pytest.raises(ConflictError) as told:
            script(other).run(catch_up.prove(attempt(3, anchor=ANCHOR)))
        assert told.value.kind is Kind.TABLE_REPLACED
    with pytest.raises(StorageError, match="forbidden"):
        script(Failed("forbidden")).run(catch_up.prove(attempt(3, anchor=ANCHOR)))


def test_a_listing_with_the_right_tag_proves_that_the_log_is_the_same() -> None:
    script().run(catch_up._prove(attempt(3, anchor=ANCHOR), listed(3, etag=DIGEST)))


def test_a_file_of_the_log_is_read_where_the_listing_proves_nothing() -> None:
    script(Ok(BODY)).run(catch_up._prove(attempt(3, anchor=ANCHOR), listed(3)))
    for other in (Ok(b"other"), Missing()):
        with pytest.raises(ConflictError) as told:
            script(other).run(catch_up._prove(attempt(3, anchor=ANCHOR), listed(3)))
        assert told.value.kind is Kind.TABLE_REPLACED


def test_a_listing_without_the_version_that_was_seen_is_another_log() -> None:
    for anchor in (ANCHOR, None, replace(ANCHOR, version=2)):
        with pytest.raises(ConflictError):
            script().run(catch_up._prove(attempt(3, anchor=anchor), listed(4)))
    for anchor in (None, replace(ANCHOR, version=2)):
        with pytest.raises(ConflictError):
            script(Ok(listed(4))).run(catch_up.prove(attempt(3, anchor=anchor)))
    script(Ok(listed(3))).run(catch_up.prove(attempt(3)))
    script(Ok(listed(4))).run(
        catch_up.prove(attempt(3, accounted=4))
    )  # read from the middle on, for its key only


def test_an_anchor_of_which_nothing_was_read_needs_only_be_there() -> None:
    script(Ok(listed(3))).run(catch_up.prove(attempt(3, anchor=replace(ANCHOR, digest=""))))
    seen = replace(ANCHOR, digest="", listed=listed(3)[0])
    script(Ok(listed(3))).run(catch_up.prove(attempt(3, anchor=seen)))


# --- the read-back ------------------------------------------------------------------------------------
def test_the_ledger_is_told_with_the_read_back() -> None:
    records = tuple(LedgerRecord(key, 3, "1:0") for key in ("event", "other"))
    for answer in (Ok(), Unknown(), Busy()):
        state = attempt(3)
        state.records = records
        asked = script(Ok((Ok(BODY), answer, Ok())))
        asked.run(commit._verify(state, 4, BODY, None))
        (together,) = asked.asked
        assert isinstance(together, Together)
        assert together.effects[1:] == tuple(keys.committing(record, 4) for record in records)
        assert state.remembered == ({"event", "other"} if answer == Ok() else {"other"})


def test_what_the_ledger_raises_takes_no_ack_back() -> None:
    state = attempt(3)
    state.records = (LedgerRecord("event", 3, "1:0"),)
    steps = commit._verify(state, 4, BODY, None)
    next(steps)
    again = steps.throw(RuntimeError("the ledger"))
    assert isinstance(again, Together)
    assert [effect.name for effect in again.effects] == ["commit.verify"]
    with pytest.raises(StopIteration):
        steps.send(Ok((Ok(BODY),)))
    assert not state.remembered


# --- what came before ---------------------------------------------------------------------------------
def test_every_commit_since_is_examined_in_order_and_becomes_the_anchor() -> None:
    state = attempt(3)
    asked = script(Ok((Ok(b"4"), Unknown())), Ok(b"5"))
    assert asked.run(catch_up._examine_new(state, (), listed(3, 4, 5))) is None
    assert isinstance(state.candidate, Rows)
    assert state.candidate.examined == [(4, "4"), (5, "5")]
    assert (state.seen, state.anchor) == (5, Anchor(5, claim.commit_path(5), catch_up.digest_of(b"5")))


def test_a_commit_that_is_found_ends_the_reading() -> None:
    state = attempt(3, own=(4,))
    found = script(Ok((Ok(b"4"), Ok(b"5")))).run(catch_up._examine_new(state, (), listed(4, 5)))
    assert (found, state.seen) == (Found(4, own=False), 3)


def test_a_summary_serves_only_where_the_log_proves_that_it_is_the_commits() -> None:
    good = {"summary": "sum", "digest": "ab"}
    for change in ({}, {"summary": None}, {"digest": None}, {"digest": "cd"}, {"summary": "not enough"}):
        state = attempt(3)
        found = catch_up._summaries(state, (entry(4, **{**good, **change}),), listed(4, etag="ab"))
        assert found == ({4: ("sum", "ab")} if not change else {})
    state = attempt(3)
    script().run(catch_up._examine_new(state, (entry(4, **good),), listed(4, etag="ab")))
    assert isinstance(state.candidate, Rows)
    assert state.candidate.examined == [(4, "sum")]


def test_a_commit_that_is_gone_is_a_hole_or_hides_an_earlier_attempt() -> None:
    with pytest.raises(StorageError) as told:
        script(Ok((Missing(),)), Missing()).run(catch_up._examine_new(attempt(3), (), listed(4)))
    assert told.value.kind is Kind.CORRUPT_LOG
    with pytest.raises(CommitUnknownError, match="logRetentionDuration"):
        script(Ok((Missing(),)), Missing()).run(catch_up._examine_new(attempt(3, accounted=4), (), listed(4)))
    with pytest.raises(StorageError, match="forbidden"):
        script(Ok((Failed("x"),)), Failed("forbidden")).run(catch_up._examine_new(attempt(3), (), listed(4)))


def test_a_version_that_nobody_claimed_is_noticed() -> None:
    state = attempt(3)
    claimed = (entry(4), entry(5))
    assert not catch_up._some_unclaimed(state, claimed, listed(3, 4, 5))
    assert catch_up._some_unclaimed(state, claimed[:1], listed(3, 4, 5))
    assert catch_up._some_unclaimed(state, claimed[1:], listed(3, 4, 5))
    assert not catch_up._some_unclaimed(state, (), listed(3))


@pytest.mark.parametrize("left", [{"file_name": claim.file_name(5)}, {"table_id": "another"}])
def test_an_entry_that_another_table_left_is_told(left: dict[str, str]) -> None:
    with pytest.raises(UnsafeConfigError) as told:
        script().run(catch_up._repair(attempt(3, lock_table=True), entry(4, **left), listed(3)))
    assert told.value.kind is Kind.STALE_LOCK_ENTRIES


def test_an_entry_of_this_table_is_finished_whoever_made_it() -> None:
    for change, accounted in (({}, 3), ({"table_id": None}, 3), ({"table_id": "another"}, -1)):
        asked = script(Ok(b"4"), Ok(), Ok(), Ok(listed(3, 4)))
        state = attempt(3, lock_table=True, accounted=accounted)
        assert asked.run(catch_up._repair(state, entry(4, **change), listed(3))) == listed(3, 4)
        assert asked.names == ["repair.get_temp", "repair.put_commit", "repair.complete", "commit.list"]


def test_a_settled_entry_beyond_the_log_is_told_after_a_second_listing() -> None:
    settled = entry(4, complete=True)
    asked = script(Ok((Ok((settled,)), Ok(listed(3)))), Ok(listed(3)))
    with pytest.raises(UnsafeConfigError):
        asked.run(catch_up.catch_up(attempt(3, lock_table=True)))
    asked = script(Ok((Ok((settled,)), Ok(listed(3)))), Ok(listed(3, 4)), Ok((Ok(b"4"),)))
    state = attempt(3, lock_table=True)
    assert asked.run(catch_up.catch_up(state)) is None
    assert (state.seen, state.contended, state.mixed) == (4, False, False)


def test_an_open_entry_whose_commit_stands_is_closed() -> None:
    asked = script(Ok((Ok((entry(4),)), Ok(listed(3, 4)))), Ok(), Ok((Ok(b"4"),)))
    state = attempt(3, lock_table=True)
    assert asked.run(catch_up.catch_up(state)) is None
    assert asked.asked[1] == CompleteEntry(entry(4), claim.ENTRY_TTL_S, name="commit.complete")
    assert (state.seen, state.contended) == (4, True)


def test_entries_are_asked_for_again_and_the_listing_after_them() -> None:
    asked = script(
        Ok((Unknown(), Ok(listed(3)))), Ok((entry(4, complete=True),)), Ok(listed(3, 4)), Ok((Ok(b"4"),))
    )
    state = attempt(3, lock_table=True)
    asked.run(catch_up.catch_up(state))
    assert asked.names[:3] == ["commit.look", "commit.entries", "commit.list"]
    with pytest.raises(StorageError, match="forbidden"):
        script(Ok((Unknown(), Ok(()))), Failed("forbidden")).run(
            catch_up.catch_up(attempt(3, lock_table=True))
        )
    with pytest.raises(StorageError, match="forbidden"):
        script(Ok((Ok(()), Failed("x"))), Failed("forbidden")).run(
            catch_up.catch_up(attempt(3, lock_table=True))
        )


# --- after a lost try, without a lock table ---------------------------------------------------------------
def lost(*answers: object, seen: int = 3, **settings: object) -> tuple[object, Try, list[list[str]]]:
    """What a look after a lost try finds with these answers, and the paths that each reading asks for."""
    anchor = Anchor(seen, claim.commit_path(seen), catch_up.digest_of(b"anchor"))
    state, asked = attempt(seen, anchor=anchor, **settings), script(*answers)
    state.attempts = 1
    found = asked.run(catch_up.catch_up(state))
    return (
        found,
        state,
        [[one.path[-6:-5] for one in e.effects] for e in asked.asked if isinstance(e, Together)],
    )


def test_who_lost_reads_the_log_by_its_names_and_proves_it_in_the_same_trip() -> None:
    found, state, read = lost(Ok(1.0), Ok((Ok(b"anchor"), Ok(b"4"), Missing())))
    assert (found, state.seen, read) == (None, 4, [["3", "4", "5"]])
    assert state.anchor == Anchor(4, claim.commit_path(4), catch_up.digest_of(b"4"))
    assert state.looked_s == 1.0
    found, state, _ = lost(Ok(1.0), Ok((Ok(b"anchor"), Ok(b"4"), Ok(b"5"))), own=(4,))
    assert (found, state.seen) == (Found(4, own=False), 3)


def test_who_lost_in_a_log_that_was_replaced_goes_no_further() -> None:
    for there in (Ok(b"another"), Missing()):
        with pytest.raises(ConflictError, match="dropped, replaced or restored"):
            lost(Ok(1.0), Ok((there, Missing(), Missing())))
    with pytest.raises(StorageError, match="cut"):
        lost(Ok(1.0), Ok((Unknown(), Missing(), Missing())), Unknown(), Ok(), Failed("cut"))


def test_many_new_versions_are_read_on_until_few_come() -> None:
    first, second = Ok((Ok(b"anchor"), Ok(b"4"), Ok(b"5"))), Ok((Ok(b"6"), Ok(b"7"), Ok(b"8"), Missing()))
    found, state, read = lost(Ok(1.0), first, Ok(2.0), second, Ok(3.0), Ok((Missing(), Missing())))
    assert (found, state.seen, state.looked_s) == (None, 8, 3.0)
    assert read == [["3", "4", "5"], ["6", "7", "8", "9"], ["9", "0"]]


def test_a_version_that_came_between_two_reads_is_read_again_and_a_hole_is_an_error() -> None:
    first = Ok((Ok(b"anchor"), Missing(), Ok(b"5")))
    assert lost(Ok(1.0), first, Ok(2.0), Ok((Ok(b"4"), Ok(b"5"))), Ok(3.0), Ok((Missing(),) * 4))[1].seen == 5
    with pytest.raises(StorageError, match="hole"):
        lost(Ok(1.0), first, Ok(2.0), Ok((Missing(), Ok(b"5"))))


def test_as_many_versions_are_read_as_came_in_a_like_time() -> None:
    state = attempt(13)
    state.first, state.started_s, state.looked_s, state.apart_s = 3, 10.0, 12.0, 0.5
    assert catch_up._expected(state) == 2 + round(11 / 4)
    state.first = -10_000
    assert catch_up._expected(state) == catch_up.READ_MAX


# --- patience -----------------------------------------------------------------------------------------
def test_a_write_gives_up_after_its_attempts_or_its_time_and_not_before() -> None:
    state = attempt(3)
    state.attempts = 2
    commit.check_patience(state, 10.0)
    with pytest.raises(RetriesExhaustedError):
        commit.check_patience(state, 10.1)
    state.attempts = 3
    with pytest.raises(RetriesExhaustedError):
        commit.check_patience(state, 0.0)


def test_data_files_are_checked_once_in_a_while() -> None:
    state = attempt(3)
    for now_s in (0.0, 60.0, 60.5, 61.0):
        script().run(commit._recheck(state, now_s))
    assert isinstance(state.candidate, Rows)
    assert state.candidate.rechecks == 2


@pytest.mark.parametrize(
    ("tried", "version", "attempts", "ceiling_s"),
    [(-1, 4, 1, 2.0), (3, 4, 1, 2.0), (3, 9, 1, 6.0), (4, 4, 3, 4.0), (3, 99, 1, 9.0)],
)
def test_who_loses_waits_for_as_many_turns_as_there_are_rivals_and_not_past_its_time(
    tried: int, version: int, attempts: int, ceiling_s: float
) -> None:
    state = attempt(3)
    state.tried, state.attempts, state.looked_s = tried, attempts, 0.5
    assert commit._spread(state, version, 1.0) == Backoff(attempts, ceiling_s, name="commit.backoff")
    assert state.tried == version


# --- claims -------------------------------------------------------------------------------------------
def claimed(*answers: object) -> object:
    """How a claim of version 4 ends with these answers."""
    return script(*answers).run(claim.claim(entry(4), LIMITS, 0.0))  # type: ignore[arg-type]


def test_who_holds_a_version_is_read_after_any_answer_but_a_clear_one() -> None:
    assert claimed(Ok()) is claim.Claim.MINE
    for unclear in (Unknown(), Exists(), Busy()):
        assert claimed(unclear, Ok(entry(4))) is claim.Claim.MINE
        assert claimed(unclear, Ok(entry(4, temp_path="another"))) is claim.Claim.OTHERS
    assert claimed(Unknown(), Missing(), Ok(1.0), Ok(), Ok()) is claim.Claim.MINE


def test_a_claim_is_in_doubt_unless_every_answer_denied_it() -> None:
    with pytest.raises(StorageError, match="forbidden"):
        claimed(Failed("forbidden"))
    with pytest.raises(StorageError, match="slow down"):
        claimed(Busy(), Missing(), Ok(1.0), Ok(), Busy("slow down"), Missing())
    for unclear in (Unknown(), Exists()):
        with pytest.raises(CommitUnknownError) as told:
            claimed(unclear, Missing(), Ok(1.0), Ok(), Failed("forbidden"), Missing())
        assert told.value.version == 4
        with pytest.raises(CommitUnknownError):
            claimed(unclear, Missing(), Ok(10.5))  # its time is used up


def test_an_entry_outlives_two_days() -> None:
    assert claim.complete(entry(4)) == CompleteEntry(entry(4), 172_800, name="commit.complete")
    assert isinstance(script(Ok()).run(claim.claim(entry(4), LIMITS, 0.0)), claim.Claim)


def test_a_claim_is_put_with_the_entry_as_it_was_drawn() -> None:
    asked = script(Ok())
    asked.run(claim.claim(entry(4), LIMITS, 0.0))
    assert asked.asked == [PutEntryIfAbsent(entry(4), name="commit.put_entry")]
    asked = script(Ok("unique"))
    drawn = asked.run(claim.drafted(entry(4), BODY))
    assert drawn == entry(4, temp_path=f".tmp/{claim.file_name(4)}.unique", digest=DIGEST)


def test_a_repair_that_a_store_refuses_is_an_error() -> None:
    refused = Failed("forbidden")
    with pytest.raises(StorageError, match="forbidden"):
        script(refused).run(claim.write_temp(entry(4), BODY, LIMITS))
    for answers in ([refused], [Ok(b"4"), refused], [Missing(), refused]):
        with pytest.raises(StorageError, match="forbidden"):
            script(*answers).run(claim.finish(entry(4), LIMITS))


def test_a_repair_never_puts_over_a_commit_that_stands() -> None:
    asked = script(Ok(b"4"), Exists(), Ok())
    asked.run(claim.finish(entry(4), LIMITS))
    assert asked.asked[2] == CompleteEntry(entry(4), claim.ENTRY_TTL_S, name="repair.complete")
    asked = script(Missing(), Ok(b"4"), Ok())
    asked.run(claim.finish(entry(4), LIMITS))
    assert asked.asked[1] == Get(claim.commit_path(4), name="repair.get_commit")
