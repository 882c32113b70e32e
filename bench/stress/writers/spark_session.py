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

TlsFront = common.of_stress("proxies.tls").TlsFront

MEMORY = "512m"
_REGIONS = """<XML><Regions><Region>
  <Name>{region}</Name><Domain>amazonaws.com</Domain>
  <Endpoint><ServiceName>dynamodb</ServiceName><Http>false</Http><Https>true</Https><Hostname>{address}</Hostname></Endpoint>
</Region></Regions></XML>
"""


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
    safe = config["arbiter"] is not None and "log_store" not in config
    if "log_store" in config:
        settings |= _of_log_store(config, folder, settings["spark.driver.extraJavaOptions"])
    elif "catalog" in config:
        settings |= _of_iceberg(config["spark_way"]["catalog"])
    else:
        settings |= spark_reader.s3a_settings(config["spark_way"]["storage_options"])
    if config["arbiter"] is None:
        settings |= spark_reader.delta_settings()
    for name, value in settings.items():
        builder = builder.config(name, value)
    if safe and "catalog" not in config:
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


def _of_log_store(config: dict[str, Any], folder: Path, java: str) -> dict[str, str]:
    """Delta's ``S3DynamoDBLogStore``, whose jars are in the folder that the plan names, as its documentation has it.

    Its client of DynamoDB takes no address, only a region: a file of regions says where that one is.
    """
    options = config["spark_way"]["storage_options"]
    os.environ["AWS_EC2_METADATA_DISABLED"] = (
        "true"  # its client looks there for more, and waits a minute for no answer
    )
    front = TlsFront(folder, options["AWS_ENDPOINT_URL_DYNAMODB"]).__enter__()  # it ends with this process
    regions = folder / "regions.xml"
    regions.write_text(_REGIONS.format(region=options["AWS_REGION"], address=front.address))
    prefix = "spark.io.delta.storage.S3DynamoDBLogStore"
    jars = [spark_reader.all_jars(), *map(str, sorted(Path(config["log_store"]).glob("*.jar")))]
    return spark_reader.s3a_settings(options) | spark_reader.delta_settings() | {
        "spark.jars": ",".join(jars),
        "spark.delta.logStore.s3a.impl": "io.delta.storage.S3DynamoDBLogStore",
        f"{prefix}.ddb.tableName": config["lock_table"],
        f"{prefix}.ddb.region": options["AWS_REGION"],
        "spark.driver.extraJavaOptions": f"{java} -Dcom.amazonaws.regions.RegionUtils.fileOverride={regions} "
        "-Dcom.amazonaws.sdk.disableCertChecking=true",
    }  # fmt: skip


def _of_iceberg(properties: Mapping[str, str]) -> dict[str, str]:
    catalog = dict(properties)
    name = catalog.pop("name")
    ours = safewrite.spark.conf(delta=False, iceberg={name: {}}, jars=spark_reader.JARS)
    return ours | spark_reader.catalog_settings(name, catalog) | {"spark.jars": spark_reader.all_jars()}
