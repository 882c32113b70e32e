"""Says what a write does to the files of a table, as a value: a verb makes it on one base, a format encodes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

LiveT = TypeVar("LiveT")
"""A file that the table has."""
FileT = TypeVar("FileT")
"""A file that comes."""
MarkT = TypeVar("MarkT")
"""What says that some rows of a file are gone."""


@dataclass(frozen=True, slots=True)
class TableChange(Generic[LiveT, FileT, MarkT]):
    """What becomes of the files that a table has.  Files of rows that come are the write's own, but where the plan makes them."""

    added: tuple[FileT, ...] = ()
    """Files of rows that come, where only the plan on a base tells which these are."""
    removed: tuple[LiveT, ...] = ()
    """Files that go."""
    rewritten: tuple[FileT, ...] = ()
    """Files of the rows that stay of those that go."""
    marks: tuple[MarkT, ...] = ()
    kept_rows: int | None = 0
    """How many rows of removed files the new files have, by the plan; None where nobody counted them."""
    removed_rows: int | None = 0
    """How many rows go; None where nobody counted them."""
    copied_bytes: int | None = None
    """The size of the files that hold rows of replaced ones."""
    unused: tuple[FileT, ...] = ()
    """Files that were uploaded for an earlier base, and are of no use on this one."""
    feed: tuple[FileT, ...] = ()
    """Files that tell a change data feed which rows came and went."""
