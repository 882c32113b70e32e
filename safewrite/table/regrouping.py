"""Puts groups of files together for one commit: each group goes as a whole, or is left out, and the rest goes on."""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from safewrite.errors import (
    ConflictError,
    DataFileError,
    InvalidInputError,
    Kind,
    StorageError,
    UnsupportedTableError,
    WouldAlterError,
)
from safewrite.protocol.effects import Effect, Outcome
from safewrite.table.change import FileT, LiveT, TableChange
from safewrite.upkeep.groups import Group, untouched
from safewrite.upkeep.maintain import TAKEN, Compacted, left_out


@dataclass(frozen=True, slots=True)
class Regrouped(Generic[LiveT, FileT]):
    """The files that take the place of others, and how many rows they have."""

    taken: tuple[LiveT, ...]
    files: tuple[FileT, ...]
    rows: int


ThereT = TypeVar("ThereT")
"""What a base shows of a file."""
Steps = Generator[Effect, Outcome, Regrouped[LiveT, FileT]]


@dataclass
class Regrouping(Generic[LiveT, FileT]):
    """Groups on their way into one commit; what was made of one serves every base on which its files are still there."""

    groups: Sequence[Group]
    made: dict[int, Regrouped[LiveT, FileT]] = field(default_factory=dict, repr=False)
    dropped: dict[int, str] = field(default_factory=dict)
    """Why groups are left out, by their number."""

    @property
    def standing(self) -> list[int]:
        """The groups that are not left out."""
        return [number for number in self.made if number not in self.dropped]

    @property
    def files(self) -> tuple[FileT, ...]:
        """The new files of the groups that stand."""
        return tuple(file for number in self.standing for file in self.made[number].files)

    @property
    def lost(self) -> list[FileT]:
        """The new files of groups that were left out since."""
        return [file for number, one in self.made.items() if number in self.dropped for file in one.files]

    def make(
        self, live: Mapping[Any, ThereT], put_together: Callable[[int, list[ThereT]], Steps[LiveT, FileT]]
    ) -> Generator[Effect, Outcome, None]:
        """Leave out the groups that are not whole any more among the ``live`` files of a base, and put those together that were not yet."""
        for number, group in enumerate(self.groups):
            if number in self.dropped:
                continue
            there = [live[file.name] for file in group.files if file.name in live]
            if len(there) < len(group.files):
                self.dropped[number] = TAKEN
            elif number not in self.made:
                try:
                    self.made[number] = yield from put_together(number, there)
                except (DataFileError, UnsupportedTableError, WouldAlterError, InvalidInputError) as error:
                    self.dropped[number] = error.message
                except StorageError as error:
                    if error.kind is not Kind.DATA_FILE_DAMAGED:
                        raise
                    self.dropped[number] = error.message

    def leave_out(self, touched: Container[Hashable]) -> list[FileT]:
        """Leave out the groups of which others took or named a file; returns the new files of these."""
        stands = {number: self.groups[number] for number in self.standing}
        gone = stands.keys() - {*untouched(stands, touched)}
        self.dropped |= dict.fromkeys(gone, TAKEN)
        return [file for number in gone for file in self.made[number].files]

    def change(self) -> TableChange[LiveT, FileT, Any]:
        """What becomes of the files that are there.

        Raises:
            ConflictError: kind CONFLICT; no group is left.
        """
        stand = [self.made[number] for number in self.standing]
        if not stand:
            raise ConflictError("No group of files is left to be put together. Nothing was committed.")
        return TableChange(
            removed=tuple(file for one in stand for file in one.taken),
            kept_rows=sum(one.rows for one in stand),
        )

    def compacted(
        self, version: int | None, in_doubt: str | None, size_of: Callable[[FileT], int]
    ) -> Compacted:
        """What the commit came to."""
        if version is None:
            return left_out(self.groups, self.dropped, in_doubt)
        stand, files = self.standing, self.files
        return Compacted(
            version,
            tuple(self.groups[number] for number in stand),
            tuple(self.dropped.values()),
            len(files),
            sum(map(size_of, files)),
            sum(self.made[number].rows for number in stand),
        )
