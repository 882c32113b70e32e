"""Says where each table of a job stands, by the ledger, the tables' own positions and the ends of the topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

import safewrite as sw
from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.landing.landing import Landing
from safewrite.cdc.ledger.accounting import dead_letters_waiting
from safewrite.cdc.ledger.ledger import NO_OFFSETS, ends_of, last_commit
from safewrite.cdc.records.batch import Partition, Range, topic_partition
from safewrite.cdc.routing.refusals import knows_job, made_anew
from safewrite.cdc.routing.table_source import recorded_source
from safewrite.values.limits import utc

State = Literal["ok", "behind", "not begun", "fenced", "needs restart", "unreadable"]
STOPPED: frozenset[str] = frozenset({"fenced", "needs restart", "unreadable"})
"""States in which the job stops at the table's next batch, until somebody does something."""
_SUMS = ("records", "applied", "late", "duplicate", "dead")
_LOOK_BACK_MAX = 50
"""Commits of other engines that are looked through for a RESTORE."""
Reach = Mapping[Partition, Range]


@dataclass(frozen=True)
class TableStatus:
    """Where one table stands; ``dead_waiting`` counts dead letters that are neither replayed nor retired.

    ``positions`` are offsets by ``topic/partition``: all before them has landed, or is in the ledger as dead or ignored.
    ``lag`` is how many offsets the topics have after them; None where Kafka was not asked.  Counts are sums over the
    ledger, ``rows`` what the table has now.  Times are of ISO 8601, in UTC: of the last commit by the driver's clock, and
    of the newest change that landed by its source's.
    """

    table: str
    source: str
    format: str
    state: State
    what: str
    """What is the matter and what to do; empty where nothing is."""
    last_batch: int | None
    positions: Mapping[str, int]
    lag: int | None
    rows: int | None
    records: int
    applied: int
    late: int
    duplicate: int
    dead: int
    dead_waiting: int
    last_commit: str | None
    valid_through: str | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Status:
    """Where a job stands; ``dead_nowhere`` counts dead letters of records that name no table of it, and those that wait of them."""

    job: str
    tables: tuple[TableStatus, ...]
    batches: int
    dead_nowhere: int
    dead_nowhere_waiting: int
    engine: str | None = None
    """Where the last batch was landed, and why."""

    @property
    def stopped(self) -> bool:
        """Whether a table stops the job until somebody does something."""
        return any(one.state in STOPPED for one in self.tables)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        own = {
            name: getattr(self, name)
            for name in ("job", "batches", "dead_nowhere", "dead_nowhere_waiting", "engine")
        }
        return {**own, "tables": [one.to_dict() for one in self.tables]}


@dataclass(frozen=True)
class _Past:
    """What the ledger says of a table."""

    sums: Mapping[str, int]
    last_batch: int | None = None
    committed_ms: int | None = None
    source_time_ms: int | None = None
    ends: Mapping[str, int] | None = None
    """Where the table's last commit took its positions, by their names."""


def status(
    landing: Landing, ledger: pa.Table, reach: Reach | None = None, letters: pa.Table | None = None
) -> Status:
    """Where a job's tables stand.  Nothing is written.

    Args:
        landing: of the job; its tables are opened.
        ledger: the rows of the job's ledger, by any reader.
        letters: likewise of its dead letters; None where there are none yet.
        reach: the offsets that the topics have; None where Kafka was not asked.
    """
    config = landing.config
    done = landing.ledger.positions()
    mine = ledger.filter(pc.equal(ledger.column("job"), config.job))
    tables = {one.name: one for one in config.tables}
    names = [name for name in pc.unique(mine.column("table")).to_pylist() if name is not None]
    tables |= {name: landing.created(name) for name in sorted(names) if name not in tables}
    waiting = dead_letters_waiting(letters, config.job)
    found = [
        _Look(landing, table, done, _past(mine, table.name, config.job), reach).status(waiting[table.name])
        for table in tables.values()
    ]
    nowhere = _past(mine, None, config.job)
    pairs = set(zip(mine.column("batch").to_pylist(), mine.column("offsets").to_pylist(), strict=True))
    batches = sum(offsets != NO_OFFSETS for _, offsets in pairs)
    return Status(config.job, tuple(found), batches, nowhere.sums["dead"], waiting[None], _engine(mine))


def tables_gone(landing: Landing) -> tuple[str, ...]:
    """What is wrong with tables that the job landed and that are not there any more, or are others.

    Of tables that the configuration does not name it is known where they are only if the job makes such tables.
    """
    config, done = landing.config, landing.ledger.positions()
    head, tables = landing.ledger.mark(""), {one.name: one for one in config.tables}
    landed = [name.removeprefix(head) for name, at in done.items() if name.startswith(head) and at]
    if config.unknown_tables == "create":
        made = {name: landing.created(name) for name in landed if name not in tables}
        tables |= {name: one for name, one in made.items() if one.database == config.unknown_database}
    faults = []
    for name in sorted({*landed} & {*tables}):
        try:
            found = landing.targets.look(tables[name])
            is_there = found is not None and knows_job(found.positions(), config.job)
        except sw.SafewriteError as error:
            faults.append(f"The table {name}, in which the job landed rows, cannot be read: {error}")
            continue
        if not is_there:
            faults.append(". ".join(made_anew(config.job, tables[name], landing.targets)))
    return tuple(faults)


class _Look:
    """A look at one table."""

    def __init__(
        self, landing: Landing, table: TargetTable, done: Mapping[str, int], past: _Past, reach: Reach | None
    ) -> None:
        self._landing, self._table, self._past = landing, table, past
        self._job, self._done, self._reach = landing.config.job, done, reach

    def status(self, waiting: int) -> TableStatus:
        found: sw.Table | None = None
        positions: dict[str, int] = {}
        try:
            found = self._landing.targets.look(self._table)
            positions = {} if found is None else found.positions()
            restored = found is not None and _is_restored(found)
        except sw.ConflictError as error:  # rolled back to where nothing tells a position
            state: State = "fenced"
            what = str(error)
        except sw.SafewriteError as error:
            state, what = "unreadable", str(error)
        else:
            state, what = self._state(positions, restored=restored)
        past, table = self._past, self._table
        at = self._at(positions)
        return TableStatus(
            table=table.name, source=_source(table, positions), format=table.format, state=state, what=what,
            last_batch=past.last_batch, positions=self._offsets(at), lag=self._lag(at),
            rows=None if found is None else _row_count(found),
            records=past.sums["records"], applied=past.sums["applied"], late=past.sums["late"],
            duplicate=past.sums["duplicate"], dead=past.sums["dead"], dead_waiting=waiting, last_commit=_iso(past.committed_ms),
            valid_through=_iso(past.source_time_ms),
        )  # fmt: skip

    def _state(self, positions: Mapping[str, int], *, restored: bool) -> tuple[State, str]:
        job, name, done = self._job, self._table.name, self._done
        knows = knows_job(positions, job)
        if done.get(self._landing.ledger.mark(name), 0) and not knows:
            what, advice = made_anew(job, self._table, self._landing.targets)
            return "needs restart", f"{what}. {advice}"
        if knows and not any(one.startswith(f"{job}/") for one in done):
            # A driver that died in its very first batch leaves this too; without a checkpoint or with that batch it goes on.
            return "behind", (
                "the table has positions of the job, and the ledger has none: its first batch is under way or broke off, and the job "
                "finds it when it reads it again; or the ledger was dropped: restore it"
            )
        if restored and knows:
            return "fenced", (
                "the table was set back by RESTORE, and the offsets of the rows that went do not come again. Undo that; or raise "
                "epoch, declare each position where it stands by an append of no rows, (n, n), and have the source send its rows again"
            )
        fault = self._set_back(positions) or self._made_anew()
        if fault:
            return "fenced", fault
        at = self._at(positions)
        if any(offset > done.get(name, 0) for name, offset in at.items()):
            return "behind", "a batch is under way, or broke off; the job finds it when it reads it again"
        if self._lag(at):
            return "behind", ""
        return ("ok", "") if knows else ("not begun", self._not_begun())

    def _not_begun(self) -> str:
        """What is known of a table in which the job has landed nothing."""
        came, dead = (self._past.sums[name] for name in ("records", "dead"))
        if came:
            return f"{came} records came for it, and no row landed: {dead} are dead letters, {came - dead} were ignored"
        if any(topic_partition(name, self._job) is not None for name in self._done):
            return "no records came for it in the batches that are closed"
        return (
            "the job has closed no batch: none has come, or its first one is under way, broke off or was refused; then nothing of it is "
            "lost, and the log of `safewrite cdc run` says why. The job reads it again"
        )

    def _set_back(self, positions: Mapping[str, int]) -> str | None:
        """Whether the table is before what the ledger says of it."""
        for name, end in (self._past.ends or {}).items():
            known = positions.get(name)
            if known is not None and known < end:
                return (
                    f"its position {name} is {known}, and the ledger says that it had {end}: the table was set back, and rows went that "
                    "do not come again. Undo that; or raise epoch and have the source send its rows again"
                )
        return None

    def _made_anew(self) -> str | None:
        """Whether a topic is another one than the ledger counted."""
        for where in self._reach or ():
            head, tail = f"{self._job}/{where.topic}/", f"/{where.number}"
            known = [name for name in self._done if name.startswith(head) and name.endswith(tail)]
            if known and where.name(self._job) not in known:
                return (
                    f"the topic {where.topic!r} was deleted and created again, and positions count the offsets of the old one. Delete the "
                    "checkpoint; the job then reads the new topic from its beginning"
                )
        return None

    def _at(self, positions: Mapping[str, int]) -> dict[str, int]:
        """How far the table has come: as far as the job, which closes a batch when all tables have it, or farther."""
        names = [name for name in {*self._done, *positions} if topic_partition(name, self._job) is not None]
        return {name: max(self._done.get(name, 0), positions.get(name, 0)) for name in sorted(names)}

    def _offsets(self, positions: Mapping[str, int]) -> dict[str, int]:
        places = [topic_partition(name, self._job) for name in positions]
        found = {}
        for place, (name, at) in zip(places, positions.items(), strict=True):
            if place is not None:  # a topic that was created again has its place twice
                found[place if places.count(place) == 1 else f"{place} of {name.split('/')[2]}"] = at
        return found

    def _lag(self, at: Mapping[str, int]) -> int | None:
        if self._reach is None:
            return None
        starts = self._landing.config.kafka.starting_offsets
        total = 0
        for where, (first, end) in self._reach.items():
            begins = first
            if not at and starts == "latest":
                begins = end
            elif not at and isinstance(starts, dict):
                begins = starts.get(where.topic, {}).get(str(where.number), first)
                begins = end if begins == -1 else begins
            total += max(0, end - max(first, at.get(where.name(self._job), begins)))
        return total


def _row_count(found: sw.Table) -> int | None:
    """The rows of a table, as it was loaded last; None if nothing here can tell: a figure for the eye."""
    try:
        return found.row_count()
    except sw.SafewriteError:
        return None


def _is_restored(found: sw.Table) -> bool:
    """Whether a RESTORE of a Delta table came after the last write of ours."""
    for one in found.history(_LOOK_BACK_MAX):
        if one.operation == "RESTORE":
            return True
        if one.engine is not None and one.engine.startswith("safewrite"):
            return False
    return False


def _past(ledger: pa.Table, table: str | None, job: str) -> _Past:
    column = ledger.column("table")
    lines = ledger.filter(pc.is_null(column) if table is None else pc.equal(column, table))
    sums = {name: int(pc.sum(lines.column(name)).as_py() or 0) for name in _SUMS}
    if not lines.num_rows:
        return _Past(sums)
    newest_ms = pc.max(lines.column("source_time_ms")).as_py()
    last = last_commit(lines)
    if last is None:
        return _Past(sums, source_time_ms=newest_ms)
    return _Past(sums, last["batch"], last.get("closed_ms"), newest_ms, ends_of(last, job))


def _engine(ledger: pa.Table) -> str | None:
    """Where the batch was landed that was closed last; None of a ledger of an earlier version."""
    if not {"engine", "closed_ms"} <= {*ledger.column_names}:
        return None
    lines = ledger.filter(pc.is_valid(ledger.column("engine"))).sort_by([("closed_ms", "descending")])
    return str(lines.column("engine")[0]) if lines.num_rows else None


def _source(table: TargetTable, positions: Mapping[str, int]) -> str:
    """The source of a table: the one that it records, else as the configuration names it."""
    recorded = recorded_source(positions)
    return str(recorded[1]) if recorded is not None else table.source or table.table


def _iso(at_ms: int | None) -> str | None:
    at = utc(at_ms)
    return None if at is None else at.isoformat(timespec="milliseconds")
