"""Infers Arrow types and arrays of plain Python objects where pyarrow's inference would alter values.

Left to itself pyarrow truncates a ``datetime`` to a date when the first value is a date, and reads a naive
time as UTC next to an aware one.  It also drops the nanoseconds of a ``pandas.Timestamp``, and dict keys that
a given struct type does not have (H1, H4).  So the Python types are looked at first.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safewrite.errors import InvalidInputError, WouldAlterError
from safewrite.text.rendering import said, shown
from safewrite.values.limits import DECIMAL_DIGITS_MAX, YEARS
from safewrite.values.types import check_names, without_uuids

Values: TypeAlias = Sequence[Any] | npt.NDArray[Any]

_MISSING_NAMES = ("NAType", "NaTType")
_INT_BITS = 128
"""38 decimal digits, the most that a column holds, have no more bits; far greater numbers have no text in Python."""
_SIMPLE: tuple[tuple[Any, str], ...] = (
    ((bool, np.bool_), "bool"),
    (str, "str"),
    ((bytes, bytearray), "bytes"),
    (uuid.UUID, "uuid"),
)
"""Types whose every value is one of a column's type, with their names here."""


def is_missing(value: object) -> bool:
    """Whether a value is None, pandas.NA or NaT (NaN is a number, and not missing by itself)."""
    if value is None or type(value).__name__ in _MISSING_NAMES:
        return True
    return isinstance(value, np.datetime64) and bool(np.isnat(value))


def is_nan(value: object) -> bool:
    """Whether a value is the float NaN, of Python or numpy."""
    return isinstance(value, (float, np.floating)) and math.isnan(value)


def no_nan(holder: str) -> str:
    """Why NaN is refused where ``holder`` is what would have to hold it."""
    return (
        f"NaN is a number, and {holder} has no NaN; whether NULL is meant cannot be told. Nothing was written. Write None "
        "where NULL is meant (pandas: frame.convert_dtypes(), or a nullable dtype such as 'Int64')."
    )


@dataclass
class ValueShape:
    """The kinds of Python values in one column (or one nested place).

    ``nan_marks_missing``: the values are cells of a pandas column of dtype ``object``, where pandas itself takes NaN
    for a missing value.
    """

    where: str
    hint: pa.DataType | None = None
    nan_marks_missing: bool = False
    kinds: set[str] = field(default_factory=set)
    has_nan: bool = False
    nanoseconds: bool = False
    marked: bool = False
    beyond_int64: bool = False
    numpy_scalars: bool = False
    digits: int = 0
    scale: int = 0
    children: dict[str, ValueShape] = field(default_factory=dict)
    _dicts: int = 0
    _keys_seen: dict[str, int] = field(default_factory=dict)

    def look(self, values: Iterable[object]) -> None:
        """Take note of ``values``; may be called again with more of them."""
        if isinstance(values, (list, np.ndarray)):
            types = set(map(type, values))
            if types <= {str, type(None)}:  # the common case, without a Python loop
                self.kinds |= {"str"} if str in types else set()
                return
        for value in values:
            if not is_missing(value):
                self._look_at(value)
            elif value is not None:
                self.marked = True

    def _look_at(self, value: Any) -> None:
        simple = next((kind for types, kind in _SIMPLE if isinstance(value, types)), None)
        if simple is not None:
            self.kinds.add(simple)
        elif isinstance(value, int) or (isinstance(value, np.integer) and value.dtype.kind in "iu"):
            self._int(int(value))
        elif isinstance(value, (float, np.floating)):
            self._float(value)
        elif isinstance(value, np.datetime64):
            self.numpy_scalars = True
            self._look_at(_moment(value, self.where))
        elif isinstance(value, decimal.Decimal):
            self._decimal(value)
        elif isinstance(value, dt.datetime):
            self._datetime(value)
        elif isinstance(value, (dt.date, dt.time)):
            self._date_or_time(value)
        elif isinstance(value, Mapping):
            self._mapping(value)
        elif isinstance(value, (list, tuple, np.ndarray)):
            self._sequence(value)
        else:
            name = f"{type(value).__module__}.{type(value).__qualname__}"
            raise InvalidInputError(
                f"Column {self.where!r} holds a {name}, which has no table type. Nothing was written. "
                "Convert it to str, int, float, Decimal, bool, bytes, date, datetime, time, list or dict."
            )

    def _int(self, value: int) -> None:
        self.kinds.add("int")
        if value.bit_length() > _INT_BITS:
            raise InvalidInputError(
                f"Column {self.where!r} holds a whole number of {value.bit_length()} bits; tables hold {DECIMAL_DIGITS_MAX} decimal digits. "
                "Nothing was written. Write it as a text."
            )
        self.digits = max(self.digits, len(str(abs(value))))
        self.beyond_int64 = self.beyond_int64 or not -(2**63) <= value < 2**63

    def _float(self, value: Any) -> None:
        if math.isnan(value):
            self.has_nan = True
            return
        if float(value) != value:
            raise InvalidInputError(
                f"Column {self.where!r} holds {shown(value)}, which is no float of 64 bits. Nothing was written. Round it "
                "yourself (float(value)), or write it as a Decimal or a text."
            )
        self.kinds.add("float")

    def _decimal(self, value: decimal.Decimal) -> None:
        exponent = value.as_tuple().exponent
        if not isinstance(exponent, int):
            raise InvalidInputError(
                f"Column {self.where!r} holds {shown(value)}; a decimal column has no NaN and no "
                "infinity. Nothing was written. Write None where NULL is meant."
            )
        self.kinds.add("decimal")
        self.scale = max(self.scale, -exponent)
        self.digits = max(self.digits, len(value.as_tuple().digits) + exponent, 1)

    def _datetime(self, value: dt.datetime) -> None:
        self.kinds.add("naive" if value.tzinfo is None or value.utcoffset() is None else "aware")
        self.nanoseconds = self.nanoseconds or getattr(value, "nanosecond", 0) != 0

    def _date_or_time(self, value: dt.date | dt.time) -> None:
        if isinstance(value, dt.time) and value.tzinfo is not None:
            raise InvalidInputError(
                f"Column {self.where!r} holds the time of day {shown(value)} with a zone, which tables do not keep. "
                "Nothing was written. Drop the zone (value.replace(tzinfo=None)), or write datetimes."
            )
        self.kinds.add("time" if isinstance(value, dt.time) else "date")

    def _mapping(self, value: Mapping[Any, Any]) -> None:
        if self.hint is not None and pa.types.is_map(self.hint):
            self.kinds.add("map")
            self.child("key", self.hint.key_type).look(value.keys())
            self.child("value", self.hint.item_type).look(value.values())
            return
        self.kinds.add("struct")
        self._dicts += 1
        for key, inner in value.items():
            name = key if isinstance(key, str) else shown(key)
            if not isinstance(key, str):
                check_names([key], where=f"a dict in column {self.where!r}")
            self._keys_seen[name] = self._keys_seen.get(name, 0) + 1
            self.child(name, _struct_hint(self.hint, name)).look((inner,))

    def _sequence(self, value: Values) -> None:
        hint = self.hint
        if isinstance(value, np.ndarray) and value.ndim == 0:
            raise InvalidInputError(
                f"Column {self.where!r} holds a numpy array without dimensions, {shown(value)}. Nothing was written. "
                "Write the value itself (array.item()), or a list."
            )
        if hint is not None and pa.types.is_map(hint) and not isinstance(value, np.ndarray):
            self.kinds.add("map")
            for pair in value:
                if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                    raise InvalidInputError(
                        f"Column {self.where!r} is a map. Nothing was written. Write dicts or lists of pairs."
                    )
            self.child("key", hint.key_type).look(pair[0] for pair in value)
            self.child("value", hint.item_type).look(pair[1] for pair in value)
            return
        self.kinds.add("list")
        inner = hint.value_type if hint is not None and pa.types.is_list(hint) else None
        self.child("element", inner).look(value)

    def child(self, name: str, hint: pa.DataType | None) -> ValueShape:
        """The shape one level down."""
        if name not in self.children:
            self.children[name] = ValueShape(f"{self.where}.{name}", hint)
        return self.children[name]

    def ragged(self) -> str | None:
        """The path of a key that some dicts of this column have and others lack, if there is one."""
        for name, shape in self.children.items():
            if "struct" in self.kinds and self._keys_seen[name] != self._dicts:
                return shape.where
            deeper = shape.ragged()
            if deeper is not None:
                return deeper
        return None

    def nan_is_null(self) -> bool:
        """Whether NaN stands for NULL here: among the cells of pandas' objects, in a column that holds no numbers."""
        return self.has_nan and self.nan_marks_missing and not self._holds_numbers(alone=True)

    def nan_is_stray(self) -> bool:
        """Whether NaN has no place here: a number among values that are none, or that have no NaN."""
        return self.has_nan and not self.nan_is_null() and not self._holds_floats()

    def _holds_numbers(self, *, alone: bool) -> bool:
        """Whether the column is one of numbers; ``alone`` where NaN is all that is known of it."""
        if self.hint is not None:
            kind = self.hint
            return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind))
        return bool(self.kinds & {"int", "float", "decimal"}) if self.kinds else alone

    def _holds_floats(self) -> bool:
        if self.hint is not None:
            return bool(pa.types.is_floating(self.hint))
        return not self.kinds or bool(self.kinds & {"int", "float"})

    def check_nan(self, values: Values) -> None:
        """Refuse NaN where only NULL could be stored for it; ``values`` are all those that were looked at.

        Raises:
            WouldAlterError: names the first row with such a NaN.
        """
        if not self.has_stray():
            return
        row = next(row for row, value in enumerate(values) if self.stray_in(value) is not None)
        at = self.stray_in(values[row])
        assert at is not None
        raise WouldAlterError(f"Column {at.where!r}, row {row}: {no_nan(at.holder())}")

    def holder(self) -> str:
        """What this place holds, for a message."""
        if self.hint is not None:
            return f"a column of type {self.hint}"
        return f"a column of kind {', '.join(sorted(self.kinds))}"

    def has_stray(self) -> bool:
        """Whether NaN has no place here, or somewhere within."""
        return self.nan_is_stray() or any(shape.has_stray() for shape in self.children.values())

    def stray_in(self, value: Any) -> ValueShape | None:
        """The place within a value where a NaN is stray."""
        if is_nan(value):
            return self if self.nan_is_stray() else None
        inner: Iterable[tuple[str, Any]] = ()
        if "map" in self.kinds and not is_missing(value):
            pairs = value.items() if isinstance(value, Mapping) else value
            inner = ((name, one) for pair in pairs for name, one in zip(("key", "value"), pair, strict=True))
        elif isinstance(value, Mapping):
            inner = ((str(name), one) for name, one in value.items())
        elif isinstance(value, (list, tuple, np.ndarray)):
            inner = (("element", one) for one in value)
        return next(
            (at for name, one in inner if (at := self.children[name].stray_in(one)) is not None), None
        )

    def arrow_type(self) -> pa.DataType:
        """The Arrow type that holds every value exactly; raises InvalidInputError for mixed values."""
        kinds = frozenset(self.kinds | ({"float"} if self.has_nan and not self.nan_is_null() else set()))
        if not kinds:
            return pa.null()
        if kinds <= {"decimal", "int"} and "decimal" in kinds:
            return self._decimal_type()
        if kinds == {"int", "float"}:
            return pa.float64()
        if len(kinds) > 1:
            raise InvalidInputError(
                f"Column {self.where!r} mixes values of kinds {', '.join(sorted(kinds))}. Nothing was "
                "written. Convert the column to one type (naive and aware times do not mix either)."
            )
        return self._single(next(iter(kinds)))

    def _single(self, kind: str) -> pa.DataType:
        simple = {"bool": pa.bool_(), "str": pa.string(), "bytes": pa.binary(), "date": pa.date32()}
        unit = "ns" if self.nanoseconds else "us"
        if kind in simple:
            return simple[kind]
        if kind == "int":
            return self._decimal_type() if self.beyond_int64 else pa.int64()
        if kind == "float":
            return pa.float64()
        if kind == "time":
            return pa.time64("us")
        if kind == "uuid":
            return self._uuid_type()
        if kind in ("naive", "aware"):
            return pa.timestamp(unit, tz="UTC" if kind == "aware" else None)
        if kind == "list":
            return pa.list_(pa.field("element", self.children["element"].arrow_type()))
        if kind == "map":
            key = self.children["key"].arrow_type()
            if pa.types.is_null(key) and self.hint is not None:
                key = self.hint.key_type  # all maps are empty, and no key can be NULL
            return pa.map_(key, self.children["value"].arrow_type())
        check_names(self.children, where=f"the dicts of column {self.where!r}")
        return pa.struct([pa.field(name, shape.arrow_type()) for name, shape in self.children.items()])

    def _decimal_type(self) -> pa.DataType:
        precision = self.digits + self.scale
        if precision > DECIMAL_DIGITS_MAX:
            raise InvalidInputError(
                f"Column {self.where!r} needs {precision} decimal digits; tables hold {DECIMAL_DIGITS_MAX}. Nothing was written."
            )
        return pa.decimal128(precision, self.scale)

    def _uuid_type(self) -> pa.DataType:
        if not hasattr(pa, "uuid"):
            raise InvalidInputError(
                f"Column {self.where!r} holds UUIDs, for which pyarrow {pa.__version__} has no type. Nothing was "
                "written. Install pyarrow 18 or later, or convert them to str or bytes."
            )
        return pa.uuid()

    def to_array(self, values: Values) -> pa.Array:
        """``values`` as an Arrow array of :meth:`arrow_type`."""
        kind = self.arrow_type()
        nan_is_null = self.nan_is_null()
        clean: Values = values
        if self.children or self.marked or nan_is_null or self.numpy_scalars or self.beyond_int64:
            clean = [self.clean(v) for v in values]
        try:
            stored = without_uuids(kind)
            # pyarrow 26 makes no UUIDs inside of other types
            array = pa.array(clean, type=stored, from_pandas=False)
            return array if stored == kind else array.cast(kind)
        except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
            raise InvalidInputError(
                f"Column {self.where!r} holds values that do not fit type {kind}: {said(error)}. Nothing was written."
            ) from error

    def clean(self, value: Any) -> Any:
        """A nested value with its missing markers as None, all the way down."""
        if is_missing(value):
            return None
        if isinstance(value, Mapping) and "struct" in self.kinds:
            return {k: self.children[k].clean(v) for k, v in value.items()}
        if "map" in self.kinds:
            pairs = value.items() if isinstance(value, Mapping) else value
            key, item = self.children["key"], self.children["value"]
            return [(key.clean(k), item.clean(v)) for k, v in pairs]
        if isinstance(value, (list, tuple, np.ndarray)):
            return [self.children["element"].clean(v) for v in value]
        if is_nan(value) and self.nan_is_null():
            return None
        if isinstance(value, np.datetime64):
            return _moment(value, self.where)
        return int(value) if isinstance(value, np.integer) else value


def _moment(value: np.datetime64, where: str) -> dt.date | dt.datetime:
    """The Python value of a numpy time: a date where it counts days or longer, else a time without a zone.

    Raises:
        InvalidInputError: it is finer than microseconds, or beyond the years 1 to 9999.
    """
    moment = value.astype("datetime64[us]").item()
    whole = np.datetime64(moment, "us") == value if isinstance(moment, dt.datetime) else False
    if not whole:
        raise InvalidInputError(
            f"Column {where!r} holds {value!r}, which is no time in whole microseconds of {YEARS}. Nothing "
            "was written. Round it yourself (value.astype('datetime64[us]'))."
        )
    found: dt.date | dt.datetime = (
        moment.date() if np.datetime_data(value.dtype)[0] in ("Y", "M", "W", "D") else moment
    )
    return found


def _struct_hint(hint: pa.DataType | None, name: str) -> pa.DataType | None:
    if hint is None or not pa.types.is_struct(hint) or hint.get_field_index(name) < 0:
        return None
    return hint.field(name).type
