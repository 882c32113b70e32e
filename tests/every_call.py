"""Tables that are called oddly: the bag of ids that each must hold, and how every call must end.

The model is the ids of the acknowledged writes, as another reader must find them after each call.  A trap in the
table's world raises at some step of a call.
"""

from __future__ import annotations

import datetime as dt
import itertools
import pickle
import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import note
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

import safewrite as sw
from safewrite.protocol.effects import Effect, Outcome
from safewrite.testing.steps import At, Side
from tests.oddities import ANYTHING, CONDITIONS, DATA, Factory, Wordless

SAYS_WHAT_IS_SAFE = re.compile(
    r"Nothing was (written|committed)|none of these were written|left as it was|was not created"
)
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "name": pa.string(),
        "day": pa.date32(),
        "amount": pa.decimal128(10, 2),
        "ratio": pa.float64(),
        "ts": pa.timestamp("us", tz="UTC"),
        "inner": pa.struct({"a": pa.int64(), "b": pa.list_(pa.string())}),
    }
)
ERRORS: dict[str, Factory] = {
    "runtime": lambda: RuntimeError("cannot schedule new futures"),
    "key": lambda: KeyError("x"),
    "arrow": lambda: pa.ArrowInvalid("no"),
    "system": lambda: OSError(28, "no space"),
    "memory": MemoryError,
    "recursion": RecursionError,
    "stop": lambda: StopIteration(5),
    "type": lambda: TypeError("append() got an unexpected keyword argument"),
    "wordless": Wordless,
    "ours": lambda: sw.UnsupportedTableError("What a look met. Nothing was written."),
}
SETTINGS = [
    "lock_table",
    "arbiter",
    "create",
    "partition_by",
    "sort_by",
    "properties",
    "location",
    "storage_options",
    "boto3_session",
    "strict",
    "attempts_max",
    "timeout_s",
    "lease_s",
    "target_file_size",
    "checkpoints",
]
ODD_ROWS = ("append odd", "overwrite odd", "apply odd")
ODD_CONDITIONS = ("overwrite where", "delete where")
LOOKS = ("schema", "partition_by", "properties", "version", "uri", "arbiter")


def row(number: int) -> dict[str, Any]:
    """A row that every table here takes."""
    return {
        "id": number,
        "name": "a",
        "day": dt.date(2026, 11, 21 + number % 2),
        "amount": Decimal("1.50"),
        "ratio": 0.5,
        "ts": dt.datetime(2026, 11, 21, tzinfo=dt.UTC),
        "inner": {"a": 1, "b": ["x"]},
    }


SOUND: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "dicts": list,
    "arrow": lambda rows: pa.Table.from_pylist(rows, schema=SCHEMA),
    "pandas": pd.DataFrame,
    "polars": lambda rows: pl.from_arrow(pa.Table.from_pylist(rows, schema=SCHEMA)),
    "batches": lambda rows: pa.Table.from_pylist(rows, schema=SCHEMA).to_batches(),
}


class Trap(At):
    """Raises once, before or after the step with this number."""

    def __init__(self, world: Any, number: int, side: Side, error: Exception) -> None:
        super().__init__(world, "", side, self._raise)
        self._error = error
        self._left = number

    def _raise(self) -> None:
        raise self._error

    def _step(self, step: str, effect: Effect) -> Outcome:
        self._left -= 1
        if self._left == 0:
            self.step = step
        return super()._step(step, effect)


@dataclass
class Bench:
    """A table of one of the two formats, opened by safewrite and read by another reader."""

    name: str
    catalog: SqlCatalog | None = None
    known: Counter[str] = field(default_factory=Counter)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    table: Any = None
    endings: list[str] = field(default_factory=list)

    @property
    def where(self) -> dict[str, Any]:
        return {} if self.catalog is None else {"catalog": self.catalog}

    def open(self, **settings: Any) -> Any:
        return sw.open(self.name, **(self.where | settings))

    def make(self, there: bool, partition_by: tuple[str, ...], schema: pa.Schema = SCHEMA) -> None:
        if there:
            self.table = sw.create(self.name, schema, partition_by=partition_by, **self.where)
        else:
            self.table = self.open(create=True, partition_by=partition_by)

    def read(self) -> Counter[str]:
        """The ids that another reader finds."""
        try:
            found = self._rows()
        except (deltalake.exceptions.TableNotFoundError, NoSuchTableError):
            return Counter()
        column = found.column("id") if "id" in found.column_names else found.column(0)
        return Counter(repr(value) for value in column.to_pylist())

    def _rows(self) -> pa.Table:
        if self.catalog is not None:
            return self.catalog.load_table(self.name).scan().to_arrow()
        return deltalake.DeltaTable(self.name).to_pyarrow_table()

    def error(self, name: str) -> Exception:
        """An error by its name.  A store of Delta's raises none of ours: the protocol takes one for its own word."""
        made: Exception = ERRORS["runtime" if name == "ours" and self.catalog is None else name]()
        return made

    # --- calls ------------------------------------------------------------------------------------------
    def ended(self, call: Callable[[], Any], trouble: Trouble | None = None) -> Any:
        """What a call ended in: its result, or an error that is one of ours and says what is safe."""
        sound = self.table.world
        trap = None if trouble is None else Trap(sound, trouble.step, trouble.side, self.error(trouble.error))
        if trap is not None:
            self.table.world = trap
        try:
            result = call()
            self.endings.append(str(getattr(result, "outcome", type(result).__name__)))
            return result
        except sw.SafewriteError as error:
            text = f"{error} {error!r} {pickle.loads(pickle.dumps(error))}"
            troubled = trap is not None and trap.reached
            good = isinstance(error, sw.NotCommittedError) and SAYS_WHAT_IS_SAFE.search(text)
            if not troubled and not good:
                raise AssertionError(text) from error
            self.endings.append(type(error).__name__ + (" in trouble" if troubled else ""))
            return error
        finally:
            if trap is not None and self.table.world is trap:
                self.table.world = sound

    def write(self, call: Callable[[], Any], trouble: Trouble | None, expected: Expected) -> Any:
        """A call that may change the table, which then holds what it was told to hold."""
        before, ending = self.known, self.ended(call, trouble)
        seen = self.read()
        if isinstance(ending, sw.NotCommittedError):
            assert seen == before, ending
        elif isinstance(ending, sw.SafewriteError):
            assert seen == before or expected(before, seen, None), ending
        elif isinstance(ending, sw.Receipt) and ending.outcome == "committed":
            assert expected(before, seen, ending.rows), (before, seen, ending)
        else:
            assert seen == before, ending
        self.known = seen
        return ending

    def repeated(self, call: Callable[[], Any], trouble: Trouble | None, expected: Expected) -> None:
        """A sound write with a key of its own; after trouble the same call is the answer, and no second write."""
        before = self.known
        first = self.write(call, trouble, expected)
        if trouble is None:
            return
        landed = self.known != before
        again = self.write(call, None, expected)
        assert not isinstance(first, sw.Receipt) or again.outcome == "already_committed", (first, again)
        assert not landed or isinstance(again, sw.Receipt), (first, again)

    def one(self, drawn: Drawn) -> None:
        """One drawn call."""
        trouble, number = drawn.trouble, next(self.numbers)
        odd = drawn.pick(number)
        note(f"{drawn.verb} {odd}")
        table, key = self.table, f"event-{number}"
        rows = SOUND[drawn.frame]([row(number)])
        match drawn.verb:
            case "append":
                self.repeated(lambda: table.append(rows, key=key), trouble, adds(number))
            case "append odd":
                data = DATA[odd]()
                self.write(lambda: table.append(data, schema_mode=drawn.mode), trouble, adds())
            case "overwrite":
                where = f"id = {number}"
                self.repeated(lambda: table.overwrite(rows, where=where, key=key), trouble, adds(number))
            case "overwrite odd":
                data = DATA[odd]()
                self.write(lambda: table.overwrite(data, schema_mode=drawn.mode), trouble, replaces())
            case "overwrite where":
                where = CONDITIONS[odd]()
                self.write(lambda: table.overwrite(rows, where=where), trouble, removes())
            case "delete":
                call = lambda: table.delete([("id", "=", number - 1)], key=key)  # noqa: E731
                self.repeated(call, trouble, removes(number - 1))
            case "delete where":
                where = CONDITIONS[odd]()
                self.write(lambda: table.delete(where), trouble, removes())
            case verb if verb.startswith("apply"):
                self.applied(drawn, odd, number)
            case "key" | "txn" | "schema_mode":
                named: dict[str, Any] = {drawn.verb: ANYTHING[odd]()}
                self.write(lambda: table.append(rows, **named), trouble, adds(number))
            case "batch":
                txn: Any = ("app", ANYTHING[odd]())
                self.write(lambda: table.append(rows, txn=txn), trouble, adds(number))
            case _:
                self.asked(drawn, odd)

    def applied(self, drawn: Drawn, name: str, number: int) -> None:
        """One drawn call of apply_changes."""
        table, rows = self.table, SOUND[drawn.frame]([row(number)])
        how: dict[str, Any] = {"keys": ["id"], "sequence_by": ["ts"]}
        match drawn.verb:
            case "apply":
                how["delete_when"] = [("name", "=", "gone")]
                key = f"event-{number}"
                self.repeated(lambda: table.apply_changes(rows, key=key, **how), drawn.trouble, adds(number))
            case "apply odd":
                data = DATA[name]()
                self.write(lambda: table.apply_changes(data, **how), drawn.trouble, anything)
            case _:
                how[drawn.verb.removeprefix("apply ")] = ANYTHING[name]()
                self.write(lambda: table.apply_changes(rows, **how), drawn.trouble, adds(number))

    def asked(self, drawn: Drawn, name: str) -> None:
        """One drawn call that writes no rows."""
        table, odd = self.table, ANYTHING[name]()
        asked: dict[str, Callable[[], Any]] = {
            "resolve": lambda: table.resolve(odd),
            "resolve known": lambda: table.resolve("event-1"),
            "history": lambda: table.history(odd),
            "history known": lambda: table.history(limit=2),
            "rows": lambda: table.rows(odd),
            "rows known": lambda: table.rows({"id": [1]}),
            "committed writes": lambda: table.committed_writes(odd),
            "refresh": table.refresh,
            "checkpoint": lambda: table.checkpoint() if self.catalog is None else None,
            "sink mode": lambda: table.sink(odd, app_id="a"),
            "sink app": lambda: table.sink(app_id=odd),
            "sink schema_mode": lambda: table.sink(app_id="a", schema_mode=odd),
            "look": lambda: [self.ended(lambda name=name: getattr(table, name)) for name in LOOKS],
            "repr": lambda: repr(table),
            "pickle": lambda: pickle.loads(pickle.dumps(table)),
            "open": lambda: self.open(**{drawn.setting: odd}),
            "create": lambda: sw.create(self.name, odd, **self.where),
        }
        ending = self.ended(asked[drawn.verb], drawn.trouble)
        if drawn.verb == "sink app" and callable(ending):
            self.write(lambda: ending([row(0)], odd), None, adds())
        assert self.read() == self.known


@dataclass(frozen=True)
class Trouble:
    """What the world raises, at which of a call's steps, before or after it is performed."""

    step: int
    side: Side
    error: str


@dataclass(frozen=True)
class Drawn:
    """One call, with what is odd about it."""

    verb: str
    seed: int
    frame: str
    mode: Any
    setting: str
    trouble: Trouble | None

    def pick(self, number: int) -> str:
        """The name of what is odd; not drawn by Hypothesis, which likes to draw the same again and again."""
        odd = DATA if self.verb in ODD_ROWS else CONDITIONS if self.verb in ODD_CONDITIONS else ANYTHING
        return random.Random(f"{self.seed}/{number}").choice(sorted(odd))


# --- what a write may make of the table -----------------------------------------------------------------
Expected = Callable[[Counter[str], Counter[str], int | None], bool]
"""Whether the rows before and after a write fit; with the number that the receipt names, if there is one."""


def adds(*numbers: int) -> Expected:
    """These ids and no others are new; without numbers, as many as the receipt says."""

    def fits(before: Counter[str], after: Counter[str], rows: int | None) -> bool:
        new = after - before
        if numbers:
            return not before - after and new == Counter(map(repr, numbers))
        return not before - after and (rows is None or new.total() == rows)

    return fits


def anything(before: Counter[str], after: Counter[str], rows: int | None) -> bool:
    """Rows are changed by their keys, as an oracle of its own knows (tests/changes)."""
    return True


def replaces() -> Expected:
    """Only as many rows as the receipt says are there."""
    return lambda before, after, rows: rows is None or after.total() == rows


def removes(*numbers: int) -> Expected:
    """These ids are gone and no others; without numbers, some; and as many are new as the receipt says."""

    def fits(before: Counter[str], after: Counter[str], rows: int | None) -> bool:
        if numbers:
            return after == Counter({name: n for name, n in before.items() if name not in map(repr, numbers)})
        return rows is None or (after - before).total() <= rows

    return fits


# --- where the tables are ---------------------------------------------------------------------------------
KINDS = pytest.mark.parametrize("kind", ["delta", "iceberg"])


class Lab:
    """Makes benches, each for a table at a new place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.catalog = SqlCatalog("files", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())

    def bench(self, kind: str) -> Bench:
        name = Path(tempfile.mkdtemp(dir=self.folder)).name
        return Bench(str(self.folder / name / "t")) if kind == "delta" else Bench(f"db.{name}", self.catalog)
