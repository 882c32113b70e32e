"""Leads users of other libraries to the right call: what they type first, and what it is called here."""

from __future__ import annotations

from collections.abc import Iterable

_READ = "read the table with an engine (deltalake, polars, DuckDB, Spark, PyIceberg), some of its rows with rows(keys) or rows(where=...)"
_KEEP = "safewrite does not do it: let an engine do it on this table (deltalake, Spark, PyIceberg), next to safewrite's writers"
_UNUSED = "use maintain(remove_unused=True), which removes in a later run what one run has listed"

METHODS = {
    "merge": "upsert and delete by key with apply_changes(rows, keys=[...], sequence_by=[...])",
    "upsert": "upsert and delete by key with apply_changes(rows, keys=[...], sequence_by=[...])",
    "update": "change rows by key with apply_changes(rows, keys=[...], sequence_by=[...]), or replace them with overwrite(rows, where=...)",
    "insert": "use append(rows, key=...)",
    "write": "use append(rows, key=...) or overwrite(rows, where=..., key=...)",
    "write_deltalake": "use open(path, create=True).append(rows), or safewrite.wrangler.to_deltalake(rows, path)",
    "to_deltalake": "it is in safewrite.wrangler",
    "to_iceberg": "it is in safewrite.wrangler",
    "DeltaTable": "use open(path)",
    "load_table": "use open(name, catalog=...)",
    "load_catalog": "use open(name, catalog=...)",
    "create_table": "use create(path, schema=...)",
    "to_pandas": _READ,
    "to_arrow": _READ,
    "to_pyarrow_table": _READ,
    "to_polars": _READ,
    "to_duckdb": _READ,
    "scan": _READ,
    "read": _READ,
    "load": _READ,
    "files": "committed_writes(version) and added_by(version) tell what a commit wrote",
    "vacuum": _UNUSED,
    "optimize": "use maintain()",
    "compact": "use maintain()",
    "expire_snapshots": "use maintain(), which expires them by the table's own properties",
    "remove_orphan_files": _UNUSED,
    "rewrite_data_files": "use maintain()",
    "restore": _KEEP,
    "alter": _KEEP,
    "create_checkpoint": "use checkpoint()",
    "current_snapshot": "version is the newest snapshot that this object has seen; refresh() looks again",
    "upsert_by_key": "use apply_changes(rows, keys=[...], sequence_by=[...])",
    "overwrite_partitions": "use overwrite(rows, where=...)",
    "foreachBatch": "use stream.writeStream.foreachBatch(table.sink('append', app_id=...))",
    "writeStream": "use stream.writeStream.foreachBatch(table.sink('append', app_id=...))",
}
"""What other libraries call a thing, and what to do here."""

ARGUMENTS = {
    "mode": "append and overwrite are verbs of their own; open(create=True) makes a table that is not there",
    "partition_cols": "it is partition_by= of open(create=True) and create()",
    "partitionBy": "it is partition_by= of open(create=True) and create()",
    "lock_dynamodb_table": "it is lock_table=",
    "s3_allow_unsafe_rename": "unsafe renames lose rows, and nothing turns them on: give lock_table= or arbiter='object-store'",
    "configuration": "it is properties= of open(create=True) and create()",
    "table_properties": "it is properties= of open(create=True) and create()",
    "snapshot_properties": "it is properties=",
    "commit_properties": "it is properties=; txn=(app_id, version) or key= name the write",
    "app_transactions": "it is txn=(app_id, version)",
    "txnAppId": "it is txn=(app_id, version)",
    "txnVersion": "it is txn=(app_id, version)",
    "predicate": "it is where=",
    "delete_filter": "it is where=",
    "overwrite_filter": "it is where=",
    "on": "it is keys=",
    "join_cols": "it is keys=",
    "merge_cols": "it is keys=",
    "merge_keys": "it is keys=",
    "schema_evolution": "it is schema_mode='merge'",
    "mergeSchema": "it is schema_mode='merge'",
    "idempotency_key": "it is key=",
    "endpoint_url": "give it as storage_options={'AWS_ENDPOINT_URL': ...}",
    "region": "give it as storage_options={'AWS_REGION': ...}",
    "dynamodb_table": "it is lock_table=",
}
"""Arguments of other libraries, and what they are here."""

SPARK_FORMAT = (
    "safewrite is not a format of Spark. Nothing was read or written. Write a frame with safewrite.open(path_or_name).append(df, "
    "key=...), a stream with stream.writeStream.foreachBatch(table.sink('append', app_id=...)), and let plain Delta writes of a "
    "session go through safewrite with safewrite.spark.configure(builder). Read the table with spark.read.format('delta') or "
    "spark.table(name)."
)
"""For ``spark.read.format("safewrite")`` and ``df.write.format("safewrite")``."""

MISSING = {
    "app_id": "app_id= names the stream, so that a batch that comes again is not written twice: table.sink('append', app_id='orders-stream')",
    "keys": "keys= names the columns that tell rows apart",
    "sequence_by": "sequence_by= names the columns that say which change of a key is newer, such as an LSN or a time",
}


def of_attribute(owner: str, name: str) -> str:
    """The text of an AttributeError."""
    hint = METHODS.get(name)
    return f"{owner} has no attribute {name!r}" + (f": {hint}" if hint else "")


def of_call(text: str, given: Iterable[str]) -> str:
    """The text of Python's TypeError about arguments, and what to give instead."""
    hints = [f"{name}=: {ARGUMENTS[name]}" for name in given if name in ARGUMENTS and repr(name) in text]
    hints += [hint for name, hint in MISSING.items() if repr(name) in text and "missing" in text]
    return ". ".join([text, *hints])
