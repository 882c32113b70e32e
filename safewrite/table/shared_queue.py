"""Keeps what a process knows of the queue in which writers of a table share commits."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from safewrite.protocol.member_queue import SPAN, Terms
from safewrite.stores.world import Performer, monotonic_s

TABLES_MAX = 1000
QUICK_S, LISTEN_S = 1.0, 2.0
"""A writer that commits again within so short a time, and has done so for so long, looks whether others wait, and then so often."""

_usable: OrderedDict[tuple[str, str], bool] = OrderedDict()
"""Whether the credentials of this process can use a table's queue, by where the table and its arbiter are."""


class LandedIn(Protocol):
    """A write that is in the table."""

    @property
    def version(self) -> int:
        """Where it is."""

    @property
    def state(self) -> Any:
        """The table with it, where that is known."""


LandedT = TypeVar("LandedT", bound=LandedIn)


@dataclass
class SharedQueue:
    """The queue of one table, for writers that share as ``group=`` says; ``auto`` is where they meet, if ``is_remote``."""

    group: str
    is_remote: bool
    mark: tuple[str, str]
    """Where the table and its arbiter are."""
    world: Performer
    _committed_s: float = -QUICK_S
    _listened_s: float = 0.0
    _last: tuple[object, Mapping[int, Any]] = (None, {})
    """What proves the last version that a write landed in, and what that version carries, by its number."""

    def terms(self) -> Terms:
        """How the next write shares."""
        wanted = self.group == "always" or (self.group == "auto" and self.is_remote)
        usable = _usable.get(self.mark) if wanted else None
        if not wanted or usable is False:
            return Terms()
        now_s = monotonic_s(self.world)
        is_quick = now_s - self._committed_s < QUICK_S
        listens = is_quick and now_s - self._listened_s > LISTEN_S
        self._listened_s = now_s if listens or not is_quick else self._listened_s
        return Terms(shares=SPAN, queue_known=usable is not None, listens=listens)

    def known(self, proof: object) -> Mapping[int, Any]:
        """What the version carries that a plan is made on, if the last write landed there and the log still is the same one.

        Members that it carries are taken for waiting ones otherwise, until they are removed.
        """
        return self._last[1] if proof is not None and proof == self._last[0] else {}

    def kept(self, done: LandedT, known: Mapping[int, Any]) -> LandedT:
        """Keep what the version carries that a write landed in, if it was read; the write's own result."""
        proof = None if done.state is None else done.state.anchor
        self._last = proof, {version: what for version, what in known.items() if version == done.version}
        return done

    def note(self, may_share: bool | None) -> None:
        """Keep what a write that is in the table showed: whether members can be queued, as far as it asked."""
        self._committed_s = monotonic_s(self.world)
        if may_share is not None:
            _usable[self.mark] = may_share
            while len(_usable) > TABLES_MAX:
                _usable.popitem(last=False)
