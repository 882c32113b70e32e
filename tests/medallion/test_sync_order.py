"""Rows of a bronze of others that nothing orders stop no table: silver keeps the first, the others go to quarantine (T3-C8)."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from safewrite.medallion import Pipeline
from tests.medallion.test_sync import FORMATS, NAME, Bronze, row


@pytest.fixture
def bronze(tmp_path: Path) -> Bronze:
    return Bronze(tmp_path, "delta")


def clean(bronze: Bronze) -> bool:
    audit = bronze.audit()
    assert (audit.flaws, audit.error, audit.behind, audit.late) == ([], None, 0, 0)
    return True


@pytest.fixture(params=FORMATS)
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Bronze:
    made = Bronze(tmp_path, request.param)
    made.where["aside"] = made.config["quarantine"]
    return made


@pytest.mark.sweep("iceberg")
def test_what_silver_has_stays_and_the_other_goes_to_quarantine_once(either: Bronze) -> None:
    either.write(row(1, 10, 0, "1.00"), row(2, 10, 0))
    either.run()
    either.write(row(1, 10, 5, "2.00"), row(1, 10, 6, "1.00"), row(3, 11, 6))
    done = either.run().refined
    assert (done.quarantined, done.late) == (1, 0)
    assert either.silver() == {1: ("1.00", 10), 2: ("1.00", 10), 3: ("1.00", 11)}
    (one,) = either.read("aside")
    assert ("lsn" in one["reason"], "price=Decimal('2.00')" in one["text"]) == (True, True)
    assert clean(either)
    either.write(row(4, 12, 7))
    assert either.run().refined.quarantined == 0  # it comes again through the overlap
    assert Pipeline(either.config).replay([NAME]).ok
    assert either.silver()[1] == ("1.00", 10)
    assert (len(either.read("aside")), clean(either)) == (1, True)


@pytest.mark.sweep("iceberg")
def test_of_one_batch_the_first_by_time_counts(either: Bronze) -> None:
    either.write(row(1, 10, 6, "6.00"), row(1, 10, 5, "5.00"), row(1, 10, 7, "5.00"), row(2, 11, 6))
    assert either.run().refined.quarantined == 1
    assert either.silver() == {1: ("5.00", 10), 2: ("1.00", 11)}
    assert clean(either)
    assert Pipeline(either.config).reset([NAME]).ok
    assert either.silver() == {1: ("5.00", 10), 2: ("1.00", 11)}
    assert (len(either.read("aside")), clean(either)) == (1, True)


@pytest.mark.sweep("iceberg")
def test_of_one_batch_and_one_time_neither_counts_until_a_later_change(either: Bronze) -> None:
    either.write(row(1, 9, 0, "0.90"))
    either.run()
    either.write(
        row(1, 10, 5, "5.00"), row(1, 10, 5, "6.00"), row(2, 11, 5), row(2, 11, 5, op="D"), row(3, 12, 5)
    )
    assert either.run().refined.quarantined == 4
    assert either.silver() == {1: ("0.90", 9), 3: ("1.00", 12)}
    assert clean(either)
    either.write(row(1, 13, 6, "7.00"), row(2, 14, 1000))  # the others are behind the overlap now
    assert either.run().refined.late == 0
    assert either.silver() == {1: ("7.00", 13), 2: ("1.00", 14), 3: ("1.00", 12)}
    assert (len(either.read("aside")), clean(either)) == (4, True)


@pytest.mark.long
def test_a_deletion_that_silver_took_stays_though_bronze_lost_it(bronze: Bronze) -> None:
    bronze.where["aside"] = bronze.config["quarantine"]
    bronze.write(row(1, 9, 0), row(1, 10, 1, op="D"), row(2, 10, 1), row(3, 10, 1))
    bronze.run()
    bronze.write(row(2, 10, 1), row(3, 10, 2, op="D"), row(1, 10, 5, "2.00"), mode="overwrite")
    assert bronze.run().refined.quarantined == 2
    assert bronze.silver() == {2: ("1.00", 10), 3: ("1.00", 10)}
    bronze.write(row(4, 20, 9))
    assert bronze.run().refined.quarantined == 0
    assert clean(bronze)


def test_rows_behind_a_later_one_of_their_key_are_no_matter(bronze: Bronze) -> None:
    bronze.where["aside"] = bronze.config["quarantine"]
    bronze.write(row(1, 10, 5, "5.00"), row(1, 10, 5, "6.00"), row(1, 11, 5, "7.00"))
    assert bronze.run().refined.quarantined == 0
    assert (bronze.silver(), clean(bronze)) == ({1: ("7.00", 11)}, True)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, pytest.param(range(2, 22), marks=pytest.mark.long)])
def test_whatever_ties_no_table_stops_and_verify_adds_up(seed: int | range, tmp_path: Path) -> None:
    """Few keys, few sequences, few values: ties in a batch, across batches, with deletions, between trims of bronze."""
    for one in [seed] if isinstance(seed, int) else seed:
        folder = tmp_path / str(one)
        folder.mkdir()
        _story(one, Bronze(folder, FORMATS[one % 5 == 0], late="take", overlap_s=1000))


def _story(seed: int, bronze: Bronze) -> None:
    chance = random.Random(seed)
    bronze.where["aside"] = bronze.config["quarantine"]
    sequence = 10
    live: list[dict[str, Any]] = []
    ever: list[dict[str, Any]] = []
    for step in range(10):
        sequence += chance.random() < 0.6
        new = [
            row(chance.randint(1, 4), sequence - (chance.random() < 0.2), step + chance.choice((0, 0.5)),
                chance.choice(("1.00", "2.00")), chance.choice("UUUD"))
            for _ in range(chance.randint(1, 4))
        ]  # fmt: skip
        if live and chance.random() < 0.2:
            live = [one for one in live if one["change"] == "D" or chance.random() < 0.7]
            bronze.write(*live, *new, mode="overwrite")
        else:
            bronze.write(*new)
        live += new
        ever += new
        bronze.run()
        audit = bronze.audit()
        assert (audit.error, audit.behind) == (None, 0), (seed, step)
        newest = {
            key: max(one["lsn"] for one in live if one["id"] == key) for key in {one["id"] for one in live}
        }
        for key, (price, lsn) in bronze.silver().items():
            assert price in {str(one["price"]) for one in ever if (one["id"], one["lsn"]) == (key, lsn)}, (
                seed,
                step,
            )
            if lsn < newest.get(key, lsn):  # told: what is newer than silver's row is in quarantine
                assert any(f"id={key}, lsn={newest[key]}" in one["tag"] for one in bronze.read("aside"))
