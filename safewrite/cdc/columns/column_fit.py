"""Says what a table's columns take of a batch: their types, by all rows and schemas of it and never by the first one, and the table's rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.connect.values import type_of
from safewrite.cdc.rows.project_columns import Projected
from safewrite.cdc.rows.rows import ChangeRows, SchemaTypes
from safewrite.cdc.rows.rules import HasColumns, Rules, Which
from safewrite.intake.partitioning import partition_columns
from safewrite.values import kept_names
from safewrite.values.objects import array_of, column_of
from safewrite.values.types import is_column_name, written
from safewrite.values.widening import merged, wider_fields

_NO_COLUMN = "the table has no column yet, and the record gives it none: name one in metadata, or replay the record once the table has one"


@dataclass
class ColumnTypes:
    """What changes say of the types of their columns: by schemas, merged over all of them, and by values without one.

    It is the same whoever reads the changes, and in whatever order.
    """

    of_schemas: SchemaTypes = field(default_factory=SchemaTypes)
    names: dict[str, None] = field(default_factory=dict)
    """The columns that came without a schema."""
    of_values: dict[str, Counter[pa.DataType]] = field(default_factory=dict)
    """How many values have which type."""

    @classmethod
    def of(cls, made: ChangeRows) -> ColumnTypes:
        """What rows say."""
        told = cls(made.types.copy())
        told.names = dict.fromkeys(name for row in made.rows for name in row.values)
        for part in made.projected:
            told.see(part)
        for row in made.rows:
            for name, value in row.values.items():
                kind = type_of(value)
                if kind is not None:
                    told.of_values.setdefault(name, Counter())[kind] += 1
        return told

    def see(self, part: Projected) -> None:
        """Take in the values of changes that were projected as columns and came without a schema."""
        if not part.batch.is_inferred:
            return
        self.names |= dict.fromkeys(part.columns)
        for name, column in part.columns.items():
            if column.null_count < len(column):
                self.of_values.setdefault(name, Counter())[column.type] += len(column) - column.null_count

    def add(self, other: ColumnTypes) -> None:
        """Take in what further changes say."""
        self.of_schemas.add(other.of_schemas)
        self.names |= other.names
        for name, counted in other.of_values.items():
            self.of_values.setdefault(name, Counter()).update(counted)

    def without(self, names: Collection[str]) -> ColumnTypes:
        """What changes say of other columns."""
        schemas = self.of_schemas.copy()
        for name in names:
            schemas.pop(name, None)
        named = {name: None for name in self.names if name not in names}
        return ColumnTypes(
            schemas, named, {name: one for name, one in self.of_values.items() if name not in names}
        )


class FittedColumns(NamedTuple):
    """Columns of changes under their types."""

    arrays: dict[str, Any]
    dead: dict[int, str]
    """The places of changes that do not land, and why."""
    narrow: frozenset[str]
    """Columns with values that a wider type would take."""


@dataclass(frozen=True)
class ColumnFit:
    """What rows have to fit: the types of columns, the columns that cannot be and why, and the table's rules."""

    types: Mapping[str, pa.DataType]
    clashes: Mapping[str, str]
    rules: Rules
    nulls: Collection[str]
    """Columns whose misfits land as NULL, by the configuration."""
    wider: Mapping[str, pa.Field] = field(default_factory=dict)
    """Columns of the table that may be wider, as they then are."""

    @classmethod
    def of(
        cls,
        table: TargetTable,
        told: ColumnTypes,
        found: HasColumns | None,
        keys: Sequence[str],
        refused: Mapping[str, str] | None = None,
    ) -> ColumnFit:
        """What rows of a batch have to fit.

        Args:
            found: the table; None before it is made.
            refused: columns that the table cannot have, and why: rows with a value there do not land; or that cannot be wider.
        """
        schema, refused = None if found is None else found.schema, refused or {}
        types = types_of(table, told, schema)
        known = frozenset(() if schema is None else schema.names)
        new = {name: why for name, why in refused.items() if name not in known}
        clashes = {**_of_keys(keys, types), **_clashes(table, types, schema, keys), **new}
        wider = {one.name: one for one in _wider(table, told, schema, keys) if one.name not in refused}
        return cls(types, clashes, Rules.of(table, found), _nulled(table, types, keys), wider)

    def added(self, schema: pa.Schema | None) -> tuple[pa.Field, ...]:
        """The columns that a table of this schema does not have yet."""
        known = set() if schema is None else set(schema.names)
        return tuple(
            pa.field(name, kind)
            for name, kind in self.types.items()
            if name not in self.clashes and name not in known
        )

    def columns(
        self, given: Mapping[str, Any], is_row: Any, length: int, *, is_whole: bool = True
    ) -> FittedColumns:
        """Columns of changes under these types; and the places of those that do not fit, and why.

        Args:
            is_row: which changes are written as rows; booleans of NumPy.
            is_whole: whether these types are of all columns.
        """
        arrays: dict[str, Any] = {}
        dead: dict[int, str] = {}
        narrow: set[str] = set()
        none, every = np.zeros(length, bool), np.ones(length, bool)

        def absent(name: str) -> Any:
            return none if name in given else every

        if (marks := self.rules.marks) is not None and marks not in given:
            given = {**given, marks: pa.chunked_array([pa.repeat(pa.scalar(False), length)])}
        for name, kind in self.types.items():
            values, misfits = given.get(name), dict[int, str]()
            if name not in self.clashes:
                arrays[name], misfits = (
                    (pa.nulls(length, kind), misfits) if values is None else column_of(values, kind)
                )
                narrow |= self._narrow(name, misfits, partial(column_of, values))
                misfits = {} if name in self.nulls else misfits
                misfits = self.rules.misfits(name, arrays[name], is_row, absent) | misfits
            elif values is not None:
                misfits = dict.fromkeys(np.flatnonzero(values.is_valid()).tolist(), self.clashes[name])
            for place, why in misfits.items():
                dead.setdefault(place, self.reason(name, why))
        if is_whole and not arrays:
            dead = dict.fromkeys(range(length), _NO_COLUMN) | dead
        self._judge(arrays, dead, is_row, absent, lambda name: none)
        return FittedColumns(arrays, dead, frozenset(narrow))

    def of_rows(
        self,
        values: Sequence[Mapping[str, Any]],
        lacks: Sequence[Collection[str]],
        is_row: Any,
        *,
        is_whole: bool = True,
    ) -> FittedColumns:
        """The same of changes that were made to rows one by one; ``lacks`` names for each what its source left out."""
        arrays: dict[str, Any] = {}
        dead: dict[int, str] = {}
        narrow: set[str] = set()

        def left_out(name: str) -> Any:
            return np.array([name in one for one in lacks], bool)

        def absent(name: str) -> Any:
            return np.array([name not in one for one in values], bool) & ~left_out(name)

        if (marks := self.rules.marks) is not None:
            values = [one if marks in one else {**one, marks: False} for one in values]
        for name, kind in self.types.items():
            column = [one.get(name) for one in values]
            if name in self.clashes:
                misfits = {
                    place: self.clashes[name] for place, value in enumerate(column) if value is not None
                }
            else:
                arrays[name], misfits = array_of(column, kind)
                narrow |= self._narrow(name, misfits, partial(array_of, column))
                misfits = {} if name in self.nulls else misfits
                written = is_row & ~left_out(name)
                misfits = self.rules.misfits(name, arrays[name], written, absent) | misfits
            for place, why in misfits.items():
                dead.setdefault(place, self.reason(name, why))
        if is_whole and not arrays:
            dead = dict.fromkeys(range(len(values)), _NO_COLUMN) | dead
        for place, names in enumerate(lacks if is_whole else ()):
            if unknown := [name for name in names if name not in arrays]:
                why = f"the source left out {', '.join(unknown)}, and the table has no such column"
                dead.setdefault(place, why)
        self._judge(arrays, dead, is_row, absent, left_out)
        return FittedColumns(arrays, dead, frozenset(narrow))

    def _judge(
        self, arrays: dict[str, Any], dead: dict[int, str], is_row: Any, absent: Which, left_out: Which
    ) -> None:
        """Put in what the table computes, and add the rows that break a condition of the table to those that do not land."""
        rules = self.rules.of_rows
        if not rules or not rules.names <= arrays.keys():
            return
        wrong = self.rules.fill(arrays, self.types, is_row, absent)
        for place, why in (wrong | self.rules.broken(arrays, is_row, left_out)).items():
            dead.setdefault(place, why)

    def _narrow(self, name: str, misfits: Mapping[int, str], wide: Callable[[pa.DataType], Any]) -> set[str]:
        """The column if it is too narrow: some of its misfits would fit the wider type."""
        if not misfits or name not in self.wider:
            return set()
        left: Mapping[int, str] = wide(self.wider[name].type)[1]
        return set() if misfits.keys() <= left.keys() else {name}

    def reason(self, name: str, why: str) -> str:
        """Why a value of a column does not land, and what would let it."""
        hint = (
            ""
            if name in self.clashes
            else "; widen the column, map it to a new name (name_mapping), or set on_misfit"
        )
        return f"column {name!r}: {why}{hint}"


def _nulled(table: TargetTable, names: Iterable[str], keys: Sequence[str]) -> frozenset[str]:
    """Columns whose misfits are NULL; none of those that name or order a row."""
    if not table.has_misfits:
        return frozenset()
    by_column = {} if isinstance(table.on_misfit, str) else table.on_misfit
    nulled = {table.column_of(name) for name, mode in by_column.items() if mode == "null"}
    needed = {*keys, *(table.precombine_key or ()), *table.own_columns}
    return frozenset(
        name for name in names if name not in needed and (table.on_misfit == "null" or name in nulled)
    )


def _of_keys(keys: Sequence[str], types: Mapping[str, pa.DataType]) -> dict[str, str]:
    """Columns that cannot be of a key, and why."""
    return {
        name: f"a key of type {written(kind)} is not equal in all engines alike; name another primary_key, or its decimal_fields"
        for name, kind in types.items()
        if name in keys and (pa.types.is_floating(kind) or pa.types.is_nested(kind))
    }


def types_of(table: TargetTable, told: ColumnTypes, schema: pa.Schema | None) -> dict[str, pa.DataType]:
    """A type for every column of the table and of the batch: the table's own goes first."""
    names = dict.fromkeys(() if schema is None else schema.names)
    names |= dict.fromkeys(told.of_schemas) | dict.fromkeys(told.names)
    names |= {name: names.pop(name) for name in table.computed if name in names}  # behind those of the source
    declared, own = table.declared, table.own_columns
    if schema is None:
        needed = partition_columns([*table.partition_by, *table.sort_terms])
        names |= dict.fromkeys(name for name in needed if name in declared)
    found: dict[str, pa.DataType] = {}
    there = frozenset(() if schema is None else schema.names)
    for name in names:
        if schema is not None and name in there:
            found[name] = schema.field(name).type
        elif name in own:
            found[name] = own[name]
        else:
            kind = _of_schemas(told.of_schemas.kinds(name)) or declared.get(name) or _of_values(told, name)
            if kind is not None:
                found[name] = _storable(kind, table)
    return found | {name: kind for name, kind in own.items() if name not in found}


def _wider(
    table: TargetTable, batch: ColumnTypes, schema: pa.Schema | None, keys: Sequence[str]
) -> Iterator[pa.Field]:
    """The columns of a table that would take more of the batch if they were wider, as they then are.

    Those that name or order rows stay of their kind: a whole number and a binary one are not equal in all engines alike.
    """
    if schema is None or table.widening is None:
        return
    needed, own = {*keys, *(table.precombine_key or ())}, table.own_columns
    for has in schema:
        declared = table.declared.get(has.name)
        kinds: Iterable[pa.DataType] = batch.of_schemas.kinds(has.name) or (
            [declared] if declared is not None else sorted(batch.of_values.get(has.name) or (), key=str)
        )
        field = has
        for kind in () if has.name in own else kinds:
            if kind != field.type:
                wide = wider_fields(
                    pa.schema([field]), pa.schema([(has.name, _storable(kind, table))]), table.widening
                )
                field = next(
                    (one for one in wide if has.name not in needed or _is_alike(one.type, has.type)), field
                )
        if field is not has:
            yield field


def _is_alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether both are whole numbers, decimals, or neither."""
    return all(is_kind(one) == is_kind(other) for is_kind in (pa.types.is_integer, pa.types.is_decimal))


def _of_schemas(kinds: Sequence[pa.DataType]) -> pa.DataType | None:
    """A type that holds what all schemas of the batch have, the newest last; where there is none, that of the newest."""
    if not kinds:
        return None
    found: pa.DataType | None = kinds[0]
    for kind in kinds[1:]:
        found = None if found is None else merged(found, kind)
    return kinds[-1] if found is None else found


def _of_values(told: ColumnTypes, name: str) -> pa.DataType | None:
    """A type that holds all values; where there is none, one that holds most of them.

    Whole numbers count with binary ones, for among these a column has them as such.
    """
    holding: dict[pa.DataType, int] = {}
    counted = told.of_values.get(name, Counter())
    for kind in sorted(counted, key=str):
        both, count = kind, counted[kind]
        for one in [*holding]:
            if (wide := merged(one, kind)) is not None:
                both, count = wide, count + holding.pop(one)
        holding[both] = count
    return max(holding, key=lambda kind: (holding[kind], str(kind)), default=None)


def _storable(kind: pa.DataType, table: TargetTable) -> pa.DataType:
    """Delta has no type for a time of day: a text of ISO 8601, which orders as times do."""
    if pa.types.is_time(kind) and table.format == "delta":
        return pa.string()
    return kind


def _clashes(
    table: TargetTable, types: Mapping[str, Any], schema: pa.Schema | None, keys: Sequence[str]
) -> dict[str, str]:
    """New columns whose names differ from others by case alone, which engines take for one, or are no texts.

    The table's own columns have their names first, then those that the configuration names, whatever row comes first.
    """
    first = [
        *(() if schema is None else schema.names),
        *table.own_columns,
        *keys,
        *(table.precombine_key or ()),
    ]
    first += [*partition_columns(table.partition_by), *table.declared, *table.name_mapping.values()]
    known, kept = dict[str, str](), kept_names.of_table(table.format, table.properties)
    there = frozenset(() if schema is None else schema.names)
    for name in first:
        if name in types:
            known.setdefault(name.lower(), name)
    found = {}
    for name in types:
        if not is_column_name(name):
            found[name] = (
                "the name is empty, or has NUL or half of a character, and no table has such a column; name it in name_mapping"
            )
            continue
        if name not in there and kept_names.among([name], kept):
            found[name] = (
                f"the name is one that {table.format} keeps for itself, and Spark could not read the table; name it in name_mapping"
            )
            continue
        other = known.setdefault(name.lower(), name)
        if other != name:
            found[name] = (
                f"the table has {other!r}, which engines cannot tell from it; name it in name_mapping"
            )
    return found
