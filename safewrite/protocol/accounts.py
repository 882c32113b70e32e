"""Compares the rows that a commit adds with those that its plan says, before it is tried.

An engine that reads a file twice, or leaves one out, writes files that are sound by themselves: Spark's copy-on-write once
doubled a whole Iceberg table so (apache/iceberg issue 18004).
"""

from __future__ import annotations

from collections.abc import Iterable

from safewrite.errors import InternalError


def check_added(counts: Iterable[int | None], new: int, kept: int | None, key: str) -> None:
    """Compare the rows of all files that a commit adds with the ``new`` ones and those ``kept`` of files that it replaces.

    A file or a plan that does not say its number (None) leaves nothing to compare.

    Raises:
        InternalError: they differ; nothing was committed.
    """
    known = list(counts)
    if kept is None or None in known:
        return
    added = sum(count for count in known if count is not None)
    if added != new + kept:
        raise InternalError(
            f"The commit would add files with {added} rows, and by its plan {new} are new and {kept} stay of files that it "
            "replaces. Nothing was committed. Call again with the same key, and please report it.",
            key=key,
        )
