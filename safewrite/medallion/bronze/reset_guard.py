"""Refuses files whose changes would be older than what a table has: of an earlier task's epoch, or in another order.

Silver would pass over them as late, without an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.errors import InvalidInputError, ReplayMismatchError
from safewrite.medallion.bronze.state import BronzeState, Order
from safewrite.medallion.files.file_versions import Contents
from safewrite.medallion.files.layout import SourceFile
from safewrite.medallion.files.rows import LINE_DIGITS, FileRows
from safewrite.medallion.files.text_parsing import stamp_number
from safewrite.medallion.tables.job import TableJob, short_key

_FIRST_CHANGE = pa.scalar(Decimal(0), pa.decimal128(38, 0))
BY_COLUMN, BY_FILE = "files.change_seq", "the names of their files"


def check_epoch(job: TableJob, state: BronzeState, news: Sequence[SourceFile], *, again: bool) -> None:
    """Refuse what would be older than all rows of a later task; ``again``: but for files that bronze had.

    Raises:
        InvalidInputError: files are new, and bronze has some of a later epoch.
    """
    config = job.config
    if config.epoch >= state.epoch:
        return
    new = [one for one in news if not (again and job.bronze.resolve(short_key(one.path)))]
    if new:
        raise InvalidInputError(
            f"The configuration of {job.name} says epoch {config.epoch}, and bronze has files of epoch {state.epoch}, or silver began it empty: the rows of "
            f"{new[0].path}{f' and {len(new) - 1} more' if len(new) > 1 else ''} would be older than all of those, and silver would "
            "pass over them. Nothing of these files was landed. Was the configuration set back, or is another version of it "
            f"running elsewhere? Set epoch to {state.epoch}, or higher if the task was started again."
        )


def new_task_advice(job: TableJob) -> str:
    """What to do where a full load came again."""
    epoch = job.config.epoch + 1
    return (
        f'If the table was loaded again (a reload in DMS), set "epoch": {epoch}, "reload": "truncate" and "restarted_load": "fold" '
        "for it, once change files from before the load are landed or taken away: the new load is then the whole table. If the first load "
        'was broken off and begun again before there were changes, "restarted_load": "fold" alone is enough.'
    )


def check_reload_in_task(job: TableJob, source: SourceFile, known: Contents) -> None:
    """Refuse a full load that came again where its task has changes: those would win over its newer rows, and what it lacks would stay.

    ``known`` are the contents that the file had.

    Raises:
        ReplayMismatchError: bronze has changes of this epoch.
    """
    if max((one.epoch for one in known.values()), default=0) < job.config.epoch:
        return
    job.lineage.look()
    if any(_has_changes(job, rows) for rows in job.lineage.pieces(job.lineage.whole(), ["_epoch", "_seq"])):
        raise ReplayMismatchError(
            f"{source.path} of {job.name} was written again with other content, and bronze has changes of the same epoch "
            f"{job.config.epoch}: rows of a full load are older than all changes, so changes from before this load would win over it, and rows that "
            f"it does not have would stay. Nothing of it was landed, and nothing of the files that came with it. {new_task_advice(job)}"
        )


def _has_changes(job: TableJob, rows: pa.Table) -> bool:
    """Whether there are changes of this epoch, which are above all rows of full loads."""
    mine = pc.equal(rows["_epoch"], job.config.epoch)
    return pc.any(pc.and_(mine, pc.greater_equal(rows["_seq"], _FIRST_CHANGE))).as_py() is True


def check_order(job: TableJob, state: BronzeState, files: Sequence[FileRows]) -> None:
    """Refuse changes that are ordered otherwise than those before, and come below them.

    Raises:
        InvalidInputError: ``files.change_seq`` was given or left out within an epoch.
    """
    config = job.config
    known, by = state.orders.get(str(config.epoch)), order_now(job)
    if known is None or known.by == by:
        return
    for one in files:
        span = None if one.source.is_load else one.span
        if span is not None and span[0] <= int(known.highest):
            raise InvalidInputError(
                f"Changes of {job.name} were ordered by {known.by}, up to {known.highest}, and now come ordered by {by}: those of "
                f"{one.source.path} would be older, and silver would pass over them. Nothing of this file was landed, nor of those "
                f"that came with it. Order them by {known.by} as before, or raise epoch, from which on the order starts again."
            )


def note_order(job: TableJob, state: BronzeState, one: FileRows) -> None:
    """Remember how the changes of a landed file are ordered, and up to where they go."""
    if not one.source.is_load and one.span is not None:
        state.note_order(job.config.epoch, Order(order_now(job), str(one.span[1])))


def order_of(path: str, highest: Decimal) -> Order | None:
    """How the changes of a file in bronze are ordered; None for a full load, whose rows are below all changes."""
    if highest < 0:
        return None
    try:
        by_file = int(highest) // 10**LINE_DIGITS == stamp_number(path.rpartition("/")[2].partition(".")[0])
    except ValueError:
        by_file = False
    return Order(BY_FILE if by_file else BY_COLUMN, str(highest))


def order_now(job: TableJob) -> str:
    """What orders the changes of files that are read now."""
    return BY_FILE if job.config.files.change_seq is None else BY_COLUMN
