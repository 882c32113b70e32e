"""Judges whether a path that a table's metadata names lies within the table: decoded and normalised, as file systems read it."""

from __future__ import annotations

import re
from urllib.parse import unquote

from safewrite.protocol.effects import Failed

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_LOCAL = frozenset({"", "file"})


def climbs(path: str) -> bool:
    """Whether a path, as a store has it, has a ``..`` among its parts, or a NUL, where file systems end it.

    Parts are judged however often they are encoded: no engine writes either, and what such a path leads to depends on who
    reads it.  The folder of a partition is taken as it is: its value is the user's, and every engine encodes
    ``a/../b`` as ``p=a%2F..%2Fb``.
    """
    if ".." not in path and "%" not in path and "\0" not in path:
        return False
    return "\0" in path or any(_climbs(part) for part in path.split("/"))


def _climbs(part: str) -> bool:
    spelled = part if "=" in part else _decoded(part)
    return "\0" in spelled or ".." in spelled.split("/")


def climbs_in_log(path: str) -> bool:
    """As :func:`climbs`, for a path as Delta's log spells it: a URL, which engines decode once."""
    return climbs(unquote(path))


def is_inside(path: str) -> bool:
    """Whether a path, as a log spells it, is relative to its table and stays within it."""
    spelled = unquote(path)  # once, as engines do: a partition's value may be a whole address
    return not (
        climbs_in_log(path)
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
