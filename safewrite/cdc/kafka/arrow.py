"""Refuses Spark sessions whose frames cannot be taken into the driver."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import safewrite as sw

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OLDEST = (3, 5)


def refuse_other_sessions(spark: SparkSession) -> None:
    """Refuse a session whose frames cannot be taken.

    Raises:
        UnsafeConfigError: it is one of Spark Connect, or older than Spark 3.5.
    """
    import pyspark

    kind: Any = type(spark.range(0))
    is_own = hasattr(spark, "sparkContext")
    numbers = re.findall(r"\d+", pyspark.__version__)[:2]
    has_arrow = hasattr(kind, "toArrow") or hasattr(kind, "_collect_as_arrow")
    if is_own and has_arrow and tuple(map(int, numbers)) >= _OLDEST:
        return
    what = f"This is PySpark {pyspark.__version__}" + ("." if is_own else " with a session of Spark Connect.")
    raise sw.UnsafeConfigError(
        f"The job needs PySpark 3.5 or newer with a session of its own, not Spark Connect. {what} Nothing was read or "
        "written. Run it by spark-submit, or with SparkSession.builder.getOrCreate(), on a cluster with Spark 3.5 or newer "
        "(Glue 5.0, EMR 7)."
    )
