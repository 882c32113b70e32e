"""Snapshots that an Iceberg table keeps no longer expire: none that a tag, a branch or a key needs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.snapshots import Operation

import safewrite as sw
from safewrite.iceberg import expiry
from safewrite.iceberg.expiry import HOUR_MS, Kept, expired
from safewrite.iceberg.retention import KEEP

DAY_MS = 24 * HOUR_MS
NOW_MS = 1000 * DAY_MS


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Any], dict[str, Any]]:
    """Snapshots of any times, most in one line; refs to some of them."""
    count = draw(st.integers(1, 25))
    snapshots = []
    for number in range(count):
        forks = number > 0 and draw(st.booleans()) and draw(st.booleans())
        parent = None if number == 0 else draw(st.integers(0, number - 1)) if forks else number - 1
        time_ms = NOW_MS - draw(st.integers(-3, 60)) * DAY_MS
        one = SimpleNamespace(
            snapshot_id=number, parent_snapshot_id=parent, sequence_number=number + 1, timestamp_ms=time_ms,
            summary=SimpleNamespace(operation=Operation.REPLACE if draw(st.booleans()) else Operation.APPEND),
        )  # fmt: skip
        snapshots.append(one)
    refs = {"main": SimpleNamespace(snapshot_id=draw(st.integers(0, count - 1)), snapshot_ref_type="branch")}
    for name in ("audit", "release"):
        if draw(st.booleans()):
            kind = draw(st.sampled_from(["tag", "branch"]))
            at = draw(st.integers(0, count - 1))
            refs[name] = SimpleNamespace(snapshot_id=at, snapshot_ref_type=kind)
    return snapshots, refs


@given(histories(), st.integers(1, 30), st.integers(1, 5), st.integers(-400, 400))
def test_nothing_goes_that_a_ref_names_or_that_is_young(
    history: tuple[list[Any], dict[str, Any]], days: int, least: int, clock: int
) -> None:
    """Also where this process's clock is wrong: only older ones may go than the newest snapshot of a writer and the clock say."""
    snapshots, refs = history
    by_id = {one.snapshot_id: one for one in snapshots}
    old = expired(snapshots, refs, Kept(days * DAY_MS, least), NOW_MS + clock * DAY_MS)
    gone = {one.snapshot_id for one in old}
    written = [one.timestamp_ms for one in snapshots if one.summary.operation is not Operation.REPLACE]
    newest_ms = max(written, default=0)

    def line(at: int | None) -> list[int]:
        found = []
        while at is not None:
            found.append(at)
            at = by_id[at].parent_snapshot_id
        return found

    assert not gone & {ref.snapshot_id for ref in refs.values()}
    assert not gone & {*line(refs["main"].snapshot_id)[:least]}
    for name, ref in refs.items():
        if name != "main" and ref.snapshot_ref_type == "branch":
            assert not gone & {*line(ref.snapshot_id)}
    for one in gone:  # neither it nor what came before it is of the days that are kept
        earlier = [
            other.timestamp_ms for other in snapshots if other.sequence_number <= by_id[one].sequence_number
        ]
        assert max(earlier) < min(newest_ms, NOW_MS + clock * DAY_MS) - days * DAY_MS


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return SqlCatalog("local", uri=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path.as_uri())


def made(catalog: SqlCatalog, **properties: str) -> Any:
    """A table of 14 snapshots."""
    schema = pa.schema({"id": pa.int64()})
    sw.create("db.t", schema, catalog=catalog, create_namespace=True, properties=properties)
    table = sw.open("db.t", catalog=catalog)
    for number in range(14):
        table.append([{"id": number}], key=f"event-{number}")
    return table


def age(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ten snapshots count as 20 days older, by the store's times as well."""
    was, stored_ms = expiry.expired, expiry._stored_ms

    def older(snapshots: Any, refs: Any, kept: Any, now_ms: int) -> Any:
        cut = sorted(one.sequence_number for one in snapshots)[-4]
        aged = [
            one.model_copy(
                update={"timestamp_ms": one.timestamp_ms - 20 * DAY_MS * (one.sequence_number < cut)}
            )
            for one in snapshots
        ]
        return was(aged, refs, kept, now_ms)

    def stored(one: Any, limits: Any) -> Any:
        found_ms = yield from stored_ms(one, limits)
        return found_ms - max(0, found_ms - one.timestamp_ms - DAY_MS)

    monkeypatch.setattr(expiry, "expired", older)
    monkeypatch.setattr(expiry, "_stored_ms", stored)


def test_old_snapshots_go_and_rows_keys_tags_and_later_versions_stay(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(catalog)
    tagged = table.history(20)[-1].version
    catalog.load_table("db.t").manage_snapshots().create_tag(tagged, "first").commit()
    age(monkeypatch)
    foreseen = table.maintain(dry_run=True, budget_bytes=1)
    assert foreseen.removed == {}  # nine are left without the tagged one, too few for a commit
    monkeypatch.setattr(expiry, "FEWEST", 3)
    foreseen = table.maintain(dry_run=True, budget_bytes=1)
    report = table.maintain(budget_bytes=1)
    assert foreseen.removed == report.removed == {"snapshots": 9}
    found = catalog.load_table("db.t")
    assert len(found.metadata.snapshots) == 5
    assert found.scan(snapshot_id=tagged).to_arrow().num_rows == 1
    assert found.scan().to_arrow().num_rows == 14
    assert (
        sw.open("db.t", catalog=catalog).append([{"id": 13}], key="event-13").outcome == "already_committed"
    )


def test_metadata_that_the_expiry_pushes_out_goes_with_it(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It would be taken for another line of the table later, and all that it names would stay for ever."""
    kept = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "3"}
    table = made(catalog, **kept)
    age(monkeypatch)
    assert table.maintain(budget_bytes=1).removed == {"snapshots": 10}
    assert len([*tmp_path.rglob("*.metadata.json")]) == 1 + 3


@pytest.mark.parametrize("properties", [{"gc.enabled": "false"}, {KEEP: str(60 * DAY_MS)}])
def test_a_table_that_keeps_them_longer_keeps_them(
    properties: dict[str, str], catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(catalog, **properties)
    age(monkeypatch)
    monkeypatch.setattr(expiry, "FEWEST", 3)
    assert table.maintain(budget_bytes=1).removed == {}
    assert len(catalog.load_table("db.t").metadata.snapshots) == 14


@pytest.mark.parametrize(
    ("said_hours", "ledger", "kept_hours"),
    [
        (None, "database", 15 * 24), (3, "database", 3), (0, "database", 1), (960, "database", 960), (3, "recorded", 3),
        (3, "lock table that is not recorded", 15 * 24), (3, "none", 15 * 24),
    ],
)  # fmt: skip
def test_how_long_snapshots_are_kept(
    said_hours: int | None,
    ledger: str,
    kept_hours: int,
    catalog: SqlCatalog,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A table that does not say it keeps them as long as one whose keys only they know: its users did not ask."""
    catalog.create_namespace("db")
    properties = {} if said_hours is None else {KEEP: str(said_hours * HOUR_MS)}
    catalog.create_table("db.t", pa.schema({"id": pa.int64()}), properties=properties)
    monkeypatch.setattr(expiry.ledger_place, "recorded", lambda head: ledger == "recorded" or None)
    monkeypatch.setattr(expiry.ledger_place, "differs", lambda connection, head: None)
    monkeypatch.setattr(expiry, "table_of", lambda table: table)
    connection: Any = SimpleNamespace(
        catalog=catalog,
        lock_table="locks" if ledger.startswith("lock table") else None,
        objects=False,
        helpers=SimpleNamespace(ledger=ledger != "none"),
    )
    kept = expiry.kept_by(connection, catalog.load_table("db.t"))  # type: ignore[arg-type]
    assert kept is not None
    assert kept.ms == kept_hours * HOUR_MS
