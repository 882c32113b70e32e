"""Changes of a table whose outcome depends on their order, and the oracle: the rows that one order of them leaves.

Every change has a name, which its commit carries, so the order of the commits is known; a plain Counter of
rows goes through the same changes in the same order.  Nothing here reads or writes a table.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

Row = tuple[int, int]
Rows = Counter[Row]

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.int64())])
FIRST = tuple((number, 37 * number % 1009) for number in range(40))
"""What is in the table before the rest."""
_MODULUS = 1009
_ROWS = 6
"""Of an append: so many that most statements would change one of them, and so depend on its place."""
_COPIES_FROM = 1_000_000


class Change(Protocol):
    """What somebody does to the rows; ``name`` is in the commit."""

    @property
    def name(self) -> str: ...

    def apply(self, rows: Rows) -> Rows: ...


class Statement(Change, Protocol):
    """What Spark does; ``table`` is what SQL calls it."""

    def sql(self, table: str) -> str: ...


# --- pandas ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Append:
    """Rows of their own."""

    name: str
    rows: tuple[Row, ...]

    def apply(self, rows: Rows) -> Rows:
        return rows + Counter(self.rows)

    def write(self, table: Any) -> Any:
        """Do it with safewrite; the receipt."""
        return table.append(frame(self.rows), key=self.name)


@dataclass(frozen=True)
class Remove:
    """A delete of safewrite's own, by a value that Spark's statements change."""

    name: str
    below: int

    def apply(self, rows: Rows) -> Rows:
        return _kept(rows, lambda _, value: value >= self.below)

    def write(self, table: Any) -> Any:
        """Do it with safewrite; the receipt."""
        return table.delete(f"value < {self.below}", key=self.name)


# --- Spark ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Update:
    """Two of these in the other order leave other values."""

    name: str
    remainder: int
    plus: int

    def sql(self, table: str) -> str:
        new = f"(value * 3 + {self.plus}) % {_MODULUS}"
        return f"UPDATE {table} SET value = {new} WHERE (id + value) % 3 = {self.remainder}"

    def apply(self, rows: Rows) -> Rows:
        def changed(id_: int, value: int) -> Row:
            hit = (id_ + value) % 3 == self.remainder
            return id_, ((value * 3 + self.plus) % _MODULUS if hit else value)

        return _mapped(rows, changed)


@dataclass(frozen=True)
class Delete:
    """By a value that others change."""

    name: str
    remainder: int

    def sql(self, table: str) -> str:
        return f"DELETE FROM {table} WHERE value % 7 = {self.remainder}"

    def apply(self, rows: Rows) -> Rows:
        return _kept(rows, lambda _, value: value % 7 != self.remainder)


@dataclass(frozen=True)
class Merge:
    """Changes the rows of some ids, and inserts those ids that are not there (yet)."""

    name: str
    ids: tuple[int, ...]
    plus: int

    def sql(self, table: str) -> str:
        ids = ", ".join(f"{number}L" for number in self.ids)
        return (
            f"MERGE INTO {table} t USING (SELECT EXPLODE(ARRAY({ids})) AS id) s ON t.id = s.id "
            f"WHEN MATCHED THEN UPDATE SET value = (t.value * 5 + {self.plus}) % {_MODULUS} "
            f"WHEN NOT MATCHED THEN INSERT (id, value) VALUES (s.id, {self.plus})"
        )

    def apply(self, rows: Rows) -> Rows:
        there = {id_ for id_, _ in rows}

        def changed(id_: int, value: int) -> Row:
            return id_, ((value * 5 + self.plus) % _MODULUS if id_ in self.ids else value)

        return _mapped(rows, changed) + Counter((id_, self.plus) for id_ in self.ids if id_ not in there)


@dataclass(frozen=True)
class Insert:
    """Rows of their own."""

    name: str
    rows: tuple[Row, ...]

    def sql(self, table: str) -> str:
        return f"INSERT INTO {table} VALUES {', '.join(f'({id_}L, {value}L)' for id_, value in self.rows)}"

    def apply(self, rows: Rows) -> Rows:
        return rows + Counter(self.rows)


@dataclass(frozen=True)
class Copy:
    """Rows made from those that are there."""

    name: str
    remainder: int
    shift: int

    def sql(self, table: str) -> str:
        return f"INSERT INTO {table} SELECT id + {self.shift}, value FROM {table} WHERE value % 5 = {self.remainder}"

    def apply(self, rows: Rows) -> Rows:
        found = _kept(rows, lambda _, value: value % 5 == self.remainder)
        return rows + _mapped(found, lambda id_, value: (id_ + self.shift, value))


@dataclass(frozen=True)
class Compact:
    """The same rows in fewer files; each format has its own words for it."""

    name: str

    def sql(self, table: str) -> str:
        return f"OPTIMIZE {table}"

    def apply(self, rows: Rows) -> Rows:
        return rows


def statements(seed: int, count: int, *, ids: Sequence[int], copies: bool) -> list[Statement]:
    """Some statements in a random order, each kind at least once if there are as many; merges are of ``ids``.

    ``copies``: also INSERT ... SELECT from the table itself, which Iceberg does not check against others.
    """
    rng = random.Random(f"{seed}/statements")
    kinds: list[Callable[[str, random.Random], Statement]] = [
        lambda name, rng: Update(name, rng.randrange(3), rng.randrange(1, 500)),
        lambda name, rng: Delete(name, rng.randrange(7)),
        lambda name, rng: Merge(name, tuple(rng.sample(ids, min(30, len(ids)))), rng.randrange(1, 500)),
        lambda name, rng: Compact(name),
        lambda name, rng: Insert(name, _rows(rng, [rng.randrange(500_000, 900_000) for _ in range(_ROWS)])),
    ]
    if copies:
        kinds.append(lambda name, rng: Copy(name, rng.randrange(5), _COPIES_FROM * rng.randrange(1, 10_000)))
    order = rng.sample(kinds, len(kinds)) + rng.choices(kinds, k=max(0, count - len(kinds)))
    return [make(f"spark-{number}", rng) for number, make in enumerate(order[:count])]


def writes(seed: int, writer: int, count: int, *, removes: bool) -> list[Append | Remove]:
    """What one writer of pandas does, in turn; with ``removes``, every fifth is a delete."""
    rng = random.Random(f"{seed}/writer-{writer}")
    found: list[Append | Remove] = []
    for number in range(count):
        name, first = f"pandas-{writer}-{number}", 10_000 * (writer + 1) + _ROWS * number
        if removes and number % 5 == 4:
            found.append(Remove(name, rng.randrange(20, 80)))
        else:
            found.append(Append(name, _rows(rng, range(first, first + _ROWS))))
    return found


# --- the oracle -------------------------------------------------------------------------------------
def replayed(history: Iterable[str], changes: Mapping[str, Change]) -> list[Rows]:
    """The rows after each commit of a history, which is the names of those that changed rows.

    Raises:
        AssertionError: a change is there twice, or nobody meant it.
    """
    states: list[Rows] = []
    seen: set[str] = set()
    rows: Rows = Counter()
    for name in history:
        assert name in changes, f"nobody meant {name}"
        assert name not in seen, f"{name} was committed twice"
        seen.add(name)
        rows = changes[name].apply(rows)
        states.append(rows)
    return states


def difference(expected: Rows, found: Rows) -> str:
    """What is wrong with the rows that a reader found; empty where nothing is."""
    missing, extra = sorted((expected - found).elements()), sorted((found - expected).elements())
    return f"missing {missing[:10]}, extra {extra[:10]}" if missing or extra else ""


def frame(rows: Iterable[Row]) -> pa.Table:
    """Rows as pandas would have them, in Arrow."""
    return pa.Table.from_pylist([{"id": id_, "value": value} for id_, value in rows], schema=SCHEMA)


def counted(table: pa.Table) -> Rows:
    """Rows that a reader found."""
    return Counter(zip(table["id"].to_pylist(), table["value"].to_pylist(), strict=True))


def _rows(rng: random.Random, ids: Iterable[int]) -> tuple[Row, ...]:
    return tuple((id_, rng.randrange(_MODULUS)) for id_ in ids)


def _kept(rows: Rows, wanted: Callable[[int, int], bool]) -> Rows:
    return Counter({row: times for row, times in rows.items() if wanted(*row)})


def _mapped(rows: Rows, change: Callable[[int, int], Row]) -> Rows:
    found: Rows = Counter()
    for row, times in rows.items():
        found[change(*row)] += times
    return found
