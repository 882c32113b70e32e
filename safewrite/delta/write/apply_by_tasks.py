"""Applies changes by tasks: these look keys up, decide and write files, here or on executors; the one protocol commits them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from safewrite.changes.lookup.candidate_rows import GoneRows
from safewrite.changes.lookup.table_files import LiveFile
from safewrite.changes.meaning.accounting import check_accounts, check_result
from safewrite.changes.tasks.apply_job import AppliedBatch, ApplyJob, Given
from safewrite.delta.data.pruning import Pruning
from safewrite.delta.data.rows import check_within, size_of
from safewrite.delta.data.spans import Bounded
from safewrite.delta.log.actions import Action, FileKey
from safewrite.delta.log.features import check_overwrite, feeds_changes
from safewrite.delta.write.apply import ApplyTransaction
from safewrite.delta.write.overwrite import FileVerdict
from safewrite.delta.write.row_files import MadeOfFile
from safewrite.delta.write.table_files import DeltaTableFiles
from safewrite.errors import InternalError
from safewrite.frames.predicate import columns, possible
from safewrite.protocol.effects import Effect, Outcome

if TYPE_CHECKING:
    from safewrite.changes.meaning.spec import Spec
    from safewrite.changes.tasks.read_task import ReadBatch
    from safewrite.delta.log.snapshot import Snapshot
    from safewrite.delta.write.plans import Planner
    from safewrite.protocol.keys import Identity
    from safewrite.stores.travel import StoreAddress

S = TypeVar("S")


@contextmanager
def transaction(
    planner: Planner, store: StoreAddress, state: Snapshot, given: Given, named: tuple[Spec, Identity]
) -> Iterator[TasksApplyTransaction]:
    """The transaction that applies changes, for as long as the engine keeps their rows.

    Raises:
        As ``safewrite.changes.tasks.apply_job.read_in`` and ``Planner.applying``.
    """
    spec, name = named
    with given.read_in(spec, state.schema, state.partition_by) as (changes, source):
        files = DeltaTableFiles(
            store,
            state.version,
            state.protocol,
            state.metadata,
            planner.layout(state.schema, state),
            spec.keys,
            planner.connection.world.wall_ms(),
            planner.limits.elsewhere(),
        )
        job = ApplyJob(
            given.engine,
            changes,
            source,
            files,
            planner.new_id,
            whole=feeds_changes(state),
            gives_rows=spec.check is not None,
        )
        settings = planner.applying(changes.fingerprint, spec, state, name)
        with closing(job):
            yield TasksApplyTransaction(
                **settings,
                spec=spec,
                job=job,
                shown=lambda rows: None if rows is None else given.shown(rows, state.schema),
            )


def holding(changes: ReadBatch, live: Mapping[FileKey, Action], state: Snapshot) -> list[FileKey]:
    """The live files that may have a row with a key of a batch."""
    if not changes.report.ends:
        return []
    pruning = Pruning(changes.values, state)
    found = [key for key, add in live.items() if pruning.may_hold(add)]
    if len(changes.values) == len(changes.spec.keys):
        return found
    bounds = changes.bounds
    bounded = Bounded.of(state.schema, columns(bounds))
    return [key for key in found if True in possible(bounds, bounded.spans(live[key]))]


@dataclass
class TasksApplyTransaction(ApplyTransaction):
    """Changes that an engine applies; files of the last plan serve the next where the same is decided."""

    job: ApplyJob | None = None
    shown: Callable[[Any], Any] = lambda rows: rows

    def renew(self) -> Generator[Effect, Outcome, None]:
        """Plan again after commits of others.

        Raises:
            As :meth:`prepare`.
        """
        if self.is_stale:
            yield from self._plan()

    # --- the plan ---------------------------------------------------------------------------------
    def _plan(self) -> Generator[Effect, Outcome, None]:
        job, state = self._parts()
        spec = job.changes.spec
        self.is_stale, self.plans = False, self.plans + 1
        memory = yield from self._recall_memory()
        live = self.planned().adds
        looked = [] if self.refreshes else holding(job.changes, live, state)
        for key in looked:
            check_within(live[key])
        applied = job.apply(memory, [_live_file(key, live[key]) for key in looked])
        self.settled = applied.effect.settled
        decision = self.settled.decision
        assert self.spec is not None
        check_result(self.spec, decision, self.shown(applied.frame))
        if self.refreshes:
            self._remove_all()
        else:
            touched = _gone_rows(applied, looked, spec.sequence_by)
            yield from self._replace(touched)
            self._check_feed(touched)
        self.files = applied.files
        self.change_files = applied.change_files if applied.effect.goes else ()
        if applied.effect.cut is None and not self.refreshes:
            check_accounts(decision, applied.rows, self.removed_rows())
        yield from self._remember(memory, applied.effect.after(memory, self.timestamp_ms))
        self.write = replace(
            self.write, rows=applied.rows, files=len(self.files), changes=decision.counts.to_dict()
        )

    def _parts(self) -> tuple[ApplyJob, Snapshot]:
        if self.job is None or self.state is None:
            raise InternalError("Changes were committed before they were read. Please report it.")
        return self.job, self.state

    def _check_feed(self, touched: GoneRows[FileKey]) -> None:
        """Refuse a truncate where a change data feed wants the rows that go: no task has them.

        Raises:
            UnsupportedTableError: nothing was committed.
        """
        _, state = self._parts()
        if touched.is_cut and feeds_changes(state) and self.replaced():
            check_overwrite(state, rewrites=True)

    # --- files that lose rows ---------------------------------------------------------------------
    def _make(
        self, losing: Sequence[FileKey], touched: GoneRows[FileKey]
    ) -> Generator[Effect, Outcome, None]:
        """Let tasks make the files of rows that stay."""
        yield from ()
        if not losing:
            return
        job, _ = self._parts()
        live = self.planned().adds
        work = [(_live_file(key, live[key]), touched.places(key)) for key in losing]
        before = None if touched.cut is None else (job.changes.spec.sequence_by, touched.cut)
        rests = job.rewrite(work, before)
        for key, (file, _) in zip(losing, work, strict=True):
            rest = rests[file.name]
            verdict = FileVerdict.REWRITE if rest.rows else FileVerdict.REMOVE
            verdict = FileVerdict.KEEP if rest.rows == rest.of else verdict
            self._made[touched.mark(key)] = MadeOfFile(verdict, rest.rows, rest.files)


def _live_file(key: FileKey, add: Action) -> LiveFile:
    return LiveFile(f"{key[0]}#{key[1] or ''}", add, size_of(add))


def _gone_rows(
    applied: AppliedBatch, looked: Sequence[FileKey], sequence_by: tuple[str, ...]
) -> GoneRows[FileKey]:
    """What goes, by live file."""
    by_name = {f"{path}#{vector or ''}": (path, vector) for path, vector in looked}
    return GoneRows(
        sequence_by,
        {by_name[name]: places for name, places in applied.effect.goes.items()},
        applied.effect.cut,
        {by_name[name]: count for name, count in applied.counts.items()},
    )
