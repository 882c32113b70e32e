"""Chooses the steps of a write by its verb."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from safewrite.iceberg.write.withdrawal import taken_back
from safewrite.iceberg.write.write import IcebergDone, Ledgers, write
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.table.withdrawal import TakenBack, or_withdrawn


def steps_of(
    verb: str, plan: Any, encode: Callable[[], Any], *, helpers: Ledgers, limits: Limits, **how: Any
) -> Generator[Effect, Outcome, IcebergDone]:
    """Write what was planned, once; the settings are those of ``safewrite.iceberg.write.write.write``.

    Refused changes are raised only once no other writer can apply them any more.
    """
    steps = write(plan, encode, plan.planned, helpers=helpers, limits=limits, **how)
    if verb != "apply_changes":
        return steps

    def take_back() -> TakenBack[IcebergDone]:
        return taken_back(plan, plan.bound or plan.planned, helpers=helpers, limits=limits)

    return or_withdrawn(steps, plan, take_back)
