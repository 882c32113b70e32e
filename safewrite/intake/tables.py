"""Says how a job reaches its tables: the fields that the configuration of each job has for it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Set
from functools import cache
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import BeforeValidator, Field

import safewrite as sw
from safewrite.intake.settings import Strict, Text, resolved
from safewrite.metrics import Listener

TableFormat = Literal["delta", "iceberg"]
Reader = Literal[
    "athena", "databricks", "deltalake", "duckdb", "polars", "pyarrow", "redshift", "spark", "trino"
]
READ_VECTORS: frozenset[Reader] = frozenset({"databricks", "deltalake", "duckdb", "polars", "spark", "trino"})
"""Readers that leave out rows which a deletion vector takes away."""
READ_WIDENED: frozenset[Reader] = frozenset({"databricks", "spark"})
"""Readers that know Delta's type widening; deltalake (1.6.6) and polars refuse such a table, and nothing is known of the others."""


def all_read_vectors(readers: Collection[Reader]) -> bool:
    """Whether engines are named, and each of them reads deletion vectors."""
    return bool(readers) and {*readers} <= READ_VECTORS


def check_readers(readers: Collection[Reader], table_format: TableFormat) -> None:
    """Refuse readers where they decide nothing.  Raises ValueError, for pydantic."""
    if readers and table_format != "delta":
        raise ValueError("readers is of Delta tables, and does nothing for format iceberg")


@cache
def _pattern(text: str) -> re.Pattern[str]:
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(one) or re.escape(one) for one in text), re.DOTALL)


def is_like(name: str, pattern: str) -> bool:
    """Whether a name is as a pattern says: ``*`` stands for any letters, ``?`` for one."""
    return name == pattern or _pattern(pattern).fullmatch(name) is not None


def _is_catalog(found: Any) -> Any:
    is_map = isinstance(found, dict) and all(isinstance(one, str) for pair in found.items() for one in pair)
    if found is None or is_map or (isinstance(found, str) and found.strip()):
        return found
    raise ValueError(
        "the name of a catalog in PyIceberg's configuration, or an object of its properties, all texts"
    )


class TableAccess(Strict):
    """How a job reaches its tables."""

    catalog: Annotated[str | dict[str, str] | None, BeforeValidator(_is_catalog), Field(repr=False)] = None
    """Iceberg: the properties of a catalog, or its name in PyIceberg's configuration; ``env:NAME`` takes a property from the
    environment."""
    create_namespace: bool = False
    """Iceberg: whether namespaces (Glue: databases) of new tables are made; else a missing one is refused."""
    lock_table: Text | None = None
    arbiter: Literal["dynamodb", "object-store"] | None = None
    """Delta: who decides between writers, as in ``safewrite.open``."""
    storage_options: Annotated[dict[str, str], Field(repr=False)] = Field(default_factory=dict)
    """deltalake's keys; ``env:NAME`` takes a value from the environment."""

    def options(self) -> dict[str, str]:
        """``storage_options`` with what the environment has.  Raises InvalidInputError where it lacks a variable."""
        return resolved(self.storage_options, "storage_options")

    def catalog_settings(self) -> str | dict[str, str] | None:
        """``catalog`` likewise; a name is one of PyIceberg's configuration."""
        return resolved(self.catalog, "catalog") if isinstance(self.catalog, dict) else self.catalog

    def contradictions(self, formats: Set[str]) -> Iterator[str]:
        """What does not go together in a job that has tables of these formats."""
        if "iceberg" in formats and self.catalog is None:
            yield "catalog is needed for tables of format iceberg"
        if "iceberg" not in formats and self.catalog is not None:
            yield "catalog does nothing: no table is of format iceberg"
        if "delta" not in formats and self.arbiter is not None:
            yield "arbiter does nothing: no table is of format delta"
        if self.lock_table is not None and self.arbiter == "object-store":
            yield "lock_table does nothing with arbiter object-store"

    def opening(
        self, table_format: str, on_event: Listener | None, *, catalog: object = None
    ) -> dict[str, Any]:
        """How ``safewrite.open`` reaches a table; ``catalog`` is one that is open already."""
        given = {
            "lock_table": self.lock_table,
            "storage_options": self.options() or None,
            "on_event": on_event,
            "catalog": (catalog or self.catalog_settings()) if table_format == "iceberg" else None,
            "arbiter": self.arbiter if table_format == "delta" else None,
        }
        return {name: value for name, value in given.items() if value is not None}

    def created(
        self, address: str, schema: pa.Schema, table_format: str, opening: dict[str, Any], **more: Any
    ) -> sw.Table:
        """A new table; one that another run made meanwhile is opened as it is.  Raises as ``safewrite.create`` does."""
        makes = table_format == "iceberg" and self.create_namespace
        table: sw.Table
        try:
            table = sw.create(address, schema, create_namespace=makes, **more, **opening)
        except sw.ConflictError as error:
            if error.kind is not sw.Kind.TABLE_EXISTS:
                raise
            table = sw.open(address, **opening)
        return table
