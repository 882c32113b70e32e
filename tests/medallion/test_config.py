"""A configuration is refused with the name of the field that is wrong, before anything is touched."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import safewrite as sw
from safewrite.cli.app import app
from safewrite.medallion import Pipeline, load, verify
from safewrite.medallion.files.layout import odd
from tests.each import each

GOOD: dict[str, Any] = {
    "job": "shop", "raw": {"location": "raw"}, "state": "state", "quarantine": "quarantine",
    "defaults": {
        "format": "delta", "bronze": "lake/bronze/{schema}/{table}", "silver": "lake/silver/{schema}/{table}",
        "files": {"kind": "csv", "header": True},
    },
    "tables": {"shop.orders": {"keys": ["id"], "columns": {"id": "int64", "price": "decimal(10,2)"}}},
}  # fmt: skip
ORDER = {"kind": "csv", "header": False, "order": ["Op", "table", "schema", "*"]}
MIXED = {
    "location": "raw",
    "layout": "mixed",
    "mixed_folder": "cdc",
    "table_column": "table",
    "schema_column": "schema",
}
TWO_SCHEMES = GOOD["defaults"] | {
    "bronze": "s3://b/lake/{schema}/{table}",
    "silver": "s3a://b/lake/{schema}/{table}",
}
SYNC = {"time": "at", "overlap_s": 60, "sequence": ["lsn"]}
FOLLOWED = {"keys": ["id"], "columns": {"id": "int64", "price": "decimal(10,2)"}, "sync": SYNC}


def followed(**more: Any) -> dict[str, Any]:
    return FOLLOWED | {"sync": SYNC | more}


WRONG: dict[str, tuple[list[str], Any, str]] = {
    "an unknown field": (["retries"], 3, "retries"),
    "an unknown field of a table": (["defaults", "bronce"], "x", "tables.shop.orders.bronce: there is no such field; did you mean bronze?"),
    "an unknown field of a part": (["defaults", "files", "headers"], True, "files.headers: there is no such field; did you mean header?"),
    "no table": (["tables"], {}, "tables"),
    "a name without schema": (["tables"], {"orders": {}}, "tables"),
    "no keys": (["tables", "shop.orders", "keys"], [], "keys"),
    "a key twice": (["tables", "shop.orders", "keys"], ["id", "id"], "twice"),
    "a key that is no column": (["tables", "shop.orders", "keys"], ["nr"], "nr"),
    "a key that engines compare otherwise": (["tables", "shop.orders", "columns", "id"], "float64", "floating-point"),
    "two columns of one name but for case": (["tables", "shop.orders", "columns", "ID"], "int64", "['ID', 'id'] differ"),
    "a type that is none": (["tables", "shop.orders", "columns", "id"], "integer", "tables.shop.orders.columns.id"),
    "a decimal with more scale than digits": (["tables", "shop.orders", "columns", "id"], "decimal(2,4)", "columns.id"),
    "a column of bronze's own": (["tables", "shop.orders", "columns", "_seq"], "int64", "_seq"),
    "a column that silver's batch needs": (["tables", "shop.orders", "columns", "_delete"], "int64", "_delete"),
    "a column named as the op": (["tables", "shop.orders", "columns", "Op"], "string", "Op"),
    "a state among the raw files": (["state"], "raw/state", "raw.location"),
    "a number as text": (["workers"], "8", "workers"),
    "no workers": (["workers"], 0, "workers"),
    "an epoch below 1": (["defaults", "epoch"], 0, "epoch"),
    "a second epoch without a word on reloads": (["defaults", "epoch"], 2, "reload"),
    "a word on reloads of no epoch": (["defaults", "reload"], {"x": "keep"}, "reload"),
    "a word on reloads in the first epoch": (["defaults", "reload"], "keep", "reload"),
    "a policy that is none": (["defaults", "on_overwritten"], "ignore", "on_overwritten"),
    "a CSV without a word on its header": (["defaults", "files"], {"kind": "csv"}, "header"),
    "an order where there is a header": (["defaults", "files", "order"], ["Op", "*"], "order"),
    "no order where there is no header": (["defaults", "files", "header"], False, "order"),
    "an order without the op": (["defaults", "files"], ORDER | {"order": ["*"]}, "order"),
    "an order without a place for columns": (["defaults", "files"], ORDER | {"order": ["Op"]}, "order"),
    "a delimiter for Parquet": (["defaults", "files"], {"kind": "parquet", "delimiter": ";"}, "delimiter"),
    "a catalog that nothing uses": (["catalog"], {"type": "sql"}, "catalog"),
    "Iceberg without a catalog": (["defaults", "format"], "iceberg", "catalog"),
    "one address for two tables": (["defaults", "silver"], "lake/bronze/{schema}/{table}", "address of two tables"),
    "one address with and without a slash": (["defaults", "silver"], "lake/bronze/{schema}/{table}/", "address of two tables"),
    "one address under two schemes": (["defaults"], TWO_SCHEMES, "address of two tables"),
    "a table in the folder of another": (["defaults", "silver"], "lake/bronze/{schema}/{table}/silver", "whose VACUUM would delete it"),
    "raw files in the folder of a table": (["defaults", "bronze"], "lake", "lies in the folder of the Delta table"),
    "mixed files with a header": (["raw"], MIXED, "order"),
    "a mixed folder for files by table": (["raw", "mixed_folder"], "cdc", "raw"),
    "a range with one end": (["defaults", "quality"], {"ranges": {"price": [1]}}, "quality.ranges.price"),
    "a rule for no column": (["defaults", "quality"], {"not_null": ["nr"]}, "nr"),
    "a share above one": (["defaults", "quality"], {"quarantined_share_max": 1.5}, "quarantined_share_max"),
    "a table without files and without sync": (["defaults", "files"], {}, "kind"),
    "a sync that is none": (["defaults", "sync"], {}, "sync.time"),
    "a sync beside files": (["defaults", "sync"], SYNC, "files: of no use with sync"),
    "raw files that no table has": (["tables", "shop.orders", "sync"], SYNC, "raw: needed for tables with files"),
    "a policy that only raw files need": (["tables", "shop.orders"], FOLLOWED | {"on_overwritten": "raise"}, "on_overwritten"),
    "operations without their column": (["tables", "shop.orders"], followed(deletes=["D"]), "deletes: of no use without op"),
    "an operation that is two": (["tables", "shop.orders"], followed(op="op", deletes=["U"]), "['U'] are in upserts too"),
    "a sequence without a column": (["tables", "shop.orders"], followed(sequence=[]), "sync.sequence"),
    "a column twice in the sequence": (["tables", "shop.orders"], followed(sequence=["a", "a"]), "sequence: a column comes twice"),
    "an overlap below 0": (["tables", "shop.orders"], followed(overlap_s=-1), "sync.overlap_s"),
    "an op that is the time": (["tables", "shop.orders"], followed(op="at"), "op: at is the column of time"),
    "an op among the columns": (["tables", "shop.orders"], followed(op="price"), "sync.op"),
    "a policy for late rows that is none": (["tables", "shop.orders"], followed(late="ignore"), "sync.late"),
    "a table that is ignored and configured": (["ignored_tables"], ["shop.orders"], "ignored_tables"),
    "a way of quotes for Parquet": (["defaults", "files"], {"kind": "parquet", "rfc4180": False}, "rfc4180: for CSV only"),
    "a way of quotes that is none": (["defaults", "files", "rfc4180"], "no", "files.rfc4180"),
    "no value for Parquet": (["defaults", "files"], {"kind": "parquet", "no_sup_value": "?"}, "no_sup_value: for CSV only"),
    "no value that is NULL too": (["defaults", "files", "no_sup_value"], "NULL", "cannot stand for a value that the log lacks"),
    "no value that is nothing": (["defaults", "files", "no_sup_value"], "", "files.no_sup_value"),
    "a quote between values": (["defaults", "files", "delimiter"], '"', "files.delimiter"),
    "a line end between values": (["defaults", "files", "delimiter"], "\n", "files.delimiter"),
    "two letters between values": (["defaults", "files", "delimiter"], "||", "files.delimiter"),
    "a column that bronze has": (["tables", "shop.orders", "columns"], {"id": "int64", "_unchanged": "string"}, "_unchanged"),
    "a catalog that is a number": (["catalog"], 5, "the name of a catalog in PyIceberg's configuration, or an object"),
    "a catalog without a name": (["catalog"], " ", "the name of a catalog"),
    "a catalog with a number in it": (["catalog"], {"type": "sql", "port": 5}, "all texts"),
}  # fmt: skip


def changed(path: list[str], value: Any) -> dict[str, Any]:
    found = copy.deepcopy(GOOD)
    place = found
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return found


@each("what", WRONG)
def test_a_wrong_field_is_named(what: str) -> None:
    path, value, named = WRONG[what]
    with pytest.raises(sw.InvalidInputError) as refused:
        load(changed(path, value))
    assert named in str(refused.value)
    assert "Nothing was read or written" in str(refused.value)


def test_defaults_are_those_of_each_table_and_addresses_have_its_name() -> None:
    config = load(GOOD)
    table = config.tables["shop.orders"]
    assert (table.bronze, table.silver) == ("lake/bronze/shop/orders", "lake/silver/shop/orders")
    own = load(changed(["tables", "shop.orders", "files"], {"op": "operation"})).tables["shop.orders"]
    assert (own.files.kind, own.files.op) == ("csv", "operation")
    assert load(
        changed(["raw"], MIXED) | {"defaults": GOOD["defaults"] | {"files": ORDER}}
    ).owner_columns == (
        "table",
        "schema",
    )


def test_a_table_with_sync_has_no_part_in_how_raw_files_land() -> None:
    both = copy.deepcopy(GOOD)
    both["tables"]["shop.views"] = FOLLOWED
    both["defaults"]["on_overwritten"] = "quarantine"
    config = load(both)
    assert list(config.landed) == ["shop.orders"]
    assert config.tables["shop.views"].model_fields_set == {
        "format",
        "bronze",
        "silver",
        "keys",
        "columns",
        "sync",
    }
    with pytest.raises(sw.InvalidInputError, match="files: needed"):
        load({**GOOD, "defaults": {name: one for name, one in GOOD["defaults"].items() if name != "files"}})
    del both["tables"]["shop.orders"], both["raw"]
    assert load(both).landed == {}


def test_a_configuration_in_text_is_no_path() -> None:
    text = Pipeline(json.dumps(GOOD))
    assert text.config == load(GOOD)
    assert text.places.command("reset", "shop.orders") == "Pipeline(config).reset(['shop.orders'])"


def test_a_file_that_is_no_configuration_says_so(tmp_path: Path) -> None:
    twice = json.dumps(GOOD)[:-2] + ', "shop.orders": {}}}'
    for text in ("", "[]", "{", twice):
        (tmp_path / "job.json").write_text(text)
        with pytest.raises(sw.InvalidInputError, match=r"job\.json"):
            load(tmp_path / "job.json")
    with pytest.raises(sw.InvalidInputError, match="cannot be read"):
        load(tmp_path / "nowhere.json")


def test_a_table_that_is_not_configured_cannot_be_run(tmp_path: Path) -> None:
    job = Pipeline(GOOD)
    with pytest.raises(sw.InvalidInputError, match=r"shop\.orders"):
        job.run(["shop.order"])
    with pytest.raises(sw.InvalidInputError):
        job.run([])
    with pytest.raises(sw.StorageError, match=r"raw\.location"):
        Pipeline(GOOD | {"raw": {"location": str(tmp_path / "nothing")}}).run()


CALLS: dict[str, tuple[Callable[[Pipeline], Any], str]] = {
    "a table as a text": (lambda job: job.run("shop.orders"), "tables= is a list of texts"),
    "tables that are numbers": (lambda job: job.run([1]), "tables= is a list of texts"),
    "a hint as a text": (
        lambda job: job.run(hints="s3://raw/shop/orders/x.csv"),
        "hints= is a list of texts",
    ),
    "hints that are none": (lambda job: job.run(hints=[None]), "hints= is a list of texts"),  # type: ignore[list-item]
    "a replay of no list": (lambda job: job.replay(None), "tables= is a list of texts"),  # type: ignore[arg-type]
    "a replay since a number": (lambda job: job.replay(["shop.orders"], since=5), "ISO 8601"),  # type: ignore[arg-type]
    "a replay since a date that is none": (
        lambda job: job.replay(["shop.orders"], since="2026-13-01"),
        "ISO 8601",
    ),
    "a reset of a table that is none": (lambda job: job.reset(["shop.order"]), "There are shop.orders"),
    "a reset of everything at once": (
        lambda job: job.reset({"shop.orders": 1}),
        "tables= is a list of texts",
    ),
    "a truncate of nothing": (lambda job: job.truncate([]), "No table is not configured"),
    "a truncate after a number": (lambda job: job.truncate(["shop.orders"], after=7), "after= is the path"),  # type: ignore[arg-type]
    "a verify of a configuration": (lambda job: verify(GOOD), "verify(Pipeline(config))"),  # type: ignore[arg-type]
    "a verify of a text": (lambda job: verify(job, "shop.orders"), "tables= is a list of texts"),
    "no configuration": (lambda job: load(None), "not a JSON object but a NoneType"),  # type: ignore[arg-type]
    "a configuration in text that is a list": (lambda job: Pipeline(b"[]"), "not a JSON object but a list"),  # type: ignore[arg-type]
    "a configuration that is a list": (lambda job: Pipeline([GOOD]), "not a JSON object but a list"),  # type: ignore[arg-type]
}


@each("what", CALLS)
def test_a_wrong_call_says_what_is_right(what: str) -> None:
    call, told = CALLS[what]
    with pytest.raises(sw.InvalidInputError) as refused:
        call(Pipeline(GOOD))
    assert told in str(refused.value), refused.value
    assert re.search("Nothing was (read or )?written", str(refused.value))


UNUSABLE: dict[str, tuple[list[str], Any, str]] = {
    "a folder that may be a slip": (
        ["defaults", "silver"],
        "lakes/{table}",
        "write ./lakes/orders, or s3://lakes/orders",
    ),
    "a scheme that nobody knows": (["defaults", "silver"], "gs://b/{table}", "scheme 'gs'"),
    "a name in braces that is none": (
        ["defaults", "silver"],
        "./lake/{database}/{table}",
        "only {schema} and {table}",
    ),
    "raw files where there is no folder": (
        ["raw"],
        {"location": "./nowhere"},
        "raw.location: no folder ./nowhere here",
    ),
    "raw files on another store": (["raw"], {"location": "abfs://c/raw"}, "neither s3:// nor a local folder"),
    "a state on another store": (["state"], "gs://b/state", "'gs://b/state' is neither"),
}


@pytest.mark.parametrize("what", UNUSABLE)
def test_check_refuses_what_every_run_would(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T3-C10"""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raw").mkdir()
    (tmp_path / "lake").mkdir()
    path, value, told = UNUSABLE[what]
    good = changed(["quarantine"], "./quarantine")
    good["defaults"] |= {"bronze": "./lake/bronze/{table}", "silver": "./lake/silver/{table}"}
    Pipeline(good).check()
    place = good
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(sw.InvalidInputError) as refused:
        Pipeline(good).check()
    assert told in str(refused.value), refused.value
    (tmp_path / "job.json").write_text(json.dumps(good))
    done = CliRunner().invoke(app, ["medallion", "check", "--config", "job.json"])
    assert (done.exit_code, "Nothing was" in done.output) == (2, True), done.output


def test_a_catalog_may_be_a_name_and_a_table_be_called_otherwise(tmp_path: Path) -> None:
    """T3-C11"""
    named = changed(["defaults", "format"], "iceberg") | {"catalog": "prod", "quarantine_format": "delta"}
    assert load(named).catalog == "prod"
    config = load(GOOD)
    reason, advice = odd("SHOP/ORDERS/LOAD00000001.csv", config)
    assert "its folder is SHOP/ORDERS, and shop.orders is configured" in reason
    assert advice == "Call the table SHOP.ORDERS in the configuration"
