"""Files of AWS DMS to bronze (every change) and silver (the current state), for many tables."""

from __future__ import annotations

from safewrite.medallion.audit.accounting import verify
from safewrite.medallion.audit.table_audit import TableAudit
from safewrite.medallion.config.job import Config, json_schema, load
from safewrite.medallion.pipeline import Pipeline
from safewrite.medallion.report.run import Run, TableRun

__all__ = ["Config", "Pipeline", "Run", "TableAudit", "TableRun", "json_schema", "load", "verify"]
