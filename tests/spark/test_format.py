"""T4-E6: ``format("safewrite")`` led nowhere; it leads to the call that was meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.datasource import DataSource

from safewrite.boundary.habits import SPARK_FORMAT
from safewrite.spark.discovered import DefaultSource
from tests.spark.session import Spark


def test_t4_e6_spark_can_take_the_module_for_a_source() -> None:
    """What PySpark asks of a module that it discovers; the wheel has it under such a name (tests/test_release.py)."""
    assert issubclass(DefaultSource, DataSource)
    assert DefaultSource.name() == "safewrite"
    with pytest.raises(NotImplementedError, match="safewrite is not a format of Spark"):
        DefaultSource({})


@pytest.mark.sweep("read", "write")
@pytest.mark.parametrize(
    "use",
    [
        lambda session: session.read.format("safewrite").load("/lake/orders"),
        lambda session: session.readStream.format("safewrite").load("/lake/orders"),
        lambda session: session.range(1).write.format("safewrite").mode("append").save("/lake/orders"),
    ],
    ids=["read", "stream", "write"],
)
def test_t4_e6_spark_shows_the_sentence(spark: Spark, use: Callable[[Any], Any]) -> None:
    spark.session.dataSource.register(DefaultSource)
    with pytest.raises(AnalysisException) as refused:
        use(spark.session)
    assert SPARK_FORMAT in str(refused.value)
