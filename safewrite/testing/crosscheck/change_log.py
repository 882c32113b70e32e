"""Keeps what an oracle knows of the changes of its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from safewrite.testing.changes import RefusedError
from safewrite.testing.crosscheck.meaning import Meaning

UNKNOWN: Meaning = ("unknown",)
"""Stands for a value that a change lacks, and that nobody has."""


@dataclass
class State:
    """What the table holds and remembers of one key: ``carried`` are columns whose values are older than the row."""

    row: dict[str, Meaning] | None = None
    at: int = -1
    gone: int = -1
    carried: dict[str, int] = field(default_factory=dict)

    def copy(self) -> State:
        """One that changes by itself."""
        return State(None if self.row is None else dict(self.row), self.at, self.gone, dict(self.carried))

    def delete(self, at: int) -> None:
        """Take a deletion in."""
        if at > max(self.at if self.row is not None else -1, self.gone):
            self.row, self.gone, self.carried = None, at, {}

    def upsert(self, at: int, brought: Mapping[str, Meaning], lacks: Sequence[str]) -> None:
        """Take an upsert in.

        Raises:
            RefusedError: it ties with a row and says something else.
        """
        if self.row is not None and at == self.at:
            if {**self.row, **brought} != self.row:
                raise RefusedError("unequal changes have one sequence")
        elif at > max(self.at if self.row is not None else -1, self.gone):
            before = self.row or {}
            origins = {name: self.carried.get(name, self.at) for name in lacks}
            self.row = {**brought, **{name: before.get(name, UNKNOWN) for name in lacks}}
            self.at, self.gone, self.carried = (
                at,
                -1,
                origins,
            )  # a newer row ends what is remembered of the deletion
        elif self.row is not None and at > self.gone:
            for name in [one for one, origin in self.carried.items() if one in brought and origin < at]:
                self.row[name], self.carried[name] = brought[name], at


@dataclass
class Log:
    """What an oracle knows of the changes of its table: states by id, and whether the table remembers any change."""

    states: dict[int, State] = field(default_factory=dict)
    began: bool = False

    def rename(self, old: str, new: str) -> None:
        """Give a column another name."""
        for state in self.states.values():
            state.carried = {new if name == old else name: at for name, at in state.carried.items()}

    def drop(self, name: str) -> None:
        """Forget a column."""
        for state in self.states.values():
            state.carried.pop(name, None)
