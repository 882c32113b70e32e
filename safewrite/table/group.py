"""Keeps the members of one ``append_many`` or ``apply_changes_many`` call: their names, their rows, and one answer for each."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from safewrite.arguments.options import GENERATED, identity
from safewrite.arguments.reading import reading
from safewrite.errors import (
    InternalError,
    InvalidInputError,
    Kind,
    NotCommittedError,
    ReplayMismatchError,
    SafewriteError,
    WouldAlterError,
)
from safewrite.frames.source import is_spark
from safewrite.protocol import keys
from safewrite.protocol.keys import Identity
from safewrite.receipt import Named, Receipt
from safewrite.table.mismatch import in_one_call
from safewrite.text.rendering import shown

if TYPE_CHECKING:
    from safewrite.changes.meaning.member_batches import MemberChanges
    from safewrite.changes.meaning.reading import Changes, NewColumns
    from safewrite.frames.prepare import Prepared

Answer = Receipt | SafewriteError


@dataclass
class Member:
    """One write of a group; ``given`` is how the caller names it."""

    given: Any
    data: Any
    name: Identity = field(default_factory=Identity)
    write: Named | None = None
    prepared: Prepared | None = None
    changes: Changes | None = None
    answer: Answer | None = None
    ordered_in: Hashable = None
    """The queue's group that it belongs to, whose order is kept; None for no group."""
    same_as: Member | None = None
    """An earlier member of the same key and rows, which is written for both."""

    @property
    def key(self) -> str | None:
        """The key that decides it, as far as it is known."""
        return self.write.key if self.write else self.name.as_key

    def rows(self) -> Prepared:
        """The rows that were checked.

        Raises:
            InternalError: they were not.
        """
        if self.prepared is None:
            raise InternalError("A member of the group was not prepared. Please report it.")
        return self.prepared

    def fail(self, error: SafewriteError) -> None:
        """Answer with an error, which names the member."""
        error.key = error.key or self.key
        self.answer = error


class Group:
    """The members of one call, in its order; ``on`` is the version that they are planned on."""

    def __init__(
        self, members: Iterable[Any], groups: Iterable[Hashable] | None = None, *, verb: str = "append_many"
    ) -> None:
        self.on: Any = None
        self.planned = False
        self.prepared: list[Prepared] = []
        """The rows that were checked so far."""
        self.columns: NewColumns | None = None
        """What the changes that were checked so far ask of the table's schema."""
        self.members = [Member(*pair) for pair in _pairs(members, verb)]
        for member, ordered_in in zip(self.members, _groups(groups, len(self.members)), strict=True):
            member.ordered_in = ordered_in
        for member in self.members:
            try:
                member.name = _name(member, verb.removesuffix("_many"))
            except SafewriteError as error:
                member.fail(error)

    @property
    def open(self) -> list[Member]:
        """Members without an answer that are not another one's repeat."""
        return [member for member in self.members if member.answer is None and member.same_as is None]

    @property
    def first_key(self) -> str | None:
        """The key of the first member without an answer: what became of it became of all that have none."""
        return next((member.key for member in self.open if member.key is not None), None)

    def answers(self) -> list[Answer]:
        """One answer for each member, in order.

        Raises:
            InternalError: a member has none.
        """
        return list(self._answers())

    def _answers(self) -> Iterator[Answer]:
        for member in self.members:
            answer = member.answer if member.same_as is None else _repeat(member.same_as.answer)
            if answer is None:
                raise InternalError("A member of the group has no answer. Please report it.")
            yield answer

    def once(self) -> None:
        """Let each key count once: a later member with the rows of an earlier one is its repeat."""
        first: dict[str, Member] = {}
        apps: set[str] = set()
        for member in self.open:
            assert member.write is not None
            earlier = first.setdefault(member.write.key, member)
            if earlier is not member:
                _repeats(member, earlier)
            elif member.write.txn is not None and member.write.txn[0] in apps:
                member.fail(_second_batch(member.write.txn))
            elif member.write.txn is not None:
                apps.add(member.write.txn[0])

    def keep_order(self) -> None:
        """Leave out what comes after a member at fault in its queue's group."""
        at_fault: dict[Hashable, Member] = {}
        for member in self.members:
            first = at_fault.get(member.ordered_in)
            if member.ordered_in is None or isinstance(member.answer, Receipt):
                continue
            if first is None and member.answer is not None:
                at_fault[member.ordered_in] = member
            elif first is not None and member.answer is None:
                member.fail(_held_back(member, first))

    def plan_again(self) -> None:
        """Forget what the version said that the last plan was made on."""
        self.on, self.planned, self.prepared, self.columns = None, False, [], None
        for member in self.members:
            member.same_as = member.write = member.prepared = member.changes = None
            held_back = isinstance(member.answer, NotCommittedError) and member.answer.kind == Kind.HELD_BACK
            if held_back or isinstance(member.answer, WouldAlterError):
                member.answer = None

    @property
    def altered(self) -> list[Member]:
        """Members that the table's schema would change."""
        return [member for member in self.members if isinstance(member.answer, WouldAlterError)]


@reading("The list of members")
def _pairs(members: Iterable[Any], verb: str) -> list[tuple[Any, Any]]:
    try:
        pairs = [tuple(pair) for pair in members] if not isinstance(members, str | bytes | Mapping) else None
    except TypeError:
        pairs = None
    if pairs is None or any(len(pair) != 2 for pair in pairs):
        raise InvalidInputError(
            f"{verb} takes a list of pairs (key, data), not {shown(members)}. Nothing was written. Write "
            f"{verb}([(key_a, rows_a), (key_b, rows_b)]); of a dict, give its items()."
        )
    return [(key, data) for key, data in pairs]


@reading("groups=")
def _groups(groups: Iterable[Hashable] | None, count: int) -> list[Hashable]:
    try:
        found: list[Any] = (
            [None] * count if groups is None else [] if isinstance(groups, str | bytes) else list(groups)
        )
    except TypeError:
        found = []
    if len(found) != count or not all(isinstance(one, Hashable) for one in found):
        raise InvalidInputError(
            f"groups= names the group of each member, or None: {count} of them, not {shown(groups)}. Nothing was written."
        )
    return found


def changes_of(members: Iterable[Member]) -> tuple[MemberChanges, ...]:
    """The changes of members, in their order."""
    from safewrite.changes.meaning.member_batches import MemberChanges

    return tuple(
        MemberChanges(member.write.key, member.changes, member.ordered_in)
        for member in members
        if member.write is not None and member.changes is not None
    )


def _held_back(member: Member, first: Member) -> NotCommittedError:
    return NotCommittedError(
        f"It comes after {first.name.key or first.given!r} in the group {shown(member.ordered_in)}, which is at fault: it "
        "was left out, so that the group keeps its order. Nothing of it was written. Deliver it again after that one is "
        "mended or taken out.",
        kind=Kind.HELD_BACK,
    )


def _name(member: Member, alone: str) -> Identity:
    if is_spark(member.data):
        raise InvalidInputError(
            "A Spark DataFrame cannot share a commit with other writes. Nothing of it was written. Write it by "
            f"{alone}(frame, key=...)."
        )
    named = member.given
    if isinstance(named, tuple | list):
        return identity(GENERATED, (named[0], named[1]) if len(named) == 2 else tuple(named))
    return identity(named, GENERATED)


def _repeats(member: Member, earlier: Member) -> None:
    assert member.write is not None
    assert earlier.write is not None
    try:
        keys.must_match_in_call(member.write.key, earlier.write.fingerprint, member.write.fingerprint)
    except ReplayMismatchError as error:
        member.fail(error if member.changes else in_one_call(error, earlier.rows(), member.rows()))
    else:
        member.same_as = earlier


def _repeat(answer: Answer | None) -> Answer | None:
    return answer.as_repeat() if isinstance(answer, Receipt) else answer


def _second_batch(txn: tuple[str, int]) -> InvalidInputError:
    return InvalidInputError(
        f"Batch {txn[1]} of app {txn[0]!r} is the second of that app in one call: a commit records one batch of an app. "
        "Nothing of it was written. Append it by a call of its own, after this one."
    )
