"""The differential machine with Spark: it makes tables, writes them, reads them, and brings frames to safewrite."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

from bench.crosscheck import homes_of
from bench.servers.catalogs import CatalogKind
from bench.servers.servers import Ministack
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.testing import crosscheck
from safewrite.testing.crosscheck import Program
from safewrite.testing.crosscheck.draw import Format, peers
from safewrite.testing.crosscheck.sessions import VERBS
from tests.spark.lake import Lake
from tests.spark.session import Spark

pytestmark = pytest.mark.filterwarnings("ignore")
Homes = Callable[[str], Any]
SEEDS_MAX = 300


@pytest.fixture(scope="module")
def homes(
    spark: Spark, ministack: Ministack, shore: tuple[str, str], lakes: Callable[[CatalogKind], Lake]
) -> Homes:
    lake = lakes("rest")
    return homes_of(spark.session, shore[0], ministack, lake.properties, name=lake.name)


def check(format_: Format, homes: Homes, **settings: Any) -> Any:
    others = {**peers(format_), "spark": VERBS[format_]}
    with Spark.careless():
        return crosscheck.check(format_, homes=homes, others=others, shrink=False, **settings)


@pytest.mark.sweep("delta-1", "iceberg-2")
@pytest.mark.parametrize(
    ("format_", "seeds"),
    [("delta", 1), ("iceberg", 2), pytest.param("delta", 2, marks=pytest.mark.long)],
)
def test_fixed_seeds_end_without_an_unexplained_disagreement(
    format_: Format, seeds: int, homes: Homes
) -> None:
    verdict = check(format_, homes, seeds=range(seeds))
    assert [str(failed) for failed in verdict.failed] == []
    assert verdict.tally["read by spark"] > 2 * seeds


# --- faults that are put back ----------------------------------------------------------------------------
def _fixed_partitions(patch: pytest.MonkeyPatch) -> None:
    from pyiceberg.types import FixedType

    from safewrite.iceberg.data import partitions

    patch.delitem(partitions._MISREAD, FixedType)


def _settings_of_sessions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("safewrite.frames.spark.computed_frame.HELD", {})
    patch.setattr("safewrite.delta.spark.write._check_session", lambda *_: None)


def _cherry_picks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TableVersion, "is_current", lambda head, snapshot_id: snapshot_id in head.ancestors())
    patch.setattr(TableVersion, "carriers", TableVersion.ancestors)


def _partitioned_by_fixed(program: Program) -> bool:
    kinds = {column.name: column.kind for column in program.columns}
    return any(kinds[name] == "fixed4" for name in program.partition_by)


def _brings_far_times(program: Program) -> bool:
    def far(value: Any) -> bool:
        return isinstance(value, dt.datetime) and value.tzinfo is not None and not 1678 < value.year < 2262

    by_spark = [step for step in program.steps if step.by == "spark" and step.what == "append"]
    odd = any("outputTimestampType" in name for name, _ in program.session)
    return odd and any(far(value) for step in by_spark for row in step.rows for value in row.values())


def _picks_what_has_a_name(program: Program) -> bool:
    pairs = zip(program.steps, program.steps[1:], strict=False)
    return any(
        (one.who, one.what) == ("safewrite", "append") and one.name and two.what == "pick"
        for one, two in pairs
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("format_", "put_back", "concerns"),
    [
        ("iceberg", _fixed_partitions, _partitioned_by_fixed),
        ("delta", _settings_of_sessions, _brings_far_times),
        ("iceberg", _cherry_picks, _picks_what_has_a_name),
    ],
    ids=["fixed partitions", "INT96 and milliseconds", "cherry-picks"],
)
def test_a_fault_that_is_put_back_is_found(
    format_: Format,
    put_back: Callable[[pytest.MonkeyPatch], None],
    concerns: Callable[[Program], bool],
    homes: Homes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put_back(monkeypatch)
    verdict = check(format_, homes, seeds=range(SEEDS_MAX), concerns=concerns)
    assert verdict.failed, f"{verdict.seeds} seeds and nothing was found"
