"""Computes statistics by which Delta readers skip files: never narrower than the truth (H7).

Source: Delta PROTOCOL.md, "Per-file Statistics".  A bound that can neither be exact nor rounded to the safe
side is left out: a missing bound costs a reader time, a wrong one costs it rows.  Few are left out, for
deltalake (1.6.6) takes a missing bound for NULL, and its PyArrow dataset then skips the file whatever is
asked of that column.  Only columns with a NaN remain (delta-io/delta-rs #1496).
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from safewrite.delta.log.indexing import Path
from safewrite.values import compute as pc
from safewrite.values.casts import min_max
from safewrite.values.types import NAIVE_TIMESTAMP, is_text

if TYPE_CHECKING:
    import pyarrow.parquet as pq

STRING_PREFIX_CHARS = 32
_MANY_TEXTS = 10_000
"""For fewer texts of a row group a second look at them costs less than the footer."""
_MAX_CHAR = "\U0010ffff"
_DECIMAL_DIGITS_MAX = 15  # more do not survive a reader that parses JSON numbers as doubles


@dataclass
class _Bounds:
    kind: pa.DataType
    nulls: int = 0
    low: Any = None
    high: Any = None
    usable: bool = True


@dataclass
class FileStats:
    """Gathers the statistics of one file from the tables written to it; ``indexed`` are the leaves that have any."""

    schema: pa.Schema
    indexed: Container[Path]
    rows: int = 0
    _bounds: dict[Path, _Bounds] = field(default_factory=dict)
    _texts: set[Path] = field(default_factory=set)
    """Columns of many texts, whose bounds the footer has: the writer has compared them all."""

    def update(self, table: pa.Table) -> None:
        """Add rows of ``schema``."""
        self.rows += table.num_rows
        for name, column in zip(table.schema.names, table.columns, strict=True):
            for path, leaf in _leaves((name,), column):
                if path in self.indexed and not self._is_in_footer(path, leaf):
                    self._add(path, leaf)

    def note_footer(self, body: bytes, footer: pq.FileMetaData) -> None:
        """Take the bounds of texts that the footer has; they are looked for in the rows where it does not tell them."""
        for path in self._texts:
            bounds = self._bounds[path] = _Bounds(self._bounds[path].kind)
            try:
                told = _told(footer, path[0])
            except UnicodeDecodeError:  # a text that is no UTF-8, as only other engines write them
                told, bounds.usable = None, False
            if told is None:
                import pyarrow.parquet as pq

                self._add(path, pq.read_table(pa.BufferReader(body), columns=[*path]).column(0))
                continue
            bounds.nulls = sum(nulls for nulls, _, _ in told)
            bounds.low = min((low for _, low, _ in told if low is not None), default=None)
            bounds.high = max((high for _, _, high in told if high is not None), default=None)

    def _is_in_footer(self, path: Path, leaf: pa.ChunkedArray) -> bool:
        """Whether the footer is to tell the bounds of a column."""
        if path not in self._texts:
            if len(leaf) < _MANY_TEXTS or not is_text(leaf.type) or len(path) > 1 or "." in path[0]:
                return False
            self._texts.add(path)
            self._bounds.setdefault(path, _Bounds(leaf.type))
        return True

    def _add(self, path: Path, leaf: pa.ChunkedArray) -> None:
        bounds = self._bounds.setdefault(path, _Bounds(leaf.type, usable=_ordered(leaf.type)))
        bounds.nulls += leaf.null_count
        if not bounds.usable or leaf.null_count == len(leaf):
            return
        if pa.types.is_floating(leaf.type) and pc.any(pc.is_nan(leaf)).as_py():
            bounds.usable = False  # H7: engines order NaN differently
            return
        if pa.types.is_timestamp(leaf.type):  # as UTC clocks: Python needs no time zone database then
            leaf = pc.cast(leaf, NAIVE_TIMESTAMP)
        span = min_max(leaf)
        if span is None:
            bounds.usable = False
            return
        bounds.low = span["min"] if bounds.low is None else min(bounds.low, span["min"])
        bounds.high = span["max"] if bounds.high is None else max(bounds.high, span["max"])

    def to_json(self) -> str:
        """The ``stats`` text of the add action."""
        low: dict[str, Any] = {}
        high: dict[str, Any] = {}
        nulls: dict[str, Any] = {}
        for path, bounds in self._bounds.items():
            _put(nulls, path, str(bounds.nulls))
            if not bounds.usable or bounds.low is None:
                continue
            least, most = _least(bounds.low, bounds.kind), _most(bounds.high, bounds.kind)
            if least is not None:
                _put(low, path, least)
            if most is not None:
                _put(high, path, most)
        return _render(
            {"numRecords": str(self.rows), "minValues": low, "maxValues": high, "nullCount": nulls}
        )


def _told(footer: pq.FileMetaData, name: str) -> list[tuple[int, str | None, str | None]] | None:
    """NULLs and bounds of a column in each row group; None if one lacks them, as where a text has more than four thousand bytes.

    Raises:
        UnicodeDecodeError: a bound is no UTF-8.
    """
    at = next(at for at in range(footer.num_columns) if footer.schema.column(at).path == name)
    found: list[tuple[int, str | None, str | None]] = []
    for number in range(footer.num_row_groups):
        column = footer.row_group(number).column(at)
        told = column.statistics
        if told is None or not told.has_null_count:
            return None
        if told.has_min_max:
            found.append((told.null_count, told.min, told.max))
        elif told.null_count == column.num_values:
            found.append((told.null_count, None, None))
        else:
            return None
    return found


def wide(stats: str) -> str:
    """The same statistics of a file that loses rows to a deletion vector: bounds still hold, and are no longer reached.

    Numbers keep their spelling.
    """
    read = json.loads(stats, parse_float=_Spelled, parse_int=_Spelled, parse_constant=_Spelled)
    return _render(_spelled(read | {"tightBounds": False}))


class _Spelled(str):
    """A number as it was written."""

    __slots__ = ()


def _spelled(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _spelled(part) for name, part in tree.items()}
    return str(tree) if isinstance(tree, _Spelled) else json.dumps(tree, ensure_ascii=False)


def _leaves(path: Path, column: pa.ChunkedArray) -> Iterator[tuple[Path, pa.ChunkedArray]]:
    """Columns without their structs; a NULL struct counts as a NULL in each of its leaves."""
    if not pa.types.is_struct(column.type):
        yield path, column
        return
    children = [chunk.flatten() for chunk in column.chunks]
    for i in range(column.type.num_fields):
        child = column.type.field(i)
        yield from _leaves(
            (*path, child.name), pa.chunked_array([parts[i] for parts in children], type=child.type)
        )


def _ordered(kind: pa.DataType) -> bool:
    """Whether bounds of this type are kept (not of binary, lists and maps); Spark has none of booleans, and ignores them."""
    return not (pa.types.is_nested(kind) or pa.types.is_binary(kind))


def _least(value: Any, kind: pa.DataType) -> str | None:
    """The lower bound as JSON, rounded down."""
    if isinstance(value, str):
        return json.dumps(value[:STRING_PREFIX_CHARS], ensure_ascii=False)
    if isinstance(value, dt.datetime):
        return _time(value, kind)
    if isinstance(value, decimal.Decimal):
        return _rounded(value, kind, decimal.ROUND_FLOOR)
    return _exact(-0.0 if isinstance(value, float) and value == 0 else value)


def _most(value: Any, kind: pa.DataType) -> str | None:
    """The upper bound as JSON, rounded up."""
    if isinstance(value, str):
        return _prefix_above(value)
    if isinstance(value, dt.datetime):
        over = value.microsecond % 1000
        try:
            return _time(value + dt.timedelta(microseconds=1000 - over) if over else value, kind)
        except (
            OverflowError
        ):  # the last millisecond of the year 9999: readers add back the one that a bound was cut by
            return _time(value, kind)
    if isinstance(value, decimal.Decimal):
        return _rounded(value, kind, decimal.ROUND_CEILING)
    return _exact(0.0 if isinstance(value, float) and value == 0 else value)


def _prefix_above(value: str) -> str | None:
    """A text of about 32 characters that sorts at or above ``value`` by code points."""
    if len(value) <= STRING_PREFIX_CHARS:
        return json.dumps(value, ensure_ascii=False)
    following = value[STRING_PREFIX_CHARS]
    if following == _MAX_CHAR:
        return None
    above = "\x7f" if following < "\x7f" else _MAX_CHAR
    return json.dumps(value[:STRING_PREFIX_CHARS] + above, ensure_ascii=False)


def _time(value: dt.datetime, kind: pa.DataType) -> str:
    clock = f"{value.hour:02}:{value.minute:02}:{value.second:02}.{value.microsecond // 1000:03}"
    return json.dumps(f"{value.date().isoformat()}T{clock}{'Z' if kind.tz else ''}")


def _rounded(value: decimal.Decimal, kind: pa.DataType, rounding: str) -> str | None:
    """A decimal with no more digits than a double keeps; None where the type has no such number."""
    with decimal.localcontext(prec=_DECIMAL_DIGITS_MAX, rounding=rounding) as context:
        found = context.plus(value)
    if found.adjusted() >= kind.precision - kind.scale:
        return None
    return format(found, "f")


def _exact(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else json.dumps("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, dt.date):
        return json.dumps(value.isoformat())
    return str(value)


def _put(tree: dict[str, Any], path: Path, text: str) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = text


def _render(tree: Any) -> str:
    """JSON of a tree whose leaves are JSON texts already (so that decimals keep their digits)."""
    if isinstance(tree, str):
        return tree
    inner = ",".join(f"{json.dumps(k, ensure_ascii=False)}:{_render(v)}" for k, v in tree.items())
    return "{" + inner + "}"
