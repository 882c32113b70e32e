"""Reads the configuration of a job, of its tables and of their columns."""

from __future__ import annotations

from safewrite.cdc.config.job import Config, json_schema, load

__all__ = ["Config", "json_schema", "load"]
