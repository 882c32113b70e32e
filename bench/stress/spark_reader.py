"""Reads with Spark and the Java libraries of Iceberg and Delta Lake, which share no code with the writer.

Spark runs in a child process, so that no Java machine stays behind.  Needed: PySpark, Java 17 and the jars
of ``make jars``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from safewrite.testing.history import COLUMNS

JARS = (
    Path(os.environ.get("SAFEWRITE_JARS", Path(__file__).resolve().parents[2] / "jars")).resolve() / "spark"
)
EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_NAME = "lab"
_TIMEOUT_S = 600.0
_SAID = 4000
"""How much of what a child said goes into an error."""
_S3 = {
    "warehouse": "warehouse",
    "s3.endpoint": "s3.endpoint",
    "s3.region": "client.region",
    "s3.access-key-id": "s3.access-key-id",
    "s3.secret-access-key": "s3.secret-access-key",
    "glue.endpoint": "glue.endpoint",
}
"""From PyIceberg's names to those of Iceberg's Java library."""


class SparkReadError(RuntimeError):
    """Spark could not read the table, or could not be started; the text says which."""


def iceberg_rows(
    catalog_properties: Mapping[str, str], identifier: str, columns: Sequence[str] = COLUMNS
) -> pa.Table:
    """The rows of an Iceberg table, as Spark reads them.

    ``catalog_properties`` are PyIceberg's (``bench.servers.catalogs.catalog_properties``); where they hold a
    ``name``, it is the catalog's.  A SQL catalog keeps its tables under that name, so there it must be the
    one that they were made under.

    Raises:
        SparkReadError: with the end of what Spark said.
    """
    properties = dict(catalog_properties)
    name = properties.pop("name", _NAME)
    settings = catalog_settings(name, properties) | {"spark.sql.extensions": EXTENSIONS}
    source = ".".join(f"`{part}`" for part in (name, *identifier.split(".")))
    return _rows(source, settings, columns, _environment(catalog_properties))


def delta_rows(uri: str, storage_options: Mapping[str, str], columns: Sequence[str] = COLUMNS) -> pa.Table:
    """The rows of a Delta table, as Spark reads them; ``storage_options`` are deltalake's.

    Raises:
        SparkReadError: with the end of what Spark said.
    """
    settings = s3a_settings(storage_options) | delta_settings()
    return _rows(f"delta.`{uri.replace('s3://', 's3a://')}`", settings, columns, _environment({}))


def _rows(
    source: str, settings: Mapping[str, str], columns: Sequence[str], environment: Mapping[str, str]
) -> pa.Table:
    task = {"source": source, "settings": dict(settings), "columns": list(columns)}
    with tempfile.TemporaryDirectory(prefix="safewrite-spark-") as folder:
        found = Path(folder) / "rows.arrow"
        # Standard input, not arguments: other users of the machine see those, and there are secrets in it.
        try:
            done = subprocess.run(
                [sys.executable, "-m", __name__, folder],
                input=json.dumps(task),
                capture_output=True,
                text=True,
                check=False,
                timeout=_TIMEOUT_S,
                env=environment,
            )
        except subprocess.TimeoutExpired as error:
            raise SparkReadError(f"Spark did not read {source} within {_TIMEOUT_S:.0f} s") from error
        if done.returncode != 0:
            raise SparkReadError(f"Spark did not read {source}: {done.stderr[-_SAID:]}")
        with pa.OSFile(str(found)) as file:
            return pa.ipc.open_file(file).read_all()


def catalog_settings(name: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings for a catalog ``name`` that is the one PyIceberg reaches by ``properties``."""
    kind = properties["type"]
    settings = {
        "type": {"sql": "jdbc"}.get(kind, kind),
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "cache-enabled": "false",  # a test that reads what another engine has just written wants no old answer
        "s3.path-style-access": str(properties.get("s3.force-virtual-addressing") == "false").lower(),
    }
    settings |= {java: properties[own] for own, java in _S3.items() if own in properties}
    if kind == "sql":
        settings |= _jdbc(properties["uri"])
    elif "uri" in properties:
        settings["uri"] = properties["uri"]
    prefix = f"spark.sql.catalog.{name}"
    named = {f"{prefix}.{key}": value for key, value in settings.items()}
    return {prefix: "org.apache.iceberg.spark.SparkCatalog"} | named


def all_jars() -> str:
    """The jars of both formats, as Spark takes them."""
    return ",".join(map(str, sorted(JARS.glob("*.jar"))))


def delta_settings() -> dict[str, str]:
    """Spark's settings for Delta tables, as Delta's own documentation has them."""
    return {
        "spark.jars": all_jars(),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def s3a_settings(storage_options: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings for the store that deltalake reaches by ``storage_options``."""
    settings = {
        "endpoint": storage_options["AWS_ENDPOINT_URL"],
        "endpoint.region": storage_options["AWS_REGION"],
        "access.key": storage_options["AWS_ACCESS_KEY_ID"],
        "secret.key": storage_options["AWS_SECRET_ACCESS_KEY"],
        "path.style.access": "true",
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    }
    return {f"spark.hadoop.fs.s3a.{key}": value for key, value in settings.items()}


_SMALL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
"""Quick to start, slow at work: for a reader or a test; what is measured takes the JVM's own settings."""


def session_settings(folder: Path, *, memory: str = "1g", jvm: str = _SMALL_JVM) -> dict[str, str]:
    """Settings of a small session on loopback that leaves its files in ``folder``."""
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": f"{jvm} -Dderby.system.home={folder}".strip(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
    }


def _jdbc(uri: str) -> dict[str, str]:
    parts = urlsplit(uri)
    if not parts.scheme.startswith("postgresql"):
        raise ValueError(f"Spark has a driver for PostgreSQL alone, not for {parts.scheme}")
    return {
        "uri": f"jdbc:postgresql://{parts.hostname}:{parts.port or 5432}{parts.path}",
        "jdbc.user": parts.username or "",
        "jdbc.password": parts.password or "",
        "jdbc.schema-version": "V1",  # PyIceberg's tables since 0.12; adds a column to those made before
    }


def _environment(properties: Mapping[str, str]) -> dict[str, str]:
    """This package's folder for Python; credentials for Java's Glue client, which takes them from here alone."""
    path = os.pathsep.join(
        filter(None, [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH")])
    )
    found = {**os.environ, "PYTHONPATH": path}
    for own, variable in (
        ("s3.access-key-id", "AWS_ACCESS_KEY_ID"),
        ("s3.secret-access-key", "AWS_SECRET_ACCESS_KEY"),
        ("s3.region", "AWS_REGION"),
    ):
        if own in properties:
            found[variable] = properties[own]
    return found


# --- in the child -----------------------------------------------------------------------------
def _read(task: Mapping[str, Any], folder: Path) -> pa.Table:
    from pyspark.sql import SparkSession

    if "iceberg-spark-runtime" not in all_jars():
        raise SparkReadError(f"Spark's jars are missing in {JARS}: make jars")
    settings = {"spark.jars": all_jars(), **session_settings(folder), **task["settings"]}
    builder = SparkSession.builder.master("local[2]").appName("safewrite-reader")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        listed = ", ".join(f"`{column}`" for column in task["columns"])
        return session.sql(f"SELECT {listed} FROM {task['source']}").toArrow()
    finally:
        session.stop()


def _main() -> None:
    folder = Path(sys.argv[1])
    rows = _read(json.load(sys.stdin), folder)
    with pa.OSFile(str(folder / "rows.arrow"), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows)


if __name__ == "__main__":
    _main()
