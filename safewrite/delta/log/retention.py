"""Reads how long a table's log remembers writes, and has it remember them for long enough."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from safewrite.delta.log import features
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.write.abc import Write
from safewrite.delta.write.transaction import Transaction
from safewrite.errors import NotCommittedError
from safewrite.findings import Step, Steps
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta.candidate import Arbiter
from safewrite.protocol.delta.commit import commit
from safewrite.stores.world import LEDGER_TTL_S, World, run

RAISED = "interval 30 days"


@dataclass
class PropertiesCandidate(Transaction):
    """A commit that changes table properties and no rows."""

    operation: str = "SET TBLPROPERTIES"
    changed: dict[str, str] = field(default_factory=dict)

    def parameters(self, partition_by: Sequence[str]) -> dict[str, str]:
        """``operationParameters`` as Spark writes them."""
        return {"properties": json.dumps(self.changed)}


def too_short(state: Snapshot) -> dict[str, str]:
    """Durations by which the table forgets a write while it may still be repeated (E4)."""
    return dict(features.short_retention(state, horizon_s=LEDGER_TTL_S, txn=True))


def raise_retention(
    state: Snapshot, world: World, *, arbiter: Arbiter, engine_version: str, dry_run: bool = False
) -> Steps:
    """Set what is too short to 30 days, in one commit."""
    short = too_short(state)
    if not short:
        return
    raised = dict.fromkeys(short, RAISED)
    target = ", ".join(f"{name}={value}" for name, value in short.items())
    if dry_run:
        yield Step("set_retention", target, "would", f"to {RAISED!r}")
        return
    key = keys.generated(str(uuid.uuid4()), state.version)
    candidate = PropertiesCandidate(
        commit_id=str(uuid.uuid4()),
        write=Write(key, "v1:0:" + "0" * 32),
        timestamp_ms=world.wall_ms(),
        limits=Limits(),
        state=state,
        metadata={**state.metadata, "configuration": {**state.properties, **raised}},
        engine_version=engine_version,
        changed=raised,
    )
    try:
        landed = run(commit(candidate, state.version, arbiter=arbiter, limits=Limits()), world)
    except NotCommittedError as error:
        yield Step("set_retention", target, "failed", error.message)
        return
    yield Step("set_retention", target, "done", f"to {RAISED!r}", version=landed.version)
