"""No silent loss under parallel writers of lake tables."""

from __future__ import annotations

import logging as _logging

from safewrite.errors import (
    CommitUnknownError,
    ConflictError,
    ForeignWriterError,
    InternalError,
    InvalidInputError,
    Kind,
    LeaseLostError,
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
from safewrite.receipt import Outcome, Receipt
from safewrite.table import Table
from safewrite.tables import create, open  # noqa: A004 - `safewrite.open` is the name users know
from safewrite.version import __version__ as __version__

__all__ = [
    "CommitUnknownError",
    "ConflictError",
    "ForeignWriterError",
    "InternalError",
    "InvalidInputError",
    "Kind",
    "LeaseLostError",
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
    "open",
]

_logging.getLogger("safewrite").addHandler(_logging.NullHandler())
