"""Reads changes that a task makes where their rows are, and keeps them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeAlias, TypeVar

import pyarrow as pa

from safewrite.changes.meaning.reading import check_target, parsed
from safewrite.changes.meaning.spec import Spec
from safewrite.changes.members.shared_jobs import SharedChanges
from safewrite.changes.tasks.read_task import HASHES_MAX, ReadBatch, ReadChanges, ReadReport
from safewrite.engine.abc import Engine, Task, TaskAttempt, TaskOutput
from safewrite.engine.computed_changes import ComputedChanges

S = TypeVar("S")


@dataclass(frozen=True)
class ReadMade:
    """Reads the changes that another task makes of an input; reports what both report."""

    make: Task
    read: ReadChanges

    @property
    def columns(self) -> pa.Schema:
        """Those of changes that were read."""
        return self.read.columns

    def __call__(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> Generator[TaskOutput, None, tuple[Any, ReadReport]]:
        """Make and read the changes of an input, some at a time."""
        made: list[Any] = []

        def rows() -> Generator[Any, None, None]:
            made.append((yield from self.make(batches, at)))

        found = yield from self.read(rows(), at)
        return made[0], found


@dataclass(frozen=True)
class ChangesToRead(Generic[S]):
    """See :class:`safewrite.changes.tasks.apply_job.EngineChanges`; ``properties`` are known once the changes are read in."""

    made: ComputedChanges[S]
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What errors call them."""
        return self.made.name

    @property
    def engine(self) -> Engine[S]:
        """See the class."""
        return self.made.engine

    @property
    def columns(self) -> pa.Schema:
        """See :class:`safewrite.changes.tasks.apply_job.EngineChanges`."""
        return self.made.make.columns or pa.schema([])

    @property
    def shown(self) -> Callable[[Any, pa.Schema], Any]:
        """See :class:`safewrite.changes.tasks.apply_job.EngineChanges`: a table of Arrow."""
        return self.engine.collected

    @contextmanager
    def read_in(
        self, spec: Spec, schema: pa.Schema, partition_by: tuple[str, ...] = ()
    ) -> Iterator[tuple[ReadBatch, S]]:
        """See :class:`safewrite.changes.tasks.apply_job.EngineChanges`."""
        check_target(spec, schema)
        spec = parsed(replace(spec, check=None), self.made.make.columns or schema)
        is_hashed = self.made.rows <= HASHES_MAX
        read = ReadChanges(spec, schema, partition_by, is_hashed=is_hashed)
        with self.engine.map(self.made.source, ReadMade(self.made.make, read)) as mapped:
            found = mapped.bodies()
            report = ReadReport.together((one for _, one in found), spec, schema)
            self.properties.update(self.made.learn([noted for noted, _ in found]))
            yield ReadBatch(spec, schema, report, report.fingerprint), mapped.rows


TaskChanges: TypeAlias = SharedChanges | ChangesToRead[Any]
"""Changes that only tasks have."""


def task_changes(data: object) -> TaskChanges | None:
    """Changes that only tasks have; None for other data."""
    if isinstance(data, ComputedChanges):
        return ChangesToRead(data)
    return data if isinstance(data, SharedChanges) else None
