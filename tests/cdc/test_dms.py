"""Records of AWS DMS in JSON, as a task over PostgreSQL writes them."""

from __future__ import annotations

from typing import Any

import pytest

from safewrite.cdc.config.column_rules import ColumnRules
from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.envelopes.decoding import Decoder
from safewrite.cdc.records.change import Op
from safewrite.cdc.records.records import KafkaRecords
from safewrite.cdc.rows.rows import rows_of
from tests.cdc.events import decoded, dms, record


def test_rows_and_control_records_of_one_topic_are_told_apart() -> None:
    created = {
        "metadata": {
            "operation": "create-table", "partition-key-type": "task-id", "partition-key-value": "serv-res-id-yhru",
            "record-type": "control", "schema-name": "public", "table-name": "customers",
            "timestamp": "2024-07-29T00:30:47.266581Z",
        }
    }  # fmt: skip
    found = decoded(
        record(created),
        record(dms("load", {"id": 42, "name": "John"}), offset=1),
        record(dms("insert", {"id": 46, "name": "Jane"}), offset=2),
        record(
            dms("update", {"id": 42, "name": "Jim"}, {}, position="00000002/7C007328.2.00000002/7C007328"),
            offset=3,
        ),
        record(
            dms("delete", {"id": 42, "name": "Jim"}, position="00000002/7C007329.2.00000002/7C007329"),
            offset=4,
        ),
        form="dms-json",
    )
    assert [ignored.kind for ignored in found.ignored] == ["control"]
    assert [change.op for change in found.rows] == [Op.UPSERT, Op.UPSERT, Op.UPSERT, Op.DELETE]
    assert [str(change.source) for change in found.rows] == ["public.customers"] * 4
    positions = [change.position for change in found.rows]
    assert positions == sorted(positions), "a full load comes before everything"
    assert found.rows[3].before == {"id": 42, "name": "Jim"}
    assert found.rows[1].source_time_ms == 1722214697974
    assert not found.dead


def test_a_changed_key_is_known_by_the_before_image() -> None:
    """It has the columns that changed, and no others."""
    (change,) = decoded(record(dms("update", {"id": 45, "name": "Jane"}, {"id": 46})), form="dms-json").rows
    assert (change.before, change.after) == ({"id": 46, "name": "Jane"}, {"id": 45, "name": "Jane"})
    (change,) = decoded(
        record({**dms("update", {"id": 45}), "old": {"id": 46}}), form="dms-json", before_image="old"
    ).rows
    assert change.before == {"id": 46}


@pytest.mark.parametrize("is_by_columns", [False, True])
def test_a_table_whose_updates_tell_no_row_before_is_told_once(
    is_by_columns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A change of the key leaves the old row then, and nothing in the record says so."""
    decoder = Decoder("dms-json")

    def warnings_of(*values: dict[str, Any]) -> list[str]:
        caplog.clear()
        given = [record(one, b"k", offset=at) for at, one in enumerate(values * 100)]
        found = decoder.decode(KafkaRecords.of(given)) if is_by_columns else decoder.decode_each(given)
        assert found.by_columns == (len(given) if is_by_columns else 0)
        return [one.getMessage() for one in caplog.records]

    loads = [dms(op, {"id": 1, "name": "a"}, **{"table-name": "t"}) for op in ("load", "insert", "delete")]
    assert warnings_of(*loads) == []
    told = dms("update", {"id": 2, "name": "a"}, {"id": 1}, **{"table-name": "t"})
    assert warnings_of(told) == []
    (text,) = warnings_of(told, *(dms("update", {"id": 2, "name": "b"}, **{"table-name": "t"}) for _ in "ab"))
    assert ("updates of t " in text, "BeforeImageSettings" in text) == (True, True)
    assert warnings_of(dms("update", {"id": 3, "name": "b"}, **{"table-name": "t"})) == []
    assert len(warnings_of(dms("update", {"id": 3, "name": "b"}, **{"table-name": "u"}))) == 1


def test_changes_without_transaction_details_are_dead_letters() -> None:
    without = dms("update", {"id": 1}, number=None)
    found = decoded(record(without), record(dms("load", {"id": 1}), offset=1), form="dms-json")
    assert "IncludeTransactionDetails" in str(found.rows[0].unordered)
    table = TargetTable(database="d", table="customers", primary_key=["id"])
    rows = rows_of(ColumnRules(table, None, "string"), found.rows, None)
    assert [letter.record.offset for letter in rows.dead] == [0]
    assert [row.values["id"] for row in rows.rows] == [1]
    by_column = TargetTable(
        database="d", table="customers", primary_key=["id"], sequence="precombine", precombine_key=["at"]
    )
    dated = decoded(record(dms("update", {"id": 1, "at": 5}, number=None)), form="dms-json").rows
    assert [
        row.values["at"] for row in rows_of(ColumnRules(by_column, None, "string"), dated, None).rows
    ] == [5]


def test_a_table_that_was_dropped_or_renamed_is_not_followed_in_silence() -> None:
    for operation in ("drop-table", "rename-table", "truncate-table", "nobody-knows"):
        control = {"metadata": {"record-type": "control", "operation": operation, "table-name": "customers"}}
        (letter,) = decoded(record(control), form="dms-json").dead
        assert operation in letter.reason


def test_what_is_no_record_of_dms_is_a_dead_letter() -> None:
    poison = [b"\x00", [], {}, {"metadata": []}, {"metadata": {"record-type": "data", "operation": "merge"}}, dms("insert", None), dms("insert", {"id": 1}, [1]), dms("insert", {"id": 1}, **{"table-name": None})]  # fmt: skip
    found = decoded(*(record(value, offset=offset) for offset, value in enumerate(poison)), form="dms-json")
    assert len(found.dead) == len(poison)
    assert not found.rows
