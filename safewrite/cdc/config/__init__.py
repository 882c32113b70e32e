"""Reads the configuration of a job, of its tables and of their columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safewrite.exports import exports

if TYPE_CHECKING:
    from safewrite.cdc.config.job import Config, json_schema, load

__all__ = ["Config", "json_schema", "load"]

__getattr__, __dir__ = exports(__name__, dict.fromkeys(__all__, "safewrite.cdc.config.job"))
