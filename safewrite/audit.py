"""What verify finds out about keys that were sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

EXAMPLES = 10


@dataclass(frozen=True, slots=True)
class KeyAudit:
    """How often each key is in the table; ``unknown`` ones may have been in commits that were cleaned up."""

    present: int
    rows: int
    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    torn: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def clean(self) -> bool:
        """Every key once, with all its rows."""
        return not (self.lost or self.doubled or self.torn or self.unknown)

    def to_dict(self) -> dict[str, Any]:
        """Counts, and examples of what is wrong."""
        flaws = {"lost": self.lost, "doubled": self.doubled, "torn": self.torn, "unknown": self.unknown}
        counts = {name: len(found) for name, found in flaws.items()}
        examples = {name: list(found[:EXAMPLES]) for name, found in flaws.items() if found}
        return {"keys": {"present": self.present, "rows": self.rows, **counts}, "examples": examples}
