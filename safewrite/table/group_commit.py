"""Keeps what is known of a group while it is committed: the ledger's records, and the members that are settled."""

from __future__ import annotations

from collections.abc import Callable, Container, Generator
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from safewrite.errors import ReplayMismatchError, SafewriteError
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, NewId, Ok, Outcome
from safewrite.protocol.members import Met
from safewrite.protocol.values import LedgerRecord
from safewrite.receipt import Done, Named

DoneT = TypeVar("DoneT", bound=Done)


class PlannedGroup(Protocol):
    """A plan of a group; its members become fewer as others commit some of them."""

    write: Any
    met: dict[str, Met | SafewriteError]

    def without(self, known: Container[str], write_id: str, /) -> None:
        """Go on without the members of these keys, as another commit with other files."""


PlanT = TypeVar("PlanT", bound=PlannedGroup)


@dataclass(slots=True)
class GroupWork(Generic[PlanT, DoneT]):
    """A group on its way: ``records`` are the ledger's, ``known`` has what became of members that the commit does not carry."""

    plan: PlanT
    limits: Limits
    records: dict[str, LedgerRecord] = field(default_factory=dict)
    known: dict[str, DoneT | SafewriteError] = field(default_factory=dict)

    @property
    def write(self) -> Named:
        """The first member that is left, which an error of the whole group names: what became of it became of all."""
        first: Named = self.plan.write.each[0]
        return first

    def own_records(self) -> list[LedgerRecord]:
        """The ledger's records of the members that are to be committed."""
        return [self.records[one.key] for one in self.plan.write.members if one.key in self.records]

    def leave_out(
        self, repeated: Callable[[Any, Met], Generator[Effect, Outcome, DoneT]]
    ) -> Generator[Effect, Outcome, None]:
        """Take the members that other commits carry, or that are at fault, out of the group."""
        plan, known = self.plan, self.known
        for write in plan.write.members:
            met = plan.met.get(write.key)
            if isinstance(met, Met):
                try:
                    known[write.key] = yield from repeated(write, met)
                except ReplayMismatchError as error:
                    known[write.key] = error
            elif met is not None:
                known[write.key] = met
        plan.met.clear()
        if any(write.key in known for write in plan.write.members):
            fresh_id = yield NewId(name="group.id")
            assert isinstance(fresh_id, Ok)
            plan.without(known, str(fresh_id.value))

    def remember(
        self, version: int | None, remembered: Container[str] = ()
    ) -> Generator[Effect, Outcome, None]:
        """Tell the ledger of each member where its commit is; nothing of this can undo one.

        ``version`` is of the commit that carries what is left of the group; the ledger has those that it ``remembered``.
        """
        landed = {} if version is None else {write.key: version for write in self.plan.write.members}
        for key, answer in self.known.items():
            record = self.records.get(key)
            if isinstance(answer, Done) and record is not None and record.version != answer.version:
                landed[key] = answer.version
        told = [
            (self.records[key], at)
            for key, at in landed.items()
            if key in self.records and key not in remembered
        ]
        yield from keys.remember_all(told, self.limits)
