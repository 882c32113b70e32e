"""Reads the configuration of a job; every error names its field, and an option that would do nothing is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from safewrite.cdc.config.table_config import Name, NamedTable, TableOptions
from safewrite.cdc.connect.logical_types.declared import DecimalMode
from safewrite.cdc.connect.placeholder import UNAVAILABLE_TEXT
from safewrite.cdc.envelopes.registry import KINDS
from safewrite.errors import without_secrets
from safewrite.intake.job import JobConfig
from safewrite.intake.partitioning import partition_columns
from safewrite.intake.settings import Strict, from_environment, json_schema_of, read, twice
from safewrite.intake.tables import TableFormat

_OURS = frozenset(
    {
        "kafka.bootstrap.servers", "subscribe", "subscribepattern", "assign", "startingoffsets", "endingoffsets",
        "startingtimestamp", "startingoffsetsbytimestamp", "maxoffsetspertrigger", "failondataloss", "includeheaders",
        "kafka.group.id", "groupidprefix",
    }
)  # fmt: skip
_DIVIDING = frozenset({"minpartitions", "maxrecordsperpartition"})
"""Options by which Spark reads a partition of Kafka in several tasks."""
if TYPE_CHECKING:
    Envelope = str
else:
    Envelope = Literal[tuple(KINDS)]
_OF_ENVELOPES = {
    "registry": "",
    "unavailable_value_placeholder": "is Debezium's, and ",
    "decimal_handling_mode": "is of records without schemas, and ",
    "before_image_field": "is AWS DMS's, and ",
    "route_field": "is of events, and ",
}
"""The fields that mean something for some envelopes only, and what they are."""
_UNKNOWN = {"dead-letter": "a dead letter", "ignore": "ignored", "create": "created"}
_MSK_IAM = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "AWS_MSK_IAM",
    "kafka.sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    "kafka.sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
}


class Kafka(Strict):
    """Where the records come from."""

    servers: Annotated[str, Field(min_length=1, description="bootstrap servers, host:port,host:port")]
    topics: Annotated[list[str] | None, Field(min_length=1, description="names of topics")] = None
    pattern: Annotated[
        str | None, Field(min_length=1, description="regular expression of topics (Java's)")
    ] = None
    starting_offsets: Annotated[
        Literal["earliest", "latest"] | dict[str, dict[str, int]],
        Field(
            description="where a job begins that has no tables yet: earliest, latest, or offsets by topic and partition. "
            "A job that has tables goes on from their positions."
        ),
    ] = "earliest"
    security: Annotated[
        Literal["none", "msk-iam"], Field(description="msk-iam sets the four options of IAM for MSK")
    ] = "none"
    options: Annotated[
        dict[str, str],
        Field(
            repr=False,
            description="further options of Spark's Kafka source, such as kafka.security.protocol; env:NAME takes the value "
            "from the environment",
        ),
    ] = Field(default_factory=dict)
    commit_group: Annotated[
        str | None,
        Field(
            min_length=1,
            description="a consumer group that gets the offsets of each batch that landed, for tools that show its lag; the job itself goes by its tables",
        ),
    ] = None
    max_offsets_per_trigger: Annotated[
        int, Field(ge=1, description="records in a batch; one that is larger than parts lands part by part")
    ] = 100_000

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.topics is None) == (self.pattern is None):
            raise ValueError("give topics or pattern, one of them")
        ours = sorted(name for name in self.options if name.lower() in _OURS)
        if ours:
            raise ValueError(f"the job sets {', '.join(ours)} itself; take them out of options")
        doubled = sorted(set(self.options) & set(_MSK_IAM)) if self.security == "msk-iam" else []
        if doubled:
            raise ValueError(f"security msk-iam sets {', '.join(doubled)} itself; take them out of options")
        return self

    @property
    def divided(self) -> list[str]:
        """Options that divide partitions among tasks."""
        return sorted(name for name in self.options if name.lower() in _DIVIDING)

    def spark_options(self) -> dict[str, str]:
        """Options of the source, without where it starts.

        Raises:
            InvalidInputError: an environment variable that is named is not set.
        """
        found = {"kafka.bootstrap.servers": self.servers, "failOnDataLoss": "true", "includeHeaders": "true"}
        found |= {"maxOffsetsPerTrigger": str(self.max_offsets_per_trigger)}
        found |= (
            {"subscribe": ",".join(self.topics)} if self.topics else {"subscribePattern": str(self.pattern)}
        )
        # Spark asks where a partition begins and ends after each fetch; Kafka's defaults are 1 MiB and 500 records.
        found |= {"kafka.max.partition.fetch.bytes": str(4 << 20), "kafka.max.poll.records": "4000"}
        # Records of transactions that were aborted are no changes of the source.
        found["kafka.isolation.level"] = "read_committed"
        found |= _MSK_IAM if self.security == "msk-iam" else {}
        return found | {name: from_environment(value, name) for name, value in self.options.items()}


class RegistrySettings(Strict):
    """The schema registry of Avro or Protobuf."""

    url: Annotated[
        str | None,
        StringConstraints(pattern=r"^https?://.+"),
        Field(description="of a Confluent registry"),
    ] = None
    glue_region: Annotated[
        str | None,
        Field(min_length=1, description="the region of AWS Glue's registry, in the place of url"),
    ] = None
    user: str | None = None
    password: Annotated[
        str | None,
        StringConstraints(pattern=r"^env:.+"),
        Field(description="env:NAME: where the password is"),
    ] = None
    timeout_s: Annotated[float, Field(gt=0, strict=False)] = 10.0
    patience_s: Annotated[float, Field(ge=0, strict=False, description="how long it may be away")] = 60.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.url is None) == (self.glue_region is None):
            raise ValueError("give url (Confluent) or glue_region (AWS Glue), one of them")
        if (self.user is None) != (self.password is None):
            raise ValueError("give user and password, or neither")
        if self.glue_region is not None and self.user is not None:
            raise ValueError(
                "user and password are of a Confluent registry: AWS Glue goes by the role of the job"
            )
        if "@" in (self.url or ""):
            raise ValueError(
                "give user and password as fields of their own, not in the url: it stands in logs"
            )
        return self


RECORDS_HERE = 100_000
"""The driver takes so many records at once, unless ``parts`` says otherwise."""


class Parts(Strict):
    """What is landed at once; a larger batch lands in parts, each with a commit by table."""

    records: Annotated[
        int | None,
        Field(
            ge=1,
            description=f"records at once. Default: {RECORDS_HERE:,} in the driver; where executors land them, as many as their tasks hold",
        ),
    ] = None
    bytes: Annotated[
        int | None,
        Field(
            ge=1,
            description="bytes at once, as Kafka has keys, values and headers; a few times of it are needed. Default: in the driver a "
            "sixteenth of its heap, and 256 MiB at most; where executors land them, as many as their tasks hold",
        ),
    ] = None


class JobTables(Strict):
    """Where the job keeps its ledger and its dead letters."""

    database: Name = "cdc"
    format: TableFormat = "delta"


class Trigger(Strict):
    """When batches are made: every so many seconds, or all that is there and then the end."""

    interval_s: Annotated[float | None, Field(gt=0, strict=False)] = None
    available_now: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.interval_s is None) != self.available_now:
            raise ValueError("give interval_s or available_now, one of them")
        return self

    @property
    def of_spark(self) -> dict[str, Any]:
        """As Spark's writer of a stream takes it."""
        if self.available_now:
            return {"availableNow": True}
        return {"processingTime": f"{self.interval_s} seconds"}


class Config(JobConfig):
    """A job: change data of topics, landed in tables."""

    job: Annotated[
        Name, Field(description="names the job in its tables; two jobs of one name fence each other")
    ]
    kafka: Kafka
    envelope: Annotated[Envelope, Field(description="what the records are")]
    registry: RegistrySettings | None = None
    unavailable_value_placeholder: Annotated[
        str | None, Field(min_length=1, description=f"Debezium's; default {UNAVAILABLE_TEXT}")
    ] = None
    decimal_handling_mode: Annotated[
        DecimalMode | None,
        Field(
            description="decimal.handling.mode of Debezium's connector, where records come without schemas: how texts of "
            "decimal_fields are written; precise is base64 of the unscaled number, and the scale of decimal_fields the column's own"
        ),
    ] = None
    before_image_field: Annotated[
        str | None,
        Field(min_length=1, description="BeforeImageSettings.FieldName of AWS DMS; default before-image"),
    ] = None
    route_field: Annotated[
        str | None,
        Field(
            min_length=1,
            description="a field of events whose text says which table a record is of: source is the text then, or topic.text",
        ),
    ] = None
    checkpoint: Annotated[
        str, Field(min_length=1, description="Spark's checkpoint folder: a hint, tables are the truth")
    ]
    trigger: Trigger = Trigger(interval_s=10.0)
    engine: Annotated[
        Literal["auto", "local", "spark"],
        Field(
            description="where records are decoded, and changes applied: local, in Spark's driver; spark, on its executors, each of which needs Python "
            "with safewrite; auto, on executors that are processes of their own, and in the driver what takes less there"
        ),
    ] = "auto"
    parts: Parts = Parts()
    warehouse: Annotated[
        str | None, Field(min_length=1, description="Delta tables are warehouse/database/table")
    ] = None
    parallel_tables: Annotated[int, Field(ge=1, le=64, description="tables that commit at once")] = 4
    job_tables: JobTables = JobTables()
    unknown_tables: Annotated[
        Literal["dead-letter", "create", "ignore"],
        Field(description="what becomes of rows of tables that are not in tables"),
    ] = "dead-letter"
    unknown_database: Annotated[Name | None, Field(description="where unknown tables are created")] = None
    defaults: Annotated[TableOptions | None, Field(description="of tables that are created unasked")] = None
    tables: list[NamedTable] = Field(default_factory=list)

    @property
    def epochs(self) -> dict[str, int]:
        """The epoch of tables that are made unasked, under "", and those of named tables that have another."""
        rest = 0 if self.defaults is None else self.defaults.epoch
        return {"": rest} | {one.name: one.epoch for one in self.tables if one.epoch != rest}

    @property
    def decimals(self) -> DecimalMode | None:
        """How texts of decimals are written that come without a schema; None where it is not known."""
        return KINDS[self.envelope].decimals or self.decimal_handling_mode

    @model_validator(mode="after")
    def _check(self) -> Self:
        for wrong, text in self._contradictions():
            if wrong:
                raise ValueError(text)
        for names, what in (
            ([table.name for table in self.tables], "table"),
            ([table.source or table.table for table in self.tables], "source"),
            ([table.location.rstrip("/") for table in self.tables if table.location is not None], "location"),
        ):
            if again := twice(names):
                raise ValueError(f"tables has the {what} {', '.join(again)} twice")
        return self

    def _contradictions(self) -> list[tuple[bool, str]]:
        name, kind = self.envelope, KINDS[self.envelope]
        create = self.unknown_tables == "create"
        landed = [*self.tables, *([] if self.defaults is None else [self.defaults])]
        kinds = [{*table.metadata.values()} for table in landed]
        formats = {table.format for table in self.tables} | {self.job_tables.format}
        formats |= {(self.defaults or TableOptions()).format} if create else set()
        return [
            ("registry" in kind.options and self.registry is None, f"registry is needed for envelope {name}"),
            *(
                (
                    option not in kind.options and getattr(self, option) is not None,
                    f"{option} {what}does nothing for envelope {name}",
                )
                for option, what in _OF_ENVELOPES.items()
            ),
            (
                kind.form == "PROTOBUF" and self.registry is not None and self.registry.url is None,
                f"registry.glue_region does nothing for envelope {name}: AWS Glue has schemas of Protobuf as texts alone; give url",
            ),
            (
                self.engine == "spark" and bool(self.kafka.divided),
                f"engine spark decodes each partition of Kafka in one task: take {', '.join(self.kafka.divided)} out of kafka.options",
            ),
            (
                not self.tables and not create,
                f"tables is empty, so every row would be {_UNKNOWN[self.unknown_tables]}",
            ),
            *(
                (
                    one in {table.source or table.table for table in self.tables},
                    f"ignored_tables: {one} is in tables too",
                )
                for one in self.ignored_tables
            ),
            (
                not create and self.defaults is not None,
                "defaults does nothing unless unknown_tables is create",
            ),
            (
                create != (self.unknown_database is not None),
                "unknown_database goes with unknown_tables create: it says where they are created",
            ),
            (
                create and not kind.has_keys,
                f"unknown_tables create needs the key of each record as columns; envelope {name} has none: name the tables",
            ),
            (
                not kind.has_keys
                and not kind.is_events
                and any(table.primary_key is None for table in self.tables if not table.is_appended),
                f"tables need a primary_key for envelope {name}, whose records have no key of columns",
            ),
            (
                kind.is_events and any(not table.is_appended for table in self.tables),
                f"tables need mode append for envelope {name}, whose records are rows that change no other",
            ),
            (
                kind.is_events and any(one & {"op", "position", "source_time"} for one in kinds),
                f"metadata op, position and source_time do nothing for envelope {name}: its records have offset and timestamp",
            ),
            (
                not kind.is_events
                and any(
                    "op" not in one for one, table in zip(kinds, landed, strict=True) if table.is_appended
                ),
                "mode append needs a metadata column of op: a row that was deleted looks like one that is there without it",
            ),
            *(
                (
                    bool(names := _undividing(table)),
                    f"partition_by {', '.join(names)}: a table of format {table.format} cannot be divided by metadata of headers or key",
                )
                for table in landed
            ),
            (
                kind.is_events
                and self.route_field is None
                and bool(self.tables and self.kafka.topics)
                and not {table.source or table.table for table in self.tables} & {*(self.kafka.topics or ())},
                f"no table's source is one of kafka.topics, so every row would be {_UNKNOWN[self.unknown_tables]}",
            ),
            ("delta" in formats and self.warehouse is None, "warehouse is needed for tables of format delta"),
            (
                "delta" not in formats and self.warehouse is not None,
                "warehouse does nothing: no table is of format delta (Iceberg's catalog knows its own)",
            ),
            *((True, text) for text in self.contradictions(formats)),
        ]


def _undividing(table: TableOptions) -> list[str]:
    """The columns of metadata that partition_by names and whose types no table of the format is divided by."""
    wrong = {"headers", "key"} if table.format == "delta" else {"headers"}
    return [name for name in partition_columns(table.partition_by) if table.metadata.get(name) in wrong]


@without_secrets
def load(given: Any) -> Config:
    """A configuration of a dict, of JSON text (it begins with a brace), or of a file's path.

    Raises:
        InvalidInputError: each field that is wrong, and why.
    """
    if isinstance(given, Config):
        return given
    more = "`safewrite cdc schema` prints what there is"
    return read(given, Config, lambda found: Config.model_validate_json(json.dumps(found)), more=more)


def json_schema() -> dict[str, Any]:
    """The JSON schema of a configuration."""
    return json_schema_of(Config)
