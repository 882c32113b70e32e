"""Makes the change of a table of what becomes of its files, and the actions and numbers of a commit of it."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from safewrite.delta.log.actions import Action, rows_of
from safewrite.delta.write.staging import StagedFile, secure
from safewrite.protocol.accounts import total
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.staging import Mark, check
from safewrite.table.change import TableChange

if TYPE_CHECKING:
    from safewrite.delta.data.vector_files import Vectors

DeltaChange: TypeAlias = TableChange[Action, StagedFile, tuple[Action, Action]]
"""Live files are ``add`` actions; a mark is the ``add`` of a file before, which is among the removed, and under its next vector."""
NOTHING: DeltaChange = TableChange()


class FileVerdict(Enum):
    """What a write does to a live file."""

    KEEP = "keep"
    REMOVE = "remove"
    REWRITE = "rewrite"
    MARK = "mark"
    """Its deletion vector takes rows away; the file stays."""


@dataclass(frozen=True, slots=True)
class FileRewrite:
    """What becomes of a live file: how many rows stay, the uploaded files of these, or its ``add`` under its next vector."""

    verdict: FileVerdict
    rows: int = 0
    files: Sequence[StagedFile] = ()
    marked: Action | None = None
    changes: Sequence[StagedFile] = ()
    """Files of the change data feed: the rows that a truncate took."""


def change_of(files: Iterable[tuple[Action, FileRewrite]], feed: tuple[StagedFile, ...] = ()) -> DeltaChange:
    """What a write does that these things become of these live files; it says nothing of the others, which stay."""
    lost = [(add, one) for add, one in files if one.verdict is not FileVerdict.KEEP]
    rewritten = tuple(file for _, one in lost for file in one.files)
    rows = total(rows_of(add) for add, _ in lost)
    stay = sum(file.rows for file in rewritten) + sum(one.rows for _, one in lost if one.marked is not None)
    return TableChange(
        removed=tuple(add for add, _ in lost),
        rewritten=rewritten,
        marks=tuple((add, one.marked) for add, one in lost if one.marked is not None),
        kept_rows=sum(one.rows for _, one in lost),
        removed_rows=None if rows is None else rows - stay,
        copied_bytes=sum(file.mark.size for file in rewritten),
        feed=feed,
    )


def actions_of(
    change: DeltaChange, now_ms: int, *, changes_data: bool
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """``add`` actions of files in the place of others; those of files under new vectors, and ``remove`` actions of what goes."""
    return [file.action for file in (*change.rewritten, *change.feed)], [
        *({"add": after} for _, after in change.marks),
        *(removal(add, now_ms, changes_data=changes_data) for add in change.removed),
    ]


def removal(add: Action, now_ms: int, *, changes_data: bool = True) -> dict[str, Any]:
    """The ``remove`` action of a live file, its deletion vector included."""
    names = ("size", "tags", "deletionVector", "baseRowId", "defaultRowCommitVersion")
    return {
        "remove": {
            "path": add["path"],
            "deletionTimestamp": now_ms,
            "dataChange": changes_data,
            "extendedFileMetadata": True,
            "partitionValues": add.get("partitionValues") or {},
            **{name: add[name] for name in names if add.get(name) is not None},
        }
    }


def metrics_of(change: DeltaChange) -> dict[str, int]:
    """How many files go, and how many get a deletion vector, as Spark names them."""
    removed = {"numRemovedFiles": len(change.removed) - len(change.marks)}
    if not change.marks:
        return removed
    updated = sum(1 for before, _ in change.marks if before.get("deletionVector"))
    return removed | {
        "numDeletionVectorsAdded": len(change.marks),
        "numDeletionVectorsRemoved": updated,
        "numDeletionVectorsUpdated": updated,
    }


def _marks(change: DeltaChange, vectors: Vectors | None) -> list[Mark]:
    """What the files of vectors must look like that a change brings, those of files that come with one among them."""
    adds = [*(after for _, after in change.marks), *(file.action["add"] for file in change.rewritten)]
    marked = [add for add in adds if add.get("deletionVector")]
    return [] if vectors is None or not marked else vectors.marks(marked)


def paths_of(change: DeltaChange, vectors: Vectors | None) -> list[str]:
    """Where the files are that a change brings, those of deletion vectors too."""
    files = (file.mark for file in (*change.rewritten, *change.feed))
    return [mark.path for mark in (*files, *_marks(change, vectors))]


def secure_change(
    change: DeltaChange, vectors: Vectors | None, limits: Limits
) -> Generator[Effect, Outcome, None]:
    """Make sure that the files which a change brings are there as they were written (B1, G5)."""
    if change.rewritten or change.feed:
        yield from secure((*change.rewritten, *change.feed), limits)
    if marks := _marks(change, vectors):
        yield from check(marks, limits)
