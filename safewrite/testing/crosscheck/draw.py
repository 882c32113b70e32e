"""Draws programs by Hypothesis: one seed is one program, and a failing one is shrunk."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd
from hypothesis import strategies as st

from safewrite.testing.crosscheck import frames, kinds
from safewrite.testing.crosscheck.machine import HOLDERS
from safewrite.testing.crosscheck.oracle import ID
from safewrite.testing.crosscheck.program import VECTORS, Column, Program, Row, Step, Where
from safewrite.testing.crosscheck.sessions import SETTINGS

Format = Literal["delta", "iceberg"]

_NAMES = ("v", "größe", "order")
_OURS = {
    "append": 8,
    "overwrite": 2,
    "delete": 3,
    "merge": 1,
    "repeat": 2,
    "resolve": 1,
    "refresh": 1,
    "checkpoint": 1,
    "maintain": 2,
}
_DELTALAKE = {
    "append": 3,
    "delete": 1,
    "merge": 1,
    "compact": 1,
    "checkpoint": 1,
    "vacuum": 1,
    "add column": 2,
    "constrain": 2,
    "restore": 1,
    "recreate": 3,
    "odd action": 2,
}
_PYICEBERG = {
    "append": 3,
    "delete": 2,
    "upsert": 1,
    "add column": 2,
    "rename column": 2,
    "drop column": 2,
    "drop partition": 2,
    "add bucket": 1,
    "expire": 1,
    "rollback": 1,
    "upgrade": 3,
    "recreate": 2,
}
_MARKING = {**_DELTALAKE, "mark": 8}
"""On tables with deletion vectors, which deltalake makes and reads, and does not write."""
_FORGETFUL = (
    ("write.metadata.delete-after-commit.enabled", "true"),
    ("write.metadata.previous-versions-max", "1"),
)
_MARKED = (("write.delete.mode", "merge-on-read"), ("write.merge.mode", "merge-on-read"))


@dataclass
class _Sketch:
    """What is known of the table while a program is drawn."""

    columns: list[Column]
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    names: list[str | tuple[str, int]] = field(default_factory=list)
    epoch: int = 0
    spark: bool = False
    partitioned: list[str] = field(default_factory=list)
    """Columns by which the table is partitioned, or was."""
    seen: dict[str, list[Any]] = field(default_factory=dict)
    """Values that rows have, by column."""
    anew: bool = False
    """Whether the last step created the table again, or brought back what was rolled back."""
    used: int = 0

    def new_name(self) -> str:
        """A column that the table does not have; one that was made again may have fewer than before."""
        there = {one.name for one in self.columns}
        return next(name for at in itertools.count(len(there)) if (name := f"n{at}") not in there)

    def next_number(self) -> int:
        self.used = next(self.numbers)
        return self.used


@st.composite
def programs(
    draw: st.DrawFn,
    format_: Format,
    *,
    columns: Sequence[Column] | None = None,
    others: dict[str, dict[str, int]] | None = None,
    steps_max: int = 7,
) -> Program:
    """Programs of a format; ``columns`` gives a user's own, ``others`` the deeds of other engines, and how often."""
    theirs = others if others is not None else peers(format_)
    listed = (
        tuple(columns)
        if columns is not None
        else _columns(draw, format_, without="time" * ("spark" in theirs))
    )
    sketch = _Sketch(list(listed), spark="spark" in theirs)
    maker = draw(st.sampled_from(["safewrite", "safewrite", *(sorted(theirs) or ["safewrite"])]))
    partition_by = _partitions(draw, listed)
    sketch.partitioned = list(partition_by)
    version = draw(st.sampled_from([2, 2, 3, 1])) if format_ == "iceberg" else 2
    properties = _properties(draw, format_, version)
    marks = VECTORS in properties and "deltalake" in theirs
    if marks:
        theirs = {**theirs, "deltalake": _MARKING}
    count = draw(st.integers(1, steps_max))
    first = _marked_rows(draw, sketch) if marks else ()
    steps = (*first, *(_step(draw, sketch, theirs) for _ in range(count)), *_plot(draw, sketch, theirs))
    session = draw(st.sampled_from(SETTINGS)) if sketch.spark else ()
    return Program(format_, maker, listed, steps, partition_by, properties, version, session)


def peers(format_: Format) -> dict[str, dict[str, int]]:
    """The deeds of other engines on tables of a format, and how often."""
    return {"deltalake": _DELTALAKE} if format_ == "delta" else {"pyiceberg": _PYICEBERG}


def _columns(draw: st.DrawFn, format_: Format, *, without: str) -> tuple[Column, ...]:
    found = [Column(ID, "int64")]
    names = [*_NAMES[: draw(st.integers(1, 3))]]
    if draw(st.integers(0, 7)) == 7:
        names[0] = "w w"  # safewrite and Spark refuse it in Delta tables, deltalake does not
    return (*found, *(Column(name, draw(kinds.kinds(format_, without))) for name in names))


def _partitions(draw: st.DrawFn, columns: tuple[Column, ...]) -> tuple[str, ...]:
    if draw(st.booleans()):
        return ()
    plain = [column.name for column in columns if "<" not in column.kind and column.name != ID]
    return (draw(st.sampled_from(plain)),) if plain else ()


def _properties(draw: st.DrawFn, format_: Format, version: int) -> tuple[tuple[str, str], ...]:
    if format_ == "delta":
        return draw(st.sampled_from([(), (("delta.checkpointInterval", "2"),), (VECTORS,)]))
    # Where a table of version 1 forgets its metadata at once, nobody can tell what landed on it while it was empty.
    return draw(st.sampled_from([(), _FORGETFUL, _MARKED])) if version > 1 else ()


def _plot(draw: st.DrawFn, sketch: _Sketch, others: dict[str, dict[str, int]]) -> tuple[Step, ...]:
    """A few steps that belong together, which chance would seldom draw in this order."""
    match draw(st.integers(0, 5)):
        case 0:
            return _fine_times(draw, sketch)
        case 1 if "pyiceberg" in others and sketch.partitioned:
            return _left_over_partition(draw, sketch)
        case 2:
            name = f"key-{len(sketch.names)}"
            rows = _rows(draw, sketch, odd=False)
            return (
                Step("safewrite", "append", rows, name=name, object_="fresh"),
                Step("safewrite", "resolve", name=name, object_="early"),
            )
    return ()


def _marked_rows(draw: st.DrawFn, sketch: _Sketch) -> tuple[Step, ...]:
    """Rows of which one is marked, and others are deleted by a condition: few are marked too, many have the file written again."""
    rows = _rows(draw, sketch, odd=False, least=3)
    gone = tuple(row[ID] for row in rows[: draw(st.integers(1, 2))])
    return (
        Step("safewrite", "append", rows),
        Step("deltalake", "mark", detail=(-1,)),
        Step("safewrite", "delete", where=Where("in", ID, gone)),
    )


def _fine_times(draw: st.DrawFn, sketch: _Sketch) -> tuple[Step, ...]:
    """Rows, and a condition half a microsecond off one of them."""
    rows = _rows(draw, sketch, odd=False)
    times = [
        one.name for one in sketch.columns if one.kind in ("naive", "instant") and sketch.seen.get(one.name)
    ]
    if not times:
        return ()
    name = draw(st.sampled_from(times))
    where = Where(
        draw(st.sampled_from(["=", "<", ">="])), name, _finer(draw(st.sampled_from(sketch.seen[name])))
    )
    return Step("safewrite", "append", rows), Step("safewrite", "delete", where=where)


def _left_over_partition(draw: st.DrawFn, sketch: _Sketch) -> tuple[Step, ...]:
    """A partition field that is dropped, its column too, and rows that come afterwards."""
    name = sketch.partitioned[0]
    if all(column.name != name for column in sketch.columns):
        return ()
    sketch.columns = [column for column in sketch.columns if column.name != name]
    return (
        Step("pyiceberg", "drop partition", detail=(name,)),
        Step("pyiceberg", "drop column", detail=(name,)),
        Step("safewrite", "append", _rows(draw, sketch, odd=False)),
    )


def _step(draw: st.DrawFn, sketch: _Sketch, others: dict[str, dict[str, int]]) -> Step:
    anew, sketch.anew = sketch.anew, False
    if anew and draw(st.booleans()):  # a holder of the earlier table goes on at once
        return Step("safewrite", "repeat", detail=(0,), look=_where(draw, sketch, odd=False))
    who = draw(st.sampled_from(["safewrite", "safewrite", *sorted(others)]))
    verbs = others[who] if who != "safewrite" else _OURS
    what = draw(st.sampled_from([verb for verb, times in verbs.items() for _ in range(times)]))
    look = _where(draw, sketch, odd=False)
    if who == "safewrite":
        return _our_step(draw, sketch, what, look)
    return _their_step(draw, sketch, who, what, look)


# --- safewrite ------------------------------------------------------------------------------------------
def _our_step(draw: st.DrawFn, sketch: _Sketch, what: str, look: Where | None) -> Step:
    holder = draw(st.sampled_from(["held", "held", "held", *HOLDERS]))
    match what:
        case "repeat":
            return Step("safewrite", what, object_=holder, detail=(draw(st.integers(0, 20)),), look=look)
        case "resolve":
            name = draw(st.sampled_from(["never", *(one for one in sketch.names if isinstance(one, str))]))
            return Step("safewrite", what, name=name, object_=holder)
        case "refresh" | "checkpoint" | "maintain":
            return Step("safewrite", what, object_=holder)
    named = _name(draw, sketch)
    form = draw(st.sampled_from(["tuples", "tuples", "sql"]))
    if what == "delete":
        gone = _where(draw, sketch, odd=True)
        return Step("safewrite", what, where=gone, form=form, name=named, object_=holder, look=look)
    by = "spark" if sketch.spark and draw(st.integers(0, 2)) else draw(st.sampled_from(frames.ALL))
    added: tuple[tuple[str, str], ...] = ()
    if what == "merge":
        added = ((sketch.new_name(), draw(st.sampled_from(["int32", "string", "date"]))),)
        sketch.columns += [Column(*one) for one in added]
    # A merge may leave out fields of structs: they become NULL, as its documentation says.
    rows = _rows(draw, sketch, odd=by in frames.UNTYPED and what != "merge")
    where = _covering(draw, rows) if what == "overwrite" else None
    return Step("safewrite", what, rows, by, where, form, named, holder, added, look)


def _covering(draw: st.DrawFn, rows: tuple[Row, ...]) -> Where | None:
    """A condition that the new rows satisfy, as ``overwrite`` wants it."""
    if not rows or not draw(st.booleans()):
        return None
    return Where(">=", ID, min(row[ID] for row in rows) - draw(st.integers(0, 3)))


def _name(draw: st.DrawFn, sketch: _Sketch) -> str | tuple[str, int] | None:
    match draw(st.integers(0, 3)):
        case 0:
            return None
        case 1:
            sketch.epoch += 1
            return "app", sketch.epoch
        case _:
            name = f"key-{len(sketch.names)}"
            sketch.names.append(name)
            return name


def _rows(draw: st.DrawFn, sketch: _Sketch, *, odd: bool, least: int = 0) -> tuple[Row, ...]:
    count = draw(st.integers(max(least, 1) if not odd else 1, 4))
    rows: list[dict[str, Any]] = []
    for _ in range(count):
        row: dict[str, Any] = {ID: sketch.next_number()}
        for column in sketch.columns:
            if column.name != ID:
                row[column.name] = draw(kinds.values(column.kind))
                if row[column.name] is not None:
                    sketch.seen.setdefault(column.name, []).append(row[column.name])
        rows.append(row)
    if odd and draw(st.integers(0, 2)) == 0:
        _let_stray(draw, sketch, rows)
    return tuple(rows)


def _let_stray(draw: st.DrawFn, sketch: _Sketch, rows: list[dict[str, Any]]) -> None:
    """Put a value into a column that is of another type, or a struct that lacks a field."""
    column = draw(st.sampled_from(sketch.columns))
    row = rows[draw(st.integers(0, len(rows) - 1))]
    if column.kind in kinds.STRANGERS and column.name != ID:
        row[column.name] = draw(st.sampled_from(kinds.STRANGERS[column.kind]))
    elif column.kind.startswith("struct<") and isinstance(row.get(column.name), dict):
        row[column.name] = {"a": row[column.name]["a"]}


def _where(draw: st.DrawFn, sketch: _Sketch, *, odd: bool) -> Where:
    usable = [column for column in sketch.columns if column.kind in kinds.ORDERED]
    if odd:  # nobody's times are as fine as pandas'
        usable = [column for column in usable if column.kind in ("naive", "instant")] or usable
    parts = [
        _one_condition(draw, draw(st.sampled_from(usable)), sketch, odd=odd)
        for _ in range(draw(st.integers(1, 2)))
    ]
    if len(parts) == 1:
        return parts[0] if draw(st.integers(0, 4)) else Where("not", parts=tuple(parts))
    return Where(draw(st.sampled_from(["and", "or"])), parts=tuple(parts))


def _one_condition(draw: st.DrawFn, column: Column, sketch: _Sketch, *, odd: bool) -> Where:
    if odd and column.kind in ("naive", "instant") and draw(st.booleans()):
        return Where(
            draw(st.sampled_from(["=", "<", "<=", ">", ">="])),
            column.name,
            _finer(_literal(draw, column, sketch)),
        )
    op = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "in", "is null"]))
    value = _literal(draw, column, sketch)
    if op == "is null":
        return Where(op, column.name)
    if op == "in":
        return Where(op, column.name, (value, _literal(draw, column, sketch)))
    return Where(op, column.name, value)


def _literal(draw: st.DrawFn, column: Column, sketch: _Sketch) -> Any:
    if column.name == ID:
        return draw(st.integers(0, sketch.used + 1))
    seen = sketch.seen.get(column.name)
    return draw(st.sampled_from(seen)) if seen and draw(st.booleans()) else draw(kinds.present(column.kind))


def _finer(value: dt.datetime) -> Any:
    """Half a microsecond later, which pandas can express in the years that it counts in nanoseconds."""
    if not 1680 < value.year < 2260:
        return pd.Timestamp(1500, tz=value.tzinfo)
    return pd.Timestamp(value) + pd.Timedelta(500, "ns")


# --- others ---------------------------------------------------------------------------------------------
def _their_step(draw: st.DrawFn, sketch: _Sketch, who: str, what: str, look: Where | None) -> Step:
    match what:
        case "append" | "merge" | "upsert":
            rows = _rows(draw, sketch, odd=False, least=1)
            if what != "append" and sketch.used > 3:
                rows = ({**rows[0], ID: draw(st.integers(1, sketch.used))},)
            return Step(who, what, rows, look=look)
        case "pick":
            sketch.anew = True
            return Step(who, what, _rows(draw, sketch, odd=False, least=1), look=look)
        case "delete" | "mark":
            numbers = draw(st.lists(st.integers(1, sketch.used + 1), min_size=1, max_size=2, unique=True))
            return Step(who, what, detail=tuple(numbers), look=look)
        case "add column":
            added = ((sketch.new_name(), draw(st.sampled_from(["int32", "string", "date"]))),)
            sketch.columns += [Column(*one) for one in added]
            return Step(who, what, detail=added, look=look)
        case "constrain":
            return Step(who, what, detail=(sketch.used + draw(st.integers(1, 3)),), look=look)
        case "restore" | "rollback":
            return Step(who, what, detail=(draw(st.integers(0, 9)),), look=look)
        case "upgrade":
            return Step(who, what, detail=(draw(st.sampled_from([2, 3])),), look=look)
        case "odd action":
            return Step(who, what, detail=(draw(st.sampled_from(["txn", "domain"])),))
        case "recreate":
            return _recreation(draw, sketch, who)
        case "drop partition" if not sketch.partitioned:
            return Step(who, "append", _rows(draw, sketch, odd=False, least=1), look=look)
        case "rename column" | "drop column" | "drop partition" | "add bucket":
            return _change_of_columns(draw, sketch, who, what)
    return Step(who, what, look=look)


def _recreation(draw: st.DrawFn, sketch: _Sketch, who: str) -> Step:
    columns = [Column(ID, "int64")]
    columns += [one for one in sketch.columns if one.name != ID and draw(st.booleans())]
    columns += [Column("city", "string")] if draw(st.booleans()) else []
    sketch.columns, sketch.anew = columns, True
    versions = draw(st.integers(1, 4))
    rows = _rows(draw, sketch, odd=False, least=1)
    listed = tuple((one.name, one.kind) for one in columns)
    return Step(who, "recreate", rows, detail=(listed, versions))


def _change_of_columns(draw: st.DrawFn, sketch: _Sketch, who: str, what: str) -> Step:
    names = [column.name for column in sketch.columns if column.name != ID]
    if not names:
        return Step(who, "append", _rows(draw, sketch, odd=False, least=1))
    once = [name for name in sketch.partitioned if name in names]
    name = draw(st.sampled_from(once or names)) if what.startswith("drop") else draw(st.sampled_from(names))
    match what:
        case "rename column":
            new = f"{name}2"
            sketch.columns = [Column(new, one.kind) if one.name == name else one for one in sketch.columns]
            return Step(who, what, detail=(name, new))
        case "drop column":
            sketch.columns = [one for one in sketch.columns if one.name != name]
    return Step(who, what, detail=(name,))
