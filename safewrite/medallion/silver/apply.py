"""Applies what is new in bronze to silver, and moves bronze's position in the same commit."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import safewrite as sw
from safewrite.errors import InternalError, InvalidInputError, SafewriteError, TableNotFoundError
from safewrite.medallion.config.bronze_columns import UNCHANGED
from safewrite.medallion.config.commit_columns import with_commit_columns
from safewrite.medallion.config.full_load_epochs import check_said, truncating
from safewrite.medallion.files.records import BadRecord
from safewrite.medallion.files.unavailable_values import lacks_any
from safewrite.medallion.silver.changes import DELETE, TRUNCATE, changes_of, moved_keys, with_truncates
from safewrite.medallion.silver.quality import RuleError, check_result, faults
from safewrite.medallion.silver.unfit import Record, last_of_ties, unfit
from safewrite.medallion.tables.job import TableJob, quarantine_rows, short_key

log = logging.getLogger("safewrite")

ROWS_MAX = 1_000_000
"""So many rows of bronze, or those of one data file if it has more, go into one commit of silver."""
RESET = "reset"
"""The position of silver that is odd while it is rebuilt in several commits: whoever comes next applies all of bronze."""
TRUNCATED = "truncated"
"""The position of silver that names the last epoch whose ``reload: "truncate"`` it took."""


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
    if again or at is None:
        steps = list(_all(lineage.whole(), lineage.head))
        if again:
            steps = _resetting(steps, lineage.head, done.resets or 0, reset=reset)
    else:
        steps = list(_new(lineage.since(at), lineage.head))
    steps = _truncating(job, steps, 0 if again else done.truncated or 0)
    again_name = f"again/{uuid.uuid4()}"
    for number, step in enumerate(steps):
        # The same news has the same name, and is known if it comes twice.  A replay is to look at silver each time; and where the
        # position stays, parts may be cut otherwise the next time, or judged by other rules.
        named = again_name if again or step.to is None else "new"
        _apply(job, step, done, f"{named}/{lineage.head}/{number}")


def refine_since(job: TableJob, done: Refined, since_ms: int) -> None:
    """Apply what bronze's commits brought from a time on, by the clocks of their writers; silver's position stays.

    Raises:
        As :func:`refine`.
    """
    lineage = job.lineage
    lineage.look()
    done.position = job.silver.positions().get(lineage.position_name)
    named = f"again/{uuid.uuid4()}"
    for number, step in enumerate(_new(lineage.from_time(since_ms), lineage.head)):
        _apply(job, replace(step, to=None), done, f"{named}/{number}")


def is_under_way(positions: Mapping[str, int]) -> bool:
    """Whether silver is being rebuilt, or that broke off."""
    return positions.get(RESET, 0) % 2 == 1


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


def _all(whole: Sequence[sw.AddedRows], head: int) -> Iterator[_CommitStep]:
    """All rows of one state, in parts: the position comes with the last, for what comes twice does no harm."""
    parts = [part for one in whole for part in one.split(ROWS_MAX)]
    for number, part in enumerate(parts, 1):
        yield _CommitStep((part,), head if number == len(parts) else None)


def _new(commits: Sequence[sw.AddedRows], head: int) -> Iterator[_CommitStep]:
    """Whole commits, in order, or the parts of one that has more rows: its position comes with the last, as in :func:`_all`.

    Commits behind the last that only rearrange rows are passed with it.
    """
    pending: list[sw.AddedRows] = []
    rows = 0
    for number, commit in enumerate(commits):
        *parts, last = commit.split(ROWS_MAX) or [commit]
        yield from (_CommitStep((part,), None) for part in parts)
        pending.append(last)
        rows += last.row_count
        is_last = number + 1 == len(commits)
        if is_last or rows + commits[number + 1].row_count > ROWS_MAX:
            yield _CommitStep(tuple(pending), head if is_last else commit.version)
            pending, rows = [], 0


def _apply(job: TableJob, step: _CommitStep, done: Refined, batch: str) -> None:
    name = job.lineage.position_name
    rows = job.lineage.read(step.brought)
    rows = _put_aside(job, rows, done)
    check_loads(job, rows)
    _tell_untold_keys(job, rows)
    good = last_of_ties(rows, job.config)
    behind = rows.num_rows - good.num_rows
    done.rows += behind
    done.changes["superseded"] = done.changes.get("superseded", 0) + behind
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

    def take(rows: pa.Table, key: str) -> None:
        rows = with_commit_columns(rows, job.config.commit_fields)
        changes, split = changes_of(rows, job.config.keys, job.silver_schema.names)
        changes, truncates = with_truncates(changes, step.truncates)
        write(job, changes, done, key=key, moves=moves or None, split=split + truncates, reset=step.reset)

    try:
        take(good, key)
    except RuleError:
        raise
    except InvalidInputError:
        bad = unfit(job, good, put_aside_before(job))
        if not bad:
            raise
        take(_quarantined(job, good, bad, done), f"{key}/{len(bad)} aside")
    if step.to is not None:
        done.position = step.to
        done.stamp = done.stamp if stamp is None else stamp
    if step.resets is not None:
        done.resets = step.resets
    done.truncated = truncated or done.truncated


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
    try:
        receipt = job.silver.apply_changes(
            changes,
            keys=job.config.keys,
            sequence_by=job.sequence,
            delete_when=DELETE,
            truncate_when=TRUNCATE if TRUNCATE in changes.column_names else None,
            full_refresh=reset,
            unchanged=UNCHANGED if UNCHANGED in changes.column_names else None,
            all_late="count",
            check=check,
            key=key,
            properties={"medallion.rows": str(taken), "medallion.split": str(split)},
            positions=moves,
        )
    except _NeedlessError:
        return False
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
    counts = {what: count for what, count in (receipt.changes or {}).items() if what != "applied"}
    if sum(counts.values()) != changes.num_rows:
        raise InternalError(
            f"Silver's commit {receipt.version} accounts for {counts} of {taken} rows and {split} changes of keys of "
            f"{job.name}. It is committed. Please report it, and run `{job.places.command('verify', job.name)}`."
        )
    done.commits += 1
    done.rows += taken
    done.split += split
    for what, count in counts.items():
        done.changes[what] = done.changes.get(what, 0) + count
    return True


def _put_aside(job: TableJob, rows: pa.Table, done: Refined) -> pa.Table:
    """Commit bad rows to quarantine; the others go on."""
    bad = faults(rows, job.config.quality, job.name, unfit=_moved_without_value(job, rows))
    return _quarantined(job, rows, bad, done) if bad else rows


def _tell_untold_keys(job: TableJob, rows: pa.Table) -> None:
    """Log how many updates do not say which key their row had: one that changed it leaves the old row, and nothing shows it."""
    count = pc.sum(pc.equal(rows["_op"], "U")).as_py() if not job.config.files.before_image else 0
    if count:
        log.info(
            "medallion: %s: %d updates lack the key that their row had; where one changed it, the old row stays "
            "(files.before_image)",
            job.name,
            count,
        )


def _moved_without_value(job: TableJob, rows: pa.Table) -> dict[str, npt.NDArray[np.bool_]]:
    """Updates that change a key, and of which the log lacks values: those of the new row are nowhere."""
    lacking = lacks_any(rows)
    if not lacking.any():
        return {}
    return {
        "its key changed, and the log lacks the values of other columns": lacking
        & moved_keys(rows, job.config.keys)[0]
    }


def put_aside_before(job: TableJob) -> set[Record]:
    """The records of a table that silver was not given, by quarantine.  Raises SafewriteError."""
    try:
        rows = job.places.records_aside(job.name, "silver").to_pylist()
    except TableNotFoundError:
        return set()
    return {(row["file"], row["tag"], row["line"]) for row in rows}


def _quarantined(job: TableJob, rows: pa.Table, bad: Mapping[int, str], done: Refined) -> pa.Table:
    where: dict[tuple[str, str], list[BadRecord]] = {}
    for row, reason in bad.items():
        one = {name: rows[name][row].as_py() for name in rows.column_names}
        text = ", ".join(f"{name}={value!r}" for name, value in one.items() if not name.startswith("_"))
        where.setdefault((one["_file"], one["_tag"]), []).append(BadRecord(one["_line"], reason, text))
    batches = [
        (
            f"{file}#{tag}",
            quarantine_rows(job.name, "silver", file, tag, sorted(records, key=lambda one: one.line)),
        )
        for (file, tag), records in where.items()
    ]
    done.quarantined += job.places.put_aside(job.name, "silver", batches)
    good = np.ones(rows.num_rows, np.bool_)
    good[list(bad)] = False
    return rows.filter(pa.array(good))


def check_loads(job: TableJob, rows: pa.Table) -> list[int]:
    """The epochs of whose full loads there are rows.  Raises InvalidInputError where nothing is said of one."""
    loaded: list[int] = pc.unique(rows["_epoch"].filter(pc.equal(rows["_op"], "L"))).to_pylist()
    check_said(job.config.reload, job.config.epoch, loaded, job.name)
    return loaded


def truncated_epoch(job: TableJob) -> int:
    """The last epoch that silver began empty, if there is a silver; 1 without."""
    try:
        silver = job.places.open(job.config.silver, job.config.format, None)
        return silver.positions().get(TRUNCATED, 1)
    except SafewriteError:  # silver reports what is wrong with it where it is needed
        return 1


def is_truncated(job: TableJob, noted: object) -> bool:
    """Whether silver took all that was declared to begin empty, as was noted of it."""
    declared = truncating(job.config.reload, job.config.epoch)
    return not declared or (isinstance(noted, int) and noted >= declared[-1])
