"""Builds the next version's actions, and decides what other commits mean to it."""

from __future__ import annotations

import json
from collections.abc import Container, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from safewrite.delta.log import actions
from safewrite.delta.log.actions import Action, Commit
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.write import conflicts, waiting
from safewrite.delta.write.abc import WaitingWrite, Write
from safewrite.delta.write.file_changes import NOTHING, DeltaChange, actions_of, paths_of, secure_change
from safewrite.delta.write.members import (
    ENGINE,
    Entry,
    brief,
    carried,
    listing,
    met_in,
    summed_up,
    write_count,
)
from safewrite.delta.write.restored_positions import check_in_effect, check_rival, check_stand
from safewrite.delta.write.staging import StagedFile, accounted, secure
from safewrite.delta.write.stamped import Stamper, Stamps, numbered
from safewrite.errors import (
    InternalError,
    SafewriteError,
)
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta.candidate import Anchor
from safewrite.protocol.effects import Effect, Outcome, Put
from safewrite.protocol.members import Found, MembersMetError, Met
from safewrite.protocol.positions import Moves

if TYPE_CHECKING:
    from safewrite.delta.data.vector_files import Vectors

WRITE = "WRITE"
"""The ``operation`` of a write by which rows come."""
OVERWRITE = "Overwrite"
"""The ``mode`` of a write that reads what is there."""
SUMMARY_CHARS_MAX = 4096
"""A lock entry with a longer summary costs more than reading the commit that it sums up."""


@dataclass
class Transaction:
    """A blind append: it reads nothing, so only changes of schema, protocol or arbiter can stop it.

    ``state`` moves on with every commit that is examined.  ``metadata`` and ``protocol`` are set where this
    commit creates the table, adds columns, or records the arbiter.
    """

    commit_id: str
    write: Write
    timestamp_ms: int
    limits: Limits
    state: Snapshot | None = None
    files: Sequence[StagedFile] = ()
    """Files of the rows that come."""
    change: DeltaChange | None = NOTHING
    """What becomes of the files that are there; None until it is planned."""
    vectors: Vectors | None = None
    """The deletion vectors that the change reads and makes."""
    metadata: Action | None = None
    protocol: Action | None = None
    recording_arbiter: bool = False
    """``metadata`` differs from the table's only in safewrite's own properties."""
    engine_version: str = ""
    found: Entry | None = None
    """How the log describes the write, if it was found there and not in a file of the commit."""
    met: dict[str, Met | SafewriteError] = field(default_factory=dict)
    """Members that were found in other commits, or are at fault, by key."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """What the caller wants ``commitInfo`` to say."""
    positions: Moves = field(default_factory=dict)
    """How far this commit takes the caller's sources."""
    accounted: int = -1
    rebases: bool = False
    rebased: int = 0
    """How often the plan was brought to a new base, where what was decided on the last one held."""
    table_id: str | None = None
    few_rows: bool = False
    """They may be encoded before it is known whether an earlier call wrote them."""
    ledger_seen: bool = False
    """Whether the ledger's mark was seen just now: what it does not know is new then."""
    operation: str = WRITE
    mode: str = "Append"
    replaces_all: bool = False
    """Whether no row that is there stays: none that a RESTORE took away is missing then."""
    changes_data: bool = True
    """Whether other rows are in the table afterwards."""
    taken: tuple[WaitingWrite, ...] = ()
    """Writes of other processes that this try commits too."""
    known: dict[int, Mapping[str, Any] | None] = field(default_factory=dict, repr=False)
    """What safewrite recorded in the commits that were read; None for one that changed schema, properties or protocol."""
    read: dict[str, tuple[str, Any]] = field(default_factory=dict, repr=False)
    """The members that were offered to this write, by path, as they were read for a table of some layout."""
    _left: dict[str, None] = field(default_factory=dict, repr=False)
    """Files of earlier plans of this commit, by their paths."""
    stamper: Stamper = field(default_factory=Stamper, repr=False)
    followed: Snapshot | None = None
    """The table with another writer's commit that carries this write, where that is known."""
    _bodies: dict[tuple[int, str], bytes] = field(default_factory=dict, repr=False)
    _listing: tuple[Write, str, dict[str, Any], Put | None] | None = field(default=None, repr=False)

    @property
    def after(self) -> Snapshot | None:
        """The table with the metadata that this write gives it; None where there is neither."""
        if self.metadata is None:
            return self.state
        if self.state is None:
            return Snapshot(-1, self.protocol or {}, self.metadata)
        return replace(self.state, metadata=self.metadata, protocol=self.protocol or self.state.protocol)

    def __post_init__(self) -> None:
        if self.state is not None:
            self.accounted = max(self.accounted, self.state.version)
            self.table_id = self.state.table_id
        elif self.metadata is not None:
            self.table_id = self.metadata["id"]

    @property
    def held_s(self) -> float:
        """See ``safewrite.protocol.delta.candidate.Candidate.held_s``."""
        return 0.0 if self.state is None else self.state.held_s

    def holding(self, commit_id: str, held_s: float) -> RowlessVersion:
        """See ``safewrite.protocol.delta.candidate.Candidate.holding``."""
        return saying(self, commit_id, {actions.HELD: round(held_s, 3)})

    @property
    def anchor(self) -> Anchor | None:
        """See ``safewrite.protocol.delta.commit.Candidate.anchor``."""
        return self.state.anchor if self.state is not None else None

    @property
    def is_light(self) -> bool:
        """Whether little is done in vain where it is found only with the upload that an earlier call wrote this."""
        # A repeat must not be refused for positions that the earlier call moved.
        return self.few_rows and not self.positions

    @property
    def reached(self) -> int:
        """The last version that was examined."""
        return self.accounted if self.state is None else self.state.version

    def prepare(self) -> Generator[Effect, Outcome, None]:
        """Do what must be done once it is known that no earlier call wrote this, and before files are made.

        Raises:
            ConflictError: kind POSITION_MOVED.
        """
        self.check_positions()
        if not self.replaces_all:
            yield from check_in_effect(
                self.state, self.positions, self.write.rows, self.write.key, self.limits
            )

    # --- what is written ------------------------------------------------------------------------
    def body(self, version: int) -> bytes:
        """The bytes of the commit file; they hold the key and a commit id that is in no other.

        Raises:
            MembersMetError: other commits carry some of the members.
        """
        if self.met:  # also where the body is known: it was asked for before the others' commits were read
            raise MembersMetError("Members were committed meanwhile. Nothing of this group was committed.")
        if (attempt := (version, self.commit_id)) not in self._bodies:
            self._bodies = {attempt: self._encode(version)}
        return self._bodies[attempt]

    def _stamped(self, version: int) -> Stamps:
        return self.stamper.at(version, self.commit_id, self.after, self.timestamp_ms)

    def _encode(self, version: int) -> bytes:
        stamps = self._stamped(version)
        actions: list[dict[str, Any]] = [{"commitInfo": self._commit_info() | stamps.info}]
        if self.protocol is not None:
            actions.append({"protocol": self.protocol})
        if self.metadata is not None:
            actions.append({"metaData": self.metadata})
        actions += [{"txn": txn} for txn in self._txns(version)]
        files = numbered(self.file_actions(), version, stamps)
        actions += accounted(files, self.whole.rows, self.planned_change.kept_rows, self.write.key)
        lines = (json.dumps(action, separators=(",", ":"), ensure_ascii=False) for action in actions)
        return ("\n".join(lines) + "\n").encode()

    @property
    def planned_change(self) -> DeltaChange:
        """What becomes of the files that are there, by the last plan."""
        if self.change is None:
            raise InternalError("A write was committed before it was planned. Please report it.")
        return self.change

    def file_actions(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Actions of new files, and those of what becomes of files that are there."""
        new, there = actions_of(self.planned_change, self.timestamp_ms, changes_data=self.changes_data)
        taken = (add for one in self.taken for add in one.adds)
        return [*(file.action for file in self.files), *taken, *new], there

    @property
    def whole(self) -> Write:
        """All that the commit carries, as one write."""
        return self.write.carrying([one.write for one in self.taken])

    def _commit_info(self) -> Action:
        partition_by = [] if self.after is None else list(self.after.partition_by)
        return {
            **self.properties,
            "timestamp": self.timestamp_ms,
            "operation": self.operation,
            "operationParameters": self.parameters(partition_by),
            "isBlindAppend": self.mode == "Append",
            "engineInfo": f"{ENGINE}/{self.engine_version}",
            "txnId": self.commit_id,
            "operationMetrics": {name: str(number) for name, number in self.metrics().items()},
            ENGINE: {"commitId": self.commit_id, **self._listed[0]},
        }

    @property
    def member_file(self) -> Put | None:
        """The file of the commit's writes, if they are too many for ``commitInfo``."""
        return self._listed[1]

    @property
    def _listed(self) -> tuple[dict[str, Any], Put | None]:
        """How the commit lists its writes; a long list is made once."""
        whole = self.whole
        if self._listing is None or self._listing[:2] != (whole, self.commit_id):
            self._listing = (whole, self.commit_id, *listing(whole.each, self.commit_id))
        return self._listing[2:]

    @property
    def sharer(self) -> waiting.SharedAppend | None:
        """The write as one that others may commit; None where it does more than to add files to a table that is there."""
        alone = self.metadata or self.protocol or self.positions or self.properties or self.write.members
        fits = self.mode == "Append" and self.operation == WRITE and self.state is not None
        return None if alone or not fits else waiting.SharedAppend(self)

    def parameters(self, partition_by: Sequence[str]) -> dict[str, str]:
        """``operationParameters`` as Spark and deltalake write them."""
        return {"mode": self.mode, "partitionBy": json.dumps(list(partition_by))}

    def metrics(self) -> dict[str, int]:
        """``operationMetrics`` as Spark names them."""
        return {
            "numFiles": len(self.files) + sum(len(one.adds) for one in self.taken),
            "numOutputRows": self.whole.rows,
            "numOutputBytes": sum(file.mark.size for file in self.files)
            + sum(add["add"]["size"] for one in self.taken for add in one.adds),
        }

    def _txns(self, version: int) -> list[Action]:
        numbers = conflicts.numbers_of(self.whole.each, self.positions, str(self.table_id), version)
        moment = self.timestamp_ms
        return [{"appId": app, "version": at, "lastUpdated": moment} for app, at in numbers.items()]

    # --- what others wrote ----------------------------------------------------------------------
    def examine(self, version: int, body: bytes) -> Found | None:
        """See ``safewrite.protocol.delta.commit.Candidate.examine``."""
        commit = actions.parse(body, version)
        found = self._find(version, body, commit)
        if found is not None and self.state is not None and self.state.version == version - 1:
            self.followed = self.state.advance(version, commit)
        if found is not None or version <= self.accounted:
            return found
        self.check_conflict(version, commit)
        if self.state is not None:
            self.state = self.state.advance(version, commit)
        return None

    def summary(self, version: int) -> str | None:
        """The part of this commit that other appends depend on; None if they must read it whole."""
        if self.metadata is not None or self.protocol is not None or self.mode != "Append":
            return None
        txns = {txn["appId"]: txn["version"] for txn in self._txns(version)}
        known = {"commitId": self.commit_id, **brief(self._listed[0]), "txns": txns}
        known |= self._stamped(version).summary(self.file_actions(), version)
        text = json.dumps(known, separators=(",", ":"), ensure_ascii=False)
        return text if len(self.whole.each) == 1 or len(text) <= SUMMARY_CHARS_MAX else None

    def suffices(self, summary: str) -> bool:
        """Whether keys and transactions are all that it must know, as of an append; its own commit is compared by its bytes.

        An overwrite must know the files of every commit.
        """
        return self.mode != OVERWRITE and self.commit_id not in summary

    def examine_summary(self, version: int, summary: str, digest: str) -> Found | None:
        """See ``safewrite.protocol.delta.commit.Candidate.examine_summary``."""
        commit = summed_up(version, summary, digest)
        found = self._find(version, b"", commit)
        if found is None and version > self.accounted and self.state is not None:
            self.state = self.state.advance(version, commit)
        return found

    def check_conflict(self, version: int, commit: Commit) -> None:
        """Raise if a commit that landed first makes this write invalid (H9)."""
        metadata = self.metadata
        conflicts.check_table(self.state, version, commit, metadata, records_arbiter=self.recording_arbiter)
        if commit.metadata is not None and self.recording_arbiter:
            self.metadata, self.recording_arbiter = None, False

    def _find(self, version: int, body: bytes, commit: Commit) -> Found | None:
        info = (commit.commit_info or {}).get(ENGINE) or {}
        self.known[version] = waiting.keys_in(commit)
        if info.get("commitId") == self.commit_id:
            if body != self.body(version):
                raise conflicts.rewritten(version, self.write.key)
            return Found(version, own=True)
        if self.write.members:
            self._meet(version, commit, info)
            return None
        found = carried(info, (self.write.key,))
        if found:
            self.found = found[self.write.key]
            if self.found is not None:
                keys.must_match(self.write.key, self.found["fingerprint"], self.write.fingerprint, version)
            return Found(version, own=False, members=write_count(info))
        self._check_txn(self.write, version, commit)
        self._check_moved(version, commit)
        return None

    def _meet(self, version: int, commit: Commit, info: Mapping[str, Any]) -> None:
        """Note the members that a commit carries, and those that it makes invalid."""
        found = carried(info, {write.key for write in self.write.members})
        check = partial(self._check_txn, version=version, commit=commit)
        self.met |= met_in(found, self.write.members, version, check)
        if not found:  # else it may be an earlier call of ours; what is left is checked before it goes on
            self._check_moved(version, commit)

    def regrouped(self, files: int) -> Write:
        """The group once its members' files are made."""
        return Write.group(self.write.key, self.write.members, files)

    def without(self, known: Container[str], commit_id: str) -> None:
        """Go on without the members of these keys, as another commit with other files."""
        self.write = Write.group(self.write.key, [one for one in self.write.members if one.key not in known])
        self.commit_id, self.files = commit_id, ()
        self.met.clear()

    def _check_txn(self, write: Write, version: int, commit: Commit) -> None:
        """Refuse to follow another batch of our app that has landed (E3, E7)."""
        if version > self.accounted:
            conflicts.check_batch(write, version, commit)

    def _check_moved(self, version: int, commit: Commit) -> None:
        """Refuse to follow other rows of our sources that have landed (E7)."""
        if self.positions and version > self.accounted:
            conflicts.check_moved(self.positions, self.table_id, commit, self.write.key)
            if not self.replaces_all:
                check_rival(self.state, self.positions, self.write.rows, self.write.key, commit)

    def check_positions(self) -> None:
        """Refuse to move positions that are elsewhere in the newest version that was examined."""
        check_stand(self.state, self.positions, self.write.key)

    def landed(self, version: int) -> Snapshot | None:
        """The table's snapshot once this commit is ``version``; None if the commit created the table."""
        body = None if self.state is None else actions.parse(self.body(version), version)
        return None if body is None else self.advanced(version, body)

    def advanced(self, version: int, commit: Commit) -> Snapshot:
        """The snapshot that this commit leads to, which is known to stand."""
        assert self.state is not None
        return self.state.advance(version, commit)

    def renew(self) -> Generator[Effect, Outcome, None]:
        """See ``safewrite.protocol.delta.commit.Candidate.renew``: a blind append has no plan."""
        yield from ()

    @property
    def looks_first(self) -> bool:
        """Whether the log is to be looked at before the first try, for much is left to be done by ``renew``."""
        return False

    def leave(self, made: Sequence[str] = ()) -> None:
        """Note the files of a plan that another one takes the place of, and others that were made for it."""
        self._left |= dict.fromkeys([*self._paths(), *made])

    def unused(self) -> list[str]:
        """Files of earlier plans that the last one has no use for; of tries that were lost, so that no commit names them."""
        return [*self._left.keys() - {*self._paths()}]

    def _paths(self) -> list[str]:
        return [*(file.mark.path for file in self.files), *paths_of(self.change or NOTHING, self.vectors)]

    def recheck(self) -> Generator[Effect, Outcome, None]:
        """See ``safewrite.protocol.delta.commit.Candidate.recheck``."""
        self.files = yield from secure(self.files, self.limits)
        yield from secure_change(self.change or NOTHING, self.vectors, self.limits)


@dataclass
class RowlessVersion(Transaction):
    """A version without rows that says something to other writers of the table; it looks for the key in all before it."""

    said: Mapping[str, Any] = field(default_factory=dict)

    @property
    def _listed(self) -> tuple[dict[str, Any], Put | None]:
        return {"writes": [], **self.said}, None

    def _txns(self, version: int) -> list[Action]:
        return []


def saying(plan: Transaction, commit_id: str, said: Mapping[str, Any]) -> RowlessVersion:
    """A version without rows that says this of a plan to other writers of the table."""
    return RowlessVersion(
        commit_id=commit_id,
        write=replace(plan.write, rows=0, files=0, members=(), txn=None, changes=None, offer=""),
        timestamp_ms=plan.timestamp_ms,
        limits=plan.limits,
        state=plan.state,
        engine_version=plan.engine_version,
        accounted=plan.reached,
        table_id=plan.table_id,
        said=said,
    )
