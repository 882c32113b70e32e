"""Probes whether the store keeps its word: of two creates of one name, one must lose.

Some stores that speak S3's API ignore ``If-None-Match``, or check and write in two steps, so that
several racers win (A1, A13, A14).  On such a store no writer can be safe, and safewrite refuses it.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from safewrite.errors import Kind, StorageError, UnsafeConfigError
from safewrite.protocol.ask import Limits, Patience
from safewrite.protocol.effects import Backoff, Effect, Exists, Missing, Ok, Outcome
from safewrite.protocol.values import Entry
from safewrite.stores.abc import LockTable, ObjectStore
from safewrite.stores.call_limit import carried
from safewrite.stores.world import run

if TYPE_CHECKING:
    from safewrite.stores.world import Performer

SCRATCH = "_safewrite/probe/"
RACERS = 4


def probe_objects(objects: ObjectStore, world: Performer, limits: Limits, *, rounds: int = 2) -> None:
    """Race conditional creates of scratch objects; leaves nothing behind.

    What the store leaves unclear is asked again as ``limits`` allow; ``world`` waits meanwhile.

    Raises:
        UnsafeConfigError: a create won over an object that was there, or two racers both won.
        StorageError: the store answers nothing clear, so nothing is known about it.
    """
    path, what = f"{SCRATCH}{uuid.uuid4()}", f"the object store of {objects.root}"
    try:
        first, second = _until_clear(
            lambda: [objects.put_if_absent(path, b"first"), objects.put_if_absent(path, b"second")],
            world,
            limits,
        )
        kept = _until_clear(lambda: [objects.get(path)], world, limits)[0]
        _judge([first, second], what)
        if not isinstance(kept, Ok):
            raise _unclear(what, kept)
        # Where an answer was lost, either of the two may rightly stand.
        if kept.value not in ((b"first",) if isinstance(first, Ok) else (b"first", b"second")):
            raise _liar(what, "it replaced an object by a conditional create")
        with ThreadPoolExecutor(RACERS) as pool:
            for turn in range(rounds):
                race = partial(_race, objects, f"{path}-{turn}", pool)
                _judge(_until_clear(race, world, limits), what)
    finally:
        objects.delete(path)


def _race(objects: ObjectStore, name: str, pool: ThreadPoolExecutor) -> list[Outcome]:
    """The answers to several creates of one name at once."""
    bodies = [f"racer {number}".encode() for number in range(RACERS)]
    create = carried(objects.put_if_absent)
    answers = list(pool.map(lambda body: create(name, body), bodies))
    objects.delete(name)
    return answers


def probe_locks(locks: LockTable, world: Performer, limits: Limits, *, remove: object = None) -> None:
    """Put one scratch entry twice; the second put must be refused.

    ``locks`` must be opened on a scratch table path; ``remove`` deletes the entry afterwards.  What is unclear is asked
    again as by :func:`probe_objects`.

    Raises:
        UnsafeConfigError: the second put won: the lock table ignores conditions (A14).
        StorageError: the lock table is missing or answers nothing clear.
    """
    entries = [Entry(f"{0:020d}.json", f".tmp/{name}", complete=True) for name in ("first", "second")]
    answers = _until_clear(lambda: [locks.put_entry_if_absent(entry) for entry in entries], world, limits)
    if callable(remove):
        with contextlib.suppress(Exception):  # a scratch entry that stays behind does no harm
            remove(entries[0])
    _judge(answers, "the lock table")


def _until_clear(ask: Callable[[], list[Outcome]], world: Performer, limits: Limits) -> list[Outcome]:
    """The answers, once one of them is clear; or the last ones, where patience ends."""

    def steps() -> Generator[Effect, Outcome, list[Outcome]]:
        patience = Patience(limits)
        while True:
            answers = ask()
            clear = any(isinstance(answer, Ok | Exists | Missing) for answer in answers)
            if clear or not (yield from patience.again(*answers)):
                return answers
            yield Backoff(patience.tries, name="probe.backoff")

    return run(steps(), world)


def _judge(answers: list[Outcome], what: str) -> None:
    winners = sum(isinstance(answer, Ok) for answer in answers)
    if winners > 1:
        raise _liar(what, f"{winners} of {len(answers)} creates of one name won")
    unclear = [answer for answer in answers if not isinstance(answer, Ok | Exists)]
    if winners == 0 and unclear:
        raise _unclear(what, unclear[0])


def _unclear(what: str, answer: Outcome) -> StorageError:
    advice = getattr(answer, "advice", "") or (
        "Check the address and the permissions (put, get and delete objects; put, get, update and query items), then call again."
    )
    return StorageError(
        f"The probe of {what} got no clear answer: {(getattr(answer, 'detail', '') or str(answer)).rstrip('.')}. "
        f"Nothing was written to the table. {advice}"
    )


def _liar(what: str, how: str) -> UnsafeConfigError:
    return UnsafeConfigError(
        f"Refused: {what} does not keep conditional creates exclusive ({how}), so two writers could both "
        "be told that they own one version. Nothing was written to the table. Use a store that honours "
        "If-None-Match atomically, such as Amazon S3.",
        kind=Kind.DISHONEST_STORE,
    )
