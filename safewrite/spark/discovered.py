"""Answers ``format("safewrite")`` of a Spark session with the call that was meant.

Spark 4 looks for data sources in modules whose name begins with ``pyspark_``; the wheel has this one as ``pyspark_safewrite``.
Spark imports it where a format is unknown, so that it must not fail: else no other source would be found.
"""

from __future__ import annotations

from typing import NoReturn

from pyspark.sql.datasource import DataSource


class DefaultSource(DataSource):
    """A source that reads and writes nothing: how safewrite is called takes more than a format."""

    @classmethod
    def name(cls) -> str:
        """What ``format()`` is given."""
        return "safewrite"

    def __init__(self, options: dict[str, str]) -> NoReturn:
        from safewrite.boundary.habits import SPARK_FORMAT

        raise NotImplementedError(SPARK_FORMAT)
