"""Every way in which bronze stops being followed is refused, and the command that the refusal names mends it."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from typer.testing import CliRunner

import safewrite as sw
from bench.medallion.harness import Harness, lab
from safewrite.cli.app import app
from safewrite.medallion import Pipeline
from safewrite.medallion.config.stored_names import stored

NAME = "shop.t00"


def stopped(job: Harness) -> str:
    """Run, and expect that the table is refused; says why."""
    run = Pipeline(job.write_config()).run()
    assert not run.ok
    assert run.tables[0].error_kind == "conflict"
    return str(run.tables[0].error)


def mend(told: str) -> None:
    """Copy the command from the refusal, and run it as it stands there."""
    (command,) = re.findall("`(safewrite [^`]+)`", told)
    done = CliRunner().invoke(app, shlex.split(command)[1:], prog_name="safewrite")
    assert done.exit_code == 0, done.output


def bronze_of(job: Harness) -> deltalake.DeltaTable:
    return deltalake.DeltaTable(job.address("bronze", NAME))


# --- Delta ------------------------------------------------------------------------------------------------
def delete_rows(job: Harness) -> None:
    bronze_of(job).delete("_op = 'U'")


def restore(job: Harness) -> None:
    bronze_of(job).restore(1)


def overwrite(job: Harness) -> None:
    sw.open(job.address("bronze", NAME)).delete("true", key="all")


def overwrite_by_another(job: Harness) -> None:
    """Another engine replaces all rows by every second of them."""
    rows = job.read("bronze", NAME)
    deltalake.write_deltalake(
        job.address("bronze", NAME), rows.take(list(range(0, rows.num_rows, 2))), mode="overwrite"
    )


def clean_up_log(job: Harness) -> None:
    """As a checkpoint and the end of the log's retention do; the files of commits that silver did not take are gone."""
    table = bronze_of(job)
    table.create_checkpoint()
    for path in (Path(job.address("bronze", NAME)) / "_delta_log").glob("*.json"):
        path.unlink()


def compact_and_vacuum(job: Harness) -> None:
    table = bronze_of(job)
    table.optimize.compact()
    bronze_of(job).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def create_again(job: Harness) -> None:
    shutil.rmtree(job.address("bronze", NAME))


DELTA_GAPS: dict[str, tuple[Callable[[Harness], None], str]] = {
    "rows deleted": (delete_rows, "removed rows"),
    "restored": (restore, "were removed"),
    "emptied": (overwrite, "removed"),
    "overwritten": (overwrite_by_another, "removed rows"),
    "log cleaned up": (clean_up_log, "cleaned up"),
    "files vacuumed": (compact_and_vacuum, "is gone"),
    "created again": (create_again, "created again"),
}


def refused_and_mended(job: Harness, make: Callable[[Harness], None], why: str) -> None:
    """The gap comes when bronze has rows that silver has not taken yet."""
    for table in job.tables:
        job.dms.deliver_held(table)
    land_only(job)
    before = repr(job.read("silver", NAME).to_pylist())
    make(job)
    told = stopped(job)
    assert why in told
    assert repr(job.read("silver", NAME).to_pylist()) == before
    mend(told)
    assert job.wrong() == {}
    job.go_on()
    job.run()
    assert job.wrong() == {}


@pytest.mark.sweep("overwritten", "emptied", "created again")
@pytest.mark.parametrize("gap", DELTA_GAPS)
def test_a_gap_of_a_delta_bronze_is_refused_and_replay_mends_it(gap: str, tmp_path: Path) -> None:
    make, why = DELTA_GAPS[gap]
    job = lab(tmp_path, "delta")
    job.begin()
    job.run()
    refused_and_mended(job, make, why)


@pytest.mark.long
def test_a_refusal_names_a_call_where_the_configuration_is_no_file(tmp_path: Path) -> None:
    job = lab(tmp_path, "delta")
    job.begin()
    job.run()
    create_again(job)
    pipeline = Pipeline(job.config)
    (one,) = pipeline.run().tables
    assert f"`Pipeline(config).replay(['{NAME}'])`" in str(one.error)
    assert pipeline.replay([NAME]).ok


def land_only(job: Harness) -> None:
    """Bronze gets files that silver does not, as when a run is killed between the two."""
    pipeline = Pipeline(job.config)
    own = pipeline._refine

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    pipeline._refine = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        pipeline.run()
    pipeline._refine = own  # type: ignore[method-assign]


def test_a_compaction_of_bronze_is_passed_over(tmp_path: Path) -> None:
    job = lab(tmp_path, "delta")
    job.begin()
    job.run()
    for table in job.tables:
        job.dms.deliver_held(table)
    land_only(job)
    bronze_of(job).optimize.compact()
    done = job.run().tables[0].refined
    assert done.position == bronze_of(job).version()
    positions = sw.open(job.address("silver", NAME)).positions()
    assert [at for name, at in positions.items() if not name.endswith("/commit")] == [done.position]
    assert job.wrong() == {}
    assert done.rows > 0
    bronze_of(job).optimize.compact(target_size=1)
    job.go_on()
    job.run()
    assert job.wrong() == {}


# --- Iceberg ------------------------------------------------------------------------------------------------
def iceberg_bronze(job: Harness) -> Table:
    return load_catalog("default", **job.catalog).load_table(job.address("bronze", NAME))


def delete_rows_iceberg(job: Harness) -> None:
    iceberg_bronze(job).delete("_op = 'U'")


def roll_back(job: Harness) -> None:
    table = iceberg_bronze(job)
    parent = table.current_snapshot().parent_snapshot_id
    first = table.metadata.snapshot_by_id(parent)
    table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    table.refresh()
    roots = [one for one in table.snapshots() if one.parent_snapshot_id is None]
    table.manage_snapshots().rollback_to_snapshot(roots[0].snapshot_id).commit()


def expire(job: Harness) -> None:
    sw.open(job.address("bronze", NAME), catalog=job.catalog).append(_one_more(job), key="more")
    table = iceberg_bronze(job)
    newest = table.metadata.current_snapshot_id
    old = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != newest]
    table.maintenance.expire_snapshots().by_ids(old).commit()


def overwrite_iceberg(job: Harness) -> None:
    """Another engine replaces all rows by every second of them."""
    rows = job.read("bronze", NAME)
    iceberg_bronze(job).overwrite(rows.take(list(range(0, rows.num_rows, 2))))


def overwrite_some_iceberg(job: Harness) -> None:
    """Another engine replaces the rows of updates by one of them: PyIceberg rewrites the files that hold more than these."""
    rows = job.read("bronze", NAME)
    updates = rows.filter(pc.equal(rows["_op"], "U"))
    iceberg_bronze(job).overwrite(updates.slice(0, 1), overwrite_filter="_op = 'U'")


def _one_more(job: Harness) -> pa.Table:
    """A change that another writer appended."""
    row = job.read("bronze", NAME).slice(0, 1)
    name = stored("_file", job.table_format)
    return row.set_column(row.column_names.index(name), name, pa.array(["by hand"]))


def drop(job: Harness) -> None:
    load_catalog("default", **job.catalog).drop_table(job.address("bronze", NAME))


ICEBERG_GAPS: dict[str, tuple[Callable[[Harness], None], str]] = {
    "rows deleted": (delete_rows_iceberg, "removed rows"),
    "rolled back": (roll_back, "rolled back"),
    "overwritten": (overwrite_iceberg, "removed rows"),
    "overwritten in part": (overwrite_some_iceberg, "removed rows"),
    "snapshots expired": (expire, "has expired"),
    "created again": (drop, "created again"),
}


@pytest.mark.sweep("created again", "overwritten", "overwritten in part", "rows deleted", "snapshots expired")
@pytest.mark.parametrize("gap", ICEBERG_GAPS)
def test_a_gap_of_an_iceberg_bronze_is_refused_and_replay_mends_it(gap: str, tmp_path: Path) -> None:
    make, why = ICEBERG_GAPS[gap]
    job = lab(tmp_path, "iceberg")
    job.begin()
    job.run()
    job.go_on()
    job.run()
    refused_and_mended(job, make, why)


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_silver_that_was_dropped_is_rebuilt_from_bronze(table_format: str, tmp_path: Path) -> None:
    job = lab(tmp_path, table_format)
    job.begin()
    for table in job.tables:
        job.dms.deliver_held(table)
    job.run()
    if table_format == "delta":
        shutil.rmtree(job.address("silver", NAME))
    else:
        load_catalog("default", **job.catalog).drop_table(job.address("silver", NAME))
    assert job.run().tables[0].landed.files == 0
    assert job.wrong() == {}


@pytest.mark.long
def test_a_position_below_expired_snapshots_is_followed_if_nothing_since_it_is_gone(tmp_path: Path) -> None:
    """Silver took the newest snapshot; those before it expire, and bronze goes on."""
    job = lab(tmp_path, "iceberg")
    job.begin()
    job.run()
    job.go_on()
    job.run()
    table = iceberg_bronze(job)
    newest = table.metadata.current_snapshot_id
    old = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != newest]
    assert old
    table.maintenance.expire_snapshots().by_ids(old).commit()
    for one in job.tables:
        job.dms.deliver_held(one)
    job.run()
    assert job.wrong() == {}
    assert job.flaws() == []
