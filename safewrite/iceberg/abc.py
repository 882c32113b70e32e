"""States what is asked of a connection to a catalog, to know where the keys of its tables are remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from safewrite.iceberg.write.write import Ledgers


class KeyKeeper(Protocol):
    """A catalog, and what its tables may have besides."""

    @property
    def catalog(self) -> Catalog: ...

    @property
    def lock_table(self) -> str | None: ...

    @property
    def dynamodb(self) -> Any: ...

    @property
    def objects(self) -> bool:
        """Whether keys are kept as objects beside the tables."""

    @property
    def helpers(self) -> Ledgers: ...
