"""Puts groups of files together for one commit: each group goes as a whole, or is left out, and the rest goes on.

Each group is a task of an engine, which reads and writes; what becomes of it is decided here.  New files have the rows of a group file after file, in the order in which they were read.  So a row that a rival deletes meanwhile, by its
place in an old file, is found again by its place in a new one: the group goes on, and the new file is committed with that row deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np

from safewrite.changes.lookup.table_files import TableFiles
from safewrite.changes.meaning.positions import Flags, Numbers
from safewrite.engine.abc import Engine, TaskAttempt, TaskOutput, each_once
from safewrite.engine.local import LocalEngine
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
from safewrite.frames.parallel import windows
from safewrite.protocol.effects import Effect, Outcome
from safewrite.stores.world import Performer, run
from safewrite.upkeep.groups import Group
from safewrite.upkeep.maintain import TAKEN, Compacted, left_out

ThereT = TypeVar("ThereT")
"""A file of a group as a base shows it."""
FileT = TypeVar("FileT")
"""A file that comes."""
MarkT = TypeVar("MarkT")
"""What says that some rows of a new file are gone, where the file itself does not."""
BYTES_AT_ONCE = 32 * 2**20
"""Groups that are larger than this together are put together one by one in this process, for its memory holds their rows."""
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


Seen: TypeAlias = Sequence[tuple[ThereT, ThereT]]
"""Files as they were read, and as another base shows them."""


class GroupRewriter(Protocol):
    """Reads the live rows of some files and writes them in fewer; picklable.  It decides nothing, so that it may run anywhere."""

    def put_together(
        self, files: Sequence[Any], at: str, /
    ) -> Generator[Effect, Outcome, Regrouped[Any, Any, Any]]:
        """The uploaded files of a group, without what was ``taken``, which the caller knows; ``at`` makes their names unique.

        Raises:
            UnsupportedTableError, WouldAlterError: a row cannot be written again without loss.
            StorageError: a file is gone or damaged, or the store gave no answer.
        """

    @property
    def files(self) -> TableFiles:
        """Those of the table."""


@dataclass(frozen=True)
class PutTogether:
    """The task of one group: writes the live rows of its files to new ones, whose names tell the attempt.

    ``world`` performs its effects in the process of the plan; None where another one does.
    """

    rewriter: GroupRewriter
    files: tuple[Any, ...]
    number: int
    world: Performer | None = None
    columns: None = None

    def __call__(
        self, given: Iterable[Any], at: TaskAttempt
    ) -> Generator[TaskOutput, None, Regrouped[Any, Any, Any]]:
        """Put the files together."""
        yield from ()
        steps = self.rewriter.put_together(self.files, f"group{self.number}-{at.number}")
        return self.rewriter.files.run(steps) if self.world is None else run(steps, self.world)


@dataclass
class Regrouping(Generic[ThereT, FileT, MarkT]):
    """Groups on their way into one commit; what was made of one serves every base on which its files are still there.

    They are put together by an ``engine``, whose tasks reach the table by themselves; None: in this process, by the table's ``world``.
    """

    groups: Sequence[Group]
    rewriter: GroupRewriter = field(repr=False)
    world: Performer = field(repr=False)
    engine: Engine[Any] | None = field(default=None, repr=False)
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

    def make(self, live: Mapping[Any, ThereT]) -> None:
        """Leave out the groups that are not whole any more among the ``live`` files of a base, and put those together that were not yet.

        Raises:
            EngineError: the engine could not run it; files that tasks wrote are named by no commit.
            StorageError: the store gave no answer.
        """
        wanted: list[tuple[int, tuple[ThereT, ...]]] = []
        for number, group in enumerate(self.groups):
            if number in self.dropped:
                continue
            there = tuple(live[file.name] for file in group.files if file.name in live)
            if len(there) < len(group.files):
                self.dropped[number] = TAKEN
            elif number not in self.made:
                wanted.append((number, there))
        if self.engine is not None:
            if wanted:
                self._put_together(wanted, self.engine)
            return
        for some in windows(wanted, lambda one: self.groups[one[0]].size, bytes_max=BYTES_AT_ONCE):
            self._put_together(some, LocalEngine(), self.world)

    def _put_together(
        self,
        wanted: Sequence[tuple[int, tuple[ThereT, ...]]],
        engine: Engine[Any],
        world: Performer | None = None,
    ) -> None:
        """Let tasks put groups together.  Raises as :meth:`make`."""
        tasks = [PutTogether(self.rewriter, there, number, world) for number, there in wanted]
        reports = [*zip(wanted, each_once(engine.run(tasks), len(tasks)), strict=True)]
        for (number, there), report in reports:
            if report.error is None:
                self.made[number] = replace(report.body, taken=there)
        for (number, _), report in reports:
            if report.error is not None:
                with self._left_out_if_unfit(number):
                    raise report.error

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
