"""Files of AWS DMS to bronze (every change) and silver (the current state), for many tables."""

from __future__ import annotations

from safewrite.medallion.accounting import verify
from safewrite.medallion.audit import TableAudit
from safewrite.medallion.config import Config, load
from safewrite.medallion.pipeline import Pipeline
from safewrite.medallion.run import Run, TableRun

__all__ = ["Config", "Pipeline", "Run", "TableAudit", "TableRun", "load", "verify"]
