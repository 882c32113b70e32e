"""Names silver's positions besides that of bronze, and says what they tell."""

from __future__ import annotations

from collections.abc import Mapping

from safewrite.errors import SafewriteError
from safewrite.medallion.config.full_load_epochs import truncating
from safewrite.medallion.tables.job import TableJob

RESET = "reset"
"""The position of silver that is odd while it is rebuilt in several commits: whoever comes next applies all of bronze."""
TRUNCATED = "truncated"
"""The position of silver that names the last epoch whose ``reload: "truncate"`` it took."""


def is_under_way(positions: Mapping[str, int]) -> bool:
    """Whether silver is being rebuilt, or that broke off."""
    return positions.get(RESET, 0) % 2 == 1


def truncated_epoch(job: TableJob) -> int:
    """The last epoch that silver began empty, if there is a silver; 1 without."""
    try:
        silver = job.places.open(job.config.silver, job.config.format, None)
        return silver.positions().get(TRUNCATED, 1)
    except SafewriteError:  # silver reports what is wrong with it where it is needed
        return 1


def is_truncated(job: TableJob, noted: object) -> bool:
    """Whether silver took all that was declared to begin empty, as was noted of it."""
    declared = truncating(job.config.reload, job.config.epoch)
    return not declared or (isinstance(noted, int) and noted >= declared[-1])
