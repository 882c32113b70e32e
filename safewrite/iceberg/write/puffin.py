"""Writes and reads a Puffin file of one blob, which Iceberg registers as statistics of a snapshot, or which is a deletion vector.

Orphan removal of all engines knows such files and leaves them.  Source: the Puffin specification of Apache Iceberg.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_MAGIC = b"PFA1"
_SIZES = 4
OFFSET = len(_MAGIC)
"""Where the blob begins."""


@dataclass(frozen=True, slots=True)
class Puffin:
    """The bytes of a file, and how many of them are its footer."""

    body: bytes
    footer_bytes: int


def encoded(
    blob: bytes,
    kind: str,
    snapshot_id: int,
    sequence: int,
    *,
    fields: Sequence[int] = (),
    properties: Mapping[str, str] | None = None,
) -> Puffin:
    """A file of one blob of a type, about some fields and with properties of its own."""
    described = {
        "type": kind,
        "fields": [*fields],
        "snapshot-id": snapshot_id,
        "sequence-number": sequence,
        "offset": OFFSET,
        "length": len(blob),
        **({"properties": properties} if properties else {}),
    }
    said = json.dumps({"blobs": [described], "properties": {"created-by": "safewrite"}}).encode()
    footer = _MAGIC + said + len(said).to_bytes(_SIZES, "little") + bytes(_SIZES) + _MAGIC
    return Puffin(_MAGIC + blob + footer, len(footer))


def decoded(body: bytes) -> bytes:
    """The blob of a file that :func:`encoded` made.

    Raises:
        ValueError: it is none.
    """
    end = len(body) - len(_MAGIC) - _SIZES
    size = int.from_bytes(body[end - _SIZES : end], "little")
    if body[:4] != _MAGIC or body[-4:] != _MAGIC or size > len(body):
        raise ValueError("it is no Puffin file")
    (blob,) = json.loads(body[end - _SIZES - size : end - _SIZES])["blobs"]
    found = body[blob["offset"] : blob["offset"] + blob["length"]]
    if len(found) != blob["length"]:
        raise ValueError("it is cut off")
    return found
