"""Makes a configuration of the table file and the arguments of the Glue and EMR recipe, and says what each setting becomes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from safewrite.cdc.config.job import load
from safewrite.errors import without_secrets
from safewrite.intake.conversion import Converted
from safewrite.intake.settings import Strict, Text, meant, read, refused, twice

_NAMES = {
    "JOB_NAME": "jobname", "aws_region": "region", "config_s3_path": "tablejsonfile", "mskconnect": "glueconnect",
    "tableconffile": "tablejsonfile",
}  # fmt: skip
"""Other names of the recipe's arguments."""
_ARGUMENTS = frozenset(
    {
        "jobname", "topics", "kafkaserver", "icebergdb", "warehouse", "tablejsonfile", "region", "checkpointpath", "cdcformat",
        "starting_offsets_of_kafka_topic", "glueconnect",
    }
)  # fmt: skip
_OF_GLUE = frozenset(
    {
        "TempDir", "additional-python-modules", "class", "conf", "continuous-log-logGroup", "datalake-formats",
        "enable-auto-scaling", "enable-continuous-cloudwatch-log", "enable-glue-datacatalog", "enable-job-insights",
        "enable-metrics", "enable-observability-metrics", "enable-spark-ui", "extra-files", "extra-jars", "extra-py-files",
        "job-bookmark-option", "job-language", "python-modules-installer-option", "spark-event-logs-path", "user-jars-first",
    }
)  # fmt: skip
_ENVELOPES = {"debezium": "debezium-json", "dms": "dms-json"}
_MERGE_ON_READ = "merge-on-read"
_MORE = "docs/cdc/from-a-glue-recipe.md lists them"


def _listed(given: Any) -> list[str]:
    """Names that are a list, or a text with commas; none where it is null or empty."""
    parts = given.split(",") if isinstance(given, str) else given or []
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise ValueError("give a text with commas, or a list of texts")
    found = [one for one in (part.strip() for part in parts) if one]
    if again := twice(found):
        raise ValueError(f"{', '.join(again)} comes twice")
    return found


def _as_text(given: Any) -> Any:
    return str(given) if type(given) is int else given


_Names = Annotated[list[str], BeforeValidator(_listed)]


class RecipeTable(Strict):
    """One entry of the recipe's table file."""

    db: Text
    table: Text
    primary_key: _Names = Field(default_factory=list)
    format_version: Annotated[Text | None, BeforeValidator(_as_text), Field(alias="format-version")] = None
    merge_mode: Annotated[Text | None, Field(alias="write.merge.mode")] = None
    update_mode: Annotated[Text | None, Field(alias="write.update.mode")] = None
    delete_mode: Annotated[Text | None, Field(alias="write.delete.mode")] = None
    timestamp_fields: Annotated[_Names, Field(alias="timestamp.fields", default_factory=list)]
    precombine_key: _Names = Field(default_factory=list)


class RecipeTables(Strict):
    """The recipe's table file."""

    tables: list[RecipeTable]


@without_secrets
def convert(tables: str, arguments: Mapping[str, str]) -> Converted:
    """The configuration of a recipe.

    Args:
        tables: the JSON text of its table file, a list of objects.
        arguments: those of its job, with or without the leading ``--``; other names of Glue are passed over.

    Raises:
        InvalidInputError: a field or an argument that the recipe does not have, or one that is needed.
    """
    given = read(f'{{"tables": {tables}}}', RecipeTables, RecipeTables.model_validate, more=_MORE)
    named = {_name(name): value for name, value in arguments.items()}
    faults = list(_faults(named, given.tables))
    if faults:
        raise refused(faults, _MORE)
    made = Converted()
    _job(made, named)
    _lake(made, named, given.tables)
    made.config["tables"] = [_table(made, one, named) for one in given.tables]
    load(made.config)
    return made


def _name(given: str) -> str:
    bare = given.removeprefix("--")
    return _NAMES.get(bare, bare)


def _faults(named: Mapping[str, str], tables: Sequence[RecipeTable]) -> Iterator[str]:
    for name in sorted(named.keys() - _ARGUMENTS - _OF_GLUE):
        yield f"--{name}: the recipe has no such argument{meant(name, _ARGUMENTS)}"
    for name in ("topics", "warehouse"):
        if not named.get(name):
            yield f"--{name}: is needed"
    if not named.get("kafkaserver"):
        connection = named.get("glueconnect", "NAME")
        yield (
            "--kafkaserver: is needed: the job reaches the brokers itself. A Glue connection has them: aws glue get-connection "
            f"--name {connection} --query Connection.ConnectionProperties.KAFKA_BOOTSTRAP_SERVERS"
        )
    for server in (one.strip() for one in named.get("kafkaserver", "").split(",")):
        if server and not server.rpartition(":")[2].isdecimal():
            yield f"--kafkaserver: {server!r} has no port; give host:port,host:port"
    if named.get("cdcformat", "debezium") not in _ENVELOPES:
        yield f"--cdcformat: is debezium or dms{meant(named['cdcformat'], _ENVELOPES)}"
    if not tables and not named.get("icebergdb"):
        yield "--icebergdb: is needed where the table file names no table"
    for place, table in enumerate(tables):
        modes = (table.merge_mode, table.update_mode, table.delete_mode)
        for mode in {*modes} - {None, _MERGE_ON_READ, "copy-on-write"}:
            known = (_MERGE_ON_READ, "copy-on-write")
            yield f"tables.{place}: {mode!r} is not a write mode{meant(str(mode), known)}"


def _job(made: Converted, named: Mapping[str, str]) -> None:
    """The job, its topics and its envelope."""
    job = named.get("jobname") or "cdc-kafka-iceberg"
    made.config["job"] = job
    made.say(
        "jobname", f"job: {job}", "it names the job's own tables too; two jobs of one name fence each other"
    )
    servers = named["kafkaserver"]
    topics = [one for one in (part.strip() for part in named["topics"].replace('"', "").split(",")) if one]
    kafka: dict[str, Any] = {"servers": servers, "topics": topics}
    made.say("topics", f"kafka.topics: {', '.join(topics)}")
    is_iam = all(one.strip().endswith(":9098") for one in servers.split(","))
    if is_iam:
        kafka["security"] = "msk-iam"
    made.say(
        "kafkaserver",
        f"kafka.servers: {servers}",
        "port 9098 is IAM's of MSK: kafka.security is msk-iam"
        if is_iam
        else "without IAM; give it in kafka.options else",
    )
    if "glueconnect" in named:
        made.say(
            "glueconnect",
            "nothing",
            "it stays in Connections of the Glue job, for the network; the job itself needs the brokers",
        )
    starts = named.get("starting_offsets_of_kafka_topic")
    if starts:
        kafka["starting_offsets"] = json.loads(starts) if _is_json(starts) else starts
        made.say(
            "starting_offsets_of_kafka_topic",
            f"kafka.starting_offsets: {starts}",
            "counts for a job without tables only; later it goes on from the positions in its tables, whatever the checkpoint says",
        )
    made.config["kafka"] = kafka
    form = named.get("cdcformat", "debezium")
    made.config["envelope"] = _ENVELOPES[form]
    made.say("cdcformat", f"envelope: {_ENVELOPES[form]}", _of_envelope(form))
    folder = named.get("checkpointpath") or f"{named['warehouse'].rstrip('/')}/checkpoints"
    made.config["checkpoint"] = f"{folder.rstrip('/')}/safewrite-{job}"
    made.say(
        "checkpointpath",
        f"checkpoint: {made.config['checkpoint']}",
        "a new folder: offsets of the recipe's checkpoint do not say that their rows landed; here it is a hint, and tables are the truth",
    )


def _of_envelope(form: str) -> str:
    if form == "dms":
        return "the endpoint needs IncludeTransactionDetails: it holds the position that orders changes"
    return "changes of a row are ordered by the position in the source's log; Avro needs debezium-avro and registry"


def _lake(made: Converted, named: Mapping[str, str], tables: Sequence[RecipeTable]) -> None:
    """The catalog, the job's own tables, and tables that the file does not name."""
    catalog = {"type": "glue", "warehouse": named["warehouse"]}
    made.say("warehouse", f"catalog.warehouse: {named['warehouse']}")
    if region := named.get("region"):
        catalog["client.region"] = region
        made.say("region", f"catalog.client.region: {region}")
    made.config["catalog"] = catalog
    database = named.get("icebergdb") or tables[0].db
    made.config["job_tables"] = {"database": database, "format": "iceberg"}
    made.say(
        "(new)", f"job_tables.database: {database}", "the ledger and the dead letters of the job are there"
    )
    if "icebergdb" not in named:
        return
    if made.config["envelope"] == "dms-json":
        made.say(
            "icebergdb",
            "nothing",
            "each table has its own db; records of a table that the file does not name are dead letters, because DMS tells no key",
        )
        return
    made.config |= {
        "unknown_tables": "create",
        "unknown_database": database,
        "defaults": {"format": "iceberg"},
    }
    made.say(
        "icebergdb",
        f"unknown_database: {database}",
        "tables that the file does not name are made there as schema_table, with the key of Debezium's records, not with ID",
    )


def _table(made: Converted, given: RecipeTable, named: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {"database": given.db, "table": given.table, "format": "iceberg"}
    of = f"{given.db}.{given.table}: "
    strange = "icebergdb" in named and named["icebergdb"] != given.db
    changes = "name it in full in source, as the source writes it: the recipe compared the last part in small letters"
    if strange:
        changes = (
            f"rows land in {given.db}; the recipe wrote to icebergdb and did not use this entry; {changes}"
        )
    made.say(f"{of}db, table", f"database: {given.db}, table: {given.table}", changes)
    keys = given.primary_key
    if not keys and made.config["envelope"] == "dms-json":
        keys = ["ID"]  # the recipe's own default
    if keys:
        found["primary_key"] = keys
        made.say(
            f"{of}primary_key",
            f"primary_key: {', '.join(keys)}",
            "a row whose key changes goes from its old key",
        )
    else:
        made.say(
            f"{of}primary_key", "nothing", "the key of Debezium's records is the table's; the recipe took ID"
        )
    _version(made, found, of, given.format_version)
    modes = {"merge": given.merge_mode, "update": given.update_mode, "delete": given.delete_mode}
    if any(modes.values()):
        mode = _MERGE_ON_READ if _MERGE_ON_READ in modes.values() else "copy-on-write"
        found["write_mode"] = mode
        given_modes = {one for one in modes.values() if one}
        made.say(
            f"{of}write.*.mode",
            f"write_mode: {mode}",
            "one mode for all changes" if len(given_modes) > 1 else "",
        )
    if times := given.timestamp_fields:
        found["timestamp_fields"] = dict.fromkeys(times, "iso8601")
        made.say(
            f"{of}timestamp.fields",
            f"timestamp_fields: {', '.join(times)} as iso8601",
            "texts of ISO 8601 without a zone are UTC; numbers need epoch_ms (MySQL's DATETIME) or epoch_us (PostgreSQL's timestamp), "
            "else they are dead letters; records with schemas need no entry",
        )
    if order := given.precombine_key:
        made.say(
            f"{of}precombine_key",
            "nothing",
            f"the source's position orders changes, also of one millisecond; if it has none: sequence precombine, precombine_key {order}",
        )
    return found


def _version(made: Converted, found: dict[str, Any], of: str, given: str | None) -> None:
    if given is None:
        return
    if given in {"2", "3"}:
        found["format_version"] = int(given)
        made.say(f"{of}format-version", f"format_version: {given}")
    else:
        made.say(
            f"{of}format-version",
            "nothing",
            f"tables are made with version 2, not {given}; one that is there keeps its own",
        )


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
