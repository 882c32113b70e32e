"""Finds the conditions that a Delta table has for its rows: CHECK constraints and column invariants (PROTOCOL.md, "Column Invariants").

Their SQL is Spark's.  One that is not evaluated as Spark does is refused by its name, and with it every write to the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from safewrite.errors import UnsupportedTableError

if TYPE_CHECKING:
    from safewrite.delta.log.snapshot import Snapshot
    from safewrite.frames.row_rules import RowRules

CONSTRAINT = "delta.constraints."
INVARIANT = "delta.invariants"


class _Found(NamedTuple):
    rules: RowRules | None
    refused: Mapping[str, str]
    """Why rules cannot be evaluated, by the name of their feature."""


def rules_of(state: Snapshot) -> RowRules | None:
    """The rules that new rows of a table must keep; None where it has none.

    Raises:
        UnsupportedTableError: one cannot be evaluated.
    """
    found = state.derived(_found)
    if found.refused:
        raise UnsupportedTableError(
            f"Rows cannot be checked: {'; '.join(found.refused.values())}. Nothing was written. Take these rules away, or write "
            "with an engine that has them."
        )
    return found.rules


def refused(state: Snapshot) -> Mapping[str, str]:
    """Why rules of a table cannot be evaluated, by the name of their feature; {} where all can."""
    return state.derived(_found).refused


def _found(state: Snapshot) -> _Found:
    texts = [*_constraints(state), *_invariants(state)]
    if not texts:
        return _Found(None, {})
    from safewrite.frames.expressions import NotEvaluatedError, condition
    from safewrite.frames.row_rules import RowRule, RowRules

    rules: list[RowRule] = []
    refused: dict[str, str] = {}
    for feature, name, text in texts:
        try:
            rules.append(RowRule(name, text, condition(text, state.schema)))
        except NotEvaluatedError as error:
            more = f"{refused[feature]}; " if feature in refused else ""
            refused[feature] = f"{more}{name} ({text}) cannot be evaluated as Spark does: {error}"
    return _Found(RowRules(tuple(rules)), refused)


def _constraints(state: Snapshot) -> Iterator[tuple[str, str, str]]:
    for key, text in sorted(state.properties.items()):
        if key.startswith(CONSTRAINT):
            yield "checkConstraints", f"the check constraint {key[len(CONSTRAINT) :]!r}", text


def _invariants(state: Snapshot) -> Iterator[tuple[str, str, str]]:
    """Of whole columns; one that is deeper is refused where the features are judged."""
    if INVARIANT not in state.schema_string:
        return
    for field in state.schema:
        text = (field.metadata or {}).get(INVARIANT.encode())
        if text is not None:
            yield "invariants", f"the invariant of column {field.name!r}", _condition_of(text.decode())


def _condition_of(text: str) -> str:
    """The SQL of an invariant, which is JSON in JSON; an empty one where it is not, which is refused."""
    try:
        found = json.loads(text)["expression"]["expression"]
    except (ValueError, KeyError, TypeError):
        return ""
    return found if isinstance(found, str) else ""
