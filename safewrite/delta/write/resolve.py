"""Finds out, without writing, whether a key was committed."""

from __future__ import annotations

from collections.abc import Generator

from safewrite.delta.log.actions import commit_path, version_of
from safewrite.delta.write.members import Entry, all_writes, carried, find_write, own_info
from safewrite.delta.write.recalled import standing
from safewrite.errors import CommitUnknownError
from safewrite.protocol import keys, member_queue, values
from safewrite.protocol.ask import Limits, ask, unanswered
from safewrite.protocol.delta.commit import Arbiter
from safewrite.protocol.effects import Effect, Get, List, Missing, NewestEntry, Ok, Outcome, Together


def resolve(
    key: str, table_id: str | None, *, arbiter: Arbiter, limits: Limits
) -> Generator[Effect, Outcome, tuple[int, Entry] | None]:
    """Find out, without writing, whether a key was committed; ``(version, write)`` or None.

    ``table_id`` is that of the table that is there now; None if there is none.

    Raises:
        CommitUnknownError: an attempt may still land: a commit under the key is claimed in the lock table
            and not yet finished, an attempt ended in doubt at a version that nobody has taken yet, or the write waits where other
            writers may commit it.  Or a
            commit since the first attempt is gone (log clean-up), and may have been it.
        StorageError: the store gave no answer.
    """
    record = yield from keys.recall(key, limits)
    if record is not None and keys.is_of_another(record, table_id):
        record = None
    if record is not None and record.version is not None:
        entry = yield from standing(record, record.version, limits)
        if entry is not None:
            rows = int(record.fingerprint.split(":")[1])
            told = {"key": key, "fingerprint": record.fingerprint, "rows": rows, "files": 0}
            return record.version, {**told, **entry}
        record = None
    # Claim and queue are read before the log: what is finished in between then shows in the log.
    through = yield from _waits_through(key, limits)
    pending = (yield from _pending(key, limits)) if arbiter.lock_table else False
    base = record.base_version if record is not None else _base(key, -1)
    head, found, whole = yield from _scan(key, base, limits)
    if found is not None:
        return found
    if not whole and (record is not None or keys.base_of_generated(key) is not None):
        raise CommitUnknownError(
            f"{f'Commits after version {base}' if base >= 0 else 'The first commits'} are gone from the log, so it cannot be seen whether the write with key {key!r} "
            "landed there: the log is kept for less time than keys are retried. Nothing was written. Look for the rows in "
            "the table; then raise delta.logRetentionDuration.",
            key=key,
        )
    in_doubt_at = record.in_doubt_at if record is not None and record.in_doubt_at is not None else -1
    last = max(in_doubt_at, through, head + 1 if pending else -1)
    if last > head:
        raise _may_land(key, head, last, pending=pending)
    return None


def _may_land(key: str, head: int, last: int, *, pending: bool) -> CommitUnknownError:
    at = f"at version {last}" if last == head + 1 else f"in one of the versions {head + 1} to {last}"
    repair = ", as does `safewrite repair` on the table" if pending else ""
    return CommitUnknownError(
        f"The write with key {key!r} is not in the table, and may still land {at}. The same call with the same key decides at "
        f"once{repair}; resolve(key) decides once the log has reached version {last}.",
        key=key,
        version=last,
    )


def recorded(version: int, *, limits: Limits) -> Generator[Effect, Outcome, list[Entry]]:
    """The writes that a version carries, as it describes them; none where log clean-up took it.

    Raises:
        StorageError: the store gave no answer.
    """
    get = Get(commit_path(version), name="explain.get_commit")
    got = yield from ask(get, limits)
    if not isinstance(got, Ok):
        return []
    assert isinstance(got.value, bytes)
    return (yield from all_writes(own_info(got.value, version), limits))


def _pending(key: str, limits: Limits) -> Generator[Effect, Outcome, bool]:
    """True if the newest lock-table entry is unfinished and its temp file carries the key."""
    effect = NewestEntry(name="resolve.newest")
    newest = yield from ask(effect, limits)
    if isinstance(newest, Missing):
        return False
    if not isinstance(newest, Ok):
        raise unanswered(effect, newest)
    entry = newest.value
    if not isinstance(entry, values.Entry) or entry.settled:
        return False
    get = Get(f"_delta_log/{entry.temp_path}", name="resolve.get_temp")
    temp = yield from ask(get, limits)
    if isinstance(temp, Ok):
        assert isinstance(temp.value, bytes)
        return key in carried(own_info(temp.value, -1), (key,))
    if isinstance(temp, Missing):
        return False
    raise unanswered(get, temp)


def _waits_through(key: str, limits: Limits) -> Generator[Effect, Outcome, int]:
    """The last version in which other writers may commit the write, which waits in their queue; -1 if it does not."""
    effect = List(member_queue.FOLDER, name="resolve.queue")
    listed = yield from ask(effect, limits)
    if not isinstance(listed, Ok):
        raise unanswered(effect, listed)
    return member_queue.waits_through(listed, key)


def _scan(
    key: str, base: int, limits: Limits
) -> Generator[Effect, Outcome, tuple[int, tuple[int, Entry] | None, bool]]:
    """The newest version, the commit after ``base`` that carries the key, and whether every commit since is there."""
    effect = List(
        "_delta_log/", start_after=commit_path(base) if base >= 0 else "_delta_log//", name="resolve.list"
    )
    listed = yield from ask(effect, limits)
    if not isinstance(listed, Ok):
        raise unanswered(effect, listed)
    assert isinstance(listed.value, tuple)
    versions = [v for item in listed.value if (v := version_of(item.path)) is not None]
    for start in range(0, len(versions), 64):
        part = versions[start : start + 64]
        gets = tuple(Get(commit_path(version), name="resolve.get_commit") for version in part)
        answers = yield Together(gets, name="resolve.read")
        assert isinstance(answers, Ok)
        assert isinstance(answers.value, tuple)
        for version, get, first in zip(part, gets, answers.value, strict=True):
            outcome = first if isinstance(first, Ok) else (yield from ask(get, limits))
            if not isinstance(outcome, Ok):
                raise unanswered(get, outcome)
            assert isinstance(outcome.value, bytes)
            entry = yield from find_write(outcome.value, version, key, limits)
            if entry is not None:
                return versions[-1], (version, entry), True
    head = max(versions, default=base)
    return head, None, len(set(versions)) == head - base


def _base(key: str, otherwise: int) -> int:
    base = keys.base_of_generated(key)
    return otherwise if base is None else base
