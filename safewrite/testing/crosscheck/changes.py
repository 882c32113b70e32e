"""Applies change logs in programs: what a batch must do to the table, by column, and the call that does it.

The oracle knows a value by its column, whatever that is called now: a rename takes along what is remembered of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pyarrow as pa

from safewrite.errors import InvalidInputError, SafewriteError
from safewrite.testing.changes import RefusedError
from safewrite.testing.crosscheck import kinds
from safewrite.testing.crosscheck.change_log import UNKNOWN, State
from safewrite.testing.crosscheck.meaning import given
from safewrite.testing.crosscheck.oracle import ID, DisagreementError, ProgramOracle
from safewrite.testing.crosscheck.program import Column, Program, Row, Step

OP, LACKS = "op", "lacks"


class Judging(Protocol):
    """A run of a program, as far as changes need it."""

    program: Program
    oracle: ProgramOracle

    def guarded(self, call: Callable[[], Any], label: str, /) -> Any:
        """The result of a call of safewrite's, or its refusal; anything else is a fault."""


def after(step: Step, oracle: ProgramOracle) -> dict[int, State]:
    """The states of the keys of a batch after it.

    Raises:
        RefusedError: it must be refused.
    """
    _, sequence, is_key, *_ = step.detail
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


def apply(run: Judging, step: Step, table: Any, label: str) -> None:
    """Let safewrite apply a batch, and judge what became of it.

    Raises:
        DisagreementError: it was applied and must be refused, or the other way round.
    """
    oracle = run.oracle
    _, _, is_key, *brings = step.detail
    if not is_key and not oracle.log.began:
        return  # by which column a table's first changes come is up to them
    before = oracle.columns, oracle.rows
    oracle.widen([Column(*one) for one in brings])
    if not _applied(run, step, table, label):
        oracle.columns, oracle.rows = before


def _applied(run: Judging, step: Step, table: Any, label: str) -> bool:
    """Apply a batch, and judge it; whether it was applied.  The oracle has the columns that it brings."""
    oracle = run.oracle
    key, sequence, _, *brings = step.detail
    names = oracle.column_names()
    how: dict[str, Any] = {"keys": [key], "sequence_by": [sequence], "columns": names, "all_late": "count"}
    how |= {"delete_when": [(OP, "=", "d")], "unchanged": LACKS, "schema_mode": "merge" if brings else None}
    told = run.guarded(lambda: table.apply_changes(frame(step.rows, oracle), key=step.name, **how), label)
    try:
        states = after(step, oracle)
    except RefusedError as error:
        if not isinstance(told, SafewriteError):
            raise DisagreementError(f"a batch was applied, and {error}") from error
        return False
    if isinstance(told, SafewriteError):
        if any(not {*event[LACKS]} <= {*names} for event in step.rows):
            return False  # a column that an engine was to add, and did not
        if isinstance(told, InvalidInputError) and run.program.maker == "safewrite":
            raise DisagreementError(f"a batch as good as any was refused: {told}")
        return False
    counts = {name: count for name, count in told.changes.items() if name != "applied"}
    if sum(counts.values()) != len(step.rows):
        raise DisagreementError(f"the receipt tells of {counts}, and not of {len(step.rows)} changes")
    oracle.remove(states)
    oracle.add({number: state.row for number, state in states.items() if state.row is not None}, step.name)
    oracle.log.states |= states
    oracle.log.began = True
    return True


def frame(rows: Sequence[Row], oracle: ProgramOracle) -> pa.Table:
    """Changes under the columns of the table."""
    more = [pa.field(OP, pa.string()), pa.field(LACKS, pa.list_(pa.string()))]
    return pa.Table.from_pylist(
        [dict(row) for row in rows], pa.schema([*kinds.schema(oracle.columns), *more])
    )
