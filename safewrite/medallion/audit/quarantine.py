"""Finds the records in quarantine, says what became of each, and takes them again through today's configuration."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import safewrite as sw
from safewrite.errors import InvalidInputError, TableNotFoundError
from safewrite.frames.fingerprint import row_hashes
from safewrite.medallion.bronze.summary import Spans
from safewrite.medallion.config.bronze_columns import LOADED_OP, OLD, SEQUENCE
from safewrite.medallion.files.records import BadRecord
from safewrite.medallion.pipeline import Pipeline
from safewrite.medallion.silver.load_keys import FileOfLoad, load_numbers
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
        aside = {stage: {_place(row) for row in rows if row["stage"] == stage} for stage in ("raw", "silver")}
        try:
            there = _Aside(job, aside["raw"] | aside["silver"])
            states = there.in_silver(aside["silver"])
        except TableNotFoundError:
            return {}
        found: dict[tuple[str, Place], AsideState] = {}
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

    def in_silver(self, aside: set[Place]) -> dict[Place, AsideState]:
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
) -> AsideState | None:
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
