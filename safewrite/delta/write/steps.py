"""Chooses the steps of a write by its verb; what an append does not need is imported where it is."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from safewrite.delta.write.recalled import DeltaDone
from safewrite.delta.write.write import write
from safewrite.protocol.effects import Effect, Outcome


def steps_of(
    verb: str, plan: Any, encode: Callable[[], Any], *, fresh: bool, **how: Any
) -> Generator[Effect, Outcome, DeltaDone]:
    """Write what was planned, once; the settings are those of ``safewrite.delta.write.write.write``."""
    if verb == "append":
        return write(plan, encode, fresh=fresh, **how)
    if verb == "apply_changes":
        from safewrite.delta.write.apply import apply

        return apply(plan, encode, fresh=fresh, **how)
    return write(plan, encode, **how)  # it reads and writes for long before its first try
