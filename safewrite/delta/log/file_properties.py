"""What a table's properties say of its data files: their compression, and their size.

Source: Delta's ``DeltaConfigs``.  On a table of another engine a value that safewrite does not write by counts as absent: readers take
files of each compression and size.  ``create`` refuses such a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

Compression = Literal["zstd", "snappy", "gzip", "lz4", "none"]

CODEC = "delta.parquet.compression.codec"
TARGET = "delta.targetFileSize"
TARGET_BYTES = 128 * 2**20

_CODECS: Mapping[str, Compression] = {
    "snappy": "snappy", "zstd": "zstd", "gzip": "gzip", "lz4_raw": "lz4", "none": "none", "uncompressed": "none"
}  # fmt: skip
_SIZE = re.compile(r"([0-9]{1,18})\s*([kmgt]?)b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def compression(properties: Mapping[str, str]) -> Compression:
    """How the columns of data files are compressed."""
    return _CODECS.get(properties.get(CODEC, "").strip().lower(), "snappy")


def target_bytes(properties: Mapping[str, str], given: int | None = None) -> int:
    """The bytes after which another data file begins; the caller's, where he gave a number."""
    return given or _bytes(properties.get(TARGET, "")) or TARGET_BYTES


def why_no_codec(value: str) -> str | None:
    """Why a value cannot be the compression of a new table, or None."""
    known = value.strip().lower() in _CODECS
    return None if known else f"safewrite writes files with one of {', '.join(_CODECS)}"


def why_no_size(value: str) -> str | None:
    """Why a value cannot be the size of a new table's files, or None."""
    return None if _bytes(value) else "it is a number of bytes such as 134217728 or '128mb'"


def _bytes(text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    return int(found[1]) << _POWERS[found[2].lower()] if found is not None else 0
