"""Applies a change of one key with safewrite's own code over a plain candidate, as the explorer's processes do."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from safewrite.delta.write.abc import Write
from safewrite.protocol.delta.commit import Arbiter, Found
from safewrite.protocol.effects import Effect, Outcome
from safewrite.testing.explorer.automaton import Program
from safewrite.testing.explorer.rows import RowCandidate, action_of, known, with_action, written

Change = tuple[int, bool]
"""Its sequence, and whether it deletes."""
State = tuple[int, bool]
"""What is known of the key: the sequence of its last change, and whether that deleted it."""
NOTHING: State = (-1, True)
ACTION = "changes"
"""The action of a commit file that tells both, which no reader of a log knows."""


def applied(state: State, change: Change) -> State:
    """What a change makes of a key: one that is late makes nothing of it."""
    return max(state, change, key=lambda one: one[0])


def refuses(state: State, change: Change) -> bool:
    """Whether a change is not what the key's last change of its sequence was: such a batch is refused."""
    return state[0] == change[0] and state[1] != change[1]


@dataclass(slots=True)
class Changing(RowCandidate):
    """A change of one key as a candidate; its commit file also holds the change, and what its plan made of the key."""

    is_light: bool = False
    ledger_seen: bool = True
    change: Change = NOTHING
    newest: State = NOTHING
    """The key in the last version that was examined."""
    planned: State = NOTHING
    """The key as the plan leaves it."""

    def _plan(self) -> Generator[Effect, Outcome, None]:
        self.planned = applied(self.newest, self.change)
        yield from ()

    def prepare(self) -> Generator[Effect, Outcome, None]:
        return self._plan()

    def renew(self) -> Generator[Effect, Outcome, None]:
        return self._plan()

    def body(self, version: int) -> bytes:
        said = {"changes": [self.change], "makes": self.planned}
        return with_action(RowCandidate.body(self, version), ACTION, said)

    def examine(self, version: int, body: bytes) -> Found | None:
        found = RowCandidate.examine(self, version, body)
        told = told_by(body)
        if found is None and told is not None:
            self.newest = told[1]
        return found


def told_by(body: bytes) -> tuple[tuple[Change, ...], State] | None:
    """The changes of a commit file and what its plan made of the key; None for other commits."""
    said = action_of(body, ACTION)
    if said is None:
        return None
    makes = said["makes"]
    return tuple((one[0], one[1]) for one in said["changes"]), (makes[0], makes[1])


def begun(attempt: str, *, again: bool) -> Generator[Effect, Outcome, tuple[int, str, State]]:
    """The version that a call knows, the table's id and the key there."""
    seen, table_id, body = yield from known(attempt, again=again)
    told = told_by(body)
    return seen, table_id, NOTHING if told is None else told[1]


def changing(
    key: str,
    change: Change,
    attempt: str,
    arbiter: Arbiter,
    *,
    again: bool,
    fresh: bool,
    queue_first: bool,
    kind: type[Changing] = Changing,
) -> Program:
    """One call of ``apply_changes``, as a candidate of this kind."""
    seen, table_id, newest = yield from begun(attempt, again=again)
    row = kind(Write(key, "1:0", 1), attempt, seen, table_id=table_id, change=change, newest=newest)
    return (yield from written(row, arbiter, queue_first=queue_first, fresh=fresh and not again))
