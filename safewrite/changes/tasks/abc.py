"""States how a plan has changes applied, wherever they are."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa

from safewrite.changes.lookup.candidate_rows import FileT, GoneRows
from safewrite.changes.meaning.positions import Numbers, Position
from safewrite.frames.parallel import windows

if TYPE_CHECKING:
    from safewrite.changes.lookup.candidate_rows import Before
    from safewrite.changes.lookup.table_files import FileRemainder, LiveFile
    from safewrite.changes.meaning.member_batches import GroupOutcome
    from safewrite.changes.meaning.memory import Memory
    from safewrite.frames.predicate import Predicate
    from safewrite.protocol.effects import Effect, Outcome

MUCH_BYTES = 8 * 2**20
"""To write files of so many bytes again takes longer than a look at the table, after which it is not done in vain."""
WorkT = TypeVar("WorkT")


def between_looks(
    work: Sequence[tuple[WorkT, LiveFile]], *, looks: bool
) -> Iterator[list[tuple[WorkT, LiveFile]]]:
    """Files that are written again in groups, between which the table is looked at; all at once where that is not asked.

    It is asked once a try was lost: the files after a look are not read while those before it go up.
    """
    return windows(
        work, lambda one: one[1].nbytes, files=len(work), bytes_max=MUCH_BYTES if looks else sys.maxsize
    )


@dataclass(frozen=True)
class AppliedBatch:
    """What becomes of a batch: ``rows`` come, and those at the places of ``goes`` go, by file; before ``cut`` all go, where a truncate came.

    ``counts`` has, by file that was looked through, how many live rows it has.  Of the rows that come ``come`` has those that are still to
    be written, and ``files`` those that tasks wrote; so for the change data feed ``gone``, the rows that go by their keys, and ``change_files``.
    ``is_rebased``: what was decided on an earlier base was taken over.
    """

    outcome: GroupOutcome
    rows: int
    goes: Mapping[str, Numbers]
    cut: Position | None
    counts: Mapping[str, int]
    come: pa.Table | None = None
    gone: pa.Table | None = None
    files: tuple[Any, ...] = ()
    change_files: tuple[Any, ...] = ()
    is_rebased: bool = False
    lasting: pa.Table | None = None
    """What the rows that come take along of those of their keys that go."""

    def gone_rows(self, sequence_by: tuple[str, ...], files: Mapping[str, FileT]) -> GoneRows[FileT]:
        """What goes, by the files that have these names."""
        return GoneRows(
            sequence_by,
            {files[name]: places for name, places in self.goes.items()},
            self.cut,
            {files[name]: count for name, count in self.counts.items()},
        )

    def comes_as(self, other: AppliedBatch) -> bool:
        """Whether files of its rows that were made of another plan's serve this one too."""
        same = self.lasting is None or self.lasting.equals(other.lasting)
        return same and self.outcome.settled.has_rows_of(other.outcome.settled)


class BatchWork(Protocol):
    """Changes on their way: where they are all together, or by tasks of an engine."""

    @property
    def values(self) -> Mapping[str, pa.Array]:
        """The values of key columns, of each or of those that have few; none with a truncate, for any row may tie with it."""

    @property
    def bounds(self) -> Predicate:
        """A condition that rows satisfy that have keys of the changes, or may tie with a truncate."""

    def apply(
        self, memory: Memory, files: Sequence[LiveFile], now_ms: int
    ) -> Generator[Effect, Outcome, AppliedBatch]:
        """Decide about all changes on the files that may have rows of their keys.

        Raises:
            InvalidInputError: the batch must be refused; of a group the outcome names the members that must be.
            StorageError: a file is gone or differs, or the store gave no answer.
        """

    def rewrite(
        self, work: Sequence[tuple[LiveFile, Numbers]], before: Before | None
    ) -> Generator[Effect, Outcome, dict[str, FileRemainder]]:
        """Write the rows of files again that stay.

        Raises:
            UnsupportedTableError: a row cannot be written again without loss.
            StorageError: as :meth:`apply`.
        """
