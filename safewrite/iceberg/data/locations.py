"""Refuses locations of tables that PyIceberg or other engines read as another place.

PyIceberg (0.12.0) takes a location for a URL and cuts it at ``#`` or ``?``: all files of a table would have one path, or a path
at which no other engine looks.  Other engines read no path with a control character or an empty part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from safewrite.errors import InvalidInputError, UnsupportedTableError
from safewrite.text.rendering import shown

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

PATHS = ("write.data.path", "write.metadata.path")
"""Table properties that say where files go."""
_CUT = re.compile(r"[#?\x00-\x1f\x7f]")
_EMPTY = re.compile(r"//+")
_WHOLE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")
_NO_BUCKET = re.compile(r"s3[an]?:(?!//[^/])")


def check_new(places: Iterable[tuple[str, str]]) -> None:
    """Refuse to make a table at such a place; each has what to call it, and its text.

    Raises:
        InvalidInputError: a part of the location has such a character.
    """
    for what, text in places:
        if "=" in what or what.startswith("The property"):
            _check_whole(what, text)
        found = _CUT.search(text) or _EMPTY.search((text.partition("://")[2] or text).rstrip("/"))
        if found:
            raise InvalidInputError(
                f"{what} has {shown(found.group())} in {shown(text)}: {_why(found.group())}. Nothing was written, and no table "
                "was made. Choose a location of letters, digits, '.', '_', '-' and '/'."
            )


def _check_whole(what: str, text: str) -> None:
    """Refuse a path that depends on where a process runs, and one in no bucket."""
    if _WHOLE.match(text) and not _NO_BUCKET.match(text):
        return
    why = (
        "names no bucket"
        if _NO_BUCKET.match(text)
        else "is no whole address: every process would look elsewhere"
    )
    raise InvalidInputError(
        f"{what} is {shown(text)}, which {why}. Nothing was written, and no table was made. Write 's3://bucket/path', "
        "'file:///path' or '/path'."
    )


def check(metadata: TableMetadata, name: str) -> None:
    """Refuse a table that another engine made at such a place.

    Raises:
        UnsupportedTableError: its location, or a property that says where files go, is cut.
    """
    named = [("its location", metadata.location)]
    named += [(path, metadata.properties[path]) for path in PATHS if path in metadata.properties]
    for what, text in named:
        found = _CUT.search(text)
        if found:
            raise UnsupportedTableError(
                f"{name} cannot be written: {what} has {shown(found.group())} in {shown(text)}: {_why(found.group())}. Nothing "
                "was written. Copy the table to a location without it, with the engine that made it."
            )


def _why(found: str) -> str:
    if found in "#?":
        return "PyIceberg cuts a location there, and would write to another place"
    return (
        "other engines read no path with an empty part" if "/" in found else "other engines read no such path"
    )
