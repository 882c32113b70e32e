"""Limits texts in columns that Spark declared as CHAR(n) or VARCHAR(n).

Such a column is a string of every format; the declaration is in the field's metadata, and every engine that knows
it checks what it writes (Spark's CharVarcharUtils).  Spark pads a CHAR with spaces, which would be another value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

DECLARED = "__CHAR_VARCHAR_TYPE_STRING"
"""The metadata key of the declared type."""
_SIMPLE = re.compile(r"(char|varchar)\((\d+)\)", re.IGNORECASE)
_INSIDE = re.compile(r"\b(char|varchar)\s*\(", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TextLimit:
    """Texts of at most ``length`` characters; of exactly that many if they would be ``padded``."""

    length: int
    padded: bool

    def __str__(self) -> str:
        return f"{'char' if self.padded else 'varchar'}({self.length})"


def limit_of(field: pa.Field) -> TextLimit | None:
    """The limit of a column's texts, if it was declared with one."""
    match = _SIMPLE.fullmatch(declared(field).strip())
    return None if match is None else TextLimit(int(match[2]), padded=match[1].lower() == "char")


def is_nested(text: str) -> bool:
    """Whether a declared type has limits somewhere inside."""
    return bool(_INSIDE.search(text)) and not _SIMPLE.fullmatch(text.strip())


def declared(field: pa.Field) -> str:
    """The type of a column as it was declared; "" if that is not on record."""
    metadata = field.metadata or {}
    found: bytes = metadata.get(DECLARED.encode(), b"")
    return found.decode()
