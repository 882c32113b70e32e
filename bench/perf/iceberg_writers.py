"""Calls each writer of Iceberg tables as its users do, behind one way to create, open and append."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from .writers import ALONE, STAGED, Append, make_frame, named, schema, stage

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "LEASED",
    "PLAIN",
    "PYICEBERG",
    "V3",
    "Place",
    "create",
    "frame_of",
    "opened",
    "opening",
    "rows_in",
    "schema",
    "versions_in",
]

PLAIN, LEASED, PYICEBERG = "safewrite", "safewrite lock table", "pyiceberg"
V3 = "safewrite, format version 3"
_CATALOG = "lab"
"""A SQL catalog keeps the tables of each name apart."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table is, and how to get there; ``dynamodb_url`` is for the arm with a lock table."""

    name: str
    properties: Mapping[str, str]
    lock_table: str
    dynamodb_options: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for another process."""
        return asdict(self)


def preload(arm: str) -> None:
    """Import what an arm needs, without a client or a thread."""
    import pyiceberg.catalog.glue
    import pyiceberg.catalog.rest
    import pyiceberg.catalog.sql
    import pyiceberg.io.pyarrow  # noqa: F401

    if arm != PYICEBERG:
        import botocore.auth
        import botocore.httpsession  # noqa: F401

        import safewrite.iceberg.table  # noqa: F401


def frame_of(rows: int) -> pa.Table:
    """An Arrow table: PyIceberg takes nothing else."""
    import pyarrow as pa

    return pa.Table.from_pandas(make_frame(rows), schema=schema(), preserve_index=False)


def create(arm: str, place: Place, schema: pa.Schema) -> None:
    """Create an empty table; for safewrite its lock table or the tables in the catalog's database too."""
    if arm == PYICEBERG:
        _catalog(place).create_table(place.name, schema)
        return
    import safewrite as sw

    version = {"format_version": 3} if arm == V3 else {}
    sw.create(place.name, schema, **settings(arm, place), **version)


def opened(arm: str, place: Place) -> Append:
    """Open a table once; the handle is used for every append."""
    if arm == PYICEBERG:
        table = _catalog(place).load_table(place.name)

        def append_by_handle(frame: Any, key: str | None = None) -> None:
            table.append(frame)

        return append_by_handle
    import safewrite as sw

    safe = sw.open(place.name, **settings(arm, place))
    if arm == STAGED:
        folder = f"{safe.iceberg.location()}/data/"
        return lambda frame, key=None: stage(safe, frame, folder)
    return lambda frame, key=None: safe.append(frame, **named(key)).attempts


def opening(arm: str, place: Place) -> Append:
    """Connect and open the table again at each append, as a function does that keeps nothing between two events."""
    return lambda frame, key=None: opened(arm, place)(frame, key)


def rows_in(place: Place) -> int:
    """Rows of the table, as its manifests count them."""
    table = _catalog(place).load_table(place.name)
    return sum(task.file.record_count for task in table.scan().plan_files())


def versions_in(place: Place) -> int:
    """Snapshots of the table."""
    return len(_catalog(place).load_table(place.name).metadata.snapshots)


def settings(arm: str, place: Place) -> dict[str, Any]:
    """The settings that safewrite opens the table with."""
    found: dict[str, Any] = {"catalog": {"name": _CATALOG, **place.properties}}
    name = arm.removesuffix(f" {ALONE}")
    if name != arm:
        found["group"] = "never"
    if name == LEASED:
        found |= {"lock_table": place.lock_table, "storage_options": dict(place.dynamodb_options)}
    return found


def _catalog(place: Place) -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog(_CATALOG, **place.properties)
