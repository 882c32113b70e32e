"""Checks many small frames of one form in one pass.

A pass costs about as much for a hundred frames as for one.  It gives each frame what the frame gets alone, or
nothing: whatever it stumbles over, the frames are checked one by one, so that each has its own error.  It can do so
because all that a table asks of rows is asked of each row; only which type a column has is found over all rows, so
frames go together whose columns have one type each, or hold only NULL.
"""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pyarrow as pa

from safewrite.arguments.reading import SchemaMode
from safewrite.frames.prepare import KEPT_BYTES, Prepared, prepare_parts
from safewrite.frames.source import as_frame, is_spark

_PLAIN = frozenset({bool, bytes, dt.date, dt.datetime, dt.time, decimal.Decimal, float, int, str, uuid.UUID})
"""Python types whose values make a column of one type, whichever rows they are in."""
_NONE = type(None)

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _AlikePart:
    """A frame whose columns are known; ``data`` are its ``Rows`` where they are plain dicts, else a table."""

    number: int
    names: frozenset[str]
    data: Any


def prepare_alike(
    frames: Sequence[object],
    like: Prepared,
    *,
    schema_mode: SchemaMode | None = None,
    volatile: Sequence[str] = (),
) -> list[Prepared | None]:
    """Check frames that are to be written under the schema of ``like``; None for each that must be checked alone.

    With ``schema_mode="merge"`` the answers end before the first frame that brings a column: those after it are
    written under another schema.
    """
    if like.is_filled:  # each lacks columns of its own
        return [None] * len(frames)
    parts, looked_at = _parts(frames, like.schema, merge=schema_mode is not None)
    found: list[Prepared | None] = [None] * looked_at
    for group in _groups(parts, like.schema):
        with suppress(Exception):  # each alone: what was wrong, and with which, is found there
            whole = as_frame(_joined([part.data for part in group]), target=like.schema)
            if whole.nbytes > KEPT_BYTES:
                continue
            rows = [len(part.data) for part in group]
            checked = prepare_parts(whole, rows, like, schema_mode=schema_mode, volatile=volatile)
            for part, one in zip(group, checked, strict=True):
                found[part.number] = one
    return found


def _joined(data: Sequence[Any]) -> Any:
    if isinstance(data[0], list):
        return list(chain.from_iterable(data))
    first = data[0].schema
    tables = [table if table.schema.equals(first) else table.select(first.names) for table in data]
    whole = pa.concat_tables(tables, promote_options="default")
    # No table is larger than all buffers together: then a copy in one piece is cheap, and so is what follows.
    return whole.combine_chunks() if whole.get_total_buffer_size() * len(data) <= KEPT_BYTES else whole


# --- what can go together ---------------------------------------------------------------------------
def _parts(frames: Sequence[object], target: pa.Schema, *, merge: bool) -> tuple[list[_AlikePart], int]:
    """The frames whose columns are known, and how many were looked at."""
    names = set(target.names)
    found: list[_AlikePart] = []
    for number, data in enumerate(frames):
        part = None
        with suppress(Exception):  # it is told alone
            part = _part(number, data, target)
        if merge and (part is None or not part.names <= names):
            return found, number
        if part is not None and len(part.data) and part.names <= names:
            found.append(part)
    return found, len(frames)


def _part(number: int, data: Any, target: pa.Schema) -> _AlikePart | None:
    if type(data) is list and data and type(data[0]) is dict:
        names = data[0].keys()
        if all(type(row) is dict and row.keys() == names for row in data):
            return _AlikePart(number, frozenset(names), data)
    if is_spark(data):
        return None
    table = data if isinstance(data, pa.Table) else _table(data, target)
    return _AlikePart(number, frozenset(table.column_names), table)


def _table(data: Any, target: pa.Schema) -> pa.Table:
    frame = as_frame(data, target=target)
    if frame.ragged is not None or frame.nbytes > KEPT_BYTES:
        raise ValueError("It is to be looked at alone.")
    return frame.piece(0, frame.rows)


def _groups(parts: Sequence[_AlikePart], target: pa.Schema) -> Iterator[list[_AlikePart]]:
    """Parts, two at least, that make one frame in which each column has one type."""
    tables = [part for part in parts if not isinstance(part.data, list)]
    for same in _by((part.names, part) for part in parts if isinstance(part.data, list)):
        if _kinds_of_rows([row for part in same for row in part.data], target) is not None:
            yield same
            continue
        kinds = [(_kinds_of_rows(part.data, target), part) for part in same]
        yield from _by((kind, part) for kind, part in kinds if kind is not None)
        for part in (part for kind, part in kinds if kind is None):
            with suppress(Exception):
                tables.append(replace(part, data=_table(part.data, target)))
    for same in _by((part.names, part) for part in tables):
        schemas = [part.data.schema for part in same]
        if _agree(schemas):
            yield same
        else:
            names = sorted(same[0].names)
            yield from _by(zip((_types(schema, names) for schema in schemas), same, strict=True))


def _by(pairs: Iterable[tuple[Hashable, _AlikePart]]) -> list[list[_AlikePart]]:
    """Parts of one form, where there are two at least."""
    found: dict[Hashable, list[_AlikePart]] = {}
    for form, part in pairs:
        found.setdefault(form, []).append(part)
    return [same for same in found.values() if len(same) > 1]


def _agree(schemas: Sequence[pa.Schema]) -> bool:
    """Whether each column has one type besides NULL's."""
    first, names = schemas[0], schemas[0].names
    others = {_types(schema, names) for schema in schemas if not schema.equals(first)}
    columns = zip(_types(first, names), *others, strict=True)
    return all(len({kind for kind in column if not pa.types.is_null(kind)}) < 2 for column in columns)


def _types(schema: pa.Schema, names: Sequence[str]) -> tuple[pa.DataType, ...]:
    return tuple(schema.field(name).type for name in names)


def _kinds_of_rows(rows: Rows, target: pa.Schema) -> tuple[type, ...] | None:
    """The Python types of the columns of dicts that have the same keys; None if they are not of one type each."""
    found = []
    for name in sorted(rows[0]):
        values = [row[name] for row in rows]
        kinds = set(map(type, values)) - {_NONE}
        if kinds and kinds <= {int, float} and pa.types.is_floating(target.field(name).type):
            kinds = {float}  # whole numbers among floats become floats, or are refused
        elif len(kinds) > 1 or float in kinds or not kinds <= _PLAIN:  # NaN may mean NULL where no float is
            return None
        found.append(next(iter(kinds), _NONE))
    return tuple(found)
