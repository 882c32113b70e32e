"""Gives the rows that commits of a table brought, took away and changed, in batches, each with the position after it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import dropwhile
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.changes.meaning.change_types import AFTER, BEFORE, DELETE, FIELD, INSERT, typed
from safewrite.changes.meaning.positions import Flags, Numbers
from safewrite.errors import HistoryGapError, InvalidInputError, UnsupportedTableError
from safewrite.frames.fingerprint import Lane, row_hashes
from safewrite.frames.parallel import windows
from safewrite.table.added_rows import BYTES_AT_ONCE, FILES_AT_ONCE, AddedFile, checked_columns, names_of
from safewrite.table.change_position import ChangePosition, Since, before, checked, mark_of
from safewrite.text.rendering import shown
from safewrite.values import kept_names
from safewrite.values.unsupported import saying_why

if TYPE_CHECKING:
    from safewrite.table.history import HistoryEntry

_STAMPS = (
    pa.field("_commit_version", pa.int64(), nullable=False),
    pa.field("_commit_timestamp", pa.timestamp("us", "UTC")),
    pa.field("_change_ordinal", pa.int64(), nullable=False),
)
"""What is said of a row's commit; versions of Delta order its commits, and need no ordinal."""


@dataclass(frozen=True, slots=True)
class CommitChanges:
    """What one commit did to rows, by files: those that rows went from, that rows came in, and that tell the type of each row.

    ``position`` is that after it; ``whole``: it stands for all rows of a version.
    """

    position: ChangePosition
    timestamp: dt.datetime | None = None
    gone: tuple[AddedFile, ...] = ()
    came: tuple[AddedFile, ...] = ()
    typed: tuple[AddedFile, ...] = ()
    ordinal: int | None = None
    whole: bool = False


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Some of the changes that one commit made; ``position`` is that after them, to go on from.

    ``rows`` has the table's columns, ``_change_type`` (``insert``, ``delete``, ``update_preimage``, ``update_postimage``),
    ``_commit_version`` and ``_commit_timestamp``; of Iceberg ``_change_ordinal``, too.
    """

    version: int
    timestamp: dt.datetime | None
    position: str
    rows: pa.Table = field(repr=False)


class ChangeSource(Protocol):
    """One version of a table, with all columns or some; its format tells what led to it."""

    @property
    def version(self) -> int: ...

    @property
    def table_id(self) -> str: ...

    @property
    def schema(self) -> pa.Schema:
        """The columns of rows, each of which may be NULL.

        Raises:
            UnsupportedTableError: one of the table's cannot be read.
        """

    @property
    def has_ordinals(self) -> bool:
        """Whether versions order nothing, and commits have an ordinal."""

    def keys(self) -> tuple[str, ...]:
        """The key columns that changes were applied by; none where the table records none.  Raises StorageError: no answer."""

    def commits(self, since: ChangePosition | None) -> Iterator[CommitChanges]:
        """What each commit after a position did, oldest first; without one all rows come first, as one commit's.

        The commit that the position is within comes first, too.

        Raises:
            HistoryGapError: the table cannot be followed from there.
            StorageError: no answer.
        """

    def read(self, files: Sequence[AddedFile], commit: CommitChanges) -> pa.Table:
        """The rows of files of one commit; of those that tell types, with the column of these.

        Raises:
            HistoryGapError: a file is gone, or its rows do not fit the schema of now.
            StorageError: no answer.
        """

    def gap(self, why: str) -> HistoryGapError:
        """The error for changes that cannot be told from a position on."""


ROWS_MAX = 2**40
"""More rows than a batch ever has."""
Step = tuple[ChangePosition, ChangedRows | None]


class RowChanges(Iterator[ChangedRows]):
    """The changes of a table from a position up to the version that was known, commit by commit, in batches.

    ``position`` is how far they were taken (None before any), ``version`` the commit that they lead to, ``schema`` that of all
    batches.  After an error the same error comes again: nothing is passed over.
    """

    def __init__(
        self, version: int, schema: pa.Schema, since: str | None, advance: Callable[[], Step | None]
    ) -> None:
        self.version = version
        self.schema = schema
        self.position = since
        self._advance = advance
        self._failed: Exception | None = None

    def __next__(self) -> ChangedRows:
        if self._failed is not None:
            raise self._failed
        while (step := self._stepped()) is not None:
            self.position = str(step[0])
            if step[1] is not None:
                return step[1]
        raise StopIteration

    def _stepped(self) -> Step | None:
        try:
            return self._advance()
        except Exception as error:
            self._failed = error
            raise

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "Changes that are being read cannot be pickled. Keep the position of the last batch (or .position of this object), and call "
            "changes_since(position) where it is to go on."
        )

    def read(self) -> pa.Table:
        """All changes that are left, at once.  Raises as iterating does."""
        return pa.concat_tables([self.schema.empty_table(), *(one.rows for one in self)])


class WithChanges(Protocol):
    """A table whose changes are read."""

    @property
    def unread(self) -> Mapping[str, str]:
        """The columns whose types are not known, with the reason."""

    def changes(self, columns: tuple[Any, ...] | None, /) -> ChangeSource:
        """What tells its changes, with all columns or some.  Raises InvalidInputError: it lacks one."""

    def history(self, limit: int | None, /) -> list[HistoryEntry]:
        """The newest commits that are still there."""


def begun(
    table: WithChanges,
    begin: tuple[Since, object],
    how: tuple[Sequence[str] | None, int, Sequence[str] | None],
    advance: Callable[[Iterator[Step]], Step | None],
) -> RowChanges:
    """The changes that a caller asked for, nothing of which is read yet; ``advance`` goes on to the next batch.

    Raises:
        InvalidInputError: the position, the keys or the number of rows are none.
        HistoryGapError: the position is of another table.
    """
    with saying_why(lambda: table.unread):
        at, source = checked(begin[0]), table.changes(names_of(how[2]))
    schema = schema_of(source)
    if isinstance(at, dt.datetime):
        told = [*dropwhile(lambda one: one.version != source.version, table.history(None))]
        at = ChangePosition(before(at, told))
    named = begin[1] if at is None or at.table_id is None else at.table_id
    if named not in (None, source.table_id):
        raise source.gap(
            f"it is another table (id {source.table_id}) than the one that was read (id {named})"
        )
    keys, batch_rows = _checked_keys(how, source), how[1]
    if type(batch_rows) is not int or batch_rows < 1:
        raise InvalidInputError(
            f"batch_rows is a whole number of rows, 1 at least, not {shown(batch_rows)}. Nothing was read."
        )
    since = None if at is None else str(replace(at, table_id=source.table_id))
    return RowChanges(
        source.version, schema, since, partial(advance, steps(source, at, keys, min(batch_rows, ROWS_MAX)))
    )


def _checked_keys(
    how: tuple[Sequence[str] | None, int, Sequence[str] | None], source: ChangeSource
) -> tuple[str, ...]:
    """The key columns that were given, or that the table records.

    Raises:
        InvalidInputError: the table lacks one, or ``columns=`` does.
    """
    keys, _, columns = how
    names = names_of(source.keys() if keys is None else keys)
    there = frozenset(source.schema.names)
    left_out = [] if columns is None else [one for one in names or () if one not in there]
    if left_out:
        raise InvalidInputError(
            f"columns= leaves out {', '.join(map(shown, left_out))}, by which rows are the images of an update. Nothing was read. Name the key's "
            "columns too, or give keys=[]: then each change is a delete or an insert."
        )
    return (names and checked_columns(names, source.schema, named="keys=")) or ()


def schema_of(source: ChangeSource) -> pa.Schema:
    """The columns of changes.

    Raises:
        UnsupportedTableError: the table has one of such a name, or one that cannot be read.
    """
    schema, stamps = source.schema, _STAMPS if source.has_ordinals else _STAMPS[:2]
    clash = kept_names.among(schema.names, frozenset(one.name for one in (FIELD, *stamps)))
    if clash:
        raise UnsupportedTableError(
            f"The table has {', '.join(map(shown, clash))}, and its changes have columns of these names too. Nothing was read. Rename "
            "the table's columns."
        )
    return pa.schema([*schema, FIELD, *stamps])


def steps(
    source: ChangeSource, since: ChangePosition | None, keys: Sequence[str], batch_rows: int
) -> Iterator[Step]:
    """The batches of changes after a position, and the position after each commit.

    Raises:
        As :class:`ChangeSource`.
    """
    schema, mark = schema_of(source), mark_of(source.schema)
    for commit in source.commits(since):
        taken = 0
        if since is not None and since.version == commit.position.version:
            taken = since.rows
            if taken and commit.gone and commit.came and since.schema != mark:
                raise source.gap(
                    f"{taken} changes of version {since.version} were taken, and the table has other columns since, by which others of "
                    "its rows may differ"
                )
        yield from _batches(source, commit, (keys, schema, batch_rows), taken)


def _batches(
    source: ChangeSource, commit: CommitChanges, how: tuple[Sequence[str], pa.Schema, int], taken: int
) -> Iterator[Step]:
    """The batches of one commit, without the changes that were taken of it before, and the position after it."""
    keys, schema, batch_rows = how
    stamps = (commit.position.version, commit.timestamp, commit.ordinal)
    parts = _slices(_typed_rows(source, commit, keys), taken, batch_rows)
    part = next(parts, None)
    while part is not None:
        taken += part.num_rows
        more = next(parts, None)
        at = commit.position
        if more is not None:
            at = at.within(taken, source.schema, whole=commit.whole)
        named = [*schema][part.num_columns :]
        said = [
            pa.repeat(pa.scalar(value, one.type), part.num_rows)
            for value, one in zip(stamps, named, strict=False)
        ]
        rows = pa.Table.from_arrays([*part.columns, *said], schema=schema)
        yield at, ChangedRows(commit.position.version, commit.timestamp, str(at), rows)
        part = more
    yield commit.position, None


def _slices(tables: Iterator[pa.Table], skipped: int, batch_rows: int) -> Iterator[pa.Table]:
    """Rows put together in parts of that size, or of fewer rows that take much memory; the first are left out."""
    held: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        part = table.slice(min(skipped, table.num_rows))
        skipped -= table.num_rows - part.num_rows
        while part.num_rows:
            some = part.slice(0, batch_rows - rows)
            part = part.slice(some.num_rows)
            held, rows, size = [*held, some], rows + some.num_rows, size + some.nbytes
            if rows == batch_rows or size >= BYTES_AT_ONCE:
                yield pa.concat_tables(held)
                held, rows, size = [], 0, 0
    if held:
        yield pa.concat_tables(held)


def _typed_rows(source: ChangeSource, commit: CommitChanges, keys: Sequence[str]) -> Iterator[pa.Table]:
    """The changes of one commit with their types; rows that went before rows that came."""
    if commit.gone and commit.came:
        yield from _differing(source, commit, keys)
        return
    for files, kind in ((commit.gone, DELETE), (commit.came, INSERT), (commit.typed, None)):
        for some in _windows(files):
            rows = source.read(some, commit)
            yield rows if kind is None else typed(rows, kind)


def _windows(files: Sequence[AddedFile]) -> list[list[AddedFile]]:
    return [*windows(files, lambda one: one.size, files=FILES_AT_ONCE, bytes_max=BYTES_AT_ONCE)]


# --- files that were rewritten ----------------------------------------------------------------------------
def _differing(source: ChangeSource, commit: CommitChanges, keys: Sequence[str]) -> Iterator[pa.Table]:
    """The rows that went and came by one commit, without those that did both: such were only written again.

    Files are read twice, unless they are small: of each row its hashes are held, of 128 bits, and those of its key.
    """
    sides = (_windows(commit.gone), _windows(commit.came))
    is_small = sum(one.size for one in (*commit.gone, *commit.came)) <= BYTES_AT_ONCE
    held: list[pa.Table] = []
    hashes, named, rows_gone = _Hashes(), _Hashes(), 0
    for side in sides:
        rows_gone = hashes.rows
        for some in side:
            rows = source.read(some, commit)
            hashes.add(rows)
            if keys:
                named.add(rows.select(keys))
            held += [rows] if is_small else []
            del rows
    is_gone = np.arange(hashes.rows) < rows_gone
    differs = _left(hashes.groups(), is_gone)
    meets = np.zeros(hashes.rows, np.bool_)
    if keys:
        meets = _both(named.groups(), is_gone, differs & named.is_known())
    types = np.where(is_gone, np.where(meets, BEFORE, DELETE), np.where(meets, AFTER, INSERT))
    first = 0
    for number, some in enumerate((*sides[0], *sides[1])):
        rows = held[number] if is_small else source.read(some, commit)
        end = first + rows.num_rows
        flags = differs[first:end]
        if flags.any():
            yield typed(rows.filter(pa.array(flags)), types[first:end][flags])
        first = end


class _Hashes:
    """Two hashes of each of many rows."""

    def __init__(self) -> None:
        self.rows = 0
        self._lanes: tuple[list[Lane], list[Lane]] = ([], [])
        self._known: list[Flags] = []

    def add(self, rows: pa.Table) -> None:
        """Add rows."""
        self.rows += rows.num_rows
        for lane, values in zip(self._lanes, row_hashes(rows), strict=True):
            lane.append(values)
        known = np.ones(rows.num_rows, np.bool_)
        for column in rows.columns:
            if column.null_count:
                known &= np.asarray(pc.is_valid(column).to_numpy(), np.bool_)
        self._known.append(known)

    def is_known(self) -> Flags:
        """Which rows have no NULL, which is equal to nothing."""
        return np.concatenate([np.zeros(0, np.bool_), *self._known])

    def groups(self) -> Numbers:
        """A number for each row, the same for equal rows."""
        first, second = (np.concatenate([np.zeros(0, np.uint64), *lane]) for lane in self._lanes)
        order = np.lexsort((second, first))
        first, second = first[order], second[order]
        begins = np.ones(len(order), np.bool_)
        begins[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
        found = np.empty(len(order), np.int64)
        found[order] = np.cumsum(begins) - 1
        return found


def _left(groups: Numbers, is_gone: Flags) -> Flags:
    """Which rows are left once each that went was paired with an equal one that came."""
    if not len(groups):
        return np.zeros(0, np.bool_)
    sizes = np.bincount(groups)
    gone = np.bincount(groups[is_gone], minlength=len(sizes))
    pairs = np.minimum(gone, sizes - gone)
    order = np.argsort(groups, kind="stable")  # within a group rows that went come first
    place = np.empty(len(groups), np.int64)
    place[order] = np.arange(len(groups)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    place -= np.where(is_gone, 0, gone[groups])
    left: Flags = place >= pairs[groups]
    return left


def _both(groups: Numbers, is_gone: Flags, among: Flags) -> Flags:
    """Which of some rows have a key that one of them that went and one that came has."""
    went, came = groups[among & is_gone], groups[among & ~is_gone]
    met: Flags = among & np.isin(groups, np.intersect1d(went, came))
    return met
