"""Gives tombstones whose delete did not come to their tables; those that name none are dead letters, where they may have deleted a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.envelopes.envelope import Tombstone
from safewrite.cdc.envelopes.position import LOWEST, with_offset
from safewrite.cdc.ledger.ledger import JobLedger
from safewrite.cdc.ledger.target_tables import TargetTables, keys_of
from safewrite.cdc.records.change import DeadLetter, Op, SourceChange, SourceTable
from safewrite.cdc.records.change_set import ChangeSet
from safewrite.cdc.routing.routing import Router
from safewrite.cdc.rows.rows_by_key import rows_with


@dataclass
class Compacted:
    """What became of the tombstones of a batch that are given to no table."""

    dead: list[DeadLetter] = field(default_factory=list)
    ignored: int = 0
    """How many have nothing to delete in any table."""


@dataclass(frozen=True)
class Deletions:
    """Finds the tables of tombstones for one job."""

    router: Router
    targets: TargetTables
    ledger: JobLedger
    tables: Sequence[TargetTable]

    def give(
        self,
        unmet: Sequence[Tombstone],
        routed: dict[str, tuple[TargetTable, ChangeSet]],
        done: Mapping[str, int],
    ) -> Compacted:
        """Add tombstones to the changes of their tables."""
        found, nameless = Compacted(), list[Tombstone]()
        for one in unmet:
            if one.keys is None and one.fault is None:
                found.ignored += 1  # without a key it names no row
                continue
            if self.router.ignores_tombstone(one.names):
                found.ignored += 1
                continue
            named = self.router.of_tombstone(
                one.names, lambda name: bool(done.get(self.ledger.mark(name), 0))
            )
            if one.keys is None or named is None:
                nameless.append(one)
                continue
            table, source = named
            routed.setdefault(table.name, (table, ChangeSet()))[1].rows.append(_change(one, source))
        if nameless:
            self._tell(nameless, found, done)
        return found

    def _tell(self, nameless: Sequence[Tombstone], found: Compacted, done: Mapping[str, int]) -> None:
        """A tombstone that names no table is a dead letter if it may have deleted a row of one."""
        holders = self._holders([one for one in nameless if one.keys is not None and not one.is_after], done)
        for one in nameless:
            tables = holders.get(id(one), ())
            if not one.is_after and one.fault is None and not tables:
                found.ignored += 1
                continue
            why = one.fault or (
                f"nothing tells its table: neither its key nor the name of the topic {one.record.topic!r}. "
                + (
                    f"Rows with its key are in {', '.join(tables)}"
                    if tables
                    else "A row with its key came in this batch"
                )
            )
            found.dead.append(
                DeadLetter(
                    one.record, f"the delete of this tombstone did not come (log compaction), and {why}"
                )
            )

    def _holders(self, wanted: Sequence[Tombstone], done: Mapping[str, int]) -> dict[int, list[str]]:
        """The tables that have a row with the key of each."""
        found: dict[int, list[str]] = {}
        for table in self.landed(done) if wanted else ():
            found_table = self.targets.find(table)
            keys = keys_of(found_table) or table.key
            if found_table is None or not keys:
                continue
            keyed = {id(one): _keys(one, keys, table) for one in wanted}
            asked = dict.fromkeys(key for key in keyed.values() if key is not None)
            rows = rows_with(found_table, keys, list(asked)) if asked else []
            there = {tuple(row[name] for name in keys) for row in rows}
            for name, key in keyed.items():
                if key in there:
                    found.setdefault(name, []).append(table.name)
        return found

    def landed(self, done: Mapping[str, int]) -> list[TargetTable]:
        """The tables that the job has landed rows in."""
        head = self.ledger.mark("")
        names = [name.removeprefix(head) for name, landed in done.items() if landed and name.startswith(head)]
        known = {one.name: one for one in self.tables}
        return [known.get(name) or self.router.created(name) for name in sorted(names)]


def _keys(one: Tombstone, names: Sequence[str], table: TargetTable) -> tuple[Any, ...] | None:
    """The key of a tombstone as a table names it; None if it is none of the table's."""
    mapped = {table.column_of(name): value for name, value in (one.keys or {}).items()}
    wanted = [name for name in names if name != table.shard_column or not table.writes_shard]
    values = tuple(mapped.get(name) for name in wanted)
    if (
        set(mapped) != set(wanted)
        or len(wanted) < len(names)
        or any(isinstance(one, list | dict) for one in values)
    ):
        return None
    return values


def _change(one: Tombstone, source: SourceTable) -> SourceChange:
    position = with_offset(LOWEST, one.record.offset)
    return SourceChange(Op.DELETE, source, position, one.record, keys=one.keys, is_tombstone=True)
