"""A process that makes changes with safewrite when it is told to: ``python -m tests.spark.keyed_writer``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import safewrite as sw
from tests.spark.child import Child, Parent
from tests.spark.serial import Append, Remove

ATTEMPTS_MAX = 30


class KeyedWriter(Child):
    """The process, as its parent sees it; ``reopen`` opens the table there, and then it is ready."""

    def __init__(self, reopen: Callable[[], Any]) -> None:
        super().__init__(__name__, reopen)
        self._owed = 0

    def tell(self, changes: Sequence[Append | Remove]) -> None:
        """Let it make these changes, one after the other; returns at once."""
        for change in changes:
            self.say(change)
            self._owed += 1

    def acked(self) -> list[dict[str, Any]]:
        """Wait for its answers to all that it was told: ``name``, ``version`` and ``outcome`` of each."""
        found = [self.hear() for _ in range(self._owed)]
        self._owed = 0
        return found


def main() -> None:
    """Open, say so; then make changes until there are no more, and say what became of each."""
    parent = Parent()
    table = parent.hear()()
    parent.say("ready")
    for change in parent.heard():
        receipt = _written(change, table)
        parent.say({"name": change.name, "version": receipt.version, "outcome": receipt.outcome})


def _written(change: Append | Remove, table: Any) -> Any:
    """As its user would: a conflict left nothing, so the same call again."""
    for _ in range(ATTEMPTS_MAX):
        try:
            return change.write(table)
        except sw.ConflictError:
            continue
    raise AssertionError(f"{change.name} met {ATTEMPTS_MAX} conflicts")


if __name__ == "__main__":
    main()
