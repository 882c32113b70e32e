"""The bench beside PyIceberg: tiny runs give whole figures, and an append makes so many requests and no more."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

import safewrite as sw
from bench.perf import contention, group, iceberg_writers, lone, writers
from bench.perf.contest import DELTA, iceberg
from bench.perf.iceberg_harness import IcebergHarness
from bench.perf.scale import TINY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.perf.figures import Scenario
    from bench.servers.catalogs import CatalogKind
    from tests.servers import CatalogLab

LEASED, PLAIN, PYICEBERG = iceberg_writers.LEASED, iceberg_writers.PLAIN, iceberg_writers.PYICEBERG


def is_plain(scenario: Scenario) -> bool:
    """Whether the figures survive a trip through JSON."""
    plain = scenario.to_dict()
    return bool(json.loads(json.dumps(plain)) == plain)


@pytest.mark.long
def test_the_lone_append_is_timed_and_counted_beside_pyicebergs(tmp_path: Path) -> None:
    scenario = lone.run(replace(TINY, lone_rows=TINY.lone_rows_iceberg), tmp_path, iceberg("glue"))
    assert is_plain(scenario)
    assert {line.arm for line in scenario.lines} == {
        LEASED,
        PLAIN,
        PYICEBERG,
        iceberg_writers.V3,
        f"{LEASED}, keyed",
        f"{PLAIN}, keyed",
    }
    for line in scenario.lines:
        assert all(math.isfinite(value) and value > 0 for value in line.values), line
        assert (line.peer is None) == (line.arm == PYICEBERG)
        if "away" in line.case:
            assert line.extra["requests_by_step"]["catalog_commit"] == 1
        if line.arm == iceberg_writers.V3:
            assert line.peer == PLAIN
    # Two temperatures, near and far, with a lock table, without, and in format version 3.
    assert Counter(aim.limit for aim in scenario.aims) == {0.7: 8, 1.1: 4}


@pytest.mark.long
def test_contention_acks_every_append_and_counts_the_attempts_of_all(tmp_path: Path) -> None:
    scenario = contention.run(replace(TINY, processes=()), tmp_path, iceberg("glue"))
    assert is_plain(scenario)
    assert scenario.broken == ()
    assert {line.arm for line in scenario.lines} == {f"{LEASED} alone", f"{PLAIN} alone", PYICEBERG}
    for line in scenario.lines:
        assert line.extra["acked"] > 0
        assert line.extra["attempts/ack"] >= 1
        assert line.extra["requests_by_step"]["put_manifest_list"] >= 1
    held = [aim.text for aim in scenario.aims if "attempts per ack" in aim.text]
    assert len(held) == 1, "only writers that take turns are held to few attempts"
    assert LEASED in held[0]


@pytest.mark.long
def test_writers_that_share_snapshots_are_measured_next_to_those_that_do_not_and_to_mere_uploads(
    tmp_path: Path,
) -> None:
    scenario = group.run(TINY, tmp_path, iceberg("sql"))
    assert is_plain(scenario)
    assert scenario.broken == ()
    found = {line.arm: line for line in scenario.lines}
    assert set(found) == {PLAIN, f"{PLAIN} alone", writers.STAGED, PYICEBERG}
    assert all(found[arm].extra["acks/commit"] >= 1 for arm in (PLAIN, f"{PLAIN} alone", PYICEBERG))
    assert found[writers.STAGED].extra["requests_by_step"] == {"put_data": 1.0}


@pytest.mark.long
def test_tables_of_a_sql_catalog_take_appends_near_and_by_the_slow_way(tmp_path: Path) -> None:
    with IcebergHarness(tmp_path, "sql", delay_s=0.001) as lab:
        for slow in (False, True):
            for arm in (PLAIN, LEASED, PYICEBERG):
                place = lab.place(arm, slow=slow)
                iceberg_writers.create(arm, place, iceberg_writers.schema())
                iceberg_writers.opening(arm, place)(iceberg_writers.frame_of(7), None)
                assert iceberg_writers.rows_in(place) == 7
        assert lab.requests()["sql"] > 0


def test_the_contests_name_their_peers_last_and_hold_no_arm_twice() -> None:
    for contest in (DELTA, iceberg("sql"), iceberg("rest"), iceberg("glue")):
        assert contest.arms[-1] == contest.peer
        assert len(set(contest.arms)) == len(contest.arms)
        assert set(contest.queued) <= set(contest.contended)
        assert contest.calls.schema() == writers.schema()


# --- requests of one append -----------------------------------------------------------------------
OURS = {
    "put_data": 1,
    "put_manifest": 1,
    "put_manifest_list": 1,
}
"""What safewrite asks of S3 for the rows; the metadata file is uploaded too, where no catalog service does that."""


def requests_of(lab: CatalogLab, append: Callable[[], Any]) -> Counter[str]:
    """Requests that one call made, by what they are for."""
    before = seen(lab)
    append()
    return seen(lab) - before


def seen(lab: CatalogLab) -> Counter[str]:
    found = Counter({str(step): count for step, count in lab.proxy.requests().items()})
    if lab.commits is not lab.proxy:
        found["sql"] = lab.commits.requests().total()
    return found


@pytest.mark.sweep("rest", "glue")
@pytest.mark.parametrize("kind", ["sql", "rest", "glue"])
def test_an_append_makes_three_requests_for_its_files_and_no_more_in_all_than_pyiceberg(
    kind: CatalogKind, catalog_lab: Callable[[CatalogKind], CatalogLab]
) -> None:
    lab = catalog_lab(kind)
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
    table = sw.create(f"{lab.namespace}.ours", rows.schema, catalog={"name": "lab", **lab.proxied})
    catalog = load_catalog("lab", **lab.proxied)
    theirs = catalog.create_table(f"{lab.namespace}.theirs", rows.schema)
    table.append(rows)
    theirs.append(rows)

    counted = requests_of(lab, lambda: table.append(rows))
    assert {step: counted[step] for step in OURS} == OURS
    assert counted["get_data"] == 0  # the upload shows the MD5 of its bytes
    if kind == "rest":
        assert counted == {**OURS, "catalog_commit": 1, "catalog_load": 1}
    elif kind == "glue":  # PyIceberg looks at the table before it commits, and we do after it
        assert counted == {**OURS, "put_metadata": 1, "catalog_commit": 1, "catalog_load": 2}
    else:
        assert counted - Counter(sql=counted["sql"]) == {**OURS, "put_metadata": 1}
    assert counted.total() <= requests_of(lab, lambda: theirs.append(rows)).total()


@pytest.mark.long
def test_the_list_that_a_writer_uploaded_itself_is_read_only_after_another_writer_came(
    catalog_lab: Callable[[CatalogKind], CatalogLab],
) -> None:
    lab = catalog_lab("sql")
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
    name, catalog = f"{lab.namespace}.listed", {"name": "lab", **lab.proxied}
    table = sw.create(name, rows.schema, catalog=catalog)
    table.append(rows)
    assert requests_of(lab, lambda: table.append(rows))["get_manifest_list"] == 0
    sw.open(name, catalog=catalog).append(rows)
    table.refresh()
    assert requests_of(lab, lambda: table.append(rows))["get_manifest_list"] == 1
    assert sw.open(name, catalog=catalog).iceberg.scan().count() == 4 * rows.num_rows


def test_a_key_costs_two_more_requests_where_there_is_a_ledger(
    catalog_lab: Callable[[CatalogKind], CatalogLab], dynamodb_table: str
) -> None:
    lab = catalog_lab("rest")
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
    table = sw.create(
        f"{lab.namespace}.keyed", rows.schema, catalog={"name": "lab", **lab.proxied}, lock_table=dynamodb_table,
        storage_options=lab.proxy.storage_options(),
    )  # fmt: skip
    table.append(rows)
    plain = requests_of(lab, lambda: table.append(rows))
    keyed = requests_of(lab, lambda: table.append(rows, key="event-1"))
    assert keyed - plain == {"put_ledger": 2}, "the intent before, the result after"
