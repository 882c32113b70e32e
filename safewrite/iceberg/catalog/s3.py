"""Reaches S3 without the detour over a FileIO, where the FileIO only says how to reach it.

PyArrow's file system uploads even a small file in three requests (it begins a multipart upload), asks
for a file's size before it reads, and sends no checksum.  Where the catalog's settings are plain, a client of
our own asks the same S3: one request each, checksums both ways.  Everything else (signers, roles, profiles,
proxies, encryption settings, other FileIOs) goes through the FileIO.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from safewrite.stores.clients import shared_client
from safewrite.stores.s3 import S3Objects

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

_SETTINGS = {
    "AWS_ENDPOINT_URL_S3": ("s3.endpoint",),
    "AWS_REGION": ("s3.region", "client.region"),
    "AWS_ACCESS_KEY_ID": ("s3.access-key-id", "client.access-key-id"),
    "AWS_SECRET_ACCESS_KEY": ("s3.secret-access-key", "client.secret-access-key"),
    "AWS_SESSION_TOKEN": ("s3.session-token", "client.session-token"),
}
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_HARMLESS = {
    "s3.force-virtual-addressing": ("false",),
    "s3.path-style-access": ("true", "false"),
    "s3.remote-signing-enabled": ("false",),
    "s3.signer": ("none",),
    "s3.anonymous": ("false",),
}


def direct(file_io: FileIO, location: str) -> tuple[S3Objects, str] | None:
    """The bucket of a file and its key there; None where the FileIO must be used."""
    scheme, _, rest = location.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme not in ("s3", "s3a", "s3n") or not key or type(file_io).__name__ != "PyArrowFileIO":
        return None
    settings = _plain(file_io.properties)
    return None if settings is None else (_bucket(_client(settings), bucket), key)


def is_plain(properties: Mapping[str, Any]) -> bool:
    """Whether a client of our own reaches the files of tables with these settings of a catalog."""
    return "py-io-impl" not in properties and _plain(properties) is not None


def _plain(properties: Mapping[str, Any]) -> dict[str, str] | None:
    """The settings as our own clients take them, or None if there are others."""
    known = {name for names in _SETTINGS.values() for name in names}
    for name, value in properties.items():
        other = name.startswith(("s3.", "client.")) and name not in known
        if other and str(value).lower() not in _HARMLESS.get(name, ()):
            return None
    found: dict[str, str] = {}
    for own, names in _SETTINGS.items():
        value = next((properties[name] for name in names if properties.get(name)), None)
        if value is not None:
            found[own] = str(value)
    return found


def _client(settings: dict[str, str]) -> Any:
    """One client for an endpoint; lent credentials, which change with every load of a table, are put into it."""
    if "AWS_SESSION_TOKEN" not in settings:
        return shared_client("s3", None, settings)
    lent = _lent(os.getpid(), tuple(sorted((k, v) for k, v in settings.items() if k not in _KEYS)))
    lent.renew(*(settings.get(key, "") for key in _KEYS))
    return lent.client


class _Lent:
    """A client that signs with the credentials that a thread gave last: those of other tables are others."""

    def __init__(self, settings: dict[str, str]) -> None:
        import boto3
        from botocore.credentials import Credentials, ReadOnlyCredentials
        from botocore.session import Session

        from safewrite.stores.clients import client

        thread = self._thread = threading.local()

        class OfThread(Credentials):
            def get_frozen_credentials(self) -> ReadOnlyCredentials:
                return ReadOnlyCredentials(*thread.given)

        class Lender:
            def load_credentials(self) -> Credentials:
                return OfThread("lent", "later")

        session = Session()
        session.register_component("credential_provider", Lender())
        self.client = client("s3", session=boto3.Session(botocore_session=session), options=settings)

    def renew(self, key_id: str, secret: str, token: str) -> None:
        """Sign the requests of this thread with these credentials from now on."""
        self._thread.given = (key_id, secret, token)


@lru_cache(maxsize=16)
def _lent(process: int, settings: tuple[tuple[str, str], ...]) -> _Lent:
    """A client for each process: a forked child must not talk over its parent's connections."""
    return _Lent(dict(settings))


@lru_cache(maxsize=64)
def _bucket(client: Any, name: str) -> S3Objects:
    return S3Objects(client, name, "")
