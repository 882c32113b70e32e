"""Lands change data of Kafka in many tables: envelopes, tables by configuration, a Spark pipeline."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from safewrite import MissingExtraError

if TYPE_CHECKING:
    from safewrite.cdc.config.job import Config, json_schema, load
    from safewrite.cdc.ledger.accounting import Verdict, verify
    from safewrite.cdc.pipeline import Pipeline

__all__ = ["Config", "Pipeline", "Verdict", "json_schema", "load", "verify"]

_WHERE = {
    "Config": "config.job", "Pipeline": "pipeline", "Verdict": "ledger.accounting", "json_schema": "config.job", "load": "config.job",
    "verify": "ledger.accounting",
}  # fmt: skip
_EXTRA = frozenset({"pydantic", "pydantic_core", "fastavro", "tenacity"})


def __getattr__(name: str) -> Any:
    """Import what is asked for; say which extra brings a library that is missing."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"safewrite.cdc.{_WHERE[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise MissingExtraError(
            f"safewrite.cdc needs {error.name}, which is not installed. Nothing was written. Install it: "
            f"{MissingExtraError.command('cdc,spark')}."
        ) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
