"""Says what an exception of a database's driver means: whether a statement was performed."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError

from safewrite.protocol.effects import Busy, Exists, Failed, Outcome, Unknown

# SQLSTATEs: deadlock or serialization failure, resources, locks, cancelled by a time limit, a standby that
# does not take writes (until the failover is over).
_REFUSED_FOR_NOW = ("40", "53", "55", "57014", "25006")
# Connection lost, completion unknown, server going down, system error: also what poolers in between make up.
_NOBODY_KNOWS = ("08", "40003", "57P", "58", "XX")
_SQLITE_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_SQLITE_BROKEN = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_INTERRUPT)


def classify_error(error: Exception, *, write: bool) -> Outcome:
    """Classify an exception by what it says about a statement that was sent.

    An error with a code is the database's own answer: the statement was rolled back.  Without one, the
    answer was lost and the statement may have been committed.
    """
    outcome = _meaning(error)
    return Unknown(outcome.detail) if isinstance(outcome, Busy) and not write else outcome


def _meaning(error: Exception) -> Outcome:
    detail = detail_of(error)
    if not isinstance(error, DBAPIError):
        return Unknown(detail)
    state = str(getattr(error.orig, "pgcode", None) or getattr(error.orig, "sqlstate", None) or "")
    code = getattr(error.orig, "sqlite_errorcode", None)
    if error.connection_invalidated or state.startswith(_NOBODY_KNOWS):
        return Unknown(detail)
    if isinstance(error, IntegrityError):
        return Exists()
    if state:
        return Busy(detail) if state.startswith(_REFUSED_FOR_NOW) else Failed(detail)
    if isinstance(code, int):
        kind = code & 0xFF  # the rest of the code only says why
        if kind in _SQLITE_LOCKED:
            return Busy(detail)
        return Unknown(detail) if kind in _SQLITE_BROKEN else Failed(detail)
    return Unknown(detail) if isinstance(error, OperationalError | InterfaceError) else Failed(detail)


def detail_of(error: Exception) -> str:
    """The driver's own words: SQLAlchemy's add the statement and its values."""
    said = getattr(error, "orig", None) or error
    return f"{type(said).__name__}: {str(said).strip()}"
