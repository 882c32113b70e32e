"""Adds everything up again: compares files with bronze and quarantine, and silver with bronze folded by other code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.errors import InvalidInputError, SafewriteError, TableNotFoundError, without_secrets
from safewrite.medallion.audit.comparison import compare
from safewrite.medallion.audit.dealt_rows import SHARE_ROWS, DealtRows, shares_of
from safewrite.medallion.audit.table_audit import EXAMPLES_MAX, TableAudit
from safewrite.medallion.bronze.reading import read_file, tag_in
from safewrite.medallion.bronze.source_truncates import gone_from
from safewrite.medallion.bronze.summary import Lines, Spans
from safewrite.medallion.config.bronze_columns import OLD, SEQUENCE, TRUNCATED_OP
from safewrite.medallion.config.commit_columns import with_commit_columns
from safewrite.medallion.config.full_load_epochs import truncating
from safewrite.medallion.files.file_versions import Contents, contents
from safewrite.medallion.files.layout import SourceFile, sort_out
from safewrite.medallion.files.mixed import MixedFiles
from safewrite.medallion.files.parts import FilePart, records_of_part
from safewrite.medallion.files.records import Records
from safewrite.medallion.files.unavailable_values import names_of
from safewrite.medallion.pipeline import Pipeline
from safewrite.medallion.silver.judging import check_loads, loads_of
from safewrite.medallion.silver.positions import TRUNCATED, is_under_way
from safewrite.medallion.silver.unfit import Record, place_of
from safewrite.medallion.tables.job import JobPlaces, TableJob

FileKey = tuple[str, str]
"""A path, and the tag of a content that it had."""
Key = tuple[Any, ...]
"""The values of a row's key columns."""
_Place = tuple[Any, ...]
_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of a key: its place in the order, its values (None for a deletion), and the places of those that it lacks."""

    place: _Place
    values: list[str] | None
    is_aside: bool
    lacking: frozenset[int] = frozenset()


@dataclass
class _BronzeRead:
    """What bronze has, but for its rows, which are dealt to so many shares."""

    shares: int
    rows: int = 0
    spans: Spans = field(default_factory=Spans)
    lines: Lines = field(default_factory=Lines)


@dataclass
class _Unlike:
    """Keys of which silver is not what bronze says: how many, and the first of them."""

    twice: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, list[str]] = field(default_factory=dict)

    def add(self, wanted: Mapping[Key, list[str]], have: Mapping[Key, list[str]], rows: int) -> None:
        """Compare the keys of a share, of which silver has so many rows."""
        self.twice += rows - len(have)
        for what, keys in (
            ("rows are missing in silver", wanted.keys() - have.keys()),
            ("rows should not be in silver", have.keys() - wanted.keys()),
            (
                "rows of silver are not the last",
                {key for key in wanted.keys() & have.keys() if have[key] != wanted[key]},
            ),
        ):
            self.counts[what] += len(keys)
            self.first[what] = sorted([*self.first.get(what, ()), *map(str, keys)])[:EXAMPLES_MAX]

    def tell(self, audit: TableAudit) -> None:
        """Note the flaws."""
        if self.twice:
            audit.flaws.append(f"{self.twice} rows of silver have a key that another row has")
        for what, examples in self.first.items():
            audit.tell(what, examples, self.counts[what])


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
    places = JobPlaces(pipeline.config, path=pipeline.places.path, read_only=True)
    mixed = MixedFiles(places.raw, pipeline.config)
    return [
        _table(TableJob(name, pipeline.config.tables[name], places), found.of(name), mixed) for name in names
    ]


def _table(job: TableJob, sources: list[SourceFile], mixed: MixedFiles) -> TableAudit:
    audit = TableAudit(job.name)
    try:
        if job.config.sync is not None:
            compare(job, _put_aside(job)["silver"], audit)
            _commits(job, audit)
            return audit
        aside = _put_aside(job)
        with DealtRows() as bronze, DealtRows() as silver:
            read = _bronze(job, bronze)
            audit.gone = len(gone_from(job, read.spans.table, sources))
            _files(job, sources, mixed, read, aside=aside["raw"], audit=audit)
            _silver(job, read, (bronze, silver), aside["silver"], audit)
        _commits(job, audit)
    except SafewriteError as error:
        audit.error = error.message
    return audit


def _by_another(job: TableJob, address: str, table_format: str) -> Iterator[pa.Table]:
    """All rows of a table as deltalake or PyIceberg reads them, on purpose: not by what wrote them; at least one piece."""
    found = job.places.foreign(address, table_format)
    found.look()
    reader = found.batches(found.schema.names)
    yield reader.schema.empty_table()
    for batch in reader:
        yield pa.Table.from_batches([batch])


def _bronze(job: TableJob, dealt: DealtRows) -> _BronzeRead:
    """Sum bronze up, and deal its rows to shares: an update that says which key its row had goes to the shares of both keys."""
    read = _BronzeRead(1 + sum(one.row_count for one in job.lineage.whole()) // SHARE_ROWS)
    for piece in _by_another(job, job.config.bronze, job.config.format):
        read.rows += piece.num_rows
        read.spans.add(piece)
        read.lines.add(piece)
        rows = with_commit_columns(piece, job.config.commit_fields)
        there, keys = frozenset(rows.column_names), job.config.keys
        shares = shares_of([rows[key] for key in keys], read.shares)
        olds = [pc.coalesce(rows[OLD + key], rows[key]) if OLD + key in there else rows[key] for key in keys]
        before = shares_of(olds, read.shares)
        both = np.flatnonzero(np.asarray(pc.equal(rows["_op"], "U"), np.bool_) & (before != shares))
        dealt.add(pa.concat_tables([rows, rows.take(pa.array(both))]), np.concatenate([shares, before[both]]))
    return read


def _put_aside(job: TableJob) -> dict[str, set[tuple[str, str, int]]]:
    """Records in quarantine by stage; a crash between two commits may have put one there twice."""
    config = job.places.config
    found: dict[str, set[tuple[str, str, int]]] = {"raw": set(), "silver": set()}
    try:
        pieces = [*_by_another(job, config.quarantine, config.quarantine_format)]
    except TableNotFoundError:
        return found
    for one in (row for piece in pieces for row in piece.to_pylist()):
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


def _silver(
    job: TableJob,
    read: _BronzeRead,
    dealt: tuple[DealtRows, DealtRows],
    aside: set[Record],
    audit: TableAudit,
) -> None:
    """Silver is bronze folded: of each key the change that is last by its sequence."""
    bronze, silver = dealt
    name, keys = job.lineage.position_name, job.config.keys
    positions = job.silver.positions()
    at = None if is_under_way(positions) else positions.get(name)
    for rows in _by_another(job, job.config.silver, job.config.format):
        silver.add(rows, shares_of([rows[key] for key in keys], read.shares))
    audit.silver_rows, audit.silver_put_aside = silver.rows, len(aside)
    if at is None:
        audit.behind = read.rows
    else:
        audit.behind = sum(one.row_count for one in job.lineage.since(at))
    if audit.behind:
        return  # silver is an earlier state, which the next run brings forward
    loaded, taken = loads_of(read.spans.table), positions.get(TRUNCATED, 0)
    check_loads(job, loaded)
    epochs = truncating(job.config.reload, job.config.epoch)
    first: _Place = (max((one for one in epochs if one in loaded or one <= taken), default=1),)
    for one in read.spans.table.filter(pc.equal(read.spans.table["_op"], TRUNCATED_OP)).to_pylist():
        first = max(first, tuple(one[name] for name in SEQUENCE))
    own = [*job.columns.names, *(one.name for one in job.config.commit_fields), *SEQUENCE]
    unlike = _Unlike()
    for number in range(read.shares):
        wanted, taken_later = _folded(bronze.share(number), (keys, own), aside, first=first)
        found = silver.share(number)
        have = {tuple(row[key] for key in keys): [_exact(row[column]) for column in own] for row in found}
        mine = {key for key in wanted.keys() | taken_later.keys() if hash(key) % read.shares == number}
        for key in mine & taken_later.keys():
            if have.get(key) in taken_later[key]:
                wanted.pop(key, None)
                wanted |= {key: have[key]} if key in have else {}
        unlike.add({key: row for key, row in wanted.items() if key in mine}, have, len(found))
    unlike.tell(audit)


def _folded(
    rows: Iterable[dict[str, Any]],
    columns: tuple[list[str], list[str]],
    aside: set[Record],
    *,
    first: _Place,
) -> tuple[dict[Key, list[str]], dict[Key, list[list[str] | None]]]:
    """What bronze says of each key; rows of epochs before the first, and from before a truncate, are gone.

    Also what keys may be instead: a replay under other rules takes rows that were put aside before.
    """
    keys, own = columns
    changes: dict[Key, list[_Change]] = {}
    for row in rows:
        place = (*(row[name] for name in SEQUENCE), place_of(row["_file"], row["_line"]))
        if row["_op"] == TRUNCATED_OP:
            continue
        is_aside = (row["_file"], row["_tag"], row["_line"]) in aside
        key = tuple(row[key] for key in keys)
        old = tuple(row[key] if row.get(OLD + key) is None else row[OLD + key] for key in keys)
        if row["_op"] == "U" and old != key:
            changes.setdefault(old, []).append(_Change(place, None, is_aside))
        values = None if row["_op"] == "D" else [_exact(row[name]) for name in own]
        lacking = frozenset(own.index(name) for name in names_of(row) if name in own)
        changes.setdefault(key, []).append(_Change(place, values, is_aside, lacking))
    folded: dict[Key, list[str]] = {}
    maybe: dict[Key, list[list[str] | None]] = {}
    for key, found in changes.items():
        standing = sorted((one for one in found if one.place >= first), key=lambda one: one.place)
        taken = [one for one in standing if not one.is_aside]
        if (state := _last(taken)) is not None:
            folded[key] = state
        if len(taken) < len(standing):
            newest = taken[-1].place if taken else first
            # Of one sequence silver has the last of the batch that came first, and batches are not known here.
            tied = {one.place[:2] for one in standing if one.is_aside}
            alone = [
                one.values
                for one in standing
                if one.place[:2] >= newest[:2] and (one.is_aside or one.place[:2] in tied)
            ]
            maybe[key] = [_last(standing), *alone]
    return folded, maybe


def _last(changes: Iterable[_Change]) -> list[str] | None:
    """The values of a key after changes in their order; what one lacks is carried on."""
    state: list[str] | None = None
    for one in changes:
        values = one.values
        if values is not None and one.lacking:
            if state is None:
                continue
            values = [state[at] if at in one.lacking else value for at, value in enumerate(values)]
        state = values
    return state


def _exact(value: Any) -> str:
    """A value to the last bit: NaN is NaN, and -0.0 is not 0.0."""
    return repr(value)


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
