"""Declares what the search needs to know of a model, of Delta or of Iceberg."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from safewrite.protocol.effects import Effect
from safewrite.testing.explorer.automaton import Node, Program
from safewrite.testing.explorer.delta_models import WriterProcess


class Judging(Protocol):
    """The invariants of a model; each check says what is broken, or ''."""

    def state(self, store: Any, nodes: Sequence[Node]) -> str:
        """Check a state against how its processes have ended."""

    def replaced(self, before: Any, after: Any) -> str:
        """Check one step."""

    def end(self, store: Any, nodes: Sequence[Node], late: Sequence[Effect]) -> str:
        """Check what is possible once all have ended."""


class Space(Protocol):
    """What is explored: see ``safewrite.testing.explorer.models`` and ``safewrite.testing.explorer.catalog_models``."""

    @property
    def name(self) -> str:
        """The model's name on the command line."""

    @property
    def writers(self) -> tuple[WriterProcess, ...]:
        """Its processes."""

    @property
    def expiring(self) -> bool:
        """Whether entries of a lock table may outlive their time."""

    @property
    def overwritten(self) -> bool:
        """Whether what a file holds may change."""

    @property
    def first(self) -> Any:
        """The stores at the start: a value that performs effects."""

    def judge(self) -> Judging:
        """The invariants of its states."""

    def start(self, slot: int, incarnation: int) -> Program:
        """The program of a process, at its first start or at a later one."""
