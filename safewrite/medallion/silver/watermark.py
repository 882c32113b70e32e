"""Takes rows of a bronze table that others write, by their time, and moves the watermark in silver's commit.

Which rows there are is decided by their values alone: by no clock of ours, and by no history of bronze.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.errors import InvalidInputError
from safewrite.intake.partitioning import NOT_READ_BACK, of_no_folder
from safewrite.medallion.files.records import BadRecord
from safewrite.medallion.files.text_parsing import plain
from safewrite.medallion.lineage.external_table import Foreign
from safewrite.medallion.lineage.lineage import BronzeGapError
from safewrite.medallion.silver.apply import ROWS_MAX, Refined, write
from safewrite.medallion.silver.changes import DELETE
from safewrite.medallion.silver.coverage import ABSENT, Digest, Survey, Surveyor
from safewrite.medallion.silver.positions import RESET, is_under_way
from safewrite.medallion.silver.quality import faults
from safewrite.medallion.silver.row_rules import SilverRules
from safewrite.medallion.silver.unordered import tag_of, tied_with_silver, unordered
from safewrite.medallion.tables.job import TableJob, quarantine_rows, short_key
from safewrite.values.limits import YEARS, outside_calendar

SECOND_US = 1_000_000
_AT = "$at"
_OWN = frozenset(("_op", ABSENT, _AT))


class LateRowsError(BronzeGapError):
    """Rows came into bronze with times that silver had passed; the message names the way out."""


@dataclass(frozen=True, slots=True)
class WatermarkPosition:
    """How far silver has come, as positions of its commit.  Times count microseconds since 1970.

    Of the rows from before ``floor``, or without a time, silver accounts for ``rows``, whose digest is ``digest``; all others that
    were there had the digest ``since``.
    """

    watermark: int
    floor: int
    rows: int
    digest: int
    since: int

    @property
    def below(self) -> Digest:
        return Digest(self.rows, self.digest)


def name_of(column: str, part: str) -> str:
    """The name of a position in silver."""
    return f"bronze-time/{column}/{part}"


def mark_of(positions: Mapping[str, int | None], column: str) -> WatermarkPosition | None:
    """How far silver came; None if it never did."""
    found = {one.name: positions.get(name_of(column, one.name)) for one in fields(WatermarkPosition)}
    known = {name: value for name, value in found.items() if value is not None}
    return WatermarkPosition(**known) if len(known) == len(found) else None


def sync(job: TableJob, done: Refined, *, again: bool = False, reset: bool = False) -> None:
    """Bring silver to bronze's newest state and note it in ``done``; ``again`` applies all rows, whatever their time.

    ``reset`` does so after what silver has is gone.

    Raises:
        LateRowsError: rows came later than the overlap; all others were taken.
        ConflictError: another run moves the watermark.
        InvalidInputError: bronze lacks a column, the quality gate refuses the batch, or two changes contradict each other.
        SafewriteError: as ``apply_changes``.
    """
    how = job.sync
    bronze = job.foreign
    bronze.look()
    check_columns(job, bronze.schema)
    positions = job.silver.positions()
    known = mark_of(positions, how.time)
    reset = reset or is_under_way(positions)
    surveyor = Surveyor(bronze, how, job.config.keys)
    newest = surveyor.newest_us()
    if known is None or again or reset:
        watermark = max(0, newest or 0)
        floor = max(0, watermark - how.overlap_s * SECOND_US)
        found = surveyor.survey(floor, floor)
        mark = _mark(watermark, floor, found.below, found.above)
        if reset or known is not None or found.below.rows + found.above.rows:
            _take(job, _pieces(job, None, done), _Step(done, positions, mark, reset=reset))
        done.watermark = watermark
        return
    watermark = max(known.watermark, newest or 0)
    floor = max(known.floor, watermark - how.overlap_s * SECOND_US)
    found = surveyor.survey(known.floor, floor)
    done.watermark = known.watermark
    is_new = found.between.plus(found.above).total != known.since
    late = None if found.below == known.below else _late(job, surveyor, known.floor, done)
    count = 0 if late is None else late.changes.num_rows
    takes_late = how.late == "take" or not count
    accounted = (found.below if takes_late else known.below).plus(found.between)
    mark = _mark(watermark, floor, accounted, found.above)
    given = [] if late is None else [late.deletes, *([late.changes] if takes_late else [])]
    given = [one for one in given if one.num_rows]
    if mark != known or is_new or given:
        new = _pieces(job, known.floor, done) if is_new else iter(())
        _take(job, chain(given, new), _Step(done, positions, mark), must=mark != known or is_new)
        done.watermark = watermark
    done.late += count
    if not takes_late:
        raise _refused(job, count, known, found)


def _mark(watermark: int, floor: int, below: Digest, since: Digest) -> WatermarkPosition:
    return WatermarkPosition(watermark, floor, below.rows, below.total, since.total)


def check_columns(job: TableJob, have: pa.Schema) -> None:
    """Refuse a bronze without a column that is needed.

    Raises:
        InvalidInputError: each is named, with the field that asks for it.
    """
    how = job.sync
    wanted = [("columns", name) for name in job.columns.names] + [
        ("sync.sequence", name) for name in how.sequence
    ]
    wanted += [("sync.time", how.time), *([("sync.op", how.op)] if how.op else [])]
    there = frozenset(have.names)
    lacking = [f"{field}: {name} is not a column of it" for field, name in wanted if name not in there]
    kind = have.field(how.time).type if how.time in there else None
    if kind is not None and not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        lacking.append(f"sync.time: {how.time} is a {kind}, and no timestamp or date")
    used = {name for _, name in wanted} | set(job.config.keys)
    for name in sorted(used & set(have.names)):  # DuckDB and Delta do not tell them apart
        lacking += [
            f"{name} and {one} differ in case alone"
            for one in have.names
            if one != name and one.lower() == name.lower()
        ]
    if lacking:
        raise InvalidInputError(
            f"Bronze of {job.name} ({job.config.bronze}) is not as tables.{job.name} says: {'; '.join(lacking)}. Nothing was "
            "written to silver. Correct the configuration, or the table."
        )


# --- rows as changes of silver ----------------------------------------------------------------------
def changes_of(job: TableJob, rows: pa.Table) -> tuple[pa.Table, dict[str, npt.NDArray[np.bool_]]]:
    """Rows of bronze with ``_op`` (U or D) and silver's columns, and which cannot be a change, by reason."""
    how = job.sync
    changes = rows.select(job.silver_schema.names)
    count = rows.num_rows
    bad = {f"the key {name} is NULL": _nulls(changes[name]) for name in job.config.keys}
    bad |= {f"{name} of the sequence is NULL": _nulls(changes[name]) for name in how.sequence}
    for name in changes.column_names:
        outside = outside_calendar(changes[name])
        if outside.any():
            bad[f"{name} is not of {YEARS}"] = outside
    gone = np.zeros(count, np.bool_)
    if how.op is not None:
        op = pc.cast(rows[how.op], pa.string())
        gone = _among(op, how.delete_values)
        allowed = [*how.upsert_values, *how.delete_values]
        bad[f"{how.op} is none of {', '.join(allowed)}"] = ~_among(op, allowed)
    if job.config.format == "delta":
        for name in {*job.config.partition_by.silver} & {*changes.column_names}:
            bad[f"{name} {NOT_READ_BACK}"] = of_no_folder(changes[name]) & ~gone
    return changes.append_column("_op", pa.array(np.where(gone, "D", "U"), pa.string())), bad


def _nulls(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.is_null(column).to_numpy(), np.bool_)


def _among(column: pa.ChunkedArray, values: Sequence[str]) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.is_in(column, value_set=pa.array(values, pa.string())).to_numpy(), np.bool_)


def named(job: TableJob, row: Mapping[str, Any]) -> str:
    """What a row of bronze is known by in quarantine: it has no file and no line."""
    parts = (*job.config.keys, *(name for name in job.sync.sequence if name not in job.config.keys))
    return short_key(", ".join(f"{name}={row[name]!r}" for name in parts))


def _good(job: TableJob, rows: pa.Table, done: Refined, *, counts: bool) -> pa.Table:
    """Commit rows of bronze to quarantine that are no changes, or that nothing orders; the others go on.

    Not ``counts``: shares of rows that came before are not judged.
    """
    changes, bad = changes_of(job, rows)
    if ABSENT in rows.column_names:
        is_gone = pc.equal(changes["_op"], "D")
        changes = changes.append_column(ABSENT, pc.and_(rows[ABSENT], is_gone))
    quality = job.config.quality
    if not counts:
        quality = quality.model_copy(update={"quarantined_share_max": 1.0, "null_share_max": {}})
    found = faults(
        changes,
        quality,
        job.name,
        where=lambda row: named(job, _row(changes, row)),
        unfit=bad,
        asked=_asked(job),
    )
    changes = changes.append_column(_AT, _micros(rows[job.sync.time]))
    good = _put_aside(job, changes, found, done, by_content=False) if found else changes
    ties = unordered(job, good, good[_AT].combine_chunks())
    good = _put_aside(job, good, ties, done, by_content=True) if ties else good
    return good.drop_columns([_AT])


def _put_aside(
    job: TableJob, changes: pa.Table, found: Mapping[int, str], done: Refined, *, by_content: bool
) -> pa.Table:
    """Commit rows to quarantine, under names that differ for rows of one key and sequence if that is wanted; give the others."""
    where: dict[str, list[BadRecord]] = {}
    for number, reason in found.items():
        row = _row(changes, number)
        text = ", ".join(f"{name}={value!r}" for name, value in row.items() if name not in _OWN)
        tag = named(job, row)
        if by_content:
            tag = tag_of(tag, row, job.silver_schema.names, is_delete=row["_op"] == "D")
        where.setdefault(tag, []).append(BadRecord(0, reason, text))
    uri = job.config.bronze
    # The same row under other columns, as when one was added since, is another record of quarantine.
    batches = [
        (f"{uri}#{tag}#{_digest(records)}", quarantine_rows(job.name, "silver", uri, tag, records))
        for tag, records in where.items()
    ]
    done.quarantined += job.places.put_aside(job.name, "silver", batches)
    good = np.ones(changes.num_rows, np.bool_)
    good[list(found)] = False
    return changes.filter(pa.array(good))


def _digest(records: Sequence[BadRecord]) -> str:
    return hashlib.sha256(repr([one.text for one in records]).encode()).hexdigest()[:16]


def _row(rows: pa.Table, number: int) -> dict[str, Any]:
    return plain(rows.slice(number, 1))[0]


# --- what is to be taken ------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Late:
    """Changes that silver does not account for, and deletes of keys that it has not, which are taken without a word."""

    changes: pa.Table
    deletes: pa.Table


def _late(job: TableJob, surveyor: Surveyor, floor: int, done: Refined) -> _Late:
    silver = job.places.foreign(job.config.silver, job.config.format)
    silver.look()
    rows = surveyor.unaccounted(silver, floor, _columns(job))
    good = _good(job, rows, done, counts=False)
    flags, good = good[ABSENT], good.drop_columns([ABSENT])
    return _Late(good.filter(pc.invert(flags)), good.filter(flags))


def _columns(job: TableJob) -> list[str]:
    more = [job.sync.time, *([job.sync.op] if job.sync.op else [])]
    return list(dict.fromkeys([*job.silver_schema.names, *more]))


def _pieces(job: TableJob, floor: int | None, done: Refined) -> Iterator[pa.Table]:
    """Good changes from a floor on, all without one, as many at a time as go into one commit."""
    how = job.sync
    reader = job.foreign.batches(_columns(job), time=None if floor is None else how.time, since_us=floor or 0)
    for rows in _grouped(job.foreign, reader):
        wanted = rows if floor is None else rows.filter(_not_before(rows[how.time], floor))
        for start in range(0, wanted.num_rows, ROWS_MAX):
            yield _good(job, wanted.slice(start, ROWS_MAX), done, counts=True)


def _grouped(bronze: Foreign, reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    group: list[pa.RecordBatch] = []
    rows = 0
    with bronze.translated():
        for batch in reader:
            group.append(batch)
            rows += batch.num_rows
            if rows >= ROWS_MAX:
                yield pa.Table.from_batches(group)
                group, rows = [], 0
    if group:
        yield pa.Table.from_batches(group)


def _not_before(times: pa.ChunkedArray, floor: int) -> pa.ChunkedArray:
    return pc.fill_null(pc.greater_equal(_micros(times), floor), False)


def _micros(times: pa.ChunkedArray) -> pa.ChunkedArray:
    zone = getattr(times.type, "tz", None)
    return times.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64())


@dataclass(frozen=True, slots=True)
class _Step:
    """Where a run is to bring silver's positions."""

    done: Refined
    positions: Mapping[str, int | None]
    mark: WatermarkPosition
    reset: bool = False


def _take(job: TableJob, pieces: Iterator[pa.Table], step: _Step, *, must: bool = True) -> None:
    """Apply changes, commit by commit; the mark comes with the last, for what comes twice does no harm.

    Not ``must``: the mark stays, and so there is a commit only if a change takes effect.
    """
    parts = {name_of(job.sync.time, part): value for part, value in asdict(step.mark).items()}
    moves = {name: (step.positions.get(name), value) for name, value in parts.items()}
    batch = f"medallion/{job.places.config.job}/{job.name}/time/{uuid.uuid4()}"
    changes = next(pieces, None)
    if changes is None:
        changes = job.silver_schema.empty_table().append_column("_op", pa.array([], pa.string()))
    number, resets = 0, step.positions.get(RESET)
    while changes is not None:
        following = next(pieces, None)
        reset = step.reset and not number
        moved = moves if following is None else {}
        if (resets or 0) % 2 if following is None else reset and not (resets or 0) % 2:
            moved, resets = {**moved, RESET: (resets, (resets or 0) + 1)}, (resets or 0) + 1
        key = f"{batch}/{number}"
        with_moves: dict[str, Any] = {"moves": moved or None, "reset": reset}
        with_moves["is_needed"] = None if must else _takes_effect
        try:
            _write(job, changes, step.done, key, with_moves)
        except InvalidInputError as error:
            ties = tied_with_silver(job, changes, error.unordered)
            if not ties:
                raise
            changes = _put_aside(job, changes, ties, step.done, by_content=True)
            _write(job, changes, step.done, f"{key}/{len(ties)} aside", with_moves)
        changes, number = following, number + 1


def _write(job: TableJob, changes: pa.Table, done: Refined, key: str, how: Mapping[str, Any]) -> None:
    changes = _asked(job).filled(changes)
    rows = changes.drop_columns(["_op"]).append_column(DELETE, pc.equal(changes["_op"], "D"))
    write(job, rows, done, key=short_key(key), **how)


def _asked(job: TableJob) -> SilverRules:
    return SilverRules.of(job.silver, job.config.keys)


def _takes_effect(counts: Mapping[str, int]) -> bool:
    return counts["applied"] > 0


def _refused(job: TableJob, count: int, known: WatermarkPosition, found: Survey) -> LateRowsError:
    untimed = f"; {found.untimed} rows of bronze have no time at all" if found.untimed else ""
    return LateRowsError(
        f"{count} rows of bronze of {job.name} ({job.config.bronze}) came late, and silver does not account for them: their "
        f"{job.sync.time} is before {_time(known.floor)} or NULL, and silver had taken all up to {_time(known.watermark)}{untimed}. "
        f"All other rows were taken. `{job.places.command('replay', job.name)}` takes the late ones. If such rows come again, "
        'raise sync.overlap_s, or say sync.late: "take".'
    )


def _time(at_us: int) -> str:
    try:
        return f"{dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=at_us):%Y-%m-%d %H:%M:%S.%f}"
    except OverflowError:
        return f"{at_us} microseconds since 1970"
