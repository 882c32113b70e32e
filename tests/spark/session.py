"""A small Spark with Delta Lake and Iceberg on this machine, and what the tests ask it."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import uuid
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from bench.servers.servers import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY
from bench.stress.spark_reader import EXTENSIONS, catalog_settings
from safewrite.spark import conf

ROOT = Path(__file__).parents[2]
JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -Xms1g -Xmn400m"
"""The first compiler alone has 48 MB for its code by default, and a thread that sweeps them all the time."""
JARS = Path(os.environ.get("SAFEWRITE_JARS", ROOT / "jars")).resolve() / "spark"


class Spark:
    """Reads and writes Delta tables and Iceberg tables of catalogs, one task at a time.

    Delta commits to local folders are Spark's own; those to S3 go through safewrite once it is attached.
    """

    def __init__(self, folder: Path) -> None:
        from pyspark.sql import SparkSession

        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # executors decide about changes in Python
        jars = sorted(JARS.glob("*.jar"))
        assert jars, "Spark's jars for Delta and Iceberg are missing: make jars"
        self.folder = folder
        self._builder = SparkSession.builder.master("local[1]").appName("safewrite-tests")
        for name, value in _settings(folder, jars).items():
            self._builder = self._builder.config(name, value)

    def __enter__(self) -> Spark:
        self.session = self._builder.getOrCreate()
        self.session.sparkContext.setLogLevel("ERROR")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from pyspark import SparkContext

        gateway = SparkContext._gateway
        assert gateway is not None
        with self.careless():
            self.session.stop()
            gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM ends with its standard input
        gateway.proc.wait(60)

    def know(self, name: str, properties: Mapping[str, str]) -> None:
        """Reach the Iceberg catalog that PyIceberg reaches by ``properties``, from now on as ``name``."""
        java = self.session.sparkContext._jvm.java.lang.System
        # Java's client of Glue takes no credentials from a catalog's settings.
        java.setProperty("aws.accessKeyId", properties["s3.access-key-id"])
        java.setProperty("aws.secretAccessKey", properties["s3.secret-access-key"])
        for key, value in catalog_settings(name, properties).items():
            self.session.conf.set(key, value)

    def reach(self, bucket: str, endpoint_url: str) -> None:
        """Find a bucket at a server, from now on."""
        hadoop = self.session.sparkContext._jsc.hadoopConfiguration()
        for key, value in s3a_settings(endpoint_url).items():
            hadoop.set(f"fs.s3a.bucket.{bucket}.{key}", value)

    def sql(self, text: str) -> pa.Table:
        """Run one query; its rows as an Arrow table."""
        with self.careless():
            return self.session.sql(text).toArrow()

    def run(self, statement: str) -> None:
        """Run a statement whose result does not matter."""
        with self.careless():
            self.session.sql(statement).collect()

    def read(self, root: Path | str, order: str = "id") -> pa.Table:
        """All rows of a table, sorted by one column."""
        return self.sql(f"SELECT * FROM {source(root)}").sort_by(order)

    def ids(self, tables: Mapping[str, Path | str]) -> dict[str, Counter[int]]:
        """How often each id is in each of some tables; one query for all of them, for it is quicker."""
        parts = [f"SELECT '{name}' AS name, id FROM {source(root)}" for name, root in tables.items()]
        found: dict[str, Counter[int]] = {name: Counter() for name in tables}
        for row in self.sql(" UNION ALL ".join(parts)).to_pylist():
            found[row["name"]][row["id"]] += 1
        return found

    def filtered(self, root: Path | str, filters: list[str]) -> dict[str, list[int]]:
        """The ids of a table's rows for which each filter is true."""
        parts = [
            f"SELECT {number} AS number, id FROM {source(root)} WHERE {text}"
            for number, text in enumerate(filters)
        ]
        found: dict[str, list[int]] = {text: [] for text in filters}
        for row in self.sql(" UNION ALL ".join(parts)).sort_by("id").to_pylist():
            found[filters[row["number"]]].append(row["id"])
        return found

    def files_scanned(self, root: Path | str, filter_: str) -> int:
        """How many files a filter leaves to be read."""
        return len(self.session.sql(f"SELECT * FROM {source(root)} WHERE {filter_}").inputFiles())

    def tasks(self, query: str) -> int:
        """Of how many tasks a query's scan is made."""
        return int(self.session.sql(query).rdd.getNumPartitions())

    def write(self, root: Path | str, data: pa.Table, *, mode: str = "append", **options: Any) -> None:
        """Write rows as a Spark job does."""
        with self.careless():
            frame = self.session.createDataFrame(data).coalesce(1)
            frame.write.format("delta").mode(mode).options(**options).save(str(root))

    @staticmethod
    @contextlib.contextmanager
    def careless() -> Iterator[None]:
        """PySpark leaves the sockets of results to the garbage collector, which warns; ours must be clean."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            yield
            gc.collect()

    @contextlib.contextmanager
    def setting(self, name: str, value: str) -> Iterator[None]:
        """A setting of the session, for a while."""
        self.session.conf.set(name, value)
        try:
            yield
        finally:
            self.session.conf.unset(name)

    def history(self, root: Path | str) -> list[dict[str, Any]]:
        """DESCRIBE HISTORY, oldest version first."""
        found: list[dict[str, Any]] = self.sql(f"DESCRIBE HISTORY delta.`{root}`").to_pylist()
        return sorted(found, key=lambda row: row["version"])


def source(table: Path | str) -> str:
    """How SQL names a table: a Delta table by its folder, an Iceberg table as it is."""
    return f"delta.`{table}`" if "/" in str(table) else str(table)


def s3a_settings(endpoint_url: str) -> dict[str, str]:
    """What S3A needs to know of a server of the tests, without its prefix ``fs.s3a.``."""
    return {
        "endpoint": endpoint_url,
        "endpoint.region": REGION,
        "access.key": ACCESS_KEY_ID,
        "secret.key": SECRET_ACCESS_KEY,
        "path.style.access": "true",
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    }


def _settings(folder: Path, jars: list[Path]) -> dict[str, str]:
    ours = conf(jars=jars)
    return {
        **ours,
        "spark.sql.extensions": f"{ours['spark.sql.extensions']},{EXTENSIONS}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"{JAVA} -Dderby.system.home={folder}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
        # Interpreted: to compile each of many small queries takes longer than to run it.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }


def to_folder(objects: Mapping[str, bytes], folder: Path) -> Path:
    """Write the objects of a table into a new folder beneath ``folder``: Spark reads local files."""
    root = folder / uuid.uuid4().hex[:8]
    for name, body in objects.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    return root
