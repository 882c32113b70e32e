"""Describes a program of the machine, maker and steps, as plain data that prints itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

Row = Mapping[str, Any]
VECTORS = ("delta.enableDeletionVectors", "true")
"""The property of a Delta table whose rows may be taken away by marks."""

IMPORTS = """\
import datetime
import uuid
from decimal import Decimal
from math import inf, nan

from pandas import Timestamp

from safewrite.testing.crosscheck import Column, Program, Step, Where, run
"""


class _Sparing:
    """Prints what differs from its defaults; the text is Python that makes it again."""

    def __repr__(self) -> str:
        parts = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)  # type: ignore[arg-type]
            if getattr(self, field.name) != field.default
        ]
        return f"{type(self).__name__}({', '.join(parts)})"


@dataclass(frozen=True, repr=False)
class Column(_Sparing):
    """A column: its name, and its kind as a text such as ``list<date>``."""

    name: str
    kind: str


@dataclass(frozen=True, repr=False)
class Where(_Sparing):
    """A condition on one column, or several that are joined.

    ``op`` is a comparison, ``in``, ``is null``, ``and``, ``or`` or ``not``; the last three have ``parts``.
    """

    op: str
    column: str = ""
    value: Any = None
    parts: tuple[Where, ...] = ()


@dataclass(frozen=True, repr=False)
class Step(_Sparing):
    """One deed of one engine.

    ``who`` is safewrite, deltalake, pyiceberg or spark; ``what`` the verb.  ``by`` says what kind of frame
    brings the rows, ``object_`` which table object is used, ``name`` the key or the stream's batch.
    ``detail`` holds all else that the verb needs.  ``look`` is a filter with which readers look afterwards.
    """

    who: str
    what: str
    rows: tuple[Row, ...] = ()
    by: str = "arrow"
    where: Where | None = None
    form: str = "tuples"
    name: str | tuple[str, int] | None = None
    object_: str = "held"
    detail: tuple[Any, ...] = ()
    look: Where | None = None


@dataclass(frozen=True, repr=False)
class Program(_Sparing):
    """A table and all that is done with it."""

    format: str
    maker: str
    columns: tuple[Column, ...]
    steps: tuple[Step, ...]
    partition_by: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    version: int = 2
    session: tuple[tuple[str, str], ...] = ()
    promises: bool = False
    """Whether what the properties promise of the files is checked; the steps are safewrite's alone."""
    features: tuple[str, ...] = ()
    """Features that a Delta table has from its second version on; see ``safewrite.testing.crosscheck.features``."""

    def source(self) -> str:
        """The program as a text that runs."""
        parts = [
            f"    {field.name}={getattr(self, field.name)!r},"
            for field in fields(self)
            if field.name != "steps" and getattr(self, field.name) != field.default
        ]
        steps = "".join(f"        {step!r},\n" for step in self.steps)
        return f"{IMPORTS}\nprogram = Program(\n{chr(10).join(parts)}\n    steps=(\n{steps}    ),\n)\nrun(program)\n"
