"""Files of AWS DMS to bronze (every change) and silver (the current state), for many tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safewrite.exports import exports

if TYPE_CHECKING:
    from safewrite.medallion.audit.accounting import verify
    from safewrite.medallion.audit.table_audit import TableAudit
    from safewrite.medallion.config.job import Config, json_schema, load
    from safewrite.medallion.pipeline import Pipeline
    from safewrite.medallion.report.run import Run, TableRun

__all__ = ["Config", "Pipeline", "Run", "TableAudit", "TableRun", "json_schema", "load", "verify"]

__getattr__, __dir__ = exports(
    __name__,
    {
        "verify": "safewrite.medallion.audit.accounting",
        "TableAudit": "safewrite.medallion.audit.table_audit",
        "Config": "safewrite.medallion.config.job",
        "json_schema": "safewrite.medallion.config.job",
        "load": "safewrite.medallion.config.job",
        "Pipeline": "safewrite.medallion.pipeline",
        "Run": "safewrite.medallion.report.run",
        "TableRun": "safewrite.medallion.report.run",
    },
)
