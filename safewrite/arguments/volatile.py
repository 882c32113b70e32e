"""Checks ``volatile=``: the columns that a caller makes in each attempt, such as a load time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from safewrite.arguments.options import texts
from safewrite.errors import InvalidInputError
from safewrite.text.rendering import shown
from safewrite.text.strings import is_storable, plain

NAMES_BYTES_MAX = 1024
"""The names are recorded with each write, in its table's history."""


def given(value: Any) -> tuple[str, ...]:
    """The names in order, each once; () for None.

    Raises:
        InvalidInputError: it is no list of texts, or too long a one.
    """
    names = () if value is None else texts("volatile", value)
    found = tuple(sorted({plain(name) for name in names}))
    if not all(map(is_storable, found)) or sum(len(name.encode()) for name in found) > NAMES_BYTES_MAX:
        raise InvalidInputError(
            f"volatile= is a list of column names of at most {NAMES_BYTES_MAX} bytes together, not {shown(value)}. Nothing was "
            "written. Name the few columns that are made in each attempt."
        )
    return found


def check_columns(volatile: Sequence[str], columns: Sequence[str], present: Sequence[str]) -> None:
    """Refuse what cannot be left out; ``present`` are those of the columns that the data have.

    Raises:
        InvalidInputError: a name is no column, or no column would be left.
    """
    there = frozenset(columns)
    for name in volatile:
        if name not in there:
            raise InvalidInputError(
                f"volatile= names {name!r}, which is no column. Nothing was written. Columns: {list(columns)}."
            )
    if volatile and not set(present or columns) - set(volatile):
        raise InvalidInputError(
            "volatile= names all columns of the data, so nothing would be left by which a repeat is known. Nothing was "
            "written. Name only the columns that are made in each attempt."
        )


def check_where(volatile: Collection[str], columns: Collection[str]) -> None:
    """Refuse a condition on a column that differs in each attempt.

    Raises:
        InvalidInputError: one of the columns is volatile.
    """
    both = sorted(set(volatile) & set(columns))
    if both:
        raise InvalidInputError(
            f"where= is on {both[0]!r}, which volatile= names: a repeat would replace other rows. Nothing was written. "
            "Leave it out of one of them."
        )
