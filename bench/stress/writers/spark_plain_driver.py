"""Appends with Spark as its users do: ``df.write.format("delta").mode("append").save(...)``.

The write names nothing of safewrite.  It has no key, so one that ended in doubt is not repeated before
``safewrite.spark.landed`` has said that it did not land; one that a kill cut off is left alone. In a naive
arm the session is Delta's own, without safewrite, and so is that of a peer with Delta's own log store.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import common
from common import history
from spark_answers import doubt_of, refusal_of
from spark_life import Life, live

ASKS_MAX, ASK_EVERY_S = 30, 1.0
"""Another writer's next commit decides, at the latest."""


class SaidError(Exception):
    """An error of Spark by the name of its cause."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Plain(Life):
    """One life of the driver."""

    def seqs(self) -> Iterator[int]:
        """The numbers of appends, until as many are acked as were planned, and no kill is to come."""
        made = [event["seq"] for event in self._before if event["event"] == history.EventKind.INVOKE]
        seq = max(made, default=-1) + 1
        while not self.is_last or self._acked() < self.config["appends"]:
            yield seq
            seq += 1
            self.batches += 1

    def _acked(self) -> int:
        return sum(e["event"] == history.EventKind.OK for e in history.read_events(self.config["history"]))


class Appends:
    """Appends to one table in one session."""

    def __init__(self, session: Any, config: dict[str, Any]) -> None:
        self._session = session
        self._uri = config["table"].replace("s3://", "s3a://")

    def warm_up(self, folder: Path) -> None:
        """The first write of a JVM takes seconds: before the start line."""
        self._save(history.make_rows(0, 0, 0, 1), str(folder / "warm"))

    def append(self, rows: list[Any], key: str | None) -> dict[str, Any]:
        """Append once; after a lost answer ask whether it landed."""
        try:
            self._save(rows, self._uri)
        except Exception as error:  # noqa: BLE001 - every error is an answer
            return self._told(str(error), error)
        return {}

    def _save(self, rows: list[Any], uri: str) -> None:
        frame = self._session.createDataFrame(common.to_arrow(rows)).coalesce(1)
        frame.write.format("delta").mode("append").save(uri)

    def _told(self, text: str, error: Exception) -> dict[str, Any]:
        """What an error says of the rows, by the documentation: in the table, not in it, or unknown."""
        if (doubt := doubt_of(text)) is not None:
            said = SaidError("CommitUnknownError", text)
            landed = self._landed(*doubt)
            if landed is None:
                raise said from error
            if not landed:
                raise common.NotWrittenError(said) from error
            return {"version": doubt[1], "outcome": "landed"}
        if (kind := refusal_of(text)) is not None:
            raise common.NotWrittenError(SaidError(kind, text)) from error
        raise error

    def _landed(self, table: str, version: int, transaction: str) -> bool | None:
        import safewrite as sw
        import safewrite.spark

        for _ in range(ASKS_MAX):
            try:
                landed = safewrite.spark.landed(self._session, table, version, transaction)
            except sw.SafewriteError as error:  # faults hit the question too
                print(error, file=sys.stderr, flush=True)
                landed = None
            if landed is not None:
                return landed
            time.sleep(ASK_EVERY_S)
        return None


def attach(session: Any, life: Life, config: dict[str, Any]) -> None:
    """Give the session safewrite's commits, with this life's end placed between their effects."""
    import safewrite.spark
    from safewrite.delta.spark.session import hook_of

    safewrite.spark.attach(session, storage_options=config["storage_options"])
    table = hook_of(session).commits.table(config["table"].replace("s3://", "s3a://"))
    # The run's ``lease_s``, as its other writers have it: each kill of a writer in its turn costs that long.
    table.limits = replace(table.limits, lease_s=config["lease_s"])
    common.set_traps(table.world, life)


def work(config: dict[str, Any], session: Any) -> None:
    """Append until the plan is done."""
    life = Plain(config)
    if config["arbiter"] is not None and "log_store" not in config:
        attach(session, life, config)
    appends = Appends(session, config)
    if life.is_first:
        appends.warm_up(common.spark_folder(config))
    life.run(appends.append)


live(work)
