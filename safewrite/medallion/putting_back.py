"""Puts back into bronze what was removed from it: an overwrite, a RESTORE or a delete took rows whose files are there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from safewrite.errors import SafewriteError
from safewrite.medallion.job import TableJob, short_key
from safewrite.medallion.rows import BronzeRows

Lines = dict[tuple[str, str], set[int]]
"""The records of each file, by path and tag, that bronze holds."""


def lines_in_bronze(job: TableJob) -> Lines:
    """Every record that bronze holds now.  Raises StorageError."""
    job.lineage.look()
    rows = job.lineage.read(job.lineage.whole(), ["_file", "_tag", "_line"])
    found: Lines = {}
    columns = (rows[name].to_pylist() for name in ("_file", "_tag", "_line"))
    for path, tag, line in zip(*columns, strict=True):
        found.setdefault((path, tag), set()).add(line)
    return found


def lost(there: Lines, files: Iterable[BronzeRows]) -> list[BronzeRows]:
    """Of files that were landed, the rows that bronze has no longer."""
    found = []
    for one in files:
        known = there.get((one.source.path, one.tag), set())
        missing = np.asarray([line not in known for line in one.rows["_line"].to_pylist()], np.bool_)
        if missing.any():
            found.append(replace(one, rows=one.rows.filter(pa.array(missing))))
    return found


def put_back(job: TableJob, files: Sequence[BronzeRows]) -> set[int]:
    """Append rows that were lost, under keys of their own; the versions that hold them.

    Raises:
        SafewriteError: as ``append_many``.
    """
    members = [
        (short_key(f"{one.source.path}#{one.tag}#after-{job.lineage.head}"), one.rows) for one in files
    ]
    versions = set()
    for answer in job.bronze.append_many(members) if members else []:
        if isinstance(answer, SafewriteError):
            raise answer
        versions.add(answer.version)
    return versions
