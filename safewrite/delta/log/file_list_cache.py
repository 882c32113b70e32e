"""Keeps the list of a table's files from one write to the next, so that a write reads the commits since and no more.

A version of the log never changes, so what was replayed up to one stays true; a table that was made anew has another id.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

from safewrite.delta.log.replay import FAR, LogReplay, commits_since, load_files
from safewrite.delta.log.snapshot import Snapshot
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome

FILES_MAX = 20_000
"""Longer lists are not kept: a file takes a kilobyte or two of memory."""


@dataclass
class KnownFiles:
    """The live files of one table; empty at first."""

    replay: LogReplay | None = None
    files_max: int = FILES_MAX

    def load(self, state: Snapshot, limits: Limits) -> Generator[Effect, Outcome, LogReplay]:
        """The live files at ``state.version``, perhaps without tombstones and transactions.

        Raises:
            StorageError, UnsupportedTableError: as :func:`safewrite.delta.log.replay.load_files`.
        """
        found = yield from self._since(state, limits)
        if found is None:
            found = yield from load_files(state, limits=limits)
        self.keep(found)
        return found

    def keep(self, found: LogReplay) -> None:
        """Keep the list of a version that stands in the log."""
        # Tombstones and transactions are for checkpoints, which read the log themselves: here they would only pile up.
        kept = replace(found, tombstones={}, txns={})
        self.replay = kept if len(kept.adds) <= self.files_max else None

    def _since(self, state: Snapshot, limits: Limits) -> Generator[Effect, Outcome, LogReplay | None]:
        """The list by the commits after the one that is known; None if all must be read."""
        known = self.replay
        if known is None or known.state.table_id != state.table_id:
            return None
        if not 0 <= state.version - known.state.version <= FAR:
            return None
        commits = yield from commits_since(known.state.version, state.version, limits)
        return None if commits is None else known.after(state, commits)
