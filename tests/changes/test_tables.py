"""A table under a change log is what the oracle says, on both formats, whoever reads it."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw
from safewrite.delta.data.pruning import Pruning
from safewrite.protocol.effects import Unknown
from safewrite.testing.changes import Change, Oracle, RefusedError
from safewrite.testing.steps import Answers, At
from tests.changes.test_decide import OTHER, K, changes, down, up
from tests.delta.logs import plain_state

pytestmark = pytest.mark.sweep("iceberg")  # both formats go one way

SCHEMA = pa.schema(
    {"a": pa.int64(), "b": pa.string(), "s": pa.int64(), "t": pa.int64(), "value": pa.string()}
)
HOW: dict[str, Any] = {
    "keys": ["a", "b"],
    "sequence_by": ["s", "t"],
    "delete_when": "op = 'delete'",
    "truncate_when": [("op", "=", "truncate")],
    "all_late": "count",
}
VECTORS = {"delta.enableDeletionVectors": "true"}
COMMIT = {"delta": "commit.put_commit", "iceberg": "swap.commit"}


@dataclass
class Lake:
    """One table, its writers, and its rows as another library reads them.  ``vectors``: rows go by deletion vectors or delete files."""

    format: str
    folder: Path
    partitioned: bool = False
    vectors: bool = False
    _catalog: Any = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        by = ["b"] if self.partitioned else []
        if self.format == "delta":
            sw.create(self.uri, SCHEMA, partition_by=by, properties=VECTORS if self.vectors else None)
            return
        root = self.folder
        self._catalog = SqlCatalog("local", uri=f"sqlite:///{root}/c.db", warehouse=root.as_uri())
        modes = ("write.merge.mode", "write.delete.mode") if self.vectors else ()
        marks = dict.fromkeys(modes, "merge-on-read")
        sw.create("db.t", SCHEMA, catalog=self._catalog, partition_by=by, properties=marks)

    @property
    def uri(self) -> str:
        return str(self.folder / "t")

    def open(self, **how: Any) -> Any:
        if self.format == "delta":
            return sw.open(self.uri, **how)
        return sw.open("db.t", catalog=self._catalog, **how)

    def rows(self) -> dict[tuple[int, str], str]:
        if self.format == "delta":
            found = self._of_delta()
        else:
            found = self._catalog.load_table("db.t").scan().to_arrow()
        pairs = [((one["a"], one["b"]), one["value"]) for one in found.to_pylist()]
        assert len(pairs) == len(dict(pairs)), f"a key is there twice: {pairs}"
        return dict(pairs)

    def _of_delta(self) -> pa.Table:
        table = deltalake.DeltaTable(self.uri)
        if not self.vectors:
            return table.to_pyarrow_table()
        return pa.table(deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())

    def tidy(self) -> None:
        """What other engines do to a table: checkpoint and vacuum, or expiry of all snapshots but the newest."""
        if self.format == "delta":
            table = deltalake.DeltaTable(self.uri)
            table.create_checkpoint()
            # With full=True deltalake (1.6.6) removes the files of vectors that are in use.
            full = not self.vectors
            table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=full)
            table.cleanup_metadata()
            return
        table = self._catalog.load_table("db.t")
        kept = {ref.snapshot_id for ref in table.metadata.refs.values()}
        old = [one.snapshot_id for one in table.snapshots() if one.snapshot_id not in kept]
        if old:
            table.maintenance.expire_snapshots().by_ids(old).commit()


def frame(batch: list[Change]) -> pa.Table:
    rows = [
        dict(zip(SCHEMA.names, [*(one.key or (None, None)), *one.sequence, one.row], strict=True))
        | {"op": one.op}
        for one in batch
    ]
    return pa.Table.from_pylist(rows, pa.schema([*SCHEMA, pa.field("op", pa.string())]))


def apply(table: Any, batch: list[Change], **how: Any) -> Any:
    return table.apply_changes(frame(batch), **(HOW | how))


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(request.param, tmp_path)


@pytest.mark.sweep("delta-True", "iceberg-True", "iceberg")
@pytest.mark.parametrize(
    ("kind", "partitioned"),
    [
        ("delta", False),
        ("delta", True),
        ("iceberg", False),
        ("iceberg", True),
        pytest.param("vectors", False, marks=pytest.mark.long),
    ],
)
def test_any_log_in_any_split_gives_the_table_of_the_oracle(
    kind: str, partitioned: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @settings(
        max_examples=5 if kind == "iceberg" else 12,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        st.lists(
            st.tuples(st.lists(changes, max_size=6), st.booleans(), st.integers(0, 1)), min_size=1, max_size=5
        )
    )
    def check(steps: list[tuple[list[Change], bool, int]]) -> None:
        vectors = kind == "vectors"
        lake = Lake("delta" if vectors else kind, tmp_path_factory.mktemp("lake"), partitioned, vectors)
        oracle, writers = Oracle(), [lake.open(), lake.open()]
        for number, (batch, tidies, writer) in enumerate(steps):
            name = f"batch-{number}"
            try:
                told = oracle.apply(batch)
            except RefusedError:
                with pytest.raises(sw.InvalidInputError, match="Nothing was written"):
                    apply(writers[writer], batch, key=name)
                continue
            receipt = apply(writers[writer], batch, key=name)
            found = Counter({name: count for name, count in receipt.changes.items() if count})
            assert found.pop("applied", 0) == sum(
                told[name] for name in ("inserted", "updated", "deleted", "tombstoned", "truncated")
            )
            assert found == told
            repeat = apply(writers[1 - writer], batch, key=name)
            assert (repeat.outcome, repeat.changes) == ("already_committed", receipt.changes)
            if tidies:
                lake.tidy()
            assert lake.rows() == oracle.rows

    check()


def test_two_writers_never_insert_one_new_key_twice(lake: Lake) -> None:
    """Plain merges of both formats do (I7)."""
    table, rival = lake.open(), lake.open()
    table.world = At(table.world, COMMIT[lake.format], "before", lambda: apply(rival, [up((1, 0), "theirs")]))
    receipt = apply(table, [up((2, 0), "ours")])
    assert receipt.changes["updated"] == 1
    assert lake.rows() == {K: "ours"}


def test_a_rivals_deletion_is_known_to_a_late_insert_that_was_planned_before(lake: Lake) -> None:
    """Neither touches a file of the other, so only what is remembered in the commit itself can tell (I3)."""
    rival = lake.open()
    apply(rival, [down((1, 0), (9, "x"))])
    table = lake.open()  # so that the first plan, too, reads what is remembered
    table.world = At(table.world, COMMIT[lake.format], "before", lambda: apply(rival, [down((5, 0))]))
    receipt = apply(table, [up((2, 0), "late")])
    assert receipt.changes["late"] == 1
    assert lake.rows() == {}


def test_rows_go_by_their_places_in_the_file_that_has_them(lake: Lake) -> None:
    """Each file loses one row, so no count tells the places of the one from those of the other."""
    table = lake.open()
    for first in (0, 10):
        apply(table, [up((1, 0), "old", (first + key, "x")) for key in range(4)])
    apply(table, [down((2, 0), (0, "x")), down((2, 0), (13, "x"))])
    assert sorted(lake.rows()) == [(key, "x") for key in (1, 2, 3, 10, 11, 12)]


def test_a_commit_whose_answer_is_lost_is_applied_once(lake: Lake) -> None:
    table = lake.open()
    table.world = Answers(table.world, COMMIT[lake.format], times=1)
    apply(table, [up((1, 0))], key="a")
    assert apply(lake.open(), [up((1, 0))], key="a").changes["inserted"] == 1
    assert lake.rows() == {K: "p"}


def test_a_call_that_ended_in_doubt_is_decided_by_the_next_though_its_changes_are_late_by_now(
    lake: Lake,
) -> None:
    """Planned again they would be late, and refused as a source that was set back."""
    table = lake.open()
    world = table.world
    verify = "commit.read_back" if lake.format == "delta" else "swap.look"
    table.world = Answers(Answers(world, COMMIT[lake.format]), verify, Unknown("down"))
    batch = [up((1, 0))]
    with pytest.raises(sw.CommitUnknownError):
        apply(table, batch, key="a", all_late="error", timeout_s=3)
    apply(lake.open(), [up((2, 0), "newer")], key="b")
    again = apply(lake.open(), batch, key="a", all_late="error")
    assert again.outcome == "already_committed"
    assert lake.rows() == {K: "newer"}


def test_a_key_with_other_changes_is_refused(lake: Lake) -> None:
    apply(lake.open(), [up((1, 0))], key="a")
    for other in ([up((1, 0), "q")], [down((1, 0))]):
        with pytest.raises(sw.ReplayMismatchError, match="with other rows"):
            apply(lake.open(), other, key="a")
    assert lake.rows() == {K: "p"}


def test_a_batch_of_a_stream_is_applied_once(lake: Lake) -> None:
    batch = [up((1, 0)), down((2, 0), OTHER)]
    apply(lake.open(), batch, txn=("orders", 7))
    receipt = apply(lake.open(), batch, txn=("orders", 7))
    assert (receipt.outcome, receipt.changes["tombstoned"]) == ("already_committed", 1)


def test_a_batch_that_is_late_as_a_whole_is_an_error_by_default(lake: Lake) -> None:
    apply(lake.open(), [up((5, 0), "new")])
    with pytest.raises(sw.InvalidInputError, match=r"source was set back.*epoch"):
        apply(lake.open(), [up((1, 0))], all_late="error")
    assert lake.rows() == {K: "new"}


def test_other_keys_than_before_are_refused(lake: Lake) -> None:
    apply(lake.open(), [up((1, 0))])
    with pytest.raises(sw.InvalidInputError, match=r"keys=\['a', 'b'\].*keys=\['a'\]"):
        apply(lake.open(), [up((2, 0))], keys=["a"])


def test_a_row_that_a_rollback_brought_back_goes_with_the_next_change_of_its_key(lake: Lake) -> None:
    """What is remembered is not rolled back with the rows."""
    table = lake.open()
    first = apply(table, [up((1, 0))])
    apply(table, [down((3, 0))])
    if lake.format == "delta":
        deltalake.DeltaTable(lake.uri).restore(first.version)
    else:
        lake._catalog.load_table("db.t").manage_snapshots().rollback_to_snapshot(first.version).commit()
    assert lake.rows() == {K: "p"}
    apply(lake.open(), [down((3, 0))])
    assert lake.rows() == {}


def test_rows_of_other_verbs_are_changed_too(lake: Lake) -> None:
    table = lake.open()
    table.append([{"a": 1, "b": "x", "s": None, "t": None, "value": "plain"}])
    assert apply(table, [up((0, 0), "changed")]).changes["updated"] == 1
    assert lake.rows() == {K: "changed"}


def test_a_memory_that_is_gone_stops_changes_and_nothing_else(lake: Lake) -> None:
    apply(lake.open(), [up((1, 0)), down((2, 0), OTHER)])
    for path in [*lake.folder.rglob("_safewrite/changes/*.parquet"), *lake.folder.rglob("*.puffin")]:
        path.unlink()
    with pytest.raises(sw.StorageError, match=r"remembers the deleted keys.*Nothing was committed"):
        apply(lake.open(), [up((1, 5), "late", OTHER)])
    assert lake.rows() == {K: "p"}


@pytest.mark.parametrize("days", [1, 300])
def test_a_delta_table_that_forgets_txns_takes_no_changes(tmp_path: Path, days: int) -> None:
    """However long: after as many days without a deletion a late change would bring a deleted row back."""
    lake = Lake("delta", tmp_path)
    apply(lake.open(), [down((5, 0))])
    setting = {"delta.setTransactionRetentionDuration": f"interval {days} days"}
    deltalake.DeltaTable(lake.uri).alter.set_table_properties(setting, raise_if_not_exists=False)
    with pytest.raises(sw.UnsafeConfigError, match=r"deleted keys.*Nothing was written.*UNSET"):
        apply(lake.open(), [up((1, 0))])


def test_a_table_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(sw.TableNotFoundError):
        sw.open(str(tmp_path / "none"), create=True).apply_changes(frame([up((1, 0))]), **HOW)


def test_a_table_that_replaced_another_does_not_remember_its_deletions(tmp_path: Path) -> None:
    """CREATE OR REPLACE gives the table a new id and keeps its log, txns included."""
    lake = Lake("delta", tmp_path)
    apply(lake.open(), [up((1, 0)), down((9, 0), OTHER)])
    deltalake.write_deltalake(lake.uri, SCHEMA.empty_table(), mode="overwrite")
    log = max((tmp_path / "t" / "_delta_log").glob("*.json"))
    metadata = {
        **json.loads(next(line for line in log_lines(tmp_path) if "metaData" in line))["metaData"],
        "id": "another",
    }
    log.write_text(log.read_text().rstrip("\n") + "\n" + json.dumps({"metaData": metadata}) + "\n")
    assert apply(lake.open(), [up((2, 0), "new", OTHER)]).changes["inserted"] == 1
    assert lake.rows() == {OTHER: "new"}


def log_lines(folder: Path) -> list[str]:
    return [
        line
        for log in sorted((folder / "t" / "_delta_log").glob("*.json"))
        for line in log.read_text().splitlines()
    ]


@pytest.mark.parametrize(
    ("low", "high", "may"),
    [
        ("a", "m", True),
        ("c", "m", False),
        ("a", "az", False),
        ("b", "b", True),
        (None, None, True),
    ],
)
def test_files_whose_bounds_leave_out_every_key_are_not_read(
    low: str | None, high: str | None, may: bool
) -> None:
    """A long text's greatest value is cut off in some engines' statistics, so it is compared by its length."""
    stats = {} if low is None else {"minValues": {"k": low}, "maxValues": {"k": high}}
    wanted = {"k": pa.array(["b", "bz long"])}
    pruning = Pruning(wanted, plain_state(pa.schema({"k": pa.string()})))
    assert pruning.may_hold({"stats": json.dumps(stats)}) is may


DAYS = [dt.date(2020, 1, day) for day in (1, 2, 3)]
TIMES = [dt.datetime(2020, 1, day, 1, 2, 3, 456_789) for day in (1, 2, 3)]  # noqa: DTZ001 - no zone on purpose
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int32": (pa.int32(), [-1, 0, 7]),
    "string": (pa.string(), ["a", "", "z" * 50]),
    "date": (pa.date32(), DAYS),
    "instant": (pa.timestamp("us", tz="UTC"), [one.replace(tzinfo=dt.UTC) for one in TIMES]),
    "time without zone": (pa.timestamp("us"), TIMES),
    "decimal": (pa.decimal128(10, 2), [Decimal("1.50"), Decimal("-2.25"), Decimal("0.00")]),
    "binary": (pa.binary(), [b"a", b"\xff\x00", b""]),
}


@pytest.mark.sweep(
    "iceberg-date",
    "iceberg-string",
    "iceberg-time",
    "iceberg-int32",
    "iceberg-binary",
    "delta-date",
    "delta-int32",
    "delta-binary",
)
@pytest.mark.parametrize("kind", KINDS)
def test_keys_of_every_type_are_found_again(lake: Lake, kind: str) -> None:
    """Files are passed over by the bounds of their keys, which each format spells in its own way."""
    of_key, values = KINDS[kind]
    schema = pa.schema({"k": of_key, "seq": pa.int64(), "v": pa.string()})
    if lake.format == "delta":
        table: Any = sw.create(str(lake.folder / "kinds"), schema)
    else:
        table = sw.create("db.kinds", schema, catalog=lake._catalog)

    def told(*rows: tuple[Any, int, str | None]) -> dict[str, int]:
        keys, sequence, texts = zip(*rows, strict=True)
        frame = pa.table({"k": pa.array(keys, of_key), "seq": sequence, "v": pa.array(texts, pa.string())})
        gone = pa.array([text is None for text in texts])
        receipt = table.apply_changes(
            frame.append_column("gone", gone),
            keys=["k"],
            sequence_by=["seq"],
            delete_when="gone",
            all_late="count",
        )
        return {name: count for name, count in receipt.changes.items() if count and name != "applied"}

    first, second, third = values
    assert told((first, 1, "x"), (second, 1, "x")) == {"inserted": 2}
    assert told((first, 2, "y"), (second, 3, None), (third, 1, "z")) == {
        "updated": 1,
        "deleted": 1,
        "inserted": 1,
    }
    assert told((second, 2, "late"), (first, 2, "y")) == {"late": 1, "duplicate": 1}
