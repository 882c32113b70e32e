"""What is remembered of keys and of streams' batches after every old snapshot was expired (E2, E4)."""

from __future__ import annotations

import logging

import pytest

import safewrite as sw
from safewrite.iceberg.retention import KEEP
from tests.iceberg.places import Place
from tests.integration.places import once, rows
from tests.servers import CatalogLab


def expire_all(place: Place) -> None:
    """Expire every snapshot but a new last one."""
    place.open().append(rows(99), key="last")
    table = place.plain()
    last = table.current_snapshot()
    assert last is not None
    old = [s.snapshot_id for s in table.snapshots() if s.snapshot_id != last.snapshot_id]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    assert [s.snapshot_id for s in place.plain().snapshots()] == [last.snapshot_id]


@pytest.mark.sweep("rest", "glue")
def test_a_streams_batch_is_recognised_after_every_old_snapshot_was_expired(place: Place) -> None:
    """E2: the table's properties keep the last batch of each app."""
    place.create(1)
    first = place.open().append(rows(2), txn=("app", 7))
    expire_all(place)
    again = place.open().append(rows(2), txn=("app", 7))
    assert (again.outcome, again.version) == ("already_committed", first.version)
    with pytest.raises(sw.ReplayMismatchError):
        place.open().append(rows(3), txn=("app", 7))
    assert place.open().append(rows(4), txn=("app", 8)).outcome == "committed"
    assert place.ids() == once(1, 2, 4, 99)


@pytest.mark.sweep("rest", "glue")
def test_a_batch_that_was_never_written_is_not_called_expired(place: Place) -> None:
    place.create(1)
    place.open().append(rows(2), txn=("app", 5))
    with pytest.raises(
        sw.ReplayMismatchError, match=r"last batch is 5, and no snapshot that is kept shows these rows"
    ):
        place.open().append(rows(3), txn=("app", 3))


@pytest.mark.long
def test_a_stream_that_lost_its_checkpoint_is_told_and_loses_no_rows_in_silence(place: Place) -> None:
    """E2: its batches begin at 0 again, with other rows, under the same app id."""
    place.create(1)
    for version in range(3):
        place.open().append(rows(10 + version), txn=("app", version))
    expire_all(place)
    for version in range(2):
        with pytest.raises(sw.ReplayMismatchError, match="new app id"):
            place.open().append(rows(20 + version), txn=("app", version))
    with pytest.raises(sw.ReplayMismatchError):
        place.open().append(rows(22), txn=("app", 2))
    assert place.open().append(rows(20), txn=("app-2", 0)).outcome == "committed"
    assert place.ids() == once(1, 10, 11, 12, 20, 99)


@pytest.mark.sweep("rest", "glue")
@pytest.mark.parametrize("lab", ["sql", "glue", "rest"], indirect=True)
def test_a_key_in_the_ledger_survives_the_expiry_of_its_snapshot(
    lab: CatalogLab, place: Place, lock_table: str
) -> None:
    """The ledger of a SQL catalog is in its own database; lock_table= puts that of the others in DynamoDB."""
    place = place if lab.kind == "sql" else place.locked(lock_table)
    place.create(1)
    first = place.open().append(rows(2), key="event")
    expire_all(place)
    found = place.open().resolve("event")
    assert found is not None
    assert found.version == first.version
    again = place.open().append(rows(2), key="event")
    assert (again.outcome, again.version) == ("already_committed", first.version)
    with pytest.raises(sw.ReplayMismatchError):
        place.open().append(rows(3), key="event")
    assert place.ids() == once(1, 2, 99)


@pytest.mark.parametrize("lab", ["rest"], indirect=True)
def test_without_a_ledger_a_table_that_forgets_too_soon_is_refused(
    place: Place, lock_table: str, caplog: pytest.LogCaptureFixture
) -> None:
    """E4: shorter than the replay horizon, or unknown."""
    assert int(place.create(1).properties[KEEP]) > 14 * 24 * 3600 * 1000
    with place.plain().transaction() as transaction:
        transaction.set_properties({KEEP: str(5 * 24 * 3600 * 1000)})
    with pytest.raises(sw.UnsafeConfigError, match="lock_table=") as caught:
        place.open()
    assert caught.value.kind == "retention_too_short"
    assert place.locked(lock_table).open().append(rows(2), key="event").outcome == "committed"
    with place.plain().transaction() as transaction:
        transaction.remove_properties(KEEP)
    with pytest.raises(sw.UnsafeConfigError):
        place.open(strict=True)
    with caplog.at_level(logging.WARNING, "safewrite"):
        place.open()
    assert KEEP in caplog.text
    assert place.ids() == once(1, 2)
