"""Reports a write's retries, waits, repairs and end to a log, and to listeners."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Literal, TypeAlias, TypeVar, cast

from safewrite.errors import InvalidInputError, SafewriteError
from safewrite.errors import Kind as ErrorKind
from safewrite.protocol.effects import (
    Backoff,
    Busy,
    Effect,
    Exists,
    Now,
    Ok,
    Outcome,
    PassTurn,
    PutIfAbsent,
    ReadQueue,
    Sleep,
    TakeTicket,
    Together,
    Unknown,
)
from safewrite.protocol.values import Queue
from safewrite.receipt import Receipt
from safewrite.text.rendering import said, shown

log = logging.getLogger("safewrite")

Kind: TypeAlias = Literal[
    "retry",
    "wait",
    "turn",
    "repair",
    "commit",
    "failed",
    "checkpoint",
    "upkeep",
    "table_run",
    "table_batch",
    "stream",
]
_DETAIL_MAX = 300


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a call did, or how a write ended.

    ``kind`` is ``"retry"`` (a request or a commit is tried again), ``"wait"`` (a turn in the queue of writers is waited
    for), ``"turn"`` (it came, after ``wait_s``), ``"repair"`` (another writer's unfinished commit was finished, or its
    turn was passed over), ``"commit"`` (a write was acknowledged; details as in its receipt), ``"failed"`` (a write
    raised; ``error`` is the error's kind), ``"checkpoint"`` (one was made after a write, in a thread of its own, or could not be
    made: then it has an ``error``), ``"upkeep"`` (``maintain`` has ended; details as in its report), ``"table_run"`` (a medallion job is done with a table for now),
    ``"table_batch"`` (a job of change data landed a batch in a table) or ``"stream"`` (how far its stream is, or that it
    ended by an error); more kinds may come.  ``table`` is the table's address or name, ``text`` a sentence, ``details`` its numbers by name.
    """

    kind: Kind
    table: str
    text: str
    details: Mapping[str, Any] = field(default_factory=dict)


OnEvent: TypeAlias = Callable[[Event], object]
"""What is given as ``on_event=``."""


class Listener:
    """The receiver of events; what it raises is logged, and stops no write.

    Pickled, it is the same callable where that can be pickled, and none where it cannot: the table is sent
    without it.
    """

    def __init__(self, call: OnEvent | None) -> None:
        self.call = call

    def __call__(self, event: Event) -> None:
        if self.call is None:
            return
        try:
            self.call(event)
        except Exception as error:  # noqa: BLE001 - the user's code: a write does not depend on it
            with suppress(Exception):
                log.warning(
                    "on_event= raised: %s", said(error), extra={"table": event.table, "kind": event.kind}
                )

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            pickle.dumps(self.call)
        except Exception:  # noqa: BLE001 - whatever it raises: it cannot be sent
            return (Listener, (None,))
        return (Listener, (self.call,))


def listener(call: object) -> Listener | None:
    """The listener given as ``on_event=``, checked.

    Raises:
        InvalidInputError: it cannot be called.
    """
    if call is None or isinstance(call, Listener):
        return call
    if not callable(call):
        raise InvalidInputError(
            f"on_event= is a function of one safewrite.Event, not {shown(call)}. Nothing was written."
        )
    return Listener(call)


class Watch:
    """Watches the effects of one call, and makes events of them.

    It raises nothing: an effect was performed, and the protocol must get its outcome.
    """

    def __init__(self, world: object) -> None:
        self._tell = getattr(world, "listener", None)
        self._table = str(getattr(getattr(world, "objects", None), "root", ""))
        self._failing: dict[str, tuple[Effect, Outcome]] = {}
        self._last: tuple[Effect, Outcome] | None = None
        self._waiting: list[float] | None = None
        """The clock's readings since a ticket was taken whose turn had not come."""

    def asked(self, effect: Effect) -> None:
        """Note an effect that is about to be performed."""
        with suppress(Exception):
            self._asked(effect)

    def answered(self, effect: Effect, outcome: Outcome) -> None:
        """Note an effect that was performed."""
        with suppress(Exception):
            self._answered(effect, outcome)

    def _asked(self, effect: Effect) -> None:
        if self._waiting is not None and not _is_of_the_wait(effect):
            self._served()
        for part in effect.effects if isinstance(effect, Together) else (effect,):
            failing = self._failing.pop(part.name.removesuffix(".backoff"), None)
            if isinstance(part, Backoff):
                self._retry(part, failing or self._last)
            elif failing is not None and failing[0] is part:  # asked again at once
                self._retry(Backoff(1, name=part.name), failing)

    def _answered(self, effect: Effect, outcome: Outcome) -> None:
        if isinstance(effect, Together):
            parts = outcome.value if isinstance(outcome, Ok) else (outcome,) * len(effect.effects)
            for one, own in zip(effect.effects, parts, strict=True):  # type: ignore[call-overload]
                self._answered(one, own)
        elif isinstance(outcome, Busy | Unknown | Exists):
            self._failing[effect.name] = self._last = (effect, outcome)
        elif isinstance(effect, TakeTicket):
            self._queued(outcome)
        elif isinstance(effect, Now) and self._waiting is not None and isinstance(outcome, Ok):
            self._waiting.append(outcome.value)  # type: ignore[arg-type]
        elif isinstance(effect, PassTurn) and effect.name == "lease.pass_over":
            self._event(
                "repair", "A writer that did not move was passed over in the queue", ticket=effect.ticket
            )
        elif effect.name == "share.pass_over":
            self._event(
                "repair",
                "A writer that was to commit for others did not move and was passed over",
                passed_over=True,
            )
        elif (
            isinstance(effect, PutIfAbsent) and effect.name.startswith("repair.") and isinstance(outcome, Ok)
        ):
            self._event(
                "repair", f"The commit {effect.path}, which another writer left unfinished, was finished"
            )

    def _retry(self, pause: Backoff, failing: tuple[Effect, Outcome] | None) -> None:
        effect, outcome = failing or (None, None)
        if effect is None or isinstance(outcome, Exists):
            text = "Other writers were first; trying again after them"
        else:
            detail = getattr(outcome, "detail", "")[:_DETAIL_MAX].rstrip(".") or type(outcome).__name__
            text = f"{effect} failed: {detail}; asking again"
        self._event("retry", text, attempt=pause.attempt, step=pause.name.removesuffix(".backoff"))

    def _queued(self, outcome: Outcome) -> None:
        match outcome:
            case Ok((int(ticket), Queue(serving=serving))) if serving < ticket:
                self._event(
                    "wait",
                    f"{ticket - serving} turns of other writers come first",
                    ticket=ticket,
                    serving=serving,
                )
                self._waiting = []

    def _served(self) -> None:
        readings_s, self._waiting = self._waiting, None
        if readings_s:
            wait_s = readings_s[-1] - readings_s[0]
            self._event("turn", f"The turn came after {wait_s:.2f} s", wait_s=wait_s)

    def _event(self, kind: Kind, text: str, **details: Any) -> None:
        with suppress(Exception):  # handlers and filters of logs are the user's, and may raise
            log.info(
                "%s (%s)", text, self._table, extra={"table": self._table, "kind": kind, "details": details}
            )
        if self._tell is not None:
            self._tell(Event(kind, self._table, text, details))


def _is_of_the_wait(effect: Effect) -> bool:
    """Whether a writer does this while it waits for its turn."""
    return isinstance(effect, Now | Sleep | ReadQueue | PassTurn)


# --- how a write ended ------------------------------------------------------------------------------
def tell(world: Any, event: Event) -> None:
    """Tell a table's listener, if it has one."""
    listener = getattr(world, "listener", None)
    if listener is not None:
        with suppress(Exception):
            listener(event)


W = TypeVar("W", bound=Callable[..., Any])


def told(write: W) -> W:
    """Let a table's listener know how each write ended.  A write without a listener costs nothing more.

    ``write`` is a method of a table's writer, whose second argument is the operation; it returns a receipt, or an answer
    for each member of a group.
    """

    @wraps(write)
    def telling(writer: Any, data: Any, operation: Any, *name: Any) -> Any:
        world = getattr(writer, "world", None)
        listens = getattr(world, "listener", None)
        if listens is None:
            return write(writer, data, operation, *name)
        started_s = _now_s(world)
        try:
            result = write(writer, data, operation, *name)
        except Exception as error:
            with suppress(Exception):
                listens(_failure(writer.uri, operation.verb, error, _now_s(world) - started_s))
            raise
        with suppress(Exception):
            answers = result if isinstance(result, list) else [result]
            for fault in (one for one in answers if isinstance(one, SafewriteError)):
                listens(_failure(writer.uri, operation.verb, fault, _now_s(world) - started_s))
            receipts = [one for one in answers if isinstance(one, Receipt)]
            if receipts:
                listens(_ending(operation.verb, receipts))
        return result

    return cast(W, telling)


def _failure(table: str, verb: str, error: Exception, elapsed_s: float) -> Event:
    kind = error.kind if isinstance(error, SafewriteError) else ErrorKind.INTERNAL
    details = {
        "operation": verb, "error": kind.value, "key": getattr(error, "key", None), "elapsed_s": elapsed_s
    }  # fmt: skip
    return Event("failed", table, f"{verb} failed: {kind.value}", details)


def _ending(verb: str, receipts: list[Receipt]) -> Event:
    """One event for a commit, whatever the number of its members."""
    committed = [one for one in receipts if one.outcome == "committed"]
    first, rows = (committed or receipts)[0], sum(one.rows for one in committed or receipts)
    details = {"operation": verb, **first.to_dict(), "rows": rows}
    if len(receipts) == 1:
        return Event("commit", first.table, str(first), details)
    text = f"{first.outcome.value} in version {first.version} of {first.table}: {rows} rows of {len(receipts)} members"
    return Event("commit", first.table, text, {**details, "members": len(receipts)})


def _now_s(world: Any) -> float:
    """The world's clock; 0 where it raises, for a write does not depend on who listens."""
    with suppress(Exception):
        return float(world.perform(Now()).value)
    return 0.0
