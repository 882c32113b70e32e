"""Has Spark's Delta library write key, fingerprint and stream's batch into its commit.

Delta makes the commit and knows nothing of keys; the commit passes our hook on its way to the log.  The hook
searches the commits that others made meanwhile for the key, and adds the name to Delta's own actions.
Delta's ``txnAppId`` is never used: it skips a batch by its number alone (E2).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from safewrite.delta.log import actions
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.write.abc import Write
from safewrite.delta.write.members import ENGINE, summed_up
from safewrite.delta.write.transaction import Transaction
from safewrite.errors import CommitUnknownError, InternalError, SafewriteError, UnsupportedTableError
from safewrite.protocol.delta.candidate import Arbiter
from safewrite.protocol.delta.commit import Found, look
from safewrite.protocol.effects import Effect, Outcome
from safewrite.stores.table_folder import climbs_in_log
from safewrite.text.rendering import said

if TYPE_CHECKING:
    pass

T = TypeVar("T")
Run = Callable[[Generator[Effect, Outcome, T]], T]
Place = Callable[[int, bytes], bool]


@dataclass
class SparkTransaction(Transaction):
    """A named write whose commits Delta makes: other commits are only searched for its name."""

    named_by: Callable[[int], Write] | None = None
    """Names the write by the number of its rows, where they are not counted before Delta writes them."""
    _made: dict[int, bytes] = field(default_factory=dict, repr=False)

    def body(self, version: int) -> bytes:
        """The commit that was last tried at a version."""
        return self._made.get(version, b"")

    def examine(self, version: int, body: bytes) -> Found | None:
        """See ``safewrite.protocol.delta.commit.Candidate.examine``; what else conflicts is for Delta to say."""
        return self._find(version, body, actions.parse(body, version))

    def examine_summary(self, version: int, summary: str, digest: str) -> Found | None:
        """Examine a commit by its body or by its summary: neither moves the snapshot on."""
        return self._find(version, b"", summed_up(version, summary, digest))

    def landed(self, version: int) -> Snapshot | None:
        """None: what others committed meanwhile was not read."""
        return None

    def name(self, version: int, body: bytes) -> bytes:
        """Delta's commit with the write's name in it; every other line stays as it is."""
        first, *rest = body.splitlines()
        info = {**self.properties, **json.loads(first)["commitInfo"]}
        info[ENGINE] = {"commitId": self.commit_id, "writes": [self.write.whole_entry()]}
        named = [{"commitInfo": info}, *({"txn": txn} for txn in self._txns(version))]
        lines = [json.dumps(one, separators=(",", ":"), ensure_ascii=False).encode() for one in named]
        self._made[version] = b"\n".join([*lines, *rest]) + b"\n"
        return self._made[version]

    def count(self, body: bytes) -> None:
        """Take the numbers of files and rows from Delta's commit.

        Raises:
            InternalError: the files do not hold the rows that were counted, or do not say how many they hold.
        """
        adds = [json.loads(line)["add"] for line in body.splitlines() if line.startswith(b'{"add"')]
        self._take([json.loads(add.get("stats") or "{}").get("numRecords") for add in adds])
        self.write = replace(self.write, files=len(adds))

    def _take(self, counts: list[int | None]) -> None:
        """Take what is committed for what was counted (E5, H10), or name the write by it."""
        known = [count for count in counts if count is not None]
        rows = sum(known) if len(known) == len(counts) else None
        if self.named_by is None:
            if rows not in (None, self.write.rows):
                raise InternalError(
                    f"{self.write.rows} rows were counted and {rows} written: the batch was computed a second time "
                    "and gave other rows. Nothing was committed; call again, and please report it.",
                    key=self.write.key,
                )
        elif rows is None:
            raise InternalError(
                "Delta's commit does not say how many rows its files hold, and the batch is known by their number. "
                "Nothing was committed; please report it.",
                key=self.write.key,
            )
        else:
            self.write = self.named_by(rows)


class NamedTransaction:
    """One named write on its way through Delta, and its result."""

    def __init__(self, candidate: SparkTransaction, seen: int, arbiter: Arbiter) -> None:
        self.candidate = candidate
        self.seen = seen
        self.attempts = 0
        self.landed: int | None = None
        self.found: Found | None = None
        self.error: SafewriteError | None = None
        self._arbiter = Arbiter(arbiter.lock_table, lease=False)

    def commit(self, version: int, body: bytes, place: Place, run: Run[Any]) -> bool:
        """Put the name into Delta's commit and place it, unless the write is in the log already.

        Raises:
            SafewriteError: which ends Delta's transaction; ``found`` or ``error`` says why.
        """
        try:
            check_places(body)
            self.candidate.count(body)
            if version > self.seen + 1:
                self._look(version, run)
            named = self.candidate.name(version, body)
            self.attempts += 1
            placed = place(version, named)
        except SafewriteError as error:
            self.error = None if self.found else error
            raise
        except Exception as error:
            self.error = CommitUnknownError(
                f"The commit of version {version} ended in {type(error).__name__}: {said(error)}. The rows may be part of "
                "the table. Call again with the same key, or resolve(key), to decide.",
                version=version,
            )
            raise
        self.landed = version if placed else None
        return placed

    def _look(self, version: int, run: Run[Any]) -> None:
        """Search what was committed since the last look: a zombie and its retry must not both land (E7)."""
        self.found, self.seen = run(
            look(self.candidate, self.seen, arbiter=self._arbiter, limits=self.candidate.limits)
        )
        if self.found is not None:
            raise SafewriteError(
                f"This write is in the table already, in version {self.found.version}; nothing was committed again."
            )
        if self.seen < version - 1:
            raise InternalError(
                f"Delta commits version {version}, and the log ends with {self.seen}. Nothing was committed; please "
                "report it."
            )


def check_places(body: bytes) -> None:
    """Refuse a commit of Delta's that replaces files which the log names beyond the table's folder: it has read them.

    Raises:
        UnsupportedTableError: nothing was committed.
    """
    removes = (json.loads(line)["remove"] for line in body.splitlines() if line.startswith(b'{"remove"'))
    astray = next((one["path"] for one in removes if climbs_in_log(one["path"])), None)
    if astray is not None:
        raise UnsupportedTableError(
            f"The log names {astray!r} as a file of the table, and that leads out of the table's folder. Nothing was committed. See "
            "who wrote this log, and restore it from a versioned copy."
        )


_pending: dict[str, NamedTransaction] = {}
_guard = threading.Lock()


@contextmanager
def pending(candidate: SparkTransaction, seen: int, arbiter: Arbiter) -> Iterator[NamedTransaction]:
    """Register a write with the hook, for as long as Delta may commit it."""
    mine = NamedTransaction(candidate, seen, arbiter)
    with _guard:
        _pending[candidate.commit_id] = mine
    try:
        yield mine
    finally:
        with _guard:
            del _pending[candidate.commit_id]


def user_metadata(candidate: SparkTransaction) -> str:
    """The value of Delta's option ``userMetadata``: the hook knows the commit by it, and history shows it."""
    write = candidate.write
    shown: dict[str, Any] = {"token": candidate.commit_id, "key": write.key}
    if candidate.named_by is None:
        shown |= {"fingerprint": write.fingerprint, "rows": write.rows}
    return json.dumps({ENGINE: shown})


def commit(version: int, body: bytes, place: Place, run: Run[Any]) -> bool:
    """Place a commit of Delta's, under its name where it has one; True if it landed.

    Raises:
        SafewriteError: as ``place`` does; or the commit has a name that no write waits for.
    """
    token = _token(body)
    if token is None:
        return place(version, body)
    with _guard:
        mine = _pending.get(token)
    if mine is None:
        raise InternalError(
            f"The commit of version {version} bears the name of a write ({token}) that nobody waits for. Nothing was "
            "committed. Do not set Delta's userMetadata to what the history of a table shows; else please report it."
        )
    return mine.commit(version, body, place, run)


def _token(body: bytes) -> str | None:
    first = body.partition(b"\n")[0]
    if not first.startswith(b'{"commitInfo"') or f'{{\\"{ENGINE}\\"'.encode() not in first:
        return None
    try:
        return str(json.loads(json.loads(first)["commitInfo"]["userMetadata"])[ENGINE]["token"])
    except (ValueError, KeyError, TypeError):
        return None
