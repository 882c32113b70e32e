"""Draws programs on Delta tables with sets of features, as their makers turn them on together."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from safewrite.testing.crosscheck.draw import programs
from safewrite.testing.crosscheck.draw_changes import change_programs
from safewrite.testing.crosscheck.features import COMPAT, FEATURES
from safewrite.testing.crosscheck.program import VECTORS, Program

MAPPED = ("mapping by name", "mapping by id")
_COMPUTED = ("generated", "default")


@st.composite
def feature_programs(draw: st.DrawFn) -> Program:
    """Programs of plain writes and of change logs; a table has up to five features, and what these need."""
    of_changes = draw(st.booleans())
    program = draw(change_programs("delta") if of_changes else programs("delta"))
    features = draw(st.lists(st.sampled_from(FEATURES), min_size=1, max_size=5, unique=True))
    if of_changes:  # changes bring what a table computes, and the oracle knows no change that breaks a rule
        features = [one for one in features if one not in (*_COMPUTED, "check")]
    if {*COMPAT} & {*features}:
        features = _with_rules_of_iceberg(features, program)
    if {*MAPPED} <= {*features}:
        features.remove(MAPPED[0])
    if program.partition_by and "clustering" in features:
        features.remove("clustering")
    return replace(program, features=tuple(features))


def _with_rules_of_iceberg(features: list[str], program: Program) -> list[str]:
    """The same with one version of the rules, the first that allows what the table has and gets, and what that version asks for."""
    wanted = [COMPAT[one] for one in features if one in COMPAT]
    listed = [
        kind for step in program.steps for one in step.detail if isinstance(one, tuple) for kind in one[1:]
    ]
    nested = any(
        f"{outer}<" in str(kind)
        for kind in (*listed, *(one.kind for one in program.columns))
        for outer in ("list", "map")
    )
    marked = "vectors" in features or VECTORS in program.properties
    number = max(wanted[0], 2 if nested else 1, 3 if marked else 1)
    needed = [f"iceberg {number}", *(["row tracking"] if number == 3 else [])]
    if not {*MAPPED} & {*features}:
        needed.append(MAPPED[0])
    return [*(one for one in features if one not in (*COMPAT, *needed)), *needed]
