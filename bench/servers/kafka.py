"""Starts a real Apache Kafka on loopback: one node that is broker and controller in one."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

from .jvm import JvmServer
from .servers import free_port

CLUSTER_ID = "c2FmZXdyaXRlLXRlc3RzIQ"
"""The same id in every cluster, as where clusters are started from one compose file."""

_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""Length, API key, its version, correlation id, no client id."""
_ANSWER = struct.Struct(">iih")
"""Length, correlation id, error code; the list of APIs follows."""


class Kafka(JvmServer):
    """A cluster of one node with its log in ``run_dir``; its users create the topics."""

    name = "kafka"
    services = frozenset({"kafka"})
    title = "Apache Kafka"
    pom = "kafka/pom.xml"
    main_jar = "kafka_2.13-*.jar"
    main = "kafka.Kafka"

    @property
    def endpoint_url(self) -> str:
        """A client's ``bootstrap.servers``."""
        return f"127.0.0.1:{self.port}"

    def _arguments(self) -> tuple[list[str], list[str]]:
        for_java = [
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Djava.net.preferIPv4Stack=true",
        ]
        return [*for_java, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"], [str(self._settings())]

    def _settings(self) -> Path:
        """The file of settings, next to a formatted log folder."""
        logs = self.run_dir / f"kafka-{self.port}"
        logs.mkdir(exist_ok=True)
        # The content that Kafka's own tool writes, which would start another Java.
        logs.joinpath("meta.properties").write_text(f"version=1\ncluster.id={CLUSTER_ID}\nnode.id=1\n")
        controller = f"127.0.0.1:{free_port()}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.endpoint_url},CONTROLLER://{controller}",
            "log.dirs": str(logs),
            "auto.create.topics.enable": "false",
            # The topics of the broker itself have three replicas otherwise.
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        }
        file = logs.with_suffix(".properties")
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return file

    def _ask(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(_API_VERSIONS)
            answer = connection.recv(_ANSWER.size, socket.MSG_WAITALL)
        if len(answer) < _ANSWER.size or _ANSWER.unpack(answer)[2] != 0:
            raise ConnectionError("the broker is not ready")
