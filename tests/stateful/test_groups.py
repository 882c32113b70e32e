"""Any grouping and regrouping of events, under faults and among rivals, leaves each event in the table once."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.stateful.calls import Fault, FaultKind
from tests.stateful.station import WRITERS, Content, Delivery, Place, Station

EVENTS = 10
ANSWERS = {"committed", "already_committed", "replay_mismatch", "would_alter"}
contents: st.SearchStrategy[Content] = st.sampled_from(
    ["own", "own", "own", "own", "other", "misfit", "wider"]
)
deliveries = st.builds(Delivery, st.integers(0, EVENTS - 1), contents)
groups = st.lists(deliveries, min_size=1, max_size=6).map(tuple)
writers = st.integers(0, WRITERS - 1)
kinds = st.sampled_from(FaultKind.__args__)
faults = st.lists(st.builds(Fault, st.integers(0, 25), kinds, st.sampled_from([1, 1, 2, 6])), max_size=2).map(
    tuple
)


class Groups(RuleBasedStateMachine):
    """Each rule is one step; the station checks every event after it."""

    place: ClassVar[Place]
    told: ClassVar[Counter[str]]

    def __init__(self) -> None:
        super().__init__()
        self.station = Station(self.place)

    @rule(writer=writers, group=groups, faults=faults, rival=groups)
    def deliver(
        self,
        writer: int,
        group: tuple[Delivery, ...],
        faults: tuple[Fault, ...],
        rival: tuple[Delivery, ...],
    ) -> None:
        self.station.do(writer, group, faults, rival)

    @rule(writer=writers, event=st.integers(0, EVENTS - 1).filter(lambda number: number % 5 != 4))
    def deliver_alone(self, writer: int, event: int) -> None:
        self.station.do(writer, (Delivery(event),), alone=True)

    @rule()
    def late_requests_arrive(self) -> None:
        self.station.arrive()

    def teardown(self) -> None:
        try:
            self.station.deliver_all(EVENTS)
        finally:
            self.told.update(self.station.told)
            self.station.close()


@pytest.mark.sweep("object-store-25", "sql-6")
@pytest.mark.parametrize(("place", "examples"), [("dynamodb", 25), ("object-store", 25), ("sql", 6)])
def test_each_event_is_in_the_table_once_whatever_group_it_comes_in(place: Place, examples: int) -> None:
    machine = type(f"Groups_{place}", (Groups,), {"place": place, "told": Counter()})
    run_state_machine_as_test(
        machine,
        settings=settings(
            deadline=None,
            max_examples=examples,
            stateful_step_count=12,
            derandomize=True,
            print_blob=True,
            # To shrink a failing history of a catalog in files takes longer than all of CI.
            phases=(Phase.explicit, Phase.generate) if place == "sql" else tuple(Phase),
        ),
    )
    assert not ANSWERS - set(machine.told), "some kind of answer never came"


@pytest.mark.long
@pytest.mark.parametrize("kind", ["lost", "late"])
@pytest.mark.parametrize("place", ["dynamodb", "object-store", "sql"])
def test_a_group_whose_answers_stop_coming_is_decided_by_the_next_delivery(
    place: Place, kind: FaultKind
) -> None:
    told: Counter[str] = Counter()
    for at in range(0, 24, 1 if place != "sql" else 4):
        station = Station(place)
        station.do(0, tuple(Delivery(event) for event in range(4)))
        station.do(1, tuple(Delivery(event) for event in (3, 4, 5, 6)), (Fault(at, kind, 99),))
        station.do(0, tuple(Delivery(event) for event in (6, 7, 5)))
        station.deliver_all(EVENTS)
        station.close()
        told += station.told
    assert told["commit_unknown"] or place == "sql"
    assert told["storage"] or place == "sql"
