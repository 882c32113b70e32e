"""Holds the results of maintenance: findings of doctor, steps of repair, counts of verify."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

EXAMPLES = 20
"""Most examples in the details of one finding."""
KEY_EXAMPLES = 10


class Severity(StrEnum):
    """How bad a finding is."""

    DANGER = "danger"  # rows are lost or doubled, or will be
    WARNING = "warning"  # not now, but under conditions that occur
    INFO = "info"  # worth knowing


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.  ``code`` is stable and append-only; the texts are not."""

    severity: Severity
    code: str
    message: str
    mend: str
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "severity": str(self.severity),
            "code": self.code,
            "message": self.message,
            "mend": self.mend,
            "details": dict(self.details),
        }


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that was done, or would be: ``done``, ``would`` (dry run), ``skipped`` or ``failed``."""

    action: str
    target: str
    status: str
    detail: str = ""
    version: int | None = None
    rows: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "action": self.action,
            "target": self.target,
            "status": self.status,
            "detail": self.detail,
            "version": self.version,
            "rows": self.rows,
        }


@dataclass(frozen=True, slots=True)
class KeyAudit:
    """How often each key is in the table; ``unknown`` ones may have been in commits that were cleaned up."""

    present: int
    rows: int
    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    torn: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def clean(self) -> bool:
        """Every key once, with all its rows."""
        return not (self.lost or self.doubled or self.torn or self.unknown)

    def to_dict(self) -> dict[str, Any]:
        """Counts, and examples of what is wrong."""
        flaws = {"lost": self.lost, "doubled": self.doubled, "torn": self.torn, "unknown": self.unknown}
        counts = {name: len(found) for name, found in flaws.items()}
        examples = {name: list(found[:KEY_EXAMPLES]) for name, found in flaws.items() if found}
        return {"keys": {"present": self.present, "rows": self.rows, **counts}, "examples": examples}


Findings = Iterator[Finding]
Steps = Iterator[Step]
DANGER, WARNING, INFO = Severity.DANGER, Severity.WARNING, Severity.INFO


def some(versions: list[int]) -> str:
    """The first few of many versions, as text."""
    shown = ", ".join(str(version) for version in versions[:5])
    return shown if len(versions) <= 5 else f"{shown} ... ({len(versions)} in all)"
