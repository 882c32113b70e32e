"""What a step of a history is: one call on one writer, its faults, and what rivals do in its midst."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

Verb = Literal[
    "append", "merge", "overwrite", "misfit", "resolve", "checkpoint", "reopen", "expire", "peer", "maintain"
]
Naming = Literal["key", "txn", "none", "same", "other"]
"""A new key or batch or neither; an earlier write again; an earlier write's name with other rows."""
Where = Literal["all", "day", "note"]
FaultKind = Literal["crash_before", "crash_after", "lost", "unperformed", "late", "busy", "rival"]

BASE: dict[str, pa.DataType] = {
    "id": pa.int64(), "day": pa.string(), "note": pa.string(), "amount": pa.float64()
}  # fmt: skip
EXTRAS = ("extra0", "extra1", "extra2")
Row = tuple[str | None, str | None, float | None]
"""Day (the partition), note, amount."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something happens at the effect of that number in a call (clocks do not count), and ``times`` in a row."""

    at: int
    kind: FaultKind
    times: int = 1


@dataclass(frozen=True, slots=True)
class Call:
    """One call.  ``pick`` chooses among what there is: an earlier write, an app, a column, a kind of misfit."""

    verb: Verb
    writer: int = 0
    naming: Naming = "key"
    pick: int = 0
    rows: tuple[Row, ...] = ()
    where: Where = "all"
    faults: tuple[Fault, ...] = ()
    rival: Call | None = None


@dataclass(eq=False, slots=True)
class Write:
    """A write that was asked for once or more often, and what is known of it.

    ``open_attempts`` counts ended attempts that may still land, and running ones; ``landed`` is the version
    in which the log shows its rows.
    """

    verb: Verb
    where: Where
    key: str | None
    txn: tuple[str, int] | None
    columns: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    open_attempts: int = 0
    acked: bool = False
    landed: int | None = None
    mergers: set[str] = field(default_factory=set)

    def frame(self) -> pa.Table:
        """The rows as a caller gives them; columns go by name, so their order may be any."""
        names = self.columns if len(self.rows) % 2 else self.columns[::-1]
        types = {name: BASE.get(name, pa.int64()) for name in names}
        return pa.table({name: pa.array([row[name] for row in self.rows], types[name]) for name in names})

    def replaces(self, row: dict[str, Any]) -> bool:
        """Whether this write removes a row that was there before it."""
        if self.verb != "overwrite":
            return False
        return self.where == "all" or row.get(self.where) == self.rows[0][self.where]

    def condition(self) -> list[tuple[str, str, Any]] | None:
        """``where=`` of this overwrite."""
        return None if self.where == "all" else [(self.where, "=", self.rows[0][self.where])]


def rows_of(call: Call, first_id: int, columns: tuple[str, ...]) -> tuple[dict[str, Any], ...]:
    """Rows with ids of their own; all satisfy the condition of an overwrite."""
    shapes = [list(shape) for shape in call.rows]
    if call.verb == "overwrite":
        shapes = shapes or [["a", "x", 1.5]]
        at = {"all": None, "day": 0, "note": 1}[call.where]
        if at is not None:
            wanted = shapes[0][at] or "a"
            for shape in shapes:
                shape[at] = wanted
    extras = [name for name in columns if name not in BASE]
    return tuple(
        {
            "id": first_id + n,
            **dict(zip(("day", "note", "amount"), shape, strict=True)),
            **dict.fromkeys(extras, None if (first_id + n) % 3 == 0 else first_id * 7 + n),
        }
        for n, shape in enumerate(shapes)
    )
