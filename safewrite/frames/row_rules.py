"""Judges rows by the rules that a table has for them: conditions that must be TRUE, which FALSE and NULL break.

What breaks a rule is refused with the row and its values.  Rules are picklable, and tasks judge by them as a plan does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.errors import InvalidInputError, WouldAlterError
from safewrite.frames.fills import ColumnFill, computed
from safewrite.frames.predicate import Both, Either, Predicate, columns, truths
from safewrite.text.rendering import shortened, shown


@dataclass(frozen=True)
class RowRule:
    """A condition for every row; ``name`` says which, ``text`` is its SQL.

    ``column`` is the generated column whose values must be what ``text`` gives; "" where ``text`` is the condition.
    """

    name: str
    text: str
    predicate: Predicate
    column: str = ""

    @property
    def must(self) -> str:
        """What is asked of a row, as a sentence."""
        if self.column:
            return "The value must be that of the expression; leave the column out, and it is computed."
        return "The condition must be TRUE, and NULL is not."

    @property
    def reads(self) -> frozenset[str]:
        """The columns that decide whether a row keeps it."""
        return columns(self.predicate)

    @property
    def inputs(self) -> frozenset[str]:
        """Those but for the generated column, which follows the others."""
        return self.reads - {self.column}

    def broken_by(self, row: pa.Table) -> str:
        """What a row of a table of one row does to it, and with which values."""
        values = ", ".join(_value(row, name) for name in sorted(self.reads))
        return f"breaks {self}: {values}. {self.must}"

    def __str__(self) -> str:
        return f"{self.name} ({shortened(self.text)})"


@dataclass(frozen=True)
class RowRules:
    """The rules of a table."""

    rules: tuple[RowRule, ...]

    def check(self, tables: Iterable[pa.Table], named_by: Sequence[str] = ()) -> None:
        """Refuse rows that break a rule; they are called by their number, or by the columns ``named_by``.

        Raises:
            WouldAlterError: names the first rule that is broken, and the first row.
        """
        first = 0
        for table in tables:
            for rule in self.rules:
                holds = held(rule.predicate, table)
                at = pc.index(holds, False).as_py()
                if at >= 0:
                    raise _broken(rule, table.slice(at, 1), first + at, named_by)
            first += table.num_rows

    def check_wider(self, names: Sequence[str]) -> None:
        """Refuse to widen columns that a rule has: it would be another rule then.

        Raises:
            InvalidInputError: names the first rule.
        """
        for rule in self.rules:
            there = sorted(rule.reads & {*names})
            if there:
                raise InvalidInputError(
                    f"Column {there[0]!r} cannot become wider: {rule} goes by it. Nothing was written. Take the rule away first, or keep "
                    "the type."
                )

    def asked(
        self, keys: Sequence[str], check: Callable[[Any, Mapping[str, int]], object] | None
    ) -> Callable[[Any, Mapping[str, int]], object]:
        """A check of what a batch of changes would write: by the rules, then by the caller's own."""

        def both(rows: Any, counts: Mapping[str, int]) -> object:
            self.check([rows], keys)
            return None if check is None else check(rows, counts)

        return both


@dataclass(frozen=True)
class TableRules:
    """What a table asks of each row, and what it gets where a row lacks a column: for jobs, which put rows aside that break a rule."""

    rules: tuple[RowRule, ...] = ()
    fills: tuple[ColumnFill, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rules or self.fills)

    def __str__(self) -> str:
        return ", ".join(
            dict.fromkeys(
                [*(one.name for one in self.rules), *(f"column {one.name!r}" for one in self.fills)]
            )
        )

    @cached_property
    def fill_names(self) -> frozenset[str]:
        """The columns that get a value where a row lacks them."""
        return frozenset(one.name for one in self.fills)

    @cached_property
    def names(self) -> frozenset[str]:
        """The columns that decide whether a row is as the table asks, and those that are computed."""
        read = frozenset[str]().union(*(one.reads for one in self.rules))
        return read.union(*(one.reads | {one.name} for one in self.fills))

    def filled(
        self, rows: Mapping[str, Any], count: int, lacking: Callable[[str], npt.NDArray[np.bool_]]
    ) -> Iterator[tuple[str, pa.ChunkedArray, npt.NDArray[np.bool_]]]:
        """The columns that some of so many rows lack, with the values that these get, and which they are.

        ``lacking`` says which rows lack a column.  A value that no number holds is NULL, which breaks the rule of its column.
        """
        known = dict(rows)
        for one in self.fills:
            which = lacking(one.name)
            if not which.any():
                continue
            table = pa.table({name: known[name] for name in sorted(one.reads)})
            values = known[one.name] = computed(one, table, count, lambda place: None)
            yield one.name, values, which

    def broken(
        self, rows: Mapping[str, Any], whole: Callable[[RowRule], npt.NDArray[np.bool_]]
    ) -> dict[int, str]:
        """The places of rows that break a rule, and what they do; ``whole`` says which rows have all values that a rule reads."""
        found: dict[int, str] = {}
        table = pa.table({**rows})
        for rule in self.rules:
            bad = ~np.asarray(held(rule.predicate, table).to_numpy(), np.bool_) & whole(rule)
            for place in np.flatnonzero(bad).tolist():
                found.setdefault(place, f"the row {rule.broken_by(table.slice(place, 1))}")
        return found


def held(predicate: Predicate, table: pa.Table) -> pa.ChunkedArray:
    """Whether a condition is TRUE for each row; it is not where it cannot be computed, unless its value does not depend on that."""
    try:
        return pc.fill_null(truths(predicate, table), False)
    except pa.ArrowInvalid:
        if table.num_rows == 1:
            return pa.chunked_array([pa.array([_of_row(predicate, table) is True])])
    half = table.num_rows // 2
    parts = held(predicate, table.slice(0, half)), held(predicate, table.slice(half))
    return pa.chunked_array([*parts[0].chunks, *parts[1].chunks])


def _of_row(predicate: Predicate, row: pa.Table) -> bool | None:
    """What a condition is for one row, from left to right, as far as that is needed; None also where it cannot be computed."""
    match predicate:
        case Both(parts=parts) | Either(parts=parts):
            ends = isinstance(predicate, Either)
            found: bool | None = not ends
            for part in parts:
                one = _of_row(part, row)
                if one is ends:
                    return ends
                found = found if one is not None else None
                if one is None and not _is_computed(part, row):
                    return None
            return found
    return _truth(predicate, row)[1]


def _is_computed(predicate: Predicate, row: pa.Table) -> bool:
    return _truth(predicate, row)[0]


def _truth(predicate: Predicate, row: pa.Table) -> tuple[bool, bool | None]:
    try:
        return True, truths(predicate, row)[0].as_py()
    except pa.ArrowInvalid:
        return False, None


def _broken(rule: RowRule, row: pa.Table, number: int, named_by: Sequence[str]) -> WouldAlterError:
    named = ", ".join(_value(row, name) for name in named_by)
    where = f"The row whose {named}" if named else f"Row {number}"
    return WouldAlterError(f"{where} {rule.broken_by(row)} Nothing was written. Correct or drop the row.")


def _value(row: pa.Table, name: str) -> str:
    value = row.column(name)[0].as_py()
    return f"{name} is {'NULL' if value is None else shown(value)}"
