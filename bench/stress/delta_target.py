"""Stresses a Delta table on S3, with or without a DynamoDB lock table, read by three readers."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from safewrite.testing.checker import Read
from safewrite.testing.faults import FaultPlan, Rule
from safewrite.testing.history import make_rows

from . import readers, target
from .plans.plan import ArmPlan, Settings, WriterPlan
from .proxies.proxy import FaultProxy
from .stage import Stage
from .target import FinalReads, Way
from .writers import common


class DeltaTarget:
    """The table of one arm; see :class:`bench.stress.target.Ground`."""

    def __init__(self, arm: ArmPlan, settings: Settings, stage: Stage, folder: Path) -> None:
        self.arm = arm
        self.settings = settings
        self.stage = stage
        self.folder = folder
        self.table = f"s3://{stage.bucket}/{stage.prefix}{folder.parent.name}-{arm.name}"
        options = stage.cloud.storage_options()
        self.place = readers.Place(self.table, options, stage.cloud.boto3_client("s3"))

    # --- making ---------------------------------------------------------------------------------
    def rehearse(self) -> dict[str, tuple[str, ...]]:
        import safewrite as sw

        uri = self.table + "-rehearsal"
        self._create(uri)
        options = self.stage.cloud.storage_options()
        return target.rehearse(lambda: sw.open(uri, storage_options=options, **self._arbiter()))

    def create(self) -> None:
        self._create(self.table)

    def _create(self, uri: str) -> None:
        """Create the table by safewrite where safewrite is judged, else by deltalake."""
        schema = common.to_arrow(make_rows(0, 0, 0, 1)).schema
        options = self.stage.cloud.storage_options()
        if self.arm.arbiter is None:
            config = {"delta.enableChangeDataFeed": "true"} if self.arm.change_feed else None
            DeltaTable.create(
                uri, schema, partition_by=["day"], storage_options=options, configuration=config
            )
            return
        import safewrite as sw

        sw.create(uri, schema=schema, partition_by=["day"], storage_options=options, **self._arbiter())

    def _arbiter(self) -> dict[str, Any]:
        if self.arm.arbiter == "object-store":
            return {"arbiter": "object-store"}
        return {"lock_table": self.settings.lock_table}

    # --- ways -------------------------------------------------------------------------------------
    def way(self, stack: contextlib.ExitStack, name: str, rules: Sequence[Rule], seed: int) -> Way:
        options = self.stage.cloud.storage_options()
        if not rules or not self.stage.can_proxy:
            return Way({"storage_options": options})
        proxy = stack.enter_context(
            FaultProxy(
                self.stage.cloud.endpoint_url,
                self.folder,
                plan=FaultPlan(seed, tuple(rules)),
                name=name,
                dynamodb_upstream=options.get("AWS_ENDPOINT_URL_DYNAMODB"),
            )
        )
        through = {"AWS_ENDPOINT_URL": proxy.endpoint_url, "AWS_ENDPOINT_URL_DYNAMODB": proxy.endpoint_url}
        return Way({"storage_options": {**options, **through}}, (proxy,))

    def config(self, writer: WriterPlan, way: Way) -> dict[str, Any]:
        options = {**way.settings["storage_options"], **dict(writer.storage)}
        config = {"table": self.table, "lock_table": self.settings.lock_table, "storage_options": options}
        return {**config, "sqs_url": self.stage.sqs_url} if writer.functions else config

    # --- reading ----------------------------------------------------------------------------------
    def read_now(self) -> Read:
        return readers.read_now(self.place)

    def read_all(self, folder: Path) -> FinalReads:
        try:
            replay = readers.replay_log(self.place)
            replayed, log = readers.read_replay(self.place, replay)
            return FinalReads([replayed, *self._others(folder)], log, replay.versions)
        except (DeltaError, duckdb.Error) as error:
            raise target.UnreadableTableError(str(error)) from error

    def _others(self, folder: Path) -> list[Read]:
        if self.arm.change_feed:
            return [readers.read_change_feed(self.place)]
        found = [readers.read_deltalake(self.place), readers.read_duckdb(self.place, folder)]
        judged = [writer for writer in self.arm.writers if writer.judged]
        if self.settings.spark_reader and any(writer.spark for writer in judged):
            found.append(readers.read_spark(self.place))
        return found
