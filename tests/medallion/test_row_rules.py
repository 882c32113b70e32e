"""Silver may have CHECK constraints, NOT NULL, generated columns and defaults: a row that breaks a rule goes to quarantine."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.medallion import Pipeline, verify
from safewrite.medallion.config.bronze_columns import BRONZE_COLUMNS, SEQUENCE
from tests.each import each
from tests.medallion.test_jobs import HEAD, Shop
from tests.medallion.test_sync import NAME, Bronze, row
from tests.medallion.test_tasks import by_tasks

OWN = [BRONZE_COLUMNS.field(name) for name in SEQUENCE]
COLUMNS = [
    pa.field("id", pa.int64(), nullable=False), pa.field("few", pa.int64()), pa.field("note", pa.string(), nullable=False),
]  # fmt: skip
COMPUTED = [
    pa.field("twice", pa.int64(), metadata={"delta.generationExpression": "few * 2"}),
    pa.field("state", pa.string(), metadata={"CURRENT_DEFAULT": "'new'"}),
]
FIRST = "shop/orders/20261101-000000001.csv"
SECOND = "shop/orders/20261101-000000002.csv"


def silver(place: str, fields: list[pa.Field]) -> None:
    """A table of another maker, whose rows have ``few < 10``."""
    deltalake.DeltaTable.create(place, pa.schema(fields))
    alter = deltalake.DeltaTable(place).alter
    alter.set_table_properties({"delta.constraints.few": "few < 10"}, raise_if_not_exists=False)


def shop(folder: Path, **files: Any) -> Shop:
    job = Shop(folder, {"id": "int64", "few": "int64", "note": "string"})
    job.config["defaults"]["files"] |= files
    silver(f"{folder}/silver/orders", [*COLUMNS, *OWN, *COMPUTED])
    return job


def found(job: Shop) -> dict[Any, Any]:
    return {
        one["id"]: (one["few"], one["note"], one["twice"], one["state"]) for one in job.rows("silver/orders")
    }


@each("engine", ["here", "executors"])
def test_rows_that_break_a_rule_of_silver_go_to_quarantine_and_columns_are_computed(
    engine: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    job = shop(tmp_path_factory.mktemp("lake"))
    run = (lambda: by_tasks(job.config).run()) if engine == "executors" else job.run
    head = HEAD.replace("price", "few,note")
    job.put(FIRST, f"{head}I,1,1,a,10\nI,2,12,b,11\nI,3,NULL,c,12\nI,4,4,NULL,13\nI,5,5,e,14\n")
    first = run()
    assert first.ok, first.tables[0].error
    assert found(job) == {1: (1, "a", 2, "new"), 5: (5, "e", 10, "new")}
    assert first.tables[0].refined.quarantined == 3
    reasons = {one["line"]: one["reason"] for one in job.rows("aside")}
    assert "breaks the check constraint 'few' (few < 10): few is 12" in reasons[2]
    assert "few is NULL" in reasons[3]
    assert "note is NULL, and silver's column is NOT NULL" in reasons[4]
    job.put(SECOND, f"{head}U,1,99,z,20\nU,1,3,y,21\nD,5,NULL,NULL,22\nU,2,2,b,23\n")
    second = run()
    assert second.ok, second.tables[0].error
    assert found(job) == {1: (3, "y", 6, "new"), 2: (2, "b", 4, "new")}
    assert [one.clean for one in verify(Pipeline(job.config))] == [True]


def test_where_the_log_lacks_what_a_rule_reads_the_row_keeps_it_or_nothing_tells(tmp_path: Path) -> None:
    job = shop(tmp_path, no_sup_value="?")
    alter = deltalake.DeltaTable(f"{tmp_path}/silver/orders").alter
    alter.set_table_properties({"delta.constraints.both": "few > 0 OR note = 'x'"}, raise_if_not_exists=False)
    head = HEAD.replace("price", "few,note")
    job.put(FIRST, f"{head}I,1,1,a,10\nI,2,2,b,11\nI,3,-1,x,12\n")
    assert job.run().ok
    job.put(SECOND, f"{head}U,1,?,?,20\nU,2,3,?,21\nU,3,?,y,22\n")
    assert job.run().ok
    assert found(job) == {1: (1, "a", 2, "new"), 2: (2, "b", 4, "new"), 3: (-1, "x", -2, "new")}
    assert {one["line"]: "the log lacks some of few, note" in one["reason"] for one in job.rows("aside")} == {
        2: True,
        3: True,
    }
    assert [one.clean for one in verify(Pipeline(job.config))] == [True]


def test_a_sync_by_time_puts_aside_what_breaks_a_rule(tmp_path: Path) -> None:
    bronze = Bronze(tmp_path, "delta")
    place = bronze.where["silver"]
    fields = [
        pa.field("id", pa.int64()),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("lsn", pa.int64()),
        COMPUTED[1],
    ]
    deltalake.DeltaTable.create(place, pa.schema(fields))
    alter = deltalake.DeltaTable(place).alter
    alter.set_table_properties({"delta.constraints.price": "price < 10"}, raise_if_not_exists=False)
    bronze.config["tables"][NAME]["quality"] = {"quarantined_share_max": 1.0}
    bronze.write(row(1, 1, 0), row(2, 2, 1, "12.00"), row(3, 3, 2, "9.99"))
    run = Pipeline(bronze.config).run()
    assert run.ok, run.tables[0].error
    assert {one["id"]: (one["price"], one["state"]) for one in bronze.read("silver")} == {
        1: (Decimal("1.00"), "new"), 3: (Decimal("9.99"), "new"),
    }  # fmt: skip
    (aside,) = sw.open(bronze.config["quarantine"]).rows(where="true").to_pylist()
    assert "breaks the check constraint 'price' (price < 10)" in aside["reason"]


def test_bronze_has_every_record_and_so_no_rules(tmp_path: Path) -> None:
    job = shop(tmp_path)
    job.put(FIRST, HEAD.replace("price", "few,note") + "I,1,1,a,10\n")
    assert job.run().ok
    alter = deltalake.DeltaTable(f"{tmp_path}/bronze/orders").alter
    alter.set_table_properties({"delta.constraints.few": "few < 10"}, raise_if_not_exists=False)
    job.put(SECOND, HEAD.replace("price", "few,note") + "I,2,2,a,10\n")
    assert "takes every record, and has rules for its rows" in str(job.run().tables[0].error)
