"""A frame of changes is read by what it declares: upserts are checked as rows, deletes and truncates by less."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from safewrite.changes.meaning.decide import ChangeOp
from safewrite.changes.meaning.reading import Changes, read
from safewrite.changes.meaning.spec import declared
from safewrite.errors import InvalidInputError, WouldAlterError

TARGET = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("lsn", pa.int64(), False),
        pa.field("name", pa.string(), False),
    ]
)


def changes(rows: Any, **how: Any) -> Changes:
    given: dict[str, Any] = {"keys": ["id"], "sequence_by": ["lsn"], "delete_when": "op = 'd'", **how}
    return read(rows, declared(**given), TARGET)


def row(op: str | None, number: int | None, lsn: int | None, name: str | None = "n") -> dict[str, Any]:
    return {"op": op, "id": number, "lsn": lsn, "name": name}


def test_columns_that_only_a_condition_names_are_not_written() -> None:
    found = changes([row("c", 1, 1), row("d", 2, 2, None)])
    assert found.batch.table.column_names == TARGET.names
    assert found.batch.ops.tolist() == [ChangeOp.UPSERT, ChangeOp.DELETE]
    assert found.batch.table.to_pylist()[1] == {"id": 2, "lsn": 2, "name": None}


def test_columns_of_the_data_that_are_not_named_are_left_out() -> None:
    """A source's metadata; without ``columns=`` it would be refused."""
    rows = [row("c", 1, 1) | {"_meta": {"a": 1}}, row("d", 2, 2, None) | {"_meta": {"a": 2}}]
    found = changes(rows, columns=TARGET.names)
    assert found.batch.table.column_names == TARGET.names
    assert found.batch.ops.tolist() == [ChangeOp.UPSERT, ChangeOp.DELETE]
    assert found.fingerprint == changes([row("c", 1, 1), row("d", 2, 2, None)]).fingerprint
    frame = pd.DataFrame(rows)
    assert changes(frame, columns=TARGET.names).fingerprint == found.fingerprint
    with pytest.raises(WouldAlterError, match="_meta"):
        changes(rows)


def test_columns_of_the_table_that_are_left_out_are_not_null() -> None:
    with pytest.raises(WouldAlterError, match="name"):
        changes([row("c", 1, 1)], columns=["id", "lsn"])
    lacks = [row("c", 1, 1) | {"lacks": ["name"]}]
    found = changes(lacks, columns=["id", "lsn"], unchanged="lacks")
    assert found.batch.absent["name"].tolist() == [True]


@pytest.mark.parametrize(
    ("columns", "why"),
    [(["id", "name"], "leaves out"), (["id", "lsn", "other"], "no columns"), ([], "list of names"), (["id", "id"], "once")],
)  # fmt: skip
def test_columns_must_be_the_tables_with_key_and_sequence(columns: list[str], why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        changes([row("c", 1, 1)], columns=columns)


def test_places_are_those_of_the_frame() -> None:
    found = changes([row("d", 1, 1, None), row("c", 2, 2), row("d", 3, 3, None), row("c", 4, 4)])
    assert found.batch.table["id"].to_pylist() == [1, 2, 3, 4]
    assert found.batch.ops.tolist() == [1, 0, 1, 0]


def test_a_condition_that_is_null_means_an_upsert() -> None:
    assert changes([row(None, 1, 1), row("d", 2, 1)]).batch.ops.tolist() == [0, 1]


@pytest.mark.sweep(
    "none1",
    "none2",
    "op IN ('d', 'x')-none1",
    "op IN ('d', 'x')-none2",
    "op = 7",
    "op = TRUE-none1",
    "op = TRUE-none2",
)
@pytest.mark.parametrize(
    "none", [pa.nulls(2), [None, None], [float("nan")] * 2, pa.array([None, None], pa.float32())]
)
@pytest.mark.parametrize("condition", ["op = 'd'", "op IN ('d', 'x')", "op = 7", "op = TRUE", "op"])
def test_a_column_without_a_value_has_no_type_that_a_condition_could_miss(none: Any, condition: str) -> None:
    """As pandas reads the ``ChangeOp`` of a full load: NULL, so each row is an upsert."""
    frame = pd.DataFrame({"op": none, "id": [1, 2], "lsn": [1, 1], "name": ["n", "n"]})
    assert changes(frame, delete_when=condition).batch.ops.tolist() == [0, 0]
    assert changes(frame[:0], delete_when=condition).batch.ops.tolist() == []


def test_deletes_may_lack_all_but_keys_and_sequence() -> None:
    found = changes(pd.DataFrame({"op": ["d"], "id": [1], "lsn": [5]}))
    assert found.batch.table.to_pylist() == [{"id": 1, "lsn": 5, "name": None}]
    with pytest.raises(WouldAlterError, match="'name'"):
        changes(pd.DataFrame({"op": ["c"], "id": [1], "lsn": [5]}))


def test_a_boolean_column_may_tell() -> None:
    rows = [{"gone": True, "id": 1, "lsn": 1, "name": "n"}, {"gone": None, "id": 2, "lsn": 1, "name": "n"}]
    assert changes(rows, delete_when="gone").batch.ops.tolist() == [1, 0]


def test_a_truncate_needs_no_key() -> None:
    found = changes([row("t", None, 9, None), row("c", 1, 10)], truncate_when="op = 't'")
    assert found.batch.ops.tolist() == [ChangeOp.TRUNCATE, ChangeOp.UPSERT]


@pytest.mark.parametrize(
    ("rows", "part"),
    [
        ([row("d", None, 1)], r"keys= names 'id'.*row 0"),
        ([row("c", 1, 1), row("d", 7, None)], r"sequence_by= names 'lsn'.*row 1 \{'id': 7\}"),
    ],
)
def test_a_change_without_its_key_or_place_is_refused_with_its_row(rows: Any, part: str) -> None:
    with pytest.raises(InvalidInputError, match=part):
        changes(rows)


@pytest.mark.parametrize(
    ("how", "part"),
    [
        ({"keys": []}, "keys="),
        ({"keys": ["id", "id"]}, "each once"),
        ({"keys": ["lsn"]}, "cannot order its own changes"),
        ({"keys": ["nobody"]}, "no column of the table"),
        ({"keys": ["ID"]}, "or name 'id'"),
        ({"sequence_by": "ts"}, "no column of the table"),
        ({"delete_when": "nobody = 'd'"}, r"delete_when= cannot be used.*'nobody', and the columns are \["),
        ({"delete_when": "name"}, "is boolean"),
    ],
)
def test_what_cannot_be_declared_is_refused(how: dict[str, Any], part: str) -> None:
    with pytest.raises(InvalidInputError, match=part) as raised:
        changes([row("c", 1, 1)], **how)
    assert "Nothing was written" in str(raised.value)


def test_keys_of_floats_are_refused() -> None:
    schema = pa.schema({"id": pa.float64(), "lsn": pa.int64()})
    with pytest.raises(InvalidInputError, match=r"type double.*NaN"):
        read(pa.table({"id": [1.0], "lsn": [1]}), declared(["id"], ["lsn"]), schema)


def test_a_delete_and_an_upsert_of_the_same_values_have_two_fingerprints() -> None:
    assert changes([row("c", 1, 1)]).fingerprint != changes([row("d", 1, 1)]).fingerprint
    assert changes([row("c", 1, 1)]).fingerprint == changes([row("u", 1, 1)]).fingerprint


def test_an_empty_frame_has_no_changes() -> None:
    assert (
        changes(
            pa.table(
                {
                    "op": pa.array([], pa.string()),
                    "id": pa.array([], pa.int64()),
                    "lsn": pa.array([], pa.int64()),
                    "name": pa.array([], pa.string()),
                }
            )
        ).batch.table.num_rows
        == 0
    )


@pytest.mark.parametrize("empty", [[], pd.DataFrame(), pa.table({})], ids=["rows", "pandas", "arrow"])
def test_a_frame_without_columns_has_no_changes_either(empty: Any) -> None:
    found = changes(empty, truncate_when=[("op", "=", "t")])
    assert found.batch.table.num_rows == 0
    assert found.batch.table.column_names == TARGET.names


@pytest.mark.parametrize("kind", ["category", "runs", "view"])
def test_conditions_read_values_however_a_frame_keeps_them(kind: str) -> None:
    rows = [row("c", 1, 1), row("d", 2, 2), row(None, 3, 3)]
    table = pa.Table.from_pylist(rows)
    kept: dict[str, Any] = {
        "category": pd.DataFrame(rows).astype({"op": "category", "name": "category"}),
        "runs": table.set_column(0, "op", pc.run_end_encode(table.column("op"))),
        "view": table.set_column(0, "op", table.column("op").cast(pa.string_view())),
    }
    assert changes(kept[kind]).batch.ops.tolist() == [0, 1, 0]
