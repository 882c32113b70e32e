"""Finds commits that a ledger knows and the table never had: its catalog was restored, or older metadata was registered."""

from __future__ import annotations

from safewrite.findings import DANGER, EXAMPLES, Finding, Findings
from safewrite.iceberg.maintenance.snapshot_files import ASKS
from safewrite.iceberg.write.earlier_writes import newest
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.values import LedgerRecord, sequence_noted
from safewrite.stores import remembered
from safewrite.stores.world import World, run


def examine(world: World, head: TableVersion) -> Findings:
    """What doctor says of them."""
    if lost := _lost(world, head):
        yield Finding(
            DANGER, "set_back",
            f"The ledger knows {len(lost)} keys of snapshots that the table does not have and never had, by their sequence numbers: it was "
            "set back to older metadata, as by a catalog that was restored, or by register_table(). Rows of those snapshots are lost to "
            "readers.",
            "Stop the writers. If nobody has written since, register the table with the newest metadata file that is there (its names are "
            "numbered). Else write what these keys stand for again, under the same keys: they are committed anew. Open the table again in "
            "each process, and let jobs that follow it read all rows.",
            {"keys": [one.key for one in lost[:EXAMPLES]], "count": len(lost)},
        )  # fmt: skip


def _lost(world: World, head: TableVersion) -> list[LedgerRecord]:
    """Records of commits whose snapshot the table never had."""
    lost = _never_had(remembered.committed(world.ledger), head)
    # A writer may have landed since the table was read.
    return _never_had(lost, run(newest(head, ASKS), world)) if lost else []


def _never_had(known: list[LedgerRecord], head: TableVersion) -> list[LedgerRecord]:
    lost = [
        one
        for one in known
        if one.version is not None
        and (number := sequence_noted(one.base_version)) is not None
        and head.never_had(one.version, number)
    ]
    return sorted(lost, key=lambda one: (sequence_noted(one.base_version) or 0, one.key))
