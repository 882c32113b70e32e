"""Defines what a write does with its rows."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from safewrite.errors import SafewriteError, not_committed
from safewrite.protocol.effects import Effect, Outcome
from safewrite.receipt import Done, Named

if TYPE_CHECKING:
    from safewrite.changes.reading import Spec
    from safewrite.frames.where import Where

DoneT = TypeVar("DoneT")
CommitT_co = TypeVar("CommitT_co", bound=Done, covariant=True)


@dataclass(frozen=True, slots=True)
class Operation:
    """What a write does with its rows: append them, or replace those where ``where`` is true (None: all)."""

    verb: Literal["append", "overwrite", "delete", "apply_changes"]
    where: Where | None = None
    schema_mode: Literal["merge"] | None = None
    spark_catalog: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float | None = None
    volatile: tuple[str, ...] = ()
    changes: Spec | None = None
    """What the caller declares of a change log."""


class Keyed(Protocol):
    """Anything that stands for one write."""

    @property
    def write(self) -> Named: ...


class Planned(Keyed, Protocol):
    """A write that was planned on one version of the table."""

    properties: Mapping[str, str]
    """What the caller wants the table's history to say of the commit."""


class GroupDone(Protocol[CommitT_co]):
    """What became of a group: the commit that this call made, its members, and what was known of the others."""

    @property
    def done(self) -> CommitT_co | None: ...

    @property
    def writes(self) -> Sequence[Named]: ...

    @property
    def known(self) -> Mapping[str, Done | SafewriteError]: ...


@contextmanager
def naming(key: Callable[[], str | None]) -> Iterator[None]:
    """Give each error of a call the key that repeats or resolves its write, where nothing else named one.

    Between two attempts, or while the table is looked at again, no plan stands for the write.
    """
    try:
        yield
    except SafewriteError as error:
        error.key = error.key or key()
        raise


def keyed_until_landed(
    steps: Generator[Effect, Outcome, DoneT], plan: Keyed
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
