"""PostgreSQL's default tells of the row before a change its key only (T3-B4, T3-B5).

Debezium has NULL for the rest, and the type's zero in columns that are NOT NULL.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from safewrite.cdc.records.change import KafkaRecord
from tests.cdc.events import event, postgres, record, with_schema
from tests.cdc.jobs import FORM_AND_SCHEMAS, Job

FORMS = ("delta", "iceberg")
_KINDS = {"id": "int64", "email": "string", "n": "int64", "at": "string", "moment": "int64"}
_NAMES = {"moment": "io.debezium.time.MicroTimestamp"}


def told(
    op: str,
    after: Any = None,
    before: Any = None,
    *,
    at: int,
    key: Any = None,
    schemas: bool = False,
    **more: Any,
) -> KafkaRecord:
    """An event whose record has the key ``id``; log position and offset are one number."""
    row = after or before or key
    made = event(op, after, before, source=postgres(at, "a"))
    key = key or {"id": row["id"]}
    if not schemas:
        return record(made, key, offset=at, **more)
    fields = [
        {
            "type": _KINDS[name],
            "optional": True,
            "field": name,
            **({"name": _NAMES[name]} if name in _NAMES else {}),
        }
        for name in {**(before or {}), **(after or {}), **key}
    ]
    of_key = {"type": "struct", "fields": [one for one in fields if one["field"] in key]}
    return record(with_schema(made, fields), {"schema": of_key, "payload": key}, offset=at, **more)


# --- primary_key is not the record's key (T3-B4) ------------------------------------------------------------
@pytest.mark.sweep("iceberg")
@FORM_AND_SCHEMAS
def test_changes_that_do_not_tell_the_key_before_are_refused(
    tmp_path: Path, form: str, schemas: bool
) -> None:
    """``email`` names a row, and Kafka's records have ``id``: of an update nobody knows which row it left."""
    job = Job(tmp_path, [{"table": "a", "primary_key": ["email"]}], form, schemas=False)

    def row(key: int, email: str, n: int = 1) -> dict[str, Any]:
        return {"id": key, "email": email, "n": n}

    many = [told("c", row(key, f"{key}@x"), at=key, schemas=schemas) for key in range(1, 9)]
    job.land(*many)
    gone = {"id": 7, "email": "", "n": 0}
    job.land(
        told("u", row(1, "new@x"), at=11, schemas=schemas),
        told("u", row(2, "2@x", 5), at=12, schemas=schemas),
        told("u", row(3, "3b@x"), row(3, "3@x"), at=13, schemas=schemas),
        told("u", row(4, "4@x", 6), row(4, "4@x"), at=14, schemas=schemas),
        told("d", None, row(5, "5@x"), at=15, schemas=schemas),
        told("d", None, {"id": 6, "email": None, "n": None}, at=16, schemas=schemas),
        told("d", None, gone, at=17, schemas=schemas),
        told("u", row(8, "8b@x"), {"id": 8, "email": "", "n": 0}, at=18, schemas=schemas),
        told("r", row(9, "9@x"), at=19, schemas=schemas),
    )
    left = {key: one["n"] for key, one in job.rows("a", "email").items()}
    assert left == {"1@x": 1, "2@x": 1, "3b@x": 1, "4@x": 6, "6@x": 1, "7@x": 1, "8@x": 1, "9@x": 1}
    letters = job.letters()
    assert sorted(one["offset"] for one in letters) == [11, 12, 16, 17, 18]
    assert all(
        "REPLICA IDENTITY FULL" in one["reason"] and "message.key.columns" in one["reason"] for one in letters
    )


@pytest.mark.sweep("iceberg")
@FORM_AND_SCHEMAS
def test_a_key_that_is_the_records_or_part_of_it_needs_no_row_before(
    tmp_path: Path, form: str, schemas: bool
) -> None:
    for number, (keys, mapping) in enumerate(
        [(["id"], {}), (["n", "id"], {}), (["order_id"], {"id": "order_id"}), (None, {})]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        named = {} if keys is None else {"primary_key": keys}
        job = Job(folder, [{"table": "a", "name_mapping": mapping, **named}], form, schemas=False)
        key = {"id": 1, "n": 5}
        job.land(told("c", {"id": 1, "n": 5, "email": "a"}, at=1, key=key, schemas=schemas))
        job.land(told("u", {"id": 1, "n": 5, "email": "b"}, at=2, key=key, schemas=schemas))
        assert [one["email"] for one in job.read("a").to_pylist()] == ["b"]
        assert not job.letters()


# --- columns of the rows order the changes (T3-B5) --------------------------------------------------------
ZEROS = [
    {"id": 1, "n": 0, "at": ""},
    {"id": 1, "n": None, "at": None},
    {"id": 1, "n": 3, "at": "1970-01-01"},
    {"id": 1},
    None,
]


@pytest.mark.sweep("['n', 'at']-iceberg", "['n']-iceberg", "['n', 'at']-delta")
@FORM_AND_SCHEMAS
@pytest.mark.parametrize("order", [["n"], ["n", "at"]], ids=str)
def test_a_delete_without_a_value_that_orders_it_ranks_by_its_position(
    tmp_path: Path, form: str, schemas: bool, order: list[str]
) -> None:
    """In the batch of its row, and in the next one; a default that looks like a value is older than the row's."""
    for number, before in enumerate(ZEROS):
        folder = tmp_path / str(number)
        folder.mkdir()
        job = Job(
            folder, [{"table": "a", "sequence": "precombine", "precombine_key": order}], form, schemas=False
        )

        def row(key: int, n: int) -> dict[str, Any]:
            return {"id": key, "n": n, "at": f"2024-01-0{n}"}

        first = [told("c", row(key, 4), at=key, schemas=schemas) for key in (1, 2)]
        delete = told("d", None, before, at=5, key={"id": 1}, schemas=schemas and before is not None)
        job.land(*first, told("u", row(1, 5), at=3, schemas=schemas))
        job.land(delete)
        assert list(job.rows("a")) == [2]
        again = told("c", row(1, 6), at=7, schemas=schemas)
        of_batch = told("d", None, before, at=8, key={"id": 1}, schemas=schemas and before is not None)
        lines = job.land(again, of_batch, told("u", row(2, 7), at=9, schemas=schemas))
        assert {key: one["n"] for key, one in job.rows("a").items()} == {2: 7}
        assert not job.letters()
        assert all(line.adds_up for line in lines)


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("form", FORMS)
def test_a_delete_that_tells_its_order_keeps_it(tmp_path: Path, form: str) -> None:
    """Delivered again after a row came again, it is late; before any row, it is remembered."""
    job = Job(
        tmp_path, [{"table": "a", "sequence": "precombine", "precombine_key": ["n"]}], form, schemas=False
    )
    whole = {"id": 1, "n": 7, "email": "x"}
    job.land(told("d", None, whole, at=2))
    job.land(
        told("c", {**whole, "n": 5}, at=1, partition=1),
        told("c", {"id": 2, "n": 1, "email": "x"}, at=2, partition=1),
    )
    assert list(job.rows("a")) == [2]
    job.land(told("c", {**whole, "n": 9}, at=3))
    again = record(event("d", None, whole, source=postgres(2, "a")), {"id": 1}, offset=4)
    line = job.land(again, told("u", {"id": 2, "n": 2, "email": "y"}, at=5))[-1]
    assert sorted(job.rows("a")) == [1, 2]
    assert line.late == 1


@pytest.mark.sweep("iceberg")
@FORM_AND_SCHEMAS
def test_a_changed_key_leaves_one_row(tmp_path: Path, form: str, schemas: bool) -> None:
    job = Job(
        tmp_path, [{"table": "a", "sequence": "precombine", "precombine_key": ["n"]}], form, schemas=False
    )
    job.land(told("c", {"id": 1, "n": 5, "email": "a"}, at=1, schemas=schemas))
    moved = {"__debezium.newkey": {"id": 2}}, {"__debezium.oldkey": {"id": 1}}
    job.land(
        told("d", None, {"id": 1, "n": 0, "email": ""}, at=2, schemas=schemas, headers=moved[0]),
        told("c", {"id": 2, "n": 5, "email": "a"}, at=3, schemas=schemas, headers=moved[1]),
    )
    assert list(job.rows("a")) == [2]
    # By the row before an update, whose value is higher than the new one's.
    job.land(
        told("u", {"id": 3, "n": 4, "email": "b"}, {"id": 2, "n": 5, "email": "a"}, at=4, schemas=schemas)
    )
    assert list(job.rows("a")) == [3]


@pytest.mark.sweep("iceberg")
@FORM_AND_SCHEMAS
def test_times_that_order_are_compared_as_the_table_has_them(
    tmp_path: Path, form: str, schemas: bool
) -> None:
    options = {"sequence": "precombine", "precombine_key": ["moment"]}
    if not schemas:
        options |= {"timestamp_fields": {"moment": "epoch_us"}}
    job = Job(tmp_path, [{"table": "a", **options}], form, schemas=False)
    job.land(told("c", {"id": 1, "moment": 1_700_000_000_000_000}, at=1, schemas=schemas))
    job.land(
        told("u", {"id": 1, "moment": 1_700_000_000_000_001}, at=2, schemas=schemas),
        told("d", None, {"id": 1, "moment": 0}, at=3, schemas=schemas),
        told("c", {"id": 2, "moment": 5}, at=4, schemas=schemas),
    )
    assert list(job.rows("a")) == [2]


def test_a_delete_of_no_row_that_tells_no_order_is_ignored_and_counted(tmp_path: Path) -> None:
    job = Job(tmp_path, [{"table": "a", "sequence": "precombine", "precombine_key": ["n"]}], schemas=False)
    job.land(told("c", {"id": 1, "n": 5}, at=1))
    given = [told("d", None, {"id": 9, "n": None}, at=2), told("u", {"id": 1, "n": 6}, at=3)]
    job.land_and_die(*given)
    lines = [line for line in job.land(*given) if line.table]
    assert [(line.records, line.ignored, line.applied, line.dead) for line in lines] == [(2, 1, 1, 0)]
    assert not job.verdict().faults
