"""One commit through a catalog: what it asks for, what it believes, what it leaves alone; races without threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.table.update import SetSnapshotRefUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType

import safewrite as sw
from safewrite.errors import (
    CommitUnknownError,
    ConflictError,
    ForeignWriterError,
    Kind,
    ReplayMismatchError,
    RetriesExhaustedError,
    StorageError,
    WouldAlterError,
)
from safewrite.iceberg.catalog.commit_request import MARK, CommitRequest, bind
from safewrite.iceberg.catalog.outcomes import classify_error
from safewrite.iceberg.data.known_manifests import KnownManifests
from safewrite.iceberg.metadata import head_of
from safewrite.iceberg.table import IcebergTable
from safewrite.iceberg.write.append import check_unchanged
from safewrite.iceberg.write.file_changes import without_files
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Busy, Effect, Exists, Failed, Ok, Outcome, Put, Unknown, WallClock
from safewrite.protocol.iceberg.change import SwapTable
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.stores.world import Performer
from safewrite.testing.steps import Answers, At, Recorder, Stepwise

LIMITS = Limits(attempts=3, asks=2)


def rows(*ids: int) -> pa.Table:
    """A frame with these ids."""
    return pa.table({"id": pa.array(ids, pa.int64())})


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    made = SqlCatalog("local", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    yield made
    made.engine.dispose()


@pytest.fixture
def table(catalog: SqlCatalog) -> IcebergTable:
    made = sw.open("db.orders", catalog=catalog, create=True)
    assert isinstance(made, IcebergTable)
    made.append(rows(0), key="first")
    made.limits = made._format.planner.limits = LIMITS
    made.world.sleep = lambda _: None  # type: ignore[attr-defined]
    return made


def ids(catalog: SqlCatalog) -> list[int]:
    """What a plain reader finds."""
    found: list[int] = catalog.load_table("db.orders").scan().to_arrow().column("id").to_pylist()
    return sorted(found)


def rival(catalog: SqlCatalog, *numbers: int) -> Callable[[], None]:
    """Another writer's append, by plain PyIceberg."""
    return lambda: catalog.load_table("db.orders").append(rows(*numbers))


def expire(catalog: SqlCatalog) -> None:
    """Remove all snapshots but the newest, as PyIceberg does."""
    known = catalog.load_table("db.orders")
    old = [one.snapshot_id for one in known.snapshots() if one != known.current_snapshot()]
    known.maintenance.expire_snapshots().by_ids(old).commit()


def roll_back(catalog: SqlCatalog, snapshot_id: int) -> None:
    """Set the branch back to an older snapshot, as an operator does."""
    ref = {"ref-name": "main", "type": "branch", "snapshot-id": snapshot_id}
    back = SetSnapshotRefUpdate.model_validate(ref)
    catalog.commit_table(catalog.load_table("db.orders"), (), (back,))


class Late(Stepwise):
    """Keeps the first compare-and-set of a call back, and answers nothing."""

    def __init__(self, world: Performer) -> None:
        super().__init__(world)
        self.kept: list[Effect] = []

    def _step(self, step: str, effect: Effect) -> Outcome:
        if not isinstance(effect, SwapTable):
            return self.world.perform(effect)
        self.kept.append(effect)
        return Unknown("no answer in time")


class Changes(Stepwise):
    """Notes every change that is asked for."""

    def __init__(self, world: Performer) -> None:
        super().__init__(world)
        self.asked: list[CommitRequest] = []

    def _step(self, step: str, effect: Effect) -> Outcome:
        if isinstance(effect, SwapTable):
            assert isinstance(effect.change, CommitRequest)
            self.asked.append(effect.change)
        return self.world.perform(effect)


# --- what a commit is bound to -------------------------------------------------------------------------
def test_a_rival_costs_an_attempt_and_no_rows(table: IcebergTable, catalog: SqlCatalog) -> None:
    table.world = At(table.world, "swap.commit", "before", rival(catalog, 7))
    receipt = table.append(rows(1, 2), key="event")
    assert (receipt.outcome.value, receipt.attempts) == ("committed", 2)
    assert ids(catalog) == [0, 1, 2, 7]


def test_a_rival_costs_an_attempt_and_no_rows_where_no_sequence_number_tells(catalog: SqlCatalog) -> None:
    """Tables of version 1 have none: only what a commit requires keeps it from taking the rival's place."""
    table = sw.open("db.old", catalog=catalog, create=True, properties={"format-version": "1"})
    assert isinstance(table, IcebergTable)
    table.append(rows(0), key="first")
    table.world = At(
        table.world, "swap.commit", "before", lambda: catalog.load_table("db.old").append(rows(7))
    )
    assert table.append(rows(1), key="event").attempts == 2
    assert sorted(catalog.load_table("db.old").scan().to_arrow()["id"].to_pylist()) == [0, 1, 7]


def test_a_write_keeps_one_snapshot_id_through_all_attempts(table: IcebergTable, catalog: SqlCatalog) -> None:
    changes = Changes(At(table.world, "swap.commit", "before", rival(catalog, 7)))
    table.world = changes
    receipt = table.append(rows(1), key="event")
    assert [change.snapshot_ids for change in changes.asked] == [(receipt.version,)] * 2


def test_the_key_is_in_the_very_commit(table: IcebergTable, catalog: SqlCatalog) -> None:
    table.world = Answers(table.world, "ledger.commit", perform=False)
    first = table.append(rows(1), key="event")
    again = sw.open("db.orders", catalog=catalog).append(rows(1), key="event")
    assert (again.outcome.value, again.version) == ("already_committed", first.version)
    assert ids(catalog) == [0, 1]


def test_time_in_the_table_never_goes_back(table: IcebergTable, catalog: SqlCatalog) -> None:
    class Slow(Stepwise):
        def _step(self, step: str, effect: Effect) -> Outcome:
            return Ok(1_000) if isinstance(effect, WallClock) else self.world.perform(effect)

    before = catalog.load_table("db.orders").metadata.last_updated_ms
    table.world = Slow(table.world)
    table.append(rows(1), key="event")
    current = catalog.load_table("db.orders").current_snapshot()
    assert current is not None
    assert current.timestamp_ms >= before


def test_an_overwrite_is_planned_anew_on_a_rivals_snapshot(table: IcebergTable, catalog: SqlCatalog) -> None:
    table.world = At(table.world, "swap.commit", "before", rival(catalog, 7))
    table.overwrite(rows(9), key="event")
    assert ids(catalog) == [9]


@pytest.mark.parametrize("damage", ["removed", "truncated"])
def test_a_data_file_that_was_damaged_before_the_commit_is_noticed(
    table: IcebergTable, catalog: SqlCatalog, damage: str
) -> None:
    class Vacuum(Stepwise):
        def _step(self, step: str, effect: Effect) -> Outcome:
            done = self.world.perform(effect)
            if isinstance(effect, Put) and effect.path.endswith(".parquet"):
                path = Path(effect.path.removeprefix("file://"))
                path.unlink() if damage == "removed" else path.write_bytes(effect.body[:-9])
            return done

    table.world = Vacuum(table.world)
    with pytest.raises(StorageError) as told:
        table.append(rows(1), key="event")
    assert told.value.kind is Kind.DATA_FILE_DAMAGED
    assert ids(catalog) == [0]


def test_a_column_that_came_a_moment_ago_is_no_reason_to_refuse(
    table: IcebergTable, catalog: SqlCatalog
) -> None:
    with catalog.load_table("db.orders").update_schema() as update:
        update.add_column("more", LongType())
    table.append(rows(1).append_column("more", rows(5)["id"]), key="event")
    assert ids(catalog) == [0, 1]
    with pytest.raises(WouldAlterError):
        table.append(rows(2).append_column("surplus", rows(5)["id"]), key="misfit")


@pytest.mark.parametrize("change", ["schema", "partitioning", "sort order"])
def test_files_made_for_another_schema_or_layout_are_not_committed(  # H9
    table: IcebergTable, catalog: SqlCatalog, change: str
) -> None:
    planned = head_of(catalog.load_table("db.orders"))
    check_unchanged(planned, planned)
    known = catalog.load_table("db.orders")
    if change == "schema":
        with known.update_schema() as schema:
            schema.add_column("more", LongType())
    elif change == "partitioning":
        with known.update_spec() as spec:
            spec.add_identity("id")
    else:
        with known.update_sort_order() as order:
            order.asc("id", IdentityTransform())
    with pytest.raises(ConflictError) as told:
        check_unchanged(planned, head_of(catalog.load_table("db.orders")))
    assert told.value.kind is Kind.SCHEMA_CHANGED


def test_a_late_commit_is_refused_by_a_table_with_another_schema(
    table: IcebergTable, catalog: SqlCatalog
) -> None:
    inner = table.world
    late = Late(inner)
    table.world = late
    with pytest.raises(CommitUnknownError):
        table.append(rows(1), key="event")
    with catalog.load_table("db.orders").update_schema() as schema:
        schema.add_column("more", LongType())
    assert inner.perform(late.kept[0]) == Exists()
    assert ids(catalog) == [0]


def test_a_late_commit_is_refused_by_a_table_that_was_made_again_under_its_name(catalog: SqlCatalog) -> None:
    """The new one is as empty as the old one was, so only its UUID tells."""
    catalog.create_namespace("db")
    catalog.create_table("db.orders", rows().schema)
    table = sw.open("db.orders", catalog=catalog)
    assert isinstance(table, IcebergTable)
    table.limits = table._format.planner.limits = LIMITS
    inner = table.world
    late = Late(inner)
    table.world = late
    with pytest.raises(CommitUnknownError):
        table.append(rows(1), key="event")
    catalog.drop_table("db.orders")
    catalog.create_table("db.orders", rows().schema)
    assert inner.perform(late.kept[0]) != Ok()
    assert ids(catalog) == []


def test_a_removal_is_signed_by_the_snapshot_that_makes_it(table: IcebergTable, catalog: SqlCatalog) -> None:
    table.append(rows(1), key="event")
    table.delete("id = 1", key="removal")
    known = catalog.load_table("db.orders")
    current = known.current_snapshot()
    assert current is not None
    removed = [
        entry.snapshot_id
        for manifest in current.manifests(known.io)
        for entry in manifest.fetch_manifest_entry(known.io, discard_deleted=False)
        if entry.status == ManifestEntryStatus.DELETED
    ]
    assert removed == [current.snapshot_id]


def test_delete_files_of_others_outlive_a_rewrite(table: IcebergTable, catalog: SqlCatalog) -> None:
    """A manifest of delete files that were dropped with it would bring deleted rows back."""
    known = catalog.load_table("db.orders")
    deletes = ManifestFile.from_args(manifest_path="deletes.avro", content=ManifestContent.DELETES)
    gone = DataFile.from_args(file_path="gone.parquet")
    head = head_of(known)
    steps = without_files(
        head,
        [deletes],
        [gone],
        snapshot_id=1,
        schema=known.schema(),
        known=KnownManifests(),
        limits=LIMITS,
        new_location=str,
    )
    with pytest.raises(StopIteration) as ended:
        next(steps)
    assert ended.value.value == ([deletes], (), [])


def test_a_change_without_a_snapshot_is_known_by_its_own_mark(
    table: IcebergTable, catalog: SqlCatalog
) -> None:
    def marked(mark: str) -> TableVersion:
        with catalog.load_table("db.orders").transaction() as transaction:
            transaction.set_properties({MARK: mark})
        return head_of(catalog.load_table("db.orders"))

    base = marked("before")
    change = bind(base, (), (), mark="ours")
    assert (change.landed_in(base), change.may_land_on(base)) == (False, True)
    theirs = marked("theirs")
    assert (change.landed_in(theirs), change.may_land_on(theirs)) == (False, False)
    assert change.landed_in(marked("ours"))


# --- what is believed ----------------------------------------------------------------------------------
def test_a_lost_answer_is_settled_by_a_look(table: IcebergTable, catalog: SqlCatalog) -> None:
    recorder = Recorder(Answers(table.world, "swap.commit"))
    table.world = recorder
    receipt = table.append(rows(1), key="event")
    assert (receipt.outcome.value, receipt.attempts) == ("committed", 1)
    assert [step for step in recorder.steps if step.startswith("swap.")] == ["swap.commit", "swap.look"]
    assert ids(catalog) == [0, 1]


def test_a_conflict_of_ones_own_commit_is_settled_by_a_look(table: IcebergTable, catalog: SqlCatalog) -> None:
    table.world = Answers(table.world, "swap.commit", Exists())
    assert table.append(rows(1), key="event").outcome.value == "committed"
    assert ids(catalog) == [0, 1]


def test_a_conflict_after_which_nobody_could_look_is_in_doubt(
    table: IcebergTable, catalog: SqlCatalog
) -> None:
    table.world = Answers(Answers(table.world, "swap.commit", Exists()), "swap.look", Unknown(""))
    with pytest.raises(CommitUnknownError):
        table.append(rows(1), key="event")
    assert ids(catalog) == [0, 1]


def test_an_acceptance_that_the_table_does_not_show_is_no_commit(table: IcebergTable) -> None:
    table.world = Answers(table.world, "swap.commit", Ok(), perform=False)
    with pytest.raises(CommitUnknownError):
        table.append(rows(1), key="event")


def test_an_accepted_commit_that_was_set_over_is_an_alarm(table: IcebergTable, catalog: SqlCatalog) -> None:
    lying = Answers(table.world, "swap.commit", Ok(), perform=False)
    table.world = At(lying, "swap.commit", "after", rival(catalog, 7))
    with pytest.raises(ForeignWriterError):
        table.append(rows(1), key="event")


def test_a_commit_that_was_expired_before_anybody_looked_is_a_commit(
    table: IcebergTable, catalog: SqlCatalog
) -> None:
    def meddle() -> None:
        rival(catalog, 7)()
        expire(catalog)

    table.world = At(Answers(table.world, "swap.commit"), "swap.commit", "after", meddle)
    assert table.append(rows(1), key="event").outcome.value == "committed"
    assert ids(catalog) == [0, 1, 7]


def test_another_attempt_that_was_expired_between_two_looks_is_found(
    table: IcebergTable, catalog: SqlCatalog
) -> None:
    other = sw.open("db.orders", catalog=catalog)

    def meddle() -> None:
        other.append(rows(1), key="event")
        rival(catalog, 7)()
        expire(catalog)

    table.world = At(table.world, "swap.commit", "before", meddle)
    assert table.append(rows(1), key="event").outcome.value == "already_committed"
    assert ids(catalog) == [0, 1, 7]


def test_a_commit_that_was_rolled_back_before_its_ack_is_not_acked(
    table: IcebergTable, catalog: SqlCatalog
) -> None:
    base = table.version
    table.world = At(table.world, "swap.commit", "after", lambda: roll_back(catalog, base))
    with pytest.raises(ForeignWriterError, match="rolled the table back"):
        table.append(rows(1), key="event")


def test_giving_up_is_an_error(table: IcebergTable, catalog: SqlCatalog) -> None:
    class Busybody(Stepwise):
        def _step(self, step: str, effect: Effect) -> Outcome:
            if isinstance(effect, SwapTable):
                rival(catalog, 7)()
            return self.world.perform(effect)

    table.world = Busybody(table.world)
    with pytest.raises(RetriesExhaustedError):
        table.append(rows(1), key="event")
    assert ids(catalog) == [0, 7, 7, 7]


def test_a_refusal_for_good_is_an_error_at_once(table: IcebergTable, catalog: SqlCatalog) -> None:
    recorder = Recorder(Answers(table.world, "swap.commit", Failed("forbidden"), perform=False))
    table.world = recorder
    with pytest.raises(StorageError, match="forbidden"):
        table.append(rows(1), key="event")
    assert [step for step in recorder.steps if step.startswith("swap.")] == ["swap.commit", "swap.look"]


# --- what is left alone ----------------------------------------------------------------------------------
def test_a_commit_in_doubt_may_land_later_and_is_whole(table: IcebergTable, catalog: SqlCatalog) -> None:
    inner = table.world
    late = Late(inner)
    table.world = late
    with pytest.raises(CommitUnknownError) as told:
        table.append(rows(1, 2), key="event")
    assert told.value.key == "event"
    assert ids(catalog) == [0]
    assert inner.perform(late.kept[0]) == Ok()
    assert ids(catalog) == [0, 1, 2]
    again = sw.open("db.orders", catalog=catalog).append(rows(1, 2), key="event")
    assert again.outcome.value == "already_committed"
    with pytest.raises(ReplayMismatchError):
        sw.open("db.orders", catalog=catalog).append(rows(3), key="event")


def test_a_commit_in_doubt_cannot_land_once_its_retry_has(table: IcebergTable, catalog: SqlCatalog) -> None:
    inner = table.world
    late = Late(inner)
    table.world = late
    with pytest.raises(CommitUnknownError):
        table.append(rows(1), key="event")
    sw.open("db.orders", catalog=catalog).append(rows(1), key="event")
    assert inner.perform(late.kept[0]) == Exists()
    assert ids(catalog) == [0, 1]


def test_a_late_commit_is_refused_even_on_a_table_that_was_rolled_back_to_its_base(
    table: IcebergTable, catalog: SqlCatalog
) -> None:
    inner, base = table.world, table.version
    late = Late(inner)
    table.world = At(late, "swap.commit", "after", rival(catalog, 7))
    with pytest.raises(CommitUnknownError):
        table.append(rows(1), key="event")
    roll_back(catalog, base)
    assert isinstance(inner.perform(late.kept[0]), Failed)
    assert ids(catalog) == [0]


def test_the_turn_in_the_queue_ends_with_a_commit_whose_answer_was_lost(
    table: IcebergTable, catalog: SqlCatalog
) -> None:
    table._writer.queue_first = 1
    recorder = Recorder(Answers(table.world, "swap.commit"))
    table.world = recorder
    assert table.append(rows(1), key="event").outcome.value == "committed"
    assert recorder.steps[-1].startswith("ledger.")
    assert [step for step in recorder.steps if step.startswith("lease.")] == ["lease.take", "lease.pass"]


# --- what an exception means -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    "code", ["ConcurrentModificationException", "ThrottlingException", "AccessDeniedException"]
)
def test_a_refusal_of_a_request_that_was_sent_twice_leaves_the_first_in_doubt(code: str) -> None:
    def refused(repeats: int) -> Exception:
        details: Any = {"Error": {"Code": code}, "ResponseMetadata": {"RetryAttempts": repeats}}
        wrapped = (
            CommitFailedException("conflict") if code.startswith("Concurrent") else RuntimeError("refused")
        )
        wrapped.__cause__ = ClientError(details, "UpdateTable")
        return wrapped

    assert isinstance(classify_error(refused(0)), Exists | Busy | Failed)
    assert isinstance(classify_error(refused(1)), Unknown)
