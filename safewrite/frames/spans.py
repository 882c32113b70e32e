"""Bounds between which all values of a column lie in a file, and what a comparison can be for them.

Bounds are used to leave out files that cannot have a row, never to take rows for matching without a look: bounds of any
writer may be wider than the truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

Op = Literal["=", "!=", "<", "<=", ">", ">="]
Truth = bool | None
BOTH: frozenset[Truth] = frozenset({True, False})
NULL: frozenset[Truth] = frozenset({None})


@dataclass(frozen=True, slots=True)
class Span:
    """Values from ``low`` to ``high``, NULL among them unless ``has_nulls`` is false; None is an open end.

    ``high`` of a text may be cut off: what begins with it may be among the values.  ``is_empty``: all are NULL.
    """

    low: Any = None
    high: Any = None
    has_nulls: bool = True
    is_empty: bool = False

    def compared(self, op: Op, value: Any) -> frozenset[Truth]:
        """What ``column op value`` may be."""
        if self.is_empty:
            return NULL
        found = self._compared(op, value)
        return found | NULL if self.has_nulls else found

    def may_be(self, value: Any) -> bool:
        """Whether a value may be among them."""
        return not self.is_empty and True in self._compared("=", value)

    def may_overlap(self, least: Any, greatest: Any) -> bool:
        """Whether a value between these, of the column's type, may be among them."""
        return not (self.is_empty or self._against_low(greatest)[0] or self._is_above(least))

    def may_hold_any(self, values: pa.Array[Any]) -> bool:
        """Whether one of many values of the column's type may be among them."""
        if self.is_empty:
            return False
        inside = pa.repeat(True, len(values))
        if self.low is not None:
            inside = pc.and_(inside, pc.greater_equal(values, self.low))
        if self.high is not None:
            whole = not isinstance(self.high, str)
            cut = values if whole else pc.utf8_slice_codeunits(values, 0, len(self.high))
            inside = pc.and_(inside, pc.less_equal(cut, self.high))
        return bool(pc.any(inside).as_py())

    def _compared(self, op: Op, value: Any) -> frozenset[Truth]:
        below, at_low = self._against_low(value)
        above = self._is_above(value)
        always, never = {
            "=": (False, below or above),
            "!=": (below or above, False),
            "<": (above, below or at_low),
            "<=": (above, below),
            ">": (below, above),
            ">=": (below or at_low, above),
        }[op]
        return frozenset({True}) if always else frozenset({False}) if never else BOTH

    def _against_low(self, value: Any) -> tuple[bool, bool]:
        """Whether a value is below all of these, or at the lowest bound."""
        if not _alike(value, self.low):
            return False, False
        return value < self.low, value == self.low

    def _is_above(self, value: Any) -> bool:
        """Whether a value is above all of these."""
        if not _alike(value, self.high):
            return False
        return bool((value[: len(self.high)] if isinstance(value, str) else value) > self.high)


def _alike(value: Any, bound: Any) -> bool:
    """Whether two values have one order in every engine."""
    if type(value) is not type(bound) or isinstance(value, bool | float):
        return False
    return getattr(value, "tzinfo", None) is None or getattr(bound, "tzinfo", None) is not None
