"""Says what a configuration will do to the tables of its job as they are now; nothing is written, and Kafka is not asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pyarrow as pa

import safewrite as sw
from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.landing.landing import Landing
from safewrite.cdc.ledger.accounting import dead_letters_waiting
from safewrite.cdc.ledger.target_tables import has_branch, keys_of, properties_of
from safewrite.cdc.records.batch import topic_partition
from safewrite.cdc.routing.refusals import (
    LAST_EPOCH,
    knows_job,
    refuse_key_in_order,
    refuse_made_anew,
    refuse_other_key,
    refuse_other_rows,
    refuse_set_back,
)
from safewrite.cdc.routing.table_source import recorded_source
from safewrite.cdc.sql.row_sql import names_missing, types_computed
from safewrite.intake.partitioning import alike
from safewrite.values.types import written
from safewrite.values.widening import wider

What = Literal["begins", "joins", "goes on", "is left", "is refused"]


@dataclass(frozen=True)
class TablePlan:
    """What becomes of one table, and what a user may not expect of it."""

    table: str
    what: What
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobPlan:
    """What a configuration will do when the job starts with it."""

    job: str
    tables: tuple[TablePlan, ...]
    notes: tuple[str, ...]

    @property
    def is_refused(self) -> bool:
        """Whether the job would stop at a table."""
        return any(one.what == "is refused" for one in self.tables)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


def plan(landing: Landing, letters: pa.Table | None = None) -> JobPlan:
    """What the job's configuration will do to its tables.

    Args:
        letters: the rows of the job's dead letters, by any reader; None where there are none yet.
    """
    config, done = landing.config, landing.ledger.positions()
    waiting = dead_letters_waiting(letters, config.job)
    tables = [_table_plan(landing, one, done, waiting[one.name]) for one in config.tables]
    head = landing.ledger.mark("")
    landed = sorted(name.removeprefix(head) for name, at in done.items() if name.startswith(head) and at)
    named = {one.name for one in config.tables}
    tables += [
        TablePlan(name, *_of_unnamed(landing, name, waiting[name])) for name in landed if name not in named
    ]
    return JobPlan(config.job, tuple(tables), tuple(_of_job(landing, done, waiting[None])))


def _of_job(landing: Landing, done: Mapping[str, int], waiting: int) -> Iterator[str]:
    """What the configuration does to the job as a whole."""
    config = landing.config
    places = [place for name in done if (place := topic_partition(name, config.job)) is not None]
    known = {place.rpartition("/")[0] for place in places}
    if not known:
        yield (
            f"The ledger {landing.ledger.table.name} knows no job {config.job!r}: it begins at starting_offsets, with all that the topics have "
            "there. If a job of another name landed these topics before, keep its name."
        )
    elif config.kafka.topics is not None:
        topics = {*config.kafka.topics}
        if new := sorted(topics - known):
            yield f"New topics: {', '.join(new)}. They are read from their first record on; starting_offsets is of a job without tables."
        if left := sorted(known - topics):
            yield (
                f"Topics that are read no more: {', '.join(left)}. If they are named again, the job goes on behind the last record that landed, "
                "and stops where Kafka deleted records meanwhile."
            )
    if known:
        yield "If topics or kafka.pattern changed: a checkpoint of before is of other topics to Spark, so give checkpoint a new folder; the job goes on from its tables."
    if waiting:
        yield (
            f"{waiting} dead letters are of tables that were not configured. Once the job runs with this configuration, `safewrite cdc "
            "dead-letters replay --all` lands those that it takes."
        )


def _of_unnamed(landing: Landing, name: str, waiting: int) -> tuple[What, tuple[str, ...]]:
    """What becomes of a table that the job landed and the configuration does not name."""
    config, table = landing.config, landing.created(name)
    try:
        found = landing.targets.look(table)
        positions = {} if found is None else found.positions()
    except sw.SafewriteError:
        positions = {}
    if config.unknown_tables == "create" and config.unknown_database == table.database:
        return "goes on", (
            "made unasked, as unknown_tables says",
            *_of_epoch(table, positions, config.job, waiting),
        )
    stays, source = "the table stays as it is", recorded_source(positions)
    if config.unknown_tables == "ignore" or (source is not None and landing.ignores(source[1])):
        return "is left", (
            f"{stays}; its records are counted and not kept. If it is named again, have the source send its rows again (a snapshot)",
        )
    return "is left", (
        f"{stays}; its records are dead letters. If it is named again, replay these, and it is as if it had never been out",
    )


def _table_plan(landing: Landing, table: TargetTable, done: Mapping[str, int], waiting: int) -> TablePlan:
    """What becomes of a table of the configuration."""
    job = landing.config.job
    landed = done.get(landing.ledger.mark(table.name), 0)
    try:
        found = landing.targets.look(table)
        positions = {} if found is None else found.positions()
        refuse_made_anew(job, table, landing.targets, positions, landed=landed)
        refuse_set_back(job, table, landing.ledger.checked(table, found, positions, landed=landed))
        refuse_other_key(table, keys_of(found), None if found is None else found.schema)
        refuse_other_rows(job, table, found, positions)
        refuse_key_in_order(table, keys_of(found) or table.key)
        computed = {} if found is None else _computed(table, found)
    except sw.SafewriteError as error:
        return TablePlan(table.name, "is refused", (str(error),))
    if found is None:
        notes = ["it is created with its first rows"]
        if any(topic_partition(name, job) is not None for name in done):
            notes.append(
                "what the job read before of its records is not read again: it is among the dead letters that name no table, unless it was "
                "ignored; of rows from before its topic have the source send them again (a snapshot)"
            )
        return TablePlan(table.name, "begins", tuple(notes))
    if not knows_job(positions, job):
        notes = ["it was there before the job: its rows stay, and those with a key of the source are changed"]
        return TablePlan(
            table.name,
            "joins",
            (*notes, *_of_branch(table, found), *_of_table(table, found), *_of_sql(table, found, computed)),
        )
    said = (
        *_of_source(table, positions, job, waiting),
        *_of_branch(table, found),
        *_of_table(table, found),
        *_of_sql(table, found, computed),
    )
    return TablePlan(table.name, "goes on", said)


def _computed(table: TargetTable, found: sw.Table) -> Mapping[str, pa.DataType]:
    """The types of computed columns; none where what they are made of is not all in the table."""
    if not table.expressions or names_missing(table, found.schema.names):
        return {}
    return types_computed(table, found.schema)


def _of_sql(table: TargetTable, found: sw.Table, computed: Mapping[str, pa.DataType]) -> Iterator[str]:
    """What filter and computed columns do to rows of before."""
    if table.filter is not None:
        yield (
            f"filter {table.filter!r} is of changes from now on: rows that are there stay until they change, and rows that another filter kept "
            "away do not come. If it is new or changed, have the source send its rows again (a snapshot)"
        )
    schema, names = found.schema, frozenset(found.schema.names)
    if missing := names_missing(table, [*names, *map(table.column_of, table.only_read)]):
        yield f"filter and computed read {', '.join(missing)}, which the table does not have: the job stops unless its next batch has such columns"
    for name, text in table.computed.items():
        if name not in names:
            yield f"computed: {name} is a new column; rows from before have NULL there until they change"
        elif computed.get(name, schema.field(name).type) != schema.field(name).type:
            yield f"computed: {name} stays {schema.field(name).type}, and {text!r} gives {computed[name]}: what that cannot hold is a dead letter"


def _of_source(table: TargetTable, positions: Mapping[str, int], job: str, waiting: int) -> Iterator[str]:
    """What is said of where a table's rows come from, and of their order."""
    yield from _of_epoch(table, positions, job, waiting)
    recorded = recorded_source(positions)
    if recorded is None or table.shard_column is not None:
        if recorded is not None:
            yield f"it takes the rows of every source that matches from now on, not of {recorded[1]} alone"
        return
    parts = (table.source or table.table).split(".")
    if str(recorded[1]).split(".")[-len(parts) :] != parts and recorded[0] >= table.epoch:
        yield (
            f"it has the rows of {recorded[1]}, and source is {'.'.join(parts)} now: records of that are dead letters. Land it in a table of its "
            "own, or raise epoch if the source has another name now"
        )


def _of_epoch(table: TargetTable, positions: Mapping[str, int], job: str, waiting: int) -> Iterator[str]:
    """What a raised epoch does to changes of before."""
    before = positions.get(f"{job}/{LAST_EPOCH}", 0)
    if table.epoch > before:
        yield f"epoch is raised from {before} to {table.epoch}: every change from now on is newer than all before"
        if waiting:
            yield (
                f"{waiting} of its dead letters wait: they are older than the new epoch, and no replay lands them then. Replay or retire them "
                "first"
            )


def _of_branch(table: TargetTable, found: sw.Table) -> Iterator[str]:
    """What becomes of rows where the configuration names a branch that is not there."""
    if table.branch is not None and not has_branch(found, table.branch):
        yield (
            f"branch: {table.branch} is made of what main has with the next rows; these and later ones are on it alone, and readers of main see "
            f"them after `safewrite fast-forward {table.name}`"
        )


def _of_table(table: TargetTable, found: sw.Table) -> Iterator[str]:
    """What the configuration says otherwise than a table is."""
    names = frozenset(found.schema.names)
    known = {name.lower(): name for name in names}
    added = [name for name in table.own_columns if name not in names]
    if clashing := [name for name in added if name.lower() in known]:
        yield (
            f"it has {', '.join(known[name.lower()] for name in clashing)}, which engines cannot tell from {', '.join(clashing)}: every record "
            "is a dead letter. Name the column as the table has it"
        )
    if added := [name for name in added if name not in clashing]:
        yield f"it gets the columns {', '.join(added)}; rows from before have NULL there"
    left = [to for name in table.leave_out if (to := table.column_of(name)) in names]
    moved = {name: to for name, to in table.name_mapping.items() if name in names and to not in names}
    taken = {*table.name_mapping.values()}
    lost = [key for key in keys_of(found) or table.key if key in left or (key in moved and key not in taken)]
    if lost:
        yield (
            f"its key is of {', '.join(lost)}, which leave_out or name_mapping takes away: every record is a dead letter. Leave the key as it "
            "is, or land in a table of another name"
        )
    if left := [name for name in left if name not in lost]:
        yield f"leave_out: {', '.join(left)} stay, and are NULL in rows that change from now on"
    for name, to in moved.items():
        if name not in lost:
            yield f"name_mapping: {to} is a new column; {name} stays, and is NULL in rows that change from now on"
    for name, kind in (table.own_columns | table.declared).items():
        has = found.schema.field(name).type if name in names else kind
        if has == kind:
            continue
        if table.widening is not None and (then := wider(has, kind, table.widening)) is not None:
            yield f"{name} becomes {written(then)} with the first value that {written(has)} cannot hold"
        else:
            may = table.widening == "fields" and wider(has, kind, "delta") is not None
            how = "; it becomes wider with widen, if all readers know that" if may else ""
            yield f"{name} stays {written(has)}, not {written(kind)}: what that cannot hold is a dead letter{how}"
    if not alike(table.partition_by, found.partition_by):
        yield f"partition_by does nothing: the table is divided by {_listed(found.partition_by)}, not by {_listed(table.partition_by)}"
    given, has = properties_of(table), found.properties
    if idle := sorted(name for name, value in given.items() if has.get(name) != value):
        yield f"it is there, so properties that are of a table that is created do nothing: {', '.join(idle)}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"
