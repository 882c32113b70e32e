"""What an acknowledged write returns."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """How an acknowledged write came to be in the table."""

    COMMITTED = "committed"
    ALREADY_COMMITTED = "already_committed"


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof of one acknowledged write.

    ``version`` is the Delta version or the Iceberg snapshot id that holds the rows.  ``attempts``
    counts tries at a version number (1 without contention; 0 if the write was found already
    committed before any try).  ``elapsed_s`` is monotonic time.  ``txn`` is ``(app_id, version)``
    where the write was named by one.
    """

    outcome: Outcome
    table: str
    version: int
    rows: int
    files: int
    attempts: int
    elapsed_s: float
    key: str
    fingerprint: str
    txn: tuple[str, int] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The receipt as plain values, ready for JSON."""
        plain = asdict(self)
        plain["outcome"] = self.outcome.value
        return plain
