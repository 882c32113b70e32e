"""Encodes a checkpoint as one Parquet file (PROTOCOL.md, "Checkpoint Schema")."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import pyarrow as pa

from safewrite.delta.log import columns, parsed_stats, ranges
from safewrite.delta.log.actions import Action
from safewrite.delta.log.features import interval_s
from safewrite.delta.log.replay import (
    LogFiles,
    LogReplay,
    Replay,
    note_part,
)
from safewrite.delta.log.snapshot import Snapshot
from safewrite.errors import UnsafeConfigError, UnsupportedTableError
from safewrite.text.rendering import said

log = logging.getLogger("safewrite")

TOMBSTONE_RETENTION_DEFAULT = "interval 1 week"
ROWS_PER_GROUP = 50_000


def _struct(**fields: pa.DataType) -> pa.StructType:
    """A struct type; a field whose name ends in ``_`` is required."""
    return pa.struct(
        [pa.field(name.rstrip("_"), kind, nullable=not name.endswith("_")) for name, kind in fields.items()]
    )


_TEXT, _LONG, _INT, _FLAG = pa.string(), pa.int64(), pa.int32(), pa.bool_()
_TEXTS = pa.list_(pa.field("element", _TEXT, nullable=False))
_SETTINGS = pa.map_(_TEXT, pa.field("value", _TEXT, nullable=False))
_VALUES = pa.map_(_TEXT, _TEXT)
_VECTOR = _struct(
    storageType_=_TEXT, pathOrInlineDv_=_TEXT, offset=_INT, sizeInBytes_=_INT, cardinality_=_LONG
)

SCHEMA = pa.schema(
    {
        "protocol": _struct(
            minReaderVersion_=_INT, minWriterVersion_=_INT, readerFeatures=_TEXTS, writerFeatures=_TEXTS
        ),
        "metaData": _struct(
            id_=_TEXT,
            name=_TEXT,
            description=_TEXT,
            format_=_struct(provider_=_TEXT, options_=_SETTINGS),
            schemaString_=_TEXT,
            partitionColumns_=_TEXTS,
            createdTime=_LONG,
            configuration_=_SETTINGS,
        ),
        "txn": _struct(appId_=_TEXT, version_=_LONG, lastUpdated=_LONG),
        "domainMetadata": _struct(domain_=_TEXT, configuration_=_TEXT, removed_=_FLAG),
        "add": _struct(
            path_=_TEXT,
            partitionValues_=_VALUES,
            size_=_LONG,
            modificationTime_=_LONG,
            dataChange_=_FLAG,
            stats=_TEXT,
            tags=_VALUES,
            deletionVector=_VECTOR,
            baseRowId=_LONG,
            defaultRowCommitVersion=_LONG,
            clusteringProvider=_TEXT,
        ),
        "remove": _struct(
            path_=_TEXT,
            deletionTimestamp=_LONG,
            dataChange_=_FLAG,
            extendedFileMetadata=_FLAG,
            partitionValues=_VALUES,
            size=_LONG,
            deletionVector=_VECTOR,
            baseRowId=_LONG,
            defaultRowCommitVersion=_LONG,
        ),
    }
)


def schema_of(state: Snapshot) -> pa.Schema:
    """The columns of a table's checkpoints, with what it asks for in its own types."""
    more = list(parsed_stats.fields(state))
    if not more:
        return SCHEMA
    add = SCHEMA.field("add")
    return SCHEMA.set(SCHEMA.get_field_index("add"), add.with_type(pa.struct([*add.type, *more])))


@dataclass(frozen=True, slots=True)
class Encoded:
    """A checkpoint file, and how many actions and files it holds."""

    body: bytes
    rows: int
    adds: int


def encoded(found: LogFiles, now_ms: float) -> Encoded:
    """The checkpoint of what the log holds, of which tombstones expire by the log's newest time, or ``now_ms`` if that is earlier.

    Raises:
        StorageError: kind CORRUPT_LOG; the checkpoint before it cannot be read.
        UnsupportedTableError: an action has a value that no checkpoint can hold.
    """
    if found.parts and not any(path.endswith(".json") for path in found.parts):
        try:
            return _encoded_by_columns(found, now_ms)
        except columns.NotPlainError as error:
            # Another engine's checkpoint has a form of its own: action by action.
            log.info("the checkpoint before is read action by action: %s", said(error))
    return encode(found.replayed(), now_ms)


def _encoded_by_columns(found: LogFiles, now_ms: float) -> Encoded:
    """Most actions as the checkpoint before has them, those of later commits one by one."""
    replay = Replay()
    for path, body in found.parts.items():
        note_part(replay, path, body)
    for commit in found.commits:
        replay.apply(commit)
    later = replay.files(found.state)
    touched = {*later.adds, *later.tombstones}
    parts, schema = list(found.parts.values()), schema_of(found.state)
    adds, removes = (
        columns.kept(parts, root, schema.field(root).type, touched) for root in ("add", "remove")
    )
    before = {
        "add": parsed_stats.completed(adds),
        "remove": columns.since(removes, "deletionTimestamp", _oldest_ms(later, now_ms)),
    }
    before = {root: columns.constant(rows, {"dataChange": False}) for root, rows in before.items()}
    return _written(later, before, now_ms)


def encode(files: LogReplay, now_ms: float) -> Encoded:
    """The checkpoint file of a full list of files.  Raises as :func:`encoded`."""
    return _written(files, {}, now_ms)


def _written(files: LogReplay, before: Mapping[str, pa.StructArray], now_ms: float) -> Encoded:
    """A checkpoint of some actions, and of those that are columns already.

    Protocol, metadata, transactions and domains are a row group of their own, the last one: a
    reader that wants no files finds it in the tail that it fetches for the footer anyway.
    """
    import pyarrow.parquet as pq

    actions = {"remove": list(_unexpired(files, now_ms)), "add": list(files.adds.values())}
    state = files.state
    schema = schema_of(state)
    head: list[tuple[str, Action]] = [("protocol", state.protocol), ("metaData", _metadata(state.metadata))]
    head += [("txn", txn) for txn in files.txns.values()]
    head += [("domainMetadata", domain) for domain in files.domains.values()]
    counts = {root: len(actions[root]) + len(before.get(root, ())) for root in actions}
    sink = BytesIO()
    with pq.ParquetWriter(
        sink,
        schema,
        compression="snappy",
        store_schema=False,
        write_statistics=list(ranges.REQUIRED.values()),
        write_page_checksum=True,
    ) as writer:
        for root, later in actions.items():
            parts = [_rows_table(schema, root, before[root])] if root in before else []
            parts += [
                _file_table(schema, root, later[first : first + ROWS_PER_GROUP])
                for first in range(0, len(later), ROWS_PER_GROUP)
            ]
            if counts[root]:  # few groups: a reader of a short list pays for each
                writer.write_table(pa.concat_tables(parts), row_group_size=ROWS_PER_GROUP)
        writer.write_table(_head_table(schema, head))
    return Encoded(sink.getvalue(), len(head) + sum(counts.values()), counts["add"])


def _rows_table(schema: pa.Schema, root: str, rows: pa.StructArray) -> pa.Table:
    others = {field.name: pa.array([None] * len(rows), field.type) for field in schema if field.name != root}
    return pa.table({name: rows if name == root else others[name] for name in schema.names}, schema=schema)


def _unexpired(files: LogReplay, now_ms: float) -> Iterator[Action]:
    """Tombstones that VACUUM may still need."""
    oldest_ms = _oldest_ms(files, now_ms)
    for tombstone in files.tombstones.values():
        removed_ms = tombstone.get("deletionTimestamp")
        if removed_ms is None or removed_ms >= oldest_ms:
            yield tombstone


def _oldest_ms(files: LogReplay, now_ms: float) -> float:
    """The time from which tombstones are kept: no writer whose clock is ahead lets one go that VACUUM needs, nor a maintainer."""
    text = files.state.properties.get("delta.deletedFileRetentionDuration", TOMBSTONE_RETENTION_DEFAULT)
    try:
        return min(files.newest_ms, now_ms) - interval_s(text) * 1000
    except UnsafeConfigError:
        return 0  # not a duration: keep them all


def _metadata(metadata: Action) -> Action:
    kind = metadata.get("format") or {}
    return {
        **metadata,
        "format": {
            "provider": kind.get("provider") or "parquet",
            "options": _pairs(kind.get("options") or {}),
        },
        "partitionColumns": metadata.get("partitionColumns") or [],
        "configuration": _pairs(metadata.get("configuration") or {}),
    }


def _file(root: str, action: Action) -> Action:
    row = dict(action)
    for name in ("partitionValues", "tags"):
        if row.get(name) is not None:
            row[name] = _pairs(row[name])
    if root == "add":
        row["partitionValues"] = row.get("partitionValues") or []
    row["dataChange"] = False  # reading a snapshot changes no data
    return row


def _pairs(mapping: dict[str, Any]) -> list[tuple[str, Any]]:
    return list(mapping.items())


def _head_table(schema: pa.Schema, actions: Sequence[tuple[str, Action]]) -> pa.Table:
    return _table(
        schema,
        {root: [action if name == root else None for name, action in actions] for root in schema.names},
    )


def _file_table(schema: pa.Schema, root: str, actions: Sequence[Action]) -> pa.Table:
    if root == "add" and schema is not SCHEMA:
        rows = _column([_file(root, action) for action in actions], SCHEMA.field(root))
        return _rows_table(
            schema, root, parsed_stats.completed(columns.as_type(rows, schema.field(root).type))
        )
    rows = [_file(root, action) for action in actions]
    return _table(schema, {name: rows if name == root else [None] * len(rows) for name in schema.names})


def _table(schema: pa.Schema, columns: Mapping[str, Sequence[Action | None]]) -> pa.Table:
    # Not pa.nulls(): that puts NULLs into the required fields of absent structs.
    return pa.table({field.name: _column(columns[field.name], field) for field in schema}, schema=schema)


def _column(actions: Sequence[Action | None], field: pa.Field) -> pa.Array:
    """Actions as a column; a value of another type becomes what Java's readers would take it for.

    Raises:
        UnsupportedTableError: an action has a value that no checkpoint can hold.
    """
    try:
        return pa.array(actions, field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    try:
        return pa.array([_coerced(action, field.type) for action in actions], field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise UnsupportedTableError(
            f"A {field.name} action of the log has a value that no checkpoint can hold ({said(error)}). No checkpoint was made, "
            "and no row is touched. Look for the writer that made it; readers of the log may stumble over it too."
        ) from error


def _coerced(value: Any, kind: pa.DataType) -> Any:
    """A JSON value as one of this type: numbers and flags as texts, texts of digits as numbers."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {
            f.name: _coerced(value.get(f.name), f.type)
            for f in (kind.field(i) for i in range(kind.num_fields))
        }
    if pa.types.is_map(kind):
        return [(_coerced(key, kind.key_type), _coerced(item, kind.item_type)) for key, item in value]
    if pa.types.is_list(kind):
        return [_coerced(item, kind.value_type) for item in value]
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else json.dumps(value)
    if pa.types.is_integer(kind):
        return int(value)
    return value
