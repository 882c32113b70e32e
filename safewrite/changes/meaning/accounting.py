"""Checks what a batch of changes would do to a table, before it is committed."""

from __future__ import annotations

from safewrite.changes.meaning.decide import Decision
from safewrite.changes.meaning.spec import Spec
from safewrite.errors import InternalError, InvalidInputError, SafewriteError


def check_result(spec: Spec, decision: Decision, rows: object) -> None:
    """Refuse a batch whose every change is late, unless ``all_late`` allows it, and what the caller's check refuses.

    ``rows`` are those that the commit would write, for the check: a table of Arrow, or Spark's frame of them.

    Raises:
        InvalidInputError: it looks like a source that counts from the start again, or the check raised something.
        SafewriteError: the check raised it.
    """
    counts = decision.counts
    late = counts.late
    if spec.all_late == "error" and late and late == counts.changes:
        raise InvalidInputError(
            f"Every change of this call ({late} in all) is older than the row that the table has of its key. If the source was set back "
            "(restored, failed over, read anew), its changes are newer in fact, and would be lost in silence. Nothing was written. "
            "If the source was set back, put a number that grows with each such event (an epoch) first in sequence_by=. If it "
            "delivers late or out of order, pass all_late='count'."
        )
    if spec.check is None:
        return
    try:
        spec.check(rows, counts.to_dict())
    except SafewriteError:
        raise
    except Exception as error:
        raise InvalidInputError(
            f"check= refused what the commit would write: {type(error).__name__}: {error}. Nothing was written. Correct the "
            "batch, or the check."
        ) from error


def check_accounts(decision: Decision, added: int, removed: int | None) -> None:
    """Compare what a commit removes and adds with what was decided, before it is committed.

    Spark's copy-on-write once doubled a whole table so (apache/iceberg issue 18004).

    Raises:
        InternalError: they differ.
    """
    counts = decision.counts
    if removed is not None and removed != len(decision.dropped):
        raise InternalError(
            f"The commit would remove {removed} rows, and the changes say {len(decision.dropped)}. Nothing was committed. Please "
            "report it."
        )
    if added != counts.inserted + counts.updated:
        raise InternalError(
            "The commit would add other rows than the changes say. Nothing was committed. Please report it."
        )
