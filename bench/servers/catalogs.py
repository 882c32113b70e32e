"""Starts real Iceberg catalogs on loopback: PostgreSQL, Iceberg's own REST catalog, and Glue of ministack.

PyIceberg and psycopg2 are imported where they are used: a machine without them can run the rest.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import urllib.request
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, assert_never

from .jvm import JvmServer
from .servers import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, Endpoint, Server, ServerError

if TYPE_CHECKING:
    from collections.abc import Mapping

CatalogKind: TypeAlias = Literal["rest", "glue", "sql"]

_DEBIAN_BIN = Path("/usr/lib/postgresql")
_USER = "safewrite"


# --- PostgreSQL -------------------------------------------------------------------------------
class Postgres(Server):
    """A PostgreSQL that trusts every local connection and syncs nothing to disk.

    PostgreSQL refuses to run as root: root starts it as ``postgres`` or ``nobody``, with its data in
    a temporary folder, since such a user cannot enter a run directory below one of root's own.
    """

    name = "postgres"
    services = frozenset({"postgres"})

    def __init__(
        self,
        run_dir: Path | str,
        *,
        settings: Mapping[str, str] | None = None,
        start_timeout_s: float = 60.0,
    ) -> None:
        super().__init__(run_dir, start_timeout_s=start_timeout_s)
        self._settings = dict(settings or {})
        self._data: Path | None = None

    @property
    def endpoint_url(self) -> str:
        """The address, in the form that has no database and no driver."""
        return f"postgresql://{_USER}@127.0.0.1:{self.port}"

    @property
    def uri(self) -> str:
        """The URI of the first database, for SQLAlchemy and so for PyIceberg's ``SqlCatalog``."""
        return self._uri("postgres")

    def database(self) -> str:
        """Create a database; returns its URI for SQLAlchemy."""
        name = f"db_{uuid.uuid4().hex[:12]}"
        self._execute(f"CREATE DATABASE {name}")
        return self._uri(name)

    def jdbc_database(self) -> str:
        """Create a database; returns its URI for Java."""
        return (
            self.database().replace("postgresql+psycopg2://", "jdbc:postgresql://").replace(f"{_USER}@", "")
        )

    def stop(self) -> None:
        """End the server, whoever is connected, and remove what it stored in a temporary folder."""
        if self._process is not None and self._process.poll() is None:
            # PostgreSQL takes SIGTERM for a request to wait until the last client has left.
            self._process.send_signal(signal.SIGINT)
        super().stop()
        if self._data is not None and not self._data.is_relative_to(self.run_dir):
            shutil.rmtree(self._data, ignore_errors=True)
        self._data = None

    def _uri(self, database: str) -> str:
        return f"postgresql+psycopg2://{_USER}@127.0.0.1:{self.port}/{database}"

    def _command(self) -> tuple[list[str], dict[str, str]]:
        programs = postgres_programs()
        as_user = _unprivileged()
        self._data = self._make_data(programs, as_user)
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "200",
            "fsync": "off",
            **self._settings,
        }
        command = [*as_user, str(programs / "postgres"), "-D", str(self._data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        return command, {}

    def _make_data(self, programs: Path, as_user: list[str]) -> Path:
        data = self.run_dir / f"postgres-{self.port}"
        if as_user:
            data = Path(tempfile.mkdtemp(prefix="safewrite-postgres-"))
            shutil.chown(data, _unprivileged_user().pw_name)
        command = [*as_user, str(programs / "initdb"), "-D", str(data), "-U", _USER, "--auth=trust"]
        command += ["--encoding=UTF8", "--locale=C", "--no-sync"]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=data if as_user else self.run_dir
        )
        if done.returncode != 0:
            raise ServerError(f"initdb failed: {done.stderr[-2000:]}")
        return data

    def _ask(self) -> None:
        import psycopg2

        try:
            self._execute("SELECT 1")
        except psycopg2.OperationalError as error:
            raise ConnectionError(str(error)) from None

    def _execute(self, statement: str) -> None:
        import psycopg2

        connection: Any = psycopg2.connect(f"{self.endpoint_url}/postgres")
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement)
        finally:
            connection.close()


def postgres_programs() -> Path:
    """The folder with ``postgres`` and ``initdb``; Debian keeps it off the PATH, newest version last."""
    versions = [path for path in _DEBIAN_BIN.glob("*/bin") if (path / "initdb").exists()]
    if versions:
        return max(versions, key=lambda path: float(path.parent.name))
    found = shutil.which("initdb")
    if found is None:
        raise ServerError("PostgreSQL was not found. Install it: apt-get install postgresql")
    return Path(found).resolve().parent


def _unprivileged_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ServerError("PostgreSQL does not run as root, and there is no user postgres or nobody")


def _unprivileged() -> list[str]:
    """The prefix of a command that must not run as root; nothing where we are not root."""
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise ServerError("PostgreSQL does not run as root, and setpriv (util-linux) was not found")
    user = _unprivileged_user()
    # A change of user clears the setting to die with the parent, so it is set again; on SIGQUIT
    # PostgreSQL ends at once and yet takes its children and its shared memory along.
    return [setpriv, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--pdeathsig=QUIT"]


# --- Iceberg's REST catalog -------------------------------------------------------------------
class IcebergRest(JvmServer):
    """Iceberg's own ``RESTCatalogAdapter`` over a JDBC catalog: SQLite in ``run_dir``, or ``jdbc_uri``.

    It writes metadata files itself, to ``warehouse`` on ``s3``.
    """

    name = "iceberg-rest"
    services = frozenset({"iceberg-rest"})
    title = "Iceberg's REST catalog"
    pom = "iceberg-rest/pom.xml"
    main_jar = "iceberg-core-*-tests.jar"
    main = "IcebergRest.java"

    def __init__(
        self,
        run_dir: Path | str,
        *,
        s3: Endpoint,
        warehouse: str,
        jdbc_uri: str | None = None,
        jars_dir: Path | str | None = None,
        start_timeout_s: float = 120.0,
    ) -> None:
        super().__init__(run_dir, jars_dir=jars_dir, start_timeout_s=start_timeout_s)
        sqlite = f"jdbc:sqlite:file:{self.run_dir / 'iceberg-rest.db'}?busy_timeout=30000"
        self._properties = {
            "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "uri": jdbc_uri or sqlite,
            "jdbc.user": _USER,
            "jdbc.password": _USER,
            "warehouse": warehouse,
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "client.region": REGION,
            "s3.endpoint": s3.endpoint_url,
            "s3.path-style-access": "true",
            "s3.access-key-id": ACCESS_KEY_ID,
            "s3.secret-access-key": SECRET_ACCESS_KEY,
        }

    @property
    def uri(self) -> str:
        """The ``uri`` of a REST client."""
        return self.endpoint_url

    def _arguments(self) -> tuple[list[str], list[str]]:
        properties = [f"{key}={value}" for key, value in self._properties.items()]
        return ["-Xmx512m", "-Djava.net.preferIPv4Stack=true"], [str(self.port), *properties]

    def _ask(self) -> None:
        # No proxy from the environment between us and loopback.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.uri}/v1/namespaces", timeout=30) as reply:
            reply.read()


# --- PyIceberg's properties -------------------------------------------------------------------
def catalog_properties(kind: CatalogKind, *, uri: str, s3_url: str, warehouse: str) -> dict[str, str]:
    """PyIceberg's properties for the catalog at ``uri`` with tables under ``warehouse``, an ``s3://`` URI."""
    common = {
        "type": kind,
        "warehouse": warehouse,
        "s3.endpoint": s3_url,
        "s3.region": REGION,
        "s3.access-key-id": ACCESS_KEY_ID,
        "s3.secret-access-key": SECRET_ACCESS_KEY,
        "s3.force-virtual-addressing": "false",
    }
    match kind:
        case "rest" | "sql":
            return {**common, "uri": uri}
        case "glue":
            return {
                **common,
                "glue.endpoint": uri,
                "glue.region": REGION,
                "glue.access-key-id": ACCESS_KEY_ID,
                "glue.secret-access-key": SECRET_ACCESS_KEY,
            }
    assert_never(kind)


def load(properties: Mapping[str, str], *, name: str = "lab") -> Any:
    """PyIceberg's catalog of these properties."""
    from pyiceberg.catalog import load_catalog

    return load_catalog(name, **properties)
