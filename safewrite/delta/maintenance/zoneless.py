"""Finds instants that are partition values without a zone, in the log or in the names of folders: readers take other times."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from urllib.parse import unquote

import pyarrow as pa

from safewrite.delta.log.actions import Action
from safewrite.delta.log.snapshot import Snapshot
from safewrite.findings import EXAMPLES, WARNING, Finding, Findings

_ADVICE = (
    "Let every session and machine that reads or writes it work in UTC (Spark: spark.sql.session.timeZone=UTC and "
    "spark.databricks.delta.write.utcTimestampPartitionValues=true). To be rid of it, write the rows into a table that is partitioned by a "
    "date or by a text."
)

_OF_VALUES = (
    "have a partition value without a zone, as deltalake writes it. safewrite, deltalake and polars read it as UTC, Spark and others as the "
    "time of their session or machine: there filters miss rows, and a rewrite moves them."
)
_OF_FOLDERS = (
    "lie in a folder whose name is another time than their partition value: the local time of the session that wrote them. Delta's "
    "readers take the log's value; readers that look at folders, polars among them, show and filter by the other."
)


def examine(state: Snapshot, adds: Iterable[Action]) -> Findings:
    """Judge the partition values of live files."""
    if state.mapping:
        return  # values go by physical names, and folders by none
    instants = [name for name in state.partition_by if _is_instant(state.schema.field(name).type)]
    if not instants:
        return
    values: list[str] = []
    folders: list[str] = []
    for add in adds:
        spelled = add.get("partitionValues") or {}
        parts = [part.partition("=") for part in add["path"].split("/")[:-1]]
        in_folder = {unquote(unquote(name)): unquote(unquote(text)) for name, _, text in parts}
        for name in instants:
            value, folder = _moment(spelled.get(name)), _moment(in_folder.get(name))
            if value is not None and value.tzinfo is None:
                values.append(add["path"])
            elif value is not None and folder is not None and _utc(folder) != _utc(value):
                folders.append(add["path"])
    for code, paths, what in (
        ("zoneless_partition_values", values, _OF_VALUES),
        ("local_partition_folders", folders, _OF_FOLDERS),
    ):
        if paths:
            yield Finding(
                WARNING, code,
                f"The table is partitioned by instants ({', '.join(instants)}), and {len(paths)} of its files {what}", _ADVICE,
                {"columns": instants, "files": len(paths), "paths": paths[:EXAMPLES]},
            )  # fmt: skip


def _is_instant(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


def _moment(text: object) -> dt.datetime | None:
    """A time as it is spelled; None where there is none, or it is spelled in another way."""
    try:
        return dt.datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _utc(moment: dt.datetime) -> dt.datetime:
    return moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment.astimezone(dt.UTC)
