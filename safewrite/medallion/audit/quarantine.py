"""Finds the records in quarantine, says what became of each, and takes them again through today's configuration."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import safewrite as sw
from safewrite.errors import InvalidInputError, TableNotFoundError
from safewrite.frames.fingerprint import row_hashes
from safewrite.intake.letters import (
    EVERY,
    LEFT,
    STATES,
    Letter,
    LetterFilter,
    Letters,
    LetterState,
    Replayed,
    ReplayedTable,
)
from safewrite.medallion.bronze.summary import Spans
from safewrite.medallion.config.bronze_columns import LOADED_OP, OLD, SEQUENCE
from safewrite.medallion.files.records import BadRecord
from safewrite.medallion.lineage.lineage import BronzeGapError, Lineage
from safewrite.medallion.pipeline import Pipeline
from safewrite.medallion.silver.load_keys import FileOfLoad, load_numbers
from safewrite.medallion.tables.job import JobPlaces, TableJob, quarantine_rows, short_key

RETIRED = "retired"
"""The stage of a row of the quarantine table that closes a record; its reason is the note, its text the record's stage."""
Place = tuple[str, str, int]
"""A path, the tag of a content, and the number of a record in it."""
NOT_APPLIED = ("late", "duplicate", "superseded")


@dataclass(frozen=True)
class AsideRecord(Letter):
    """A record in quarantine; its name is ``file#number``, its ``stage`` where it was put aside, raw or silver."""

    tag: str = ""
    text: str | None = None

    @property
    def place(self) -> Place:
        file, _, line = self.name.rpartition("#")
        return file, self.tag, int(line)

    def content(self) -> dict[str, Any]:
        return {"tag": self.tag, "text": self.text}


class Quarantine(Letters[AsideRecord]):
    """The records that a job could not take; what became of them is told by bronze and silver."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def find(self, wanted: LetterFilter = EVERY, states: Collection[LetterState] = LEFT) -> list[AsideRecord]:
        """The records of these states, by table and file; when they were met is told by the commits of quarantine.

        Raises:
            InvalidInputError: these do not go back to a time that is asked for.
            SafewriteError: quarantine, bronze or silver cannot be read.
        """
        rows, is_met = self._rows(wanted)
        closed = {
            (row["table"], row["text"], *_place(row)): row["reason"]
            for row in rows
            if row["stage"] == RETIRED
        }
        of_tables: dict[str, list[AsideRecord]] = {}
        for row in rows:
            if row["stage"] == RETIRED or not is_met(row):
                continue
            owner = row["table"] or self._owner(row["file"])
            note = closed.get((row["table"], row["stage"], *_place(row)))
            one = AsideRecord(
                f"{row['file']}#{row['line']}", owner, "waiting" if note is None else "retired", row["reason"], note, row["stage"],
                tag=row["tag"], text=row["text"],
            )  # fmt: skip
            if wanted.takes(one):
                of_tables.setdefault(owner, []).append(one)
        found: dict[tuple[str, str, Place], AsideRecord] = {}
        for owner, group in sorted(of_tables.items()):
            taken = self._taken(owner, group)
            for one in group:
                key = (one.stage or "", one.place)
                state = taken.get(key, one.state) if one.note is None else one.state
                found[owner, *key] = replace(one, state=state)  # the last reason of several counts
        return [one for _, one in sorted(found.items(), key=lambda pair: pair[0]) if one.state in states]

    def replay(self, wanted: LetterFilter = EVERY) -> Replayed:
        """Take the tables of these records again from their files and from bronze; idempotent, and safe while the job runs."""
        done = Replayed()
        chosen = self.find(wanted)
        tables = sorted({one.table or "" for one in chosen} & {*self._pipeline.config.tables})
        if not chosen:
            return done
        if not tables:
            raise InvalidInputError(
                "No record of a configured table is meant. Nothing was written. Configure the table, or retire the records."
            )
        run = self._pipeline.replay(tables)
        now = self.find(LetterFilter(tables=tables, names={one.name for one in chosen}), STATES)
        states = {_identity(one): one for one in now}
        left = [states.get(_identity(one), one) for one in chosen]
        done.dead = {one.name: one.reason for one in left if one.state in LEFT}
        done.landed = sum(one.state not in LEFT for one in left)
        done.failed = {one.table: one.error for one in run.tables if one.error is not None}
        for one in run.tables:
            changes = one.refined.changes
            applied = sum(count for what, count in changes.items() if what not in NOT_APPLIED)
            done.tables.append(ReplayedTable(one.table, one.refined.rows, applied, changes.get("late", 0)))
        return done

    def _retire(self, letters: Sequence[AsideRecord], note: str) -> int:
        places, count = self._pipeline.places, 0
        for one in (record for record in letters if record.state == "waiting"):
            file, tag, line = one.place
            owner = one.table if one.table in self._pipeline.config.tables else ""
            rows = quarantine_rows(owner or "", RETIRED, file, tag, [BadRecord(line, note, one.stage)])
            key = short_key(f"{places.config.job}/{RETIRED}/{one.stage}/{one.name}#{tag}/{_hash(note)}")
            receipt = places.quarantine.append(rows, key=key)
            count += receipt.outcome != sw.Outcome.ALREADY_COMMITTED
        return count

    def _rows(self, wanted: LetterFilter) -> tuple[list[dict[str, Any]], Callable[[dict[str, Any]], bool]]:
        """All rows, and which of them tell of records that the job met when it is asked for."""
        config, places = self._pipeline.config, self._pipeline.places
        try:
            table = places.open(config.quarantine, config.quarantine_format, None)
        except TableNotFoundError:
            return [], lambda _: True
        lineage = places.lineage("quarantine", table, config.quarantine_format)
        lineage.look()
        since, until = (
            None if ns is None else _met_since(lineage, ns) for ns in (wanted.since_ns, wanted.until_ns)
        )

        def is_met(row: dict[str, Any]) -> bool:
            record = (row["table"], row["stage"], _place(row))
            return (since is None or record in since) and (until is None or record not in until)

        return lineage.read(lineage.whole()).to_pylist(), is_met

    def _owner(self, path: str) -> str:
        """The table that a file of no configured table is of, by its folder."""
        parts = path.split("/")
        return ".".join(parts[:2]) if len(parts) > 2 else ""

    def _taken(self, table: str, letters: Sequence[AsideRecord]) -> dict[tuple[str, Place], LetterState]:
        """What became of records of one table; those that wait are left out."""
        config = self._pipeline.config.tables.get(table)
        if config is None or config.sync is not None:
            return {}
        places = JobPlaces(self._pipeline.config, path=self._pipeline.places.path, read_only=True)
        job = TableJob(table, config, places)
        aside = {stage: {one.place for one in letters if one.stage == stage} for stage in ("raw", "silver")}
        try:
            there = _Aside(job, aside["raw"] | aside["silver"])
            states = there.in_silver(aside["silver"])
        except TableNotFoundError:
            return {}
        found: dict[tuple[str, Place], LetterState] = {}
        for place in aside["raw"]:
            if place in there.rows or (place[2] == 0 and place[0] in there.files):
                found["raw", place] = "replayed"
        return found | {("silver", place): state for place, state in states.items()}


class _Aside:
    """What bronze has of some records, and what became of their keys; reads both tables piece by piece.

    Raises:
        SafewriteError: a table cannot be read; TableNotFoundError: it is not there.
    """

    def __init__(self, job: TableJob, places: Collection[Place]) -> None:
        self._job, self._keys = job, tuple(job.config.keys)
        self._bronze, self._silver = (
            job.places.foreign(address, job.config.format)
            for address in (job.config.bronze, job.config.silver)
        )
        self._bronze.look()
        self._silver.look()
        there = frozenset(self._bronze.schema.names)
        self._olds = [OLD + key for key in self._keys if OLD + key in there]
        self.rows: dict[Place, dict[str, Any]] = {}
        self.files: set[str] = set()
        """The files of records in quarantine that bronze has rows of."""
        files, lines = ({place[at] for place in places} for at in (0, 2))
        for piece in self._bronze.pieces_of_bronze(self._columns()):
            near = piece.filter(_is_in(piece["_file"], files))
            self.files |= {*pc.unique(near["_file"]).to_pylist()}
            for row in near.filter(_is_in(near["_line"], lines)).to_pylist():
                if _of_bronze(row) in places:
                    self.rows[_of_bronze(row)] = row

    def _columns(self) -> list[str]:
        return [*self._keys, *self._olds, "_op", *SEQUENCE, "_file", "_tag", "_line"]

    def in_silver(self, aside: set[Place]) -> dict[Place, LetterState]:
        """What became of rows that silver was not given: silver has one, or something newer of its key, or of both keys, came."""
        asked = {place: self.rows[place] for place in aside & self.rows.keys()}
        if not asked:
            return {}
        keys = {self._key(row) for row in asked.values()}
        hashes = self._hashes(pa.Table.from_pylist([*asked.values()], schema=self._narrow()))
        have: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for piece in self._silver.pieces([*self._keys, *SEQUENCE]):
            for row in piece.filter(pa.array(np.isin(self._hashes(piece), hashes))).to_pylist():
                have[self._key(row)] = _order(row)
        newest: dict[tuple[Any, ...], dict[FileOfLoad | None, tuple[Any, ...]]] = {}
        spans = Spans()
        for piece in self._bronze.pieces_of_bronze(self._columns()):
            spans.add(piece)
            is_near = np.isin(self._hashes(piece), hashes) | np.isin(self._hashes(piece, self._old), hashes)
            for row in piece.filter(pa.array(is_near)).to_pylist():
                if _of_bronze(row) not in aside:
                    for key in {self._key(row), self._old_key(row)} & keys:
                        of = newest.setdefault(key, {})
                        of[_file_of(row)] = max(of.get(_file_of(row), ()), _order(row))
        loads = load_numbers(spans.table)
        return {
            place: state
            for place, row in asked.items()
            if (state := _state(row, have.get(self._key(row)), newest.get(self._key(row), {}), loads))
        }

    def _narrow(self) -> pa.Schema:
        return pa.schema([self._bronze.schema.field(name) for name in self._keys])

    def _hashes(
        self, rows: pa.Table, of: Callable[[pa.Table, str], pa.ChunkedArray] | None = None
    ) -> npt.NDArray[np.uint64]:
        """Hashes of keys, or of what they were before."""
        columns = [rows[key] if of is None else of(rows, key) for key in self._keys]
        fields = zip(columns, self._narrow(), strict=True)
        plain = [column.cast(one.type) for column, one in fields]
        return row_hashes(pa.table(plain, names=list(self._keys)))[0]

    def _old(self, rows: pa.Table, key: str) -> pa.ChunkedArray:
        return pc.coalesce(rows[OLD + key], rows[key]) if OLD + key in self._olds else rows[key]

    def _key(self, row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row[key] for key in self._keys)

    def _old_key(self, row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(_old(row, key) for key in self._keys)


def _state(
    row: dict[str, Any],
    have: tuple[Any, ...] | None,
    newest: Mapping[FileOfLoad | None, tuple[Any, ...]],
    loads: Mapping[FileOfLoad, int],
) -> LetterState | None:
    """What became of one; rows of one full load do not overtake one another."""
    order, own = _order(row), _file_of(row)
    if have == order:
        return "replayed"
    of = None if own is None else (own[0], loads.get(own, 0))

    def is_of_load(file: FileOfLoad | None) -> bool:
        return of is not None and file is not None and (file[0], loads.get(file, 0)) == of

    if any(at > order for file, at in newest.items() if not is_of_load(file)):
        return "overtaken"
    # A newer record that was in quarantine too, and that silver has now.
    if have is None or have <= order or have in newest.values():
        return None
    return "overtaken" if of is None or have[1] >= 0 or have[0] > of[0] else None


def _file_of(row: dict[str, Any]) -> FileOfLoad | None:
    """The file of a row of a full load."""
    return (row["_epoch"], row["_file"], row["_tag"]) if row["_op"] == LOADED_OP else None


def _is_in(column: pa.ChunkedArray, values: Collection[Any]) -> pa.ChunkedArray:
    return pc.is_in(column, value_set=pa.array([*values], column.type))


def _met_since(lineage: Lineage, since_ns: int) -> set[tuple[str, str, Place]]:
    """The records that commits of quarantine brought from a time on, by the clocks of their writers."""
    try:
        rows = lineage.read(lineage.from_time(since_ns // 10**6)).to_pylist()
    except BronzeGapError as error:
        at = dt.datetime.fromtimestamp(since_ns // 10**9, dt.UTC).isoformat()
        raise InvalidInputError(
            f"Of when quarantine got its records nothing is left from {at} on: its log was cleaned up, or rows were deleted there. "
            "Nothing was written. Name the records, their table or a part of the reason."
        ) from error
    return {(row["table"], row["stage"], _place(row)) for row in rows}


def _old(row: dict[str, Any], key: str) -> Any:
    return row[key] if row.get(OLD + key) is None else row[OLD + key]


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in SEQUENCE)


def _of_bronze(row: dict[str, Any]) -> Place:
    return row["_file"], row["_tag"], row["_line"]


def _place(row: dict[str, Any]) -> Place:
    return row["file"], row["tag"], row["line"]


def _identity(one: AsideRecord) -> tuple[str | None, str | None, Place]:
    return one.table, one.stage, one.place


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
