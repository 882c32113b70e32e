"""Folders of partitions: polars takes values from them, so each is spelled whole, or its row is refused (T3-A6)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import deltalake
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import safewrite as sw
from safewrite.delta.data.partitions import Room, directory
from safewrite.errors import WouldAlterError

pytestmark = pytest.mark.usefixtures("no_aws_settings")

STATION = "東京都千代田区丸の内一丁目九番一号東京駅丸の内駅舎内"
DISTRICT = "Ханты-Мансийский автономный округ"
UTC = dt.UTC
LOCAL, S3 = Room(), Room("lake/orders/")


TEXT = pa.string()


def table_of(folder: Path, kind: pa.DataType = TEXT) -> Any:
    return sw.create(folder, pa.schema({"id": pa.int64(), "q": pa.int64(), "p": kind}), partition_by=["p"])


def row(value: Any, at: int = 1) -> dict[str, Any]:
    return {"id": at, "q": 1, "p": value}


def seen(folder: Path) -> dict[str, list[Any]]:
    """The values that engines show, in the order of the ids."""
    return {
        "polars": pl.scan_delta(str(folder)).sort("id").collect()["p"].to_list(),
        "deltalake": deltalake.DeltaTable(folder).to_pyarrow_table().sort_by("id")["p"].to_pylist(),
    }


VERBS: dict[str, Callable[[Any, list[dict[str, Any]]], Any]] = {
    "append": lambda table, rows: table.append(rows),
    "append_many": lambda table, rows: table.append_many([(str(one["id"]), [one]) for one in rows]),
    "overwrite": lambda table, rows: table.overwrite(rows),
    "apply_changes": lambda table, rows: table.apply_changes(rows, keys=["id"], sequence_by=["q"]),
    "a rewritten file": lambda table, rows: (table.append([*rows, row(rows[0]["p"], 900)]), table.delete("id = 900")),
}  # fmt: skip


@pytest.mark.sweep("append_many", "apply_changes")
@pytest.mark.parametrize("verb", VERBS)
def test_a_long_value_is_what_every_engine_shows_and_finds(tmp_path: Path, verb: str) -> None:
    table = table_of(tmp_path / "t")
    values = [STATION, DISTRICT, "x" * 150, "n"]
    VERBS[verb](table, [row(value, at) for at, value in enumerate(values)])
    assert seen(tmp_path / "t") == {"polars": values, "deltalake": values}
    for value in values:
        assert pl.scan_delta(str(tmp_path / "t")).filter(pl.col("p") == value).collect().height == 1


@settings(deadline=None, max_examples=15)
@given(st.lists(st.text(min_size=1, max_size=60), min_size=1, max_size=6, unique=True))
@example(["a/../b", "../../..", "%2F..%2F..", "\0", "http://host/a", "/", "file:/x", "s3://b/k"])
@example([STATION, "x" * 253, "a/b=c%20", "..", " ", "#?&", "\t\n", "__HIVE_DEFAULT"])
def test_values_of_any_script_are_what_every_engine_shows(
    tmp_path_factory: pytest.TempPathFactory, values: list[str]
) -> None:
    assume(all(LOCAL.holds(directory({"p": value}, ["p"])) for value in values))
    folder = tmp_path_factory.mktemp("any") / "t"
    table = table_of(folder)
    table.append([row(value, at) for at, value in enumerate(values)] + [row(value, 900) for value in values])
    assert table.delete("id = 900").removed_rows == len(values), "each file was looked into"
    assert seen(folder) == {"polars": values, "deltalake": values}


@pytest.mark.parametrize("value", ["x" * 254, "東" * 29, "é" * 120, "x" * 5000])
@pytest.mark.parametrize("verb", ["append", "append_many", "overwrite", "apply_changes"])
def test_a_value_whose_folder_cannot_be_made_is_refused_by_row(tmp_path: Path, value: str, verb: str) -> None:
    """Under a shorter name polars would show that name; deltalake cannot write such a value to a disk either."""
    table = table_of(tmp_path / "t")
    rows = [row("n", 1), row(value, 2)]
    if verb == "append_many":
        good, bad = VERBS[verb](table, rows)
        assert good.outcome == "committed"
        assert isinstance(bad, WouldAlterError)
    else:
        with pytest.raises(WouldAlterError, match=r"'p', row 1: .*255") as told:
            VERBS[verb](table, rows)
        bad = told.value
        assert table.version == 0
    assert "do not partition" in str(bad)
    assert "Nothing was written" in str(bad)


def test_a_key_of_s3_has_room_for_longer_values() -> None:
    assert S3.holds(directory({"p": "東" * 90}, ["p"]))
    assert not S3.holds(directory({"p": "東" * 100}, ["p"]))
    assert not Room("x" * 900 + "/").holds(directory({"p": "n" * 40}, ["p"]))
    assert "long-" not in directory({"p": "x" * 800}, ["p"])
    with pytest.raises(WouldAlterError, match="1024 bytes"):
        S3.check([pa.table({"p": ["n", "x" * 900]})], ["p"])
    S3.check([pa.table({"p": ["n", "x" * 800]})], ["p"])


def test_no_name_is_longer_than_what_is_expected_of_the_longest(tmp_path: Path) -> None:
    """The quick look at a whole column must not pass over what the look at each row would refuse."""
    table = pa.table({"p": ["x" * 200, "é"], "d": [dt.date(2026, 1, 1), None], "m": [Decimal("1.5"), None]})
    by = ["p", "d", "m"]
    exact = [directory({n: None if r[n] is None else str(r[n]) for n in by}, by) for r in table.to_pylist()]
    room = Room("x" * (1024 - 160 - max(map(len, exact)) + 1))
    with pytest.raises(WouldAlterError, match="row 0"):
        room.check([table], by)


INSTANTS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "instants": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(2026, 1, 1, 12, 30, tzinfo=UTC), dt.datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC), None],
    ),
    "times": (pa.timestamp("us"), [dt.datetime(2026, 1, 1, 12, 30), dt.datetime(9999, 12, 31), None]),  # noqa: DTZ001
    "dates": (pa.date32(), [dt.date(2026, 1, 1), dt.date(1, 1, 1), None]),
    "decimals": (pa.decimal128(9, 2), [Decimal("1.50"), Decimal(2), None]),
    "flags": (pa.bool_(), [True, False, None]),
    "floats": (pa.float64(), [1.5, float("inf"), None]),
    "texts that look otherwise": (pa.string(), ["01", "2026-01-01", "true"]),
}


@pytest.mark.parametrize(("kind", "values"), INSTANTS.values(), ids=list(INSTANTS))
def test_folders_of_other_types_are_read_as_their_values(
    tmp_path: Path, kind: pa.DataType, values: list[Any]
) -> None:
    """T3-E8 without Spark."""
    table_of(tmp_path / "t", kind).append([row(value, at) for at, value in enumerate(values)])
    assert seen(tmp_path / "t") == {"polars": values, "deltalake": values}
    for value in values:
        if value is not None:
            found = pl.scan_delta(str(tmp_path / "t")).filter(pl.col("p") == pl.lit(value)).collect()
            assert found.height == 1


def test_folders_are_spelled_as_deltalake_spells_them(tmp_path: Path) -> None:
    values = [STATION, "a b", "a/b", "ü", "~-._", "x" * 253]
    deltalake.write_deltalake(
        tmp_path / "theirs", pa.table({"id": [*range(len(values))], "p": values}), partition_by=["p"]
    )
    theirs = {one.name for one in (tmp_path / "theirs").iterdir() if one.name.startswith("p=")}
    assert theirs == {f"p={quote(value, safe='')}" for value in values}
    assert theirs == {directory({"p": value}, ["p"]).rstrip("/") for value in values}
