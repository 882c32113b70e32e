"""What is encoded is read back equal by readers other than the writer, whatever the partitions are."""

# ruff: noqa: DTZ001 - times without a zone are among what is tested
from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import assume, given
from hypothesis import strategies as st

from safewrite.delta.data import stats
from safewrite.delta.data.datafiles import _Draft, encode
from safewrite.delta.data.stats import FileStats
from safewrite.delta.log.indexing import Indexed
from safewrite.errors import InvalidInputError, WouldAlterError
from safewrite.frames.prepare import prepare
from safewrite.values.types import UTC_TIMESTAMP
from tests.delta.deltalog import read_table, write_table
from tests.frames.strategies import plain, tables

D = decimal.Decimal
END = dt.datetime(9999, 12, 31, 23, 59, 59, 999999)


@given(st.data(), tables())
def test_rows_are_read_back_equal_by_deltalake_and_pyarrow(data: st.DataObject, table: pa.Table) -> None:
    names = [
        f.name for f in table.schema if not pa.types.is_nested(f.type) and not pa.types.is_binary(f.type)
    ]
    free = [n for n in names if n != "id"]
    partition_by = data.draw(st.lists(st.sampled_from(free), unique=True, max_size=2)) if free else []
    target_size = data.draw(st.sampled_from([1, 1000, 2**27]))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        try:
            files = write_table(root, table, partition_by=partition_by, target_file_size=target_size)
        except WouldAlterError as error:
            assume("as a partition value" not in str(error))
            raise
        assert sum(file.rows for file in files) == table.num_rows
        assert len({file.path for file in files}) == len(files)
        for file in files:
            assert (
                pq.read_metadata(io.BytesIO(file.body)).num_rows
                == file.rows
                == json.loads(file.stats)["numRecords"]
            )
        if table.num_rows:
            found = read_table(root, "id")
            assert plain(found.select(table.column_names)) == plain(table)


@given(tables(rows_max=6))
def test_no_statistic_excludes_a_value(table: pa.Table) -> None:  # H7
    assume(table.num_rows)
    (file,) = encode(prepare(table, None), partition_by=(), write_id="w")
    stats = json.loads(file.stats, parse_float=D)
    flat = table
    while any(pa.types.is_struct(t) for t in flat.schema.types):
        flat = flat.flatten()
    for name, column in zip(flat.column_names, flat.columns, strict=True):
        path = name.split(".")
        assert _at(stats["nullCount"], path) == column.null_count
        low, high = _at(stats["minValues"], path), _at(stats["maxValues"], path)
        for value in column.to_pylist():
            if value is not None and low is not None:
                assert _parsed(low, value) <= _comparable(value)
            if value is not None and high is not None:
                assert _comparable(value) <= _parsed(high, value)


def _at(tree: dict[str, Any], path: list[str]) -> Any:
    for name in path:
        tree = tree.get(name, {})
    return tree if tree != {} else None


def _comparable(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None)
    return value.encode() if isinstance(value, str) else value


def _parsed(bound: Any, like: Any) -> Any:
    if isinstance(like, dt.datetime):
        assert bound.endswith("Z") == (like.tzinfo is not None)
        return dt.datetime.fromisoformat(bound).replace(tzinfo=None)
    if isinstance(like, dt.date):
        return dt.date.fromisoformat(bound)
    if isinstance(like, float):  # texts of floats are the shortest that read back as the same bits
        return float(bound)
    return bound.encode() if isinstance(bound, str) else D(bound)


PARTITIONS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "texts": (
        pa.string(),
        [
            "a/b",
            "100%",
            "%2F",
            "ü ñ",
            "a=b",
            "a b",
            ":?#[]{}^\\'\"*",
            "\n\x01",
            ".",
            "..",
            "null",
            "x" * 250,
            None,
        ],
    ),
    "integers": (pa.int64(), [0, -1, 2**63 - 1, -(2**63), None]),
    "floats": (pa.float64(), [0.1, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1e300, None]),
    "single floats": (pa.float32(), [0.5, math.nan, math.inf, 1.0000000150474662e30, None]),
    "booleans": (pa.bool_(), [True, False, None]),
    "dates": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    "instants": (UTC_TIMESTAMP, [dt.datetime(1, 1, 1, tzinfo=dt.UTC), END.replace(tzinfo=dt.UTC), None]),
    "naive times": (pa.timestamp("us"), [dt.datetime(1, 1, 1, 0, 0, 0, 5), END, None]),
    "decimals": (pa.decimal128(38, 2), [D("0.05"), D("-7.00"), D("9" * 36 + ".99"), None]),
}


@pytest.mark.parametrize("kind", PARTITIONS)
def test_partition_values_are_read_back_equal_with_all_their_rows(kind: str, tmp_path: Path) -> None:  # H5
    arrow, values = PARTITIONS[kind]
    table = pa.table({"id": range(2 * len(values)), "p": pa.array(values * 2, arrow)})
    files = write_table(tmp_path, table, partition_by=["p"])
    assert [file.rows for file in files] == [2] * len(values)
    assert plain(read_table(tmp_path, "id")) == plain(table)
    query = QueryBuilder().register("t", DeltaTable(str(tmp_path))).execute("select id, p from t order by id")
    assert plain(pa.table(query)) == plain(table)
    # duckdb reads the files that the log lists; the partition column is not stored in them
    paths = [str(tmp_path / file.path) for file in files]
    with duckdb.connect() as connection:
        found = connection.execute(
            "select id from read_parquet(?, hive_partitioning=false) order by id", [paths]
        )
        assert [row[0] for row in found.fetchall()] == list(range(2 * len(values)))
    assert all("p" not in pq.read_schema(io.BytesIO(file.body)).names for file in files)


def test_null_and_nan_partitions_keep_their_rows(tmp_path: Path) -> None:  # H5
    table = pa.table({"id": range(4), "p": [None, math.nan, 1.0, None], "q": ["x", None, None, None]})
    files = write_table(tmp_path, table, partition_by=["p", "q"])
    assert [(f.partition_values, f.rows) for f in files] == [
        ({"p": None, "q": "x"}, 1),
        ({"p": "NaN", "q": None}, 1),
        ({"p": "1.0", "q": None}, 1),
        ({"p": None, "q": None}, 1),
    ]
    assert files[0].path.startswith("p=__HIVE_DEFAULT_PARTITION__/q=x/")


def test_paths_are_encoded_once_for_the_store_and_once_more_for_the_log() -> None:
    table = pa.table({"id": [1], "p": ["a/b%é"]})
    (file,) = encode(prepare(table, None, partition_by=["p"]), partition_by=["p"], write_id="w-1")
    assert file.path == "p=a%2Fb%25%C3%A9/part-00000-w-1-c000.snappy.parquet"
    add = file.add_action(7)["add"]
    assert add["path"] == "p=a%252Fb%2525%25C3%25A9/part-00000-w-1-c000.snappy.parquet"
    assert (add["size"], add["modificationTime"], add["dataChange"]) == (len(file.body), 7, True)
    assert add["partitionValues"] == {"p": "a/b%é"}


def test_a_decimal_partition_that_deltalake_cannot_read_is_refused() -> None:
    table = pa.table({"id": [1, 2], "p": [D("1.50"), D("-1.50")]})
    with pytest.raises(WouldAlterError, match="'p', row 1"):
        prepare(table, None, partition_by=["p"])


def test_rows_are_split_into_files_of_the_target_size_in_order(tmp_path: Path) -> None:
    table = pa.table({"id": range(50_000)})
    files = write_table(tmp_path, table, target_file_size=20_000)
    assert 3 <= len(files) <= 40
    assert all(file.size < 80_000 for file in files)
    assert read_table(tmp_path, "id").equals(table)


def test_interleaved_partitions_of_a_large_frame_give_one_file_each(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["safewrite.frames.prepare"]
    monkeypatch.setattr(module, "KEPT_BYTES", -1)
    monkeypatch.setattr(module, "_SLICE_BYTES", 160)
    table = pa.table({"id": range(100), "p": [i % 3 for i in range(100)]})
    prepared = prepare(table, None, partition_by=["p"])
    assert len(list(prepared.tables())) >= 10
    files = list(encode(prepared, partition_by=["p"], write_id="w"))
    assert [(f.partition_values, f.rows) for f in files] == [
        ({"p": "0"}, 34),
        ({"p": "1"}, 33),
        ({"p": "2"}, 33),
    ]
    ids = pq.read_table(io.BytesIO(files[1].body)).column("id").to_pylist()
    assert ids == list(range(1, 100, 3))


def test_no_rows_give_no_file() -> None:  # H8
    for partition_by in ((), ("p",)):
        prepared = prepare([], pa.schema([("id", pa.int64()), ("p", pa.string())]), partition_by=partition_by)
        assert list(encode(prepared, partition_by=partition_by, write_id="w")) == []


def test_times_are_stored_in_microseconds_and_say_whether_they_are_instants() -> None:  # H4
    table = pa.table({"a": pa.array([1], UTC_TIMESTAMP), "n": pa.array([1], pa.timestamp("us"))})
    (file,) = encode(prepare(table, None), partition_by=(), write_id="w")
    kinds = [json.loads(c.logical_type.to_json()) for c in pq.read_metadata(io.BytesIO(file.body)).schema]
    assert [k["timeUnit"] for k in kinds] == ["microseconds"] * 2
    assert [k["isAdjustedToUTC"] for k in kinds] == [True, False]


def stats_of(kind: pa.DataType, values: list[Any], **options: Any) -> dict[str, Any]:
    table = pa.table({"a": pa.array(values, kind)})
    (file,) = encode(prepare(table, None), partition_by=(), write_id="w", **options)
    found: dict[str, Any] = json.loads(file.stats)
    return found


def bounds(kind: pa.DataType, values: list[Any]) -> tuple[Any, Any]:
    stats = stats_of(kind, values)
    return stats["minValues"].get("a"), stats["maxValues"].get("a")


def test_nan_leaves_out_the_bounds_and_infinity_is_spelled_as_spark_does() -> None:  # H7
    assert bounds(pa.float64(), [1.0, math.nan]) == (None, None)
    assert bounds(pa.float64(), [1.0, math.inf]) == (1.0, "Infinity")
    assert bounds(pa.float64(), [-math.inf, 1.0]) == ("-Infinity", 1.0)
    assert bounds(pa.float64(), [math.nan, None]) == (None, None)


def test_nan_in_one_slice_leaves_out_the_bounds_of_the_whole_file() -> None:  # H7
    for order in ([math.nan, 1.0], [1.0, math.nan]):
        pieces = [pa.table({"a": [value]}) for value in order]
        stats = FileStats(pieces[0].schema, {("a",)})
        for piece in pieces:
            stats.update(piece)
        found = json.loads(stats.to_json())
        assert (found["numRecords"], found["minValues"], found["maxValues"]) == (2, {}, {})


MANY = st.lists(
    st.lists(
        st.sampled_from(["", "a", "ü", "\U0010ffff" * 40, "a" * 40, "x" * 5000, None]), min_size=1, max_size=9
    ),
    min_size=1,
    max_size=4,
)


@given(MANY)
def test_bounds_of_many_texts_are_those_of_the_rows(groups: list[list[str | None]]) -> None:
    """The footer has them, and where a text is too long for it the rows are looked at; also of some row groups that had few."""

    def told(many: int) -> str:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stats, "_MANY_TEXTS", many)
            draft = _Draft(pa.schema([("t", pa.string()), ("n", pa.int64())]), "snappy", {("t",), ("n",)})
            for group in groups:
                draft.write(pa.table({"t": pa.array(group, pa.string()), "n": range(len(group))}))
            return draft.close()[1].to_json()

    assert told(1) == told(5) == told(2**40)


def test_texts_that_are_no_utf8_leave_out_their_bounds_however_many() -> None:
    """As engines of Java write them: a compaction reads them too."""
    broken = pa.array([b"\xff\xfe", b"a"] * 6000).cast(pa.binary()).view(pa.string())
    draft = _Draft(pa.schema([("t", pa.string())]), "snappy", {("t",)})
    draft.write(pa.table({"t": broken}))
    found = json.loads(draft.close()[1].to_json())
    assert (found["minValues"], found["nullCount"]) == ({}, {"t": 0})


def test_zero_bounds_cover_both_zeros() -> None:  # H7
    for zero in (0.0, -0.0):
        low, high = bounds(pa.float64(), [zero])
        assert (math.copysign(1, low), math.copysign(1, high)) == (-1, 1)


def test_long_texts_are_cut_below_and_rounded_up_above() -> None:
    text = "a" * 40
    assert bounds(pa.string(), [text]) == ("a" * 32, "a" * 32 + "\x7f")
    assert bounds(pa.string(), ["é" * 40]) == ("é" * 32, "é" * 32 + "\U0010ffff")
    assert bounds(pa.string(), ["\U0010ffff" * 40]) == ("\U0010ffff" * 32, None)
    assert bounds(pa.string(), ["b" * 32]) == ("b" * 32, "b" * 32)


def test_times_are_rounded_outward_to_milliseconds() -> None:
    moment = dt.datetime(2021, 1, 1, 0, 0, 0, 1001)
    assert bounds(pa.timestamp("us"), [moment]) == ("2021-01-01T00:00:00.001", "2021-01-01T00:00:00.002")
    aware = moment.replace(tzinfo=dt.UTC)
    assert bounds(UTC_TIMESTAMP, [aware]) == ("2021-01-01T00:00:00.001Z", "2021-01-01T00:00:00.002Z")
    last = "9999-12-31T23:59:59.999"  # readers add the millisecond that a bound may have been cut by
    assert bounds(pa.timestamp("us"), [END]) == (last, last)


def test_decimals_that_a_double_cannot_hold_are_rounded_outward() -> None:
    assert bounds(pa.decimal128(38, 2), [D("-0.01"), D("1.50")]) == (-0.01, 1.5)
    wide = D("12345678901234567.89")
    assert bounds(pa.decimal128(38, 2), [-wide, wide]) == (-12345678901234600, 12345678901234600)
    nines = D("99999999999999999.99")  # above it there is none of that type
    assert bounds(pa.decimal128(19, 2), [nines]) == (99999999999999900, None)


def test_booleans_have_bounds_for_deltalake_takes_missing_ones_for_null() -> None:
    assert bounds(pa.bool_(), [True, False, None]) == (False, True)


def test_bytes_lists_and_maps_have_null_counts_only() -> None:
    for kind, value in (
        (pa.binary(), b"x"),
        (pa.list_(pa.int64()), [1]),
        (pa.map_(pa.string(), pa.int64()), [("k", 1)]),
    ):
        stats = stats_of(kind, [value, None])
        assert (stats["minValues"], stats["maxValues"], stats["nullCount"]) == ({}, {}, {"a": 1})


def test_struct_leaves_have_statistics_of_their_own_and_count_null_structs() -> None:
    stats = stats_of(pa.struct([("x", pa.int64()), ("y", pa.string())]), [{"x": 1, "y": None}, None])
    assert stats["minValues"] == {"a": {"x": 1}}
    assert stats["nullCount"] == {"a": {"x": 1, "y": 2}}


def test_only_the_first_leaf_columns_have_statistics() -> None:
    table = pa.table({f"c{i}": [i] for i in range(40)})
    (file,) = encode(prepare(table, None), partition_by=(), write_id="w")
    assert list(json.loads(file.stats)["nullCount"]) == [f"c{i}" for i in range(32)]
    assert stats_of(pa.int64(), [1], indexed=Indexed(0))["nullCount"] == {}


def test_row_groups_can_be_left_out_by_every_column_but_floats() -> None:
    """H7: Spark would leave out NaN and -0.0, by statistics that do not count NaN and by dictionaries."""
    kinds = {"n": pa.int64(), "s": pa.string(), "x": pa.float64(), "y": pa.float32()}
    nested = pa.struct(
        [*kinds.items(), ("l", pa.list_(pa.float64())), ("m", pa.map_(pa.string(), pa.float32()))]
    )
    table = pa.table(
        {
            **{name: pa.array([1 if name != "s" else "1"], kind) for name, kind in kinds.items()},
            "point": pa.array(
                [{"n": 1, "s": "1", "x": 1.0, "y": 1.0, "l": [1.0], "m": [("k", 1.0)]}], nested
            ),
            "list": pa.array([[1]], pa.list_(pa.int64())),
            "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        }
    )
    (file,) = encode(prepare(table, None), partition_by=(), write_id="w")
    group = pq.read_metadata(io.BytesIO(file.body)).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    floats = [column for column in columns if column.physical_type in ("FLOAT", "DOUBLE")]
    assert len(floats) == 6
    for column in columns:
        prunable = column not in floats
        assert (column.statistics is not None) == prunable, column.path_in_schema
        assert column.has_dictionary_page == (column.physical_type == "BYTE_ARRAY"), column.path_in_schema


def test_filters_of_a_reader_find_rows_at_the_bounds(tmp_path: Path) -> None:  # H7
    table = pa.table(
        {
            "id": range(3),
            "t": pa.array([dt.datetime(2021, 1, 1, 0, 0, 0, m) for m in (1, 1999, 5)], UTC_TIMESTAMP),
            "s": ["a" * 40, "é" * 40, "b"],
            "f": [0.0, math.inf, -1.0],
        }
    )
    write_table(tmp_path, table)
    for condition, ids in {
        "t >= '2021-01-01T00:00:00.001999Z'": [1],
        "t <= '2021-01-01T00:00:00.000001Z'": [0],
        f"s >= '{'é' * 40}'": [1],
        f"s <= '{'a' * 40}'": [0],
        "f > 1e308": [1],
    }.items():
        builder = QueryBuilder().register("t", DeltaTable(str(tmp_path)))
        found = pa.table(builder.execute(f"select id from t where {condition}"))
        assert found.column("id").to_pylist() == ids, condition


def test_other_partitions_than_those_checked_are_refused() -> None:
    prepared = prepare(pa.table({"id": [1], "p": [""]}), None)
    with pytest.raises(InvalidInputError, match="prepared for partitions"):
        list(encode(prepared, partition_by=["p"], write_id="w"))


@pytest.mark.parametrize("write_id", ["", "a/b", "ü", "x" * 101])
def test_write_ids_that_are_no_file_names_are_refused(write_id: str) -> None:
    with pytest.raises(InvalidInputError, match="write_id"):
        list(encode(prepare(pa.table({"id": [1]}), None), partition_by=(), write_id=write_id))


@pytest.mark.parametrize("compression", ["zstd", "snappy", "none"])
def test_every_compression_is_read_back(compression: Any) -> None:
    (file,) = encode(prepare({"a": [1, 2]}, None), partition_by=(), write_id="w", compression=compression)
    assert pq.read_table(io.BytesIO(file.body)).to_pydict() == {"a": [1, 2]}
