"""Keeps what a table must hold, in plain Python: rows by id, the names of writes, what was done to both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from safewrite.testing.crosscheck import kinds
from safewrite.testing.crosscheck.change_log import Log
from safewrite.testing.crosscheck.conditions import holds
from safewrite.testing.crosscheck.meaning import Meaning, given
from safewrite.testing.crosscheck.program import Column, Row, Where

ID = "id"
Rows = dict[int, dict[str, Meaning]]


class DisagreementError(AssertionError):
    """A table's content, or a call's answer, is not what the oracle knows."""


@dataclass
class ProgramOracle:
    """The table as it must be.  ``rows`` are what was acknowledged, as meanings by id and column."""

    columns: tuple[Column, ...]
    rows: Rows = field(default_factory=dict)
    names: dict[str | tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    """Names of acknowledged writes of this table, and the ids that they brought."""
    below: int | None = None
    """A constraint that an engine added: ids are below this number."""
    rolled_back: bool = False
    """Whether an engine rolled the table back: formats differ on what repeats mean then."""
    foreign: bool = False
    """Whether another engine has changed the table."""
    states: dict[Any, tuple[tuple[Column, ...], Rows, int | None]] = field(default_factory=dict)
    """Columns, rows and constraint of earlier versions, by their format's names for them."""
    log: Log = field(default_factory=Log)
    computed: tuple[Column, ...] = ()
    """Columns that the table computes where a row lacks them: the next id, or a text."""

    def compute(self, column: Column) -> None:
        """The table has a column from now on that it computes."""
        self.columns, self.computed = (*self.columns, column), (*self.computed, column)

    def column_names(self) -> list[str]:
        """The columns in their order."""
        return [column.name for column in self.columns]

    def meant(self, rows: Iterable[Row]) -> Rows:
        """Rows as meanings; a column that a row lacks is missing there too."""
        types = {column.name: kinds.arrow(column.kind) for column in self.columns}
        return {
            int(row[ID]): {name: given(value, types.get(name)) for name, value in self._whole(row).items()}
            for row in rows
        }

    def _whole(self, row: Row) -> Row:
        made = {one.name: row[ID] + 1 if one.kind == "int64" else "new" for one in self.computed}
        return {**made, **row}

    def add(self, rows: Rows, name: str | tuple[str, int] | None = None) -> None:
        """Add rows that were acknowledged."""
        self.rows = self.rows | {number: dict(row) for number, row in rows.items()}
        if name is not None:
            self.names[name] = tuple(rows)

    def check(self, rows: Rows) -> None:
        """Raise DisagreementError for rows that safewrite must not have committed."""
        if self.below is not None and any(number >= self.below for number in rows):
            raise DisagreementError(f"rows were committed that break the constraint {ID} < {self.below}")
        new = [name for row in rows.values() for name in row if name not in self.column_names()]
        if new:
            raise DisagreementError(f"rows were committed with columns that the table has not: {new}")

    def matching(self, where: Where | None) -> set[int]:
        """The ids of the rows for which a condition is true."""
        return {number for number, row in self.rows.items() if where is None or holds(where, row)}

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove rows that were deleted."""
        gone = set(numbers)
        self.rows = {number: row for number, row in self.rows.items() if number not in gone}

    def rename(self, old: str, new: str) -> None:
        """Give a column another name."""
        self.columns = tuple(Column(new, one.kind) if one.name == old else one for one in self.columns)
        self.rows = {
            number: {new if name == old else name: value for name, value in row.items()}
            for number, row in self.rows.items()
        }
        self.log.rename(old, new)

    def drop(self, name: str) -> None:
        """Drop a column."""
        self.columns = tuple(one for one in self.columns if one.name != name)
        self.rows = {
            number: {one: value for one, value in row.items() if one != name}
            for number, row in self.rows.items()
        }
        self.log.drop(name)

    def widen(self, columns: Sequence[Column]) -> None:
        """Add columns, NULL in the rows that are there."""
        self.columns = (*self.columns, *columns)
        nothing = {column.name: None for column in columns}
        self.rows = {number: {**row, **nothing} for number, row in self.rows.items()}

    def keep(self, state: Any) -> None:
        """Remember the table as it is now, under its format's name for this version."""
        self.states[state] = self.columns, dict(self.rows), self.below

    def earlier(self, pick: int, among: Sequence[Any] | None = None) -> Any:
        """One of the versions that were kept (and are ``among`` these).

        Raises:
            ValueError: there is none, or it has other columns.
        """
        states = sorted(self.states) if among is None else [one for one in among if one in self.states]
        if not states:
            raise ValueError("there is no earlier state")
        state = states[pick % len(states)]
        if self.states[state][0] != self.columns:
            raise ValueError("the schema would change too")
        return state

    def take_back(self, state: Any) -> None:
        """Put the table back to what it was."""
        _, rows, self.below = self.states[state]
        self.rows = dict(rows)
        self.rolled_back = True

    def recreated(self, columns: tuple[Column, ...], rows: Rows) -> None:
        """The table was dropped and created again: only this is known of it."""
        self.__init__(columns=columns, rows=rows, foreign=True)  # type: ignore[misc]

    # --- comparing --------------------------------------------------------------------------------
    def compare(self, reader: str, found: Sequence[Mapping[str, Meaning]], where: Where | None) -> list[str]:
        """Describe what a reader sees otherwise; ``where`` is what it was asked for."""
        expected = self.matching(where)
        seen: Rows = {}
        said = []
        for row in found:
            number = row[ID][1].numerator if row[ID] is not None else -1
            if number in seen:
                said.append(f"{reader}: row {number} is there twice")
            seen[number] = dict(row)
        asked = "" if where is None else f" of {where!r}"
        said += [f"{reader}: row {number}{asked} is missing" for number in sorted(expected - set(seen))]
        said += [f"{reader}: row {number}{asked} is too much" for number in sorted(set(seen) - expected)]
        for number in sorted(expected & set(seen)):
            said += self._unlike(reader, number, seen[number])
        return said

    def _unlike(self, reader: str, number: int, row: Mapping[str, Meaning]) -> list[str]:
        expected = self.rows[number]
        names = [name for name in row if name in expected or row[name] is not None]
        missing = [name for name in expected if name not in row]
        said = [f"{reader}: row {number} has no column {name!r}" for name in missing]
        return said + [
            f"{reader}: row {number}, column {name!r}: {row[name]!r}, and not {expected.get(name)!r}"
            for name in names
            if row[name] != expected.get(name) or name not in expected
        ]
