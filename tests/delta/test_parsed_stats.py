"""T4-A11: checkpoints of tables that ask for statistics as structs, read by deltalake, and carried on from its own."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import safewrite

STRUCT = {"delta.checkpoint.writeStatsAsStruct": "true"}
ONLY = STRUCT | {"delta.checkpoint.writeStatsAsJson": "false"}
SCHEMA = pa.schema(
    [
        ("id", pa.int64()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("price", pa.decimal128(10, 2)),
        ("real", pa.float64()), ("flag", pa.bool_()), ("raw", pa.binary()), ("s", pa.string()),
        ("more", pa.struct([("x", pa.int32()), ("y", pa.string())])), ("many", pa.list_(pa.int64())),
        ("part", pa.int32()), ("place", pa.string()),
    ]
)  # fmt: skip


def row(number: int) -> dict[str, Any]:
    return {
        "id": number, "day": dt.date(2026, 1, number), "at": dt.datetime(2026, 1, number, 1, 2, 3, 4567, dt.UTC),
        "price": Decimal(number) / 4, "real": number / 8, "flag": True, "raw": b"r", "s": f"é{number}",
        "more": {"x": number, "y": None}, "many": [number], "part": number, "place": None if number == 2 else "a=b c",
    }  # fmt: skip


def adds(at: Path, version: int) -> dict[int, dict[str, Any]]:
    """The add actions of a checkpoint, by the row that the file has."""
    table = pq.read_table(at / "_delta_log" / f"{version:020}.checkpoint.parquet")
    found = [one for one in table.column("add").to_pylist() if one is not None]
    return {one["stats_parsed"]["minValues"]["id"]: one for one in found}


@pytest.mark.parametrize("properties", [STRUCT, ONLY])
def test_a_checkpoint_has_statistics_and_partitions_in_the_tables_types(
    tmp_path: Path, properties: dict[str, str]
):
    at = tmp_path / "t"
    table = safewrite.open(
        str(at), create=True, schema=SCHEMA, partition_by=["part", "place"], properties=properties
    )
    for number in (1, 2):
        table.append([row(number)], key=str(number))
    assert table.checkpoint()
    table.append([row(3)])
    assert table.checkpoint()  # the first two as the checkpoint before has them
    found = adds(at, 3)
    for number, one in found.items():
        given, stats = row(number), one["stats_parsed"]
        assert stats["numRecords"] == 1
        for name in ("id", "day", "price", "real", "s"):
            assert stats["minValues"][name] == stats["maxValues"][name] == given[name]
        assert stats["minValues"]["at"] <= given["at"] <= stats["maxValues"]["at"]
        assert stats["maxValues"]["more"] == {"x": number, "y": None}
        assert {*stats["minValues"]} & {"flag", "raw", "many", "part"} == set()
        assert stats["nullCount"]["more"] == {"x": 0, "y": 1}
        assert one["partitionValues_parsed"] == {"part": number, "place": given["place"]}
        assert json.loads(one["stats"])["numRecords"] == 1
    for commit in (at / "_delta_log").glob("*.json"):
        commit.unlink()
    read = deltalake.DeltaTable(at).to_pyarrow_table().sort_by("id").select(SCHEMA.names).to_pylist()
    assert read == [row(number) for number in (1, 2, 3)]
    assert safewrite.open(str(at)).row_count() == 3


def test_what_another_engine_left_as_structs_alone_is_carried_on_in_both_forms(tmp_path: Path):
    """JSON is kept next to the structs: where files of both kinds are in a checkpoint, readers take either for all."""
    at = tmp_path / "t"
    first = pa.Table.from_pylist([row(1)], schema=SCHEMA)
    deltalake.write_deltalake(at, first, partition_by=["part", "place"], configuration=ONLY)
    deltalake.DeltaTable(at).create_checkpoint()
    assert "stats" not in adds(at, 0)[1]
    table = safewrite.open(str(at))
    table.append([row(2)])
    assert table.checkpoint()
    found = adds(at, 1)
    for number in (1, 2):
        told, given = json.loads(found[number]["stats"], parse_float=Decimal), row(number)
        assert told["numRecords"] == 1
        assert told["minValues"]["price"] == given["price"]
        assert told["minValues"]["day"] == given["day"].isoformat()
        assert told["minValues"]["at"] == f"2026-01-0{number}T01:02:03.004Z"
        assert found[number]["stats_parsed"]["minValues"]["s"] == given["s"]
    assert deltalake.DeltaTable(at).to_pyarrow_table().num_rows == 2


def test_what_is_no_value_of_its_type_is_left_out(tmp_path: Path):
    at = tmp_path / "t"
    table = safewrite.open(str(at), create=True, schema=pa.schema([("id", pa.int32())]), properties=STRUCT)
    table.append([{"id": 1}])
    log = at / "_delta_log" / f"{1:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            low, high = {"id": 2**40}, {"id": 1.5}
            line["add"]["stats"] = json.dumps({"numRecords": 1, "minValues": low, "maxValues": high})
    log.write_text("\n".join(map(json.dumps, lines)))
    assert safewrite.open(str(at)).checkpoint()
    (found,) = adds(at, 1).values()
    assert found["stats_parsed"]["minValues"] == found["stats_parsed"]["maxValues"] == {"id": None}
