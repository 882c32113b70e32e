"""Declares what an arm stands on: a table, the ways that lead to it, readers that are not the writer."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from safewrite.testing.checker import Read, ReplayedLog
from safewrite.testing.faults import Rule
from safewrite.testing.history import make_rows

from .plans.plan import WriterPlan
from .proxies.pgproxy import PgProxy
from .proxies.proxy import FaultProxy
from .writers import common

Counts: TypeAlias = Counter[tuple[str, str]]
"""How often each kind of fault has fired at each step."""


class UnreadableTableError(RuntimeError):
    """A reader cannot read the table: every acked row counts as lost."""


@dataclass(frozen=True, slots=True)
class Way:
    """How writers reach the table: ``settings`` go into their configuration; faults happen at ``proxies``."""

    settings: Mapping[str, Any]
    proxies: Sequence[FaultProxy | PgProxy] = ()

    def counts(self) -> Counts:
        """Faults by step and kind."""
        found: Counts = Counter()
        for proxy in self.proxies:
            found.update({(str(step), str(kind)): count for (step, kind), count in proxy.counts().items()})
        return found

    def events(self) -> list[dict[str, Any]]:
        """Every fault that has fired, with its time ``t`` in milliseconds, its step and its kind."""
        return [event for proxy in self.proxies for event in proxy.events()]


@dataclass(slots=True)
class FinalReads:
    """What the readers found when the writers had ended.

    ``flaws`` are of the table itself, in nobody's rows; ``versions`` is how many versions it went through.
    """

    reads: list[Read]
    log: ReplayedLog | None = None
    versions: int = 0
    flaws: list[str] = field(default_factory=list)


class Target(Protocol):
    """One table, before, during and after its writers."""

    @property
    def table(self) -> str:
        """The table's name, for the report."""

    def rehearse(self) -> dict[str, tuple[str, ...]]:
        """The names of the effects of one lone append, by its kind of identity: these are the kill points."""

    def create(self) -> None:
        """Make the table, empty."""

    def way(self, stack: contextlib.ExitStack, name: str, rules: Sequence[Rule], seed: int) -> Way:
        """A way to the table on which these faults happen; proxies end with ``stack``."""

    def config(self, writer: WriterPlan, way: Way) -> dict[str, Any]:
        """The configuration of a writer of this format, besides that of all."""

    def read_now(self) -> Read:
        """Read while writers are at work."""

    def read_all(self, folder: Path) -> FinalReads:
        """Read by every reader, past the proxies; raises :class:`UnreadableTableError`."""


def rehearse(open_table: Callable[[], Any], **settings: Any) -> dict[str, tuple[str, ...]]:
    """Append once in each way of being identified, and note the effects; ``settings`` go to the append."""
    identities: dict[str, dict[str, Any]] = {
        "key": {"key": "rehearsal"}, "txn": {"txn": ("rehearsal", 0)}, "none": {},
    }  # fmt: skip
    steps = {}
    for number, (identity, name) in enumerate(identities.items()):
        table = open_table()
        names = note_names(table.world)
        table.append(common.to_arrow(make_rows(0, 0, number, 5)), **name, **settings)
        steps[identity] = tuple(names)
    return steps


def note_names(world: Any) -> dict[str, None]:
    """Note the name of every effect that the world performs from now on."""
    perform = world.perform
    names: dict[str, None] = {}

    def noted(effect: Any) -> Any:
        if effect.name and not effect.name.endswith(".backoff"):
            names.setdefault(effect.name)
        return perform(effect)

    world.perform = noted
    return names
