"""What others do to a table under changes, and what is told of them afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.types import LongType

import safewrite as sw
from safewrite.protocol.effects import Effect, Get, Outcome
from safewrite.testing.steps import Stepwise
from tests.changes.test_decide import OTHER, K, down, up
from tests.changes.test_tables import HOW, SCHEMA, Lake, apply, lake

__all__ = ["lake"]


class Told(Stepwise):
    """Notes every step."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.effects: list[tuple[str, Effect]] = []

    def _step(self, step: str, effect: Effect) -> Outcome:
        self.effects.append((step, effect))
        return self.world.perform(effect)


def test_resolve_tells_what_became_of_the_changes_as_the_receipt_did(lake: Lake) -> None:
    """It told the ledger's number of changes as the number of rows."""
    receipt = apply(lake.open(), [up((1, 0)), down((2, 0), OTHER)], key="a")
    found = lake.open().resolve("a")
    assert (found.rows, found.changes) == (receipt.rows, receipt.changes) == (1, receipt.changes)


def test_what_is_remembered_fits_columns_that_were_widened_since(tmp_path: Path) -> None:
    """A StorageError of a few words of Arrow's came instead."""
    narrow = pa.schema([field.with_type(pa.int32()) if field.name in "ast" else field for field in SCHEMA])
    lake = Lake("iceberg", tmp_path)
    sw.create("db.narrow", narrow, catalog=lake._catalog)
    apply(sw.open("db.narrow", catalog=lake._catalog), [down((5, 0))])
    with lake._catalog.load_table("db.narrow").update_schema() as update:
        for name in "ast":
            update.update_column(name, LongType())
    table = sw.open("db.narrow", catalog=lake._catalog)
    assert apply(table, [up((2, 0)), up((2**40, 0), "new", OTHER)]).changes["late"] == 1


@pytest.mark.parametrize("setting", ["delta.appendOnly", "delta.enableChangeDataFeed"])
def test_a_table_that_takes_no_rewrites_is_refused_before_anything_is_uploaded(
    setting: str, tmp_path: Path
) -> None:
    lake = Lake("delta", tmp_path)
    apply(lake.open(), [up((1, 0))])
    deltalake.DeltaTable(lake.uri).alter.set_table_properties({setting: "true"})
    before = sorted(lake.folder.rglob("*.parquet"))
    with pytest.raises(sw.UnsupportedTableError, match=r"Nothing was (committed|written)"):
        apply(lake.open(), [up((2, 0), "q"), down((2, 0), OTHER)])
    assert sorted(lake.folder.rglob("*.parquet")) == before


def test_a_file_is_fetched_once_though_it_is_looked_through_and_rewritten(tmp_path: Path) -> None:
    lake = Lake("delta", tmp_path)
    apply(lake.open(), [up((1, 0)), up((1, 0), "stays", OTHER)])
    table = lake.open()
    told = table.world = Told(table.world)
    apply(table, [up((2, 0), "q")])
    fetched = [e.path for _, e in told.effects if isinstance(e, Get) and e.path.endswith(".parquet")]
    assert len([path for path in fetched if "_safewrite" not in path]) == 1
    assert lake.rows() == {K: "q", OTHER: "stays"}


@pytest.mark.parametrize("nothing", [[], pa.table({})], ids=["rows", "arrow"])
def test_a_batch_of_no_changes_is_one(lake: Lake, nothing: Any) -> None:
    receipt = lake.open().apply_changes(nothing, key="a", **HOW)
    assert (receipt.rows, receipt.changes["applied"], lake.rows()) == (0, 0, {})
