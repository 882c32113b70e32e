"""Inspects a table without writing: its log, its temp files, and its entries in the lock table.

``doctor`` judges what is found here and ``repair`` works from it.  Nothing is refused here: a table that
safewrite will not write to most needs an inspection.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from safewrite.arguments.options import Address, parse_address
from safewrite.delta.arbiter import PROPERTY_LOCK_PATH, Choice, choose
from safewrite.delta.connect import refuse_file
from safewrite.delta.log import actions
from safewrite.delta.log import segment as listings
from safewrite.delta.log.actions import Commit
from safewrite.delta.log.segment import LogSegment
from safewrite.delta.log.snapshot import Snapshot, load
from safewrite.errors import NotCommittedError, StorageError
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Get, List, Ok
from safewrite.protocol.fetch import fetch, fetch_one
from safewrite.protocol.values import Entry, Listed
from safewrite.stores.abc import ObjectStore
from safewrite.stores.advice import cause_of
from safewrite.stores.aws import ServerClock, scanned
from safewrite.stores.clients import shared_client
from safewrite.stores.ledger import ObjectLedger
from safewrite.stores.local import LocalObjects, SqliteLedger
from safewrite.stores.remembered import SCAN_PAGES_MAX
from safewrite.stores.world import World, run
from safewrite.text.rendering import said

if TYPE_CHECKING:
    from safewrite.stores.dynamodb import DynamoDBLocks

TEMPS: Final = f"{actions.LOG}.tmp/"
ASKS = Limits(asks=6)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A temp file of the lock table's writers, or an entry whose temp file is gone.

    ``commit`` is what the temp file holds (None: gone, or unreadable); ``landed`` says that its bytes
    are those of its version's commit file.
    """

    version: int
    temp_path: str
    entry: Entry | None
    commit: Commit | None
    landed: bool
    modified_ms: int = 0


@dataclass
class Inspection:
    """What was found.  ``listed`` holds every file of the log, temp files included, by path."""

    address: Address
    world: World
    arbiter: str
    lock_table: str | None = None
    clock: ServerClock = field(default_factory=ServerClock)
    s3: Any = None
    dynamodb: Any = None
    listed: Mapping[str, Listed] = field(default_factory=dict)
    listing: LogSegment = field(default_factory=lambda: listings.read((), whole=True))
    state: Snapshot | None = None
    state_error: NotCommittedError | None = None
    commits: dict[int, Commit] = field(default_factory=dict)
    digests: dict[int, bytes] = field(default_factory=dict)
    torn: dict[int, str] = field(default_factory=dict)
    head_later: int = -1
    """The end of the log after the entries were read: a commit in between leaves no stale entry."""
    entries: tuple[Entry, ...] = ()
    entries_error: str | None = None
    spellings: dict[str, int] = field(default_factory=dict)
    spellings_whole: bool = True
    skew_ms: int | None = None

    @property
    def head(self) -> int:
        """The highest version of the log; -1 if there is none."""
        checkpoints = (checkpoint.version for checkpoint in self.listing.checkpoints)
        return max((*self.listing.commits, *checkpoints), default=-1)

    @property
    def table_id(self) -> str | None:
        """The table's unique id, where its metadata can be read."""
        return self.state.table_id if self.state is not None else None

    @property
    def temps(self) -> list[Listed]:
        """Temp files, newest version first."""
        found = [item for path, item in self.listed.items() if path.startswith(TEMPS)]
        return sorted(found, key=lambda item: item.path, reverse=True)

    @property
    def locks(self) -> Any:
        """The table's commit entries in DynamoDB; only where the arbiter is a lock table."""
        assert self.world.locks is not None
        return self.world.locks

    def version(self, entry: Entry) -> int:
        """The version that an entry claims."""
        return entry.version

    def stale(self, entry: Entry) -> bool:
        """Whether an entry belongs to a table that stood here before (A17)."""
        foreign = bool(entry.table_id and self.table_id and entry.table_id != self.table_id)
        head = max(self.head, self.head_later)
        return foreign or self.version(entry) > (head if entry.settled else head + 1)

    def attempts(self, temps: Sequence[Listed]) -> list[Attempt]:
        """What these temp files hold, and what became of them; entries without a temp file are left out."""
        named = {actions.LOG + entry.temp_path: entry for entry in self.entries}
        gets = [Get(item.path, name="survey.get_temp") for item in temps]
        answers = run(fetch(gets, ASKS, name="survey.temps"), self.world)
        found = []
        for item, answer in zip(temps, answers, strict=True):
            version = temp_version(item.path)
            if version is None or not isinstance(answer, Ok):
                continue
            assert isinstance(answer.value, bytes)
            commit = _parse(answer.value, version)
            landed = self.digests.get(version) == _digest(answer.value)
            found.append(
                Attempt(
                    version, item.path, named.get(item.path), commit, landed, modified_ms=item.modified_ms
                )
            )
        return found


def temp_version(path: str) -> int | None:
    """The version that a temp file was written for: ``_delta_log/.tmp/%020d.json.<unique>``."""
    stem = path.removeprefix(TEMPS).partition(".json")[0]
    return int(stem) if len(stem) == 20 and stem.isdigit() else None


def inspect_table(
    uri: object,
    *,
    lock_table: str | None = None,
    arbiter: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    clock: ServerClock | None = None,
) -> Inspection:
    """Look at a table; write nothing.

    Where neither ``lock_table`` nor ``arbiter`` is given, the table's record names them, or the files of a
    lock table's writers do.

    Raises:
        InvalidInputError: no address of a table, or of a file.
        StorageError: the object store does not answer.  A lock table that does not is a finding.
    """
    address = parse_address(uri)
    clock = clock or ServerClock()
    objects, s3 = _objects(address, clock, storage_options)
    ledger = ObjectLedger(objects) if s3 else SqliteLedger(Path(address.uri) / "_safewrite" / "ledger.sqlite")
    world = World(objects, ledger=ledger, wall_ms=clock)
    found = Inspection(address, world, "object-store" if address.is_s3 else "local", clock=clock, s3=s3)
    _observe_clock(found)
    _read_log(found)
    if not address.is_s3:
        return found
    recorded = found.state.properties if found.state is not None else {}
    choice = _choose(recorded, lock_table, arbiter, storage_options, traces=bool(found.temps))
    found.arbiter, found.lock_table = choice.name, choice.lock_table
    if found.lock_table is not None:
        _read_lock_table(found, storage_options)
    return found


def settle(
    uri: object, *, lock_table: str | None, arbiter: str | None, storage_options: Mapping[str, str] | None
) -> tuple[str | None, str | None, Mapping[str, str]]:
    """The ``arbiter`` and ``lock_table`` to connect with, and the table's properties.

    The user need not repeat what the table records.

    Reads the table's properties, and no more of it.
    """
    address = parse_address(uri)
    if not address.is_s3:
        return arbiter, lock_table, {}
    objects, _ = _objects(address, ServerClock(), storage_options)
    world = World(objects, ledger=ObjectLedger(objects))
    try:
        state = run(load(limits=ASKS), world)
    except NotCommittedError:
        state = None  # whoever needs the log says what is wrong with it
    temps = world.perform(List(TEMPS, limit=1, name="survey.list_temp"))
    recorded = state.properties if state is not None else {}
    traces = isinstance(temps, Ok) and bool(temps.value)
    choice = _choose(recorded, lock_table, arbiter, storage_options, traces=traces)
    return choice.name, choice.lock_table, recorded


def _choose(
    recorded: Mapping[str, str],
    lock_table: str | None,
    arbiter: str | None,
    storage_options: Mapping[str, str] | None,
    *,
    traces: bool,
) -> Choice:
    """Who arbitrates a table that is only looked at; ``traces``: temp files of a lock table's writers."""
    return choose(
        recorded,
        lock_table=lock_table,
        arbiter=arbiter,
        storage_options=storage_options,
        otherwise="dynamodb" if traces else "object-store",
    )


def _objects(
    address: Address, clock: ServerClock, options: Mapping[str, str] | None
) -> tuple[ObjectStore, Any]:
    if not address.is_s3:
        refuse_file(Path(address.uri))
        return LocalObjects(address.uri), None
    from safewrite.stores.s3 import S3Objects
    from safewrite.stores.settings import encryption

    s3 = shared_client("s3", None, options)
    return S3Objects(s3, address.bucket, address.prefix, clock=clock, encryption=encryption(options)), s3


# --- the log ----------------------------------------------------------------------------------------
def _read_log(found: Inspection) -> None:
    answer = run(fetch_one(List(actions.LOG, name="survey.list"), ASKS), found.world)
    items: Iterable[Listed] = answer.value if isinstance(answer, Ok) else ()  # type: ignore[assignment]
    found.listed = {item.path: item for item in items}
    found.listing = listings.read(found.listed.values(), whole=True)
    gets: list[Effect] = [
        Get(actions.commit_path(v), name="survey.get_commit") for v in found.listing.commits
    ]
    answers = run(fetch(gets, ASKS, name="survey.commits"), found.world)
    for version, commit_answer in zip(found.listing.commits, answers, strict=True):
        if isinstance(commit_answer, Ok):
            assert isinstance(commit_answer.value, bytes)
            _note_commit(found, version, commit_answer.value)
    try:
        found.state = run(load(limits=ASKS), found.world)
    except NotCommittedError as error:
        found.state_error = error


def _note_commit(found: Inspection, version: int, body: bytes) -> None:
    found.digests[version] = _digest(body)
    try:
        commit = actions.parse(body, version)
        commit.adds()
    except StorageError as error:
        found.torn[version] = error.message.removesuffix(
            " Nothing was committed. Run `safewrite doctor` on the table."
        )
    else:
        found.commits[version] = commit


def _parse(body: bytes, version: int) -> Commit | None:
    try:
        commit = actions.parse(body, version)
        commit.adds()
    except StorageError:
        return None
    return commit


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()


def _observe_clock(found: Inspection) -> None:
    """Compare the local clock with the store's ``Date`` (A10)."""
    if found.s3 is None:
        return
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        answer = found.s3.list_objects_v2(Bucket=found.address.bucket, Prefix=found.address.prefix, MaxKeys=1)
    except (BotoCoreError, ClientError) as error:
        cause = cause_of(error)
        raise StorageError(
            f"{found.address.uri} cannot be listed: {said(error).rstrip('.')}. Nothing was written. "
            + (cause.advice if cause else "Check the address, the endpoint and the credentials.")
        ) from error
    found.clock.observe(answer["ResponseMetadata"]["HTTPHeaders"])
    found.skew_ms = found.clock.skew_ms


def now_ms(found: Inspection) -> int:
    """The store's time, if it tells it."""
    return found.clock() if found.s3 is not None else time.time_ns() // 1_000_000


# --- the lock table ---------------------------------------------------------------------------------
def _read_lock_table(found: Inspection, options: Mapping[str, str] | None) -> None:
    from botocore.exceptions import BotoCoreError, ClientError

    from safewrite.stores.dynamodb import DynamoDBLocks, spark_path
    from safewrite.stores.dynamodb_ledger import DynamoDBLedger

    assert found.lock_table is not None
    found.dynamodb = shared_client("dynamodb", None, options)
    locks = DynamoDBLocks(found.dynamodb, found.lock_table, spark_path(found.address.uri))
    found.world.locks = locks
    found.world.ledger = DynamoDBLedger(found.dynamodb, found.lock_table, locks.table_path)
    try:
        recorded = found.state.properties if found.state is not None else {}
        found.entries = tuple(locks.entries())
        wanted = recorded.get(PROPERTY_LOCK_PATH)
        if wanted == locks.other_path or (wanted is None and not found.entries):
            _respell(found, locks, wanted)
        found.head_later = head_now(found)
        _find_spellings(found, locks.table_path)
    except (BotoCoreError, ClientError, KeyError) as error:
        found.entries_error = f"{type(error).__name__}: {said(error)}"


def _respell(found: Inspection, locks: DynamoDBLocks, wanted: str | None) -> None:
    """Look under the spelling of the path that the table's writers use, as ``open`` does (A15)."""
    ours = locks.table_path
    locks.respell(locks.other_path)
    entries = tuple(locks.entries())
    if entries or wanted == locks.table_path:
        found.entries = entries
    else:
        locks.respell(ours)


def head_now(found: Inspection) -> int:
    """The end of the log as it is now."""
    after = actions.commit_path(found.head) if found.head >= 0 else listings.FROM_START
    answer = run(fetch_one(List(actions.LOG, start_after=after, name="survey.list_later"), ASKS), found.world)
    items: Iterable[Listed] = answer.value if isinstance(answer, Ok) else ()  # type: ignore[assignment]
    return max((v for item in items if (v := actions.version_of(item.path)) is not None), default=found.head)


def _find_spellings(found: Inspection, ours: str) -> None:
    """Other spellings of our path among the keys of the lock table (A15)."""
    pages = scanned(
        found.dynamodb,
        TableName=found.lock_table,
        ProjectionExpression="tablePath",
        FilterExpression="contains(tablePath, :bucket) AND NOT begins_with(tablePath, :own)",
        ExpressionAttributeValues={":bucket": {"S": found.address.bucket}, ":own": {"S": "safewrite:"}},
    )
    for number, page in enumerate(pages, start=1):
        for item in page.get("Items", ()):
            path = item["tablePath"]["S"]
            if path != ours and same_place(path, ours):
                found.spellings[path] = found.spellings.get(path, 0) + 1
        if number == SCAN_PAGES_MAX:
            found.spellings_whole = False
            return


def same_place(one: str, other: str) -> bool:
    """Whether two paths differ only in scheme, slashes or case."""
    return _plain(one) == _plain(other)


def _plain(path: str) -> str:
    rest = path.partition("://")[2] or path.partition(":/")[2]
    return "/".join(part for part in rest.split("/") if part).lower()
