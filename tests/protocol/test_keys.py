"""What names a write: which keys and batches are accepted, and what is remembered of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from safewrite.errors import InvalidInputError, ReplayMismatchError, StorageError
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Backoff, Exists, Failed, LedgerCommit, Missing, Ok, Unknown
from safewrite.protocol.keys import Identity
from safewrite.protocol.values import LedgerRecord
from tests.protocol.scripts import script

LIMITS = Limits(asks=2)
RECORD = LedgerRecord("event", 4, "v1:1:ab")
UNIQUE = "01234567-89ab-cdef-0123-456789abcdef"


# --- names --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("key", ["k", "é" * 512, "x" * 1024, " k "])
def test_a_key_is_a_text_of_up_to_1024_bytes(key: str) -> None:
    assert keys.check(key) == key


@pytest.mark.parametrize("key", ["", " ", "x" * 1025, "é" * 513, "\ud800", None, 1, b"k"])
def test_other_keys_are_refused(key: object) -> None:
    with pytest.raises(InvalidInputError, match="idempotency key"):
        keys.check(key)


@pytest.mark.parametrize("version", [0, 1, 2**63 - 1, np.int64(7)])
def test_a_batch_is_an_app_id_with_a_number_of_63_bits(version: Any) -> None:
    assert keys.check_txn(("a", version)) == ("a", int(version))
    assert keys.check_txn(["x" * 1024, version]) == ("x" * 1024, int(version))


@pytest.mark.parametrize(
    "txn",
    [
        *(None, "a7", ("a",), ("a", 1, 2), (1, "a"), ("", 1), ("x" * 1025, 1), ("\ud800", 1)),
        *(("a", -1), ("a", 2**63), ("a", True), ("a", 1.0), ("a", "1"), ("a", None), {"a": 1, "b": 2}),
    ],
)
def test_other_batches_are_refused(txn: object) -> None:
    with pytest.raises(InvalidInputError, match=r"txn is \(app_id, version\)"):
        keys.check_txn(txn)


def test_app_ids_that_a_table_keeps_for_itself_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="safewrite's own"):
        keys.check_txn(("safewrite:version:a", 1))


def test_a_write_is_known_by_its_batch_or_its_key_or_a_drawn_one() -> None:
    assert [one.is_given for one in (Identity(), Identity("k"), Identity(txn=("a", 1)))] == [
        False,
        True,
        True,
    ]
    assert Identity("k").key_for(lambda: "drawn", 3) == "k"
    assert Identity(txn=("a", 1)).key_for(lambda: "drawn", 3) == "a/1"
    assert Identity().key_for(lambda: UNIQUE, 3) == f"sw~4~{UNIQUE}"
    with pytest.raises(InvalidInputError):
        Identity(" ").key_for(lambda: "drawn", 3)


@pytest.mark.parametrize("base", [-1, 0, 41])
def test_a_drawn_key_carries_its_base_version(base: int) -> None:
    assert keys.base_of_generated(keys.generated(UNIQUE, base)) == base


@pytest.mark.parametrize("key", ["event", "sw~x~y", f"sw~1~{UNIQUE}0", f"a sw~1~{UNIQUE}"])
def test_a_key_of_ones_own_has_no_base_version(key: str) -> None:
    assert keys.base_of_generated(key) is None


# --- the ledger ---------------------------------------------------------------------------------------
def test_an_intent_is_ours_where_none_was() -> None:
    assert script(Ok()).run(keys.intend(RECORD, LIMITS)) == (RECORD, True)


def test_an_intent_of_before_is_the_one_in_force() -> None:
    before = replace(RECORD, base_version=1)
    assert script(Exists(), Ok(before)).run(keys.intend(RECORD, LIMITS)) == (before, False)


def test_an_intent_whose_answer_was_lost_is_put_again_where_none_is_known() -> None:
    asked = script(Unknown(), Missing(), Ok(), Ok())
    assert asked.run(keys.intend(RECORD, LIMITS)) == (RECORD, True)
    assert asked.names == ["ledger.intend", "ledger.get", "ledger.intend.backoff", "ledger.intend"]


def test_an_intent_is_refused_for_good_at_once() -> None:
    with pytest.raises(StorageError, match="forbidden"):
        script(Failed("forbidden")).run(keys.intend(RECORD, LIMITS))


def test_an_intent_is_put_as_often_as_is_asked_and_no_longer() -> None:
    asked = script(Unknown(), Missing(), Ok(), Unknown("cut"), Missing())
    with pytest.raises(StorageError, match="cut"):
        asked.run(keys.intend(RECORD, LIMITS))
    assert [effect.attempt for effect in asked.asked if isinstance(effect, Backoff)] == [1]


def test_what_a_ledger_holds_is_asked_for_until_it_answers() -> None:
    assert script(Ok(RECORD)).run(keys.recall("event", LIMITS)) == RECORD
    assert script(Unknown(), Ok(), Missing()).run(keys.recall("event", LIMITS)) is None
    with pytest.raises(StorageError, match="forbidden"):
        script(Failed("forbidden")).run(keys.recall("event", LIMITS))


def test_what_was_committed_is_remembered_without_doubt() -> None:
    asked = script(Ok())
    asked.run(keys.remember(replace(RECORD, in_doubt_at=5), 6, LIMITS))
    assert asked.asked == [LedgerCommit(replace(RECORD, version=6), name="ledger.commit")]


def test_a_ledger_that_breaks_after_the_commit_cannot_unmake_it(caplog: pytest.LogCaptureFixture) -> None:
    steps = keys.remember(RECORD, 6, LIMITS)
    next(steps)
    with pytest.raises(StopIteration):
        steps.throw(RuntimeError("broken"))
    assert "after the commit of version 6" in caplog.text
    assert caplog.records[0].exc_info


def test_where_an_attempt_ended_in_doubt_is_noted() -> None:
    asked = script(Ok())
    asked.run(keys.doubt(RECORD, 5, LIMITS))
    assert asked.asked == [LedgerCommit(replace(RECORD, in_doubt_at=5), name="ledger.doubt")]


@pytest.mark.parametrize("note", [keys.doubt(RECORD, 5, LIMITS), keys.doubt_all([RECORD, RECORD], 5, LIMITS)])
def test_a_ledger_that_breaks_in_doubt_does_not_hide_the_doubt(
    note: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """What it raised would be taken for an error from before the commit: nothing was written."""
    next(note)
    with pytest.raises(StopIteration):
        note.throw(RuntimeError("broken"))
    assert "in doubt at version 5" in caplog.text


# --- repeats ------------------------------------------------------------------------------------------
ROWS, SPARK, OFFSETS = (f"{kind}:1:{'0' * 32}" for kind in ("v1", "spark1", "offsets1"))


@pytest.mark.parametrize(
    ("committed", "offered", "advice"),
    [
        (ROWS, ROWS.replace(":1:", ":2:"), "with other rows"),
        (OFFSETS, OFFSETS.replace(":1:", ":2:"), "with other offsets of the stream's sources"),
        ("", ROWS, "with other rows"),
        (ROWS, SPARK, "Spark hashes rows otherwise"),
        (SPARK, OFFSETS, "one is of the offsets"),
        (OFFSETS, ROWS, "one is of the offsets"),
    ],
)
def test_other_rows_under_a_key_are_refused_with_advice_that_fits(
    committed: str, offered: str, advice: str
) -> None:
    with pytest.raises(ReplayMismatchError, match=advice) as told:
        keys.must_match("event", committed, offered, 3)
    assert told.value.key == "event"
    keys.must_match("event", offered, offered, 3)


def test_what_to_do_depends_on_whether_only_the_condition_differs() -> None:
    """The rows of an overwrite and its condition are fingerprinted side by side: ``v1:rows:digest:condition``."""
    with pytest.raises(ReplayMismatchError, match=r"another condition .*give what was given the first time"):
        keys.must_match("event", "v1:1:ab:cc", "v1:1:ab:dd", 3)
    with pytest.raises(ReplayMismatchError, match=r"other rows .*name it in volatile="):
        keys.must_match("event", "v1:1:ab", "v1:1:ac", 3)


def test_a_key_whose_rows_cannot_be_compared_is_refused_by_name() -> None:
    error = keys.incomparable("event", 3)
    assert error.key == "event"
    assert "version 3" in str(error)
    assert "none of these were written" in str(error)


def test_a_key_comes_twice_in_one_call_only_with_the_same_rows() -> None:
    keys.must_match_in_call("event", "v1:1:ab", "v1:1:ab")
    with pytest.raises(ReplayMismatchError, match="comes twice in this call, with other rows") as refused:
        keys.must_match_in_call("event", "v1:1:ab", "v1:1:ac")
    assert refused.value.key == "event"
