"""Writes one row with safewrite's own code over a plain candidate, as the explorer's processes do."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from safewrite.delta.write.abc import Write
from safewrite.delta.write.file_changes import NOTHING as NO_CHANGE
from safewrite.delta.write.file_changes import DeltaChange
from safewrite.delta.write.recalled import DeltaDone
from safewrite.delta.write.write import write as write_once
from safewrite.errors import ConflictError, Kind, StorageError
from safewrite.protocol.ask import Limits, ask
from safewrite.protocol.delta import claim as claims
from safewrite.protocol.delta.candidate import Anchor
from safewrite.protocol.delta.catch_up import digest_of
from safewrite.protocol.delta.commit import Arbiter, Found, version_of
from safewrite.protocol.delta.place import place
from safewrite.protocol.effects import Effect, Get, List, Ok, Outcome
from safewrite.testing.explorer.automaton import Program

FIRST = b'{"commitInfo":{}}\n'
"""The body of version 0 in the models that start with a table."""
LIMITS = Limits(attempts=3, asks=2, timeout_s=1e9, lease_s=3.0, recheck_s=1e9)


@dataclass(slots=True)
class RowCandidate:
    """A write of one row as a candidate; its commit file holds its key and its attempt, no more."""

    write: Write
    attempt: str
    accounted: int
    rebases: bool = False
    rebased: int = 0
    creating: bool = False
    is_light: bool = True
    looks_first: bool = False
    ledger_seen: bool = True
    files: tuple[()] = ()
    state: None = None
    table_id: str | None = None
    timestamp_ms: int = 0
    anchor: Anchor | None = None
    found: dict[str, object] | None = None
    planned_change: DeltaChange = NO_CHANGE

    @property
    def sharer(self) -> Any:
        return None

    def unused(self) -> list[str]:
        return []

    def prepare(self) -> Generator[Effect, Outcome, None]:
        yield from ()

    def body(self, version: int) -> bytes:
        return body_of(self.write.key, self.attempt)

    def examine(self, version: int, body: bytes) -> Found | None:
        key, attempt = parse(body)
        if self.write.key in key.split("+"):
            self.found = {"fingerprint": self.write.fingerprint, "rows": 1}
            return Found(version, own=attempt == self.attempt)
        if self.creating and version > self.accounted:
            raise ConflictError("Created by another.", kind=Kind.SCHEMA_CHANGED)
        return None

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


def body_of(key: str, attempt: str) -> bytes:
    """The commit file of an attempt at a write, or at writes whose keys are joined by ``+``, as far as safewrite reads one."""
    return entries_of([(one, "") for one in key.split("+")], attempt)


def with_action(body: bytes, action: str, said: object) -> bytes:
    """A commit file with one action more, which no reader of a log knows."""
    return body + json.dumps({action: said}).encode() + b"\n"


def action_of(body: bytes, action: str) -> Any:
    """What :func:`with_action` put into a commit file; None of other commits."""
    lines = body.splitlines()
    return json.loads(lines[1]).get(action) if len(lines) > 1 else None


def entries_of(writes: Sequence[tuple[str, str]], attempt: str) -> bytes:
    """As :func:`body_of`, for keys and the attempts that offered them to others."""
    entries = [
        {"key": key, "fingerprint": "1:0", "rows": 1, "files": 0, **({"offer": offer} if offer else {})}
        for key, offer in writes
    ]
    ours = {"commitId": attempt, "writes": entries}
    return (json.dumps({"commitInfo": {"safewrite": ours}}) + "\n").encode()


@cache
def parse(body: bytes) -> tuple[str, str]:
    """Keys and attempts of a commit file, by its first line; ("", "") for a file that :func:`body_of` did not make.

    The attempts are those of the commit and of its writes that were offered to others.
    """
    try:
        ours = json.loads(body.split(b"\n", 1)[0])["commitInfo"]["safewrite"]
    except (ValueError, KeyError):
        return "", ""
    offers = [write["offer"] for write in ours["writes"] if "offer" in write]
    return "+".join(write["key"] for write in ours["writes"]), "+".join([ours["commitId"], *offers])


def written(
    row: Any, arbiter: Arbiter, *, limits: Limits = LIMITS, queue_first: bool = False, fresh: bool = False
) -> Program:
    """Write a candidate once; the version that it has."""
    done: DeltaDone = yield from write_once(
        row, tuple, arbiter=arbiter, limits=limits, queue_first=queue_first, fresh=fresh
    )
    return done.version


def safewrite(
    key: str,
    attempt: str,
    arbiter: Arbiter,
    *,
    exists: bool,
    again: bool,
    fresh: bool = False,
    queue_first: bool = False,
    light: bool = True,
) -> Program:
    """One call of ``append``: open (a first call has opened long ago, at version 0), then write.

    A call that finds that another created the table checks its rows again and goes on, as a table does.
    """
    seen, table_id = (0, "table") if exists else (-1, attempt)
    if again:
        seen, table_id = yield from opened(attempt)
    while True:
        # A lock table's entries prove its log as well, which the models of it leave to them.
        row = RowCandidate(
            Write(key, "1:0", 1),
            attempt,
            seen,
            creating=seen < 0,
            is_light=light,
            table_id=table_id,
            anchor=None if arbiter.lock_table else anchored(seen, table_id),
        )
        try:
            return (yield from written(row, arbiter, queue_first=queue_first, fresh=fresh and not again))
        except ConflictError:
            seen, table_id = yield from opened(attempt)


def engine(key: str, attempt: str, arbiter: Arbiter, *, again: bool, fresh: bool) -> Program:
    """A write of another engine, such as Spark: it reads what is new and asks for the next version, until it has one.

    It does not recognise its own commit when it meets it.  Started again it looks for it and goes on with the
    same bytes, as a caller in doubt does.
    """
    body, seen, ticket = body_of(key, attempt), -1, None
    while True:
        newest = yield from head()
        for version in range(seen + 1, newest + 1):
            there = yield from ask(Get(claims.commit_path(version), name="engine.read"), LIMITS)
            if not isinstance(there, Ok):
                raise StorageError("A commit could not be read.")
            if again and there.value == body:
                return version
        seen = newest
        placed = yield from place(
            body, seen + 1, "table", arbiter=arbiter, limits=LIMITS, ticket=ticket, fresh=fresh
        )
        if placed.landed:
            return seen + 1
        ticket = placed.ticket


def opened(attempt: str) -> Generator[Effect, Outcome, tuple[int, str]]:
    """The newest version and the table's id, which is the attempt that created it; ours if none has."""
    seen = yield from head()
    if seen < 0:
        return seen, attempt
    first = yield from ask(Get(claims.commit_path(0), name="open.get_first"), LIMITS)
    if not isinstance(first, Ok):
        raise StorageError("The first version could not be read.")
    assert isinstance(first.value, bytes)
    return seen, parse(first.value)[1] or "table"


def known(attempt: str, *, again: bool) -> Generator[Effect, Outcome, tuple[int, str, bytes]]:
    """As :func:`opened`, of a table that is there, with its newest commit file; a first call has opened it long ago, at version 0."""
    if not again:
        return 0, "table", FIRST
    seen, table_id = yield from opened(attempt)
    there = yield from ask(Get(claims.commit_path(seen), name="open.get_newest"), LIMITS)
    if not isinstance(there, Ok):
        raise StorageError("The newest version could not be read.")
    assert isinstance(there.value, bytes)
    return seen, table_id, there.value


def anchored(seen: int, table_id: str) -> Anchor | None:
    """What proves the log of the models' table to a write that is made on its first version."""
    is_first = seen == 0 and table_id == "table"
    return Anchor(0, claims.commit_path(0), digest_of(FIRST)) if is_first else None


def head() -> Generator[Effect, Outcome, int]:
    """The newest version in the log; -1 if there is none."""
    effect = List(claims.LOG, start_after=claims.LOG + "/", name="open.list")
    listed = yield from ask(effect, LIMITS)
    if not isinstance(listed, Ok):
        raise StorageError("The log could not be listed.")
    assert isinstance(listed.value, tuple)
    return max((v for item in listed.value if (v := version_of(item.path)) is not None), default=-1)
