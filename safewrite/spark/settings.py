"""Makes the settings of a Spark session that commits to Delta tables through safewrite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safewrite.delta.spark.session import ARBITER, LOCK_TABLE, LOG_STORE, SCHEMES
from safewrite.engine.spark import check_java
from safewrite.errors import InvalidInputError
from safewrite.spark.arguments import check_arbiter, check_catalogs, check_jars, check_own
from safewrite.spark.jars import jars_from, logstore_jar
from safewrite.text.rendering import shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JOINED = ("spark.jars", "spark.jars.packages", "spark.sql.extensions")


def conf(
    *,
    lock_table: str | None = None,
    arbiter: str | None = None,
    delta: bool = True,
    iceberg: Mapping[str, Mapping[str, str]] | None = None,
    jars: str | Path | Sequence[str | Path] | None = None,
    local_files: bool = False,
    own: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Spark settings of a session whose Delta commits go through safewrite.

    They must be set before the session starts; then call ``attach``.

    Args:
        lock_table: DynamoDB lock table of the session's Delta tables, as for ``safewrite.open``.
        arbiter: ``"object-store"`` for conditional PUT alone.  With neither, each table's own record counts.
        delta: Delta tables, with ``spark_catalog`` as their catalog.
        iceberg: Iceberg catalogs by name, each with the properties of Iceberg's Java library.
        jars: a folder with the pinned jars (see ``packages``), or a list of jars; None where the cluster
            brings Delta and Iceberg itself (Glue, EMR, Databricks).
        local_files: also for tables in local folders (development).
        own: your own settings of the session; jars, packages and extensions that they name are joined with ours.
            Spark does not join them: of two values of ``spark.jars`` the last one counts.

    Raises:
        MissingExtraError: a jar is missing; the message says how to fetch it.
        InvalidInputError: the settings contradict each other, or are none.
    """
    check_arbiter(lock_table, arbiter)
    check_catalogs(iceberg)
    check_jars(jars)
    check_own(own)
    extensions: list[str] = []
    settings: dict[str, str] = {}
    if delta:
        schemes = (*SCHEMES, "file") if local_files else SCHEMES
        settings |= {f"spark.delta.logStore.{scheme}.impl": LOG_STORE for scheme in schemes}
        settings["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        # Spark's own choice, INT96, is nanoseconds to other readers: years before 1678 and after 2262 are lost to them.
        settings["spark.sql.parquet.outputTimestampType"] = "TIMESTAMP_MICROS"
        extensions.append("io.delta.sql.DeltaSparkSessionExtension")
    if iceberg:
        extensions.append("org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        settings |= _catalogs(iceberg)
    settings["spark.sql.extensions"] = ",".join(extensions)
    settings["spark.jars"] = ",".join(map(str, _jars(jars, delta=delta, iceberg=bool(iceberg))))
    settings |= {name: value for name, value in ((LOCK_TABLE, lock_table), (ARBITER, arbiter)) if value}
    return _beside(own, {name: value for name, value in settings.items() if value})


def configure(builder: SparkSession.Builder, **settings: Any) -> SparkSession.Builder:
    """Put ``conf(**settings)`` into a session's builder; keep jars and extensions that are named there.

    Raises:
        MissingExtraError: Java or a jar is missing.
        InvalidInputError: this is not a builder; or as :func:`conf`.
    """
    if not callable(getattr(builder, "config", None)):
        raise InvalidInputError(
            f"configure() takes SparkSession.builder, not {shown(builder)}. Nothing was done. For a session that runs already it "
            "is too late: stop it first."
        )
    check_java()
    before: Mapping[str, Any] = getattr(builder, "_options", {})
    own = {
        **{name: str(before[name]) for name in _JOINED if before.get(name)},
        **(settings.pop("own", None) or {}),
    }
    for name, value in conf(**settings, own=own).items():
        builder = builder.config(name, value)
    return builder


# --- settings -----------------------------------------------------------------------------------
def _beside(own: Mapping[str, str] | None, ours: Mapping[str, str]) -> dict[str, str]:
    """Our settings over the user's own, lists joined without doubles."""
    joined = dict((own or {}).items())
    for name, value in ours.items():
        known = [one for one in str(joined.get(name, "")).split(",") if one] if name in _JOINED else []
        joined[name] = ",".join(dict.fromkeys([*known, *value.split(",")])) if known else value
    return joined


def _catalogs(iceberg: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    found = {}
    for name, properties in iceberg.items():
        prefix = f"spark.sql.catalog.{name}"
        found[prefix] = "org.apache.iceberg.spark.SparkCatalog"
        found |= {f"{prefix}.{key}": value for key, value in properties.items()}
    return found


def _jars(jars: str | Path | Sequence[str | Path] | None, *, delta: bool, iceberg: bool) -> list[str | Path]:
    ours: list[str | Path] = [logstore_jar()] if delta else []
    if jars is None:
        return ours
    if isinstance(jars, str | Path):
        return [*ours, *jars_from(jars, delta=delta, iceberg=iceberg)]
    return [*ours, *jars]
