"""The bench of updates of random keys, tiny: its tables add up, and its keys are what they are named; no time is judged."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.perf import update_tables, updates
from bench.perf.scale import TINY
from bench.perf.update_tables import NUMBER, UUID, Load


def test_keys_are_uuids_and_numbers_of_which_no_two_are_alike() -> None:
    ids = np.arange(3_000)
    texts = update_tables.keys_of(ids, UUID).to_pylist()
    assert all(str(uuid.UUID(text)) == text for text in texts[:100])
    assert len({*texts}) == len({*update_tables.keys_of(ids, NUMBER).to_pylist()}) == 3_000
    assert update_tables.keys_of(ids[7:9], UUID).to_pylist() == texts[7:9]


@pytest.mark.long
def test_both_tables_take_the_batches_and_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updates, "MODES", ("merge-on-read",))
    scenario = updates.run(replace(TINY, changes=50), tmp_path)
    assert not scenario.broken
    assert len(scenario.aims) == 4
    assert {line.arm for line in scenario.lines} == {"2,000 rows", "4,000 rows"}


def test_a_table_that_lost_rows_is_told(tmp_path: Path) -> None:
    load = Load(rows=100, files=2, changes=10, rounds=1, keys=NUMBER)
    update_tables.make_delta(load, str(tmp_path / "t"), vectors=False)
    assert update_tables.read_delta(tmp_path / "t")["rows"] == 100
    assert update_tables.wanted(load)["rows"] == 100
