"""States what is asked of a connection to a Delta table, to know who arbitrates it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from safewrite.arguments.options import Address, ArbiterName
    from safewrite.stores.world import World


class Arbitrated(Protocol):
    """A table as it was opened."""

    @property
    def address(self) -> Address: ...

    @property
    def arbiter_name(self) -> ArbiterName: ...

    @property
    def lock_table_id(self) -> str | None:
        """One lock table of one DynamoDB: two with the same name are told apart (A16)."""

    @property
    def lock_path(self) -> str:
        """The spelling of the table's path that claims use; '' without a lock table."""

    @property
    def world(self) -> World: ...
