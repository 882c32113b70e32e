"""Tells which catalogs lend credentials, and how long these are used."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

ACCESS_KEYS = ("s3.access-key-id", "client.access-key-id")
_LENT = (*ACCESS_KEYS, "gcs.oauth2.token", "adls.sas-token")
LENT_S = 600.0
"""How long credentials that a catalog lent are used; they live longer, and so clocks that differ by some minutes do no harm."""


def lends(catalog: Catalog, given: Mapping[str, Any]) -> bool:
    """Whether the catalog gave a FileIO of these properties credentials for a time, or signs its requests itself."""
    from pyiceberg.catalog.rest import RestCatalog

    if not isinstance(catalog, RestCatalog):
        return False
    own = catalog.properties
    return "s3.signer" in given or any(given.get(name) != own.get(name) for name in _LENT)


class Loan:
    """Credentials that were lent at a time, in seconds since 1970; by default now."""

    def __init__(self, begun_s: float | None = None) -> None:
        self.begun_s = time.time() if begun_s is None else begun_s

    @property
    def is_old(self) -> bool:
        """Whether the catalog is to be asked for new ones."""
        return abs(time.time() - self.begun_s) > LENT_S
