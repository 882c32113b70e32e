"""Judges whether a path that a table's metadata names lies within the table: decoded and normalised, as file systems read it."""

from __future__ import annotations

import re
from urllib.parse import unquote

from safewrite.protocol.effects import Failed

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_LOCAL = frozenset({"", "file"})


def climbs(path: str) -> bool:
    """Whether a path has a ``..`` among its parts, or a NUL, where file systems end it; however often it is encoded.

    No engine writes either, and what such a path leads to depends on who reads it.
    """
    if ".." not in path and "%" not in path and "\0" not in path:
        return False
    spelled = _decoded(path)
    return "\0" in spelled or ".." in spelled.split("/")


def is_inside(path: str) -> bool:
    """Whether a path, as a log spells it, is relative to its table and stays within it."""
    spelled = _decoded(path)
    return not (
        climbs(path)
        or spelled.startswith(("/", "file:"))
        or "://" in spelled
        or _scheme(path.partition("/")[0])
    )


def refused(path: str) -> Failed:
    """The outcome of a request for a path that is not within the table; it was not performed."""
    return Failed(
        f"{path!r} leads out of the table, and was not touched",
        "No engine writes such a path: the table's metadata is damaged or was made to mislead. See who wrote it, and restore it "
        "from a versioned copy.",
    )


def leads_astray(location: str, root: str) -> bool:
    """Whether a whole location (Iceberg's) climbs, or names a file of this machine in a table that is not on it."""
    return climbs(location) or (_scheme(location) in _LOCAL and _scheme(root) not in _LOCAL)


def _scheme(location: str) -> str:
    found = _SCHEME.match(location)
    return found[0][:-1].lower() if found else ""


def _decoded(path: str) -> str:
    while "%" in path:
        once = unquote(path)
        if once == path:
            break
        path = once
    return path
