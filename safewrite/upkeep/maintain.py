"""Runs the upkeep of one table: group by group, within a budget, one commit after another.

A commit of upkeep changes no row.  A group of which others took a file first is left out, and the rest goes on: nothing is tried
again blindly, and nobody waits for it.  Whoever else maintains the table takes other groups, or the same ones, of which one commit
stands.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from safewrite.boundary.public import after_ack
from safewrite.engine.abc import Engine, EngineError, ExecutorsLackPythonError
from safewrite.errors import (
    CommitUnknownError,
    ConflictError,
    InvalidInputError,
    Kind,
    RetriesExhaustedError,
    SafewriteError,
)
from safewrite.text.rendering import shown
from safewrite.upkeep.groups import Group, Inventory, groups_of
from safewrite.upkeep.report import MaintainReport
from safewrite.upkeep.unused import NOTHING, Unused
from safewrite.upkeep.workplace import Workplace

log = logging.getLogger("safewrite")

GROUPS_MAX = 32
"""At most this many small groups share a commit, for each that is put together at once."""
PLANS_MAX = 5
"""How often groups are chosen again when others change the schema or the properties of the table."""

TAKEN = "other writers took its files first"
OVER_TIME, OVER_BYTES = "the budget of seconds was used up", "they are beyond the budget of bytes"
BUSY = "writers were first at every version"
DOUBT = "a commit before them is in doubt"
BROKEN = "Spark's executors failed while they put them together"
UNREACHED = (
    "{}: executors were asked for, and this process's credentials or FileIO cannot be sent to them (a session of boto3, SSO, an assumed "
    "role, an object that does not pickle). Nothing was written. Give the executors' nodes a role of their own and open the table "
    "without a session, give keys in storage_options= or the catalog's properties, or take engine='local'."
)
SERVED = "{} puts the table's files together by itself"


@dataclass(frozen=True)
class Compacted:
    """What one commit of some groups came to; ``version`` is None where there is none.

    ``done`` are the groups that it put together, ``dropped`` why others are not among them.
    """

    version: int | None = None
    done: tuple[Group, ...] = ()
    dropped: tuple[str, ...] = ()
    files: int = 0
    size: int = 0
    rows: int | None = 0
    in_doubt: str | None = None


class Plan(Protocol):
    """A commit of some groups, in a format."""

    def compacted(self, version: int | None, in_doubt: str | None = None, /) -> Compacted:
        """What it came to; ``version`` is None where there is no commit, as far as is known."""


def left_out(groups: Sequence[Group], dropped: Mapping[int, str], in_doubt: str | None) -> Compacted:
    """What groups came to of which none was committed; those in doubt are neither done nor left out."""
    others = len(groups) - len(dropped) if in_doubt is None else 0
    return Compacted(dropped=(*dropped.values(), *[TAKEN] * others), in_doubt=in_doubt)


def ended(plan: Plan, commit: Callable[[], int], resolve: Callable[[str], int | None]) -> Compacted:
    """Commit a plan; one that ended in doubt is looked for once, and not tried again.

    Raises:
        ConflictError: kind SCHEMA_CHANGED.
    """
    try:
        return plan.compacted(commit())
    except CommitUnknownError as error:
        found = None
        with suppress(SafewriteError):
            found = None if error.key is None else resolve(error.key)
        return plan.compacted(found, error.key if found is None else None)
    except ConflictError as error:
        if error.kind is not Kind.CONFLICT:
            raise
        return plan.compacted(None)


@dataclass(frozen=True)
class Settled:
    """How a run ended: the version whose checkpoint it made, how much of the metadata was removed, by kind, and what became of unused files."""

    checkpoint: int | None = None
    removed: Mapping[str, int] = field(default_factory=dict)
    unused: Unused = NOTHING


@dataclass(frozen=True)
class Settling:
    """The end of a run: whether it made commits, whether it is a dry run, whether files are removed that nothing needs."""

    changed: bool
    dry_run: bool
    remove_unused: bool


@dataclass(frozen=True)
class Upkept:
    """A table as upkeep sees it: it tells what it has, commits groups, and ends a run.  ``now_s`` is a monotonic clock."""

    uri: str
    inventory: Callable[[], Inventory]
    compact: Callable[[Sequence[Group], Inventory, Engine[Any] | None], Compacted]
    in_tasks: Callable[[], object]
    """How tasks of other processes reach it; None where they do not."""
    settle: Callable[[Settling], Settled]
    now_s: Callable[[], float]


@dataclass
class _Run:
    """What was done so far, and what was left."""

    table: Upkept
    budget_s: float | None
    budget_bytes: int | None
    started_s: float
    place: Workplace
    commits: list[Compacted] = field(default_factory=list)
    left: Counter[str] = field(default_factory=Counter)
    spent: int = 0
    is_broken: bool = False
    """Whether executors failed at the last commit."""
    settled: Settled = Settled()

    def worth_their_work(self, on: Inventory) -> list[Group]:
        """The groups to put together; none where a service does it, which would do it twice."""
        groups = groups_of(on)
        if not on.served_by or not groups:
            return groups
        self.left[SERVED.format(on.served_by)] += len(groups)
        return []

    def work_through(self, on: Inventory) -> None:
        """Commit all groups that the budget allows.

        Raises:
            ConflictError: kind SCHEMA_CHANGED; groups are to be chosen again.
            InvalidInputError: executors were asked for by name, and do not reach the table or cannot work.
        """
        waiting = deque(self.worth_their_work(on))
        engine, spent, began_s = self._engine(waiting), self.spent, self.table.now_s()
        while waiting:
            if self.budget_s is not None and self.table.now_s() - self.started_s >= self.budget_s:
                self.left[OVER_TIME] += len(waiting)
                break
            some = self.taken(waiting, on.target, 1 if engine is None else self.place.cores)
            try:
                stopped = self._commit(some, on, engine) if some else ""
            except ExecutorsLackPythonError as error:
                if not self.place.leaves(error):
                    raise
                engine, stopped = None, self._commit(some, on, None)
            if stopped:
                self.left.update([stopped] * len(waiting))
                break
        took_s = self.table.now_s() - began_s
        self.place.choice.took(self.spent - spent, took_s, is_there=engine is not None)

    def _engine(self, waiting: Sequence[Group]) -> Engine[Any] | None:
        """What puts these groups together; None for this process.

        Raises:
            InvalidInputError: executors were asked for by name, and do not reach the table.
        """
        size = sum(one.size for one in waiting)
        if self.budget_bytes is not None:
            size = min(size, self.budget_bytes - self.spent)
        if not self.place.is_there(size):
            return None
        if self.table.in_tasks() is None:
            if self.place.is_forced:
                raise InvalidInputError(UNREACHED.format(self.table.uri))
            log.info(
                "this process works, for executors do not reach the table", extra={"table": self.table.uri}
            )
            return None
        return self.place.engine

    @property
    def removed(self) -> Mapping[str, int]:
        """How much was removed, by kind."""
        gone = self.settled.unused.removed
        return {**self.settled.removed, **({"unused_files": gone} if gone else {})}

    def taken(self, waiting: deque[Group], target: int, at_once: int = 1) -> list[Group]:
        """The next groups for one commit: one that is large, or some that are as large together; those beyond the budget are counted.

        For each of so many groups that are put together ``at_once``.
        """
        some: list[Group] = []
        while (
            waiting and len(some) < GROUPS_MAX * at_once and sum(one.size for one in some) < target * at_once
        ):
            group = waiting.popleft()
            if self.budget_bytes is not None and self.spent + group.size > self.budget_bytes:
                self.left[OVER_BYTES] += 1
                continue
            self.spent += group.size
            some.append(group)
        return some

    def settle(self, *, remove_unused: bool, dry_run: bool = False) -> None:
        """End the run; what fails there is done by the next one."""
        with after_ack(self.table.uri):
            changed = any(one.version is not None for one in self.commits)
            self.settled = self.table.settle(Settling(changed, dry_run, remove_unused))

    def _commit(self, groups: Sequence[Group], on: Inventory, engine: Engine[Any] | None) -> str:
        """Commit some groups, and note what became of them; why nothing may follow, or ''.

        Groups with which executors failed are left to the next run; where they fail twice in a row, nothing follows.
        """
        was_broken, self.is_broken = self.is_broken, False
        try:
            made = self.table.compact(groups, on, engine)
        except RetriesExhaustedError:
            self.left[BUSY] += len(groups)
            return BUSY
        except EngineError as error:
            log.warning("upkeep: %s", error.message, extra={"table": self.table.uri})
            self.commits.append(Compacted(dropped=(BROKEN,) * len(groups)))
            self.is_broken = True
            return BROKEN if was_broken else ""
        self.commits.append(made)
        if made.version is not None:
            text = "%d groups were put together in version %d%s"
            where = "" if engine is None else ", by executors"
            log.info(text, len(made.done), made.version, where, extra={"table": self.table.uri})
        return "" if made.in_doubt is None else DOUBT


def maintain(
    table: Upkept,
    *,
    dry_run: bool = False,
    budget_s: float | None = None,
    budget_bytes: int | None = None,
    remove_unused: bool = False,
    place: Workplace | None = None,
) -> MaintainReport:
    """Put small files together, within a budget; see ``Table.maintain``."""
    run = _Run(table, budget_s, budget_bytes, table.now_s(), place or Workplace())
    first = found = table.inventory()
    if dry_run:
        run.settle(dry_run=True, remove_unused=remove_unused)
        return _foreseen(run, first)
    for turn in range(1, PLANS_MAX + 1):
        try:
            run.work_through(found)
            break
        except ConflictError as error:
            if error.kind is not Kind.SCHEMA_CHANGED or turn == PLANS_MAX:
                raise
            run.left.clear()
            found = table.inventory()
    run.settle(remove_unused=remove_unused)
    done = [group for one in run.commits for group in one.done]
    return _report(run, first, table.inventory() if run.commits else found, done)


def _foreseen(run: _Run, found: Inventory) -> MaintainReport:
    """What a run would do, if nobody else wrote meanwhile."""
    waiting, groups = deque(run.worth_their_work(found)), list[Group]()
    while waiting:
        groups += run.taken(waiting, found.target)
    outputs, size = sum(one.outputs for one in groups), sum(one.live_bytes for one in groups)
    report = _report(run, found, found, groups)
    return replace(
        report,
        dry_run=True,
        files_after=report.files_before - report.files_in + outputs,
        bytes_after=report.bytes_before - report.bytes_in + size,
        files_out=outputs,
        bytes_out=size,
        rows=_rows(groups),
    )


def _report(run: _Run, first: Inventory, last: Inventory, done: Sequence[Group]) -> MaintainReport:
    """What a run did, and these groups."""
    dropped = Counter(why for one in run.commits for why in one.dropped)
    return MaintainReport(
        run.table.uri,
        last.version,
        False,
        len(first.files),
        first.size,
        len(last.files),
        last.size,
        groups=len(done),
        commits=tuple(one.version for one in run.commits if one.version is not None),
        files_in=sum(len(one.files) for one in done),
        bytes_in=sum(one.size for one in done),
        files_out=sum(one.files for one in run.commits),
        bytes_out=sum(one.size for one in run.commits),
        rows=_summed(one.rows for one in run.commits),
        deleted_rows=sum(file.gone for one in done for file in one.files),
        requests_saved=sum(one.requests_saved for one in done),
        dropped=dict(dropped),
        left=dict(run.left),
        checkpoint=run.settled.checkpoint,
        removed=run.removed,
        unused_listed=run.settled.unused.listed,
        unused_kept=run.settled.unused.kept,
        in_doubt=next((one.in_doubt for one in run.commits if one.in_doubt is not None), None),
        elapsed_s=run.table.now_s() - run.started_s,
    )


def _rows(groups: Sequence[Group]) -> int | None:
    return _summed(
        None if file.rows is None else file.rows - file.gone for one in groups for file in one.files
    )


def _summed(counts: Iterable[int | None]) -> int | None:
    found = [*counts]
    return None if None in found else sum(one for one in found if one is not None)


def checked_bytes(budget_bytes: object) -> int | None:
    """``budget_bytes=`` as it was given.

    Raises:
        InvalidInputError: it is neither None nor a whole number from 1.
    """
    if budget_bytes is None:
        return None
    if type(budget_bytes) is not int or budget_bytes < 1:
        raise InvalidInputError(
            f"budget_bytes= is None or a whole number of bytes from 1, not {shown(budget_bytes)}. Nothing was written."
        )
    return budget_bytes
