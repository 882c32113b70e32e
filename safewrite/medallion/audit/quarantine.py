"""Finds the records in quarantine, says what became of each, and takes them again through today's configuration."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import pyarrow as pa

import safewrite as sw
from safewrite.errors import InvalidInputError, TableNotFoundError
from safewrite.medallion.config.bronze_columns import OLD, SEQUENCE
from safewrite.medallion.files.records import BadRecord
from safewrite.medallion.pipeline import Pipeline
from safewrite.medallion.tables.job import JobPlaces, TableJob, quarantine_rows, short_key

AsideState = Literal["waiting", "replayed", "overtaken", "retired"]
STATES: tuple[AsideState, ...] = get_args(AsideState)
RETIRED = "retired"
"""The stage of a row of the quarantine table that closes a record; its reason is the note, its text the record's stage."""
Place = tuple[str, str, int]
"""A path, the tag of a content, and the number of a record in it."""


@dataclass(frozen=True, slots=True)
class AsideRecord:
    """A record in quarantine: ``stage`` is where it was put aside, raw or silver.

    ``state``: replayed, bronze has it now or silver its row; overtaken, silver was not given it, and a later change of its key made it of
    no use; retired, somebody said that it is not needed (``note``).
    """

    name: str
    table: str
    stage: str
    state: AsideState
    reason: str
    tag: str
    text: str | None
    note: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did: records that are taken now, those that still wait, and why tables failed."""

    taken: list[AsideRecord]
    left: list[AsideRecord]
    failed: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        waiting = [one.to_dict() for one in self.left]
        return {"taken": len(self.taken), "waiting": waiting, "failed": self.failed}


class Quarantine:
    """The records that a job could not take."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def find(
        self,
        states: Collection[str] = ("waiting",),
        *,
        tables: Iterable[str] | None = None,
        reason: str | None = None,
        names: Collection[str] = (),
    ) -> list[AsideRecord]:
        """The records of these states, by table and file; ``reason`` is a part of their reason.

        Raises:
            SafewriteError: quarantine, bronze or silver cannot be read.
        """
        rows = self._rows()
        closed = {
            (row["table"], row["text"], *_place(row)): row["reason"]
            for row in rows
            if row["stage"] == RETIRED
        }
        wanted = None if tables is None else set(tables)
        of_tables: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            owner = row["table"] or self._owner(row["file"])
            is_meant = row["stage"] != RETIRED and (wanted is None or owner in wanted)
            if (
                is_meant
                and (reason is None or reason in row["reason"])
                and (not names or _name(row) in names)
            ):
                of_tables.setdefault(owner, []).append(row)
        found: dict[tuple[str, str, Place], AsideRecord] = {}
        for owner, group in sorted(of_tables.items()):
            taken = self._taken(owner, group)
            for row in group:
                note = closed.get((row["table"], row["stage"], *_place(row)))
                state = "retired" if note is not None else taken.get((row["stage"], _place(row)), "waiting")
                found[owner, row["stage"], _place(row)] = AsideRecord(  # the last reason of several counts
                    _name(row),
                    row["table"] or owner,
                    row["stage"],
                    state,
                    row["reason"],
                    row["tag"],
                    row["text"],
                    note,
                )
        return [one for _, one in sorted(found.items(), key=lambda pair: pair[0]) if one.state in states]

    def replay(self, chosen: Sequence[AsideRecord]) -> Replayed:
        """Take the tables of these records again from their files and from bronze; idempotent, and safe while the job runs.

        Raises:
            InvalidInputError: there are none, or none of a table that is configured.
            SafewriteError: as :meth:`find`.
        """
        tables = sorted({one.table for one in chosen} & {*self._pipeline.config.tables})
        if not tables:
            raise InvalidInputError(
                "No record of a configured table is meant. Nothing was written. Configure the table, or retire the records."
            )
        run = self._pipeline.replay(tables)
        after = self.find(STATES, tables=tables, names={one.name for one in chosen})
        states = {(one.table, one.stage, one.name, one.tag): one for one in after}
        now = [states.get((one.table, one.stage, one.name, one.tag), one) for one in chosen]
        failed = {one.table: one.error for one in run.tables if one.error is not None}
        taken, left = ([one for one in now if (one.state == "waiting") is waits] for waits in (False, True))
        return Replayed(taken, left, failed)

    def retire(self, chosen: Sequence[AsideRecord], note: str) -> int:
        """Note of records that wait that they are not needed; they stay in quarantine, and count there; how many are new.

        Raises:
            InvalidInputError: the note is empty.
            SafewriteError: as ``append_many``.
        """
        if not note.strip():
            raise InvalidInputError(
                "A note says why the records are not needed. Nothing was written. Give one."
            )
        places, count = self._pipeline.places, 0
        for one in (record for record in chosen if record.state == "waiting"):
            file, _, line = one.name.rpartition("#")
            owner = one.table if one.table in self._pipeline.config.tables else ""
            rows = quarantine_rows(owner, RETIRED, file, one.tag, [BadRecord(int(line), note, one.stage)])
            key = short_key(f"{places.config.job}/{RETIRED}/{one.stage}/{one.name}#{one.tag}/{_hash(note)}")
            receipt = places.quarantine.append(rows, key=key)
            count += receipt.outcome != sw.Outcome.ALREADY_COMMITTED
        return count

    def _rows(self) -> list[dict[str, Any]]:
        config, places = self._pipeline.config, self._pipeline.places
        try:
            table = places.open(config.quarantine, config.quarantine_format, None)
        except TableNotFoundError:
            return []
        found: list[dict[str, Any]] = _whole(
            places, "quarantine", table, config.quarantine_format
        ).to_pylist()
        return found

    def _owner(self, path: str) -> str:
        """The table that a file of no configured table is of, by its folder."""
        parts = path.split("/")
        return ".".join(parts[:2]) if len(parts) > 2 else ""

    def _taken(self, table: str, rows: Sequence[dict[str, Any]]) -> dict[tuple[str, Place], AsideState]:
        """What became of records of one table; those that wait are left out."""
        config = self._pipeline.config.tables.get(table)
        if config is None or config.sync is not None:
            return {}
        places = JobPlaces(self._pipeline.config, path=self._pipeline.places.path, read_only=True)
        job = TableJob(table, config, places)
        try:
            bronze, silver = (_whole(places, table, one, config.format) for one in (job.bronze, job.silver))
        except TableNotFoundError:
            return {}
        there = {_of_bronze(row): row for row in bronze.to_pylist()}
        files = {path for path, _, _ in there}
        found: dict[tuple[str, Place], AsideState] = {}
        for row in rows:
            place = _place(row)
            if row["stage"] == "raw" and (place in there or (place[2] == 0 and place[0] in files)):
                found["raw", place] = "replayed"
        aside = {_place(row) for row in rows if row["stage"] == "silver"}
        found |= {("silver", place): state for place, state in _in_silver(job, there, silver, aside)}
        return found


def _in_silver(
    job: TableJob, bronze: dict[Place, dict[str, Any]], silver: pa.Table, aside: set[Place]
) -> Iterator[tuple[Place, AsideState]]:
    """What became of rows that silver was not given: silver has one, or a later change of its key, or of both keys, came."""
    keys = job.config.keys
    have = {
        tuple(row[key] for key in keys): _order(row) for row in silver.select([*keys, *SEQUENCE]).to_pylist()
    }
    newest: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for place, row in bronze.items():
        if place not in aside:
            for key in {tuple(row[key] for key in keys), tuple(_old(row, key) for key in keys)}:
                newest[key] = max(newest.get(key, ()), _order(row))
    for place in aside & bronze.keys():
        row = bronze[place]
        key = tuple(row[name] for name in keys)
        if have.get(key) == _order(row):
            yield place, "replayed"
        elif newest.get(key, ()) > _order(row):
            yield place, "overtaken"


def _whole(places: JobPlaces, name: str, table: sw.Table, table_format: str) -> pa.Table:
    """All rows of a table of the job."""
    lineage = places.lineage(name, table, table_format)
    lineage.look()
    return lineage.read(lineage.whole())


def _old(row: dict[str, Any], key: str) -> Any:
    return row[key] if row.get(OLD + key) is None else row[OLD + key]


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in SEQUENCE)


def _of_bronze(row: dict[str, Any]) -> Place:
    return row["_file"], row["_tag"], row["_line"]


def _place(row: dict[str, Any]) -> Place:
    return row["file"], row["tag"], row["line"]


def _name(row: dict[str, Any]) -> str:
    return f"{row['file']}#{row['line']}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
