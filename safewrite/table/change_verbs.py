"""Defines the verbs that apply changes by key and sequence to a table of either format."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Literal

from safewrite.arguments.options import GENERATED, Key, Txn, identity, patience
from safewrite.arguments.properties import checked as check_properties
from safewrite.boundary.public import verb
from safewrite.protocol.positions import check as check_positions
from safewrite.receipt import Receipt
from safewrite.table.group import Answer, Group
from safewrite.table.lookups import Lookups
from safewrite.table.operation import Operation
from safewrite.table.write_loop import DoneT, PlanT, VersionT


class ChangeVerbs(Lookups[VersionT, PlanT, DoneT]):
    """The verbs of a table under a change log."""

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
        from safewrite.changes.spec import declared

        operation = Operation(
            "apply_changes",
            spark_catalog=self._in_session(spark_catalog),
            properties=check_properties(properties),
            positions=check_positions(positions),
            timeout_s=patience(timeout_s),
            changes=declared(
                keys,
                sequence_by,
                delete_when,
                truncate_when,
                all_late,
                unchanged,
                check,
                columns,
                full_refresh,
            ),
        )
        return self._write(data, operation, identity(key, txn))

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
            keys, sequence_by, delete_when, truncate_when, columns, unchanged: as for :meth:`apply_changes`, for all members.
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
        from safewrite.changes.spec import declared

        operation = Operation(
            "apply_changes",
            properties=check_properties(properties),
            positions=check_positions(positions),
            timeout_s=patience(timeout_s),
            changes=declared(
                keys, sequence_by, delete_when, truncate_when, all_late, unchanged, check, columns
            ),
        )
        return self._write_many(Group(members, groups, verb="apply_changes_many"), operation)
