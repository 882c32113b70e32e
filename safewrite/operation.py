"""Defines what a write does with its rows."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from safewrite.errors import SafewriteError, not_committed
from safewrite.protocol.effects import Effect, Outcome
from safewrite.receipt import Named

if TYPE_CHECKING:
    from safewrite.frames.where import Where

DoneT = TypeVar("DoneT")


@dataclass(frozen=True, slots=True)
class Operation:
    """What a write does with its rows: append them, or replace those where ``where`` is true (None: all)."""

    verb: Literal["append", "overwrite", "delete"]
    where: Where | None = None
    schema_mode: Literal["merge"] | None = None
    spark_catalog: str | None = None


class Planned(Protocol):
    """A write that was planned on one version of the table."""

    @property
    def write(self) -> Named: ...


def keyed_until_landed(
    steps: Generator[Effect, Outcome, DoneT], plan: Planned
) -> Generator[Effect, Outcome, DoneT]:
    """Give each error of a write the key that repeats or resolves it; a library's error is a NotCommittedError.

    It comes before the commit: while a commit is tried, and once it landed, protocols raise nothing else than
    errors of safewrite.  A generator and not a context manager, whose state the explorer could not compare.
    """
    try:
        return (yield from steps)
    except SafewriteError as error:
        error.key = error.key or plan.write.key
        raise
    except Exception as error:
        raise not_committed(error, plan.write.key) from error
