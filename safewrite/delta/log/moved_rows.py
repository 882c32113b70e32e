"""Reads where a compaction of another engine put the rows of files, as Databricks notes it in the tags of its ``remove`` actions.

``compactedInto`` is a list of one path, ``compactionInfo`` a list of one object: the live rows of the file, in their order, are those of
that other file from ``rowOffsetInTarget`` on; the file had ``sourceNumPhysicalRecords`` rows with those that its vector took (as observed,
delta-io/delta#7360, #7407).  Any other form says nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from safewrite.delta.log.actions import Action, Commit, FileKey, file_key, rows_of

INTO, INFO = "compactedInto", "compactionInfo"


@dataclass(frozen=True, slots=True)
class MovedRows:
    """The live rows of a file, of which there were so many, and the number of the first of them in the file where they are now."""

    source: FileKey
    first: int
    rows: int


def moved_rows(commit: Commit) -> Mapping[str, tuple[MovedRows, ...]]:
    """By the path of each file that came, whose rows it has; nothing unless the commit tells it of all rows of all files.

    A commit that did more than to move rows says nothing here, nor one whose numbers leave a gap or do not add up.
    """
    removes, adds = commit.removes(), {file_key(one)[0]: one for one in commit.adds()}
    if not removes or any(one.get("dataChange", True) for one in (*removes, *adds.values())):
        return {}
    found: dict[str, list[MovedRows]] = {path: [] for path in adds}
    for one in removes:
        told = _told(one)
        if told is None or told[0] not in found:
            return {}
        found[told[0]].append(told[1])
    for path, parts in found.items():
        parts.sort(key=lambda part: part.first)
        ends = 0
        for part in parts:
            if part.first != ends:
                return {}
            ends += part.rows
        if adds[path].get("deletionVector") or rows_of(adds[path]) != ends:
            return {}
    return {path: tuple(parts) for path, parts in found.items()}


def _told(remove: Action) -> tuple[str, MovedRows] | None:
    tags = remove.get("tags") or {}
    into, info = _one_of(tags.get(INTO)), _one_of(tags.get(INFO))
    if not isinstance(into, str) or not isinstance(info, dict):
        return None
    gone = (remove.get("deletionVector") or {}).get("cardinality", 0)
    numbers = [info.get("rowOffsetInTarget"), info.get("sourceNumPhysicalRecords"), gone]
    counts = [one for one in numbers if type(one) is int and one >= 0]
    if len(counts) < len(numbers):
        return None
    first, rows, without = counts
    return file_key({"path": into})[0], MovedRows(file_key(remove), first, rows - without)


def _one_of(text: Any) -> Any:
    """The only element of a list in JSON; None for anything else."""
    try:
        found = json.loads(text)
    except (TypeError, ValueError):
        return None
    return found[0] if isinstance(found, list) and len(found) == 1 else None
