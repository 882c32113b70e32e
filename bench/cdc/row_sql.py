"""Gives tables filters and computed columns in SQL, and says in Python what these make of a row of the source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.cdc.modes import Mode
from bench.cdc.workload import SourceTable

Row = Mapping[str, Any]
Computed = tuple[str, str, Callable[[Row], Any]]
"""A column, its SQL, and the same in Python."""


@dataclass(frozen=True)
class RowSql:
    """The SQL of one table; the row that is written last passes, for a run waits for it."""

    filter: str | None = None
    passes: Callable[[Row], bool] = lambda _: True
    computed: Mapping[str, tuple[str, Callable[[Row], Any]]] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Any]:
        """What the configuration says of it."""
        texts = {name: text for name, (text, _) in self.computed.items()}
        return {"computed": texts} | ({} if self.filter is None else {"filter": self.filter})

    def made(self, row: Row) -> dict[str, Any]:
        """The row that lands."""
        return {**row, **{name: make(row) for name, (_, make) in self.computed.items()}}


_COMPUTED: Mapping[str, Computed] = {
    "customers": ("hello", "'Hi ' || name", lambda row: None if row["name"] is None else f"Hi {row['name']}"),
    "orders": ("twice", "customer::bigint * 2", lambda row: _twice(row["customer"])),
    # A large value, which updates leave out that do not touch it.
    "documents": ("size", "length(body)", lambda row: None if row["body"] is None else len(row["body"])),
    "lines": ("is_open", "quantity IS NULL", lambda row: row["quantity"] is None),
    "events": ("label", "coalesce(kind, '-')", lambda row: "-" if row["kind"] is None else row["kind"]),
}
_OF_VALUES: Mapping[str, tuple[str, Callable[[Row], bool]]] = {
    "customers": ("active IS NOT FALSE", lambda row: row["active"] is not False),
    "orders": ("customer >= 0 OR customer IS NULL", lambda row: row["customer"] is None or row["customer"] >= 0),
    "documents": ("n % 3 <> 0 OR n IS NULL", lambda row: row["n"] is None or row["n"] % 3 != 0),
    "lines": ("quantity % 2 = 0 OR quantity IS NULL", lambda row: row["quantity"] is None or row["quantity"] % 2 == 0),
    "events": ("length(kind) % 2 = 0 OR kind IS NULL", lambda row: row["kind"] is None or len(row["kind"]) % 2 == 0),
}  # fmt: skip
"""Rows come and go, as their values change."""
_OF_KEYS: Mapping[str, tuple[str, Callable[[Row], bool]]] = {
    "orders": ("substr(order_id, 34, 1) <> '7'", lambda row: row["order_id"][33] != "7"),
    "lines": ("order_no % 5 <> 1", lambda row: row["order_no"] % 5 != 1),
}
_OF_ID = ("id % 5 <> 1", lambda row: row["id"] % 5 != 1)
"""A log without the changes that do not pass tells the rows of the source only where a row stays in or out."""


def sql_of(tables: Iterable[SourceTable], modes: Mapping[str, Mode]) -> dict[str, RowSql]:
    """The SQL of each table, by its mode."""
    return {table.name: _of_table(table, modes.get(table.name, "upsert")) for table in tables}


def _of_table(table: SourceTable, mode: Mode) -> RowSql:
    name, text, make = _COMPUTED[table.name]
    computed = {name: (text, make)}
    if mode == "marked" or (mode == "upsert" and table.toast):
        # A row that stays has no filter, and a row that comes back lacks the large values that its update leaves out.
        return RowSql(computed=computed)
    text, passes = _OF_KEYS.get(table.name, _OF_ID) if mode == "append" else _OF_VALUES[table.name]
    key, marker = table.key[0], table.marker[0]
    last = f"'{marker}'" if isinstance(marker, str) else str(marker)
    return RowSql(f"{text} OR {key} = {last}", lambda row: passes(row) or row[key] == marker, computed)


def _twice(number: int | None) -> int | None:
    return None if number is None else 2 * number
