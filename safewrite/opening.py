"""What is found out about a table before the first write: its state, its arbiter, its neighbours."""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Generator
from dataclasses import dataclass

from safewrite.connect import Connection, check_arbiter, choose_spelling, probe
from safewrite.delta import features
from safewrite.delta.log import commit_path
from safewrite.delta.state import TableState, load
from safewrite.errors import ConflictError, Kind, UnsafeConfigError
from safewrite.protocol.ask import Limits, ask, side_by_side, unanswered
from safewrite.protocol.claim import complete
from safewrite.protocol.effects import (
    Effect,
    Entry,
    Get,
    List,
    Missing,
    NewestEntry,
    Ok,
    Outcome,
)
from safewrite.stores.world import LEDGER_TTL_S, Performer, run

log = logging.getLogger("safewrite")

REMEMBERED_MAX = 64


@dataclass(frozen=True, slots=True)
class _Remembered:
    """A state that this process committed itself, and the digest of the commit that proves it."""

    state: TableState
    digest: bytes


_remembered: OrderedDict[tuple[str, str], _Remembered] = OrderedDict()


def remember(connection: Connection, state: TableState, body: bytes) -> None:
    """Keep a state for the next open in this process: a Lambda container opens the same table for each event."""
    mark = _mark(connection)
    _remembered[mark] = _Remembered(state, hashlib.sha256(body).digest())
    _remembered.move_to_end(mark)
    while len(_remembered) > REMEMBERED_MAX:
        _remembered.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Opened:
    """A table's state (None: there is no table), and what is known of its other writers.

    ``settled``: nothing is unfinished.  ``mixed``: some commit by conditional PUT, past the lock table.
    """

    state: TableState | None
    settled: bool
    mixed: bool


def open_state(
    connection: Connection, world: Performer, limits: Limits, *, strict: bool, foreign: bool = False
) -> Opened:
    """Read the table and refuse what would not be safe.

    ``foreign``: another engine makes the commits and knows the table's features itself.

    Raises:
        UnsafeConfigError, UnsupportedTableError, StorageError: as for ``safewrite.open``.
    """
    state, newest, other = run(_read(connection, limits), world)
    recorded = state.properties if state is not None else {}
    check_arbiter(connection, recorded)
    if connection.arbiter.lock_table:
        path = connection.lock_path
        choose_spelling(connection, recorded, ours=newest is not None, others=other is not None)
        newest = newest if connection.lock_path == path else other
    if state is not None and not foreign:
        check_table(state)
    if connection.name == "object-store" and "safewrite.arbiter" not in recorded:
        _refuse_guarded(connection, world)
    version = state.version if state is not None else -1
    mixed = newest is not None and newest.version < version
    if mixed and newest is not None:
        _warn_of_mix(connection, version, newest, strict=strict)
    probe(connection, recorded)
    if newest is not None and not newest.settled and newest.version <= version:
        world.perform(complete(newest))  # its commit stands in the log: nobody need repair it (A6)
    settled = newest is None or (newest.settled and newest.version == version)
    return Opened(state, settled, mixed)


def check_table(state: TableState) -> None:
    """Refuse a table whose features or retention safewrite cannot honour."""
    features.check_append(state)
    features.check_retention(state, horizon_s=LEDGER_TTL_S)


def _read(
    connection: Connection, limits: Limits
) -> Generator[Effect, Outcome, tuple[TableState | None, Entry | None, Entry | None]]:
    """The state, and the newest lock-table entries under our spelling of the path and the other one."""
    known = _remembered.get(_mark(connection))
    state, proof, newest, other = yield from side_by_side(
        load(known.state if known else None, limits=limits),
        _get_digest(known, limits),
        _get_newest(connection, limits),
        _get_newest(connection, limits, other_spelling=True),
    )
    if known is not None and proof != known.digest:
        # Another table lives at this address now, or its log was cleaned: what was remembered is void.
        _remembered.pop(_mark(connection), None)
        state = yield from load(None, limits=limits)
    assert state is None or isinstance(state, TableState)
    assert newest is None or isinstance(newest, Entry)
    assert other is None or isinstance(other, Entry)
    return state, newest, other


def _get_digest(known: _Remembered | None, limits: Limits) -> Generator[Effect, Outcome, bytes | None]:
    if known is None:
        return None
    answer = yield from ask(Get(commit_path(known.state.version), name="open.get_proof"), limits)
    body = answer.value if isinstance(answer, Ok) else None
    return hashlib.sha256(body).digest() if isinstance(body, bytes) else None


def _get_newest(
    connection: Connection, limits: Limits, *, other_spelling: bool = False
) -> Generator[Effect, Outcome, Entry | None]:
    if not connection.arbiter.lock_table:
        return None
    effect = NewestEntry(other_spelling=other_spelling, name="open.newest")
    answer = yield from ask(effect, limits)
    if not isinstance(answer, Ok | Missing):
        raise unanswered(effect, answer)
    entry = answer.value if isinstance(answer, Ok) else None
    return entry if isinstance(entry, Entry) else None


def _warn_of_mix(connection: Connection, version: int, newest: Entry, *, strict: bool) -> None:
    """Versions without an entry were written past the lock table (A12)."""
    uri = connection.address.uri
    message = (
        f"{uri} has commits without an entry in the lock table (version {version}; newest entry "
        f"{newest.version}): other writers commit by conditional PUT. Rows of safewrite are safe; writers of "
        "the lock table that do not verify (Spark, deltalake before 1.6) and those others may lose rows among "
        "themselves. `safewrite doctor` shows more."
    )
    if strict:
        raise UnsafeConfigError(message + " Nothing was written (strict=True).", kind=Kind.MIXED_WRITERS)
    log.warning(message, extra={"table": uri, "kind": Kind.MIXED_WRITERS.value})


def _refuse_guarded(connection: Connection, world: Performer) -> None:
    listed = world.perform(List("_delta_log/.tmp/", limit=1, name="open.list_temp"))
    if isinstance(listed, Ok) and listed.value:
        raise UnsafeConfigError(
            f"{connection.address.uri} has temp files of a lock table's writers (_delta_log/.tmp/), so a lock "
            "table guards it; they would not see a writer that goes by conditional PUT alone. Nothing was "
            "written. Open it with lock_table=...",
            kind=Kind.ARBITER_MISMATCH,
        )


def _mark(connection: Connection) -> tuple[str, str]:
    return connection.address.uri, f"{connection.endpoint} {connection.lock_table_id}"


def already_there(uri: str) -> ConflictError:
    """What is raised where a table was to be created and another is there."""
    return ConflictError(
        f"There is a Delta table at {uri} already; it was left as it is. Open it with safewrite.open().",
        kind=Kind.TABLE_EXISTS,
    )
