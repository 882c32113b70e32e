"""Makes a configuration of what AWS says of a DMS endpoint and its task, and names the settings of both that lose data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from safewrite.errors import InvalidInputError, without_secrets
from safewrite.intake.conversion import Converted
from safewrite.intake.settings import read
from safewrite.medallion.config.dms_endpoint import S3Settings, object_in, of_endpoint, settings_of
from safewrite.medallion.config.dms_mappings import MappedTable, mappings
from safewrite.medallion.config.files import REST
from safewrite.medallion.config.job import load, plain
from safewrite.medallion.config.source_columns import ListedTable, source_tables

_MORE = "the AWS DMS API has them as S3Settings"


@dataclass(frozen=True, slots=True)
class Lake:
    """Where the tables are to be, which DMS does not know."""

    location: str
    """A folder or ``s3://bucket/prefix``; of an Iceberg job for its state and its quarantine."""
    format: Literal["delta", "iceberg"] = "delta"
    catalog: str | None = None
    """Of an Iceberg job: the name of a catalog in PyIceberg's configuration."""


@without_secrets
def from_dms(
    endpoint: str,
    task: str,
    lake: Lake,
    *,
    columns: str | None = None,
    job: str | None = None,
    names: tuple[str | None, str | None] = (None, None),
) -> Converted:
    """The configuration of a job that follows the files of a DMS task.

    Args:
        endpoint: what ``aws dms describe-endpoints`` says, in JSON; also of all endpoints.
        task: what ``aws dms describe-replication-tasks`` says, or a document of table mappings.
        columns: CSV of the source's columns (``table_schema, table_name, column_name, data_type, numeric_precision, numeric_scale,
            key_position``), which DMS does not tell.
        job: the job's name; that of the task without.
        names: identifiers of the endpoint and of the task, where there are several.

    Raises:
        InvalidInputError: a document is none, a setting is not DMS's, or it is not clear which endpoint or task is meant.
    """
    chosen = _task_in(task, names[1])
    endpoints = _listed(_document(endpoint, "The endpoint"), "Endpoints")
    target = _target_in(endpoints, chosen, names[0])
    said = target if "BucketName" in target else settings_of(target)
    given = read(said, S3Settings, S3Settings.model_validate, more=_MORE)
    if given.preserve_transactions and given.add_column_name:
        raise InvalidInputError(
            "PreserveTransactions and AddColumnName are both true: files with changes of all tables are read without names of columns. Nothing was "
            "written. Set AddColumnName=false, or PreserveTransactions=false, at the endpoint."
        )
    made = Converted()
    made.config["job"] = job or str(chosen.get("ReplicationTaskIdentifier") or "dms")
    files = of_endpoint(made, given)
    _lake(made, lake, files)
    known = {} if columns is None else source_tables(columns, has_time=lake.format == "iceberg")
    found, patterns = mappings(_json_in(chosen, "TableMappings", chosen)).tables([*known])
    made.warnings += _of_task(chosen)
    made.warnings += [
        f"The rule for {one} selects no table that is known by its name. List the columns of the source (--columns), or add its tables."
        for one in patterns
    ]
    if twice := sorted({one.name for one in found if sum(one.name == other.name for other in found) > 1}):
        raise InvalidInputError(
            f"The rules give two tables of the source the name {twice[0]}. Nothing was written. Give each a name of its own."
        )
    made.config["tables"] = {
        one.name: _table(made, one, known.get(".".join(one.source)), files) for one in found
    }
    if found and all("keys" in one for one in made.config["tables"].values()):
        load(made.config)
    return made


def _document(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"{what} is not JSON ({error}). Nothing was written. Give what the AWS CLI says."
        ) from error


def _json_in(given: Mapping[str, Any], name: str, otherwise: Any) -> Any:
    """A document within a document, which AWS has as a text."""
    found = given.get(name, otherwise)
    return _document(found, name) if isinstance(found, str) else found


def _listed(given: Any, name: str) -> list[Mapping[str, Any]]:
    found = given.get(name, [given]) if isinstance(given, Mapping) else given
    if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
        raise InvalidInputError(f"{name} has another form. Nothing was written. Give what the AWS CLI says.")
    if not found:
        raise InvalidInputError(
            f"{name} is an empty list: the AWS CLI found none. Nothing was written. Ask it in the region and the account of the task."
        )
    return found


def _task_in(text: str, wanted: str | None) -> Mapping[str, Any]:
    tasks = _listed(_document(text, "The task"), "ReplicationTasks")
    return _chosen(tasks, "ReplicationTaskIdentifier", wanted, "--task")


def _target_in(
    endpoints: Sequence[Mapping[str, Any]], task: Mapping[str, Any], wanted: str | None
) -> Mapping[str, Any]:
    """The endpoint of S3 that the task writes to."""
    targets = [
        one
        for one in endpoints
        if "S3Settings" in one or "BucketName" in one or one.get("EngineName") == "s3"
    ]
    of_task = [one for one in targets if one.get("EndpointArn") == task.get("TargetEndpointArn", "")]
    return _chosen(
        of_task if of_task and wanted is None else targets, "EndpointIdentifier", wanted, "--endpoint"
    )


def _chosen(
    given: Sequence[Mapping[str, Any]], name: str, wanted: str | None, option: str
) -> Mapping[str, Any]:
    found = [one for one in given if wanted is None or one.get(name) == wanted]
    if len(found) != 1:
        there = ", ".join(str(one.get(name)) for one in given) or "none of S3"
        remedy = (
            f"Name one with {option}" if given else "Give a file with the endpoint that the task writes to"
        )
        raise InvalidInputError(
            f"One {name} is needed, and there are: {there}. Nothing was written. {remedy}."
        )
    return found[0]


def _lake(made: Converted, lake: Lake, files: Mapping[str, Any]) -> None:
    """Where the tables of the job are."""
    place, raw = lake.location.rstrip("/"), made.config["raw"]["location"]
    if f"{plain(place)}/".startswith(f"{plain(raw)}/"):
        raise InvalidInputError(
            f"--lake {place} lies in {raw}, where DMS writes: tables would be taken for raw files. Nothing was written. Name a --lake in "
            "another bucket, or give the endpoint a BucketFolder that the lake is not in."
        )
    made.config["state"] = f"{place}/safewrite/{made.config['job']}"
    if lake.format == "delta":
        made.config["quarantine"] = f"{place}/quarantine"
        addresses = {layer: f"{place}/{layer}/{{schema}}/{{table}}" for layer in ("bronze", "silver")}
    else:
        made.config |= {
            "catalog": lake.catalog or {"type": "glue"}, "create_namespace": True, "quarantine": "bronze.quarantine",
            "quarantine_format": "iceberg",
        }  # fmt: skip
        addresses = {layer: f"{layer}.{{schema}}_{{table}}" for layer in ("bronze", "silver")}
    made.config["defaults"] = {"format": lake.format, **addresses, "files": files}


def _table(
    made: Converted, mapped: MappedTable, source: ListedTable | None, files: Mapping[str, Any]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    columns = {mapped.column(name): kind for name, kind in source.columns.items()} if source else {}
    if columns:
        found["columns"] = {name: kind for name, kind in columns.items() if name is not None}
    keys = [name for name in map(mapped.column, source.keys) if name is not None] if source else []
    if keys := keys or mapped.declared_key:
        found["keys"] = keys
    more = _more_files(made, mapped, found, files)
    if more:
        found["files"] = more
    made.warnings += _unsaid(mapped, source, found)
    return found


def _more_files(
    made: Converted, mapped: MappedTable, table: Mapping[str, Any], files: Mapping[str, Any]
) -> dict[str, Any]:
    """What the rules of a table say of its files."""
    more: dict[str, Any] = {}
    name = mapped.name
    if mapped.change_seq is not None:
        more["change_seq"] = mapped.change_seq
        made.say(
            f"{name}: $AR_H_CHANGE_SEQ", f"files.change_seq: {mapped.change_seq}", "changes are ordered by it"
        )
    if mapped.commit_time is not None and "timestamp" not in files:
        more["timestamp"] = mapped.commit_time
        made.say(f"{name}: {mapped.commit_time}", f"files.timestamp: {mapped.commit_time}")
    before = mapped.before_image
    prefix = str((before or {}).get("column-prefix") or "")
    if prefix:
        more["before_image"] = prefix
        made.say(
            f"{name}: add-before-image-columns",
            f"files.before_image: {prefix}",
            "an update that changes the key takes the old row away",
        )
    used = {mapped.change_seq, more.get("timestamp"), files.get("timestamp")}
    if others := [added for added, _ in mapped.added() if added not in used]:
        more["ignore"] = others
        made.say(
            f"{name}: add-column",
            f"files.ignore: {', '.join(others)}",
            "declare them in columns instead, with their types, to keep them",
        )
    if files.get("header") is False:
        more["order"] = [
            *_head(files, made.config["raw"]),
            REST,
            *(added for added, _ in mapped.added()),
            *_before(prefix, before, table),
        ]
    return more


def _head(files: Mapping[str, Any], raw: Mapping[str, Any]) -> list[str]:
    """The columns that come before those of the table."""
    owners = [raw["table_column"], raw["schema_column"]] if "table_column" in raw else []
    return ["Op", *owners, *([files["timestamp"]] if "timestamp" in files else [])]


def _before(prefix: str, before: Mapping[str, Any] | None, table: Mapping[str, Any]) -> list[str]:
    """The columns with the values before an update."""
    if not prefix or before is None:
        return []
    keys_alone = before.get("column-filter") == "pk-only"
    return [
        prefix + name for name in table.get("columns", ()) if not keys_alone or name in table.get("keys", ())
    ]


def _unsaid(mapped: MappedTable, source: ListedTable | None, found: Mapping[str, Any]) -> Iterator[str]:
    """What is to be filled in, or looked at, of a table."""
    name = mapped.name
    if "keys" not in found:
        yield f"{name}: its key is not known, so `check` refuses the configuration. Fill in tables.{name}.keys, or list the columns of the source (--columns)."
    if "columns" not in found:
        yield f"{name}: its columns are not known. Fill in tables.{name}.columns, or list the columns of the source (--columns)."
    for column, kind in (source.guessed if source else {}).items():
        to = mapped.column(column)
        if to is not None:
            yield f"{name}: the type {kind} of {to} says too little: it is {found['columns'][to]} here. Look whether all values fit."
    if mapped.filtered:
        yield f"{name}: the selection rule has filters: a row that an update moves out of them stays in silver."
    before = mapped.before_image
    if before is None:
        yield f"{name}: no rule adds before images: an update that changes the key leaves the old row. Add the rule add-before-image-columns (pk-only)."
    elif before.get("column-suffix") or not before.get("column-prefix"):
        yield f"{name}: before images are found by a prefix. Give column-prefix in before-image-def, and no column-suffix."
    elif "order" in found.get("files", {}) and [*mapped.added()]:
        yield f"{name}: rules add columns and before images, and files do not name their columns: compare files.order with a file."
    if mapped.change_seq is None:
        yield f"{name}: no rule adds AR_H_CHANGE_SEQ: changes are ordered by the names of files and their lines. Add it, so that what DMS writes twice does no harm."


def _of_task(task: Mapping[str, Any]) -> Iterator[str]:
    """Settings of a task that lose data."""
    kind = task.get("MigrationType")
    if kind == "cdc":
        yield "MigrationType is cdc: files lack the rows from before the task, and so does silver. Load them first: full-load-and-cdc."
    name = "ReplicationTaskSettings"
    settings = object_in({name: _json_in(task, name, None)}, name)
    target, errors = object_in(settings, "TargetMetadata"), object_in(settings, "ErrorBehavior")
    ddl = object_in(settings, "ChangeProcessingDdlHandlingPolicy")
    if target.get("LimitedSizeLobMode") is not False and target.get("SupportLobs"):
        yield f"TargetMetadata.LobMaxSize is {target.get('LobMaxSize', 32)} KB: DMS cuts longer LOBs, and logs a warning of its own. Raise it above the longest."
    for name in (
        "DataErrorPolicy",
        "DataTruncationErrorPolicy",
        "ApplyErrorDeletePolicy",
        "ApplyErrorInsertPolicy",
        "ApplyErrorUpdatePolicy",
    ):
        if errors.get(name) in ("IGNORE_RECORD", "LOG_ERROR"):
            yield f"ErrorBehavior.{name} is {errors[name]}: DMS leaves such records out of its files. Set it to SUSPEND_TABLE or STOP_TASK."
    if ddl.get("HandleSourceTableTruncated") or ddl.get("HandleSourceTableDropped"):
        yield (
            "ChangeProcessingDdlHandlingPolicy lets DMS follow TRUNCATE and DROP: it removes the files of the table and writes no record of it. Runs warn "
            "of files that are gone; `safewrite medallion truncate` follows it."
        )
