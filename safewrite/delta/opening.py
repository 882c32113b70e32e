"""Opens a Delta table: its newest snapshot, its arbiter, its other writers."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from safewrite.arguments.options import parse_address
from safewrite.delta.arbiter import (
    PROPERTY_ARBITER,
    check_arbiter,
    check_lock_table_there,
    choose,
    choose_spelling,
)
from safewrite.delta.connect import Connection, connect, probe
from safewrite.delta.log import features, iceberg_compat
from safewrite.delta.log.snapshot import Snapshot, load
from safewrite.errors import (
    ConflictError,
    Kind,
    SafewriteError,
    StorageError,
    TableNotFoundError,
    UnsafeConfigError,
)
from safewrite.protocol.ask import Limits, ask, side_by_side, unanswered
from safewrite.protocol.delta.claim import complete
from safewrite.protocol.effects import Effect, List, Missing, NewestEntry, Ok, Outcome
from safewrite.protocol.values import Entry
from safewrite.stores.world import LEDGER_TTL_S, Performer, run

if TYPE_CHECKING:
    import boto3

    from safewrite.stores.events import Listener

log = logging.getLogger("safewrite")

REMEMBERED_MAX = 64


_remembered: OrderedDict[tuple[str, str], Snapshot] = OrderedDict()


def remember(connection: Connection, state: Snapshot) -> None:
    """Keep a snapshot for the next open in this process: a Lambda container opens the same table for each
    event.

    Its anchor proves, before it is used, that the log is still the same one.
    """
    mark = _mark(connection)
    _remembered[mark] = state
    _remembered.move_to_end(mark)
    while len(_remembered) > REMEMBERED_MAX:
        _remembered.popitem(last=False)


def connect_as_recorded(
    uri: object,
    *,
    lock_table: str | None,
    arbiter: str | None,
    storage_options: Mapping[str, str] | None,
    boto3_session: boto3.Session | None,
    create_lock_table: bool = False,
    limits: Limits | None = None,
    listener: Listener | None = None,
) -> Connection:
    """Connect with the arbiter that is given, else with the one that the table records.

    Raises:
        UnsafeConfigError, InvalidInputError, StorageError: as ``safewrite.delta.connect.connect``.
    """
    reach: dict[str, Any] = {"storage_options": storage_options, "boto3_session": boto3_session}

    def look() -> tuple[Connection, Snapshot | None]:
        found = connect(uri, lock_table=None, arbiter="object-store", **reach)
        found.world.listener = listener
        return found, run(load(_remembered.get(_mark(found)), limits=limits or Limits()), found.world)

    if lock_table is not None or arbiter is not None or not parse_address(uri).is_s3:
        named = {"lock_table": lock_table, "arbiter": arbiter}
        connection = _locked(uri, named | reach, lambda: look()[1], creates=create_lock_table)
        connection.world.listener = listener
        return connection
    alone, state = look()
    recorded = state.properties if state is not None else {}
    choice = choose(recorded, lock_table=None, arbiter=None, storage_options=storage_options)
    if choice.lock_table is None:
        connection = alone
    else:
        named = {"lock_table": choice.lock_table, "arbiter": None}
        connection = _locked(uri, named | reach, lambda: state, creates=create_lock_table)
    connection.world.listener = listener
    if state is not None:
        remember(alone, state)
        remember(connection, state)
    return connection


def _locked(
    uri: object, settings: Mapping[str, Any], look: Callable[[], Snapshot | None], *, creates: bool
) -> Connection:
    """Connect; a lock table that is not there is made where ``creates`` says so, unless the table records that it has another.

    ``look`` gives the table's newest snapshot.
    """
    try:
        return connect(uri, **settings)
    except StorageError as error:
        if "ResourceNotFound" not in str(error.__cause__):
            raise
        try:
            state = look()
        except SafewriteError:
            state, creates = None, False
        check_lock_table_there(str(uri), state.properties if state is not None else {}, error)
        if not creates:
            raise
    return connect(uri, create_lock_table=True, **settings)


@dataclass(frozen=True, slots=True)
class Opened:
    """A table's snapshot (None: there is no table), and what is known of its other writers.

    ``settled``: nothing is unfinished.  ``mixed``: some writers bypass the lock table and commit by
    conditional PUT.
    """

    state: Snapshot | None
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
    reads_only = state is not None and not foreign and bool(features.unwritable(state))
    if connection.arbiter_name == "object-store" and PROPERTY_ARBITER not in recorded:
        refuse_guarded(connection, world, limits)
    version = state.version if state is not None else -1
    if newest is not None and newest.version < version:
        # Both were read at once: the entry of a commit that came meanwhile is there by now.
        newest = run(_get_newest(connection, limits), world)
    mixed = newest is not None and newest.version < version
    if mixed and newest is not None:
        _warn_of_mix(connection, version, newest, strict=strict)
    if not reads_only:
        probe(connection, recorded, limits)
    if newest is not None and not newest.settled and newest.version <= version:
        world.perform(complete(newest))  # its commit stands in the log and needs no repair (A6)
    settled = newest is None or (newest.settled and newest.version == version)
    return Opened(state, settled, mixed)


def check_same(uri: str, known: Snapshot | None, newest: Snapshot | None) -> None:
    """Refuse a table other than the one that was opened (A17), and one whose log lost versions since.

    Raises:
        TableNotFoundError: the table is gone.
        ConflictError: kind TABLE_REPLACED.
    """
    if known is None:
        return
    if newest is None:
        raise TableNotFoundError(
            f"The Delta table at {uri} was dropped after it was opened here (id {known.table_id}). Nothing was written. "
            "Open it again, with create=True if the next write is to make a new table."
        )
    if newest.table_id != known.table_id:
        raise ConflictError(
            f"Another table is at {uri} now (id {newest.table_id}): the one that was opened here (id {known.table_id}) "
            "was dropped and created anew. Nothing was written into the new table. Open it again, and look at the table before "
            "you write.",
            kind=Kind.TABLE_REPLACED,
        )
    if newest.version < known.version:
        raise ConflictError(
            f"The log of {uri} ends with version {newest.version}, and it had version {known.version} when this object saw it last: later "
            "versions were removed, as by a backup that was put in its place. Nothing was written. `safewrite doctor` tells which keys "
            "went with them. Open it again, and look at the table before you write.",
            kind=Kind.TABLE_REPLACED,
        )


def check_table(state: Snapshot) -> None:
    """Refuse a table whose readers' features safewrite cannot honour, or whose log forgets writes too soon.

    One that may only be read is refused at the first write: :func:`check_writable`.
    """
    features.check_read(state)
    if not features.unwritable(state):
        features.check_retention(state, horizon_s=LEDGER_TTL_S)


_told_of_copies: set[str] = set()


def tell_of_copies(uri: str, state: Snapshot | None) -> None:
    """Log once of each table that readers by a copy of the metadata see commits later, where it has such readers."""
    copy = "" if state is None or uri in _told_of_copies else iceberg_compat.copy_of(state)
    if copy:
        _told_of_copies.add(uri)
        log.warning(copy, extra={"table": uri})


def check_writable(connection: Connection, state: Snapshot, limits: Limits) -> None:
    """Refuse a table that may only be read, before anything of a write is made.

    Raises:
        UnsupportedTableError: by the name of every feature that forbids it.
        UnsafeConfigError: as for ``safewrite.open``.
    """
    features.check_append(state)
    probe(
        connection, state.properties, limits
    )  # a table that could only be read when it was opened may be written to by now


def _read(
    connection: Connection, limits: Limits
) -> Generator[Effect, Outcome, tuple[Snapshot | None, Entry | None, Entry | None]]:
    """The snapshot, and the newest lock-table entries under our spelling of the path and the other one."""
    state, newest, other = yield from side_by_side(
        load(_remembered.get(_mark(connection)), limits=limits),
        _get_newest(connection, limits),
        _get_newest(connection, limits, other_spelling=True),
    )
    assert state is None or isinstance(state, Snapshot)
    assert newest is None or isinstance(newest, Entry)
    assert other is None or isinstance(other, Entry)
    return state, newest, other


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
    """Warn of versions without an entry: their writers bypassed the lock table (A12)."""
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


def refuse_guarded(connection: Connection, world: Performer, limits: Limits) -> None:
    """Refuse to go by conditional PUT alone where a lock table's writers left their temp files."""
    effect = List("_delta_log/.tmp/", limit=1, name="open.list_temp")
    listed = run(ask(effect, limits), world)
    if not isinstance(listed, Ok):
        raise unanswered(effect, listed)
    if listed.value:
        raise UnsafeConfigError(
            f"{connection.address.uri} has temp files of a lock table's writers (_delta_log/.tmp/), so a lock "
            "table guards it; they would not see a writer that goes by conditional PUT alone. Nothing was "
            "written. Open it with lock_table=...",
            kind=Kind.ARBITER_MISMATCH,
        )


def _mark(connection: Connection) -> tuple[str, str]:
    return connection.address.uri, f"{connection.endpoint} {connection.lock_table_id}"


def already_there(uri: str) -> ConflictError:
    """The error where a table was to be created and another is there."""
    return ConflictError(
        f"There is a Delta table at {uri} already; it was left as it was. Open it with safewrite.open().",
        kind=Kind.TABLE_EXISTS,
    )


def not_there(uri: str) -> TableNotFoundError:
    """The error where a table was to be opened and there is none."""
    return TableNotFoundError(
        f"There is no Delta table at {uri}. Nothing was written. Create it with safewrite.create(), "
        "or open it with create=True to let the first append make it."
    )
