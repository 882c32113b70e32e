"""Finds what a Delta table asks of its rows: CHECK constraints, column invariants, generated columns, and defaults of columns.

Their SQL is Spark's.  One that is not evaluated as Spark does is refused by its name, and with it every write to the table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from safewrite.errors import UnsupportedTableError

if TYPE_CHECKING:
    from safewrite.delta.log.snapshot import Snapshot
    from safewrite.frames.fills import ColumnFill
    from safewrite.frames.row_rules import RowRules, TableRules

CONSTRAINT = "delta.constraints."
INVARIANT = "delta.invariants"
GENERATED = "delta.generationExpression"
DEFAULT = "CURRENT_DEFAULT"


class _Found(NamedTuple):
    rules: RowRules | None
    fills: tuple[ColumnFill, ...]
    refused: Mapping[str, str]
    """Why rules cannot be evaluated, by the name of their feature."""


_NONE = _Found(None, (), {})


def rules_of(state: Snapshot) -> RowRules | None:
    """The rules that new rows of a table must keep; None where it has none.

    Raises:
        UnsupportedTableError: one cannot be evaluated.
    """
    return _usable(state).rules


def fills_of(state: Snapshot) -> Sequence[ColumnFill]:
    """What columns get that a frame lacks: defaults, then what is generated of others.  Raises as :func:`rules_of`."""
    return _usable(state).fills


def table_rules(state: Snapshot) -> TableRules:
    """Both, as jobs take them.  Raises as :func:`rules_of`."""
    from safewrite.frames.row_rules import TableRules

    found = _usable(state)
    return TableRules(() if found.rules is None else found.rules.rules, found.fills)


def refused(state: Snapshot) -> Mapping[str, str]:
    """Why rules of a table cannot be evaluated, by the name of their feature; {} where all can."""
    return state.derived(_found).refused


def _usable(state: Snapshot) -> _Found:
    found = state.derived(_found)
    if found.refused:
        raise UnsupportedTableError(
            f"Rows cannot be checked: {'; '.join(found.refused.values())}. Nothing was written. Take these rules away, or write "
            "with an engine that has them."
        )
    return found


def _found(state: Snapshot) -> _Found:
    conditions = [*_constraints(state), *_of_columns(state, INVARIANT)]
    defaults, generated = _of_columns(state, DEFAULT), _of_columns(state, GENERATED)
    if not (conditions or defaults or generated):
        return _NONE
    from safewrite.frames import expressions
    from safewrite.frames.row_rules import RowRule, RowRules

    rules: list[RowRule] = []
    fills: list[ColumnFill] = []
    refused: dict[str, str] = {}

    def tried(feature: str, name: str, text: str, take: Callable[[], None]) -> None:
        try:
            take()
        except expressions.NotEvaluatedError as error:
            more = f"{refused[feature]}; " if feature in refused else ""
            refused[feature] = f"{more}{name} ({text}) cannot be evaluated as Spark does: {error}"

    def generate(name: str, column: str, text: str) -> None:
        fill, rule = expressions.generated(column, text, state.schema)
        fills.append(fill)
        rules.append(RowRule(name, text, rule, column))

    def default(column: str, text: str) -> None:
        fill = expressions.default(column, text, state.schema)
        fills.extend(() if fill is None else (fill,))

    for feature, name, _, text in conditions:
        condition = partial(expressions.condition, text, state.schema)
        tried(feature, name, text, lambda: rules.append(RowRule(name, text, condition())))  # noqa: B023 - called at once
    for feature, name, column, text in defaults:
        tried(feature, name, text, partial(default, column, text))
    for feature, name, column, text in generated:
        tried(feature, name, text, partial(generate, name, column, text))
    return _Found(RowRules(tuple(rules)) if rules else None, tuple(fills), refused)


def _constraints(state: Snapshot) -> Iterator[tuple[str, str, str, str]]:
    for key, text in sorted(state.properties.items()):
        if key.startswith(CONSTRAINT):
            yield "checkConstraints", f"the check constraint {key[len(CONSTRAINT) :]!r}", "", text


_COLUMNS = {
    INVARIANT: ("invariants", "the invariant of column"),
    GENERATED: ("generatedColumns", "the generated column"),
    DEFAULT: ("allowColumnDefaults", "the default of column"),
}


def _of_columns(state: Snapshot, key: str) -> list[tuple[str, str, str, str]]:
    """Of whole columns; what is deeper is refused where the features are judged."""
    if key not in state.schema_string:
        return []
    feature, what = _COLUMNS[key]
    texts = [(field.name, (field.metadata or {}).get(key.encode())) for field in state.schema]
    found = [(name, text.decode()) for name, text in texts if text is not None]
    return [
        (feature, f"{what} {name!r}", name, _condition_of(text) if key == INVARIANT else text)
        for name, text in found
    ]


def _condition_of(text: str) -> str:
    """The SQL of an invariant, which is JSON in JSON; an empty one where it is not, which is refused."""
    try:
        found = json.loads(text)["expression"]["expression"]
    except (ValueError, KeyError, TypeError):
        return ""
    return found if isinstance(found, str) else ""
