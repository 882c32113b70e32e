"""Writes of one row, as the explorer's processes make them: safewrite's own code over a plain candidate."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

from safewrite.delta.write import Done
from safewrite.delta.write import write as write_once
from safewrite.errors import ConflictError, Kind, StorageError
from safewrite.protocol import claim as claims
from safewrite.protocol.ask import Limits, ask
from safewrite.protocol.commit import Arbiter, Found, version_of
from safewrite.protocol.effects import Effect, List, Ok, Outcome
from safewrite.testing.automaton import Program

LIMITS = Limits(attempts=3, asks=2, timeout_s=1e9, lease_s=3.0, recheck_s=1e9)


@dataclass(frozen=True, slots=True)
class _Named:
    """What ``safewrite.delta.write`` needs to know of a write."""

    key: str
    fingerprint: str = "1:0"
    rows: int = 1
    files: int = 0
    txn: None = None


@dataclass(slots=True)
class Row:
    """A write of one row as a candidate; its commit file says its key and its attempt, no more."""

    write: _Named
    attempt: str
    accounted: int
    creating: bool = False
    files: tuple[()] = ()
    state: None = None
    table_id: str | None = None
    timestamp_ms: int = 0
    found: dict[str, int] = field(default_factory=dict)

    def body(self, version: int) -> bytes:
        return body_of(self.write.key, self.attempt)

    def examine(self, version: int, body: bytes) -> Found | None:
        key, attempt = parse(body)
        if key == self.write.key:
            return Found(version, own=attempt == self.attempt)
        if self.creating and version > self.accounted:
            raise ConflictError("Created by another.", kind=Kind.SCHEMA_CHANGED)
        return None

    def recheck(self) -> Generator[Effect, Outcome, None]:
        yield from ()

    def landed(self, version: int) -> None:
        return None


def body_of(key: str, attempt: str) -> bytes:
    """The commit file of an attempt at a write."""
    return f"{key} {attempt}".encode()


def parse(body: bytes) -> tuple[str, str]:
    """Key and attempt of a commit file; ("", "") for the one that the model starts with."""
    key, _, attempt = body.decode().partition(" ")
    return (key, attempt) if attempt else ("", "")


def safewrite(
    key: str,
    attempt: str,
    arbiter: Arbiter,
    *,
    exists: bool,
    again: bool,
    fresh: bool = False,
    queue_first: bool = False,
) -> Program:
    """One call of ``append``: open (a first call has opened long ago, at version 0), then write.

    A call that finds that another created the table checks its rows again and goes on, as a table does.
    """
    seen = 0 if exists else -1
    if again:
        seen = yield from head()
    while True:
        row = Row(_Named(key), attempt, seen, creating=seen < 0)
        try:
            done: Done = yield from write_once(
                row,  # type: ignore[arg-type]
                tuple,
                arbiter=arbiter,
                limits=LIMITS,
                queue_first=queue_first,
                fresh=fresh and not again,
            )
        except ConflictError:
            seen = yield from head()
            continue
        return done.version


def head() -> Generator[Effect, Outcome, int]:
    """The newest version in the log; -1 if there is none."""
    effect = List(claims.LOG, start_after=claims.LOG + "/", name="open.list")
    listed = yield from ask(effect, LIMITS)
    if not isinstance(listed, Ok):
        raise StorageError("The log could not be listed.")
    assert isinstance(listed.value, tuple)
    return max((v for item in listed.value if (v := version_of(item.path)) is not None), default=-1)
