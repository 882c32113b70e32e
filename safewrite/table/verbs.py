"""Defines the table of either format by its verbs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from safewrite.arguments.options import GENERATED, Key, Txn, identity, patience
from safewrite.arguments.properties import checked as check_properties
from safewrite.arguments.reading import schema_mode as check_mode
from safewrite.arguments.volatile import given as check_volatile
from safewrite.boundary.public import verb
from safewrite.errors import InvalidInputError
from safewrite.protocol.ask import Limits
from safewrite.protocol.positions import check as check_positions
from safewrite.receipt import Receipt
from safewrite.table.change_verbs import ChangeVerbs
from safewrite.table.group import Answer, Group
from safewrite.table.new_table import Layout
from safewrite.table.operation import Operation
from safewrite.table.sink import Sink, portable, reopened, sink
from safewrite.table.write_loop import DoneT, PlanT, VersionT
from safewrite.text.strings import is_text, plain

if TYPE_CHECKING:
    import pyarrow as pa


class Table(ChangeVerbs[VersionT, PlanT, DoneT]):
    """A table that many writers share.  Make one with ``safewrite.open`` or ``safewrite.create``.

    Threads that share one take turns.  A forked or pickled one opens connections of its own.
    """

    def __init__(self, limits: Limits | None) -> None:
        super().__init__(limits)
        self.reopen: Callable[[], Table] | None = None
        """Opens the table again, in this process or another; None where that needs what does not travel."""

    def __reduce__(self) -> tuple[Any, ...]:
        return reopened, (portable(self.reopen),)

    # --- what it is -------------------------------------------------------------------------------
    @property
    @abstractmethod
    def arbiter(self) -> str:
        """Who decides which writer's commit comes next: ``dynamodb``, ``object-store``, ``local`` or ``catalog``."""

    @property
    @abstractmethod
    def version(self) -> int:
        """The newest Delta version or Iceberg snapshot id that this object has seen; -1 before there is one."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The table's schema in Arrow, as of ``version``."""

    @property
    @abstractmethod
    def partition_by(self) -> tuple[str, ...]:
        """Partition columns, or Iceberg's partition fields as ``partition_by=`` spells them."""

    @property
    @abstractmethod
    def properties(self) -> dict[str, str]:
        """Table properties, as of ``version``."""

    @verb
    def refresh(self) -> Self:
        """Read what is new in the table; returns itself.

        Raises:
            ConflictError: kind TABLE_REPLACED; another table is at the address.
            TableNotFoundError: the table was dropped.
            UnsupportedTableError, UnsafeConfigError: the table became one that ``safewrite.open`` refuses.
        """
        self._refresh()
        return self

    # --- writing ----------------------------------------------------------------------------------
    @verb
    def append(
        self,
        data: Any,
        *,
        key: Key = GENERATED,
        txn: Txn = GENERATED,
        schema_mode: Literal["merge"] | None = None,
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
            schema_mode: ``"merge"`` to add new columns to the table and leave missing ones NULL.
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
            schema_mode=check_mode(schema_mode),
            spark_catalog=self._in_session(spark_catalog),
            properties=check_properties(properties),
            positions=check_positions(positions),
            timeout_s=patience(timeout_s),
            volatile=check_volatile(volatile),
        )
        return self._write(data, operation, identity(key, txn))

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
            members: ``(key, data)`` for each event; the key is a text or the ``(app_id, version)`` of a stream's
                batch, the data as for :meth:`append`, but no Spark DataFrame.  A key that comes twice counts once.
                The rows of all members are in memory at once.
            groups: for each member the group of its queue whose order is kept (of a FIFO queue, a shard), or None.
                After a member whose rows are at fault the others of its group are left out (kind HELD_BACK).
            schema_mode, properties, positions, timeout_s: as for :meth:`append`, for the whole commit.  Where all members
                were committed before there is none, and positions stay where they are.
            volatile: as for :meth:`append`, for each member.

        Returns:
            For each member, in order, its receipt, or the error that concerns it alone (WouldAlterError,
            InvalidInputError, ReplayMismatchError): returned, not raised.  The files of a receipt are those of
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
        return self._write_many(Group(members, groups), operation)

    @verb
    def overwrite(
        self,
        data: Any,
        *,
        where: str | Sequence[tuple[str, str, Any]] | None = None,
        key: Key = GENERATED,
        txn: Txn = GENERATED,
        schema_mode: Literal["merge"] | None = None,
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
            ConflictError: other writers changed the same files again and again.
            WouldAlterError, ReplayMismatchError, NotCommittedError, CommitUnknownError,
            ForeignWriterError: as for :meth:`append`.
        """
        operation = Operation(
            "overwrite",
            where,
            check_mode(schema_mode),
            self._in_session(spark_catalog),
            check_properties(properties),
            patience(timeout_s),
            check_volatile(volatile),
        )
        return self._write(data, operation, identity(key, txn))

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
        rewritten (copy-on-write).

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
        return self._write(None, operation, identity(key, txn))

    @verb
    def sink(
        self,
        mode: Literal["append", "overwrite", "apply_changes"] = "append",
        *,
        app_id: str,
        schema_mode: Literal["merge"] | None = None,
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
                no ``volatile``.
            changes: with ``"apply_changes"``, what the stream's changes are: ``keys``, ``sequence_by`` and the further
                arguments of :meth:`apply_changes` that declare them.
        """
        given = {
            "spark_catalog": self._in_session(spark_catalog),
            "volatile": check_volatile(volatile) or None,
        }
        extra = {name: value for name, value in given.items() if value is not None}
        extra |= _declared_changes(mode, changes, extra, schema_mode)
        return sink(self.reopen, mode, app_id, schema_mode, extra)

    # --- what a format knows ------------------------------------------------------------------------
    def _layouts(self, given: Layout) -> tuple[Layout, Layout]:
        """The layout that was given for a new table, and that of this one, in the same spelling."""
        return Layout(tuple(given.partition_by)), Layout(self.partition_by)

    def _settings(self) -> dict[str, str]:
        """What the table has of the ``properties=`` that it can be created with."""
        return self.properties


def _declared_changes(
    mode: object, changes: Mapping[str, Any] | None, others: Mapping[str, Any], schema_mode: object
) -> dict[str, Any]:
    """The arguments by which a sink applies changes, checked before the stream begins.

    Raises:
        InvalidInputError: they are missing, or not for this mode.
    """
    from safewrite.changes.spec import declared

    applies = is_text(mode) and plain(mode) == "apply_changes"
    if not applies and changes is None:
        return {}
    if not applies or not isinstance(changes, Mapping) or schema_mode is not None or "volatile" in others:
        raise InvalidInputError(
            "A sink of mode 'apply_changes' takes changes={'keys': [...], 'sequence_by': [...], ...}, and neither schema_mode= "
            "nor volatile=; other modes take no changes=. Nothing was written."
        )
    unknown = sorted(set(changes) - set(_OF_CHANGES))
    if unknown:
        raise InvalidInputError(
            f"changes= has {unknown}, and takes {', '.join(_OF_CHANGES)}. Nothing was written."
        )
    given = {"keys": None, "sequence_by": None, **changes}
    declared(**given)
    return given


_OF_CHANGES = ("keys", "sequence_by", "delete_when", "truncate_when", "all_late", "columns", "unchanged")
