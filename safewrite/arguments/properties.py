"""Checks what a caller wants the table's history to say of a commit."""

from __future__ import annotations

from typing import Any

from safewrite.arguments.options import settings
from safewrite.errors import InvalidInputError
from safewrite.text.rendering import shown

_TAKEN = frozenset(
    [
        "timestamp",
        "inCommitTimestamp",
        "operation",
        "operationParameters",
        "operationMetrics",
        "isBlindAppend",
        "engineInfo",
        "txnId",
        "readVersion",
        "isolationLevel",
        "userId",
        "userName",
        "clusterId",
        "clientVersion",
        "job",
        "notebook",
        "tags",
        "changed-partition-count",
        "partition-summaries-included",
        "manifests-created",
        "manifests-kept",
        "manifests-replaced",
        "entries-processed",
    ]
)
"""Fields of Delta's ``commitInfo`` and of Iceberg's snapshot summary that engines write and read."""
_PREFIXES = ("safewrite", "added-", "deleted-", "removed-", "total-", "partitions.", "spark.", "iceberg")


def is_free(name: str) -> bool:
    """Whether a caller may give the name to a property, for engines give it no meaning."""
    return name not in _TAKEN and bool(name.strip()) and not name.lower().startswith(_PREFIXES)


def checked(properties: Any) -> dict[str, str]:
    """The properties as texts; {} where there are none.

    Raises:
        InvalidInputError: they are no mapping of texts, or one has a name that engines give a meaning.
    """
    found = settings("properties", properties) or {}
    for name in found:
        if not is_free(name):
            raise InvalidInputError(
                f"properties= has {shown(name)}, a name that engines or safewrite give a meaning in the history. Nothing was "
                "written. Give it a prefix of your own, such as 'etl.'."
            )
    return found
