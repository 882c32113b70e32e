"""Makes a source's position comparable: a text of fixed width that orders changes of one key byte by byte.

The parts of a position are padded numbers, the most significant first.  Kafka's offset comes last, as the
tie-breaker between changes that the source does not tell apart; it means something within one partition only, and
that is where all changes of a key are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from safewrite.cdc.records.change import UndecodableError

OFFSET_WIDTH = 20
LOWEST = ""
"""The position of a row of a full load that has none: it comes before every change."""


def with_offset(core: str, offset: int) -> str:
    """A position with Kafka's offset behind it.  ``LOWEST`` stays below all others."""
    return f"{core}-{offset:0{OFFSET_WIDTH}d}"  # "-" sorts before all digits


def or_none(read: Callable[..., str], *given: Any) -> tuple[str, str | None]:
    """A position and None, or ``LOWEST`` and why there is none: a table may be ordered by columns of its rows."""
    try:
        return read(*given), None
    except UndecodableError as error:
        return LOWEST, str(error)


def padded(value: Any, width: int, name: str) -> str:
    """A whole number with zeros in front."""
    try:
        number = int(value) if type(value) in {int, str} else -1
    except (TypeError, ValueError):
        number = -1
    if number < 0 or len(str(number)) > width:
        raise UndecodableError(f"the event has no {name} that orders it, but {value!r}")
    return f"{number:0{width}d}"
