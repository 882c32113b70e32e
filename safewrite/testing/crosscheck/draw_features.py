"""Draws programs on Delta tables with sets of features, as their makers turn them on together."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from safewrite.testing.crosscheck.draw import programs
from safewrite.testing.crosscheck.draw_changes import change_programs
from safewrite.testing.crosscheck.features import FEATURES
from safewrite.testing.crosscheck.program import Program

MAPPED = ("mapping by name", "mapping by id")
_COMPUTED = ("generated", "default")


@st.composite
def feature_programs(draw: st.DrawFn) -> Program:
    """Programs of plain writes and of change logs; a table has up to five features."""
    of_changes = draw(st.booleans())
    program = draw(change_programs("delta") if of_changes else programs("delta"))
    features = draw(st.lists(st.sampled_from(FEATURES), min_size=1, max_size=5, unique=True))
    if of_changes:  # changes bring what a table computes, and the oracle knows no change that breaks a rule
        features = [one for one in features if one not in (*_COMPUTED, "check")]
    if {*MAPPED} <= {*features}:
        features.remove(MAPPED[0])
    if {*MAPPED, "row tracking"} & {*features} and "materialized" in features:
        features.remove("materialized")  # its check knows files by the names that users know
    if program.partition_by and "clustering" in features:
        features.remove("clustering")
    return replace(program, features=tuple(features))
