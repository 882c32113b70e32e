"""Values that a table cannot keep, by every verb and in both formats: refused before anything is uploaded (T3-A5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import safewrite as sw

pytestmark = pytest.mark.usefixtures("no_aws_settings")

NAN = float("nan")
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "q": pa.int64(),
        "n": pa.int64(),
        "s": pa.string(),
        "f": pa.float64(),
        "r": pa.struct({"d": pa.decimal128(9, 2)}),
    }
)
GOOD = {"id": 1, "q": 1, "n": 1, "s": "x", "f": NAN, "r": None}


@pytest.fixture(scope="module", params=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A table of one good row, whose float is NaN."""
    folder = tmp_path_factory.mktemp("values")
    if request.param == "delta":
        made = sw.create(folder / "t", SCHEMA)
    else:
        catalog = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": str(folder / "w")}
        made = sw.create("db.t", SCHEMA, catalog=catalog)
    made.append([GOOD])
    return made


def _rows(*changed: dict[str, Any]) -> list[dict[str, Any]]:
    return [GOOD | {"f": 1.0} | one for one in changed]


FRAMES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "alone": _rows,
    "among others": lambda bad: _rows({}, bad, {}),
    "pandas": lambda bad: pd.DataFrame(_rows({}, bad)).astype({"n": object}),
    "Arrow": lambda bad: pa.table(_typed(bad)),
}


def _typed(bad: dict[str, Any]) -> dict[str, pa.Array]:
    """Columns of Arrow in which what is bad is a column of floats, also within a struct."""
    good = pa.Table.from_pylist(_rows({}), schema=SCHEMA)
    return {name: good[name] for name in SCHEMA.names} | {n: pa.array([one]) for n, one in bad.items()}


VERBS: dict[str, Callable[[Any, Any], Any]] = {
    "append": lambda table, data: table.append(data),
    "append_many": lambda table, data: _one(table.append_many([("good", [GOOD]), ("bad", data)])[1]),
    "overwrite": lambda table, data: table.overwrite(data),
    "apply_changes": lambda table, data: table.apply_changes(data, keys=["id"], sequence_by=["q"]),
}


def _one(answer: Any) -> Any:
    if isinstance(answer, sw.SafewriteError):
        raise answer
    return answer


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("bad", [{"n": NAN}, {"s": NAN}, {"r": {"d": NAN}}], ids=lambda bad: next(iter(bad)))
def test_nan_where_only_null_could_stand_is_refused_by_every_verb(
    table: Any, verb: str, frame: str, bad: dict[str, Any]
) -> None:
    if frame == "pandas" and "s" in bad:
        return  # pandas says itself that it is missing
    head = table.version
    with pytest.raises(sw.WouldAlterError, match=r"row \d: NaN is a number") as told:
        VERBS[verb](table, FRAMES[frame](bad))
    assert "Nothing was written" in str(told.value)
    assert verb == "append_many" or table.version == head
