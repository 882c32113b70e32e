"""Asks Kafka through the client in Spark's JVM, with patience, and says in one line what is wrong where it does not answer."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import safewrite as sw

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("safewrite")

CALL_MS, PATIENCE_S = 10_000, 60.0
"""How long one question waits for an answer, and how long they are asked again."""
_SETTINGS = {
    "default.api.timeout.ms": str(CALL_MS),
    "request.timeout.ms": str(CALL_MS),
    # The client logs each try; by default it makes twenty a second.
    "reconnect.backoff.ms": "1000",
    "reconnect.backoff.max.ms": "5000",
}
_AWAY = re.compile(
    r"TimeoutException|DisconnectException|NetworkException|BrokerNotAvailable|CoordinatorNotAvailable"
)
_T = TypeVar("_T")


@dataclass
class KafkaAdmin:
    """Kafka's own client for questions about topics, which has the cluster's libraries and the source's settings.

    One client is kept: to make it takes Java more than all questions of a batch.

    Args:
        settings: Spark's options of the source.
    """

    servers: str
    settings: Mapping[str, str]
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    _kept: Any = field(default=None, init=False, repr=False)

    @contextmanager
    def client(self, spark: SparkSession) -> Iterator[Any]:
        """The client in the JVM; after an error the next question has a new one.

        Raises:
            MissingExtraError: the session has no jars for Kafka.
            InvalidInputError: its settings are refused.
        """
        if self._kept is None:
            self._kept = self._made(spark)
        try:
            yield self._kept
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the client, if there is one."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    def _made(self, spark: SparkSession) -> Any:
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no other way to it
        refuse_without_jars(jvm, str(spark.version))
        given = _SETTINGS | {
            name.removeprefix("kafka."): value
            for name, value in self.settings.items()
            if name.startswith("kafka.")
        }
        properties = jvm.java.util.Properties()
        for name, value in given.items():
            properties.setProperty(name, value)
        try:
            return jvm.org.apache.kafka.clients.admin.Admin.create(properties)
        except Exception as error:
            raise sw.InvalidInputError(
                f"Kafka's client refuses the settings of the job for {self.servers} ({reason_of(error)}). Nothing was read. Correct "
                "kafka.servers and kafka.options."
            ) from error

    def asked(self, question: Callable[[], _T], what: str) -> _T:
        """The answer to a question; it is asked again while no broker answers.

        Raises:
            StorageError: no broker answered for so long, or one refused.
        """
        started = self.clock()
        while True:
            try:
                return question()
            except sw.SafewriteError:
                raise
            except Exception as error:
                why, passed_s = reason_of(error), self.clock() - started
                is_away = _AWAY.search(str(error)) is not None
                if not is_away or passed_s >= PATIENCE_S:
                    waited = f" for {passed_s:.0f} s" if is_away else ""
                    raise sw.StorageError(
                        f"Kafka at {self.servers} gave no answer about {what}{waited} ({why}). Nothing of this batch was written, and the "
                        "job goes on from its tables when it starts again. See whether the brokers run, and can be reached from here "
                        "with kafka.options."
                    ) from error
                log.warning(
                    "Kafka at %s gives no answer about %s (%s). Nothing is written meanwhile; it is asked again for %.0f s more.",
                    self.servers, what, why, PATIENCE_S - passed_s,
                )  # fmt: skip
                self.sleep(1.0)


def refuse_without_jars(jvm: Any, version: str) -> None:
    """Refuse a session that cannot read Kafka.

    Raises:
        MissingExtraError: it lacks jars.
    """
    needed = {
        "the Kafka client": jvm.org.apache.kafka.clients.admin.Admin,
        "Spark's source for Kafka": jvm.org.apache.spark.sql.kafka010.KafkaSourceProvider,
    }
    # py4j makes a package of a class that is not there.
    missing = [name for name, found in needed.items() if type(found).__name__ == "JavaPackage"]
    if missing:
        scala = "2.12" if version.startswith("3.") else "2.13"
        raise sw.MissingExtraError(
            f"The Spark session has no jars for {' and '.join(missing)}. Nothing was read or written. Give --jars FOLDER with them; or start "
            f"the job by spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_{scala}:{version}."
        )


def reason_of(error: BaseException) -> str:
    """What an error of Java says, in one line: the innermost exception that py4j tells of."""
    lines = [line.strip() for line in str(error).splitlines()]
    causes = [line.removeprefix("Caused by:").strip() for line in lines if line.startswith("Caused by:")]
    first = next(
        (line.removeprefix(":").strip() for line in lines if line.startswith(": ")), lines[0] if lines else ""
    )
    return (causes[-1] if causes else first)[:300]
