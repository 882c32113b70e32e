"""Compares a bronze that others write, row by row and by other code than the sync's, with silver."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Set
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from safewrite.medallion.audit.table_audit import TableAudit
from safewrite.medallion.files.text_parsing import plain
from safewrite.medallion.silver.positions import is_under_way
from safewrite.medallion.silver.unordered import named_in, tag_of
from safewrite.medallion.silver.watermark import WatermarkPosition, check_columns, mark_of, named
from safewrite.medallion.tables.job import TableJob
from safewrite.values.limits import outside_calendar

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - times are compared without their zone, which is UTC
_Row = dict[str, Any]


def compare(job: TableJob, aside: Set[tuple[str, str, int]], audit: TableAudit) -> None:
    """Tell each row of bronze that silver does not account for, as behind or late, and each row of silver that is not the last.

    ``aside`` are the rows in quarantine.  Silver may hold what bronze no longer has.

    Raises:
        InvalidInputError: bronze lacks a column.
        SafewriteError: a table cannot be read.
    """
    how, keys = job.sync, job.config.keys
    bronze = job.foreign
    bronze.look()
    check_columns(job, bronze.schema)
    columns = dict.fromkeys(
        [*job.columns.names, *keys, *how.sequence, how.time, *([how.op] if how.op else [])]
    )
    rows = bronze.read(list(columns))
    positions = job.silver.positions()
    mark = None if is_under_way(positions) else mark_of(positions, how.time)
    silver = job.places.foreign(job.config.silver, job.config.format)
    silver.look()
    found = silver.read(job.silver_schema.names)
    audit.bronze_rows, audit.silver_rows, audit.silver_put_aside = rows.num_rows, found.num_rows, len(aside)
    if mark is None:
        audit.behind = rows.num_rows
        return
    known = {tag for uri, tag, _ in aside if uri == job.config.bronze}
    given, unordered = plain(rows), named_in(known)
    waiting = np.asarray([not _is_aside(job, row, known, unordered) for row in given], np.bool_)
    # Of a deletion in quarantine it is not known whether silver took it before: older rows of its key may be gone by it.
    ends = [row for row in given if _is_delete(job, row) and named(job, row) in unordered]
    unfit = np.zeros(rows.num_rows, np.bool_)
    for column in rows.columns:
        unfit |= outside_calendar(column)
    audit.behind += int((waiting & unfit).sum())
    rows = rows.filter(pa.array(waiting & ~unfit, pa.bool_()))
    try:
        rows = _as_silver(rows, found.schema)
    except pa.ArrowInvalid as error:
        audit.tell("value of bronze does not fit into silver", [error])
        return
    have = {tuple(one[key] for key in keys): one for one in found.to_pylist()}
    if len(have) < found.num_rows:
        audit.flaws.append(f"{found.num_rows - len(have)} rows of silver have a key that another row has")
    _judge(job, rows.to_pylist(), ends, (have, mark), audit)


def _is_aside(job: TableJob, row: _Row, known: Set[str], unordered: Set[str]) -> bool:
    name = named(job, row)
    if name in known or name not in unordered:
        return name in known
    return tag_of(name, row, job.silver_schema.names, is_delete=_is_delete(job, row)) in known


def _as_silver(rows: pa.Table, wanted: pa.Schema) -> pa.Table:
    there = {one.name: one.with_nullable(True) for one in wanted}
    fields = [there.get(one.name, one) for one in rows.schema]
    return rows.cast(pa.schema(fields))


def _judge(
    job: TableJob,
    rows: list[_Row],
    ends: list[_Row],
    silver: tuple[dict[Any, _Row], WatermarkPosition],
    audit: TableAudit,
) -> None:
    how, keys, own = job.sync, job.config.keys, job.columns.names
    have, mark = silver
    deleted: dict[Any, Any] = {}
    for row in chain(rows, ends):
        if _is_delete(job, row) and None not in (place := _place(job, row)):
            key = tuple(row[name] for name in keys)
            deleted[key] = max(deleted.get(key, place), place)
    late: list[str] = []
    unlike: list[str] = []
    matched: Counter[Any] = Counter()
    for row in rows:
        key, place = tuple(row[name] for name in keys), _place(job, row)
        there = have.get(key)
        if _is_accounted(job, row, there, deleted.get(key)):
            if there is not None and _place(job, there) == place and not _is_delete(job, row):
                matched[key] += 1
                if any(repr(row[name]) != repr(there[name]) for name in own):
                    unlike.append(str(key))
        elif _at_us(row[how.time]) >= mark.floor:
            audit.behind += 1
        else:
            late.append(named(job, row))
    audit.late, audit.beyond = len(late), len(have.keys() - matched.keys())
    audit.tell("rows of silver are not as bronze has them", unlike)
    if how.late == "take":  # by the next run
        audit.behind += len(late)
    else:
        what = (
            f"rows of bronze came late, and silver lacks them (`{job.places.command('replay', job.name)}` takes them), or bronze "
            "lost a delete of their key that silver took"
        )
        audit.tell(what, late)


def _is_accounted(job: TableJob, row: _Row, there: _Row | None, deleted: Any) -> bool:
    """Whether silver has this change of a key, or a newer one; silver does not show which deletes it took."""
    place = _place(job, row)
    if None in place or any(row[key] is None for key in job.config.keys):
        return False
    if there is not None:
        known = _place(job, there)
        return None not in known and bool(place <= known)
    return deleted is not None and bool(place <= deleted)


def _place(job: TableJob, row: _Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in job.sync.sequence)


def _is_delete(job: TableJob, row: _Row) -> bool:
    return job.sync.op is not None and row[job.sync.op] in job.sync.delete_values


def _at_us(at: Any) -> int:
    """Microseconds since 1970; before all others without a time."""
    if at is None:
        return -1
    if not isinstance(at, dt.datetime):
        at = dt.datetime(at.year, at.month, at.day)  # noqa: DTZ001
    if at.tzinfo is not None:
        at = at.astimezone(dt.UTC).replace(tzinfo=None)
    return int((at - _EPOCH) // dt.timedelta(microseconds=1))
