"""Defines the error tree, grouped by what a handler does about it.

::

    SafewriteError
    ├── NotCommittedError          nothing of this write is, or will be, in the table
    │   ├── WouldAlterError        (also ValueError) the schema would change a value, drop or null a column
    │   ├── InvalidInputError      (also ValueError) keys, schema, data that cannot be replayed
    │   ├── ReplayMismatchError    the key was committed before with other rows
    │   ├── ConflictError          another writer changed what this write depends on
    │   │   └── HistoryGapError    a table cannot be followed from a position: read it as a whole
    │   ├── RetriesExhaustedError  limits of attempts or time reached
    │   ├── UnsafeConfigError      (also ValueError) settings or stores that allow silent loss
    │   ├── UnsupportedTableError  a writer feature that safewrite does not know
    │   ├── TableNotFoundError     (also LookupError)
    │   └── StorageError           the environment; often passes
    │       └── DataFileError      a data file that the plan reads is gone or damaged
    ├── CommitUnknownError         may have landed; the same key again, or ``resolve``, decides
    ├── ForeignWriterError         our committed bytes were replaced: someone writes outside the rules
    ├── MissingExtraError          (also ImportError) prints the pip command
    └── InternalError              a broken assertion; please report

``kind`` is API and only grows; the text of a message is not.  Every message says what
happened, what is safe now, and what to do next.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from safewrite.text.rendering import masked, said

P = ParamSpec("P")
T = TypeVar("T")


class Kind(StrEnum):
    """Stable codes of errors; append-only."""

    WOULD_ALTER = "would_alter"
    INVALID_INPUT = "invalid_input"
    REPLAY_MISMATCH = "replay_mismatch"
    CONFLICT = "conflict"
    SCHEMA_CHANGED = "schema_changed"
    RETRIES_EXHAUSTED = "retries_exhausted"
    HELD_BACK = "held_back"
    UNSAFE_OPTION = "unsafe_option"
    DISHONEST_STORE = "dishonest_store"
    ARBITER_MISMATCH = "arbiter_mismatch"
    MIXED_WRITERS = "mixed_writers"
    RETENTION_TOO_SHORT = "retention_too_short"
    STALE_LOCK_ENTRIES = "stale_lock_entries"
    LOCK_TABLE_UNUSABLE = "lock_table_unusable"
    UNSUPPORTED_FEATURE = "unsupported_feature"
    TABLE_NOT_FOUND = "table_not_found"
    TABLE_EXISTS = "table_exists"
    TABLE_REPLACED = "table_replaced"
    STORAGE = "storage"
    DATA_FILE_DAMAGED = "data_file_damaged"
    CORRUPT_LOG = "corrupt_log"
    COMMIT_UNKNOWN = "commit_unknown"
    FOREIGN_WRITER = "foreign_writer"
    MISSING_EXTRA = "missing_extra"
    INTERNAL = "internal"
    POSITION_MOVED = "position_moved"
    HISTORY_GAP = "history_gap"
    BRANCH_CHANGED = "branch_changed"


_DOCTOR = re.compile(r"`safewrite doctor[^`]*` on the table(?= |;|\.(?:\s|$))(?! (?:[a-z]+://|/))")


class SafewriteError(Exception):
    """Base of all errors of safewrite.

    ``kind`` is a stable code; ``key`` is the idempotency key of the write, where there is one.
    """

    default_kind = Kind.INTERNAL
    is_settled = False
    """Internal: it was met on the newest version, and no second plan is made."""

    def __init__(self, message: str, *, kind: Kind | None = None, key: str | None = None) -> None:
        message = masked(message)
        super().__init__(message)
        self.message = message
        self.kind = kind or self.default_kind
        self.key = key

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.kind, self.key, dict(self.__dict__)))

    def name_table(self, uri: object) -> None:
        """Say which table it is of, where the text sends its reader to that: a job has many."""
        self.message = _DOCTOR.sub(lambda found: f"{found[0]} {masked(str(uri))}", self.message)
        self.args = (self.message, *self.args[1:])


def _rebuild(
    cls: type[SafewriteError], message: str, kind: Kind, key: str | None, state: dict[str, Any]
) -> SafewriteError:
    error = cls(message, kind=kind, key=key)
    error.__dict__.update(state)
    return error


class NotCommittedError(SafewriteError):
    """Nothing of this write is in the table, and this attempt cannot land later."""

    default_kind = Kind.STORAGE


class WouldAlterError(NotCommittedError, ValueError):
    """The table's schema would change a value, drop a column or fill one with NULL."""

    default_kind = Kind.WOULD_ALTER


class InvalidInputError(NotCommittedError, ValueError):
    """Arguments, keys or data that cannot be written, or cannot be replayed.

    ``unordered`` are the keys and sequences of which a batch of changes has unequal rows, or other rows than the table.
    """

    default_kind = Kind.INVALID_INPUT
    unordered: tuple[dict[str, Any], ...] = ()


class ReplayMismatchError(NotCommittedError):
    """The key was committed before with other rows (or it cannot be shown that they are equal).

    ``version`` is the Delta version or Iceberg snapshot id that holds the earlier rows, where it is known;
    ``columns`` are those that differ, where the table's history tells.
    """

    default_kind = Kind.REPLAY_MISMATCH

    def __init__(
        self, message: str, *, kind: Kind | None = None, key: str | None = None, version: int | None = None
    ) -> None:
        super().__init__(message, kind=kind, key=key)
        self.version = version
        self.columns: tuple[str, ...] = ()


class ConflictError(NotCommittedError):
    """Another writer changed what this write depends on."""

    default_kind = Kind.CONFLICT


class HistoryGapError(ConflictError):
    """A table cannot be followed from a position: rows went since, or nothing tells any more what came.

    ``reason`` says why, as part of a sentence.
    """

    default_kind = Kind.HISTORY_GAP
    reason: str = ""


class RetriesExhaustedError(NotCommittedError):
    """The limit of attempts or of time was reached with nothing left in doubt."""

    default_kind = Kind.RETRIES_EXHAUSTED


class UnsafeConfigError(NotCommittedError, ValueError):
    """A setting or a store that allows silent loss."""

    default_kind = Kind.UNSAFE_OPTION


class UnsupportedTableError(NotCommittedError):
    """The table uses a writer feature that safewrite does not know."""

    default_kind = Kind.UNSUPPORTED_FEATURE


class TableNotFoundError(NotCommittedError, LookupError):
    """No table is at that address."""

    default_kind = Kind.TABLE_NOT_FOUND


class StorageError(NotCommittedError):
    """The environment (store, network, credentials) failed before anything was committed."""

    default_kind = Kind.STORAGE


class DataFileError(StorageError):
    """A data file that a plan reads is gone, or is not what the table says: raised only before a commit is tried."""

    default_kind = Kind.DATA_FILE_DAMAGED


class CommitUnknownError(SafewriteError):
    """The write may have landed.  The same key again, or ``table.resolve(key)``, decides.

    ``version`` is the version in doubt, where there is one: once the log has grown past it, the answer is certain.
    """

    default_kind = Kind.COMMIT_UNKNOWN

    def __init__(
        self, message: str, *, kind: Kind | None = None, key: str | None = None, version: int | None = None
    ) -> None:
        super().__init__(message, kind=kind, key=key)
        self.version = version


class ForeignWriterError(SafewriteError):
    """Bytes that we committed were replaced: another writer breaks the rules."""

    default_kind = Kind.FOREIGN_WRITER


class MissingExtraError(SafewriteError, ImportError):
    """An optional dependency is not installed; the message holds the pip command."""

    default_kind = Kind.MISSING_EXTRA

    @staticmethod
    def command(extras: str) -> str:
        """What to run for extras (``"cli,stress"``): pip with the packages that they name, for safewrite-lake is on no index.

        Whatever an index may have under that name is not this project; its extras come from its wheel.
        """
        from importlib.metadata import PackageNotFoundError, requires

        wanted = extras.split(",")
        try:
            listed = requires("safewrite-lake") or []
        except PackageNotFoundError:  # a layer, or a checkout on the path
            return f"pip install 'WHEEL[{extras}]', where WHEEL is the file safewrite_lake-VERSION-py3-none-any.whl"
        found = [text.partition(";") for text in listed]
        packages = [
            name.strip()
            for name, _, marker in found
            if any(f"extra == {quote}{one}{quote}" in marker for one in wanted for quote in "'\"")
        ]
        return "pip install " + " ".join(f"'{one}'" for one in dict.fromkeys(packages))


def not_committed(error: Exception, key: str | None = None) -> NotCommittedError:
    """An error of safewrite for what a library raised before anything was committed."""
    if isinstance(error, MemoryError):
        return StorageError(
            "There was not enough memory for this write. Nothing was committed by this call. Write fewer rows at once, or give the "
            "process more memory, and call again with the same key.",
            key=key,
        )
    return StorageError(
        f"{type(error).__name__}: {said(error)}. Nothing was committed by this call. If it was the environment, call again "
        "with the same key; else please report it.",
        key=key,
    )


def not_yet(what: str) -> TableNotFoundError:
    """The error for a question about a table that the first append will create."""
    return TableNotFoundError(
        f"There is no {what} yet. Nothing was written. The first append makes it, or safewrite.create() from a schema "
        "(changes need a table); if another writer made it since, call refresh()."
    )


class InternalError(SafewriteError):
    """An assertion of safewrite's own is broken; please report it."""

    default_kind = Kind.INTERNAL


# --- causes -------------------------------------------------------------------------------------------------
class HiddenCauseError(Exception):
    """Stands for a library's error whose text named a secret."""


def hide_causes(error: BaseException) -> None:
    """Replace the causes of an error that name a secret; their tracebacks stay."""
    seen: set[int] = set()
    while id(error) not in seen:
        seen.add(id(error))
        cause = error.__cause__ or error.__context__
        if cause is None:
            return
        told = _told(cause)
        if (hidden := masked(told)) != told:
            stand_in = HiddenCauseError(hidden).with_traceback(cause.__traceback__)
            stand_in.__cause__, stand_in.__context__ = cause.__cause__, cause.__context__
            stand_in.__suppress_context__ = cause.__suppress_context__
            was_cause, suppressed = error.__cause__ is not None, error.__suppress_context__
            error.__context__ = stand_in
            if was_cause:
                error.__cause__ = stand_in
            error.__suppress_context__ = suppressed
            cause = stand_in
        elif error.__cause__ is not None and error.__context__ is not error.__cause__:
            error.__context__ = error.__cause__  # the context is not shown; no text may be found in it either
        error = cause


def _told(error: BaseException) -> str:
    try:
        notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
        return f"{type(error).__name__}: {error}{notes} {error.args!r}"
    except Exception:  # noqa: BLE001 - an error of a library's, whose text may raise
        return type(error).__name__


def without_secrets(call: Callable[P, T]) -> Callable[P, T]:
    """Let no error leave a function whose causes name a secret; errors of safewrite mask their own texts."""

    @wraps(call)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except SafewriteError as error:
            hide_causes(error)
            raise

    return guarded
