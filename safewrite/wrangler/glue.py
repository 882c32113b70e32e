"""Registers Delta tables in Glue's catalog, where Athena, Spark and Redshift find tables by name."""

from __future__ import annotations

from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

import safewrite as sw
from safewrite.wrangler import arguments
from safewrite.wrangler.athena_types import glue_type
from safewrite.wrangler.delta import opened

if TYPE_CHECKING:
    import boto3

_DELTA = {
    "EXTERNAL": "TRUE",
    "classification": "delta",
    "spark.sql.sources.provider": "delta",
    "table_type": "DELTA",
}
"""By ``spark.sql.sources.provider`` Spark and Athena know a Delta table, by the others Glue's own tools do."""
_FORMATS = {
    "InputFormat": "org.apache.hadoop.mapred.SequenceFileInputFormat",
    "OutputFormat": "org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat",
}
_SERDE = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
_KEPT = ("Description", "Owner", "Retention", "PartitionKeys")
"""What others may have set, and an update sends back."""
_RIVALS_MAX = 5

Registered = Literal["created", "updated", "unchanged"]


def register_deltalake(
    path: str,
    database: str,
    table: str,
    *,
    lock_dynamodb_table: str | None = None,
    boto3_session: boto3.Session | None = None,
    s3_additional_kwargs: dict[str, str] | None = None,
    catalog_id: str | None = None,
) -> Registered:
    """Register a Delta table in Glue, so that Athena and Spark find it by name; again, to tell Glue of new columns.

    Rows need no second call: Glue holds the table's place and columns, and readers read the table's own log.

    Args:
        path, lock_dynamodb_table, boto3_session, s3_additional_kwargs: as for :func:`to_deltalake`.
        database, table: the name in Glue; the database must be there.
        catalog_id: the AWS account whose Glue it is, if it is another.

    Returns:
        What it did: ``"created"``, ``"updated"`` or ``"unchanged"``.

    Raises:
        TableNotFoundError: no Delta table is at the path.
        ConflictError: kind TABLE_EXISTS; the name is that of another table, which is left as it is.
        InvalidInputError: a local path; Glue has no such database.
        StorageError: Glue refused, or did not answer; the call may be repeated.
    """
    boto3_session = arguments.session(boto3_session, s3_additional_kwargs)
    found = opened(path, lock_dynamodb_table, boto3_session, s3_additional_kwargs)
    if not found.uri.startswith("s3://"):
        raise sw.InvalidInputError(
            f"{found.uri} is a local folder, where readers of Glue's catalog cannot look. Nothing was written. Give "
            "s3://bucket/path."
        )
    wanted = _input(table, found)
    where = {"DatabaseName": database} | ({"CatalogId": catalog_id} if catalog_id is not None else {})
    try:
        return _registered(_client(boto3_session), where, wanted)
    except sw.SafewriteError:
        raise
    except Exception as error:
        if _code(error) == "EntityNotFoundException":
            raise sw.InvalidInputError(_no_database(_client(boto3_session), database, where)) from error
        raise sw.StorageError(
            f"{database}.{table} was not registered in Glue: {type(error).__name__}: {error}. Nothing was written to the Delta "
            "table, which is as it was. Check region, permissions (glue:GetTable, CreateTable, UpdateTable), then call "
            "again."
        ) from error


def _code(error: Exception) -> str:
    answer = getattr(error, "response", None)
    return str((answer or {}).get("Error", {}).get("Code", ""))


def _no_database(glue: Any, database: str, where: dict[str, Any]) -> str:
    account = {name: value for name, value in where.items() if name == "CatalogId"}
    known: list[str] = []
    with suppress(Exception):  # only the text depends on it
        pages = glue.get_paginator("get_databases").paginate(**account)
        known = [one["Name"] for page in pages for one in page["DatabaseList"]]
    near = get_close_matches(database, known, 5) or sorted(known)[:5]
    return (
        f"Glue has no database {database!r}"
        + (f"; it has {', '.join(map(repr, near))}" if near else "")
        + ". Nothing was written to "
        "the Delta table, which is as it was. Correct the name, or make the database: aws glue create-database."
    )


def _client(session: boto3.Session | None) -> Any:
    import boto3

    maker: Any = session or boto3.Session()
    return maker.client("glue")


def _input(name: str, table: sw.Table) -> dict[str, Any]:
    """Glue's description of a Delta table, with all columns as columns: Delta's log knows the partitions.

    Sources: Athena's user guide, "Synchronize Delta Lake metadata"; Spark's HiveExternalCatalog, which takes the
    location from the parameter ``path`` of the SerDe.
    """
    location = table.uri
    columns = [{"Name": field.name, "Type": glue_type(field.type)} for field in table.schema]
    serde = {
        "SerializationLibrary": _SERDE,
        "Parameters": {"serialization.format": "1", "path": location},
    }
    return {
        "Name": name,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": dict(_DELTA),
        "PartitionKeys": [],
        "StorageDescriptor": {"Columns": columns, "Location": location, "SerdeInfo": serde, **_FORMATS},
    }


def _registered(glue: Any, where: dict[str, Any], wanted: dict[str, Any]) -> Registered:
    """Create or update the entry; an entry that changed since it was read is read again."""
    rivals = (glue.exceptions.AlreadyExistsException, glue.exceptions.ConcurrentModificationException)
    for turn in range(1, _RIVALS_MAX + 1):
        try:
            return _once(glue, where, wanted)
        except rivals:
            if turn == _RIVALS_MAX:
                raise
    raise AssertionError("unreachable")


def _once(glue: Any, where: dict[str, Any], wanted: dict[str, Any]) -> Registered:
    try:
        there = glue.get_table(**where, Name=wanted["Name"])["Table"]
    except glue.exceptions.EntityNotFoundException:
        glue.create_table(**where, TableInput=wanted)  # says by the same error that the database is missing
        return "created"
    _refuse_other(there, wanted)
    changed = _changed(there, wanted)
    if all(there.get(name) == changed[name] for name in ("Parameters", "StorageDescriptor")):
        return "unchanged"
    version = {"VersionId": there["VersionId"]} if "VersionId" in there else {}
    glue.update_table(**where, TableInput=changed, SkipArchive=True, **version)
    return "updated"


def _changed(there: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """The entry with the table's columns and place; what others wrote into it stays."""
    known, storage = there["StorageDescriptor"], wanted["StorageDescriptor"]
    keys = {column["Name"] for column in there.get("PartitionKeys", ())}
    before = {column["Name"]: column for column in known.get("Columns", ())}
    columns = [
        {**before.get(one["Name"], {}), **one} for one in storage["Columns"] if one["Name"] not in keys
    ]
    serde = {**storage["SerdeInfo"], **known.get("SerdeInfo", {})}
    serde["Parameters"] = {**serde.get("Parameters", {}), **storage["SerdeInfo"]["Parameters"]}
    return {
        **wanted,
        **{name: there[name] for name in _KEPT if there.get(name)},
        "Parameters": {**there.get("Parameters", {}), **wanted["Parameters"]},
        "StorageDescriptor": {**storage, **known, "Columns": columns, "SerdeInfo": serde},
    }


def _refuse_other(there: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Refuse to turn another table's name into this one's."""
    parameters = {name.lower(): str(value).lower() for name, value in there.get("Parameters", {}).items()}
    is_delta = "delta" in (parameters.get("spark.sql.sources.provider"), parameters.get("table_type"))
    storage = there.get("StorageDescriptor", {})
    places = {storage.get("Location"), storage.get("SerdeInfo", {}).get("Parameters", {}).get("path")}
    if is_delta and wanted["StorageDescriptor"]["Location"] in {_place(one) for one in places}:
        return
    raise sw.ConflictError(
        f"Glue has {there.get('DatabaseName')}.{there['Name']} already, as {'a Delta' if is_delta else 'another'} table at "
        f"{storage.get('Location')}; it was left as it was. Choose another name, or delete that entry if it is not needed.",
        kind=sw.Kind.TABLE_EXISTS,
    )


def _place(location: str | None) -> str:
    """A location in safewrite's spelling."""
    scheme, _, rest = (location or "").partition("://")
    return f"s3://{rest.rstrip('/')}" if scheme in ("s3", "s3a", "s3n") else (location or "")
