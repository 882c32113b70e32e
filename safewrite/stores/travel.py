"""Describes where a table's objects are so that another process, such as an executor of Spark, reaches them too."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from safewrite.stores.ledger import ObjectLedger
from safewrite.stores.world import World

_PLACES = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE")
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_OF_MACHINES = frozenset({"iam-role", "container-role", "assume-role-with-web-identity"})
"""Ways to credentials that every machine of a cluster has, as botocore calls them."""
WORLDS_MAX = 8


@dataclass(frozen=True)
class StoreAddress:
    """A local folder, or a bucket and a prefix with the settings by which they are reached."""

    root: str
    bucket: str = ""
    prefix: str = ""
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def world(self) -> World:
        """A world of this process that reads and writes the objects; it commits nothing."""
        return _world(self, os.getpid())


@lru_cache(maxsize=WORLDS_MAX)
def _world(address: StoreAddress, process: int) -> World:
    if not address.bucket:
        from safewrite.stores.local import LocalObjects

        local = LocalObjects(address.root)
        return World(local, ledger=ObjectLedger(local), threads=4)
    from safewrite.stores.clients import shared_client
    from safewrite.stores.s3 import S3Objects

    s3 = S3Objects(shared_client("s3", None, dict(address.options)), address.bucket, address.prefix)
    return World(s3, ledger=ObjectLedger(s3))


def travelling(options: Mapping[str, str] | None) -> dict[str, str] | None:
    """These settings, and those of this process that another one may lack; None where its credentials cannot be sent.

    Credentials that do not run out are sent.  Those of a machine's role are not: each machine has its own.
    """
    given = {key.upper(): value for key, value in (options or {}).items()}
    for name in _PLACES:
        if name in os.environ:
            given.setdefault(name, os.environ[name])
    if "AWS_ACCESS_KEY_ID" in given:
        return given
    if "AWS_PROFILE" not in given and os.environ.get("AWS_ACCESS_KEY_ID"):
        return given | {name: os.environ[name] for name in _KEYS if name in os.environ}
    return _of_session(given)


def _of_session(given: dict[str, str]) -> dict[str, str] | None:
    """What botocore's session finds in files and on this machine."""
    import botocore.session
    from botocore.credentials import RefreshableCredentials

    session: Any = botocore.session.Session(profile=given.pop("AWS_PROFILE", None))
    region = session.get_config_variable("region")
    if region:
        given.setdefault("AWS_REGION", region)
    found = session.get_credentials()
    if found is None or found.method in _OF_MACHINES:
        return given
    if isinstance(found, RefreshableCredentials):
        return None
    texts = (found.access_key, found.secret_key, found.token)
    return given | {name: text for name, text in zip(_KEYS, texts, strict=True) if text}
