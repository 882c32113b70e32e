"""Applies what is new in bronze to silver, and moves bronze's position in the same commit."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

import safewrite as sw
from safewrite.engine.abc import EngineError, ExecutorsLackPythonError
from safewrite.engine.local import LocalEngine
from safewrite.errors import InternalError, InvalidInputError, SafewriteError
from safewrite.medallion.config.bronze_columns import UNCHANGED
from safewrite.medallion.config.full_load_epochs import truncating
from safewrite.medallion.config.quality_rules import Result
from safewrite.medallion.silver.changes import DELETE, TRUNCATE
from safewrite.medallion.silver.judging import Aside, put_aside, put_aside_before, taken_out
from safewrite.medallion.silver.load_keys import LoadKeys, ReadAgainError
from safewrite.medallion.silver.positions import RESET, TRUNCATED, is_under_way
from safewrite.medallion.silver.quality import RuleError, check_result
from safewrite.medallion.silver.tasks import STEP_ROWS, RowsRead, SilverTasks, StepRead, tasks_of
from safewrite.medallion.silver.unfit import Record, unfit
from safewrite.medallion.tables.job import TableJob, short_key

log = logging.getLogger("safewrite")

ROWS_MAX = 1_000_000
"""At most this many rows of bronze, or those of one data file if it has more, go into one commit of silver."""
SMALL_ROWS = 5_000
"""Tasks for up to this many rows run in this process: a job of Spark's costs more."""
TRIES = 3
"""Tasks bring rows to silver at most this many times: an executor that dies takes with it what its tasks gave, and Spark makes that no second time."""


class _TogetherError(Exception):
    """Tasks that have some rows each cannot say which are at fault: one is to have all.  Nothing was committed."""


class _NeedlessError(SafewriteError):
    """Stops a commit that would change nothing."""


@dataclass
class Refined:
    """What a run applied: ``rows + split = the sum of changes``.

    ``quarantined`` counts rows that are new to quarantine, and are none of ``rows``.  ``split`` counts changes that are in no
    row: the delete in a change of a key, the truncate before a new epoch's load.
    """

    commits: int = 0
    rows: int = 0
    by_executors: int = 0
    """So many of the rows."""
    split: int = 0
    quarantined: int = 0
    changes: dict[str, int] = field(default_factory=dict)
    position: int | None = None
    resets: int | None = None
    """Silver's position of :data:`RESET`."""
    stamp: int | None = None
    """Silver's position :attr:`Lineage.commit_name`."""
    truncated: int | None = None
    """Silver's position of :data:`TRUNCATED`."""
    watermark: int | None = None
    """Of a sync by time: the newest time that silver took, in microseconds since 1970."""
    same_key: int = 0
    """Rows of full loads that a later row of their load shares its key with; those of this run are among ``quarantined``."""
    late: int = 0
    """Of a sync by time: rows that came later than the overlap, and that silver did not account for before the run."""


@dataclass(frozen=True, slots=True)
class _CommitStep:
    """What bronze's commits brought, for one commit of silver; ``to`` is where bronze's position comes to by it, None if it stays.

    ``reset``: what silver has goes in it.  ``resets``: where the position of :data:`RESET` comes to, None if it stays.
    ``truncates``: the epochs that begin with an empty table, and whose beginning goes in it.
    """

    brought: tuple[sw.AddedRows, ...]
    to: int | None
    reset: bool = False
    resets: int | None = None
    truncates: tuple[int, ...] = ()


def refine(job: TableJob, done: Refined, *, again: bool = False, reset: bool = False) -> None:
    """Bring silver to bronze's head and note it in ``done``.

    ``again`` applies all that bronze holds, from whatever position; ``reset`` does so after what silver has is gone.

    Raises:
        ConflictError: bronze cannot be followed from silver's position, or another run moves it.
        InvalidInputError: the quality gate refuses the batch, or two changes contradict each other.
        SafewriteError: as ``apply_changes``.
    """
    try:
        _refine(job, done, again=again, reset=reset)
    except _TogetherError as why:
        log.info("medallion: %s: one task has all rows of a commit: %s", job.name, why)
        _refine(job, done, again=again, reset=reset, is_whole=True)
    except ExecutorsLackPythonError as error:
        if not job.places.work.leaves(error):
            raise
        _refine(job, done, again=again, reset=reset)


def _refine(job: TableJob, done: Refined, *, again: bool, reset: bool, is_whole: bool = False) -> None:
    lineage = job.lineage
    lineage.look()
    name = lineage.position_name
    positions = job.silver.positions()
    at = positions.get(name)
    if at is None and not again and any(one.startswith("bronze/") for one in positions):
        raise lineage.gap("it is another table than the one that silver took (created again)")
    done.position, done.resets, done.stamp = at, positions.get(RESET), positions.get(lineage.commit_name)
    done.truncated = positions.get(TRUNCATED)
    again = again or reset or is_under_way(positions)
    if at is not None and not again and not lineage.is_same(at, done.stamp):
        raise lineage.gap(
            f"silver took version {at}, and bronze has another commit of that number: it was put back since"
        )
    is_all = again or at is None
    news = lineage.whole() if again or at is None else lineage.since(at)
    tasks = _tasks_of(job, news)
    tasks = replace(tasks, is_whole=tasks.is_whole or is_whole)
    rows_max = ROWS_MAX if tasks.is_whole else STEP_ROWS
    steps = list((_all if is_all else _new)(news, lineage.head, rows_max))
    if again:
        steps = _resetting(steps, lineage.head, done.resets or 0, reset=reset)
    steps = _truncating(job, steps, 0 if again else done.truncated or 0)
    again_name = f"again/{uuid.uuid4()}"
    loads = LoadKeys.of(job, [one for step in steps for one in step.brought], is_whole=is_all)
    for number, step in enumerate(steps):
        # The same news has the same name, and is known if it comes twice.  A replay is to look at silver each time; and where the
        # position stays, parts may be cut otherwise the next time, or judged by other rules.
        named = again_name if again or step.to is None else "new"
        _apply(job, step, done, f"{named}/{lineage.head}/{number}", (tasks, loads))


def refine_since(job: TableJob, done: Refined, since_ms: int) -> None:
    """Apply what bronze's commits brought from a time on, by the clocks of their writers; silver's position stays.

    Raises:
        As :func:`refine`.
    """
    lineage = job.lineage
    lineage.look()
    done.position = job.silver.positions().get(lineage.position_name)
    named = f"again/{uuid.uuid4()}"
    news = lineage.from_time(since_ms)
    steps = list(_new(news, lineage.head, ROWS_MAX))
    loads = LoadKeys.of(job, [one for step in steps for one in step.brought], is_whole=False)
    tasks = replace(_tasks_of(job, news), is_whole=True)
    for number, step in enumerate(steps):
        _apply(job, replace(step, to=None), done, f"{named}/{number}", (tasks, loads))


def _tasks_of(job: TableJob, news: Sequence[sw.AddedRows]) -> SilverTasks:
    return tasks_of(job, job.places.elsewhere if _is_there(job, news) else None)


def _is_there(job: TableJob, brought: Sequence[sw.AddedRows]) -> bool:
    """Whether rows of bronze are for executors."""
    count = sum(one.row_count for one in brought)
    return job.places.work.rows.is_there(count, small=SMALL_ROWS, most=ROWS_MAX)


def _resetting(steps: Sequence[_CommitStep], head: int, resets: int, *, reset: bool) -> list[_CommitStep]:
    """Steps through all of bronze; between the first of several that rebuild silver and the last, :data:`RESET` is odd."""
    found = list(steps)
    if reset and not found:
        found = [_CommitStep((), head if head >= 0 else None)]
    if reset:
        found[0] = replace(
            found[0], reset=True, resets=resets + 1 if len(found) > 1 and not resets % 2 else None
        )
        resets = found[0].resets or resets
    if found and resets % 2:
        found[-1] = replace(found[-1], resets=resets + 1)
    return found


def _truncating(job: TableJob, steps: list[_CommitStep], known: int) -> list[_CommitStep]:
    """Steps of which the first begins the epochs after ``known`` that were declared to be empty: no row need tell that."""
    epochs = tuple(one for one in truncating(job.config.reload, job.config.epoch) if one > known)
    if not epochs:
        return steps
    first, *others = steps or [_CommitStep((), None)]
    return [replace(first, truncates=epochs), *others]


def _all(whole: Sequence[sw.AddedRows], head: int, rows_max: int) -> Iterator[_CommitStep]:
    """All rows of one state, in parts: the position comes with the last, for what comes twice does no harm."""
    parts = [part for one in whole for part in one.split(rows_max)]
    for number, part in enumerate(parts, 1):
        yield _CommitStep((part,), head if number == len(parts) else None)


def _new(commits: Sequence[sw.AddedRows], head: int, rows_max: int) -> Iterator[_CommitStep]:
    """Whole commits, in order, or the parts of one that has more rows: its position comes with the last, as in :func:`_all`.

    Commits behind the last that only rearrange rows are passed with it.
    """
    pending: list[sw.AddedRows] = []
    rows = 0
    for number, commit in enumerate(commits):
        *parts, last = commit.split(rows_max) or [commit]
        yield from (_CommitStep((part,), None) for part in parts)
        pending.append(last)
        rows += last.row_count
        is_last = number + 1 == len(commits)
        if is_last or rows + commits[number + 1].row_count > rows_max:
            yield _CommitStep(tuple(pending), head if is_last else commit.version)
            pending, rows = [], 0


def _apply(
    job: TableJob, step: _CommitStep, done: Refined, batch: str, readers: tuple[SilverTasks, LoadKeys]
) -> None:
    name, (tasks, loads) = job.lineage.position_name, readers
    moves: dict[str, tuple[int | None, int]] = {}
    stamp = done.stamp
    if step.to is not None:
        moves[name] = (done.position, step.to)
        stamp = job.lineage.stamp(step.to)
        if stamp is not None:
            moves[job.lineage.commit_name] = (done.stamp, stamp)
    if step.resets is not None:
        moves[RESET] = (done.resets, step.resets)
    truncated = max([done.truncated or 0, *step.truncates])
    if truncated > (done.truncated or 0):
        moves[TRUNCATED] = (done.truncated, truncated)
    if step.truncates:  # the same bronze may meet two declarations, one after the other
        batch = f"{batch}/epoch-{step.truncates[-1]}"
    key = short_key(f"medallion/{job.places.config.job}/{job.name}/{name}/{done.position}/{batch}")

    if type(tasks.engine) is not LocalEngine and not _is_there(job, step.brought):
        tasks = tasks.here()
    _take(job, step, done, (key, moves), (tasks, loads))
    if step.to is not None:
        done.position = step.to
        done.stamp = done.stamp if stamp is None else stamp
    if step.resets is not None:
        done.resets = step.resets
    done.truncated = truncated or done.truncated


def _take(
    job: TableJob,
    step: _CommitStep,
    done: Refined,
    named: tuple[str, Mapping[str, tuple[int | None, int]]],
    readers: tuple[SilverTasks, LoadKeys],
) -> None:
    """Let tasks read the rows of a step and judge them, and commit their changes.

    Raises:
        _TogetherError: one task is to have all rows; nothing was committed.
    """
    (key, moves), (tasks, loads) = named, readers
    refused, tries = frozenset[Record](), 1
    while True:
        begun = time.perf_counter()
        taken = tasks.read(job, step.brought, step.truncates, loads, refused)
        try:
            with job.lineage.refused():
                receipt = _applied(job, taken, key, moves or None, reset=step.reset)
            seconds, is_there = time.perf_counter() - begun, type(tasks.engine) is not LocalEngine
            job.places.work.rows.took(taken.count, seconds, is_there=is_there)
            before = done.rows
            _note(job, receipt, done, taken.read)
            done.by_executors += done.rows - before if is_there else 0
            _note_same_key(done, loads, taken.read.aside)
            return
        except ReadAgainError:
            continue
        except EngineError as error:
            if tries == TRIES:
                raise
            tries += 1
            log.warning("rows for silver of %s are read once more: %s", job.name, error)
        except InvalidInputError as error:
            if not taken.is_judged or refused or isinstance(error, RuleError):
                raise
            if not tasks.is_whole:
                raise _TogetherError(str(error)) from error
            refused = _refused(job, step, taken, done)
            if not refused:
                raise
            key = f"{key}/{len(refused)} aside"
        finally:
            done.quarantined += taken.quarantined


def _refused(job: TableJob, step: _CommitStep, taken: StepRead, done: Refined) -> frozenset[Record]:
    """The rows of a step that silver cannot take, which are put aside."""
    rows = taken.make.good(job.lineage.read(step.brought), RowsRead())
    bad = unfit(job, rows, put_aside_before(job), reset=step.reset, epochs=step.truncates)
    _, aside = taken_out(rows, bad)
    done.quarantined += put_aside(job, aside)
    return frozenset((file, tag, one.line) for (file, tag), records in aside.items() for one in records)


def _applied(
    job: TableJob,
    taken: StepRead,
    key: str,
    moves: Mapping[str, tuple[int | None, int]] | None,
    *,
    reset: bool,
) -> sw.Receipt:
    """Commit the changes of a step."""
    changes, rules = taken.changes(), job.config.quality.result

    def check(rows: pa.Table, counts: Mapping[str, int]) -> None:
        check_result(rows, counts, rules, job.name)

    return _commit(
        job,
        changes,
        taken.make.columns.names,
        key=key,
        moves=moves,
        reset=reset,
        check=None if rules == Result() else check,
        properties=taken.noted if isinstance(changes, pa.Table) else None,
    )


def _note_same_key(done: Refined, loads: LoadKeys, aside: Aside) -> None:
    """Count what was put aside because a later row of its load has its key, and what silver took of such before."""
    done.same_key += sum(one.reason == loads.reason for records in aside.values() for one in records)
    before, new = loads.earlier()
    done.same_key += before
    done.quarantined += new


def write(
    job: TableJob,
    changes: pa.Table,
    done: Refined,
    *,
    key: str,
    moves: Mapping[str, tuple[int | None, int]] | None,
    split: int = 0,
    reset: bool = False,
    is_needed: Callable[[Mapping[str, int]], bool] | None = None,
) -> bool:
    """Apply changes in one commit of silver that moves positions, and compare its counts with the changes.

    ``split`` of the changes are in no row of bronze.  ``reset``: all that silver has goes.  ``is_needed`` says by the counts
    whether there is to be a commit at all; the answer is whether there is.

    Raises:
        SafewriteError: as ``apply_changes``.
    """

    def check(rows: pa.Table, counts: Mapping[str, int]) -> None:
        if is_needed is not None and not is_needed(counts):
            raise _NeedlessError("Nothing would change. Nothing was written.")
        check_result(rows, counts, job.config.quality.result, job.name)

    taken = changes.num_rows - split
    noted = {"medallion.rows": str(taken), "medallion.split": str(split)}
    try:
        receipt = _commit(
            job,
            changes,
            changes.column_names,
            key=key,
            moves=moves,
            reset=reset,
            check=check,
            properties=noted,
        )
    except _NeedlessError:
        return False
    _note(job, receipt, done, RowsRead(rows=taken, split=split))
    return True


def _commit(
    job: TableJob,
    changes: Any,
    columns: Sequence[str],
    *,
    key: str,
    moves: Mapping[str, tuple[int | None, int]] | None,
    reset: bool,
    check: Callable[[pa.Table, Mapping[str, int]], None] | None = None,
    properties: Mapping[str, str] | None = None,
) -> sw.Receipt:
    """Apply changes that have some columns."""
    try:
        return job.silver.apply_changes(
            changes,
            keys=job.config.keys,
            sequence_by=job.sequence,
            delete_when=DELETE,
            truncate_when=TRUNCATE if TRUNCATE in columns else None,
            full_refresh=reset,
            unchanged=UNCHANGED if UNCHANGED in columns else None,
            all_late="count",
            check=check,
            key=key,
            properties=properties,
            positions=moves,
        )
    except InvalidInputError as error:
        if "full_refresh=" not in error.message and "sequence_by=" not in error.message:
            raise
        advised = InvalidInputError(
            f"{error.message} In this job keys and sequence are fields of the configuration, and "
            f"`{job.places.command('reset', job.name)}` rebuilds silver from bronze.",
            kind=error.kind,
            key=error.key,
        )
        advised.unordered = error.unordered
        raise advised from error


def _note(job: TableJob, receipt: sw.Receipt, done: Refined, read: RowsRead) -> None:
    """Note in ``done`` what a commit took, and compare its counts with the changes."""
    taken, split = read.rows, read.split
    counts = {what: count for what, count in (receipt.changes or {}).items() if what != "applied"}
    if sum(counts.values()) != taken + split:
        raise InternalError(
            f"Silver's commit {receipt.version} accounts for {counts} of {taken} rows and {split} changes of keys of "
            f"{job.name}. It is committed. Please report it, and run `{job.places.command('verify', job.name)}`."
        )
    done.commits += 1
    done.rows += taken + read.behind
    done.split += split
    if read.behind:
        counts["superseded"] = counts.get("superseded", 0) + read.behind
    for what, count in counts.items():
        done.changes[what] = done.changes.get(what, 0) + count
