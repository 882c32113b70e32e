"""Random tables with options drawn together hold what their source says, by the driver and by executors alike (``option_worlds``)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cdc.option_worlds import COMPUTED, FILTERS, Options, wrong_of

_SHORT, _MANY = 5, 48


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.long) for seed in range(_MANY)])
def test_a_table_is_as_its_options_say(tmp_path: Path, seed: int) -> None:
    assert wrong_of(seed, tmp_path) == []


def test_a_small_table_is_as_its_options_say(tmp_path: Path) -> None:
    assert wrong_of(_SHORT, tmp_path, changes=8) == []


def test_the_seeds_have_each_option() -> None:
    every = [Options(seed) for seed in range(_MANY)]
    modes = {(one.form, one.mode) for one in every}
    assert modes == {
        (form, mode) for form in ("delta", "iceberg") for mode in ("upsert", "marked", "history", "append")
    }
    assert {one.filter for one in every} == {None, *FILTERS}
    assert {name for one in every for name in one.computed} == {*COMPUTED}
    for name in ("schemas", "is_there", "mapped", "left_out", "named", "tells", "parted", "marks_rows"):
        assert {getattr(one, name) for one in every} == {True, False}, name
    assert {str(one.on_misfit) for one in every} == {"dead-letter", "null", "{'w': 'null'}", "{'w': 'text'}"}
    assert {(one.form, one.widen) for one in every} >= {
        ("iceberg", True),
        ("iceberg", False),
        ("delta", None),
    }
