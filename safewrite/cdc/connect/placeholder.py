"""Recognises the value that Debezium puts where PostgreSQL left out an unchanged one (TOAST), whatever its column's type.

Source: ``UnchangedToastedPlaceholder`` and ``handleUnknownData`` of Debezium's connector for PostgreSQL.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from safewrite.cdc.records.change import AmbiguousError
from safewrite.values.limits import DECIMAL_DIGITS_MAX

UNAVAILABLE_TEXT = "__debezium_unavailable_value"
"""Debezium's default of ``unavailable.value.placeholder``."""


class Placeholder:
    """The placeholder of one setting, in each form that it has.

    A text, bytes, hstore as a map and as JSON; a list of one text, of one text of bytes, of one UUID; and a list with one
    number for each of the placeholder's bytes, where its items are whole, binary or decimal numbers.
    """

    def __init__(self, text: str = UNAVAILABLE_TEXT) -> None:
        raw = bytes.fromhex(text.removeprefix("hex:")) if text.startswith("hex:") else text.encode()
        text = raw.decode("utf-8", "replace")
        coded = base64.b64encode(raw).decode()
        self.raw = raw
        self.texts = frozenset((text, coded, f'{{"{text}":"{text}"}}'))
        self._lists: tuple[list[Any], ...] = ([text], [coded], [raw], [str(_name_uuid(raw))])
        self._map = {text: text}
        self._signed = [byte - 256 if byte > 127 else byte for byte in raw]
        self._flags = [byte != 0 for byte in raw]

    def stands_in(self, value: Any) -> bool:
        """Whether a value, as it came, is the placeholder.

        Raises:
            AmbiguousError: it is a list of booleans that may be the placeholder or a value.
        """
        if isinstance(value, str):
            return value in self.texts
        if isinstance(value, bytes):
            return value == self.raw
        if isinstance(value, list):
            return bool(value) and (value in self._lists or self._is_of_bytes(value))
        return isinstance(value, dict) and value == self._map

    def may_stand_in(self, value: Any) -> bool:
        """Whether a value is the placeholder, or may be."""
        try:
            return self.stands_in(value)
        except AmbiguousError:
            return True

    def _is_of_bytes(self, value: Sequence[Any]) -> bool:
        """Whether a list has the placeholder's bytes, one for each item."""
        if len(value) != len(self.raw):
            return False
        if all(isinstance(one, bool) for one in value):
            if value == self._flags:
                raise AmbiguousError(
                    f"a list of {len(value)} booleans, all of them true, is what Debezium puts where PostgreSQL left out an unchanged "
                    "boolean[], and may be a value too; set REPLICA IDENTITY FULL for the table, or leave_out the column"
                )
            return False
        numbers = [_number(one) for one in value]
        if any(one is None for one in numbers):
            return False
        # A list of numeric(p, s) has its items at that scale: they are the bytes, each by the same power of ten.
        return any(
            all(
                number == Decimal(byte).scaleb(-scale)
                for number, byte in zip(numbers, self._signed, strict=True)
            )
            for scale in (range(DECIMAL_DIGITS_MAX + 1) if isinstance(value[0], Decimal) else (0,))
        )


def _number(value: Any) -> Decimal | int | float | None:
    """The number of an item; None for what is none.  Decimals are base64 of two's complement, or a struct with their scale."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float | Decimal):
        return value
    if isinstance(value, Mapping) and set(value) == {"scale", "value"} and value["scale"] == 0:
        value = value["value"]
    if isinstance(value, str) and len(value) == 4:  # one byte
        try:
            value = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            return None
    return int.from_bytes(value, "big", signed=True) if isinstance(value, bytes) and len(value) == 1 else None


def _name_uuid(raw: bytes) -> uuid.UUID:
    """Java's ``UUID.nameUUIDFromBytes``: version 3 without a namespace."""
    return uuid.UUID(bytes=hashlib.md5(raw, usedforsecurity=False).digest(), version=3)
