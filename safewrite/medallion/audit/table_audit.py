"""Holds what an accounting of one table found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

EXAMPLES_MAX = 5


@dataclass
class TableAudit:
    """One table: ``flaws`` is empty if everything is there once.

    ``rows_in_files`` counts the records of the files that are listed now, ``landed`` and ``put_aside`` where they are.
    ``silver_rows`` is the number of rows in silver; ``behind`` counts rows of bronze that silver has yet to take.
    """

    table: str
    files: int = 0
    rows_in_files: int = 0
    landed: int = 0
    put_aside: int = 0
    bronze_rows: int = 0
    silver_rows: int = 0
    silver_put_aside: int = 0
    behind: int = 0
    commits: int = 0
    gone: int = 0
    """Files that bronze has rows of in this epoch, and that are listed no longer: archived, expired, or removed by a TRUNCATE."""
    late: int = 0
    """Of a sync by time: rows from before the floor that silver does not account for."""
    beyond: int = 0
    """Of a sync by time: rows of silver whose change bronze no longer has, and which nothing is compared with."""
    flaws: list[str] = field(default_factory=list)
    error: str | None = None

    @property
    def clean(self) -> bool:
        return not self.flaws and self.error is None

    def tell(self, what: str, examples: Sequence[Any], count: int | None = None) -> None:
        """Note a flaw, if there are examples of it; ``count``: so many, of which some are given."""
        if examples:
            shown = "; ".join(str(one) for one in examples[:EXAMPLES_MAX])
            number = len(examples) if count is None else count
            more = " ..." if number > EXAMPLES_MAX else ""
            self.flaws.append(f"{number} {what}: {shown}{more}")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self) | {"clean": self.clean}
