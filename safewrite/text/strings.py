"""Looks at texts that callers give: a subclass of str may show or compare as another text."""

from __future__ import annotations

from typing import TypeGuard


def is_text(value: object) -> TypeGuard[str]:
    """Whether a value is a text, without asking the value itself."""
    return issubclass(type(value), str)


def plain(text: str) -> str:
    """The letters of a text: a subclass of str (an enum) may show or compare as another text."""
    return str.__str__(text)


def is_storable(text: str) -> bool:
    """Whether other engines can read a text, wherever it is stored: it has no half of a pair, and no NUL."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False
