"""What each append asks of pyarrow's functions is answered as ``pyarrow.compute`` answers, however pyarrow lays out its modules."""

from __future__ import annotations

import datetime as dt
import importlib
import sys
import types
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute
import pytest

from safewrite.values import compute

NUMBERS = pa.chunked_array([[1.5, None], [float("nan")]])
LISTS = pa.array([[1, 2], None, []])
DAYS = pa.array([dt.date(2026, 1, 1), None])
CALLS = [
    ("any", (pa.array([False, None, True]),), {}),
    ("any", (pa.array([], pa.bool_()),), {}),
    ("cast", (DAYS, pa.int32()), {}),
    ("cast", (pa.array([1.5]), pa.int64()), {"safe": False}),
    ("fill_null", (pa.array([1, None], pa.int32()), 0), {}),
    ("fill_null", (pa.array([True, None]), False), {}),
    ("fill_null", (pa.array(["a", None]), "b"), {}),
    ("fill_null", (NUMBERS, pa.scalar(0.0)), {}),
    ("fill_null", (NUMBERS, pa.scalar(0)), {}),
    ("is_nan", (NUMBERS,), {}),
    ("is_null", (NUMBERS,), {}),
    ("is_null", (NUMBERS,), {"nan_is_null": True}),
    ("is_valid", (NUMBERS,), {}),
    ("list_flatten", (LISTS,), {}),
    ("list_value_length", (LISTS,), {}),
    ("min_max", (pa.chunked_array([[3, None], [1]]),), {}),
    ("or_kleene", (pa.array([True, None]), pa.array([None, None], pa.bool_())), {}),
]


@pytest.fixture(params=["here", "elsewhere"])
def module(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """The module as it is, and as it is where a release of pyarrow has no ``pyarrow._compute``."""
    if request.param == "elsewhere":
        monkeypatch.setitem(sys.modules, "pyarrow._compute", types.ModuleType("pyarrow._compute"))
        assert importlib.reload(compute).call_function is pyarrow.compute.call_function
    yield compute
    monkeypatch.undo()
    importlib.reload(compute)


def test_it_answers_as_pyarrow_does(module: types.ModuleType) -> None:
    for name, given, settings in CALLS:
        wanted = getattr(pyarrow.compute, name)(*given, **settings)
        found = getattr(module, name)(*given, **settings)
        assert (found.type, str(found)) == (wanted.type, str(wanted)), name


def test_a_cast_that_would_lose_is_refused(module: types.ModuleType) -> None:
    with pytest.raises(pa.ArrowInvalid):
        module.cast(pa.array([1.5]), pa.int64())


def test_what_pyarrow_lacks_is_missing() -> None:
    with pytest.raises(AttributeError, match="no_such"):
        compute.no_such  # noqa: B018
