"""Lands a batch: every table's share in one commit with its offsets, all tables at once, then the ledger.

The order makes a crash harmless at every step.  Dead letters first: a record that can land nowhere is kept before
anything counts it as done.  Then the tables, each by itself; a replay passes over what a table has by its positions,
and finds its counts by the key.  The ledger last: its positions say that all tables have the batch, so a job without
a checkpoint starts from them.  Then tables are maintained that are due, which changes no row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from safewrite.cdc.config.job import Config
from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.connect.glue_registry import GlueRegistry
from safewrite.cdc.connect.known_schemas import SchemaOf
from safewrite.cdc.connect.registry import Registry
from safewrite.cdc.envelopes.decoding import Decoded, Decoder
from safewrite.cdc.envelopes.registry import KINDS
from safewrite.cdc.ledger.ledger import JobLedger, LedgerEntry, listed
from safewrite.cdc.ledger.reporting import tell_batch
from safewrite.cdc.ledger.target_tables import TargetTables
from safewrite.cdc.records.batch import Batch, remaining
from safewrite.cdc.records.change import DeadLetter, KafkaRecord, SourceTable
from safewrite.cdc.records.change_set import ChangeSet
from safewrite.cdc.records.records import KafkaRecords
from safewrite.cdc.routing.routing import Router
from safewrite.cdc.routing.tombstones import Deletions
from safewrite.cdc.table.by_tasks import ExecutorWork, Routed, SharesOfBatch, TaskLanding
from safewrite.cdc.table.table_batch import TableBatch
from safewrite.cdc.table.table_share import JobParts, TableShare
from safewrite.cdc.table.task_shares import TaskShare
from safewrite.intake.reporting import OnEvent, listener
from safewrite.intake.settings import from_environment
from safewrite.intake.upkeep import Upkeep

log = logging.getLogger("safewrite")

WorkOf = Callable[[KafkaRecords], ExecutorWork]


class Landing:
    """Lands batches of one job, one after another.

    ``on_event`` is called with an event ``table_batch`` for each table of a batch, and with those of the tables' writes.
    """

    def __init__(self, config: Config, *, on_event: OnEvent | None = None) -> None:
        self.config = config
        self._on_event = listener(on_event)
        self.targets = TargetTables(config, on_event=self._on_event)
        self.ledger = JobLedger(config, self.targets)
        self._router = Router(config)
        self._deletions = Deletions(self._router, self.targets, self.ledger, config.tables)
        self.decoder = Decoder(
            config.envelope,
            schema_of=_registry(config),
            placeholder=config.unavailable_value_placeholder,
            before_image=config.before_image_field,
            route_field=config.route_field,
        )
        self.by_tasks = TaskLanding(self.job, self._router, self._deletions.landed)
        self.upkeep = Upkeep(config.maintain, self._on_event)

    def land(self, given: Batch, work_of: WorkOf = ExecutorWork.here) -> list[LedgerEntry]:
        """Land what is new of a batch; the lines that the ledger got, none if all of it had landed.

        Args:
            work_of: says which records are with executors, which then decode and land them.

        Raises:
            SafewriteError: of the first table that failed; others may have committed, and the batch
                finds them when it comes again.
        """
        done = self.ledger.positions()
        batch = remaining(given, self.config.job, done)
        if not batch.ranges:
            return []
        return self.by_tasks.land(batch, done, work_of(batch.records), partial(self._landed, batch, done))

    def _landed(
        self, batch: Batch, done: dict[str, int], decoded: Decoded, parts: SharesOfBatch
    ) -> list[LedgerEntry]:
        """Land what came whole of a batch, and what is in parts."""
        lines, shares, _ = self._in_tables(batch, done, decoded, parts)
        self.ledger.write(batch, lines, done, decoded.endings)
        tell_batch(lines, self._on_event)
        committed = {line.table for line in lines if line.version is not None}
        self._maintain([share.table for share in shares], committed)
        return lines

    def _in_tables(
        self, batch: Batch, done: dict[str, int], decoded: Decoded, parts: SharesOfBatch
    ) -> tuple[list[LedgerEntry], Sequence[TableShare], list[DeadLetter]]:
        """Land a batch in its tables: lines for the ledger, what each table got, and the dead letters, which are kept first.

        Those of a replay are kept already.
        """
        found = decoded.by_columns
        log.debug(
            "batch %s: %s records were read by columns, others: %s",
            batch.number,
            found,
            decoded.records - found,
        )
        rest, nowhere, routed = self._divided(decoded, batch, done)
        by_tasks = parts.prepared(routed)
        shares = self._shares(routed.values(), batch, done)
        each: list[TableShare] = [*shares, *by_tasks]
        letters = [one for share in each for one in share.dead]
        if not batch.replay:
            self.ledger.write_letters([*nowhere, *letters], batch.ranges)
        shares += self._commit(shares, by_tasks, batch, done, parts)
        landed = {share.table.name for share in shares}
        parts.tell({share.table.name: share.entry.records for share in shares})
        each = [*shares, *(share for share in by_tasks if share.table.name not in landed)]
        dead = [*nowhere, *(one for share in each for one in share.dead)]
        return [rest, *(one.entry for one in each)], each, dead

    def _maintain(self, tables: Iterable[TargetTable], committed: Container[str | None]) -> None:
        """Keep tables in shape that this batch committed to, and those of the job, which each batch adds small files to."""
        tables = [*(one for one in tables if one.name in committed), self.ledger.table, self.ledger.letters]
        found = [(one.name, seen) for one in tables if (seen := self.targets.seen(one)) is not None]
        self.by_tasks.forget(self.upkeep.keep(found))

    def replay(self, batch: Batch) -> tuple[list[LedgerEntry], list[DeadLetter]]:
        """Land dead letters through the configuration of today; the lines that the ledger got, and those that still cannot land.

        Raises:
            SafewriteError: as :meth:`land`; the same replay again finds what it committed.
        """
        done, letters = self.ledger.positions(), list[DeadLetter]()

        def landed(decoded: Decoded, parts: SharesOfBatch) -> list[LedgerEntry]:
            lines, _, dead = self._in_tables(batch, done, decoded, parts)
            letters.extend(dead)
            return self.ledger.write_replay(batch, lines, done)

        return self.by_tasks.land(batch, done, ExecutorWork.here(batch.records), landed), letters

    def tables_of(self, record: KafkaRecord) -> frozenset[str]:
        """The names of the tables that a record's changes go to."""
        return frozenset(self._router.route(self.decoder.decode(KafkaRecords.of([record]))).tables)

    def _divided(
        self, decoded: Decoded, batch: Batch, done: dict[str, int]
    ) -> tuple[LedgerEntry, list[DeadLetter], Routed]:
        """The records that name no table: their line, and those that are dead letters; the others by table."""
        routing = self._router.route(decoded)
        routed = routing.tables
        compacted = self._deletions.give(decoded.unmet, routed, done)
        nowhere = [*decoded.dead, *routing.dead, *compacted.dead]
        rest = LedgerEntry(
            self.config.job, batch.number, None, offsets=listed(batch.ranges), engine=batch.engine
        )
        rest.ignored = len(decoded.ignored) + decoded.tombstones + compacted.ignored + routing.ignored.records
        rest.dead = len({id(letter.record) for letter in nowhere})
        rest.records = rest.ignored + rest.dead
        return rest, nowhere, routed

    def _shares(
        self, routed: Iterable[tuple[TargetTable, ChangeSet]], batch: Batch, done: dict[str, int]
    ) -> list[TableBatch]:
        """The shares of all tables, so many at a time: each asks the store or the catalog what its table is now."""
        with ThreadPoolExecutor(self.config.parallel_tables, "safewrite-cdc") as pool:
            return list(pool.map(lambda one: self._share(one[0], one[1], batch, done), routed))

    def _share(
        self, table: TargetTable, changes: ChangeSet, batch: Batch, done: dict[str, int]
    ) -> TableBatch:
        return TableBatch.prepared(self.job, table, changes, batch, done)

    def created(self, name: str) -> TargetTable:
        """A table that the configuration does not name, as the job makes them."""
        return self._router.created(name)

    def tables(self) -> list[TargetTable]:
        """The tables that have rows of the job, and those of the job itself."""
        landed = self._deletions.landed(self.ledger.positions())
        return [*landed, self.ledger.table, self.ledger.letters]

    def ignores(self, source: SourceTable) -> bool:
        """Whether changes of a source are passed over."""
        return self._router.ignores(source)

    @property
    def job(self) -> JobParts:
        """What the tables have in common."""
        return JobParts(self.config, self.targets, self.ledger, self.decoder)

    def _commit(
        self,
        shares: Sequence[TableBatch],
        by_tasks: Sequence[TaskShare],
        batch: Batch,
        done: dict[str, int],
        parts: SharesOfBatch,
    ) -> list[TableBatch]:
        """Commit all shares, so many at a time; what one raises is raised when all are done.

        The tables that could not land in parts, as tasks found, and landed whole.
        """
        failed, late = dict[str, BaseException](), list[TableBatch]()

        def take(doubts: Mapping[str, str]) -> None:
            routed: Routed = {}
            parts.take(doubts, routed)
            found = self._shares(routed.values(), batch, done)
            if not batch.replay:
                self.ledger.write_letters([one for share in found for one in share.dead], batch.ranges)
            late.extend(found)

        failed |= parts.commit(by_tasks, self._apply, take)
        self.by_tasks.forget(share.table.name for share in (*shares, *late))
        waiting = [share for share in (*shares, *late) if share.frame is not None]
        if waiting:
            with ThreadPoolExecutor(self.config.parallel_tables, "safewrite-cdc") as pool:
                futures = [(share, pool.submit(self._apply, share)) for share in waiting]
            for share, future in futures:
                if (error := future.exception()) is not None:
                    failed[share.table.name] = error
        for name, error in failed.items():
            log.error("table %s of batch %s failed: %s", name, batch.number, error)
        if failed:
            raise next(iter(failed.values()))
        return late

    def _apply(self, share: TableShare) -> None:
        share.apply()


def _registry(config: Config) -> SchemaOf | None:
    given = config.registry
    if given is None:
        return None
    if given.glue_region is not None:
        return GlueRegistry(given.glue_region, given.timeout_s, given.patience_s)
    assert given.url is not None
    password = None if given.password is None else from_environment(given.password, "registry.password")
    return Registry(
        given.url,
        given.user,
        password,
        form=KINDS[config.envelope].form,
        timeout_s=given.timeout_s,
        patience_s=given.patience_s,
    )
