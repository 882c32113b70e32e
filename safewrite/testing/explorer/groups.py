"""Writes several rows as one group with safewrite's own code, as the explorer's processes do."""

from __future__ import annotations

from collections.abc import Container, Generator
from dataclasses import dataclass, field

from safewrite.delta.write.group_commit import write_many
from safewrite.delta.write.transaction import Write
from safewrite.errors import ConflictError, InternalError, Kind, SafewriteError
from safewrite.protocol import members
from safewrite.protocol.delta.commit import Arbiter, Found
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.members import MembersMetError, Met
from safewrite.testing.explorer.automaton import Program
from safewrite.testing.explorer.rows import LIMITS, body_of, opened, parse


@dataclass(slots=True)
class GroupCandidate:
    """A group of writes of one row each; its commit file holds their keys and its attempt, no more."""

    write: Write
    attempt: str
    accounted: int
    table_id: str
    creating: bool = False
    is_light: bool = True
    reached: int = -1
    files: tuple[()] = ()
    member_file: None = None
    timestamp_ms: int = 0
    anchor: None = None
    met: dict[str, Met | SafewriteError] = field(default_factory=dict)

    def prepare(self) -> Generator[Effect, Outcome, None]:
        yield from ()

    def body(self, version: int) -> bytes:
        if self.met:
            raise MembersMetError("Met.")
        return body_of("+".join(one.key for one in self.write.members), self.attempt)

    def examine(self, version: int, body: bytes) -> Found | None:
        key, attempt = parse(body)
        self.reached = max(version, self.reached)
        if attempt == self.attempt:
            return Found(version, own=True)
        carried = key.split("+")
        for one in self.write.members:
            if one.key in carried:
                entry = {"fingerprint": one.fingerprint, "rows": 1, "files": 0}
                self.met[one.key] = members.met(one, version, entry)
        if self.creating and version > self.accounted:
            raise ConflictError("Created by another.", kind=Kind.SCHEMA_CHANGED)
        return None

    def regrouped(self, files: int) -> Write:
        return Write.group(self.write.key, self.write.members, files)

    def summary(self, version: int) -> str | None:
        return None if self.creating else self.body(version).decode()

    def suffices(self, summary: str) -> bool:
        return True

    def examine_summary(self, version: int, summary: str, digest: str) -> Found | None:
        return self.examine(version, summary.encode())

    def renew(self) -> Generator[Effect, Outcome, None]:
        yield from ()

    def recheck(self) -> Generator[Effect, Outcome, None]:
        yield from ()

    def landed(self, version: int) -> None:
        return None

    def without(self, known: Container[str], commit_id: str) -> None:
        left = [one for one in self.write.members if one.key not in known]
        self.write = Write.group(self.write.key, left)
        self.attempt = f"{self.attempt}'"
        self.met.clear()


def group(
    key: str, attempt: str, arbiter: Arbiter, *, exists: bool, again: bool, fresh: bool, light: bool = True
) -> Program:
    """One call of ``append_many`` for the keys that ``key`` joins by ``+``; returns each key with its version."""
    seen, table_id = (0, "table") if exists else (-1, attempt)
    if again:
        seen, table_id = yield from opened(attempt)
    while True:
        writes = [Write(one, "1:0", 1) for one in key.split("+")]
        rows = GroupCandidate(
            Write.group("group", writes),
            attempt,
            seen,
            table_id,
            creating=seen < 0,
            is_light=light,
            reached=seen,
        )
        try:
            done = yield from write_many(
                rows,  # type: ignore[arg-type]
                lambda _: (),
                arbiter=arbiter,
                limits=LIMITS,
                fresh=fresh and not again,
            )
        except ConflictError:
            seen, table_id = yield from opened(attempt)
            continue
        found = {one.key: done.done.version for one in done.writes if done.done is not None}
        for name, answer in done.known.items():
            if isinstance(answer, SafewriteError):
                raise InternalError(str(answer))
            found[name] = answer.version
        return tuple(sorted(found.items()))
