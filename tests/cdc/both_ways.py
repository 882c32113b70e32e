"""Reads the same records by columns, as executors do and send them, and one by one, as far as a frame for their table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from safewrite.cdc.columns.column_fit import ColumnFit, ColumnTypes
from safewrite.cdc.columns.frames import LACKS, take_misfits
from safewrite.cdc.config.own_columns import OwnNames
from safewrite.cdc.envelopes.decoding import Decoder
from safewrite.cdc.ledger.ledger import LedgerEntry
from safewrite.cdc.records.change import DeadLetter, KafkaRecord
from safewrite.cdc.table.table_batch import TableBatch
from safewrite.frames.row_rules import TableRules
from tests.cdc import on_executors
from tests.cdc.jobs import Job


@dataclass
class Outcome:
    """What became of records: rows by the offset of their record, and reasons; ``by_columns`` counts those of blocks."""

    rows: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    dead: dict[int, str] = field(default_factory=dict)
    ignored: int = 0
    types: dict[str, pa.DataType] = field(default_factory=dict)
    moves: dict[str, tuple[int | None, int]] = field(default_factory=dict)
    followed: dict[int, Any] = field(default_factory=dict)
    """The other half of a changed key, by the offset of the half that names it."""
    by_columns: int = 0

    def told(self) -> tuple[str, ...]:
        """All of it that has to be equal; NaN is equal to itself, and of reasons the value may be written otherwise."""
        dead = [(offset, reason.split(": ")[0]) for offset, reason in sorted(self.dead.items())]
        types = self.types if self.rows else None
        return tuple(
            map(
                str,
                (
                    sorted(self.rows.items()),
                    dead,
                    self.ignored,
                    types,
                    sorted(self.moves.items()),
                    self.followed,
                ),
            )
        )


def outcomes(
    records: Sequence[KafkaRecord],
    schema: pa.Schema | None = None,
    positions: Any = None,
    decoder: Callable[[], Decoder] | None = None,
    job_settings: Mapping[str, Any] | None = None,
    **table: Any,
) -> tuple[Outcome, Outcome]:
    """By columns, and one by one; ``decoder`` is another than that of Debezium's JSON."""
    form = table.pop("format", "delta")
    job = Job(Path("nowhere"), [{"table": "a", **table}], form, dict(job_settings or {}), schemas=False)
    made = []
    for each in (False, True):
        landing = job.landing()
        if decoder is not None:
            landing.decoder = decoder()
            landing.decoder.fewest = 1
        batch = job.batch(records)
        decode = landing.decoder.decode_each if each else partial(on_executors.decoded, landing.decoder)
        decoded = decode(batch.records)
        routing = landing._router.route(decoded)
        found = Outcome(by_columns=decoded.by_columns)
        found.ignored = len(decoded.ignored) + decoded.tombstones + len(decoded.unmet)
        found.dead = reasons([*decoded.dead, *routing.dead])
        for name, (config, given) in routing.tables.items():
            share = TableBatch(landing.job, config, LedgerEntry("job", 0, name), batch, _found(schema))
            share.positions, share.changes = positions or {}, given
            share.make(None, each=each)
            fit = ColumnFit.of(config, ColumnTypes.of(share.rows), _found(schema), share.rows.keys)
            framed = take_misfits(config, share.rows, fit, is_whole=True)
            share.rows.dead += framed.letters
            note(found, framed.frame(), share)
        made.append(found)
    by_columns, one_by_one = made
    return by_columns, one_by_one


def _found(schema: pa.Schema | None) -> Any:
    """A table of a schema."""
    return None if schema is None else SimpleNamespace(schema=schema, partition_by=(), row_rules=TableRules())


def note(found: Outcome, frame: pa.Table, share: TableBatch) -> None:
    assert share.made is not None
    found.moves |= share.made.snapshots.moves()
    found.dead |= reasons(share.rows.dead)
    found.followed |= {
        row.change.record.offset: row.other for row in share.rows.rows if row.other is not None
    }
    found.types |= {name: frame.schema.field(name).type for name in sorted(frame.schema.names)}
    for row in frame.to_pylist():
        offset = int(row[OwnNames().sequence].rpartition("-")[2])
        row[LACKS] = row[LACKS] or []
        found.rows.setdefault(offset, []).append(dict(sorted(row.items())))
    assert LACKS in found.types


def reasons(letters: Sequence[DeadLetter]) -> dict[int, str]:
    return {letter.record.offset: letter.reason for letter in letters}
