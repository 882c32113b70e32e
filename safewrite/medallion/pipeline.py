"""Runs a medallion job: raw files to bronze, bronze to silver, for many tables at once."""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from safewrite import Table
from safewrite.errors import (
    ConflictError,
    InvalidInputError,
    SafewriteError,
    TableNotFoundError,
    without_secrets,
)
from safewrite.intake.reporting import OnEvent
from safewrite.intake.settings import path_of
from safewrite.intake.upkeep import TablesMaintained, Upkeep, maintain_all
from safewrite.medallion.bronze.known_files import catch_up, known_state
from safewrite.medallion.bronze.landing import LandedFiles, is_news, land, land_lost
from safewrite.medallion.bronze.source_truncates import note_truncate, warning_of
from safewrite.medallion.bronze.state import BronzeState, KnownFile, read_state, write_state
from safewrite.medallion.config.arguments import milliseconds, texts
from safewrite.medallion.config.bronze_columns import FILE
from safewrite.medallion.config.checking import check_config
from safewrite.medallion.config.full_load_epochs import truncating
from safewrite.medallion.config.job import Config, load
from safewrite.medallion.config.stored_names import stored
from safewrite.medallion.files.layout import SortedFiles, SourceFile, odd, sort_out, tables_of
from safewrite.medallion.files.mixed import MixedFiles
from safewrite.medallion.files.records import BadRecord
from safewrite.medallion.lineage.lineage import BronzeGapError
from safewrite.medallion.report.history import note_run
from safewrite.medallion.report.metrics import note_lag, tell
from safewrite.medallion.report.run import Run, TableRun
from safewrite.medallion.silver.apply import Refined, refine, refine_since
from safewrite.medallion.silver.load_keys import warning_of_keys
from safewrite.medallion.silver.positions import TRUNCATED, is_truncated, is_under_way, truncated_epoch
from safewrite.medallion.silver.watermark import sync
from safewrite.medallion.tables.engine import engine_of
from safewrite.medallion.tables.job import JobPlaces, TableJob, quarantine_rows
from safewrite.progress import watched
from safewrite.upkeep.workplace import Workplace

log = logging.getLogger("safewrite")
_TRIES = 3
"""Silver is tried at most this many times where another run moves its position."""


@dataclass(frozen=True, slots=True)
class _Task:
    """What a run is to do to silver besides what is new."""

    again: bool = False
    reset: bool = False
    since_ms: int | None = None
    is_truncate: bool = False
    after: str | None = None


@dataclass(frozen=True, slots=True)
class _UnknownFile:
    """A file with records of no configured table."""

    path: str
    tag: str
    mark: str
    bad: list[BadRecord]
    advice: str = "Configure the table, name it in ignored_tables"


class Pipeline:
    """A medallion job.  ``Pipeline("job.json").run()`` may be called again and again, and by many processes at once.

    Args:
        config: a path of a JSON file, what such a file holds, or a :class:`Config`.
        engine: where tasks read and write. ``local``: in this process; ``spark``: on the executors of its Spark session, each of
            which needs Python with safewrite; ``auto``: there, where this process has such a session and its executors are
            processes of their own, and here what takes less here.
        on_event: is called with an event ``table_run`` for each table of a run, and with those of ``safewrite.open`` for the
            writes to its tables; ``safewrite.metrics`` makes metrics of them.

    Raises:
        InvalidInputError: the configuration cannot be used; every wrong field is named.
        MissingExtraError: Spark is not installed.
    """

    @without_secrets
    def __init__(
        self,
        config: str | Path | Mapping[str, Any] | Config,
        *,
        engine: Literal["auto", "local", "spark"] = "auto",
        on_event: OnEvent | None = None,
    ) -> None:
        self.config = config if isinstance(config, Config) else load(config)
        self.places = JobPlaces(self.config, path=path_of(config), on_event=on_event, work=engine_of(engine))
        place = Workplace.of(self.places.work.executors)
        self.upkeep = Upkeep(self.config.maintain, self.places.on_event, place=place)

    def check(self) -> None:
        """Look for what every run would refuse, and ask no store and no catalog.

        Raises:
            InvalidInputError: every field that is wrong is named.
        """
        check_config(self.config)

    @without_secrets
    def run(self, tables: Iterable[str] | None = None, *, hints: Iterable[str] | None = None) -> Run:
        """Land new files in bronze and bring silver to bronze's head; one table's failure does not stop others.

        Args:
            tables: names of tables; None for all.
            hints: addresses of new files, such as ``safewrite.aws_lambda.objects_of`` finds them in S3's events: only tables that
                they belong to are looked at.  What there is to do is found by listing nevertheless; events may be lost, come
                twice, or out of order, so run without hints now and then.

        Raises:
            InvalidInputError: a name is not configured.
            StorageError: the raw files cannot be listed.
        """
        if hints is not None:
            hints = texts("hints", hints)
            tables = self._hinted(tables, hints)
            if tables == []:
                return Run(self.config.job, [], 0.0, 0)
        return self._each(tables, _Task())

    def _hinted(self, tables: Iterable[str] | None, hints: Iterable[str]) -> list[str] | None:
        """Tables of new files, among those that are asked for; None where any table may be meant."""
        wanted = None if tables is None else self.named(tables)
        found = tables_of(hints, self.config)
        if found is None:
            return wanted
        return [name for name in wanted or self.config.tables if name in found]

    @without_secrets
    def replay(self, tables: Iterable[str], *, since: dt.datetime | str | None = None) -> Run:
        """Apply what bronze holds to silver again, from whatever position; what silver knows already does no harm.

        Args:
            tables: names of tables.
            since: only what bronze's commits brought from this time on, by the clocks of their writers; UTC where it names no
                zone.  Then no files are landed again.  None: all that bronze holds.

        Raises:
            InvalidInputError: a name is not configured, or ``since`` is not a time.
        """
        tables = texts("tables", tables)
        if since is None:
            return self._each(tables, _Task(again=True))
        return self._each(tables, _Task(since_ms=milliseconds(since)))

    @without_secrets
    def reset(self, tables: Iterable[str]) -> Run:
        """Rebuild silver of the tables from bronze: its rows, and what it remembers of deleted keys, go first.

        A table of up to a million rows of bronze is rebuilt in one commit, and readers see it before or after.  A larger one
        takes several commits; if they break off, the next run does the rest.  Safe while the job runs.

        Raises:
            InvalidInputError: a name is not configured.
        """
        return self._each(texts("tables", tables), _Task(again=True, reset=True))

    def truncate(self, tables: Iterable[str], *, after: str | None = None) -> Run:
        """Follow a TRUNCATE at the source, at which DMS removes the table's files: all rows go that came before it.

        Args:
            tables: names of tables.
            after: the last change file from before the TRUNCATE.  None: the last of the files that are gone; all others then are
                from after it.

        Raises:
            InvalidInputError: a name is not configured, or follows a bronze of others.
        """
        if after is not None and not isinstance(after, str):
            raise InvalidInputError(
                f"after= is the path of a change file, not {after!r}. Nothing was written."
            )
        names = self.named(texts("tables", tables))
        foreign = [name for name in names if self.config.tables[name].sync is not None]
        if foreign:
            raise InvalidInputError(
                f"{foreign} follow a bronze that others write, and have no files that DMS removes. Nothing was written. Empty that bronze, "
                "and reset the table."
            )
        return self._each(names, _Task(is_truncate=True, after=after))

    @without_secrets
    def maintain(
        self,
        *,
        dry_run: bool = False,
        budget_s: float | None = None,
        budget_bytes: int | None = None,
        remove_unused: bool = False,
    ) -> TablesMaintained:
        """Put small data files of all tables of the job together, one table after another; see ``Table.maintain``.

        The budget is that of all tables.  It may run beside the job.

        Raises:
            InvalidInputError: an argument that ``Table.maintain`` refuses.
        """
        return maintain_all(
            self._stored(),
            dry_run=dry_run,
            budget_s=budget_s,
            budget_bytes=budget_bytes,
            remove_unused=remove_unused,
            place=self.upkeep.place,
        )

    def _stored(self) -> Iterator[tuple[str, Callable[[], Table | None]]]:
        """The tables that the job writes to, by their addresses."""
        for one in self.config.tables.values():
            addresses = [one.silver] if one.sync is not None else [one.bronze, one.silver]
            yield from ((address, partial(self._there, address, one.format)) for address in addresses)
        aside = self.config.quarantine
        yield aside, partial(self._there, aside, self.config.quarantine_format)

    def _there(self, address: str, table_format: str) -> Table | None:
        with suppress(TableNotFoundError):
            return self.places.open(address, table_format, None)
        return None

    def _each(self, tables: Iterable[str] | None, task: _Task) -> Run:
        return self._run(tables, lambda job, found, mixed: self._table(job, found, mixed, task))

    # --- all tables -----------------------------------------------------------------------------------
    def _run(
        self,
        tables: Iterable[str] | None,
        one_table: Callable[[TableJob, list[SourceFile], MixedFiles], TableRun],
    ) -> Run:
        started_s = time.monotonic()
        names = self.named(tables)
        listed = list(self.listed(names if tables is not None else None))
        found = sort_out(listed, self.config)
        mixed = MixedFiles(self.places.raw, self.config)
        with ThreadPoolExecutor(min(self.config.workers, len(names)), "medallion") as pool:
            done = pool.map(lambda name: one_table(self.job(name), found.of(name), mixed), names)
            runs = list(watched(done, "tables", len(names)))
        run = Run(self.config.job, runs, 0.0, len(listed), engine=self.places.work.told)
        if tables is None:
            self._strangers(found, mixed, run)
        if run.put_aside or any(one.landed.quarantined or one.refined.quarantined for one in runs):
            self.upkeep.keep([(self.config.quarantine, self.places.quarantine)])
        run.elapsed_s = time.monotonic() - started_s
        note_run(self.places.state, run)
        return run

    def job(self, name: str) -> TableJob:
        """A table, with connections of its own: a table that another run created again is not mistaken for the one before."""
        return TableJob(name, self.config.tables[name], self.places)

    def named(self, tables: Iterable[str] | None) -> list[str]:
        """Names of tables, all without any.  Raises InvalidInputError for one that is not configured."""
        names = list(self.config.tables) if tables is None else list(dict.fromkeys(texts("tables", tables)))
        unknown = [name for name in names if name not in self.config.tables]
        if unknown or not names:
            raise InvalidInputError(
                f"{unknown or 'No table'} is not configured in {self.config.job}. Nothing was written. There are "
                f"{', '.join(list(self.config.tables)[:20])}."
            )
        return names

    def listed(self, names: list[str] | None) -> Iterable[Any]:
        """Raw files: one listing for all tables, or one for each that is named.  Raises StorageError."""
        if not self.config.landed:
            return
        if names is None:
            yield from self.places.raw.files()
            return
        for name in (one for one in names if one in self.config.landed):
            yield from self._below(name.replace(".", "/", 1) + "/")
        if self.config.raw.mixed_folder is not None:
            yield from self._below(self.config.raw.mixed_folder.strip("/") + "/")

    def _below(self, prefix: str) -> Iterable[Any]:
        return self.places.raw.files(prefix)

    def _strangers(self, found: SortedFiles, mixed: MixedFiles, run: Run) -> None:
        """Files and records of no configured table: neither is passed over in silence."""
        aside: list[tuple[str, Any]] = []
        try:
            state = read_state(self.places.state, self._document("_job")) or BronzeState()
            news = [raw for raw in found.unknown if not state.knows(raw)]
            for raw in news:
                reason, advice = odd(raw.path, self.config)
                one = _UnknownFile(raw.path, raw.mark, raw.mark, [BadRecord(0, reason, None)], advice)
                self._stranger(state, run, aside, one)
            for source in found.mixed:
                if not state.knows(source.raw):
                    whole = mixed.get(source)
                    one = _UnknownFile(source.path, whole.tag, source.raw.mark, whole.strangers)
                    self._stranger(state, run, aside, one)
            run.put_aside = self.places.put_aside("", "raw", aside)
            if not run.errors and (aside or news or found.mixed):
                write_state(self.places.state, self._document("_job"), state)
        except SafewriteError as error:
            run.errors.append(error.message)

    def _stranger(
        self, state: BronzeState, run: Run, aside: list[tuple[str, Any]], one: _UnknownFile
    ) -> None:
        if one.bad and self.config.unknown_tables == "raise":
            often = f" ({len(one.bad)} records)" if len(one.bad) > 1 else ""
            run.errors.append(
                f"{one.path}: {one.bad[0].reason}{often}. Nothing of that was written; all else was. {one.advice}, "
                'or say unknown_tables: "quarantine", which notes it there.'
            )
            return
        if one.bad:
            aside.append((f"{one.path}#{one.tag}", quarantine_rows("", "raw", one.path, one.tag, one.bad)))
        state.note(one.path, one.tag, KnownFile(one.mark, 0, len(one.bad)))

    def _document(self, name: str) -> str:
        return f"{self.config.job}/{name}"

    # --- one table ------------------------------------------------------------------------------------
    def _table(self, job: TableJob, sources: list[SourceFile], mixed: MixedFiles, task: _Task) -> TableRun:
        run, started_s = TableRun(job.name), time.monotonic()
        known: list[BronzeState] = []
        try:
            self._work(job, (sources, mixed, known), run, task)
        except SafewriteError as error:
            run.error, run.error_kind = error.message, error.kind.value
            log.error("medallion: %s failed: %s", job.name, error.message)
        except Exception as error:
            run.error, run.error_kind = f"{type(error).__name__}: {error}", "internal"
            log.exception("medallion: %s failed", job.name)
        note_lag(run, known[-1] if known else None, sources, job.__dict__.get("lineage"))
        run.elapsed_s = time.monotonic() - started_s
        if run.refined.same_key:
            run.warning = " ".join(filter(None, (run.warning, warning_of_keys(job, run.refined.same_key))))
        if run.warning is not None:
            log.warning("medallion: %s", run.warning)
        tell(run, self.places.on_event)
        return run

    def _work(
        self,
        job: TableJob,
        given: tuple[list[SourceFile], MixedFiles, list[BronzeState]],
        run: TableRun,
        task: _Task,
    ) -> None:
        sources, mixed, known = given
        again = task.again
        state = read_state(self.places.state, self._document(job.name))
        known += [] if state is None else [state]
        run.warning = warning_of(job, state, sources)
        if (
            task == _Task()
            and run.warning is None
            and not is_news(state, sources)
            and state is not None
            and self._heads_stand(job, state)
        ):
            run.news = False
            return
        if job.config.sync is not None:
            self._tried(
                lambda: sync(job, run.refined, again=again or task.since_ms is not None, reset=task.reset)
            )
            self.upkeep.keep([(job.config.silver, job.silver)])
            self._note_heads(job, BronzeState(), [job.foreign.head, job.foreign.mark()])
            return
        remembered = None if again or task.is_truncate else state  # a replay believes bronze alone
        state = known_state(job, remembered)
        if state is not remembered:
            state.epoch = max(state.epoch, truncated_epoch(job))
        state.epoch = max([state.epoch, *truncating(job.config.reload, job.config.epoch)])
        known.append(state)
        state.forget_all_but({source.path for source in sources})
        run.landed = LandedFiles(again=again)
        try:
            land(job, state, sources, mixed, run.landed)
            if again:
                land_lost(job, sources, mixed, run.landed)
        except BaseException:
            with suppress(SafewriteError):  # the run reports what stopped it
                if job.has_bronze:
                    self._note_landed(job, state, run.landed)
            raise
        if task.is_truncate:
            run.warning = None
            run.landed.versions |= note_truncate(job, sources, task.after)
            state.truncated = job.config.epoch
        self._note_landed(job, state, run.landed)
        self._refine(job, run.refined, task)
        self.upkeep.keep([(job.config.bronze, job.bronze), (job.config.silver, job.silver)])
        if catch_up(job, state, run.landed.versions):
            self._note_heads(job, state, [job.lineage.head, job.lineage.mark()])

    def _note_landed(self, job: TableJob, state: BronzeState, landed: LandedFiles) -> None:
        """Remember files up to the head of bronze that has them: if bronze goes back to a state from before, the next run sees it.

        Where bronze lost something meanwhile nothing is noted, and the next run reads all of it.
        """
        state.heads = {}
        if landed.versions:
            job.lineage.look()
        if catch_up(job, state, landed.versions):
            write_state(self.places.state, self._document(job.name), state)

    def _note_heads(self, job: TableJob, state: BronzeState, bronze: list[Any]) -> None:
        """Note where bronze and silver stand, unless a reset is under way: it may break off, and a later run is to end it."""
        version, mark = job.silver_mark()
        if not is_under_way(job.silver.positions()):
            state.heads = {"bronze": bronze, "silver": [version, mark], TRUNCATED: job.config.epoch}
            state.heads[FILE] = stored(FILE, job.config.format)
            write_state(self.places.state, self._document(job.name), state)

    def _refine(self, job: TableJob, done: Refined, task: _Task) -> None:
        since_ms = task.since_ms
        if since_ms is not None:
            refine_since(job, done, since_ms)
        self._tried(lambda: refine(job, done, again=task.again, reset=task.reset))

    @staticmethod
    def _tried(bring: Callable[[], None]) -> None:
        for attempt in range(1, _TRIES + 1):
            try:
                bring()
            except ConflictError as error:  # another run moved silver's position first
                if attempt == _TRIES or isinstance(error, BronzeGapError):
                    raise
            else:
                return

    def _heads_stand(self, job: TableJob, state: BronzeState) -> bool:
        """Whether bronze and silver are as they were when nothing was left to do, and nothing is declared since."""
        if not is_truncated(job, state.heads.get(TRUNCATED)):
            return False
        if state.heads.get(FILE, FILE) != stored(FILE, job.config.format):  # an earlier release saw them
            return False
        for layer, address in (("bronze", job.config.bronze), ("silver", job.config.silver)):
            version, mark = state.heads.get(layer) or (0, None)
            if mark is None or not self.places.stands(address, job.config.format, version, mark):
                return False
        return True
