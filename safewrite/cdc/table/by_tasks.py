"""Lands batches by tasks: what is known of tables goes there, what tasks say of them comes back.

A table's changes are applied in parts.  Where something takes all of them together, they are read again whole, and land in one part.
A batch is landed again if an executor is gone, or if a table is not as tasks knew it: what it committed is found by the tables'
positions.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import safewrite as sw
from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.envelopes.decoding import Decoded
from safewrite.cdc.ledger.ledger import LedgerEntry
from safewrite.cdc.records.batch import Batch
from safewrite.cdc.records.change_set import ChangeSet
from safewrite.cdc.records.records import KafkaRecords
from safewrite.cdc.routing.routing import Router
from safewrite.cdc.table.decode_task import DecodeReport, DecodeTask, union
from safewrite.cdc.table.shares import ShareReport, Sharing, StaleViewError, TableView
from safewrite.cdc.table.table_share import JobParts
from safewrite.cdc.table.task_shares import TaskShare, view_of
from safewrite.changes.members.shared_jobs import SharedJobs
from safewrite.changes.members.table_chunks import UnfitError
from safewrite.engine.abc import Engine, EngineError, Mapped
from safewrite.engine.local import LocalEngine
from safewrite.intake.duck import duckdb_version

log = logging.getLogger("safewrite")

DECODED, TASKS_EACH = 5000, 2
"""A task decodes several partitions of Kafka: so many records, or more where a core of the executors has so many tasks already."""
_PIECES_MAX = 6
"""They come in so many pieces at most, so that heavy records do not gather: in as many bytes as a task may have of one partition."""
TURNS = 4
"""A batch is landed at most this many times; the last time all of it comes whole."""
PART_ROWS, TASK_ROWS = 25_000, 100_000
"""About this many changes of a table are dealt to one part, and of all tables to one task."""
BUCKETS = 128
AT_ONCE = 32
"""The driver works on at most this many tables at a time whose rows are with executors, or more (``parallel_tables``)."""
_THREADS_MAX = 1_000_000
"""More tables than a batch has: each that has changes waits for the others."""
SMALL_ROWS = 500
"""Fewer changes than this are worth no task of their own."""

ONE_PART = "batch %s: %s records of %s tables (%s) landed in one part, because %s"

Routed = dict[str, tuple[TargetTable, ChangeSet]]

Finish = Callable[[Decoded, "SharesOfBatch"], list[LedgerEntry]]


@dataclass(frozen=True)
class ExecutorWork:
    """The records of a batch where they are: what runs tasks on them, how many at once, and who remembers what these met.

    ``rows_a_batch``: at most this many records come to a task at a time.  ``is_here``: they are in this process.
    """

    engine: Engine[Any]
    source: Any
    prefixes: tuple[bytes, ...]
    starts: Mapping[tuple[str, int], int] | None
    at_once: int
    learn: Callable[[Sequence[DecodeReport]], None]
    rows_a_batch: int | None = None
    is_here: bool = False
    most: int | None = None
    """At most so many bytes of records come to the driver; None: they are as little as they can be."""

    @classmethod
    def here(cls, records: KafkaRecords) -> ExecutorWork:
        """Records that are in this process: one part, for threads share its processors anyway."""
        return cls(LocalEngine(), [records], records.prefixes, None, 1, lambda reports: None, is_here=True)

    def check(self, records: int, weight: float) -> None:
        """Refuse to take so many records of this weight into the driver.

        Raises:
            TooMuchHereError: they are too many.
        """
        if self.most is not None and records * weight > self.most:
            raise TooMuchHereError(
                f"some {records * weight:,.0f} bytes of {records:,} records would come to the driver, which takes {self.most:,} at once"
            )


class TooMuchHereError(Exception):
    """A batch has to be landed in smaller parts: more of it than the driver can take would come to it; what it committed is found there."""


@dataclass
class SharesOfBatch:
    """The changes of a batch that are in parts; ``doubts`` says why others are whole."""

    landing: TaskLanding
    work: ExecutorWork
    batch: Batch
    done: Mapping[str, int]
    share_reports: Mapping[str, ShareReport]
    records: Mapping[str, int]
    """How many records of each table are in parts."""
    jobs: SharedJobs[Any]
    sharing: Sharing | None
    doubts: dict[str, str]
    decode: Callable[[frozenset[str]], Decoded]
    """Decodes what some tables get, which comes whole."""
    looks_again: bool = False
    """Whether tables that are not as tasks knew them are looked at, and the batch is landed again."""

    def prepared(self, routed: Routed) -> list[TaskShare]:
        """The tables of these changes with the columns that they bring; so many at a time.

        What is not to be applied in parts is added to the changes that came whole, ``routed``.

        Raises:
            EngineError: an executor is gone.
            StaleViewError: tasks have to read the records again, for tables are known by now.
        """
        doubts = {
            name: self._why(name) for name in self.records if name in routed or name not in self.share_reports
        }
        reports = [one for name, one in self.share_reports.items() if name not in doubts]
        shares = []
        if reports:
            with ThreadPoolExecutor(self.landing.at_once(self.work), "safewrite-cdc") as pool:
                futures = [pool.submit(self._prepared, report) for report in reports]
            for report, one in zip(reports, futures, strict=True):
                try:
                    share = one.result()
                    share.entry.by_executors = 0 if self.work.is_here else report.records
                    shares.append(share)
                except UnfitError as error:
                    if self.looks_again and isinstance(error, StaleViewError):
                        self.landing.look(self.work, [report.table for report in reports])
                        raise StaleViewError(f"{report.table.name}: {error}") from error
                    doubts[report.table.name] = str(error)
        if doubts:
            self.take(doubts, routed)
        if rest := [rows for share in shares for rows in share.rest]:
            self.jobs.add(rest)
        return shares

    def take(self, doubts: Mapping[str, str], routed: Routed) -> None:
        """Take the changes of tables as they are here, or read their records again, and add them to those that came whole.

        Raises:
            StorageError: the records did not come again.
            EngineError: an executor is gone.
        """
        self.doubts |= doubts
        reports = {name: self.share_reports.get(name) for name in doubts}
        found = {name: (one.table, one.given) for name, one in reports.items() if one and one.given}
        if again := frozenset(doubts) - {*found}:
            found |= self.landing.router.route(self.decode(again)).tables
        for name in doubts:
            alone = [one for one in routed[name][1].rows if one.is_tombstone] if name in routed else []
            told = self.records[name] + (routed[name][1].records - len(alone) if name in routed else 0)
            given = found[name][1] if name in found else ChangeSet()
            if given.records != told:
                raise sw.StorageError(
                    f"The batch {self.batch.number} has {told} records of {name}, and {given.records} came when they were read again. Nothing "
                    "of them was committed. Start the job again; it goes on from its tables."
                )
            given.rows += alone
            routed[name] = found[name][0], given

    def _why(self, name: str) -> str:
        """Why the changes of a table are in one part."""
        if self.sharing is None:
            return "executors went with rows of the batch"
        return self.doubts.get(name, "tombstones came without their deletes")

    def tell(self, routed: Mapping[str, int]) -> None:
        """Say once a batch, by reason, which tables landed in one part, for so many records."""
        level, reasons = logging.DEBUG if self.work.is_here else logging.INFO, dict[str, list[str]]()
        for name in routed:
            reasons.setdefault(self._why(name), []).append(name)
        for why, names in reasons.items():
            count = sum(routed[name] for name in names)
            log.log(level, ONE_PART, self.batch.number, count, len(names), ", ".join(sorted(names)), why)

    def commit(
        self,
        shares: Sequence[TaskShare],
        apply: Callable[[TaskShare], None],
        take: Callable[[Mapping[str, str]], None],
    ) -> dict[str, BaseException]:
        """See :meth:`TaskLanding.commit`."""
        shares = [one for one in shares if one.report.rows and not one.is_landed]
        if not shares:
            return {}
        of_batch = self.batch.number, sum(one.report.records for one in shares), len(shares)
        level = logging.DEBUG if self.work.is_here else logging.INFO
        log.log(level, "batch %s: executors land %s records of %s tables", *of_batch)
        errors = self.landing.commit(shares, self.jobs, apply, take)
        log.log(level, "batch %s: executors have landed %s records of %s tables", *of_batch)
        return errors

    def _prepared(self, report: ShareReport) -> TaskShare:
        assert self.sharing is not None
        view = self.sharing.view_of(report.table)
        return TaskShare.prepared(self.landing.job, report, view, self.batch, done=self.done, jobs=self.jobs)


@dataclass
class TaskLanding:
    """Lands the batches of a job by tasks; ``views`` are the tables as they are by now."""

    job: JobParts
    router: Router
    landed: Callable[[Mapping[str, int]], list[TargetTable]]
    """The tables that the job has landed rows in, by the positions of its ledger."""
    views: dict[str, TableView] = field(default_factory=dict)
    unreached: dict[str, str] = field(default_factory=dict)
    """Tables whose files tasks cannot reach, and why."""

    def land(
        self, batch: Batch, done: Mapping[str, int], work: ExecutorWork, finish: Finish
    ) -> list[LedgerEntry]:
        """Land a batch: ``finish`` lands what came whole, and commits what is in parts.

        Raises:
            SafewriteError: as ``finish``; the schema registry is away, or Spark could not run the tasks.
        """
        for turn in range(1, TURNS + 1):
            if not batch.replay:
                self._look(done, work)
            sharing = self._sharing(batch, work) if turn < TURNS else None
            try:
                return self._landed(batch, done, work, finish, sharing, looks_again=turn < TURNS - 1)
            except (EngineError, StaleViewError) as error:
                if turn == TURNS:
                    raise
                log.info("batch %s of %s is landed again: %s", batch.number, self.job.config.job, error)
        raise AssertionError("unreachable")

    def _landed(
        self,
        batch: Batch,
        done: Mapping[str, int],
        work: ExecutorWork,
        finish: Finish,
        sharing: Sharing | None,
        *,
        looks_again: bool,
    ) -> list[LedgerEntry]:
        decoder = self.job.decoder
        ended = {} if batch.replay else self.job.ledger.ended(batch.ranges, done)
        task = DecodeTask(
            decoder,
            work.prefixes,
            work.starts,
            ended,
            sharing,
        )
        source = work.engine.gathered(work.source, _tasks(batch, work))

        def decode(names: frozenset[str]) -> Decoded:
            with ExitStack() as stack:
                return _decoded(stack, work, source, replace(task, only=names), weight)[0]

        with ExitStack() as stack:
            decoded, reports, mapped = _decoded(stack, work, source, task)
            work.learn(reports)
            weight = _weight(reports)
            share_reports, records, doubts = _by_table(reports)
            parts = _parts(sum(one.rows for one in share_reports.values()), work.at_once)
            at_once = self.at_once(work)
            jobs = SharedJobs(work.engine, mapped.rows, parts, work.at_once, at_once)
            stack.callback(jobs.close)
            doubts |= {name: why for one in reports for name, why in one.doubts.items()}
            return finish(
                decoded,
                SharesOfBatch(
                    self, work, batch, done, share_reports, records, jobs, sharing, doubts, decode,
                    looks_again and not work.is_here,
                ),
            )  # fmt: skip

    def commit(
        self,
        shares: Sequence[TaskShare],
        jobs: SharedJobs[Any],
        apply: Callable[[TaskShare], None],
        take: Callable[[Mapping[str, str]], None],
    ) -> dict[str, BaseException]:
        """Commit shares by ``apply``, all at once; the errors of those that failed.

        ``take`` prepares tables that are not to be applied in parts, and why, before the others go on where that is known by then.

        Raises:
            EngineError: an executor is gone with their changes.
        """
        taken: dict[str, str] = {}
        failed: list[Exception] = []

        def taking(doubts: Mapping[str, str]) -> None:
            taken.update(doubts)
            try:
                take(doubts)
            except Exception as error:
                failed.append(error)
                raise

        for share in shares:
            jobs.join(share.table.name, share.doubts)

        def working(share: TaskShare) -> None:
            with jobs.working(share.table.name):
                apply(share)

        threads = _threads_of(os.getpid())
        futures = {share.table.name: threads.submit(working, share) for share in shares}
        try:
            jobs.serve(taking)
        finally:
            wait(futures.values())
        errors = {name: error for name, one in futures.items() if (error := one.exception()) is not None}
        unfit = {name: str(error) for name, error in errors.items() if isinstance(error, UnfitError)}
        errors = {name: error for name, error in errors.items() if name not in unfit}
        if failed or (errors and all(error is jobs.broken for error in errors.values())):
            self.views |= {share.table.name: share.view_after(share.parts) for share in shares}
            if failed:
                raise failed[0]
            assert jobs.broken is not None
            raise jobs.broken
        for share in shares:
            if share.table.name not in errors and share.table.name not in unfit:
                self.views[share.table.name] = share.view_after(_buckets(share.report.rows))
            else:
                self.views.pop(share.table.name, None)
        if unreached := {name: why for name, why in unfit.items() if name not in taken}:
            self.unreached |= unreached
            take(unreached)
        # What landing again does not help against comes first.
        return dict(sorted(errors.items(), key=lambda one: one[1] is jobs.broken))

    def forget(self, names: Iterable[str]) -> None:
        """Look at these tables again before the next batch: they landed in one part."""
        for name in names:
            self.views.pop(name, None)

    def at_once(self, work: ExecutorWork) -> int:
        """The driver works on so many tables at a time: on more where it has no rows of them, and waits for the store."""
        most = self.job.config.parallel_tables
        return most if work.is_here else max(AT_ONCE, most)

    # --- what tasks know ----------------------------------------------------------------------------
    def _look(self, done: Mapping[str, int], work: ExecutorWork) -> None:
        """Look at the tables that are not known, so many at a time; each once in a process."""
        unknown = [
            table
            for table in self.landed(done)
            if table.name not in self.views and table.name not in self.unreached
        ]
        if unknown:
            self.look(work, unknown)

    def look(self, work: ExecutorWork, tables: Iterable[TargetTable]) -> None:
        """Look at tables, so many at a time: tasks know them from the next time on that they read records."""
        with ThreadPoolExecutor(self.at_once(work), "safewrite-cdc") as pool:
            self.views |= dict(pool.map(self._looked, tables))

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
            dict(batch.ranges),
            dict(self.views),
            dict(self.unreached),
            duckdb_version(),
            min(_buckets(most), 1 << (work.at_once - 1).bit_length()),
            is_alone=work.is_here,
            look=self._view if batch.replay else None,
        )

    def _view(self, table: TargetTable) -> TableView:
        if table.name not in self.views:
            self.views |= [self._looked(table)]
        return self.views[table.name]


@lru_cache(maxsize=1)
def _threads_of(process: int) -> ThreadPoolExecutor:
    """A thread for each table that has changes; they stay, for each new one would be a connection to Spark's Java.

    A forked child makes its own, for threads do not survive.
    """
    return ThreadPoolExecutor(_THREADS_MAX, "safewrite-cdc-tables")


def _decoded(
    stack: ExitStack, work: ExecutorWork, source: Any, task: DecodeTask, weight: float = 0.0
) -> tuple[Decoded, list[DecodeReport], Mapped[Any]]:
    """What came whole of a source, and what tasks report; the rest stays where it is as long as the stack does.

    Raises:
        EngineError: an executor is gone.
        TooMuchHereError: more would come whole than the driver takes at once.
    """
    mapped = stack.enter_context(work.engine.map(source, task))
    reports: list[DecodeReport] = mapped.bodies()
    whole = sum(one.by_columns + one.others + one.letters for one in reports)
    if whole:
        work.check(whole, weight or _weight(reports))
    pieces = work.engine.taken(mapped.rows) if whole else []
    return union(pieces, reports, work.prefixes), reports, mapped


def _weight(reports: Sequence[DecodeReport]) -> float:
    """Bytes of a record."""
    return sum(one.size for one in reports) / max(1, sum(one.records for one in reports))


def _by_table(
    reports: Sequence[DecodeReport],
) -> tuple[dict[str, ShareReport], dict[str, int], dict[str, str]]:
    """What all tasks say of each table, how many records it has, and why some are not to be applied in parts."""
    found: dict[str, ShareReport] = {}
    records: Counter[str] = Counter()
    doubts: dict[str, str] = {}
    for name, report in ((name, report) for one in reports for name, report in one.shares.items()):
        records[name] += report.records
        known = found.get(name)
        if known is None:
            found[name] = report
        elif (why := known.doubt(report)) is not None:
            doubts[name] = why
        else:
            known.add(report)
    return {name: one for name, one in found.items() if name not in doubts}, dict(records), doubts


def _buckets(rows: int) -> int:
    """To how many parts so many changes of a table are dealt: a power of two."""
    return min(BUCKETS, 1 << (-(-rows // PART_ROWS) - 1).bit_length()) if rows else 1


def _tasks(batch: Batch, work: ExecutorWork) -> int:
    """How many tasks decode a batch at most.

    What a task pays for each table that it meets is that of hundreds of records: 5 ms, and 10 µs for a record.
    """
    records = sum(given.end - given.start for given in batch.ranges.values())
    heavy = 1 if work.rows_a_batch is None else -(-records // (work.rows_a_batch * _PIECES_MAX))
    return max(1, heavy, min(work.at_once * TASKS_EACH, -(-records // DECODED)))


def _parts(rows: int, at_once: int) -> int:
    """How many tasks land so many changes."""
    return max(1, min(at_once, -(-rows // SMALL_ROWS)), -(-rows // TASK_ROWS))
