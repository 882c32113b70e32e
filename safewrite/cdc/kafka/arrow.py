"""Takes frames of Spark into the driver as Arrow tables, with PySpark 4 and with PySpark 3.5, which has no ``toArrow``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import safewrite as sw

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OLDEST = (3, 5)


def arrow_of(frame: DataFrame) -> pa.Table:
    """All rows of a frame, with its types and nulls; without rows the types may be missing.

    PySpark 3.5 has under ``toPandas`` what 4.0 calls ``toArrow``: Arrow's own record batches, as the executors made them.
    ``collect()`` gives the same values, for about twenty times the CPU and three times the memory.
    """
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    of_spark35: Any = frame
    batches = of_spark35._collect_as_arrow()  # noqa: SLF001
    # No batches for no rows.  3.5's own way to name the types needs distutils, which Python 3.12 has no more.
    return (
        pa.Table.from_batches(batches) if batches else pa.table({name: pa.nulls(0) for name in frame.columns})
    )


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
