"""Judges a run: compares what readers found in the table with what its writers were answered.

Exact for the promise (docs/promise.md): a write is a set of rows with unique ids and check
values, an ack means that every later read has each of them once and unchanged.  It shares no code with the
writer and touches no store: it gets the ledger (:mod:`safewrite.testing.history`) and rows that other engines
have read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from safewrite.testing.history import COLUMNS, IntendedWrite, check_value


class Flaw(StrEnum):
    """What can be wrong.  Rows are counted, except where it says writes."""

    LOST = "lost"  # acked, and not in a read that began after the ack
    DOUBLED = "doubled"  # in a read more than once; each copy after the first counts
    PHANTOM = "phantom"  # in a read, and no writer ever meant to write it
    ALTERED = "altered"  # in a read with other values than were written
    ZOMBIE = "zombie"  # reported as not committed, and yet there
    TORN = "torn"  # writes: a part is visible without the rest, or in another version
    RECOMMITTED = "recommitted"  # the log adds the rows' file more than once: change feeds show them twice
    MISREPORTED = "misreported"  # writes: the receipt names another version than the log
    DISAGREED = "disagreed"  # in one reader's result and not in another's


@dataclass(frozen=True, slots=True)
class Read:
    """What one reader saw: ids, the stored check values, and those recomputed from the other values.

    ``began_at`` (epoch seconds) is when the read started; a read after the run is at infinity.
    """

    name: str
    ids: tuple[int, ...]
    stored: tuple[int, ...]
    computed: tuple[int, ...]
    began_at: float = math.inf

    @classmethod
    def of(cls, name: str, columns: Mapping[str, Sequence[Any]], *, began_at: float = math.inf) -> Read:
        """Make a read from columns of plain Python values; rows may come in any order."""
        rest = zip(*(columns[column] for column in COLUMNS[:-1]), strict=True)
        computed = tuple(check_value(values) for values in rest)
        return cls(name, tuple(columns["id"]), tuple(columns["check"]), computed, began_at)


@dataclass(frozen=True, slots=True)
class ReplayedLog:
    """The log as replayed: every add action as (version, path), repeats included, and each path's ids."""

    adds: tuple[tuple[int, str], ...]
    ids: Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class FoundFlaw:
    """One flaw of one write in one read (``writer`` is None for a phantom)."""

    flaw: Flaw
    read: str
    writer: int | None
    seq: int | None
    ids: tuple[int, ...]
    detail: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values; at most ten ids as examples."""
        return {
            "flaw": str(self.flaw), "read": self.read, "writer": self.writer, "seq": self.seq,
            "rows": len(self.ids), "ids": list(self.ids[:10]), "detail": self.detail,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class CheckResult:
    """All findings, and how the writes ended."""

    writes: tuple[IntendedWrite, ...]
    reads: tuple[str, ...]
    findings: tuple[FoundFlaw, ...]
    recovered: frozenset[tuple[int, int]] = field(default_factory=frozenset)
    """(writer, seq) of writes without an answer that are in the table."""

    def counts(self, of: Callable[[int], bool] = lambda writer: True) -> dict[Flaw, int]:
        """How many rows (or writes) have each flaw, over all reads; phantoms belong to everybody."""
        worst: dict[Flaw, Counter[object]] = {flaw: Counter() for flaw in Flaw}
        for finding in self.findings:
            if finding.writer is not None and not of(finding.writer):
                continue
            by_write = finding.flaw in (Flaw.TORN, Flaw.MISREPORTED)
            here = Counter([(finding.writer, finding.seq)] if by_write else finding.ids)
            # The same row missing for three readers is one lost row, not three.
            worst[finding.flaw] |= here
        return {flaw: sum(times.values()) for flaw, times in worst.items()}

    def summary(self, of: Callable[[int], bool] = lambda writer: True) -> dict[str, int]:
        """Counts of writes and rows by how they ended, with every flaw."""
        writes = [write for write in self.writes if of(write.writer)]
        acked = [write for write in writes if write.outcome == "ok"]
        unknown = [write for write in writes if write.outcome == "info"]
        recovered = [write for write in unknown if (write.writer, write.seq) in self.recovered]
        return {
            "writes": len(writes),
            "acked": len(acked),
            "acked_rows": sum(write.rows for write in acked),
            "not_committed": len(writes) - len(acked) - len(unknown),
            "unknown": len(unknown),
            "unknown_present": len(recovered),
            "unknown_absent": len(unknown) - len(recovered),
            **{str(flaw): count for flaw, count in self.counts(of).items()},
        }

    def examples(
        self, limit: int = 5, of: Callable[[int], bool] = lambda writer: True
    ) -> list[dict[str, Any]]:
        """The first findings of each flaw, for a report."""
        taken: Counter[Flaw] = Counter()
        chosen = []
        for finding in self.findings:
            if (finding.writer is None or of(finding.writer)) and taken[finding.flaw] < limit:
                taken[finding.flaw] += 1
                chosen.append(finding.to_dict())
        return chosen


def check(
    writes: Iterable[IntendedWrite], reads: Sequence[Read], *, log: ReplayedLog | None = None
) -> CheckResult:
    """Compare the ledger with what every reader saw, and with the log where it was replayed."""
    ledger = tuple(writes)
    findings: list[FoundFlaw] = []
    for read in reads:
        findings += _check_read(ledger, read)
    findings += _check_agreement([read for read in reads if read.began_at == math.inf])
    if log is not None:
        findings += _check_log(ledger, log)
    present = {id_ for read in reads for id_ in read.ids}
    recovered = frozenset(
        (write.writer, write.seq) for write in ledger if write.outcome == "info" and present & set(write.ids)
    )
    return CheckResult(ledger, tuple(read.name for read in reads), tuple(findings), recovered)


def _check_read(writes: Sequence[IntendedWrite], read: Read) -> list[FoundFlaw]:
    copies: dict[int, list[tuple[int, int]]] = {}
    for id_, stored, computed in zip(read.ids, read.stored, read.computed, strict=True):
        copies.setdefault(id_, []).append((stored, computed))
    findings: list[FoundFlaw] = []
    for write in writes:
        findings += _check_write(write, copies, read)
    meant = {id_ for write in writes for id_ in write.ids}
    phantoms = tuple(sorted(copies.keys() - meant))
    if phantoms:
        findings.append(FoundFlaw(Flaw.PHANTOM, read.name, None, None, phantoms))
    return findings


def _check_write(
    write: IntendedWrite, copies: Mapping[int, list[tuple[int, int]]], read: Read
) -> list[FoundFlaw]:
    present = tuple(id_ for id_ in write.ids if id_ in copies)
    absent = tuple(id_ for id_ in write.ids if id_ not in copies)
    doubled = tuple(id_ for id_ in present for _ in copies[id_][1:])
    altered = tuple(
        id_
        for id_, meant in zip(write.ids, write.checks, strict=True)
        if any(stored != meant or computed != meant for stored, computed in copies.get(id_, ()))
    )
    acked_before = write.outcome == "ok" and (write.acked_at or 0.0) <= read.began_at
    flaws = (
        (Flaw.LOST, absent if acked_before else ()),
        (Flaw.DOUBLED, doubled),
        (Flaw.ALTERED, altered),
        (Flaw.ZOMBIE, present if write.outcome == "fail" else ()),
        (Flaw.TORN, absent if present else ()),
    )
    return [FoundFlaw(flaw, read.name, write.writer, write.seq, ids) for flaw, ids in flaws if ids]


def _check_agreement(reads: Sequence[Read]) -> list[FoundFlaw]:
    """Check that readers of the finished table see the same rows, the same number of times."""
    findings: list[FoundFlaw] = []
    for other in reads[1:]:
        first, second = Counter(reads[0].ids), Counter(other.ids)
        differ = tuple(sorted(((first - second) + (second - first)).keys()))
        if differ:
            names = f"{reads[0].name} and {other.name}"
            findings.append(FoundFlaw(Flaw.DISAGREED, names, None, None, differ))
    return findings


def _check_log(writes: Sequence[IntendedWrite], log: ReplayedLog) -> list[FoundFlaw]:
    """Check that each write is in one version, its files added once, and its receipt true."""
    times = Counter(path for _, path in log.adds)
    owner = {id_: index for index, write in enumerate(writes) for id_ in write.ids}
    parts: list[dict[int, set[int]]] = [{} for _ in writes]
    again: Counter[int] = Counter()
    for version, path in log.adds:
        for id_ in log.ids.get(path, ()):
            if id_ in owner:
                parts[owner[id_]].setdefault(version, set()).add(id_)
    for path, count in times.items():
        for id_ in log.ids.get(path, ()):
            again[id_] += count - 1
    findings: list[FoundFlaw] = []
    for write, where in zip(writes, parts, strict=True):
        repeated = tuple(id_ for id_ in write.ids for _ in range(again[id_]))
        if repeated:
            detail = f"versions {sorted(where)}"
            findings.append(FoundFlaw(Flaw.RECOMMITTED, "log", write.writer, write.seq, repeated, detail))
        if any(len(ids) < write.rows for ids in where.values()):
            detail = f"versions {sorted(where)} hold a part each"
            findings.append(FoundFlaw(Flaw.TORN, "log", write.writer, write.seq, tuple(write.ids), detail))
        if write.outcome == "ok" and write.version is not None and where and write.version not in where:
            detail = f"receipt {write.version}, log {sorted(where)}"
            findings.append(
                FoundFlaw(Flaw.MISREPORTED, "log", write.writer, write.seq, tuple(write.ids), detail)
            )
    return findings


@dataclass(frozen=True, slots=True)
class Judgement:
    """``valid`` is True, False, or None where the run proves nothing; ``reasons`` say why it is not True."""

    valid: bool | None
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return {True: "valid", False: "INVALID", None: "UNKNOWN"}[self.valid]


def judge(
    verdict: CheckResult,
    *,
    fired: Mapping[str, int],
    of: Callable[[int], bool] = lambda writer: True,
    acked_rows_min: int = 1,
    readers_min: int = 3,
) -> Judgement:
    """Judge the writers that ``of`` accepts: no flaw at all, and a run that could have shown one.

    ``fired`` tells for every planned class of fault how often it fired; a class that never fired
    leaves the run unknown, as do too few acked rows or readers.
    """
    flaws = [f"{count} {flaw}" for flaw, count in verdict.counts(of).items() if count]
    acked_rows = verdict.summary(of)["acked_rows"]
    gaps = [f"planned fault {name} never fired" for name, count in sorted(fired.items()) if count <= 0]
    if acked_rows < acked_rows_min:
        gaps.append(f"only {acked_rows} acked rows, at least {acked_rows_min} were wanted")
    if len(set(verdict.reads)) < readers_min:
        gaps.append(f"only {len(set(verdict.reads))} readers, at least {readers_min} were wanted")
    valid = False if flaws else None if gaps else True
    return Judgement(valid, (*flaws, *gaps))
