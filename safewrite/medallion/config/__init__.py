"""Reads the configuration of a job and of its tables, and checks it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safewrite.exports import exports

if TYPE_CHECKING:
    from safewrite.medallion.config.job import Config, json_schema, load

__all__ = ["Config", "json_schema", "load"]

__getattr__, __dir__ = exports(__name__, dict.fromkeys(__all__, "safewrite.medallion.config.job"))
