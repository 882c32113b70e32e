"""Runs the recipe that people copy on the same rows: snapshot ids are compared, and silver is a MERGE by operation.

Bronze is a real Iceberg table by PyIceberg, one append for each round of files.  Silver takes the rows of snapshots whose id is
greater than the last one taken, the newest change of each key among them, and merges: a matched D deletes, a matched row is
updated, a row that is not matched is inserted where its operation is I (or a full load's).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import load_catalog

from bench.medallion.dms import COLUMNS, Key, Row
from safewrite.medallion.config.bronze_columns import FILE, STORED_FILE

Rows = list[Row]


@dataclass
class Damage:
    """What silver lacks, has too much, and has in an old form."""

    lost: int = 0
    ghosts: int = 0
    stale: int = 0

    def add(self, silver: dict[Key, Row], truth: dict[Key, Row]) -> None:
        """Count the flaws of one table."""
        self.lost += len(truth.keys() - silver.keys())
        self.ghosts += len(silver.keys() - truth.keys())
        self.stale += sum(
            any(repr(truth[key][name]) != repr(silver[key][name]) for name in COLUMNS)
            for key in truth.keys() & silver.keys()
        )

    @property
    def total(self) -> int:
        return self.lost + self.ghosts + self.stale


class Recipe:
    """The bronze table of one source table, and the silver rows of the recipe.

    ``by_id``: the rows of a round are looked for by comparing snapshot ids, as the recipe does; else each round is taken, which
    leaves what the MERGE itself loses.
    """

    def __init__(self, catalog: Any, name: str, *, by_id: bool) -> None:
        self.by_id = by_id
        self.silver: dict[Key, Row] = {}
        self._catalog, self._name = catalog, f"recipe.{name.replace('.', '_')}_{int(by_id)}"
        self._table: Any = None
        self._snapshots: dict[int, Rows] = {}
        self._last = -1

    def round(self, rows: pa.Table) -> None:
        """New files have come, and the job runs."""
        if rows.num_rows == 0:
            return
        if self._table is None:
            self._table = self._catalog.create_table(self._name, schema=rows.schema)
        self._table.append(rows)
        newest = self._table.current_snapshot().snapshot_id
        self._snapshots[newest] = rows.to_pylist()
        taken = [one for one in self._snapshots if one > self._last] if self.by_id else [newest]
        self._merge([row for one in taken for row in self._snapshots[one]])
        self._last = newest

    def _merge(self, rows: Rows) -> None:
        last: dict[Key, Row] = {}
        for row in sorted(rows, key=lambda row: row["_seq"]):
            last[row["id"], row["region"]] = row
        for key, row in last.items():
            if key in self.silver:
                if row["_op"] == "D":
                    del self.silver[key]
                else:
                    self.silver[key] = row
            elif row["_op"] in ("I", "L"):
                self.silver[key] = row


def catalog_of(folder: Path) -> Any:
    """A catalog of its own for the recipe's tables."""
    folder.mkdir(parents=True, exist_ok=True)
    found = load_catalog("recipe", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=str(folder))
    found.create_namespace("recipe")
    return found


def damage(
    folder: Path, bronze: dict[str, pa.Table], rounds: list[list[str]], truths: dict[str, dict[Key, Row]]
) -> tuple[Damage, Damage]:
    """What the recipe makes of bronze rows whose files came in rounds: as it is, and where each round is taken."""
    catalog = catalog_of(folder)
    found = Damage(), Damage()
    for name, rows in bronze.items():
        path_of = STORED_FILE if STORED_FILE in rows.column_names else FILE
        for number, by_id in enumerate((True, False)):
            one = Recipe(catalog, name, by_id=by_id)
            seen: set[str] = set()
            for paths in rounds:
                new = [path for path in dict.fromkeys(paths) if path not in seen]  # its list of files
                seen.update(new)
                is_new = pa.compute.is_in(rows[path_of], value_set=pa.array(new, pa.string()))
                one.round(rows.filter(is_new))
            found[number].add(one.silver, truths[name])
    return found
