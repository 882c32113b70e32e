"""What the configuration of each job has: its tables' upkeep, and the source tables that it passes over."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from safewrite.intake.settings import Text
from safewrite.intake.tables import TableAccess, is_like
from safewrite.intake.upkeep import Maintain, MaintainOption


class JobConfig(TableAccess):
    """The base of the configurations of jobs."""

    maintain: MaintainOption = Maintain()
    ignored_tables: Annotated[
        list[Text],
        Field(
            description="source tables that are passed over, by name or by pattern: `*` stands for any letters, `?` for one"
        ),
    ] = Field(default_factory=list)

    def ignores(self, *names: str) -> bool:
        """Whether a pattern passes over a table by one of its names."""
        return any(is_like(name, one) for name in names for one in self.ignored_tables)
