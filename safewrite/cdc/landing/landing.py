"""Lands a batch: every table's share in one commit with its offsets, all tables beside each other, then the ledger.

The order makes a crash harmless at every step.  Dead letters first: a record that can land nowhere is kept before
anything counts it as done.  Then the tables, each by itself; a replay passes over what a table has by its positions,
and finds its counts by the key.  The ledger last: its positions say that all tables have the batch, so a job without
a checkpoint starts from them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import safewrite as sw
from safewrite.cdc.config.job import Config, from_environment
from safewrite.cdc.config.table_config import EPOCH, SEQUENCE, Table
from safewrite.cdc.connect.registry import Registry
from safewrite.cdc.envelopes.decoding import Decoder
from safewrite.cdc.landing.compacted import Deletions
from safewrite.cdc.landing.frames import LACKS, OP, Frame, frame_of
from safewrite.cdc.landing.origin import TableSource
from safewrite.cdc.landing.ranking import needs_rank, rank
from safewrite.cdc.landing.refusals import (
    LAST_EPOCH,
    knows_job,
    refuse_made_anew,
    refuse_other_key,
    refuse_set_back,
)
from safewrite.cdc.landing.reset_guard import check_of
from safewrite.cdc.landing.routing import Router
from safewrite.cdc.landing.rows import Rows, rows_of
from safewrite.cdc.landing.snapshot_boundary import SnapshotBoundary
from safewrite.cdc.landing.table_batch import TableBatch
from safewrite.cdc.landing.table_changes import Keys, TableChanges
from safewrite.cdc.landing.unavailable_values import UnavailableValues
from safewrite.cdc.landing.widening import fitted
from safewrite.cdc.ledger.ledger import JobLedger, LedgerEntry, listed
from safewrite.cdc.ledger.reading import rows_with
from safewrite.cdc.ledger.reporting import tell_batch
from safewrite.cdc.ledger.target_tables import TargetTables, keys_of
from safewrite.cdc.records.batch import Batch, Ranges, key_of, moves, remaining
from safewrite.cdc.records.change import DeadLetter
from safewrite.cdc.records.change_set import ChangeSet
from safewrite.metrics import OnEvent, listener

log = logging.getLogger("safewrite")

SOURCE_TIME = "source-time"
"""The position of a table that says how far it is by the clock of its source, in milliseconds."""


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
        )

    def land(self, given: Batch) -> list[LedgerEntry]:
        """Land what is new of a batch; the lines that the ledger got, none if all of it had landed.

        Raises:
            SafewriteError: of the first table that failed; those beside it may have committed, and the batch again
                finds them.
        """
        done = self.ledger.positions()
        batch = remaining(given, self.config.job, done)
        if not batch.ranges:
            return []
        decoded = self.decoder.decode(batch.records, self.ledger.ended(batch.ranges, done))
        found, whole = decoded.by_columns, len(batch.records)
        log.debug("batch %s: %s of %s records were read by columns", batch.number, found, whole)
        routed, unrouted = self._router.route(decoded)
        compacted = self._deletions.give(decoded.unmet, routed, done)
        shares = self._shares(routed.values(), batch, done)
        nowhere = [*decoded.dead, *unrouted, *compacted.dead]
        rest = LedgerEntry(self.config.job, batch.number, None, offsets=listed(batch.ranges))
        rest.ignored = len(decoded.ignored) + decoded.tombstones + compacted.ignored
        rest.dead = len({id(letter.record) for letter in nowhere})
        rest.records = rest.ignored + rest.dead
        self.ledger.write_letters([*nowhere, *(one for share in shares for one in share.dead)], batch.ranges)
        self._commit(shares, batch)
        lines = [rest, *(share.line for share in shares)]
        self.ledger.write(batch, lines, done, decoded.endings)
        tell_batch(lines, self._on_event)
        return lines

    def _shares(
        self, routed: Iterable[tuple[Table, ChangeSet]], batch: Batch, done: dict[str, int]
    ) -> list[TableBatch]:
        """The shares of all tables, so many at a time: each asks the store or the catalog what its table is now."""
        with ThreadPoolExecutor(self.config.parallel_tables, "safewrite-cdc") as pool:
            return list(pool.map(lambda given: self._share(given[0], given[1], batch, done), routed))

    # --- one table ----------------------------------------------------------------------------------
    def _share(self, table: Table, given: ChangeSet, batch: Batch, done: dict[str, int]) -> TableBatch:
        """A table's rows, as far as they are new to it and fit it."""
        try:
            found, positions = self.targets.position(table)
        except sw.InvalidInputError as error:  # a name that no table can have
            return self._without_table(TableBatch(table, self._line(table, given, batch), None), given, error)
        refuse_made_anew(self.config.job, table, positions, landed=done.get(self.ledger.mark(table.name), 0))
        refuse_set_back(self.config.job, table, positions)
        ends = {
            (where.topic, where.number): positions.get(where.name(self.config.job), 0)
            for where in batch.ranges
        }
        new = given.since(ends)
        line = self._line(table, given, batch)
        line.earlier = line.records - new.records
        share = TableBatch(table, line, found, positions=positions, ranges=batch.ranges)
        counts = None if new.records or found is None else self._counts_before(share, batch)
        if counts is not None:
            new = given  # the same share in an attempt before: what was split or dead is told again
        if not new.records:
            return share
        share.origin = TableSource.of(table, positions, new)
        share.given, share.strange = share.origin.split(new)
        if share.strange:
            line.source_time_ms = share.given.newest_ms
            log.warning("table %s: %s records are of another source", table.name, len(share.strange))
            if not share.given.records:
                return self._with_dead(share, share.strange)
        recorded = keys_of(found)
        refuse_other_key(table, recorded)
        self._make(share, recorded, each=counts is not None)
        if counts is None:
            self._rank(share)
        made = share.made
        if any(row.other is not None for row in made.rows):
            self._left_out(share).follow_keys(again=counts is not None)
        try:
            frame = self._fitted(share)
        except sw.InvalidInputError as error:  # the table cannot be made as it is to be
            return self._without_table(share, share.given, error)
        self._with_dead(share, [*share.strange, *made.dead, *frame.dead])
        line.split += frame.data.num_rows - frame.changes
        if counts is not None:
            line.earlier = 0
            line.count(counts)
            line.split = max(line.split, line.changes - line.records)
            self._count_again(share)
        elif frame.data.num_rows:
            share.frame = frame
            if not knows_job(positions, self.config.job):
                line.begins_at = line.offsets
        return share

    def _with_dead(self, share: TableBatch, letters: Sequence[DeadLetter]) -> TableBatch:
        """The share with its dead letters.

        Raises:
            InvalidInputError: the configuration wants none.
        """
        share.dead = list(letters)
        share.line.dead = len({id(letter.record) for letter in letters})
        if letters and share.table.dead_letters == "fail":
            where = letters[0].record
            raise sw.InvalidInputError(
                f"{share.line.dead} records cannot land in {share.table.name}, the first of them {where.topic}/{where.partition} at "
                f"{where.offset}: {letters[0].reason}. Nothing of the batch was committed. Correct the cause, or set dead_letters to "
                "collect."
            )
        return share

    def _line(self, table: Table, given: ChangeSet, batch: Batch) -> LedgerEntry:
        line = LedgerEntry(self.config.job, batch.number, table.name, offsets=listed(batch.ranges))
        line.records, line.source_time_ms = given.records, given.newest_ms
        return line

    def _without_table(self, share: TableBatch, given: ChangeSet, error: sw.InvalidInputError) -> TableBatch:
        """The share of a table that cannot be made: dead letters if nobody named the table, for the others go on.

        Raises:
            InvalidInputError: the configuration names the table.
        """
        if share.table.dead_letters == "fail" or share.table.name in {one.name for one in self.config.tables}:
            raise error
        share.line.ignored = 0
        return self._with_dead(share, [*share.strange, *given.letters(str(error), share.table.name)])

    def _make(self, share: TableBatch, keys: Keys, *, each: bool) -> None:
        """Make rows of a share; ``each`` makes all of them one by one, and counts what says nothing of a row."""
        changes = self._changes(share)
        made = (changes.made_each if each else changes.made)(self._snapshots(share), keys)
        share.made, share.changes, share.snapshots = made.rows, made.changes, made.snapshots
        share.ignored = share.line.ignored = made.ignored

    def _changes(self, share: TableBatch) -> TableChanges:
        return TableChanges(share.given, share.rules(self.config), self.decoder)

    def _rank(self, share: TableBatch) -> None:
        """Give deletes their place; those that have nothing to delete are ignored."""
        found = share.found
        topics = set() if share.origin is None else share.origin.topics | share.given.topics
        schema = None if found is None else found.schema
        idle = rank(share.table, share.made, schema, topics=topics, read=self._reader(share))
        share.line.ignored = share.ignored + len(idle)

    def _count_again(self, share: TableBatch) -> None:
        """What a commit before did not count: dead letters, and deletes that had nothing to delete, which are known no more."""
        line, idle = share.line, sum(needs_rank(share.table, row) for row in share.made.rows)
        rest = line.records - line.changes + line.split
        line.dead = max(line.dead, rest - idle)
        line.ignored = rest - line.dead

    def _reader(self, share: TableBatch) -> Callable[[Sequence[tuple[object, ...]]], list[dict[str, object]]]:
        """Reads rows of a share's table, as it was before the batch."""
        found, options = share.found, self.config.options()

        def read(wanted: Sequence[tuple[object, ...]]) -> list[dict[str, object]]:
            return [] if found is None else rows_with(found, share.made.keys, wanted, options)

        return read

    def _snapshots(self, share: TableBatch) -> SnapshotBoundary:
        return SnapshotBoundary.of(share.ranges, self.config.job, share.table, share.positions)

    def _left_out(self, share: TableBatch) -> UnavailableValues:
        """Looks for the values that the rows of a share lack."""
        found, made = share.found, share.made
        columns = dict.fromkeys(() if found is None else found.schema.names)
        columns |= dict.fromkeys(made.types) | dict.fromkeys(name for row in made.rows for name in row.values)
        return UnavailableValues(share.table, made, columns, self._reader(share))

    def _fitted(self, share: TableBatch) -> Frame:
        """The frame of a share's rows, once its table has their columns."""
        done = fitted(self.targets, share.table, share.made, share.found)
        share.found, share.refused = done.found, done.refused
        return done.frame

    def _counts_before(self, share: TableBatch, batch: Batch) -> Mapping[str, int] | None:
        """What became of the same share of the same offsets, where an attempt before committed it."""
        assert share.found is not None
        receipt = share.found.resolve(key_of(self.config.job, share.table.name, batch.ranges))
        if receipt is None:
            return None
        share.line.version = receipt.version
        return receipt.changes

    def _commit(self, shares: Sequence[TableBatch], batch: Batch) -> None:
        """Commit all shares, so many at a time; what one raises is raised when all are done."""
        waiting = [share for share in shares if share.frame is not None]
        if not waiting:
            return
        with ThreadPoolExecutor(self.config.parallel_tables, "safewrite-cdc") as pool:
            futures = [(share, pool.submit(self._apply, share, batch.ranges)) for share in waiting]
        failed: list[tuple[TableBatch, BaseException]] = []
        for share, future in futures:
            error = future.exception()
            if error is not None:
                log.error("table %s of batch %s failed: %s", share.table.name, batch.number, error)
                failed.append((share, error))
        if failed:
            raise failed[0][1]

    def _apply(self, share: TableBatch, ranges: Ranges) -> None:
        table, frame, found = share.table, share.frame, share.found
        assert frame is not None
        assert found is not None
        receipt: sw.Receipt | None
        started = time.monotonic()
        try:
            receipt = self._applied(share, found, frame, ranges)
        except sw.InvalidInputError as error:
            if not frame.lacking or table.dead_letters == "fail":
                raise
            log.warning("table %s: rows that lack values nobody has are dead letters: %s", table.name, error)
            receipt = self._applied_without_unknown(share, found, ranges)
        if receipt is None:
            return
        share.line.count(receipt.changes or {})
        share.line.version = receipt.version
        share.line.commit_ms = round((time.monotonic() - started) * 1000)

    def _applied_without_unknown(
        self, share: TableBatch, found: sw.Table, ranges: Ranges
    ) -> sw.Receipt | None:
        """The receipt of a share without the rows that lack a value which nobody has; None if none is left."""
        if share.made.projected:
            self._make(share, share.made.keys, each=True)
            self._rank(share)
        table, made = share.table, share.made
        if table.sequence == "source":
            unknown = self._left_out(share).unknown()
            lost = {id(letter.record) for letter in unknown}
            made.rows = [row for row in made.rows if id(row.change.record) not in lost]
            made.dead += [replace(letter, table=table.name) for letter in unknown]
            frame = self._with_letters(share, made, found, ranges)
            try:
                return self._applied(share, found, frame, ranges) if frame.data.num_rows else None
            except sw.InvalidInputError as error:
                if not frame.lacking:
                    raise
                log.warning("table %s: all rows that lack values are dead letters: %s", table.name, error)
        # Columns of the rows order the changes: then such rows land if the batch itself has their values.
        share.made = made = rows_of(share.rules(self.config), share.changes, made.keys, carry=False)
        self._rank(share)
        frame = self._with_letters(share, made, found, ranges)
        return self._applied(share, found, frame, ranges) if frame.data.num_rows else None

    def _with_letters(self, share: TableBatch, made: Rows, found: sw.Table, ranges: Ranges) -> Frame:
        """The frame of rows, once the letters of the others are kept."""
        frame = frame_of(share.table, made, found, share.refused)
        letters = [*share.strange, *made.dead, *frame.dead]
        self.ledger.write_letters(letters, ranges)
        share.line.dead = len({id(letter.record) for letter in letters})
        share.line.split = frame.data.num_rows - frame.changes
        return frame

    def _applied(self, share: TableBatch, found: sw.Table, frame: Frame, ranges: Ranges) -> sw.Receipt:
        table = share.table
        assert share.snapshots is not None
        moved = moves(ranges, self.config.job, share.positions) | share.snapshots.moves()
        if share.origin is not None:
            moved |= share.origin.moves(share.given)
        name, newest = f"{self.config.job}/{SOURCE_TIME}", share.line.source_time_ms
        known = share.positions.get(name)
        moved |= _raised(share.positions, name, newest or 0)
        moved |= _raised(share.positions, f"{self.config.job}/{LAST_EPOCH}", table.epoch)
        # Changes that are late and no newer by the source's clock were sent again.  Late ones that are newer by it are
        # those of a source that was set back.
        again = known is not None and newest is not None and newest <= known
        return found.apply_changes(
            frame.data,
            keys=list(share.made.keys),
            sequence_by=[EPOCH, *(table.precombine_key or ()), SEQUENCE],
            delete_when=[(OP, "=", "d")],
            truncate_when=[(OP, "=", "t")],
            unchanged=LACKS,
            all_late="count",  # the check says it in the words of the configuration
            check=check_of(table, share.made, known, self._each(share), is_again=again),
            key=key_of(self.config.job, table.name, ranges),
            positions=moved,
        )

    def _each(self, share: TableBatch) -> Callable[[], Rows] | None:
        """What makes rows of all changes of a share one by one, if some were projected as columns."""
        if not share.made.projected:
            return None
        return lambda: self._changes(share).made_each(self._snapshots(share), share.made.keys).rows


def _raised(positions: Mapping[str, int], name: str, to: int) -> dict[str, tuple[int | None, int]]:
    """How a commit moves a position that only grows."""
    known = positions.get(name)
    return {name: (known, to)} if to > (known or 0) else {}


def _registry(config: Config) -> Registry | None:
    given = config.registry
    if given is None:
        return None
    password = None if given.password is None else from_environment(given.password, "registry.password")
    return Registry(given.url, given.user, password, timeout_s=given.timeout_s, patience_s=given.patience_s)
