"""Stress runs on Iceberg tables end to end, small: every catalog, and one with a protection taken out."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, get_args

import pytest

from bench.servers.catalogs import CatalogKind
from bench.stress.plans import iceberg_arms
from tests.bench.runs import arm, stress

pytestmark = pytest.mark.xdist_group("stress-iceberg")  # one worker makes the run that these tests look at

KINDS: tuple[CatalogKind, ...] = get_args(CatalogKind)
EACH = [pytest.param(kind, marks=() if kind == "sql" else pytest.mark.long) for kind in KINDS]
NAIVE = {"rest": "last-attempt-rest", "glue": "last-attempt-glue", "sql": "pyiceberg-sql"}
TINY = (
    "--seed", "3", "--writers", "3", "--appends", "4", "--rows", "20", "--pause-s", "1", "--limit-s", "120",
    "--steps", "swap.commit", "--no-spark-reader", "--min-rows", "100",
)  # fmt: skip
FLAWS = ("lost", "doubled", "torn", "altered", "phantom", "zombie", "recommitted", "misreported", "disagreed")


@cache
def tiny(kind: CatalogKind) -> tuple[int, dict[str, Any], str]:
    """Two writers of safewrite, one of PyIceberg and three chores on one table; a naive arm beside it."""
    return stress(Path(mkdtemp(prefix="stress-")), *TINY, "--arms", f"safewrite-{kind},{NAIVE[kind]}")


@pytest.mark.long
@pytest.mark.parametrize("kind", EACH)
def test_safewrite_loses_and_doubles_nothing_in_any_catalog(kind: CatalogKind) -> None:
    code, report, _ = tiny(kind)
    safe = arm(report, f"safewrite-{kind}")
    assert {name: safe["rows"][name] for name in FLAWS} == dict.fromkeys(FLAWS, 0)
    assert (code, report["verdict"], report["reasons"]) == (0, "valid", [])


@pytest.mark.sweep("sql")
@pytest.mark.parametrize("kind", EACH)
def test_the_table_was_looked_after_and_others_wrote_to_it_meanwhile(kind: CatalogKind) -> None:
    safe = arm(tiny(kind)[1], f"safewrite-{kind}")
    assert all(chore["done"] for chore in safe["chores"])
    assert {chore["chore"] for chore in safe["chores"]} == set(iceberg_arms.CHORES)
    assert safe["peers"]["acked_rows"] > 0
    assert safe["peers"]["lost"] == 0


@pytest.mark.sweep("sql")
@pytest.mark.parametrize("kind", EACH)
def test_every_class_of_fault_and_every_planned_kill_came(kind: CatalogKind) -> None:
    safe = arm(tiny(kind)[1], f"safewrite-{kind}")
    kinds = {kind for by_kind in safe["faults"].values() for kind in by_kind}
    assert set(map(str, iceberg_arms.CLASSES)) <= kinds
    assert safe["kills"] == {"swap.commit:after": 1, "swap.commit:before": 1}
    assert sum(safe["pauses"].values()) == 2


@pytest.mark.parametrize("kind", ["rest", "glue"])
@pytest.mark.long
def test_the_fault_that_destroys_the_table_of_pyiceberg_leaves_ours_readable(kind: CatalogKind) -> None:
    _, report, page = tiny(kind)
    assert arm(report, NAIVE[kind])["verdict"] == "table destroyed"
    assert "table destroyed" in page
    safe = arm(report, f"safewrite-{kind}")
    assert safe["conflicts"] > 0
    assert not safe["destroyed"]


@pytest.mark.long
def test_callers_of_pyiceberg_that_call_again_double_rows() -> None:
    naive = arm(tiny("sql")[1], NAIVE["sql"])
    assert naive["verdict"] == "bitten"
    assert naive["rows"]["doubled"] > 0


@pytest.mark.long
def test_the_report_names_the_catalog_and_how_to_run_it_again() -> None:
    _, report, page = tiny("sql")
    assert arm(report, "safewrite-sql")["catalog"] == "sql"
    assert "catalog: sql" in page
    assert report["replay"].endswith(
        "--no-spark-reader --steps swap.commit --arms safewrite-sql,pyiceberg-sql"
    )


BLIND = ("C3-an_own_snapshot_is_not_recognised", "C3-an_own_key_is_not_found_in_the_table")
"""Whoever gets no clear answer does not look for a commit of its own, neither by its id nor by its key."""


@pytest.mark.long
def test_a_run_without_the_look_for_ones_own_commit_is_invalid(tmp_path: Path) -> None:
    code, report, _ = stress(tmp_path, *TINY, "--arms", "safewrite-sql", faults=BLIND)
    assert (code, report["verdict"]) == (1, "INVALID")
    assert any("doubled" in reason for reason in report["reasons"])
