"""Defines what a write does with its rows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeVar

from safewrite.arguments.reading import SchemaMode
from safewrite.errors import SafewriteError, not_committed
from safewrite.protocol.effects import Delete, Effect, Outcome, Together
from safewrite.protocol.positions import Moves
from safewrite.receipt import Done, Named

if TYPE_CHECKING:
    from safewrite.changes.meaning.spec import Spec
    from safewrite.frames.where import Where

log = logging.getLogger("safewrite")
DoneT = TypeVar("DoneT")
CommitT_co = TypeVar("CommitT_co", bound=Done, covariant=True)
NamedT_co = TypeVar("NamedT_co", bound=Named, covariant=True)


@dataclass(frozen=True, slots=True)
class Operation:
    """What a write does with its rows: append them, or replace those where ``where`` is true (None: all)."""

    verb: Literal["append", "overwrite", "delete", "apply_changes", "compact"]
    where: Where | None = None
    schema_mode: SchemaMode | None = None
    spark_catalog: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float | None = None
    volatile: tuple[str, ...] = ()
    positions: Moves = field(default_factory=dict)
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
    positions: Moves
    """How far the commit takes the caller's sources."""


@dataclass(frozen=True, slots=True)
class GroupDone(Generic[CommitT_co, NamedT_co]):
    """What became of a group.

    ``done`` and ``writes`` are the commit that this call made, if one was needed, and its members; ``known``
    are the others by key: found in other commits, or at fault.
    """

    done: CommitT_co | None
    writes: tuple[NamedT_co, ...]
    known: Mapping[str, CommitT_co | SafewriteError]


def clean_up(paths: Iterable[str]) -> Generator[Effect, Outcome, None]:
    """Delete files that nobody names, after a commit; files left over are harmless, and a failure cannot undo the commit."""
    lost = tuple(Delete(path, name="write.delete_lost") for path in paths)
    if not lost:
        return
    try:
        yield Together(lost, name="write.clean_up")
    except Exception:
        log.warning("after the commit: files of attempts that were lost are left over", exc_info=True)


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
