"""Keeps what a process knows of the queue in which writers of a table share commits."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from safewrite.protocol.member_queue import SPAN, Terms
from safewrite.stores.world import Performer, monotonic_s

TABLES_MAX = 1000
QUICK_S, LISTEN_S = 1.0, 2.0
"""A writer that commits again within so short a time, and has done so for so long, looks whether others wait, and then so often."""

_usable: OrderedDict[tuple[str, str], bool] = OrderedDict()
"""Whether the credentials of this process can use a table's queue, by where the table and its arbiter are."""


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

    def note(self, may_share: bool | None) -> None:
        """Keep what a write that is in the table showed: whether members can be queued, as far as it asked."""
        self._committed_s = monotonic_s(self.world)
        if may_share is not None:
            _usable[self.mark] = may_share
            while len(_usable) > TABLES_MAX:
                _usable.popitem(last=False)
