"""Bytes are read as ``json.loads`` reads them, whoever wrote them."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from safewrite.cdc.connect.json import parsed

_TEXT = '{"a": "Zoë 🦆", "n": 0.10000000000000000001, "b": [1e400, {}]}'


@pytest.mark.parametrize(
    "data",
    [
        *(_TEXT.encode(coding) for coding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")),
        b"{}", b"{", b"{\0", b"{\0}\0", b"[1.5]", b'"x"', b"", b" {}", b'{"a": "\xed\xa0\x80"}', b'{"a": "\xff"}', b'{"a": 1} x', b"{\xff}",
    ],
)  # fmt: skip
def test_bytes_are_read_as_the_library_reads_them(data: bytes) -> None:
    def read(parse: object) -> object:
        assert callable(parse)
        try:
            return parse(data)
        except ValueError as error:
            return type(error), str(error)

    assert read(parsed) == read(lambda given: json.loads(given, parse_float=Decimal))
