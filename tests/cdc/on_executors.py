"""Decodes records as executors do: a task for each partition of a topic, its results sent as bytes."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

from safewrite.cdc.envelopes import decode_task
from safewrite.cdc.envelopes.decode_task import DecodeReport, DecodeTask
from safewrite.cdc.envelopes.decoding import Decoded, Decoder
from safewrite.cdc.records.change_set import Place
from safewrite.cdc.records.records import KafkaRecords
from safewrite.engine.local import LocalEngine

_BATCH = 7


def decoded(decoder: Decoder, records: KafkaRecords, ended: Mapping[Place, int] | None = None) -> Decoded:
    """What tasks with the settings of a decoder make of records; the workers know no schemas before."""
    decode_task._decoder.cache_clear()
    task = sent(
        DecodeTask(
            decoder.envelope, decoder.settings, records.prefixes, ended=ended or {}, fewest=decoder.fewest
        )
    )
    inputs = [
        records.take(places).data.to_batches(max_chunksize=_BATCH) for places in records.partitions().values()
    ]
    found = LocalEngine().collect(inputs, task)
    reports: list[DecodeReport] = pickle.loads(pickle.dumps(found.bodies()))
    pieces = found.rows.column("data").to_pylist()
    return decode_task.union(pieces, reports, records.prefixes)


def sent(task: DecodeTask) -> DecodeTask:
    """A task as an executor gets it; registries of tests stay in this process."""
    if task.settings.schema_of is not None:
        return task
    made: DecodeTask = pickle.loads(pickle.dumps(task))
    return made
