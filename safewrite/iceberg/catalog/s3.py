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
from contextlib import suppress
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from safewrite.errors import StorageError
from safewrite.stores.clients import forked, shared_client
from safewrite.stores.endpoints import endpoint_of_environment
from safewrite.stores.s3 import S3Objects
from safewrite.surroundings import Surroundings, surroundings

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

_SCHEMES = ("s3", "s3a", "s3n")
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
    if scheme not in _SCHEMES or not key or type(file_io).__name__ != "PyArrowFileIO":
        return None
    settings = _plain(file_io.properties)
    if settings is None:
        return None
    clients = vars(file_io).setdefault("_file_clients", _FileClients())
    return _bucket(clients.of(settings), bucket), key


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


class _FileClients:
    """The clients by which the files of a catalog's tables are reached: each is made once, of the surroundings of that time."""

    def __init__(self) -> None:
        self._made: dict[tuple[tuple[str, str], ...], Any] = {}

    def of(self, settings: dict[str, str]) -> Any:
        """The client of an endpoint; lent credentials, which change with every load of a table, are put into it."""
        if "AWS_SESSION_TOKEN" not in settings:
            mark = tuple(sorted(settings.items()))
            return self._made.get(mark) or self._made.setdefault(mark, shared_client("s3", None, settings))
        mark = tuple(sorted((k, v) for k, v in settings.items() if k not in _KEYS))
        lent: _Lent = self._made.get(mark) or self._made.setdefault(mark, _lent(mark, surroundings()))
        return lent.client_of(*(settings.get(key, "") for key in _KEYS))

    def __reduce__(self) -> tuple[Any, ...]:
        return _FileClients, ()


def stays(catalog: Any, before: Any = None) -> None:
    """Let the files of a catalog's tables be reached as they are at its first opening, whatever the environment says later.

    ``before`` is the catalog of the parent of a forked child.  PyIceberg makes a FileIO at each load, and would look again.
    """
    inner = getattr(catalog, "_load_file_io", None)
    if inner is None or hasattr(inner, "file_clients"):
        return
    known = getattr(getattr(before, "_load_file_io", None), "file_clients", None)
    clients, endpoint = known or (_FileClients(), endpoint_of_environment("s3"))

    def load_file_io(properties: Any = MappingProxyType({}), location: str | None = None) -> Any:
        made = inner(properties, location)
        if endpoint:
            made.properties.setdefault("s3.endpoint", endpoint)
        made._file_clients = clients  # noqa: SLF001
        if "://" in (location or "") and str(location).partition("://")[0] not in _SCHEMES:
            return made  # local files: a client that nothing asks would cost more than to open the table
        settings = _plain(made.properties) if type(made).__name__ == "PyArrowFileIO" else None
        if settings is not None and "AWS_SESSION_TOKEN" not in settings:
            with suppress(StorageError):  # what is missing may be there when a file is asked for
                clients.of(settings)
        return made

    load_file_io.file_clients = (clients, endpoint)  # type: ignore[attr-defined]
    catalog._load_file_io = load_file_io  # noqa: SLF001


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
        self._process = os.getpid()

    def client_of(self, key_id: str, secret: str, token: str) -> Any:
        """The client, which signs the requests of this thread with these credentials from now on."""
        if self._process != os.getpid():  # a forked child must not talk over its parent's connections
            self.client, self._process = forked(self.client), os.getpid()
        self._thread.given = (key_id, secret, token)
        return self.client


@lru_cache(maxsize=16)
def _lent(settings: tuple[tuple[str, str], ...], around: Surroundings) -> _Lent:
    return _Lent(dict(settings))


@lru_cache(maxsize=64)
def _bucket(client: Any, name: str) -> S3Objects:
    return S3Objects(client, name, "")
