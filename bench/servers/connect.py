"""Starts Kafka Connect on loopback: with Debezium's connector for PostgreSQL, or with Iceberg's own sink."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from .jvm import JvmServer


class ConnectWorker(JvmServer):
    """One worker of Kafka Connect, standalone, with one connector; its offsets are a file in ``run_dir``.

    Args:
        kafka: ``bootstrap.servers``.
        connector: settings of the connector.
        worker: settings of the worker that go before the ones here (converters).
    """

    services = frozenset({"connect"})
    main = "org.apache.kafka.connect.cli.ConnectStandalone"
    for_java: tuple[str, ...] = ("-Xmx512m",)

    def __init__(
        self,
        run_dir: Path | str,
        *,
        kafka: str,
        connector: Mapping[str, str],
        worker: Mapping[str, str] | None = None,
        jars_dir: Path | str | None = None,
        start_timeout_s: float = 120.0,
    ) -> None:
        super().__init__(run_dir, jars_dir=jars_dir, start_timeout_s=start_timeout_s)
        self.connector = connector.get("name", self.name)
        """Also the name of the group of a sink's consumers."""
        self._connector = {"name": self.connector, **connector}
        self._worker = {
            "bootstrap.servers": kafka,
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "offset.storage.file.filename": str(self.run_dir / f"{self.name}.offsets"),
            "offset.flush.interval.ms": "1000",
            "plugin.discovery": "service_load",
            **(worker or {}),
        }

    def _arguments(self) -> tuple[list[str], list[str]]:
        worker = {**self._worker, "listeners": self.endpoint_url}
        files = []
        for name, settings in (("worker", worker), ("connector", self._connector)):
            file = self.run_dir / f"{self.name}-{name}.properties"
            file.write_text(
                "".join(f"{key}={value}\n".replace("\\", "\\\\") for key, value in settings.items())
            )
            files.append(str(file))
        for_java = [*self.for_java, "-Djava.net.preferIPv4Stack=true"]
        return [*for_java, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"], files

    def states(self) -> list[str]:
        """The states of the connector and of its tasks, each with the error that ended it."""
        # No proxy from the environment between us and loopback.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.endpoint_url}/connectors/{self.connector}/status", timeout=10) as reply:
            status = json.load(reply)
        parts = [status["connector"], *status["tasks"]]
        return [f"{one['state']} {one.get('trace', '')}".strip() for one in parts]

    def _ask(self) -> None:
        states = self.states()
        if len(states) < 2 or set(states) != {"RUNNING"}:
            raise ConnectionError(f"the connector is not running: {states}")


class Debezium(ConnectWorker):
    """Debezium's connector for PostgreSQL.

    Args:
        postgres: address of a PostgreSQL that runs with ``wal_level=logical``, ``postgresql://user@host:port/database``.
        kafka: ``bootstrap.servers``.
        prefix: topics are ``prefix.schema.table``.
        tables: ``schema.table`` of each captured table; a publication of these is made.
        settings: settings of the connector that go before the ones here.
        worker: the same, of the worker (converters).
    """

    name = "connect"
    title = "Kafka Connect"
    pom = "connect/pom.xml"
    main_jar = "debezium-connector-postgres-*.jar"

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
        user, _, rest = postgres.removeprefix("postgresql://").partition("@")
        address, _, database = rest.partition("/")
        host, _, port = address.partition(":")
        connector = {
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
        super().__init__(
            run_dir,
            kafka=kafka,
            connector=connector,
            worker=worker,
            jars_dir=jars_dir,
            start_timeout_s=start_timeout_s,
        )


class IcebergSink(ConnectWorker):
    """Iceberg's own sink for Kafka Connect, with its transform of Debezium's events: every event becomes a row.

    Tables are made by the sink, in a catalog of JDBC on SQLite in ``run_dir``.

    Args:
        kafka: ``bootstrap.servers``.
        topics: the topics to land.
        control: the topic by which its tasks agree on commits; it must be there.
        tables: the tables they land in, by the event's source: ``lake.{table}``.
        commit_s: seconds from one commit to the next.
        settings: settings of the connector that go before the ones here.
    """

    name = "iceberg-sink"
    title = "Iceberg's sink for Kafka Connect"
    pom = "iceberg-sink/pom.xml"
    main_jar = "iceberg-kafka-connect-1*.jar"
    # What drains a topic of many records is worth compiling well.
    for_java = ("-Xms1g", "-Xmx1g", "-XX:TieredStopAtLevel=4")

    def __init__(
        self,
        run_dir: Path | str,
        *,
        kafka: str,
        topics: Sequence[str],
        control: str,
        tables: str = "lake.{table}",
        commit_s: float = 5.0,
        settings: Mapping[str, str] | None = None,
        jars_dir: Path | str | None = None,
        start_timeout_s: float = 180.0,
    ) -> None:
        self.catalog = Path(run_dir).resolve() / "sink.db"
        warehouse = Path(run_dir).resolve() / "sink"
        connector = {
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "tasks.max": "2",
            "topics": ",".join(topics),
            "transforms": "debezium",
            "transforms.debezium.type": "org.apache.iceberg.connect.transforms.DebeziumTransform",
            "transforms.debezium.cdc.target.pattern": tables,
            "iceberg.tables.dynamic-enabled": "true",
            "iceberg.tables.route-field": "_cdc.target",
            "iceberg.tables.auto-create-enabled": "true",
            "iceberg.tables.evolve-schema-enabled": "true",
            "iceberg.control.topic": control,
            "iceberg.control.commit.interval-ms": str(round(commit_s * 1000)),
            "iceberg.kafka.bootstrap.servers": kafka,
            "iceberg.catalog": "sink",
            "iceberg.catalog.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "iceberg.catalog.uri": f"jdbc:sqlite:file:{self.catalog}",
            "iceberg.catalog.warehouse": f"file://{warehouse}",
            # A worker that was killed is out of its group after so long.
            "consumer.override.session.timeout.ms": "10000",
            "consumer.override.heartbeat.interval.ms": "3000",
            "consumer.override.auto.offset.reset": "earliest",
            **(settings or {}),
        }
        super().__init__(
            run_dir, kafka=kafka, connector=connector, jars_dir=jars_dir, start_timeout_s=start_timeout_s
        )
