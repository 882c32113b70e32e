"""Describes what the upkeep of a table did, and what it left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class MaintainReport:
    """What one call of ``maintain`` did to one table; with ``dry_run`` what it would do.

    ``groups`` were put together, in ``commits`` (Delta versions or Iceberg snapshot ids): ``files_in`` of ``bytes_in`` became
    ``files_out`` of ``bytes_out``, with ``rows`` rows and without ``deleted_rows`` that were marked as deleted.  One scan makes
    ``requests_saved`` requests less.  ``dropped`` counts groups that were left out, by reason: others took their files first, or they cannot be
    written again.  ``left`` counts groups that were not begun, by reason.  ``checkpoint`` is the Delta version of which a checkpoint was made.  ``removed`` counts what was removed of old
    metadata, by kind.  ``unused_listed`` files were listed that nothing needs, for a later run to remove; ``unused_kept`` says why none may go.
    ``in_doubt`` is the key of a commit that ended in doubt:
    the rows are the same whether it landed or not.  ``files`` and ``bytes`` are all that the table has, before and after, and what
    others wrote meanwhile is among them.
    """

    table: str
    version: int
    dry_run: bool
    files_before: int
    bytes_before: int
    files_after: int
    bytes_after: int
    groups: int = 0
    commits: tuple[int, ...] = ()
    files_in: int = 0
    bytes_in: int = 0
    files_out: int = 0
    bytes_out: int = 0
    rows: int | None = 0
    deleted_rows: int | None = 0
    requests_saved: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    left: Mapping[str, int] = field(default_factory=dict)
    checkpoint: int | None = None
    removed: Mapping[str, int] = field(default_factory=dict)
    unused_listed: int = 0
    unused_kept: str = ""
    in_doubt: str | None = None
    elapsed_s: float = 0.0

    def __str__(self) -> str:
        would, would_be = ("would become", "would be") if self.dry_run else ("became", "are")
        parts = [
            f"{self.table}: {_files(self.files_in, self.bytes_in)} {would} {_files(self.files_out, self.bytes_out)}"
            if self.groups
            else f"{self.table}: nothing to put together"
        ]
        parts.append(f"the table has {_files(self.files_after, self.bytes_after)}")
        parts += [f"{count} left out: {why}" for why, count in self.dropped.items()]
        parts += [f"{count} not begun: {why}" for why, count in self.left.items()]
        if any(self.removed.values()):
            counts = " and ".join(
                f"{count:,} {what.replace('_', ' ')}" for what, count in self.removed.items() if count
            )
            parts.append(f"{counts} of before {'would be' if self.dry_run else 'were'} removed")
        if self.unused_listed:
            parts.append(
                f"{_count(self.unused_listed)} that nothing needs {would_be} listed; a run of a later day removes them"
            )
        if self.unused_kept:
            parts.append(f"no unused file may go: {self.unused_kept}")
        if self.in_doubt is not None:
            parts.append(f"the commit with key {self.in_doubt!r} is in doubt")
        return "; ".join([*parts, f"{self.elapsed_s:.1f} s"])

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        own = {
            "commits": list(self.commits),
            "dropped": dict(self.dropped),
            "left": dict(self.left),
            "removed": dict(self.removed),
        }
        return {**plain, **own}


def _files(count: int, size: int) -> str:
    return f"{_count(count)} of {_bytes(size)}"


def _count(count: int) -> str:
    return f"{count:,} file{'s' * (count != 1)}"


def _bytes(size: int) -> str:
    """A size in the largest unit of which there is one."""
    for unit, power in (("GB", 9), ("MB", 6), ("kB", 3)):
        if size >= 10**power:
            return f"{size / 10**power:.1f} {unit}"
    return f"{size} B"
