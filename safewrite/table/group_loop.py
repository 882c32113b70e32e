"""Runs the loop around many writes that share a commit: each is checked and named, and gets an answer of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from safewrite.errors import InvalidInputError, Kind, ReplayMismatchError, SafewriteError, WouldAlterError
from safewrite.stores.events import told
from safewrite.stores.world import monotonic_s
from safewrite.table.group import Answer, Group, Member
from safewrite.table.mismatch import Explainer
from safewrite.table.operation import Operation, naming
from safewrite.table.write_loop import PLANS_MAX, DoneT, PlanT, VersionT, WriteLoop

if TYPE_CHECKING:
    from safewrite.frames import Prepared


class GroupLoop(WriteLoop[VersionT, PlanT, DoneT]):
    """The loop around a write of many members."""

    @told
    def _write_many(self, group: Group, operation: Operation) -> list[Answer]:
        started_s = monotonic_s(self.world)

        def attempt() -> None:
            self._prepare_group(group, operation)
            if group.open:
                self._commit_open(group, operation, started_s)

        with self._within(operation.timeout_s, started_s), naming(lambda: group.first_key):
            kinds = {Kind.SCHEMA_CHANGED, *self._REPLANNED}
            self._replanned(attempt, kinds if operation.verb == "append" else {Kind.CONFLICT, *kinds})
        return group.answers()

    def _prepare_group(self, group: Group, operation: Operation) -> None:
        """Check and name each member, on a version that has the columns of all if there is one."""
        for _ in range(PLANS_MAX):
            known = self._mark()
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
        from safewrite.frames import prepare_alike

        return prepare_alike(
            [member.data for member in members],
            group.prepared[-1],
            schema_mode=operation.schema_mode,
            volatile=operation.volatile,
        )

    def _prepare_changes(self, group: Group, member: Member, operation: Operation) -> None:
        if not group.planned:
            group.on, group.planned = self._planned_on(operation, member.data, alone=False), True
        member.changes, member.write = self._read_changes(member.data, operation, member.name, group.on)

    def _prepare_member(
        self, group: Group, member: Member, operation: Operation, checked: Prepared | None
    ) -> None:
        if not group.planned:
            group.on, group.planned = self._planned_on(operation, member.data, alone=False), True
        try:
            if checked is not None:
                member.prepared = self._fitting(checked, group.on)
            else:
                member.prepared = self._prepare_next(member.data, operation, group.on, group.prepared)
        except WouldAlterError:
            count = partial(self._count, member.data, operation, group.on)
            member.answer = self._repeated(count, operation, member.name, group.on)
            if member.answer is None:
                raise
            return
        group.prepared.append(member.prepared)
        member.write = self._name(member.prepared, group.on, member.name)

    def _fitting(self, prepared: Prepared, _on: VersionT | None) -> Prepared:
        """Rows that were checked beside those of other members, if the table has room for them.

        Raises:
            WouldAlterError: it has none.
        """
        return prepared

    def _answering(self, member: Member, step: Callable[[], None]) -> None:
        """Answer a member with the error that is its own; what concerns all is raised."""
        try:
            step()
        except (InvalidInputError, WouldAlterError, ReplayMismatchError) as error:
            member.fail(error)

    def _commit_open(self, group: Group, operation: Operation, started_s: float) -> None:
        members = group.open
        plan, encode = self._plan_group(members, operation, group.on)
        plan.properties, plan.positions = operation.properties, operation.positions
        landed = self._commit_group(plan, encode)
        done = landed.done
        written = {write.key: write for write in landed.writes}
        explainer = Explainer(self._recorded)
        for member in members:
            assert member.write is not None
            own = written.get(member.write.key)
            known = done if own is not None else landed.known[member.write.key]
            if isinstance(known, SafewriteError):
                rows = None if member.changes is not None else member.rows
                member.fail(known if rows is None else explainer.explained(known, operation.volatile, rows))
                continue
            assert known is not None
            if own is not None:
                known = replace(known, rows=own.rows, changes=own.changes)
                if own.changes is not None:
                    known = replace(known, removed_rows=None)  # counted for all members together
            member.answer = known.receipt(self.uri, member.write, self._since(started_s))
        if done is not None:
            whole = done.receipt(self.uri, plan.write, self._since(started_s))
            self._landed(done, whole, started_s)
