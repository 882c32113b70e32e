"""Records each idempotency key, so that a retry knows from which version to read.

The log is the truth.  The ledger holds INTENT {base version} from before the first attempt: any
commit under the key comes after it, so a retry that has examined everything since finds it.
COMMITTED {version} is put after the commit, and only saves a repeat from reading.
"""

from __future__ import annotations

import logging
import operator
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace

from safewrite.errors import InvalidInputError, NotCommittedError, ReplayMismatchError
from safewrite.protocol.ask import Limits, Patience, ask, side_by_side, unanswered
from safewrite.protocol.effects import (
    Backoff,
    Effect,
    Failed,
    LedgerCommit,
    LedgerGet,
    LedgerIntend,
    Missing,
    Ok,
    Outcome,
)
from safewrite.protocol.values import LedgerRecord
from safewrite.text.rendering import shown

log = logging.getLogger("safewrite")

KEY_LENGTH_MAX = 1024
MEMORY_APP = "safewrite.changes"
"""The app whose version in a Delta table names the file of what is remembered of deleted keys."""
RESERVED = ("safewrite:", MEMORY_APP)
"""Beginnings of the app ids under which a table keeps records of its own: of a stream's last batch, of positions, of keys."""
MARK = "safewrite:ledger"
"""The key of the ledger's own record, which goes with it where the ledger is emptied; it never expires."""
OFFSETS = "offsets1"
"""The kind of fingerprint that names a stream's batch by its source offsets."""
_GENERATED = re.compile(r"sw~(\d+)~[0-9a-f-]{36}")


@dataclass(frozen=True, slots=True)
class Identity:
    """How the caller names a write: by a key, by a stream's batch ``(app_id, version)``, or not at all."""

    key: str | None = None
    txn: tuple[str, int] | None = None

    @property
    def is_given(self) -> bool:
        """Whether a repeat can be recognised."""
        return self.key is not None or self.txn is not None

    @property
    def as_key(self) -> str | None:
        """The key that decides the write, if the caller named it."""
        return self.key if self.txn is None else of_batch(*self.txn)

    def key_for(self, draw: Callable[[], str], base_version: int) -> str:
        """The key that the write has in its table; one is drawn where the caller gave no name."""
        if self.txn is not None:
            return of_batch(*self.txn)
        return check(self.key) if self.key is not None else generated(draw(), base_version)


def check(key: object) -> str:
    """Refuse keys that cannot be stored alike everywhere."""
    if key == MARK or not isinstance(key, str) or not key.strip() or not 0 < _size(key) <= KEY_LENGTH_MAX:
        raise InvalidInputError(
            f"An idempotency key is a non-empty text of at most {KEY_LENGTH_MAX} bytes, not {shown(key)}. "
            "Nothing was written. Take what names the event: a Lambda event id, or bucket/key/version/etag."
        )
    return key


def check_txn(txn: object) -> tuple[str, int]:
    """Refuse what is not a stream's batch."""
    if isinstance(txn, tuple | list) and len(txn) == 2:
        app_id, version = txn[0], whole_number(txn[1])
        if isinstance(app_id, str) and 0 < _size(app_id) <= KEY_LENGTH_MAX and 0 <= version < 2**63:
            return _unreserved(app_id), version
    raise InvalidInputError(
        f"txn is (app_id, version): a non-empty text of at most {KEY_LENGTH_MAX} bytes and a number from 0, not "
        f"{shown(txn)}. Nothing was written."
    )


def _unreserved(app_id: str) -> str:
    if app_id.startswith(RESERVED):
        raise InvalidInputError(
            f"App ids that begin with {' or '.join(map(repr, RESERVED))} are safewrite's own: {shown(app_id)}. Nothing was "
            "written. Name the stream otherwise."
        )
    return app_id


def _size(text: str) -> int:
    """Bytes of a text; 0 if it cannot be stored, for it has half of a pair (a lone surrogate)."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return 0


def whole_number(value: object) -> int:
    """A whole number, of numpy too; -1 for anything else."""
    try:
        return -1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return -1


def generated(unique: str, base_version: int) -> str:
    """A key for a write without one; it carries its base version, so it needs no ledger entry."""
    return f"sw~{base_version + 1}~{unique}"


def base_of_generated(key: str) -> int | None:
    """The base version inside a generated key, or None for a key of the user's own."""
    match = _GENERATED.fullmatch(key)
    return int(match[1]) - 1 if match else None


def intend(record: LedgerRecord, limits: Limits) -> Generator[Effect, Outcome, tuple[LedgerRecord, bool]]:
    """Put INTENT unless the key is known; returns the record in force, and whether it is ours.

    Raises:
        StorageError: the ledger cannot be used; nothing was written to the table.
    """
    put = LedgerIntend(record, name="ledger.intend")
    patience = Patience(limits)
    while True:
        outcome = yield put
        if isinstance(outcome, Ok):
            return record, True
        if isinstance(outcome, Failed):
            break
        known = yield from recall(record.key, limits)
        if known is not None:
            return known, False
        if not (yield from patience.again(outcome)):
            break
        yield Backoff(patience.tries, name="ledger.intend.backoff")
    raise unanswered(put, outcome)


def recall(
    key: str, limits: Limits, *, of_main: bool = False
) -> Generator[Effect, Outcome, LedgerRecord | None]:
    """What the ledger holds for a key; ``of_main``: that of the main branch."""
    get = LedgerGet(key, of_main, name="ledger.get")
    outcome = yield from ask(get, limits)
    if isinstance(outcome, Missing):
        return None
    if not isinstance(outcome, Ok):
        raise unanswered(get, outcome)
    assert isinstance(outcome.value, LedgerRecord)
    return outcome.value


def committing(record: LedgerRecord, version: int) -> LedgerCommit:
    """The effect that puts COMMITTED."""
    return LedgerCommit(replace(record, version=version, in_doubt_at=None), name="ledger.commit")


def remember(record: LedgerRecord, version: int, limits: Limits) -> Generator[Effect, Outcome, None]:
    """Put COMMITTED.  Losing it only makes a repeat read the log: nothing here can undo the commit."""
    try:
        yield from ask(committing(record, version), limits)
    except Exception:
        log.warning("after the commit of version %d: the ledger was not told", version, exc_info=True)


def doubt(record: LedgerRecord, version: int, limits: Limits) -> Generator[Effect, Outcome, bool]:
    """Record at which version an attempt ended in doubt, so that ``resolve`` can tell when it is settled; whether it was.

    It comes while an error of the commit is on its way up: one of its own would take that one's place, and be
    taken for an error from before the commit.
    """
    try:
        answer = yield from ask(
            LedgerCommit(replace(record, in_doubt_at=version), name="ledger.doubt"), limits
        )
    except Exception:
        log.warning("in doubt at version %d: the ledger was not told", version, exc_info=True)
        return False
    return isinstance(answer, Ok)


# --- the ledger itself -------------------------------------------------------------------------------
def mark(table_id: str | None, below: int) -> LedgerRecord:
    """The record that says that the ledger has the key of every commit after version ``below``; -1: of all."""
    return LedgerRecord(MARK, below, "", version=max(below, 0), table_id=table_id)


def is_of_another(record: LedgerRecord, table_id: str | None) -> bool:
    """Whether a record tells of a table that was dropped: its versions are not this table's (A17)."""
    return record.table_id is not None and table_id is not None and record.table_id != table_id


def is_whole(found: LedgerRecord | None, table_id: str | None) -> bool:
    """Whether the ledger has the key of every commit, as its mark says."""
    return found is not None and not is_of_another(found, table_id) and found.base_version < 0


def intend_marked(
    records: Sequence[LedgerRecord], table_id: str | None, limits: Limits
) -> Generator[Effect, Outcome, list[tuple[LedgerRecord, bool]]]:
    """As :func:`intend_all`, where the ledger is whole.

    Raises:
        LedgerGoneError: it is not: what it calls new may be in the log.
    """
    answers, found = yield from side_by_side(intend_all(records, limits), recall(MARK, limits))
    assert isinstance(answers, list)
    assert found is None or isinstance(found, LedgerRecord)
    if not is_whole(found, table_id):
        raise LedgerGoneError(answers, found)
    return answers


# --- the members of a group --------------------------------------------------------------------------
def intend_all(
    records: Sequence[LedgerRecord], limits: Limits
) -> Generator[Effect, Outcome, list[tuple[LedgerRecord, bool]]]:
    """As :func:`intend`, for the members of a group, side by side."""
    answers = yield from side_by_side(*(intend(record, limits) for record in records))
    return [answer for answer in answers if isinstance(answer, tuple)]


class KeysKnownError(NotCommittedError):
    """Some keys of an attempt are known: earlier calls began under them, and what they did is to be found out first."""

    def __init__(self, answers: Sequence[tuple[LedgerRecord, bool]]) -> None:
        super().__init__("The ledger knows some of the keys. Nothing of this attempt was committed.")
        self.answers = answers
        """Those of :func:`intend_all`."""


class LedgerGoneError(KeysKnownError):
    """The ledger was emptied, or is of before it had a mark: the log tells which keys are known."""

    def __init__(self, answers: Sequence[tuple[LedgerRecord, bool]], found: LedgerRecord | None) -> None:
        super().__init__(answers)
        self.found = found
        """The mark, where there is one."""


def intend_new(
    records: Sequence[LedgerRecord], limits: Limits, *, marked: tuple[str | None] | None = None
) -> Generator[Effect, Outcome, None]:
    """As :func:`intend_all`, for keys that are most likely new; with ``marked``, the table's id, as :func:`intend_marked`.

    Raises:
        KeysKnownError: some are not.
        LedgerGoneError: as :func:`intend_marked`.
    """
    if marked is None:
        answers = yield from intend_all(records, limits)
    else:
        answers = yield from intend_marked(records, *marked, limits)
    if not all(ours for _, ours in answers):
        raise KeysKnownError(answers)


def remember_all(
    records: Sequence[tuple[LedgerRecord, int]], limits: Limits
) -> Generator[Effect, Outcome, None]:
    """As :func:`remember`, for records and the versions that carry them, side by side."""
    try:
        yield from side_by_side(*(remember(record, version, limits) for record, version in records))
    except Exception:
        log.warning("after the commit: the ledger was not told of %d keys", len(records), exc_info=True)


def doubt_all(
    records: Sequence[LedgerRecord], version: int, limits: Limits
) -> Generator[Effect, Outcome, bool]:
    """As :func:`doubt`, for the members of a group, side by side."""
    try:
        answers = yield from side_by_side(*(doubt(record, version, limits) for record in records))
    except Exception:
        log.warning(
            "in doubt at version %d: the ledger was not told of %d keys", version, len(records), exc_info=True
        )
        return False
    return all(answers)


def of_batch(app_id: str, version: int) -> str:
    """The key of a write that is named by ``(app_id, version)``."""
    return f"{app_id}/{version}"


def must_match(key: str, committed: str, offered: str, version: int) -> None:
    """A key that was committed before is a repeat only with the same rows (promise 6, E2)."""
    if committed and _kind(committed) != _kind(offered):
        raise ReplayMismatchError(
            f"Key {key!r} was committed in version {version} and is known by another kind of fingerprint ({committed}; "
            f"this write: {offered}): {_why_unlike(committed, offered)}, so it cannot be told whether the rows are the "
            "same. The earlier rows stand, none of these were written. Repeat the write with the engine that made it, "
            "or give new data a key of their own.",
            key=key,
            version=version,
        )
    if committed != offered:
        raise ReplayMismatchError(
            f"Key {key!r} was committed in version {version} with {_unlike(committed, offered)} (fingerprint {committed}; "
            f"this write: {offered}). {_stands(committed, offered)}",
            key=key,
            version=version,
        )


def incomparable(key: str, version: int) -> ReplayMismatchError:
    """The refusal of a key that is there, where what was recorded of its rows is not: that is no proof of a repeat."""
    return ReplayMismatchError(
        f"Key {key!r} was committed in version {version}, and the list that tells with which rows is gone, so it cannot be "
        "shown that these are the same. The earlier rows stand, none of these were written. Look whether the rows are in the "
        "table; new data need a key of their own.",
        key=key,
    )


def must_match_in_call(key: str, first: str, offered: str) -> None:
    """A key that comes twice in one call is a repeat only with the same rows."""
    if first != offered:
        raise ReplayMismatchError(
            f"Key {key!r} comes twice in this call, with other rows (fingerprint {first}; this member: {offered}). The first "
            "of them has an answer of its own, these rows were not written. Give each event a key of its own.",
            key=key,
        )


def _unlike(committed: str, offered: str) -> str:
    return (
        "another condition (where=) or full_refresh="
        if _same_rows(committed, offered)
        else other_rows(offered)
    )


def _same_rows(committed: str, offered: str) -> bool:
    """Whether only what goes differs: the conditions of two overwrites or deletes, or a refresh and plain changes."""
    rows, other = (text.split(":")[:3] for text in (committed, offered))
    return rows == other and len(rows) == 3


def _stands(committed: str, offered: str) -> str:
    """What is safe, and what to do, where a key was committed with something else."""
    if _same_rows(committed, offered):
        return (
            "The earlier write stands, nothing was written now. If this is another write, give it a key of its own; if it is "
            "a repeat, give what was given the first time."
        )
    return (
        "The earlier rows stand, none of these were written. If they are the same event, a column is probably made in each "
        "attempt (a load time, a uuid): take it from the event, or name it in volatile= from a key's first write on; another "
        "key would double the rows. New data need a key of their own, a stream whose checkpoint was deleted a new app_id."
    )


def other_rows(fingerprint: str) -> str:
    """What a write with an unlike fingerprint of the same kind has."""
    if _kind(fingerprint) != OFFSETS:
        return "other rows"
    return "other offsets of the stream's sources, another checkpoint, or another number of rows"


def _kind(fingerprint: str) -> str:
    return fingerprint.partition(":")[0]


def _why_unlike(committed: str, offered: str) -> str:
    if OFFSETS in (_kind(committed), _kind(offered)):
        return "one is of the offsets of a stream's sources, the other of the rows themselves"
    return "Spark hashes rows otherwise than frames are hashed in Python (it was committed by another engine)"
