"""Writes Puffin files: of one blob, which Iceberg registers as statistics of a snapshot, or of deletion vectors; and reads the first.

Orphan removal of all engines knows such files and leaves them.  Source: the Puffin specification of Apache Iceberg.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

_MAGIC = b"PFA1"
_SIZES = 4


@dataclass(frozen=True, slots=True)
class Blob:
    """One blob of a type, about some fields and with properties of its own."""

    body: bytes
    kind: str
    snapshot_id: int
    sequence: int
    fields: Sequence[int] = ()
    properties: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Puffin:
    """The bytes of a file, how many of them are its footer, and where each blob begins."""

    body: bytes
    footer_bytes: int
    offsets: tuple[int, ...]


def encoded(blobs: Sequence[Blob]) -> Puffin:
    """A file of blobs, one after another."""
    offsets = tuple(accumulate((len(one.body) for one in blobs[:-1]), initial=len(_MAGIC)))
    described = [
        {
            "type": one.kind,
            "fields": [*one.fields],
            "snapshot-id": one.snapshot_id,
            "sequence-number": one.sequence,
            "offset": offset,
            "length": len(one.body),
            **({"properties": one.properties} if one.properties else {}),
        }
        for one, offset in zip(blobs, offsets, strict=True)
    ]
    said = json.dumps({"blobs": described, "properties": {"created-by": "safewrite"}}).encode()
    footer = _MAGIC + said + len(said).to_bytes(_SIZES, "little") + bytes(_SIZES) + _MAGIC
    return Puffin(b"".join([_MAGIC, *(one.body for one in blobs), footer]), len(footer), offsets)


def decoded(body: bytes) -> bytes:
    """The blob of a file that :func:`encoded` made of one.

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
