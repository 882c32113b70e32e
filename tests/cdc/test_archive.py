"""The wheel has what a job needs: packed as the docs say, it lands records under spark-submit with nothing else around."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import deltalake
import pyspark
import pytest

from bench.cdc import dms
from bench.cdc.source_stack import JARS, SMALL_SPARK
from bench.cdc.sources import TOPIC, Generated, change_source
from safewrite.spark.jars import jars_from

ROOT = Path(__file__).parents[2]
UV = Path(os.environ.get("SAFEWRITE_ARMS_DIR", ROOT / ".envs")) / "uv" / "bin" / "uv"
EXTRAS = "cdc,delta,iceberg"


def packed(folder: Path) -> Path:
    """The archive: an environment with the wheel and its dependencies, without PySpark."""
    build = [UV, "build", "--quiet", "--wheel", "--python", sys.executable, "--no-build-isolation"]
    subprocess.run([*build, "--out-dir", folder, ROOT], check=True)
    (wheel,) = folder.glob("*.whl")
    environment = folder / "environment"
    subprocess.run(
        [UV, "venv", "--quiet", "--relocatable", "--python", sys.executable, environment], check=True
    )
    install = [UV, "pip", "install", "--quiet", "--python", environment / "bin" / "python"]
    subprocess.run([*install, f"{wheel}[{EXTRAS}]"], check=True)
    archive = folder / "environment.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as made:
        made.add(environment, ".")
    return archive


@pytest.mark.long
def test_an_archive_of_the_wheel_lands_records_by_spark_submit(tmp_path: Path) -> None:
    """No variable of this process is passed on, and PySpark is the cluster's."""
    (tmp_path / "made").mkdir()
    with tarfile.open(packed(tmp_path / "made")) as archive:
        archive.extractall(tmp_path / "cluster", filter="fully_trusted")
    with change_source("dms", tmp_path, 1) as source:
        assert isinstance(source, Generated)
        source.workload.run(300)
        config = {
            "job": "packed", "kafka": {"servers": source.kafka.endpoint_url, "topics": [TOPIC]},
            "checkpoint": str(tmp_path / "checkpoint"), "warehouse": str(tmp_path / "lake"),
            "trigger": {"available_now": True}, **dms.settings(),
        }  # fmt: skip
        for table in config["tables"]:
            table["database"] = "shop"
        file = tmp_path / "tables.json"
        file.write_text(json.dumps(config))
        home = Path(pyspark.__file__).parent
        jars = jars_from(JARS, delta=False, iceberg=False, s3=False, kafka=True)
        submit = [home / "bin" / "spark-submit", "--jars", ",".join(map(str, jars))]
        submit += [f"--conf={name}={value}" for name, value in SMALL_SPARK.items()]
        python = tmp_path / "cluster" / "bin" / "python"
        around = {
            "PATH": os.environ["PATH"], "HOME": str(tmp_path), "SPARK_HOME": str(home),
            "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python),
        }  # fmt: skip
        if "JAVA_HOME" in os.environ:
            around["JAVA_HOME"] = os.environ["JAVA_HOME"]
        job = [ROOT / "examples" / "cdc" / "job.py", "--config", file, "--JOB_NAME", "of-glue"]
        done = subprocess.run(
            [*submit, *job],
            cwd=tmp_path,
            env=around,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        assert "shop.accounts: " in done.stdout
        for name, rows in source.workload.generator.rows.items():
            lake = deltalake.DeltaTable(str(tmp_path / "lake" / "shop" / name)).to_pyarrow_table()
            assert lake.num_rows == len(rows) > 0
