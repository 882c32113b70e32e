"""Probes whether the store keeps its word: of two creates of one name, one must lose.

Some stores that speak S3's API ignore ``If-None-Match``, or check and write in two steps, so that
several racers win (A1, A13, A14).  On such a store no writer can be safe, and safewrite refuses it.
"""

from __future__ import annotations

import contextlib
import uuid
from concurrent.futures import ThreadPoolExecutor

from safewrite.errors import Kind, StorageError, UnsafeConfigError
from safewrite.protocol.effects import Exists, Ok, Outcome
from safewrite.protocol.values import Entry
from safewrite.stores.abc import LockTable, ObjectStore

SCRATCH = "_safewrite/probe/"
RACERS = 4


def probe_objects(objects: ObjectStore, *, rounds: int = 2) -> None:
    """Race conditional creates of scratch objects; leaves nothing behind.

    Raises:
        UnsafeConfigError: a create won over an object that was there, or two racers both won.
        StorageError: the store answers nothing clear, so nothing is known about it.
    """
    path = f"{SCRATCH}{uuid.uuid4()}"
    try:
        first, second = objects.put_if_absent(path, b"first"), objects.put_if_absent(path, b"second")
        kept = objects.get(path)
        _judge([first, second], f"the object store of {objects.root}")
        if not isinstance(kept, Ok):
            raise _unclear(f"the object store of {objects.root}", kept)
        # Where the first answer was lost, either of the two may rightly stand.
        if kept.value not in ((b"first",) if isinstance(first, Ok) else (b"first", b"second")):
            raise _liar(
                f"the object store of {objects.root}", "it replaced an object by a conditional create"
            )
        with ThreadPoolExecutor(RACERS) as pool:
            for turn in range(rounds):
                name = f"{path}-{turn}"
                bodies = [f"racer {number}".encode() for number in range(RACERS)]
                answers = list(pool.map(lambda body, name=name: objects.put_if_absent(name, body), bodies))
                objects.delete(name)
                _judge(answers, f"the object store of {objects.root}")
    finally:
        objects.delete(path)


def probe_locks(locks: LockTable, remove: object = None) -> None:
    """Put one scratch entry twice; the second put must be refused.

    ``locks`` must be opened on a scratch table path; ``remove`` deletes the entry afterwards.

    Raises:
        UnsafeConfigError: the second put won: the lock table ignores conditions (A14).
        StorageError: the lock table is missing or answers nothing clear.
    """
    name = f"{0:020d}.json"
    first = locks.put_entry_if_absent(Entry(name, ".tmp/first", complete=True))
    second = locks.put_entry_if_absent(Entry(name, ".tmp/second", complete=True))
    if callable(remove):
        with contextlib.suppress(Exception):  # a scratch entry that stays behind harms nobody
            remove(Entry(name, ".tmp/first"))
    _judge([first, second], "the lock table")


def _judge(answers: list[Outcome], what: str) -> None:
    winners = sum(isinstance(answer, Ok) for answer in answers)
    if winners > 1:
        raise _liar(what, f"{winners} of {len(answers)} creates of one name won")
    unclear = [answer for answer in answers if not isinstance(answer, Ok | Exists)]
    if winners == 0 and unclear:
        raise _unclear(what, unclear[0])


def _unclear(what: str, answer: Outcome) -> StorageError:
    return StorageError(
        f"The probe of {what} got no clear answer: {getattr(answer, 'detail', '') or answer}. "
        "Nothing was written to the table. Check the address and the permissions (put, get and delete "
        "objects; put, get, update and query items), then call again."
    )


def _liar(what: str, how: str) -> UnsafeConfigError:
    return UnsafeConfigError(
        f"Refused: {what} does not keep conditional creates exclusive ({how}), so two writers could both "
        "be told that they own one version. Nothing was written to the table. Use a store that honours "
        "If-None-Match atomically, such as Amazon S3.",
        kind=Kind.DISHONEST_STORE,
    )
