"""An Iceberg catalog that safewrite, PyIceberg and the tests' Spark share."""

from __future__ import annotations

import itertools
from collections import deque
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import safewrite as sw
from bench.servers.catalogs import CatalogKind, load
from safewrite.iceberg.table import IcebergTable
from tests.spark.session import Spark

_numbers = itertools.count()


CATALOGS_MAX = 20


@dataclass(frozen=True)
class Lake:
    """One catalog; ``name`` is what Spark calls it, and a SQL catalog's own name too."""

    kind: CatalogKind
    name: str
    properties: dict[str, str]
    namespace: str
    spark: Spark
    closing: ExitStack
    _loaded: deque[Any] = field(default_factory=deque, repr=False)

    def load(self) -> Any:
        """A PyIceberg catalog of its own, closed when the session ends; each writer takes one.

        Those from long before give their connections back: a server has some hundred for all tests.
        """
        made = self.closing.enter_context(closing(load(self.properties, name=self.name)))
        self._loaded.append(made)
        if len(self._loaded) > CATALOGS_MAX:
            self._loaded.popleft().close()
        return made

    def new(self) -> str:
        """An identifier that no table has."""
        return f"{self.namespace}.t{next(_numbers)}"

    def create(self, schema: pa.Schema, **settings: Any) -> IcebergTable:
        """A new, empty table, opened by safewrite."""
        table = sw.create(self.new(), schema, catalog=self.load(), **settings)
        assert isinstance(table, IcebergTable)
        return table

    def open(self, identifier: str, **settings: Any) -> IcebergTable:
        """A table opened by safewrite, over a catalog of its own."""
        table = sw.open(identifier, catalog=self.load(), **settings)
        assert isinstance(table, IcebergTable)
        return table

    def sql(self, table: IcebergTable | str) -> str:
        """What Spark calls a table."""
        return f"{self.name}.{table if isinstance(table, str) else table.uri}"
