"""What a job does with bad records, mixed files, strangers, new epochs, and tables that fail."""

from __future__ import annotations

import json
import logging
import shutil
import time
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import safewrite as sw
from safewrite.cli.app import app
from safewrite.delta.format import DeltaFormat
from safewrite.medallion import Pipeline, verify


class Shop:
    """A job on hand-written files: ``put`` writes one, ``run`` runs."""

    def __init__(self, folder: Path, columns: dict[str, str] | None = None, **more: Any) -> None:
        self.folder = folder
        files = {"kind": "csv", "header": True, "change_seq": "seq"}
        self.config: dict[str, Any] = {
            "job": "shop", "raw": {"location": f"{folder}/raw"}, "state": f"{folder}/state", "quarantine": f"{folder}/aside",
            "defaults": {
                "format": "delta", "keys": ["id"], "bronze": f"{folder}/bronze/{{table}}", "silver": f"{folder}/silver/{{table}}",
                "files": files, "quality": {"quarantined_share_max": 1.0},
            },
            "tables": {"shop.orders": {"columns": columns or {"id": "int64", "price": "decimal(10,2)"}}},
        } | more  # fmt: skip
        (folder / "raw").mkdir()

    def put(self, path: str, text: str) -> None:
        place = self.folder / "raw" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def run(self) -> Any:
        return Pipeline(self.config).run()

    def rows(self, table: str) -> list[dict[str, Any]]:
        if not (self.folder / table).exists():  # bronze is made once files are judged
            return []
        found = deltalake.DeltaTable(str(self.folder / table)).to_pyarrow_table()
        return [
            {k: v for k, v in row.items() if not k.startswith("_")} for row in pa.table(found).to_pylist()
        ]

    def silver(self, table: str = "orders") -> dict[Any, Any]:
        return {row["id"]: str(row["price"]) for row in self.rows(f"silver/{table}")}


def set_in(job: Shop, *path: str, to: Any) -> None:
    place = job.config
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = to


HEAD = "Op,id,price,seq\n"


def test_a_bad_record_goes_to_quarantine_with_file_record_and_reason(tmp_path: Path) -> None:
    job = Shop(tmp_path)
    job.put(
        "shop/orders/20261101-000000001.csv",
        HEAD + "I,1,1.00,10\nI,x,2.00,11\nQ,3,3.00,12\nI,,4.00,13\nI,5,5.00\nU,6,6.00,-1\n",
    )
    run = job.run()
    assert run.ok
    landed = run.tables[0].landed
    assert (landed.rows_in_files, landed.rows, landed.quarantined) == (6, 1, 5)
    aside = sorted(job.rows("aside"), key=lambda row: row["line"])
    assert [(row["line"], row["text"]) for row in aside] == [
        (2, "I,x,2.00,11"), (3, "Q,3,3.00,12"), (4, "I,,4.00,13"), (5, "I,5,5.00"), (6, "U,6,6.00,-1")
    ]  # fmt: skip
    assert "id is no int64: 'x'" in aside[0]["reason"]
    assert {(row["table"], row["stage"], row["file"]) for row in aside} == {
        ("shop.orders", "raw", "shop/orders/20261101-000000001.csv")
    }
    assert job.silver() == {1: "1.00"}
    assert [one.clean for one in verify(Pipeline(job.config))] == [True]
    assert job.run().tables[0].news is False


def test_updates_that_do_not_tell_the_key_before_are_counted_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "safewrite")
    job = Shop(tmp_path)
    job.put("shop/orders/20261101-000000001.csv", HEAD + "I,1,1.00,10\nU,1,2.00,11\nU,2,2.00,12\n")
    job.run()
    (text,) = [one.getMessage() for one in caplog.records if "lack the key" in one.getMessage()]
    assert "shop.orders: 2 updates" in text


def test_a_crash_between_quarantine_and_bronze_with_nothing_remembered_loses_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What quarantine has of a file proves nothing of bronze."""
    job = Shop(tmp_path)
    job.put("shop/orders/20261101-000000001.csv", HEAD + "I,1,1.00,10\nI,x,2.00,11\n")

    class CrashError(BaseException):
        pass

    def crash(*_: Any, **__: Any) -> None:
        raise CrashError

    with monkeypatch.context() as patch:
        patch.setattr("safewrite.delta.format.DeltaFormat.commit_group", crash_on_bronze(crash))
        with pytest.raises(CrashError):
            job.run()
    assert (len(job.rows("aside")), job.rows("bronze/orders")) == (1, [])
    shutil.rmtree(tmp_path / "state")
    assert job.run().ok
    assert job.silver() == {1: "1.00"}
    assert len(job.rows("aside")) == 1
    assert [one.clean for one in verify(Pipeline(job.config))] == [True]


def crash_on_bronze(crash: Any) -> Any:
    """The commit of a group of writes, which is the last thing that a process does where it is bronze's."""
    own = DeltaFormat.commit_group

    def commit(table: Any, *of: Any, **how: Any) -> Any:
        return crash() if "bronze" in table.uri else own(table, *of, **how)

    return commit


def test_too_many_bad_records_stop_the_table_before_anything_is_written(tmp_path: Path) -> None:
    job = Shop(tmp_path)
    set_in(job, "defaults", "quality", to={"quarantined_share_max": 0.4})
    job.put("shop/orders/20261101-000000001.csv", HEAD + "I,1,1.00,10\nI,x,2.00,11\n")
    run = job.run()
    assert "1 of 2 records" in str(run.tables[0].error)
    assert job.rows("aside") == []
    assert job.rows("bronze/orders") == []


@pytest.mark.parametrize("text", ["Op,id,seq\nI,1,1\n", "Op,id,price,colour,seq\nI,1,1.00,red,1\n"])
def test_a_file_with_other_columns_stops_its_table(text: str, tmp_path: Path) -> None:
    """A new column of the source is neither dropped nor is a missing one filled with NULL."""
    job = Shop(tmp_path)
    job.put("shop/orders/20261101-000000001.csv", text)
    run = job.run()
    assert "other columns" in str(run.tables[0].error)
    set_in(job, "defaults", "files", "ignore", to=["colour"])
    assert job.run().ok == ("colour" in text)


def test_mixed_files_go_to_their_tables_and_strangers_to_quarantine(tmp_path: Path) -> None:
    files = {"kind": "csv", "header": False, "order": ["Op", "t", "s", "*", "seq"], "change_seq": "seq"}
    job = Shop(
        tmp_path,
        raw={"location": f"{tmp_path}/raw", "layout": "mixed", "mixed_folder": "cdc", "table_column": "t", "schema_column": "s"},
        unknown_tables="raise",
    )  # fmt: skip
    set_in(job, "defaults", "files", to=files)
    set_in(job, "tables", "shop.items", to={"columns": {"id": "int64", "name": "string", "price": "string"}})
    job.put("shop/orders/LOAD00000001.csv", "1,1.00,NULL\n")
    job.put(
        "cdc/20261101-000000001.csv", "U,orders,shop,1,1.50,10\nI,items,shop,1,ink,2,11\nI,pens,shop,1,12\n"
    )
    job.put("cdc/20261101-000000002.csv", "D,orders,shop,1,NULL,13\nI,orders,shop,2,2.00,14\n")
    run = job.run()
    assert [one.ok for one in run.tables] == [True, True]
    assert not run.ok
    assert "shop.pens is not configured" in run.errors[0]
    assert job.silver() == {2: "2.00"}
    assert job.silver("items") == {1: "2"}
    assert not job.run().ok  # until somebody decides
    set_in(job, "unknown_tables", to="quarantine")
    run = job.run()
    assert (run.ok, run.put_aside) == (True, 1)
    assert [(row["file"], row["line"], row["text"]) for row in job.rows("aside")] == [
        ("cdc/20261101-000000001.csv", 3, "I,pens,shop,1,12")
    ]
    run = job.run()
    assert (run.ok, run.put_aside, [one.news for one in run.tables]) == (True, 0, [False, False])
    assert all(one.clean for one in verify(Pipeline(job.config)))


def test_a_file_of_no_table_is_reported_until_somebody_decides(tmp_path: Path) -> None:
    job = Shop(tmp_path)
    job.put("shop/orders/20261101-000000001.csv", HEAD + "I,1,1.00,10\n")
    job.put("shop/customers/LOAD00000001.csv", "id\n1\n")
    run = job.run()
    assert not run.ok
    assert "shop/customers/LOAD00000001.csv" in run.errors[0]
    assert job.silver() == {1: "1.00"}
    set_in(job, "ignored_tables", to=["shop.customers"])
    assert job.run().ok


def test_a_copy_in_a_tables_folder_is_reported_until_somebody_decides(tmp_path: Path) -> None:
    job = Shop(tmp_path)
    job.put("shop/orders/20261101-000000001.csv", HEAD + "I,1,1.00,10\n")
    job.put("shop/orders/20261101-000000001 copy.csv", HEAD + "U,1,9.00,11\n")
    run = job.run()
    assert not run.ok
    assert "copy.csv: its name is none that DMS gives" in run.errors[0]
    assert (run.tables[0].landed.files, job.silver()) == (1, {1: "1.00"})
    set_in(job, "unknown_tables", to="quarantine")
    assert (job.run().put_aside, job.run().put_aside) == (1, 0)
    assert job.rows("aside")[0]["file"] == "shop/orders/20261101-000000001 copy.csv"
    (job.folder / "raw/shop/orders/20261101-000000001 copy.csv").rename(
        job.folder / "raw/shop/orders/20261101-000000002.csv"
    )
    assert job.run().ok
    assert job.silver() == {1: "9.00"}


def test_a_named_table_without_files_has_no_news(tmp_path: Path) -> None:
    job = Shop(tmp_path)
    run = Pipeline(job.config).run(["shop.orders"])
    assert (run.ok, run.files_listed) == (True, 0)
    assert job.rows("silver/orders") == []
    assert Pipeline(job.config).run(["shop.orders"]).tables[0].landed.files == 0


def test_a_full_load_never_beats_a_change_or_a_deletion(tmp_path: Path) -> None:
    job = Shop(tmp_path)
    job.put("shop/orders/20261101-000000001.csv", HEAD + "U,1,9.00,1\nD,2,,2\n")
    job.run()
    job.put("shop/orders/LOAD00000001.csv", "id,price,seq\n1,1.00,\n2,2.00,\n3,3.00,\n")
    assert job.run().ok
    assert job.silver() == {1: "9.00", 3: "3.00"}


@pytest.mark.parametrize("header", [True, False])
def test_a_full_load_may_have_the_op_too(header: bool, tmp_path: Path) -> None:
    job = Shop(tmp_path)
    more: dict[str, Any] = {} if header else {"order": ["Op", "*", "seq"]}
    set_in(
        job,
        "defaults",
        "files",
        to={"kind": "csv", "header": header, "change_seq": "seq", "op_in_full_load": True} | more,
    )
    head = HEAD if header else ""
    job.put("shop/orders/LOAD00000001.csv", head + "I,1,1.00,\nI,2,2.00,NULL\nD,3,3.00,\n")
    job.put("shop/orders/20261101-000000001.csv", head + "U,1,1.50,1\n")
    run = job.run()
    assert (run.ok, run.tables[0].landed.quarantined) == (True, 1)
    assert job.silver() == {1: "1.50", 2: "2.00"}
    assert {row["reason"] for row in job.rows("aside")} == {"the operation is none of I: 'D'"}


def test_a_load_that_began_again_is_refused_or_folded(tmp_path: Path) -> None:
    job = Shop(tmp_path)
    job.put("shop/orders/LOAD00000001.csv", "id,price\n1,1.00\n2,2.00\n")
    job.run()
    job.put("shop/orders/LOAD00000001.csv", "id,price\n1,1.50\n2,2.00\n3,3.00\n")
    assert job.run().tables[0].error_kind == "replay_mismatch"
    set_in(job, "defaults", "restarted_load", to="fold")
    assert job.run().ok
    assert job.silver() == {1: "1.50", 2: "2.00", 3: "3.00"}
    assert [one.clean for one in verify(Pipeline(job.config))] == [True]


def test_a_load_that_began_again_after_its_files_were_taken_away_is_folded(tmp_path: Path) -> None:
    """DMS empties the folder before it loads anew; what was remembered of the files is forgotten with them."""
    job = Shop(tmp_path)
    set_in(job, "defaults", "restarted_load", to="fold")
    job.put("shop/orders/LOAD00000001.csv", "id,price\n1,1.00\n")
    job.run()
    (tmp_path / "raw/shop/orders/LOAD00000001.csv").unlink()
    job.put("shop/orders/LOAD00000002.csv", "id,price\n3,3.00\n")
    job.run()
    job.put("shop/orders/LOAD00000001.csv", "id,price\n1,9.00\n2,2.00\n")
    assert job.run().ok
    assert job.silver() == {1: "9.00", 2: "2.00", 3: "3.00"}
    assert job.run().tables[0].news is False
    assert [one.clean for one in verify(Pipeline(job.config))] == [True]


def test_a_new_task_counts_from_the_start_and_its_epoch_comes_later(tmp_path: Path) -> None:
    job = Shop(tmp_path)
    job.put("shop/orders/20261101-000000001.csv", HEAD + "I,1,1.00,500\n")
    job.run()
    job.config["tables"]["shop.orders"] |= {"epoch": 2, "reload": "keep"}
    job.put("shop/orders/20261102-000000001.csv", HEAD + "U,1,2.00,3\n")
    job.run()
    assert job.silver() == {1: "2.00"}


@pytest.mark.sweep("keep")
@pytest.mark.parametrize("reload", ["keep", "truncate"])
def test_a_full_load_of_a_new_task_is_the_whole_table_where_that_was_said(
    reload: str, tmp_path: Path
) -> None:
    """Row 2 was deleted while no task ran: no file tells of it.  The load's files come in two runs, changes before them."""
    job = Shop(tmp_path)
    job.put("shop/orders/LOAD00000001.csv", "id,price\n1,1.00\n2,2.00\n")
    job.put("shop/orders/20261101-000000001.csv", HEAD + "U,1,1.50,500\nI,3,3.00,501\n")
    job.run()
    job.config["tables"]["shop.orders"] |= {"epoch": 2, "reload": reload}
    job.put("shop/orders/20261102-000000001.csv", HEAD + "I,5,5.00,1\nD,3,3.00,2\n")
    job.run()
    job.put("shop/orders/LOAD0000000A.csv", "id,price\n1,9.00\n")
    job.run()
    job.put("shop/orders/LOAD0000000B.csv", "id,price\n3,3.00\n4,4.00\n")
    run = job.run()
    assert run.ok, run.tables[0].error
    wanted = {1: "9.00", 4: "4.00", 5: "5.00"}
    assert job.silver() == (wanted if reload == "truncate" else wanted | {2: "2.00"})
    assert [(one.flaws, one.error) for one in verify(Pipeline(job.config))] == [([], None)]
    assert Pipeline(job.config).replay(["shop.orders"]).ok
    assert job.silver() == (wanted if reload == "truncate" else wanted | {2: "2.00"})


def test_without_a_sequence_the_order_is_that_of_files_and_lines(tmp_path: Path) -> None:
    job = Shop(tmp_path)
    set_in(job, "defaults", "files", to={"kind": "csv", "header": True})
    job.put("shop/orders/20261101-000000002.csv", "Op,id,price\nU,1,3.00\nU,1,4.00\n")
    job.run()
    job.put("shop/orders/20261101-000000001.csv", "Op,id,price\nI,1,1.00\nU,1,2.00\n")
    job.run()
    assert job.silver() == {1: "4.00"}


def test_types_come_from_silver_where_none_are_declared(tmp_path: Path) -> None:
    job = Shop(tmp_path)
    job.config["tables"] = {"shop.orders": {}}
    job.put("shop/orders/20261101-000000001.csv", HEAD + "I,1,1.00,10\n")
    assert "never guessed" in str(job.run().tables[0].error)
    schema = pa.schema(
        {"id": pa.int64(), "price": pa.float64(), "_epoch": pa.int64(), "_seq": pa.decimal128(38, 0)}
    )
    sw.create(str(tmp_path / "silver/orders"), schema)
    assert job.run().ok
    assert job.silver() == {1: "1.0"}


# --- the quality gate ---------------------------------------------------------------------------------------
RULES: list[tuple[dict[str, Any], str]] = [
    ({"not_null": ["price"]}, "price is NULL"),
    ({"ranges": {"price": [0, None]}}, "price is below 0"),
    ({"ranges": {"price": [None, 99.5]}}, "price is above 99.5"),
    ({"conditions": ["price <> 5 -- five"]}, "not true: price <> 5 -- five"),
]
BAD_PRICES = {"price is NULL": "NULL", "price is below 0": "-0.01", "price is above 99.5": "99.51"}


@pytest.mark.parametrize(("rules", "reason"), RULES)
def test_a_row_that_breaks_a_rule_goes_to_quarantine_and_not_to_silver(
    rules: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    job = Shop(tmp_path)
    set_in(job, "defaults", "quality", to=rules | {"quarantined_share_max": 0.5})
    bad = BAD_PRICES.get(reason, "5.00")
    job.put("shop/orders/20261101-000000001.csv", HEAD + f"I,1,1.00,10\nI,2,{bad},11\nD,3,{bad},12\n")
    run = job.run()
    assert run.ok, run.tables[0].error
    assert (run.tables[0].refined.rows, run.tables[0].refined.quarantined) == (2, 1)
    assert job.silver() == {1: "1.00"}
    assert [(row["stage"], row["line"], row["reason"]) for row in job.rows("aside")] == [
        ("silver", 2, reason)
    ]
    assert len(job.rows("bronze/orders")) == 3
    assert [one.clean for one in verify(Pipeline(job.config))] == [True]


@pytest.mark.parametrize(
    "rules",
    [{"not_null": ["price"], "quarantined_share_max": 0.3}, {"null_share_max": {"price": 0.4}}, {"conditions": ["prize > 1"]},
     {"ranges": {"name": [1, 2]}}, {"conditions": ["1); DROP TABLE batch; --"]}, {"conditions": ["id IN (SELECT 1 FROM '/etc/passwd')"]}],
)  # fmt: skip
def test_a_batch_that_is_bad_as_a_whole_fails_its_table_and_not_the_run(
    rules: dict[str, Any], tmp_path: Path
) -> None:
    job = Shop(tmp_path, {"id": "int64", "price": "decimal(10,2)", "name": "string"})
    set_in(job, "defaults", "quality", to=rules)
    set_in(job, "tables", "shop.items", to={"columns": {"id": "int64", "price": "string"}, "quality": {}})
    if "null_share_max" not in rules:
        job.config["tables"].pop("shop.items")
    job.put("shop/orders/20261101-000000001.csv", "Op,id,price,name,seq\nI,1,1.00,a,10\nI,2,NULL,b,11\n")
    run = job.run()
    assert run.tables[0].error_kind == "invalid_input"
    assert job.rows("silver/orders") == []
    assert len(job.rows("bronze/orders")) == 2
    set_in(job, "defaults", "quality", to={})
    assert job.run().ok
    assert job.silver() == {1: "1.00", 2: "None"}


@pytest.mark.parametrize("column", ["_epoch", "_seq"])
def test_verify_compares_a_rows_place_in_the_order(tmp_path: Path, column: str) -> None:
    """Later changes are judged by it."""
    job = Shop(tmp_path)
    job.put("shop/orders/20261101-000000001.csv", HEAD + "I,1,1.00,10\n")
    assert job.run().ok
    silver = sw.open(str(tmp_path / "silver/orders"))
    (row,) = deltalake.DeltaTable(str(tmp_path / "silver/orders")).to_pyarrow_table().to_pylist()
    silver.apply_changes([row | {column: row[column] + 1}], keys=["id"], sequence_by=["_epoch", "_seq"])
    (audit,) = verify(Pipeline(job.config))
    assert audit.flaws == ["1 rows of silver are not the last: (1,)"]


def test_verify_makes_no_table(tmp_path: Path) -> None:
    job = Shop(tmp_path)
    job.put("shop/orders/20261101-000000001.csv", HEAD + "I,1,1.00,10\n")
    (audit,) = verify(Pipeline(job.config))
    assert not audit.clean
    assert audit.error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["raw"]


def test_times_in_conditions_are_in_utc_wherever_the_job_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        job = Shop(tmp_path, {"id": "int64", "price": "timestamptz"})
        set_in(
            job,
            "defaults",
            "quality",
            to={"conditions": ["price >= '2026-11-01 00:00:00'"], "quarantined_share_max": 1.0},
        )
        job.put(
            "shop/orders/20261101-000000001.csv",
            HEAD + "I,1,2026-11-01 00:00:00,1\nI,2,2026-10-31 23:59:59,2\n",
        )
        assert job.run().tables[0].refined.quarantined == 1
        assert list(job.silver()) == [1]
    finally:
        monkeypatch.undo()
        time.tzset()


# --- the command line -------------------------------------------------------------------------------------
def call(*given: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["medallion", *given], prog_name="safewrite")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def test_the_commands_run_report_and_verify(tmp_path: Path) -> None:
    job = Shop(tmp_path)
    set_in(job, "tables", "shop.items", to={"columns": {"id": "int64", "price": "int8"}})
    path, page = tmp_path / "job.json", tmp_path / "page.html"
    path.write_text(json.dumps(job.config))
    job.put("shop/orders/20261101-000000001.csv", HEAD + "I,1,1.00,10\n")
    job.put("shop/items/20261101-000000001.csv", HEAD + "I,1,7,10\nI,1,<b>,10\n")
    assert call("check", "--config", str(path)) == (0, "shop: 2 tables, the configuration can be used.\n")
    code, said = call("run", "--config", str(path), "--html", str(page))
    assert code == 0
    assert "2 tables" in said
    for place in (tmp_path, tmp_path / "nowhere" / "page.html"):
        code, said = call("run", "--config", str(path), "--html", str(place))
        assert (code, "--html" in said) == (2, True)
    assert "<b>" not in page.read_text().split("<h1>")[1].replace("&lt;b&gt;", "")
    code, said = call("run", "--config", str(path), "--output", "json", "--table", "shop.orders")
    assert (code, json.loads(said)["tables"][0]["news"]) == (0, False)
    code, said = call("verify", "--config", str(path), "--output", "json")
    assert (code, json.loads(said)["clean"]) == (0, True)
    assert call("replay", "--config", str(path), "--table", "shop.orders")[0] == 0
    sw.open(str(tmp_path / "silver/orders")).delete([("id", "=", 1)])
    code, said = call("verify", "--config", str(path))
    assert code == 1
    assert "rows are missing in silver" in said
    for _ in range(2):  # each replay looks at silver anew
        assert call("replay", "--config", str(path), "--table", "shop.orders")[0] == 0
        assert call("verify", "--config", str(path))[0] == 0
        sw.open(str(tmp_path / "silver/orders")).delete([("id", "=", 1)])


def test_a_failed_table_is_an_exit_code_and_stands_on_the_page(tmp_path: Path) -> None:
    job = Shop(tmp_path)
    path, page = tmp_path / "job.json", tmp_path / "page.html"
    path.write_text(json.dumps(job.config))
    job.put("shop/orders/20261101-000000001.csv", 'Op,id,price,<script>,seq\nI,1,1.00,"x",10\n')
    code, said = call("run", "--config", str(path), "--html", str(page))
    assert code == 1
    assert "FAILED" in said
    assert "&lt;script&gt;" in page.read_text()
    assert "<script>" not in page.read_text()
    path.write_text("{}")
    code, said = call("run", "--config", str(path))
    assert code == 2
    assert "tables: Field required" in said
