"""Adds everything up again: compares files with bronze and quarantine, and silver with bronze folded by other code."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.errors import InvalidInputError, SafewriteError, TableNotFoundError, without_secrets
from safewrite.medallion.audit.comparison import compare
from safewrite.medallion.audit.dealt_rows import SHARE_ROWS
from safewrite.medallion.audit.folding import (
    CompareShares,
    Comparison,
    KeyShares,
    Place,
    Unlike,
    summed,
)
from safewrite.medallion.audit.table_audit import TableAudit
from safewrite.medallion.bronze.reading import read_file, tag_in
from safewrite.medallion.bronze.source_truncates import gone_from
from safewrite.medallion.bronze.summary import Lines, Spans
from safewrite.medallion.config.bronze_columns import SEQUENCE, TRUNCATED_OP
from safewrite.medallion.config.full_load_epochs import truncating
from safewrite.medallion.files.file_versions import Contents, contents
from safewrite.medallion.files.layout import SourceFile, sort_out
from safewrite.medallion.files.mixed import MixedFiles
from safewrite.medallion.files.parts import FilePart, records_of_part
from safewrite.medallion.files.records import Records
from safewrite.medallion.pipeline import Pipeline
from safewrite.medallion.silver.judging import check_loads, loads_of
from safewrite.medallion.silver.load_keys import load_numbers
from safewrite.medallion.silver.positions import TRUNCATED, is_under_way
from safewrite.medallion.silver.unfit import Record
from safewrite.medallion.tables.job import JobPlaces, TableJob
from safewrite.progress import watched

log = logging.getLogger("safewrite")

TASK_SHARES, TASKS_MAX = 20, 16
"""At least this many shares of keys are compared in a task, and in at most this many tasks: each reads all rows of both tables, and keeps its own."""
_SUMMED = ("_op", "_epoch", "_file", "_tag", "_seq", "_line")
FileKey = tuple[str, str]
"""A path, and the tag of a content that it had."""
_Numbers = npt.NDArray[np.int64]


@dataclass
class _BronzeRead:
    """What bronze has, but for its rows, whose keys are dealt to so many shares."""

    shares: int
    head: int
    pieces: Callable[[], Iterator[pa.Table]]
    rows: int = 0
    spans: Spans = field(default_factory=Spans)
    lines: Lines = field(default_factory=Lines)


@without_secrets
def verify(pipeline: Pipeline, tables: Iterable[str] | None = None) -> list[TableAudit]:
    """Read all files, bronze, quarantine and silver of the tables, and compare; writes nothing.

    Raises:
        InvalidInputError: a name is not configured.
        StorageError: the raw files cannot be listed.
    """
    if not isinstance(pipeline, Pipeline):
        raise InvalidInputError(
            f"verify is given a Pipeline, not a {type(pipeline).__name__}: verify(Pipeline(config)). Nothing was written."
        )
    names = pipeline.named(tables)
    found = sort_out(pipeline.listed(names if tables is not None else None), pipeline.config)
    own = pipeline.places
    places = JobPlaces(pipeline.config, path=own.path, read_only=True, work=own.work)
    mixed = MixedFiles(places.raw, pipeline.config)
    return [
        _table(TableJob(name, pipeline.config.tables[name], places), found.of(name), mixed)
        for name in watched(names, "tables", len(names))
    ]


def _table(job: TableJob, sources: list[SourceFile], mixed: MixedFiles) -> TableAudit:
    audit = TableAudit(job.name)
    try:
        if job.config.sync is not None:
            compare(job, _put_aside(job)["silver"], audit)
            _commits(job, audit)
            return audit
        aside = _put_aside(job)
        read = _bronze(job)
        audit.gone = len(gone_from(job, read.spans.table, sources))
        _files(job, sources, mixed, read, aside=aside["raw"], audit=audit)
        _silver(job, read, frozenset(aside["silver"]), audit)
        _commits(job, audit)
    except TableNotFoundError as error:
        what = error.message.partition(" Nothing was written")[0]
        audit.error = (
            f"{what} No run of the job could make it, or it was dropped since. Nothing was written. Run the job: it makes the table, or "
            "says why it cannot."
        )
    except SafewriteError as error:
        audit.error = error.message
    return audit


def _bronze(job: TableJob) -> _BronzeRead:
    """Sum bronze up."""
    shares = 1 + sum(one.row_count for one in job.lineage.whole()) // SHARE_ROWS
    found = job.places.foreign(job.config.bronze, job.config.format)
    found.look()
    read = _BronzeRead(shares, found.head, found.pieces_of_bronze)
    for piece in found.pieces_of_bronze(_SUMMED):
        read.rows += piece.num_rows
        read.spans.add(piece)
        read.lines.add(piece)
    return read


def _put_aside(job: TableJob) -> dict[str, set[tuple[str, str, int]]]:
    """Records in quarantine by stage; a crash between two commits may have put one there twice."""
    config = job.places.config
    found: dict[str, set[tuple[str, str, int]]] = {"raw": set(), "silver": set()}
    try:
        table = job.places.foreign(config.quarantine, config.quarantine_format)
        table.look()
    except TableNotFoundError:
        return found
    for one in (row for piece in table.pieces() for row in piece.to_pylist()):
        if one["table"] == job.name and one["stage"] in found:
            found[one["stage"]].add((one["file"], one["tag"], one["line"]))
    return found


def _files(
    job: TableJob,
    sources: Iterable[SourceFile],
    mixed: MixedFiles,
    read: _BronzeRead,
    *,
    aside: set[Record],
    audit: TableAudit,
) -> None:
    """``rows in a file = landed + quarantined``, for each file that is listed."""
    audit.tell("bronze has records twice", read.lines.twice())
    put_aside: dict[FileKey, list[int]] = {}
    for path, tag, line in aside:
        put_aside.setdefault((path, tag), []).append(line)
    unlike, known = [], contents(read.spans.table)
    for source in sources:
        tag, wanted, lacking = _compared(job, source, mixed, known.get(source.path, {}), read.lines)
        content = source.path, tag
        here = read.lines.count(content)
        others = np.unique(np.asarray(put_aside.get(content, []), np.int64))
        there = others[read.lines.lacks(content, others)]
        audit.files += 1
        audit.rows_in_files += wanted
        audit.landed += here
        audit.put_aside += len(there)
        if here != wanted - len(lacking) or not np.array_equal(lacking, there):
            unlike.append(f"{source.path}: {wanted} records, {here} landed, {len(there)} put aside")
    audit.tell("files are not landed as they are", unlike)
    audit.bronze_rows = read.rows


def _compared(
    job: TableJob, source: SourceFile, mixed: MixedFiles, known: Contents, landed: Lines
) -> tuple[str, int, _Numbers]:
    """The tag that a file has where it was landed, how many records it has, and the numbers of those that are not landed."""
    if source.is_mixed:
        file = read_file(job, source, mixed, known)
        return file.tag, *_lacking([file.records], (source.path, file.tag), landed)
    raw, columns = job.places.raw, job.columns.names
    tag = tag_in(job, source, raw.tag(source.raw), known)

    def records(*, at_once: bool) -> Iterator[Records]:
        part = FilePart.whole(source, at_once=at_once)
        return records_of_part(raw, part, job.config.files, columns, job.places.config.owner_columns)

    try:
        return tag, *_lacking(records(at_once=False), (source.path, tag), landed)
    except InvalidInputError:  # not in pieces
        return tag, *_lacking(records(at_once=True), (source.path, tag), landed)


def _lacking(records: Iterable[Records], content: FileKey, landed: Lines) -> tuple[int, _Numbers]:
    count, found = 0, [np.zeros(0, np.int64)]
    for one in records:
        wanted = np.union1d(one.lines, np.asarray([bad.line for bad in one.bad], np.int64))
        count += len(wanted)
        found.append(wanted[landed.lacks(content, wanted)])
    return count, np.concatenate(found)


def _silver(job: TableJob, read: _BronzeRead, aside: frozenset[Record], audit: TableAudit) -> None:
    """Silver is bronze folded."""
    config, positions = job.config, job.silver.positions()
    at = None if is_under_way(positions) else positions.get(job.lineage.position_name)
    silver = job.places.foreign(config.silver, config.format)
    silver.look()
    audit.silver_rows = sum(piece.num_rows for piece in silver.pieces(config.keys))
    audit.silver_put_aside = len(aside)
    audit.behind = read.rows if at is None else sum(one.row_count for one in job.lineage.since(at))
    if audit.behind:
        return  # silver is an earlier state, which the next run brings forward
    loaded, taken = loads_of(read.spans.table), positions.get(TRUNCATED, 0)
    check_loads(job, loaded)
    epochs = truncating(config.reload, config.epoch)
    first: Place = (max((one for one in epochs if one in loaded or one <= taken), default=1),)
    for one in read.spans.table.filter(pc.equal(read.spans.table["_op"], TRUNCATED_OP)).to_pylist():
        first = max(first, tuple(one[name] for name in SEQUENCE))
    own = (*job.columns.names, *(one.name for one in config.commit_fields), *SEQUENCE)
    keys = pa.schema([job.silver_schema.field(key) for key in config.keys])
    shares = KeyShares(read.shares, keys)
    comparison = Comparison(config, own, shares, aside, first, load_numbers(read.spans.table))
    _unlike(
        job,
        comparison,
        (read.head, silver.head),
        lambda: comparison.of(read.pieces(), silver.pieces(), range(read.shares)),
    ).tell(audit)


def _unlike(
    job: TableJob, comparison: Comparison, heads: tuple[int, int], here: Callable[[], Unlike]
) -> Unlike:
    """What is unlike, as tasks find where there are many rows, and ``here`` where they cannot."""
    engine, tasks = job.places.elsewhere, min(TASKS_MAX, -(-comparison.shares.count // TASK_SHARES))
    if engine is not None and tasks > 1 and job.bronze.in_tasks() is not None:
        task = CompareShares(job.places.config, job.name, comparison, heads, tasks)
        try:
            with engine.map(engine.numbers(tasks), task) as mapped:
                found = mapped.bodies()
        except SafewriteError as error:
            log.info("medallion: %s: tasks cannot verify it, this process does: %s", job.name, error.message)
        else:
            if None not in found:
                return summed(found)
            log.info("medallion: %s was written while tasks verified it, this process does", job.name)
    return here()


def _commits(job: TableJob, audit: TableAudit) -> None:
    """Each commit of silver that history still has: the rows it took are all accounted for."""
    unlike = []
    for entry in job.silver.history():
        taken = entry.properties.get("medallion.rows")
        if taken is None or not entry.writes or entry.writes[0].key is None:
            continue
        receipt = job.silver.resolve(entry.writes[0].key)
        counts = dict((receipt.changes if receipt else None) or {})
        counts.pop("applied", None)
        audit.commits += 1
        if sum(counts.values()) != int(taken) + int(entry.properties["medallion.split"]):
            unlike.append(f"version {entry.version}: {taken} rows, {counts}")
    audit.tell("commits of silver do not add up", unlike)
