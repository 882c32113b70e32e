"""Tells one state of a Delta table from another by a request or two, which is what a run without news costs."""

from __future__ import annotations

import json
import zlib

from safewrite.medallion.files.storage import Storage

_LOG = "_delta_log"


def head_mark(place: Storage, version: int) -> str | None:
    """Marks a table whose newest version is this one; None if it has another.  One request.

    A commit's file is never changed, and that of a table that was created again has another mark.
    """
    name = f"{version:020}.json"
    listed = [
        (found, mark)
        for found, mark in place.after(_LOG, f"{version - 1:020}.json" if version else "")
        if len(found) == len(name) and found.endswith(".json")
    ]
    return listed[0][1] if len(listed) == 1 and listed[0][0] == name else None


def stamp_of(place: Storage, version: int) -> int | None:
    """A version and a sum of its commit's files in one number; None if its commit is gone.  One request.

    A copy of the table that is put in its place may reach the same number by other commits.
    """
    content = place.get(f"{_LOG}/{version:020}.json") if version >= 0 else None
    if content is None:
        return None
    actions = [json.loads(line) for line in content.decode().split("\n") if line.strip()]
    files = [one[kind]["path"] for one in actions for kind in ("add", "remove") if kind in one]
    return (version << 32) | zlib.crc32("\n".join(files).encode())


def is_of_other(version: int, stamp: int) -> bool:
    """Whether a stamp is of another version: whoever moved the position since, an earlier safewrite, made none."""
    return stamp >> 32 != version
