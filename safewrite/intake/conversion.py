"""Holds a configuration that was made of another tool's settings, and what became of each of these."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Setting:
    """A setting of the other tool: what it becomes here, and what changes in meaning; empty where nothing does."""

    name: str
    becomes: str
    changes: str = ""


@dataclass
class Converted:
    """A configuration, what became of each setting of the other tool, and what is to be mended there or filled in here."""

    config: dict[str, Any] = field(default_factory=dict)
    settings: list[Setting] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def say(self, name: str, becomes: str, changes: str = "") -> None:
        """Note what a setting becomes."""
        self.settings.append(Setting(name, becomes, changes))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)
