"""Restores rows that an overwrite, a RESTORE or a delete removed from bronze, from raw files that are still there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count

import pyarrow as pa
import pyarrow.compute as pc

from safewrite import Outcome
from safewrite.errors import SafewriteError
from safewrite.medallion.bronze.reset_guard import order_now, order_of
from safewrite.medallion.bronze.summary import Lines, contents_in_bronze, contents_of, lines_in_bronze
from safewrite.medallion.files.file_versions import Contents, contents
from safewrite.medallion.files.rows import BronzeRows, as_landed
from safewrite.medallion.lineage.lineage import BronzeGapError
from safewrite.medallion.tables.job import TableJob, short_key


def key_of_content(path: str, tag: str) -> str:
    """The key of a file's rows in bronze where the path alone says too little."""
    return short_key(f"{path}#{tag}")


def lost(there: Lines, files: Iterable[BronzeRows]) -> list[BronzeRows]:
    """Of files that were landed, the rows that bronze has no longer."""
    found = []
    for one in files:
        missing = there.lacks((one.source.path, one.tag), one.rows["_line"].to_numpy())
        if missing.any():
            found.append(replace(one, rows=one.rows.filter(pa.array(missing))))
    return found


def put_back(job: TableJob, files: Sequence[BronzeRows]) -> tuple[set[int], int]:
    """Append what bronze lacks of rows that were lost; the versions that hold it, and how many rows came by this call.

    Rows of a file that are put back for the n-th time have a key that says so.  It is chosen before the look that says what
    is missing: so whoever puts back what another does at the same moment has the same key, and finds it taken.  They have
    the place in the order that they had, under the epoch of that time.

    Raises:
        BronzeGapError: nothing tells under which epoch they were, or they were ordered otherwise than files are now.
        SafewriteError: as ``append_many``.
    """
    if not files:
        return set(), 0
    keys = {(one.source.path, one.tag): _unused_key(job, one) for one in files}
    missing = lost(lines_in_bronze(job, {one.source.path for one in files}), files)
    there = contents_of(job, job.lineage.whole())
    members = [(keys[one.source.path, one.tag], _as_it_was(job, one, there).rows) for one in missing]
    versions, rows = set(), 0
    for one, answer in zip(missing, job.bronze.append_many(members) if members else [], strict=True):
        if isinstance(answer, SafewriteError):
            raise answer
        versions.add(answer.version)
        rows += 0 if answer.outcome == Outcome.ALREADY_COMMITTED else one.rows.num_rows
    return versions, rows


def _unused_key(job: TableJob, one: BronzeRows) -> str:
    """The key for the next time that rows of a file are put back."""
    keys = (key_of_content(one.source.path, f"{one.tag}#again-{number}") for number in count(1))
    return next(key for key in keys if job.bronze.resolve(key) is None)


def _as_it_was(job: TableJob, one: BronzeRows, there: pa.Table) -> BronzeRows:
    """The rows as they stood in bronze, by what is left of this content or, where nothing is, by the commit that brought it."""
    path, tag = one.source.path, one.tag
    had = _of_content(there, path, tag)
    had = had if had.num_rows else _of_content(_past_rows(job, path, tag), path, tag)
    if not had.num_rows:
        return one
    _refuse_other_order(job, one, had)
    was = contents(had)[path][tag]
    return as_landed(one, was.epoch, was.changed_ms)


def _refuse_other_order(job: TableJob, one: BronzeRows, had: pa.Table) -> None:
    """Refuse changes that would come to stand elsewhere in the order than they did, because ``files.change_seq`` changed since."""
    was = None if one.source.is_load else order_of(one.source.path, pc.max(had["_seq"]).as_py())
    if was is not None and was.by != order_now(job):
        raise job.lineage.gap(
            f"the changes of {one.source.path}, of which rows were removed from it, were ordered by {was.by}, and would come back "
            f"ordered by {order_now(job)}: replay once with files and epoch as they were then, and raw.location a folder that has the "
            "files of that time alone, under their names"
        )


def _of_content(rows: pa.Table, path: str, tag: str) -> pa.Table:
    return rows.filter(pc.and_(pc.equal(rows["_file"], path), pc.equal(rows["_tag"], tag)))


def contents_ever(job: TableJob, path: str, tag: str) -> Contents:
    """The contents of a file that bronze has rows of; where it has none left, those that it had.  Raises BronzeGapError."""
    return contents_in_bronze(job).get(path) or past_contents(job, path, tag)


def past_contents(job: TableJob, path: str, tag: str) -> Contents:
    """The contents of a file that were landed by commits whose rows are all removed, as far as those can still be read.

    Raises:
        BronzeGapError: they cannot, and there is more than one epoch that the rows may be of.
    """
    return contents(_past_rows(job, path, tag)).get(path, {})


def _past_rows(job: TableJob, path: str, tag: str) -> pa.Table:
    """What tells apart the rows that were landed of a file, as :func:`past_contents`."""
    found = [contents_of(job, ())]
    for key in (short_key(path), key_of_content(path, tag)):
        receipt = job.bronze.resolve(key)
        if receipt is None:
            continue
        try:
            found.append(contents_of(job, [job.lineage.commit(receipt.version)]))
        except BronzeGapError as error:
            if job.config.epoch > 1:
                raise _of_no_epoch(job, path) from error
    return pa.concat_tables(found)


def _of_no_epoch(job: TableJob, path: str) -> BronzeGapError:
    return job.lineage.gap(
        f"all rows of {path} were removed from it, and nothing shows any more whether they were of epoch "
        f"{job.config.epoch} or of one before: replay once under the epoch of that file's task, then set epoch back"
    )
