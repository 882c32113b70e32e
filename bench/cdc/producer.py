"""Sends records to topics of Kafka by Kafka's own client, which runs in a Java of its own."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path
from typing import IO, Self, cast

from bench.servers.kafka import Kafka

_SOURCE = Path(__file__).parents[1] / "java" / "Producer.java"


class Producer:
    """Creates the topics when it starts; ``flush`` returns once all records so far are acknowledged by the broker.

    ``topic`` is one, or several with commas between them.  Partitions are counted through all of them.
    """

    def __init__(self, kafka: Kafka, topic: str, partitions: int, log: Path) -> None:
        jars = f"{kafka.jars_dir}/*"
        command = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", jars, str(_SOURCE)]
        command += [kafka.endpoint_url, topic, str(partitions)]
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )
        self._input = cast("IO[bytes]", self._process.stdin)
        self._answers = cast("IO[bytes]", self._process.stdout)

    def __enter__(self) -> Self:
        self._answer()
        return self

    def __exit__(self, *_: object) -> None:
        self._input.close()
        self._process.wait(60)
        self._answers.close()

    def send(self, partition: int, key: bytes | None, value: bytes | None) -> None:
        self._input.write(b"%d %s %s\n" % (partition, _coded(key), _coded(value)))

    def flush(self) -> int:
        """How many records were sent so far, all acknowledged.

        Raises:
            RuntimeError: the broker did not take one.
        """
        self._input.write(b"\n")
        self._input.flush()
        return int(self._answer())

    def _answer(self) -> bytes:
        line = self._answers.readline()
        if not line:
            raise RuntimeError(f"the producer ended:\n{self._log.read_text(errors='replace')[-2000:]}")
        return line


def _coded(data: bytes | None) -> bytes:
    return b"-" if data is None else base64.b64encode(data)
