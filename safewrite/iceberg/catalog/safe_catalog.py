"""Wraps a PyIceberg catalog so that it knows whether its commits landed.

``SafeCatalog`` decorates any catalog.  Tables that it hands out commit through it, so PyIceberg's own
calls on them (``table.append``, ``delete``, ``update_schema()``, transactions) are safe as well.  A commit
that landed is reported as landed.  One that certainly did not is a ``CommitFailedException``, which PyIceberg
may retry and clean up after.  All else is a :class:`CommitStateUnknownError`, after which PyIceberg deletes
nothing (apache/iceberg #2317; PyIceberg 0.12 deletes files after the last of its attempts even if that one
landed and was reported as a conflict).
"""

from __future__ import annotations

import uuid
from abc import ABCMeta
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchNamespaceError,
    RESTError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from safewrite.errors import CommitUnknownError, InvalidInputError, NotCommittedError
from safewrite.iceberg.catalog.commit_request import (
    MARK,
    CreateCall,
    bind,
    branch_of,
    creation,
    staged,
    unmet,
)
from safewrite.iceberg.catalog.glue import guard
from safewrite.iceberg.catalog.loading import taken
from safewrite.iceberg.catalog.metadata_v3 import VERSION
from safewrite.iceberg.catalog.world import CatalogWorld
from safewrite.protocol import ticket_queue
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.iceberg.change import Creation, TableChange
from safewrite.protocol.iceberg.commit import load
from safewrite.protocol.iceberg.settle import SettledChange, settle, settle_creation
from safewrite.stores.world import run

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.schema import Schema
    from pyiceberg.table import CommitTableResponse, CreateTableTransaction, Table
    from pyiceberg.table.update import TableRequirement, TableUpdate

T = TypeVar("T")


class CommitStateUnknownError(CommitUnknownError, CommitStateUnknownException):
    """The commit may have landed; PyIceberg's own exception for it, too."""


class NotLandedError(NotCommittedError, CommitFailedException):
    """The commit did not land and cannot land any more; PyIceberg's own exception for it, too."""


def _delegate(name: str) -> Callable[..., Any]:
    def call(self: SafeCatalog, *args: Any, **kwargs: Any) -> Any:
        return self._rehome(getattr(self.inner, name)(*args, **kwargs))

    call.__name__ = name
    call.__doc__ = f"As ``{name}`` of the decorated catalog."
    return call


def _makes_locations(catalog: Any, identifier: str | Identifier) -> bool:
    """Whether a Glue database is one of S3 Tables, which gives a table its place when it is created."""
    is_s3tables = getattr(catalog, "_is_s3tables_database", None)
    return is_s3tables is not None and bool(is_s3tables(Catalog.identifier_to_tuple(identifier)[0]))


def _stages_none(error: RESTError) -> bool:
    """Whether a server refused to stage a table, as those of Glue and S3 Tables do; nothing was made."""
    return isinstance(error, BadRequestError) or "stage" in str(error).lower()


_OWN = {"commit_table", "create_table", "create_table_transaction", "create_table_if_not_exists"}
_DELEGATED = {
    name: _delegate(name)
    for name in dir(Catalog)
    if callable(getattr(Catalog, name)) and not name.startswith("__") and name not in _OWN
}
_Base: Any = ABCMeta("_Base", (Catalog,), {**_DELEGATED, "commit_table": None, "create_table": None})


class SafeCatalog(_Base):  # type: ignore[misc]
    """Any PyIceberg catalog, with commits that know whether they landed.

    Args:
        inner: the catalog to decorate; it does the work.
        limits: the limits of a commit's patience.

    Raises:
        InvalidInputError: ``inner`` is no catalog.
    """

    def __init__(self, inner: Catalog, *, limits: Limits | None = None) -> None:
        if not isinstance(inner, Catalog):
            raise InvalidInputError(
                f"SafeCatalog takes a catalog of PyIceberg, not a {type(inner).__name__}. Nothing was written. Give it "
                "pyiceberg.catalog.load_catalog(name, **properties)."
            )
        super().__init__(inner.name, **inner.properties)
        guard(inner)
        self.inner = taken(inner)
        self.limits = limits or Limits()

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __repr__(self) -> str:
        return f"<safewrite.iceberg.SafeCatalog of {self.inner!r}>"

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit updates, and find out whether they landed.

        Raises:
            NotLandedError: a ``CommitFailedException``; it did not land and never will.
            CommitStateUnknownError: a ``CommitStateUnknownException``; it may have landed.
            ForeignWriterError: the catalog accepted it, and it is not in the table.
            TableNotFoundError, StorageError: nothing was committed.
        """
        from pyiceberg.table import CommitTableResponse

        now = self._commit(table, requirements, updates)
        return CommitTableResponse(metadata=now.metadata, **{"metadata-location": now.metadata_location})

    def create_table(  # noqa: PLR0917 - PyIceberg's own signature
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        """Create a table as the decorated catalog does, and find out whether it was made.

        Raises:
            TableAlreadyExistsError: another made it first.
            NoSuchNamespaceError: there is no such namespace.
            CommitStateUnknownError: it may have been made.
        """
        from pyiceberg.table.update import AssertCreate

        given = (identifier, schema, location, partition_spec, sort_order, properties)
        if _makes_locations(self.inner, identifier):
            made: Table = self._rehome(self.inner.create_table(*given))
            return made
        namespace = Catalog.namespace_from(identifier)
        if hasattr(self.inner, "engine") and not self.inner.namespace_exists(namespace):
            raise NoSuchNamespaceError(f"Namespace does not exist: {'.'.join(namespace)}")
        try:
            transaction = self.create_table_transaction(*given)
        except RESTError as error:
            if not _stages_none(error):
                raise
            return self._created_at_once(identifier, given)
        staged = transaction._table  # noqa: SLF001 - as PyIceberg's own commit of the transaction
        return self._commit(staged, (AssertCreate(),), transaction._updates)  # noqa: SLF001 - as above

    def _created_at_once(self, identifier: str | Identifier, given: tuple[Any, ...]) -> Table:
        """Create a table by one request; raises as :meth:`create_table`."""
        mark = uuid.uuid4().hex
        create: Any = self.inner.create_table
        *how, properties = given
        made = CreateCall(mark, lambda: create(*how, {**properties, MARK: mark}))
        world = CatalogWorld(self.inner, Catalog.identifier_to_tuple(identifier))
        try:
            settled = run(self._create(made), world)
        except CommitUnknownError as error:
            raise CommitStateUnknownError(error.message) from error
        return self._shown(world, settled, ".".join(world.identifier))

    def create_table_transaction(  # noqa: PLR0917 - PyIceberg's own signature
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> CreateTableTransaction:
        """Begin a transaction of the decorated catalog that commits through the decorator."""
        from pyiceberg.table import CreateTableTransaction

        given = (identifier, schema, location, partition_spec, sort_order, properties)
        deep = len(Catalog.identifier_to_tuple(identifier)) > 2 and hasattr(self.inner, "engine")
        transaction = (
            CreateTableTransaction(staged(self.inner, *given))
            if deep
            else self.inner.create_table_transaction(*given)
        )
        self._rehome(transaction._table)  # noqa: SLF001 - PyIceberg offers no other way to name its catalog
        return transaction

    def _commit(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> Table:
        """Commit, and return the table that shows it.  Raises as :meth:`commit_table` and :meth:`create_table`."""
        from pyiceberg.table.update import AssertCreate

        world = CatalogWorld(self.inner, table.name(), branch=branch_of(updates))
        creates = any(isinstance(requirement, AssertCreate) for requirement in requirements)
        try:
            if creates:
                settled = run(self._create(creation(table, requirements, updates)), world)
            else:
                settled = run(self._settle(requirements, updates), world)
        except CommitUnknownError as error:
            raise CommitStateUnknownError(error.message) from error
        if creates:
            return self._shown(world, settled, ".".join(table.name()))
        if not settled.landed:
            raise NotLandedError(
                f"{unmet(requirements, settled.head)}Another writer changed the table first: what this commit requires "
                "does not hold any more. It did not land and cannot land later. Refresh the table and do it again."
            )
        assert world.table is not None
        now: Table = self._rehome(world.table)
        return now

    def _shown(self, world: CatalogWorld, settled: SettledChange, name: str) -> Table:
        """The table that was created.

        Raises:
            TableAlreadyExistsError: it is another's.
        """
        if not settled.landed:
            raise TableAlreadyExistsError(f"Table {name} already exists: another writer made it first.")
        assert world.table is not None
        now: Table = self._rehome(world.table)
        return now

    def _settle(
        self, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> Generator[Effect, Outcome, SettledChange]:
        started_s = yield from ticket_queue.now()
        base = yield from load(self.limits)
        change: TableChange = bind(base, requirements, updates, mark=uuid.uuid4().hex)
        if change.landed_in(base):
            return SettledChange(True, base)
        if not change.may_land_on(base):
            return SettledChange(False, base)
        return (yield from settle(change, self.limits, started_s))

    def _create(self, made: Creation) -> Generator[Effect, Outcome, SettledChange]:
        started_s = yield from ticket_queue.now()
        return (yield from settle_creation(made, self.limits, started_s))

    def _rehome(self, result: T) -> T:
        """Let a table commit through the decorator."""
        from pyiceberg.table import Table

        if not isinstance(result, Table):
            return result
        result.catalog = self
        if type(result) is not Table or result.metadata.format_version < VERSION:
            return result
        from safewrite.iceberg.catalog.numbered_table import NumberedTable

        place = result.name(), result.metadata, result.metadata_location
        return NumberedTable(*place, result.io, self, result.config)  # type: ignore[return-value]
