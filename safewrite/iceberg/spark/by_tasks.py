"""Writes a Spark DataFrame, or its changes, to an Iceberg table by tasks on the executors, without Iceberg's own library: the one protocol commits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.types import NestedField, UUIDType

from safewrite.changes.spark.batch import given_rows
from safewrite.errors import UnsupportedTableError, WouldAlterError
from safewrite.frames.replace_where import digest
from safewrite.frames.source import check_classic
from safewrite.frames.spark.columns import arrow_schema as spark_columns
from safewrite.frames.spark.stream import written
from safewrite.frames.spark.tallied import (
    TalliedRows,
    by_tasks,
    executors_lack_python,
    or_by_library,
    unreached,
)
from safewrite.iceberg.catalog.addresses import TableAddress, address_of
from safewrite.iceberg.data.defaults import fills_of
from safewrite.iceberg.data.schema import arrow_schema, known_columns
from safewrite.iceberg.data.uuids import uuid_columns, with_uuids
from safewrite.iceberg.features import unread
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.spark.distribution import distributed, is_expressible
from safewrite.iceberg.spark.files import has_library
from safewrite.iceberg.spark.write import checked, counted
from safewrite.iceberg.write.append import AppendPlan
from safewrite.iceberg.write.apply_by_tasks import plan_of
from safewrite.iceberg.write.evolution import Evolution, evolve
from safewrite.iceberg.write.plans import Planner
from safewrite.iceberg.write.staging import UploadedFile
from safewrite.iceberg.write.summary import carries
from safewrite.iceberg.write.tasks import IcebergFiles, WriteFiles
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.keys import Identity
from safewrite.table.operation import Operation
from safewrite.table.writer import repeated
from safewrite.text.rendering import shown
from safewrite.values.types import is_text

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from safewrite.frames.predicate import Predicate
    from safewrite.frames.spark.batch import BatchOrigin, SparkBatch
    from safewrite.frames.spark.computed_frame import ComputedFrame
    from safewrite.iceberg.data.datafiles import StagedFile
    from safewrite.iceberg.spark.abc import SparkTable
    from safewrite.iceberg.write.summary import Write
    from safewrite.iceberg.write.write import IcebergDone
    from safewrite.receipt import Receipt


# --- which path --------------------------------------------------------------------------------------
def address_to_append(table: SparkTable, held: ComputedFrame, head: TableVersion) -> TableAddress | None:
    """How executors reach the table; None where Iceberg's own library is to append (decision 0065).

    Tasks cannot write where executors lack Python's packages, or where the FileIO or this process's credentials cannot be
    sent to them, and not values that Spark has in another form inside of structs, lists and maps.  Iceberg's library makes
    fewer files where it can hash rows to buckets, and where a sort order asks for all rows in order: tasks sort them a
    piece at a time.
    """
    if executors_lack_python(held.context):
        return None
    metadata = table_of(head).metadata
    if as_spark_has(metadata.schema()) is None:
        return None
    by_tasks = metadata.sort_order().is_unsorted and is_expressible(metadata)
    if not by_tasks and not unread(metadata) and has_library(held.session):
        return None
    return address_of(head, table.connection.catalog)


def reached(table: SparkTable, head: TableVersion, operation: Operation) -> TableAddress:
    """How executors reach the table, for what tasks alone do.

    Raises:
        UnsupportedTableError: a column holds values that Spark has in another form, inside of structs, lists or maps.
        InvalidInputError: the FileIO, or this process's credentials, cannot be sent to executors.
    """
    schema, what = table_of(head).metadata.schema(), operation.verb
    others = [one.name for one, seen in _pairs(schema) if seen is None]
    if others:
        raise UnsupportedTableError(
            f"{table.uri}: Spark has values of {', '.join(map(shown, others))} in another form than Iceberg (time; UUID or fixed inside of "
            f"others), so that {what} cannot take a Spark frame. Nothing was written. Bring the rows here, frame.toArrow(), and give these columns their "
            "types in Arrow."
        )
    address = address_of(head, table.connection.catalog)
    if address is None:
        raise unreached(table.uri, what)
    return address


def as_spark_has(schema: Schema) -> pa.Schema | None:
    """The columns as Spark has them in Arrow: UUIDs are texts, and bytes have no fixed length.  None for types beyond these."""
    fields = [seen for _, seen in _pairs(schema)]
    return None if any(field is None for field in fields) else pa.schema(fields)


def _pairs(schema: Schema) -> list[tuple[pa.Field, pa.Field | None]]:
    """The columns, and each as Spark has it."""
    known = known_columns(schema)
    return [(one, _field(field, one)) for field, one in zip(known.fields, arrow_schema(known), strict=True)]


def _field(field: NestedField, there: pa.Field) -> pa.Field | None:
    if isinstance(field.field_type, UUIDType):
        return there.with_type(pa.string())
    if pa.types.is_fixed_size_binary(there.type):
        return there.with_type(pa.binary())
    return None if _is_other(there.type) else there


def _is_other(kind: pa.DataType) -> bool:
    """Whether values of a type have another form in Spark, or none."""
    if pa.types.is_nested(kind):
        inner = (
            [kind.key_type, kind.item_type]
            if pa.types.is_map(kind)
            else [kind.field(at).type for at in range(kind.num_fields)]
        )
        return any(map(_is_other, inner))
    return bool(pa.types.is_fixed_size_binary(kind) or pa.types.is_time(kind))


# --- the write -----------------------------------------------------------------------------------------
def write(  # noqa: PLR0917 - one caller
    table: SparkTable,
    held: ComputedFrame,
    operation: Operation,
    name: Identity,
    head: TableVersion,
    queue_first: bool,
) -> tuple[IcebergDone, Write] | Receipt | None:
    """Write the rows of a DataFrame, or apply its changes, once; None where Iceberg's own library is to append them.

    Raises:
        WouldAlterError, InvalidInputError: nothing was committed; also where the session is of Spark Connect, which has no library.
        NotCommittedError: its other subclasses; none of the rows is or will be in the table.
        CommitUnknownError: the same call again, or ``resolve``, decides.
    """
    if operation.verb != "append":
        address = reached(table, head, operation)
        does = _written if operation.changes is None else _applied
        return by_tasks(partial(does, table, address, held, operation, name, head, queue_first))
    to_append = address_to_append(table, held, head)
    if to_append is None:
        check_classic(held.session, "Iceberg's library, which alone can append to this table,")
        return None
    return or_by_library(
        partial(_written, table, to_append, held, operation, name, head, queue_first),
        held.context,
        partial(has_library, held.session),
        table.uri,
    )


def _written(  # noqa: PLR0917 - one caller, just above
    table: SparkTable,
    address: TableAddress,
    held: ComputedFrame,
    operation: Operation,
    name: Identity,
    head: TableVersion,
    queue_first: bool,
) -> tuple[IcebergDone, Write] | Receipt:
    there = carries(head, name)
    seen = as_spark_has(table_of(head).metadata.schema())
    assert seen is not None

    def by(origin: BatchOrigin | None) -> tuple[IcebergDone, Write] | Receipt:
        try:
            job = job_of(table.planner, address, held, operation, seen, head)
        except WouldAlterError:
            fills = fills_of(table_of(head).metadata)
            count = partial(counted, held.rows, seen, origin, operation.volatile, fills)
            found = repeated(table, count, operation, name, head)
            if found is None:
                raise
            return found
        with job.rows.batch(origin, seems_there=there) as (batch, files):
            plan = job.plan(batch, name)

            def encode() -> tuple[StagedFile, ...]:
                plan.staging.take(files())
                return ()

            return table.commit(plan, operation, encode, queue_first=queue_first), plan.write

    return written(held.frame, name.txn, head.table_id, by, seems_there=there)


def _applied(  # noqa: PLR0917 - one caller, :func:`write`
    table: SparkTable,
    address: TableAddress,
    held: ComputedFrame,
    operation: Operation,
    name: Identity,
    head: TableVersion,
    queue_first: bool,
) -> tuple[IcebergDone, Write]:
    frame, spec, schema = held.frame, operation.changes, table_of(head).metadata.schema()
    assert spec is not None
    uuids = uuid_columns(schema)
    columns = pa.schema(
        [
            one.with_type(pa.binary(16)) if one.name in uuids and is_text(one.type) else one
            for one in spark_columns(frame.schema)
        ]
    )

    def by(origin: BatchOrigin | None) -> tuple[IcebergDone, Write]:
        given = given_rows(frame, columns, origin)
        if uuids:
            given = replace(given, taken=partial(with_uuids, schema=schema))
        with plan_of(table.planner, address, head, given, (spec, name)) as plan:
            plan.properties, plan.positions = operation.properties, operation.positions
            return table.commit(plan, operation, tuple, queue_first=queue_first), plan.write

    return written(frame, name.txn, head.table_id, by, seems_there=carries(head, name))


# --- rows on their way ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class TaskJob:
    """Rows on their way to a plan; ``predicate`` says which rows go."""

    planner: Planner
    rows: TalliedRows[UploadedFile]
    operation: Operation
    head: TableVersion
    predicate: Predicate | None
    evolution: Evolution | None

    def plan(self, batch: SparkBatch, name: Identity) -> AppendPlan:
        """The plan that commits the rows."""
        named = self.planner.name(batch, name, self.head)
        plan: AppendPlan
        if self.predicate is None:
            plan = AppendPlan(**self.planner.common(named, self.head, self.evolution))
        else:
            write = named.covering(digest(self.predicate, "overwrite"))
            plan = self.planner.replace(write, self.head, self.predicate, self.evolution)
        plan.properties, plan.positions = self.operation.properties, self.operation.positions
        return plan


def job_of(  # noqa: PLR0917 - one caller, just above
    planner: Planner,
    address: TableAddress,
    held: ComputedFrame,
    operation: Operation,
    seen: pa.Schema,
    head: TableVersion,
) -> TaskJob:
    """Check a frame's columns against the table's, and say how tasks are to write its rows.

    Raises:
        WouldAlterError, InvalidInputError: as ``safewrite.frames.spark.columns.conformed``.
    """
    rows, checks, predicate = checked(held.rows, seen, operation, fills_of(table_of(head).metadata))
    evolution = evolve(head, rows.added)
    schema = evolution.schema if evolution else table_of(head).metadata.schema()

    def task() -> WriteFiles:
        how = planner.new_id(), planner.target_bytes(head), planner.limits.elsewhere()
        return WriteFiles(IcebergFiles(address, schema, *how))

    frame = distributed(rows.frame, table_of(head).metadata)
    tallied = TalliedRows[UploadedFile](frame, checks, operation.volatile, task)
    return TaskJob(planner, tallied, operation, head, predicate, evolution)
