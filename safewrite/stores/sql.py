"""Keeps ledger and queue of an Iceberg table in its catalog's SQL database: PostgreSQL, or SQLite.

Every write is one statement that commits by itself: one round trip, and no transaction that a
writer could leave open.  What a driver's exception means is decided in ``safewrite.stores.sql_failures``, once.
No answer depends on a clock: a row counts until it is purged, and purging is late and rare.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import weakref
from collections.abc import Callable, Sequence
from datetime import UTC
from typing import Any

from safewrite.errors import Kind, MissingExtraError, StorageError
from safewrite.protocol.effects import Busy, Exists, Failed, Missing, Ok, Outcome, Unknown
from safewrite.protocol.values import LedgerRecord, Queue

try:
    import sqlalchemy as sa
    from sqlalchemy.exc import IntegrityError
    from sqlalchemy.schema import CreateIndex, CreateTable

    from safewrite.stores.sql_failures import classify_error, detail_of
except ImportError as missing:
    raise MissingExtraError(
        "A SQL catalog needs SQLAlchemy, which is not installed. Nothing was written. Install it: "
        "pip install 'pyiceberg[sql-postgres]' (or 'pyiceberg[sql-sqlite]')."
    ) from missing

TRIES = 5
"""How often a row is updated, else inserted, before too many rivals doing the same are reported."""
PURGE_GRACE_S = 7 * 24 * 3600
"""How long an expired row is kept: a writer's clock may be days slow, and its keys must not vanish."""
PURGE_ONE_IN = 256
"""One key in this many sweeps out expired rows, of all tables."""
PURGE_ROWS = 1000

_metadata = sa.MetaData()
# Snapshot ids of Iceberg have 63 bits.
ledger_table = sa.Table(
    "safewrite_ledger",
    _metadata,
    sa.Column("table_id", sa.String(255), primary_key=True),
    sa.Column("key_digest", sa.String(40), primary_key=True),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("base_version", sa.BigInteger, nullable=False),
    sa.Column("fingerprint", sa.String(255), nullable=False),
    sa.Column("version", sa.BigInteger),
    sa.Column("in_doubt_at", sa.BigInteger),
    sa.Column("expire_time_s", sa.BigInteger, nullable=False, index=True),
)
queue_table = sa.Table(
    "safewrite_queue",
    _metadata,
    sa.Column("table_id", sa.String(255), primary_key=True),
    sa.Column("serving", sa.BigInteger, nullable=False),
    sa.Column("next", sa.BigInteger, nullable=False),
)

Work = Callable[[sa.Connection], Outcome]


class SqlLedger:
    """Idempotency keys of one table, a row each; purged after the replay horizon."""

    batch_max = 100

    def __init__(self, engine: sa.Engine, table_id: str) -> None:
        self.table_id = table_id
        self._engine = _one_statement_at_a_time(engine)

    def get(self, key: str) -> Outcome:
        columns = [ledger_table.c[name] for name in ("base_version", "fingerprint", "version", "in_doubt_at")]
        found = sa.select(*columns).where(*self._at(key))

        def read(connection: sa.Connection) -> Outcome:
            row = connection.execute(found).one_or_none()
            return Missing() if row is None else Ok(LedgerRecord(key, *row))

        return _perform(self._engine, read, write=False)

    def intend(self, record: LedgerRecord, expire_time_s: int) -> Outcome:
        return self.intend_many((record,), expire_time_s)[0]

    def get_many(self, names: Sequence[str]) -> tuple[Outcome, ...]:
        return tuple(self.get(name) for name in names)

    def intend_many(self, records: Sequence[LedgerRecord], expire_time_s: int) -> tuple[Outcome, ...]:
        rows = [self._row(record, expire_time_s) for record in records]

        def create(connection: sa.Connection) -> Outcome:
            new = sa.insert(ledger_table)
            if getattr(connection.dialect, "use_insertmanyvalues_wo_returning", False):
                connection.execute(new, rows)  # the same statement, and half of the work
            else:  # as a list these may become a statement each
                connection.execute(new.values(rows))
            return Ok()

        outcome = _perform(self._engine, create, write=True)
        if isinstance(outcome, Exists) and len(records) > 1:  # one of them is known: the others go one by one
            return tuple(self.intend(record, expire_time_s) for record in records)
        if isinstance(outcome, Ok) and any(int(row["key_digest"], 16) % PURGE_ONE_IN == 0 for row in rows):
            _perform(self._engine, _purge, write=True)  # in any case the next sweep is not far
        return (outcome,) * len(records)

    def commit_many(self, records: Sequence[LedgerRecord], expire_time_s: int) -> tuple[Outcome, ...]:
        ours, result = ledger_table.c, {(record.version, record.in_doubt_at) for record in records}
        bases = {record.base_version for record in records}
        # One base is put with the rest; others are those of the rows, or a row says something else.
        names = (
            ("key_digest", "fingerprint")
            if len(bases) == 1
            else ("key_digest", "fingerprint", "base_version")
        )
        rows = [
            (_digest(record.key), record.fingerprint, record.base_version)[: len(names)] for record in records
        ]
        known = sa.tuple_(*(ours[name] for name in names)).in_(rows)
        change = sa.update(ledger_table).where(ours["table_id"] == self.table_id, known)

        def put(connection: sa.Connection) -> Outcome:
            version, in_doubt_at = next(iter(result))
            new = {"version": version, "in_doubt_at": in_doubt_at, "expire_time_s": expire_time_s}
            new |= {"base_version": next(iter(bases))} if len(bases) == 1 else {}
            return Ok() if connection.execute(change.values(new)).rowcount == len(records) else Missing()

        outcome = _perform(self._engine, put, write=True) if len(result) == 1 else Missing()
        if isinstance(outcome, Missing):  # a row is gone, or says something else
            return tuple(self.commit(record, expire_time_s) for record in records)
        return (outcome,) * len(records)

    def commit(self, record: LedgerRecord, expire_time_s: int) -> Outcome:
        row = self._row(record, expire_time_s)
        change = sa.update(ledger_table).where(*self._at(record.key)).values(row)

        def put(connection: sa.Connection) -> Outcome:
            for _ in range(TRIES):
                if connection.execute(change).rowcount == 1:
                    return Ok()
                with contextlib.suppress(IntegrityError):  # put by a rival since: now it can be updated
                    connection.execute(sa.insert(ledger_table).values(row))
                    return Ok()
            return Busy("the row comes and goes")

        return _perform(self._engine, put, write=True)

    def records(self, limit: int) -> Outcome:
        """``Ok`` of at most this many of the remembered keys, the newest first, and whether these are all."""
        columns = [
            ledger_table.c[name] for name in ("key", "base_version", "fingerprint", "version", "in_doubt_at")
        ]
        ours = sa.select(*columns).where(ledger_table.c.table_id == self.table_id)
        ours = ours.order_by(ledger_table.c.expire_time_s.desc()).limit(limit + 1)

        def read(connection: sa.Connection) -> Outcome:
            rows = connection.execute(ours).all()
            found = [LedgerRecord(_unescaped(key), *rest) for key, *rest in rows[:limit]]
            return Ok((found, len(rows) <= limit))

        return _perform(self._engine, read, write=False)

    def _at(self, key: str) -> tuple[sa.ColumnElement[bool], ...]:
        return ledger_table.c.table_id == self.table_id, ledger_table.c.key_digest == _digest(key)

    def _row(self, record: LedgerRecord, expire_time_s: int) -> dict[str, Any]:
        return {
            "table_id": self.table_id,
            "key_digest": _digest(record.key),
            # For people to read; escaped, since PostgreSQL stores no NUL and not every database is UTF-8.
            "key": record.key.encode("unicode_escape").decode("ascii"),
            "base_version": record.base_version,
            "fingerprint": record.fingerprint,
            "version": record.version,
            "in_doubt_at": record.in_doubt_at,
            "expire_time_s": expire_time_s,
        }


HELD = "held "
"""Before a table's id: the row whose ``serving`` is the ticket that is held, and ``next`` for how many ms."""


class SqlQueue:
    """The ticket queue of one table: two counters in one row, and in a row of its own how long a turn is held.

    Tables of earlier versions have no column for that, and writers of these versions read no other row than the first.
    """

    def __init__(self, engine: sa.Engine, table_id: str) -> None:
        self.table_id = table_id
        self._engine = _one_statement_at_a_time(engine)
        self._here = queue_table.c.table_id == table_id
        self._held = f"{HELD}{table_id}"
        self._counters = (queue_table.c["serving"], queue_table.c["next"])

    def take(self) -> Outcome:
        following = sa.update(queue_table).where(self._here).values(next=queue_table.c["next"] + 1)
        increment = following.returning(*self._counters)
        first = sa.insert(queue_table).values(table_id=self.table_id, serving=0, next=1)

        def take(connection: sa.Connection) -> Outcome:
            for _ in range(TRIES):
                row = connection.execute(increment).one_or_none()
                if row is not None:
                    queue = Queue(*row)
                    return Ok((queue.next - 1, queue))
                with contextlib.suppress(IntegrityError):  # a rival opened the queue: join it
                    connection.execute(first)
                    return Ok((0, Queue(serving=0, next=1)))
            return Busy("the row comes and goes")

        return _perform(self._engine, take, write=True)

    def read(self) -> Outcome:
        held = queue_table.alias()
        is_held = sa.and_(held.c.table_id == self._held, held.c["serving"] == queue_table.c["serving"])
        both = queue_table.outerjoin(held, is_held)
        counters = sa.select(*self._counters, held.c["next"]).select_from(both).where(self._here)

        def read(connection: sa.Connection) -> Outcome:
            row = connection.execute(counters).one_or_none()
            if row is None:
                return Missing()
            serving, following, hold_ms = row
            return Ok(Queue(serving, following, (hold_ms or 0) / 1000))

        return _perform(self._engine, read, write=False)

    def pass_turn(self, ticket: int) -> Outcome:
        ours = sa.update(queue_table).where(self._here, queue_table.c["serving"] == ticket)

        def serve_next(connection: sa.Connection) -> Outcome:
            done = connection.execute(ours.values(serving=ticket + 1))
            return Ok() if done.rowcount == 1 else Exists()

        return _perform(self._engine, serve_next, write=True)

    def hold_turn(self, ticket: int, hold_s: float) -> Outcome:
        hold = sa.literal(round(hold_s * 1000), sa.BigInteger)
        serves = sa.select(queue_table.c["serving"]).where(self._here, queue_table.c["serving"] == ticket)
        again = sa.update(queue_table).where(queue_table.c.table_id == self._held, serves.exists())
        first = sa.insert(queue_table).from_select(
            ["table_id", "serving", "next"],
            serves.with_only_columns(sa.literal(self._held), *serves.selected_columns, hold),
        )

        def keep(connection: sa.Connection) -> Outcome:
            if connection.execute(again.values(serving=ticket, next=hold)).rowcount == 1:
                return Ok()
            return Ok() if connection.execute(first).rowcount == 1 else Exists()

        return _perform(self._engine, keep, write=True)


# --- the two tables -----------------------------------------------------------------------------
def ensure(engine: sa.Engine) -> bool:
    """Create the two tables if they do not exist, and check that they can be written.

    Returns True if some were made.  Many may do this at once.

    Raises:
        StorageError: kind LOCK_TABLE_UNUSABLE; the database does not answer, or rights are missing.
    """
    calm, made = _one_statement_at_a_time(engine), False
    outcome: Outcome = Missing()
    for attempt in range(TRIES):
        outcome = _perform(calm, _check, write=True)
        if isinstance(outcome, Ok):
            return made
        if isinstance(outcome, Failed):
            break
        if isinstance(outcome, Missing):
            outcome = _perform(calm, _create, write=True)
            made = made or isinstance(outcome, Ok)
        if not isinstance(outcome, Ok):  # refused, perhaps because a rival made them just now: look again
            time.sleep(0.05 * 2**attempt)
    if isinstance(outcome, Ok):
        return made
    raise _unusable(engine, outcome)


def there(engine: sa.Engine) -> bool:
    """Whether the two tables exist; creates nothing.

    Raises:
        StorageError: kind LOCK_TABLE_UNUSABLE; the database does not answer.
    """
    outcome = _perform(_one_statement_at_a_time(engine), _find, write=False)
    if not isinstance(outcome, Ok | Missing):
        raise _unusable(engine, outcome)
    return isinstance(outcome, Ok)


def _find(connection: sa.Connection) -> Outcome:
    look = sa.inspect(connection)
    both = all(look.has_table(table.name) for table in (ledger_table, queue_table))
    return Ok() if both else Missing()


def _check(connection: sa.Connection) -> Outcome:
    """Check whether the tables exist; if so write no row at all, which needs the rights to write one."""
    if isinstance(_find(connection), Missing):
        return Missing()
    for table in (ledger_table, queue_table):
        columns = list(table.columns)
        nothing = sa.select(*columns).where(sa.false())
        connection.execute(sa.insert(table).from_select(columns, nothing))
        connection.execute(sa.update(table).where(sa.false()).values(table_id=table.c.table_id))
    return Ok()


def _create(connection: sa.Connection) -> Outcome:
    for statement in _ddl():
        connection.execute(statement)
    return Ok()


def _ddl() -> list[CreateTable | CreateIndex]:
    found: list[CreateTable | CreateIndex] = []
    for table in (ledger_table, queue_table):
        found.append(CreateTable(table, if_not_exists=True))
        found += [CreateIndex(index, if_not_exists=True) for index in table.indexes]
    return found


def _unusable(engine: sa.Engine, outcome: Outcome) -> StorageError:
    why = getattr(outcome, "detail", "") or type(outcome).__name__
    if not isinstance(outcome, Failed):
        return StorageError(
            f"The catalog's database does not answer: {why}. Nothing was written. This often passes: try again; "
            "else check its address.",
            kind=Kind.LOCK_TABLE_UNUSABLE,
        )
    statements = [str(statement.compile(engine)).strip() for statement in _ddl()]
    if engine.dialect.name != "sqlite":  # which has no users
        statements.append(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON safewrite_ledger, safewrite_queue TO the_catalogs_user"
        )
    return StorageError(
        f"The tables safewrite_ledger and safewrite_queue of the catalog's database cannot be used: {why}. "
        "Nothing was written. Let somebody who may create tables there run this once:\n"
        + "".join(f"{statement};\n" for statement in statements),
        kind=Kind.LOCK_TABLE_UNUSABLE,
    )


def _purge(connection: sa.Connection) -> Outcome:
    """Sweep out rows that expired long ago by the database's own clock, a bounded number of them."""
    now = connection.execute(sa.select(sa.func.current_timestamp())).scalar_one()
    now = now if now.tzinfo else now.replace(tzinfo=UTC)
    expired = ledger_table.c.expire_time_s < int(now.timestamp()) - PURGE_GRACE_S
    name = sa.tuple_(ledger_table.c.table_id, ledger_table.c.key_digest)
    old = connection.execute(
        sa.select(ledger_table.c.table_id, ledger_table.c.key_digest).where(expired).limit(PURGE_ROWS)
    ).all()
    if old:
        # `expired` again: a row that was put again in between stays.
        connection.execute(sa.delete(ledger_table).where(name.in_([tuple(row) for row in old]), expired))
    return Ok()


# --- connections, and what their failures mean ------------------------------------------------------
_engines: weakref.WeakSet[sa.Engine] = weakref.WeakSet()


def _one_statement_at_a_time(engine: sa.Engine) -> sa.Engine:
    """The same engine and pool with every statement committed by itself; a forked child gets its own pool."""
    _engines.add(engine)
    return engine.execution_options(isolation_level="AUTOCOMMIT")


def _leave_the_parents_connections() -> None:
    """Drop the parent's connections in a forked child: on one socket both would read each other's answers.

    This helps the catalog's own commits too, which go through the same engine.
    """
    for engine in _engines:
        engine.dispose(close=False)


os.register_at_fork(after_in_child=_leave_the_parents_connections)


def _perform(engine: sa.Engine, work: Work, *, write: bool) -> Outcome:
    """Do ``work`` on a connection of the pool.  Without a connection nothing was asked of the database."""
    try:
        connection = engine.connect()
    except Exception as error:  # noqa: BLE001 - every failure has a meaning
        return Busy(detail_of(error)) if write else Unknown(detail_of(error))
    try:
        try:  # and no "with": a signal could break off its end, which is Python's, and leave the transaction open
            return work(connection)
        finally:
            connection.close()
    except Exception as error:  # noqa: BLE001 - every failure has a meaning
        return classify_error(error, write=write)


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:40]


def _unescaped(key: str) -> str:
    return key.encode("ascii").decode("unicode_escape")
