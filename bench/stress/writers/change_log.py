"""Draws one change log from a seed: what a source did to its table, cut into batches that come in another order.

The same arguments give the same log in any process.  Its meaning is not here: what the table must be is told by
``safewrite.testing.changes``.
"""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

KEYS, SEQUENCE = ("region", "id"), "lsn"
COLUMNS = (*KEYS, SEQUENCE, "name", "amount", "score", "day", "at")
"""Columns of the table; a change has ``op`` besides."""
Key: TypeAlias = tuple[str, int]
Values: TypeAlias = tuple[Any, ...]

_REGIONS = ("eu", "東京", "a/b=c%20d", 'naïve "q"', " spaces ")
_NAMES = ("", "plain", "naïve", "🙂", "NULL", "two\nlines", "\\", "null", "O'Hara", "e\u0301")
_SCORES = (math.nan, math.inf, -math.inf, -0.0, 0.0, 1e-300)
_FEW = 0.06
"""How often a value is NULL, or one that few have thought of."""


class Change(NamedTuple):
    """One change: an upsert with its row's values, a delete of a key, or a truncate, which has no key."""

    op: Literal["c", "u", "d", "t"]
    lsn: int
    key: Key | None
    values: Values | None = None


@dataclass(frozen=True, slots=True)
class LogPlan:
    """How large a log is; ``batch`` is the mean number of changes in one."""

    changes: int = 4000
    keys: int = 400
    batch: int = 40
    truncates: int = 2
    redelivered: float = 0.2
    """Share of the batches that are delivered twice."""
    regrouped: float = 0.1
    """So many batches more, as a share, hold changes of others once again, under names of their own."""


@dataclass(frozen=True, slots=True)
class ChangeLog:
    """The source's table at its end, the changes in its order, and the batches in the order of their delivery."""

    plan: LogPlan
    source: Mapping[Key, Values]
    changes: tuple[Change, ...]
    batches: tuple[tuple[Change, ...], ...]
    deliveries: tuple[int, ...]
    """Numbers of batches; some come twice."""
    moves: tuple[tuple[Key, Key, int], ...] = field(repr=False)
    """Changes of keys: the old one, the new one, their common sequence."""

    def of_writer(self, index: int, writers: int) -> tuple[int, ...]:
        """The deliveries of one of so many writers."""
        return self.deliveries[index::writers]

    def batch_of(self, index: int, writers: int, seq: int) -> int:
        """The batch of a writer's delivery; past its last it begins anew, as for a stream whose kills have not all come."""
        mine = self.of_writer(index, writers)
        return mine[seq % len(mine)]


def draw(seed: int, plan: LogPlan) -> ChangeLog:
    """The log of a seed."""
    rng = random.Random(f"{seed}/changes")
    source = _Source(rng, plan.keys)
    cuts = {round(plan.changes * share) for share in _shares(plan.truncates)}
    groups: list[tuple[Change, ...]] = []
    count = 0
    while count < plan.changes:
        due = {cut for cut in cuts if cut <= count}
        cuts -= due
        groups.append(source.truncate() if due else source.step())
        count += len(groups[-1])
    changes = tuple(change for group in groups for change in group)
    batches = [*_cut(rng, _shuffled(rng, groups), plan.batch)]
    batches += _regrouped(rng, batches, round(plan.regrouped * len(batches)))
    flat = tuple(tuple(change for group in batch for change in group) for batch in batches)
    return ChangeLog(plan, source.rows, changes, flat, _deliveries(rng, len(flat), plan), tuple(source.moves))


drawn = functools.cache(draw)
"""The same, drawn once in a process and in those that it forks: a long log takes seconds."""


def _shares(truncates: int) -> list[float]:
    """Where truncates come: in the first half, so that much follows."""
    return [0.4 * (number + 1) / truncates for number in range(truncates)]


class _Source:
    """A database whose log this is."""

    def __init__(self, rng: random.Random, keys: int) -> None:
        self.rng = rng
        self.rows: dict[Key, Values] = {}
        self.moves: list[tuple[Key, Key, int]] = []
        self._keys = [(_REGIONS[number % len(_REGIONS)], number - keys // 2) for number in range(keys)]
        self._lsn = 0
        self._touched: set[Key] = set()

    def step(self) -> tuple[Change, ...]:
        """What one statement changes: one row, or the two of a changed key."""
        rng = self.rng
        # Statements of one transaction share a sequence, but never two of one key.
        if rng.random() > 0.1 or self._lsn == 0:
            self._advance()
        key, other = rng.choice(self._keys), rng.choice(self._keys)
        if key in self._touched:
            self._advance()
        self._touched.add(key)
        if key not in self.rows:
            # Now and then a delete of what is not there, as a filtered log has it.
            return (self._delete(key),) if rng.random() < 0.05 else (self._upsert("c", key),)
        roll = rng.random()
        if roll < 0.55:
            return (self._upsert("u", key),)
        if roll < 0.8 or other in self.rows or other in self._touched:
            return (self._delete(key),)
        self._touched.add(other)
        self.moves.append((key, other, self._lsn))
        return (self._delete(key), self._upsert("c", other))

    def truncate(self) -> tuple[Change, ...]:
        """Everything goes; nothing else has its sequence."""
        self._advance()
        self.rows.clear()
        change = Change("t", self._lsn, None)
        self._advance()
        return (change,)

    def _advance(self) -> None:
        self._lsn += self.rng.randrange(1, 4)
        self._touched = set()

    def _upsert(self, op: Literal["c", "u"], key: Key) -> Change:
        values = (*key, self._lsn, *_values(self.rng))
        self.rows[key] = values
        return Change(op, self._lsn, key, values)

    def _delete(self, key: Key) -> Change:
        self.rows.pop(key, None)
        return Change("d", self._lsn, key)


def _values(rng: random.Random) -> Iterator[Any]:
    """Name, amount, score, day, time."""
    yield (
        None if rng.random() < _FEW else rng.choice(_NAMES) + str(rng.randrange(1000)) * (rng.random() > _FEW)
    )
    yield None if rng.random() < _FEW else decimal.Decimal(rng.randrange(-(10**14), 10**14)).scaleb(-4)
    yield (
        None
        if rng.random() < _FEW
        else rng.choice(_SCORES)
        if rng.random() < 2 * _FEW
        else rng.uniform(-9, 9)
    )
    yield (
        None if rng.random() < _FEW else dt.date(1970, 1, 1) + dt.timedelta(days=rng.randrange(-9999, 30_000))
    )
    epoch = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    yield None if rng.random() < _FEW else epoch + dt.timedelta(microseconds=rng.randrange(10**14))


# --- batches --------------------------------------------------------------------------------------
_Group: TypeAlias = tuple[Change, ...]


def _shuffled(rng: random.Random, groups: Sequence[_Group]) -> list[_Group]:
    """Most changes come near their place, one in ten anywhere; those of one statement stay together."""
    near = len(groups) / 12

    def place(at: int) -> float:
        return rng.uniform(0, len(groups)) if rng.random() < 0.1 else at + rng.uniform(-near, near)

    places = [place(at) for at in range(len(groups))]
    return [groups[at] for at in sorted(range(len(groups)), key=places.__getitem__)]


def _cut(rng: random.Random, groups: Sequence[_Group], mean: int) -> Iterator[list[_Group]]:
    """Batches of all sizes, some of one change."""
    rest = list(groups)
    while rest:
        size = 1 if rng.random() < 0.05 else rng.randrange(1, 2 * mean)
        yield rest[:size]
        rest = rest[size:]


def _regrouped(rng: random.Random, batches: Sequence[list[_Group]], count: int) -> list[list[_Group]]:
    """Batches of changes that others hold too: as a source sends them whose batches end elsewhere after a restart."""
    found = []
    for _ in range(count):
        first = rng.randrange(len(batches))
        both = [*batches[first], *batches[(first + 1) % len(batches)]]
        found.append(both[len(both) // 3 : len(both) // 3 + max(1, len(both) // 2)])
    return found


def _deliveries(rng: random.Random, batches: int, plan: LogPlan) -> tuple[int, ...]:
    """Batches in order, those with old changes somewhere, and the second deliveries at their heels or long after."""
    firsts = round(batches / (1 + plan.regrouped)) if plan.regrouped else batches
    placed = [(float(number), number) for number in range(firsts)]
    placed += [(rng.uniform(firsts / 3, firsts), number) for number in range(firsts, batches)]
    again = rng.sample(placed, min(len(placed), max(1, round(plan.redelivered * batches))))
    placed += [(at + rng.choice((0.5, rng.uniform(0.5, firsts))), number) for at, number in again]
    return tuple(number for _, number in sorted(placed))


def twice(log: ChangeLog) -> int:
    """How many batches are delivered twice."""
    return sum(count > 1 for count in Counter(log.deliveries).values())


# --- frames ---------------------------------------------------------------------------------------
def schema() -> pa.Schema:
    """The schema of the table."""
    import pyarrow as pa

    types = (
        pa.string(), pa.int64(), pa.int64(), pa.string(), pa.decimal128(18, 4), pa.float64(), pa.date32(),
        pa.timestamp("us", "UTC"),
    )  # fmt: skip
    return pa.schema(list(zip(COLUMNS, types, strict=True)))


def to_arrow(batch: Sequence[Change]) -> pa.Table:
    """A batch as an Arrow table; a delete has its key and sequence only, a truncate its sequence."""
    import pyarrow as pa

    fields = [*schema(), pa.field("op", pa.string())]
    rows = [(*_row(change), change.op) for change in batch]
    columns = zip(*rows, strict=True) if rows else [()] * len(fields)
    return pa.table(
        [pa.array(list(column), one.type) for column, one in zip(columns, fields, strict=True)],
        schema=pa.schema(fields),
    )


def _row(change: Change) -> Values:
    if change.values is not None:
        return change.values
    key = change.key or (None, None)
    return (*key, change.lsn, *[None] * (len(COLUMNS) - 3))
