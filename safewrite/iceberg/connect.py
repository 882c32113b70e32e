"""Connects to an Iceberg table's catalog, ledger and queue, and refuses unsafe ones."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any

from safewrite.arguments.options import refuse_unsafe
from safewrite.arguments.reading import reading
from safewrite.errors import InvalidInputError, Kind, MissingExtraError, StorageError, UnsafeConfigError
from safewrite.iceberg import ledger_place
from safewrite.iceberg.branch_properties import MAIN
from safewrite.iceberg.catalog.s3 import stays
from safewrite.iceberg.write.write import Ledgers
from safewrite.protocol.effects import Ok
from safewrite.stores import call_limit
from safewrite.stores.advice import cause_of
from safewrite.stores.call_limit import bound_session
from safewrite.stores.clients import forked, noting_answers, shared_client
from safewrite.stores.settings import ICEBERG, warn_of_encryption
from safewrite.stores.table_folder import climbs
from safewrite.text.masking import note
from safewrite.text.rendering import said, shown
from safewrite.text.strings import is_storable, is_text, plain

if TYPE_CHECKING:
    import boto3
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

    from safewrite.iceberg.catalog.world import CatalogWorld
    from safewrite.protocol.iceberg.head import TableVersion
    from safewrite.stores.events import Listener

_SETTINGS = {
    "AWS_ENDPOINT_URL": ("s3.endpoint", "glue.endpoint"),
    "AWS_ACCESS_KEY_ID": ("s3.access-key-id", "glue.access-key-id"),
    "AWS_SECRET_ACCESS_KEY": ("s3.secret-access-key", "glue.secret-access-key"),
    "AWS_SESSION_TOKEN": ("s3.session-token", "glue.session-token"),
    "AWS_REGION": ("s3.region", "glue.region"),
}
log = logging.getLogger("safewrite")

GLUE_RESENDS = 2
_RIVALS = 4
"""How often others may create a table of a SQL catalog just before us; it has two."""


@dataclass(frozen=True)
class Connection:
    """A catalog, and the keeper of ledger and queue of its tables.

    ``objects`` says that keys are kept as objects beside the tables. ``kind`` is ``rest``, ``glue``, ``sql`` or ``other``.  ``bare`` says that a SQL catalog's database has no
    ledger and queue yet.
    """

    catalog: Catalog
    kind: str
    identifier: tuple[str, ...]
    branch: str = MAIN
    lock_table: str | None = None
    dynamodb: Any = None
    bare: bool = False
    objects: bool = False
    listener: Listener | None = None

    @property
    def table_name(self) -> str:
        """The table as its user names it."""
        return ".".join(self.identifier)

    def drop_old_metadata(self, base: Table, now: TableMetadata) -> None:
        """Drop the metadata files that a commit on ``base`` pushed out of the log, as PyIceberg does, where the table asks for it.

        Another writer may have dropped them first: one that is gone is no fault.
        """
        from safewrite.iceberg.catalog.files import FileStore

        if now.properties.get("write.metadata.delete-after-commit.enabled", "").lower() != "true":
            return
        own = f"{base.location().rstrip('/')}/metadata"
        folder = (now.properties.get("write.metadata.path") or own).rstrip("/")
        named = [entry.metadata_file for entry in base.metadata.metadata_log]
        if any(climbs(path) or not path.startswith(f"{folder}/") for path in named):
            log.warning(
                "Old metadata files of %s are kept: its metadata names some that are not in %s.",
                self.table_name,
                folder,
            )
            return
        files = FileStore(lambda: base.io, self.table_name)
        for path in {*named} - {entry.metadata_file for entry in now.metadata_log}:
            if not isinstance(answer := files.delete(path), Ok):
                why = getattr(answer, "detail", "")
                log.warning("Old metadata file %s of %s is left: %s", path, self.table_name, why)

    def after_fork(self) -> Connection:
        """Connect in a forked child, through a catalog of its own.

        Raises:
            InvalidInputError: the catalog lives in the memory of one process, or cannot be made of its properties.
        """
        found = self.catalog
        engine = getattr(found, "engine", None)
        if engine is not None:
            engine.dispose(close=False)  # its connections are the parent's
        try:
            if is_in_memory(found):
                raise ValueError("it lives in the memory of the process that made it")
            clients = _clients_of(found) if self.kind == "glue" else {}
            own = type(found)(found.name, **clients, **found.properties)
        except Exception as error:
            raise InvalidInputError(
                f"The catalog {found.name!r} cannot be used after a fork: {said(error)}. Nothing was written. Open the table in "
                "the process that writes to it."
            ) from error
        _prepare_clients(own, before=found)
        return replace(self, catalog=own)

    @property
    def helpers(self) -> Ledgers:
        """Whether there is a ledger and a queue."""
        there = self.lock_table is not None or (self.kind == "sql" and not self.bare)
        return Ledgers(ledger=there or self.objects, queue=there)

    def world(self, head: TableVersion | None = None) -> CatalogWorld:
        """The world of the table; with ledger and queue once a version of it is known."""
        from safewrite.iceberg.catalog.world import CatalogWorld

        ledger, queue = (None, None) if head is None else ledger_place.keepers(self, head, head.branch_id)
        made = CatalogWorld(self.catalog, self.identifier, branch=self.branch, ledger=ledger, queue=queue)
        made.listener = self.listener
        if head is not None and head.branch_id:
            made.main_ledger, _ = ledger_place.keepers(self, head, "")
        return made


def connect(
    identifier: object,
    catalog: object,
    *,
    lock_table: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    boto3_session: boto3.Session | None = None,
    create_lock_table: bool = False,
    listener: Listener | None = None,
    branch: str = MAIN,
) -> Connection:
    """Find the catalog, and the ledger where there is one.

    Raises:
        InvalidInputError: no catalog can be made of what was given, or the identifier is not valid.
        UnsafeConfigError: a catalog or a setting that allows silent loss.
        StorageError: the lock table cannot be used.
        MissingExtraError: PyIceberg is not installed.
    """
    refuse_unsafe(storage_options)
    warn_of_encryption(storage_options, "an Iceberg table's catalog")
    name = _identifier(identifier)
    found = _catalog(catalog, storage_options or {})
    kind = kind_of(found)
    _check_levels(kind, name)
    _prepare_clients(found)
    dynamodb = None
    if lock_table is not None:
        from safewrite.stores import lock_table as lock_tables

        dynamodb = shared_client("dynamodb", boto3_session, storage_options)
        if create_lock_table:
            lock_tables.ensure(dynamodb, lock_table)
        lock_tables.identity(dynamodb, lock_table, without=lock_tables.ICEBERG_WITHOUT)
    bare = is_in_memory(found)
    if kind == "sql" and lock_table is None and not bare:
        from safewrite.stores import sql

        sql.ensure(found.engine)  # type: ignore[attr-defined]
    return Connection(
        found,
        kind,
        name,
        branch=branch,
        lock_table=lock_table,
        dynamodb=dynamodb,
        bare=bare,
        objects=lock_table is None and ledger_place.keeps_objects(found),
        listener=listener,
    )


def _clients_of(catalog: Any) -> dict[str, Any]:
    """In a forked child: the client with which its parent's catalog was made, for it stays where it was opened."""
    return {"client": forked(catalog.glue)}


def _prepare_clients(catalog: Any, before: Any = None) -> None:
    """Let the requests of a catalog's own client end with their calls, note its answers, and keep its files where they are."""
    glue = getattr(catalog, "glue", None)
    if glue is not None:
        noting_answers(glue)
    bound_session(getattr(catalog, "_session", None))
    stays(catalog, before)


def portable(catalog: Any) -> Any:
    """A catalog as a name or as properties, which can be sent to another process."""
    from pyiceberg.catalog import Catalog

    from safewrite.iceberg.catalog.safe_catalog import SafeCatalog

    if isinstance(catalog, SafeCatalog):
        catalog = catalog.inner
    if not isinstance(catalog, Catalog):
        return catalog
    known = {"name": catalog.name, **catalog.properties}
    if "type" not in known and "py-catalog-impl" not in known:
        known["py-catalog-impl"] = f"{type(catalog).__module__}.{type(catalog).__qualname__}"
    return known


def is_in_memory(catalog: Any) -> bool:
    """Whether a SQL catalog lives in SQLite's memory: every thread has its own, so no ledger can be there."""
    url = getattr(getattr(catalog, "engine", None), "url", None)
    return url is not None and url.drivername.startswith("sqlite") and url.database in (None, "", ":memory:")


def look(
    identifier: object,
    catalog: object,
    *,
    lock_table: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Connection:
    """As :func:`connect`, for reading only: create nothing, and accept a catalog that is unsafe to write to."""
    name = _identifier(identifier)
    found = _catalog(catalog, storage_options or {})
    try:
        kind = kind_of(found)
    except UnsafeConfigError:
        kind = "other"
    _check_levels(kind, name)
    dynamodb, bare = None, False
    if lock_table is not None:
        dynamodb = shared_client("dynamodb", None, storage_options)
    elif kind == "sql":
        from safewrite.stores import sql

        bare = not sql.there(found.engine)  # type: ignore[attr-defined]
    objects = lock_table is None and ledger_place.keeps_objects(found)
    return Connection(found, kind, name, lock_table=lock_table, dynamodb=dynamodb, bare=bare, objects=objects)


@reading("The table's name")
def _identifier(identifier: object) -> tuple[str, ...]:
    given = identifier if isinstance(identifier, tuple | list) else str(identifier).split(".")
    parts = tuple(plain(part) if is_text(part) else "" for part in given)
    if len(parts) < 2 or not all(part and is_storable(part) for part in parts):
        raise InvalidInputError(
            f"An Iceberg table is named like 'db.table' or ('db', 'table'), not {shown(identifier)}. Nothing was "
            "written."
        )
    return parts


def _check_levels(kind: str, name: tuple[str, ...]) -> None:
    if kind == "glue" and len(name) > 2:
        raise InvalidInputError(
            f"A table of Glue is named by its database and its own name, and {'.'.join(name)!r} has {len(name)} parts. Nothing was "
            f"written. Name it {'.'.join(name[-2:])!r}; another catalog of Glue is given as property glue.id."
        )


@reading("catalog=")
def _catalog(catalog: object, storage_options: Mapping[str, str]) -> Catalog:
    try:
        from pyiceberg.catalog import Catalog
    except ImportError as error:
        raise MissingExtraError(
            f"catalog= needs PyIceberg: {MissingExtraError.command('iceberg')}. Nothing was written."
        ) from error
    from pydantic import ValidationError
    from pyiceberg.exceptions import NotInstalledError

    from safewrite.iceberg.catalog.loading import load, taken
    from safewrite.iceberg.catalog.safe_catalog import SafeCatalog

    if isinstance(catalog, SafeCatalog):
        return catalog.inner
    if isinstance(catalog, Catalog):
        return taken(catalog)
    if not isinstance(catalog, str | Mapping):
        raise InvalidInputError(
            "catalog= is the name of a catalog in PyIceberg's configuration, a dict of its properties, or a "
            f"PyIceberg catalog, not {shown(catalog)}. Nothing was written."
        )
    given = {"name": catalog} if isinstance(catalog, str) else dict(catalog)
    name = str(given.pop("name", "default"))
    note(given)
    note(storage_options)
    _refuse_unguarded(name, given)
    settings = {
        to: storage_options[own] for own, names in _SETTINGS.items() if own in storage_options for to in names
    }
    settings |= {key: value for key, value in storage_options.items() if key.startswith(ICEBERG)}
    try:
        return _loaded(lambda: load(name, **(_region(name, given) | settings | _resends(name) | given)))
    except ImportError as error:
        raise _lacking(name, error) from error
    except ValueError as error:
        if isinstance(error, JSONDecodeError | ValidationError):  # what PyIceberg raises of an answer
            raise StorageError(
                f"Catalog {name!r} does not answer as an Iceberg REST catalog: {said(error).splitlines()[0]}. Nothing was written. Check "
                "its address (uri): a login page, a proxy or another service may answer there."
            ) from error
        raise InvalidInputError(
            f"No catalog can be made of {name!r}: {said(error)}. Nothing was written. Name one of PyIceberg's "
            "configuration (.pyiceberg.yaml, PYICEBERG_CATALOG__...), or give its properties as a dict."
        ) from error
    except NotInstalledError as error:  # how PyIceberg tells that SQLAlchemy is missing
        raise _lacking(name, error) from error
    except Exception as error:
        cause = cause_of(error)
        advice = cause.advice if cause else "Check its address and credentials."
        if call_limit.has_ended(error):
            advice = call_limit.ADVICE
        raise StorageError(
            f"Catalog {name!r} does not answer: {type(error).__name__}: {said(error).rstrip('.')}. Nothing was written. {advice}"
        ) from error


def _lacking(name: str, error: Exception) -> MissingExtraError:
    """The error for a catalog whose library is not installed: SQL catalogs need one that [iceberg] does not bring."""
    return MissingExtraError(
        f"Catalog {name!r} needs a library that is not installed: {said(error).rstrip('.')}. Nothing was written. Install what its kind "
        "needs; for type sql: pip install 'pyiceberg[sql-sqlite]' or 'pyiceberg[sql-postgres]'."
    )


def _region(name: str, given: Mapping[str, Any]) -> dict[str, str]:
    """The region of AWS_REGION, which Delta's clients read and boto3 does not, where nothing else says one."""
    from pyiceberg.utils.config import Config

    region = os.environ.get("AWS_REGION")
    known = {**(Config().get_catalog_config(name) or {}), **given}
    if not region or "AWS_DEFAULT_REGION" in os.environ or any(one.endswith("region") for one in known):
        return {}
    return {"client.region": region}


def _resends(name: str) -> dict[str, Any]:
    """How often Glue's client repeats a request by itself, where the user does not say so.

    PyIceberg's default is ten times: at a wrong address, 22 s for each of the repeats that the protocol makes anyway.
    """
    from pyiceberg.utils.config import Config

    setting = "glue.max-retries"
    return {} if setting in (Config().get_catalog_config(name) or {}) else {setting: GLUE_RESENDS}


def _loaded(load: Callable[[], Catalog]) -> Catalog:
    """The catalog, loaded again where others of a fleet loaded it first.

    PyIceberg looks for its tables in a SQL database, and then creates them.  Where many come to a fresh
    database at once, all but one are refused.
    """
    for _ in range(_RIVALS):
        try:
            return load()
        except Exception as error:
            if not str(getattr(error, "statement", None)).lstrip().startswith("CREATE TABLE"):
                raise
    return load()


def _refuse_unguarded(name: str, given: Mapping[str, Any]) -> None:
    """Refuse a catalog of files, which has no compare-and-set on S3 (C6), and Hive's, which has only a lock."""
    from pyiceberg.utils.config import Config

    configured = Config().get_catalog_config(name) or {}
    merged = {**configured, **given}
    spelled = [str(merged.get(n, "")).lower() for n in ("type", "catalog-impl", "py-catalog-impl")]
    if any("hadoop" in text for text in spelled):
        raise UnsafeConfigError(
            f"Catalog {name!r} is of type hadoop: it renames metadata files, which on S3 is not exclusive, so "
            "writers overwrite each other's commits. Nothing was written. Use a REST, Glue or SQL catalog; "
            "register_table() takes the table over without a copy."
        )
    if any("hive" in text for text in spelled) or str(merged.get("uri", "")).startswith("thrift:"):
        raise UnsafeConfigError(
            f"Catalog {name!r} is of type hive: its commits hold only under a lock that a paused writer outlives, so "
            "writers overwrite each other's commits. Nothing was written, and installing pyiceberg[hive] would not help. "
            "Use a REST, Glue or SQL catalog; register_table() takes the table over without a copy.",
            kind=Kind.DISHONEST_STORE,
        )


def kind_of(catalog: Catalog) -> str:
    """The kind of the catalog's compare-and-set; refuses catalogs without one.

    Raises:
        UnsafeConfigError: its commits are guarded by a lock that a paused holder outlives, or by nothing.
    """
    names = {cls.__name__ for cls in type(catalog).__mro__}
    for kind, class_name in (("rest", "RestCatalog"), ("glue", "GlueCatalog"), ("sql", "SqlCatalog")):
        if class_name in names:
            return kind
    if names & {"HiveCatalog", "DynamoDbCatalog", "NoopCatalog"}:
        raise UnsafeConfigError(
            f"{type(catalog).__name__} does not compare before it sets when it commits, or only under a lock "
            "that a paused writer outlives, so commits can overwrite each other. Nothing was written. Use a "
            "REST, Glue or SQL catalog.",
            kind=Kind.DISHONEST_STORE,
        )
    return "other"
