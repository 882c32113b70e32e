"""Reads the live rows of data files for a plan: by PyIceberg over the table's FileIO, or from bytes that are decoded later."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from safewrite.changes.meaning.reading import loose
from safewrite.errors import UnsupportedTableError, WouldAlterError
from safewrite.frames.parallel import Handed
from safewrite.frames.predicate import Predicate
from safewrite.frames.prepare import prepare
from safewrite.frames.required import under
from safewrite.frames.stored import as_stored
from safewrite.iceberg.catalog.effects import PlanFiles, ReadRows
from safewrite.iceberg.catalog.rows import decoded
from safewrite.iceberg.data.known_manifests import KnownManifests
from safewrite.iceberg.data.manifests import gone
from safewrite.iceberg.data.schema import read_schema
from safewrite.iceberg.metadata import table_of
from safewrite.protocol.ask import Limits, ask, unanswered
from safewrite.protocol.effects import Effect, Failed, Get, Missing, Ok, Outcome, Together
from safewrite.protocol.fetch import fetch
from safewrite.protocol.iceberg.head import TableVersion

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask

FileT = TypeVar("FileT")
WHOLE_BYTES = 2**20
"""Files up to this size are read whole at once: their other columns cost less than another request."""


def planned(
    head: TableVersion, predicate: Predicate, known: KnownManifests, limits: Limits, *, at: int | None = None
) -> Generator[Effect, Outcome, tuple[FileScanTask, ...]]:
    """The live files that may hold rows for which the predicate is TRUE, with their delete files; ``at``: of that snapshot."""
    from safewrite.iceberg.data.expressions import may_match

    schema, _ = read_schema(table_of(head).metadata.schema())
    effect = PlanFiles(head, may_match(predicate, schema), known, at, name="apply.plan_files")
    outcome = yield from ask(effect, limits)
    if not isinstance(outcome, Ok):
        raise unplanned(effect, outcome)
    assert isinstance(outcome.value, tuple)
    return outcome.value


def rows_of(
    head: TableVersion,
    tasks: Sequence[FileScanTask],
    schema: pa.Schema,
    limits: Limits,
    columns: tuple[str, ...] | None = None,
    *,
    name: str = "apply.read_rows",
    stored: bool = False,
) -> Generator[Effect, Outcome, list[pa.Table]]:
    """The live rows of some files, of all columns or of some, read side by side.

    ``stored``: all values as they are in the file, for those who only read; else what safewrite does not write is refused.  Where the
    schema has columns of row ids, all columns of a file come with them, and some where they are asked for (``data.lineage``).
    """
    from safewrite.iceberg.data.lineage import NAMES, has_ids

    ids = has_ids(schema, table_of(head).metadata)
    if columns is not None:
        ids = ids and not {*NAMES}.isdisjoint(columns)
        schema = pa.schema([schema.field(name) for name in columns])
        columns = tuple(one for one in columns if one not in NAMES) if ids else columns
    effects = [ReadRows(head, task, columns, ids, name=name) for task in tasks]
    if stored:
        return (yield from as_stored_in(effects, schema, limits))
    read = yield from _read(effects, limits)
    return [_conformed(table.select(schema.names) if ids else table, schema) for table in read]


def as_stored_in(
    effects: Sequence[ReadRows], schema: pa.Schema, limits: Limits
) -> Generator[Effect, Outcome, list[pa.Table]]:
    """The rows that these read, side by side, as files have them.  Raises as :func:`rows_of`."""
    tables = yield from _read(effects, limits)
    return [_stored(effect, table, schema) for effect, table in zip(effects, tables, strict=True)]


def _read(effects: Sequence[ReadRows], limits: Limits) -> Generator[Effect, Outcome, list[pa.Table]]:
    """What was read by each effect, side by side."""
    outcomes: Sequence[Outcome] = []
    if len(effects) > 1:
        together = yield Together(tuple(effects), name="apply.read_all_rows")
        assert isinstance(together, Ok)
        assert isinstance(together.value, tuple)
        outcomes = together.value
    tables = []
    for number, effect in enumerate(effects):
        outcome = outcomes[number] if outcomes else None
        if not isinstance(outcome, Ok):
            outcome = yield from ask(effect, limits)
        if not isinstance(outcome, Ok):
            raise unplanned(effect, outcome)
        assert isinstance(outcome.value, pa.Table)
        tables.append(outcome.value)
    return tables


def fetched(
    head: TableVersion,
    tasks: Mapping[FileT, FileScanTask],
    kept: Callable[[FileT], pa.Table | None],
    schema: pa.Schema,
    limits: Limits,
) -> Generator[Effect, Outcome, dict[FileT, Callable[[], pa.Table]]]:
    """What gives the live rows of files, in a thread and once: bytes are fetched now and decoded then.

    A file with delete files, or one that is not Parquet, PyIceberg reads by itself.  Ids of rows come as with :func:`rows_of`.
    """
    from safewrite.iceberg.data.lineage import has_ids

    ids, reads = has_ids(schema, table_of(head).metadata), {}
    for file in tasks:
        table = kept(file)
        if table is not None:
            reads[file] = Handed(table).taken
    there = {file: task for file, task in tasks.items() if file not in reads}
    bare = [file for file, task in there.items() if _is_bare(task)]
    gets = [Get(there[file].file.file_path, name="apply.get_data") for file in bare]
    answers = yield from fetch(gets, limits, name="apply.get_all_data")
    for file, answer in zip(bare, answers, strict=True):
        effect = ReadRows(head, there.pop(file), None, ids, name="apply.read_rows")
        if not isinstance(answer, Ok):
            raise unplanned(effect, answer)
        assert isinstance(answer.value, bytes)
        reads[file] = partial(_decoded, effect, Handed(answer.value), schema)
    tables = yield from rows_of(head, [*there.values()], schema, limits)
    return reads | {file: Handed(table).taken for file, table in zip(there, tables, strict=True)}


def _conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows that PyIceberg read, under the table's schema with NULL allowed."""
    wide = loose(schema)
    parts = prepare(table, schema, stored=True).tables()
    return pa.concat_tables([wide.empty_table(), *(under(part, wide) for part in parts)])


def _stored(effect: ReadRows, table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows that PyIceberg read, as the file has them, under the table's schema with NULL allowed."""
    try:
        return as_stored(table, schema)
    except WouldAlterError as error:
        raise unplanned(effect, Failed(error.message)) from error


def _is_bare(task: FileScanTask) -> bool:
    """Whether a file is all that is needed for its rows, and has columns that are read one by one."""
    from pyiceberg.manifest import FileFormat

    return not task.delete_files and task.file.file_format == FileFormat.PARQUET


def _decoded(effect: ReadRows, body: Handed[bytes], schema: pa.Schema) -> pa.Table:
    """The rows of a file without delete files, from its bytes.  Pure: it runs in a thread.

    Raises:
        UnsupportedTableError: PyIceberg cannot read them.
        StorageError: they are no file of the table's.
    """
    columns: list[pa.ChunkedArray] = []
    metadata = table_of(effect.head).metadata
    for outcome in decoded(metadata, body.taken(), effect.task, with_ids=effect.with_ids):
        if not isinstance(outcome, Ok):
            raise unplanned(effect, outcome)
        assert isinstance(outcome.value, pa.Table)
        part = pa.schema([schema.field(name) for name in outcome.value.column_names])
        columns += _conformed(outcome.value, part).columns
    return pa.table(columns, schema=loose(schema))


def unplanned(effect: PlanFiles | ReadRows, outcome: Outcome) -> Exception:
    """The error for files that could not be read for a plan."""
    if isinstance(outcome, Failed):
        task = effect.task if isinstance(effect, ReadRows) else None
        what = f"Rows of {task.file.file_path}" if task is not None else "Files of the table"
        return UnsupportedTableError(
            f"{what} could not be read for the plan: {outcome.detail}. Nothing was committed. "
            f"{_unread(outcome.detail, task)}"
        )
    if isinstance(outcome, Missing):
        deletes = effect.task.delete_files if isinstance(effect, ReadRows) else ()
        named = ", ".join(sorted(one.file_path for one in deletes))
        which = f"it, or what says which of its rows are deleted: {named}" if deletes else outcome.detail
        return gone(effect, which)
    return unanswered(effect, outcome)


def _unread(detail: str, task: FileScanTask | None) -> str:
    """Why PyIceberg could not read a file, as far as its format and its error tell, and what to do."""
    from pyiceberg.manifest import FileFormat

    files = [] if task is None else [task.file, *task.delete_files]
    if any(file.file_format == FileFormat.AVRO for file in files):
        return "PyIceberg reads no data or delete files in Avro. Rewrite them as Parquet with the engine that writes them."
    if "ORC timestamp" in detail:
        return (
            "ORC's timestamps are read in nanoseconds, from 1677-09-21 to 2262-04-11, and some are outside. Rewrite the file "
            "as Parquet, or delete these rows with Spark."
        )
    if "deletion vector" in detail:
        return (
            "Rewrite the data file with the engine that writes the table, for what it deleted cannot be told."
        )
    if "equality delete" in detail:
        return "PyIceberg applies no equality deletes. Compact the table with the engine that writes them."
    return "Delete or overwrite these rows with the engine that wrote them."
