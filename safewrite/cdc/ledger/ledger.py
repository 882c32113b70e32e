"""Keeps the ledger of a job: what came in, what became of it, and how far it got; and its dead letters."""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import safewrite as sw
from safewrite.cdc.config.job import Config
from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.ledger.target_tables import TargetTables
from safewrite.cdc.records.batch import Batch, Partition, Ranges, moves
from safewrite.cdc.records.change import DeadLetter

log = logging.getLogger("safewrite")

COUNTED = (
    "applied", "inserted", "updated", "deleted", "tombstoned", "truncated", "late", "duplicate", "superseded",
)  # fmt: skip
NO_OFFSETS = "[]"
"""The offsets of a line that is of no batch."""
_BRANCHES = "safewrite.branch."
"""The properties of an Iceberg table that safewrite began branches of begin with this."""
LETTERS_KEY = ("job", "topic", "topic_id", "partition", "offset")


@dataclass
class LedgerEntry:
    """One line of the ledger: a table's share of a batch; of no table: records that name none.

    ``records`` = ``earlier`` + ``ignored`` + ``dead`` + ``changes`` - ``split``, and ``changes`` is the sum of
    ``applied``, ``late``, ``duplicate`` and ``superseded``.  ``earlier`` landed in a batch before, by the table's
    positions; ``split`` are changes beyond one for a record.
    """

    job: str
    batch: int
    table: str | None
    records: int = 0
    earlier: int = 0
    ignored: int = 0
    dead: int = 0
    split: int = 0
    changes: int = 0
    applied: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    tombstoned: int = 0
    truncated: int = 0
    late: int = 0
    duplicate: int = 0
    superseded: int = 0
    version: int | None = None
    source_time_ms: int | None = None
    begins_at: str | None = None
    """Offsets at which a table began that the job had not landed before."""
    offsets: str = ""
    """The offsets of the batch: ``[[topic, partition, topic id, start, end], ...]``."""
    commit_ms: int | None = None
    """How long the table's commit took; None where it was not this attempt's."""
    one_by_one: int = 0
    """How many records were made to rows one by one, and not as columns."""
    by_executors: int = 0
    """How many records landed by tasks on Spark's executors; the driver landed the others."""
    engine: str | None = None
    """Where the batch was landed, and why; in its line of no table."""
    replayed: int = 0
    """How many of the records were dead letters, which a line of before counts."""
    closed_ms: int | None = None
    """When the batch was closed, by the clock of the driver, in milliseconds since 1970; no decision rests on it."""

    def count(self, told: Mapping[str, int]) -> None:
        """Take over the counts of a receipt."""
        for name in COUNTED:
            setattr(self, name, int(told.get(name, 0)))
        self.changes = self.applied + self.late + self.duplicate + self.superseded

    @property
    def is_replay(self) -> bool:
        """Whether it is of a replay of dead letters, and of no batch."""
        return self.offsets == NO_OFFSETS

    @property
    def adds_up(self) -> bool:
        """Whether every record is accounted for."""
        landed = self.changes - self.split
        return self.records == self.earlier + self.ignored + self.dead + landed


LEDGER_SCHEMA = pa.schema(
    [
        pa.field(
            one.name,
            pa.string() if one.name in {"job", "table", "begins_at", "offsets", "engine"} else pa.int64(),
        )
        for one in fields(LedgerEntry)
    ]
)
LETTERS_SCHEMA = pa.schema(
    {
        "job": pa.string(), "topic": pa.string(), "topic_id": pa.string(), "partition": pa.int64(), "offset": pa.int64(),
        "table": pa.string(), "reason": pa.string(), "key": pa.binary(), "value": pa.binary(), "headers": pa.string(),
        "timestamp_ms": pa.int64(), "seen_ns": pa.int64(), "state": pa.string(), "replay": pa.string(), "note": pa.string(),
        "epochs": pa.string(),
    }
)  # fmt: skip
"""``state`` is NULL of a letter that waits (``safewrite.cdc.landing.dead_letters``).

``epochs`` is a JSON object: under "" the epoch of the letter's table when it came; where it names none, those of tables by name,
and under "" that of all others.
"""


@dataclass
class JobLedger:
    """The ledger and the dead letters of a job."""

    config: Config
    targets: TargetTables
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _ends: dict[str, dict[str, int]] = field(default_factory=dict, repr=False)
    """How far Iceberg tables were taken by the commits that this process knows of."""

    @cached_property
    def table(self) -> TargetTable:
        return self._own("ledger")

    @cached_property
    def letters(self) -> TargetTable:
        return self._own("dead_letters")

    def _own(self, what: str) -> TargetTable:
        of = self.config.job_tables
        return TargetTable(database=of.database, table=f"{self.config.job}_{what}", format=of.format)

    def positions(self) -> dict[str, int]:
        """How far the job got; none before its first batch."""
        return self.targets.position(self.table)[1]

    def checked(
        self, table: TargetTable, found: sw.Table | None, positions: Mapping[str, int], *, landed: int
    ) -> Mapping[str, int]:
        """The positions of a table.  Those of Iceberg tables go back with a branch that is set back, or made again.

        They are compared with what this process landed; before, those of a table that may have gone back with the ledger's once.

        Args:
            landed: 0 where the table was not landed before, or ``restart`` says so.

        Raises:
            ConflictError: the table is before what was landed; kind BRANCH_CHANGED, of a main branch POSITION_MOVED.
        """
        if table.format != "iceberg" or not landed:
            return positions
        ends = self._ends.get(table.name)
        if ends is None:
            ends = self._ledgers_ends(table, found, positions)
        for name, end in ends.items():
            if (known := positions.get(name, 0)) < end:
                what = "The table" if table.branch is None else f"The branch {table.branch!r} of"
                raise sw.ConflictError(
                    f"{what} {table.name} has the position {known} of {name}, and the job landed records up to {end}: it was dropped or "
                    "set back, or what was landed is on another branch, and rows went that do not come again. Nothing of the batch was "
                    "committed. Restore it; or raise epoch and have the source send its rows again (a snapshot).",
                    kind=sw.Kind.POSITION_MOVED if table.branch is None else sw.Kind.BRANCH_CHANGED,
                )
        with self._lock:
            self._ends[table.name] = ends
        return positions

    def _ledgers_ends(
        self, table: TargetTable, found: sw.Table | None, positions: Mapping[str, int]
    ) -> dict[str, int]:
        """How far the ledger says that a table was taken that may have gone back; nothing of others, nor where the epoch was raised."""
        ledger = self.targets.find(self.table) if found is not None and _may_have_gone_back(found) else None
        if ledger is None or table.epoch > positions.get(f"{self.config.job}/epoch", 0):
            return {}
        last = last_commit(ledger.rows(where=[("job", "=", self.config.job), ("table", "=", table.name)]))
        return {} if last is None else ends_of(last, self.config.job)

    def mark(self, table: str) -> str:
        """The position that says that a table was landed before: 1, or 0 after ``restart``."""
        return f"{self.config.job}//{table}"

    def ended(self, ranges: Ranges, positions: Mapping[str, int]) -> dict[tuple[str, int], int]:
        """The deletes that partitions ended with in the batch before: their tombstones may come now."""
        return {(where.topic, where.number): positions.get(self._ending(where), 0) for where in ranges}

    def _ending(self, where: Partition) -> str:
        return f"{where.name(self.config.job)}/delete"

    def write_letters(self, letters: Iterable[DeadLetter], ranges: Ranges) -> int:
        """Keep dead letters, each record once, however often its batch comes.

        They are upserts by the place of the record, so that a replay whose letters are others (the configuration was
        changed between) neither loses one nor doubles one.
        """
        by_place = {(one.topic, one.number): one.topic_id for one in ranges}
        rows: dict[tuple[str, int, int], dict[str, object]] = {}
        seen_ns, epochs = time.time_ns(), self.config.epochs
        of_all = json.dumps(epochs)
        for letter in letters:
            record = letter.record
            place = record.place
            if place in rows:
                continue
            rows[place] = {
                "job": self.config.job, "topic": record.topic, "topic_id": by_place.get(place[:2], ""),
                "partition": record.partition, "offset": record.offset, "table": letter.table,
                "reason": _storable(letter.reason), "key": record.key, "value": record.value,
                "headers": _headers(record.headers), "timestamp_ms": record.timestamp_ms, "seen_ns": seen_ns,
                "epochs": of_all
                if letter.table is None
                else json.dumps({"": epochs.get(letter.table, epochs[""])}),
            }  # fmt: skip
        if not rows:
            return 0
        with self._lock:  # tables that commit at once may each have letters
            table, known = self.targets.position(self.letters)
            table = self._whole(self.letters, table, LETTERS_KEY, LETTERS_SCHEMA)
            table.apply_changes(
                pa.Table.from_pylist(list(rows.values()), LETTERS_SCHEMA), keys=LETTERS_KEY, sequence_by=["seen_ns"],
                all_late="count", positions=moves(ranges, self.config.job, known),
            )  # fmt: skip
        return len(rows)

    def with_columns(self, letters: sw.Table) -> sw.Table:
        """The table of dead letters with the columns that it has today."""
        return self._whole(self.letters, letters, LETTERS_KEY, LETTERS_SCHEMA)

    def write(
        self,
        batch: Batch,
        lines: Sequence[LedgerEntry],
        positions: Mapping[str, int],
        endings: Mapping[tuple[str, int], int],
    ) -> None:
        """Close a batch: its lines, and how far the job got and which deletes partitions end with, in one commit.

        Raises:
            ConflictError: another job of the name closed a batch meanwhile.
            InternalError: a record is not accounted for.
        """
        for line in lines:
            if not line.adds_up:
                raise sw.InternalError(
                    f"The records of {line.table or 'no table'} in batch {line.batch} of {line.job!r} do not add up: {line}. Its "
                    "tables are committed, the batch is not closed. Please report this with the line above."
                )
        moved = moves(batch.ranges, self.config.job, positions)
        for where in batch.ranges:
            name, digest = self._ending(where), endings.get((where.topic, where.number))
            if digest is not None and digest != positions.get(name, 0):
                moved[name] = (positions.get(name), digest)
        moved |= self._marks(lines, positions)
        table = self._whole(self.table, self.targets.seen(self.table), ("job", "batch"), LEDGER_SCHEMA)
        table.append(_closed(lines), positions=moved)
        with self._lock:
            landed = {
                line.table: line for line in lines if line.table is not None and line.version is not None
            }
            self._ends |= {name: ends_of(vars(line), self.config.job) for name, line in landed.items()}

    def write_replay(
        self, batch: Batch, lines: Sequence[LedgerEntry], positions: Mapping[str, int]
    ) -> list[LedgerEntry]:
        """Count the dead letters that a replay landed, once for each replay; they are of no batch, and move no offsets."""
        for line in lines:
            line.records -= line.dead
            line.dead, line.offsets, line.replayed = 0, NO_OFFSETS, line.records
        landed = [line for line in lines if line.records]
        table = self._whole(self.table, self.targets.seen(self.table), ("job", "batch"), LEDGER_SCHEMA)
        key = batch.key(self.config.job, "ledger")
        if landed and table.resolve(key) is None:
            table.append(_closed(landed), key=key, positions=self._marks(landed, positions))
        return landed

    def _marks(
        self, lines: Sequence[LedgerEntry], positions: Mapping[str, int]
    ) -> dict[str, tuple[int | None, int]]:
        """How a commit of these lines marks tables that were not landed before."""
        names = [self.mark(line.table) for line in lines if line.table is not None and line.changes]
        return {name: (positions.get(name), 1) for name in names if positions.get(name, 0) == 0}

    def _whole(
        self, target: TargetTable, found: sw.Table | None, keys: Sequence[str], schema: pa.Schema
    ) -> sw.Table:
        """A table of the job, made where there is none; one of an earlier version gets the columns that came since."""
        found = found or self.targets.find(target)
        if found is None:
            return self.targets.create(target, keys, list(schema))
        new = [one for one in schema if found.schema.get_field_index(one.name) < 0]
        return self.targets.widen(target, found, new) if new else found

    def restart(self, table: str) -> None:
        """Declare that a table that was dropped, or created again, begins with what comes now.

        Raises:
            InvalidInputError: the job never landed rows in a table of that name.
        """
        found, known = self.targets.position(self.table)
        landed = known.get(self.mark(table), 0)
        if found is None or not landed:
            raise sw.InvalidInputError(
                f"The job {self.config.job!r} has landed no rows in {table}, so there is nothing to begin again. Nothing was "
                "written. Name a table as database.table."
            )
        found.append(found.schema.empty_table(), positions={self.mark(table): (landed, 0)})
        log.warning("table %s of job %s begins again", table, self.config.job)


def _may_have_gone_back(found: Any) -> bool:
    """Whether an Iceberg table has branches, or its log a snapshot from which the main branch does not come: rows may be gone."""
    metadata, line = found.iceberg.metadata, set[int]()
    parents = {one.snapshot_id: one.parent_snapshot_id for one in metadata.snapshots}
    at = metadata.current_snapshot_id
    while at in parents:
        line.add(at)
        at = parents[at]
    return any(name.startswith(_BRANCHES) for name in found.properties) or any(
        one.snapshot_id in parents and one.snapshot_id not in line for one in metadata.snapshot_log
    )


def _closed(lines: Sequence[LedgerEntry]) -> pa.Table:
    """Lines as rows, with the time of now."""
    closed_ms = time.time_ns() // 1_000_000
    for line in lines:
        line.closed_ms = closed_ms
    return pa.Table.from_pylist([vars(line) for line in lines], LEDGER_SCHEMA)


def listed(ranges: Ranges) -> str:
    """Offsets as a line of the ledger has them."""
    return json.dumps(
        [[where.topic, where.number, where.topic_id, *given] for where, given in sorted(ranges.items())]
    )


def _headers(headers: Sequence[tuple[str, bytes | None]]) -> str | None:
    """Headers as JSON, their values in base64, for they may be any bytes."""
    if not headers:
        return None
    coded = [[name, None if value is None else base64.b64encode(value).decode()] for name, value in headers]
    return _storable(json.dumps(coded, ensure_ascii=True))


def _storable(text: str) -> str:
    """A text without lone surrogates, which no file keeps."""
    return text.encode("utf-8", "backslashreplace").decode()


def last_commit(lines: pa.Table) -> Mapping[str, Any] | None:
    """Of a table's lines of the ledger that of its last commit."""
    of_batches = pc.not_equal(lines.column("offsets"), NO_OFFSETS)
    committed = lines.filter(pc.and_(pc.is_valid(lines.column("version")), of_batches))
    if not committed.num_rows:
        return None
    order = "version"
    if "closed_ms" in committed.column_names:  # not of a ledger of an earlier version, nor of its lines
        timed = committed.filter(pc.is_valid(committed.column("closed_ms")))
        committed, order = (timed, "closed_ms") if timed.num_rows else (committed, order)
    last: Mapping[str, Any] = (
        committed.sort_by([(order, "ascending")]).slice(committed.num_rows - 1).to_pylist()[0]
    )
    return last


def ends_of(line: Mapping[str, Any], job: str) -> dict[str, int]:
    """Where a line's commit took the positions of its table, by their names."""
    ends = json.loads(line["offsets"] or "[]")
    return {Partition(topic, number, topic_id).name(job): end for topic, number, topic_id, _, end in ends}
