"""Plain Delta code of Spark, which names nothing of safewrite, commits by safewrite's protocol."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from py4j.protocol import Py4JJavaError

from safewrite.testing.steps import At
from tests.integration.places import once, rows, visible
from tests.spark.hooked import HookedTable

Hooked = Callable[[str], HookedTable]


@pytest.mark.long
def test_every_kind_of_statement_leaves_the_rows_that_it_should(hooked: Hooked) -> None:
    table = hooked("dynamodb")
    table.write(1, 2, 3)
    table.write(4, 5)
    table.place.open().append(rows(6), key="pandas")
    table.run("UPDATE {t} SET id = id + 10 WHERE id = 1")
    table.run("DELETE FROM {t} WHERE id = 2")
    table.run(
        "MERGE INTO {t} t USING (SELECT EXPLODE(ARRAY(3L, 7L)) AS id) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET value = 'merged' "
        "WHEN NOT MATCHED THEN INSERT (id, value) VALUES (s.id, 'new')"
    )
    table.place.open().append(rows(8), key="pandas-2")
    table.run("OPTIMIZE {t}")
    assert visible(table.readers()) == once(3, 4, 5, 6, 7, 8, 11)
    table.write(20, 21, mode="overwrite", replaceWhere="id = 8 OR id >= 20")
    assert visible(table.readers()) == once(3, 4, 5, 6, 7, 11, 20, 21)
    table.write(30, mode="overwrite")
    with table.spark.setting("spark.databricks.delta.retentionDurationCheck.enabled", "false"):
        table.run("VACUUM {t} RETAIN 0 HOURS")
    assert visible(table.readers()) == once(30)
    assert table.place.open().append(rows(8), key="pandas-2").outcome == "already_committed"


@pytest.mark.long
def test_each_commit_has_a_complete_entry_under_the_path_that_spark_spells(hooked: Hooked) -> None:
    table = hooked("dynamodb")
    table.write(1)
    table.place.open().append(rows(2), key="pandas")
    table.write(3)
    entries = table.place.entries()
    assert [item["fileName"]["S"] for item in entries] == [f"{v:020d}.json" for v in range(3)]
    assert {item["complete"]["S"] for item in entries} == {"true"}
    table_id = next(a["metaData"]["id"] for a in table.place.commits()[0] if "metaData" in a)
    assert entries[2]["tableId"]["S"] == table_id


def test_a_table_is_made_and_filled_by_sql(hooked: Hooked) -> None:
    table = hooked("dynamodb")
    table.run("CREATE TABLE {t} (id BIGINT, value STRING) USING delta PARTITIONED BY (value)")
    table.run("INSERT INTO {t} VALUES (1, 'a'), (2, 'b')")
    table.run("ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    table.place.open().append(rows(3), key="pandas")
    assert visible(table.readers()) == once(1, 2, 3)


@pytest.mark.long
def test_checkpoints_and_checksums_are_written_as_delta_writes_them(hooked: Hooked) -> None:
    table = hooked("object-store")
    table.run(
        "CREATE TABLE {t} (id BIGINT, value STRING) USING delta "
        "TBLPROPERTIES ('delta.checkpointInterval' = '2')"
    )
    table.write(1)
    table.write(2)
    names = set(table.place.objects("_delta_log/"))
    assert {f"_delta_log/{2:020d}.checkpoint.parquet", "_delta_log/_last_checkpoint"} <= names
    assert {f"_delta_log/{v:020d}.crc" for v in range(3)} <= names
    assert visible(table.readers()) == once(1, 2)


@pytest.mark.long
def test_a_version_that_a_rival_takes_is_examined_and_the_next_one_taken(hooked: Hooked) -> None:
    """The rival comes between Spark's reading and its commit: an append is no conflict."""
    table = hooked("dynamodb")
    table.place.open(create=True).append(rows(1), key="one")
    hook = table.hook()
    hook.world = trap = At(
        hook.world, "commit.entries", "before", lambda: table.place.open().append(rows(2), key="rival")
    )
    table.write(3)
    assert trap.reached
    assert visible(table.readers()) == once(1, 2, 3)


def test_a_row_that_a_rival_deleted_is_not_updated_back_into_the_table(hooked: Hooked) -> None:
    """Delta finds the conflict itself, for it is told that its version is taken; nothing is committed."""
    table = hooked("dynamodb")
    table.place.open(create=True).append(rows(1, 2), key="one")
    hook = table.hook()
    hook.world = At(
        hook.world, "commit.entries", "before", lambda: table.place.open().delete("id = 1", key="rival")
    )
    with pytest.raises(Py4JJavaError, match="DELTA_CONCURRENT"):
        table.run("UPDATE {t} SET value = 'back' WHERE id = 1")
    assert visible(table.readers()) == once(2)


@pytest.mark.long
def test_a_table_recorded_for_another_arbiter_is_refused(hooked: Hooked) -> None:
    """A12: a session by conditional PUT alone must not write a table that a lock table guards."""
    table = hooked("dynamodb")
    table.place.open(create=True).append(rows(1), key="one")
    other = hooked("object-store")
    with pytest.raises(Py4JJavaError, match=r"arbiter is 'dynamodb'.*Nothing was written"):
        table.spark.write(table.uri, rows(2))
    assert visible([table.place.ids(), table.place.replayed_ids()]) == once(1)
    other.write(5)
    assert other.ids() == once(5)


@pytest.mark.long
def test_a_session_that_names_no_arbiter_takes_the_one_that_the_table_records(hooked: Hooked) -> None:
    from safewrite.spark import attach

    table = hooked("object-store")
    table.place.open(create=True).append(rows(1), key="one")
    attach(table.spark.session, storage_options=table.proxy.storage_options())
    assert table.hook().connection.arbiter_name == "object-store"
    table.write(2)
    guarded = hooked("dynamodb")
    guarded.place.open(create=True).append(rows(1), key="one")
    attach(table.spark.session, storage_options=table.proxy.storage_options())
    assert guarded.hook().connection.lock_table == guarded.place.lock_table
    guarded.write(2)
    for one in (table, guarded):
        assert visible(one.readers()) == once(1, 2)
