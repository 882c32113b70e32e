"""Turns a pandas frame into the columns to be written: the index as columns, casts that ``dtype=`` asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

import safewrite as sw
from safewrite.values.instants import instants_of
from safewrite.wrangler.athena_types import arrow_type

Columns = dict[Any, Any]
"""Columns by name: those of pandas as they are, those that were cast in Arrow."""

_UNREADABLE = (pa.ArrowException, ValueError, TypeError, OverflowError)


def columns_of(df: Any, *, index: bool, dtype: Mapping[str, str]) -> Columns:
    """The columns of a pandas DataFrame.

    Raises:
        InvalidInputError: no DataFrame, two columns of one name, or a type that Athena does not have.
        WouldAlterError: a cast would change a value.
    """
    if not any(
        cls.__name__ == "DataFrame" and cls.__module__.startswith("pandas") for cls in type(df).__mro__
    ):
        raise sw.InvalidInputError(
            f"df= is a pandas DataFrame, not a {type(df).__name__}. Nothing was written. Give other frames to "
            "safewrite.open(...).append()."
        )
    found = [(name, df.iloc[:, at]) for at, name in enumerate(df.columns)]
    if index:
        found += _index_of(df)
    if len(df) and not found:
        raise sw.InvalidInputError(
            f"df= has {len(df)} rows and no columns. Nothing was written. Give the rows their columns, or index=True if "
            "the index holds them."
        )
    columns: Columns = {}
    for name, column in found:
        if name in columns:
            raise sw.InvalidInputError(
                f"df= has two columns with the name {name!r}. Nothing was written. Rename one of them; with index=True "
                "the index is a column too."
            )
        columns[name] = _cast(column, name, dtype[name]) if name in dtype else column
    return columns


def _index_of(df: Any) -> list[tuple[str, Any]]:
    """The levels of the index as awswrangler names them, aligned with the columns."""
    levels = range(df.index.nlevels)
    names = [
        f"__index_level_{at}__" if df.index.names[at] is None else str(df.index.names[at]) for at in levels
    ]
    return [(name, df.index.get_level_values(at).to_series(index=df.index)) for at, name in enumerate(names)]


def values(column: Any) -> list[Any]:
    """The values of a column as Python objects; None is the one missing value."""
    found = column.to_pylist() if hasattr(column, "to_pylist") else column.tolist()
    return [None if _is_missing(value) else value for value in found]


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value  # noqa: PLR0124 - NaN


# --- casts --------------------------------------------------------------------------------------------
def _cast(column: Any, name: str, kind: str) -> Any:
    """A column as the type of Athena that the user names, each value equal to what it was."""
    target = arrow_type(kind, name)
    try:
        found = _by_objects(column, target) if column.dtype == object else _by_type(column, target)
    except _UNREADABLE as error:
        raise _refused(name, kind, str(error).splitlines()[0]) from error
    if isinstance(found, _Changed):
        raise _refused(name, kind, f"row {found.row}: {found.value!r} would become another value")
    return found


class _Changed:
    """A value that a cast would change."""

    def __init__(self, row: int, value: Any) -> None:
        self.row = row
        self.value = value


def _refused(name: str, kind: str, why: str) -> sw.WouldAlterError:
    return sw.WouldAlterError(
        f"Column {name!r} cannot be cast to {kind} unchanged, as dtype= asks ({why}). Nothing was written. Convert the "
        "column yourself, so that the rounding is yours, or leave it out of dtype=."
    )


def _by_type(column: Any, target: pa.DataType) -> Any:
    numpy_float = getattr(column.dtype, "kind", "") == "f" and not hasattr(column.dtype, "na_value")
    if (instants := instants_of(column.array)) is not None:
        return _exactly(instants, target)
    # NaN is a number among floats; in any other type it can only mean NULL.
    source = pa.array(column.to_numpy() if numpy_float and pa.types.is_floating(target) else column)
    return _exactly(_whole(source), target)


def _by_objects(column: Any, target: pa.DataType) -> Any:
    """Python objects: pyarrow's own conversion, where it gives back the same objects; else by their own type."""
    objects = values(column)
    if pa.types.is_floating(target):  # where NaN is a number, it stays one
        objects = [
            one if isinstance(one, float) else known for one, known in zip(column, objects, strict=True)
        ]
    if pa.types.is_string(target):
        objects = [str(one) if isinstance(one, UUID) else one for one in objects]
    direct = _converted(objects, target)
    found = _whole(pa.array(objects)) if direct is None else direct
    at = _first_other(objects, found.to_pylist())
    if at is not None:
        return _Changed(at, objects[at])
    return found if direct is not None else _exactly(found, target)


def _converted(objects: Sequence[Any], target: pa.DataType) -> pa.Array | None:
    """The objects as the type; None where pyarrow cannot, or would decide whether times have a zone."""
    if pa.types.is_timestamp(target):
        return None
    try:
        return pa.array(objects, type=target)
    except _UNREADABLE:
        return None


def _whole(array: Any) -> pa.Array:
    """One array, without a dictionary."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _exactly(source: pa.Array, target: pa.DataType) -> Any:
    """Cast there and back: what does not come back is changed by the cast."""
    if source.type == target or pa.types.is_null(source.type):
        return source.cast(target)
    if pa.types.is_timestamp(source.type) and pa.types.is_timestamp(target):
        return source  # Athena has one word for times with and without a zone; the table tells them apart
    found = pc.cast(source, target, safe=True)
    if pa.types.is_timestamp(target) and (
        pa.types.is_string(source.type) or pa.types.is_large_string(source.type)
    ):
        return found  # one moment has many spellings; Arrow reads each exactly or not at all
    # Arrow turns 19.99 as a decimal into another float than its text.
    back = pc.cast(found, pa.string()) if pa.types.is_decimal(target) else found
    same = pc.equal(pc.cast(back, source.type, safe=False), source)
    if pa.types.is_floating(source.type):
        same = pc.or_(same, pc.is_nan(source))
    at = pc.index(same, False).as_py()
    return found if at < 0 else _Changed(at, source[at].as_py())


def _first_other(objects: Sequence[Any], found: Sequence[Any]) -> int | None:
    return next((at for at, pair in enumerate(zip(objects, found, strict=True)) if not _same(*pair)), None)


def _same(before: Any, after: Any) -> bool:
    """Whether a value of Python survived its way through Arrow; a field that a struct lacks is NULL."""
    if before is after or (
        isinstance(before, float) and isinstance(after, float) and repr(before) == repr(after)
    ):
        return True
    if _is_missing(before) or after is None:
        return _is_missing(before) and after is None
    if isinstance(before, Mapping):
        found = after if isinstance(after, Mapping) else dict(after)
        return all(name in found and _same(before[name], found[name]) for name in before)
    if hasattr(before, "tolist"):
        before = before.tolist()
    if isinstance(before, list | tuple):
        return len(before) == len(after) and all(map(_same, before, after))
    return bool(before == after)  # no datetime equals a date, and none with a zone one without
