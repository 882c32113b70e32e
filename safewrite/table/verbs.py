"""Defines the table of either format by its verbs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

from safewrite.arguments.options import GENERATED, Key, Txn, flag, identity, known_key, patience, seconds
from safewrite.arguments.properties import checked as check_properties
from safewrite.arguments.reading import SchemaMode
from safewrite.arguments.reading import schema_mode as check_mode
from safewrite.arguments.volatile import given as check_volatile
from safewrite.boundary.habits import of_attribute
from safewrite.boundary.public import Turn, public, verb
from safewrite.errors import InvalidInputError
from safewrite.protocol.ask import Limits
from safewrite.protocol.positions import check as check_positions
from safewrite.receipt import Receipt
from safewrite.stores.events import Event, tell
from safewrite.stores.world import Performer, monotonic_s
from safewrite.table.added_rows import AddedFile, AddedRows, checked_position
from safewrite.table.format import Format
from safewrite.table.group import Answer, Group
from safewrite.table.history import CommittedWrite, HistoryEntry, checked_limit, checked_version, there
from safewrite.table.operation import Operation
from safewrite.table.sink import Sink, portable, reopened, sink
from safewrite.table.writer import Writer, resolved
from safewrite.text.strings import is_text, plain

if TYPE_CHECKING:
    import pyarrow as pa

    from safewrite.engine.abc import Engine
    from safewrite.engine.task_files import TableInTasks
    from safewrite.frames.row_rules import TableRules
    from safewrite.frames.where import Where
    from safewrite.table.change_position import Since
    from safewrite.table.row_changes import RowChanges, Step
    from safewrite.upkeep.groups import Group as FileGroup
    from safewrite.upkeep.groups import Inventory
    from safewrite.upkeep.maintain import Compacted, Settled, Settling
    from safewrite.upkeep.report import MaintainReport
    from safewrite.upkeep.workplace import Workplace


class Table:
    """A table that many writers share.  Make one with ``safewrite.open`` or ``safewrite.create``.

    Threads that share one take turns.  A forked or pickled one opens connections of its own.
    """

    def __init__(
        self, table_format: Format[Any, Any, Any], *, reopen: Callable[[], Table] | None = None
    ) -> None:
        self._format = table_format
        self._writer: Writer[Any, Any, Any] = Writer(table_format)
        self.turn = Turn()
        self.reopen = reopen
        """Opens the table again, in this process or another; None where that needs what does not travel."""

    def __reduce__(self) -> tuple[Any, ...]:
        return reopened, (portable(self.reopen),)

    if not TYPE_CHECKING:  # a type checker tells of names that are not there by itself

        def __getattr__(self, name: str) -> Any:
            """What other libraries call a thing leads to its name here."""
            if hasattr(type(self), name):  # a property of ours raised, and says of what
                return object.__getattribute__(self, name)
            raise AttributeError(of_attribute("A table of safewrite", name), name=name, obj=self)

    def after_fork(self) -> None:
        """Stop using the parent's connections and clocks in a forked child."""
        self._format.after_fork()

    # --- what it is -------------------------------------------------------------------------------
    @property
    def uri(self) -> str:
        """The address of a Delta table, the name of an Iceberg table in its catalog."""
        return self._format.uri

    @property
    @public
    def table_id(self) -> str:
        """The id of the table: one that is dropped and created again at its address has another."""
        return self._own().table_id

    @property
    def arbiter(self) -> str:
        """Who decides which writer's commit comes next: ``dynamodb``, ``object-store``, ``local`` or ``catalog``."""
        return self._format.arbiter

    @property
    def version(self) -> int:
        """The newest Delta version or Iceberg snapshot id that this object has seen; -1 before there is one."""
        return self._format.version

    @property
    @public
    def schema(self) -> pa.Schema:
        """The table's schema in Arrow, as of ``version``."""
        return self._own().schema

    @property
    @public
    def partition_by(self) -> tuple[str, ...]:
        """Partition columns, or Iceberg's partition fields as ``partition_by=`` spells them."""
        return self._own().partition_by

    @property
    @public
    def properties(self) -> dict[str, str]:
        """Table properties, as of ``version``."""
        return self._own().properties

    @property
    def row_rules(self) -> TableRules:
        """The pipelines' own: conditions that each row has to keep (Delta's CHECK and its kin), and what columns get that a row lacks."""
        return self._own().row_rules()

    @verb
    def in_tasks(self) -> TableInTasks | None:
        """The pipelines' own: how tasks write for :meth:`append_many`, and read what was added; None where that cannot travel."""
        return self._writer.in_tasks()

    def _own(self) -> Format[Any, Any, Any]:
        """What this process knows of the table, not what it was forked with."""
        if self.turn.is_anothers():
            self.after_fork()
        return self._format

    @property
    def limits(self) -> Limits:
        """The limits of a write."""
        return self._format.limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._format.limits = limits

    @property
    def world(self) -> Performer:
        """The world that performs the effects of a write; tests replace it."""
        return self._format.world

    @world.setter
    def world(self, world: Performer) -> None:
        self._format.world = world

    # --- looking ----------------------------------------------------------------------------------
    @verb
    def check_writable(self) -> Self:
        """Raise a first write's UnsupportedTableError where the table may only be read; else returns itself."""
        self._format.check_writable()
        return self

    @verb
    def refresh(self) -> Self:
        """Read what is new in the table; returns itself.

        Raises:
            ConflictError: kind TABLE_REPLACED; another table is at the address.
            TableNotFoundError: the table was dropped.
            UnsupportedTableError, UnsafeConfigError: the table became one that ``safewrite.open`` refuses.
        """
        self._format.refresh()
        return self

    @verb
    def resolve(self, key: str) -> Receipt | None:
        """Find out, without writing, whether a write landed: its receipt, or None if it did not.

        Iceberg: the ledger (``lock_table=``, SQL catalogs) knows that an attempt ended in doubt.  Without one
        only the object that made the attempt knows it, and another may answer None while a lost request is
        still on its way.

        Raises:
            CommitUnknownError: it may still land; write again with the same key to decide.
            StorageError: the store or the catalog gave no answer.
        """
        return resolved(self._format, known_key(key))

    @verb
    def history(self, limit: int | None = None) -> list[HistoryEntry]:
        """The commits of the table, newest first, as its log or its metadata records them.

        Those of other engines are among them.  Those that were cleaned up or expired are not, nor Iceberg's snapshots
        of other branches and those that were rolled back.  ``limit``: so many at most; None for all that are there.

        Raises:
            TableNotFoundError, StorageError: before there is a table; the store or the catalog gave no answer.
        """
        return self._format.history(checked_limit(limit))

    @verb
    def committed_writes(self, version: int) -> list[CommittedWrite]:
        """Every write that one commit carries, also where an entry of :meth:`history` shows only the first few.

        ``version`` is a Delta version or an Iceberg snapshot id, such as that of an entry or of a receipt.

        Raises:
            InvalidInputError: the table does not have that version, or no longer.
            TableNotFoundError, StorageError: before there is a table; no answer, or the list of the commit's writes is gone.
        """
        return there(self._format.committed_writes(checked_version(version)), version, self.uri)

    @verb
    def positions(self) -> dict[str, int]:
        """How far each source was taken into the table: what ``positions=`` of commits moved, by name.

        Raises:
            TableNotFoundError, StorageError: before there is a table; the store or the catalog gave no answer.
            ConflictError: kind POSITION_MOVED; the table was rolled back to where nothing tells a position any more.
        """
        return dict(self._format.positions())

    # --- reading ----------------------------------------------------------------------------------
    @verb
    def rows(
        self, keys: Any = None, *, where: Where | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The rows that have one of these keys, or satisfy a condition, as of ``version``: call :meth:`refresh` first for the newest.

        Files that cannot hold such a row by their statistics are not read.  NULL is equal to no key.

        Args:
            keys: a frame of the key columns alone, such as ``{"id": [1, 2]}``, ``[{"id": 1, "part": "a"}]`` or a DataFrame.
            where: instead of keys, as for :meth:`delete`: the rows that it would remove.
            columns: the columns that come back, in this order; None gives all.

        Raises:
            InvalidInputError: ``keys`` is no frame, has no columns, or nested ones or floats; ``where`` cannot be understood; the
                table lacks one of ``columns``.
            WouldAlterError: the table lacks a column of ``keys``, or a key does not fit its type.
            TableNotFoundError, StorageError: before there is a table; no answer, or a file is gone, as after VACUUM or expiry.
            UnsupportedTableError: a file cannot be read, or a column (``variant``), and ``columns`` does not leave it out.
        """
        from safewrite.table.lookup import asked_of

        return self._format.rows(asked_of(self._format, keys, where, columns))

    @verb
    def row_count(self) -> int:
        """How many rows there are, as of ``version``: files that the table's metadata does not count are read.  Raises as :meth:`rows`."""
        return self._format.row_count()

    @verb
    def added_since(self, version: int | None, *, table_id: str | None = None) -> list[AddedRows]:
        """The rows that commits after ``version`` brought, commit by commit, up to ``self.version``.

        Call :meth:`refresh` first for the newest.  Commits that only arrange rows in other files, as a compaction does, are left
        out.  A reader that keeps the version of what it took last misses no row and reads none twice, or is refused.

        Args:
            version: what was taken last; -1 before the first.  None gives all rows that ``self.version`` has, as one commit's.
            table_id: the :attr:`table_id` of the table that ``version`` is of: one that was dropped and created again has another.

        Raises:
            HistoryGapError: rows were removed or replaced since, the log or the snapshots do not go back that far, the table was
                rolled back behind ``version``, or is another one.  Read all rows (None), and go on from there.
            TableNotFoundError, StorageError: before there is a table; the store gave no answer.
        """
        own = self._format
        found = own.added_since(checked_position(version, table_id, own))
        return [replace(one, reader=self._read_added) for one in found]

    @verb
    def added_by(self, version: int) -> AddedRows:
        """The rows that one commit brought, such as that of a receipt, whether the table still has them or not.

        Raises:
            HistoryGapError: the commit removed rows too, or the table's history no longer has it.
            StorageError, TableNotFoundError: as :meth:`added_since`.
        """
        return replace(self._format.added_by(checked_version(version)), reader=self._read_added)

    @verb
    def _read_added(self, files: Sequence[AddedFile], columns: tuple[str, ...] | None) -> pa.Table:
        return self._format.read_added(files, columns)

    @verb
    def changes_since(
        self,
        position: Since = None,
        *,
        keys: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        batch_rows: int = 100_000,
        table_id: str | None = None,
    ) -> RowChanges:
        """The rows that commits after ``position`` brought, took away and changed, whoever made them, up to ``self.version``.

        Call :meth:`refresh` first for the newest.  Each batch has rows of one commit, under the schema of now, with the columns of
        Delta's change data feed: ``_change_type``, ``_commit_version``, ``_commit_timestamp``.  Commits come in their order, and
        of each the rows that went before those that came.  A file that was written again gives the rows that differ; a compaction
        gives none.  A reader that keeps the position of the last batch that it is done with misses no row and takes none twice.

        Args:
            position: that of the last batch, or of the whole look (``RowChanges.position``); a Delta version or an Iceberg snapshot
                id, after which to begin, -1 before the first; a datetime with a time zone, before which to begin; None gives all
                rows that there are as ``insert``, and goes on from there.
            keys: the columns by which a row that went and one that came are the two images of an update; None takes those of
                :meth:`apply_changes`, if the table has had any.  Without keys each is ``delete`` or ``insert``.
            columns: the columns that come, in this order; None gives all.  A row that was written again with the same values of these gives
                none.  Keys have to be among them.
            batch_rows: a batch has at most so many rows.
            table_id: as for :meth:`added_since`; positions of batches have it already.

        Raises:
            HistoryGapError: the history or the files of a commit are gone, the table was rolled back behind the position, or is
                another one.  Now, or when such a commit is reached.  Read all rows (None), and go on from there.
            InvalidInputError: ``position``, ``keys`` or ``columns`` are none.
            UnsupportedTableError: a column or a delete file cannot be read, or has the name of a column of changes; ``columns`` leaves
                a column out.
            TableNotFoundError, StorageError: before there is a table; no answer.
        """
        from safewrite.table import row_changes

        how = (keys, batch_rows, columns)
        return row_changes.begun(self._format, (position, table_id), how, self._next_change)

    @verb
    def _next_change(self, steps: Iterator[Step]) -> Step | None:
        return next(steps, None)

    # --- writing ----------------------------------------------------------------------------------
    @verb
    def append(
        self,
        data: Any,
        *,
        key: Key = GENERATED,
        txn: Txn = GENERATED,
        schema_mode: SchemaMode | None = None,
        volatile: Sequence[str] | None = None,
        spark_catalog: str | None = None,
        properties: Mapping[str, str] | None = None,
        positions: Mapping[str, tuple[int | None, int]] | None = None,
        timeout_s: float | None = None,
    ) -> Receipt:
        """Append rows, exactly once.

        Args:
            data: pandas, Arrow or polars frame, a list of dicts, or a Spark DataFrame of a session that
                was set up with ``safewrite.spark``; columns are matched by name.
            key: the name of this write, such as an event id: a repeat with the same key and rows
                returns the first receipt (``already_committed``), with other rows it raises.
            txn: ``(app_id, version)`` of a stream's batch, instead of a key.
            schema_mode: ``"merge"`` adds new columns, and missing ones are NULL; ``"widen"`` also makes columns as wide as the data's.
            volatile: columns that are made in each attempt, such as ``["loaded_at"]``: they are written, and left
                out where a repeat is compared with the first write.  Every call with the key must name the same.
            spark_catalog: Iceberg only, for a Spark DataFrame: its session's name for the table's catalog,
                where several of the session's catalogs know the table.
            properties: what the table's history is to say of the commit besides, in Delta's ``commitInfo`` or
                Iceberg's snapshot summary.
            positions: ``{source: (from, to)}``, such as a topic's partition and its offsets: the rows are committed only if
                the table's position of each is ``from`` (None: it has none), and move it to ``to`` in the same commit.
            timeout_s: seconds that this call may take, instead of the table's; once they are nearly used up no
                commit is begun.

        Raises:
            WouldAlterError, InvalidInputError: before anything was uploaded.
            ReplayMismatchError: the key or batch was committed before with other rows.
            NotCommittedError: its other subclasses; none of the rows is or will be in the table.
            CommitUnknownError: the same call again, or ``resolve(error.key)``, decides.
            ForeignWriterError: our commit was replaced, or the catalog acknowledged it and it is not there.
            ConflictError: kind POSITION_MOVED; others took rows of a source into the table first.
        """
        operation = Operation(
            "append",
            schema_mode=check_mode(schema_mode, "widen"),
            spark_catalog=self._format.in_session(spark_catalog),
            properties=check_properties(properties),
            positions=check_positions(positions),
            timeout_s=patience(timeout_s),
            volatile=check_volatile(volatile),
        )
        return self._writer.write_one(data, operation, identity(key, txn))

    @verb
    def append_many(
        self,
        members: Iterable[tuple[Any, Any]],
        *,
        groups: Iterable[Hashable] | None = None,
        schema_mode: Literal["merge"] | None = None,
        volatile: Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        positions: Mapping[str, tuple[int | None, int]] | None = None,
        timeout_s: float | None = None,
    ) -> list[Answer]:
        """Append the rows of many events in one commit, each event exactly once, whatever group it comes in.

        A queue delivers messages again in other groups, so each event has its own key.  Members that were
        committed before, alone or in another group, are left out of the commit.  A member that is at fault
        gets its error in its place and does not hold up the others.

        Args:
            members: ``(key, data)`` for each event; the key is a text or the ``(app_id, version)`` of a stream's batch, the data as for
                :meth:`append`, but no Spark DataFrame.  A key that comes twice counts once.  The rows of all are in memory at once.
            groups: for each member the group of its queue whose order is kept (of a FIFO queue, a shard), or None.
                After a member whose rows are at fault the others of its group are left out (kind HELD_BACK).
            schema_mode, properties, positions, timeout_s: as for :meth:`append`, for the whole commit.  Where all members
                were committed before there is none, and positions stay where they are.
            volatile: as for :meth:`append`, for each member.

        Returns:
            For each member, in order, its receipt, or the error that concerns it alone (WouldAlterError,
            InvalidInputError, ReplayMismatchError; UnsupportedTableError where others were committed before the table became one
            that may not be written to): returned, not raised.  The files of a receipt are those of
            the whole commit.

        Raises:
            NotCommittedError, CommitUnknownError, ForeignWriterError: what concerns all members, as for
                :meth:`append`; ``error.key`` is one of theirs, and what became of it became of all.
        """
        operation = Operation(
            "append",
            schema_mode=check_mode(schema_mode),
            properties=check_properties(properties),
            positions=check_positions(positions),
            timeout_s=patience(timeout_s),
            volatile=check_volatile(volatile),
        )
        return self._writer.write_many(Group(members, groups), operation)

    @verb
    def overwrite(
        self,
        data: Any,
        *,
        where: str | Sequence[tuple[str, str, Any]] | None = None,
        key: Key = GENERATED,
        txn: Txn = GENERATED,
        schema_mode: SchemaMode | None = None,
        volatile: Sequence[str] | None = None,
        spark_catalog: str | None = None,
        properties: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Receipt:
        """Replace the rows for which ``where`` is true (all rows without it) by ``data``, in one commit.

        Rows that other writers append meanwhile and that match are replaced too, as if they had come
        just before (C9).  Where Spark writes a Delta table, Delta decides this: without ``where`` they may
        stay, as if they had come just after.

        Args:
            data: as for :meth:`append`; every row must satisfy ``where``, as in Delta's replaceWhere.
            where: SQL (``"day = '2026-11-21'"``; extra ``[delta]`` or ``[iceberg]``) or tuples
                (``[("day", "=", "2026-11-21")]``).  On partition columns whole files are replaced; on
                others the files that hold matching rows are rewritten.
            volatile: as for :meth:`append`; none of them may be in ``where``.
            key, txn, schema_mode, spark_catalog, properties, timeout_s: as for :meth:`append`.

        Raises:
            InvalidInputError: a row does not satisfy ``where``, or ``where`` cannot be understood.
            UnsupportedTableError: append-only table, or a file that cannot be rewritten.
            ConflictError: others changed the schema or the properties under each of five plans, or replaced the
                table.  What others do to rows and files raises none: the plan is brought to their version.
            RetriesExhaustedError: ``timeout_s`` ended before a version was won.
            WouldAlterError, ReplayMismatchError, NotCommittedError, CommitUnknownError,
            ForeignWriterError: as for :meth:`append`.
        """
        operation = Operation(
            "overwrite",
            where,
            check_mode(schema_mode, "widen"),
            self._format.in_session(spark_catalog),
            check_properties(properties),
            patience(timeout_s),
            check_volatile(volatile),
        )
        return self._writer.write_one(data, operation, identity(key, txn))

    @verb
    def delete(
        self,
        where: str | Sequence[tuple[str, str, Any]],
        *,
        key: Key = GENERATED,
        txn: Txn = GENERATED,
        properties: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Receipt:
        """Remove the rows for which ``where`` is true, in one commit; rows for which it is NULL stay.

        Rows that other writers append meanwhile are treated as by :meth:`overwrite`.  A delete that finds no
        rows commits all the same, so that a repeat is recognised.  Files that hold other rows too are
        rewritten (copy-on-write), unless the table marks rows: ``delta.enableDeletionVectors``, or
        ``write.delete.mode`` of merge-on-read on Iceberg.

        Args:
            where: as for :meth:`overwrite`; ``"true"`` removes all rows.
            key, txn, properties, timeout_s: as for :meth:`append`; a repeat must have the same ``where``.

        Returns:
            A receipt whose ``rows`` is 0: none were written.  Its ``removed_rows`` counts those that went.

        Raises:
            As :meth:`overwrite`, and TableNotFoundError before the first append.
        """
        operation = Operation(
            "delete", where, properties=check_properties(properties), timeout_s=patience(timeout_s)
        )
        return self._writer.write_one(None, operation, identity(key, txn))

    @verb
    def apply_changes(
        self,
        data: Any,
        *,
        keys: Sequence[str],
        sequence_by: Sequence[str],
        delete_when: str | Sequence[tuple[str, str, Any]] | None = None,
        truncate_when: str | Sequence[tuple[str, str, Any]] | None = None,
        columns: Sequence[str] | None = None,
        unchanged: str | None = None,
        full_refresh: bool = False,
        schema_mode: SchemaMode | None = None,
        all_late: Literal["error", "count"] = "error",
        check: Callable[[Any, Mapping[str, int]], object] | None = None,
        key: Key = GENERATED,
        txn: Txn = GENERATED,
        properties: Mapping[str, str] | None = None,
        positions: Mapping[str, tuple[int | None, int]] | None = None,
        timeout_s: float | None = None,
        spark_catalog: str | None = None,
    ) -> Receipt:
        """Upsert and delete rows by key, in one commit: of all changes of a key, the last by its sequence stays.

        Batches may come late, twice, or in any order: what is older than the row or deletion that is known is left out.

        Args:
            data: pandas, Arrow, polars or Spark frame, or a list of dicts; each row is a change, in the order of its source.
            keys: columns that name a row; none may be NULL or a float.
            sequence_by: columns that order the changes of a key, compared one after another; they are kept in the table.
            delete_when: what makes a row a delete (``"op = 'd'"``, tuples, or the name of a boolean column); such a row
                needs its key and sequence only.  Columns that only conditions name need not be in the table.
            truncate_when: what makes a row a truncate: everything before its sequence goes; it needs no key.
            columns: the columns of the data that go into the table, keys and sequence among them; others are left out.  None
                takes all.  Columns of the table that an upsert lacks are refused as by :meth:`append`, whatever is named here.
            unchanged: the name of a column of lists: for each upsert the columns whose values it does not bring, for its
                source did not change them (PostgreSQL's TOAST).  They are carried on, which is not NULL.
            full_refresh: the batch is all there is, as when a source was read anew: every row of the table and every deletion that
                it remembers goes in the same commit, also those of others meanwhile; ``keys`` and ``sequence_by`` may be new.
            schema_mode: as for :meth:`append`; keys and sequences stay as wide as they are, and other rows have NULL in a new column.
            all_late: ``"error"`` refuses a batch of which every change is late: a source that was set back looks so.
            check: is called before each try of the commit with the rows that it would write (an Arrow table, or a Spark DataFrame
                for one; after all changes of a key were decided) and its counts; what it raises stops the write.
            key, txn, properties, positions, timeout_s, spark_catalog: as for :meth:`append`.

        Returns:
            A receipt whose ``changes`` counts what became of each; docs/apply-changes.md has the words.

        Raises:
            InvalidInputError: the batch is refused as docs/apply-changes.md says; the keys are named.
            As :meth:`overwrite`, and TableNotFoundError before the table is made.
        """
        from safewrite.changes.meaning.spec import declared

        operation = Operation(
            "apply_changes",
            spark_catalog=self._format.in_session(spark_catalog),
            properties=check_properties(properties),
            positions=check_positions(positions),
            timeout_s=patience(timeout_s),
            changes=declared(
                *(keys, sequence_by, delete_when, truncate_when, all_late, unchanged, check, columns),
                *(full_refresh, schema_mode),
            ),
        )
        return self._writer.write_one(data, operation, identity(key, txn))

    @verb
    def apply_changes_many(
        self,
        members: Iterable[tuple[Any, Any]],
        *,
        keys: Sequence[str],
        sequence_by: Sequence[str],
        delete_when: str | Sequence[tuple[str, str, Any]] | None = None,
        truncate_when: str | Sequence[tuple[str, str, Any]] | None = None,
        columns: Sequence[str] | None = None,
        unchanged: str | None = None,
        all_late: Literal["error", "count"] = "error",
        check: Callable[[Any, Mapping[str, int]], object] | None = None,
        schema_mode: Literal["merge"] | None = None,
        groups: Iterable[Hashable] | None = None,
        properties: Mapping[str, str] | None = None,
        positions: Mapping[str, tuple[int | None, int]] | None = None,
        timeout_s: float | None = None,
    ) -> list[Answer]:
        """Apply the changes of many batches in one commit, each batch exactly once, whatever group it comes in.

        It does what :meth:`apply_changes` for one member after another would do, in their order: each is decided on what those
        before it leave.  A member that was committed before, alone or in another group, is left out; one that is refused
        gets its error in its place and leaves no trace.  Which group a change came in decides nothing, its sequence does.

        Args:
            members: ``(key, changes)`` for each batch, as for :meth:`append_many`; no Spark DataFrame.
            keys, sequence_by, delete_when, truncate_when, columns, unchanged, schema_mode: as for :meth:`apply_changes`, for all
                members; a member sees the columns that those before it bring.
            all_late: of each member: one of which every change is late, also against members before it, is refused or counted.
            check: is called for each member with the rows that it brings and its counts; what it raises refuses that member.
            groups: as for :meth:`append_many`; what comes after a refused member in its group is left out too (kind HELD_BACK).
            properties, positions, timeout_s: as for :meth:`append`, for the whole commit.  Positions move past refused members:
                keep those.  Where no member is committed there is no commit, and positions stay where they are.

        Returns:
            For each member, in order, its receipt, or the error that concerns it alone: returned, not raised.  ``changes`` and
            ``rows`` of a receipt are the member's own, though a later member may have replaced such a row before it was
            written; ``files`` are of the whole commit, and ``removed_rows`` is None.

        Raises:
            As :meth:`append_many`, and TableNotFoundError before the table is made.
        """
        from safewrite.changes.meaning.spec import declared

        operation = Operation(
            "apply_changes",
            properties=check_properties(properties),
            positions=check_positions(positions),
            timeout_s=patience(timeout_s),
            changes=declared(
                *(keys, sequence_by, delete_when, truncate_when, all_late, unchanged, check, columns),
                schema_mode=check_mode(schema_mode),
            ),
        )
        return self._writer.write_many(Group(members, groups, verb="apply_changes_many"), operation)

    # --- upkeep -----------------------------------------------------------------------------------
    @public
    def maintain(
        self,
        *,
        dry_run: bool = False,
        budget_s: float | None = None,
        budget_bytes: int | None = None,
        remove_unused: bool = False,
        engine: Literal["auto", "local", "spark"] | Workplace = "auto",
    ) -> MaintainReport:
        """Put small data files together, and those with many deleted rows, beside writers.  No row changes.

        Files of a partition that follow each other become one, up to the table's target size; groups that are not worth their work
        stay.  Cold partitions come first.  Each commit is small, and never makes another write wait.  A group of which others took
        files first is left out and counted, and the rest goes on; so two calls at once do no harm.

        Args:
            dry_run: only say what would be done.
            budget_s: no group is begun after so many seconds.
            budget_bytes: at most so many bytes of data files are read and written again.
            remove_unused: remove files of the table's folder that no version needs which the table keeps, in two runs: this one removes
                what one of a day ago or earlier has listed, and lists the rest.  Nothing younger than a week goes.
            engine: where files are read and written again.  ``local``: in this process; ``spark``: on the executors of its Spark session,
                each of which needs Python with safewrite, but for what is small; ``auto``: there, where this process has such a session,
                its executors are processes of their own, and they take less.  This process commits.

        Returns:
            What was done, and what was left and why.  docs/maintain.md has the words.

        Raises:
            UnsupportedTableError: the table may not be written to; the error names the feature.
            TableNotFoundError, StorageError: before there is a table; no answer.  What was committed before stands.
            InvalidInputError, MissingExtraError: ``spark`` was asked for, and executors lack Python or do not reach the table, or there is no Spark.
        """
        from safewrite.upkeep.maintain import Upkept, checked_bytes, maintain
        from safewrite.upkeep.workplace import workplace_of

        now_s = partial(monotonic_s, self.world)
        report = maintain(
            Upkept(self.uri, self._inventory, self._compact, self.in_tasks, self._settle, now_s),
            dry_run=flag("dry_run", dry_run),
            budget_s=seconds("budget_s", budget_s),
            budget_bytes=checked_bytes(budget_bytes),
            remove_unused=flag("remove_unused", remove_unused),
            place=workplace_of(engine),
        )
        tell(self.world, Event("upkeep", self.uri, str(report), report.to_dict()))
        return report

    @verb
    def _inventory(self) -> Inventory:
        return self._format.inventory()

    @verb
    def _compact(self, groups: Sequence[FileGroup], on: Inventory, engine: Engine[Any] | None) -> Compacted:
        return self._format.compact(groups, on, engine)

    @verb
    def _settle(self, asked: Settling) -> Settled:
        return self._format.settle(asked)

    @verb
    def sink(
        self,
        mode: Literal["append", "overwrite", "apply_changes"] = "append",
        *,
        app_id: str,
        schema_mode: SchemaMode | None = None,
        volatile: Sequence[str] | None = None,
        spark_catalog: str | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> Sink:
        """What ``foreachBatch`` of a Spark stream calls: ``stream.writeStream.foreachBatch(table.sink(app_id="orders"))``.

        Each batch is one commit, in the table exactly once: a replay is recognised by ``app_id`` and its
        epoch, and by the offsets of the stream's sources or its rows.

        Args:
            mode: ``"append"``, ``"overwrite"`` to replace all rows by each batch, or ``"apply_changes"``.
            app_id: names the stream, as long as its checkpoint lives.  It has no default: two streams must not
                share one, and a stream whose checkpoint was deleted counts from 0 again and needs a new one.
            schema_mode, volatile, spark_catalog: as for :meth:`append`.  A batch that is known by its offsets needs
                no ``volatile``.  ``"widen"`` is for changes: no other verb takes it with a frame of Spark.
            changes: with ``"apply_changes"``, what the stream's changes are: ``keys``, ``sequence_by`` and the further
                arguments of :meth:`apply_changes` that declare them.
        """
        given = {
            "spark_catalog": self._format.in_session(spark_catalog),
            "volatile": check_volatile(volatile) or None,
        }
        extra = {name: value for name, value in given.items() if value is not None}
        extra |= _declared_changes(mode, changes, extra, schema_mode)
        return sink(self.reopen, mode, app_id, schema_mode, extra)


def _declared_changes(
    mode: object, changes: Mapping[str, Any] | None, others: Mapping[str, Any], schema_mode: object
) -> dict[str, Any]:
    """The arguments by which a sink applies changes, checked before the stream begins.

    Raises:
        InvalidInputError: they are missing, or not for this mode.
    """
    from safewrite.changes.meaning.spec import declared

    applies = is_text(mode) and plain(mode) == "apply_changes"
    if not applies and changes is None:
        return {}
    if not applies or not isinstance(changes, Mapping) or "volatile" in others:
        raise InvalidInputError(
            "A sink of mode 'apply_changes' takes changes={'keys': [...], 'sequence_by': [...], ...}, and no volatile=; other "
            "modes take no changes=. Nothing was written."
        )
    unknown = sorted(set(changes) - set(_OF_CHANGES))
    if unknown:
        raise InvalidInputError(
            f"changes= has {unknown}, and takes {', '.join(_OF_CHANGES)}. Nothing was written."
        )
    given = {"keys": None, "sequence_by": None, **changes}
    declared(**given, schema_mode=schema_mode)
    return given


_OF_CHANGES = ("keys", "sequence_by", "delete_when", "truncate_when", "all_late", "columns", "unchanged")
