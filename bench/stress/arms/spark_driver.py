"""A Spark driver with one stream: files in, ``table.sink`` out; each life of it may end at a planned step.

Started by ``spark_stream.py``, which it does not outlive; Spark reaches the store and the catalog as the
arm's peers do, safewrite's commits in the same process go where safewrite's faults are.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import common
from common import history

import safewrite.spark
from bench.stress import spark_reader
from bench.stress.streams import ANY_STEP, EPOCH_STEP

MEMORY = "512m"
FAILURES_MAX = 12
"""Ends of the query, one after the other, after which the driver gives up."""
_BATCHES_MAX = 2
SCHEMA = (
    "id BIGINT, writer BIGINT, seq BIGINT, key STRING, amount DOUBLE, text STRING, day DATE, `check` BIGINT"
)


class Driver(common.Writer):
    """One life of the driver: it writes down what the sink returned, and dies at its step."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        kills = [event for event in self._before if event["event"] == history.Event.KILL]
        ends = config["traps"]
        self._end = ends[len(kills)] if len(kills) < len(ends) else None
        self._ended_at = {(kill["step"], kill["when"]) for kill in kills}
        self._batches = 0
        self._passed = 0
        self.failures = 0
        options = {"schema_mode": config["schema_mode"]} if "schema_mode" in config else {}
        table = common.open_by_safewrite(config)
        sink = table.sink("append", app_id=f"{config['arm']}-{self.number}", **options)
        self._sink = replace(sink, reopen=self._open)

    @property
    def first(self) -> bool:
        """Whether no driver of this writer has been at work before."""
        return not any(event["event"] == history.Event.START for event in self._before)

    def _open(self) -> Any:
        """The table with this life's end placed between the effects of its commits."""
        table = common.open_by_safewrite(self.config)
        common.set_traps(table.world, self)
        return table

    def write(self, frame: Any, epoch: int) -> None:
        """What ``foreachBatch`` calls: the sink, with the ledger around it.  Batch N is file N, append N."""
        self.current = (epoch, "")
        head = {"kind": self.kind, "writer": self.number, "seq": epoch}
        began = time.monotonic()
        try:
            self._sink(frame, epoch)
        except Exception as error:
            self.ledger.record(history.Event.INFO, **head, error=common.describe(error))
            self.say("info", epoch)
            raise
        self.trap(epoch, "caller.record_ack", "before")
        receipt = self._sink.last_receipt
        answer = {"version": receipt.version, "tries": receipt.attempts, "outcome": str(receipt.outcome)}
        self.ledger.record(history.Event.OK, **head, elapsed_s=time.monotonic() - began, **answer)
        self.say("ok", epoch, receipt.rows)
        self.trap(epoch, EPOCH_STEP, "before")
        self._batches += 1
        self.failures = 0

    def _trap(self, seq: int, step: str, when: str) -> None:
        """Die here, with the JVM, if this is where this life ends."""
        if self._ends_at(step, when):
            place = {"step": step, "when": when}
            self.ledger.record(history.Event.KILL, kind=self.kind, writer=self.number, seq=seq, **place)
            self.say(history.Event.KILL, seq, step, when, os.getpid())
            os.killpg(0, signal.SIGKILL)

    def _ends_at(self, step: str, when: str) -> bool:
        end = self._end
        if end is None or end["step"] == ANY_STEP:
            return False
        if end["step"] == EPOCH_STEP:
            return step == EPOCH_STEP and self._batches >= end["batches"]
        self._passed += 1
        # Where all places of two batches have been the end of a life before, any will do.
        new = (step, when) not in self._ended_at or self._batches > _BATCHES_MAX
        return new and self._passed > end["places"]


# --- Spark ------------------------------------------------------------------------------------------
def settings(config: dict[str, Any], folder: Path) -> dict[str, str]:
    """The session's settings: small, on loopback, and to the stores by the peers' way."""
    way = config["spark_way"]
    found = spark_reader.session_settings(folder) | {
        "spark.driver.memory": MEMORY,
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.codegen.wholeStage": "false",  # compiling many small queries takes longer than running them
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    if "catalog" not in config:
        lock = {"lock_table": config["lock_table"]} if config["arbiter"] != "object-store" else {}
        arbiter = {} if lock else {"arbiter": "object-store"}
        found |= safewrite.spark.conf(jars=spark_reader.JARS, **lock, **arbiter)
        return found | spark_reader.s3a_settings(way["storage_options"])
    catalog = dict(way["catalog"])
    found |= safewrite.spark.conf(delta=False, iceberg={catalog["name"]: {}}, jars=spark_reader.JARS)
    jars = ",".join(map(str, sorted(spark_reader.JARS.glob("*.jar"))))
    return found | spark_reader.catalog_settings(catalog.pop("name"), catalog) | {"spark.jars": jars}


def start(config: dict[str, Any], folder: Path) -> Any:
    """A session with a JVM of its own."""
    from pyspark.sql import SparkSession

    # Java's client of Glue takes credentials from the environment alone.
    os.environ.update(
        {
            name: value
            for name, value in config["storage_options"].items()
            if "KEY" in name or "REGION" in name
        }
    )
    builder = SparkSession.builder.master("local[1]").appName("stress-stream")
    for name, value in settings(config, folder).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def stream(session: Any, driver: Driver, folder: Path) -> None:
    """Run the query, again where it ended with an error, until the stream is told to stop."""
    from pyspark.errors import StreamingQueryException

    source = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "source"))
    writer = source.writeStream.foreachBatch(driver.write)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    while not (folder / "stop").exists():
        query = writer.start()
        try:
            while not (folder / "stop").exists() and not query.awaitTermination(1):
                pass
            query.stop()
        except StreamingQueryException as error:
            driver.failures += 1
            print(str(error)[:2000], file=sys.stderr, flush=True)
            if driver.failures > FAILURES_MAX:
                raise


def main() -> None:
    """Work until told to stop, or killed."""
    # Ask Linux to end us with our parent; the JVM ends with its standard input, which is ours.
    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))
    if os.getppid() != int(sys.argv[2]):
        os._exit(1)
    config = common.read_config()
    folder = common.stream_folder(config)
    code = 0
    try:
        session = start(config, folder / f"spark-{os.getpid()}")
        driver = Driver(config)
        if driver.first:
            driver.wait_for_the_start()
        else:
            driver.ledger.record(history.Event.START, kind=driver.kind, writer=driver.number)
        stream(session, driver, folder)
        session.stop()
    except BaseException:  # noqa: BLE001 - whatever it is, the exit code and the log tell it
        traceback.print_exc()
        code = 3
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


main()
