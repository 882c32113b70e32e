"""Child processes that write to an Iceberg table, and are killed or paused at a step.

Run as a program, this module is a warm parent as that of ``tests.integration.children``: it makes each
catalog before it forks, and lets go of every connection, so that no two children share one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow.parquet  # noqa: F401 - imported before the fork
import pyiceberg.io.pyarrow  # noqa: F401 - imported before the fork

import safewrite as sw
import safewrite.iceberg.datafiles
import safewrite.iceberg.replace
import safewrite.stores.dynamodb
import safewrite.stores.sql
from safewrite.iceberg.table import IcebergTable
from safewrite.testing.steps import KillAt, PauseAt, side_of
from tests.iceberg.places import Place
from tests.integration.children import serve
from tests.integration.places import rows

VERBS: dict[str, Callable[..., sw.Receipt]] = {
    "append": lambda table, ids, **naming: table.append(rows(*ids), **naming),
    "overwrite": lambda table, ids, **naming: table.overwrite(
        rows(*ids), where=f"id >= {min(ids)}", **naming
    ),
    "delete": lambda table, ids, **naming: table.delete(f"id >= {min(ids)}", **naming),
}
"""What a child may do; ids from the least of ``ids`` on are what an overwrite or a delete removes."""


@dataclass(frozen=True)
class Task:
    """One write by a child: ``point`` is where ``kind`` ends or stops it, None for nowhere."""

    place: Place
    verb: str
    ids: tuple[int, ...]
    naming: dict[str, Any]
    point: str | None
    kind: type[KillAt] | type[PauseAt] = KillAt
    settings: dict[str, Any] = field(default_factory=dict)
    rival: int | None = None

    def run(self) -> sw.Receipt:
        """Open the table and write."""
        table = self.place.open(**self.settings)
        set_scene(self.place, table, rival=self.rival)
        if self.point is not None:
            table.world = self.kind(table.world, *side_of(self.point))
        return VERBS[self.verb](table, self.ids, **self.naming)


def set_scene(place: Place, table: IcebergTable, *, rival: int | None) -> None:
    """Let the table object believe that it knows the newest state, or be outrun by a rival."""
    table._known_s = float("inf")  # the clock must not decide how often it looks
    if rival is not None:
        place.open().append(rows(rival), key="rival")


def _calm(place: Place) -> None:
    """Make the catalog and leave no connection open; whoever uses it next makes its own."""
    catalog: Any = place.catalog()
    if place.kind == "glue":
        return
    if place.kind == "sql":
        catalog.engine.dispose()
    else:
        catalog._session.close()


def main() -> None:
    """Fork a child for each task on standard input."""
    rows(0)  # pyarrow imports pandas now, not in each child
    serve(lambda task: task.run(), before=lambda task: _calm(task.place))


if __name__ == "__main__":
    main()
