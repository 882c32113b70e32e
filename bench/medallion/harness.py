"""A medallion job on files of a source with a truth, in either format, locally or on S3."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from pyiceberg.catalog import load_catalog

from bench.medallion.dms import COLUMNS, Dms, SourceTable, same
from safewrite.medallion import Pipeline, Run, verify


@dataclass
class Harness:
    """A job and its source.  ``more`` changes the configuration, ``defaults`` that of each table."""

    folder: Path
    table_format: str
    dms: Dms
    defaults: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def catalog(self) -> dict[str, str]:
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.folder}/catalog.db",
            "warehouse": f"{self.folder}/warehouse",
        }

    def address(self, layer: str, name: str) -> str:
        schema, table = name.split(".")
        return (
            f"{layer}.{table}"
            if self.table_format == "iceberg"
            else f"{self.folder}/{layer}/{schema}/{table}"
        )

    @property
    def config(self) -> dict[str, Any]:
        iceberg = self.table_format == "iceberg"
        defaults = {
            "format": self.table_format, "keys": ["id", "region"], "columns": COLUMNS, "on_overwritten": "quarantine",
            "restarted_load": "fold",
            **{layer: f"{layer}.{{table}}" if iceberg else f"{self.folder}/{layer}/{{schema}}/{{table}}"
               for layer in ("bronze", "silver")},
        }  # fmt: skip
        return {
            "job": "shop",
            "raw": {"location": str(self.dms.root)},
            "state": f"{self.folder}/state",
            "quarantine": "aside.records" if iceberg else f"{self.folder}/quarantine",
            "quarantine_format": self.table_format,
            "workers": 2,
            **({"catalog": self.catalog} if iceberg else {}),
            "defaults": defaults | self.defaults,
            "tables": {
                name: {"files": table.settings()}
                | ({"epoch": table.epoch, "reload": "truncate"} if table.epoch > 1 else {})
                for name, table in self.dms.tables.items()
            },
            **self.more,
        }

    def write_config(self) -> Path:
        path = self.folder / "job.json"
        path.write_text(json.dumps(self.config))
        return path

    def run(self, tables: list[str] | None = None) -> Run:
        """Run, and expect that all goes well."""
        run = Pipeline(self.config).run(tables)
        assert run.ok, [*run.errors, *(one.error for one in run.tables if one.error)]
        return run

    def read(self, layer: str, name: str) -> pa.Table:
        """A table by another reader than safewrite."""
        return self._read(self.address(layer, name))

    def aside(self) -> pa.Table:
        """The quarantine table."""
        return self._read(self.config["quarantine"])

    def _read(self, address: str) -> pa.Table:
        if self.table_format == "iceberg":
            return load_catalog("default", **self.catalog).load_table(address).scan().to_arrow()
        return pa.table(deltalake.DeltaTable(address).to_pyarrow_table())

    def wrong(self) -> dict[str, list[str]]:
        """In which tables silver is not the truth, and how."""
        found = {name: same(self.read("silver", name), one.truth) for name, one in self.dms.tables.items()}
        return {name: told for name, told in found.items() if told}

    def flaws(self) -> list[str]:
        """What ``verify`` finds."""
        return [
            f"{one.table}: {one.flaws} {one.error}" for one in verify(Pipeline(self.config)) if not one.clean
        ]

    @property
    def tables(self) -> list[SourceTable]:
        return list(self.dms.tables.values())

    def begin(self, rows: int = 20, *, loads: int = 1) -> None:
        """A full load, begun so often, with changes before, during and after it; half of these are held back.

        Before a load begins again the job takes the last.  Changes come after the last alone.
        """
        for table in self.tables:
            self.dms.fill(table, rows)
        for number in range(loads):
            if number:
                self.run()
            for table in self.tables:
                self.dms.change(table, 5)
                self.dms.load(table)
        for table in self.tables:
            self.dms.change(table, rows)
        self._flush(hold=True)

    def _flush(self, *, hold: bool = False) -> None:
        if self.tables[0].is_mixed:
            self.dms.flush_mixed(hold=hold)
            return
        for table in self.tables:
            self.dms.flush(table, hold=hold)

    def go_on(self, changes: int = 20) -> None:
        for table in self.tables:
            self.dms.change(table, changes)
        self._flush()


MIXED = {"layout": "mixed", "mixed_folder": "cdc", "schema_column": "sch", "table_column": "tab"}


def mixed_lab(folder: Path, table_format: str, *, seed: int = 1, tables: int = 1, **settings: Any) -> Harness:
    """A job whose change files are common to all tables."""
    dms = Dms(folder / "raw", seed, tables, mixed=True)
    more = {"raw": {"location": str(dms.root), **MIXED}} | settings.pop("more", {})
    return Harness(folder, table_format, dms, more=more, **settings)


def lab(folder: Path, table_format: str, *, seed: int = 1, tables: int = 1, **settings: Any) -> Harness:
    """A job of ``tables`` tables."""
    return Harness(folder, table_format, Dms(folder / "raw", seed, tables), **settings)
