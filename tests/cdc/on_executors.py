"""Decodes and lands records as executors do: a task for each partition of a topic, tasks and results sent as bytes."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from safewrite.cdc.envelopes import decoding
from safewrite.cdc.envelopes.decoding import Decoded, Decoder
from safewrite.cdc.landing.landing import WorkOf
from safewrite.cdc.records.change_set import Place
from safewrite.cdc.records.records import KafkaRecords
from safewrite.cdc.table import decode_task
from safewrite.cdc.table.by_tasks import ExecutorWork
from safewrite.cdc.table.decode_task import DecodeReport, DecodeTask
from safewrite.engine.abc import EngineError
from safewrite.engine.exchange import Aside
from safewrite.engine.local import LocalEngine

_BATCH = 7


def decoded(decoder: Decoder, records: KafkaRecords, ended: Mapping[Place, int] | None = None) -> Decoded:
    """What tasks with the settings of a decoder make of records; the workers know no schemas before."""
    task = sent(DecodeTask(decoder, records.prefixes, ended=ended or {}))
    inputs = [
        records.take(places).data.to_batches(max_chunksize=_BATCH) for places in records.partitions().values()
    ]
    engine = Executors()
    with LocalEngine.map(engine, inputs, task) as found:
        reports: list[DecodeReport] = pickle.loads(pickle.dumps(found.bodies()))
        pieces = engine.taken(found.rows)
    return decode_task.union(pieces, reports, records.prefixes)


def sent(task: DecodeTask) -> DecodeTask:
    """A task as an executor gets it; registries of tests stay in this process."""
    decoding._known.cache_clear()
    if task.decoder.settings.schema_of is not None:
        return task
    made: DecodeTask = pickle.loads(pickle.dumps(task))
    return made


@dataclass
class Executors(LocalEngine):
    """Runs tasks as executors get them.  ``lost`` are the numbers of the jobs before which an executor goes with its rows."""

    lost: frozenset[int] = frozenset()
    jobs: int = 0
    gathers: bool = False

    @contextmanager
    def map(self, source: Any, task: Any, rows_a_batch: int | None = None) -> Iterator[Any]:
        self._begin()
        with super().map(source, pickle.loads(pickle.dumps(task))) as mapped:
            mapped.reports[:] = pickle.loads(pickle.dumps(mapped.reports))
            yield mapped

    def taken(self, source: Any) -> list[Any]:
        return [one.sent(one.what) for rows in source for one in rows if isinstance(one, Aside)]

    def gathered(self, source: Any, inputs: int) -> Any:
        """A task for each partition, however few its records are: what tasks do not know of each other is what tests are of."""
        return super().gathered(source, inputs) if self.gathers else source

    def run(self, tasks: Any) -> Any:
        self._begin()
        return pickle.loads(pickle.dumps(super().run(pickle.loads(pickle.dumps(tasks)))))

    def _begin(self) -> None:
        self.jobs += 1
        if self.jobs in self.lost:
            raise EngineError("an executor is gone")

    def work(self, records: KafkaRecords) -> ExecutorWork:
        """The work of a batch whose records are with these executors."""
        inputs = [
            records.take(places).data.to_batches(max_chunksize=_BATCH)
            for places in records.partitions().values()
        ]
        return ExecutorWork(self, inputs, records.prefixes, None, 2, lambda reports: None)


def work_of(executors: Executors | None) -> WorkOf:
    """Work that these executors do, or the driver's process."""
    return ExecutorWork.here if executors is None else executors.work
