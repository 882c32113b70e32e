"""Applies the changes of a Spark DataFrame: Spark reads, decides and writes files, the one protocol commits them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from safewrite.changes.meaning.accounting import check_accounts, check_result
from safewrite.changes.spark.batch import changes_of
from safewrite.changes.spark.plan import FILE, POS, LiveRows, SparkPlan, planned
from safewrite.delta.data.pruning import Pruning
from safewrite.delta.data.rows import check_within
from safewrite.delta.data.spans import Bounded
from safewrite.delta.data.vector_files import marked
from safewrite.delta.log.actions import FileKey, rows_of
from safewrite.delta.log.features import check_overwrite, marks_rows
from safewrite.delta.spark.files import SparkDelta, find
from safewrite.delta.spark.write import Place, seems_there, spark_path
from safewrite.delta.write.apply import ApplyTransaction
from safewrite.delta.write.overwrite import FileVerdict
from safewrite.engine.spark import spark_errors
from safewrite.errors import InternalError
from safewrite.frames.predicate import columns, possible
from safewrite.frames.spark.stream import written
from safewrite.protocol.accounts import check_read, total
from safewrite.protocol.effects import Effect, Outcome

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from safewrite.changes.meaning.spec import Spec
    from safewrite.changes.spark.batch import SparkChanges
    from safewrite.delta.format import DeltaFormat
    from safewrite.delta.log.actions import Action
    from safewrite.delta.write.recalled import DeltaDone
    from safewrite.delta.write.staging import StagedFile
    from safewrite.delta.write.transaction import Write
    from safewrite.frames.fingerprint import Fingerprint
    from safewrite.frames.spark.batch import BatchOrigin
    from safewrite.protocol.keys import Identity
    from safewrite.table.operation import Operation


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Written:
    """What a plan wrote: new files, and the next vectors of files that stay; ``mark`` says what it did to which files."""

    mark: object
    files: tuple[StagedFile, ...]
    vectors: Mapping[FileKey, Action]


@dataclass
class SparkApplyTransaction(ApplyTransaction):
    """Changes of a Spark DataFrame.  Files of the last plan serve the next, if it does the same to the same files."""

    source: SparkChanges | None = None
    table: SparkDelta | None = None
    _plans: ExitStack = field(default_factory=ExitStack, repr=False)
    _written: _Written | None = field(default=None, repr=False)
    _removed: int | None = 0
    _kept: int = 0

    def copied_bytes(self) -> int | None:
        """Spark's files hold new rows and others alike."""
        return None

    def removed_rows(self) -> int | None:
        """How many rows the commit removes, those left out that its new files have again."""
        return self._removed

    def kept_rows(self) -> int | None:
        """How many rows of replaced files the new files have, by the plan."""
        return self._kept

    def renew(self) -> Generator[Effect, Outcome, None]:
        """Plan again after commits of others.

        Raises:
            As :meth:`prepare`.
        """
        if self.is_stale:
            yield from self._plan()

    def close(self) -> None:
        """Let Spark forget the rows of the plan."""
        self._plans.close()

    # --- the plan ---------------------------------------------------------------------------------
    def _plan(self) -> Generator[Effect, Outcome, None]:
        source, spec, _ = self._parts()
        self.is_stale, self.plans = False, self.plans + 1
        memory = yield from self._recall_memory()
        live = self.planned().adds
        looked = [] if self.refreshes else self._looked(live)
        for key in looked:
            check_within(live[key])
        self.close()
        plan = self._plans.enter_context(planned(source, memory, self._rows_of(looked)))
        self.settled = plan.settled
        decision = plan.settled.decision
        check_result(spec, decision, plan.upserts())
        yield from self._carry_out(plan)
        if plan.cut is None and not self.refreshes:
            check_accounts(decision, plan.rows, self._removed)
        yield from self._remember(memory, plan.after(memory, self.timestamp_ms))
        self.write = replace(
            self.write, rows=plan.rows, files=len(self.files), changes=decision.counts.to_dict()
        )

    def _parts(self) -> tuple[SparkChanges, Spec, SparkDelta]:
        if self.source is None or self.spec is None or self.table is None:
            raise InternalError("Changes were committed before they were read. Please report it.")
        return self.source, self.spec, self.table

    def _looked(self, live: Mapping[FileKey, Action]) -> list[FileKey]:
        """The files that may have a row with a key of the batch."""
        assert self.state is not None
        source, _, _ = self._parts()
        if not source.report.ends:
            return []
        pruning = Pruning(source.values, self.state)
        bounded = Bounded.of(self.state.schema, columns(source.bounds))
        return [
            key
            for key, add in live.items()
            if pruning.may_hold(add) and True in possible(source.bounds, bounded.spans(add))
        ]

    def _rows_of(self, looked: Collection[FileKey]) -> Callable[[list[str]], LiveRows | None]:
        from safewrite.frames.spark.hashes import quoted

        assert self.state is not None
        _, _, table = self._parts()
        live, places = self.planned().adds, (FILE, POS) if marks_rows(self.state) else (FILE,)

        def rows(names: list[str]) -> LiveRows | None:
            if not looked:
                return None
            adds = [live[key] for key in looked]
            frame = table.rows(adds, *places).select(*map(quoted, (*names, *places)))
            return LiveRows(frame, total(map(rows_of, adds)))

        return rows

    # --- what goes and what comes -------------------------------------------------------------------
    def _carry_out(self, plan: SparkPlan) -> Generator[Effect, Outcome, None]:
        """Write the rows that come, and those that stay of files that lose some; or mark those that go."""
        assert self.state is not None
        live = self.planned().adds
        if self.refreshes:
            self._remove_all()
            if self._written is None:  # what comes does not depend on what is there
                self._written = _Written(None, self._rows_written(plan, (), plan.rows), {})
            self.files, self._removed, self._kept = self._written.files, super().removed_rows(), 0
            return
        lost = self._by_key({file: len(places) for file, places in plan.goes.items()})
        totals = {key: rows_of(live[key]) for key in lost}
        if plan.cut is not None or None in totals.values():
            lost, totals = self._counted(plan, live if plan.cut is not None else lost)
        self.verdicts = dict.fromkeys(live, FileVerdict.KEEP)
        for key, rows in lost.items():
            self.verdicts[key] = FileVerdict.REMOVE if rows == totals[key] else FileVerdict.REWRITE
        if lost:
            check_overwrite(self.state, rewrites=True)
        for key in lost:
            check_within(live[key])
        rewritten = [key for key in lost if self.verdicts[key] is FileVerdict.REWRITE]
        self.kept = {key: (totals[key] or 0) - lost[key] for key in rewritten}
        mark = (plan.mark, sorted(lost.items()))
        if self._written is None or self._written.mark != mark:
            vectors = yield from self._vectors_stored(plan, rewritten)
            left = [key for key in rewritten if key not in vectors]
            files = self._rows_written(plan, left, sum(self.kept[key] for key in left) + plan.rows)
            self._written = _Written(mark, files, vectors)
        self.files, self._removed, self._kept = (
            self._written.files,
            sum(lost.values()),
            sum(self.kept.values()),
        )
        self.marked = {key: marked(live[key], vector) for key, vector in self._written.vectors.items()}
        self.verdicts |= dict.fromkeys(self.marked, FileVerdict.MARK)

    def _vectors_stored(
        self, plan: SparkPlan, files: Collection[FileKey]
    ) -> Generator[Effect, Outcome, Mapping[FileKey, Action]]:
        """The next vectors of files, where the table wants them; others, and those with a truncate, are rewritten."""
        assert self.state is not None
        if plan.cut is not None or not marks_rows(self.state):
            return {}
        live, wider = self.planned().adds, {}
        yield from self.vectors.fetch([live[key] for key in files], self.limits)
        places = self._by_key(plan.goes)
        for key in files:
            vector = None if (places[key] < 0).any() else self.vectors.taking(live[key], places[key])
            if vector is not None:
                wider[key] = vector
        return (yield from self.vectors.store(wider, self.limits))

    def _rows_written(
        self, plan: SparkPlan, rewritten: Collection[FileKey], rows: int
    ) -> tuple[StagedFile, ...]:
        """The new files.

        Raises:
            InternalError: they do not hold as many rows as was decided.
        """
        if not rows:
            return ()
        _, _, table = self._parts()
        live = self.planned().adds
        frame = plan.upserts()
        if rewritten:
            stays = plan.staying(table.rows([live[key] for key in rewritten], FILE))
            frame = stays.unionByName(frame) if plan.rows else stays
        made = tuple(table.write(frame))
        found = sum(file.rows for file in made)
        if found != rows:
            raise InternalError(
                f"Spark wrote {found} rows, and {rows} were to be written. Nothing was committed. Call again with the same "
                "key, and please report it."
            )
        return made

    def _counted(
        self, plan: SparkPlan, files: Collection[FileKey]
    ) -> tuple[dict[FileKey, int], dict[FileKey, int | None]]:
        """How many rows files lose, and how many they have, by a look at them."""
        _, _, table = self._parts()
        live = self.planned().adds
        if not files:
            return {}, {}
        rows = table.rows([live[key] for key in files], FILE)
        totals = self._by_key(_by_file(rows))
        check_read(sum(totals.values()), total(rows_of(live[key]) for key in files))
        left = self._by_key(_by_file(plan.staying(rows, FILE)))
        lost = {key: count - left.get(key, 0) for key, count in totals.items()}
        return {key: count for key, count in lost.items() if count}, {**totals}

    def _by_key(self, by_path: Mapping[str, T]) -> dict[FileKey, T]:
        """What is known of files that Spark names by their whole paths, by live file."""
        _, _, table = self._parts()
        live = {key[0]: key for key in self.planned().adds}
        return {table.key(path, live): known for path, known in by_path.items()}


def _by_file(rows: DataFrame) -> dict[str, int]:
    from safewrite.frames.spark.hashes import quoted

    with spark_errors("count the rows of files"):
        found = rows.groupBy(quoted(FILE)).count().collect()
    return {row[0]: int(row[1]) for row in found}


# --- from a frame to a transaction ----------------------------------------------------------------------
@contextmanager
def transaction(
    place: Place,
    spec: Spec,
    origin: BatchOrigin | None,
    settings: Callable[[Fingerprint], Mapping[str, Any]],
) -> Iterator[SparkApplyTransaction]:
    """The transaction that applies the changes of a frame, for as long as Spark keeps its rows.

    ``settings`` names the write by the fingerprint of its rows.

    Raises:
        As ``safewrite.changes.spark.batch.changes_of``.
        ConflictError: kind SCHEMA_CHANGED.
    """
    state = place.state
    table = find(place.held.session, spark_path(place.connection), state)
    changes = changes_of(place.held, spec, state.schema, state.partition_by, origin)
    with changes as source, ExitStack() as stack:
        made = SparkApplyTransaction(**settings(source.fingerprint), spec=spec, source=source, table=table)
        stack.callback(made.close)
        yield made


def applied(
    table: DeltaFormat, place: Place, operation: Operation, name: Identity, *, queue_first: bool
) -> tuple[DeltaDone, Write]:
    """Let Delta's own library apply the changes of a DataFrame.

    Raises:
        As :func:`transaction`.
    """
    spec, state = operation.changes, place.state
    assert spec is not None

    def by(origin: BatchOrigin | None) -> tuple[DeltaDone, Write]:
        settings = partial(table.planner.applying, spec=spec, state=state, name=name)
        with transaction(place, spec, origin, settings) as plan:
            plan.properties, plan.positions = operation.properties, operation.positions
            return table.commit(plan, operation, tuple, queue_first=queue_first), plan.write

    return written(place.held.frame, name.txn, state.table_id, by, seems_there=seems_there(place))
