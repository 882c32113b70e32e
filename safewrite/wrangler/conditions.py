"""Says by ``where=`` which rows of the table a frame replaces: those with its partition values, or with its keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import safewrite as sw
from safewrite.wrangler.columns import Columns, values

KEYS_MAX = 100_000
"""How many keys or partitions of one column one call may replace: each row is looked up among them."""
PAIRS_MAX = 1_000
"""How many of several columns; each is compared with each row of the files it may be in."""

Condition = list[tuple[str, str, Any]] | list[list[tuple[str, str, Any]]]


def by_partition(columns: Columns, partition_cols: Sequence[str]) -> Condition:
    """The rows in the partitions that the frame has rows of; NULL is a partition as any other.

    Raises:
        InvalidInputError: too many partitions, or a name that is not a column of the frame.
    """
    found = _distinct(columns, partition_cols, "partition_cols")
    rows = list(dict.fromkeys(found))
    _check_count(rows, "partitions", partition_cols)
    return _one_of(partition_cols, rows)


def by_key(columns: Columns, merge_cols: Sequence[str]) -> Condition:
    """The rows with the keys of the frame.

    Raises:
        InvalidInputError: a key that is NULL or a float, that the frame has twice, or too many of them.
    """
    rows = _distinct(columns, merge_cols, "merge_cols")
    _check_count(rows, "keys", merge_cols)
    seen = set()
    for row in rows:
        if any(value is None or isinstance(value, float) for value in row):
            raise sw.InvalidInputError(
                f"merge_cols={list(merge_cols)} has the key {_shown(row)}: NULL equals nothing, and fractions are no keys. "
                "Nothing was written. Fill or drop such rows; whole numbers with gaps go by dtype={'id': 'bigint'}."
            )
        if row in seen:
            raise sw.InvalidInputError(
                f"merge_cols={list(merge_cols)} has the key {_shown(row)} in two rows, and which one is to stay is not "
                "said. Nothing was written. Keep one: df.drop_duplicates(merge_cols, keep='last')."
            )
        seen.add(row)
    return _one_of(merge_cols, rows)


def _distinct(columns: Columns, names: Sequence[str], argument: str) -> list[tuple[Any, ...]]:
    lacking = [name for name in names if name not in columns]
    if lacking:
        raise sw.InvalidInputError(
            f"{argument}= names {lacking[0]!r}, which is no column of the frame. Nothing was written. Name columns, not "
            f"transforms: {sorted(map(str, columns))}."
        )
    rows = list(zip(*(values(columns[name]) for name in names), strict=True))
    try:
        hash(tuple(rows))
    except TypeError as error:
        raise sw.InvalidInputError(
            f"{argument}={list(names)} has lists or dicts, which cannot be compared. Nothing was written. Name other columns."
        ) from error
    return rows


def _check_count(rows: Sequence[Any], what: str, names: Sequence[str]) -> None:
    most = KEYS_MAX if len(names) == 1 else PAIRS_MAX
    if len(rows) > most:
        raise sw.InvalidInputError(
            f"The frame has {len(rows)} {what}; one call replaces at most {most} of {len(names)} "
            f"column{'s' * (len(names) > 1)}. Nothing was written. Write it in "
            "several calls, or say by a condition what goes: safewrite.open(...).overwrite(df, where=...)."
        )


def _one_of(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> Condition:
    """The condition in one order, whatever the order of the rows: a repeat is known by its text."""
    rows = sorted(
        rows, key=lambda row: [(value is not None, type(value).__name__, str(value)) for value in row]
    )
    if len(names) > 1:
        return [[(name, "=", value) for name, value in zip(names, row, strict=True)] for row in rows]
    found = [row[0] for row in rows if row[0] is not None]
    alternatives: list[list[tuple[str, str, Any]]] = [[(names[0], "in", found)]] if found else []
    if len(found) < len(rows):
        alternatives.append([(names[0], "=", None)])
    return alternatives


def _shown(row: tuple[Any, ...]) -> str:
    return ", ".join(map(repr, row))[:80]
