"""A PyIceberg catalog that knows whether its commits landed.

``SafeCatalog`` decorates any catalog.  Tables that it hands out commit through it, so PyIceberg's own
calls on them (``table.append``, ``delete``, ``update_schema()``, transactions) are safe as well: a commit
that landed is reported as landed, one that certainly did not is a ``CommitFailedException``, which
PyIceberg may retry and clean up after, and all else is a :class:`CommitStateUnknownError`, after which
PyIceberg deletes nothing (apache/iceberg #2317; PyIceberg 0.12 deletes files after the last of its
attempts even if that one landed and was reported as a conflict).
"""

from __future__ import annotations

import uuid
from abc import ABCMeta
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    TableAlreadyExistsError,
)

from safewrite.errors import CommitUnknownError, NotCommittedError
from safewrite.iceberg.change import Creation, bind, branch_of, creation
from safewrite.iceberg.guard import guard
from safewrite.iceberg.world import CatalogWorld
from safewrite.protocol import lease
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.swap import Change, Settled, load, settle, settle_creation
from safewrite.stores.world import run

if TYPE_CHECKING:
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


_OWN = {"commit_table", "create_table", "create_table_transaction"}
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
        limits: how patient a commit is.
    """

    def __init__(self, inner: Catalog, *, limits: Limits | None = None) -> None:
        super().__init__(inner.name, **inner.properties)
        guard(inner)
        self.inner = inner
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
        """Commit updates, and know whether they landed.

        Raises:
            NotLandedError: a ``CommitFailedException``; it did not land and never will.
            CommitStateUnknownError: a ``CommitStateUnknownException``; it may have landed.
            ForeignWriterError: the catalog accepted it, and it is not in the table.
            TableNotFoundError, StorageError: nothing was committed.
        """
        from pyiceberg.table import CommitTableResponse
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
        if not settled.landed and creates:
            raise TableAlreadyExistsError(f"Another writer made {'.'.join(table.name())} first.")
        if not settled.landed:
            raise NotLandedError(
                "Another writer changed the table first: what this commit requires does not hold any more. It did "
                "not land and cannot land later. Refresh the table and do it again."
            )
        assert world.table is not None
        return CommitTableResponse(
            metadata=world.table.metadata, **{"metadata-location": world.table.metadata_location}
        )

    def create_table(self, *args: Any, **kwargs: Any) -> Table:
        """As of the decorated catalog, and known to have been made or not.

        Raises:
            TableAlreadyExistsError: another made it first.
            CommitStateUnknownError: it may have been made.
        """
        return self.create_table_transaction(*args, **kwargs).commit_transaction()

    def create_table_transaction(self, *args: Any, **kwargs: Any) -> CreateTableTransaction:
        """As of the decorated catalog; the transaction commits through the decorator."""
        transaction = self.inner.create_table_transaction(*args, **kwargs)
        self._rehome(transaction._table)  # noqa: SLF001 - PyIceberg offers no other way to name its catalog
        return transaction

    def _settle(
        self, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> Generator[Effect, Outcome, Settled]:
        started_s = yield from lease.now()
        base = yield from load(self.limits)
        change: Change = bind(base, requirements, updates, mark=uuid.uuid4().hex)
        if change.landed_in(base):
            return Settled(True, base)
        if not change.may_land_on(base):
            return Settled(False, base)
        return (yield from settle(change, self.limits, started_s))

    def _create(self, made: Creation) -> Generator[Effect, Outcome, Settled]:
        started_s = yield from lease.now()
        return (yield from settle_creation(made, self.limits, started_s))

    def _rehome(self, result: T) -> T:
        """Let a table commit through the decorator."""
        from pyiceberg.table import Table

        if isinstance(result, Table):
            result.catalog = self
        return result
