"""Runs an arm whose writers apply a change log, and compares its table with what the log means."""

from __future__ import annotations

from typing import Any

from safewrite.testing.checker import CheckResult, Judgement
from safewrite.testing.history import EventKind, IntendedWrite

from .arm import ArmRun, Findings
from .change_check import Ack, Checker, Comparison, Seen
from .change_target import ChangeTarget, DeltaChanges, FinalLooks, IcebergChanges
from .target import UnreadableTableError
from .writers import change_log

READERS_MIN = 3


class ChangesRun(ArmRun):
    """As any arm, but what is read back is compared key by key and value by value."""

    @property
    def reads_meanwhile(self) -> bool:
        """Always: a doubled key may be deleted later, and was there for every reader until then."""
        return True

    def _make_target(self) -> ChangeTarget:
        make = DeltaChanges if self.arm.catalog is None else IcebergChanges
        self._keyed: ChangeTarget = make(self.arm, self.settings, self.stage, self.folder)
        return self._keyed

    def _look(self) -> None:
        self._live.append(self._keyed.look())

    def _look_back(
        self, writes: list[IntendedWrite], said: list[dict[str, Any]], fired: dict[str, int]
    ) -> Findings:
        assert self.arm.log is not None
        log = change_log.drawn(self.settings.seed, self.arm.log)
        checker = Checker(log)
        destroyed = ""
        try:
            final = self._keyed.look_all(self.folder / "files")
        except UnreadableTableError as error:
            destroyed = str(error)
            final = FinalLooks([Seen("unreadable", ())])
        reads = [*self._live, *final.seen]
        found = checker.check(reads, acks_of(said), counted=not self.arm.naive)
        fired["batch delivered twice"] = _acked_twice(said)
        judgement = judge(found, final, fired, log)
        verdict = CheckResult(tuple(writes), tuple(read.name for read in reads), ())
        return Findings(verdict, judgement, final.versions, destroyed, found)


def acks_of(said: list[dict[str, Any]]) -> list[Ack]:
    """The answers of all acknowledged deliveries, with the batch that each named when it called."""
    called = {
        (e["writer"], e["seq"]): (e["batch"], e["key"] or "") for e in said if e["event"] == EventKind.INVOKE
    }
    acked = [(called[e["writer"], e["seq"]], e.get("changes")) for e in said if e["event"] == EventKind.OK]
    return [Ack(batch, counts, name) for (batch, name), counts in acked]


def _acked_twice(said: list[dict[str, Any]]) -> int:
    """How many batches were acknowledged for two deliveries."""
    acked = [ack.batch for ack in acks_of(said)]
    return sum(acked.count(batch) > 1 for batch in set(acked))


def judge(
    found: Comparison, final: FinalLooks, fired: dict[str, int], log: change_log.ChangeLog
) -> Judgement:
    """No flaw at all, and a run that could have shown one: all batches acked, all faults there, three readers."""
    flaws = [*final.flaws, *(f"{count} {flaw}" for flaw, count in found.counts().items() if count)]
    gaps = [f"planned fault {name} never fired" for name, count in sorted(fired.items()) if count <= 0]
    if missing := len(log.batches) - found.acked_batches:
        gaps.append(
            f"{missing} of {len(log.batches)} batches were never acknowledged; {found.uncertain} keys were not judged"
        )
    if len(final.seen) < READERS_MIN:
        gaps.append(f"only {len(final.seen)} readers, at least {READERS_MIN} were wanted")
    return Judgement(False if flaws else None if gaps else True, (*flaws, *gaps))
