"""Tells what commits of a Delta table did to rows, by the actions of its log (PROTOCOL.md, "Action Reconciliation", "Add CDC File").

A commit with change files is what these say; of any other the rows that went and came are those of the files that it removed and
added, and of a file under another deletion vector those that the two vectors do not share.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from safewrite.changes.meaning.change_types import FIELD
from safewrite.changes.meaning.positions import Numbers
from safewrite.changes.meaning.reading import loose
from safewrite.delta.data.mapping import by_display_name
from safewrite.delta.data.rows import check_within, contents, damaged, size_of, stored_rows
from safewrite.delta.data.vector_files import Vectors
from safewrite.delta.log.actions import Action, Commit, FileKey, file_key
from safewrite.delta.log.file_list_cache import KnownFiles
from safewrite.delta.log.replay import commits_since
from safewrite.delta.log.snapshot import Snapshot, load
from safewrite.delta.read.added_rows import COMMITS_AT_ONCE, check_newest, check_table, file_of, time_of
from safewrite.delta.read.files import read_files
from safewrite.errors import ConflictError, HistoryGapError, Kind, StorageError, UnsupportedTableError
from safewrite.frames.parallel import all_of
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.table.added_rows import AddedFile, Followed
from safewrite.table.change_position import ChangePosition
from safewrite.table.row_changes import CommitChanges
from safewrite.values.unsupported import check_all_read

T = TypeVar("T")
Steps = Generator[Effect, Outcome, T]


@dataclass(frozen=True, slots=True)
class _RowsAt:
    """Some rows of a file, by their numbers in it."""

    add: Action
    numbers: Numbers = field(repr=False)


@dataclass(frozen=True, slots=True)
class _ChangeFile:
    """A file of the change data feed."""

    add: Action


@dataclass
class DeltaChanges:
    """See :class:`safewrite.table.row_changes.ChangeSource`; ``run`` performs what is asked of the store."""

    state: Snapshot
    root: str
    known: KnownFiles
    limits: Limits
    table: Followed
    run: Callable[[Steps[Any]], Any]
    keys: Callable[[], tuple[str, ...]]
    columns: tuple[str, ...] | None = None
    has_ordinals = False
    _vectors: Vectors = field(init=False)
    _then: dict[frozenset[str], Snapshot] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._vectors = Vectors(self.root)

    @property
    def version(self) -> int:
        return self.state.version

    @property
    def table_id(self) -> str:
        return self.state.table_id

    @property
    def schema(self) -> pa.Schema:
        if self.columns is None:
            check_all_read(self.state.unread, self.state.schema.names)
        return self._rows_schema

    @property
    def _rows_schema(self) -> pa.Schema:
        wide = loose(self.state.schema)
        return wide if self.columns is None else pa.schema([wide.field(name) for name in self.columns])

    def gap(self, why: str) -> HistoryGapError:
        return self.table.gap(why)

    # --- commits ------------------------------------------------------------------------------------
    def commits(self, since: ChangePosition | None) -> Iterator[CommitChanges]:
        """See :class:`safewrite.table.row_changes.ChangeSource`."""
        newest = self.state.version
        if since is None or since.whole:
            begin = newest if since is None else since.version
            yield self.run(self._everything(begin))
        else:
            begin = since.version - bool(since.rows)
        if begin > newest:
            raise self.gap(
                f"it has only version {newest}, not {begin}: it was set back, or is another, or this object is older: refresh() it"
            )
        if begin < newest:
            (last,) = self._commits(newest - 1, newest)  # rows of another table's log are not to be given
            check_newest(last, self.state, self.table)
        for at in range(begin, newest, COMMITS_AT_ONCE):
            for commit in self._commits(at, min(at + COMMITS_AT_ONCE, newest)):
                check_newest(commit, self.state, self.table)
                self._vectors = Vectors(self.root)  # those of one commit are held, and no more
                yield self.run(self._changes(commit))

    def _commits(self, after: int, to: int) -> Sequence[Commit]:
        found = self.run(commits_since(after, to, self.limits))
        if found is None:
            self.run(load(at=self.state.version, limits=self.limits))  # a table that was dropped has no gap
            raise self.gap(f"the log no longer has all versions after {after}: some were cleaned up")
        return list(found)

    def _everything(self, version: int) -> Steps[CommitChanges]:
        """All rows of a version, file by file in an order that does not depend on how the log was read."""
        files = yield from self._files_of(version)
        ordered = sorted(files, key=lambda key: (key[0], key[1] or ""))
        at = ChangePosition(version, self.table_id)
        return CommitChanges(at, came=tuple(file_of(files[key]) for key in ordered), whole=True)

    def _files_of(self, version: int) -> Steps[dict[FileKey, Action]]:
        state: Snapshot | None = self.state
        known = self.known
        if version != self.state.version:
            known = KnownFiles()
            try:
                state = yield from load(at=version, limits=self.limits)
            except ConflictError as error:
                raise self.gap(f"it has no version {version}: it was set back, or is another") from error
            except StorageError as error:
                if error.kind is not Kind.CORRUPT_LOG:
                    raise
                raise self.gap(f"the log no longer tells the files of version {version}") from error
        if state is None or state.table_id != self.table_id:
            raise self.gap(f"version {version} is another table's")
        replay = yield from known.load(state, self.limits)
        return dict(replay.adds)

    def _changes(self, commit: Commit) -> Steps[CommitChanges]:
        """What one commit did.

        Raises:
            HistoryGapError: it made another table.
            StorageError: a vector is gone, or no answer.
        """
        check_table(commit, self.state, self.table)
        made = CommitChanges(ChangePosition(commit.version, self.table_id), time_of(commit))
        feed = commit.of("cdc")
        if feed:
            return replace(made, typed=tuple(AddedFile(size_of(one), None, _ChangeFile(one)) for one in feed))
        removes = [one for one in commit.removes() if one.get("dataChange", True)]
        adds = {_path(one): one for one in commit.adds() if one.get("dataChange", True)}
        if self.state.partition_by and any(one.get("partitionValues") is None for one in removes):
            removes = yield from self._completed(removes, commit.version - 1)
        marked = {_path(one): one for one in removes if _path(one) in adds}
        own = {path: one for path, one in marked.items() if file_key(one) != file_key(adds[path])}
        both = [*own.values(), *(adds[path] for path in own)]
        try:
            yield from self._vectors.fetch(both, self.limits)
        except StorageError as error:
            raise self._unread(commit.version, error) from error
        gone = [file_of(one) for one in removes if _path(one) not in marked]
        gone += self._marked(own.values(), adds)
        came = [file_of(one) for path, one in adds.items() if path not in marked]
        came += self._marked((adds[path] for path in own), own)
        return replace(made, gone=tuple(gone), came=tuple(came))

    def _marked(self, files: Any, others: dict[str, Action]) -> Iterator[AddedFile]:
        """The rows of files that are live under their vector, and not under the other one of the same file."""
        for one in files:
            minus, vector = self._vectors.of(others[_path(one)]), self._vectors.of(one)
            if minus is None:
                continue
            left = minus if vector is None else minus - vector
            if left:
                numbers = np.frombuffer(left.to_array(), np.uint64).astype(np.int64)
                yield AddedFile(size_of(one), len(numbers), _RowsAt(one, numbers))

    def _completed(self, removes: Sequence[Action], version: int) -> Steps[list[Action]]:
        """Removed files with the partition values that their writer left out."""
        files = yield from self._files_of(version)
        found = []
        for one in removes:
            before = files.get(file_key(one))
            if before is None:
                raise self.gap(
                    f"version {version + 1} removed {one['path']}, and does not say of which partition it was"
                )
            found.append(before)
        return found

    # --- rows ---------------------------------------------------------------------------------------
    def read(self, files: Sequence[AddedFile], commit: CommitChanges) -> pa.Table:
        """See :class:`safewrite.table.row_changes.ChangeSource`."""
        try:
            return self.run(self._rows([one.handle for one in files]))
        except (StorageError, UnsupportedTableError) as error:
            if commit.whole and commit.position.version == self.state.version:
                raise
            raise self._unread(commit.position.version, error) from error

    def _unread(self, version: int, error: StorageError | UnsupportedTableError) -> Exception:
        """The error for rows of a commit that cannot be read."""
        if isinstance(error, UnsupportedTableError):
            return self.gap(f"rows of version {version} do not fit the table of now ({error.message})")
        if error.kind is not Kind.DATA_FILE_DAMAGED:
            return error
        return self.gap(
            f"a file of version {version} is gone or damaged, as VACUUM takes what was removed ({error.message})"
        )

    def _rows(self, handles: Sequence[Any]) -> Steps[pa.Table]:
        found = [self._no_rows(handles)]
        for (kind, state), some in groupby(handles, lambda one: (type(one), self._state_of(one))):
            group = list(some)
            if kind is dict:
                read = read_files(group, state, self._vectors, self.limits, columns=self.columns)
                found.append((yield from read))
                continue
            adds = [one.add for one in group]
            for add in adds:
                check_within(add)
            bodies = yield from contents(adds, self.limits, name="read.get_data")
            rows_in = _fed if kind is _ChangeFile else _rows_at
            found += all_of(
                [
                    partial(rows_in, body, one, state, self.columns)
                    for body, one in zip(bodies, group, strict=True)
                ]
            )
        return pa.concat_tables(found)

    def _no_rows(self, handles: Sequence[Any]) -> pa.Table:
        nothing = self._rows_schema.empty_table()
        if handles and isinstance(handles[0], _ChangeFile):
            return nothing.append_column(FIELD, pa.array([], pa.string()))
        return nothing

    def _state_of(self, handle: Any) -> Snapshot:
        """The table of now, partitioned as it was when a file was written: files have no other columns than their partitions lack."""
        add = handle if isinstance(handle, dict) else handle.add
        state, spelled = self.state, add.get("partitionValues") or {}
        own = frozenset(by_display_name(spelled, state)) & frozenset(state.schema.names)
        if own == frozenset(state.partition_by):
            return state
        if own not in self._then:
            columns = [name for name in state.schema.names if name in own]
            self._then[own] = replace(state, metadata={**state.metadata, "partitionColumns": columns})
        return self._then[own]


def _path(file: Action) -> str:
    return file_key(file)[0]


def _rows_at(body: bytes, file: _RowsAt, state: Snapshot, columns: tuple[str, ...] | None) -> pa.Table:
    """Some rows of a file."""
    rows = stored_rows(body, file.add, state, columns, None)
    if len(file.numbers) and int(file.numbers[-1]) >= rows.num_rows:
        raise damaged(file.add["path"], f"its vector names row {file.numbers[-1]} of {rows.num_rows}")
    return rows.take(pa.array(file.numbers))


def _fed(body: bytes, file: _ChangeFile, state: Snapshot, columns: tuple[str, ...] | None) -> pa.Table:
    """The rows of a change file, with their types."""
    import pyarrow.parquet as pq

    rows = stored_rows(body, file.add, state, columns, None)
    try:
        types = pq.read_table(pa.BufferReader(body), columns=[FIELD.name], partitioning=None).column(0)
    except (pa.ArrowException, OSError, IndexError) as error:
        raise damaged(file.add["path"], str(error)) from error
    return rows.append_column(FIELD, types.cast(pa.string()))
