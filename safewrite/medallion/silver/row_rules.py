"""Finds rows that break a rule of silver (Delta's CHECK and its kin, NOT NULL), and puts in columns that silver computes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safewrite.frames.row_rules import TableRules
from safewrite.medallion.config.bronze_columns import UNCHANGED, UNCHANGED_FIELD
from safewrite.medallion.files.unavailable_values import lacks
from safewrite.values.objects import column_of

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class SilverRules:
    """What silver asks of a row, and the columns that it gets besides those that changes bring."""

    rules: TableRules
    required: tuple[str, ...]
    """Columns that are NOT NULL; keys are judged where files are read."""
    schema: pa.Schema
    """Those columns of silver that its rules read or make."""

    @classmethod
    def of(cls, silver: Any, keys: Iterable[str]) -> Self:
        """The rules of a table."""
        rules: TableRules = silver.row_rules
        asked = tuple(one.name for one in silver.schema if not one.nullable and one.name not in {*keys})
        read_or_made = {*rules.names}
        return cls(rules, asked, pa.schema([one for one in silver.schema if one.name in read_or_made]))

    def __bool__(self) -> bool:
        return bool(self.rules or self.required)

    def made(self, brought: Iterable[str]) -> pa.Schema:
        """The columns that rows with some others get here."""
        there = {*brought}
        return pa.schema([self.schema.field(one.name) for one in self.rules.fills if one.name not in there])

    def broken(self, rows: pa.Table) -> dict[int, str]:
        """The rows that break a rule, by number, and how.

        Where the log lacks all that a rule reads, the row keeps it as before; where it lacks some of that, nothing tells.
        """
        columns, found = self._columns(rows), dict[int, str]()
        brought = {*rows.column_names}
        for name in self.required:
            if name in brought:
                is_null = np.asarray(rows[name].is_null().to_numpy(), np.bool_) & ~lacks(rows, name)
                _note(found, is_null, f"{name} is NULL, and silver's column is NOT NULL")
        whole = dict[str, Flags]()
        for rule in self.rules.rules:
            some, every = self._lacking(rows, rule.inputs)
            whole[rule.name] = ~some
            reads = ", ".join(sorted(rule.inputs))
            _note(found, some & ~every, f"the log lacks some of {reads}, and {rule} of silver reads them")
        for place, why in self.rules.broken(columns, lambda rule: whole[rule.name]).items():
            found.setdefault(place, why)
        return found

    def filled(self, rows: pa.Table) -> pa.Table:
        """Rows with the columns that silver makes; where the log lacks what one is made of, the row keeps its own."""
        made = self.made(rows.column_names)
        if not len(made):
            return rows
        columns, names = self._columns(rows), {*made.names}
        for fill in self.rules.fills:
            if fill.name in names:
                rows = rows.append_column(made.field(fill.name), columns[fill.name])
                _, every = self._lacking(rows, fill.reads)
                rows = _keeping(rows, fill.name, every) if every.any() else rows
        return rows

    def _columns(self, rows: pa.Table) -> dict[str, Any]:
        """The columns that rules read, under silver's types; those that rows lack are made."""
        brought = {*rows.column_names}
        columns: dict[str, Any] = {
            one.name: column_of(rows[one.name], one.type)[0]
            if one.name in brought
            else pa.nulls(rows.num_rows, one.type)
            for one in self.schema
        }
        flags = {name: np.full(rows.num_rows, name not in brought, np.bool_) for name in self.schema.names}
        for name, values, _ in self.rules.filled(columns, rows.num_rows, flags.__getitem__):
            columns[name] = column_of(values, self.schema.field(name).type)[0]
        return columns

    def _lacking(self, rows: pa.Table, names: Iterable[str]) -> tuple[Flags, Flags]:
        """Which rows lack some values of these columns, and which all of them."""
        some, every = np.zeros(rows.num_rows, np.bool_), np.ones(rows.num_rows, np.bool_)
        for name in (known := [*names]):
            one = lacks(rows, name)
            some, every = some | one, every & one
        return some, every if known else some


def _note(found: dict[int, str], bad: Flags, reason: str) -> None:
    for row in np.flatnonzero(bad).tolist():
        found.setdefault(row, reason)


def _keeping(rows: pa.Table, name: str, which: Flags) -> pa.Table:
    """Rows of which some keep the value of a column that silver has."""
    lists = rows[UNCHANGED].to_pylist()
    for row in np.flatnonzero(which).tolist():
        lists[row] = [*(lists[row] or []), name]
    place = rows.column_names.index(UNCHANGED)
    return rows.set_column(place, UNCHANGED_FIELD, pa.array(lists, UNCHANGED_FIELD.type))
