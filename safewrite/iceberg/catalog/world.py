"""Performs effects on an Iceberg table: its catalog, its files, its ledger and its queue."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

from safewrite.errors import UnsupportedTableError
from safewrite.iceberg.branch_properties import MAIN
from safewrite.iceberg.catalog.commit_request import CreateCall
from safewrite.iceberg.catalog.effects import PlanFiles, ReadRows
from safewrite.iceberg.catalog.files import FileStore
from safewrite.iceberg.catalog.foreign import load_table, unread_part
from safewrite.iceberg.catalog.lending import Loan, lends
from safewrite.iceberg.catalog.metadata_files import check_writes
from safewrite.iceberg.catalog.metadata_v3 import keeps_ids
from safewrite.iceberg.catalog.outcomes import classify_error, classify_file_error
from safewrite.iceberg.catalog.rows import read_rows, scan_meaning
from safewrite.iceberg.data.opaque import opaque_types
from safewrite.iceberg.data.vectors import vector_of
from safewrite.iceberg.features import check_commit, check_landing
from safewrite.iceberg.metadata import head_of, table_of
from safewrite.protocol import values
from safewrite.protocol.effects import Effect, Failed, Missing, Ok, Outcome
from safewrite.protocol.iceberg.change import CreateTable, LoadTable, ReadMetadata, SwapTable
from safewrite.stores.table_folder import leads_astray, refused
from safewrite.stores.world import World

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.io import FileIO
    from pyiceberg.table import DataScan, FileScanTask, Table
    from pyiceberg.table.metadata import TableMetadata

    from safewrite.iceberg.catalog.commit_request import (
        CommitRequest,
        CreateRequest,
        MetadataCommit,
        RefCommit,
    )
    from safewrite.iceberg.data.known_manifests import KnownManifests
    from safewrite.protocol.iceberg.head import TableVersion
    from safewrite.stores.abc import Ledger, TicketQueue

    Change: TypeAlias = CommitRequest | MetadataCommit | RefCommit | CreateRequest


class _Locks:
    """A lock for each catalog object, shared by all tables that were opened with it."""

    def __init__(self) -> None:
        self._making = threading.Lock()
        self._made: WeakKeyDictionary[Catalog, threading.Lock] = WeakKeyDictionary()

    def of(self, catalog: Catalog) -> threading.Lock:
        with self._making:
            return self._made.setdefault(catalog, threading.Lock())


_locks = _Locks()
# A forked child has none of the threads that may hold the locks.
os.register_at_fork(after_in_child=_locks.__init__)  # type: ignore[misc]


class _Writable:
    """Requires that the metadata which a commit lands on may be written to: it may be newer than the base.

    For catalogs that look at what is required by themselves, at the metadata that they then replace.
    """

    def __init__(self, name: str, keeps_ids: bool) -> None:
        self._name = name
        self._keeps_ids = keeps_ids

    def validate(self, base_metadata: TableMetadata | None) -> None:
        """Raises UnsupportedTableError: by the name of every feature that writers would have to know."""
        if base_metadata is not None:
            check_landing(base_metadata, self._name, keeps_ids=self._keeps_ids)


def _commit(catalog: Catalog, table: Table, change: Change, besides: tuple[_Writable, ...]) -> None:
    """Ask a catalog for a change.

    PyIceberg's own catalogs load the table and examine what is required before they ask for anything; a server does both by itself.
    """
    from pyiceberg.catalog import MetastoreCatalog

    looks = isinstance(catalog, MetastoreCatalog)
    required: Any = (*change.requirements, *besides) if looks else change.requirements
    try:
        catalog.commit_table(table, required, change.updates)
    except Exception as error:
        refusal = unread_part(error, ".".join(table.name())) if looks else None
        if refusal is None:
            raise
        raise refusal from error


class FilesWorld(World):
    """Performs effects on the files of one table; it asks no catalog, so it commits nothing."""

    def __init__(
        self,
        table: Table | None,
        identifier: tuple[str, ...],
        *,
        ledger: Ledger | None = None,
        queue: TicketQueue | None = None,
    ) -> None:
        super().__init__(
            FileStore(self._file_io, ".".join(identifier)), ledger=ledger or _NoLedger(), queue=queue
        )
        self.table = table

    def perform(self, effect: Effect) -> Outcome:
        match effect:
            case ReadRows(head, task, columns, with_ids, without):
                table = table_of(head)
                how: dict[str, Any] = {"with_ids": with_ids, "without": without}
                return read_rows(table.metadata, table.io, task, columns, **how)
            case _:
                return super().perform(effect)

    def leads_out(self, path: str) -> bool:
        """See :meth:`World.leads_out`; the files of an Iceberg table may stand anywhere, and are named as they are."""
        return leads_astray(path, "" if self.table is None else self.table.location())

    def _file_io(self) -> FileIO:
        assert self.table is not None, "the table is loaded before its files are touched"
        return self.table.io


class CatalogWorld(FilesWorld):
    """Performs effects on one table of one catalog.

    The catalog must be the plain one, not the decorator.  Its clients are not all made for threads, so one
    thread at a time asks it, whatever the table; files are read and written in parallel.
    """

    def __init__(
        self,
        catalog: Catalog,
        identifier: tuple[str, ...],
        *,
        branch: str = MAIN,
        ledger: Ledger | None = None,
        queue: TicketQueue | None = None,
    ) -> None:
        super().__init__(None, identifier, ledger=ledger, queue=queue)
        self.catalog = catalog
        self.identifier = identifier
        self.branch = branch
        self._one_at_a_time = _locks.of(catalog)
        self._loan = Loan()

    def perform(self, effect: Effect) -> Outcome:
        match effect:
            case LoadTable():
                return self._load()
            case ReadMetadata(location, of_main):
                return self._read_metadata(location, MAIN if of_main else self.branch)
            case SwapTable(change):
                return self._swap_on(change)  # type: ignore[arg-type]
            case CreateTable(CreateCall() as call):
                return self._make(call)
            case CreateTable(creation):
                return self._swap(creation.staged, creation)  # type: ignore[attr-defined, arg-type]
            case PlanFiles(head, row_filter, known, at):
                return self._plan_files(head, row_filter, known, at)
            case _:
                return super().perform(effect)

    def _load(self) -> Outcome:
        try:
            with self._one_at_a_time:
                self.table = load_table(self.catalog, self.identifier)
                self._loan = Loan()
        except Exception as error:  # noqa: BLE001 - what each means is decided in one place
            return _named(classify_error(error), self.catalog, self.identifier)
        return Ok(head_of(self.table, self.branch))

    def _file_io(self) -> FileIO:
        """As before; what the catalog lent it is asked for again in time, for a write may take longer."""
        found = super()._file_io()
        if self.table is not None and self._loan.is_old and lends(self.catalog, found.properties):
            self._loan = Loan()  # whoever comes meanwhile does not ask, too
            # The last loan may serve still; if not, requests tell.
            with self._one_at_a_time, suppress(Exception):
                self.table.io = load_table(self.catalog, self.identifier).io
        return super()._file_io()

    def _read_metadata(self, location: str, branch: str) -> Outcome:
        from pyiceberg.serializers import FromInputFile
        from pyiceberg.table import Table

        if self.leads_out(location):
            return refused(location)
        file_io = self._file_io()
        try:
            with opaque_types():
                metadata = FromInputFile.table_metadata(file_io.new_input(location))
        except Exception as error:  # noqa: BLE001 - as above
            return classify_file_error(error)
        # A plan examines earlier table versions as it does the current one, so they are tables too.
        return Ok(head_of(Table(self.identifier, metadata, location, file_io, self.catalog), branch))

    def _swap_on(self, change: CommitRequest | MetadataCommit | RefCommit) -> Outcome:
        """Ask for a change of a table that may be written to: the last line, whoever made the change."""
        keeps = keeps_ids(change.updates)
        try:
            check_commit(change.base, keeps_ids=keeps)
            check_writes(self.catalog, ".".join(self.identifier), table_of(change.base).metadata)
        except UnsupportedTableError as error:
            return Failed(error.message, unsupported=True)
        return self._swap(table_of(change.base), change, _Writable(".".join(self.identifier), keeps))

    def _swap(self, table: Table, change: Change, *besides: _Writable) -> Outcome:
        try:
            with self._one_at_a_time, opaque_types():
                _commit(self.catalog, table, change, besides)
        except Exception as error:  # noqa: BLE001 - as above
            return classify_error(error)
        return Ok()

    def _make(self, call: CreateCall) -> Outcome:
        try:
            with self._one_at_a_time:
                call.make()
        except Exception as error:  # noqa: BLE001 - as above
            return classify_error(error)
        return Ok()

    def _plan_files(
        self, head: TableVersion, row_filter: BooleanExpression, known: KnownManifests | None, at: int | None
    ) -> Outcome:
        try:
            try:
                found = _planned(self._scan(head, at, row_filter), head, known)
            except (
                TypeError
            ):  # PyIceberg compares NULL partition values (iceberg-python #3498): all files, then
                found = _planned(self._scan(head, at), head, known)
            for task in found:
                vector_of(task)
        except Exception as error:  # noqa: BLE001 - as above
            return scan_meaning(error)
        named = (file.file_path for task in found for file in (task.file, *task.delete_files))
        astray = next((path for path in named if self.leads_out(path)), None)
        return Ok(found) if astray is None else refused(astray)

    def _scan(
        self, head: TableVersion, at: int | None, row_filter: BooleanExpression | None = None
    ) -> DataScan:
        table = table_of(head)
        scan = table.scan(snapshot_id=at) if row_filter is None else table.scan(row_filter, snapshot_id=at)
        return scan if self.branch == MAIN or at is not None else scan.use_ref(self.branch)


def _named(outcome: Outcome, catalog: Catalog, identifier: tuple[str, ...]) -> Outcome:
    """The outcome of a look for a table, with what is missing, and where."""
    kind, shows = (
        ("SQL ", ", which has tables of that name alone") if hasattr(catalog, "engine") else ("", "")
    )
    where = f"{'.'.join(identifier)} in the {kind}catalog {catalog.name!r}{shows}"
    return Missing(where) if isinstance(outcome, Missing) else outcome


def _planned(scan: DataScan, head: TableVersion, known: KnownManifests | None) -> tuple[FileScanTask, ...]:
    """The files of a scan; PyIceberg before 0.12 has no planner that could be given what is known."""
    if known is None or not hasattr(type(scan), "_manifest_planner"):
        return tuple(scan.plan_files())
    from safewrite.iceberg.catalog.planning import planned

    return tuple(planned(scan, head.table_id, known))


class _NoLedger:
    """Stands in for a ledger where snapshots are the only index: finds nothing, accepts all."""

    def get(self, key: str) -> Outcome:
        return Missing()

    def intend(self, record: values.LedgerRecord, expire_time_s: int) -> Outcome:
        return Ok()

    def commit(self, record: values.LedgerRecord, expire_time_s: int) -> Outcome:
        return Ok()
