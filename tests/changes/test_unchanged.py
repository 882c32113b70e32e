"""A change that leaves columns out carries their values on, and a late change from between the two still brings a newer one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import safewrite as sw
from safewrite.testing.reading import rows_of
from tests.changes.test_tables import Lake as Tables

pytestmark = pytest.mark.sweep("iceberg")  # both formats go one way

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("lsn", pa.int64(), False),
        pa.field("name", pa.string()),
        pa.field("note", pa.string(), False),
        pa.field("data", pa.list_(pa.int64())),
    ]
)
HOW: dict[str, Any] = {
    "keys": ["id"],
    "sequence_by": ["lsn"],
    "delete_when": [("op", "=", "d")],
    "unchanged": "lacks",
    "all_late": "count",
}
Event = dict[str, Any]


class Lake:
    """A table of either format, as its owner reads it."""

    def __init__(self, kind: str, folder: Path, properties: dict[str, str] | None = None) -> None:
        self._tables = Tables(kind, folder)
        if kind == "delta":
            self.table: Any = sw.create(str(folder / "notes"), SCHEMA, properties=properties)
        else:
            self.table = sw.create("db.notes", SCHEMA, catalog=self._tables._catalog, properties=properties)
        self.kind, self.folder = kind, folder

    def open(self) -> Any:
        if self.kind == "delta":
            return sw.open(str(self.folder / "notes"))
        return sw.open("db.notes", catalog=self._tables._catalog)

    def apply(self, *events: Event, **how: Any) -> dict[str, int]:
        receipt = self.open().apply_changes(frame(events), **HOW | how)
        counts = {name: count for name, count in receipt.changes.items() if count and name != "applied"}
        assert sum(counts.values()) == len(events)
        return counts

    def many(self, *batches: list[Event]) -> list[Any]:
        """What a group commit tells of each batch; of a refused one that, if it lacks a value."""
        members = [(str(number), frame(events)) for number, events in enumerate(batches)]
        told = self.open().apply_changes_many(members, **HOW)
        return ["unchanged=" if "unchanged=" in str(one) else one for one in told]

    def rows(self) -> list[dict[str, Any]]:
        return sorted(rows_of(self.open()).to_pylist(), key=lambda row: row["id"])


def frame(events: Iterable[Event]) -> pa.Table:
    kinds = {"op": pa.string(), "lacks": pa.list_(pa.string())}
    schema = [*(field.with_nullable(True) for field in SCHEMA), *(pa.field(n, k) for n, k in kinds.items())]
    return pa.Table.from_pylist(list(events), pa.schema(schema))


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(request.param, tmp_path)


def put(lsn: int, number: int = 1, **values: Any) -> Event:
    """An upsert; columns that are not given are left out of it."""
    lacks = [name for name in ("name", "note", "data") if name not in values]
    return {"op": "u", "id": number, "lsn": lsn, **values, "lacks": lacks}


def full(lsn: int, text: str, number: int = 1) -> Event:
    return put(lsn, number, name=text, note=f"note {text}", data=[lsn])


def gone(lsn: int, number: int = 1) -> Event:
    return {"op": "d", "id": number, "lsn": lsn, "lacks": None}


def row(lsn: int, name: str, note: str, data: list[int] | None, number: int = 1) -> dict[str, Any]:
    return {"id": number, "lsn": lsn, "name": name, "note": note, "data": data}


def test_a_value_that_is_left_out_is_carried_on_from_the_table(lake: Lake) -> None:
    lake.apply(full(1, "a"))
    assert lake.apply(put(2, name="b")) == {"updated": 1}
    assert lake.rows() == [row(2, "b", "note a", [1])]


def test_a_value_that_is_left_out_is_carried_on_from_the_batch(lake: Lake) -> None:
    assert lake.apply(put(3, data=None), full(1, "a"), put(2, name="b")) == {"inserted": 1, "superseded": 2}
    assert lake.rows() == [row(3, "b", "note a", None)]


def test_a_late_change_brings_the_columns_that_newer_ones_left_out(lake: Lake) -> None:
    """By the row's sequence alone it is late, and its value would be lost for ever."""
    lake.apply(full(1, "a"))
    lake.apply(put(5, name="e"))
    assert lake.apply(put(3, note="newer", name="c")) == {"updated": 1}
    assert lake.rows() == [row(5, "e", "newer", [1])]
    assert lake.apply(put(2, note="older")) == {"late": 1}
    assert lake.apply(put(4, note="newest")) == {"updated": 1}
    assert lake.rows() == [row(5, "e", "newest", [1])]


@pytest.mark.long
def test_a_replay_of_changes_that_were_applied_changes_nothing(lake: Lake) -> None:
    """A connector that starts again sends what it had sent, at new offsets."""
    log = [full(1, "a"), put(2, name="b"), put(3, note="n")]
    for event in log:
        lake.apply(event)
    before = lake.rows()
    assert lake.apply(*log) == {"late": 2, "duplicate": 1}
    for event in log:
        lake.apply(event)
    assert lake.rows() == before == [row(3, "b", "n", [1])]


def test_a_full_row_ends_what_was_carried_on(lake: Lake) -> None:
    lake.apply(full(1, "a"))
    lake.apply(put(3, name="c"))
    lake.apply(full(5, "e"))
    assert lake.apply(put(2, note="late")) == {"late": 1}
    assert lake.rows() == [row(5, "e", "note e", [5])]


def test_values_do_not_come_back_through_a_deletion(lake: Lake) -> None:
    lake.apply(full(1, "a"))
    with pytest.raises(sw.InvalidInputError, match=r"'data' \(unchanged=\).*'id': 1.*Nothing was written"):
        lake.apply(gone(2), put(3, name="c", note="c"))
    lake.apply(gone(2))
    with pytest.raises(sw.InvalidInputError, match="unchanged="):
        lake.apply(put(3, name="c", note="c"))
    assert lake.rows() == []
    assert lake.apply(full(3, "c"), put(4, name="d")) == {"inserted": 1, "superseded": 1}
    assert lake.rows() == [row(4, "d", "note c", [3])]


def test_a_value_that_nobody_knows_is_refused_and_not_null(lake: Lake) -> None:
    with pytest.raises(sw.InvalidInputError, match=r"neither the table nor the batch.*snapshot.*") as told:
        lake.apply(put(2, name="b", data=None))
    assert "'note'" in str(told.value)
    assert lake.rows() == []


def test_a_truncate_ends_what_rows_carry_on(lake: Lake) -> None:
    lake.apply(full(1, "a"))
    cut = {"op": "t", "id": None, "lsn": 4, "lacks": None}
    with pytest.raises(sw.InvalidInputError, match="unchanged="):
        lake.apply(cut, put(5, name="e", note="e"), truncate_when=[("op", "=", "t")])
    assert lake.rows() == [row(1, "a", "note a", [1])]


def test_what_rows_carry_on_outlives_upkeep_and_other_commits(lake: Lake) -> None:
    lake.apply(full(1, "a"), full(1, "z", 2))
    lake.apply(put(5, name="e"))
    lake.apply(gone(6, 2))
    lake.apply(full(1, "y", 3))
    assert lake.apply(put(3, note="newer")) == {"updated": 1}
    assert lake.rows() == [row(5, "e", "newer", [1]), row(1, "y", "note y", [1], 3)]


def test_a_batch_under_its_key_again_is_the_same_and_null_is_not_unchanged(lake: Lake) -> None:
    lake.apply(full(1, "a"))
    lake.apply(put(2, name="b", note="b"), key="k")
    assert lake.apply(put(2, name="b", note="b"), key="k") == {"updated": 1}
    with pytest.raises(sw.ReplayMismatchError):
        lake.apply(put(2, name="b", note="b", data=None), key="k")


def test_lists_of_pandas_are_read_too(lake: Lake) -> None:
    lake.apply(full(1, "a"))
    frame = pd.DataFrame({"op": ["u"], "id": [1], "lsn": [2], "name": ["b"], "lacks": [["note", "data"]]})
    lake.open().apply_changes(frame, **HOW)
    assert lake.rows() == [row(2, "b", "note a", [1])]


@pytest.mark.sweep("lacks1", "lacks5")
@pytest.mark.parametrize(
    ("lacks", "part"),
    [
        (["nope"], "names 'nope'"),
        (["id"], "names 'id', which is a key"),
        (["lsn"], "which is a key, a sequence"),
        ([None, "name"], "names None"),
        ("note", "has type string"),
        ([1], "has type list<"),
    ],
)
def test_lists_of_other_things_are_refused(lacks: Any, part: str, tmp_path: Path) -> None:
    lake = Lake("delta", tmp_path)
    rows = [
        {"op": "u", "id": 1, "lsn": 2, "name": "b", "note": "b", "data": None, "lacks": lacks},
        {"op": "u", "id": 2, "lsn": 2, "name": "b", "note": "b", "data": [1], "lacks": lacks},
    ]
    with pytest.raises(sw.InvalidInputError, match=r"unchanged=.*Nothing was written") as told:
        lake.open().apply_changes(pa.Table.from_pylist(rows), **HOW)
    assert part in str(told.value)


def test_a_required_column_may_be_left_out_and_may_not_be_null(lake: Lake) -> None:
    lake.apply(full(1, "a"))
    lake.apply(put(2, name="b"))
    with pytest.raises(sw.WouldAlterError, match="note"):
        lake.apply(put(3, name="b", note=None))


# --- any log, in any split and order ------------------------------------------------------------------
COLUMNS = ("name", "note", "data")


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """What a source does to three rows: full inserts, updates of some columns, deletions."""
    alive: set[int] = set()
    log: list[Event] = []
    for lsn in range(1, draw(st.integers(1, 12))):
        number = draw(st.integers(1, 3))
        if number not in alive:
            alive.add(number)
            log.append(full(lsn, f"v{lsn}", number))
        elif draw(st.integers(0, 4)) == 0:
            alive.remove(number)
            log.append(gone(lsn, number))
        else:
            given_ = draw(st.sets(st.sampled_from(COLUMNS)))
            values = {"name": f"v{lsn}", "note": f"note v{lsn}", "data": [lsn]}
            log.append(put(lsn, number, **{name: values[name] for name in COLUMNS if name in given_}))
    return log


def replayed(log: list[Event]) -> list[dict[str, Any]]:
    """The source's own rows: one change after another."""
    rows: dict[int, dict[str, Any]] = {}
    for event in log:
        if event["op"] == "d":
            del rows[event["id"]]
            continue
        values = {name: event[name] for name in SCHEMA.names if name in event}
        rows[event["id"]] = rows.get(event["id"], {}) | values
    return sorted(rows.values(), key=lambda row: row["id"])


@pytest.mark.sweep("delta")
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_any_log_in_any_order_and_split_gives_the_rows_of_the_source(
    kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What comes before a value that it needs is refused, and comes again later."""

    @settings(
        max_examples=25 if kind == "delta" else 3,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(logs(), st.randoms(use_true_random=False), st.integers(1, 4))
    def check(log: list[Event], random: Any, size: int) -> None:
        lake = Lake(kind, tmp_path_factory.mktemp("lake"))
        waiting = [*log, *random.sample(log, len(log) // 3)]
        random.shuffle(waiting)
        while waiting:
            batch, waiting = waiting[:size], waiting[size:]
            try:
                lake.apply(*batch)
            except sw.InvalidInputError as error:
                if "unchanged=" not in str(error):
                    raise
                waiting += batch
                size = max(size, len(batch)) + 1
        assert lake.rows() == replayed(log)

    check()
