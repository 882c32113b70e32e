"""Describes the rows that came into a table, commit by commit, to those who follow it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from safewrite.errors import HistoryGapError, InvalidInputError
from safewrite.text.rendering import shown

if TYPE_CHECKING:
    import datetime as dt

    import pyarrow as pa


class Identified(Protocol):
    """A table, as positions name it."""

    @property
    def uri(self) -> str: ...

    @property
    def table_id(self) -> str: ...


BEFORE_ALL = -1
"""The position before the first commit."""
FILES_AT_ONCE, BYTES_AT_ONCE = 8, 32 * 2**20
"""At most so many files and bytes of them are read together."""


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A data file that brought rows; ``handle`` is what its format reads it by.

    ``rows`` is how many it holds by the table's metadata, None if that does not tell; fewer may be live.
    """

    size: int
    rows: int | None
    handle: Any = field(repr=False)


Reader: TypeAlias = "Callable[[Sequence[AddedFile], tuple[str, ...] | None], pa.Table]"


@dataclass(frozen=True, slots=True)
class AddedRows:
    """The rows that one commit brought, or all rows of a version; they are read when they are asked for.

    ``version`` is the Delta version or Iceberg snapshot id, ``timestamp`` the commit's in UTC, as its writer says.
    """

    version: int
    timestamp: dt.datetime | None
    files: tuple[AddedFile, ...] = field(repr=False)
    reader: Reader = field(repr=False, compare=False)

    @property
    def row_count(self) -> int:
        """How many rows there are by the table's metadata, which may count deleted rows and leave out files without statistics."""
        return sum(one.rows or 0 for one in self.files)

    def tables(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The rows, a few files at a time, of all columns or of some.

        Raises:
            InvalidInputError: the table lacks a column.
            DataFileError: a file is gone, as after VACUUM or expiry.
            StorageError: the store gave no answer.
            UnsupportedTableError: a file cannot be read.
        """
        from safewrite.frames.parallel import windows

        names = names_of(columns)
        for some in windows(self.files, lambda one: one.size, files=FILES_AT_ONCE, bytes_max=BYTES_AT_ONCE):
            yield self.reader(some, names)

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows at once.  Raises as :meth:`tables`."""
        import pyarrow as pa

        nothing = self.reader((), names_of(columns))
        return pa.concat_tables([nothing, *self.tables(columns)])

    def split(self, rows_max: int) -> list[AddedRows]:
        """The same rows in parts of whole files, of at most ``rows_max`` rows by :attr:`row_count` or of one file."""
        parts: list[list[AddedFile]] = []
        left = 0
        for one in self.files:
            if not parts or (one.rows or 0) > left:
                parts.append([])
                left = rows_max
            parts[-1].append(one)
            left -= one.rows or 0
        return [replace(self, files=tuple(part)) for part in parts]


@dataclass(frozen=True, slots=True)
class Followed:
    """A table that is followed: what reads its files, and the refusals that name it."""

    uri: str
    reader: Reader
    verb: str = "added_since"

    def brought(self, version: int, timestamp: dt.datetime | None, files: Iterable[AddedFile]) -> AddedRows:
        """What a commit brought."""
        return AddedRows(version, timestamp, tuple(files), self.reader)

    def gap(self, why: str) -> HistoryGapError:
        """The error for a table that cannot be followed from a position."""
        return gap(self.uri, why, self.verb)


def gap(uri: str, why: str, verb: str = "added_since") -> HistoryGapError:
    """The error for a table that cannot be followed from a position."""
    error = HistoryGapError(
        f"{uri} cannot be followed from there: {why}. Nothing more was read. Read the whole table ({verb}(None)), and go on from "
        "its version."
    )
    error.reason = why
    return error


def checked_position(version: Any, table_id: object, table: Identified) -> int | None:
    """``version`` as it was given.

    Raises:
        InvalidInputError: it is neither None nor a whole number.
        HistoryGapError: ``table_id`` is that of another table.
    """
    if version is not None and (type(version) is not int or version < BEFORE_ALL):
        raise InvalidInputError(
            f"added_since() takes a Delta version, an Iceberg snapshot id, -1 (before the first) or None (all rows), not "
            f"{shown(version)}. Nothing was read. Give the version of the rows that were taken last."
        )
    if table_id not in (None, table.table_id):
        why = f"it is another table (id {table.table_id}) than the one that was read (id {table_id})"
        raise gap(table.uri, why)
    return version


def names_of(columns: object) -> tuple[Any, ...] | None:
    """The names that were given: several, or one as a text."""
    if columns is None or isinstance(columns, str):
        return None if columns is None else (columns,)
    return tuple(columns) if isinstance(columns, Iterable) else (columns,)


def checked_columns(
    names: tuple[Any, ...] | None, schema: pa.Schema, *, named: str = "columns="
) -> tuple[str, ...] | None:
    """Columns as the argument ``named`` asks a reader for them.

    Raises:
        InvalidInputError: there are none, one comes twice, or the table lacks one.
    """
    if names is None:
        return None
    there = frozenset(schema.names)
    plain = [name for name in names if isinstance(name, str) and name in there]
    if not names or len({*plain}) < len(names):
        raise InvalidInputError(
            f"{named} takes names of columns of the table, each once, not {shown(names)}. Nothing was read. "
            f"It has: {', '.join(map(shown, schema.names))}."
        )
    return tuple(plain)
