"""Small tables with branches in a catalog of SQLite, and what other engines do to them."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog


def rows(*ids: int, s: int = 1, op: str = "u") -> pa.Table:
    known = [{"id": one, "s": s, "op": op} for one in ids]
    return pa.Table.from_pylist(known, pa.schema({"id": pa.int64(), "s": pa.int64(), "op": pa.string()}))


def ids(catalog: SqlCatalog, branch: str = "main") -> list[int]:
    """The keys on a branch, as PyIceberg reads them."""
    return sorted(catalog.load_table("db.t").scan().use_ref(branch).to_arrow()["id"].to_pylist())


def refs(catalog: SqlCatalog) -> dict[str, int]:
    return {name: one.snapshot_id for name, one in catalog.load_table("db.t").metadata.refs.items()}


def drop(catalog: SqlCatalog, branch: str = "audit") -> None:
    catalog.load_table("db.t").manage_snapshots().remove_branch(branch).commit()


def expire_what_nothing_names(catalog: SqlCatalog) -> None:
    table = catalog.load_table("db.t")
    kept = {one.snapshot_id for one in table.metadata.refs.values()}
    old = [one.snapshot_id for one in table.snapshots() if one.snapshot_id not in kept]
    table.maintenance.expire_snapshots().by_ids(old).commit()
