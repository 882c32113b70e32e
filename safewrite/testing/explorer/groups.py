"""Writes several rows as one group with safewrite's own code, as the explorer's processes do."""

from __future__ import annotations

from dataclasses import dataclass

from safewrite.delta.write.abc import Write
from safewrite.delta.write.group_commit import write_many
from safewrite.delta.write.transaction import Transaction
from safewrite.errors import InternalError, SafewriteError
from safewrite.protocol.delta.commit import Arbiter, Found
from safewrite.testing.explorer.automaton import Program
from safewrite.testing.explorer.rows import LIMITS, opened


@dataclass
class GroupCandidate(Transaction):
    """The product's own candidate for a group of writes without files, on a table whose snapshot it does not have.

    What it keeps between its tries is what the product keeps: a stand-in that made its commit file afresh for each try could not show
    that a kept one is older than the commits before it.
    """

    examined: int = -1

    @property
    def reached(self) -> int:
        """The last version that was examined."""
        return max(self.accounted, self.examined)

    def examine(self, version: int, body: bytes) -> Found | None:
        """See ``safewrite.protocol.delta.commit.Candidate.examine``."""
        self.examined = max(self.examined, version)
        return super().examine(version, body)

    def examine_summary(self, version: int, summary: str, digest: str) -> Found | None:
        """See ``safewrite.protocol.delta.commit.Candidate.examine_summary``."""
        self.examined = max(self.examined, version)
        return super().examine_summary(version, summary, digest)


def group(
    key: str,
    attempt: str,
    arbiter: Arbiter,
    *,
    again: bool,
    fresh: bool,
    queue_first: bool = False,
    light: bool = True,
) -> Program:
    """One call of ``append_many`` for the keys that ``key`` joins by ``+``; returns each key with its version."""
    seen, table_id = (yield from opened(attempt)) if again else (0, "table")
    rows = GroupCandidate(
        attempt,
        Write.group("group", [Write(one, "1:0") for one in key.split("+")]),
        0,
        LIMITS,
        few_rows=light,
        accounted=seen,
        table_id=table_id,
    )
    done = yield from write_many(
        rows,
        lambda _: (),
        arbiter=arbiter,
        limits=LIMITS,
        queue_first=queue_first,
        fresh=fresh and not again,
    )
    found = {one.key: done.done.version for one in done.writes if done.done is not None}
    for name, answer in done.known.items():
        if isinstance(answer, SafewriteError):
            raise InternalError(str(answer))
        found[name] = answer.version
    return tuple(sorted(found.items()))
