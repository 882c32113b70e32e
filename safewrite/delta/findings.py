"""What doctor reports: findings with a severity, a stable code, and how to mend them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

EXAMPLES = 20
"""Most examples in the details of one finding."""


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


Findings = Iterator[Finding]
DANGER, WARNING, INFO = Severity.DANGER, Severity.WARNING, Severity.INFO


def some(versions: list[int]) -> str:
    """The first few of many versions, as text."""
    shown = ", ".join(str(version) for version in versions[:5])
    return shown if len(versions) <= 5 else f"{shown} ... ({len(versions)} in all)"
