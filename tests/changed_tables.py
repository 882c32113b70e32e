"""Random histories of a table, and what each commit did to its rows by full reads before and after it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

Row = tuple[Any, ...]
Rows = Counter[Row]

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("seq", pa.int64()), ("note", pa.string())])
CAME, WENT = ("insert", "update_postimage"), ("delete", "update_preimage")


def full(table: Any, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with all columns of a table."""
    return [{**dict.fromkeys(table.schema.names), **row} for row in rows]


def some(table: Any, rng: random.Random, turn: int, count: int) -> list[dict[str, Any]]:
    """Rows of few keys, so that keys meet and rows come twice."""
    rows = [
        {"id": rng.randrange(12), "part": rng.choice("ab"), "seq": turn, "note": rng.choice(["x", "y", None])}
        for _ in range(count)
    ]
    return full(table, rows)


def append(table: Any, rng: random.Random, turn: int) -> None:
    table.append(some(table, rng, rng.choice([1, turn]), rng.randint(1, 9)))


def append_more(table: Any, rng: random.Random, turn: int) -> None:
    """Rows with a column that is new."""
    rows = [{**one, f"more{turn}": turn} for one in some(table, rng, turn, 2)]
    table.append(rows, schema_mode="merge")


def delete(table: Any, rng: random.Random, turn: int) -> None:
    table.delete(
        rng.choice([f"id = {rng.randrange(26)}", f"id < {rng.randrange(6)}", "note = 'x'", "part = 'a'"])
    )


def overwrite(table: Any, rng: random.Random, turn: int) -> None:
    table.overwrite(some(table, rng, 1, rng.randint(1, 4)))


def overwrite_where(table: Any, rng: random.Random, turn: int) -> None:
    rows = [{**one, "part": "a"} for one in some(table, rng, 1, 3)]
    table.overwrite(rows, where="part = 'a'")


def apply_changes(table: Any, rng: random.Random, turn: int) -> None:
    """Of keys that nothing is appended with, for a table has each once."""
    keys = rng.sample([(number, part) for number in range(20, 26) for part in "ab"], 6)
    rows = [
        {"id": number, "part": part, "seq": turn, "note": rng.choice("xy"), "gone": rng.random() < 0.3}
        for number, part in keys
    ]
    how: dict[str, Any] = {"keys": ["id", "part"], "sequence_by": ["seq"], "delete_when": "gone"}
    table.apply_changes(full(table, rows), all_late="count", **how)


def maintain(table: Any, rng: random.Random, turn: int) -> None:
    table.maintain()


STEPS: tuple[Callable[[Any, random.Random, int], None], ...] = (
    append, append, append, append_more, delete, delete, overwrite, overwrite_where, apply_changes, apply_changes, maintain,
)  # fmt: skip


def rows_of(table: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.refresh().rows(where="true").to_pylist()
    return found


def counted(rows: Iterable[dict[Any, Any]], names: Iterable[Any]) -> Rows:
    """Rows with these columns, NULL where they had none yet."""
    columns = list(names)
    return Counter(tuple(row.get(name) for name in columns) for row in rows)


class History:
    """A table as it was after each commit, as far as these are told apart by who made them."""

    def __init__(self, table: Any) -> None:
        self.table = table
        self.states: list[tuple[int, list[dict[Any, Any]]]] = []
        self.note()

    def columns(self) -> dict[str, Any]:
        """What columns are known by, whatever they are called: Iceberg's by their ids."""
        if not hasattr(self.table, "iceberg"):
            return {name: name for name in self.table.schema.names}
        return {field.name: field.field_id for field in self.table.iceberg.schema().fields}

    def note(self) -> None:
        """Keep the rows of a new version; one step makes one, or none that changes rows besides."""
        rows, columns = rows_of(self.table), self.columns()
        known = [{columns[name]: value for name, value in row.items()} for row in rows]
        self.states.append((self.table.version, known))

    def ends(self) -> dict[int, int]:
        """The version that was noted next after each, which one step made."""
        noted, found, end = {version for version, _ in self.states}, {}, self.table.version
        for one in self.table.history():
            end = one.version if one.version in noted else end
            found[one.version] = end
        return found

    def differences(self) -> list[tuple[int, Rows, Rows]]:
        """Of each version that changed rows: which went and which came, by the newest columns."""
        names = self.columns().values()
        found = []
        for (_, before), (version, after) in zip(self.states, self.states[1:], strict=False):
            went, came = counted(before, names), counted(after, names)
            if went != came:
                found.append((version, went - came, came - went))
        return found


def told(
    batches: Iterable[Any], names: list[str], *, net: bool, ends: dict[int, int] | None = None
) -> list[tuple[int, Rows, Rows]]:
    """What batches of changes say of each version in their order; ``net``: without rows that went and came alike.

    ``ends`` has the last of several versions that one step made, which are told as one.
    """
    found: dict[int, tuple[Rows, Rows]] = {}
    several = set()
    for batch in batches:
        end = (ends or {}).get(batch.version, batch.version)
        several |= {end} if net or end != batch.version else set()
        went, came = found.setdefault(end, (Counter(), Counter()))
        assert batch.rows.column_names[: len(names)] == names
        for row in batch.rows.to_pylist():
            assert row["_commit_version"] == batch.version
            assert row["_commit_timestamp"] == batch.timestamp
            assert row["_change_type"] in CAME + WENT
            into = came if row["_change_type"] in CAME else went
            into[tuple(row[name] for name in names)] += 1
    every = [
        (version, went - came, came - went) if version in several else (version, went, came)
        for version, (went, came) in found.items()
    ]
    return [one for one in every if one[1] or one[2]]


def changes(batches: Iterable[Any]) -> list[dict[str, Any]]:
    """Every row that batches have, in their order."""
    return [row for batch in batches for row in batch.rows.to_pylist()]


def check_resumed(table: Any, since: Any, batch_rows: int, *, every: int = 1) -> None:
    """At each position of a look, or some of them, the rest comes, and nothing else."""
    whole = table.changes_since(since, batch_rows=batch_rows)
    taken, positions = [], []
    for batch in whole:
        assert 0 < batch.rows.num_rows <= batch_rows
        taken += changes([batch])
        positions.append((len(taken), batch.position))
    for count, position in [*positions[::every], (len(taken), whole.position)]:
        rest = table.changes_since(position, batch_rows=batch_rows + 1)
        assert changes(rest) == taken[count:], position
        assert rest.position == whole.position
