"""Follows a TRUNCATE or DROP at the source, at which DMS removes the table's files and writes no record of it.

A run reports that the files are gone, and the operator says that it was a TRUNCATE or DROP.  Bronze then gets a row with the
operation T, so that each reset and each replay applies it in its place: after the changes of the files that are gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import count

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.errors import InvalidInputError, ReplayMismatchError
from safewrite.medallion.bronze.reset_guard import new_task_advice
from safewrite.medallion.bronze.state import BronzeState
from safewrite.medallion.bronze.summary import Spans, contents_in_bronze
from safewrite.medallion.config.bronze_columns import BEFORE_ALL, FILE, TRUNCATE_FILE, TRUNCATED_OP
from safewrite.medallion.config.stored_names import stored
from safewrite.medallion.files.layout import SourceFile, order_of_path
from safewrite.medallion.files.rows import bronze_schema
from safewrite.medallion.tables.job import TableJob, short_key

_TOLD = ["_op", "_epoch", "_seq", "_file", "_tag"]
_Order = tuple[bool, int, str]


def warning_of(job: TableJob, state: BronzeState | None, sources: Sequence[SourceFile]) -> str | None:
    """What is to be said where all files of a table that the last run saw are gone at once; None where some are there."""
    prefix = job.name.replace(".", "/", 1) + "/"
    known = [path for path in (state.files if state is not None else ()) if path.startswith(prefix)]
    there = {source.path for source in sources}
    if not known or any(path in there for path in known):
        return None
    newest = max(known, key=lambda path: order_of_path(path) or (False, 0, path))
    return (
        f"All {len(known)} files of {job.name} that were there at the last run are gone from {job.places.raw.uri}, the newest "
        f"{newest}. DMS removes them at a TRUNCATE or DROP of the source and writes no record of it, so silver keeps the rows. If the "
        f"source was truncated or dropped: `{job.places.command('truncate', job.name)}`. If files are archived or expire, nothing is to be done."
    )


def gone_from(job: TableJob, rows: pa.Table, sources: Iterable[SourceFile]) -> list[str]:
    """Files of this epoch that bronze has rows of, and that are listed no longer, in their order."""
    mine = pc.and_(pc.equal(rows["_epoch"], job.config.epoch), pc.not_equal(rows["_file"], TRUNCATE_FILE))
    paths = set(pc.unique(rows["_file"].filter(mine)).to_pylist()) - {source.path for source in sources}
    return sorted(paths, key=_order)


def check_load_after_truncate(job: TableJob, source: SourceFile, tag: str) -> None:
    """Refuse a full load that bronze has not where its source was truncated in this task: the truncate is newer than every full load.

    Raises:
        ReplayMismatchError: silver would pass over all its rows.
    """
    if source.is_load and tag not in contents_in_bronze(job).get(source.path, {}):
        raise ReplayMismatchError(
            f"{source.path} of {job.name} came after a truncate of the source within epoch {job.config.epoch}: rows of a full load are "
            "older than all changes and truncates of their epoch, so silver would pass over them. Nothing of it was landed, and nothing of the "
            f"files that came with it. {new_task_advice(job)}"
        )


def note_truncate(job: TableJob, sources: Sequence[SourceFile], after: str | None) -> set[int]:
    """Note in bronze that the source was truncated after a file, or after the last of those that are gone; bronze's versions.

    Raises:
        InvalidInputError: the place of the truncate is not clear.
        SafewriteError: as ``append``.
    """
    job.lineage.look()
    spans = Spans()
    for piece in job.lineage.pieces(job.lineage.whole(), _TOLD):
        spans.add(piece)
    rows = spans.table
    last = _last(job, rows, sources, after)
    mine = [row for row in rows.to_pylist() if row["_epoch"] == job.config.epoch]
    truncates = [row for row in mine if row["_op"] == TRUNCATED_OP]
    changes = [row for row in mine if row["_op"] != TRUNCATED_OP]
    before = [row["_seq"] for row in changes if _order(row["_file"]) <= last]
    seq = Decimal(int(max(before)) + 1) if before else BEFORE_ALL  # of more digits than sums of decimals have
    first = min(
        (row for row in changes if _order(row["_file"]) > last), key=lambda row: row["_first"], default=None
    )
    if first is not None and first["_first"] == seq:
        raise _unclear(
            job, f"the first change after it has the next sequence, {seq}, so that no place is left between"
        )
    if first is not None and first["_first"] < seq:
        why = f"{first['_file']} came after it, and has changes of lower sequences than files before it"
        raise _unclear(job, why)
    if seq in {row["_seq"] for row in truncates}:  # it was said before
        return set()
    schema = bronze_schema(job.config, job.columns)
    tag = f"{job.config.epoch}/{seq}"
    row = {
        "_op": TRUNCATED_OP,
        "_epoch": job.config.epoch,
        "_seq": seq,
        stored(FILE, job.config.format): TRUNCATE_FILE,
        "_tag": tag,
        "_line": 1,
    }
    keys = (short_key(f"{TRUNCATE_FILE}#{tag}#{number}") for number in count(1))
    key = next(one for one in keys if job.bronze.resolve(one) is None)
    return {job.bronze.append(pa.Table.from_pylist([row], schema=schema), key=key).version}


def _last(job: TableJob, rows: pa.Table, sources: Sequence[SourceFile], after: str | None) -> _Order:
    """The place of the last file before the truncate."""
    if after is not None:
        last = order_of_path(after)
        if last is None or not any(_order(path) <= last for path in pc.unique(rows["_file"]).to_pylist()):
            raise _unclear(job, f"bronze has no rows of a change file {after!r} of DMS, nor of one before it")
        return last
    if job.places.config.raw.layout == "mixed":
        raise _unclear(job, "its change files are those of all tables, and stay")
    paths = {path for path in pc.unique(rows["_file"]).to_pylist() if path != TRUNCATE_FILE}
    gone = sorted(paths - {source.path for source in sources}, key=_order)
    if not gone:
        raise _unclear(job, "no file of it is gone, and DMS removes all at a TRUNCATE")
    last = _order(gone[-1])
    older = [source.path for source in sources if source.order < last]
    if older:
        raise _unclear(job, f"{gone[-1]} is gone, and older files are there still, such as {older[0]}")
    return last


def _order(path: str) -> _Order:
    return order_of_path(path) or (False, -1, path)


def _unclear(job: TableJob, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"The place of the truncate of {job.name} among the changes is not clear: {why}. Nothing was written for it. Name the last change file "
        "from before the TRUNCATE, with after= or --after: all rows up to that file go, and those of later files stay."
    )
