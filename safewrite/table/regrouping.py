"""Puts groups of files together for one commit: each group goes as a whole, or is left out, and the rest goes on.

New files have the rows of a group file after file, in the order in which they were read.  So a row that a rival deletes meanwhile, by its
place in an old file, is found again by its place in a new one: the group goes on, and the new file is committed with that row deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np

from safewrite.changes.meaning.positions import Flags, Numbers
from safewrite.errors import (
    ConflictError,
    DataFileError,
    InternalError,
    InvalidInputError,
    Kind,
    StorageError,
    UnsupportedTableError,
    WouldAlterError,
)
from safewrite.protocol.effects import Effect, Outcome
from safewrite.upkeep.groups import Group
from safewrite.upkeep.maintain import TAKEN, Compacted, left_out

ThereT = TypeVar("ThereT")
"""A file of a group as a base shows it."""
FileT = TypeVar("FileT")
"""A file that comes."""
MarkT = TypeVar("MarkT")
"""What says that some rows of a new file are gone, where the file itself does not."""
Places: TypeAlias = Mapping[int, Numbers]
"""Places of rows in files, by the number of the file."""


@dataclass(frozen=True, slots=True)
class Regrouped(Generic[ThereT, FileT, MarkT]):
    """The files that take the place of others.

    ``counts`` are the rows that were read of each file that was ``taken``, ``sizes`` the rows of each new one.  Of these so many are ``gone``
    since; ``marks`` tell which, as far as the new ``files`` do not.
    """

    taken: tuple[ThereT, ...]
    files: tuple[FileT, ...]
    counts: tuple[int, ...]
    sizes: tuple[int, ...]
    gone: int = 0
    marks: tuple[MarkT, ...] = ()

    def __post_init__(self) -> None:
        if sum(self.counts) != sum(self.sizes):
            raise InternalError(
                f"{sum(self.counts)} rows were read to be put together, and {sum(self.sizes)} written. Nothing was committed. Please "
                "report it."
            )

    @property
    def rows(self) -> int:
        """The rows of all new files that are not gone."""
        return sum(self.sizes) - self.gone

    def moved(self, gone: Places) -> Places:
        """The places in new files of rows of old ones, which have their numbers among the rows that were read."""
        first, begins = np.cumsum([0, *self.counts]), np.cumsum([0, *self.sizes])
        rows = np.concatenate(
            [np.zeros(0, np.int64), *(first[number] + gone[number] for number in sorted(gone))]
        )
        cuts = np.searchsorted(rows, begins)
        parts = {
            number: rows[cuts[number] : cuts[number + 1]] - begins[number]
            for number in range(len(self.sizes))
        }
        return {number: places for number, places in parts.items() if len(places)}


Steps = Generator[Effect, Outcome, Regrouped[ThereT, FileT, MarkT]]
Seen: TypeAlias = Sequence[tuple[ThereT, ThereT]]
"""Files as they were read, and as another base shows them."""


@dataclass
class Regrouping(Generic[ThereT, FileT, MarkT]):
    """Groups on their way into one commit; what was made of one serves every base on which its files are still there."""

    groups: Sequence[Group]
    made: dict[int, Regrouped[ThereT, FileT, MarkT]] = field(default_factory=dict, repr=False)
    """The groups as they were read and written."""
    followed: dict[int, Regrouped[ThereT, FileT, MarkT]] = field(default_factory=dict, repr=False)
    """Those of which rivals deleted rows since, as the last base has them."""
    dropped: dict[int, str] = field(default_factory=dict)
    """Why groups are left out, by their number."""

    @cached_property
    def paths(self) -> frozenset[Hashable]:
        """The names of all files of the groups, which are their paths."""
        return frozenset(file.name for group in self.groups for file in group.files)

    @property
    def standing(self) -> dict[int, Regrouped[ThereT, FileT, MarkT]]:
        """The groups that are not left out, as the last base has them."""
        now = self.made | self.followed
        return {number: now[number] for number in self.made if number not in self.dropped}

    @property
    def files(self) -> tuple[FileT, ...]:
        """The new files of the groups that stand."""
        return tuple(file for one in self.standing.values() for file in one.files)

    @property
    def lost(self) -> list[FileT]:
        """The new files of groups that were left out since."""
        return [file for number, one in self.made.items() if number in self.dropped for file in one.files]

    def make(
        self,
        live: Mapping[Any, ThereT],
        put_together: Callable[[int, list[ThereT]], Steps[ThereT, FileT, MarkT]],
    ) -> Generator[Effect, Outcome, None]:
        """Leave out the groups that are not whole any more among the ``live`` files of a base, and put those together that were not yet."""
        for number, group in enumerate(self.groups):
            if number in self.dropped:
                continue
            there = [live[file.name] for file in group.files if file.name in live]
            if len(there) < len(group.files):
                self.dropped[number] = TAKEN
            elif number not in self.made:
                with self._left_out_if_unfit(number):
                    self.made[number] = yield from put_together(number, there)

    def follow(
        self,
        live: Mapping[Any, ThereT],
        name_of: Callable[[ThereT], Hashable],
        stay: Callable[[Seen[ThereT]], Generator[Effect, Outcome, Sequence[Flags | None]]],
    ) -> Generator[Effect, Outcome, dict[int, tuple[Regrouped[ThereT, FileT, MarkT], Places]]]:
        """Bring what was made to a base that shows files under other names, for rivals deleted rows of them.

        ``stay`` tells for such files which of the rows that were read are left; None where it cannot be told: then the group is left out.
        The answer are the groups that changed since the last base, and where deleted rows are in their new files: the caller marks these,
        and puts the group among the ``followed``.  A later rival is followed from what was read first, so its answer holds all that went.
        """
        found: dict[int, tuple[Regrouped[ThereT, FileT, MarkT], Places]] = {}
        for number, last in self.standing.items():
            made, now = self.made[number], tuple(live[file.name] for file in self.groups[number].files)
            names, was = [*map(name_of, now)], [*map(name_of, made.taken)]
            if names == [*map(name_of, last.taken)]:
                continue
            others = [place for place, name in enumerate(names) if name != was[place]]
            with self._left_out_if_unfit(number):
                flags = yield from stay([(made.taken[place], now[place]) for place in others])
                gone = {
                    place: np.flatnonzero(~left)
                    for place, left in zip(others, flags, strict=True)
                    if left is not None and len(left) == made.counts[place]
                }
                if len(gone) < len(others):
                    self.dropped[number] = TAKEN
                    continue
                count = sum(map(len, gone.values()))
                found[number] = replace(made, taken=now, gone=count), made.moved(gone)
        return found

    @contextmanager
    def _left_out_if_unfit(self, number: int) -> Iterator[None]:
        """Leave a group out of which a file cannot be read, or not be written again."""
        try:
            yield
        except (DataFileError, UnsupportedTableError, WouldAlterError, InvalidInputError) as error:
            self.dropped[number] = error.message
        except StorageError as error:
            if error.kind is not Kind.DATA_FILE_DAMAGED:
                raise
            self.dropped[number] = error.message

    def check(self) -> None:
        """Refuse to commit nothing.

        Raises:
            ConflictError: kind CONFLICT; no group is left.
        """
        if not self.standing:
            raise ConflictError("No group of files is left to be put together. Nothing was committed.")

    def compacted(
        self, version: int | None, in_doubt: str | None, size_of: Callable[[FileT], int]
    ) -> Compacted:
        """What the commit came to."""
        if version is None:
            return left_out(self.groups, self.dropped, in_doubt)
        stand = self.standing
        return Compacted(
            version,
            tuple(self.groups[number] for number in stand),
            tuple(self.dropped.values()),
            len(self.files),
            sum(map(size_of, self.files)),
            sum(one.rows for one in stand.values()),
        )
