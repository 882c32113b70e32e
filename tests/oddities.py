"""What a caller may hand over that is no table, no condition and no setting; each is made anew when it is asked for."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import io
import pathlib
import types
import uuid
from collections import OrderedDict, UserDict, UserList, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from pydantic import BaseModel

Factory = Callable[[], Any]


class Wordless(Exception):  # noqa: N818 - it says what it is
    """An error whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def _raises(*_: object, **__: object) -> Any:
    raise Wordless


SPECIAL = [
    "__repr__",
    "__str__",
    "__eq__",
    "__ne__",
    "__hash__",
    "__len__",
    "__iter__",
    "__bool__",
    "__index__",
    "__int__",
    "__float__",
    "__contains__",
    "__getitem__",
    "__arrow_c_stream__",
    "__arrow_c_array__",
    "__dataframe__",
    "__fspath__",
    "__format__",
    "__next__",
    "__reduce_ex__",
]


def raising(*names: str, base: type = object) -> Any:
    """An object of which the named methods raise an error without a text."""
    return type("Odd", (base,), dict.fromkeys(names, _raises))()


class _NoClass:
    """Asked for its class, it raises: so does ``isinstance``."""

    @property
    def __class__(self) -> type:  # type: ignore[override]
        raise Wordless

    __repr__ = _raises


class _NoAttributes:
    def __getattribute__(self, name: str) -> Any:
        raise Wordless


class _OddMapping(Mapping[str, Any]):
    """A dict whose values cannot be had."""

    def __getitem__(self, key: str) -> Any:
        raise Wordless

    def __iter__(self) -> Iterator[str]:
        return iter(["id"])

    def __len__(self) -> int:
        return 1


class _OddZone(dt.tzinfo):
    utcoffset = dst = tzname = _raises


class _Text(str):
    """A text that cannot be worked with."""

    strip = encode = partition = casefold = __eq__ = __repr__ = __str__ = __format__ = _raises
    __hash__ = str.__hash__


class _Colour(enum.Enum):
    RED = 1


class _Word(str, enum.Enum):  # noqa: UP042 - unlike a StrEnum it is formatted by its name
    ID = "id"


@dataclasses.dataclass
class _Row:
    id: int = 1


class _Model(BaseModel):
    id: int = 1


class _Named(NamedTuple):
    id: int = 1


def _failing_rows() -> Iterator[dict[str, int]]:
    yield {"id": 1}
    raise Wordless


def _failing_reader() -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [1]})
        raise RuntimeError("torn")

    return pa.RecordBatchReader.from_batches(pa.schema({"id": pa.int64()}), batches())


class _Stream:
    """Exports an Arrow stream, the first ``times`` times."""

    def __init__(self, times: int) -> None:
        self._left = times

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        self._left -= 1
        if self._left < 0:
            raise Wordless
        return pa.table({"id": [1]}).__arrow_c_stream__(requested_schema)


def _itself() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


def _own_dict() -> dict[str, Any]:
    made: dict[str, Any] = {}
    made["id"] = made
    return made


def deep(depth: int, leaf: Any = 1, *, as_dict: bool = False) -> Any:
    """A value inside so many lists or dicts."""
    for _ in range(depth):
        leaf = {"a": leaf} if as_dict else [leaf]
    return leaf


def _object_array(*values: Any) -> Any:
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made


def _zoneless_module() -> Any:
    return type("DataFrame", (), {"__module__": None})()


ANYTHING: dict[str, Factory] = {
    "None": lambda: None,
    "not implemented": lambda: NotImplemented,
    "ellipsis": lambda: ...,
    "True": lambda: True,
    "int": lambda: 5,
    "negative": lambda: -1,
    "zero": lambda: 0,
    "huge int": lambda: 10**5000,
    "beyond int64": lambda: 2**63,
    "NaN": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "complex": lambda: 1j,
    "text": lambda: "id",
    "empty text": lambda: "",
    "surrogate": lambda: "a\ud800",
    "NUL": lambda: "a\0b",
    "long text": lambda: "x" * 5000,
    "odd text": lambda: _Text("id"),
    "word": lambda: _Word.ID,
    "bytes": lambda: b"id",
    "bytearray": lambda: bytearray(b"id"),
    "memoryview": lambda: memoryview(b"id"),
    "list of nothing": list,
    "list of None": lambda: [None],
    "list of texts": lambda: ["id"],
    "list in itself": _itself,
    "dict in itself": _own_dict,
    "deep list": lambda: deep(3000),
    "deep dict": lambda: deep(3000, as_dict=True),
    "tuple": lambda: ("id", "=", 1),
    "empty tuple": tuple,
    "empty dict": dict,
    "dict of None": lambda: {"id": None},
    "dict of odd": lambda: {"id": raising("__repr__", "__str__")},
    "dict by odd": lambda: {raising("__repr__", "__str__"): "x"},
    "dict by int": lambda: {5: "x"},
    "set": lambda: {"id"},
    "frozenset": lambda: frozenset({1}),
    "range": lambda: range(3),
    "deque": lambda: deque([{"id": 1}]),
    "generator": lambda: (row for row in [{"id": 1}]),
    "failing generator": _failing_rows,
    "iterator": lambda: iter([{"id": 1}]),
    "class": lambda: int,
    "function": lambda: deep,
    "module": lambda: types,
    "object": object,
    "namespace": lambda: types.SimpleNamespace(id=1),
    "mapping proxy": lambda: types.MappingProxyType({"id": [1]}),
    "user dict": lambda: UserDict({"id": raising("__len__")}),
    "user list": lambda: UserList([{"id": 1}]),
    "ordered dict": lambda: OrderedDict(id=[object()]),
    "odd mapping": _OddMapping,
    "enum": lambda: _Colour.RED,
    "dataclass": _Row,
    "model": _Model,
    "named tuple": _Named,
    "decimal": lambda: decimal.Decimal("1e999999"),
    "signalling NaN": lambda: decimal.Decimal("sNaN"),
    "fraction": lambda: fractions.Fraction(1, 3),
    "uuid": lambda: uuid.UUID(int=5),
    "path": lambda: pathlib.PurePosixPath("a"),
    "file": io.BytesIO,
    "error": lambda: ValueError("x"),
    "wordless": Wordless,
    "date": lambda: dt.date(2026, 11, 21),
    "odd datetime": lambda: dt.datetime(2026, 11, 21, tzinfo=_OddZone()),
    "timedelta": lambda: dt.timedelta(1),
    "numpy scalar": lambda: np.float16(1),
    "numpy array": lambda: np.array([1, 2]),
    "numpy matrix": lambda: np.zeros((2, 2)),
    "numpy of no dimensions": lambda: np.array(5),
    "numpy records": lambda: np.array([(1, 2.0)], dtype=[("id", "i8"), ("x", "f8")]),
    "numpy objects": lambda: _object_array(raising("__repr__"), [1]),
    "series": lambda: pd.Series([1, 2], name="id"),
    "polars series": lambda: pl.Series("id", [1]),
    "arrow array": lambda: pa.array([1]),
    "arrow scalar": lambda: pa.scalar(1),
    "arrow schema": lambda: pa.schema({"id": pa.int64()}),
    "no class": _NoClass,
    "no attributes": _NoAttributes,
    "no module": _zoneless_module,
    "all raises": lambda: raising(*SPECIAL),
    **{name: lambda name=name: raising(name) for name in SPECIAL},
    "odd list": lambda: raising("__iter__", "__len__", "__repr__", "__bool__", base=list),
    "odd dict": lambda: raising("__iter__", "items", "keys", "__repr__", "__bool__", base=dict),
    "odd tuple": lambda: raising("__iter__", "__len__", "__repr__", base=tuple),
    "odd int": lambda: raising(
        "__index__", "__lt__", "__repr__", "__int__", "__float__", "__ge__", "__gt__", base=int
    ),
    "odd float": lambda: raising("__float__", "__repr__", "__gt__", "__lt__", base=float),
}
"""Values of any type at all."""


def _cell(value: Factory) -> Factory:
    return lambda: [{"id": value()}]


def _beside(value: Factory) -> Factory:
    """A sound column beside one of these values."""
    return lambda: {"id": [1], "x": [value()]}


FRAMES: dict[str, Factory] = {
    "pandas": lambda: pd.DataFrame({"id": [1]}),
    "pandas twice": lambda: pd.DataFrame([[1, 2]], columns=["id", "id"]),
    "pandas cases": lambda: pd.DataFrame([[1, 2]], columns=["id", "ID"]),
    "pandas levels": lambda: pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("id", "x")])),
    "pandas numbered": lambda: pd.DataFrame([[1]]),
    "pandas odd name": lambda: pd.DataFrame({raising("__repr__", "__str__"): [1]}),
    "pandas no name": lambda: pd.DataFrame({None: [1]}),
    "pandas NaN name": lambda: pd.DataFrame({float("nan"): [1]}),
    "pandas date name": lambda: pd.DataFrame({dt.date(2026, 1, 1): [1]}),
    "pandas indexed": lambda: pd.DataFrame({"id": [1]}).set_index("id"),
    "pandas odd index": lambda: pd.DataFrame({"id": [1]}, index=pd.Index([1], name=("a", 1))),
    "pandas index levels": lambda: pd.DataFrame({"id": [1], "x": [1]}).set_index(["id", "x"]),
    "pandas none": pd.DataFrame,
    "pandas rows alone": lambda: pd.DataFrame(index=[1, 2]),
    "pandas no rows": lambda: pd.DataFrame({"id": []}),
    "pandas period": lambda: pd.DataFrame({"id": pd.period_range("2026", periods=1, freq="M")}),
    "pandas interval": lambda: pd.DataFrame({"id": pd.interval_range(0, 1)}),
    "pandas complex": lambda: pd.DataFrame({"id": [1j]}),
    "pandas timedelta": lambda: pd.DataFrame({"id": [pd.Timedelta(1)]}),
    "pandas sparse": lambda: pd.DataFrame({"id": pd.arrays.SparseArray([1])}),
    "pandas of categories": lambda: pd.DataFrame({"id": pd.Categorical([(1, 2), _Colour.RED])}),
    "pandas of frames": lambda: pd.DataFrame({"id": [pd.DataFrame({"a": [1]})]}),
    "pandas of series": lambda: pd.DataFrame({"id": [pd.Series([1])]}),
    "pandas NaT": lambda: pd.DataFrame({"id": [pd.NaT]}),
    "pandas old time": lambda: pd.DataFrame({"id": [pd.Timestamp.min]}),
    "pandas subclass": lambda: type("DataFrame", (pd.DataFrame,), {})({"id": [1]}),
    "polars": lambda: pl.DataFrame({"id": [1]}),
    "polars lazy": lambda: pl.LazyFrame({"id": [1]}),
    "polars lazy without a column": lambda: pl.LazyFrame({"id": [1]}).select("nope"),
    "polars lazy that raises": lambda: pl.LazyFrame({"id": [1]}).map_batches(_raises),
    "polars lazy of no file": lambda: pl.scan_parquet("/nowhere/at/all.parquet"),
    "polars objects": lambda: pl.DataFrame({"id": [object()]}),
    "polars duration": lambda: pl.DataFrame({"id": [dt.timedelta(1)]}),
    "polars int128": lambda: pl.DataFrame({"id": pl.Series([1], dtype=pl.Int128)}),
    "polars none": pl.DataFrame,
    "polars group": lambda: pl.DataFrame({"id": [1]}).group_by("id"),
    "arrow": lambda: pa.table({"id": [1]}),
    "arrow twice": lambda: pa.table([[1], [2]], names=["id", "id"]),
    "arrow none": lambda: pa.table({}),
    "arrow no rows": lambda: pa.table({"id": pa.array([], pa.int64())}),
    "arrow null": lambda: pa.table({"id": pa.nulls(1)}),
    "arrow odd name": lambda: pa.table({"a\0b": [1]}),
    "arrow empty name": lambda: pa.table({"": [1]}),
    "arrow union": lambda: pa.table({"id": pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])])}),
    "arrow list view": lambda: pa.table({"id": pa.array([[1]], pa.list_view(pa.int64()))}),
    "arrow duration": lambda: pa.table({"id": pa.array([1], pa.duration("us"))}),
    "arrow interval": lambda: pa.table({"id": pa.array([pa.MonthDayNano([1, 1, 1])])}),
    "arrow decimal256": lambda: pa.table({"id": pa.array([decimal.Decimal(1)], pa.decimal256(60, 0))}),
    "arrow half": lambda: pa.table({"id": pa.array([np.float16(1)])}),
    "arrow odd zone": lambda: pa.table({"id": pa.array([1], pa.timestamp("us", tz="Mars/Base"))}),
    "arrow far time": lambda: pa.table({"id": pa.array([2**62], pa.timestamp("s"))}),
    "arrow not valid text": lambda: pa.table({"id": pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.array([0, 1], "i4")), pa.py_buffer(b"\xff")])}),
    "arrow torn dictionary": lambda: pa.table({"id": pa.DictionaryArray.from_arrays(pa.array([5], pa.int8()), pa.array(["a"]), safe=False)}),

    "arrow deep": lambda: pa.table({"id": pa.array([None], deep_type(1500))}),
    "arrow empty struct": lambda: pa.table({"id": pa.array([{}], pa.struct([]))}),
    "reader": lambda: pa.table({"id": [1]}).to_reader(),
    "failing reader": _failing_reader,
    "batches": lambda: [pa.record_batch({"id": [1]}), pa.record_batch({"x": [1]})],
    "stream for ever": lambda: _Stream(99),
    "stream once": lambda: _Stream(1),
    "stream never": lambda: _Stream(0),
    "ragged": lambda: [{"id": 1}, {"x": 2}],
    "lengths": lambda: {"id": [1, 2], "x": [1]},
    "dict of scalars": lambda: {"id": 1},
    "dict of series": lambda: {"id": pd.Series([1]), "x": pd.Series([1], index=[7])},
    "odd length": lambda: {"id": raising("__len__", "__repr__")},
    "odd keys": lambda: [{raising("__repr__", "__str__"): 1}],
    "keys in dicts": lambda: [{"id": 1, "x": {5: 1, "5": 2}}],
    "odd keys in dicts": lambda: [{"id": 1, "x": {raising("__repr__"): 1}}],
    "odd rows": lambda: [_OddMapping()],
    "mixed": lambda: [{"id": 1}, {"id": "a"}],
    "mixed times": lambda: [{"id": pd.Timestamp(0).to_pydatetime()}, {"id": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}],
    "decimals": lambda: [{"id": decimal.Decimal("1e-30")}, {"id": decimal.Decimal("1e30")}],
    "pairs": lambda: [("id", 1)],
    "models": lambda: [_Model()],
    "dataclasses": lambda: [_Row()],
}  # fmt: skip


def deep_type(depth: int) -> pa.DataType:
    """Lists in lists, so many times."""
    made: pa.DataType = pa.int64()
    for _ in range(depth):
        made = pa.list_(made)
    return made


DATA: dict[str, Factory] = {
    **{f"data: {name}": make for name, make in (ANYTHING | FRAMES).items()},
    **{f"cell: {name}": _cell(make) for name, make in ANYTHING.items()},
    **{f"beside: {name}": _beside(make) for name, make in ANYTHING.items()},
    **{f"inside: {name}": _cell(lambda make=make: [{"a": make()}]) for name, make in ANYTHING.items()},
}
"""What may be given as rows."""

CONDITIONS: dict[str, Factory] = {
    **{f"where: {name}": make for name, make in ANYTHING.items()},
    **{f"value: {name}": lambda make=make: [("id", "=", make())] for name, make in ANYTHING.items()},
    **{f"values: {name}": lambda make=make: [("id", "in", make())] for name, make in ANYTHING.items()},
    **{f"in: {name}": lambda make=make: [("id", "in", [make()])] for name, make in ANYTHING.items()},
    **{f"date: {name}": lambda make=make: [("day", "=", make())] for name, make in ANYTHING.items()},
    **{f"time: {name}": lambda make=make: [("ts", "<", make())] for name, make in ANYTHING.items()},
    **{f"amount: {name}": lambda make=make: [("amount", ">", make())] for name, make in ANYTHING.items()},
    **{f"text: {name}": lambda make=make: [("name", "!=", make())] for name, make in ANYTHING.items()},
    **{f"ratio: {name}": lambda make=make: [("ratio", "!=", make())] for name, make in ANYTHING.items()},
    **{f"op: {name}": lambda make=make: [("id", make(), 1)] for name, make in ANYTHING.items()},
    **{f"column: {name}": lambda make=make: [(make(), "=", 1)] for name, make in ANYTHING.items()},
    **{
        f"sql: {text[:40]}": lambda text=text: text
        for text in (
            "", " ", ";", "id", "id =", "= 1", "id = 1; id = 2", "nope = 1", "id = 'a'", "id = id", "id LIKE 'a'", "id IN ()",
            "id IN (SELECT 1)", "id IN (1, NULL)", "id = NULL", "id = 1e400", "id = 1.5.5", "id = 0x10", "id = ?", "id = :x",
            "EXISTS (SELECT 1)", "SELECT 1", "DROP TABLE t", "id = 1 -- ", "id = 1 /* ", "'", '"', "((((", "))))", "\0",
            "id = '\ud800'", "name = '\ud800'", "a\ud800 = 1", "name = '\0'", "CASE WHEN id = 1 THEN TRUE END", "CAST(id AS TEXT) = '1'",
            "day = DATE 'x'", "day = DATE '2026-02-30'", "ts = TIMESTAMP '99999-01-01'", "day = DATE '٢٠٢٦-01-01'", "id = ١", "id = ²",
            "inner.a = 1", "id BETWEEN 5 AND 1", "id BETWEEN 'a' AND 'b'", "NOT id", "TRUE", "FALSE", "NULL", "1 = 1",
            "id = " + "9" * 5000, "amount = " + "9" * 5000, "ratio = " + "9" * 5000, "amount = 1e999999999999999999999", "ratio = 1e999999",
            "id = -9223372036854775809", "NOT " * 3000 + "TRUE", "(" * 3000 + "TRUE" + ")" * 3000, " AND ".join(["id = 1"] * 5000),
            " OR ".join(["id = 77"] * 400), "NOT (" * 150 + "id = 77" + ")" * 150, "id IN (" + ",".join(map(str, range(1000, 1300))) + ")",
        )
    },
    "pairs": lambda: [("id", "=")],
    "quadruples": lambda: [("id", "=", 1, 1)],
    "two levels": lambda: [[("id", "=", 77)], [("name", "=", None)]],
    "three levels": lambda: [[[("id", "=", 77)]]],
    "mixed levels": lambda: [("id", "=", 77), [("id", "=", 77)]],
    "many": lambda: [("id", "!=", n) for n in range(200)],
    "many in": lambda: [("id", "in", list(range(1000, 1500)))],
}  # fmt: skip
"""What may be given as ``where=``."""
