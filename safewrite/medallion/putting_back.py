"""Puts back into bronze what was removed from it: an overwrite, a RESTORE or a delete took rows whose files are there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count

import numpy as np
import pyarrow as pa

from safewrite import Outcome
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


def put_back(job: TableJob, files: Sequence[BronzeRows]) -> tuple[set[int], int]:
    """Append what bronze lacks of rows that were lost; the versions that hold it, and how many rows came by this call.

    Rows of a file that are put back for the n-th time have a key that says so.  It is chosen before the look that says what
    is missing: so whoever puts back what another does at the same moment has the same key, and finds it taken.

    Raises:
        SafewriteError: as ``append_many``.
    """
    if not files:
        return set(), 0
    keys = {(one.source.path, one.tag): _unused_key(job, one) for one in files}
    missing = lost(lines_in_bronze(job), files)
    members = [(keys[one.source.path, one.tag], one.rows) for one in missing]
    versions, rows = set(), 0
    for one, answer in zip(missing, job.bronze.append_many(members) if members else [], strict=True):
        if isinstance(answer, SafewriteError):
            raise answer
        versions.add(answer.version)
        rows += 0 if answer.outcome == Outcome.ALREADY_COMMITTED else one.rows.num_rows
    return versions, rows


def _unused_key(job: TableJob, one: BronzeRows) -> str:
    """The key for the next time that rows of a file are put back."""
    keys = (short_key(f"{one.source.path}#{one.tag}#again-{number}") for number in count(1))
    return next(key for key in keys if job.bronze.resolve(key) is None)
