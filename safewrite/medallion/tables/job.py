"""Opens and makes the tables of a job: bronze, silver and quarantine."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

import pyarrow as pa

import safewrite as sw
from safewrite.engine.abc import Engine
from safewrite.errors import (
    InternalError,
    InvalidInputError,
    SafewriteError,
    TableNotFoundError,
    UnsupportedTableError,
)
from safewrite.intake.partitioning import alike
from safewrite.intake.reporting import OnEvent, command, listener
from safewrite.medallion.config.bronze_columns import BRONZE_COLUMNS, SEQUENCE
from safewrite.medallion.config.column_types import arrow_type
from safewrite.medallion.config.job import Config, TableConfig
from safewrite.medallion.config.stored_names import named_as_there
from safewrite.medallion.config.watermark import Sync
from safewrite.medallion.files.records import BadRecord
from safewrite.medallion.files.rows import bronze_schema
from safewrite.medallion.files.storage import Storage, storage
from safewrite.medallion.lineage.delta_head import head_mark
from safewrite.medallion.lineage.external_table import Foreign, ForeignDelta, ForeignIceberg
from safewrite.medallion.lineage.lineage import Lineage
from safewrite.medallion.tables.engine import Workplace
from safewrite.medallion.tables.schema_evolution import fit, rename_file_column

log = logging.getLogger("safewrite")
QUARANTINE = pa.schema(
    [
        pa.field("table", pa.string(), nullable=False),
        pa.field("stage", pa.string(), nullable=False),
        pa.field("file", pa.string(), nullable=False),
        pa.field("tag", pa.string(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("text", pa.string()),
    ]
)
"""A record that was not taken: ``stage`` is where, raw or silver; ``line`` counts the file's records from 1."""


class JobPlaces:
    """The addresses and connections that all tables of a job share.

    ``read_only``: no table is made.  ``path`` is the configuration's file, which commands in messages name; None without one.
    ``work`` says where tasks run; None: in this process.
    """

    def __init__(
        self,
        config: Config,
        *,
        path: Path | None = None,
        read_only: bool = False,
        on_event: OnEvent | None = None,
        work: Workplace | None = None,
    ) -> None:
        self.config, self.path, self.read_only, self.on_event = config, path, read_only, listener(on_event)
        self.work = work or Workplace()
        self.raw: Storage = storage(config.raw.location, config.options())
        self.state: Storage = storage(config.state, config.options())
        self._lock = threading.Lock()
        self._quarantine: sw.Table | None = None
        self._catalog: Any = None
        """That of the first Iceberg table that was opened, for all others."""

    @property
    def elsewhere(self) -> Engine[Any] | None:
        """What runs tasks in other processes, which reach tables by what can be sent; None where none does."""
        return self.work.there

    def open(
        self,
        address: str,
        table_format: str,
        schema: pa.Schema | None,
        *,
        properties: Mapping[str, str] | None = None,
        partition_by: Sequence[str] = (),
    ) -> sw.Table:
        """Open a table of the job's, or make it with ``schema``, ``properties`` and ``partition_by``.

        Raises as ``safewrite.open`` does, and UnsupportedTableError for one that may only be read.
        """
        opening = self.config.opening(table_format, self.on_event, catalog=self._catalog)
        try:
            table: Any = sw.open(address, **opening).check_writable()
        except TableNotFoundError:
            if schema is None or self.read_only:
                raise
            table = self.config.created(
                address,
                schema,
                table_format,
                opening,
                properties=dict(properties or {}),
                partition_by=list(partition_by),
            )
        if table_format == "iceberg":
            self._catalog = self._catalog or table.catalog
        return cast("sw.Table", table)

    def lineage(self, name: str, table: sw.Table, table_format: str) -> Lineage:
        """What reads a table of the job."""
        place = storage(table.uri, self.config.options()) if table_format == "delta" else None
        return Lineage(name, table, place, self.command("replay", name))

    def foreign(self, address: str, table_format: str) -> Foreign:
        """What reads a table that any engine may rewrite.  Raises as ``safewrite.open`` does."""
        if table_format == "delta":
            return ForeignDelta(address, self.config.options())
        found: Any = sw.open(address, **self.config.opening("iceberg", self.on_event, catalog=self._catalog))
        self._catalog = self._catalog or found.catalog
        return ForeignIceberg(found)

    def command(self, verb: Literal["replay", "reset", "verify", "truncate"], name: str) -> str:
        """The command for a table, as a user can copy it; a call of Python where the configuration is not in a file."""
        if self.path is None:
            return f"{'verify(Pipeline(config), ' if verb == 'verify' else f'Pipeline(config).{verb}('}[{name!r}])"
        return command("medallion", verb, name, self.path)

    def stands(self, address: str, table_format: str, version: int, mark: str) -> bool:
        """Whether a table is still at the state that a mark was made of; asks once or twice, and opens nothing."""
        if table_format == "delta":
            return head_mark(storage(address, self.config.options()), version) == mark
        if self._catalog is None:
            found: Any = self.open(address, "iceberg", None)
            return str(found.iceberg.metadata_location) == mark
        with suppress(Exception):  # what opens the table then says what is wrong
            return _metadata_location(self._catalog, address) == mark
        return False

    def records_aside(self, name: str, stage: str) -> pa.Table:
        """Where the records of a table in quarantine came from: ``file``, ``tag`` and ``line``; a crash may have put one there twice.

        Raises as ``safewrite.open`` and ``Table.rows`` do; TableNotFoundError before there is a quarantine.
        """
        found = self.open(self.config.quarantine, self.config.quarantine_format, None)
        rows = found.rows(where=[("table", "=", name), ("stage", "=", stage)])
        return rows.select(["file", "tag", "line"]).group_by(["file", "tag", "line"]).aggregate([])

    @property
    def quarantine(self) -> sw.Table:
        """The table of records that could not be taken.  Raises as ``safewrite.open`` does."""
        with self._lock:
            found = self._quarantine
        if found is None:
            found = self.open(self.config.quarantine, self.config.quarantine_format, QUARANTINE)
            with self._lock:
                self._quarantine = found
        return found

    def put_aside(self, name: str, stage: str, batches: Sequence[tuple[str, pa.Table]]) -> int:
        """Commit bad records, each batch under a key of its own; says how many were not there yet.

        Rules may change between a crash and the next run: other records, or other reasons, are another batch.

        Raises:
            SafewriteError: they are not there, or that is not known.
        """
        if not batches:
            return 0
        members = [
            (short_key(f"{self.config.job}/{name}/{stage}/{key}/{_digest(rows)}"), rows)
            for key, rows in batches
        ]
        count = 0
        for (_, rows), answer in zip(members, self.quarantine.append_many(members), strict=True):
            if isinstance(answer, SafewriteError):
                raise answer
            count += 0 if answer.outcome == sw.Outcome.ALREADY_COMMITTED else rows.num_rows
        return count


@dataclass
class TableJob:
    """One table of a job, and its connections, which are made when they are needed."""

    name: str
    config: TableConfig
    places: JobPlaces
    _bronze: sw.Table | None = field(default=None, init=False, repr=False)
    """Bronze as it was found, until it is asked for."""

    @property
    def has_bronze(self) -> bool:
        """Whether bronze was made.  Raises as ``safewrite.open`` does."""
        if "bronze" not in self.__dict__ and self._bronze is None:
            with suppress(TableNotFoundError):
                self._bronze = self.places.open(self.config.bronze, self.config.format, None)
        return "bronze" in self.__dict__ or self._bronze is not None

    @cached_property
    def columns(self) -> pa.Schema:
        """The columns of the source: as declared, or those of silver.

        Raises:
            InvalidInputError: neither tells them.
        """
        if self.config.columns is not None:
            return pa.schema([(name, arrow_type(kind)) for name, kind in self.config.columns.items()])
        try:
            silver = self.places.open(self.config.silver, self.config.format, None)
        except TableNotFoundError as error:
            raise InvalidInputError(
                f"tables.{self.name}.columns is not declared, and there is no silver table at {self.config.silver} to take "
                "them from. Nothing was written. Declare names and types; they are never guessed from rows."
            ) from error
        added = {*self.sequence, *(one.name for one in self.config.commit_fields)}
        added |= {rule.column for rule in silver.row_rules.rules}
        return pa.schema([pa.field(one.name, one.type) for one in silver.schema if one.name not in added])

    @cached_property
    def bronze(self) -> sw.Table:
        """Every change; it is made where it is not there.

        Raises:
            InvalidInputError: its columns do not fit.
            SafewriteError: as ``safewrite.open``.
        """
        wanted = bronze_schema(self.config, self.columns)
        return self._open(self.config.bronze, wanted, self.config.partition_by.bronze, of_bronze=True)

    @cached_property
    def silver(self) -> sw.Table:
        """The current state.  Raises as ``safewrite.open`` does, and InvalidInputError for columns that do not fit."""
        wanted = self.silver_schema
        marks = {"delta.enableDeletionVectors": "true"} if self.config.marks_rows else {}
        return self._open(self.config.silver, wanted, self.config.partition_by.silver, marks)

    def _open(
        self,
        address: str,
        wanted: pa.Schema,
        by: Sequence[str],
        properties: Mapping[str, str] | None = None,
        *,
        of_bronze: bool = False,
    ) -> sw.Table:
        found = (self._bronze if of_bronze else None) or self.places.open(
            address, self.config.format, wanted, properties=properties, partition_by=by
        )
        if by and not alike(by, found.partition_by):
            log.warning(
                "medallion: %s: %s is partitioned by %s and stays so; partition_by is of tables that are created",
                self.name, found.uri, list(found.partition_by),
            )  # fmt: skip
        if of_bronze and self.config.format == "iceberg":
            if not self.places.read_only:
                rename_file_column(found, self.name)
            wanted = named_as_there(wanted, found.schema.names)
        if of_bronze and found.row_rules:
            raise UnsupportedTableError(
                f"Bronze of {self.name} ({found.uri}) takes every record, and has rules for its rows: {found.row_rules}. Nothing was "
                "written. Take them away, and give them to silver, which puts rows into quarantine that break one."
            )
        return fit(found, wanted, self.name, read_only=self.places.read_only)

    @property
    def silver_schema(self) -> pa.Schema:
        """The columns of the source, and the place of each row in the order of changes."""
        own = [pa.field(one.name, one.type, one.name not in self.config.keys) for one in self.columns]
        if self.config.sync is None:
            more = [*(BRONZE_COLUMNS.field(name) for name in SEQUENCE), *self.config.commit_fields]
        else:
            bronze, there = self.foreign.schema, frozenset(self.columns.names)
            more = [pa.field(one, bronze.field(one).type) for one in self.sequence if one not in there]
        return pa.schema([*own, *more])

    @property
    def sequence(self) -> list[str]:
        """The columns that order the changes of a key."""
        return list(SEQUENCE) if self.config.sync is None else self.config.sync.sequence

    @property
    def sync(self) -> Sync:
        """How silver follows a bronze of others.  Raises InternalError where it does not."""
        if self.config.sync is None:
            raise InternalError(f"{self.name} was to be followed by time without sync. Please report it.")
        return self.config.sync

    @cached_property
    def foreign(self) -> Foreign:
        """A bronze that others write, as silver reads it.  Raises as ``safewrite.open`` does."""
        return self.places.foreign(self.config.bronze, self.config.format)

    def silver_mark(self) -> tuple[int, str | None]:
        """Silver's newest version, and its mark."""
        silver: Any = self.silver.refresh()
        if self.config.format == "iceberg":
            return silver.version, str(silver.iceberg.metadata_location)
        return silver.version, head_mark(
            storage(self.config.silver, self.places.config.options()), silver.version
        )

    @cached_property
    def lineage(self) -> Lineage:
        """Bronze, as silver reads it."""
        return self.places.lineage(self.name, self.bronze, self.config.format)


def _metadata_location(catalog: Any, address: str) -> str:
    """Where a table's newest metadata is: Glue tells it alone, other catalogs with the table."""
    glue = getattr(getattr(catalog, "inner", catalog), "glue", None)
    if glue is None:
        return str(catalog.load_table(address).metadata_location)
    database, _, name = address.rpartition(".")
    found = glue.get_table(DatabaseName=database, Name=name)["Table"]
    return str(found.get("Parameters", {}).get("metadata_location"))


def quarantine_rows(name: str, stage: str, file: str, tag: str, bad: Sequence[BadRecord]) -> pa.Table:
    """Bad records of one file as rows of the quarantine table."""
    count = len(bad)
    values: Mapping[str, list[Any]] = {
        "table": [name] * count, "stage": [stage] * count, "file": [file] * count, "tag": [tag] * count,
        "line": [one.line for one in bad], "reason": [one.reason for one in bad], "text": [one.text for one in bad],
    }  # fmt: skip
    return pa.table(dict(values), schema=QUARANTINE)


def _digest(rows: pa.Table) -> str:
    content = repr([rows[name].to_pylist() for name in ("line", "reason", "text")])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def short_key(text: str) -> str:
    """A key of a write: long ones are cut, and end in a hash."""
    raw = text.encode()
    return (
        text if len(raw) <= 1000 else f"{raw[:900].decode(errors='ignore')}~{hashlib.sha256(raw).hexdigest()}"
    )
