"""``resolve`` does not say that a write is not there where nobody can see it any more (E4)."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import deltalake
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


@pytest.mark.parametrize("verb", ["append", "append_many", "apply_changes"])
def test_what_outlives_a_lost_commit_does_not_tell_that_it_landed(tmp_path: Path, verb: str) -> None:
    """A17: the newest commit is gone; ``_last_checkpoint`` sorts behind every version, and so may a file of anybody."""
    path = tmp_path / "t"
    table = sw.open(path, create=True)
    table.append(pa.table({"id": [0], "s": [0]}), key="first")
    table.checkpoint()  # type: ignore[attr-defined]

    def write(of: sw.Table) -> str:
        rows = pa.table({"id": [1], "s": [1]})
        if verb == "append_many":
            (done,) = of.append_many([("k", rows)])
            assert not isinstance(done, Exception)
            return done.outcome
        if verb == "append":
            return of.append(rows, key="k").outcome
        return of.apply_changes(rows, keys=["id"], sequence_by=["s"], key="k").outcome

    assert write(sw.open(path)) == "committed"
    (path / "_delta_log" / "_notes").touch()
    clean_up(path, sw.open(path).history(limit=1)[0].version)
    assert sw.open(path).resolve("k") is None
    assert write(sw.open(path)) == "committed"
    assert sw.open(path).rows({"id": [1]}).num_rows == 1


def test_a_checkpoint_of_its_own_version_tells_that_a_commit_landed(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = sw.open(path, create=True)
    receipt = table.append(pa.table({"id": [0]}), key="k")
    table.checkpoint()  # type: ignore[attr-defined]
    clean_up(path, *range(receipt.version + 1))
    assert sw.open(path).append(pa.table({"id": [0]}), key="k").outcome == "already_committed"


def test_only_a_ledger_that_lost_keys_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The first write with a key to a table of another engine said that its ledger is not whole."""
    deltalake.write_deltalake(tmp_path / "t", pa.table({"id": [0]}))
    table = sw.open(tmp_path / "t")
    table.append(pa.table({"id": [1]}), key="a")
    assert not [one.message for one in caplog.records if one.levelname == "WARNING"]
    (tmp_path / "t" / "_safewrite" / "ledger.sqlite").unlink()
    assert sw.open(tmp_path / "t").append(pa.table({"id": [1]}), key="a").outcome == "already_committed"
    told = [one.message for one in caplog.records if one.levelname == "WARNING"]
    assert told == ["the ledger of keys was not whole; keys that were put back: 1, from commits: 2"]
