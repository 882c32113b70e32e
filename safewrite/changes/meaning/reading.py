"""Reads a frame of changes: what each row does, under the target's schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.arguments.reading import reading
from safewrite.changes.meaning.decide import ChangeBatch, ChangeOp
from safewrite.changes.meaning.spec import Spec
from safewrite.errors import InvalidInputError, WouldAlterError
from safewrite.frames.columns import filled, untyped
from safewrite.frames.conform import LACKING_ADVICE, OTHERS_ADVICE, SEVERAL_ADVICE
from safewrite.frames.fingerprint import Fingerprint, Fingerprinter
from safewrite.frames.predicate import Predicate, columns, truths
from safewrite.frames.prepare import prepare
from safewrite.frames.required import under
from safewrite.frames.source import as_frame
from safewrite.frames.where import Where, parse
from safewrite.values.column_names import names_by_files
from safewrite.values.types import is_list
from safewrite.values.types import is_text as is_words

OP_COLUMN = "safewrite.op"
"""The column by which a fingerprint tells an upsert from a delete of the same values."""
UNCHANGED_COLUMN = "safewrite.unchanged."
"""The column, before the name of another, by which a fingerprint tells NULL from what a change does not bring."""
ROWS_TOLD = 5


@dataclass(frozen=True)
class NewColumns:
    """What changes ask of a table: the columns that it lacks, and those that are narrower in it, as they are to be."""

    added: tuple[pa.Field, ...] = ()
    wider: tuple[pa.Field, ...] = ()


@dataclass(frozen=True)
class Changes:
    """A batch and the fingerprint by which a repeat is known; ``columns`` are those by which the table is other than before."""

    batch: ChangeBatch
    fingerprint: Fingerprint
    columns: NewColumns = NewColumns()

    def under(self, schema: pa.Schema) -> Changes:
        """The changes for a table that has more columns, which are NULL in them."""
        return replace(self, batch=replace(self.batch, table=filled(self.batch.table, loose(schema))))


def check_target(spec: Spec, schema: pa.Schema) -> None:
    """Refuse keys and sequences that do not order rows in every engine alike.

    Raises:
        InvalidInputError: a column that the table does not have, or a type whose values have no order or equality.
    """
    there = frozenset(schema.names)
    unknown = [name for name in spec.columns or () if name not in there]
    if unknown:
        raise InvalidInputError(
            f"columns= names {unknown}, which are no columns of the table. Nothing was written. Take them out, or add "
            "them to the table: schema_mode='merge' adds those that the data has."
        )
    for what, names in (("keys", spec.keys), ("sequence_by", spec.sequence_by)):
        for name in names:
            if name not in there:
                if (now := names_by_files(schema).get(name)) is not None:
                    raise renamed(what, name, now)
                why = (
                    "A row is found by its key"
                    if what == "keys"
                    else "The sequence of a row is kept in the table"
                )
                near = [one for one in schema.names if one.casefold() == name.casefold()]
                raise InvalidInputError(
                    f"{what}= names {name!r}, which is no column of the table. Nothing was written. {why}, so that a later "
                    f"batch can be compared with it; add the column, or name {repr(near[0]) if near else 'another'}."
                )
            kind = schema.field(name).type
            if pa.types.is_nested(kind) or (what == "keys" and pa.types.is_floating(kind)):
                raise InvalidInputError(
                    f"{what}= names {name!r} of type {kind}, whose values are not equal in all engines alike (NaN, -0.0, "
                    "nested values). Nothing was written. Name columns of whole numbers, texts, decimals, dates or times."
                )


def renamed(what: str, name: str, now: str) -> InvalidInputError:
    """The error for a column that another engine renamed."""
    return InvalidInputError(
        f"{what}= names {name!r}, and this column is called {now!r} now. Nothing was written. Name it so, in the data too; "
        "what the table remembers of it stays."
    )


def loose(schema: pa.Schema) -> pa.Schema:
    """The schema with NULL allowed in every column: a delete has no more than its key and sequence."""
    return pa.schema([field.with_nullable(True).remove_metadata() for field in schema])


@reading("The data")
def read(data: object, spec: Spec, schema: pa.Schema, partition_by: Sequence[str] = ()) -> Changes:
    """Check and conform changes.

    Upserts are checked as rows of an append are; of a delete only keys and sequence are looked at, of a truncate its
    sequence.  Columns that only a condition names need not be in the table.  A condition that is NULL is not true.

    Raises:
        WouldAlterError: an upsert does not fit the table.
        InvalidInputError: a key or sequence is NULL or NaN; the rows are named.
    """
    batch = read_batch(data, spec, schema, partition_by)
    return Changes(batch, fingerprint_of(batch))


@reading("The data")
def read_batch(data: object, spec: Spec, schema: pa.Schema, partition_by: Sequence[str] = ()) -> ChangeBatch:
    """As :func:`read`, of changes that another name tells than a fingerprint of their rows."""
    check_target(spec, schema)
    frame = as_frame(data, target=schema)
    table = _decoded(frame.piece(0, frame.rows))
    ops, named = _ops(table, spec)
    absent = _absent(table, ops, spec, schema)
    told, there = _beside(named, spec), frozenset(schema.names)
    mine = [name for name in table.column_names if name in there or name not in told]
    asked = frozenset(mine if spec.columns is None else spec.columns)
    kept = table.select([name for name in mine if name in asked])
    parts, places = [loose(schema).empty_table()], [np.zeros(0, np.int64)]
    lacking = np.any([*absent.values()], axis=0) if absent else np.zeros(len(ops), np.bool_)
    for which, names in (
        ((ops == ChangeOp.UPSERT) & ~lacking, None),
        (ops == ChangeOp.DELETE, (*spec.keys, *spec.sequence_by) if spec.rule is None else schema.names),
        (ops == ChangeOp.TRUNCATE, spec.sequence_by),
    ):
        chosen = np.flatnonzero(which)
        if len(chosen):
            places.append(chosen)
            with _advising(spec):
                parts.append(_conformed(kept.take(pa.array(chosen)), schema, names, partition_by, spec))
    for lacks, chosen in _alike(absent, np.flatnonzero(lacking)):
        brings = [name for name in schema.names if name not in lacks]
        places.append(chosen)
        parts.append(_conformed(kept.take(pa.array(chosen)), schema, brings, (), spec, strict=True))
    whole = pa.concat_tables(parts).take(pa.array(np.argsort(np.concatenate(places), kind="stable")))
    whole = whole.combine_chunks()
    _check_values(whole, ops, spec)
    return ChangeBatch(whole, ops, spec.keys, spec.sequence_by, absent)


@contextmanager
def _advising(spec: Spec) -> Iterator[None]:
    """Let refusals advise what changes have besides what an append has."""
    try:
        yield
    except WouldAlterError as error:
        text = str(error)
        for known, own in _advice(merges=spec.schema_mode is not None).items():
            text = text.replace(known, own)
        if spec.delete_when is not None:
            text = text.replace(_TELLS, "")
        raise WouldAlterError(text) from error


_TELLS = (
    " If it tells which changes are deletes, say so: delete_when=\"op = 'd'\", by its own name and value."
)


def _advice(*, merges: bool) -> dict[str, str]:
    """What changes can do, by what an append can."""
    lacking = "say by unchanged= which columns a change does not bring"
    several = f"Rename, convert, add or drop these columns, name those that count in columns=, or {lacking}"
    if not merges:
        several += "; schema_mode='merge' adds columns to the table, and reads missing ones as NULL where they may be"
    return {
        OTHERS_ADVICE: "Rename or drop it, name the columns that count in columns=, or add it to the table with schema_mode='merge' "
        f"(top-level columns).{_TELLS}",
        LACKING_ADVICE: f", or {lacking}."
        if merges
        else f", {lacking}, or pass schema_mode='merge' to mean NULL.",
        SEVERAL_ADVICE: f"{several}.{_TELLS}",
    }


def _conformed(
    rows: pa.Table,
    schema: pa.Schema,
    names: Sequence[str] | None,
    partition_by: Sequence[str],
    spec: Spec,
    *,
    strict: bool = False,
) -> pa.Table:
    """Rows under the table's schema; those of ``names`` alone, the others NULL.

    ``strict``: those of ``names`` are checked as rows of an append are, and no others may come.
    """
    wide, lacks = loose(schema), {*spec.computed} - {*rows.column_names}
    mode = None if lacks & {*(schema.names if names is None else names)} else spec.schema_mode
    if names is None:
        prepared = prepare(rows, schema, partition_by=partition_by, schema_mode=mode, named=False)
        return under(pa.concat_tables([prepared.schema.empty_table(), *prepared.tables()]), wide)
    asked, brought = frozenset(names), frozenset(rows.column_names)
    wanted = pa.schema([field for field in schema if field.name in asked])
    if strict:
        others = frozenset(schema.names) - asked
        mine = rows.select([name for name in rows.column_names if name not in others])
        prepared = prepare(mine, wanted, schema_mode=mode, named=False)
    else:
        wanted = pa.schema([field.with_nullable(True) for field in wanted])
        found = [name for name in wanted.names if name in brought]
        prepared = prepare(rows.select(found), wanted, schema_mode="merge", named=False)
    narrow = pa.concat_tables([wanted.empty_table(), *prepared.tables()])
    return filled(narrow, wide)


def _decoded(table: pa.Table) -> pa.Table:
    """A table whose columns have plain types: pandas' categories and runs compare as the values that they stand for."""
    columns = list(map(_plain, table.columns))
    fields = [field.with_type(column.type) for field, column in zip(table.schema, columns, strict=True)]
    return pa.table(columns, schema=pa.schema(fields, metadata=table.schema.metadata))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    if pa.types.is_run_end_encoded(column.type):
        return pc.run_end_decode(column)
    return column.cast(pa.string()) if pa.types.is_string_view(column.type) else column


# --- what each row does -------------------------------------------------------------------------------
def _ops(table: pa.Table, spec: Spec) -> tuple[npt.NDArray[np.int8], frozenset[str]]:
    """What each row does, and the columns that tell it."""
    ops = np.full(table.num_rows, ChangeOp.UPSERT, np.int8)
    named: frozenset[str] = frozenset()
    if not table.column_names:  # no dicts, or an empty frame: there is nothing to tell
        return ops, named
    for op, name, condition in (
        (ChangeOp.DELETE, "delete_when", spec.delete_when),
        (ChangeOp.TRUNCATE, "truncate_when", spec.truncate_when),
    ):
        if condition is not None:
            true, found = _told(name, condition, table)
            ops[true] = op
            named |= found
    return ops, named


def _told(
    name: str, condition: Where | Predicate, table: pa.Table
) -> tuple[npt.NDArray[np.bool_], frozenset[str]]:
    """As ``_true``; where a condition does not fit a column's type, and the column has no values, it is NULL."""
    try:
        return _true(name, condition, table)
    except InvalidInputError:
        return _true(name, condition, untyped(table))


def parsed(spec: Spec, schema: pa.Schema) -> Spec:
    """The declaration with its conditions read, for a frame of this schema: who gets it need not know SQL.

    Raises:
        InvalidInputError: a condition cannot be used.
    """
    nothing = pa.Table.from_batches([], schema)

    def parsed_one(name: str, condition: Where | Predicate | None) -> Where | Predicate | None:
        if condition is None or isinstance(condition, Predicate):
            return condition
        is_column = isinstance(condition, str) and condition in schema.names
        with _refusing(name):
            read = condition if is_column else parse(condition, schema)
        _true(name, read, nothing)
        return read

    return replace(
        spec,
        delete_when=parsed_one("delete_when", spec.delete_when),
        truncate_when=parsed_one("truncate_when", spec.truncate_when),
    )


def _true(
    name: str, condition: Where | Predicate, table: pa.Table
) -> tuple[npt.NDArray[np.bool_], frozenset[str]]:
    """The rows for which a condition is true, and its columns."""
    with _refusing(name):
        if isinstance(condition, str) and condition in table.column_names:
            values, named = _flags(condition, table), frozenset({condition})
        else:
            predicate = condition if isinstance(condition, Predicate) else parse(condition, table.schema)
            values, named = truths(predicate, table), columns(predicate)
    return np.asarray(pc.fill_null(values, False).to_numpy(), np.bool_), named


@contextmanager
def _refusing(name: str) -> Iterator[None]:
    """Let refusals say which condition it is."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}= cannot be used. {error}") from error


def _flags(name: str, table: pa.Table) -> pa.ChunkedArray:
    column = table.column(name)
    if pa.types.is_null(column.type):
        return column.cast(pa.bool_())
    if not pa.types.is_boolean(column.type):
        raise InvalidInputError(
            f"{name!r} has type {column.type}, and a column of changes to be told by is boolean. Nothing was written. Write "
            "a condition, such as \"op = 'd'\"."
        )
    return column


def telling(columns: pa.Schema, spec: Spec) -> frozenset[str]:
    """Those of the columns of data that tell what a change does, and need not be the table's.

    Raises:
        InvalidInputError: a condition cannot be used.
    """
    return _beside(_ops(_decoded(columns.empty_table()), spec)[1], spec)


def _beside(named: frozenset[str], spec: Spec) -> frozenset[str]:
    return named if spec.unchanged is None else named | {spec.unchanged}


# --- what an upsert does not bring ----------------------------------------------------------------------
Absent = dict[str, npt.NDArray[np.bool_]]


def _absent(table: pa.Table, ops: npt.NDArray[np.int8], spec: Spec, schema: pa.Schema) -> Absent:
    """By column the upserts that do not bring it; columns that all bring are left out."""
    if spec.unchanged is None or not table.num_rows:
        return {}
    if spec.unchanged not in table.column_names:
        raise _no_list(spec.unchanged, "is no column of the changes")
    column = table.column(spec.unchanged)
    if pa.types.is_null(column.type):
        return {}
    if not is_list(column.type) or not is_words(column.type.value_type):
        raise _no_list(spec.unchanged, f"has type {column.type}")
    lists = column.combine_chunks()
    parents = np.asarray(pc.list_parent_indices(lists).to_numpy(), np.int64)
    words = pc.list_flatten(lists).cast(pa.string())
    found: Absent = {}
    may_lack = frozenset(schema.names) - {*spec.keys, *spec.sequence_by}
    for name in pc.unique(words).to_pylist():
        if name not in may_lack:
            raise _no_list(
                spec.unchanged, f"names {name!r}, which is a key, a sequence or no column of the table"
            )
        flags = np.zeros(table.num_rows, np.bool_)
        flags[
            parents[
                np.asarray(
                    pc.fill_null(pc.equal(words, name), False).to_numpy(zero_copy_only=False), np.bool_
                )
            ]
        ] = True
        flags &= ops == ChangeOp.UPSERT
        if flags.any():
            found[name] = flags
    return dict(sorted(found.items()))


def _no_list(name: str, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"unchanged= names {name!r}, which {why}. Nothing was written. It is a column of lists: for each change the names of "
        "the columns whose values it does not bring."
    )


def _alike(absent: Absent, rows: npt.NDArray[np.int64]) -> Iterator[tuple[set[str], npt.NDArray[np.int64]]]:
    """Rows that lack the same columns, group by group."""
    if not len(rows):
        return
    names = list(absent)
    patterns = np.stack([absent[name][rows] for name in names], axis=1)
    each, which = np.unique(patterns, axis=0, return_inverse=True)
    for number, pattern in enumerate(each):
        yield {name for name, lacks in zip(names, pattern, strict=True) if lacks}, rows[which == number]


# --- what every change needs --------------------------------------------------------------------------
def _check_values(table: pa.Table, ops: npt.NDArray[np.int8], spec: Spec) -> None:
    for name in spec.keys:
        _refuse(table, ops != ChangeOp.TRUNCATE, name, "keys", spec)
    for name in spec.sequence_by if spec.rule is None else ():
        _refuse(table, np.ones(len(ops), np.bool_), name, "sequence_by", spec)


def _refuse(table: pa.Table, where: npt.NDArray[np.bool_], name: str, what: str, spec: Spec) -> None:
    column = table.column(name)
    bad = pc.is_null(column, nan_is_null=pa.types.is_floating(column.type))
    rows = np.flatnonzero(np.asarray(bad.to_numpy(), np.bool_) & where)
    if not len(rows):
        return
    told = table.select([*spec.keys]).take(pa.array(rows[:ROWS_TOLD])).to_pylist()
    shown_rows = ", ".join(
        f"row {row} {keys}" for row, keys in zip(rows[:ROWS_TOLD].tolist(), told, strict=True)
    )
    raise InvalidInputError(
        f"{what}= names {name!r}, which is NULL or NaN in {len(rows)} changes: {shown_rows}. Nothing was written. A change "
        "needs its key and its place in the order; rows without one, of a full load for one, get the lowest value there is."
    )


def fingerprint_of(batch: ChangeBatch) -> Fingerprint:
    """The fingerprint of changes as they were read."""
    told = batch.table.append_column(OP_COLUMN, pa.array(batch.ops.astype(np.int64)))
    for name, flags in batch.absent.items():  # a value that is not brought is not NULL
        # NULL where it is brought: then a row counts the same whatever other rows are in its batch or piece of one.
        told = told.append_column(f"{UNCHANGED_COLUMN}{name}", pa.array(flags, mask=~flags))
    counted = Fingerprinter()
    counted.update(told)
    return counted.result()
