"""Reads what callers of a pipeline give: lists of names, and times."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping

from safewrite.errors import InvalidInputError


def texts(name: str, given: object) -> list[str]:
    """A list of texts, and no text, whose letters would be taken one by one.  Raises InvalidInputError."""
    found = (
        list(given) if isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping) else None
    )
    if found is None or not all(isinstance(one, str) for one in found):
        raise InvalidInputError(
            f"{name}= is a list of texts, such as ['shop.orders'], not {given!r}. Nothing was written."
        )
    return found


def milliseconds(at: object) -> int:
    try:
        found = dt.datetime.fromisoformat(at) if isinstance(at, str) else at
    except ValueError:
        found = None
    if not isinstance(found, dt.datetime):
        raise InvalidInputError(
            f"A replay begins at a time of ISO 8601, such as 2026-11-23T08:00:00Z, or a datetime, not {at!r}. Nothing was written."
        )
    return int((found if found.tzinfo else found.replace(tzinfo=dt.UTC)).timestamp() * 1000)
