"""States what a prepared frame knows of rows that tasks wrote in its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class WrittenTogether(Protocol):
    """Members whose rows tasks wrote to files that several of them may share."""

    def of(self, names: Sequence[str], /) -> Any:
        """The files of some members."""


class WrittenPart(Protocol):
    """The rows of one member, which are in files already."""

    @property
    def name(self) -> str: ...

    @property
    def group(self) -> WrittenTogether: ...
