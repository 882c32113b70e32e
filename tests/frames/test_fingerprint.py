"""Equal rows have equal fingerprints however they come; other rows have others."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from safewrite.errors import InternalError, InvalidInputError
from safewrite.frames.column_digests import COLUMNS_MAX, differing, lacking
from safewrite.frames.fingerprint import Fingerprint, Fingerprinter, PartsFingerprinter, _bytes
from safewrite.frames.prepare import prepare
from tests.counted import calls
from tests.frames.strategies import LEAVES, plain, tables, types, values_of


def of(table: pa.Table) -> Fingerprint:
    prints = Fingerprinter()
    prints.update(table)
    return prints.result()


def of_column(values: list[Any], kind: pa.DataType, name: str = "a") -> str:
    return of(pa.table({name: pa.array(values, kind)})).digest


@given(tables(), st.randoms(use_true_random=False), st.integers(1, 5))
def test_order_chunks_and_slices_do_not_matter(table: pa.Table, random: Any, step: int) -> None:
    order = list(range(table.num_rows))
    random.shuffle(order)
    shuffled = table.take(pa.array(order, pa.int64())).select(sorted(table.column_names, reverse=True))
    prints = Fingerprinter()
    for start in range(0, table.num_rows, step):
        prints.update(shuffled.slice(start, step))
    assert prints.result() == of(table)


@given(st.data(), types())
def test_another_value_gives_another_fingerprint(data: st.DataObject, kind: pa.DataType) -> None:
    values = data.draw(st.lists(values_of(kind), min_size=1, max_size=4))
    other = list(values)
    other[data.draw(st.integers(0, len(values) - 1))] = data.draw(values_of(kind))
    one, two = pa.array(values, kind), pa.array(other, kind)
    assume(_normal(one) != _normal(two))
    assert of(pa.table({"a": one})) != of(pa.table({"a": two}))


def _normal(array: pa.Array) -> list[str]:
    """The rows as a sorted bag of texts; maps without their order, zeros without their sign."""
    return sorted(_text(v) for v in array.to_pylist())


def _text(value: Any) -> str:
    if isinstance(value, float):
        return repr(value + 0.0)
    if isinstance(value, dict):
        return repr({k: _text(v) for k, v in value.items()})
    if isinstance(value, list):
        pairs = all(isinstance(v, tuple) for v in value)
        return repr(sorted(map(_text, value)) if pairs and value else [_text(v) for v in value])
    if isinstance(value, tuple):
        return repr(tuple(_text(v) for v in value))
    return repr(value)


@given(st.lists(st.tuples(st.none() | st.integers(-(2**63), 2**63 - 1), st.none() | LEAVES[pa.string()])))
def test_every_kind_of_frame_has_the_same_fingerprint(rows: list[tuple[int | None, str | None]]) -> None:
    target = pa.schema([("i", pa.int64()), ("s", pa.string())])
    ints, texts = [r[0] for r in rows], [r[1] for r in rows]
    frames: list[Any] = [
        pa.table({"i": pa.array(ints, pa.int64()), "s": pa.array(texts, pa.large_string())}),
        pd.DataFrame({"i": pd.array(ints, dtype="Int64"), "s": pd.Series(texts, dtype=object)}),
        pl.DataFrame({"s": texts, "i": ints}, schema={"s": pl.String, "i": pl.Int64}),
        [{"s": s, "i": i} for i, s in reversed(rows)],
    ]
    assert len({str(prepare(frame, target).fingerprint) for frame in frames}) == 1


def test_null_empty_text_and_the_word_null_differ() -> None:
    digests = {of_column([v], pa.string()) for v in (None, "", "NULL", "\0", "\0\0")}
    assert len(digests) == 5


def test_nan_equals_nan_and_minus_zero_equals_zero() -> None:
    assert of_column([math.nan], pa.float64()) == of_column([-math.nan], pa.float64())
    assert of_column([-0.0], pa.float64()) == of_column([0.0], pa.float64())
    assert of_column([math.nan], pa.float64()) != of_column([None], pa.float64())


def test_the_name_of_a_column_takes_part() -> None:
    assert of_column([1], pa.int64(), "a") != of_column([1], pa.int64(), "b")
    swapped = pa.table({"a": [2], "b": [1]})
    assert of(pa.table({"a": [1], "b": [2]})) != of(swapped)


def test_the_kind_of_a_value_takes_part() -> None:
    """One number as a number, a flag, a date, a time of day, a time with and without a zone, and so on."""
    one = pa.array([1], pa.int64())
    kinds = [
        *(pa.int64(), pa.bool_(), pa.float64(), pa.decimal128(38, 0), pa.decimal128(38, 1)),
        *(pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.time64("us")),
    ]
    arrays = [one.cast(kind) for kind in kinds]
    arrays += [one.cast(pa.int32()).cast(pa.date32()), pa.array(["1"]), pa.array([b"1"]), pa.array([[1]])]
    assert len({of(pa.table({"a": array})).digest for array in arrays}) == len(arrays)


def test_bytes_of_one_length_are_hashed_as_any_bytes_are() -> None:
    assert of_column([b"ab", None], pa.binary(2)) == of_column([b"ab", None], pa.binary())


@pytest.mark.parametrize("length", [8, 24, 100])
def test_a_value_has_one_hash_whether_its_neighbours_are_as_long_as_it_is_or_not(length: int) -> None:
    values = [bytes([number]) * length for number in range(1, 4)]
    for alike in (values, values * 10):
        one, two = (_bytes(pa.array(some, pa.binary())) for some in (alike, [*alike, b"other"]))
        assert [(lane[:-1] == other).all() for lane, other in zip(two, one, strict=True)] == [True, True]


def test_few_long_values_of_one_length_are_hashed_in_few_turns() -> None:
    """Word by word, 1.6 MB in four values took two seconds."""
    values = pa.array([bytes([number]) * 400_000 for number in range(4)])
    assert calls(lambda: _bytes(values))["safewrite.frames.fingerprint:_pair"] < 10


def test_fingerprints_of_two_kinds_are_never_equal() -> None:
    by_python = of(pa.table({"a": [1]}))
    by_spark = replace(by_python, kind="spark1")
    assert by_python != by_spark
    assert by_python.int63 != by_spark.int63


def test_values_moved_between_rows_are_noticed() -> None:
    assert of(pa.table({"a": [1, 2], "b": [3, 4]})) != of(pa.table({"a": [1, 2], "b": [4, 3]}))


def test_a_row_written_twice_is_noticed() -> None:
    assert of(pa.table({"a": [1, 1]})) != of(pa.table({"a": [1]}))
    assert of_column([1, 1, 2], pa.int64()) != of_column([1, 2, 2], pa.int64())


def test_a_nullable_column_added_later_leaves_old_fingerprints_as_they_were() -> None:
    table = pa.table({"a": [1, 2]})
    wider = table.append_column("b", pa.nulls(2, pa.string()))
    assert of(wider) == of(table)


def test_a_widened_column_leaves_old_fingerprints_as_they_were() -> None:
    assert of_column([1, -1], pa.int8()) == of_column([1, -1], pa.int64())
    assert of_column([0.5], pa.float32()) == of_column([0.5], pa.float64())


def test_lists_differ_by_order_and_maps_do_not() -> None:
    ints, entries = pa.list_(pa.int64()), pa.map_(pa.string(), pa.int64())
    digests = [of_column([v], ints) for v in ([1, 2], [2, 1], [], None, [None], [None, None])]
    assert len(set(digests)) == 6
    assert of_column([[("x", 1), ("y", 2)]], entries) == of_column([[("y", 2), ("x", 1)]], entries)
    assert of_column([[("x", 1), ("y", 2)]], entries) != of_column([[("x", 2), ("y", 1)]], entries)


def test_texts_are_told_apart_beyond_eight_bytes_and_across_rows() -> None:
    words = ["a" * n for n in range(40)] + ["a" * 8 + "b", "b" + "a" * 8, "a" * 16 + "b", "a" * 15 + "ba"]
    assert len({of_column([w], pa.string()) for w in words}) == len(words)
    assert of_column(["ab", "c"], pa.string()) != of_column(["a", "bc"], pa.string())


def test_a_large_table_is_hashed_like_its_rows_one_by_one() -> None:
    table = pa.table({"a": range(70_000), "s": [f"row {i}" for i in range(70_000)]})  # several blocks
    prints = Fingerprinter()
    for start in range(0, 70_000, 9_999):
        prints.update(table.slice(start, 9_999))
    assert prints.result() == of(table)


def test_the_fingerprint_of_version_1_never_changes() -> None:
    table = pa.table(
        {"i": [1, None], "s": ["ü", "long enough for two words"], "f": [1.5, None], "l": [[1], []]}
    )
    assert str(of(table)) == "v1:2:161807c1329504b874db3f921dc6a9fb"
    assert of(table).int63 == 1671266278206188295


@given(tables(), st.data())
def test_columns_that_are_left_out_take_part_by_their_names_only(
    table: pa.Table, data: st.DataObject
) -> None:
    names = data.draw(st.lists(st.sampled_from([*table.column_names, "absent"]), min_size=1, unique=True))
    prints = Fingerprinter(names)
    prints.update(table)
    without = Fingerprinter(names[::-1])
    without.update(table.drop_columns([name for name in names if name in table.column_names]))
    if len(names) < table.num_columns:
        assert prints.result() == without.result()
    assert prints.result() not in (of(table), of(table).leaving_out([*names, "another"]))
    assert prints.result().rows == table.num_rows


def test_the_fingerprint_without_a_column_never_changes() -> None:
    table = pa.table({"a": [1, 2], "b": ["x", None]})
    prints = Fingerprinter(["b"])
    prints.update(table)
    assert str(prints.result()) == "v1:2:3bcc91755ae8201f3b7e911b33ac67f4"


def digests(table: pa.Table, *pieces: int) -> str:
    prints = Fingerprinter()
    for start, stop in zip((0, *pieces), (*pieces, table.num_rows), strict=True):
        prints.update(table.slice(start, stop - start))
    return prints.column_digests()


def test_digests_tell_which_columns_differ_whatever_the_order_of_rows() -> None:
    table = pa.table({"a": [1, 2, 3], "b": ["x", None, "y"], "n": pa.nulls(3, pa.int64())})
    shuffled = table.take([2, 0, 1])
    assert differing(digests(table), digests(shuffled, 1), table.column_names) == []
    other = shuffled.set_column(1, "b", pa.array(["x", "", "y"]))
    assert differing(digests(table), digests(other), table.column_names) == ["b"]
    filled = table.set_column(2, "n", pa.array([1, None, None], pa.int64()))
    assert differing(digests(table), digests(filled), table.column_names) == ["n"]
    assert lacking(digests(filled), ["a", "b"]) == 1
    assert len(digests(table)) == 16  # 8 characters a column; that of NULL has none


def test_a_constant_column_of_many_rows_keeps_its_digest() -> None:
    one, other = (pa.table({"a": pa.repeat(value, 2**21)}) for value in (1, 2))
    assert differing(digests(one), digests(other), ["a"]) == ["a"]


def test_wide_rows_have_no_digests() -> None:
    wide = {f"c{number}": [number] for number in range(COLUMNS_MAX)}
    assert len(digests(pa.table(wide))) == 8 * COLUMNS_MAX
    assert digests(pa.table(wide | {"more": [1]})) == ""


@given(tables())
def test_text_of_a_fingerprint_parses_back(table: pa.Table) -> None:
    found = of(table)
    assert Fingerprint.parse(str(found)) == found
    assert 0 <= found.int63 < 2**63
    assert found.rows == table.num_rows, plain(table)


@pytest.mark.parametrize("text", ["", "v1:2:abc", "v2:0:" + "0" * 32, "v1:-1:" + "0" * 32])
def test_other_text_is_no_fingerprint(text: str) -> None:
    with pytest.raises(InvalidInputError):
        Fingerprint.parse(text)


# --- many parts at once ---------------------------------------------------------------------------------
@given(st.data(), tables(rows_max=12))
def test_parts_that_are_hashed_together_have_the_fingerprints_that_they_have_alone(
    data: st.DataObject, table: pa.Table
) -> None:
    left, rows = table.num_rows, []
    while left:
        rows.append(data.draw(st.integers(0, left)))
        left -= rows[-1]
    volatile = data.draw(st.lists(st.sampled_from(table.column_names), unique=True))
    parts = PartsFingerprinter(rows, volatile)
    cut = data.draw(st.integers(0, table.num_rows))
    for piece in (table.slice(0, cut), table.slice(cut)):
        parts.update(piece)
    expected = []
    for number, count in enumerate(rows):
        one = Fingerprinter(volatile)
        one.update(table.slice(sum(rows[:number]), count))
        expected.append((one.result(), one.column_digests()))
    assert list(zip(parts.results(), parts.column_digests(), strict=True)) == expected


def test_parts_may_reach_over_the_rows_that_are_hashed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    table, rows = pa.table({"a": range(20)}), [1, 8, 0, 2, 9]
    expected = [str(of(table.slice(sum(rows[:n]), count))) for n, count in enumerate(rows)]
    monkeypatch.setattr(sys.modules["safewrite.frames.fingerprint"], "_BLOCK_ROWS", 3)
    parts = PartsFingerprinter(rows)
    parts.update(table)
    assert [str(one) for one in parts.results()] == expected


def test_parts_of_another_number_of_rows_have_no_fingerprints() -> None:
    parts = PartsFingerprinter([2, 3])
    parts.update(pa.table({"a": range(4)}))
    with pytest.raises(InternalError, match="4 rows came of 5"):
        parts.results()


def test_rows_without_a_name_have_no_fingerprint_that_a_write_could_take() -> None:
    """They are the table's own, in files that are rewritten: hashing them took half of an apply."""
    table = pa.table({"n": [1, 2]})
    found = prepare(table, table.schema, named=False)
    assert (found.rows, found.column_digests) == (2, "")
    assert found.fingerprint != prepare(table, table.schema).fingerprint
    with pytest.raises(InternalError, match="to name a write"):
        _ = found.fingerprint.int63
