"""Keeps the tables of a job in shape between its batches, within a share of the time; what fails there stops no batch."""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

import safewrite as sw
from safewrite.intake.reporting import Listener, report
from safewrite.intake.settings import Strict
from safewrite.upkeep.workplace import Workplace

log = logging.getLogger("safewrite")

START_S, SAVED_S = 5.0, 60.0
"""The time that a process begins with, so that one which ends soon does something, and the most that it saves up."""


class Maintain(Strict):
    """How much the job does for the shape of its tables."""

    share: Annotated[
        float,
        Field(
            gt=0,
            le=0.5,
            strict=False,
            description="the share of the time that upkeep may take; a process begins with five seconds",
        ),
    ] = 0.1
    every_commits: Annotated[
        int, Field(ge=1, description="a table is looked at after so many of its commits")
    ] = 20


MaintainOption = Annotated[
    Literal["off"] | Maintain,
    Field(
        description="whether the job puts small data files of its tables together, between batches, as `safewrite maintain` does; "
        "off where something else does it"
    ),
]


@dataclass
class Upkeep:
    """Says which tables are due, and maintains them while there is time left.

    A table is due by the number of its commits, which its object knows: nothing is asked of a store for one that is not.  ``place`` says
    where its files are put together.
    """

    settings: Maintain | Literal["off"]
    on_event: Listener | None = None
    now_s: Callable[[], float] = time.monotonic
    place: Workplace = field(default_factory=Workplace)
    _due: dict[str, int] = field(default_factory=dict)
    """The number of the commit from which a table is due."""
    _left_s: float = START_S
    _asked_s: float = field(init=False)
    _said: set[tuple[str, str]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        self._asked_s = self.now_s()

    def keep(self, committed: Iterable[tuple[str, sw.Table]]) -> list[str]:
        """Maintain those tables, by their names, that are due after a commit, the longest due first; the names of those that were maintained."""
        if self.settings == "off":
            return []
        due = sorted(self._overdue(committed, self.settings), key=lambda one: -one[0])
        return [name for _, name, table in due if self._kept(name, table, self.settings)]

    def _overdue(
        self, committed: Iterable[tuple[str, sw.Table]], settings: Maintain
    ) -> Iterator[tuple[int, str, sw.Table]]:
        for name, table in committed:
            count = _commits(table)
            with self._lock:
                # Tables of one job would all be due at once; and a process may see one commit of a table, and end.
                wait = zlib.crc32(f"{name}/{count}".encode()) % settings.every_commits
                due = self._due.setdefault(name, max(count, settings.every_commits) + wait)
            if count >= due:
                yield count - due, name, table

    def _kept(self, name: str, table: sw.Table, settings: Maintain) -> bool:
        """Maintain one table, if there is time left."""
        started_s = self.now_s()
        with self._lock:
            self._left_s = min(self._left_s + settings.share * (started_s - self._asked_s), SAVED_S)
            self._asked_s = started_s
            left_s = self._left_s
        if left_s <= 0:
            return False
        try:
            found = table.maintain(budget_s=left_s, engine=self.place)
        except Exception as error:  # noqa: BLE001 - it is said and counted; the batch has landed
            self._tell(name, error)
        else:
            log.log(logging.INFO if found.groups else logging.DEBUG, "upkeep: %s", found)
        with self._lock:
            self._left_s -= self.now_s() - started_s
            self._due[name] = _commits(table) + settings.every_commits
        return True

    def _tell(self, name: str, error: Exception) -> None:
        """Say what upkeep failed with: a warning once for each kind of error of a table, and an event each time."""
        kind = error.kind.value if isinstance(error, sw.SafewriteError) else "internal"
        text = f"{name} was not maintained, and the job goes on: {error}"
        level = logging.DEBUG if (name, kind) in self._said else logging.WARNING
        self._said.add((name, kind))
        event = sw.Event("upkeep", name, text, {"failed": 1, "error": kind})
        report(f"upkeep: {text}", event, self.on_event, level=level)


@dataclass(frozen=True)
class TablesMaintained:
    """What was done to the tables of a job: a report for each, by its name, why others failed, and which were not begun."""

    reports: Mapping[str, sw.MaintainReport]
    failed: Mapping[str, str]
    left: Sequence[str]

    @property
    def ok(self) -> bool:
        """Whether no table failed, and no commit is in doubt."""
        return not self.failed and all(one.in_doubt is None for one in self.reports.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        reports = {name: one.to_dict() for name, one in self.reports.items()}
        return {"ok": self.ok, "tables": reports, "failed": dict(self.failed), "left": list(self.left)}


def maintain_all(
    tables: Iterable[tuple[str, Callable[[], sw.Table | None]]],
    *,
    dry_run: bool = False,
    budget_s: float | None = None,
    budget_bytes: int | None = None,
    remove_unused: bool = False,
    place: Workplace | None = None,
) -> TablesMaintained:
    """Maintain tables one after another, by their names; the budget is that of all of them.  A table that is not there yet is passed over.

    Raises:
        InvalidInputError: an argument that ``Table.maintain`` refuses.
    """
    how: dict[str, Any] = {"dry_run": dry_run, "remove_unused": remove_unused, "engine": place or Workplace()}
    reports, failed, left = dict[str, sw.MaintainReport](), dict[str, str](), list[str]()
    started_s = time.monotonic()
    for name, opened in tables:
        spent = sum(one.bytes_in for one in reports.values())
        left_s = None if budget_s is None else budget_s - (time.monotonic() - started_s)
        left_bytes = None if budget_bytes is None else budget_bytes - spent
        if (left_s is not None and left_s <= 0) or (left_bytes is not None and left_bytes <= 0):
            left.append(name)
            continue
        try:
            table = opened()
            if table is not None:
                reports[name] = table.maintain(budget_s=left_s, budget_bytes=left_bytes, **how)
        except sw.InvalidInputError:
            raise
        except sw.SafewriteError as error:
            failed[name] = error.message
            log.error("upkeep: %s failed: %s", name, error.message)
    return TablesMaintained(reports, failed, left)


def _commits(table: Any) -> int:
    """How many commits a table had, as its object saw it last."""
    if not hasattr(table, "iceberg"):
        return int(table.version)
    metadata = table.iceberg.metadata
    return int(
        getattr(metadata, "last_sequence_number", 0) or len(metadata.snapshots)
    )  # version 1 has no number
