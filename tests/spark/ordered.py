"""Tables of both formats that Spark and safewrite change, with the order of their commits and the rows of each."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyiceberg.table.snapshots import Operation
from pyspark.errors import PySparkException

import safewrite as sw
from tests.spark import serial
from tests.spark.hooked import HookedTable
from tests.spark.lake import Lake
from tests.spark.serial import Compact, Rows, Statement
from tests.spark.session import Spark

Version = int
VERBS = ("delete", "update", "merge")


@dataclass(frozen=True)
class DeltaOrder:
    """A Delta table; names are safewrite's keys and Spark's ``userMetadata``."""

    hooked: HookedTable
    reopen: Callable[[], Any]

    @property
    def spark(self) -> Spark:
        return self.hooked.spark

    def run(self, statement: Statement) -> None:
        """Run a statement whose commit carries its name."""
        with self.spark.setting("spark.databricks.delta.commitInfo.userMetadata", statement.name):
            self.spark.run(statement.sql(f"delta.`{self.hooked.uri}`"))

    def history(self) -> list[tuple[Version, str]]:
        """The commits that changed rows, in the order of the log, with their names."""
        found = []
        for version, actions in list(enumerate(self.hooked.place.commits()))[1:]:  # 0 makes the table
            info = next(action["commitInfo"] for action in actions if "commitInfo" in action)
            files = [action[kind] for action in actions for kind in ("add", "remove") if kind in action]
            writes = info.get("safewrite", {}).get("writes", [])
            if writes:
                found += [(version, write["key"]) for write in writes]
            elif any(file["dataChange"] for file in files):
                found.append((version, info["userMetadata"]))
        return found

    def by_spark(self) -> Rows:
        """All rows, as Spark reads them."""
        return serial.counted(self.spark.read(self.hooked.uri))

    def by_another(self, version: Version) -> Rows:
        """The rows of a version, as deltalake reads them."""
        table = self.hooked.place.delta()
        table.load_as_version(version)
        return serial.counted(table.to_pyarrow_table())


@dataclass(frozen=True)
class IcebergOrder:
    """An Iceberg table; names are in the summaries of its snapshots."""

    lake: Lake
    name: str
    reopen: Callable[[], Any]

    @property
    def spark(self) -> Spark:
        return self.lake.spark

    def run(self, statement: Statement) -> None:
        """Run a statement whose snapshot carries its name, but for a compaction, which changes no rows."""
        text = statement.sql(self.lake.sql(self.name))
        if isinstance(statement, Compact):
            text = (
                f"CALL {self.lake.name}.system.rewrite_data_files(table => '{self.name}', "
                "options => map('min-input-files', '2'))"
            )
        with self.spark.setting("spark.sql.iceberg.snapshot-property.statement", statement.name):
            self.spark.run(text)

    def history(self) -> list[tuple[Version, str]]:
        """The snapshots that changed rows, oldest first, with their names."""
        table, found = self.lake.load().load_table(self.name), []
        snapshot = table.current_snapshot()
        while snapshot is not None:
            assert snapshot.summary is not None
            if snapshot.summary.operation is not Operation.REPLACE:
                said = snapshot.summary.additional_properties
                found.append((snapshot.snapshot_id, said.get("safewrite.key") or said["statement"]))
            parent = snapshot.parent_snapshot_id
            snapshot = table.snapshot_by_id(parent) if parent is not None else None
        return found[::-1]

    def by_spark(self) -> Rows:
        """All rows, as Spark reads them."""
        return serial.counted(self.spark.read(self.lake.sql(self.name)))

    def by_another(self, version: Version) -> Rows:
        """The rows of a snapshot, as PyIceberg reads them."""
        return serial.counted(self.lake.load().load_table(self.name).scan(snapshot_id=version).to_arrow())


Order = DeltaOrder | IcebergOrder


def delta(hooked: HookedTable, isolation: str = "Serializable") -> DeltaOrder:
    """A new, empty Delta table on S3."""
    place = hooked.place
    arbiter = {"lock_table": place.lock_table} if place.lock_table else {"arbiter": place.arbiter}
    settings: dict[str, Any] = {"storage_options": dict(place.storage_options), **arbiter}
    with pytest.MonkeyPatch.context() as patch:
        if isolation != "Serializable":  # both safewrite and Spark refuse to set another one
            patch.setattr("safewrite.tables.delta_properties.check", lambda *_, **__: None)
        sw.create(place.uri, serial.SCHEMA, properties={"delta.isolationLevel": isolation}, **settings)
    return DeltaOrder(hooked, functools.partial(sw.open, place.uri, **settings))


def iceberg(lake: Lake, mode: str, isolation: str = "serializable") -> IcebergOrder:
    """A new, empty Iceberg table; ``mode`` is how Spark changes rows: copy-on-write or merge-on-read."""
    properties = {"format-version": "2", "commit.retry.num-retries": "100", "commit.retry.min-wait-ms": "20"}
    for verb in VERBS:
        properties |= {f"write.{verb}.mode": mode, f"write.{verb}.isolation-level": isolation}
    name = lake.create(serial.SCHEMA, properties=properties).uri
    catalog = {"name": lake.name, **lake.properties}
    return IcebergOrder(lake, name, functools.partial(sw.open, name, catalog=catalog))


def refused(error: Exception) -> bool:
    """Whether an engine says that others changed what a statement read: nothing of it is in the table."""
    text = str(error)
    return any(mark in text for mark in ("DELTA_CONCURRENT", "ValidationException", "CommitFailedException"))


def persist(order: Order, statement: Statement, *, attempts_max: int = 30) -> int:
    """Run a statement as its user would, again after each conflict; returns how many of those there were.

    Raises:
        AssertionError: so many, one after the other.
    """
    for conflicts in range(attempts_max):
        try:
            order.run(statement)
        except (PySparkException, Py4JError) as error:
            if not refused(error):
                raise
        else:
            return conflicts
    raise AssertionError(f"{statement} met {attempts_max} conflicts")


@contextmanager
def each(*managers: Any) -> Iterator[list[Any]]:
    """Several context managers as one."""
    with ExitStack() as stack:
        yield [stack.enter_context(manager) for manager in managers]
