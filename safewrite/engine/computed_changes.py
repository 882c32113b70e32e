"""Declares changes that a task makes where their rows are: ``Table.apply_changes`` takes them for rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from safewrite.engine.abc import Engine, Task

S = TypeVar("S")


@dataclass(frozen=True)
class ComputedChanges(Generic[S]):
    """Changes that a task makes of a source of an engine: it gives their rows, under ``make.columns``.

    ``learn`` is given what the tasks reported, before anything is decided, and says what the table's history is to say of the
    commit besides.  ``rows``: about so many changes are made; 0 where that is not known.
    """

    name: str
    engine: Engine[S]
    source: S
    make: Task
    learn: Callable[[list[Any]], Mapping[str, str]]
    rows: int = 0
