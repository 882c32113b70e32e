"""Names of columns in small letters, in rows and keys; records that a registry's converter for JSON Schema wrote."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from safewrite.cdc.records.change import KafkaRecord
from tests.cdc.events import event, postgres, record, told_with_schemas
from tests.cdc.jobs import Job, change


@pytest.mark.sweep("False")
@pytest.mark.parametrize("schemas", [False, True])
def test_names_become_small_letters_where_that_is_asked_for(tmp_path: Path, schemas: bool) -> None:
    """In keys and rows, however they are read; of two columns that would be one the record is a dead letter."""
    table = {
        "table": "a",
        "lower_case_names": True,
        "name_mapping": {"Kept": "Kept"},
        "leave_out": ["Secret"],
    }
    table |= {
        "timestamp_fields": {"When": "epoch_ms"},
        "on_misfit": {"N": "null"},
        "column_types": {"n": "int64"},
    }
    job = Job(tmp_path, [table], schemas=schemas)

    def of(op: str, key: int, offset: int, **row: Any) -> KafkaRecord:
        after = None if op == "d" else {"ID": key, "When": 1500, "Kept": "x", "Secret": "s", **row}
        return record(event(op, after, source=postgres(offset + 1, "a")), {"ID": key}, offset=offset)

    job.land(of("c", 1, 0, N=5), of("c", 2, 1, N=6), of("c", 3, 2, N=7))
    job.land(of("u", 1, 3, N=8), of("d", 2, 4), of("u", 3, 5, N="no number"))
    job.land(of("u", 1, 6, N=9, n=9))
    when = datetime.fromtimestamp(1.5, UTC)
    assert job.rows("a") == {
        key: {"id": key, "when": when, "Kept": "x", "n": n} for key, n in ((1, 8), (3, None))
    }
    assert [letter["offset"] for letter in job.letters()] == [6]
    assert job.verdict().faults == ()


def test_json_behind_the_number_of_a_schema_is_read_as_without_it(tmp_path: Path) -> None:
    """Keys and values, next to records that have none; JSON in UTF-16, which begins with a zero too, stays what it is."""
    job = Job(tmp_path, [{"table": "a"}], schemas=False)
    plain = [change("c", "a", key, {"id": key, "n": key}, lsn=key + 1, offset=key) for key in range(4)]
    framed = [
        replace(one, key=b"\0\0\0\1\2" + (one.key or b""), value=b"\0\0\0\0\7" + (one.value or b""))
        for one in plain[:2]
    ]
    wide = replace(plain[3], value=(plain[3].value or b"").decode().encode("utf-16-be"))
    job.land(*framed, plain[2], wide, record(b"\0\0\0\0\7{", offset=4), record(b"\0\0\0\0\7[]", offset=5))
    assert job.rows("a") == {key: {"id": key, "n": key} for key in range(4)}
    assert [letter["offset"] for letter in job.letters()] == [4, 5]
    assert job.verdict().faults == ()


def test_a_column_of_a_name_that_the_format_keeps_is_a_dead_letter_until_it_is_mapped(tmp_path: Path) -> None:
    """T4-A9: else the whole table could not be read by Spark; a name of the feed is one like others where there is no feed."""
    feed = {"delta.enableChangeDataFeed": "true"}
    tables = [
        {"table": "a", "properties": feed},
        {"table": "b", "properties": feed, "name_mapping": {"_Change_Type": "kind"}},
        {"table": "c"},
    ]
    job = Job(tmp_path, tables, schemas=False)
    for at, name in enumerate("abc"):
        job.land(change("c", name, 1, {"id": 1}, lsn=1, offset=2 * at))
        job.land(change("c", name, 2, {"id": 2, "_Change_Type": "x"}, lsn=2, offset=2 * at + 1))
    assert [letter["offset"] for letter in job.letters()] == [1]
    assert "keeps for itself" in job.letters()[0]["reason"]
    assert job.rows("b")[2] == {"id": 2, "kind": "x"}
    assert job.rows("c")[2] == {"id": 2, "_Change_Type": "x"}
    assert job.verdict().faults == ()


@pytest.mark.sweep("3")
@pytest.mark.parametrize("schemas", [False, True])
@pytest.mark.parametrize("many", [3, 300])
def test_a_text_that_is_no_utf8_is_a_dead_letter(tmp_path: Path, many: int, schemas: bool) -> None:
    """T4-A10: whether records are read one by one or as columns; the others of the batch land."""
    job = Job(tmp_path, [{"table": "a"}], schemas=False)
    found = [
        change("c", "a", number, {"id": number, "s": "text"}, lsn=number + 1, offset=number)
        for number in range(many)
    ]
    found = told_with_schemas(found) if schemas else found
    found[1] = replace(found[1], value=(found[1].value or b"").replace(b"text", b"te\xffxt"))
    job.land(*found)
    assert {*job.rows("a")} == {*range(many)} - {1}
    assert [letter["offset"] for letter in job.letters()] == [1]
    assert job.verdict().faults == ()
