"""Makes Spark sessions commit to Delta tables through safewrite.

Plain Delta code (``df.write``, ``MERGE INTO``, ``OPTIMIZE``) is then as safe as safewrite's own writers, and
works with them::

    builder = safewrite.spark.configure(SparkSession.builder, lock_table="delta_log", jars="jars/spark")
    spark = safewrite.spark.attach(builder.getOrCreate())
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from safewrite.exports import exports

if TYPE_CHECKING:
    from safewrite.delta.spark.session import attach, landed
    from safewrite.spark.jars import jars_from, logstore_jar, packages
    from safewrite.spark.settings import conf, configure

__all__ = ["attach", "conf", "configure", "jars_from", "landed", "logstore_jar", "packages"]

__getattr__, __dir__ = exports(
    __name__,
    {
        "jars_from": "safewrite.spark.jars",
        "logstore_jar": "safewrite.spark.jars",
        "packages": "safewrite.spark.jars",
        "conf": "safewrite.spark.settings",
        "configure": "safewrite.spark.settings",
        "attach": "safewrite.delta.spark.session",
        "landed": "safewrite.delta.spark.session",
    },
)
