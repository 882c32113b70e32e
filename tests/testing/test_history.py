"""The ledger: rows that anybody can make again, and events that say no more than is known."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from safewrite.testing.history import (
    EventKind,
    HistoryFile,
    LedgerError,
    check_value,
    first_id,
    make_rows,
    pack_checks,
    read_events,
    read_writes,
    unpack_checks,
)


def test_the_same_seed_gives_the_same_rows_and_another_seed_others() -> None:
    assert make_rows(1, 2, 3, 50, key="k") == make_rows(1, 2, 3, 50, key="k")
    assert make_rows(1, 2, 3, 50, key="k") != make_rows(2, 2, 3, 50, key="k")


def test_ids_of_two_appends_never_overlap() -> None:
    ids = [row.id for writer in range(3) for seq in range(3) for row in make_rows(1, writer, seq, 100)]
    assert len(set(ids)) == len(ids)
    assert first_id(1, 0) > first_id(0, 99_999) + 9_999


def test_a_changed_value_of_any_column_changes_the_check_value() -> None:
    row = make_rows(1, 2, 3, 1, key="k")[0]
    values = row[:-1]
    assert check_value(values) == row.check
    changes = (row.id + 1, 9, 9, None, row.amount + 1, f"{row.text}x", None)
    for place, change in enumerate(changes):
        changed = (*values[:place], change, *values[place + 1 :])
        assert change == values[place] or check_value(changed) != row.check


def test_null_and_empty_and_the_word_none_are_three_texts() -> None:
    values = list(make_rows(1, 2, 3, 1)[0][:-1])
    checks = {check_value([*values[:5], text, values[6]]) for text in (None, "", "None")}
    assert len(checks) == 3


def test_rows_hold_nulls_and_null_days() -> None:
    rows = [row for seq in range(30) for row in make_rows(5, 1, seq, 40)]
    assert any(row.text is None for row in rows)
    assert any(row.day is None for row in rows)


def test_check_values_survive_the_ledger() -> None:
    checks = (0, -1, 2**63 - 1, -(2**63))
    assert unpack_checks(pack_checks(checks)) == checks


def history(tmp_path: Path) -> tuple[HistoryFile, Path]:
    path = tmp_path / "h.jsonl"
    return HistoryFile(path), path


def test_a_call_without_an_answer_is_unknown(tmp_path: Path) -> None:
    ledger, path = history(tmp_path)
    rows = make_rows(1, 1, 0, 3)
    ledger.invoke(rows, kind="k", attempt=0)
    (write,) = read_writes([path])
    assert (write.outcome, write.rows, tuple(write.ids)) == ("info", 3, tuple(row.id for row in rows))
    assert write.checks == tuple(row.check for row in rows)


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        (["ok"], "ok"),
        (["fail"], "fail"),
        (["info"], "info"),
        (["info", "ok"], "ok"),
        (["fail", "ok"], "ok"),
        # The first call may still have landed: a later "no" says nothing about it.
        (["info", "fail"], "info"),
        ([None, "fail"], "info"),
        ([None, "ok"], "ok"),
    ],
)
def test_an_outcome_claims_no_more_than_all_calls_together_say(
    tmp_path: Path, answers: list[str | None], outcome: str
) -> None:
    ledger, path = history(tmp_path)
    for attempt, answer in enumerate(answers):
        ledger.invoke(make_rows(1, 1, 0, 3), kind="k", attempt=attempt)
        if answer:
            ledger.record(EventKind(answer), writer=1, seq=0)
    (write,) = read_writes([path])
    assert (write.outcome, write.calls) == (outcome, len(answers))


def test_a_retry_with_other_rows_makes_the_ledger_worthless(tmp_path: Path) -> None:
    ledger, path = history(tmp_path)
    ledger.invoke(make_rows(1, 1, 0, 3), kind="k", attempt=0)
    ledger.invoke(make_rows(2, 1, 0, 3), kind="k", attempt=1)
    with pytest.raises(LedgerError, match="other rows"):
        read_writes([path])


def test_an_answer_without_a_call_makes_the_ledger_worthless(tmp_path: Path) -> None:
    ledger, path = history(tmp_path)
    ledger.record(EventKind.OK, writer=1, seq=0)
    with pytest.raises(LedgerError, match="without a call"):
        read_writes([path])


def test_a_line_cut_at_the_end_of_the_file_is_left_out(tmp_path: Path) -> None:
    ledger, path = history(tmp_path)
    ledger.record(EventKind.START, writer=1)
    with path.open("ab") as file:
        file.write(json.dumps({"event": "ok"}).encode()[:-3])
    assert [event["event"] for event in read_events(path)] == ["start"]


def _record_and_die(path: Path) -> None:
    ledger = HistoryFile(path)
    ledger.invoke(make_rows(1, 1, 0, 2000), kind="k", attempt=0)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.long
def test_an_intent_survives_a_sigkill_right_after_it(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    process = multiprocessing.get_context("spawn").Process(target=_record_and_die, args=(path,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    (write,) = read_writes([path])
    assert (write.outcome, write.rows) == ("info", 2000)
