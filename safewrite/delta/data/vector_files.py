"""Fetches the deletion vectors of live files, and stores those of a commit."""

from __future__ import annotations

import re
import uuid
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from safewrite.changes.meaning.positions import Flags, Numbers
from safewrite.changes.meaning.row_vectors import VectorError, bitmap, serialized
from safewrite.delta.data import vectors
from safewrite.delta.data.rows import live_rows, unreadable
from safewrite.delta.data.stats import wide
from safewrite.delta.log.actions import Action, FileKey, file_key, stats_of
from safewrite.errors import InternalError
from safewrite.protocol import staging
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Get, Missing, NewId, Ok, Outcome
from safewrite.protocol.fetch import fetch
from safewrite.protocol.staging import TAIL_BYTES_MAX, Mark

if TYPE_CHECKING:
    from pyroaring import BitMap64

    from safewrite.delta.log.moved_rows import MovedRows

GONE_MAX = 0.5
"""A file of which more rows would be gone is rewritten: readers would read more of what is not there than of what is."""
_PLAIN = re.compile(r"[\w\-./=]+", re.ASCII)
"""Paths that no engine spells otherwise.  polars (2.1.0) pairs a vector with its file by the text of the path, and passes over
that of a file whose partition's value is percent-encoded: it would show deleted rows."""
_PLAIN_ROOT = re.compile(r"[\w\-./=+:]*", re.ASCII)
"""Addresses of tables that no engine spells otherwise.  deltalake (1.6.6) encodes that of a table on S3 twice where it looks for
a vector, polars (2.1.0) any before it looks for the file of one: they cannot read the table then."""
_KEPT = (
    "path",
    "partitionValues",
    "size",
    "modificationTime",
    "stats",
    "tags",
    "baseRowId",
    "defaultRowCommitVersion",
    "clusteringProvider",
)


@dataclass
class Vectors:
    """The deletion vectors of the files of a table at ``root``.

    A vector is part of its logical file's name and never changes, so each is fetched once.
    """

    root: str = ""
    _known: dict[FileKey, BitMap64] = field(default_factory=dict, repr=False)
    _own: dict[tuple[str, bytes], BitMap64] = field(default_factory=dict, repr=False)
    """Rows that a commit takes away, by path and by their numbers in the file, which stay the same whatever others mark."""
    _stored: dict[str, Mark] = field(default_factory=dict, repr=False)
    """Files of vectors that were uploaded, by path."""
    moved: dict[str, tuple[MovedRows, ...]] = field(default_factory=dict, repr=False)
    """Whose rows a file has, by its path, where a compaction of others says so."""

    def fetch(self, adds: Iterable[Action], limits: Limits) -> Generator[Effect, Outcome, None]:
        """Make the vectors of these files known; files that hold many are fetched once.

        Raises:
            StorageError: a vector is gone or damaged, or the store gave no answer.
            MissingExtraError: pyroaring is not installed.
        """
        lacking = [add for add in adds if add.get("deletionVector") and file_key(add) not in self._known]
        paths = [(add, self._path_of(add)) for add in lacking]
        wanted = list(dict.fromkeys(path for _, path in paths if path is not None))
        gets = [Get(path, name="vectors.get") for path in wanted]
        answers = yield from fetch(gets, limits, name="vectors.get_all")
        bodies = dict(zip(wanted, answers, strict=True))
        for add, path in paths:
            answer = bodies[path] if path is not None else None
            if isinstance(answer, Missing):
                raise unreadable(add["path"], f"its file {path} is gone")
            body = None if answer is None else answer.value
            assert body is None or isinstance(body, bytes)
            try:
                self._known[file_key(add)] = vectors.decoded(add["deletionVector"], body)
            except VectorError as error:
                raise unreadable(add["path"], str(error)) from error

    def of(self, add: Action) -> BitMap64 | None:
        """The rows that the vector of a file takes away; None for a file without one.  Fetch it first."""
        return self._known[file_key(add)] if add.get("deletionVector") else None

    def stays(self, before: Action, after: Action) -> Flags | None:
        """Which rows that a file had are left under its next vector.  Fetch both first.

        None where rows came back (a RESTORE), or where the log does not say of both that they have the same data: then
        what was found in the one says nothing about the other.
        """
        rows = stats_of(after).get("numRecords")
        same = all(before.get(name) == after.get(name) for name in ("size", "partitionValues"))
        if type(rows) is not int or stats_of(before).get("numRecords") != rows or not same:
            return None
        had, has = (self._live(add, rows) for add in (before, after))
        return None if (has & ~had).any() else has[had]

    def _live(self, add: Action, rows: int) -> Flags:
        gone = self.of(add)
        return np.ones(rows, np.bool_) if gone is None else live_rows(add["path"], gone, rows)

    def _path_of(self, add: Action) -> str | None:
        try:
            return vectors.path_of(add["deletionVector"], self.root)
        except VectorError as error:
            raise unreadable(add["path"], str(error)) from error

    # --- new ones -----------------------------------------------------------------------------------
    def widened(self, add: Action, places: Numbers) -> BitMap64 | None:
        """The vector that takes more rows away: those at ``places`` among the live ones; None as for :meth:`taking`."""
        rows, gone = stats_of(add).get("numRecords"), self.of(add)
        if gone is not None and type(rows) is int:
            places = places + np.searchsorted(_before(add["path"], gone, rows), places, side="right")
        return self.taking(add, places)

    def taking(self, add: Action, numbers: Numbers) -> BitMap64 | None:
        """The vector that takes more rows away, by their numbers in the file.

        None where the file had better be rewritten, or does not say how many rows it has, as one with a vector must; or where
        a reader could miss its vector.

        Raises:
            InternalError: a row was gone before, or there is none of that number.
        """
        rows, gone = stats_of(add).get("numRecords"), self.of(add)
        if type(rows) is not int:
            return None
        name = add["path"], numbers.tobytes()
        vector = self._own[name] = self._own[name] if name in self._own else bitmap(numbers)
        before = 0 if gone is None else len(gone)
        if gone is not None:
            vector = vector | gone  # not in place: it serves again, whatever others mark
        if len(vector) != before + len(numbers) or (len(vector) and vector.max() >= rows):
            raise InternalError(
                f"Rows of {add['path']} were to be marked as gone that it does not have. Nothing was committed. Please report it."
            )
        is_found = _PLAIN_ROOT.fullmatch(self.root) and _PLAIN.fullmatch(add["path"])
        return vector if is_found and len(vector) <= GONE_MAX * rows else None

    def store(
        self, wider: Mapping[FileKey, BitMap64], limits: Limits
    ) -> Generator[Effect, Outcome, dict[FileKey, Action]]:
        """Store vectors in one new file; the answer is how the log names each.

        Raises:
            StorageError: the upload failed for good.
        """
        if not wider:
            return {}
        drawn = yield NewId(name="vectors.id")
        assert isinstance(drawn, Ok)
        name = uuid.UUID(str(drawn.value))
        encoded = [(serialized(vector), len(vector)) for vector in wider.values()]
        body, described = vectors.file_of(encoded, name)
        path = vectors.file_name(name)
        yield from staging.upload([staging.of_data(path, body)], limits)
        self._stored[path] = Mark.of(path, len(body), body[-TAIL_BYTES_MAX:])
        return dict(zip(wider, described, strict=True))

    def marks(self, adds: Iterable[Action]) -> list[Mark]:
        """What the uploaded files must look like that the vectors of these files are in."""
        paths = dict.fromkeys(self._path_of(add) for add in adds)
        return [self._stored[path] for path in paths if path in self._stored]


def _before(path: str, gone: BitMap64, rows: int) -> Numbers:
    """How many live rows come before each row that is gone."""
    numbers = np.frombuffer(gone.to_array(), np.uint64).astype(np.int64)
    if len(numbers) and numbers[-1] >= rows:
        live_rows(path, gone, rows)  # which says so
    return numbers - np.arange(len(numbers))


def marked(add: Action, vector: Action) -> Action:
    """The ``add`` of a file under another vector; its statistics are bounds that need not be reached any more."""
    kept = {name: add[name] for name in _KEPT if add.get(name) is not None}
    return {**kept, "stats": wide(add["stats"]), "dataChange": True, "deletionVector": dict(vector)}
