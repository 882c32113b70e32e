"""Values that a table cannot keep, by every verb and in both formats: refused before anything is uploaded (T3-A5, T3-A13)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import safewrite as sw
from tests.each import each

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


@pytest.mark.sweep("iceberg")
@each("verb", VERBS)
@each("frame", FRAMES)
@each("bad", [{"n": NAN}, {"s": NAN}, {"r": {"d": NAN}}], ids=lambda bad: next(iter(bad)))
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


CHANGES: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "a column that tells the operation": (
        lambda t: t.apply_changes([GOOD | {"op": "d"}], keys=["id"], sequence_by=["q"]),
        "delete_when=",
        "pass schema_mode",
    ),
    "another spelling": (
        lambda t: t.apply_changes([GOOD | {"S2": "d"}], keys=["id"], sequence_by=["q"]),
        "columns=",
        "pass schema_mode",
    ),
    "a column that is missing": (
        lambda t: t.apply_changes(
            [{k: v for k, v in GOOD.items() if k != "s"}], keys=["id"], sequence_by=["q"]
        ),
        "say by unchanged= .* or pass schema_mode='merge' to mean NULL",
        ", or pass schema_mode='merge' to mean NULL, ",
    ),
    "columns that are missing": (
        lambda t: t.apply_changes([{"id": 1, "q": 9}], keys=["id"], sequence_by=["q"]),
        "unchanged= .*schema_mode='merge' adds columns",
        "pass schema_mode",
    ),
    "a mode that there is not": (
        lambda t: t.apply_changes([GOOD | {"S2": "d"}], keys=["id"], sequence_by=["q"], schema_mode="wide"),
        "schema_mode is None or 'merge' or 'widen'",
        "unchanged",
    ),
    "a new column of NULL": (
        lambda t: t.append([GOOD | {"new": None}], schema_mode="merge"),
        "Leave it out",
        "create",
    ),
    "new columns of NULL among others": (
        lambda t: t.append([GOOD | {"a": 1, "new": None}], schema_mode="merge"),
        "'new'",
        "create",
    ),
    "NaN in a text": (lambda t: t.append([GOOD | {"s": NAN}]), "Write None", "astype"),
    "NaN in a list of columns": (
        lambda t: t.append({name: [NAN if name == "s" else one] for name, one in GOOD.items()}),
        "Write None",
        "convert the column yourself",
    ),
    "NaN as a key": (
        lambda t: t.apply_changes([GOOD | {"id": NAN}], keys=["id"], sequence_by=["q"]),
        "row 0",
        "schema_mode",
    ),
    "NaN as a sequence": (
        lambda t: t.apply_changes([GOOD | {"q": NAN}], keys=["id"], sequence_by=["q"]),
        "row 0",
        "schema_mode",
    ),
    "NaN in a struct": (lambda t: t.append([GOOD | {"r": {"d": NAN}}]), "'r.d'", "schema_mode"),
}


@each(("call", "says", "not_that"), CHANGES.values(), ids=list(CHANGES))
def test_a_refusal_advises_what_the_verb_has(
    table: Any, call: Callable[[Any], Any], says: str, not_that: str
) -> None:
    with pytest.raises(sw.NotCommittedError, match=says) as told:
        call(table)
    assert "Nothing was written" in str(told.value)
    assert not_that not in str(told.value)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("t/_delta_log", "is in the log"),
        ("t/_delta_log/more", "is in the log"),
        ("x" * 800, "too long"),
        ("/".join(["x" * 200] * 25), "too long"),
        ("東" * 90, "too long"),
    ],
)
def test_a_folder_that_can_be_no_table_is_refused_by_its_path(tmp_path: Any, path: str, says: str) -> None:
    for call in (
        lambda: sw.open(tmp_path / path, create=True),
        lambda: sw.open(str(tmp_path / path)),
        lambda: sw.create(tmp_path / path, SCHEMA),
    ):
        with pytest.raises(sw.InvalidInputError, match=says) as told:
            call()
        assert "Nothing was written" in str(told.value)
    assert list(tmp_path.iterdir()) == []


def test_the_log_of_a_table_in_s3_is_no_table() -> None:
    with pytest.raises(sw.InvalidInputError, match="is in the log"):
        sw.open("s3://lake/orders/_delta_log", create=True)


def test_a_condition_on_bytes_says_that_there_is_none(tmp_path: Any) -> None:
    table = sw.create(tmp_path / "t", pa.schema({"id": pa.int64(), "b": pa.binary()}))
    with pytest.raises(sw.InvalidInputError, match="another column"):
        table.delete([("b", "=", b"x")])
    assert table.delete("b IS NULL").outcome == "committed"
