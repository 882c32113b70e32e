"""Checks a frame against the table's schema before anything is uploaded, and fingerprints it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING

import pyarrow as pa

from safewrite.arguments.reading import SchemaMode, reading
from safewrite.arguments.reading import schema_mode as check_mode
from safewrite.arguments.volatile import check_columns
from safewrite.errors import InternalError, InvalidInputError, WouldAlterError
from safewrite.frames.columns import Indices, filled
from safewrite.frames.conform import conform
from safewrite.frames.fingerprint import Fingerprint, Fingerprinter, PartsFingerprinter
from safewrite.frames.required import under
from safewrite.frames.source import Frame, as_frame
from safewrite.values import compute as pc
from safewrite.values.types import canonical_schema, canonical_type, check_names

if TYPE_CHECKING:
    from safewrite.frames.abc import WrittenPart
    from safewrite.frames.row_rules import RowRules

KEPT_BYTES = 64 * 2**20
"""Frames up to this size are converted once and kept; larger ones are converted again when written."""

_SLICE_BYTES = 32 * 2**20
_SLICES = 32  # as many slices as this, if that keeps them between the smallest size and the largest
_SLICE_BYTES_MIN = 8 * 2**20
_SLICE_ROWS = 2**20

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
"""The spelling of NULL in directory names, and for some readers of partition values."""


@dataclass(frozen=True)
class Prepared:
    """Rows that were checked whole: they can be written as ``schema``, each value unchanged.

    ``added`` are the fields that ``schema`` has and the table does not yet (schema_mode='merge'), ``wider`` those that
    are narrower in the table ('widen');
    ``volatile`` are the columns that the fingerprint leaves out, ``column_digests`` are of the others.
    """

    schema: pa.Schema
    rows: int
    fingerprint: Fingerprint
    added: tuple[pa.Field, ...] = ()
    partition_by: tuple[str, ...] = ()
    volatile: tuple[str, ...] = ()
    column_digests: str = ""
    written: WrittenPart | None = field(default=None, repr=False)
    """Where tasks wrote the rows to files already: then they are not here."""
    _frame: Frame | None = field(default=None, repr=False)
    _kept: pa.Table | None = field(default=None, repr=False)
    _slice_rows: int = _SLICE_ROWS
    _allow_missing: bool = False
    _stored: bool = False
    wider: tuple[pa.Field, ...] = ()
    keeps: RowRules | None = None
    """The table's rules by which all rows were checked."""
    is_filled: bool = False
    """Whether the table computes columns that frames lack."""

    @classmethod
    def kept(cls, table: pa.Table, partition_by: tuple[str, ...] = ()) -> Prepared:
        """Rows that were conformed elsewhere, as they are; they get no fingerprint."""
        nothing = Fingerprinter().result()
        slice_rows = max(table.num_rows, 1)
        return cls(
            table.schema, table.num_rows, nothing, (), partition_by, _kept=table, _slice_rows=slice_rows
        )

    def tables(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The conformed rows in slices, any number of times; of all columns, or of those named."""
        for start in range(0, self.rows, self._slice_rows):
            yield self.piece(start, min(start + self._slice_rows, self.rows), columns)

    def piece(self, start: int, stop: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Conformed rows ``start`` to ``stop``."""
        if self._kept is not None:
            part = self._kept.slice(start, stop - start)
            return part if columns is None else part.select(list(columns))
        if columns is None:
            return self._conformed(self._source().piece(start, stop), self.schema, start)
        there = frozenset(self._source().column_names)
        present = [name for name in columns if name in there]
        schema = pa.schema([self.schema.field(name) for name in columns])
        if not present:  # all of them are missing in the data (schema_mode='merge')
            return pa.table([pa.nulls(stop - start, f.type) for f in schema], schema=schema)
        return self._conformed(self._source().piece(start, stop, columns=present), schema, start)

    def take(self, rows: Indices) -> pa.Table:
        """The conformed rows with these numbers, in this order."""
        if self._kept is not None:
            return self._kept.take(pa.array(rows))
        return self._conformed(self._source().take(rows), self.schema, 0)

    @property
    def slice_rows(self) -> int:
        """How many rows of this frame make a slice of bounded memory."""
        return self._slice_rows

    def _source(self) -> Frame:
        if self._frame is None:
            raise InternalError("A prepared frame has neither a source nor kept rows; please report this.")
        return self._frame

    def _conformed(self, piece: pa.Table, schema: pa.Schema, first_row: int) -> pa.Table:
        return conform(
            piece, schema, allow_missing=self._allow_missing, first_row=first_row, stored=self._stored
        )


class _RowCounter(Fingerprinter):
    """Counts rows that are never looked up by content; its result is not a fingerprint, and matches no write."""

    def update(self, conformed: pa.Table) -> None:
        """Add the rows of a table."""
        self.rows += conformed.num_rows

    def result(self) -> Fingerprint:
        """The number of rows so far."""
        return Fingerprint(self.rows, "", "unnamed")


@reading("The data")
def prepare(
    data: object,
    target: pa.Schema | None,
    *,
    partition_by: Sequence[str] = (),
    schema_mode: SchemaMode | None = None,
    volatile: Sequence[str] = (),
    named: bool = True,
    stored: bool = False,
) -> Prepared:
    """Check all of ``data`` against the table schema ``target`` (None: infer it, for a new table).

    ``schema_mode="merge"`` appends the frame's new columns to the schema as nullable ones, and lets
    nullable columns be missing (they read as NULL); so does ``"widen"``, for which ``target`` is as wide as it is to be.  ``volatile`` columns are written, and left out of the
    fingerprint.  Without ``named`` the rows get none: they are not looked for by what they hold.  ``stored`` are rows of the
    table's own files, which get none either, and whose texts stay as they are: see :func:`conform`.  Raises WouldAlterError for a value, column or
    field that would change, be dropped or become NULL, and InvalidInputError for data that is no
    table or cannot be read twice.  Nothing is written.  Failures H1-H8.
    """
    check_mode(schema_mode, "widen")
    frame = as_frame(data, target=target)
    draft = replace(_draft(frame, target, partition_by, schema_mode is not None, volatile), _stored=stored)
    return _checked(draft, frame, Fingerprinter(draft.volatile) if named and not stored else _RowCounter())


def prepare_parts(
    frame: Frame,
    rows: Sequence[int],
    like: Prepared,
    *,
    schema_mode: SchemaMode | None = None,
    volatile: Sequence[str] = (),
) -> list[Prepared]:
    """Check a frame for the schema of ``like``, and divide it into parts of so many rows with their own fingerprints.

    It is kept in memory.  Raises as :func:`prepare` does, for all parts together; InternalError where it has other
    columns than ``like``.
    """
    draft = _draft(frame, like.schema, like.partition_by, schema_mode is not None, volatile)
    if draft.added:
        raise InternalError("The parts of a frame brought columns; please report this.")
    # A part that holds only NULL, of whatever type, is taken: so the types must go without a look at values.
    draft.piece(0, 0)
    prints = PartsFingerprinter(rows, draft.volatile)
    whole = _look_at(draft, prints)
    found = zip(accumulate(rows), rows, prints.results(), prints.column_digests(), strict=True)
    return [
        Prepared(
            draft.schema,
            count,
            fingerprint,
            like.added,
            draft.partition_by,
            draft.volatile,
            digests,
            _kept=whole.slice(end - count, count),
            _slice_rows=draft.slice_rows,
        )
        for end, count, fingerprint, digests in found
    ]


def _draft(
    frame: Frame,
    target: pa.Schema | None,
    partition_by: Sequence[str],
    merge: bool,
    volatile: Sequence[str],
) -> Prepared:
    """Check all but the values."""
    empty = frame.rows == 0 and not frame.column_names
    if frame.rows and not frame.column_names:
        raise InvalidInputError(
            f"The data has rows ({frame.rows}) and no columns. Nothing was written. Give the rows their columns, or "
            "write a frame without rows."
        )
    _refuse_ragged(frame, merge=merge)
    schema, added = _target(frame, target, merge=merge)
    _check_partitions(schema, partition_by)
    check_columns(volatile, schema.names, frame.column_names)
    return Prepared(
        schema,
        frame.rows,
        Fingerprinter().result(),
        added,
        tuple(partition_by),
        tuple(volatile),
        _frame=frame,
        _slice_rows=_slice_rows(frame),
        _allow_missing=merge or empty,
    )


def joined(parts: Sequence[Prepared], schema: pa.Schema) -> Prepared:
    """The rows of several prepared frames as one, under a schema that may end with columns that they lack.

    Its rows are kept in memory, and it has no fingerprint of its own.  Rows that tasks wrote to files are not among them.
    """
    here = [part for part in parts if part.written is None]
    kept = pa.concat_tables(
        [schema.empty_table(), *(_widened(table, schema) for part in here for table in part.tables())]
    )
    slice_rows = min((part.slice_rows for part in here), default=_SLICE_ROWS)
    if kept.num_rows <= slice_rows:  # a chunk for each part would be encoded one by one
        kept = kept.combine_chunks()
    added = {field.name: field for part in parts for field in part.added}
    rules = here[0].keeps if here else None
    return Prepared(
        schema,
        kept.num_rows,
        Fingerprinter().result(),
        tuple(added.values()),
        parts[0].partition_by,
        _kept=kept,
        _slice_rows=slice_rows,
        keeps=rules if all(part.keeps == rules for part in here) else None,
    )


def _widened(table: pa.Table, schema: pa.Schema) -> pa.Table:
    if table.schema.equals(schema):
        return table
    if not set(table.column_names) <= set(schema.names):
        raise InternalError("Rows have a column that the schema of their group lacks; please report this.")
    there = {field.name: field for field in table.schema}
    return under(filled(table, pa.schema([there.get(field.name, field) for field in schema])), schema)


def _checked(draft: Prepared, frame: Frame, prints: Fingerprinter) -> Prepared:
    """Look at every row, and give the draft its fingerprint."""
    if frame.rows == 0 and frame.column_names:
        draft.piece(0, 0)  # the names and types of an empty frame are checked as well
    keep = frame.nbytes <= KEPT_BYTES
    whole = _look_at(draft, prints, keep=keep)
    result = prints.result()
    if result.rows != draft.rows:
        raise InternalError(f"{draft.rows} rows came in and {result.rows} were checked; please report this.")
    checked = replace(draft, fingerprint=result, column_digests=prints.column_digests())
    return replace(checked, _frame=None, _kept=whole) if keep else checked


def _look_at(draft: Prepared, prints: Fingerprinter | PartsFingerprinter, *, keep: bool = True) -> pa.Table:
    """Look at every row; returns those that are kept."""
    kept: list[pa.Table] = []
    for number, table in enumerate(draft.tables()):
        check_partition_values(table, draft.partition_by, number * draft.slice_rows)
        prints.update(table)
        if keep:
            kept.append(table)
    return pa.concat_tables(kept) if kept else draft.schema.empty_table()


def _refuse_ragged(frame: Frame, *, merge: bool) -> None:
    if frame.ragged is not None and not merge:
        raise WouldAlterError(
            f"Some rows have the key {frame.ragged!r} and others lack it, and would get NULL. Nothing was "
            "written. Write None where NULL is meant, or pass schema_mode='merge'."
        )


def _target(frame: Frame, target: pa.Schema | None, *, merge: bool) -> tuple[pa.Schema, tuple[pa.Field, ...]]:
    """The schema to write under, and its new fields."""
    if target is None:
        if not frame.column_names:
            raise InvalidInputError(
                "The data has no columns, so no table schema can be inferred from it. Nothing was written. Give it columns, "
                "or make the table with safewrite.create(uri, schema=...)."
            )
        return canonical_schema(frame.arrow_schema()), ()
    if not merge:
        return target, ()
    added = added_fields(frame.arrow_schema(), target)
    return pa.schema([*target, *added], metadata=target.metadata), added


def added_fields(found: pa.Schema, target: pa.Schema) -> tuple[pa.Field, ...]:
    """The columns that a table of the schema ``target`` lacks, as it may get them.

    Raises:
        InvalidInputError: a name or a type that no table has.
    """
    there = frozenset(target.names)
    extra = [f for f in found if f.name not in there]
    check_names([*target.names, *(f.name for f in extra)], where="the table with the new columns")
    refuse_untyped(extra)
    return tuple(pa.field(f.name, canonical_type(f.type, f.name), nullable=True) for f in extra)


def refuse_untyped(new: Sequence[pa.Field]) -> None:
    """Refuse new columns that hold only NULL.

    Raises:
        InvalidInputError: names the first.
    """
    empty = next((field.name for field in new if pa.types.is_null(field.type)), None)
    if empty is not None:
        raise InvalidInputError(
            f"The new column {empty!r} holds only NULL, so no type can be inferred for it. Nothing was written. Leave it out of the "
            "data until it has a value (a column that the table lacks is NULL), or cast it to the type you mean."
        )


def _slice_rows(frame: Frame) -> int:
    per_row = max(frame.nbytes // max(frame.rows, 1), 1)
    wanted = min(max(frame.nbytes // _SLICES, _SLICE_BYTES_MIN), _SLICE_BYTES)
    return max(min(wanted // per_row, _SLICE_ROWS), 1)


def _check_partitions(schema: pa.Schema, partition_by: Sequence[str]) -> None:
    check_names(partition_by, where="partition_by")
    there = frozenset(schema.names)
    for name in partition_by:
        if name not in there:
            raise InvalidInputError(
                f"partition_by names {name!r}, which is no column. Nothing was written. Columns: {schema.names}."
            )
        kind = schema.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_binary(kind):
            raise InvalidInputError(
                f"Column {name!r} of type {kind} cannot be a partition column: readers disagree on how its "
                "values are spelled. Nothing was written. Partition a new table by a string, number, date or timestamp; the rows of one that "
                "is there go to such a table by the engine that made it."
            )
    if partition_by and len(set(partition_by)) == len(schema.names):
        raise InvalidInputError(
            "All columns are partition columns, so data files would be empty. Nothing was written. "
            "Leave at least one column out of partition_by."
        )


def check_partition_values(table: pa.Table, partition_by: Sequence[str], first_row: int) -> None:
    """Refuse values that some reader takes for NULL or cannot read as a partition value (H5)."""
    for name in partition_by:
        column = table.column(name)
        kind = column.type
        bad: list[tuple[object, str]] = []
        if pa.types.is_string(kind):  # delta #2100
            bad = [(v, "would be read back as NULL") for v in ("", HIVE_NULL)]
        elif pa.types.is_decimal(kind) and kind.scale > 0:  # deltalake 1.6.6 reads -1.50 as '-1.-50'
            negative = (v for v in pc.unique(column).to_pylist() if v is not None and v < 0 and v != int(v))
            bad = [(v, "cannot be read back by deltalake") for v in negative]
        for value, why in bad:
            at = pc.index(column, pa.scalar(value, kind)).as_py()
            if at >= 0:
                raise WouldAlterError(
                    f"Column {name!r}, row {first_row + at}: {value!r} as a partition value {why}. Nothing was "
                    "written. Write NULL or another value, or do not partition by this column."
                )
