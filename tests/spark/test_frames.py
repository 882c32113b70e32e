"""Spark DataFrames in ``append`` and ``overwrite``, of both formats: once, by name, never altered."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

import safewrite as sw
from bench.servers.catalogs import CatalogKind
from bench.servers.servers import Ministack
from safewrite.frames.spark.batch import Observed
from safewrite.iceberg.table import IcebergTable
from safewrite.iceberg.write.staging import Staging, UploadedFile
from safewrite.testing.steps import Answers, At
from tests.integration.places import once, rows
from tests.servers import object_at
from tests.spark.ends import End, delta, iceberg
from tests.spark.hooked import HookedTable
from tests.spark.lake import Lake


@pytest.fixture(params=["delta", "rest"])
def end(
    request: pytest.FixtureRequest,
    hooked: Callable[[str], HookedTable],
    lakes: Callable[[CatalogKind], Lake],
) -> End:
    """A new table of each format."""
    return delta(hooked("dynamodb")) if request.param == "delta" else iceberg(lakes("rest"))


@pytest.mark.sweep("rest")
def test_a_key_is_written_once_and_known_by_its_rows(end: End) -> None:
    with end.spark.careless():
        first = end.open().append(end.frame(1, 2, 3), key="k")
        again = end.open().append(end.frame(3, 2, 1).coalesce(1), key="k")
        with pytest.raises(sw.ReplayMismatchError, match="other rows"):
            end.open().append(end.frame(1, 2), key="k")
    assert (first.outcome, first.rows, first.attempts) == (sw.Outcome.COMMITTED, 3, 1)
    assert first.files >= 1
    assert again.outcome is sw.Outcome.ALREADY_COMMITTED
    assert (again.version, again.fingerprint) == (first.version, first.fingerprint)
    resolved = end.open().resolve("k")
    assert resolved is not None
    assert (resolved.version, resolved.fingerprint) == (first.version, first.fingerprint)
    assert end.ids() == once(1, 2, 3)


@pytest.mark.long
def test_a_key_that_another_engine_committed_cannot_be_compared_and_is_no_repeat(end: End) -> None:
    with end.spark.careless():
        end.open().append(end.frame(1), key="by spark")
        end.open().append(rows(2), key="by arrow")
        with pytest.raises(sw.ReplayMismatchError, match="by another engine"):
            end.open().append(rows(1), key="by spark")
        with pytest.raises(sw.ReplayMismatchError, match="by another engine"):
            end.open().append(end.frame(2), key="by arrow")
    assert end.ids() == once(1, 2)


@pytest.mark.parametrize(
    ("columns", "error", "said"),
    [
        (["id"], sw.WouldAlterError, "'value' of the table is missing"),
        (["id", "value", "1 AS more"], sw.WouldAlterError, "'more' is not in the table and would be dropped"),
        (["id AS ID", "value"], sw.WouldAlterError, "the table has 'id'"),
        (["id", "value", "value AS VALUE"], sw.InvalidInputError, "differs only in case"),
        (["CAST(id AS DOUBLE) AS id", "value"], sw.WouldAlterError, "does not hold every value"),
        (["CAST(id AS DECIMAL(19, 0)) AS id", "value"], sw.WouldAlterError, "does not hold every value"),
        (["value AS id", "CAST(id AS STRING) AS value"], sw.WouldAlterError, "never turned from one into"),
        (["id", "array(value) AS value"], sw.WouldAlterError, "convert the column yourself"),
        (["id", "INTERVAL '1' DAY AS value"], sw.WouldAlterError, "value"),
    ],
)
@pytest.mark.long
def test_what_would_lose_or_change_a_value_is_refused_before_anything_is_written(
    end: End, columns: list[str], error: type[sw.SafewriteError], said: str
) -> None:
    before = end.versions()
    with end.spark.careless(), pytest.raises(error, match=said):
        end.open().append(end.frame(1).selectExpr(*columns), key="k")
    assert end.versions() == before
    assert end.open().resolve("k") is None


@pytest.mark.long
def test_columns_go_by_name_and_narrow_types_are_widened(end: End) -> None:
    with end.spark.careless():
        receipt = end.open().append(
            end.frame(1, 2).selectExpr("value", "CAST(id AS SMALLINT) AS id"), key="k"
        )
        again = end.open().append(end.frame(1, 2), key="k")
        found = end.spark.session.sql(f"SELECT value FROM {end.source} WHERE id = 2").collect()
    assert again.version == receipt.version
    assert [row.value for row in found] == ["v2"]


@pytest.mark.long
def test_new_columns_come_with_schema_mode_merge_and_old_rows_are_still_a_repeat(end: End) -> None:
    with end.spark.careless():
        first = end.open().append(end.frame(1), key="k")
        end.open().append(end.frame(2).selectExpr("*", "id * 2 AS twice"), schema_mode="merge")
        again = end.open().append(end.frame(1), key="k")
        found = end.spark.session.sql(f"SELECT twice FROM {end.source} ORDER BY id").collect()
    assert again.outcome is sw.Outcome.ALREADY_COMMITTED
    assert again.version == first.version
    assert [row.twice for row in found] == [None, 4]


@pytest.mark.long
def test_a_column_that_spark_draws_in_each_attempt_is_left_out(end: End) -> None:
    drawn = lambda *ids: end.frame(*ids).selectExpr("id", "uuid() AS value")  # noqa: E731
    calls: list[Callable[..., sw.Receipt]] = [
        lambda data, **more: end.open().append(data, key="k", **more),
        lambda data, **more: end.open().append(data, txn=("app", 1), **more),
        lambda data, **more: end.open().overwrite(data, key="o", where="id < 9", **more),
    ]
    with end.spark.careless():
        for write in calls:
            first = write(drawn(1, 2), volatile=["value"])
            again = write(drawn(2, 1), volatile=["value"])
            assert (again.outcome, again.version) == ("already_committed", first.version)
            with pytest.raises(
                sw.ReplayMismatchError, match=r"with volatile=\['value'\], and this call has no"
            ):
                write(drawn(1, 2))
            with pytest.raises(sw.ReplayMismatchError, match="with other rows"):
                write(drawn(1, 3), volatile=["value"])
            with pytest.raises(sw.InvalidInputError, match="'values', which is no column"):
                write(drawn(1, 2), volatile=["values"])
        with pytest.raises(sw.InvalidInputError, match="where= is on 'id'"):
            end.open().overwrite(drawn(1), where="id < 9", volatile=["id"])
    assert end.ids() == once(1, 2)


@pytest.mark.long
def test_overwrite_replaces_the_rows_for_which_where_is_true_once(end: End) -> None:
    with end.spark.careless():
        end.open().append(end.frame(1, 2, 3, 4))
        first = end.open().overwrite(end.frame(1, 9), where="id < 3 OR id > 8", key="k")
        end.open().append(end.frame(2))
        again = end.open().overwrite(end.frame(1, 9), where="id < 3 OR id > 8", key="k")
        with pytest.raises(sw.InvalidInputError, match="1 of 2 rows do not satisfy"):
            end.open().overwrite(end.frame(1, 5), where="id < 3")
        with pytest.raises(sw.ReplayMismatchError):
            end.open().overwrite(end.frame(1, 9), where="id < 3 OR id > 7", key="k")
    assert again.version == first.version
    assert end.ids() == once(1, 2, 3, 4, 9)
    with end.spark.careless():
        end.open().overwrite(end.frame(7))
    assert end.ids() == once(7)


@pytest.mark.long
def test_rows_computed_once_are_the_rows_in_the_table(end: End) -> None:
    """E5: a plan that would give other rows each time is run once, so the fingerprint is that of the table."""
    from safewrite.frames.spark.batch import computed

    salted = end.frame(*range(20)).selectExpr("id", "CAST(rand() AS STRING) AS value")
    with end.spark.careless():
        receipt = end.open().append(salted)
        with computed(end.spark.session.sql(f"SELECT id, value FROM {end.source}")) as stored:
            assert str(stored.fingerprint) == receipt.fingerprint


def never(*_: object, **__: object) -> Any:
    """Takes the place of what must not be called."""
    pytest.fail("this was not to be called")


@pytest.mark.long
def test_an_iceberg_batch_is_written_and_counted_in_one_pass_and_a_repeat_writes_no_files(
    lakes: Callable[[CatalogKind], Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    end = iceberg(lakes("rest"))
    with end.spark.careless():
        with monkeypatch.context() as patched:
            patched.setattr("safewrite.frames.spark.tallied.computed", never)
            first = end.open().append(end.frame(1, 2), txn=("app", 0))
            end.open().append(end.frame(3), key="k")
            end.open().overwrite(end.frame(1, 2, 3))
        with monkeypatch.context() as patched:
            patched.setattr("safewrite.frames.spark.tallied.SparkEngine.map", never)
            again = end.open().append(end.frame(2, 1), txn=("app", 0))
            with pytest.raises(sw.ReplayMismatchError):
                end.open().append(end.frame(4), key="k")
    assert again.outcome is sw.Outcome.ALREADY_COMMITTED
    assert (again.version, again.fingerprint) == (first.version, first.fingerprint)
    assert end.ids() == once(1, 2, 3)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda found: None, id="lost"),
        pytest.param(lambda found: {**found, "count": found["count"] + 1, "low": 7}, id="counted twice"),
    ],
)
@pytest.mark.long
def test_an_iceberg_batch_whose_count_on_the_way_cannot_be_trusted_is_computed_first(
    lakes: Callable[[CatalogKind], Lake],
    monkeypatch: pytest.MonkeyPatch,
    answer: Callable[[Any], dict[str, int] | None],
) -> None:
    end = iceberg(lakes("rest"), "bucket(2, id)")
    told = Observed._answer
    with end.spark.careless():
        with monkeypatch.context() as patched:
            patched.setattr(Observed, "_answer", lambda self: answer(told(self)))
            first = end.open().append(end.frame(1, 2), key="k")
        again = end.open().append(end.frame(2, 1), key="k")
    assert (first.outcome, first.rows) == (sw.Outcome.COMMITTED, 2)
    assert (again.version, again.fingerprint) == (first.version, first.fingerprint)
    assert end.ids() == once(1, 2)


@pytest.mark.long
def test_a_frame_that_fails_while_it_is_written_is_not_committed_and_not_waited_for(
    lakes: Callable[[CatalogKind], Lake],
) -> None:
    """Spark may never tell what it observed of an action that failed."""
    end = iceberg(lakes("rest"), "bucket(2, id)")
    failing = end.frame(1, 2).selectExpr("id", "IF(id > 1, raise_error('broken row'), value) AS value")
    before = end.versions()
    with end.spark.careless(), pytest.raises(sw.StorageError, match="could not write the data files"):
        end.open().append(failing, key="k")
    assert end.versions() == before
    assert end.open().resolve("k") is None


@pytest.mark.long
def test_an_empty_frame_is_a_commit_with_a_key(end: End) -> None:
    with end.spark.careless():
        first = end.open().append(end.frame(1).where("id > 1"), key="k")
        again = end.open().append(end.frame(1).where("id > 1"), key="k")
    assert (first.rows, again.version) == (0, first.version)
    assert end.ids() == once()


def meanwhile(end: End, table: sw.Table | IcebergTable, act: Callable[[], object]) -> At:
    """Do something when a write is about to commit."""
    if end.hooked:
        hook = end.hooked.hook()
        hook.world = world = At(hook.world, "commit.put_entry", "before", act)
    else:
        table.world = world = At(table.world, "swap.commit", "before", act)
    return world


@pytest.mark.sweep("bucket(2, id)-shorter", "truncate(2, id)-shorter")
@pytest.mark.parametrize(
    ("partition_by", "damage"),
    [("truncate(2, id)", "gone"), ("truncate(2, id)", "shorter"), ("bucket(2, id)", "shorter")],
)
def test_a_file_that_is_not_as_spark_wrote_it_is_never_committed(
    lakes: Callable[[CatalogKind], Lake],
    ministack: Ministack,
    monkeypatch: pytest.MonkeyPatch,
    partition_by: str,
    damage: str,
) -> None:
    end = iceberg(lakes("rest"), partition_by)

    def damaged(staging: Staging, files: Iterable[UploadedFile]) -> None:
        uploaded = [*files]
        place = object_at(uploaded[0].mark.path)
        client = ministack.boto3_client("s3")
        if damage == "gone":
            client.delete_object(**place)
        else:
            client.put_object(**place, Body=b"PAR1")
        take(staging, uploaded)

    take = Staging.take
    monkeypatch.setattr(Staging, "take", damaged)
    with end.spark.careless(), pytest.raises(sw.StorageError, match="is not as it was uploaded") as caught:
        end.open().append(end.frame(1, 2), key="k")
    assert caught.value.kind is sw.Kind.DATA_FILE_DAMAGED
    assert end.versions() == 0
    monkeypatch.undo()
    with end.spark.careless():
        assert end.open().append(end.frame(1, 2), key="k").outcome is sw.Outcome.COMMITTED
    assert end.ids() == once(1, 2)


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.long
def test_a_batch_that_another_driver_commits_meanwhile_is_not_committed_again(end: End, same: bool) -> None:
    """E3, E7: whoever comes second finds the first, and knows by the rows whether it was a repeat."""
    table, rows_of_rival = end.open(), (1, 2) if same else (7,)
    receipts: list[sw.Receipt] = []
    rival = end.other_driver(*rows_of_rival)
    world = meanwhile(end, table, lambda: receipts.append(rival(("app", 0))))
    with end.spark.careless():
        if same:
            late = table.append(end.frame(1, 2), txn=("app", 0))
            assert (late.outcome, late.version) == (sw.Outcome.ALREADY_COMMITTED, receipts[0].version)
        else:
            with pytest.raises(sw.ReplayMismatchError):
                table.append(end.frame(1, 2), txn=("app", 0))
    assert world.reached
    assert receipts[0].outcome is sw.Outcome.COMMITTED
    assert end.ids() == once(*rows_of_rival)


@pytest.mark.long
def test_a_commit_whose_answer_is_lost_is_once(end: End) -> None:
    table = end.open()
    if end.hooked:
        hook = end.hooked.hook()
        hook.world = world = Answers(hook.world, "commit.put_commit", times=1)
    else:
        table.world = world = Answers(table.world, "swap.commit", times=1)
    with end.spark.careless():
        receipt = table.append(end.frame(1), key="k")
    assert world.given == 1
    assert receipt.outcome is sw.Outcome.COMMITTED
    assert end.ids() == once(1)


@pytest.mark.long
def test_a_commit_that_stays_in_doubt_says_so_with_its_key_and_the_same_call_decides(
    hooked: Callable[[str], HookedTable],
) -> None:
    end = delta(hooked("object-store"))
    assert end.hooked is not None
    end.hooked.impatient()
    hook = end.hooked.hook()
    healthy = hook.world
    lost = Answers(healthy, "commit.put_commit")
    hook.world = Answers(lost, "commit.read_back", perform=False)
    with end.spark.careless():
        with pytest.raises(sw.CommitUnknownError) as raised:
            end.open().append(end.frame(1), key="k")
        hook.world = healthy
        again = end.open().append(end.frame(1), key="k")
    assert raised.value.key == "k"
    assert again.outcome is sw.Outcome.ALREADY_COMMITTED
    assert end.ids() == once(1)


@pytest.mark.long
def test_a_setting_by_which_delta_would_skip_a_write_is_refused(
    hooked: Callable[[str], HookedTable],
) -> None:
    end = delta(hooked("dynamodb"))
    setting = end.spark.setting("spark.databricks.delta.write.txnAppId", "app")
    with setting, end.spark.careless(), pytest.raises(sw.UnsafeConfigError):
        end.open().append(end.frame(1))
    assert end.ids() == once()


@pytest.mark.long
def test_deltas_checksum_files_claim_no_transactions(hooked: Callable[[str], HookedTable]) -> None:
    """Ours are put into the commit behind Delta's back, so its list of them would be wrong."""
    end = delta(hooked("dynamodb"))
    assert end.hooked is not None
    with end.spark.careless():
        end.open().append(end.frame(1), txn=("app", 0))
    crcs = [body for path, body in end.hooked.place.objects().items() if path.endswith(".crc")]
    assert crcs
    assert not any(b'"setTransactions"' in body for body in crcs)


@pytest.mark.long
def test_a_table_is_made_by_the_first_frame_and_records_its_arbiter(
    hooked: Callable[[str], HookedTable], lakes: Callable[[CatalogKind], Lake]
) -> None:
    place, lake = hooked("object-store").place, lakes("rest")
    name = lake.new()
    spark = lake.spark
    frame = spark.session.range(3)
    with spark.careless():
        made = place.open(create=True).append(frame, key="k")
        sw.open(name, catalog=lake.load(), create=True).append(frame, key="k")
        assert spark.session.table(lake.sql(name)).count() == 3
    assert made.rows == 3
    assert place.open().properties["safewrite.arbiter"] == "object-store"
    assert place.open().schema.field("id").nullable


@pytest.mark.long
def test_a_session_that_does_not_know_the_table_is_refused(lakes: Callable[[CatalogKind], Lake]) -> None:
    end = iceberg(lakes("rest"), partition_by="bucket(2, id)")
    with end.spark.careless(), pytest.raises(sw.InvalidInputError, match="does not know"):
        end.open().append(end.frame(1), spark_catalog="nowhere")
    assert end.ids() == once()
