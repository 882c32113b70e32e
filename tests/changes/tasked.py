"""Lets ``apply_changes`` go by tasks in threads of this process, as those of Spark frames go by tasks on executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import pyarrow as pa

from safewrite.changes.tasks.apply_job import GivenRows
from safewrite.delta.write import apply_by_tasks
from safewrite.delta.write.plans import Planner
from safewrite.engine.local import LocalEngine
from safewrite.frames.source import as_frame
from safewrite.iceberg.catalog.addresses import address_of
from safewrite.iceberg.write import apply_by_tasks as iceberg_by_tasks
from safewrite.table import planning


def shown(rows: Sequence[Sequence[pa.RecordBatch]], columns: pa.Schema) -> pa.Table:
    """The rows of a source of the local engine."""
    tables = [pa.Table.from_batches([batch]).cast(columns) for part in rows for batch in part]
    return pa.concat_tables([columns.empty_table(), *tables])


def given(data: Any, schema: pa.Schema, inputs: int = 2, engine: LocalEngine | None = None) -> GivenRows[Any]:
    """Changes as a source with so many inputs; each row comes to one of them, in its order."""
    frame = as_frame(data, target=schema)
    table = frame.piece(0, frame.rows).combine_chunks()
    size = max(1, -(-table.num_rows // inputs))
    source = [table.slice(at, size).to_batches() for at in range(0, max(1, table.num_rows), size)]
    return GivenRows(engine or LocalEngine(), source, table.schema, shown=shown)


@contextmanager
def by_tasks(inputs: int = 2, engine: LocalEngine | None = None) -> Iterator[None]:
    """All changes are applied by tasks until the end of the block."""
    with ExitStack() as stack:

        def applying(planner: Any, data: Any, spec: Any, name: Any, on: Any) -> Any:
            changes = given(data, planner.schema_of(on), inputs, engine)
            if isinstance(planner, Planner):
                store = planner.connection.store()
                assert store is not None
                plan: Any = apply_by_tasks.transaction(planner, store, on, changes, (spec, name))
            else:
                address = address_of(on, None)  # type: ignore[arg-type]
                assert address is not None
                plan = iceberg_by_tasks.plan_of(planner, address, on, changes, (spec, name))
            return stack.enter_context(plan), tuple

        stack.enter_context(mock.patch.object(planning, "applying", applying))
        yield
