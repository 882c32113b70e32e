"""A branch is begun, written to and published on real catalogs whose answers are lost: each step is once, and known to be."""

from __future__ import annotations

import pytest

import safewrite as sw
from safewrite.testing.faults import FaultKind, RequestStep, Rule
from tests.iceberg.places import KINDS, Place
from tests.integration.places import rows
from tests.servers import CatalogLab

LOST = Rule(kind=FaultKind.LOST_ANSWER, steps=(RequestStep.CATALOG_COMMIT,), every=1)
FORGOTTEN = Rule(kind=FaultKind.CUT, steps=(RequestStep.CATALOG_COMMIT,), every=2)


def on(place: Place, branch: str) -> list[int]:
    scan = place.plain().scan(selected_fields=("id",)).use_ref(branch)
    return sorted(scan.to_arrow()["id"].to_pylist())


@pytest.mark.sweep("rest", "glue")
@pytest.mark.parametrize("lab", KINDS, indirect=True)
def test_each_step_of_write_audit_publish_is_once_where_answers_of_the_catalog_are_lost(
    lab: CatalogLab, place: Place
) -> None:
    main = place.create(0)
    place.through(lab).open()  # asks once whether the catalog compares, which no answer may be missing from
    for rule, name, first in ((LOST, "lost", 1), (FORGOTTEN, "cut", 3)):
        before = on(place, "main")
        lab.commits.plan(rule)
        fired = lab.commits.fired()
        audit = place.through(lab).open(branch=name)
        for number in (first, first + 1):
            assert audit.append(rows(number), key=f"event-{number}").outcome == "committed"
        assert on(place, "main") == before
        assert on(place, name) == [*before, first, first + 1]
        done = audit.fast_forward()
        lab.commits.clear()
        assert lab.commits.fired() > fired
        assert done.version == audit.version
        assert audit.fast_forward().outcome == "already_committed"
        assert on(place, "main") == on(place, name) == [*before, first, first + 1]
        assert main.refresh().append(rows(first), key=f"event-{first}").outcome == "already_committed"
    audit.append(rows(8))
    main.append(rows(9))
    with pytest.raises(sw.ConflictError, match="others wrote to the main branch"):
        audit.refresh().fast_forward()
    assert on(place, "main") == [0, 1, 2, 3, 4, 9]
