"""Applies changes of one key as writers that share commits, by safewrite's own code, as the explorer's processes do."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from safewrite.changes.members.joined_changes import Planned, plan_with_others
from safewrite.delta.write.abc import Write
from safewrite.delta.write.members import own_info
from safewrite.delta.write.recalled import DeltaDone
from safewrite.delta.write.waiting import WITHDRAWN, fitting
from safewrite.delta.write.withdrawal import taken_back
from safewrite.delta.write.write import write
from safewrite.errors import InternalError, InvalidInputError, SafewriteError, StorageError
from safewrite.protocol.ask import Limits, ask
from safewrite.protocol.delta import claim as claims
from safewrite.protocol.delta.commit import Arbiter, Found
from safewrite.protocol.effects import Effect, Get, Ok, Outcome
from safewrite.protocol.member_queue import CHANGES, Offer
from safewrite.protocol.members import MemberWrite
from safewrite.table.withdrawal import or_withdrawn
from safewrite.testing.explorer.automaton import Program
from safewrite.testing.explorer.changes import ACTION, NOTHING, Change, State, applied, refuses, told_by
from safewrite.testing.explorer.rows import LIMITS, anchored, opened, with_action
from safewrite.testing.explorer.sharing import SharedRow

UNEQUAL = "The batch has unequal changes with one sequence. Nothing was written."


@cache
def _withdrawn(body: bytes) -> tuple[str, ...]:
    return tuple(own_info(body, 0).get(WITHDRAWN, ()))


@dataclass(frozen=True, slots=True)
class Joining:
    """A change of another writer."""

    path: str
    write: MemberWrite
    change: Change


@dataclass(slots=True)
class SharedChange(SharedRow):
    """A change that other writers may apply, and that applies theirs after its own.

    Its commit file holds the changes of all, in their order, what its plan made of the key, and for each write which change is its own.
    Which members it takes, which it leaves out, and how it takes back what is refused is the product's own code.
    """

    is_light: bool = False
    ledger_seen: bool = True
    kind: str = CHANGES
    change: Change = NOTHING
    others: tuple[Joining, ...] = ()
    newest: State = NOTHING
    """The key in the last version that was examined."""
    planned: State = NOTHING
    """The key as the plan leaves it."""
    stale: bool = True
    """Whether it is to be planned again: a plan serves until others commit, or other members come."""
    withdrawn: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """The keys that commits withdraw."""
    engine_version: str = ""
    limits: Limits = LIMITS

    def prepare(self) -> Generator[Effect, Outcome, None]:
        yield from ()

    def renew(self) -> Generator[Effect, Outcome, None]:
        if self.stale:
            yield from plan_with_others(self, self.plan_once)

    def plan_once(self) -> Planned:
        self.planned, self.stale = self.newest, False
        faults = dict[str, SafewriteError]()
        for key, change in self.changes_by_key().items():
            if refuses(self.planned, change):
                faults[key] = InvalidInputError(UNEQUAL)
            else:
                self.planned = applied(self.planned, change)
        if faults and not self.others:
            raise faults[self.write.key]
        yield from ()
        return faults

    def changes_by_key(self) -> dict[str, Change]:
        """Our change and those that joined, by the keys of their writes."""
        return {self.write.key: self.change} | {one.write.key: one.change for one in self.others}

    def member(self, base: int) -> bytes | None:
        body = SharedRow.member(self, base)
        return None if body is None else json.dumps(json.loads(body) | {ACTION: self.change}).encode()

    def note(self, version: int, body: bytes) -> None:
        SharedRow.note(self, version, body)
        if found := _withdrawn(body):
            self.withdrawn[version] = found

    def carry(self, offered: Sequence[Offer], commit_id: str) -> tuple[tuple[str, ...], frozenset[str]]:
        known = {
            version: {"writes": [{"key": key} for key in keys], WITHDRAWN: self.withdrawn.get(version, ())}
            for version, keys in self.known.items()
        }
        left = [offer for offer in offered if offer.path not in self.left_out]
        taken, refused = fitting(self.write, left, _read, version=self.reached, txns={}, known=known)
        if taken or self.others:
            self.attempt = commit_id
        self.join(taken)
        return tuple(one.path for one in taken), refused

    def join(self, taken: Sequence[Joining]) -> bool:
        is_other = tuple(taken) != self.others
        self.stale |= is_other
        self.others = tuple(taken)
        self.carried = tuple((one.write.key, one.write.offer) for one in taken)
        return is_other

    def suffices(self, summary: str) -> bool:
        return False

    def summary(self, version: int) -> None:
        return None  # others must read it

    def body(self, version: int) -> bytes:
        each = self.changes_by_key()
        info = json.loads(SharedRow.body(self, version))
        for entry in info["commitInfo"]["safewrite"]["writes"]:
            entry["changes"] = {"sequence": each[entry["key"]][0]}
        said = {"changes": [*each.values()], "makes": self.planned}
        return with_action(f"{json.dumps(info)}\n".encode(), ACTION, said)

    def examine(self, version: int, body: bytes) -> Found | None:
        found, said = SharedRow.examine(self, version, body), told_by(body)
        if found is None and said is not None:
            self.newest, self.stale = said[1], True
        if found is not None and self.found is not None:
            writes = json.loads(body.splitlines()[0])["commitInfo"]["safewrite"]["writes"]
            self.found |= next({"changes": one["changes"]} for one in writes if one["key"] == self.write.key)
        return found


def _read(offer: Offer) -> Joining:
    said = json.loads(offer.body)
    return Joining(
        offer.path, Write(said["key"], "1:0", 1, offer=said["offer"]), (said[ACTION][0], said[ACTION][1])
    )


def _left_by(version: int) -> Generator[Effect, Outcome, State]:
    """The key as a version leaves it: what the last change up to it made of it."""
    for at in range(version, 0, -1):
        there = yield from ask(Get(claims.commit_path(at), name="open.get_newest"), LIMITS)
        if not isinstance(there, Ok):
            raise StorageError("A version could not be read.")
        assert isinstance(there.value, bytes)
        if (said := told_by(there.value)) is not None:
            return said[1]
    return NOTHING


def sharing_changes(
    key: str, change: Change, attempt: str, arbiter: Arbiter, *, again: bool, fresh: bool, queue_first: bool
) -> Program:
    """One call of ``apply_changes``; a first call has opened the table long ago, at version 0.

    Raises:
        InvalidInputError: the change is refused, and no one can apply it any more.
        InternalError: the counts of another member were answered, or a member was counted that the plan had left out.
    """
    seen, table_id, newest = 0, "table", NOTHING
    if again:
        seen, table_id = yield from opened(attempt)
        newest = yield from _left_by(seen)
    row = SharedChange(
        Write(key, "1:0", 1, changes={"sequence": change[0]}),
        attempt,
        seen,
        table_id=table_id,
        anchor=anchored(seen, table_id),
        reached=seen,
        change=change,
        newest=newest,
    )
    plan: Any = row
    how: dict[str, Any] = {"arbiter": arbiter, "limits": LIMITS}
    steps = write(plan, tuple, queue_first=queue_first, fresh=fresh and not again, **how)
    done: DeltaDone = yield from or_withdrawn(steps, plan, lambda: taken_back(plan, **how))
    if done.led_by_us and not done.already and done.members != 1 + len(row.others):
        raise InternalError(f"{key} was committed with {len(row.others)} others, and tells {done.members}.")
    if done.changes is None or done.changes["sequence"] != change[0]:
        raise InternalError(f"{key} was answered with {done.changes}.")
    return done.version
