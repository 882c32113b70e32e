"""Any history of writers, faults and rivals of an Iceberg table keeps the promises (docs/promise.md)."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.stateful.calls import Fault, FaultKind
from tests.stateful.warehouse import WRITERS, Verb, Warehouse

writers = st.integers(0, WRITERS - 1)
picks = st.integers(0, 3)
kinds = st.sampled_from(FaultKind.__args__)
faults = st.lists(st.builds(Fault, st.integers(0, 14), kinds, st.sampled_from([1, 1, 2, 3])), max_size=2).map(
    tuple
)
verbs: st.SearchStrategy[Verb] = st.sampled_from(["append", "append", "overwrite", "delete"])


class Histories(RuleBasedStateMachine):
    """Each rule is one step; the warehouse checks every promise after it."""

    def __init__(self) -> None:
        super().__init__()
        self.warehouse = Warehouse()

    @rule(writer=writers, verb=verbs, rows=st.integers(1, 3), faults=faults)
    def write(self, writer: int, verb: Verb, rows: int, faults: tuple[Fault, ...]) -> None:
        self.warehouse.write(writer, verb, rows, faults)

    @rule(writer=writers, pick=picks, faults=faults)
    def replay(self, writer: int, pick: int, faults: tuple[Fault, ...]) -> None:
        self.warehouse.repeat(writer, pick, faults, other_rows=False)

    @rule(writer=writers, pick=picks)
    def replay_with_other_rows(self, writer: int, pick: int) -> None:
        self.warehouse.repeat(writer, pick, (), other_rows=True)

    @rule()
    def rival(self) -> None:
        self.warehouse.rival()

    @rule()
    def late_requests_arrive(self) -> None:
        self.warehouse.arrive()

    @rule()
    def expire(self) -> None:
        self.warehouse.expire()

    @rule()
    def add_a_column(self) -> None:
        self.warehouse.add_column()

    def teardown(self) -> None:
        self.warehouse.close()


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    deadline=None, max_examples=6, stateful_step_count=12, derandomize=True, print_blob=True
)
