"""Many processes append to one Iceberg table, with and without faults: nothing acked is lost, nothing is doubled."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from safewrite.testing.faults import FaultKind, RequestStep, Rule
from tests.iceberg.children import Crowd
from tests.iceberg.places import KINDS, Place
from tests.integration.children import Nursery
from tests.integration.places import visible
from tests.servers import CatalogLab

FEW, MANY = (6, 3), (16, 20)
"""How many processes there are, and appends of each, in the short form and in the long one."""
FAULTS = (
    Rule(kind=FaultKind.LOST_ANSWER, steps=(RequestStep.CATALOG_COMMIT,), probability=0.15),
    Rule(kind=FaultKind.PRECONDITION_412, steps=(RequestStep.CATALOG_COMMIT,), probability=0.1),
    Rule(
        kind=FaultKind.ERROR_503,
        steps=(RequestStep.CATALOG_COMMIT, RequestStep.CATALOG_LOAD),
        probability=0.05,
    ),
    Rule(kind=FaultKind.LOST_ANSWER, steps=(RequestStep.PUT_LEDGER, RequestStep.LEASE), probability=0.1),
)


def outcomes(folder: Path) -> dict[int, str]:
    """What came of the append of each id."""
    lines = [line for file in folder.iterdir() for line in file.read_text().splitlines()]
    return dict(map(json.loads, lines))


# Without faults the short form is content with the catalog that has no queue, where contention is worst.
CASES = [
    ("sql", True, FEW),
    pytest.param("rest", False, FEW, marks=pytest.mark.long),
    *(pytest.param(kind, faulty, MANY, marks=pytest.mark.long) for kind in KINDS for faulty in (True, False)),
]


@pytest.mark.sweep("sql")
@pytest.mark.parametrize(("lab", "faulty", "size"), CASES, indirect=["lab"])
def test_of_many_processes_every_acked_row_is_there_once_and_no_refused_one(  # noqa: PLR0917 - fixtures, and a table
    nursery: Nursery, lab: CatalogLab, place: Place, tmp_path: Path, faulty: bool, size: tuple[int, int]
) -> None:
    processes, appends = size
    place.create(0)
    before = lab.commits.fired()
    if faulty:
        lab.commits.plan(*FAULTS, seed=7)
    writing = place.through(lab) if faulty else place
    assert not nursery.killed(Crowd(writing, processes, appends, tmp_path))
    lab.commits.clear()
    found = outcomes(tmp_path)
    assert len(found) == processes * appends
    assert (lab.commits.fired() > before) == faulty
    for number in [number for number, outcome in found.items() if outcome == "unknown"]:
        receipt = place.open().resolve(f"event-{number}")
        found[number] = "refused" if receipt is None else "acked"
    assert faulty or set(found.values()) == {"acked"}
    acked = [number for number, outcome in found.items() if outcome == "acked"]
    assert visible([place.ids(), place.listed_ids()]) == Counter([0, *acked])
    assert len(acked) > len(found) / 2
