"""Where one large write and its rival have their table: on this disk, or at servers on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import safewrite as sw

from ..servers import catalogs
from ..servers.servers import Ministack, create_lock_table
from . import change_tables
from .change_tables import TABLE, Load

PLACES = ("local", "s3", "locks", "sql", "rest", "glue")
"""This disk, with SQLite for Iceberg; for Delta S3 with conditional creates, or with a lock table; for Iceberg a catalog in PostgreSQL,
its own REST catalog, or Glue, over S3."""
_OF_DELTA, _OF_ICEBERG = PLACES[:3], (PLACES[0], *PLACES[3:])
BUCKET, LOCKS = "starving", "locks"
Place = dict[str, Any]
"""What a process needs to open the table; plain values."""


def fits(name: str, *, is_delta: bool) -> bool:
    """Whether a table of the format can be there."""
    return name in (_OF_DELTA if is_delta else _OF_ICEBERG)


@contextmanager
def at(name: str, folder: Path) -> Iterator[Place]:
    """The servers of a place, as long as this lasts."""
    if name == "local":
        yield {"name": name, "folder": str(folder / "first")}
        return
    with ExitStack() as stack:
        s3 = stack.enter_context(Ministack(folder / "s3"))
        s3.boto3_client("s3").create_bucket(Bucket=BUCKET)
        place = {"name": name, "folder": f"s3://{BUCKET}/t"}
        if name in {"s3", "locks"}:
            locks = create_lock_table(s3.boto3_client("dynamodb"), LOCKS) if name == "locks" else None
            options = s3.storage_options()
            yield place | {"options": options, "locks": locks, "s3": s3.endpoint_url}
            return
        kind, warehouse, uri = cast("catalogs.CatalogKind", name), f"s3://{BUCKET}/lake", s3.endpoint_url
        if kind == "sql":
            uri = stack.enter_context(catalogs.Postgres(folder / "postgres")).uri
        elif kind == "rest":
            server = catalogs.IcebergRest(folder / "rest", s3=s3, warehouse=warehouse)
            uri = stack.enter_context(server).uri
        yield place | {
            "catalog": catalogs.catalog_properties(kind, uri=uri, s3_url=s3.endpoint_url, warehouse=warehouse)
        }


def catalog(place: Place) -> Any:
    """PyIceberg's catalog of a place."""
    if place["name"] == "local":
        return change_tables.catalog(Path(place["folder"]))
    return catalogs.load(place["catalog"])


def make(load: Load, place: Place, folder: Path, *, is_delta: bool, marks: bool) -> None:
    """Make the table, whose rows are marked as gone, or whose files are written again."""
    if place.get("v3"):  # PyIceberg writes none
        Path(place["folder"]).mkdir(parents=True, exist_ok=True)
        properties = {
            "write.merge.mode": "merge-on-read",
            "write.delete.mode": "merge-on-read",
            "format-version": "3",
        }
        sw.create(
            TABLE,
            change_tables.schema(),
            catalog=_named(catalog(place)),
            create_namespace=True,
            properties=properties,
        )
        for part in change_tables.base(load):
            opened(place, is_delta=False, group="never").append(part)
        return
    if not is_delta:
        mode = "merge-on-read" if marks else "copy-on-write"
        if place["name"] == "local":
            change_tables.make_iceberg(load, Path(place["folder"]), mode)
        else:
            change_tables.fill_iceberg(load, catalog(place), mode)
        return
    here = Path(place["folder"]) if place["name"] == "local" else folder / "made"
    change_tables.make_delta(load, here, vectors=marks)
    if place["name"] != "local":
        _upload(here, place["s3"])


def _upload(made: Path, endpoint_url: str) -> None:
    from ..servers.servers import boto3_client

    s3 = boto3_client("s3", endpoint_url)
    for path in made.rglob("*"):
        if path.is_file():
            s3.upload_file(str(path), BUCKET, f"t/{path.relative_to(made)}")


def _named(catalog: Any) -> dict[str, str]:
    """What a catalog is made of: safewrite's own writes version 3, PyIceberg's does not."""
    return {"name": catalog.name, "type": "sql", **catalog.properties}


def opened(place: Place, *, is_delta: bool, group: str) -> Any:
    """The table, by safewrite."""
    if not is_delta:
        there = catalog(place)
        return sw.open(TABLE, catalog=_named(there) if place.get("v3") else there, group=group)
    how: dict[str, Any] = {}
    if place["name"] != "local":
        arbiter = "dynamodb" if place["locks"] else "object-store"
        how = {"storage_options": place["options"], "lock_table": place["locks"], "arbiter": arbiter}
    return sw.open(place["folder"], group=group, **how)
