"""Applies change logs in programs: what a batch must do to the table, by column, and the call that does it.

The oracle knows a value by its column, whatever that is called now: a rename takes along what is remembered of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from safewrite.errors import InvalidInputError, SafewriteError
from safewrite.testing.changes import RefusedError
from safewrite.testing.crosscheck import kinds
from safewrite.testing.crosscheck.meaning import Meaning, given
from safewrite.testing.crosscheck.oracle import ID, DisagreementError, ProgramOracle
from safewrite.testing.crosscheck.program import Row, Step

if TYPE_CHECKING:
    from safewrite.testing.crosscheck.machine import ProgramRun

OP, LACKS = "op", "lacks"
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


def after(step: Step, oracle: ProgramOracle) -> dict[int, State]:
    """The states of the keys of a batch after it.

    Raises:
        RefusedError: it must be refused.
    """
    _, sequence, is_key = step.detail
    if not is_key and oracle.log.began:
        raise RefusedError("its key is another column than that of the changes before")
    columns = {one.name: kinds.arrow(one.kind) for one in oracle.columns}
    found: dict[int, State] = {}
    for event in sorted(step.rows, key=lambda one: int(one[sequence])):
        number = int(event[ID])
        state = found.setdefault(number, _state(number, sequence, oracle))
        if event[OP] == "d":
            state.delete(int(event[sequence]))
            continue
        brought = {
            name: given(event[name], kind) for name, kind in columns.items() if name not in event[LACKS]
        }
        state.upsert(int(event[sequence]), brought, event[LACKS])
    if any(UNKNOWN in (state.row or {}).values() for state in found.values()):
        raise RefusedError("a value is lacking that nobody has")
    return found


def _state(number: int, sequence: str, oracle: ProgramOracle) -> State:
    """What is known of a key; plain writes remove and add rows, and remember nothing."""
    known = oracle.log.states.get(number, State()).copy()
    row = oracle.rows.get(number)
    known.row = None if row is None else dict(row)
    if row is None:
        known.carried = {}
    else:
        known.at = -1 if row[sequence] is None else int(row[sequence][1])
    return known


def apply(run: ProgramRun, step: Step, table: Any, label: str) -> None:
    """Let safewrite apply a batch, and judge what became of it.

    Raises:
        DisagreementError: it was applied and must be refused, or the other way round.
    """
    oracle = run.oracle
    key, sequence, is_key = step.detail
    if not is_key and not oracle.log.began:
        return  # by which column a table's first changes come is up to them
    names = oracle.column_names()
    how = {"keys": [key], "sequence_by": [sequence], "columns": names, "all_late": "count"}
    how |= {"delete_when": [(OP, "=", "d")], "unchanged": LACKS}
    told = run.guarded(lambda: table.apply_changes(frame(step.rows, oracle), key=step.name, **how), label)
    try:
        states = after(step, oracle)
    except RefusedError as error:
        if not isinstance(told, SafewriteError):
            raise DisagreementError(f"a batch was applied, and {error}") from error
        return
    if isinstance(told, SafewriteError):
        if isinstance(told, InvalidInputError) and run.program.maker == "safewrite":
            raise DisagreementError(f"a batch as good as any was refused: {told}")
        return
    counts = {name: count for name, count in told.changes.items() if name != "applied"}
    if sum(counts.values()) != len(step.rows):
        raise DisagreementError(f"the receipt tells of {counts}, and not of {len(step.rows)} changes")
    oracle.remove(states)
    oracle.add({number: state.row for number, state in states.items() if state.row is not None}, step.name)
    oracle.log.states |= states
    oracle.log.began = True


def frame(rows: Sequence[Row], oracle: ProgramOracle) -> pa.Table:
    """Changes under the columns of the table."""
    more = [pa.field(OP, pa.string()), pa.field(LACKS, pa.list_(pa.string()))]
    return pa.Table.from_pylist(
        [dict(row) for row in rows], pa.schema([*kinds.schema(oracle.columns), *more])
    )
