"""Remembers what precedes the payloads of JSON records: their schema, which is most of a record and the same in almost all.

Connect's JSON converter writes ``{"schema":{...},"payload":...}``.  The bytes before a payload are compared, and the schema
in them is read once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

_FIRST, _THEN = '{"schema":', ',"payload":'
WITH_SCHEMA = _FIRST.encode()
"""How what has its schema around it begins."""
_KNOWN_MAX = 256
NUMBERS_AS_WRITTEN = json.JSONDecoder(parse_float=Decimal)
"""A number with a point is kept as it is written: a decimal column has more digits than a binary number."""


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """The bytes before a payload, and the schema in them."""

    data: bytes
    schema: dict[str, Any]


class Prefixes:
    """The prefixes of keys, or of values, that were met; the one that was met last is first."""

    def __init__(self) -> None:
        self._known: list[Prefix] = []

    def __iter__(self) -> Iterator[Prefix]:
        return iter(self._known)

    def newest(self, most: int) -> Sequence[bytes]:
        """The bytes of those that were met last."""
        return [one.data for one in self._known[:most]]

    def meet(self, met: Prefix) -> None:
        """Put one first."""
        if self._known[:1] != [met]:
            self._known = [met, *(one for one in self._known if one is not met)][:_KNOWN_MAX]

    def of(self, data: bytes) -> Prefix | None:
        """The prefix whose bytes these are."""
        for known in self._known:
            if known.data == data:
                return known
        return self.learn(data + b"null}")

    def learn(self, data: bytes) -> Prefix | None:
        """The prefix of a record; None where another converter wrote it, with spaces or in another order.

        Raises:
            ValueError, RecursionError: it is not JSON, or too deep.
        """
        text = data.decode("utf-8", "replace")
        if not text.startswith(_FIRST + "{"):
            return None
        schema, end = NUMBERS_AS_WRITTEN.raw_decode(text, len(_FIRST))
        if not text.startswith(_THEN, end):
            return None
        before = text[: end + len(_THEN)].encode()
        if not data.startswith(before):  # a character was replaced
            return None
        made = Prefix(before, schema)
        self.meet(made)
        return made
