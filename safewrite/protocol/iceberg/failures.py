"""Words each failure of a catalog's compare-and-set: what happened, what is safe, what to do next."""

from __future__ import annotations

from safewrite.errors import (
    CommitUnknownError,
    ConflictError,
    ForeignWriterError,
    Kind,
    RetriesExhaustedError,
    TableNotFoundError,
)
from safewrite.protocol.ask import unanswered
from safewrite.protocol.effects import Busy, Effect, Exists, Outcome


def undecided(swap: Effect, outcome: Outcome, in_doubt: bool) -> Exception:
    """The error for a change that was given up while its base still was the table."""
    if in_doubt:
        return CommitUnknownError(
            "The catalog did not say whether the commit landed, and its metadata does not tell. The rows "
            "may be, or become, part of the table; no file was deleted. Call again with the same key, or "
            "resolve(key), to decide."
        )
    if isinstance(outcome, Exists | Busy):
        return RetriesExhaustedError(
            "The catalog refused the commit again and again, though its base is still the table: other writers "
            "keep changing the table's properties, or the catalog is overloaded. Nothing was committed. Call "
            "again with the same key."
        )
    return unanswered(swap, outcome)


def unaccounted() -> Exception:
    """The error for snapshots since the last look that are gone from every metadata that can be read."""
    return CommitUnknownError(
        "Snapshots were expired while this write was under way, and the metadata that would show them is gone: "
        "another attempt with the same key may have landed among them. No file was deleted. Call again with the "
        "same key to decide; keep snapshots and old metadata for longer than a write takes."
    )


def gone(in_doubt: bool) -> Exception:
    """The error for a table that is not there under its name any more."""
    if in_doubt:
        return CommitUnknownError(
            "The catalog did not say whether the commit landed, and the table is not there under its name any "
            "more: it was dropped or renamed. No file was deleted. Look for the table, then call again with "
            "the same key."
        )
    return TableNotFoundError(
        "The table was dropped or renamed while this write was under way. Nothing was committed. Look for "
        "the table, then call again with the same key."
    )


def replaced(*, in_doubt: bool) -> Exception:
    """The error for a name that another table has now."""
    text = (
        "The table that was open here was dropped and created anew: nothing of this call is in the new table. Open it again, "
        "and look at the table before you write."
    )
    if in_doubt:
        text += " What this call was to do may have been part of the dropped one."
    return ConflictError(text, kind=Kind.TABLE_REPLACED)


def begun_again() -> Exception:
    """The error for a branch that was dropped, or dropped and begun again."""
    return ConflictError(
        "The branch was dropped while this table was open on it: its rows are in no branch any more, and nothing of this call was "
        "committed. Open the table on the branch again, which begins it at the main branch, and write again what is to be there.",
        kind=Kind.BRANCH_CHANGED,
    )


def rolled_back() -> Exception:
    """The error for a change that landed and was taken back."""
    return ForeignWriterError(
        "The commit landed, and another writer rolled the table back past it before it could be "
        "acknowledged. The rows are not in the current table. Find out who rolled it back; call again with "
        "the same key to write them again."
    )


def clobbered() -> Exception:
    """The catalog acknowledged a commit that is not in the table."""
    return ForeignWriterError(
        "The catalog accepted the commit, and its snapshot is not in the table's history: the catalog does "
        "not compare before it sets, or another writer replaces metadata without it. The rows of this write "
        "may be lost, and those of others. Stop the other writers and check the catalog."
    )
