"""Files of AWS DMS to bronze (every change) and silver (the current state), for many tables."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from safewrite.medallion.audit.accounting import verify
    from safewrite.medallion.audit.table_audit import TableAudit
    from safewrite.medallion.config.job import Config, json_schema, load
    from safewrite.medallion.pipeline import Pipeline
    from safewrite.medallion.report.run import Run, TableRun

__all__ = ["Config", "Pipeline", "Run", "TableAudit", "TableRun", "json_schema", "load", "verify"]

_WHERE = {
    "verify": "audit.accounting",
    "TableAudit": "audit.table_audit",
    "Config": "config.job",
    "json_schema": "config.job",
    "load": "config.job",
    "Pipeline": "pipeline",
    "Run": "report.run",
    "TableRun": "report.run",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for: threads that import it for the first time do not meet half of it."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"safewrite.medallion.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
