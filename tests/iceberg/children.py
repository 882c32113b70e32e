"""Child processes that write to an Iceberg table, and are killed or paused at a step.

Run as a program, this module is a warm parent as that of ``tests.integration.children``: it makes each
catalog before it forks, and lets go of every connection, so that no two children share one.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet  # noqa: F401 - imported before the fork
import pyiceberg.io.pyarrow  # noqa: F401 - imported before the fork

import safewrite as sw
import safewrite.iceberg.data.datafiles
import safewrite.iceberg.opening
import safewrite.iceberg.write.overwrite
import safewrite.stores.dynamodb
import safewrite.stores.sql
from safewrite.iceberg.table import IcebergTable
from safewrite.testing.steps import KillAt, PauseAt, side_of
from tests.iceberg.places import Place
from tests.integration.children import serve
from tests.integration.places import rows

MOVED = 1000
"""What an overwrite adds to the id that it replaces."""


def _overwrite(table: IcebergTable, number: int, **naming: Any) -> sw.Receipt:
    moved = number + MOVED
    return table.overwrite(rows(moved), where=f"id = {number} or id = {moved}", **naming)


VERBS: dict[str, Callable[..., sw.Receipt]] = {
    "append": lambda table, number, **naming: table.append(rows(number + MOVED), **naming),
    "overwrite": _overwrite,
    "delete": lambda table, number, **naming: table.delete(f"id = {number}", **naming),
}
"""What a child may do about the row ``number``: add another one, replace it by another one, remove it."""


def after(verb: str, number: int) -> tuple[int, ...]:
    """Ids that the verb leaves of the row."""
    return {"append": (number, number + MOVED), "overwrite": (number + MOVED,), "delete": ()}[verb]


@dataclass(frozen=True)
class Task:
    """One write by a child: ``point`` is where ``kind`` ends or stops it, None for nowhere."""

    place: Place
    verb: str
    number: int
    naming: dict[str, Any]
    point: str | None
    kind: type[KillAt] | type[PauseAt] = KillAt

    def run(self) -> sw.Receipt:
        """Open the table and write."""
        table = self.place.open()
        set_scene(table)
        if self.point is not None:
            table.world = self.kind(table.world, *side_of(self.point))
        return VERBS[self.verb](table, self.number, **self.naming)


@dataclass(frozen=True)
class Crowd:
    """So many processes at once, each with so many keyed appends of one row; outcomes go to files in ``folder``."""

    place: Place
    processes: int
    appends: int
    folder: Path

    def run(self) -> None:
        """Fork, and wait for all of them."""
        children = [self._fork(worker) for worker in range(1, self.processes + 1)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        assert not any(codes), codes

    def _fork(self, worker: int) -> int:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                self._work(worker)
                code = 0
            except BaseException:  # noqa: BLE001 - the parent sees only the code
                traceback.print_exc()
            finally:
                os._exit(code)
        return child

    def _work(self, worker: int) -> None:
        table = _opened(self.place)
        with (self.folder / f"{worker}.jsonl").open("w") as history:
            for number in range(worker * MOVED, worker * MOVED + self.appends):
                history.write(json.dumps([number, _outcome(table, number)]) + "\n")


def _opened(place: Place) -> IcebergTable:
    """The table, where answers to opening it may be lost, too: nothing was written, as the error says."""
    for _ in range(9):
        with suppress(sw.StorageError):
            return place.open()
    return place.open()


def _outcome(table: IcebergTable, number: int) -> str:
    try:
        table.append(rows(number), key=f"event-{number}")
    except sw.NotCommittedError:
        return "refused"
    except sw.CommitUnknownError:
        return "unknown"
    return "acked"


def set_scene(table: IcebergTable) -> None:
    """Let the table object believe that it knows the newest state: the clock must not decide how often it looks."""
    table._format._cached.seen_s = float("inf")


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
    # A child's faults are set before it opens its table; whether the catalog is honest is not its question.
    safewrite.iceberg.opening.probe = lambda *_: None
    serve(lambda task: task.run(), before=lambda task: _calm(task.place))


if __name__ == "__main__":
    main()
