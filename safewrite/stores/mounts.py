"""Tells whether other machines may write to a folder: what its file system is."""

from __future__ import annotations

import re
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")
_SHARED = re.compile(r"fuse(?:\..*)?|nfs.*|cifs|smb.*|lustre|ceph|gpfs|beegfs|glusterfs|afs|s3.*")
"""File systems of servers and of object stores; ``fuse`` may be anything, such as a mounted bucket."""


def file_system(folder: Path, mounts: Path = _MOUNTS) -> str | None:
    """The type of the file system that holds a folder; None where this system does not tell."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    real = folder.resolve()
    found: tuple[int, str] | None = None
    for line in lines:
        before, separator, after = line.partition(" - ")
        if not separator:
            continue
        point = Path(_ESCAPED.sub(lambda match: chr(int(match[1], 8)), before.split()[4]))
        if real.is_relative_to(point) and (found is None or len(point.parts) >= found[0]):
            found = (len(point.parts), after.split()[0])  # of two on one point the later one is seen
    return None if found is None else found[1]


def is_shared(kind: str | None) -> bool:
    """Whether other machines may write to such a file system, as far as its type tells."""
    return kind is None or _SHARED.fullmatch(kind) is not None
