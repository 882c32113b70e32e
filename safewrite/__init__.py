"""Commits to Delta and Iceberg tables without silent loss under parallel writers."""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from safewrite.errors import (
    CommitUnknownError,
    ConflictError,
    DataFileError,
    ForeignWriterError,
    HistoryGapError,
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
from safewrite.receipt import Outcome, Receipt
from safewrite.stores.events import Event
from safewrite.table.added_rows import AddedRows
from safewrite.table.history import CommittedWrite, HistoryEntry
from safewrite.text.masking import install as _mask
from safewrite.version import __version__ as __version__

if _TYPE_CHECKING:
    from safewrite.table.row_changes import ChangedRows, RowChanges
    from safewrite.table.verbs import Table
    from safewrite.tables import create

    # `safewrite.open` is the name users know; not in __all__, so that a star import leaves the built-in alone.
    from safewrite.tables import open as open  # noqa: A004 - exported for type checkers
    from safewrite.upkeep.report import MaintainReport

__all__ = [
    "AddedRows",
    "ChangedRows",
    "CommitUnknownError",
    "CommittedWrite",
    "ConflictError",
    "DataFileError",
    "Event",
    "ForeignWriterError",
    "HistoryEntry",
    "HistoryGapError",
    "InternalError",
    "InvalidInputError",
    "Kind",
    "MaintainReport",
    "MissingExtraError",
    "NotCommittedError",
    "Outcome",
    "Receipt",
    "ReplayMismatchError",
    "RetriesExhaustedError",
    "RowChanges",
    "SafewriteError",
    "StorageError",
    "Table",
    "TableNotFoundError",
    "UnsafeConfigError",
    "UnsupportedTableError",
    "WouldAlterError",
    "create",
]

_mask()


def __getattr__(name: str) -> object:
    """What brings pyarrow and numpy along: imported when it is first asked for, so that ``safewrite --help`` needs neither."""
    found: object
    if name in {"create", "open"}:
        found = getattr(_imported("tables"), name)
    elif name == "Table":
        found = _imported("table.verbs").Table
    elif name in {"ChangedRows", "RowChanges"}:
        found = getattr(_imported("table.row_changes"), name)
    elif name == "MaintainReport":
        found = _imported("upkeep.report").MaintainReport
    else:
        from safewrite.boundary.habits import of_attribute

        raise AttributeError(of_attribute("module 'safewrite'", name))
    globals()[name] = found
    return found


def _imported(module: str) -> _Any:
    """A module that brings libraries; those that are not there, or not for each other, are an error of safewrite."""
    try:
        return _import_module(f"safewrite.{module}")
    except MissingExtraError:
        raise
    except ImportError as error:
        raise MissingExtraError(
            f"A library that safewrite needs cannot be imported: {type(error).__name__}: {error}. Nothing was read or written. Install "
            "safewrite again, without --no-deps: pip then takes versions that go together (NumPy 1 needs pyarrow before 26)."
        ) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "open"})
