"""Conforms a piece of a frame to a table's schema: by name, with every value kept, or an error (H1-H4).

Nothing is matched by position, nothing cast with loss, no column dropped and none filled with NULL
unless ``allow_missing`` says so.

Integers go to other integers, floats and decimals, and floats and decimals to integers, if every
value stays equal; decimals are rescaled, times change their unit, if nothing is cut off.  Texts,
bytes, booleans, numbers, dates and times never become each other, nor do floats and decimals.  A time with a
zone keeps its instant; a time without one is not an instant.  A text is UTF-8.  NaN for a column that is none of floats is refused:
whether NULL is meant cannot be told.  Years are 1 to 9999.  A UUID is its 16 bytes; bytes go to a column of fixed
length if every value has that length; times of day are from 00:00 to before 24:00.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from safewrite.errors import InvalidInputError, WouldAlterError
from safewrite.text.rendering import said, shown
from safewrite.values import compute as pc
from safewrite.values.casts import convert
from safewrite.values.field_defaults import default_of
from safewrite.values.fit import misfits
from safewrite.values.python import is_nan, no_nan
from safewrite.values.refusals import NotExactError, OtherMeaningError
from safewrite.values.text_limits import TextLimit, limit_of
from safewrite.values.types import is_list, is_text, without_uuids

Rows = Callable[[int], int]
"""From an element's position to the row of the frame that it belongs to."""


OTHERS_ADVICE = "Rename or drop it, or add it to the table with schema_mode='merge' (top-level columns)."
NESTED_ADVICE = (
    "Rename it, leave it out of the data, or add it to the table with an engine that changes nested types (Spark: ALTER TABLE ... "
    "ADD COLUMNS (outer.inner ...)): schema_mode='merge' adds top-level columns only."
)
LACKING_ADVICE = ", or pass schema_mode='merge' to mean NULL."
SEVERAL_ADVICE = (
    "Rename, convert, add or drop these columns; schema_mode='merge' adds columns to the table, and reads missing ones as NULL "
    "where they may be."
)
"""What an append can do; other verbs advise otherwise."""
_IDENTITY = b"delta.identity.start"
"""A column of Delta that must not be NULL, whatever its schema says."""


def conform(
    piece: pa.Table,
    target: pa.Schema,
    *,
    allow_missing: bool = False,
    first_row: int = 0,
    stored: bool = False,
) -> pa.Table:
    """``piece`` with the columns, order and types of ``target``, every value equal to what it was.

    ``first_row`` is the row number of the piece's first row, for messages (counted from 0).
    ``allow_missing`` fills nullable columns and nested fields that the piece lacks with NULL.  A nested field that has a default gets
    it where the piece lacks the field.
    ``stored`` are rows of the table: a text in them that is no UTF-8, which engines of Java write, stays so, for a write that
    takes away such a row, or one next to it, reads it too.
    Raises WouldAlterError naming column, row and value; where names or types of several columns differ, all of them.
    InvalidInputError names column and row of a text that is no UTF-8.
    """
    casting = _Casting(allow_missing, stored)
    try:
        return _conformed(piece, target, casting, first_row=first_row)
    except WouldAlterError as error:
        differences = _differences(piece, target, allow_missing=allow_missing)
        if len(differences) < 2:
            raise
        raise _all_of(differences) from error


class _Casting(NamedTuple):
    """How values are converted, see :func:`conform`."""

    allow_missing: bool
    stored: bool = False


def _conformed(piece: pa.Table, target: pa.Schema, casting: _Casting, *, first_row: int) -> pa.Table:
    names = piece.column_names
    _check_fields(names, target, where="the table", allow_missing=casting.allow_missing)
    arrays, there = [], frozenset(names)
    for field in target:
        if field.name not in there:
            arrays.append(pa.nulls(piece.num_rows, field.type))
            continue
        array = _single(piece.column(field.name))
        caster = _Caster(field.name, casting, lambda i: first_row + i)
        arrays.append(caster.field(array, field))
    return pa.Table.from_arrays(arrays, schema=target)


_TOLD_MAX = 100
"""How many columns one message names."""


def _differences(piece: pa.Table, target: pa.Schema, *, allow_missing: bool) -> list[str]:
    """What is wrong with a piece by names and types alone, by column."""
    wanted = {field.name: field for field in target}
    folded = {name.casefold(): name for name in wanted}
    found, misspelled, there = [], set(), frozenset(piece.column_names)
    for name in piece.column_names:
        if name not in wanted:
            near = folded.get(name.casefold())
            found.append(f"{name!r}: not in the table" + (f": there it is {near!r}" if near else ""))
            misspelled.add(near)
    for name, field in wanted.items():
        if name not in there:
            if name not in misspelled and not (allow_missing and field.nullable):
                found.append(f"{name!r}: missing in the data ({field.type} in the table)")
            continue
        column = piece.column(name)
        if (len(column) and column.null_count == len(column)) or _goes(column.type, field, allow_missing):
            continue
        found.append(f"{name!r}: {column.type} in the data, {field.type} in the table")
    return found


def _goes(source: pa.DataType, field: pa.Field, allow_missing: bool) -> bool:
    """Whether values of a type can become values of a field at all."""
    try:
        _Caster(field.name, _Casting(allow_missing), lambda row: row).field(
            _single(pa.chunked_array([], type=source)), field
        )
    except WouldAlterError:
        return False
    return True


def _all_of(differences: Sequence[str]) -> WouldAlterError:
    told = list(differences[:_TOLD_MAX])
    if len(differences) > len(told):
        told.append(f"... and {len(differences) - len(told)} more")
    return WouldAlterError(
        "\n  ".join([f"The data does not fit the table in {len(differences)} columns:", *told])
        + f"\nNothing was written. {SEVERAL_ADVICE}"
    )


def _single(column: pa.ChunkedArray) -> pa.Array:
    kind = without_uuids(column.type)
    if kind != column.type:  # pyarrow 26 cannot take UUIDs out of lists and maps
        column = column.cast(kind)
    if column.num_chunks == 1:
        return column.chunk(0)
    if column.num_chunks == 0:
        return pa.array([], type=column.type)
    if pa.types.is_dictionary(column.type):  # chunks may have dictionaries of their own
        return pa.concat_arrays([chunk.dictionary_decode() for chunk in column.chunks])
    return pa.concat_arrays(column.chunks)


def _check_fields(
    found: Sequence[str],
    target: Iterable[pa.Field],
    *,
    where: str,
    allow_missing: bool,
    advice: str = OTHERS_ADVICE,
) -> None:
    """Compare names: extra ones would be dropped, missing ones filled with NULL (H1)."""
    wanted = {field.name: field for field in target}
    folded = {name.casefold(): name for name in wanted}
    there = frozenset(found)
    for name in found:
        if name not in wanted:
            near = folded.get(name.casefold())
            hint = f" Names are matched with regard to case: {where} has {near!r}." if near else ""
            raise WouldAlterError(
                f"Column {name!r} is not in {where} and would be dropped.{hint} Nothing was written. {advice}"
            )
    for name, field in wanted.items():
        may_lack = field.nullable and _IDENTITY not in (field.metadata or {})
        if name not in there and not (allow_missing and may_lack):
            why = "would be filled with NULL" if may_lack else "must not be NULL"
            raise WouldAlterError(
                f"Column {name!r} of {where} is missing in the data and {why}. Nothing was written. Add it "
                "to the data" + (LACKING_ADVICE if may_lack else ".")
            )


class _Caster:
    """Converts one column, or one nested place in it; ``path`` and ``rows`` are for messages."""

    def __init__(self, path: str, casting: _Casting, rows: Rows) -> None:
        self._path = path
        self._casting = casting
        self._rows = rows

    def field(self, values: pa.Array, field: pa.Field) -> pa.Array:
        """``values`` as ``field``; refuses NULL where the field has none."""
        values = _decoded(values)
        if not field.nullable and values.null_count:
            at = pc.index(pc.is_null(values), True).as_py()
            raise WouldAlterError(
                f"Column {self._path!r}, row {self._rows(at)}: NULL in a column that must not be NULL. "
                "Nothing was written. Fill or drop the row."
            )
        converted = self._convert(values, field.type)
        limit = limit_of(field) if field.metadata else None
        if limit is not None:
            self._check_length(converted, limit)
        return converted

    def _check_length(self, values: pa.Array, limit: TextLimit) -> None:
        lengths = pc.utf8_length(values)
        bad = pc.not_equal(lengths, limit.length) if limit.padded else pc.greater(lengths, limit.length)
        at = pc.index(bad, True).as_py()
        if at >= 0:
            what = "be padded" if limit.padded and lengths[at].as_py() < limit.length else "be too long"
            raise WouldAlterError(
                f"Column {self._path!r}, row {self._rows(at)}: {_shown(values[at])} would {what} for {limit}, as which the "
                "table declares the column. Nothing was written. Correct the value."
            )

    def _convert(self, values: pa.Array, target: pa.DataType) -> pa.Array:
        source = values.type
        if pa.types.is_null(source):
            return pa.nulls(len(values), target)
        if pa.types.is_struct(target) and pa.types.is_struct(source):
            return self._struct(values, target)
        if pa.types.is_list(target) and is_list(source):
            return self._list(values, target)
        if pa.types.is_map(target) and pa.types.is_map(source):
            return self._map(values, target)
        if pa.types.is_nested(source) or pa.types.is_nested(target):
            raise self._refused(source, target, "convert the column yourself, so that the meaning is yours")
        return self._leaf(values, target)

    def _leaf(self, values: pa.Array, target: pa.DataType) -> pa.Array:
        if self._casting.stored and is_text(target) and values.type == target:
            return values
        try:
            return convert(values, target)
        except OtherMeaningError as error:
            if values.null_count == len(values) and len(values):  # H8: only NULL, of whatever type
                return pa.nulls(len(values), target)
            if (
                pa.types.is_floating(values.type)
                and values.null_count + _nan_count(values) == len(values) > 0
            ):
                raise self._no_nan(pc.index(pc.is_nan(values), True).as_py(), target) from None
            raise self._refused(values.type, target, str(error)) from None
        except NotExactError:
            at, why = next(misfits(values, lambda some: convert(some, target)))
            if is_text(values.type):
                raise self._no_unicode(at, values[at]) from None
            if pa.types.is_floating(values.type) and is_nan(values[at].as_py()):
                raise self._no_nan(at, target) from None
            raise WouldAlterError(
                f"Column {self._path!r}, row {self._rows(at)}: {_shown(values[at])} of type {values.type} "
                f"cannot be stored as {target} unchanged ({said(why)}). Nothing was written. {_exactly(values.type, target)}"
            ) from None

    def _no_nan(self, at: int, target: pa.DataType) -> WouldAlterError:
        holder = f"a column of type {target}"
        return WouldAlterError(f"Column {self._path!r}, row {self._rows(at)}: {no_nan(holder)}")

    def _no_unicode(self, at: int, value: pa.Scalar) -> InvalidInputError:
        raw = value.as_buffer().to_pybytes()
        return InvalidInputError(
            f"Column {self._path!r}, row {self._rows(at)}: the text {shown(raw)} is no UTF-8, and other engines could not read "
            "the table. Nothing was written. Decode the bytes by the encoding that they have (such as latin-1), or keep them in "
            "a binary column."
        )

    def _refused(self, source: pa.DataType, target: pa.DataType, advice: str) -> WouldAlterError:
        return WouldAlterError(
            f"Column {self._path!r} has type {source}, the table has {target}; values are never turned from "
            f"one into the other. Nothing was written. Advice: {advice}."
        )

    def _struct(self, values: pa.StructArray, target: pa.StructType) -> pa.Array:
        fields = [target.field(i) for i in range(target.num_fields)]
        names = [values.type.field(i).name for i in range(values.type.num_fields)]
        # flattened: NULL where the struct is NULL, whatever memory holds beneath it
        found = dict(zip(names, values.flatten(), strict=True))
        if len(found) != len(names):
            raise WouldAlterError(f"Column {self._path!r} has two fields of one name. Nothing was written.")
        where = f"the struct {self._path!r} of the table"
        defaults = {
            one.name: default
            for one in fields
            if one.name not in found and (default := default_of(one)) is not None
        }
        needed = [one for one in fields if one.name not in defaults]
        _check_fields(
            names, needed, where=where, allow_missing=self._casting.allow_missing, advice=NESTED_ADVICE
        )
        present = np.flatnonzero(pc.is_valid(values).to_numpy(zero_copy_only=False))
        children = []
        for field in fields:
            caster = _Caster(f"{self._path}.{field.name}", self._casting, self._rows)
            if field.name not in found:
                nothing = pa.nulls(len(values), field.type)
                given = defaults.get(field.name)
                children.append(nothing if given is None else pc.if_else(pc.is_valid(values), given, nothing))
                continue
            child = found[field.name]
            if not field.nullable and values.null_count:
                inner = _Caster(caster._path, self._casting, lambda i: self._rows(int(present[i])))
                inner.field(child.take(pa.array(present)), field)
            children.append(
                caster.field(child, field if not values.null_count else field.with_nullable(True))
            )
        mask = pc.is_null(values) if values.null_count else None
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)

    def _list(self, values: pa.Array, target: pa.DataType) -> pa.Array:
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
        inner = self._inner("element", lengths).field(pc.list_flatten(values), target.value_field)
        return pa.ListArray.from_arrays(_offsets(lengths), inner, type=target, mask=_null_mask(values))

    def _map(self, values: pa.MapArray, target: pa.MapType) -> pa.Array:
        entries = entries_of(values)
        lengths = pc.fill_null(pc.list_value_length(entries), 0).to_numpy(zero_copy_only=False)
        keys, items = pc.list_flatten(entries).flatten()
        keys = self._inner("key", lengths).field(keys, target.key_field)
        items = self._inner("value", lengths).field(items, target.item_field)
        mask = _null_mask(values)
        return pa.MapArray.from_arrays(_offsets(lengths), keys, items, type=target, mask=mask)

    def _inner(self, name: str, lengths: np.ndarray[tuple[int], np.dtype[np.int64]]) -> _Caster:
        ends = np.cumsum(lengths)

        def row_of(element: int) -> int:
            return self._rows(int(np.searchsorted(ends, element, side="right")))

        return _Caster(f"{self._path}.{name}", self._casting, row_of)


def _nan_count(values: pa.Array) -> int:
    count: int = pc.sum(pc.is_nan(values)).as_py() or 0
    return count


def _exactly(source: pa.DataType, target: pa.DataType) -> str:
    """Advice on values that a type cannot hold."""
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target) and source.unit == "ns":
        return "Round the column yourself, so that it is your doing: frame[column].dt.floor('us')."
    return "Correct the value, or change the type of the column."


def entries_of(values: pa.MapArray) -> pa.ListArray:
    """A map array as a list of (key, value) structs, in the same memory."""
    structs = pa.StructArray.from_arrays(
        [values.keys, values.items],
        fields=[values.type.key_field.with_nullable(True), values.type.item_field.with_nullable(True)],
    )
    validity, offsets = values.buffers()[:2]
    return pa.ListArray.from_buffers(
        pa.list_(structs.type), len(values), [validity, offsets], -1, values.offset, [structs]
    )


def _decoded(values: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(values.type):
        return values.dictionary_decode()
    if pa.types.is_run_end_encoded(values.type):
        return pc.run_end_decode(values)
    return values


def _offsets(lengths: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    return pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())


def _null_mask(values: pa.Array) -> pa.Array | None:
    return pc.is_null(values) if values.null_count else None


def _shown(value: pa.Scalar) -> str:
    try:
        text = repr(value.as_py())
    except (ValueError, OverflowError, LookupError):  # a time that Python has no object or no zone for
        text = f"the {value.type} {getattr(value, 'value', '?')}"
    return text if len(text) <= 80 else text[:77] + "..."
