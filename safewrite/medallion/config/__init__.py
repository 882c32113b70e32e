"""Reads the configuration of a job and of its tables, and checks it."""

from __future__ import annotations

from safewrite.medallion.config.job import Config, json_schema, load

__all__ = ["Config", "json_schema", "load"]
