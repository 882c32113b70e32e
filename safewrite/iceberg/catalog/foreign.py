"""Loads tables of a catalog, and says what a name is that stands for something else than an Iceberg table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyiceberg.exceptions import NoSuchIcebergTableError, NoSuchPropertyException

from safewrite.errors import UnsupportedTableError
from safewrite.iceberg.catalog.damaged import SAFE, check_whole, is_of_statistics, unread
from safewrite.iceberg.data.opaque import any_statistics, opaque_types
from safewrite.text.rendering import said

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_NO_DEFAULT = re.compile(r"Cannot deserialize bytes, type (.+) not supported")
_SEVERAL_SOURCES = "Multi argument transforms"
_FILES = ("Parquet", "ORC", "Avro", "JSON", "CSV")
_OTHER_NAME = "Give the Iceberg table another name, or, if this entry is not needed, delete it in Glue first."


def load_table(catalog: Catalog, identifier: tuple[str, ...]) -> Table:
    """The table of this name, as the catalog's own ``load_table``, also where columns have types that PyIceberg does not know.

    Raises:
        UnsupportedTableError: the name is another kind of table, a view or a link; the table has a default or a transform that
            PyIceberg does not read; its metadata is of a newer format version, or not as the specification has it.
        Exception: whatever the catalog raises else.
    """
    name = ".".join(identifier)
    try:
        found = _loaded(catalog, identifier)
    except Exception as error:
        refusal = unread_part(error, name) or unread(error, name) or _in_glue(catalog, identifier, error)
        if refusal is None:
            raise
        raise refusal from error
    check_whole(found.metadata, name)
    if [part.lower() for part in found.name()] != [part.lower() for part in identifier]:
        # Glue follows a link to a database of another account, and says that one's name, which has no meaning in this account.
        found._identifier = identifier  # noqa: SLF001 - a table of PyIceberg takes its name once
    return found


def _loaded(catalog: Catalog, identifier: tuple[str, ...]) -> Table:
    with opaque_types():
        try:
            return catalog.load_table(identifier)
        except Exception as error:
            if not is_of_statistics(error):
                raise
        any_statistics()
        return catalog.load_table(identifier)


def unread_part(error: Exception, name: str) -> UnsupportedTableError | None:
    """The refusal of a table with a default or a transform that PyIceberg does not read, if the error is that."""
    if (default := _NO_DEFAULT.search(said(error))) is not None:
        return UnsupportedTableError(
            f"A column of {name} has a default of type {default[1]}, and PyIceberg reads defaults of plain types alone. {SAFE} Drop the "
            "default of the whole column with the engine that set it (its fields may have defaults), or read and write the table with it."
        )
    if _SEVERAL_SOURCES in said(error):
        return UnsupportedTableError(
            f"{name} is partitioned or sorted by a transform of several columns, which PyIceberg does not read. {SAFE} Read and write it "
            "with the engine that made it, or take a newer version of PyIceberg and safewrite."
        )
    return None


def _in_glue(catalog: Any, identifier: tuple[str, ...], error: Exception) -> UnsupportedTableError | None:
    """The refusal of an entry of Glue that is no Iceberg table, if the error is PyIceberg's about one."""
    glue = getattr(catalog, "glue", None)
    if glue is None or not (
        isinstance(error, NoSuchPropertyException | NoSuchIcebergTableError)
        or (type(error) is ValueError and str(error).startswith("Glue table is missing"))
    ):
        return None
    try:
        entry = glue.get_table(DatabaseName=identifier[-2], Name=identifier[-1])["Table"]
    except Exception:  # noqa: BLE001 - gone since, or not readable: the first error stands
        return None
    what, advice = what_it_is(entry)
    return UnsupportedTableError(
        f"{'.'.join(identifier)} is {what} in Glue, no Iceberg table. {SAFE} {advice}"
    )


def what_it_is(entry: Mapping[str, Any]) -> tuple[str, str]:
    """What an entry of Glue is, and where to go with it."""
    parameters = {name.lower(): str(value) for name, value in (entry.get("Parameters") or {}).items()}
    storage = entry.get("StorageDescriptor") or {}
    kinds = {
        parameters.get(name, "").lower()
        for name in ("table_type", "spark.sql.sources.provider", "classification")
    }
    reader = (
        f"{storage.get('InputFormat', '')} {(storage.get('SerdeInfo') or {}).get('SerializationLibrary', '')}"
    )
    place = _place(storage)
    at = f" at {place}" if place else ""
    if link := entry.get("TargetTable"):
        target = f"{link.get('DatabaseName')}.{link.get('Name')}"
        account = f" of account {link['CatalogId']}" if link.get("CatalogId") else ""
        there = f", with the property glue.id={link['CatalogId']!r} of the catalog" if account else ""
        return f"a resource link to {target}{account}", f"Open {target!r} itself{there}."
    if "view" in str(entry.get("TableType", "")).lower():
        return "a view", "Write to the table that it reads."
    if "iceberg" in kinds:
        advice = (
            "If another tool is making it just now, call again. Else an update of the entry (CloudFormation, Terraform) took "
            "metadata_location away: set it to the table's newest metadata file again."
        )
        return "entered as an Iceberg table without metadata_location,", advice
    if "delta" in kinds:
        opened = f"safewrite.open({place!r})" if place else "safewrite.open() and its path"
        return f"a Delta table{at}", f"Open it by its path, without catalog=: {opened}."
    if "hudi" in kinds or "hudi" in reader:
        return f"a Hudi table{at}", f"safewrite writes Delta and Iceberg. {_OTHER_NAME}"
    told = f"{kinds} {reader}".lower()
    files = next((f" of {name} files" for name in _FILES if name.lower() in told), "")
    return f"a Hive table{files}{at}", f"safewrite writes Delta and Iceberg. {_OTHER_NAME}"


def _place(storage: Mapping[str, Any]) -> str:
    """Where an entry's table is; Spark has it in the SerDe, and leaves a placeholder as the location."""
    path = ((storage.get("SerdeInfo") or {}).get("Parameters") or {}).get("path")
    found = str(path or storage.get("Location") or "").removesuffix("-__PLACEHOLDER__")
    return re.sub(r"^s3[an]://", "s3://", found).rstrip("/")
