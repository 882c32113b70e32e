"""Lands batches by tasks on executors: what the driver knows of tables goes there, what tasks say of them comes back.

A batch of which something is not as tasks knew it, or cannot be landed by them, is landed again: nothing of it was committed, or
what was is found by the tables' positions.  So is one whose changes are gone with an executor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import safewrite as sw
from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.envelopes.decoding import Decoded
from safewrite.cdc.ledger.ledger import LedgerEntry
from safewrite.cdc.records.batch import Batch
from safewrite.cdc.records.change_set import ChangeSet
from safewrite.cdc.routing.routing import Router
from safewrite.cdc.table.decode_task import DecodeReport, DecodeTask, union
from safewrite.cdc.table.shares import ShareTold, Sharing, TableView
from safewrite.cdc.table.table_batch import JobParts
from safewrite.cdc.table.task_shares import LandAgainError, TaskShare, view_of
from safewrite.changes.members.shared_jobs import DoubtedError, SharedJobs
from safewrite.engine.abc import Engine
from safewrite.intake.duck import duckdb_version

log = logging.getLogger("safewrite")

DECODED = 5000
"""A task decodes several partitions of Kafka where these have fewer records than this together."""
_PIECES_MAX = 4
"""They come in so many pieces at most, so that heavy records do not gather."""
TURNS = 4
"""A batch is landed at most this many times; the last time the driver lands all of it."""
BY_DRIVER = 20
"""A table that tasks cannot land is the driver's for one batch, and for twice as many each time that it is so again; at most for so many."""
PART_ROWS, TASK_ROWS = 25_000, 100_000
"""About this many changes of a table are dealt to one part, and of all tables to one task."""
BUCKETS = 128
AT_ONCE = 32
"""The driver works on at most this many tables at a time, or more (``parallel_tables``)."""
SMALL_ROWS = 500
"""Fewer changes than this are worth no task of their own."""

BY_DRIVER_TEXT = "batch %s: the driver has landed %s records of %s tables (%s), because %s"

Finish = Callable[[Decoded, "SharesOfBatch"], list[LedgerEntry]]


@dataclass(frozen=True)
class ExecutorWork:
    """Records that are with executors: what runs tasks on them, how many at once, and who remembers what these met.

    ``rows_a_batch``: at most this many records come to a task at a time.
    """

    engine: Engine[Any]
    source: Any
    prefixes: tuple[bytes, ...]
    starts: Mapping[tuple[str, int], int] | None
    at_once: int
    learn: Callable[[Sequence[DecodeReport]], None]
    rows_a_batch: int | None = None


@dataclass
class SharesOfBatch:
    """The changes of a batch that are with executors; ``doubts`` says why the driver lands the other tables."""

    landing: TaskLanding
    batch: Batch
    done: Mapping[str, int]
    share_reports: Mapping[str, ShareTold]
    jobs: SharedJobs[Any]
    sharing: Sharing | None
    doubts: Mapping[str, str]
    by_driver: dict[str, int] = field(default_factory=dict)
    """How many records of which table the driver lands."""

    def prepared(self, by_driver: Mapping[str, tuple[TargetTable, ChangeSet]]) -> list[TaskShare]:
        """The tables of these changes with the columns that they bring; so many at a time.

        Raises:
            LandAgainError: a table is not as tasks knew it, or the driver has to land its changes.
        """
        self.by_driver = {name: given.records for name, (_, given) in by_driver.items()}
        both = {name: self._why(name) for name in by_driver if name in self.share_reports}
        if both:
            raise LandAgainError(both)
        if not self.share_reports:
            return []
        again = LandAgainError()
        with ThreadPoolExecutor(self.landing.at_once, "safewrite-cdc") as pool:
            futures = [pool.submit(self._prepared, report) for report in self.share_reports.values()]
        shares = []
        for one in futures:
            try:
                shares.append(one.result())
            except LandAgainError as error:
                again.by_driver |= error.by_driver
                again.views |= error.views
        if again.by_driver or again.views:
            raise again
        if rest := [rows for share in shares for rows in share.rest]:
            try:
                self.jobs.add(rest)
            except sw.StorageError as error:
                raise LandAgainError from error
        return shares

    def _why(self, name: str) -> str:
        """Why the driver lands a table, or some of its changes."""
        if self.sharing is None:
            return "tasks did not come to an end with the batch"
        return self.doubts.get(name, "tombstones came without their deletes")

    def tell(self) -> None:
        """Say once a batch and table, by reason, why the driver has landed what it has."""
        reasons: dict[str, list[str]] = {}
        for name in self.by_driver:
            reasons.setdefault(self._why(name), []).append(name)
        for why, names in reasons.items():
            count = sum(self.by_driver[name] for name in names)
            log.info(BY_DRIVER_TEXT, self.batch.number, count, len(names), ", ".join(sorted(names)), why)

    def commit(
        self, shares: Sequence[TaskShare], apply: Callable[[TaskShare], None]
    ) -> dict[str, BaseException]:
        """See :meth:`TaskLanding.commit`."""
        if not shares:
            return {}
        of_batch = self.batch.number, sum(one.report.records for one in shares), len(shares)
        log.info("batch %s: executors land %s records of %s tables", *of_batch)
        errors = self.landing.commit(shares, self.jobs, apply)
        log.info("batch %s: executors have landed %s records of %s tables", *of_batch)
        return errors

    def _prepared(self, report: ShareTold) -> TaskShare:
        assert self.sharing is not None
        view = self.sharing.view_of(report.table)
        return TaskShare.prepared(self.landing.job, report, view, self.batch, done=self.done, jobs=self.jobs)


@dataclass
class _Held:
    """A table that tasks could not land: why, and for how many batches the driver lands it, of so many since."""

    why: str
    left: int = 1
    length: int = 1

    def again(self, why: str) -> _Held:
        """The table, which tasks could not land again."""
        length = min(BY_DRIVER, 2 * self.length)
        return _Held(why, length, length)


@dataclass
class TaskLanding:
    """Lands the batches of a job by tasks; ``views`` are the tables as they are by now."""

    job: JobParts
    router: Router
    landed: Callable[[Mapping[str, int]], list[TargetTable]]
    """The tables that the job has landed rows in, by the positions of its ledger."""
    views: dict[str, TableView] = field(default_factory=dict)
    by_driver: dict[str, _Held] = field(default_factory=dict)
    """Tables that tasks could not land."""

    def land(
        self, batch: Batch, done: Mapping[str, int], work: ExecutorWork, finish: Finish
    ) -> list[LedgerEntry]:
        """Land a batch: ``finish`` lands what came to the driver, and commits what is with executors.

        Raises:
            SafewriteError: as ``finish``; the schema registry is away, or Spark could not run the tasks.
        """
        for held in self.by_driver.values():
            held.left -= 1
        self._look(done)
        for turn in range(1, TURNS + 1):
            sharing = self._sharing(batch, work) if turn < TURNS else None
            try:
                return self._landed(batch, done, work, finish, sharing)
            except LandAgainError as again:
                log.info(
                    "batch %s of %s is landed again: %s",
                    batch.number,
                    self.job.config.job,
                    again.__cause__ or again,
                )
                self.views |= again.views
                for name, why in again.by_driver.items():
                    known = self.by_driver.get(name)
                    self.by_driver[name] = _Held(why) if known is None else known.again(why)
                if turn == TURNS:
                    raise again.__cause__ or again from None
        raise AssertionError("unreachable")

    def _landed(
        self,
        batch: Batch,
        done: Mapping[str, int],
        work: ExecutorWork,
        finish: Finish,
        sharing: Sharing | None,
    ) -> list[LedgerEntry]:
        decoder = self.job.decoder
        ended = self.job.ledger.ended(batch.ranges, done)
        task = DecodeTask(
            decoder.envelope,
            decoder.settings,
            work.prefixes,
            work.starts,
            ended,
            decoder.fewest,
            sharing,
        )
        with ExitStack() as stack:
            source = work.engine.gathered(work.source, _tasks(batch, work.rows_a_batch))
            try:
                mapped = stack.enter_context(work.engine.map(source, task, work.rows_a_batch))
            except sw.StorageError as error:
                raise LandAgainError from error
            reports: list[DecodeReport] = mapped.bodies()
            work.learn(reports)
            pieces: list[bytes] = []
            if any(one.by_columns or one.others for one in reports):
                try:
                    pieces = work.engine.taken(mapped.rows)
                except sw.StorageError as error:
                    raise LandAgainError from error
            decoded = union(pieces, reports, work.prefixes)
            share_reports = _by_table(reports)
            parts = _parts(sum(one.rows for one in share_reports.values()), work.at_once)
            jobs = SharedJobs(work.engine, mapped.rows, parts, work.at_once, self.at_once)
            stack.callback(jobs.close)
            doubts = {name: why for one in reports for name, why in one.doubts.items()}
            shares = SharesOfBatch(self, batch, done, share_reports, jobs, sharing, doubts)
            lines = finish(decoded, shares)
            shares.tell()
            return lines

    def commit(
        self, shares: Sequence[TaskShare], jobs: SharedJobs[Any], apply: Callable[[TaskShare], None]
    ) -> dict[str, BaseException]:
        """Commit shares by ``apply``, all at once; the errors of those that failed.

        Raises:
            LandAgainError: tasks cannot land them, or an executor is gone with their changes.
        """
        if not shares:
            return {}
        for share in shares:
            jobs.join(share.table.name, share.doubts)

        def working(share: TaskShare) -> None:
            with jobs.working(share.table.name):
                apply(share)

        with ThreadPoolExecutor(len(shares), "safewrite-cdc-tables") as pool:
            futures = {share.table.name: pool.submit(working, share) for share in shares}
            jobs.serve()
        errors = {name: error for name, one in futures.items() if (error := one.exception()) is not None}
        doubts = [error for error in errors.values() if isinstance(error, DoubtedError)]
        if doubts and len(doubts) == len(errors):
            raise LandAgainError({name: why for error in doubts for name, why in error.doubts.items()})
        if jobs.broken is not None and all(error is jobs.broken for error in errors.values()):
            raise LandAgainError from jobs.broken
        for share in shares:
            if share.table.name not in errors:
                self.by_driver.pop(share.table.name, None)
                self.views[share.table.name] = share.view_after(_buckets(share.report.rows))
            else:
                self.views.pop(share.table.name, None)
        return errors

    def forget(self, names: Iterable[str]) -> None:
        """Look at these tables again before the next batch: the driver landed them."""
        for name in names:
            self.views.pop(name, None)

    @property
    def at_once(self) -> int:
        """The driver works on so many tables at a time: it has no rows of them, and waits for the store."""
        return max(AT_ONCE, self.job.config.parallel_tables)

    # --- what tasks know ----------------------------------------------------------------------------
    def _look(self, done: Mapping[str, int]) -> None:
        """Look at the tables that are not known, so many at a time; each once in a process."""
        unknown = [
            table
            for table in self.landed(done)
            if table.name not in self.views and not self._is_held(table.name)
        ]
        if not unknown:
            return
        with ThreadPoolExecutor(self.at_once, "safewrite-cdc") as pool:
            self.views |= dict(pool.map(self._looked, unknown))

    def _is_held(self, name: str) -> bool:
        return name in self.by_driver and self.by_driver[name].left > 0

    def _looked(self, table: TargetTable) -> tuple[str, TableView]:
        try:
            found, positions = self.job.targets.position(table)
        except sw.SafewriteError:  # who lands in it says what it is
            return table.name, TableView()
        return table.name, view_of(self.job.config.job, found, positions, 1)

    def _sharing(self, batch: Batch, work: ExecutorWork) -> Sharing:
        config = self.job.config
        most = sum(given.end - given.start for given in batch.ranges.values())
        return Sharing(
            self.router,
            config.job,
            config.decimals,
            tuple(batch.ranges),
            dict(self.views),
            {name: held.why for name, held in self.by_driver.items() if held.left > 0},
            duckdb_version(),
            min(_buckets(most), 1 << (work.at_once - 1).bit_length()),
        )


def _by_table(reports: Sequence[DecodeReport]) -> dict[str, ShareTold]:
    """What all tasks say of each table.

    Raises:
        LandAgainError: what they say does not go together.
    """
    found: dict[str, ShareTold] = {}
    doubts: dict[str, str] = {}
    for name, report in ((name, report) for one in reports for name, report in one.shares.items()):
        known = found.get(name)
        if known is None:
            found[name] = report
        elif (why := known.doubt(report)) is not None:
            doubts[name] = why
        else:
            known.add(report)
    if doubts:
        raise LandAgainError(doubts)
    return found


def _buckets(rows: int) -> int:
    """To how many parts so many changes of a table are dealt: a power of two."""
    return min(BUCKETS, 1 << (-(-rows // PART_ROWS) - 1).bit_length()) if rows else 1


def _tasks(batch: Batch, rows_a_batch: int | None) -> int:
    """How many tasks decode a batch at most.

    What a task pays for each table that it meets is that of some dozens of records, which it reads as columns only where they are many.
    """
    records = sum(given.end - given.start for given in batch.ranges.values())
    most = DECODED if rows_a_batch is None else min(DECODED, rows_a_batch * _PIECES_MAX)
    return max(1, -(-records // most))


def _parts(rows: int, at_once: int) -> int:
    """How many tasks land so many changes."""
    return max(1, min(at_once, -(-rows // SMALL_ROWS)), -(-rows // TASK_ROWS))
