"""Delivers the batches of one change log: what its writers do alike, whichever library they call."""

from __future__ import annotations

import hashlib
from typing import Any

import change_log
import common

HOW: dict[str, Any] = {
    "keys": list(change_log.KEYS), "sequence_by": [change_log.SEQUENCE], "delete_when": [("op", "=", "d")],
    "truncate_when": "op = 't'", "all_late": "count",
}  # fmt: skip
"""What ``apply_changes`` must be told of the log; late batches are expected."""


def log_of(config: dict[str, Any]) -> change_log.ChangeLog:
    """The log whose batches a writer delivers."""
    return change_log.drawn(config["seed"], change_log.LogPlan(**config["log"]))


def name_of(config: dict[str, Any], batch: int) -> str:
    """The key of a batch, whoever delivers it."""
    return f"{config['arm']}-batch-{batch}"


def stream_of(config: dict[str, Any]) -> str:
    """The name of a Spark stream, the same in all lives of its driver."""
    return f"{config['arm']}-stream-{config['writer']}"


class ChangeWriter(common.Writer):
    """A writer whose appends are deliveries of batches; a batch has its own name, whoever delivers it."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self.log = log_of(config)

    def seqs(self) -> range:
        """The numbers of the deliveries: the log has no more."""
        return range(self.config["appends"])

    def rows_of(self, seq: int) -> tuple[list[Any], str | None]:
        """The changes of a delivery, and the name of its batch."""
        batch = self._batch(seq)
        return list(self.log.batches[batch]), name_of(self.config, batch)

    def _batch(self, seq: int) -> int:
        return self.log.batch_of(self.config["place"], self.config["places"], seq)

    def intend(self, seq: int, rows: list[Any], key: str | None, *, attempt: int) -> None:
        """Write down which batch is about to be delivered."""
        self.ledger.record(
            common.history.EventKind.INVOKE, kind=self.kind, writer=self.number, seq=seq, key=key, batch=self._batch(seq),
            first_id=common.history.first_id(self.number, seq), rows=len(rows),
            checks=common.history.pack_checks(_check(change) for change in rows), attempt=attempt,
        )  # fmt: skip


def _check(change: change_log.Change) -> int:
    digest = hashlib.blake2b(repr(change).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def last_of_each_key(batch: list[change_log.Change]) -> tuple[list[change_log.Change], int | None]:
    """What a user keeps of a batch before a merge: each key's last change, and the sequence of its last truncate."""
    cut = max((change.lsn for change in batch if change.op == "t"), default=None)
    kept: dict[Any, change_log.Change] = {}
    for change in sorted(batch, key=lambda change: change.lsn):
        if change.op != "t" and (cut is None or change.lsn > cut):
            kept[change.key] = change
    return list(kept.values()), cut
