"""Changes of a Spark DataFrame do to a table what the oracle says, as those of any other frame do."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import safewrite as sw
from bench.servers.catalogs import CatalogKind
from safewrite.changes.tasks import apply_job
from safewrite.testing.changes import Change, Oracle, RefusedError
from safewrite.testing.steps import Answers, At
from tests.changes import test_unchanged as unchanged
from tests.changes.test_decide import OTHER, K, changes, down, up
from tests.changes.test_tables import COMMIT, HOW, SCHEMA, VECTORS, apply, frame
from tests.integration.places import once
from tests.spark.changed import ChangedTable, made
from tests.spark.ends import delta, iceberg
from tests.spark.hooked import HookedTable
from tests.spark.lake import Lake
from tests.spark.session import Spark
from tests.spark.stream import Killed, Stream

MERGE_ON_READ = {"write.merge.mode": "merge-on-read"}
MARKING = {"merge-on-read": ("iceberg", MERGE_ON_READ), "vectors": ("delta", VECTORS)}
"""Tables whose rows are marked as gone."""


@pytest.fixture(params=["delta", "iceberg"])
def table(
    request: pytest.FixtureRequest, spark: Spark, lakes: Callable[[CatalogKind], Lake], tmp_path: Path
) -> ChangedTable:
    return made(request.param, spark, lakes("sql"), tmp_path)


def by_executors(table: ChangedTable, batch: list[Change], **how: Any) -> Any:
    """Apply a batch as a Spark DataFrame, however small, by tasks on executors alone."""
    with mock.patch.object(apply_job, "FEW_ROWS", -1):
        return table.apply(batch, **how)


def counted(receipt: Any) -> Counter[str]:
    """What became of the changes."""
    return Counter({name: count for name, count in receipt.changes.items() if count and name != "applied"})


@pytest.mark.long
@pytest.mark.parametrize("kind", ["delta", "vectors", "iceberg", "merge-on-read"])
@pytest.mark.parametrize("partitioned", [False, True])
def test_any_log_in_any_split_by_spark_and_others_gives_the_table_of_the_oracle(
    kind: str,
    partitioned: bool,
    spark: Spark,
    lakes: Callable[[CatalogKind], Lake],
    request: pytest.FixtureRequest,
) -> None:
    @settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(
        st.lists(
            st.tuples(st.lists(changes, max_size=6), st.sampled_from(["spark", "executors", "arrow"])),
            min_size=1,
            max_size=4,
        )
    )
    def check(steps: list[tuple[list[Any], str]]) -> None:
        format_, properties = MARKING.get(kind, (kind, {}))
        by = ["b"] if partitioned else []
        folder = request.getfixturevalue("tmp_path_factory").mktemp("lake")
        table = made(format_, spark, lakes("sql"), folder, partition_by=by, **properties)
        oracle = Oracle()
        for number, (batch, engine) in enumerate(steps):
            write = {"spark": table.apply, "executors": partial(by_executors, table)}.get(
                engine, lambda b, **how: apply(table.open(), b, **how)
            )
            try:
                told = oracle.apply(batch)
            except RefusedError:
                with pytest.raises(sw.InvalidInputError, match="Nothing was written"):
                    write(batch, key=f"batch-{number}")
                continue
            receipt = write(batch, key=f"batch-{number}")
            assert counted(receipt) == told
            assert table.rows() == oracle.rows
            again = table.apply(batch, key=f"batch-{number}")
            assert (again.outcome, again.changes) == ("already_committed", receipt.changes)

    check()


@pytest.mark.sweep("delta")
def test_spark_and_pandas_apply_one_log_in_turns(table: ChangedTable) -> None:
    """Rows, deletions and truncates of each are known to the other."""
    oracle = Oracle()
    log = [
        ([up((1, 0)), up((1, 0), "q", OTHER), down((1, 3), (1, "y"))], table.apply),
        ([up((2, 0), "newer"), up((1, 2), "late", (1, "y")), down((2, 1), OTHER)], None),
        (
            [up((0, 0)), up((2, 0), "late", OTHER), up((2, 0), "newer"), up((2, 5), "new", (1, "y"))],
            partial(by_executors, table),
        ),
    ]
    for number, (batch, by_spark) in enumerate(log):
        told = oracle.apply(batch)
        write = by_spark or (lambda batch, **how: apply(table.open(), batch, **how))
        assert counted(write(batch, key=str(number), columns=SCHEMA.names)) == told
        assert table.rows() == oracle.rows
    again = apply(table.open(), log[-1][0], key="2")
    assert again.outcome == "already_committed", "a frame of another kind is the same batch"


NEW = pa.schema([pa.field("more", pa.string()), pa.field("n", pa.int64())])


@pytest.mark.sweep("delta")
def test_a_frame_and_a_stream_s_batch_add_columns_and_widen_them(table: ChangedTable) -> None:
    """On executors and on the driver alike; the key stays as wide as it is, and other rows have NULL."""
    table.apply([up((1, 0), "old"), up((1, 0), "old", OTHER)], key="a")

    def brings(at: int, value: int, kind: pa.DataType) -> pa.Table:
        more = pa.Table.from_pylist([{"more": f"of {at}", "n": value}], NEW.set(1, pa.field("n", kind)))
        rows = frame([up((at, 0), "new")])
        return pa.table([*rows.columns, *more.columns], names=[*rows.column_names, *more.column_names])

    for few, at, value, kind in ((-1, 2, 5, pa.int32()), (10, 3, 2**40, pa.int64())):
        how: dict[str, Any] = HOW | {"schema_mode": "widen", "key": f"batch-{at}"}
        with mock.patch.object(apply_job, "FEW_ROWS", few):
            made_ = table.apply_rows(brings(at, value, kind), **how)
            again = table.apply_rows(brings(at, value, kind), **how)
        assert (again.version, again.outcome) == (made_.version, "already_committed")
    found = {
        (one["a"], one["b"]): (one["s"], one["more"], one["n"])
        for one in table.open().rows(where="true").to_pylist()
    }
    assert found == {K: (3, "of 3", 2**40), OTHER: (1, None, None)}
    declared = {name: value for name, value in HOW.items() if name != "all_late"}
    sink = table.open().sink("apply_changes", app_id="s", schema_mode="merge", changes=declared)
    batch = brings(4, 7, pa.int64())
    with table.spark.careless():
        sink(table.spark.session.createDataFrame(batch.append_column("last", pa.array([1.5]))), 0)
    read = {(one["a"], one["b"]): one["last"] for one in table.open().rows(where="true").to_pylist()}
    assert read == {K: 1.5, OTHER: None}
    if table.lake is not None:  # deltalake reads no wider columns
        assert sorted(one["last"] or 0 for one in table.found()) == [0, 1.5]


@pytest.mark.long
def test_a_truncate_of_spark_removes_what_is_before_it(table: ChangedTable) -> None:
    table.apply([up((1, 0)), up((3, 0), "later", OTHER)], key="a")
    batch = [up((1, 2), "gone", (1, "x")), Change("truncate", (2, 0)), up((2, 1), "new", (1, "y"))]
    oracle = Oracle()
    oracle.apply([up((1, 0)), up((3, 0), "later", OTHER)])
    assert counted(table.apply(batch, key="b")) == oracle.apply(batch)
    assert table.rows() == oracle.rows
    assert counted(table.apply([up((1, 9), "late")], key="c")) == {"late": 1}


@pytest.mark.long
def test_what_a_truncate_of_spark_removes_ties_with_nothing_that_comes_after_it(table: ChangedTable) -> None:
    around = [up((0, 3)), up((0, 3)), up((0, 3), "q"), Change("truncate", (0, 3)), up((0, 3)), up((0, 3))]
    oracle = Oracle()
    assert counted(table.apply(around, key="a")) == oracle.apply(around)
    assert table.rows() == oracle.rows


@pytest.mark.long
def test_a_full_refresh_of_spark_takes_the_place_of_all_that_was_there(table: ChangedTable) -> None:
    table.apply([up((5, 0), "old"), up((5, 0), "old", OTHER), down((9, 0), (1, "y"))])
    ours, rival = table.open(), table.open()
    step = COMMIT["delta" if table.lake is None else "iceberg"]
    ours.world = At(ours.world, step, "before", lambda: apply(rival, [up((10, 0), "theirs", (1, "y"))]))
    receipt = table.apply([up((1, 0), "new"), down((3, 0), OTHER)], table=ours, full_refresh=True)
    assert counted(receipt) == {"inserted": 1, "tombstoned": 1}
    assert receipt.removed_rows == 3
    assert table.rows() == {K: "new"}
    assert counted(table.apply([up((2, 0), "late", OTHER), up((2, 0), "in", (1, "y"))])) == {
        "late": 1,
        "inserted": 1,
    }
    table.apply([], full_refresh=True)
    assert table.rows() == {}


@pytest.mark.long
def test_a_rival_between_plan_and_commit_is_planned_on(table: ChangedTable) -> None:
    """Plain merges of both formats insert the key twice (I7), or give up."""
    for number, rival in enumerate(([up((1, 0), "theirs")], [down((9, 0), OTHER)])):
        writer = table.open()
        writer.world = At(
            writer.world, COMMIT["delta" if table.lake is None else "iceberg"], "before",
            lambda rival=rival: apply(table.open(), rival),
        )  # fmt: skip
        table.apply([up((2 + number, 0), "ours"), up((2, 0), "other", OTHER)], table=writer, key=str(number))
    assert table.rows() == {K: "ours"}


@pytest.mark.long
def test_a_commit_of_spark_whose_answer_is_lost_is_applied_once(table: ChangedTable) -> None:
    writer = table.open()
    writer.world = Answers(writer.world, COMMIT["delta" if table.lake is None else "iceberg"], times=1)
    table.apply([up((1, 0))], table=writer, key="a")
    assert table.apply([up((1, 0))], key="a").changes["inserted"] == 1
    assert table.rows() == {K: "p"}


@pytest.mark.long
def test_a_key_with_other_changes_of_spark_is_refused(table: ChangedTable) -> None:
    table.apply([up((1, 0))], key="a", positions={"orders/0": (None, 1)})
    for other in ([up((1, 0), "q")], [down((1, 0))]):
        with pytest.raises(sw.ReplayMismatchError, match="with other rows"):
            table.apply(other, key="a")
    with pytest.raises(sw.ConflictError, match="Nothing was committed"):
        table.apply([up((2, 0))], key="b", positions={"orders/0": (None, 2)})
    assert table.rows() == {K: "p"}
    assert table.open().positions() == {"orders/0": 1}


@pytest.mark.long
def test_changes_that_say_unequal_things_are_refused_with_their_keys(table: ChangedTable) -> None:
    """In the executors, whose errors Java would garble."""
    with pytest.raises(sw.InvalidInputError, match=r"\{'a': 1, 'b': 'x'\}.*Nothing was written"):
        table.apply([up((1, 0)), up((1, 0), "q")])
    with pytest.raises(sw.InvalidInputError, match=r"'s'.*NULL"):
        table.apply_rows(frame([up((None, 0))]), **HOW)
    looks: list[tuple[int, int]] = []

    def refuse(rows: Any, counts: Mapping[str, int]) -> None:
        looks.append((rows.count(), counts["inserted"]))
        raise ValueError("too few")

    with pytest.raises(sw.InvalidInputError, match=r"check= refused.*too few.*Nothing was written"):
        table.apply([up((1, 0))], check=refuse)
    assert looks == [(1, 1)]
    assert table.rows() == {}


@pytest.mark.long
def test_a_driver_killed_between_commit_and_checkpoint_has_applied_its_batch_once(
    hooked: Callable[[str], HookedTable], lakes: Callable[[CatalogKind], Lake], tmp_path: Path
) -> None:
    """Both formats in one driver on S3, its Java process gone."""
    stream = Stream(tmp_path)
    stream.feed("a", 1, 2, 3)
    stream.feed("b", 4, 5)
    lake = lakes("sql")
    ends = [delta(hooked("dynamodb")), iceberg(lake)]
    what = {"keys": ["value"], "sequence_by": ["id"]}
    sinks = [end.open().sink("apply_changes", app_id="orders", changes=what) for end in ends]
    assert ends[0].hooked is not None
    killed = Killed(stream, sinks, ends[0].hooked.place, {lake.name: lake.properties})
    assert killed.run() == -signal.SIGKILL
    assert [end.ids() for end in ends] == [once(1, 2, 3)] * 2
    before = [end.versions() for end in ends]

    def both(frame: Any, epoch: int) -> None:
        for sink in sinks:
            sink(frame, epoch)

    stream.run(ends[0].spark, both)
    assert [end.ids() for end in ends] == [once(1, 2, 3, 4, 5)] * 2
    assert [end.versions() for end in ends] == [count + 1 for count in before]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_values_that_spark_changes_leave_out_are_carried_on(
    kind: str, spark: Spark, lakes: Callable[[CatalogKind], Lake], tmp_path: Path
) -> None:
    """From the table, from the batch, and brought by a late change; pandas knows what Spark remembered."""
    table = made(kind, spark, lakes("sql"), tmp_path, unchanged.SCHEMA)
    kinds = [pa.field("op", pa.string()), pa.field("lacks", pa.list_(pa.string()))]
    schema = pa.schema([*(field.with_nullable(True) for field in unchanged.SCHEMA), *kinds])

    def go(*events: dict[str, Any]) -> Counter[str]:
        return counted(table.apply_rows(pa.Table.from_pylist(list(events), schema), **unchanged.HOW))

    full, put, row = unchanged.full, unchanged.put, unchanged.row
    assert go(full(1, "a"), full(1, "z", 2)) == {"inserted": 2}
    assert go(put(5, name="e"), put(6, data=None)) == {"updated": 1, "superseded": 1}
    assert go(put(3, note="newer", name="c")) == {"updated": 1}
    late = pa.Table.from_pylist([put(4, note="newest", name="d")], schema)
    assert counted(table.open().apply_changes(late, **unchanged.HOW)) == {"updated": 1}
    assert go(unchanged.gone(5), put(7, name="g")) == {"updated": 1, "late": 1}
    wanted = [row(7, "g", "newest", None), row(1, "z", "note z", [1], 2)]
    assert sorted(table.found(), key=lambda one: int(one["id"])) == wanted
    with pytest.raises(sw.InvalidInputError, match="comes without 'note'"):
        go(put(9, 3, name="x"))


@pytest.mark.long
def test_a_batch_of_many_tasks_is_applied_as_one(
    table: ChangedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Truncates are of no key: each task sees them, and they count once."""
    monkeypatch.setattr(apply_job, "TASK_ROWS", 3)
    monkeypatch.setattr(apply_job, "FEW_ROWS", 0)
    oracle = Oracle()
    keys = [(number, name) for number in range(4) for name in "xy"]
    for batch in (
        [up((1, 0), "p", key) for key in keys],
        [Change("truncate", (1, 2)), *[up((1, 3), "q", key) for key in keys[2:]], Change("truncate", (1, 1))],
        [down((2, 0), key) for key in keys],
    ):
        told = oracle.apply(batch)
        assert counted(table.apply(batch)) == told
        assert table.rows() == oracle.rows


@pytest.mark.long
def test_columns_with_dots_and_accents_are_keys_as_any(
    spark: Spark, lakes: Callable[[CatalogKind], Lake], tmp_path: Path
) -> None:
    schema = pa.schema({"a.b": pa.int64(), "ß`s": pa.int64(), "v": pa.string()})
    for kind in ("iceberg",):
        table = made(kind, spark, lakes("sql"), tmp_path, schema)
        how: dict[str, Any] = {"keys": ["a.b"], "sequence_by": ["ß`s"]}
        for sequence, value in ((1, "old"), (2, "new")):
            rows = pa.Table.from_pylist([{"a.b": n, "ß`s": sequence, "v": value} for n in range(3)], schema)
            table.apply_rows(rows, **how)
        assert [(one["a.b"], one["v"]) for one in table.found()] == [(n, "new") for n in range(3)]
