"""SIGKILL before and after every effect of an Iceberg write, and SIGSTOP there while others go on (D1).

The points are listed by recording the write itself, so that no step can be forgotten.  The short form takes
those around the commit and one of each kind of step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import product

import pytest

from safewrite.testing.faults import FaultKind, RequestStep, Rule
from safewrite.testing.steps import PauseAt, Recorder, points
from tests.iceberg.children import MOVED, VERBS, Task, after, set_scene
from tests.iceberg.places import KINDS, Place, check
from tests.integration.children import Nursery
from tests.integration.places import rows
from tests.sampling import some, some_points
from tests.servers import CatalogLab

FIRST, LAST = 1, 60
"""Ids that are in the table from the beginning: one for each write that is disturbed, and some over."""
RIVALS = 3 * MOVED
SOME = ("stage.put_manifest_list:after", "swap.commit:before", "swap.commit:after", "swap.verify:after")
"""Points around the commit."""
NEVER_MISSING = {"swap.commit", "swap.verify", "stage.put_manifest_list"}
READS_LIST = {"stage.get_manifest_list", "replace.plan_files", "apply.plan_files"}
"""One of these reads the base's manifest list: a plan that looks for files keeps it for the commit."""


def recorded(place: Place, verb: str) -> list[str]:
    """The points of a write that nobody disturbs."""
    place.create(*range(FIRST, LAST + 1))
    table = place.open()
    set_scene(table)
    table.world = recorder = Recorder(table.world)
    VERBS[verb](table, LAST, key="recorded")
    found = points(recorder.steps)
    assert set(found) >= set(points(NEVER_MISSING)), found
    assert set(found) & set(points(READS_LIST)), found
    assert len(found) < LAST
    return found


def check_all(place: Place, verb: str, ids: list[int], *others: int) -> None:
    """The write of every id was done once; the other rows are as they were."""
    left = [row for number in (*ids, LAST) for row in after(verb, number)]
    check(place, *(number for number in range(FIRST, LAST) if number not in ids), *left, *others)
    assert sorted(place.history()) == sorted(
        [
            "before",
            "recorded",
            *(f"event-{number}" for number in ids),
            *(f"rival-{number}" for number in others),
        ]
    )


def kill_everywhere(nursery: Nursery, place: Place, verb: str, *, everywhere: bool) -> None:
    """Kill a writer at each point, ask whether it landed, and let a process that knows nothing do it again."""
    ids = []
    found = recorded(place, verb)
    few = dict.fromkeys([*SOME, *some_points(found, every=len(found))])
    for number, point in enumerate(found if everywhere else few, FIRST):
        naming = {"key": f"event-{number}"}
        assert nursery.killed(Task(place, verb, number, naming, point)), point
        decide(place, verb, number)
        ids.append(number)
    check_all(place, verb, ids)


def decide(place: Place, verb: str, number: int) -> None:
    """``resolve`` and a repeat agree on whether the write landed; afterwards it has."""
    key = f"event-{number}"
    found = place.open().resolve(key)
    assert (found is not None) == (key in place.history())
    receipt = VERBS[verb](place.open(), number, key=key)
    assert (receipt.outcome == "already_committed") == (found is not None)
    if found is not None:
        assert receipt.version == found.version
    resolved = place.open().resolve(key)
    assert resolved is not None
    assert resolved.version == receipt.version


EVERYWHERE = [False, pytest.param(True, marks=pytest.mark.long)]
WRITES = [
    pytest.param(
        *case, everywhere, marks=() if case == ("sql", "append") and not everywhere else pytest.mark.long
    )
    for everywhere in (False, True)
    for case in product(KINDS, VERBS)
]


@pytest.mark.parametrize(("lab", "verb", "everywhere"), WRITES, indirect=["lab"])
def test_a_writer_killed_at_any_step_is_once_or_not_at_all_and_resolve_tells(
    nursery: Nursery, place: Place, verb: str, everywhere: bool
) -> None:
    """C1: the table is readable, and the same key from a new process is once."""
    kill_everywhere(nursery, place, verb, everywhere=everywhere)


@pytest.mark.long
@pytest.mark.parametrize("everywhere", EVERYWHERE)
@pytest.mark.parametrize("lab", ["glue"], indirect=True)
def test_with_a_lock_table_a_killed_writer_is_once_or_not_at_all(
    nursery: Nursery, place: Place, lock_table: str, everywhere: bool
) -> None:
    kill_everywhere(nursery, place.locked(lock_table), "append", everywhere=everywhere)


INSIDE = [(kind, RequestStep.CATALOG_COMMIT) for kind in KINDS] + [
    ("glue", RequestStep.PUT_METADATA),
    ("sql", RequestStep.PUT_METADATA),
]
"""Requests of a commit; Iceberg's REST catalog writes the metadata file itself."""


SAMPLED_INSIDE = some([(*inside, side) for inside in INSIDE for side in ("before", "after")], every=2)


@pytest.mark.long
@pytest.mark.parametrize(("lab", "step", "side"), SAMPLED_INSIDE, indirect=["lab"])
def test_a_writer_killed_inside_the_catalogs_commit_is_once_or_not_at_all(
    nursery: Nursery, lab: CatalogLab, place: Place, step: RequestStep, side: str
) -> None:
    """Between the metadata file and the swap: the request is dropped, or held until the writer is dead."""
    place.create(FIRST)
    proxy = lab.commits if step is RequestStep.CATALOG_COMMIT else lab.proxy
    late = side == "after"
    kind = FaultKind.LATE if late else FaultKind.CUT
    before = proxy.fired()
    proxy.plan(Rule(kind=kind, steps=(step,), delay_s=0.3 if late else 0.0))
    naming = {"key": f"event-{FIRST}"}
    assert nursery.killed(
        Task(place.through(lab, {"glue.max-retries": 1}), "append", FIRST, naming, "swap.commit:after")
    )
    assert proxy.fired() > before
    proxy.clear()
    if late and step is RequestStep.CATALOG_COMMIT:
        wait_until(lambda: len(place.history()) == 2)
    decide(place, "append", FIRST)
    check(place, *after("append", FIRST))


def wait_until(true: Callable[[], bool]) -> None:
    """Wait for what must come; it is an error if it does not."""
    limit_s = time.monotonic() + 30
    while not true():
        assert time.monotonic() < limit_s, "what was to come did not come"
        time.sleep(0.05)


@pytest.mark.long
@pytest.mark.parametrize("everywhere", EVERYWHERE)
@pytest.mark.parametrize(("lab", "verb"), [*product(KINDS, VERBS)], indirect=["lab"])
def test_a_writer_stopped_at_any_step_while_others_commit_is_once(
    nursery: Nursery, place: Place, verb: str, everywhere: bool
) -> None:
    """D1: SIGSTOP, a rival appends, at every other point the same key is written by another too; SIGCONT."""
    ids, rivals = [], []
    found = recorded(place, verb)
    for number, point in enumerate(found if everywhere else SOME[::2], FIRST):
        key = f"event-{number}"
        with nursery.paused(Task(place, verb, number, {"key": key}, point, PauseAt)):
            place.open().append(rows(RIVALS + number), key=f"rival-{RIVALS + number}")
            if number % 2:
                VERBS[verb](place.open(), number, key=key)
        ids.append(number)
        rivals.append(RIVALS + number)
        assert VERBS[verb](place.open(), number, key=key).outcome == "already_committed"
    check_all(place, verb, ids, *rivals)
