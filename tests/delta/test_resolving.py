"""``resolve`` does not say that a write is not there where nobody can see it any more (E4)."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest

import safewrite as sw


@pytest.fixture
def table(tmp_path: Path) -> sw.Table:
    """Five keyed appends, a checkpoint and one more; every key as its writer left it that died before it told the ledger."""
    table = sw.open(tmp_path / "t", create=True)
    for number in range(5):
        table.append(pa.table({"id": [number]}), key=f"k{number}")
    table.checkpoint()  # type: ignore[attr-defined]
    table.append(pa.table({"id": [5]}), key="k5")
    with sqlite3.connect(tmp_path / "t" / "_safewrite" / "ledger.sqlite") as ledger:
        ledger.execute("UPDATE ledger SET version = NULL")
    return table


def clean_up(path: Path, *versions: int) -> None:
    for version in versions:
        (path / "_delta_log" / f"{version:020d}.json").unlink()


def test_a_key_whose_commit_may_be_among_those_that_are_gone_is_unknown(
    table: sw.Table, tmp_path: Path
) -> None:
    clean_up(tmp_path / "t", 0, 1, 2)
    for key in ("k0", "k1", "k2"):
        with pytest.raises(sw.CommitUnknownError, match=r"Nothing was written\. Look for the rows"):
            sw.open(tmp_path / "t").resolve(key)
    receipts = [sw.open(tmp_path / "t").resolve(f"k{number}") for number in (3, 4, 5)]
    assert [receipt and receipt.version for receipt in receipts] == [3, 4, 5]


def test_a_key_that_nobody_ever_wrote_under_is_not_there_whatever_is_gone(
    table: sw.Table, tmp_path: Path
) -> None:
    clean_up(tmp_path / "t", 0, 1, 2)
    assert sw.open(tmp_path / "t").resolve("never") is None


def test_a_key_whose_attempt_left_no_commit_is_not_there_where_none_is_gone(
    table: sw.Table, tmp_path: Path
) -> None:
    with sqlite3.connect(tmp_path / "t" / "_safewrite" / "ledger.sqlite") as ledger:
        ledger.execute("UPDATE ledger SET key = 'killed' WHERE key = 'k3'")
    clean_up(tmp_path / "t", 0, 1)
    assert sw.open(tmp_path / "t").resolve("killed") is None
