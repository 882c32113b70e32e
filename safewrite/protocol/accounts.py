"""Compares the rows that a commit adds with those that its plan says, before it is tried.

An engine that reads a file twice, or leaves one out, writes files that are sound by themselves: Spark's copy-on-write once
doubled a whole Iceberg table so (apache/iceberg issue 18004).
"""

from __future__ import annotations

from collections.abc import Iterable

from safewrite.errors import InternalError


def total(counts: Iterable[int | None]) -> int | None:
    """The sum of the rows of files; None where one does not say how many it has."""
    known = list(counts)
    return None if None in known else sum(count for count in known if count is not None)


def check_added(counts: Iterable[int | None], new: int, kept: int | None, key: str) -> None:
    """Compare the rows of all files that a commit adds with the ``new`` ones and those ``kept`` of files that it replaces.

    A file or a plan that does not say its number (None) leaves nothing to compare.

    Raises:
        InternalError: they differ; nothing was committed.
    """
    added = total(counts)
    if kept is not None and added is not None and added != new + kept:
        raise InternalError(
            f"The commit would add files with {added} rows, and by its plan {new} are new and {kept} stay of files that it "
            "replaces. Nothing was committed. Call again with the same key, and please report it.",
            key=key,
        )
