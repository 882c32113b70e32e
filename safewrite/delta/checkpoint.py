"""Checkpoints in the classic V1 form: one Parquet file (PROTOCOL.md, "Checkpoint Schema").

Written beside the commits and never in their way: created under a condition, so that no checkpoint
is ever replaced or mixed of two (B2), with ``_last_checkpoint`` as a hint only (B3).
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any

import pyarrow as pa

from safewrite.delta import listing, log, sparse
from safewrite.delta.features import check_append, interval_s
from safewrite.delta.files import ActiveFiles, load_files
from safewrite.delta.log import Action
from safewrite.delta.state import TableState
from safewrite.errors import UnsafeConfigError
from safewrite.protocol.ask import Limits, ask, unanswered
from safewrite.protocol.effects import (
    Backoff,
    Effect,
    Exists,
    Failed,
    Get,
    Ok,
    Outcome,
    Put,
    PutIfAbsent,
    Unknown,
)
from safewrite.protocol.fetch import fetch_one

INTERVAL_DEFAULT = 10
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


def due(state: TableState, version: int) -> bool:
    """Whether a checkpoint is due at ``version``: at each multiple of ``delta.checkpointInterval``.

    Each version has one writer, so each checkpoint has one natural maintainer.
    """
    text = state.properties.get("delta.checkpointInterval", "")
    interval = int(text) if text.isdecimal() and int(text) > 0 else INTERVAL_DEFAULT
    return version > 0 and version % interval == 0


def write_checkpoint(state: TableState, *, limits: Limits | None = None) -> Generator[Effect, Outcome, bool]:
    """Write the checkpoint of ``state.version`` from the one before it and the commits since.

    Returns False if there is one already, or if the table asks for a form of statistics in
    checkpoints that safewrite does not write.

    Raises:
        StorageError: the store failed; no checkpoint, or a whole one, is there.
        UnsupportedTableError: the table's features forbid writing.
    """
    limits = limits or Limits()
    check_append(state)
    if _other_form(state) or (state.checkpoint is not None and state.checkpoint.version >= state.version):
        return False
    files = yield from load_files(state, limits=limits)
    body, rows = encode(files)
    path = log.checkpoint_paths(state.version)[0]
    if not (yield from _create(path, body, limits)):
        return False
    yield from _point_at(state.version, rows=rows, size=len(body), adds=len(files.adds), limits=limits)
    return True


def _other_form(state: TableState) -> bool:
    """Statistics as structs need the table's own types; such a table's checkpoints are left to its engine."""
    as_json = state.properties.get("delta.checkpoint.writeStatsAsJson", "true").strip().lower()
    as_struct = state.properties.get("delta.checkpoint.writeStatsAsStruct", "false").strip().lower()
    return as_json == "false" or as_struct == "true"


def _create(path: str, body: bytes, limits: Limits) -> Generator[Effect, Outcome, bool]:
    """True if the checkpoint is ours; False if another stands there, which is then left alone."""
    in_doubt = False
    put = PutIfAbsent(path, body, name="checkpoint.put")
    outcome: Outcome = Unknown("never asked")
    for attempt in range(1, limits.asks + 1):
        outcome = yield put
        if isinstance(outcome, Ok):
            return True
        if isinstance(outcome, Exists):
            return in_doubt
        if isinstance(outcome, Failed):
            break
        in_doubt = in_doubt or isinstance(outcome, Unknown)
        if attempt < limits.asks:
            yield Backoff(attempt, name="checkpoint.put.backoff")
    raise unanswered(put, outcome)


def _point_at(
    version: int, *, rows: int, size: int, adds: int, limits: Limits
) -> Generator[Effect, Outcome, None]:
    """Move ``_last_checkpoint`` forward, never back."""
    answer = yield from fetch_one(Get(log.LAST_CHECKPOINT, name="checkpoint.get_hint"), limits)
    before = (
        listing.hint(answer.value) if isinstance(answer, Ok) and isinstance(answer.value, bytes) else None
    )
    if before is not None and before.version >= version:
        return
    hint = {"version": version, "size": rows, "sizeInBytes": size, "numOfAddFiles": adds}
    put = Put(
        log.LAST_CHECKPOINT, json.dumps(hint, separators=(",", ":")).encode(), name="checkpoint.put_hint"
    )
    outcome = yield from ask(put, limits)
    if not isinstance(outcome, Ok):
        raise unanswered(put, outcome)


# --- encoding ---------------------------------------------------------------------------------------
def encode(files: ActiveFiles) -> tuple[bytes, int]:
    """The checkpoint file and its number of rows.

    Protocol, metadata, transactions and domains are a row group of their own, the last one: a
    reader that wants no files finds it in the tail that it fetches for the footer anyway.
    """
    import pyarrow.parquet as pq

    tombstones = list(_unexpired(files))
    state = files.state
    head: list[tuple[str, Action]] = [("protocol", state.protocol), ("metaData", _metadata(state.metadata))]
    head += [("txn", txn) for txn in files.txns.values()]
    head += [("domainMetadata", domain) for domain in files.domains.values()]
    sink = BytesIO()
    with pq.ParquetWriter(
        sink,
        SCHEMA,
        compression="snappy",
        store_schema=False,
        write_statistics=list(sparse.REQUIRED.values()),
        write_page_checksum=True,
    ) as writer:
        for root, actions in (("remove", tombstones), ("add", list(files.adds.values()))):
            for first in range(0, len(actions), ROWS_PER_GROUP):
                writer.write_table(_file_table(root, actions[first : first + ROWS_PER_GROUP]))
        writer.write_table(_head_table(head))
    return sink.getvalue(), len(head) + len(files.adds) + len(tombstones)


def _unexpired(files: ActiveFiles) -> Iterator[Action]:
    """Tombstones that VACUUM may still need, by the log's own newest time: no clock is asked."""
    text = files.state.properties.get("delta.deletedFileRetentionDuration", TOMBSTONE_RETENTION_DEFAULT)
    try:
        oldest_ms = files.newest_ms - interval_s(text) * 1000
    except UnsafeConfigError:
        oldest_ms = 0  # not a duration: keep them all
    for tombstone in files.tombstones.values():
        removed_ms = tombstone.get("deletionTimestamp")
        if removed_ms is None or removed_ms >= oldest_ms:
            yield tombstone


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


def _head_table(actions: Sequence[tuple[str, Action]]) -> pa.Table:
    return _table(
        {root: [action if name == root else None for name, action in actions] for root in SCHEMA.names}
    )


def _file_table(root: str, actions: Sequence[Action]) -> pa.Table:
    rows = [_file(root, action) for action in actions]
    return _table({name: rows if name == root else [None] * len(rows) for name in SCHEMA.names})


def _table(columns: Mapping[str, Sequence[Action | None]]) -> pa.Table:
    # Not pa.nulls(): that puts NULLs into the required fields of absent structs.
    return pa.table(
        {field.name: pa.array(columns[field.name], field.type) for field in SCHEMA}, schema=SCHEMA
    )
