"""Commits to Delta and Iceberg tables without silent loss under parallel writers."""

from __future__ import annotations

import logging as _logging

from safewrite.errors import (
    CommitUnknownError,
    ConflictError,
    DataFileError,
    ForeignWriterError,
    InternalError,
    InvalidInputError,
    Kind,
    MissingExtraError,
    NotCommittedError,
    ReplayMismatchError,
    RetriesExhaustedError,
    SafewriteError,
    StorageError,
    TableNotFoundError,
    UnsafeConfigError,
    UnsupportedTableError,
    WouldAlterError,
)
from safewrite.history import CommittedWrite, HistoryEntry
from safewrite.masking import install as _mask
from safewrite.receipt import Outcome, Receipt
from safewrite.stores.events import Event
from safewrite.table import Table
from safewrite.tables import create

# `safewrite.open` is the name users know; not in __all__, so that a star import leaves the built-in alone.
from safewrite.tables import open as open  # noqa: A004 - exported for type checkers
from safewrite.version import __version__ as __version__

__all__ = [
    "CommitUnknownError",
    "CommittedWrite",
    "ConflictError",
    "DataFileError",
    "Event",
    "ForeignWriterError",
    "HistoryEntry",
    "InternalError",
    "InvalidInputError",
    "Kind",
    "MissingExtraError",
    "NotCommittedError",
    "Outcome",
    "Receipt",
    "ReplayMismatchError",
    "RetriesExhaustedError",
    "SafewriteError",
    "StorageError",
    "Table",
    "TableNotFoundError",
    "UnsafeConfigError",
    "UnsupportedTableError",
    "WouldAlterError",
    "create",
]

_logging.getLogger("safewrite").addHandler(_logging.NullHandler())
_mask()
