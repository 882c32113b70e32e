"""Gives the Spark session that a job runs in: the one of spark-submit, or a new one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import safewrite as sw

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(job: str, settings: Mapping[str, str]) -> SparkSession:
    """The session, with these settings where it is new.

    Raises:
        MissingExtraError: PySpark is not installed.
    """
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise sw.MissingExtraError(
            "The job runs on PySpark, which is not installed. Nothing was read or written. Install it: "
            "pip install 'safewrite-lake[cdc,spark]', or run the command by spark-submit."
        ) from error
    builder = SparkSession.builder.appName(f"safewrite cdc {job}")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
