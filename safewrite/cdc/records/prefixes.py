"""Remembers what precedes the payloads of JSON records: their schema, which is most of a record and the same in almost all.

Connect's JSON converter writes ``{"schema":{...},"payload":...}``.  The bytes before a payload are compared, and the schema
in them is read once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
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
    """The prefixes of keys, or of values, that were met."""

    def __init__(self) -> None:
        self._known: dict[bytes, Prefix] = {}
        """By their bytes; the one that was met last is last."""

    def __iter__(self) -> Iterator[Prefix]:
        """The one that was met last is first."""
        return iter([*reversed(self._known.values())])

    def newest(self, most: int) -> Sequence[bytes]:
        """The bytes of those that were met last."""
        return [*islice(reversed(self._known), most)]

    def meet(self, met: Prefix) -> None:
        """Put one first."""
        self._known.pop(met.data, None)
        self._known[met.data] = met
        if len(self._known) > _KNOWN_MAX:
            del self._known[next(iter(self._known))]

    def of(self, data: bytes) -> Prefix | None:
        """The prefix whose bytes these are."""
        return self._known.get(data) or self.learn(data + b"null}")

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
