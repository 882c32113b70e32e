"""Applies changes of one key as writers that share commits, by safewrite's own code, as the explorer's processes do."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from safewrite.delta.write.recalled import DeltaDone
from safewrite.delta.write.transaction import Write
from safewrite.delta.write.write import write as write_once
from safewrite.errors import InternalError, StorageError
from safewrite.protocol.ask import ask
from safewrite.protocol.delta import claim as claims
from safewrite.protocol.delta.commit import Arbiter, Found
from safewrite.protocol.effects import Effect, Get, Ok, Outcome
from safewrite.protocol.member_queue import CHANGES, Offer
from safewrite.testing.explorer.automaton import Program
from safewrite.testing.explorer.changes import ACTION, NOTHING, Change, State, applied, told_by
from safewrite.testing.explorer.rows import LIMITS, anchored, opened
from safewrite.testing.explorer.sharing import SharedRow


@dataclass(slots=True)
class SharedChange(SharedRow):
    """A change that other writers may apply, and that applies theirs after its own.

    Its commit file holds the changes of all, in their order, what its plan made of the key, and for each write which change is its own.
    """

    is_light: bool = False
    kind: str = CHANGES
    change: Change = NOTHING
    joined: tuple[tuple[str, str, Change], ...] = ()
    newest: State = NOTHING
    """The key in the last version that was examined."""
    planned: State = NOTHING
    """The key as the plan leaves it."""
    stale: bool = True
    """Whether it is to be planned again: a plan serves until others commit, or other members come."""

    def prepare(self) -> Generator[Effect, Outcome, None]:
        yield from ()

    def renew(self) -> Generator[Effect, Outcome, None]:
        if self.stale:
            self.stale, self.planned = False, self.newest
            for change in (self.change, *(change for _, _, change in self.joined)):
                self.planned = applied(self.planned, change)
        yield from ()

    def member(self, base: int) -> bytes | None:
        body = SharedRow.member(self, base)
        return None if body is None else json.dumps(json.loads(body) | {ACTION: self.change}).encode()

    def carry(self, offered: Sequence[Offer], commit_id: str) -> tuple[tuple[str, ...], frozenset[str]]:
        paths, refused = SharedRow.carry(self, offered, commit_id)
        bodies = [json.loads(one.body) for path in paths for one in offered if one.path == path]
        joined = tuple((one["key"], one["offer"], (one[ACTION][0], one[ACTION][1])) for one in bodies)
        self.stale |= joined != self.joined
        self.joined = joined
        return paths, refused

    def body(self, version: int) -> bytes:
        each = {self.write.key: self.change} | {key: change for key, _, change in self.joined}
        info = json.loads(SharedRow.body(self, version))
        for entry in info["commitInfo"]["safewrite"]["writes"]:
            entry["changes"] = {"sequence": each[entry["key"]][0]}
        said = {ACTION: {"changes": [*each.values()], "makes": self.planned}}
        return "".join(f"{json.dumps(line)}\n" for line in (info, said)).encode()

    def examine(self, version: int, body: bytes) -> Found | None:
        found, said = SharedRow.examine(self, version, body), told_by(body)
        if found is None and said is not None:
            self.newest, self.stale = said[1], True
        if found is not None and self.found is not None:
            writes = json.loads(body.splitlines()[0])["commitInfo"]["safewrite"]["writes"]
            self.found |= next({"changes": one["changes"]} for one in writes if one["key"] == self.write.key)
        return found


def sharing_changes(
    key: str, change: Change, attempt: str, arbiter: Arbiter, *, again: bool, fresh: bool, queue_first: bool
) -> Program:
    """One call of ``apply_changes``; a first call has opened the table long ago, at version 0.

    Raises:
        InternalError: the counts of another member were answered.
    """
    seen, table_id, newest = 0, "table", NOTHING
    if again:
        seen, table_id = yield from opened(attempt)
        there = yield from ask(Get(claims.commit_path(seen), name="open.get_newest"), LIMITS)
        if not isinstance(there, Ok):
            raise StorageError("The newest version could not be read.")
        assert isinstance(there.value, bytes)
        said = told_by(there.value)
        newest = NOTHING if said is None else said[1]
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
    done: DeltaDone = yield from write_once(
        row,  # type: ignore[arg-type]
        tuple,
        arbiter=arbiter,
        limits=LIMITS,
        queue_first=queue_first,
        fresh=fresh and not again,
    )
    if done.changes is None or done.changes["sequence"] != change[0]:
        raise InternalError(f"{key} was answered with {done.changes}.")
    return done.version
