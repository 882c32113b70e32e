"""Runs the loop around a write, of one call or of many members: plan, commit, plan again after a conflict, receipt."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from safewrite.boundary.public import after_ack
from safewrite.errors import (
    CommitUnknownError,
    ConflictError,
    DataFileError,
    InvalidInputError,
    Kind,
    NotCommittedError,
    ReplayMismatchError,
    SafewriteError,
    StorageError,
    UnsupportedTableError,
    WouldAlterError,
)
from safewrite.frames.source import is_spark, refuse_stream, spark_context
from safewrite.protocol.ask import Limits
from safewrite.protocol.keys import Identity
from safewrite.receipt import Named, Receipt
from safewrite.stores import call_limit
from safewrite.stores.events import told
from safewrite.stores.world import Performer, monotonic_s
from safewrite.table import planning
from safewrite.table.deadline import Deadline
from safewrite.table.format import DoneT, Format, PlanT, VersionT
from safewrite.table.group import Answer, Group, Member
from safewrite.table.mismatch import Explainer
from safewrite.table.operation import Operation, naming
from safewrite.values.unsupported import saying_why

if TYPE_CHECKING:
    from safewrite.changes.members.task_changes import TaskChanges
    from safewrite.engine.task_files import TableInTasks
    from safewrite.frames.fingerprint import Counted
    from safewrite.frames.prepare import Prepared

T = TypeVar("T")
log = logging.getLogger("safewrite")

QUEUE_MEMORY = 20
"""After a contended write, this many further writes queue at once instead of trying first."""
PLANS_MAX = 5
"""How often a write is planned when other writers change what its plan depends on."""


class Writer(Generic[VersionT, PlanT, DoneT]):
    """Writes to one table of any format."""

    def __init__(self, table_format: Format[VersionT, PlanT, DoneT]) -> None:
        self._format = table_format
        self._deadline = Deadline()
        self.queue_first = 0
        """How many further writes queue at once instead of trying first."""

    @property
    def uri(self) -> str:
        """The table's address or name."""
        return self._format.uri

    @property
    def world(self) -> Performer:
        """The world that performs the effects of a write."""
        return self._format.world

    def in_tasks(self) -> TableInTasks | None:
        """How tasks reach the known version."""
        on = self._format.planned_on(Operation("append"), None, alone=False)
        return self._format.planner.in_tasks(on)

    # --- one write ----------------------------------------------------------------------------------
    @told
    def write_one(self, data: Any, operation: Operation, name: Identity) -> Receipt:
        """Write the data of one call, once."""
        started_s = monotonic_s(self.world)
        spark = operation.verb != "delete" and is_spark(data)
        if spark:
            refuse_stream(data)
        if spark and operation.schema_mode == "widen":
            raise InvalidInputError(
                "schema_mode='widen' takes no Spark DataFrame. Nothing was written. Widen the table first, "
                "append(frame.limit(0).toArrow(), schema_mode='widen'), and write the frame with 'merge'."
            )
        by_tasks = None if operation.changes is None else _by_tasks(data)
        kinds = {Kind.SCHEMA_CHANGED, *self._format.replanned}
        if spark or operation.verb != "append":
            kinds.add(Kind.CONFLICT)

        def attempt() -> Receipt:
            if by_tasks is not None:
                return self._apply_shared(by_tasks, operation, name, started_s)
            if spark:
                return self._write_spark(data, operation, name, started_s)
            return self._write_rows(data, operation, name, started_s)

        own = self._within(operation.timeout_s, started_s)
        with own, saying_why(lambda: self._format.unread), naming(lambda: name.as_key):
            return self._decided(attempt, kinds)

    def _write_rows(self, data: Any, operation: Operation, name: Identity, started_s: float) -> Receipt:
        try:
            on = self._format.planned_on(operation, data)
        except UnsupportedTableError:
            landed = self._landed_before(data, operation, name)
            if landed is None:
                raise
            return landed
        count = partial(self._format.planner.count, data, operation, on)
        try:
            plan, encode = planning.plan(self._format.planner, data, operation, name, on)
        except WouldAlterError:
            found = self._repeated(data, operation, name, on)
            if found is None:
                raise
            return found
        plan.properties, plan.positions = operation.properties, operation.positions
        has_rows = operation.verb not in {"delete", "apply_changes"}
        with self._explaining(operation, count if has_rows else None):
            try:
                done = self._format.commit(plan, operation, encode, queue_first=self.queue_first > 0)
            except ReplayMismatchError:
                found = self._repeated(data, operation, name, on)
                if found is None:
                    raise
                return found
        return self._receipt(done, plan.write, started_s)

    def _apply_shared(
        self, data: TaskChanges, operation: Operation, name: Identity, started_s: float
    ) -> Receipt:
        with self._explaining(operation):
            done = self._format.apply_shared(data, operation, name, queue_first=self.queue_first > 0)
        return self._receipt(*done, started_s)

    def _write_spark(self, data: Any, operation: Operation, name: Identity, started_s: float) -> Receipt:
        from safewrite.frames.spark.computed_frame import held

        with self._explaining(operation), held(data) as given:
            found = self._format.write_spark(given, operation, name, queue_first=self.queue_first > 0)
            return found if isinstance(found, Receipt) else self._receipt(*found, started_s)

    @contextmanager
    def _explaining(
        self, operation: Operation, count: Callable[[], Prepared] | None = None
    ) -> Iterator[None]:
        """Say of a key that was committed with other rows how these differ, as far as the history tells."""
        try:
            yield
        except ReplayMismatchError as error:
            explainer = Explainer(self._format.recorded)
            raise explainer.explained(error, operation.volatile, count) from error.__cause__

    # --- many members -------------------------------------------------------------------------------
    @told
    def write_many(self, group: Group, operation: Operation) -> list[Answer]:
        """Write the members of one call in one commit, each of them once."""
        started_s = monotonic_s(self.world)

        def attempt() -> None:
            try:
                self._prepare_group(group, operation)
            except UnsupportedTableError as error:
                self._refuse_open(group, operation, error)
            if group.open:
                self._commit_open(group, operation, started_s)

        with self._within(operation.timeout_s, started_s), naming(lambda: group.first_key):
            kinds = {Kind.SCHEMA_CHANGED, *self._format.replanned}
            self._replanned(attempt, kinds if operation.verb == "append" else {Kind.CONFLICT, *kinds})
        return group.answers()

    def _refuse_open(self, group: Group, operation: Operation, error: UnsupportedTableError) -> None:
        """Refuse the members with the table, which may not be written to, but those that were committed before it became so."""
        landed = [(one, self._landed_before(one.data, operation, one.name)) for one in group.open]
        if not any(receipt for _, receipt in landed):
            raise error
        for member, receipt in landed:
            if receipt is None:
                member.fail(UnsupportedTableError(error.message))
            else:
                member.answer = receipt

    def _landed_before(self, data: Any, operation: Operation, name: Identity) -> Receipt | None:
        """The receipt of rows that were appended before the table became one that may not be written to, if they were."""
        if not name.is_given or operation.verb != "append":
            return None
        on = self._format.refresh(afresh=True)
        return self._repeated(data, operation, name, on)

    def _repeated(self, data: Any, operation: Operation, name: Identity, on: VersionT) -> Receipt | None:
        """As :func:`repeated`, of rows that are here: also by what the same call was on the version that has it."""
        count = partial(self._format.planner.count, data, operation, on)

        def then(version: int) -> Named | None:
            was = self._format.as_of(version)
            if was is None:
                return None
            with suppress(InvalidInputError, WouldAlterError, UnsupportedTableError):
                write: Named = planning.plan(self._format.planner, data, operation, name, was)[0].write
                return write
            return None

        return repeated(self._format, count, operation, name, on, then=then)

    def _prepare_group(self, group: Group, operation: Operation) -> None:
        """Check and name each member, on a version that has the columns of all if there is one."""
        for _ in range(PLANS_MAX):
            known = self._format.mark()
            group.plan_again()
            self._prepare_members(group, operation)
            if not group.altered or not self._has_changed(known):
                break
        group.once()
        group.keep_order()

    def _prepare_members(self, group: Group, operation: Operation) -> None:
        """Check and name the members in order: the first alone, and those that follow in one pass if they are alike."""
        left = group.open
        if operation.changes is not None:
            for member in left:
                self._answering(member, partial(self._prepare_changes, group, member, operation))
            return
        while left:
            checked = self._alike(group, left, operation) or [None]
            for member, prepared in zip(left, checked, strict=False):
                step = partial(self._prepare_member, group, member, operation, prepared)
                self._answering(member, step)
            left = left[len(checked) :]

    def _alike(
        self, group: Group, members: Sequence[Member], operation: Operation
    ) -> Sequence[Prepared | None]:
        """Check what can be checked in one pass, once an earlier member tells the schema; see ``prepare_alike``."""
        if not group.prepared or len(members) == 1:
            return ()
        from safewrite.frames.bulk_check import prepare_alike

        return prepare_alike(
            [member.data for member in members],
            group.prepared[-1],
            schema_mode=operation.schema_mode,
            volatile=operation.volatile,
        )

    def _planned_on(self, group: Group, member: Member, operation: Operation) -> VersionT:
        if not group.planned:
            group.on, group.planned = self._format.planned_on(operation, member.data, alone=False), True
        on: VersionT = group.on
        return on

    def _prepare_changes(self, group: Group, member: Member, operation: Operation) -> None:
        on, planner = self._planned_on(group, member, operation), self._format.planner
        try:
            found = planner.read(member.data, planning.declared(operation), on, group.columns)
        except WouldAlterError:
            member.answer = self._repeated(member.data, operation, member.name, on)
            if member.answer is None:
                raise
            return
        member.write = planner.name_changes(found.fingerprint, member.name, on)
        member.changes, group.columns = found, found.columns

    def _prepare_member(
        self, group: Group, member: Member, operation: Operation, checked: Prepared | None
    ) -> None:
        on, planner = self._planned_on(group, member, operation), self._format.planner
        try:
            if checked is not None:
                member.prepared = planner.fitting(checked, on)
            else:
                member.prepared = planner.prepare_next(member.data, operation, on, group.prepared)
        except WouldAlterError:
            member.answer = self._repeated(member.data, operation, member.name, on)
            if member.answer is None:
                raise
            return
        group.prepared.append(member.prepared)
        member.write = planner.name(member.prepared, member.name, on)

    def _answering(self, member: Member, step: Callable[[], None]) -> None:
        """Answer a member with the error that is its own; what concerns all is raised."""
        try:
            step()
        except (InvalidInputError, WouldAlterError, ReplayMismatchError) as error:
            member.fail(error)

    def _commit_open(self, group: Group, operation: Operation, started_s: float) -> None:
        members = group.open
        plan, encode = planning.group(self._format.planner, members, operation, group.on)
        plan.properties, plan.positions = operation.properties, operation.positions
        landed = self._format.commit_group(plan, encode, queue_first=self.queue_first > 0)
        done = landed.done
        written = {write.key: write for write in landed.writes}
        explainer = Explainer(self._format.recorded)
        for member in members:
            assert member.write is not None
            own = written.get(member.write.key)
            known = done if own is not None else landed.known[member.write.key]
            if isinstance(known, ReplayMismatchError):
                with suppress(Exception):  # the error stands as it is: others of the group are committed
                    member.answer = self._repeated(member.data, operation, member.name, group.on)
                if member.answer is not None:
                    continue
            if isinstance(known, SafewriteError):
                rows = None if member.changes is not None else member.rows
                member.fail(known if rows is None else explainer.explained(known, operation.volatile, rows))
                continue
            assert known is not None
            if own is not None:
                known = replace(known, rows=own.rows, changes=own.changes)
                if own.changes is not None:
                    known = replace(
                        known, removed_rows=None, copied_bytes=None
                    )  # counted for all members together
            member.answer = known.receipt(self.uri, member.write, since(self.world, started_s))
        if done is not None:
            self._receipt(done, plan.write, started_s)

    # --- what both share ----------------------------------------------------------------------------
    @contextmanager
    def _within(self, timeout_s: float | None, started_s: float) -> Iterator[None]:
        """Give one call limits of its own."""
        usual = self._format.limits
        if timeout_s is not None:
            until_s = started_s + timeout_s - self._deadline.reserve_s(timeout_s)
            self._format.limits = replace(usual, timeout_s=timeout_s, until_s=until_s)
        elif usual.timeout_s != Limits.timeout_s:
            timeout_s = usual.timeout_s  # the default is for commits: uploads may take longer
        try:
            with call_limit.within(timeout_s):
                yield
        finally:
            self._format.limits = usual

    def _decided(self, attempt: Callable[[], T], kinds: set[Kind]) -> T:
        """Plan again also where such a change left the write in doubt, for another writer may carry it: the next attempt finds out."""
        doubts: list[CommitUnknownError] = []

        def conflicting() -> T:
            try:
                return attempt()
            except CommitUnknownError as error:
                if not isinstance(error.__cause__, ConflictError):
                    raise
                doubts.append(error)
                raise error.__cause__ from None

        try:
            return self._replanned(conflicting, kinds)
        except ReplayMismatchError:
            raise
        except NotCommittedError as error:
            if doubts:
                raise doubts[-1] from error
            raise

    def _replanned(self, attempt: Callable[[], T], kinds: set[Kind]) -> T:
        """Plan and stage again when another writer changed what the plan depends on (H9, C9)."""
        for turn in range(1, PLANS_MAX + 1):
            known = self._format.mark()
            try:
                return attempt()
            except WouldAlterError as error:
                # The version of a moment ago may lack a column that came since.
                if turn == PLANS_MAX or error.is_settled or not self._has_changed(known):
                    raise
            except (InvalidInputError, UnsupportedTableError, DataFileError) as error:
                # So may it have rows that went since, which a change was older than, or whose file is gone or not readable.
                if turn > 1 or Kind.CONFLICT not in kinds or error.is_settled or not self._has_changed(known):
                    raise
            except ConflictError as error:
                if error.kind not in kinds or turn == PLANS_MAX:
                    raise
                self._format.refresh(afresh=True)
                self.queue_first = QUEUE_MEMORY
        raise AssertionError("unreachable")

    def _has_changed(self, known: object) -> bool:
        """Whether the table has moved to another version, which is known afterwards."""
        if known is None:
            return False
        with suppress(StorageError):
            self._format.refresh()
        return self._format.mark() != known

    def _receipt(self, done: DoneT, write: Named, started_s: float) -> Receipt:
        """The receipt of a commit, which is logged; what it showed of the table is kept."""
        receipt = done.receipt(self.uri, write, since(self.world, started_s))
        self.queue_first = QUEUE_MEMORY if done.contended else max(0, self.queue_first - 1)
        with after_ack(self.uri):
            log.info(
                "%s in version %d",
                receipt.outcome.value,
                done.version,
                extra={"table": receipt.table, "receipt": receipt.to_dict()},
            )
        with after_ack(self.uri):
            self._format.after(done, since(self.world, started_s))
        with after_ack(self.uri):
            if (context := spark_context()) is not None:
                self._format.tell_spark(context)
        with after_ack(self.uri):
            unlike, self._format.unlike = self._format.unlike, None
            if unlike is not None:
                unlike()
        if not done.already:
            self._deadline.note(receipt.elapsed_s, done.attempts)
        return receipt


def _by_tasks(data: Any) -> TaskChanges | None:
    """Changes that only tasks have."""
    from safewrite.changes.members.task_changes import task_changes

    return task_changes(data)


def repeated(
    table_format: Format[VersionT, PlanT, DoneT],
    count: Callable[[], Counted],
    operation: Operation,
    name: Identity,
    on: VersionT,
    *,
    then: Callable[[int], Named | None] | None = None,
) -> Receipt | None:
    """The receipt of a write that was committed before the table got other columns or defaults, if it was.

    Columns that were added since do not change a fingerprint.  Defaults do, for they are filled before it is taken: ``then``
    names the write as it was on the version that has it, and gives None where that is gone.  A table that is not there has none, and
    is not asked: its ledger would be made.
    """
    key = name.as_key
    if key is None or on is None or (then is None and operation.verb != "append"):
        return None
    found = resolved(table_format, key)
    if found is None:
        return None
    if operation.verb == "append":
        with suppress(NotCommittedError):
            if table_format.planner.name(count(), name, on).fingerprint == found.fingerprint:
                return found
    write = None if then is None else then(found.version)
    return found if write is not None and write.fingerprint == found.fingerprint else None


def resolved(table_format: Format[Any, Any, Any], key: str) -> Receipt | None:
    """The receipt of the write that was committed under this key, if one was."""
    world, started_s = table_format.world, monotonic_s(table_format.world)
    found = table_format.resolve(key)
    return None if found is None else Receipt.recalled(table_format.uri, *found, since(world, started_s))


def since(world: Performer, started_s: float) -> float:
    """Seconds since then; 0 where the clock raises, for a receipt does not depend on it."""
    with suppress(Exception):
        return monotonic_s(world) - started_s
    return 0.0
