"""Leads the commits of a Spark session to the commit protocol, table by table."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from safewrite.arguments.options import Address, parse_address
from safewrite.delta.connect import Connection
from safewrite.delta.log import actions
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.opening import connect_as_recorded, open_state, remember
from safewrite.delta.spark import transaction
from safewrite.delta.spark.options import HadoopConf, joined
from safewrite.errors import ConflictError, InternalError, Kind
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta.candidate import Arbiter
from safewrite.protocol.delta.place import place, settle
from safewrite.stores.world import Performer, run

if TYPE_CHECKING:
    import boto3

TURN_S = 60.0
"""A turn kept for a transaction that has not come back in this time is forgotten; others passed it over long ago."""


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The arbiter, and how the stores are reached; None leaves it to what the table records."""

    lock_table: str | None = None
    arbiter: str | None = None
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    boto3_session: boto3.Session | None = None
    limits: Limits = field(default_factory=Limits)


class SparkTable:
    """One table of a session.  Several threads of the session may commit to it at once."""

    def __init__(self, connection: Connection, limits: Limits) -> None:
        self.connection = connection
        self.world: Performer = connection.world
        self.limits = limits
        self._state: Snapshot | None = None
        self._mixed = False
        self._turns: dict[str, tuple[int, float]] = {}
        self._guard = threading.Lock()

    def commit(self, version: int, body: bytes) -> bool:
        """Make ``body`` the commit of ``version``: True if it is, False if the version is another's.

        A write of safewrite's own gets its name put into it first.

        Raises:
            SafewriteError: as ``safewrite.protocol.delta.place.place``; or the table refuses this session's arbiter.
        """
        return transaction.commit(version, body, self._place, lambda steps: run(steps, self.world))

    def _place(self, version: int, body: bytes) -> bool:
        try:
            return self._place_after(version, body)
        except ConflictError as error:
            with self._guard:
                known, self._state = self._state, None
            if error.kind is not Kind.TABLE_REPLACED or known is None:
                raise
        # Our snapshot was of another table at this address; Delta itself has read the one that is there.
        return self._place_after(version, body)

    def _place_after(self, version: int, body: bytes) -> bool:
        commit = actions.parse(body, version)  # our error must come before the commit, not after it
        transaction = (commit.commit_info or {}).get("txnId")
        with self._guard:
            fresh = self._know_up_to(version - 1)
            table_id = self._state.table_id if self._state is not None else None
            at = self._state is not None and self._state.version == version - 1
            anchor = self._state.anchor if self._state is not None and at else None
            ticket = self._kept_turn(transaction)
        # Without the transaction's id nobody knows whose turn is kept, so nobody queues.
        arbiter = Arbiter(
            self.connection.arbiter.lock_table,
            lease=self.connection.arbiter.lease and transaction is not None,
            sealed=self._mixed,
        )
        steps = place(
            body,
            version,
            table_id,
            arbiter=arbiter,
            limits=self.limits,
            ticket=ticket,
            fresh=fresh,
            anchor=anchor,
        )
        placed = run(steps, self.world)
        with self._guard:
            self._mixed |= placed.mixed
            if placed.ticket is not None and transaction is not None:
                self._turns[transaction] = (placed.ticket, time.monotonic())
            if placed.landed:
                self._move_on(version, commit)
        return placed.landed

    def _move_on(self, version: int, commit: actions.Commit) -> None:
        """Take our own commit into account, so that the next look does not read it."""
        state = self._state
        if state is not None and state.version == version - 1:
            state = state.advance(version, commit)
        elif version == 0 and commit.protocol and commit.metadata:
            state = Snapshot(-1, commit.protocol, commit.metadata).advance(0, commit)
        else:
            return  # another thread of the session looked meanwhile
        self._state = state
        remember(self.connection, state)

    def _know_up_to(self, version: int) -> bool:
        """Read what others committed, and whether the table is still for this arbiter (A16).

        True where the last commit was ours: there is nothing to read.
        """
        if self._state is not None and self._state.version == version:
            return True
        opened = open_state(self.connection, self.world, self.limits, strict=False, foreign=True)
        self._state, self._mixed = opened.state, self._mixed or opened.mixed
        return False

    def _kept_turn(self, transaction: str | None) -> int | None:
        now_s = time.monotonic()
        self._turns = {name: turn for name, turn in self._turns.items() if now_s - turn[1] < TURN_S}
        turn = self._turns.pop(transaction or "", None)
        return turn[0] if turn is not None else None

    def settle(self, version: int, transaction: str) -> bool | None:
        """See ``safewrite.protocol.delta.place.settle``."""
        steps = settle(
            version,
            lambda body: transaction_of(body) == transaction,
            arbiter=self.connection.arbiter,
            limits=self.limits,
        )
        return run(steps, self.world)


class Commits:
    """All tables of a session, by their roots; each is opened at its first commit."""

    def __init__(self, settings: StoreSettings, conf: HadoopConf) -> None:
        self.settings = settings
        self._conf = conf
        self._tables: dict[str, SparkTable] = {}
        self._guard = threading.Lock()

    def commit(self, path: str, body: str) -> bool:
        """Make ``body`` the commit file at ``path``, which is Hadoop's spelling; False if another stands there."""
        root, version = parse_commit_path(path)
        return self.table(root).commit(version, body.encode())

    def table(self, root: str) -> SparkTable:
        """The table at a root."""
        # Hadoop writes file:/folder, with one slash.
        address = parse_address(urlsplit(root).path if root.startswith("file:") else root)
        with self._guard:
            if address.uri not in self._tables:
                self._tables[address.uri] = SparkTable(self._connect(address), self.settings.limits)
            return self._tables[address.uri]

    def know(self, connection: Connection) -> None:
        """Reach a table as its opener does, unless it was reached before."""
        with self._guard:
            known = SparkTable(connection, self.settings.limits)
            self._tables.setdefault(connection.address.uri, known)

    def _connect(self, address: Address) -> Connection:
        """Connect with the arbiter that the session names, else with the one that the table records."""
        settings = self.settings
        return connect_as_recorded(
            address.uri,
            lock_table=settings.lock_table if address.is_s3 else None,
            arbiter=settings.arbiter if address.is_s3 else None,
            storage_options=joined(self._conf, address.bucket, settings.storage_options),
            boto3_session=settings.boto3_session,
            limits=settings.limits,
        )


def parse_commit_path(path: str) -> tuple[str, int]:
    """Root of the table and version of a commit file, as Hadoop spells its path."""
    root, separator, name = path.rpartition(f"/{actions.LOG}")
    version = actions.version_of(actions.LOG + name)
    if not separator or version is None:
        raise InternalError(f"{path} is no commit file. Nothing was committed. Please report it.")
    return root, version


def transaction_of(body: bytes) -> str | None:
    """The id of a Delta transaction, the same from try to try; None where the commit has none."""
    for line in body.splitlines():
        if line.startswith(b'{"commitInfo"'):
            name = json.loads(line)["commitInfo"].get("txnId")
            return str(name) if name else None
    return None
