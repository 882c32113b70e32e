"""Holds a program's table: what the machine asks of each format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from safewrite.testing.crosscheck import kinds
from safewrite.testing.crosscheck.oracle import ID, ProgramOracle
from safewrite.testing.crosscheck.program import Program, Row, Step
from safewrite.testing.crosscheck.readers import Reader

Deed = Callable[[Step, ProgramOracle], None]
"""A deed of another engine: it changes the table, then the oracle; it raises where the engine refuses."""


class Home(Protocol):
    """One table that does not exist yet."""

    def open(self, program: Program, *, create: bool = False) -> Any:
        """Open it with safewrite; with ``create``, a first append may create it."""

    def make(self, program: Program, oracle: ProgramOracle) -> None:
        """Let the program's maker create it."""

    def deeds(self) -> dict[tuple[str, str], Deed]:
        """The deeds of other engines on it, by engine and verb."""

    def readers(self, program: Program) -> dict[str, Reader]:
        """The readers after each step."""

    def files(self) -> frozenset[str] | None:
        """The files of the table, where they lie in a folder."""

    def state(self) -> Any:
        """The format's name for the table's newest version."""


def files_in(folder: str) -> frozenset[str] | None:
    """The files of a local folder that hold rows or name them; None of another address.

    A catalog's are left out, and those of the ledger of keys: a call that is refused may have looked in it, which makes one after the
    folder was emptied.
    """
    if "://" in folder:
        return None
    found = (path for path in Path(folder).rglob("*") if path.is_file())
    return frozenset(str(path) for path in found if not path.name.startswith(("catalog.db", "ledger.sqlite")))


def typed(rows: Sequence[Row], oracle: ProgramOracle) -> pa.Table:
    """Rows as other engines get them; raises where Arrow would make other values of them."""
    from safewrite.testing.crosscheck.frames import frame

    if any(name not in oracle.column_names() for row in rows for name in row):
        raise ValueError("the table has not all columns of these rows")
    made: pa.Table = frame("arrow", rows, oracle.columns)
    return made


def ids(where_ids: Sequence[int]) -> str:
    """SQL for rows of these ids, in every dialect."""
    return f"{ID} IN ({', '.join(map(str, where_ids))})"


def upsert(rows: Sequence[Row], oracle: ProgramOracle) -> None:
    """Replace rows by id."""
    oracle.remove(row[ID] for row in rows)
    oracle.add(oracle.meant(rows))


def types(oracle: ProgramOracle) -> dict[str, pa.DataType]:
    """The columns' types in Arrow."""
    return {column.name: kinds.arrow(column.kind) for column in oracle.columns}
