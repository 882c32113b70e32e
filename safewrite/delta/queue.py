"""Keeps what a process knows of the queue in which writers of a table share commits."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from safewrite.delta.connect import Connection
from safewrite.delta.write.write import DeltaDone
from safewrite.protocol.delta.candidate import SPAN, Arbiter
from safewrite.stores.world import monotonic_s

TABLES_MAX = 1000
QUICK_S, LISTEN_S = 1.0, 2.0
"""A writer whose last commit was so short a time ago looks so often whether others wait."""

_usable: OrderedDict[tuple[str, str], bool] = OrderedDict()
"""Whether the credentials of this process can use a table's queue, by where the table and its arbiter are."""


@dataclass
class SharedQueue:
    """The queue of one table, for writers that share as ``group=`` says."""

    connection: Connection
    group: str
    _committed_s: float = -QUICK_S
    _listened_s: float = -LISTEN_S

    @property
    def _mark(self) -> tuple[str, str]:
        return self.connection.address.uri, f"{self.connection.endpoint} {self.connection.lock_table_id}"

    def arbiter(self, *, sealed: bool) -> Arbiter:
        """The table's arbiter, and how the next write shares."""
        plain = replace(self.connection.arbiter, sealed=sealed)
        usable = _usable.get(self._mark)
        wanted = self.group == "always" or (self.group == "auto" and self.connection.address.is_s3)
        if not wanted or usable is False:
            return plain
        now_s = monotonic_s(self.connection.world)
        listens = now_s - self._committed_s < QUICK_S and now_s - self._listened_s > LISTEN_S
        self._listened_s = now_s if listens else self._listened_s
        return replace(plain, shares=SPAN, queue_known=usable is not None, listens=listens)

    def note(self, done: DeltaDone) -> None:
        """Keep what a write showed."""
        self._committed_s = monotonic_s(self.connection.world)
        if done.may_share is not None:
            _usable[self._mark] = done.may_share
            while len(_usable) > TABLES_MAX:
                _usable.popitem(last=False)
