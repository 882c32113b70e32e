"""Lands the same records as others do: ``python -m bench.cdc.rivals NAME TOPIC FOLDER BATCHES``, by Spark and Delta Lake.

``recipe`` is what is copied from tutorials: of each batch all inserts, then all updates, then all deletes; the schema of
the batch's first record; an error of a MERGE is logged, and the job goes on.  ``by-schema`` is the rule of tools that
merge the newest change of each key, one MERGE for each version of the schema.  Neither keeps positions in its tables, so a
driver that dies between a commit and its checkpoint lands a batch again: one batch of each run is landed twice.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.cdc.source_stack import DATABASE, JARS, ROOT, SMALL_SPARK
from bench.cdc.workload import TABLES, SourceTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)
NAMES = ("recipe", "by-schema")
_TARGET = "delta.`{}`"
_TIMEOUT_S = 3600.0


def batches(records: pa.Table, count: int) -> Iterator[dict[str, list[dict[str, Any]]]]:
    """The records of each table, cut in so many batches, every partition in its order."""
    ordered = records.sort_by([("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")])
    by_partition: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in ordered.to_pylist():
        by_partition.setdefault((row["topic"], row["partition"]), []).append(row)
    for number in range(count):
        found: dict[str, list[dict[str, Any]]] = {}
        for (topic, _), rows in by_partition.items():
            share = rows[len(rows) * number // count : len(rows) * (number + 1) // count]
            found.setdefault(topic.rpartition(".")[2], []).extend(share)
        yield found


def main(name: str, topic: str, folder: str, count: str) -> None:
    """Land all batches; the middle one is landed again, as after a driver's death."""
    spark = _session()
    land = {"recipe": _recipe, "by-schema": _by_schema}[name]
    for number, batch in enumerate(batches(pq.read_table(topic), int(count))):
        for _ in range(2 if number == int(count) // 2 else 1):
            for table in TABLES:
                events = [row for row in batch.get(table.name, []) if row["value"] is not None]
                if events:
                    land(spark, table, events, f"{folder}/{DATABASE}/{table.name}")
    spark.stop()


# --- the recipe ---------------------------------------------------------------------------------------
def _recipe(spark: SparkSession, table: SourceTable, events: Sequence[dict[str, Any]], path: str) -> None:
    """Inserts, then updates, then deletes, each under the schema of the first record of the batch."""
    kinds: dict[str, list[bytes]] = {"c": [], "u": [], "d": []}
    first = events[0]["value"]
    for event in events:
        op = json.loads(event["value"])["payload"]["op"]
        kinds.setdefault({"r": "c"}.get(op, op), []).append(event["value"])
    for op in ("c", "u", "d"):
        if kinds[op]:
            rows = _parsed(spark, kinds[op], first, "before" if op == "d" else "after")
            _passed_over(lambda op=op, rows=rows: _write(spark, table, op, rows, path))


def _write(spark: SparkSession, table: SourceTable, op: str, rows: DataFrame, path: str) -> None:
    if op == "c":
        rows.write.format("delta").mode("append").option("mergeSchema", "true").save(path)
    elif op == "u":
        _merge(spark, table, rows.dropDuplicates([*table.key]), path, "WHEN MATCHED THEN UPDATE SET *")
    else:
        _merge(spark, table, rows.dropDuplicates([*table.key]), path, "WHEN MATCHED THEN DELETE")


# --- a MERGE for each version of the schema -----------------------------------------------------------
def _by_schema(spark: SparkSession, table: SourceTable, events: Sequence[dict[str, Any]], path: str) -> None:
    """The newest change of each key, merged for one schema after another; deletes are not compared with what is there."""
    versions: dict[str, list[tuple[int, int, bytes]]] = {}
    for event in events:
        content = json.loads(event["value"])
        shape = json.dumps(content["schema"]["fields"][1], sort_keys=True)
        at = (content["payload"]["source"]["lsn"], event["offset"], event["value"])
        versions.setdefault(shape, []).append(at)
    for group in versions.values():
        newest: dict[str, tuple[int, int, bytes]] = {}
        for at in sorted(group):
            payload = json.loads(at[2])["payload"]
            if payload["op"] in {"c", "r", "u", "d"}:
                row = payload["after"] or payload["before"]
                newest[json.dumps([row[name] for name in table.key])] = at
        values = [value for _, _, value in newest.values()]
        deletes = [value for value in values if json.loads(value)["payload"]["op"] == "d"]
        upserts = [value for value in values if json.loads(value)["payload"]["op"] != "d"]
        if upserts:
            rows = _parsed(spark, upserts, upserts[0], "after")
            _make(rows, path)
            _merge(spark, table, rows, path, "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")
        if deletes:
            rows = _parsed(spark, deletes, deletes[0], "before").select(*table.key)
            _merge(spark, table, rows, path, "WHEN MATCHED THEN DELETE")


# --- both ---------------------------------------------------------------------------------------------
def _parsed(spark: SparkSession, values: list[bytes], first: bytes, part: str) -> DataFrame:
    """Rows of events, each column under the type that its schema in one record names."""
    fields = json.loads(first)["schema"]["fields"][1]["fields"]
    columns = ", ".join(f"`{one['field']}`: {_type_of(one)}" for one in fields)
    frame = spark.createDataFrame([(value.decode(),) for value in values], "value STRING")
    event = f"from_json(value, 'payload STRUCT<{part}: STRUCT<{columns}>>') AS event"
    return frame.selectExpr(event).selectExpr(f"event.payload.{part}.*").coalesce(1)


def _type_of(field: dict[str, Any]) -> str:
    """What is usual: plain types by their name, everything else as its text."""
    plain = {"int32": "INT", "int64": "BIGINT", "boolean": "BOOLEAN", "double": "DOUBLE", "float": "FLOAT"}
    return plain.get(field["type"], "STRING")


def _make(rows: DataFrame, path: str) -> None:
    if not Path(path, "_delta_log").exists():
        rows.limit(0).write.format("delta").save(path)


def _merge(spark: SparkSession, table: SourceTable, rows: DataFrame, path: str, what: str) -> None:
    condition = " AND ".join(f"t.{name} = s.{name}" for name in table.key)
    rows.createOrReplaceTempView("changes")
    spark.sql(
        f"MERGE WITH SCHEMA EVOLUTION INTO {_TARGET.format(path)} t USING changes s ON {condition} {what}"
    )


def _passed_over(what: Callable[[], None]) -> None:
    try:
        what()
    except Exception as error:  # noqa: BLE001 - this is the recipe
        log.error("merge failed: %s", str(error)[:200])


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    jars = sorted(JARS.glob("delta-*.jar")) + sorted(JARS.glob("unitycatalog-*.jar"))
    builder = SparkSession.builder.appName("rival").config("spark.jars", ",".join(map(str, jars)))
    delta = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.default.parallelism": "1",
        # Interpreted: to compile each of many small queries takes longer than to run it.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    for key, value in {**SMALL_SPARK, **delta}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def land(name: str, topic: Path, folder: Path, count: int) -> str | None:
    """Run a rival in a process of its own; why it stopped before the end, if it did."""
    command = [sys.executable, "-m", "bench.cdc.rivals", name, str(topic), str(folder), str(count)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    log_path = folder.with_suffix(".log")
    with log_path.open("wb") as out:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=out, stderr=out, check=False, timeout=_TIMEOUT_S
        )
    if done.returncode == 0:
        return None
    told = [line for line in log_path.read_text(errors="replace").splitlines() if "Exception" in line]
    return told[-1][:300] if told else f"exit code {done.returncode}; see {log_path}"


if __name__ == "__main__":
    main(*sys.argv[1:])
