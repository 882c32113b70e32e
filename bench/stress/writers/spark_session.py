"""Starts a small Spark session with a JVM of its own, for the writers of an arm.

Spark reaches the store and the catalog as the arm's peers do; safewrite's commits in the same process go
where safewrite's faults are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import common

import safewrite.spark

spark_reader = common.of_stress("spark_reader")

MEMORY = "512m"


def start(config: dict[str, Any], folder: Path) -> Any:
    """The session of one driver; what it leaves on the disk is under ``folder``."""
    from pyspark.sql import SparkSession

    # Executors decide about changes in Python, by this copy of safewrite.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(common.ROOT), os.environ.get("PYTHONPATH")]))
    # Java's client of Glue takes credentials from the environment alone.
    options = config["storage_options"]
    os.environ.update({name: options[name] for name in options if "KEY" in name or "REGION" in name})
    builder = SparkSession.builder.master("local[1]").appName("stress")
    settings = _small(folder)
    if "catalog" in config:
        settings |= _of_iceberg(config["spark_way"]["catalog"])
    else:
        settings |= spark_reader.s3a_settings(config["spark_way"]["storage_options"])
    if config["arbiter"] is None:
        settings |= spark_reader.delta_settings()
    for name, value in settings.items():
        builder = builder.config(name, value)
    if config["arbiter"] is not None and "catalog" not in config:
        by_lock = config["arbiter"] != "object-store"
        named = {"lock_table": config["lock_table"]} if by_lock else {"arbiter": "object-store"}
        builder = safewrite.spark.configure(builder, jars=spark_reader.JARS, **named)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _small(folder: Path) -> dict[str, str]:
    return spark_reader.session_settings(folder) | {
        "spark.driver.memory": MEMORY,
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.codegen.wholeStage": "false",  # compiling many small queries takes longer than running them
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }


def _of_iceberg(properties: Mapping[str, str]) -> dict[str, str]:
    catalog = dict(properties)
    name = catalog.pop("name")
    ours = safewrite.spark.conf(delta=False, iceberg={name: {}}, jars=spark_reader.JARS)
    return ours | spark_reader.catalog_settings(name, catalog) | {"spark.jars": spark_reader.all_jars()}
