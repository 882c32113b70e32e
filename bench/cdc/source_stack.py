"""Starts PostgreSQL, Kafka and Debezium with the workload's tables, and runs jobs as processes that can be killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psycopg2

from bench.cdc.modes import SETTINGS, Mode, kept_by, whole_of
from bench.cdc.row_sql import RowSql
from bench.cdc.under_way import UnderWay
from bench.cdc.workload import TABLES, Workload
from bench.servers.catalogs import Postgres
from bench.servers.connect import Debezium
from bench.servers.kafka import Kafka
from bench.servers.servers import spawn

ROOT = Path(__file__).parents[2]
JARS = Path(os.environ.get("SAFEWRITE_JARS", ROOT / "jars")).resolve() / "spark"
PREFIX = "shop"
PATTERN = rf"{PREFIX}\.public\..*"
DATABASE = "lake"
SMALL_SPARK = {
    "spark.master": "local[1]",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
}
Form = Literal["delta", "iceberg"]
LANDING, LANDED = b": executors land ", (b": executors have landed ", b" is landed again: ")
"""What drivers say around the changes of a batch that executors land."""
_ONE_PART = re.compile(r": (\d+) records of .* landed in one part, because (.*)")
_NAMES = re.compile(r"'[^']*'|\d+")


@dataclass
class SourceStack:
    """The servers, and the workload whose tables they capture."""

    folder: Path
    kafka: Kafka
    debezium: Debezium
    postgres: str
    workload: Workload
    has_under_way: bool
    """Whether a transaction was under way during the snapshot."""


@contextmanager
def source_stack(folder: Path, seed: int, modes: Mapping[str, Mode] | None = None) -> Iterator[SourceStack]:
    """All servers, the tables created and captured; ``modes`` are those in which tables are to land."""
    with ExitStack() as stack:
        postgres = stack.enter_context(Postgres(folder, settings={"wal_level": "logical"}))
        kafka = stack.enter_context(Kafka(folder))
        address = f"{postgres.endpoint_url}/postgres"
        workload = Workload(address, seed, kept=kept_by(modes or {}), whole=whole_of(modes or {}))
        stack.callback(workload.close)
        workload.create()
        debezium = Debezium(
            folder,
            postgres=address,
            kafka=kafka.endpoint_url,
            prefix=PREFIX,
            tables=[f"public.{table.name}" for table in TABLES],
            settings={
                # Both halves of a changed key in one partition: the insert needs large values that the delete's row has.
                "topic.creation.groups": "large",
                "topic.creation.large.include": "|".join(
                    rf"{PREFIX}\.public\.{table.name}" for table in TABLES if table.toast
                ),
                "topic.creation.large.partitions": "1",
                "topic.creation.large.replication.factor": "1",
            },
        )
        under_way = UnderWay(workload.connect)
        under_way.begin()
        stack.enter_context(debezium)
        under_way.end()
        _wait_until_it_streams(address)
        yield SourceStack(folder, kafka, debezium, address, workload, under_way.came)


def _wait_until_it_streams(address: str) -> None:
    """Wait for the end of the snapshot; the connector runs long before."""
    deadline = time.monotonic() + 120.0
    with closing(psycopg2.connect(address)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            while time.monotonic() < deadline:
                cursor.execute("SELECT count(*) FROM pg_replication_slots WHERE active")
                if cursor.fetchone() == (1,):
                    return
                time.sleep(0.1)
    raise RuntimeError("Debezium does not stream")


@dataclass
class Job:
    """One job of all tables in one format: its configuration, and a driver at a time."""

    folder: Path
    form: Form
    servers: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    batch: int = 1000
    modes: Mapping[str, Mode] = field(default_factory=dict, kw_only=True)
    """In which mode a table lands, where it is not upsert."""
    sql: Mapping[str, RowSql] = field(default_factory=dict, kw_only=True)
    """Filters and computed columns, by table."""
    spark: Mapping[str, str] = field(default_factory=lambda: SMALL_SPARK, kw_only=True)
    by_lot: bool = field(default=True, kw_only=True)
    """Whether a job of ``engine: auto`` chooses by lot."""
    _driver: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    _began: int = field(default=0, repr=False)
    """Where the driver that runs began to write in the log."""

    @property
    def name(self) -> str:
        return f"shop-{self.form}"

    @property
    def lake(self) -> Path:
        return self.folder / f"lake-{self.form}"

    @property
    def catalog(self) -> dict[str, str]:
        """PyIceberg's properties of the catalog."""
        uri = f"sqlite:///{self.folder}/catalog.db"
        return {"name": "local", "type": "sql", "uri": uri, "warehouse": f"file://{self.lake}"}

    @property
    def log(self) -> Path:
        return self.folder / f"driver-{self.form}.log"

    def write_config(self) -> Path:
        """The file of the configuration."""
        self.lake.mkdir(exist_ok=True)
        place = {"warehouse": str(self.lake)} if self.form == "delta" else {"catalog": self.catalog}
        config = {
            "job": self.name,
            "kafka": {
                "servers": self.servers,
                "pattern": PATTERN,
                "max_offsets_per_trigger": self.batch,
                # A topic that Debezium has just made is seen at once.
                "options": {"kafka.metadata.max.age.ms": "1000"},
            },
            "envelope": "debezium-json",
            "checkpoint": str(self.folder / f"checkpoint-{self.form}"),
            "trigger": {"interval_s": 0.2},
            "job_tables": {"format": self.form},
            "tables": [
                {"database": DATABASE, "table": one.name, "source": f"public.{one.name}", "format": self.form}
                | dict(SETTINGS[self.modes.get(one.name, "upsert")])
                | self.sql.get(one.name, RowSql()).settings
                for one in TABLES
            ],
            **place,
            **self.settings,
        }
        file = self.folder / f"job-{self.form}.json"
        file.write_text(json.dumps(config, indent=1))
        return file

    def start(self) -> None:
        """A driver by the command line; call it from a thread that outlives it."""
        settings = [f"--conf={name}={value}" for name, value in self.spark.items()]
        code = "from safewrite.cli import main; main()"
        if self.engine == "auto" and self.by_lot:
            code = f"import bench.cdc.undecided; {code}"
        command = [sys.executable, "-c", code, "--log-level", "info", "cdc", "run"]
        command += ["--config", str(self.write_config()), "--jars", str(JARS), *settings]
        self._began = self.log.stat().st_size if self.log.exists() else 0
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
        with self.log.open("ab") as log:
            self._driver = spawn(command, log, env=environment, cwd=self.folder, own_group=True)

    @property
    def runs(self) -> bool:
        """Whether a driver was started and not killed since."""
        return self._driver is not None

    def said(self, text: str) -> int:
        """How often the drivers so far said it."""
        return self.log.read_text(errors="replace").count(text) if self.log.exists() else 0

    @property
    def engine(self) -> str:
        """Who decodes and lands the records."""
        return str(self.settings.get("engine", "local"))

    @property
    def is_with_executors(self) -> bool:
        """Whether executors land a batch now, as the driver says."""
        if not self.runs or not self.log.exists():
            return False
        with self.log.open("rb") as log:
            log.seek(self._began)
            said = log.read()
        return said.rfind(LANDING) > max(said.rfind(one) for one in LANDED)

    @property
    def reasons(self) -> Counter[str]:
        """How many records landed in one part, by reason."""
        found: Counter[str] = Counter()
        for count, why in _ONE_PART.findall(self.log.read_text(errors="replace")):
            found[_NAMES.sub("...", why)] += int(count)
        return found

    @property
    def pid(self) -> int:
        """The process id of the driver."""
        assert self._driver is not None
        return self._driver.pid

    @property
    def ended(self) -> int | None:
        """The exit code of a driver that ended by itself."""
        return None if self._driver is None else self._driver.poll()

    def kill(self) -> None:
        """SIGKILL to the driver and its Java, which lead a group of their own."""
        if self._driver is not None:
            if self._driver.poll() is None:
                os.killpg(self._driver.pid, signal.SIGKILL)
            self._driver.wait()
            self._driver = None

    @property
    def files(self) -> int:
        """How many files the lake has: it grows with each commit."""
        return sum(1 for _ in self.lake.rglob("*.*")) if self.lake.exists() else 0
