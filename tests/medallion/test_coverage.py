"""Counting the rows of a bronze by time, and finding those that silver does not account for."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from safewrite.medallion.config.watermark import Sync
from safewrite.medallion.lineage.external_table import Foreign
from safewrite.medallion.silver.coverage import ABSENT, Digest, Surveyor

SECOND_US = 1_000_000
SYNC = Sync(time="below", overlap_s=0, sequence=["zone"], op="gone")
"""Columns whose names SQL of ours might use itself."""


class Held(Foreign):
    """A table in memory."""

    def __init__(self, rows: Sequence[tuple[Any, ...]]) -> None:
        super().__init__("memory")
        kinds = {"place": pa.string(), "zone": pa.int64(), "below": pa.timestamp("us"), "gone": pa.string()}
        start = dt.datetime(1970, 1, 1)  # noqa: DTZ001
        told = [
            dict(
                zip(
                    kinds,
                    (key, seq, None if at is None else start + dt.timedelta(seconds=at), op),
                    strict=True,
                )
            )
            for key, seq, at, op in rows
        ]
        self.rows = pa.Table.from_pylist(told, pa.schema(list(kinds.items())))

    head = 0
    schema = property(lambda self: self.rows.schema)  # type: ignore[assignment]

    def look(self) -> None: ...

    def mark(self) -> str | None:
        return None

    def batches(
        self, columns: Sequence[str], *, time: str | None = None, since_us: int = 0
    ) -> pa.RecordBatchReader:
        return self.rows.select(list(columns)).to_reader()


def surveyor(*rows: tuple[Any, ...]) -> Surveyor:
    return Surveyor(Held(rows), SYNC, ["place"])


def test_rows_are_counted_by_zone_and_a_row_without_time_is_below_all() -> None:
    of = surveyor(
        ("a", 1, 0, "I"), ("b", 2, 9.999999, "I"), ("c", 3, 10, "I"), ("d", 4, 20, "I"), ("e", 5, None, "I")
    )
    assert of.newest_us() == 20 * SECOND_US
    found = of.survey(10 * SECOND_US, 20 * SECOND_US)
    assert (found.below.rows, found.between.rows, found.above.rows, found.untimed) == (3, 1, 1, 1)
    assert of.survey(0, 0).above.plus(of.survey(0, 0).below) == found.below.plus(found.between).plus(
        found.above
    )


@pytest.mark.sweep("other3", "other4")
@pytest.mark.parametrize(
    "other", [("b", 2, 0, "I"), ("a", 3, 0, "I"), ("a", 2, 1, "I"), ("a", 2, 0, "D"), ("a", 2, None, "I")]
)
def test_a_row_of_another_key_sequence_time_or_operation_has_another_digest(other: tuple[Any, ...]) -> None:
    one = surveyor(("a", 2, 0, "I")).survey(10, 10).below
    assert one == surveyor(("a", 2, 0, "I")).survey(10, 10).below
    assert one != surveyor(other).survey(10, 10).below
    assert one.plus(Digest()) == one


def test_an_empty_bronze_has_no_newest_time() -> None:
    assert surveyor().newest_us() is None
    assert surveyor().survey(0, 0).below == Digest()


BRONZE = (
    ("known", 5, 0, "I"), ("older", 4, 0, "U"), ("newer", 6, 0, "U"), ("new", 1, 0, "I"), ("timeless", 1, None, "I"),
    ("above", 9, 10, "I"), ("deleted", 1, 0, "I"), ("deleted", 2, 11, "D"), ("again", 2, 0, "D"), ("again", 3, 0, "I"),
    ("gone", 7, 0, "D"), ("unplaced", None, 0, "U"), (None, 8, 0, "I"), ("stays", 8, 0, "D"), ("first", 1, 0, "U"),
)  # fmt: skip


def test_what_silver_does_not_account_for_is_found() -> None:
    silver = Held(
        [
            ("known", 5, 0, ""),
            ("older", 5, 0, ""),
            ("newer", 5, 0, ""),
            ("stays", 7, 0, ""),
            ("first", None, 0, ""),
        ]
    )
    found = surveyor(*BRONZE).unaccounted(silver, 10 * SECOND_US, ["place", "zone", "gone"]).to_pylist()
    told = {(one["place"], one["zone"]): one[ABSENT] for one in found}
    assert len(told) == len(found)
    assert told == {
        ("newer", 6): False, ("new", 1): True, ("timeless", 1): True, ("again", 2): True, ("again", 3): True, ("gone", 7): True,
        ("unplaced", None): False, (None, 8): True, ("stays", 8): False, ("first", 1): False,
    }  # fmt: skip
