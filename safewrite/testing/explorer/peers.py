"""Models other writers of the same table as generators of effects, written from their sources.

A writer by conditional PUT (deltalake 1.6): no lock table, and after a lost answer it takes its own
commit for another's.  Delta's ``S3DynamoDBLogStore`` as of delta-io/delta (``storage-s3-dynamodb``:
``BaseExternalLogStore.write`` and ``fixDeltaLog``): its copy is a HEAD and a plain PUT, "exists" is
swallowed, it completes entries without a condition, and the AWS client repeats a lost conditional put
by itself.  The DynamoDB log store of deltalake before 1.6 (``crates/aws``, ``S3DynamoDbLogStore``): it
renames the temp file over the commit file, which is a copy and a delete without a condition, and does
so for any incomplete entry it meets.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from safewrite.errors import StorageError
from safewrite.protocol.ask import ask
from safewrite.protocol.delta import claim as claims
from safewrite.protocol.effects import (
    CompleteEntry,
    Delete,
    Effect,
    Exists,
    Get,
    GetEntry,
    Missing,
    NewestEntry,
    NewId,
    Ok,
    Outcome,
    Put,
    PutEntryIfAbsent,
    PutIfAbsent,
)
from safewrite.protocol.values import Entry
from safewrite.testing.explorer.automaton import Program
from safewrite.testing.explorer.immutable import Copy, OverwriteEntry
from safewrite.testing.explorer.rows import LIMITS, body_of, head


def conditional_put(key: str, attempt: str) -> Program:
    """A writer by conditional PUT without own-commit detection (deltalake 1.6)."""
    for _ in range(LIMITS.attempts):
        version = (yield from head()) + 1
        # Its HTTP client sends a lost request again: "exists" may then be itself, and it goes on to N+1.
        put = PutIfAbsent(claims.commit_path(version), body_of(key, attempt), name="peer.put_commit")
        outcome = yield from ask(put, LIMITS)
        if isinstance(outcome, Ok):
            return version
        if not isinstance(outcome, Exists):
            break
    raise StorageError("The peer gave up.")


def spark(key: str, attempt: str) -> Program:
    """Delta's ``S3DynamoDBLogStore``: ``listFrom``, then ``BaseExternalLogStore.write`` of the next version."""
    for _ in range(LIMITS.attempts):
        newest = yield from _sure(NewestEntry(name="spark.newest"))
        if isinstance(newest, Ok):
            yield from _fix(newest.value)
        version = (yield from head()) + 1
        if (yield from _spark_write(version, body_of(key, attempt))):
            return version
    raise StorageError("The peer gave up.")


def _spark_write(version: int, body: bytes) -> Generator[Effect, Outcome, bool]:
    path = claims.commit_path(version)
    if isinstance((yield from _sure(Get(path, name="spark.exists"))), Ok):
        return False
    if version > 0:
        previous = yield from _sure(GetEntry(claims.file_name(version - 1), name="spark.previous_entry"))
        if isinstance(previous, Ok) and not _entry(previous.value).complete:
            yield from _fix(previous.value)
        elif isinstance(
            (yield from _sure(Get(claims.commit_path(version - 1), name="spark.previous"))), Missing
        ):
            raise StorageError("The previous commit does not exist.")
    unique = yield NewId()
    assert isinstance(unique, Ok)
    entry = Entry(claims.file_name(version), f".tmp/{claims.file_name(version)}.{unique.value}")
    yield from _sure(Put(claims.LOG + entry.temp_path, body, name="spark.put_temp"))
    # A lost answer is asked again by the AWS client, which then takes its own entry for another's.
    if isinstance((yield from _sure(PutEntryIfAbsent(entry, name="spark.put_entry"))), Exists):
        return False
    try:
        if (yield from _copy(entry)):
            yield from _sure(
                OverwriteEntry(replace(entry, complete=True, expire_time_s=1), name="spark.complete")
            )
    except StorageError:
        pass  # "ignoring recoverable error": it reports success
    return True


def _fix(found: object) -> Generator[Effect, Outcome, None]:
    entry = _entry(found)
    if entry.complete:
        return
    if isinstance((yield from _sure(Get(claims.LOG + entry.file_name, name="spark.fix_exists"))), Missing):
        yield from _copy(entry)
    yield from _sure(
        OverwriteEntry(replace(entry, complete=True, expire_time_s=1), name="spark.fix_complete")
    )


def _copy(entry: Entry) -> Generator[Effect, Outcome, bool]:
    """``fs.create(overwrite=false)`` of S3A: HEAD, then a plain PUT; False if it exists."""
    temp = yield from _sure(Get(claims.LOG + entry.temp_path, name="spark.get_temp"))
    if isinstance((yield from _sure(Get(claims.LOG + entry.file_name, name="spark.head"))), Ok):
        return False
    if not isinstance(temp, Ok):
        raise StorageError("The temp file does not exist.")
    assert isinstance(temp.value, bytes)
    yield from _sure(Put(claims.LOG + entry.file_name, temp.value, name="spark.copy"))
    return True


def _sure(effect: Effect) -> Generator[Effect, Outcome, Outcome]:
    outcome = yield from ask(effect, LIMITS)
    if not isinstance(outcome, Ok | Exists | Missing):
        raise StorageError("The peer's store did not answer.")
    return outcome


def _entry(found: object) -> Entry:
    assert isinstance(found, Entry)
    return found


def lock_table(key: str, attempt: str) -> Program:
    """The DynamoDB log store of deltalake before 1.6: it repairs, claims, and renames over ``N.json``."""
    newest = yield from _sure(NewestEntry(name="old.newest"))
    if isinstance(newest, Ok):
        yield from _rename(_entry(newest.value))
    version = (yield from head()) + 1
    for _ in range(LIMITS.attempts):
        unique = yield NewId()
        assert isinstance(unique, Ok)
        entry = Entry(claims.file_name(version), f"_commit_{unique.value}.json.tmp")
        yield from _sure(Put(claims.LOG + entry.temp_path, body_of(key, attempt), name="old.put_temp"))
        if not isinstance((yield from _sure(PutEntryIfAbsent(entry, name="old.put_entry"))), Exists):
            yield from _rename(entry)
            return version
        winner = yield from _sure(GetEntry(claims.file_name(version), name="old.get_entry"))
        if isinstance(winner, Ok):
            yield from _rename(_entry(winner.value))
        if isinstance((yield from _sure(Get(claims.commit_path(version), name="old.get_commit"))), Missing):
            raise StorageError("Invalid version.")
        version += 1
    raise StorageError("The peer gave up.")


def _rename(entry: Entry) -> Generator[Effect, Outcome, None]:
    """``repair_entry``: a missing temp file is taken for "already moved"."""
    if entry.complete:
        return
    temp = claims.LOG + entry.temp_path
    if isinstance((yield from _sure(Copy(temp, claims.LOG + entry.file_name, name="old.copy"))), Ok):
        yield from _sure(Delete(temp, name="old.delete_temp"))
    yield from _sure(CompleteEntry(entry, claims.ENTRY_TTL_S, name="old.complete"))
