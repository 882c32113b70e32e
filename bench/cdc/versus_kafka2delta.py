"""Lands the same changes by the job and by kafka2delta: ``python -m bench.cdc.versus_kafka2delta``; what differs, and rows a second of CPU.

One generator makes the changes twice from one seed: as Debezium's Avro for the job, and flattened (``ExtractNewRecordState`` with
``__deleted`` and a log sequence number) for kafka2delta, which reads nothing else.  Both get the same batches without Kafka,
one of them twice, and write Delta tables.  kafka2delta gets no record that cannot be decoded: one would stop it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import struct
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

from bench.cdc import avro
from bench.cdc.check import Difference, compare, lake_rows
from bench.cdc.drain import SPARK, cpu_s
from bench.cdc.generator import (
    PARTITIONS,
    SHAPES,
    TABLES,
    Column,
    Event,
    Generator,
    Record,
    Row,
    partition_of,
)
from bench.cdc.registry import Registry
from bench.cdc.source_stack import DATABASE, JARS, ROOT
from bench.screen import screen
from safewrite.cdc.config.job import load
from safewrite.cdc.landing.landing import Landing
from safewrite.cdc.records import change
from safewrite.cdc.records.batch import Batch
from safewrite.spark.jars import jars_from

ARM = Path(os.environ.get("SAFEWRITE_ARMS_DIR", ROOT / ".envs")) / "kafka2delta" / "bin" / "python"
_PLAIN = ("int64", "string", "boolean", "double")
_TOPIC = "changes"


class Flat(avro.DebeziumAvro):
    """Events as ``ExtractNewRecordState`` leaves them."""

    def poison(self, draw: random.Random, event: Event) -> list[Record]:
        """None; the same is drawn as for the others."""
        if draw.choice([event.table, "ghosts"]) != "ghosts":
            draw.random()
        return []

    @property
    def tables(self) -> dict[int, str]:
        """The table of each schema of keys."""
        return {number: name for name, (number, _) in self._keys.items()}

    def _deleted(self, event: Event, row: Row) -> list[Record]:
        return [self._record(event, "d", row, None)]

    def _record(
        self, event: Event, op: str, before: Row | None, after: Row | None, table: str | None = None
    ) -> Record:
        row = after or before or {}
        key = {name: row[name] for name in SHAPES[event.table].key}
        flat = {
            **(self._row(event.table, row) or {}),
            "__deleted": "true" if op == "d" else "false",
            "__log_sequence_number": event.position * 100 + event.number,
        }
        where = partition_of(event.table, tuple(key.values()))
        coded = avro.coded(*self._keys[event.table], key), avro.coded(*self._values[event.table], flat)
        return Record(where, *coded)

    def _value_schema(self, table: str) -> tuple[int, Any]:
        fields = self._fields(table)
        fields.append({"name": "__deleted", "type": ["null", "string"], "default": None})
        fields.append({"name": "__log_sequence_number", "type": ["null", "long"], "default": None})
        return self._known(
            {"type": "record", "name": "Value", "namespace": f"shop.{table}", "fields": fields}
        )


@dataclass
class Landed:
    """What became of the changes."""

    name: str
    records: int
    cpu_s: float = 0.0
    wall_s: float = 0.0
    tables: list[Difference] = field(default_factory=list)
    stopped: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Made:
    """The changes in one envelope."""

    generator: Generator
    records: list[Record]

    def batches(self, count: int) -> list[list[tuple[int, Record]]]:
        """So many batches, each with its share of every partition, in their order; with the offsets."""
        parts: list[list[Record]] = [[] for _ in range(PARTITIONS)]
        for record in self.records:
            parts[record.partition].append(record)
        return [
            [
                (offset, part[offset])
                for part in parts
                for offset in range(len(part) * number // count, len(part) * (number + 1) // count)
            ]
            for number in range(count)
        ]

    def differences(self, lake: Path) -> list[Difference]:
        """What differs from the truth, in columns of plain types."""
        found = []
        for table in TABLES:
            expected = {
                key: [{name: _naive(value) for name, value in row.items()}]
                for key, row in self.generator.rows[table.name].items()
            }
            columns: dict[str, Column] = self.generator.columns[table.name]
            plain = [name for name, column in columns.items() if column.kind in _PLAIN]
            place = lake / table.name
            has = (place / "_delta_log").exists()
            data = deltalake.DeltaTable(str(place)).to_pyarrow_table() if has else None
            rows = lake_rows(table, pa.table(data)) if data is not None else {}
            found.append(compare(table, expected, rows, plain))
        return found


def made(envelope: avro.DebeziumAvro, seed: int, changes: int) -> Made:
    """The changes of a seed."""
    records: list[Record] = []
    generator = Generator(seed, envelope, records.append)
    generator.load()
    generator.run(changes, changes)
    return Made(generator, records)


def by_us(registry: Registry, seed: int, changes: int, batches: int, folder: Path) -> Landed:
    """Land them by the job's own code."""
    source = made(avro.DebeziumAvro(registry), seed, changes)
    settings = avro.settings(registry)
    for table in settings["tables"]:
        table["database"] = DATABASE
    given = {
        "job": "flat", "kafka": {"servers": "none", "topics": [_TOPIC]}, "checkpoint": "none", "warehouse": str(folder),
        **settings,
    }  # fmt: skip
    landing, told = Landing(load(given)), Landed("safewrite.cdc, delta", len(source.records))
    whole = [
        Batch.of_records(number, [_record(offset, one) for offset, one in batch], {_TOPIC: "id-1"})
        for number, batch in enumerate(source.batches(batches))
    ]
    started, cpu = time.monotonic(), time.process_time()
    for number, batch in enumerate(whole):
        for _ in range(2 if number == batches // 2 else 1):
            landing.land(batch)
    told.cpu_s, told.wall_s = time.process_time() - cpu, time.monotonic() - started
    told.tables = source.differences(folder / DATABASE)
    return told


def by_kafka2delta(registry: Registry, seed: int, changes: int, batches: int, folder: Path) -> Landed:
    """Land them by kafka2delta, in a process of its own."""
    flat = Flat(registry)
    source = made(flat, seed, changes)
    for number, batch in enumerate(source.batches(batches)):
        pq.write_table(_frame([one for _, one in batch], flat.tables), folder / f"batch-{number:06d}.parquet")
    jars = [*jars_from(JARS, iceberg=False, s3=False), *(JARS.parent / "spark-avro").glob("*.jar")]
    settings = {
        **SPARK,
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.schema.autoMerge.enabled": "true",
        "spark.databricks.delta.snapshotPartitions": "1",
        # Interpreted: to compile each of many small queries takes longer than to run it.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    told = Landed("kafka2delta 2.0.0", len(source.records))
    command = [str(ARM), str(ROOT / "bench/cdc/merger.py"), str(folder), registry.url, json.dumps(settings)]
    log = folder / "kafka2delta.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        assert process.stdin is not None
        assert process.stdout is not None
        began, cpu = time.monotonic(), 0.0
        for line in process.stdout:
            now, spent = time.monotonic(), cpu_s(process.pid)
            if line == "begins\n":
                began, cpu = now, spent
            elif line == "ended\n":
                told.wall_s, told.cpu_s = now - began, spent - cpu
            else:
                continue
            process.stdin.write("\n")
            process.stdin.flush()
        process.stdin.close()
        if process.wait() != 0 or not told.wall_s:
            lines = [one for one in log.read_text(errors="replace").splitlines() if "Exception" in one]
            told.stopped = (lines or [f"see {log}"])[-1][:300]
    told.tables = source.differences(folder / "lake")
    return told


def main() -> None:
    """Land, print the report and write it."""
    parser = argparse.ArgumentParser(prog="python -m bench.cdc.versus_kafka2delta", description=__doc__)
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path("out/cdc"), help="folder of the report")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="safewrite-flat-"))
    print(f"files of the run: {folder}", flush=True)
    told = []
    with Registry() as registry:
        for land in (by_us, by_kafka2delta):
            place = folder / land.__name__
            place.mkdir()
            told.append(land(registry, given.seed, given.changes, given.batches, place))
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "flat.json").write_text(json.dumps([one.to_dict() for one in told], indent=1))
    show(told)


def show(told: Sequence[Landed]) -> None:
    """The report as a table."""
    grid = Table(
        "what",
        "records",
        "rows",
        "lost",
        "revived",
        "doubled",
        "stale",
        "CPU, s",
        "records/s of CPU",
        "stopped",
    )
    for one in told:
        sums = [
            sum(getattr(table, what) for table in one.tables)
            for what in ("rows", "lost", "revived", "doubled", "stale")
        ]
        rate = f"{one.records / one.cpu_s:,.0f}" if one.cpu_s else ""
        grid.add_row(one.name, str(one.records), *map(str, sums), f"{one.cpu_s:.1f}", rate, one.stopped)
    screen().print(grid)


def _record(offset: int, one: Record) -> change.KafkaRecord:
    return change.KafkaRecord(_TOPIC, one.partition, offset, one.key, one.value)


def _frame(records: Sequence[Record], tables: dict[int, str]) -> pa.Table:
    """What kafka2delta's stream makes of the records: ids of schemas, and the rest of the value."""
    rows = []
    for record in records:
        assert record.key is not None
        assert record.value is not None
        key_id = struct.unpack(">bI", record.key[:5])[1]
        value_id = struct.unpack(">bI", record.value[:5])[1]
        rows.append((tables[key_id], key_id, value_id, record.value[5:]))
    names = ("topic", "key_schema_id", "value_schema_id", "value_avro")
    kinds = (pa.string(), pa.int32(), pa.int32(), pa.binary())
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    return pa.table(
        [pa.array(list(one), kind) for one, kind in zip(columns, kinds, strict=True)], names=names
    )


def _naive(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


if __name__ == "__main__":
    main()
