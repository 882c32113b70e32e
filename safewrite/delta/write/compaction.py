"""Puts data files together in one commit that changes no row: groups of files that are still there become fewer files.

The rows of a group are read file after file, without those that deletion vectors take away, and written in that order.  Where others mark
rows of its files meanwhile, these rows are marked in ours.  A commit of others that takes a file of a group, or names it again, takes the
group out of ours: it is not made again, and the rest goes on.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote

import pyarrow as pa

from safewrite.changes.meaning.positions import Flags
from safewrite.delta.data.datafiles import DataFile, FileLayout
from safewrite.delta.data.julian_dates import check_calendar
from safewrite.delta.data.row_ids import copied_columns, tracked
from safewrite.delta.data.rows import check_within, contents, decoded, partition_columns, size_of
from safewrite.delta.data.vector_files import Vectors, marked
from safewrite.delta.log import file_properties
from safewrite.delta.log.actions import Action, Commit, FileKey, file_key, stats_of
from safewrite.delta.log.features import check_append, marks_rows
from safewrite.delta.log.file_list_cache import KnownFiles
from safewrite.delta.log.replay import LogReplay, commits_since
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.write.file_changes import DeltaChange
from safewrite.delta.write.staging import StagedFile, discard, stage
from safewrite.delta.write.stamped import ID, VERSION
from safewrite.delta.write.table_files import DeltaTableFiles
from safewrite.delta.write.transaction import Transaction
from safewrite.errors import NotCommittedError
from safewrite.frames.parallel import FILES_AT_ONCE, Begun, Handed, given_back, windows
from safewrite.frames.parquet import Roll
from safewrite.frames.prepare import prepare
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.stores.table_folder import is_inside
from safewrite.table.change import TableChange
from safewrite.table.regrouping import Regrouped, Regrouping
from safewrite.upkeep.groups import Inventory, StoredFile
from safewrite.upkeep.maintain import TAKEN, Compacted

if TYPE_CHECKING:
    from pyroaring import BitMap64

OPERATION = "OPTIMIZE"
"""As Spark and deltalake call it."""
HOT_COMMITS = 20
"""So many of the last commits tell which partitions are hot."""
READ_AT_ONCE = 64
"""At most so many files are read together, if they are small."""
CHUNK_BYTES = 64 * 2**20
"""Rows of so many bytes in memory are written together, as a row group."""
COPIED_BYTES = 2**20
"""Tables of fewer bytes are copied into one: that costs less than to go through each."""
DeltaGroup: TypeAlias = "Regrouped[Action, StagedFile, None]"
DeltaRegrouping: TypeAlias = "Regrouping[Action, StagedFile, None]"
"""Live files are ``add`` actions; a new file itself says by its vector which of its rows are gone."""
_ORDERED_TAGS = ("ZCUBE", "OPTIMIZE")
"""How tags begin by which Spark knows files whose rows it has put in order."""


# --- what the table has ---------------------------------------------------------------------------------
def inventory(
    state: Snapshot, known: KnownFiles, target_file_size: int | None, limits: Limits
) -> Generator[Effect, Outcome, Inventory]:
    """The live files of a version.

    Raises:
        UnsupportedTableError: by the name of every feature that forbids writing.
        StorageError: the log cannot be read.
    """
    check_append(state)
    replay = yield from known.load(state, limits)
    first = max(state.version - HOT_COMMITS, -1)
    commits = (yield from commits_since(first, state.version, limits)) or []
    return replace(
        listed(replay, target_file_size), heat=_heat(commits), listing=known, served_by=_served_by(commits)
    )


def listed(replay: LogReplay, target_file_size: int | None = None) -> Inventory:
    """The live files of a list, without what the last commits tell."""
    target = file_properties.target_bytes(replay.state.properties, target_file_size)
    files = [_stored(key, add) for key, add in replay.adds.items()]
    return Inventory(replay.state.version, files, target, {})


def _stored(key: FileKey, add: Action) -> StoredFile:
    rows, vector = stats_of(add).get("numRecords"), add.get("deletionVector") or {}
    return StoredFile(
        key[0],
        _partition(add),
        size_of(add),
        rows if type(rows) is int else None,
        int(vector.get("cardinality") or 0),
        int(bool(vector)),
        _why_it_stays(add),
    )


def _why_it_stays(add: Action) -> str:
    if not is_inside(add["path"]):
        return "it lies outside the table (a shallow clone)"
    if add.get("clusteringProvider") or any(tag.startswith(_ORDERED_TAGS) for tag in add.get("tags") or ()):
        return "its rows are in an order (ZORDER, clustering)"
    return ""


def _partition(action: Action) -> Hashable:
    return tuple(sorted((action.get("partitionValues") or {}).items()))


def _served_by(commits: Sequence[Commit]) -> str:
    """Databricks, where one of these commits is its OPTIMIZE: auto compaction, predictive optimization, or a job of the user's."""
    infos = [commit.commit_info or {} for commit in commits]
    is_theirs = any(
        one.get("operation") == OPERATION and str(one.get("engineInfo")).startswith("Databricks")
        for one in infos
    )
    return "Databricks" if is_theirs else ""


def _heat(commits: Sequence[Commit]) -> Mapping[Hashable, int]:
    """In how many of these commits rows of each partition went: there others may take a file while it is written again."""
    found: dict[Hashable, int] = {}
    for commit in commits:
        gone = [one for one in commit.removes() if one.get("dataChange", True)]
        for partition in {_partition(one) for one in gone}:
            found[partition] = found.get(partition, 0) + 1
    return found


# --- one group ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class GroupRewriter:
    """See :class:`safewrite.table.regrouping.GroupRewriter`."""

    files: DeltaTableFiles

    def put_together(self, adds: Sequence[Action], at: str) -> Generator[Effect, Outcome, DeltaGroup]:
        """See the class; nothing of a group stays that cannot be written again."""
        staged: list[StagedFile] = []
        try:
            return (yield from self._made(adds, at, staged))
        except NotCommittedError:
            yield from discard(staged)  # no commit names them
            raise

    def _made(
        self, adds: Sequence[Action], at: str, staged: list[StagedFile]
    ) -> Generator[Effect, Outcome, DeltaGroup]:
        for add in adds:
            check_within(add)
        state, limits, layout = self.files.state, self.files.limits, self.files.layout
        layout = replace(layout, schema=copied_columns(state), partition_by=(), room=None, attempt=at)
        yield from self.files.vectors.fetch(adds, limits)
        roll = Roll(layout.target_file_size, layout.begin)
        pending = _Pending(layout)
        for some in windows(adds, size_of, files=READ_AT_ONCE):
            bodies = yield from contents(some, limits, name="compact.get_data")
            for table in self._decoded(some, bodies):
                for chunk in pending.add(table):
                    for full in roll.write(chunk):
                        staged += yield from self._staged(adds[0], layout.file(len(staged), {}, *full))
        for chunk in pending.rest():
            for full in roll.write(chunk):
                staged += yield from self._staged(adds[0], layout.file(len(staged), {}, *full))
        for full in roll.close():
            staged += yield from self._staged(adds[0], layout.file(len(staged), {}, *full))
        return Regrouped((), tuple(staged), tuple(pending.counts), tuple(one.rows for one in staged))

    def _decoded(self, adds: Sequence[Action], bodies: list[bytes]) -> Iterator[pa.Table]:
        """The live rows of files in their order, decoded side by side: each thread takes neighbours, for most files are tiny."""
        step = -(-len(adds) // FILES_AT_ONCE)
        parts = [
            ([*adds[at : at + step]], Handed(bodies[at : at + step])) for at in range(0, len(adds), step)
        ]
        bodies.clear()
        calls = [
            partial(given_back, partial(self._rows, some, held), sum(map(size_of, some)))
            for some, held in parts
        ]
        for tables in Begun(calls, alone=len(calls) == 1).results():
            yield from tables

    def _rows(self, adds: Sequence[Action], held: Handed[list[bytes]]) -> list[pa.Table]:
        """The live rows of some files, as their columns have them.  Pure: it runs in a thread."""
        found, bodies = list[pa.Table](), held.taken()
        for add in adds:
            vector = self.files.vectors.of(add)
            table, footer = decoded(bodies.pop(0), add, tracked(self.files.state), vector)
            check_calendar(footer, table, unquote(add["path"]))
            state, kept = self.files.state, self.files.layout.materialized
            there = partition_columns(add, state, table.num_rows) if kept else {}
            for name, column in there.items():
                table = table.append_column(state.schema.field(name), column)
            found.append(table)
        return found

    def _staged(self, add: Action, file: DataFile) -> Generator[Effect, Outcome, tuple[StagedFile, ...]]:
        """Upload a file into the folder of those whose rows it has."""
        path = unquote(add["path"])
        folder, values = path[: path.rfind("/") + 1], dict(add.get("partitionValues") or {})
        made = yield from stage(
            [replace(file, path=folder + file.path, partition_values=values)],
            self.files.now_ms,
            self.files.limits,
        )
        return tuple(replace(one, action={"add": {**one.action["add"], "dataChange": False}}) for one in made)


@dataclass
class _Pending:
    """Rows that wait to be written together: of files with equal columns, until they are a row group."""

    layout: FileLayout
    counts: list[int] = field(default_factory=list)
    """The rows of each file that was read."""
    _tables: list[pa.Table] = field(default_factory=list)
    _size: int = 0

    def add(self, table: pa.Table) -> Iterator[pa.Table]:
        """Take the rows of a file; what is to be written now."""
        self.counts.append(table.num_rows)
        if self._tables and not self._tables[0].schema.equals(table.schema):
            yield from self.rest()
        self._tables.append(table)
        self._size += table.nbytes
        if self._size >= CHUNK_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[pa.Table]:
        """What still waits, under the table's schema.

        Raises:
            UnsupportedTableError, WouldAlterError: a value that safewrite does not write.
        """
        tables, self._tables, self._size = self._tables, [], 0
        if tables and sum(one.num_rows for one in tables):
            if sum(one.nbytes for one in tables) < len(tables) * COPIED_BYTES:
                tables = [pa.concat_tables(tables).combine_chunks()]
            made = [prepare(one, self.layout.schema, schema_mode="merge", stored=True) for one in tables]
            del tables
            yield pa.concat_tables([self.layout.stored(part) for one in made for part in one.tables()])


# --- one commit -----------------------------------------------------------------------------------------
@dataclass
class CompactionTransaction(Transaction):
    """Groups of files, each of which goes as a whole or not at all."""

    operation: str = OPERATION
    mode: str = "Compact"
    changes_data: bool = False
    change: DeltaChange | None = None
    vectors: Vectors = field(default_factory=Vectors)
    work: DeltaRegrouping = field(kw_only=True)
    known_files: KnownFiles = field(kw_only=True, repr=False)
    _live: dict[str, Action] = field(default_factory=dict, repr=False)
    """The files of the groups by their paths, as the newest version that was examined has them."""

    # --- what is written ------------------------------------------------------------------------
    def metrics(self) -> dict[str, int]:
        """``operationMetrics`` as Spark names them."""
        gone, came = self.planned_change.removed, self.planned_change.rewritten
        return {
            "numRemovedFiles": len(gone),
            "numRemovedBytes": sum(map(size_of, gone)),
            "numAddedFiles": len(came),
            "numAddedBytes": sum(file.mark.size for file in came),
            "numDeletionVectorsRemoved": sum(1 for add in gone if add.get("deletionVector")),
        }

    def parameters(self, partition_by: Sequence[str]) -> dict[str, str]:
        """``operationParameters`` as Spark writes them."""
        return {"predicate": "[]", "zOrderBy": "[]", "clusterBy": "[]", "auto": "false"}

    # --- the plan ---------------------------------------------------------------------------------
    def prepare(self) -> Generator[Effect, Outcome, None]:
        """Read the files of the groups that are still there, and write them again.

        Raises:
            ConflictError: kind CONFLICT; no group is left.
            StorageError: the store gave no answer.
        """
        yield from super().prepare()
        assert self.state is not None
        check_append(self.state)
        wanted = self.work.paths
        for (path, _), add in (yield from self.known_files.load(self.state, self.limits)).adds.items():
            if path in wanted:
                self._name(path, add)
        yield from self._plan()

    def renew(self) -> Generator[Effect, Outcome, None]:
        """Bring the groups to what others made of their files.

        Raises:
            As :meth:`prepare`.
        """
        if self._bodies:
            self.rebased += 1
        self.leave()
        yield from self._plan()

    def _plan(self) -> Generator[Effect, Outcome, None]:
        self.work.make(self._live)
        yield from self._follow()
        self.work.check()
        stand = self.work.standing.values()
        self.change = TableChange(
            removed=tuple(add for one in stand for add in one.taken),
            rewritten=self.work.files,
            kept_rows=sum(one.rows for one in stand),
        )

    def _follow(self) -> Generator[Effect, Outcome, None]:
        """Mark the rows in new files that others marked in old ones; a group of which a new file had better be without them is left out."""
        assert self.state is not None
        found = yield from self.work.follow(self._live, file_key, self._stay)
        wider: dict[FileKey, BitMap64] = {}
        for number, (group, places) in found.items():
            adds = {place: group.files[place].action["add"] for place in places}
            taken = {file_key(add): self.vectors.taking(add, places[place]) for place, add in adds.items()}
            known = {key: vector for key, vector in taken.items() if vector is not None}
            if len(known) < len(taken) or (taken and not marks_rows(self.state)):
                self.work.dropped[number] = TAKEN
            wider |= known if number in self.work.standing else {}
        stored = yield from self.vectors.store(wider, self.limits)
        for number, (group, _) in found.items():
            if number in self.work.standing:  # nothing is known of a group before its vectors are there
                files = tuple(_marked(file, stored) for file in group.files)
                self.work.followed[number] = replace(group, files=files)

    def _stay(self, files: Sequence[tuple[Action, Action]]) -> Generator[Effect, Outcome, list[Flags | None]]:
        """Which rows of files are left under their next vectors; None as ``Vectors.stays``, or where rows have other ids."""
        yield from self.vectors.fetch((add for both in files for add in both), self.limits)
        return [
            self.vectors.stays(before, after)
            if all(before.get(name) == after.get(name) for name in (ID, VERSION))
            else None
            for before, after in files
        ]

    # --- what others wrote --------------------------------------------------------------------------
    def check_conflict(self, version: int, commit: Commit) -> None:
        """Note what became of the files of the groups: :meth:`renew` goes on from it.

        Raises:
            ConflictError: SCHEMA_CHANGED as for appends.
        """
        super().check_conflict(version, commit)
        for one in commit.removes():
            path, vector = file_key(one)
            if path in self._live and file_key(self._live[path]) == (path, vector):
                del self._live[path]
        for one in commit.adds():
            if (path := file_key(one)[0]) in self.work.paths:
                self._name(path, one)

    def _name(self, path: str, add: Action) -> None:
        """Note a live file; one that is named again, or twice, is left to whoever did it."""
        if self._live.pop(path, None) is None:
            self._live[path] = add

    def never_named(self) -> list[str]:
        """The uploaded files that no commit names and none ever will, once the write has ended."""
        made = (file.mark.path for one in self.work.made.values() for file in one.files)
        return [] if self._bodies else [*dict.fromkeys([*made, *self._left, *self._paths()])]

    # --- how it ended -----------------------------------------------------------------------------
    def compacted(self, version: int | None, in_doubt: str | None = None) -> Compacted:
        """What the commit came to."""
        return self.work.compacted(version, in_doubt, lambda file: file.mark.size)


def _marked(file: StagedFile, stored: Mapping[FileKey, Action]) -> StagedFile:
    """A new file under its vector, if it has one."""
    add = file.action["add"]
    vector = stored.get(file_key(add))
    if vector is None:
        return file
    return replace(file, action={"add": {**marked(add, vector), "dataChange": False}})
