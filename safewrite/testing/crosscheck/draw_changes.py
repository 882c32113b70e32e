"""Draws programs of change logs: batches late and again, values that changes lack, columns renamed, dropped and made again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from safewrite.testing.crosscheck import kinds
from safewrite.testing.crosscheck.changes import LACKS, OP
from safewrite.testing.crosscheck.machine import HOLDERS
from safewrite.testing.crosscheck.oracle import ID
from safewrite.testing.crosscheck.program import VECTORS, Column, Program, Row, Step, Where

_OTHERS = {
    "delta": ["compact", "checkpoint", "add column", "maintain"],
    "iceberg": ["rename column", "rename column", "swap columns", "swap columns", "make column again", "make column again",
                "drop column", "add column", "expire", "maintain"],
}  # fmt: skip
_WHO = {"delta": "deltalake", "iceberg": "pyiceberg"}
_MODES: dict[str, list[tuple[tuple[str, str], ...]]] = {
    "delta": [(), (VECTORS,)],
    "iceberg": [(), (("write.merge.mode", "merge-on-read"),)],
}
_LAST = 100
"""Sequences of a table's first changes; late ones are below."""


@dataclass
class _ChangesSketch:
    """What is known of the table while a program is drawn.  ``key`` and ``sequence`` are what these columns are called now."""

    columns: list[Column]
    key: str = "k"
    sequence: str = "lsn"
    used: set[int] = field(default_factory=set)
    events: list[Row] = field(default_factory=list)
    """Changes that came since columns changed."""
    numbers: int = 0
    added: int = 0

    def values(self) -> list[Column]:
        """The columns that are neither key nor sequence."""
        return [one for one in self.columns if one.name not in (ID, self.key, self.sequence)]

    def rename(self, old: str, new: str) -> None:
        self.columns = [Column(new, one.kind) if one.name == old else one for one in self.columns]
        self.key = new if self.key == old else self.key
        self.sequence = new if self.sequence == old else self.sequence


@st.composite
def change_programs(draw: st.DrawFn, format_: str, *, steps_max: int = 8) -> Program:
    """Programs that apply change logs to a table of a format."""
    columns = [Column(ID, "int64"), Column("k", "int64"), Column("lsn", "int64"), Column("j", "int64")]
    columns += [Column(name, draw(_kind(format_))) for name in ("v", "größe")[: draw(st.integers(1, 2))]]
    sketch = _ChangesSketch(list(columns))
    steps = [_batch(draw, sketch, "batch-0")]
    for number in range(1, draw(st.integers(2, steps_max))):
        match draw(st.integers(0, 11)):
            case 10 | 11:
                steps += _around_a_row(draw, sketch, f"batch-{number}")
            case 0 | 1 | 2 | 3:
                steps.append(_batch(draw, sketch, f"batch-{number}"))
            case 4:
                steps.append(_again(draw, sketch, f"batch-{number}"))
            case 5:
                steps.append(
                    Step("safewrite", "delete", where=Where("=", ID, draw(st.integers(1, sketch.numbers))))
                )
            case _:
                steps.append(_change_of_columns(draw, sketch, format_))
    steps.append(_batch(draw, sketch, "last"))
    return Program(
        format_,
        "safewrite",
        tuple(columns),
        tuple(steps),
        properties=draw(st.sampled_from(_MODES[format_])),
        version=draw(st.sampled_from([2, 3])) if format_ == "iceberg" else 2,
    )


def _kind(format_: str) -> st.SearchStrategy[str]:
    """Half of the columns are lists or maps of structs."""
    leaf = st.sampled_from(kinds.leaves(format_))
    nested = st.one_of(
        leaf.map(lambda kind: f"list<struct<a:{kind},b:int32>>"),
        leaf.map(lambda kind: f"map<string,struct<a:{kind}>>"),
        leaf.map(lambda kind: f"struct<l:list<struct<a:{kind}>>,n:int32>"),
        leaf.map(lambda kind: f"list<list<struct<a:{kind}>>>"),
    )
    return st.one_of(nested, kinds.kinds(format_))


def _batch(draw: st.DrawFn, sketch: _ChangesSketch, name: str) -> Step:
    """Changes of new and of known keys, in any order; sometimes by another column under the name of the key, or with a new column."""
    brings = (_new_column(draw, sketch),) if draw(st.integers(0, 4)) == 4 else ()
    events = [_event(draw, sketch) for _ in range(draw(st.integers(1, 4)))]
    sketch.events += events
    return _step(draw, sketch, events, name, brings)


def _step(
    draw: st.DrawFn,
    sketch: _ChangesSketch,
    events: Sequence[Row],
    name: str,
    brings: Sequence[tuple[str, str]] = (),
) -> Step:
    others = [one.name for one in sketch.values() if one.kind == "int64"]
    is_key = draw(st.integers(0, 7)) != 7 or not others
    key = sketch.key if is_key else draw(st.sampled_from(others))
    # A key is never NULL, whichever column it is.
    rows = tuple({**event, key: event[ID]} if not is_key else event for event in events)
    if not is_key:
        rows = tuple({**row, LACKS: [one for one in row[LACKS] if one != key]} for row in rows)
    holder = draw(st.sampled_from(["held", "held", *(one for one in HOLDERS if one != "early")]))
    detail = key, sketch.sequence, is_key, *brings
    return Step("safewrite", "change", rows, name=name, object_=holder, detail=detail)


def _new_column(draw: st.DrawFn, sketch: _ChangesSketch) -> tuple[str, str]:
    """A column that the table gets now."""
    sketch.events = []
    sketch.added += 1
    added = f"n{sketch.added}", draw(st.sampled_from(["int32", "string", "list<struct<a:int32>>"]))
    sketch.columns.append(Column(*added))
    return added


def _event(draw: st.DrawFn, sketch: _ChangesSketch) -> Row:
    known = sketch.numbers and draw(st.integers(0, 2))
    if not known:
        sketch.numbers += 1
    number = draw(st.integers(1, sketch.numbers)) if known else sketch.numbers
    late = draw(st.integers(0, 3)) == 0
    most = max(sketch.used, default=_LAST)
    at = (
        draw(st.integers(1, most).filter(lambda one: one not in sketch.used))
        if late
        else most + draw(st.integers(1, 9))
    )
    return _change(
        draw, sketch, (number, at), deletes=bool(known) and draw(st.integers(0, 4)) == 0, lacks=bool(known)
    )


def _change(
    draw: st.DrawFn, sketch: _ChangesSketch, at: tuple[int, int], *, deletes: bool = False, lacks: bool = True
) -> Row:
    """A change of a row at a sequence."""
    number, sequence = at
    sketch.used.add(sequence)
    event: dict[str, Any] = {
        ID: number,
        sketch.key: number * 10,
        sketch.sequence: sequence,
        OP: "u",
        LACKS: [],
    }
    if deletes:
        return event | {OP: "d"} | {one.name: None for one in sketch.values()}
    for column in sketch.values():
        event[column.name] = draw(kinds.values(column.kind))
        if lacks and draw(st.booleans()):
            event[column.name] = None
            event[LACKS].append(column.name)
    return event


def _around_a_row(draw: st.DrawFn, sketch: _ChangesSketch, name: str) -> list[Step]:
    """A row that carries values on; then late changes, from between it and its values, with newer ones, in any order."""
    number, first = draw(st.integers(1, sketch.numbers)), max(sketch.used) + 1
    row = first + draw(st.integers(3, 9))
    whole = [_change(draw, sketch, (number, first), lacks=False), _change(draw, sketch, (number, row))]
    step = _step(draw, sketch, whole, f"{name}-row")
    late = draw(st.sets(st.integers(first + 1, row - 1), min_size=1, max_size=2))
    newer = draw(st.sets(st.integers(row + 1, row + 9), min_size=1, max_size=2))
    around = [
        _change(draw, sketch, (number, at), deletes=draw(st.integers(0, 2)) == 0)
        for at in sorted(late | newer)
    ]
    again = draw(st.sampled_from([[], whole]))
    sketch.events += whole + around
    return [step, _step(draw, sketch, draw(st.permutations([*around, *again])), name)]


def _again(draw: st.DrawFn, sketch: _ChangesSketch, name: str) -> Step:
    """A change that came before, as it was or with another value under its sequence."""
    if not sketch.events:
        return _batch(draw, sketch, name)
    event = dict(draw(st.sampled_from(sketch.events)))
    column = draw(st.sampled_from(sketch.values()))
    if event[OP] == "u" and column.name not in event[LACKS] and draw(st.booleans()):
        event[column.name] = draw(kinds.values(column.kind))
    return Step("safewrite", "change", (event,), name=name, detail=(sketch.key, sketch.sequence, True))


def _change_of_columns(draw: st.DrawFn, sketch: _ChangesSketch, format_: str) -> Step:
    what = draw(st.sampled_from(_OTHERS[format_]))
    who = _WHO[format_]
    values = sketch.values()
    if what == "maintain":
        return Step("safewrite", what)
    if what in {"compact", "checkpoint", "expire"}:
        return Step(who, what)
    if what == "add column":
        return Step(who, what, detail=(_new_column(draw, sketch),))
    sketch.events = []
    sketch.added += 1
    match what:
        case "rename column":
            old = draw(st.sampled_from([one.name for one in sketch.columns if one.name != ID]))
            new = f"{old}{sketch.added}"
            sketch.rename(old, new)
            return Step(who, what, detail=(old, new))
        case "swap columns":
            pairs = [(a.name, b.name) for a in sketch.columns for b in sketch.columns
                     if a.kind == b.kind and a.name < b.name and ID not in (a.name, b.name)]  # fmt: skip
            one, other = draw(st.sampled_from(pairs))
            for old, new in ((one, "swapping"), (other, one), ("swapping", other)):
                sketch.rename(old, new)
            return Step(who, what, detail=(one, other))
    column = draw(st.sampled_from(values))
    if what == "drop column" and len(values) > 1:
        sketch.columns.remove(column)
        return Step(who, what, detail=(column.name,))
    sketch.columns = [*(one for one in sketch.columns if one != column), column]
    return Step(who, "make column again", detail=(column.name, column.kind))
