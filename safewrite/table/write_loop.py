"""Runs the loop around a write: plan, commit, plan again after a conflict, receipt."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from safewrite.arguments.reading import spark_catalog as check_catalog
from safewrite.boundary.public import after_ack
from safewrite.errors import (
    ConflictError,
    DataFileError,
    InvalidInputError,
    Kind,
    NotCommittedError,
    ReplayMismatchError,
    StorageError,
    UnsupportedTableError,
    WouldAlterError,
)
from safewrite.frames.source import is_spark, spark_context
from safewrite.protocol.ask import Limits
from safewrite.protocol.keys import Identity
from safewrite.receipt import Done, Named, Receipt
from safewrite.stores import call_limit
from safewrite.stores.events import told
from safewrite.stores.world import monotonic_s
from safewrite.table.deadline import Pace
from safewrite.table.group import Member
from safewrite.table.mismatch import Explainer
from safewrite.table.operation import GroupDone, Operation, Planned, naming

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from typing_extensions import TypeVar

    from safewrite.changes.reading import Changes
    from safewrite.changes.spec import Spec
    from safewrite.frames import Prepared
    from safewrite.frames.fingerprint import Counted
    from safewrite.frames.spark.held import Held
    from safewrite.stores.world import Performer

    T = TypeVar("T")
    # Defaults (PEP 696) let users write ``safewrite.Table`` alone.
    VersionT = TypeVar("VersionT", default=Any)
    PlanT = TypeVar("PlanT", bound=Planned, default=Any)
    DoneT = TypeVar("DoneT", bound=Done, default=Any)
else:
    from typing import TypeVar

    T, VersionT, PlanT, DoneT = TypeVar("T"), TypeVar("VersionT"), TypeVar("PlanT"), TypeVar("DoneT")

log = logging.getLogger("safewrite")

QUEUE_MEMORY = 20
"""After a contended write, this many further writes queue at once instead of trying first."""
PLANS_MAX = 5
"""How often a write is planned when other writers change what its plan depends on."""
FRESH_S = 1.0
"""A version read or committed within this time is written on without another look; a guess, for speed only."""


class WriteLoop(ABC, Generic[VersionT, PlanT, DoneT]):
    """The loop around a write, and what a format brings to it."""

    world: Performer
    """The world that performs the effects of a write; tests replace it."""
    _REPLANNED: ClassVar[frozenset[Kind]] = frozenset()
    """Conflicts after which every write is planned again, besides those of its verb."""

    def __init__(self, limits: Limits | None) -> None:
        self.limits = limits or Limits()
        self._queue_first = 0
        self._pace = Pace()
        self.unlike: Callable[[], object] | None = None
        """Warns of settings of a new table that the table lacks which another writer made meanwhile."""

    @property
    @abstractmethod
    def uri(self) -> str:
        """The address of a Delta table, the name of an Iceberg table in its catalog."""

    @abstractmethod
    def resolve(self, key: str) -> Receipt | None:
        """Find out, without writing, whether a write landed."""

    # --- what a format does -----------------------------------------------------------------------
    def _in_session(self, catalog: str | None) -> str | None:
        """Check a Spark session's name for the table's catalog."""
        return check_catalog(catalog)

    @abstractmethod
    def _open(self, *, strict: bool) -> None:
        """Load the table and refuse what would not be safe; the other half of the constructor."""

    @abstractmethod
    def _create(self, schema: pa.Schema) -> None:
        """Create the table, empty."""

    @abstractmethod
    def _refresh(self) -> VersionT | None:
        """Load the newest version, past the checks of ``safewrite.open``; None before there is a table."""

    @abstractmethod
    def _look_again(self) -> None:
        """Load the newest version after a conflict, without use of what was known."""

    @abstractmethod
    def _planned_on(self, operation: Operation, data: Any, *, alone: bool = True) -> VersionT | None:
        """The version that a write is planned on; None where the write creates the table.

        A write that is ``alone`` is planned again if it is refused by a version of a moment ago; a member is not.
        """

    @abstractmethod
    def _plan(
        self, data: Any, operation: Operation, name: Identity, on: VersionT | None
    ) -> tuple[PlanT, Callable[[], Any]]:
        """Check the data and plan its write; the plan brings the encoder of its files."""

    @abstractmethod
    def _commit(self, plan: PlanT, operation: Operation, encode: Callable[[], Any]) -> DoneT:
        """Upload and commit a plan."""

    @abstractmethod
    def _prepare_next(
        self, data: Any, operation: Operation, on: VersionT | None, earlier: Sequence[Prepared]
    ) -> Prepared:
        """Check a member's rows against the table's schema and the columns that ``earlier`` members add."""

    @abstractmethod
    def _plan_group(
        self, members: Sequence[Member], operation: Operation, on: VersionT | None
    ) -> tuple[PlanT, Callable[..., Any]]:
        """Plan one commit of prepared members; the plan brings the encoder of the files of any of them."""

    @abstractmethod
    def _read_changes(
        self, data: Any, operation: Operation, name: Identity, on: VersionT | None
    ) -> tuple[Changes, Named]:
        """Check a member's changes against the table's schema, and name them."""

    @staticmethod
    def _declared(operation: Operation) -> Spec:
        assert operation.changes is not None
        return operation.changes

    @abstractmethod
    def _commit_group(self, plan: PlanT, encode: Callable[..., Any]) -> GroupDone[DoneT, Named]:
        """Upload and commit a group's plan."""

    @abstractmethod
    def _write_spark(self, held: Held, operation: Operation, name: Identity, started_s: float) -> Receipt:
        """Let Spark write the files of its DataFrame, and commit them as those of any other frame."""

    @abstractmethod
    def _count(self, data: Any, operation: Operation, on: VersionT | None) -> Prepared:
        """The rows under the table's schema, which may have more columns than they."""

    @abstractmethod
    def _name(self, counted: Counted, on: VersionT | None, name: Identity) -> Named:
        """Name the write by the caller's key or batch, or by a generated key."""

    @abstractmethod
    def _resolve(self, key: str) -> tuple[int, Mapping[str, Any]] | None:
        """The version that holds a write, and the history's entry of it; None if it did not land."""

    @abstractmethod
    def _recorded(self, version: int) -> Sequence[Mapping[str, Any]]:
        """The writes that a version carries, as the history describes them."""

    @abstractmethod
    def _after(self, done: DoneT, started_s: float) -> None:
        """Keep what the commit showed of the table, and maintain its metadata."""

    @abstractmethod
    def _tell_spark(self, context: SparkContext) -> None:
        """Let the Spark of this process read the table anew."""

    # --- the loop around a write --------------------------------------------------------------------
    @told
    def _write(self, data: Any, operation: Operation, name: Identity) -> Receipt:
        started_s = monotonic_s(self.world)
        spark = operation.verb != "delete" and is_spark(data)
        kinds = {Kind.SCHEMA_CHANGED, *self._REPLANNED}
        if spark or operation.verb != "append":
            kinds.add(Kind.CONFLICT)

        def attempt() -> Receipt:
            if not spark:
                return self._write_rows(data, operation, name, started_s)
            from safewrite.frames.spark.held import held

            with self._explaining(operation, Explainer(self._recorded)), held(data) as given:
                return self._write_spark(given, operation, name, started_s)

        with self._within(operation.timeout_s, started_s), naming(lambda: name.as_key):
            return self._replanned(attempt, kinds)

    @contextmanager
    def _within(self, timeout_s: float | None, started_s: float) -> Iterator[None]:
        """Give one call limits of its own."""
        usual = self.limits
        if timeout_s is not None:
            self.limits = replace(
                usual, timeout_s=timeout_s, until_s=started_s + timeout_s - self._pace.reserve_s(timeout_s)
            )
        elif usual.timeout_s != Limits.timeout_s:
            timeout_s = usual.timeout_s  # the default is for commits: uploads may take longer
        try:
            with call_limit.within(timeout_s):
                yield
        finally:
            self.limits = usual

    def _write_rows(self, data: Any, operation: Operation, name: Identity, started_s: float) -> Receipt:
        on = self._planned_on(operation, data)
        try:
            plan, encode = self._plan(data, operation, name, on)
        except WouldAlterError:
            repeated = self._repeated(lambda: self._count(data, operation, on), operation, name, on)
            if repeated is None:
                raise
            return repeated
        plan.properties, plan.positions = operation.properties, operation.positions
        explainer = Explainer(self._recorded)
        count = (
            None
            if operation.verb in {"delete", "apply_changes"}
            else lambda: self._count(data, operation, on)
        )
        with self._explaining(operation, explainer, count):
            done = self._commit(plan, operation, encode)
        return self._receipt(done, plan.write, started_s)

    @contextmanager
    def _explaining(
        self, operation: Operation, explainer: Explainer, count: Callable[[], Prepared] | None = None
    ) -> Iterator[None]:
        """Say of a key that was committed with other rows how these differ, as far as the history tells."""
        try:
            yield
        except ReplayMismatchError as error:
            raise explainer.explained(error, operation.volatile, count) from error.__cause__

    def _replanned(self, attempt: Callable[[], T], kinds: set[Kind]) -> T:
        """Plan and stage again when another writer changed what the plan depends on (H9, C9)."""
        for turn in range(1, PLANS_MAX + 1):
            known = self._mark()
            try:
                return attempt()
            except WouldAlterError:
                # The version of a moment ago may lack a column that came since.
                if turn == PLANS_MAX or not self._has_changed(known):
                    raise
            except (InvalidInputError, UnsupportedTableError, DataFileError):
                # So may it have rows that went since, which a change was older than, or whose file is gone or not readable.
                if turn > 1 or Kind.CONFLICT not in kinds or not self._has_changed(known):
                    raise
            except ConflictError as error:
                if error.kind not in kinds or turn == PLANS_MAX:
                    raise
                self._look_again()
                self._queue_first = QUEUE_MEMORY
        raise AssertionError("unreachable")

    def _has_changed(self, known: object) -> bool:
        """Whether the table has moved to another version, which is known afterwards."""
        if known is None:
            return False
        with suppress(StorageError):
            self._refresh()
        return self._mark() != known

    @abstractmethod
    def _mark(self) -> object:
        """The mark that tells one known version of the table from another; None before there is a table."""

    def _repeated(
        self, count: Callable[[], Counted], operation: Operation, name: Identity, on: VersionT | None
    ) -> Receipt | None:
        """The receipt of rows that were appended before the table's schema outgrew them, if they were.

        Columns that were added since do not change a fingerprint, so the repeat can be recognised.
        """
        if not name.is_given or operation.verb != "append":
            return None
        try:
            write = self._name(count(), on, name)
        except NotCommittedError:
            return None
        found = self.resolve(write.key)
        return found if found is not None and found.fingerprint == write.fingerprint else None

    def _receipt(self, done: DoneT, write: Named, started_s: float) -> Receipt:
        receipt = done.receipt(self.uri, write, self._since(started_s))
        self._landed(done, receipt, started_s)
        return receipt

    def _landed(self, done: DoneT, receipt: Receipt, started_s: float) -> None:
        """Log a commit, and keep what it showed of the table."""
        self._queue_first = QUEUE_MEMORY if done.contended else max(0, self._queue_first - 1)
        with after_ack(self.uri):
            log.info(
                "%s in version %d",
                receipt.outcome.value,
                done.version,
                extra={"table": receipt.table, "receipt": receipt.to_dict()},
            )
        with after_ack(self.uri):
            self._after(done, started_s)
        with after_ack(self.uri):
            if (context := spark_context()) is not None:
                self._tell_spark(context)
        with after_ack(self.uri):
            unlike, self.unlike = self.unlike, None
            if unlike is not None:
                unlike()
        if not done.already:
            self._pace.note(receipt.elapsed_s, done.attempts)

    # --- the clock --------------------------------------------------------------------------------
    def _since(self, started_s: float) -> float:
        """Seconds since then; 0 where the clock raises, for a receipt does not depend on it."""
        with suppress(Exception):
            return monotonic_s(self.world) - started_s
        return 0.0
