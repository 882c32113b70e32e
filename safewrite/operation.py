"""Defines what a write does with its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from safewrite.receipt import Named

if TYPE_CHECKING:
    from safewrite.frames.where import Where


@dataclass(frozen=True, slots=True)
class Operation:
    """What a write does with its rows: append them, or replace those where ``where`` is true (None: all)."""

    verb: Literal["append", "overwrite", "delete"]
    where: Where | None = None
    schema_mode: Literal["merge"] | None = None
    spark_catalog: str | None = None


class Planned(Protocol):
    """A write that was planned on one version of the table."""

    @property
    def write(self) -> Named: ...
