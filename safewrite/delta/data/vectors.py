"""Encodes and decodes deletion vectors: which rows of a data file are gone (PROTOCOL.md, "Deletion Vectors").

A vector is a 64-bit roaring bitmap of row numbers.  It stands with others in a file of the table, or in the log itself: such
are read and not written, for VACUUM of Spark's Delta (4.4.0) fails on them.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from safewrite.changes.meaning.row_vectors import WORD, VectorError, deserialized, framed, unframed
from safewrite.stores.table_folder import climbs, is_inside

if TYPE_CHECKING:
    from pyroaring import BitMap64

    from safewrite.delta.log.actions import Action

FILE_VERSION = 1
_UUID_CHARS = 20
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_FROM_Z85, _TO_Z85 = str.maketrans(_Z85, _B85), str.maketrans(_B85, _Z85)


# --- where a vector is -----------------------------------------------------------------------------------
def path_of(vector: Action, root: str) -> str | None:
    """The file of a vector, as a path within the table at ``root``; None if the log itself holds it.

    Raises:
        VectorError: it lies outside the table, or nobody knows where.
    """
    kind, text = vector.get("storageType"), vector.get("pathOrInlineDv")
    if not isinstance(text, str):
        raise VectorError("the log does not say where it is")
    if kind == "i":
        return None
    if kind == "u":
        prefix, name = text[:-_UUID_CHARS], text[-_UUID_CHARS:]
        folder = f"{prefix}/" if prefix else ""
        if not is_inside(folder):
            raise VectorError(f"its file, in {prefix!r}, lies outside the table")
        return f"{folder}deletion_vector_{_uuid(name)}.bin"
    if kind == "p":
        whole, within = _plain(unquote(text)), _plain(root).rstrip("/") + "/"
        if not whole.startswith(within) or within == "/" or climbs(whole):
            raise VectorError(f"its file, {text}, lies outside the table")
        return whole[len(within) :]
    raise VectorError(f"it is stored in a way that is not known ({kind!r})")


def _uuid(name: str) -> uuid.UUID:
    try:
        return uuid.UUID(bytes=_decoded_text(name))
    except ValueError as error:
        raise VectorError(f"{name!r} names no file") from error


def _plain(address: str) -> str:
    """An address in one spelling: Spark writes ``file:/`` and ``s3a://``."""
    scheme, colon, rest = address.partition(":")
    if not colon or "/" in scheme:
        return address
    return (
        "/" + rest.lstrip("/") if scheme == "file" else f"s3:{rest}" if scheme in {"s3a", "s3n"} else address
    )


# --- decoding --------------------------------------------------------------------------------------------
def decoded(vector: Action, body: bytes | None) -> BitMap64:
    """The rows that a vector takes away; ``body`` is the file that holds it, None for one in the log.

    Raises:
        VectorError: it is damaged, or of another format.
    """
    size, count = vector.get("sizeInBytes"), vector.get("cardinality")
    if type(size) is not int or type(count) is not int or size < 0:
        raise VectorError("the log says neither its size nor its number of rows")
    if body is not None:
        data = _in_file(body, vector.get("offset"), size)
    else:
        data = _inline(str(vector["pathOrInlineDv"]), size)
    return deserialized(data, count)


def _inline(text: str, size: int) -> bytes:
    try:
        data = _decoded_text(text)
    except ValueError as error:
        raise VectorError("its text is not Base85") from error
    if not size <= len(data) < size + WORD:
        raise VectorError(f"it has {len(data)} bytes, not {size}")
    return data[:size]


def _in_file(body: bytes, offset: object, size: int) -> bytes:
    """The bytes of one vector of a file; the first follows the version of its format."""
    if body[:1] != bytes([FILE_VERSION]):
        raise VectorError("its file is of a format that is not known")
    start = offset if type(offset) is int else 1
    if start < 1:
        raise VectorError("its file is cut off")
    return unframed(body, start, size)


def _decoded_text(text: str) -> bytes:
    """Z85 of whole words of four bytes.  Raises ValueError."""
    if len(text) % 5:
        raise ValueError(text)
    return base64.b85decode(text.translate(_FROM_Z85))


def z85(data: bytes) -> str:
    """Base85 as Delta writes it, of whole words of four bytes."""
    return base64.b85encode(data).decode().translate(_TO_Z85)


# --- encoding --------------------------------------------------------------------------------------------
def file_of(vectors: Sequence[tuple[bytes, int]], name: uuid.UUID) -> tuple[bytes, list[dict[str, Any]]]:
    """One file of many vectors, each with its number of rows, and their descriptors."""
    parts, offset = [bytes([FILE_VERSION])], 1
    described = []
    text = z85(name.bytes)
    for data, rows in vectors:
        where = {"storageType": "u", "pathOrInlineDv": text, "offset": offset}
        described.append({**where, "sizeInBytes": len(data), "cardinality": rows})
        parts.append(framed(data))
        offset += len(parts[-1])
    return b"".join(parts), described


def file_name(name: uuid.UUID) -> str:
    """The path of a file of vectors."""
    return f"deletion_vector_{name}.bin"
