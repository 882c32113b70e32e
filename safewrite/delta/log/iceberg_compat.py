"""Says what a table asks of its schema and files so that Iceberg's metadata can name them, too.

Sources: Delta PROTOCOL.md, "Iceberg Compatibility V1" and "V2"; the RFCs "IcebergCompatV3" and "Materialize Partition Columns".  None of
them asks a writer for Iceberg's metadata: the engine that keeps these (UniForm) makes them of the log, after commits of its own.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from safewrite.delta.log import column_names, stamps

if TYPE_CHECKING:
    from safewrite.delta.log.snapshot import Snapshot

FEATURES: Mapping[str, int] = {"icebergCompatV1": 1, "icebergCompatV2": 2, "icebergCompatV3": 3}
FORMATS = "delta.universalFormat.enabledFormats"
MATERIALIZED = "materializePartitionColumns"
TAG = "ICEBERG_COMPAT_VERSION"
"""By which Spark knows files that need not be written again for Iceberg."""
VECTORS, VECTORS_WANTED = "deletionVectors", "delta.enableDeletionVectors"
ROW_ID_FIELDS = (2147483540, 2147483539)
"""What Iceberg calls the columns of row ids, and of the versions that changed rows last, in files."""

_TYPES = frozenset(
    [
        "byte",
        "short",
        "integer",
        "long",
        "float",
        "double",
        "string",
        "binary",
        "boolean",
        "timestamp",
        "timestamp_ntz",
        "date",
    ]
)
_WIDER = {
    ("byte", "short"), ("byte", "integer"), ("byte", "long"), ("short", "integer"), ("short", "long"), ("integer", "long"), ("float", "double"),
}  # fmt: skip


def version_of(state: Snapshot) -> int:
    """By which rules files are made that Iceberg reads; 0: by none, whatever the protocol lists."""
    return state.derived(_version_of)


def _version_of(state: Snapshot) -> int:
    return max((number for name, number in FEATURES.items() if stamps.is_on(state, _switch(name))), default=0)


def _switch(feature: str) -> str:
    return f"delta.enable{feature[0].upper()}{feature[1:]}"


def materializes(state: Snapshot) -> bool:
    """Whether data files have the partition columns, too."""
    return bool(version_of(state)) or MATERIALIZED in (state.protocol.get("writerFeatures") or ())


def formats(properties: Mapping[str, str]) -> list[str]:
    """The formats whose readers an engine keeps a copy of the metadata for (UniForm)."""
    return [one.strip().lower() for one in properties.get(FORMATS, "").split(",") if one.strip()]


def copy_of(state: Snapshot) -> str:
    """What is to be said of the copy of the metadata that Iceberg's readers have; '' where there is none."""
    if "iceberg" not in formats(state.properties):
        return ""
    return (
        f"Iceberg's readers of this table ({FORMATS} = iceberg) see no commit of safewrite until the engine that keeps its Iceberg metadata has "
        "brought them up to date: they see an older version, whole. Databricks does so with its own next commit or OPTIMIZE, or at once: MSCK REPAIR TABLE t SYNC METADATA."
    )


def refused(state: Snapshot, feature: str, listed: Collection[str]) -> str | None:
    """Why a table that wants such files could have none; None where it can, or does not want them.

    ``listed`` are the features that its protocol has.
    """
    number, why = FEATURES[feature], None
    if not stamps.is_on(state, _switch(feature)):
        return None
    schema = json.loads(state.schema_string)
    others = [name for name in FEATURES if name != feature and stamps.is_on(state, _switch(name))]
    if feature not in listed:
        why = "the protocol does not list the feature"
    elif others:
        why = f"{', '.join(others)} would ask for other files"
    elif state.mapping not in column_names.MODES:
        why = f"files need ids of columns ({column_names.MODE} of name or id)"
    elif (VECTORS in listed) if number == 1 else (number == 2 and stamps.is_on(state, VECTORS_WANTED)):
        why = "its files may not have deletion vectors"
    elif number == 3 and stamps.stamping(state).kept is None:
        why = "rows need ids (delta.enableRowTracking = true)"
    elif unfit := sorted({kind for kind in _kinds(schema) if not _fits(kind, number)}):
        why = f"Iceberg's rules have no type {', '.join(unfit)}"
    elif number > 1 and (lacking := [*_without_ids(schema)]):
        why = f"the schema does not say the ids of what is in {', '.join(lacking)}"
    elif wider := [*_unlike_iceberg(schema)]:
        why = f"Iceberg widens no {', '.join(wider)}"
    return f"{why} ({_switch(feature)} = true)" if why else None


def _fits(kind: str, number: int) -> bool:
    if kind in {"array", "map"}:
        return number > 1
    return kind in _TYPES or kind in {"struct", "decimal"} or (number > 2 and kind == "variant")


def _kinds(kind: Any) -> Iterator[str]:
    """The names of all types in one."""
    if isinstance(kind, str):
        yield kind.partition("(")[0]
        return
    yield str(kind.get("type"))
    for field in kind.get("fields") or ():
        yield from _kinds(field["type"])
    for inner in ("elementType", "keyType", "valueType"):
        if inner in kind:
            yield from _kinds(kind[inner])


def _without_ids(schema: Any) -> Iterator[str]:
    """The fields of which lists and maps have no ids."""
    for field in column_names.every_field(schema):
        known = (field.get("metadata") or {}).get(column_names.NESTED_IDS) or {}
        if any(path not in known for path in column_names.nested_paths(field)):
            yield field["name"]


def _unlike_iceberg(schema: Any) -> Iterator[str]:
    """The changes of types that the schema tells and Iceberg does not have."""
    for field in column_names.every_field(schema):
        for change in (field.get("metadata") or {}).get("delta.typeChanges") or ():
            both = str(change.get("fromType")), str(change.get("toType"))
            scales = [one.rpartition(",")[2].strip() for one in both]
            if both not in _WIDER and not (
                both[0].startswith("decimal(") and both[1].startswith("decimal(") and scales[0] == scales[1]
            ):
                yield f"{both[0]} to {both[1]}"
