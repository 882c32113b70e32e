"""Fetches the deletion vectors of live files, and stores new ones."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from safewrite.delta.data.rows import unreadable
from safewrite.delta.data.vectors import VectorError, decoded, path_of
from safewrite.delta.log.actions import Action, FileKey, file_key
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Get, Missing, Outcome
from safewrite.protocol.fetch import fetch

if TYPE_CHECKING:
    from pyroaring import BitMap64


@dataclass
class Vectors:
    """The deletion vectors of the files of a table at ``root``.

    A vector is part of its logical file's name and never changes, so each is fetched once.
    """

    root: str = ""
    _known: dict[FileKey, BitMap64] = field(default_factory=dict, repr=False)

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
                self._known[file_key(add)] = decoded(add["deletionVector"], body)
            except VectorError as error:
                raise unreadable(add["path"], str(error)) from error

    def of(self, add: Action) -> BitMap64 | None:
        """The rows that the vector of a file takes away; None for a file without one.  Fetch it first."""
        return self._known[file_key(add)] if add.get("deletionVector") else None

    def _path_of(self, add: Action) -> str | None:
        try:
            return path_of(add["deletionVector"], self.root)
        except VectorError as error:
            raise unreadable(add["path"], str(error)) from error
