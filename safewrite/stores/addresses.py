"""Describes where a table's objects are so that another process, such as an executor of Spark, reaches them too."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from safewrite.stores.ledger import ObjectLedger
from safewrite.stores.world import World
from safewrite.surroundings import Surroundings, surroundings

WORLDS_MAX = 8


@dataclass(frozen=True)
class StoreAddress:
    """A local folder, or a bucket and a prefix with the settings by which they are reached."""

    root: str
    bucket: str = ""
    prefix: str = ""
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    client: Any = field(default=None, repr=False)
    """The table's own client, for tasks of this process; it is not sent."""

    def world(self) -> World:
        """A world of this process that reads and writes the objects; it commits nothing."""
        is_asked = bool(self.bucket) and self.client is None
        return _world(self, os.getpid(), surroundings() if is_asked else ())

    def __reduce__(self) -> tuple[Any, ...]:
        return StoreAddress, (self.root, self.bucket, self.prefix, self.options)


@lru_cache(maxsize=WORLDS_MAX)
def _world(address: StoreAddress, process: int, around: Surroundings) -> World:
    if not address.bucket:
        from safewrite.stores.local import LocalObjects

        local = LocalObjects(address.root)
        return World(local, ledger=ObjectLedger(local), threads=4)
    from safewrite.stores.clients import shared_client
    from safewrite.stores.s3 import S3Objects
    from safewrite.stores.settings import encryption

    options = dict(address.options)
    client = address.client or shared_client("s3", None, options)
    s3 = S3Objects(client, address.bucket, address.prefix, encryption=encryption(options))
    return World(s3, ledger=ObjectLedger(s3))
