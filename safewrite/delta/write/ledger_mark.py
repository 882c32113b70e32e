"""Puts keys of the log back into a ledger that was emptied.

The ledger has a record of its own, the mark: it says from which version on the ledger has the key of every commit.  A person or a
lifecycle rule that empties the ledger takes the mark too.  So a writer that finds no mark does not believe that a key is new: it reads
the log, as far as that is kept, and puts the keys back before it commits anything.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from dataclasses import dataclass, field

from safewrite.delta.log.actions import commit_path, version_of
from safewrite.delta.write.members import keys_by_hash, known_writes, own_info
from safewrite.protocol import keys, members
from safewrite.protocol.ask import Limits, ask, unanswered
from safewrite.protocol.effects import Effect, Get, LedgerCommit, List, Ok, Outcome, Together
from safewrite.protocol.fetch import fetch
from safewrite.protocol.values import LedgerRecord

log = logging.getLogger("safewrite")

READ_MAX = 64
"""How many commits are read at once."""
MARKED_MAX = 16
"""After so many rounds the mark says how far it is: whoever is broken off there leaves less to do."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What became of it: ``lost`` are the hashes of keys in commits whose list of writes is gone, by version."""

    lost: dict[int, frozenset[str]] = field(default_factory=dict)

    def version_of(self, key: str) -> int | None:
        """The commit that carries a key of which the log says no more."""
        hashed = members.hashed(key)
        return next((version for version, hashes in self.lost.items() if hashed in hashes), None)


def restore(
    table_id: str | None, began: LedgerRecord | None, limits: Limits
) -> Generator[Effect, Outcome, Restored]:
    """Put the keys of every commit into the ledger, newest first, and the mark; ``began`` is the one that is there.

    What was unfinished must have been finished before.

    Raises:
        StorageError: the store gave no answer; the next call goes on.
    """
    listed = yield from _listed(limits)
    top = max(listed, default=-1)
    if began is not None and not keys.is_of_another(began, table_id):
        top = min(top, began.base_version)
    versions = sorted((one for one in listed if one <= top), reverse=True)
    log.info("the ledger of keys has no mark: %d commits are looked through for keys", len(versions))
    put_back = 0
    lost: dict[int, frozenset[str]] = {}
    yield from _mark(table_id, top, limits)
    for number, start in enumerate(range(0, len(versions), READ_MAX)):
        part = versions[start : start + READ_MAX]
        put_back += yield from _put_back(table_id, part, lost, limits)
        if number % MARKED_MAX == MARKED_MAX - 1 and not lost:
            yield from _mark(table_id, part[-1] - 1, limits)
    # Where the list of a commit's writes is gone, its keys cannot be put back: each writer looks at that commit again.
    yield from _mark(table_id, max(lost, default=-1), limits)
    if put_back:
        log.warning(
            "the ledger of keys was not whole; keys that were put back: %d, from commits: %d",
            put_back,
            len(versions),
        )
    return Restored(lost)


def _listed(limits: Limits) -> Generator[Effect, Outcome, list[int]]:
    effect = List("_delta_log/", start_after="_delta_log//", name="ledger.list_log")
    listed = yield from ask(effect, limits)
    if not isinstance(listed, Ok):
        raise unanswered(effect, listed)
    assert isinstance(listed.value, tuple)
    return [version for item in listed.value if (version := version_of(item.path)) is not None]


def _put_back(
    table_id: str | None, versions: list[int], lost: dict[int, frozenset[str]], limits: Limits
) -> Generator[Effect, Outcome, int]:
    """Put the keys of these commits back; how many."""
    gets = [Get(commit_path(version), name="ledger.get_commit") for version in versions]
    answers = yield from fetch(gets, limits, name="ledger.read_log")
    infos = [
        own_info(answer.value, version) if isinstance(answer, Ok) and isinstance(answer.value, bytes) else {}
        for version, answer in zip(versions, answers, strict=True)
    ]
    records: list[LedgerRecord] = []
    for version, info, writes in zip(versions, infos, (yield from known_writes(infos, limits)), strict=True):
        if info.get("members") and not writes:
            lost[version] = frozenset(keys_by_hash(info))
        for entry in writes:
            key = str(entry["key"])
            if "txn" not in entry and keys.base_of_generated(key) is None:
                records.append(
                    LedgerRecord(key, version - 1, str(entry["fingerprint"]), version, table_id=table_id)
                )
    if not records:
        return 0
    commits = [LedgerCommit(record, anew=True, name="ledger.put_back") for record in records]
    told = yield Together(tuple(commits), name="ledger.put_back")
    outcomes = told.value if isinstance(told, Ok) else (told,) * len(commits)
    assert isinstance(outcomes, tuple)
    for effect, outcome in zip(commits, outcomes, strict=True):
        if not isinstance(outcome, Ok):
            answer = yield from ask(effect, limits)
            if not isinstance(answer, Ok):
                raise unanswered(effect, answer)
    return len(records)


def _mark(table_id: str | None, below: int, limits: Limits) -> Generator[Effect, Outcome, None]:
    effect = LedgerCommit(keys.mark(table_id, below), name="ledger.mark")
    answer = yield from ask(effect, limits)
    if not isinstance(answer, Ok):
        raise unanswered(effect, answer)
