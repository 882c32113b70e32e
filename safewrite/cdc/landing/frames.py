"""Makes the frame of a table's changes, under a schema of all rows and schemas of the batch, never of the first one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import safewrite as sw
from safewrite.cdc.config.table_config import TargetTable, partition_columns
from safewrite.cdc.connect.values import merged, type_of
from safewrite.cdc.landing.project_columns import Projected
from safewrite.cdc.landing.rows import ChangeRow, ChangeRows
from safewrite.cdc.landing.rules import Rules
from safewrite.cdc.ledger.target_tables import OURS
from safewrite.cdc.records.change import DeadLetter, Op
from safewrite.values.objects import array_of, column_of
from safewrite.values.types import is_column_name

OP = "_cdc_op"
"""The column of a frame that says what its row does; it is not in the table."""
LACKS = "_cdc_lacks"
"""The column of a frame that names what its row lacks; it is not in the table."""
_NAMES = pa.list_(pa.string())


@dataclass(frozen=True)
class ChangeFrame:
    """Rows for ``apply_changes``, the columns that the table does not have yet, and what does not fit."""

    data: pa.Table
    added: tuple[pa.Field, ...]
    dead: tuple[DeadLetter, ...]
    changes: int
    """Changes of the source in it; a change of a key is one, and two rows."""
    lacking: bool = False
    """Whether a row lacks a value that the table is to put in."""


def frame_of(
    table: TargetTable, made: ChangeRows, found: sw.Table | None, refused: Mapping[str, str] | None = None
) -> ChangeFrame:
    """The frame of rows.

    Args:
        found: the table; None before it is made.
        refused: columns that the table cannot have, and why: rows with a value there do not land.
    """
    schema = None if found is None else found.schema
    types = _types(table, made, schema)
    clashes = {**_of_keys(made.keys, types), **_clashes(types, schema), **(refused or {})}
    fit = _Fit(types, clashes, Rules.of(table, found), _nulled(table, types, made.keys))
    parts = [_of_rows(table, made.rows, fit)]
    parts += [_of_columns(table, one, fit) for one in made.projected]
    known = set() if schema is None else set(schema.names)
    added = tuple(
        pa.field(name, kind) for name, kind in types.items() if name not in clashes and name not in known
    )
    lacking = any(row.lacks for row in made.rows)
    return ChangeFrame(
        pa.concat_tables(part.data for part in parts),
        added,
        tuple(letter for part in parts for letter in part.dead),
        sum(part.changes for part in parts),
        lacking,
    )


class _FramePart(NamedTuple):
    """Some of a frame's rows, the changes that do not fit, and how many do."""

    data: pa.Table
    dead: Iterable[DeadLetter]
    changes: int


class _Fit(NamedTuple):
    """What rows have to fit: the types of columns, the columns that cannot be and why, and the table's rules."""

    types: Mapping[str, pa.DataType]
    clashes: Mapping[str, str]
    rules: Rules
    nulls: Collection[str]
    """Columns whose misfits land as NULL, by the configuration."""


def _of_rows(table: TargetTable, rows: Sequence[ChangeRow], fit: _Fit) -> _FramePart:
    """Changes that were made to rows one by one."""
    dead: dict[int, DeadLetter] = {}
    arrays: dict[str, pa.Array] = {}
    for name, kind in fit.types.items():
        values = [row.values.get(name) for row in rows]
        if name in fit.clashes:
            misfits = {place: fit.clashes[name] for place, value in enumerate(values) if value is not None}
        else:
            arrays[name], misfits = array_of(values, kind)
            misfits = {} if name in fit.nulls else misfits
            written = np.array([row.op is Op.UPSERT and name not in row.lacks for row in rows], bool)
            misfits = fit.rules.misfits(name, arrays[name], written) | misfits
        for place, why in misfits.items():
            change = rows[place].change
            dead.setdefault(
                id(change), DeadLetter(change.record, _reason(name, why, fit.clashes), table.name)
            )
    for row in rows:
        unknown = [name for name in row.lacks if name not in arrays]
        if unknown:
            why = f"the source left out {', '.join(unknown)}, and the table has no such column"
            dead.setdefault(id(row.change), DeadLetter(row.change.record, why, table.name))
    arrays[OP] = pa.array([row.op.value for row in rows], pa.string())
    arrays[LACKS] = pa.array([list(row.lacks) for row in rows], _NAMES)
    data = pa.table(arrays)
    kept = [id(row.change) not in dead for row in rows]
    if dead:
        data = data.filter(pa.array(kept, pa.bool_()))
    living = {id(row.change) for row, lives in zip(rows, kept, strict=True) if lives}
    return _FramePart(data, dead.values(), len(living))


def _of_columns(table: TargetTable, part: Projected, fit: _Fit) -> _FramePart:
    """Changes that were projected as columns."""
    length = len(part.batch)
    dead: dict[int, str] = {}
    arrays: dict[str, Any] = {}
    written = pc.equal(part.operations, "u").to_numpy()
    for name, kind in fit.types.items():
        values, misfits = part.columns.get(name), dict[int, str]()
        if name not in fit.clashes:
            arrays[name], misfits = (
                (pa.nulls(length, kind), misfits) if values is None else column_of(values, kind)
            )
            misfits = {} if name in fit.nulls else misfits
            misfits = fit.rules.misfits(name, arrays[name], written) | misfits
        elif values is not None:
            misfits = dict.fromkeys(np.flatnonzero(values.is_valid()).tolist(), fit.clashes[name])
        for place, why in misfits.items():
            dead.setdefault(place, _reason(name, why, fit.clashes))
    arrays[OP] = part.operations
    arrays[LACKS] = pa.array([[]] * length, _NAMES)
    data = pa.table(arrays)
    if dead:
        kept = np.ones(length, bool)
        kept[list(dead)] = False
        data = data.filter(pa.array(kept))
    places = part.batch.places()
    letters = [DeadLetter(part.batch.records[int(places[at])], why, table.name) for at, why in dead.items()]
    return _FramePart(data, letters, length - len(dead))


def _reason(name: str, why: str, clashes: Mapping[str, str]) -> str:
    """Why a value of a column does not land, and what would let it."""
    hint = (
        "" if name in clashes else "; widen the column, map it to a new name (name_mapping), or set on_misfit"
    )
    return f"column {name!r}: {why}{hint}"


def _nulled(table: TargetTable, names: Iterable[str], keys: Sequence[str]) -> frozenset[str]:
    """Columns whose misfits are NULL; none of those that name or order a row."""
    if not table.has_misfits:
        return frozenset()
    sources = {to: name for name, to in table.name_mapping.items()}
    needed = {*keys, *(table.precombine_key or ()), *OURS}
    return frozenset(
        name for name in names if name not in needed and table.on_misfit_of(sources.get(name, name)) == "null"
    )


def _of_keys(keys: Sequence[str], types: Mapping[str, pa.DataType]) -> dict[str, str]:
    """Columns that cannot be of a key, and why."""
    return {
        name: f"a key of type {kind} is not equal in all engines alike; name another primary_key, or its decimal_fields"
        for name, kind in types.items()
        if name in keys and (pa.types.is_floating(kind) or pa.types.is_nested(kind))
    }


def _types(table: TargetTable, made: ChangeRows, schema: pa.Schema | None) -> dict[str, pa.DataType]:
    """A type for every column of the table and of the batch: the table's own goes first."""
    names = dict.fromkeys(() if schema is None else schema.names)
    names |= dict.fromkeys(made.types)
    names |= dict.fromkeys(name for row in made.rows for name in row.values)
    names |= dict.fromkeys(name for one in made.projected if one.batch.is_inferred for name in one.columns)
    declared = table.declared
    if schema is None:
        names |= dict.fromkeys(name for name in partition_columns(table.partition_by) if name in declared)
    found: dict[str, pa.DataType] = {}
    there = frozenset(() if schema is None else schema.names)
    for name in names:
        if schema is not None and name in there:
            found[name] = schema.field(name).type
        elif name in OURS:
            found[name] = OURS[name]
        else:
            kind = _of_schemas(made.types.get(name, ())) or declared.get(name) or _of_values(made, name)
            if kind is not None:
                found[name] = _storable(kind, table)
    return found | {name: kind for name, kind in OURS.items() if name not in found}


def _of_schemas(kinds: Sequence[pa.DataType]) -> pa.DataType | None:
    """A type that holds what all schemas of the batch have; where there is none, that of the newest."""
    if not kinds:
        return None
    found: pa.DataType | None = kinds[0]
    for kind in kinds[1:]:
        found = None if found is None else merged(found, kind)
    return kinds[-1] if found is None else found


def _of_values(made: ChangeRows, name: str) -> pa.DataType | None:
    """A type that holds all values; where there is none, that which holds most of them."""
    counted: Counter[pa.DataType] = Counter()
    for part in made.projected:
        column = part.columns.get(name)
        if column is not None and part.batch.is_inferred and column.null_count < len(column):
            counted[column.type] += len(column) - column.null_count
    for row in made.rows:
        kind = type_of(row.values.get(name))
        if kind is not None:
            counted[kind] += 1
    if not counted:
        return None
    found: pa.DataType | None = None
    for kind in counted:
        found = kind if found is None else merged(found, kind)
        if found is None:
            return counted.most_common(1)[0][0]
    return found


def _storable(kind: pa.DataType, table: TargetTable) -> pa.DataType:
    """Delta has no type for a time of day: a text of ISO 8601, which orders as times do."""
    if pa.types.is_time(kind) and table.format == "delta":
        return pa.string()
    return kind


def _clashes(types: dict[str, Any], schema: pa.Schema | None) -> dict[str, str]:
    """New columns whose names differ from others by case alone, which engines take for one, or are no texts."""
    known = {name.lower(): name for name in (() if schema is None else schema.names)}
    found = {}
    for name in types:
        if not is_column_name(name):
            found[name] = (
                "the name is empty, or has NUL or half of a character, and no table has such a column; name it in name_mapping"
            )
            continue
        other = known.setdefault(name.lower(), name)
        if other != name:
            found[name] = (
                f"the table has {other!r}, which engines cannot tell from it; name it in name_mapping"
            )
    return found
