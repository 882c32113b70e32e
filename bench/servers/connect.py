"""Starts Kafka Connect with Debezium's connector for PostgreSQL on loopback: changes of tables become records."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from .jvm import JvmServer

CONNECTOR = "source"


class Debezium(JvmServer):
    """One worker of Kafka Connect, standalone, with one connector; its offsets are a file in ``run_dir``.

    Args:
        postgres: address of a PostgreSQL that runs with ``wal_level=logical``, ``postgresql://user@host:port/database``.
        kafka: ``bootstrap.servers``.
        prefix: topics are ``prefix.schema.table``.
        tables: ``schema.table`` of each captured table; a publication of these is made.
        settings: settings of the connector that go before the ones here.
        worker: the same, of the worker (converters).
    """

    name = "connect"
    services = frozenset({"connect"})
    title = "Kafka Connect"
    pom = "connect/pom.xml"
    main_jar = "debezium-connector-postgres-*.jar"
    main = "org.apache.kafka.connect.cli.ConnectStandalone"

    def __init__(
        self,
        run_dir: Path | str,
        *,
        postgres: str,
        kafka: str,
        prefix: str,
        tables: list[str],
        settings: Mapping[str, str] | None = None,
        worker: Mapping[str, str] | None = None,
        jars_dir: Path | str | None = None,
        start_timeout_s: float = 120.0,
    ) -> None:
        super().__init__(run_dir, jars_dir=jars_dir, start_timeout_s=start_timeout_s)
        user, _, rest = postgres.removeprefix("postgresql://").partition("@")
        address, _, database = rest.partition("/")
        host, _, port = address.partition(":")
        self._connector = {
            "name": CONNECTOR,
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "tasks.max": "1",
            "plugin.name": "pgoutput",
            "publication.autocreate.mode": "filtered",
            "database.hostname": host,
            "database.port": port,
            "database.user": user,
            "database.password": user,
            "database.dbname": database,
            "topic.prefix": prefix,
            "slot.name": prefix,
            "publication.name": prefix,
            "table.include.list": ",".join(tables),
            # Debezium leaves truncates out unless it is told not to.
            "skipped.operations": "none",
            "topic.creation.default.partitions": "2",
            "topic.creation.default.replication.factor": "1",
            **(settings or {}),
        }
        self._worker = {
            "bootstrap.servers": kafka,
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "offset.storage.file.filename": str(self.run_dir / "connect.offsets"),
            "offset.flush.interval.ms": "1000",
            "plugin.discovery": "service_load",
            **(worker or {}),
        }

    def _arguments(self) -> tuple[list[str], list[str]]:
        worker = {**self._worker, "listeners": self.endpoint_url}
        files = []
        for name, settings in (("worker", worker), ("connector", self._connector)):
            file = self.run_dir / f"connect-{name}.properties"
            file.write_text(
                "".join(f"{key}={value}\n".replace("\\", "\\\\") for key, value in settings.items())
            )
            files.append(str(file))
        for_java = ["-Xmx512m", "-Djava.net.preferIPv4Stack=true"]
        return [*for_java, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"], files

    def _ask(self) -> None:
        # No proxy from the environment between us and loopback.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.endpoint_url}/connectors/{CONNECTOR}/status", timeout=10) as reply:
            status = json.load(reply)
        states = [status["connector"]["state"], *(task["state"] for task in status["tasks"])]
        if len(states) < 2 or set(states) != {"RUNNING"}:
            raise ConnectionError(f"the connector is not running: {status}")
