"""A tag, or another branch, keeps a snapshot that expiry would take, and cuts it off from the branch: it was not rolled back for that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw
from safewrite.protocol.iceberg.head import TableVersion

SCHEMA = pa.schema({"id": pa.int64()})


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return SqlCatalog("local", uri=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path.as_uri())


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids(catalog: SqlCatalog) -> list[int]:
    return sorted(catalog.load_table("db.t").scan().to_arrow()["id"].to_pylist())


def tag(catalog: SqlCatalog, snapshot_id: int) -> None:
    catalog.load_table("db.t").manage_snapshots().create_tag(snapshot_id, "kept").commit()


def back_up(catalog: SqlCatalog, snapshot_id: int) -> None:
    """Make a branch of a snapshot, as before a risky change."""
    catalog.load_table("db.t").manage_snapshots().create_branch(snapshot_id, "kept").commit()


def back_up_and_go_on(catalog: SqlCatalog, snapshot_id: int) -> None:
    """As :func:`back_up`, and write to that branch."""
    back_up(catalog, snapshot_id)
    catalog.load_table("db.t").append(rows(99), branch="kept")


KEEPERS = pytest.mark.parametrize("keep", [tag, back_up, back_up_and_go_on])


def expire_all_but_the_newest(catalog: SqlCatalog) -> None:
    """As maintenance does once all are old; those that a tag names stay."""
    table = catalog.load_table("db.t")
    kept = {one.snapshot_id for one in table.metadata.refs.values()}
    old = [one.snapshot_id for one in table.snapshots() if one.snapshot_id not in kept]
    table.maintenance.expire_snapshots().by_ids(old).commit()


@pytest.mark.sweep("by a stream's batch", "back_up_and_go_on", "back_up-by a key")
@pytest.mark.parametrize(
    "named", [{"key": "k"}, {"txn": ("app", 7)}], ids=["by a key", "by a stream's batch"]
)
@KEEPERS
def test_a_write_in_a_kept_snapshot_is_not_written_again_after_expiry(
    catalog: SqlCatalog, named: dict[str, Any], keep: Callable[[SqlCatalog, int], None]
) -> None:
    table = sw.create("db.t", SCHEMA, catalog=catalog)
    table.append(rows(1), key="before")
    first = table.append(rows(2), **named)
    keep(catalog, first.version)
    for number in (3, 4, 5):
        table.append(rows(number), key=str(number))
    expire_all_but_the_newest(catalog)
    for writer in (table, sw.open("db.t", catalog=catalog)):
        again = writer.append(rows(2), **named)
        assert (again.outcome, again.version) == ("already_committed", first.version)
    assert ids(catalog) == [1, 2, 3, 4, 5]
    with pytest.raises(sw.ReplayMismatchError):
        table.append(rows(9), **named)


@pytest.mark.sweep("back_up")
@KEEPERS
def test_a_position_in_a_kept_snapshot_stays_after_expiry(
    catalog: SqlCatalog, keep: Callable[[SqlCatalog, int], None]
) -> None:
    table = sw.create("db.t", SCHEMA, catalog=catalog)
    first = table.append(rows(1), positions={"topic": (None, 5)})
    keep(catalog, first.version)
    for number in (2, 3, 4):
        table.append(rows(number))
    expire_all_but_the_newest(catalog)
    assert sw.open("db.t", catalog=catalog).positions() == {"topic": 5}
    table.append(rows(5), positions={"topic": (5, 6)})
    assert table.positions() == {"topic": 6}


def test_changes_keep_their_own_tag_and_the_table_its_positions(catalog: SqlCatalog) -> None:
    """The tag of what is remembered stays where the last deletion was, while others compact and expire."""
    table = sw.create("db.t", pa.schema({"id": pa.int64(), "seq": pa.int64()}), catalog=catalog)
    how: dict[str, Any] = {"keys": ["id"], "sequence_by": ["seq"]}
    table.apply_changes([{"id": 1, "seq": 1}], positions={"topic": (None, 5)}, **how)
    for number in (2, 3, 4):
        table.apply_changes([{"id": number, "seq": 1}], **how)
    expire_all_but_the_newest(catalog)
    assert sw.open("db.t", catalog=catalog).positions() == {"topic": 5}


@pytest.mark.sweep("tag", "back_up")
@KEEPERS
def test_a_kept_snapshot_that_was_rolled_back_counts_as_long_as_the_branch_tells_so(
    catalog: SqlCatalog, keep: Callable[[SqlCatalog, int], None]
) -> None:
    table = sw.create("db.t", SCHEMA, catalog=catalog)
    first = table.append(rows(1), positions={"topic": (None, 5)})
    second = table.append(rows(2), txn=("app", 7), positions={"topic": (5, 6)})
    keep(catalog, second.version)
    catalog.load_table("db.t").manage_snapshots().rollback_to_snapshot(first.version).commit()
    table.append(rows(3), key="third")
    assert table.positions() == {"topic": 5}
    assert table.append(rows(2), txn=("app", 7)).outcome == "committed"
    assert ids(catalog) == [1, 2, 3]


def line(*snapshots: tuple[int, int | None, int], current: int | None, **more: Any) -> TableVersion:
    """Snapshots as (id, parent, sequence number)."""
    return TableVersion(
        "t", "l", current, {one: parent for one, parent, _ in snapshots}, {one: number for one, _, number in snapshots},
        {}, {}, **more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("head", "is_rolled_back"),
    [
        (line((1, None, 1), (2, 1, 2), current=2), False),
        (line((1, None, 1), (2, None, 2), current=1), True),
        (line((1, None, 1), (2, 1, 2), (3, 1, 3), current=3), True),
        (line((2, 1, 2), (5, 4, 5), current=5), False),
        (line((2, None, 2), (5, None, 5), current=5), False),  # PyIceberg takes away the id of a parent that expires
        (line((2, None, 4), (5, None, 3), (6, 5, 5), current=6), True),
        (line((1, None, 0), (2, 1, 0), (3, 1, 0), current=3), True),  # format version 1 has no sequence numbers
        (line((2, 1, 0), (5, 4, 0), current=5), False),
        (line((2, 1, 2), current=None), True),
        (line((5, 4, 5), current=5), False),
        (line((2, 1, 2), (3, 2, 3), (5, 4, 5), current=5), False),  # a branch was made of it, and went on by itself
        (line((2, 1, 2), (3, 1, 3), current=3), True),  # both follow one that expired: the branch left its line
        (line((2, 1, 0), (3, 1, 0), (4, 3, 0), current=4), True),
        (line((1, 0, 0), (2, 1, 0), (3, 1, 0), current=3), True),  # the branch is known back to where it left, no further
        (line((2, None, 0), (5, 4, 0), current=5), False),
    ],
)  # fmt: skip
def test_a_snapshot_was_rolled_back_if_the_branch_is_known_back_to_before_it(
    head: TableVersion, is_rolled_back: bool
) -> None:
    assert head.is_rolled_back(2) is is_rolled_back
