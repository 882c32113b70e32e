"""Lets writers of several processes share one commit.

A writer that would wait for its turn puts its *member* where others find it: what identifies the write, and the files that it
has uploaded.  Who has waited longest leads: it commits the members that wait together with its own write, in one version, with
the key of each in that version.  The commit under way is the time in which members gather; no writer waits for a timer.

The queue is a hint and the log is the truth, so every step may be lost, repeated, or done by two at once:

- A try at version N carries a member only if the leader has examined every commit after the member's *base* for its key, so no
  two leaders commit one member (D2); and only a few versions after its base, so that a member whose upload arrives
  late, or whose owner is long dead, cannot come in some day.
- A member's owner learns from the log alone what became of it (D3).  That its member is gone from the queue says nothing: it
  looks at the log, and goes on by itself if its key is not there (D4).
- A member that a leader will not carry, because the table has another schema by now or its batch does not come next, is taken out
  of the queue; its owner goes on alone and meets its own error (D6).
- An owner that gives up cannot take its member back from a leader that has read it.  So it ends in doubt, and the key decides (D5).
- Who leads when the first in the queue is dead is decided by the watcher's own monotonic time, and protects nothing (D1, D8).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Protocol

from safewrite.errors import (
    CommitUnknownError,
    ConflictError,
    NotCommittedError,
    ReplayMismatchError,
    SafewriteError,
    StorageError,
)
from safewrite.protocol import staging
from safewrite.protocol.ask import Limits, overdue, side_by_side
from safewrite.protocol.effects import (
    Delete,
    Effect,
    Failed,
    Get,
    List,
    NewId,
    Ok,
    Outcome,
    Put,
    Sleep,
    Together,
    WallClock,
)
from safewrite.protocol.member_queue import (
    CHANGES,
    MEMBERS_MAX,
    Offer,
    Share,
    Sharer,
    Steps,
    bounded,
    path_of,
    waiting,
    young,
)
from safewrite.protocol.members import Found
from safewrite.protocol.ticket_queue import now, seems_empty
from safewrite.text.rendering import said

MEMBER_BYTES_MAX = 2**20
"""A write whose member has more bytes goes alone."""
OFFERS_MAX = 3
"""A write whose member was taken out of the queue so often goes on alone."""
NAP_S_MIN, NAP_S_MAX = 0.03, 0.25


class SharedTry(Protocol):
    """One commit attempt of any format, as far as sharing asks of it."""

    started_s: float

    @property
    def limits(self) -> Limits: ...

    @property
    def ticket(self) -> int | None:
        """Our turn in the ticket queue, if we hold one."""

    @property
    def share(self) -> Share[Sharer] | None:
        """What it knows of the queue of members."""

    @property
    def seen(self) -> int:
        """The last version that was examined."""

    @property
    def has_turns(self) -> bool:
        """Whether there is a ticket queue, where writers wait that cannot be led."""

    def wait_ticket(self) -> Generator[Effect, Outcome, bool]:
        """Wait for a turn in the ticket queue, unless we hold one; True if we just got it."""

    def leave_tickets(self) -> Steps:
        """Give our turn back, if we hold one."""

    def catch_up(self) -> Generator[Effect, Outcome, Found | None]:
        """Examine every commit after ``seen``; returns the one that carries our write."""

    def poll(self) -> Generator[Effect, Outcome, tuple[bool, Found | None]]:
        """Look for the next version, once: whether it is there, and the commit that carries our write."""

    def read_known(self, versions: Sequence[int]) -> Steps:
        """Read which keys are in commits of before our first look, where that can be."""


# --- waiting ----------------------------------------------------------------------------------------
def wait_turn(state: SharedTry) -> Generator[Effect, Outcome, Found | bool]:
    """Wait until another writer has committed our write, or we are to lead; True if commits are to be looked for first."""
    share = _share(state)
    if leads(share):
        return (yield from _take_ticket(state))
    if share.path is None and not (yield from _offer(state, share)):
        yield from state.wait_ticket()
        return True
    yield from state.leave_tickets()
    began_s = yield from now()
    found = yield from _wait(state, share, began_s)
    share.waited_s += (yield from now()) - began_s
    if found is not None:
        return found
    if share.denied:
        yield from leave(share)
        yield from state.wait_ticket()
    elif share.leads:
        yield from _take_ticket(state)
    return True


def _take_ticket(state: SharedTry) -> Generator[Effect, Outcome, bool]:
    """Wait for a turn where others hold tickets: writers that cannot be led would starve, if who leads passed them by."""
    if not state.has_turns or state.ticket is not None:
        return False
    if _share(state).sharer.kind != CHANGES and (yield from seems_empty("share.tickets")):
        return False  # a plan of changes takes long, and is not to be made in vain while appends pass it by
    return (yield from state.wait_ticket())


def _offer(state: SharedTry, share: Share[Sharer]) -> Generator[Effect, Outcome, bool]:
    share.leads = False
    body = share.sharer.member(state.seen) if share.offers < OFFERS_MAX else None
    if body is None or len(body) > MEMBER_BYTES_MAX or not (yield from _usable(share)):
        return False
    drawn, clock = (yield NewId(name="share.id")), (yield WallClock(name="share.clock"))
    assert isinstance(drawn, Ok)
    assert isinstance(clock, Ok)
    assert isinstance(clock.value, int)
    if (yield from overdue(state.limits, state.started_s)):
        return False  # a member would only put the write in doubt
    through = state.seen + share.terms.shares
    sharer, unique = share.sharer, str(drawn.value)
    path = path_of(
        share.folder,
        state.seen,
        through,
        clock_ms=clock.value,
        key=sharer.key,
        unique=unique,
        kind=sharer.kind,
    )
    share.offers += 1
    share.through = through  # from here on it may be there, whatever the answer is, and a leader may carry it
    outcome = yield Put(path, body, name="share.put_member")
    if isinstance(outcome, Failed):
        share.denied = True
        return False
    share.path, share.body = path, body
    return True


def _usable(share: Share[Sharer]) -> Generator[Effect, Outcome, bool]:
    """Ask, where it is not known, whether members can be seen and taken out: one that stays would be waited for by all."""
    if share.denied or share.asked or share.terms.queue_known:
        return not share.denied
    both = yield Together(
        (List(share.folder, limit=1, name="share.ask"), Delete(f"{share.folder}none", name="share.ask"))
    )
    assert isinstance(both, Ok)
    assert isinstance(both.value, tuple)
    share.denied = any(isinstance(answer, Failed) for answer in both.value)
    share.asked = all(isinstance(answer, Ok) for answer in both.value)
    return share.asked


def _wait(state: SharedTry, share: Share[Sharer], began_s: float) -> Generator[Effect, Outcome, Found | None]:
    """Look who is first, then whether the next version is there: reading one costs a twelfth of a listing.

    Who is first is looked at again after a version that does not say who leads next, and where patience has run out.
    """
    first, moved_s, nap_s, look, patience_s = "", began_s, NAP_S_MIN, True, 0.0
    woke_s, slept_s, slowest_s = began_s, 0.0, 0.0
    while True:
        now_s = yield from now()
        slowest_s, woke_s = max(slowest_s, now_s - woke_s - slept_s), now_s
        if look or now_s - moved_s > patience_s:
            listed = yield List(share.folder, limit=share.terms.names_max, name="share.look")
            ahead = _ahead(share, listed, state.seen)
            if ahead is None:
                return None
            patience_s = share.patience_s(state.limits.lease_s, slowest_s)
            if ahead != first:
                first, moved_s = ahead, now_s
            elif now_s - moved_s > patience_s:
                share.leads = True  # the first may be dead; if it lives, two lead, and one of us loses a try
                yield Sleep(0.0, name="share.pass_over")  # for who watches
                if share.waits_for_changes:  # once more: its time shows those behind us who leads
                    yield Put(str(share.path), share.body, name="share.show")
                return None
        if now_s - state.started_s > state.limits.timeout_s or now_s > state.limits.until_s:
            return None
        yield Sleep(nap_s, name="share.wait")
        slept_s = nap_s
        nap_s = min(NAP_S_MAX, max(nap_s * 1.4, slowest_s))
        look, found = yield from state.poll()
        if look:
            if found is not None:
                return found
            if state.seen >= share.through:
                yield from leave(share)  # no leader takes it any more
                return None
            ahead = share.leads_after(state.seen)
            share.leads = ahead == share.path
            if share.leads:
                return None
            if ahead is not None:
                look, patience_s = False, share.patience_s(state.limits.lease_s, slowest_s)
                first, moved_s = ahead, moved_s if ahead == first else now_s


def _ahead(share: Share[Sharer], listed: Outcome, seen: int) -> str | None:
    """The member that is to lead, if it is not ours; None where we go on.

    Where as many wait as were asked for, more may, and ours be among those: it does not lead then.
    """
    share.denied |= isinstance(listed, Failed)
    share.look(waiting(listed) if isinstance(listed, Ok) else ())
    count = len(listed.value) if isinstance(listed, Ok) and isinstance(listed.value, tuple) else 0
    share.listed = isinstance(listed, Ok) and count < share.terms.names_max
    if not share.listed and not share.there:
        share.leads = True  # whoever cannot see the others need not wait for them
        return None
    if share.listed and all(one.path != share.path for one in share.there):
        share.path = None
        return None
    share.there = tuple(share.left(seen)) or share.there
    ahead = share.ahead()
    share.leads = not ahead
    return ahead[0].path if ahead else None


def leads(share: Share[Sharer] | None) -> bool:
    """Whether we are to commit what waits."""
    return share is not None and share.leads and share.path is not None


# --- leading ------------------------------------------------------------------------------------------
def examine(state: SharedTry) -> Generator[Effect, Outcome, Found | None]:
    """Examine the commits that came, and read the members that wait if we lead."""
    share = state.share
    if share is not None and leads(share):
        found, _ = yield from side_by_side(state.catch_up(), _look(share, state))
    else:
        found = yield from state.catch_up()
    assert found is None or isinstance(found, Found)
    if found is not None:
        yield from leave(share)
    return found


def _look(share: Share[Sharer], state: SharedTry) -> Steps:
    share.looked_s = yield from now()
    if not share.listed:
        outcome = yield List(share.folder, limit=MEMBERS_MAX, name="share.list")
        share.there = tuple(waiting(outcome)) if isinstance(outcome, Ok) else ()
    share.listed = False  # what was listed a moment ago serves once
    kind, there = share.sharer.kind, young(share.there, share.path)
    fit = [one for one in there if one.path != share.path and state.seen < one.through and one.kind == kind]
    new = [one for one in bounded(fit) if one.path not in share.bodies]
    if new:
        gets = tuple(Get(one.path, name="share.get_member") for one in new)
        both = yield Together(gets, name="share.read")
        assert isinstance(both, Ok)
        answers = both.value
        assert isinstance(answers, tuple)
        share.denied |= any(isinstance(answer, Failed) for answer in answers)
        read = {
            one.path: answer.value for one, answer in zip(new, answers, strict=True) if isinstance(answer, Ok)
        }
        share.bodies |= {path: body for path, body in read.items() if isinstance(body, bytes)}


def gather(state: SharedTry) -> Steps:
    """Take the members that were read into our candidate for the version after ``state.seen``."""
    share = state.share
    if share is None or not (share.leads or share.carried):
        return
    late = (yield from now()) - share.looked_s > state.limits.recheck_s  # their files may be gone by now
    others = [
        Offer(one.path, one.base, share.bodies[one.path])
        for one in share.there
        if share.leads and not late and one.path in share.bodies and one.base <= state.seen < one.through
    ]
    offered = (yield from _known(state, share, others)) if others else []
    refused = yield from _carry(share, offered)
    share.refused = refused | {one.path for one in share.there if one.through <= state.seen}
    if (put := share.sharer.member_file) is not None:
        try:
            yield from staging.upload([put], state.limits)
        except StorageError:
            share.denied = True
            yield from _carry(share, ())


def _carry(share: Share[Sharer], offered: Sequence[Offer]) -> Generator[Effect, Outcome, frozenset[str]]:
    drawn = yield NewId(name="share.commit_id")
    assert isinstance(drawn, Ok)
    share.carried, refused = share.sharer.carry(offered, str(drawn.value))
    return refused


def _known(
    state: SharedTry, share: Share[Sharer], others: Sequence[Offer]
) -> Generator[Effect, Outcome, list[Offer]]:
    """The members for which every commit since their base is known, read now where it was not."""
    since = min(one.base for one in others)
    unknown = [version for version in range(since + 1, state.seen + 1) if version not in share.sharer.known]
    if not unknown:
        return list(others)
    yield from state.read_known(unknown)
    # What began before a commit that is unknown still cannot be judged.
    since = max((version for version in unknown if version not in share.sharer.known), default=since)
    return [one for one in others if one.base >= since]


# --- the end ------------------------------------------------------------------------------------------
def closing(share: Share[Sharer] | None) -> tuple[Effect, ...]:
    """What takes the members of a commit that stands out of the queue, and those that no one may commit any more (D4)."""
    if share is None:
        return ()
    if share.path is None and share.terms.listens:
        return (List(share.folder, limit=1, name="share.listen"),)
    own = () if share.path is None else (share.path,)
    share.path = None
    return tuple(Delete(path, name="share.delete") for path in (*own, *share.carried, *sorted(share.refused)))


def closed(share: Share[Sharer] | None, answers: Mapping[Effect, Outcome]) -> None:
    """Note whether members could be taken out, and whether others wait."""
    for effect, answer in answers.items():
        if share is not None and isinstance(effect, Delete | List):
            share.denied |= isinstance(answer, Failed)
            share.met |= isinstance(answer, Ok) and bool(answer.value)


def leave(share: Share[Sharer] | None) -> Steps:
    """Take our member out of the queue, where it is in the log or is not to be committed by others."""
    if share is not None and share.path is not None:
        outcome = yield Delete(share.path, name="share.leave")
        share.denied = share.denied or isinstance(outcome, Failed)
        share.path = None


def in_doubt(
    share: Share[Sharer] | None, seen: int, error: Exception, *, is_barred: bool = True
) -> Exception:
    """The error that a write ends with, which a leader may still commit unless the log itself tells the error.

    A key that is there with other rows was met in the log, where every leader meets it too; so was a conflict that bars every leader.
    """
    if share is None or seen >= share.through or isinstance(error, ReplayMismatchError):
        return error
    if is_barred and isinstance(error, ConflictError):
        return error
    if isinstance(error, SafewriteError) and not isinstance(error, NotCommittedError | CommitUnknownError):
        return error
    why = said(error).partition(". ")[0]
    doctor = " Run `safewrite doctor` on the table." if "safewrite doctor" in said(error) else ""
    return CommitUnknownError(
        f"{why}. The write had waited where other writers take waiting writes into their own commits, so one of them may "
        f"still commit it, up to {share.unit} {share.through}. Call again with the same key to decide at once; resolve(key) decides "
        f"once the table has reached {share.unit} {share.through}.{doctor}",
        version=share.through,
    )


def _share(state: SharedTry) -> Share[Sharer]:
    share = state.share
    assert share is not None
    return share
