"""Stresses a table under a change log, of both formats; see :class:`bench.stress.target.Ground`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from . import change_readers, iceberg_readers, readers, target
from .change_check import Seen
from .delta_target import DeltaTarget
from .iceberg_target import NAMESPACE, IcebergTarget
from .target import Target, UnreadableTableError
from .writers import change_log

PARTITION_BY = ["region"]


@dataclass(slots=True)
class FinalLooks:
    """What the readers found when the writers had ended; ``flaws`` are of the table itself."""

    seen: list[Seen]
    versions: int = 0
    flaws: list[str] = field(default_factory=list)


class ChangeTarget(Target, Protocol):
    """A target whose rows have keys."""

    def look(self) -> Seen:
        """Read while writers are at work."""

    def look_all(self, folder: Path) -> FinalLooks:
        """Read by every reader, past the proxies; raises :class:`UnreadableTableError`."""


class DeltaChanges(DeltaTarget):
    """A Delta table."""

    def rehearse(self) -> dict[str, tuple[str, ...]]:
        import safewrite as sw

        uri = self.table + "-rehearsal"
        self._create(uri)
        options = self.stage.cloud.storage_options()
        return _rehearse(lambda: sw.open(uri, storage_options=options, **self._arbiter()))

    def _create(self, uri: str) -> None:
        options = self.stage.cloud.storage_options()
        if self.arm.arbiter is None:
            DeltaTable.create(uri, change_log.schema(), storage_options=options)
            return
        import safewrite as sw

        sw.create(
            uri, change_log.schema(), partition_by=PARTITION_BY, storage_options=options, **self._arbiter()
        )

    def look(self) -> Seen:
        return change_readers.of_deltalake(self.place, name=_now("deltalake"), final=False)

    def look_all(self, folder: Path) -> FinalLooks:
        try:
            replay = readers.replay_log(self.place)
            bodies = [
                (self.place.get(unquote(path)), add["partitionValues"]) for path, add in replay.live.items()
            ]
            seen = [
                change_readers.of_deltalake(self.place),
                change_readers.of_log(self.place, replay),
                change_readers.of_files(bodies, folder),
            ]
        except (DeltaError, duckdb.Error, pa.ArrowException, OSError) as error:
            raise UnreadableTableError(str(error)) from error
        return FinalLooks(seen, replay.versions)


class IcebergChanges(IcebergTarget):
    """An Iceberg table."""

    def rehearse(self) -> dict[str, tuple[str, ...]]:
        import safewrite as sw

        name = self.table + "_rehearsal"
        self._create(name)
        options: dict[str, Any] = {"storage_options": self.stage.cloud.storage_options(), **self._lock_table}
        return _rehearse(lambda: sw.open(name, catalog=self._direct, **options))

    def _create(self, name: str) -> None:
        if self.arm.arbiter is None:
            self.catalog.create_namespace_if_not_exists(NAMESPACE)
            self.catalog.create_table(name, change_log.schema())
            return
        import safewrite as sw

        options: dict[str, Any] = {"storage_options": self.stage.cloud.storage_options(), **self._lock_table}
        sw.create(
            name,
            change_log.schema(),
            catalog=self._direct,
            partition_by=PARTITION_BY,
            create_namespace=True,
            **options,
        )

    def look(self) -> Seen:
        return change_readers.of_pyiceberg(self.catalog, self.table, name=_now("pyiceberg"), final=False)

    def look_all(self, folder: Path) -> FinalLooks:
        objects = iceberg_readers.Objects(self.stage.cloud.boto3_client("s3"))
        lineage = iceberg_readers.follow(objects, self.catalog.load_table(self.table).metadata_location)
        try:
            scanned = change_readers.of_pyiceberg(self.catalog, self.table)
            files = change_readers.of_files([(body, {}) for body in objects.get_all(lineage.live)], folder)
        except Exception as error:
            raise UnreadableTableError(f"{type(error).__name__}: {error}") from error
        seen = [scanned, change_readers.of_specification(objects, lineage), files]
        return FinalLooks(seen, lineage.states, iceberg_readers.repeated_files(lineage))


def _now(reader: str) -> str:
    return f"{reader} at {time.strftime('%H:%M:%S')}"


def _rehearse(open_table: Callable[[], Any]) -> dict[str, tuple[str, ...]]:
    """Apply a first batch, then one that inserts, updates and deletes, and note the effects of that."""
    row: tuple[Any, ...] = ("x", None, None, None, None)
    change = change_log.Change
    keys = [("eu", number) for number in range(4)]
    first = [change("c", 1, key, (*key, 1, *row)) for key in keys[:3]]
    then = [
        change("u", 2, keys[0], (*keys[0], 2, *row)),
        change("d", 2, keys[1]),
        change("c", 2, keys[3], (*keys[3], 2, *row)),
    ]
    how: dict[str, Any] = {
        "keys": list(change_log.KEYS), "sequence_by": [change_log.SEQUENCE], "delete_when": [("op", "=", "d")],
    }  # fmt: skip
    open_table().apply_changes(change_log.to_arrow(first), key="rehearsal-1", **how)
    table = open_table()
    names = target.note_names(table.world)
    table.apply_changes(change_log.to_arrow(then), key="rehearsal-2", **how)
    return {"key": tuple(names)}
