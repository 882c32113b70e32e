"""What becomes of quarantined rows when the rules of a table change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from safewrite.medallion import Pipeline, verify
from safewrite.medallion.tables.job import TableJob
from safewrite.table.verbs import Table
from tests.medallion.test_jobs import HEAD, Shop, set_in


def audits(job: Shop) -> list[Any]:
    return [one.flaws for one in verify(Pipeline(job.config))]


def test_rules_may_change_between_a_crash_and_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The crash leaves quarantine's commit without silver's; other rules then find other rows bad."""
    job = Shop(tmp_path)
    set_in(job, "defaults", "quality", to={"ranges": {"price": [2, None]}, "quarantined_share_max": 1.0})
    job.put("shop/orders/20261101-000000001.csv", HEAD + "I,1,1.00,10\nI,2,2.00,11\nI,3,3.00,12\n")

    def crash(*_: Any, **__: Any) -> None:
        raise OSError("the machine went away")

    with monkeypatch.context() as patch:
        patch.setattr(Table, "apply_changes", crash)
        assert not job.run().ok
    assert len(job.rows("aside")) == 1
    set_in(job, "defaults", "quality", to={"ranges": {"price": [3, None]}, "quarantined_share_max": 1.0})
    run = job.run()
    assert run.ok, run.tables[0].error
    assert job.silver() == {3: "3.00"}
    assert audits(job) == [[]]


def test_declared_types_may_change_between_a_crash_and_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Shop(tmp_path)
    job.put("shop/orders/20261101-000000001.csv", HEAD + "I,1,1.00,10\nI,2,two,11\nI,3,three,-1\n")

    def crash(_: TableJob) -> None:
        raise OSError("the machine went away")

    with monkeypatch.context() as patch:
        patch.setattr(TableJob, "bronze", property(crash))
        assert not job.run().ok
    assert len(job.rows("aside")) == 2
    set_in(job, "tables", "shop.orders", "columns", to={"id": "int64", "price": "string"})
    run = job.run()
    assert run.ok, run.tables[0].error
    assert job.silver() == {1: "1.00", 2: "two"}
    assert audits(job) == [[]]


def test_declared_types_may_be_corrected_after_a_first_run_that_was_refused(tmp_path: Path) -> None:
    """Bronze has the types of the first files that are taken, and not of those that were refused."""
    job = Shop(tmp_path)
    set_in(job, "defaults", "quality", to={"quarantined_share_max": 0.1})
    job.put("shop/orders/20261101-000000001.csv", HEAD + "I,1,1.00,10\nI,2,two,11\n")
    assert "quarantined_share_max" in str(job.run().tables[0].error)
    assert not (tmp_path / "bronze").exists()
    set_in(job, "tables", "shop.orders", "columns", to={"id": "int64", "price": "string"})
    assert job.run().ok
    assert job.silver() == {1: "1.00", 2: "two"}
    assert audits(job) == [[]]
    assert not job.run().tables[0].news


def test_a_replay_under_other_rules_takes_what_was_put_aside(tmp_path: Path) -> None:
    """Rows that were bad are in quarantine for good; ``verify`` knows that silver may have them since."""
    job = Shop(tmp_path)
    set_in(job, "defaults", "quality", to={"ranges": {"price": [2, None]}, "quarantined_share_max": 1.0})
    job.put(
        "shop/orders/20261101-000000001.csv", HEAD + "I,1,1.00,10\nI,2,2.00,11\nU,2,0.50,12\nI,3,1.50,13\n"
    )
    assert job.run().ok
    assert job.silver() == {2: "2.00"}
    assert audits(job) == [[]]
    set_in(job, "defaults", "quality", to={"ranges": {"price": [1, None]}, "quarantined_share_max": 1.0})
    assert Pipeline(job.config).replay(["shop.orders"]).ok
    assert job.silver() == {1: "1.00", 2: "2.00", 3: "1.50"}
    assert audits(job) == [[]]
    set_in(job, "defaults", "quality", to={"quarantined_share_max": 1.0})
    assert Pipeline(job.config).replay(["shop.orders"]).ok
    assert job.silver() == {1: "1.00", 2: "0.50", 3: "1.50"}
    assert audits(job) == [[]]


def mixed(tmp_path: Path) -> Shop:
    """A job whose files have rows of several tables."""
    files = {"kind": "csv", "header": False, "order": ["Op", "t", "s", "*", "seq"], "change_seq": "seq"}
    job = Shop(
        tmp_path,
        raw={"location": f"{tmp_path}/raw", "layout": "mixed", "mixed_folder": "cdc", "table_column": "t", "schema_column": "s"},
    )  # fmt: skip
    set_in(job, "defaults", "files", to=files)
    set_in(job, "tables", "shop.orders", "columns", to={"id": "int64", "price": "string"})
    return job


def test_a_quote_within_a_value_of_a_mixed_file_is_told(tmp_path: Path) -> None:
    job = mixed(tmp_path)
    job.put("cdc/20261101-000000001.csv", 'I,orders,shop,1,5" pipe,10\nI,orders,shop,2,6" nail,11\n')
    run = job.run()
    assert "two readers find 2 and 1 records of shop.orders" in str(run.tables[0].error)
    assert not (tmp_path / "bronze").exists()
    set_in(job, "defaults", "files", "rfc4180", to=False)
    assert job.run().ok
    assert job.silver() == {1: '5" pipe', 2: '6" nail'}


def test_a_value_that_swallows_records_of_another_table_is_put_aside(tmp_path: Path) -> None:
    """T3-C4: and with the setting both tables have theirs."""
    job = mixed(tmp_path)
    set_in(job, "tables", "shop.items", to={"columns": {"id": "int64", "name": "string", "price": "string"}})
    content = 'I,orders,shop,1,"5,10\nI,items,shop,2,six,6",11\nI,orders,shop,3,7,12\n'
    job.put("cdc/20261101-000000001.csv", content)
    assert job.run().ok
    assert job.silver() == {3: "7"}
    (aside,) = job.rows("aside")
    assert (aside["table"], aside["line"]) == ("shop.orders", 1)
    assert "lines that would be records of tables" in aside["reason"]
    set_in(job, "defaults", "files", "rfc4180", to=False)
    job.put("cdc/20261101-000000002.csv", content)
    assert job.run().ok
    assert (job.silver(), job.silver("items")) == ({1: '"5', 3: "7"}, {2: '6"'})


@pytest.mark.long
def test_a_long_value_of_a_mixed_file_goes_to_its_table(tmp_path: Path) -> None:
    """Python's reader of CSV has a limit of 131,072 letters in a value."""
    job = mixed(tmp_path)
    job.put("cdc/20261101-000000001.csv", f'I,orders,shop,1,"{"a,b" * 50_000}",10\n')
    assert job.run().ok
    assert job.silver() == {1: "a,b" * 50_000}
