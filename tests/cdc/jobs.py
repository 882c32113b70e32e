"""A job on this machine without Spark: batches by hand, tables on the disk, and what an oracle says of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import deltalake
import deltalake.exceptions
import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchTableError

from safewrite.cdc.config.job import load
from safewrite.cdc.config.own_columns import OwnNames
from safewrite.cdc.landing.landing import Landing, WorkOf
from safewrite.cdc.ledger.accounting import Verdict, verify
from safewrite.cdc.ledger.ledger import LedgerEntry
from safewrite.cdc.records.batch import Batch, Partition, Range
from safewrite.cdc.records.change import KafkaRecord
from safewrite.cdc.table.by_tasks import ExecutorWork
from tests.cdc.events import event, postgres, record, told_with_schemas

Rows = dict[Any, dict[str, Any]]
_LONG = [
    pytest.param("delta", False, marks=pytest.mark.long),
    pytest.param("iceberg", True, marks=pytest.mark.long),
]
FORM_AND_SCHEMAS = pytest.mark.parametrize(("form", "schemas"), [("delta", True), ("iceberg", False), *_LONG])
"""Each format, and each way of reading; all of both is long."""


@dataclass
class Job:
    """A job over tables ``db.<name>``, its records in one topic of several partitions."""

    folder: Path
    tables: list[dict[str, Any]]
    form: str = "delta"
    settings: dict[str, Any] = field(default_factory=dict)
    topic_id: str = "id-1"
    schemas: bool | None = None
    """Whether events come with their schemas, and are read by columns; else one by one.  None: in tables of Delta."""
    work: WorkOf = ExecutorWork.here
    """Who lands batches."""

    def landing(self, **more: Any) -> Landing:
        """The job in a new process: it knows nothing but its tables."""
        given = {
            "job": "job", "kafka": {"servers": "none", "topics": ["topic"]}, "envelope": "debezium-json",
            "checkpoint": "none", "tables": [{"database": "db", "format": self.form, **table} for table in self.tables],
            "job_tables": {"format": self.form}, **self.settings, **more,
        }  # fmt: skip
        given = (
            {"warehouse": str(self.folder)} if self.form == "delta" else {"catalog": self.catalog()}
        ) | given
        landing = Landing(load(given))
        landing.decoder.fewest = 1
        return landing

    def catalog(self) -> dict[str, str]:
        return {
            "name": "local",
            "type": "sql",
            "uri": f"sqlite:///{self.folder}/catalog.db",
            "warehouse": f"file://{self.folder}/lake",
        }

    def batch(
        self,
        records: Sequence[KafkaRecord],
        number: int = 0,
        ranges: dict[int, tuple[int, int]] | None = None,
    ) -> Batch:
        has_schemas = self.form == "delta" if self.schemas is None else self.schemas
        told = told_with_schemas(records) if has_schemas else records
        made = Batch.of_records(number, told, {"topic": self.topic_id})
        if ranges is None:
            return made
        named = {Partition("topic", one, self.topic_id): Range(*given) for one, given in ranges.items()}
        return Batch(number, made.records, named)

    def land(
        self, *records: KafkaRecord, landing: Landing | None = None, number: int = 0, **more: Any
    ) -> list[LedgerEntry]:
        return (landing or self.landing(**more)).land(self.batch(records, number), self.work)

    def land_and_die(self, *records: KafkaRecord, number: int = 0) -> None:
        """Land a batch by a driver that dies once the tables have it, and before the ledger does."""
        dying = self.landing()
        dying.ledger.write = lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            self.land(*records, landing=dying, number=number)

    def read(self, name: str, database: str = "db") -> pa.Table:
        """A table by a reader that is not ours."""
        if self.form == "delta":
            options = self.settings.get("storage_options")
            path = f"{self.settings.get('warehouse', self.folder)}/{database}/{name}"
            return pa.table(deltalake.DeltaTable(path, storage_options=options).to_pyarrow_table())
        from pyiceberg.catalog import load_catalog

        return load_catalog(**self.catalog()).load_table(f"{database}.{name}").scan().to_arrow()

    def rows(self, name: str, key: str = "id") -> Rows:
        """The rows by key, without the job's own columns; none may be there twice."""
        listed = self.read(name).to_pylist()
        found = {
            row[key]: {column: value for column, value in row.items() if column not in OwnNames()[:2]}
            for row in listed
        }
        assert len(found) == len(listed)
        return found

    def letters(self) -> list[dict[str, Any]]:
        try:
            return list(self.read("job_dead_letters", "cdc").to_pylist())
        except (deltalake.exceptions.TableNotFoundError, NoSuchTableError):
            return []

    def verdict(self) -> Verdict:
        letters = pa.Table.from_pylist(self.letters()) if self.letters() else None
        return verify("job", self.read("job_ledger", "cdc"), letters)


def change(
    op: str, table: str, key: Any, row: Any = None, *, lsn: int, offset: int, partition: int = 0, **more: Any
) -> KafkaRecord:
    """One event of a table ``public.<table>`` with the key ``id``."""
    given = event(op, row, source=postgres(lsn, table), **more)
    return record(given, None if key is None else {"id": key}, offset=offset, partition=partition)


@dataclass
class Source:
    """A random source of tables, the records that tell of it, and what it holds: the oracle."""

    seed: int
    tables: Sequence[str] = ("a", "b", "c")
    partitions: int = 2
    rows: dict[str, Rows] = field(default_factory=dict)
    records: list[KafkaRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._lsn = 0
        self._offsets = [0] * self.partitions
        self.rows = {table: {} for table in self.tables}

    def run(self, changes: int) -> list[KafkaRecord]:
        """So many changes; returns their records, tombstones and all."""
        before = len(self.records)
        for _ in range(changes):
            self._change()
        return self.records[before:]

    def row(self, key: int, draw: random.Random) -> dict[str, Any]:
        """A row of the source."""
        return {"id": key, "name": draw.choice(["Ada", "Zoë", "", None]), "n": draw.randrange(-5, 5)}

    def _change(self) -> None:
        draw = self._random
        table, key = draw.choice(self.tables), draw.randrange(20)
        rows = self.rows[table]
        if key in rows and draw.random() < 0.3:
            del rows[key]
            self._tell("d", table, key, None)
            self._add(
                table, key, lambda offset, where: record(None, {"id": key}, offset=offset, partition=where)
            )
        elif key in rows and draw.random() < 0.15:
            new = draw.randrange(20, 40)
            row = {**rows.pop(key), "id": new}
            rows.pop(new, None)
            self._tell("d", table, key, None)
            rows[new] = row
            self._tell("u" if draw.random() < 0.5 else "c", table, new, row)
        else:
            row = self.row(key, draw)
            self._tell("u" if key in rows else draw.choice("cr"), table, key, row)
            rows[key] = row

    def _tell(self, op: str, table: str, key: int, row: Any) -> None:
        self._lsn += 1
        lsn = self._lsn
        self._add(
            table,
            key,
            lambda offset, where: change(op, table, key, row, lsn=lsn, offset=offset, partition=where),
        )

    def _add(self, table: str, key: int, made: Callable[[int, int], KafkaRecord]) -> None:
        where = (len(table) * 31 + ord(table[0]) + key) % self.partitions
        self.records.append(made(self._offsets[where], where))
        self._offsets[where] += 1


def cut(records: Sequence[KafkaRecord], size: int) -> list[list[KafkaRecord]]:
    """Batches of at most so many records, in order."""
    return [list(records[start : start + size]) for start in range(0, len(records), size)]
