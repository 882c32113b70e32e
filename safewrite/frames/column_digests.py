"""Digests each column of a write, so that an error can name those that differ from an earlier write.

A digest is the sum of a column's cell hashes (``safewrite.frames.fingerprint``): it needs no order, and it does not
say which values stood in one row.  So it explains a mismatch and never decides whether there is one (decision 0024).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from functools import lru_cache

COLUMNS_MAX = 64
"""Wider rows have no digests: the history must stay short."""
_NAME_BYTES, _SUM_BYTES, _CHARS = 3, 3, 8  # 8 characters of base64, without padding
_SHIFT = 64 - 8 * _SUM_BYTES  # the high bits: the low ones of a constant column are zeros in 2^n rows


def packed(sums: Mapping[str, int]) -> str:
    """The digests of columns as one text, 8 characters each; empty where they are more than ``COLUMNS_MAX``.

    ``sums`` are of 64 bits.  A column that is NULL throughout sums to 0 and takes no part, as in a fingerprint.
    """
    some = {name: total for name, total in sums.items() if total}
    if len(some) > COLUMNS_MAX:
        return ""
    raw = (_name(name) + (total >> _SHIFT).to_bytes(_SUM_BYTES, "big") for name, total in some.items())
    return base64.urlsafe_b64encode(
        b"".join(raw)
    ).decode()  # a digest's bytes are a multiple of 3: no padding


def differing(first: str, again: str, names: Iterable[str]) -> list[str]:
    """Those of the columns whose digests differ between two writes."""
    one, other = _unpacked(first), _unpacked(again)
    return [name for name in names if one.get(_name(name)) != other.get(_name(name))]


def lacking(first: str, names: Iterable[str]) -> int:
    """How many columns the first write had that are not among the names."""
    return len(_unpacked(first).keys() - {_name(name) for name in names})


@lru_cache(maxsize=1024)
def _name(name: str) -> bytes:
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_NAME_BYTES).digest()


def _unpacked(text: str) -> dict[bytes, bytes]:
    parts = (base64.urlsafe_b64decode(text[at : at + _CHARS]) for at in range(0, len(text), _CHARS))
    return {part[:_NAME_BYTES]: part[_NAME_BYTES:] for part in parts}
