"""``python -m bench.perf.spark_changes`` measures changes by key of a Spark DataFrame beside MERGE of Delta and of Iceberg.

CPU of all processes (the JVM, its Python workers, this one) and wall time; ``executors`` is safewrite
where a batch is too large for the driver.  One session, tables of the same files on local disk, the same batches, in turn.  The peers compare sequences, as
``apply_changes`` does; they remember no deleted key, fingerprint nothing and know no replay.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

import typer

import safewrite as sw
from safewrite.changes.tasks import apply_job

from ..stress.spark_reader import EXTENSIONS, JARS, delta_settings, session_settings
from . import change_tables
from .change_tables import RECENT, SCATTERED, Load, batch
from .figures import Spread, in_turn
from .spark_append import measured

RATIO_MAX = 1.0
WARM_UPS = 2
CORES = 2
ARMS = OURS, EXECUTORS, MERGE = "safewrite", "executors", "MERGE"
HOW: dict[str, Any] = {"keys": ["id"], "sequence_by": ["lsn"], "delete_when": [("op", "=", "d")]}
CATALOG = "local"
Act = Callable[[Any], object]
Read = Callable[[], dict[str, int]]


def session(folder: Path, *, memory: str = "3g") -> Any:
    """Spark on two cores, with Delta's library and Iceberg's."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    jars = [*sorted(JARS.glob("*.jar")), *sorted((JARS.parent / "iceberg-rest").glob("sqlite-jdbc-*.jar"))]
    settings = {
        **session_settings(folder, memory=memory, jvm=""),
        **delta_settings(),
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.databricks.delta.snapshotPartitions": str(CORES),  # the default is for larger logs
        "spark.sql.extensions": f"io.delta.sql.DeltaSparkSessionExtension,{EXTENSIONS}",
    }
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("safewrite-bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def _know(session: Any, folder: Path) -> None:
    """Let Spark reach the catalog of a folder, which goes by the same name there."""
    settings = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "jdbc",
        ".uri": f"jdbc:sqlite:{folder / 'catalog.db'}",
        ".warehouse": folder.as_uri(),
        ".jdbc.schema-version": "V1",
    }
    for key, value in settings.items():
        session.conf.set(f"spark.sql.catalog.{CATALOG}{key}", value)


def merging(session: Any, target: str) -> Act:
    """Upsert and delete where the change is newer, as a user of Spark does."""
    names = change_tables.schema().names
    text = f"""
        MERGE INTO {target} t USING changes s ON t.id = s.id
        WHEN MATCHED AND s.op = 'd' AND s.lsn > t.lsn THEN DELETE
        WHEN MATCHED AND s.op <> 'd' AND s.lsn > t.lsn THEN UPDATE SET {", ".join(f"t.{n} = s.{n}" for n in names)}
        WHEN NOT MATCHED AND s.op <> 'd' THEN INSERT ({", ".join(names)}) VALUES ({", ".join(f"s.{n}" for n in names)})
    """

    def act(changes: Any) -> None:
        changes.createOrReplaceTempView("changes")
        session.sql(text).collect()

    return act


def _ours(table: Any) -> Act:
    return lambda changes: table.apply_changes(changes, **HOW)


def _by_executors(table: Any) -> Act:
    def act(changes: Any) -> None:
        with mock.patch.object(apply_job, "FEW_ROWS", -1):
            table.apply_changes(changes, **HOW)

    return act


def _delta(session: Any, load: Load, folder: Path) -> tuple[dict[str, Act], dict[str, Read]]:
    """The arms on tables of their own, and what reads these."""
    places = {arm: folder / f"{load.keys}-{arm}".replace(" ", "-") for arm in ARMS}
    for place in places.values():
        change_tables.make_delta(load, place)
    arms = {
        OURS: _ours(sw.open(str(places[OURS]))),
        EXECUTORS: _by_executors(sw.open(str(places[EXECUTORS]))),
        MERGE: merging(session, f"delta.`{places[MERGE]}`"),
    }
    return arms, {arm: partial(change_tables.read_delta, place) for arm, place in places.items()}


def _iceberg(session: Any, load: Load, folder: Path) -> tuple[dict[str, Act], dict[str, Read]]:
    here = change_tables.catalog(folder)
    here.create_namespace_if_not_exists(change_tables.NAMESPACE)
    _know(session, folder)
    names = {arm: f"bench.{load.keys}_{arm}".replace(" ", "_").lower() for arm in ARMS}
    for name in names.values():
        table = here.create_table(name, change_tables.schema())
        for part in change_tables.base(load):
            table.append(part)

    def read(name: str) -> dict[str, int]:
        scan = here.load_table(name).scan(selected_fields=("id", "lsn"))
        return change_tables.found(scan.to_arrow())

    arms = {
        OURS: _ours(sw.open(names[OURS], catalog=here)),
        EXECUTORS: _by_executors(sw.open(names[EXECUTORS], catalog=here)),
        MERGE: merging(session, f"{CATALOG}.{names[MERGE]}"),
    }
    return arms, {arm: partial(read, name) for arm, name in names.items()}


def _compare(session: Any, load: Load, folder: Path, kind: str) -> bool:
    arms, reads = (_delta if kind == "delta" else _iceberg)(session, load, folder)
    took: dict[str, list[tuple[float, float]]] = {arm: [] for arm in arms}
    for number in range(load.rounds):
        changes = session.createDataFrame(batch(load, number)).localCheckpoint()
        timed = {arm: measured(partial(act, changes)) for arm, act in arms.items()}
        for arm, figures in in_turn(timed, number).items():
            took[arm].append(figures)
    print(f"\n{kind}, {load.keys}: {load.changes:,} changes into {load.rows:,} rows in {load.files} files")
    for arm, values in took.items():
        cpu, wall = (Spread.of(one[WARM_UPS:]) for one in zip(*values, strict=True))
        print(
            f"{arm:<10} CPU median {cpu.median:.2f} s, min {cpu.min:.2f}, max {cpu.max:.2f}; wall {wall.median:.2f} s, "
            f"min {wall.min:.2f}, max {wall.max:.2f}"
        )
    ours, theirs = took[OURS][WARM_UPS:], took[MERGE][WARM_UPS:]
    for what, at in (("CPU", 0), ("wall", 1)):
        each = [one[at] / other[at] for one, other in zip(ours, theirs, strict=True)]
        print(
            f"ratio of {what} of each round to MERGE: median {Spread.of(each).median:.3f} (aim: at most {RATIO_MAX})"
        )
    seen, wanted = {arm: read() for arm, read in reads.items()}, change_tables.wanted(load)
    for arm, found in seen.items():
        if found != wanted:
            print(f"{arm}: the table adds up to {found}, and should to {wanted}")
    return all(found == wanted for found in seen.values())


def main(
    rows: Annotated[int, typer.Option(help="Rows of the table.")] = 5_000_000,
    files: Annotated[int, typer.Option(help="Its data files.")] = 50,
    changes: Annotated[int, typer.Option(help="Changes of a batch.")] = 10_000,
    rounds: Annotated[int, typer.Option(help="Batches for each arm.")] = 7,
    only: Annotated[str, typer.Option(help="Some of delta and iceberg, by commas.")] = "delta,iceberg",
) -> None:
    """Measure batches in turn; exits with 1 if a table does not add up."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-spark-")))
        spark = session(folder)
        stack.callback(spark.stop)
        load = Load(rows=rows, files=files, changes=changes, rounds=rounds + WARM_UPS, keys=RECENT)
        cases = [(kind, replace(load, keys=keys)) for kind in only.split(",") for keys in (RECENT, SCATTERED)]
        whole = [_compare(spark, one, folder, kind) for kind, one in cases]
    sys.exit(0 if all(whole) else 1)


if __name__ == "__main__":
    typer.run(main)
