"""The fixtures of the tests of Spark, with whichever Spark this Python has."""

from tests.spark.conftest import hooked, lakes, shore, spark

__all__ = ["hooked", "lakes", "shore", "spark"]
