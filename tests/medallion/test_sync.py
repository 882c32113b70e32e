"""Silver follows a bronze that others write by a column of times: nothing is doubled, and what comes late is told."""

from __future__ import annotations

import datetime as dt
import json
import re
import shlex
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from typer.testing import CliRunner

from safewrite.cli.app import app
from safewrite.medallion import Pipeline, verify

FORMATS = ("delta", "iceberg")
NAME = "shop.orders"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("change", pa.string()),
        pa.field("lsn", pa.int64()),
        pa.field("loaded", pa.timestamp("us", "UTC")),
        pa.field("note", pa.string()),
    ]
)
START = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)


def row(
    key: int | None, lsn: int | None, second: float | None, price: str = "1.00", op: str | None = "U"
) -> dict[str, Any]:
    """A change, and the second of its load."""
    from decimal import Decimal

    at = None if second is None else START + dt.timedelta(seconds=second)
    return {"id": key, "price": Decimal(price), "change": op, "lsn": lsn, "loaded": at, "note": "x"}


class Bronze:
    """A table that deltalake or PyIceberg writes, and a job that follows it."""

    def __init__(self, folder: Path, table_format: str, **more: Any) -> None:
        self.folder, self.table_format = folder, table_format
        iceberg = table_format == "iceberg"
        self.catalog = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": str(folder / "w")}
        self.where = {one: f"{one}.orders" if iceberg else f"{folder}/{one}" for one in ("bronze", "silver")}
        sync = {"time": "loaded", "overlap_s": 60, "sequence": ["lsn"], "op": "change"}
        self.config: dict[str, Any] = {
            "job": "shop", "state": f"{folder}/state", "quarantine": "aside.records" if iceberg else f"{folder}/aside",
            "quarantine_format": table_format, **({"catalog": self.catalog} if iceberg else {}),
            "tables": {NAME: {
                "format": table_format, **self.where, "keys": ["id"],
                "columns": {"id": "int64", "price": "decimal(10,2)"}, "sync": sync | more,
            }},
        }  # fmt: skip

    def write(self, *rows: dict[str, Any], mode: str = "append") -> None:
        given = pa.Table.from_pylist(list(rows), SCHEMA)
        if self.table_format == "delta":
            deltalake.write_deltalake(self.where["bronze"], given, mode=mode)  # type: ignore[call-overload]
            return
        catalog = load_catalog("default", **self.catalog)
        catalog.create_namespace_if_not_exists("bronze")
        table = catalog.create_table_if_not_exists("bronze.orders", SCHEMA)
        table.append(given) if mode == "append" else table.overwrite(given)

    def read(self, layer: str) -> list[dict[str, Any]]:
        if self.table_format == "delta":
            found: list[dict[str, Any]] = pa.table(
                deltalake.DeltaTable(self.where[layer]).to_pyarrow_table()
            ).to_pylist()
            return found
        return (
            load_catalog("default", **self.catalog)
            .load_table(self.where[layer])
            .scan()
            .to_arrow()
            .to_pylist()
        )

    def silver(self) -> dict[Any, tuple[str, int]]:
        return {one["id"]: (str(one["price"]), one["lsn"]) for one in self.read("silver")}

    def run(self) -> Any:
        run = Pipeline(self.config).run()
        assert run.ok, [*run.errors, run.tables[0].error]
        return run.tables[0]

    def stopped(self) -> str:
        path = self.folder / "job.json"
        path.write_text(json.dumps(self.config))
        run = Pipeline(path).run()
        assert not run.ok
        return str(run.tables[0].error)

    def audit(self) -> Any:
        (one,) = verify(Pipeline(self.config))
        return one


@pytest.fixture(params=FORMATS)
def bronze(request: pytest.FixtureRequest, tmp_path: Path) -> Bronze:
    return Bronze(tmp_path, request.param)


def mend(told: str) -> None:
    (command,) = re.findall("`(safewrite [^`]+)`", told)
    done = CliRunner().invoke(app, shlex.split(command)[1:], prog_name="safewrite")
    assert done.exit_code == 0, done.output


def test_rows_from_the_overlap_come_twice_and_do_no_harm(bronze: Bronze) -> None:
    bronze.write(row(1, 10, 0, op="I"), row(2, 11, 30, op="I"), row(3, 12, 100, op="I"))
    first = bronze.run()
    assert (first.refined.rows, first.refined.changes["inserted"]) == (3, 3)
    bronze.write(row(2, 20, 40, "2.00"), row(3, 21, 110, op="D"))  # 40 is as late as may be: 60 s before 100
    second = bronze.run()
    assert (
        second.refined.late,
        second.refined.changes["duplicate"] + second.refined.changes["superseded"],
    ) == (0, 1)
    assert bronze.silver() == {1: ("1.00", 10), 2: ("2.00", 20)}
    again = bronze.run()
    assert (again.news, again.refined.commits) == (False, 0)


def test_equal_times_at_the_boundary_are_taken(bronze: Bronze) -> None:
    bronze.config["tables"][NAME]["sync"]["overlap_s"] = 0
    bronze.write(row(1, 10, 5))
    bronze.run()
    bronze.write(row(2, 11, 5))
    assert bronze.run().refined.late == 0
    assert set(bronze.silver()) == {1, 2}
    bronze.write(row(3, 12, 4.999999))
    assert "1 rows of bronze" in bronze.stopped()


def test_late_rows_are_told_until_a_replay_takes_them(bronze: Bronze) -> None:
    bronze.write(row(1, 10, 0), row(2, 11, 100))
    bronze.run()
    bronze.write(row(3, 12, 39.9), row(1, 9, 1), row(4, 13, 101), row(5, 14, None))
    told = bronze.stopped()
    assert "2 rows of bronze" in told  # that of key 1 is older than silver's, and so accounted for
    assert "1 rows of bronze have no time" in told
    assert set(bronze.silver()) == {1, 2, 4}  # what came in time was taken
    assert "2 rows of bronze" in bronze.stopped()
    mend(bronze.stopped())
    assert set(bronze.silver()) == {1, 2, 3, 4, 5}
    assert bronze.run().news is False
