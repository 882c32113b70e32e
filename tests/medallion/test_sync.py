"""Silver follows a bronze that others write by a column of times: nothing is doubled, and what comes late is told."""

from __future__ import annotations

import datetime as dt
import json
import random
import re
import shlex
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from typer.testing import CliRunner

import safewrite as sw
from safewrite.cli.app import app
from safewrite.medallion import Pipeline, verify
from safewrite.medallion.lineage import external_table
from safewrite.medallion.silver import watermark

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


@pytest.fixture(params=["delta", pytest.param("iceberg", marks=pytest.mark.long)])
def bronze(request: pytest.FixtureRequest, tmp_path: Path) -> Bronze:
    """In the short suite Delta alone: what differs between the formats is how they are read, which others show."""
    return Bronze(tmp_path, request.param)


@pytest.fixture(params=FORMATS)
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Bronze:
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


@pytest.mark.sweep("iceberg")
def test_late_rows_are_told_until_a_replay_takes_them(either: Bronze) -> None:
    either.write(row(1, 10, 0), row(2, 11, 100))
    either.run()
    either.write(row(3, 12, 39.9), row(1, 9, 1), row(4, 13, 101), row(5, 14, None))
    told = either.stopped()
    assert "2 rows of bronze" in told  # that of key 1 is older than silver's, and so accounted for
    assert "1 rows of bronze have no time" in told
    assert set(either.silver()) == {1, 2, 4}  # what came in time was taken
    assert "2 rows of bronze" in either.stopped()
    mend(either.stopped())
    assert set(either.silver()) == {1, 2, 3, 4, 5}
    assert either.run().news is False


def test_late_rows_are_taken_where_the_configuration_says_so(bronze: Bronze) -> None:
    bronze.config["tables"][NAME]["sync"]["late"] = "take"
    bronze.write(row(1, 10, 0, op="I"), row(2, 11, 100), row(3, 12, 100, op="D"))
    bronze.run()
    bronze.write(row(4, 13, 1), row(1, 14, 2, "9.00"), row(2, 20, 3, op="D"), row(3, 5, 4))
    done = bronze.run().refined
    assert (done.late, done.changes["inserted"], done.changes["updated"], done.changes["deleted"]) == (
        3,
        1,
        1,
        1,
    )
    assert bronze.silver() == {1: ("9.00", 14), 4: ("1.00", 13)}
    assert bronze.audit().clean
    assert bronze.run().news is False


def test_a_late_delete_of_an_unknown_key_keeps_its_older_rows_away(bronze: Bronze) -> None:
    """Silver shows no difference between a delete that it took and one that it did not: it is taken without a word."""
    bronze.write(row(1, 10, 0), row(2, 11, 1000))
    bronze.run()
    bronze.write(row(7, 30, 5, op="D"))
    assert bronze.run().refined.late == 0
    bronze.write(row(7, 29, 1001))
    assert bronze.run().refined.changes["late"] == 1
    assert set(bronze.silver()) == {1, 2}
    assert bronze.audit().clean


def test_a_table_that_waits_for_its_replay_commits_no_more(tmp_path: Path) -> None:
    """Deletes of keys that silver lacks are offered by each run, and silver knows them."""
    bronze = Bronze(tmp_path, "delta")
    bronze.write(row(1, 10, 0), row(7, 11, 1), row(7, 12, 2, op="D"), row(2, 13, 1000))
    bronze.run()
    bronze.write(row(3, 14, 3))
    assert "1 rows of bronze" in bronze.stopped()
    version = sw.open(bronze.where["silver"]).version
    assert "1 rows of bronze" in bronze.stopped()
    assert sw.open(bronze.where["silver"]).version == version
    bronze.write(row(8, 15, 4, op="D"))
    assert "1 rows of bronze" in bronze.stopped()
    assert sw.open(bronze.where["silver"]).version == version + 1


def test_a_source_whose_clock_goes_back_is_told_and_loses_nothing(bronze: Bronze) -> None:
    bronze.write(row(1, 10, 1_000_000))
    bronze.run()
    bronze.write(row(2, 11, 5), row(3, 12, 6))
    told = bronze.stopped()
    assert "2 rows of bronze" in told
    assert "silver had taken all up to 2026-11-12 13:46:40" in told
    audit = bronze.audit()
    assert (audit.late, audit.clean) == (2, False)
    bronze.write(row(4, 13, 7))
    assert "3 rows of bronze" in bronze.stopped()
    mend(bronze.stopped())
    assert set(bronze.silver()) == {1, 2, 3, 4}
    assert bronze.audit().clean


@pytest.mark.sweep("iceberg")
def test_bronze_may_be_overwritten_compacted_and_trimmed(either: Bronze) -> None:
    """What lineage refuses: rows that silver took are gone, others come in the same commit."""
    either.write(row(1, 10, 0), row(2, 11, 10), row(3, 12, 500))
    either.run()
    either.write(row(3, 12, 500), row(4, 13, 501), mode="overwrite")
    done = either.run().refined
    assert (done.rows, done.late, done.changes["duplicate"]) == (2, 0, 1)
    assert set(either.silver()) == {1, 2, 3, 4}
    audit = either.audit()
    assert (audit.clean, audit.beyond, audit.behind) == (True, 2, 0)
    either.write(row(4, 13, 501), row(3, 12, 500), mode="overwrite")  # the same rows, in other files
    done = either.run()
    assert (done.news, done.refined.commits) == (True, 0)
    either.write(mode="overwrite")
    assert either.run().refined.rows == 0
    either.write(row(5, 14, 502))
    assert either.run().refined.late == 0
    assert set(either.silver()) == {1, 2, 3, 4, 5}


def test_as_many_rows_late_as_removed_are_told(bronze: Bronze) -> None:
    """A count alone would not notice."""
    bronze.write(row(1, 10, 0), row(2, 11, 1), row(3, 12, 500))
    bronze.run()
    bronze.write(row(1, 10, 0), row(9, 99, 2), row(3, 12, 500), mode="overwrite")
    assert "1 rows of bronze" in bronze.stopped()


@pytest.mark.long
def test_a_text_that_no_folder_keeps_goes_to_quarantine(tmp_path: Path) -> None:
    """Of a silver of Delta that is partitioned by it; a delete takes its row out whatever it says."""
    bronze = Bronze(tmp_path, "delta")
    table = bronze.config["tables"][NAME]
    table |= {"partition_by": {"silver": ["note"]}, "quality": {"quarantined_share_max": 1.0}}
    table["columns"]["note"] = "string"
    bronze.write(row(1, 1, 1), row(2, 2, 2) | {"note": ""}, row(3, 3, 3) | {"note": "a/b"})
    done = bronze.run().refined
    assert done.quarantined == 1
    bronze.write(row(1, 4, 4, op="D") | {"note": ""})
    assert bronze.run().refined.quarantined == 0
    assert [(one["id"], one["note"]) for one in bronze.read("silver")] == [(3, "a/b")]
    assert bronze.audit().flaws == []


def test_rows_that_are_no_changes_go_to_quarantine_once(bronze: Bronze) -> None:
    table = bronze.config["tables"][NAME]
    table["quality"] = {"quarantined_share_max": 1.0, "ranges": {"price": [0, None]}}
    bronze.write(
        row(1, 10, 0), row(None, 11, 1), row(2, None, 2), row(3, 13, 3, op="Q"), row(4, 14, 4, op=None), row(5, 15, 5, "-1.00"),
        row(6, 16, 6),
    )  # fmt: skip
    done = bronze.run().refined
    assert (done.rows, done.quarantined) == (2, 5)
    assert set(bronze.silver()) == {1, 6}
    audit = bronze.audit()
    assert (audit.flaws, audit.silver_put_aside, audit.behind) == ([], 5, 0)
    bronze.write(row(7, 17, 7), row(8, 18, 1000))
    assert bronze.run().refined.quarantined == 0  # they come again through the overlap, and are known
    bronze.write(
        row(None, 11, 1), row(3, 13, 3, op="Q"), row(5, 15, 5, "-1.00"), row(8, 18, 1000), mode="overwrite"
    )
    assert bronze.run().refined.late == 0  # rows were trimmed, and what is left is in quarantine
    assert bronze.audit().silver_put_aside == 5


class CrashError(BaseException):
    """As SIGKILL: nothing catches it."""


@pytest.mark.sweep("True")
@pytest.mark.parametrize("before", [True, False])
def test_a_crash_around_the_commit_of_silver_loses_and_doubles_nothing(
    before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bronze = Bronze(tmp_path, "delta")
    bronze.write(row(1, 10, 0))
    bronze.run()
    bronze.write(row(2, 11, 10), row(1, 12, 11, "3.00"))
    own = watermark.write

    def write(*given: Any, **more: Any) -> None:
        if not before:
            own(*given, **more)
        raise CrashError

    with monkeypatch.context() as patch:
        patch.setattr(watermark, "write", write)
        with pytest.raises(CrashError):
            Pipeline(bronze.config).run()
    assert bronze.audit().behind == (2 if before else 0)
    done = bronze.run().refined
    assert done.commits == (1 if before else 0)
    assert bronze.silver() == {1: ("3.00", 12), 2: ("1.00", 11)}
    assert bronze.audit().clean


@pytest.mark.long
def test_large_bronze_is_taken_commit_by_commit_and_the_mark_comes_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watermark, "ROWS_MAX", 2)
    bronze = Bronze(tmp_path, "delta")
    bronze.write(*(row(key, key, key) for key in range(1, 6)))
    own, count = watermark.write, 0

    def write(*given: Any, **more: Any) -> None:
        nonlocal count
        count += 1
        if count == 3:
            raise CrashError
        own(*given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(watermark, "write", write)
        with pytest.raises(CrashError):
            Pipeline(bronze.config).run()
    assert sw.open(bronze.where["silver"]).positions() == {}
    done = bronze.run().refined
    assert (done.commits, done.changes["duplicate"]) == (3, 4)
    assert set(bronze.silver()) == {1, 2, 3, 4, 5}
    assert sw.open(bronze.where["silver"]).positions()["bronze-time/loaded/watermark"] == done.watermark


@pytest.mark.long
def test_a_reset_forgets_rows_that_bronze_has_no_more_also_where_it_breaks_off(
    bronze: Bronze, monkeypatch: pytest.MonkeyPatch
) -> None:
    bronze.write(row(1, 10, 0), row(9, 10, 0))
    bronze.run()
    bronze.write(row(1, 9, 0, "0.50"), row(2, 5, 1), mode="overwrite")
    assert Pipeline(bronze.config).replay([NAME]).ok
    assert set(bronze.silver()) == {1, 2, 9}, "what silver took stays"
    monkeypatch.setattr(watermark, "ROWS_MAX", 1)
    own, begun = watermark.write, []

    def breaks_off(*given: Any, **how: Any) -> Any:
        if begun:
            raise KeyboardInterrupt
        begun.append(given)
        return own(*given, **how)

    monkeypatch.setattr(watermark, "write", breaks_off)
    with pytest.raises(KeyboardInterrupt):
        Pipeline(bronze.config).reset([NAME])
    assert bronze.audit().behind == 2
    monkeypatch.setattr(watermark, "write", own)
    bronze.run()
    assert bronze.silver() == {1: ("0.50", 9), 2: ("1.00", 5)}
    assert (bronze.audit().clean, bronze.audit().behind) == (True, 0)


def test_a_second_run_that_read_the_same_commits_nothing_over_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes with positions that the first moved, looks again, and finds nothing left to do."""
    bronze = Bronze(tmp_path, "delta")
    bronze.write(row(1, 10, 0))
    bronze.run()
    bronze.write(row(2, 11, 10))
    own, met = watermark.write, []

    def write(*given: Any, **more: Any) -> None:
        if not met:
            met.append(1)
            assert Pipeline(bronze.config).run().ok
        own(*given, **more)

    monkeypatch.setattr(watermark, "write", write)
    done = bronze.run().refined
    assert (done.commits, bronze.silver()) == (0, {1: ("1.00", 10), 2: ("1.00", 11)})


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"time": "arrived"}, "sync.time: arrived"),
        ({"time": "note"}, "note is a string, and no timestamp or date"),
        ({"op": "kind"}, "sync.op: kind"),
        ({"sequence": ["pos"]}, "sync.sequence: pos"),
    ],
)
def test_a_bronze_without_a_column_that_is_named_is_refused(
    more: dict[str, Any], told: str, tmp_path: Path
) -> None:
    bronze = Bronze(tmp_path, "delta", **more)
    bronze.write(row(1, 10, 0))
    assert told in bronze.stopped()
    assert not (tmp_path / "silver").exists()


def test_a_bronze_that_is_not_there_is_not_made(bronze: Bronze) -> None:
    assert "no" in bronze.stopped()
    assert not (bronze.folder / "bronze").exists()


def test_a_file_of_bronze_that_is_gone_is_told(tmp_path: Path) -> None:
    bronze = Bronze(tmp_path, "delta")
    bronze.write(row(1, 10, 0))
    bronze.run()
    bronze.write(row(2, 11, 1))
    for file in (tmp_path / "bronze").glob("*.parquet"):
        file.unlink()
    assert "may have been removed meanwhile" in bronze.stopped()
    assert set(bronze.silver()) == {1}


def test_one_job_has_tables_of_both_kinds(tmp_path: Path) -> None:
    """Raw files in the folder of a table that has none are told."""
    bronze = Bronze(tmp_path, "delta")
    bronze.write(row(1, 10, 0))
    landed = {"format": "delta", "bronze": f"{tmp_path}/b2", "silver": f"{tmp_path}/s2", "keys": ["id"]}
    landed |= {"columns": {"id": "int64"}, "files": {"kind": "csv", "header": True}}
    bronze.config["tables"]["shop.items"] = landed
    bronze.config["raw"] = {"location": f"{tmp_path}/raw"}
    (tmp_path / "raw/shop/items").mkdir(parents=True)
    (tmp_path / "raw/shop/items/LOAD00000001.csv").write_text("id\n7\n")
    run = Pipeline(bronze.config).run()
    assert (run.ok, [one.refined.rows for one in run.tables]) == (True, [1, 1])
    assert [one.clean for one in verify(Pipeline(bronze.config))] == [True, True]
    (tmp_path / "raw/shop/orders").mkdir()
    (tmp_path / "raw/shop/orders/LOAD00000001.csv").write_text("id\n8\n")
    assert Pipeline(bronze.config).run([NAME]).ok
    assert "shop/orders/LOAD00000001.csv" in Pipeline(bronze.config).run().errors[0]


@pytest.mark.parametrize(
    "kind",
    [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("ms", "Europe/Berlin")],
)
def test_files_are_left_out_by_whole_milliseconds_alone(kind: pa.DataType) -> None:
    """Spark cuts the greatest time of a file to milliseconds: by 12.000999 the file of 12.0009995 would be passed over."""
    bound = external_table._scalar(kind, 1_000_999)
    assert bound.type == kind
    assert bound.cast(pa.int64()).as_py() == {"us": 1_000_000, "ns": 1_000_000_000, "ms": 1000}[kind.unit]
    day = external_table._scalar(pa.date32(), 86_400_000_000 + 5)
    assert day.as_py() == dt.date(1970, 1, 2)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_whatever_comes_when_silver_is_what_the_sequences_say(seed: int, tmp_path: Path) -> None:
    """Rows early, late and without a time, in any order of sequences, between overwrites that trim and reorder bronze."""
    chance = random.Random(seed)
    bronze = Bronze(tmp_path, FORMATS[seed % 6 == 5], late="take", overlap_s=20)
    bronze.config["tables"][NAME]["quality"] = {"quarantined_share_max": 1.0}
    truth: dict[int, dict[str, Any]] = {}
    live: list[dict[str, Any]] = []
    lsn = 0
    for step in range(12):
        new = []
        for _ in range(chance.randint(0, 6)):
            lsn += 1
            place = lsn if chance.random() < 0.7 else chance.randint(1, lsn) * 1000 + lsn
            at = step * 30 + chance.random() * 30 - (chance.random() < 0.25) * chance.random() * 400
            op = chance.choice(["I", "U", "U", "D", "U", "Q", None])
            new.append(
                row(chance.randint(1, 8), place, None if chance.random() < 0.05 else at, f"{lsn}.00", op)
            )
        if live and chance.random() < 0.3:
            live = [one for one in live if one["change"] == "D" or chance.random() < 0.7] + new
            chance.shuffle(live)
            bronze.write(*live, mode="overwrite")
        else:
            live += new
            bronze.write(*new)
        for one in new:
            known = truth.get(one["id"])
            if one["change"] in ("I", "U", "D") and (known is None or known["lsn"] < one["lsn"]):
                truth[one["id"]] = one
        bronze.run()
        audit = bronze.audit()
        assert (audit.flaws, audit.behind) == ([], 0), (seed, step)
    assert bronze.silver() == {
        key: (str(one["price"]), one["lsn"]) for key, one in truth.items() if one["change"] != "D"
    }
