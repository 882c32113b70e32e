"""Renders what others made as text: a caller's object, or a library's error, which may itself raise."""

from __future__ import annotations

from collections.abc import Callable

_maskers: list[Callable[[str], str]] = []


def mask_with(masker: Callable[[str], str]) -> None:
    """Pass all texts of errors through a function that takes secrets out; it is given once, when safewrite is imported."""
    _maskers[:] = [masker]


def masked(text: str) -> str:
    """A text without secrets, as far as they are known."""
    for masker in _maskers:
        text = masker(text)
    return text


def shown(value: object, most: int = 80) -> str:
    """An object as text, in at most this many letters; its type where it cannot be shown."""
    try:
        return masked(encodable(repr(value)))[:most]
    except Exception:  # noqa: BLE001 - whatever its repr raises: the message is about something else
        return f"<{kind(value)}, which cannot be shown>"


def shortened(text: str, most: int = 4096) -> str:
    """A text of at most about so many letters; of a longer one its beginning, and how long it is."""
    return text if len(text) <= most else f"{text[:most]} ... ({len(text)} letters)"


def said(error: BaseException) -> str:
    """The text of an error, which may have none, or raise when asked for it."""
    try:
        return masked(encodable(str(error)))
    except Exception:  # noqa: BLE001 - as above
        return "(it has no text)"


def kind(value: object) -> str:
    """The type of an object, by its full name where that can be had."""
    try:
        return f"{type(value).__module__}.{type(value).__qualname__}"
    except Exception:  # noqa: BLE001 - as above
        return "object"


def encodable(text: str) -> str:
    """A text that can be printed and logged everywhere; of a subclass only its letters."""
    return str.__str__(text).encode(errors="backslashreplace").decode()
