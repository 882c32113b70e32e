"""Does what a medallion job does without its guarantees: files to bronze, and a merge of the newest change of each key into silver.

It remembers no file, checks no record, follows no position and counts nothing; a crash between its commits loses or doubles rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import In

TYPES = {"id": pa.int64(), "name": pa.string(), "price": pa.decimal128(12, 2), "at": pa.timestamp("us")}
SEQ = pa.decimal128(38, 0)


def read(path: Path) -> pa.Table:
    """The rows of a file under the types of the table."""
    convert = pacsv.ConvertOptions(
        column_types={**TYPES, "Op": pa.string(), "seq": SEQ}, null_values=["NULL"], strings_can_be_null=True
    )
    rows = pacsv.read_csv(path, convert_options=convert)
    if "Op" not in rows.column_names:
        count = rows.num_rows
        rows = rows.append_column("Op", pa.array(["L"] * count))
        rows = rows.append_column("seq", pa.array([0] * count, pa.int64()).cast(SEQ))
    return rows.select(["Op", *TYPES, "seq"])


def _read_all(paths: Sequence[Path]) -> pa.Table:
    return pa.concat_tables([read(path) for path in paths])


def newest(rows: pa.Table) -> pa.Table:
    """Of each key the last change."""
    numbered = rows.append_column("n", pa.array(range(rows.num_rows)))
    ordered = numbered.sort_by([("id", "ascending"), ("seq", "descending"), ("n", "descending")])
    ids = ordered["id"].combine_chunks()
    is_first = pa.concat_arrays([pa.array([True] * min(1, len(ids))), pc.not_equal(ids[1:], ids[:-1])])
    return ordered.filter(is_first).drop_columns(["n"])


class Place(Protocol):
    """Bronze and silver tables by name."""

    def table(self, name: str, paths: Sequence[Path]) -> None:
        """Take new files of one table."""

    def rows(self, name: str) -> pa.Table:
        """The rows of its silver."""


class PlainDelta:
    """By deltalake: ``write_deltalake`` and ``merge``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def table(self, name: str, paths: Sequence[Path]) -> None:
        """Bronze and silver of one table."""
        rows = _read_all(paths)
        bronze, silver = (str(self.folder / layer / name) for layer in ("bronze", "silver"))
        deltalake.write_deltalake(bronze, rows, mode="append")
        source = newest(rows)
        if not deltalake.DeltaTable.is_deltatable(silver):
            deltalake.DeltaTable.create(silver, schema=source.drop_columns(["Op"]).schema)
        values = {name: f"s.{name}" for name in (*TYPES, "seq")}
        (
            deltalake.DeltaTable(silver)
            .merge(source, "t.id = s.id", source_alias="s", target_alias="t")
            .when_matched_delete("s.Op = 'D'")
            .when_matched_update(values)
            .when_not_matched_insert(values, "s.Op <> 'D'")
            .execute()
        )

    def rows(self, name: str) -> pa.Table:
        return pa.table(deltalake.DeltaTable(str(self.folder / "silver" / name)).to_pyarrow_table())


class PlainIceberg:
    """By PyIceberg: an append to bronze; rows of the keys are overwritten in silver."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": str(folder / "warehouse"),
        }
        self.catalog = load_catalog("plain", **settings)
        for layer in ("bronze", "silver"):
            self.catalog.create_namespace_if_not_exists(layer)

    def table(self, name: str, paths: Sequence[Path]) -> None:
        """Bronze and silver of one table."""
        rows = _read_all(paths)
        source = newest(rows)
        bronze = self.catalog.create_table_if_not_exists(f"bronze.{name}", rows.schema)
        bronze.append(rows)
        silver = self.catalog.create_table_if_not_exists(f"silver.{name}", source.drop_columns(["Op"]).schema)
        kept = source.filter(pc.not_equal(source["Op"], "D")).drop_columns(["Op"])
        if silver.current_snapshot() is None:
            silver.append(kept)
        else:
            silver.overwrite(kept, In("id", source["id"].to_pylist()))

    def rows(self, name: str) -> pa.Table:
        return self.catalog.load_table(f"silver.{name}").scan().to_arrow()


def run(place: Place, files: Mapping[str, Sequence[Path]], workers: int) -> None:
    """All tables, so many at once."""
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(place.table, files, files.values()))


def same(first: Any, second: Any) -> bool:
    """Whether two silver tables hold the same rows."""
    names = [*TYPES]
    return bool(
        first.select(names).sort_by("id").to_pylist() == second.select(names).sort_by("id").to_pylist()
    )
