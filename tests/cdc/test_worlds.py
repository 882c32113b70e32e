"""Random worlds end as their sources are, whatever is between (``tests.cdc.worlds``)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cdc.worlds import ODD, World, faults_of

_SHORT, _MANY = 2, 40


@pytest.mark.sweep("0")
@pytest.mark.parametrize(
    "seed", [*range(_SHORT), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(_SHORT, _MANY))]
)
def test_the_lake_is_as_its_sources(tmp_path: Path, seed: int) -> None:
    assert faults_of(seed, tmp_path) == []


@pytest.mark.long
def test_the_seeds_have_each_format_and_each_odd_name(tmp_path: Path) -> None:
    worlds = []
    for seed in range(_MANY):
        folder = tmp_path / str(seed)
        folder.mkdir()
        worlds.append(World(seed, folder))
    assert {one.form for one in worlds[:_SHORT]} == {"delta", "iceberg"}
    assert {one.sources["odd"].name for one in worlds} == set(ODD)
