"""Any history of writers, faults and rivals keeps the promises (docs/promise.md)."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.stateful.calls import Call, Fault, FaultKind, Naming, Where
from tests.stateful.lake import Lake

WRITERS = 3

writers = st.integers(0, WRITERS - 1)
picks = st.integers(0, 7)
shapes = st.tuples(
    st.sampled_from(["a", "b", None, "c d=%/é"]),
    st.sampled_from(["x", "", None, "y\n"]),
    st.sampled_from([1.5, None, -0.0, 1e300, float("inf")]),
)
rows = st.lists(shapes, min_size=1, max_size=4).map(tuple)
kinds = st.sampled_from(FaultKind.__args__)
faults = st.lists(
    st.builds(Fault, st.integers(0, 19), kinds, st.sampled_from([1, 1, 1, 2, 3, 4])), max_size=2
)
faults = faults.map(tuple)
namings = st.sampled_from(Naming.__args__)
wheres = st.sampled_from(Where.__args__)
rivals = st.builds(
    Call,
    verb=st.sampled_from(
        ["append", "append", "merge", "overwrite", "resolve", "peer", "checkpoint", "maintain"]
    ),
    writer=writers,
    naming=namings,
    pick=picks,
    rows=rows,
    where=wheres,
    faults=faults,
)
some_rival = st.none() | rivals
common = {"writer": writers, "pick": picks, "rows": rows, "faults": faults, "rival": some_rival}


class Histories(RuleBasedStateMachine):
    """Each rule is one call; ``Lake.do`` checks every promise after it."""

    @initialize(arbiter=st.sampled_from(["dynamodb", "object-store"]))
    def open(self, arbiter: Literal["dynamodb", "object-store"]) -> None:
        self.lake = Lake(arbiter, writers=WRITERS)

    @rule(call=st.builds(Call, st.just("append"), naming=st.sampled_from(["key", "txn", "none"]), **common))
    def append(self, call: Call) -> None:
        self.lake.do(call)

    @rule(
        call=st.builds(Call, st.just("append"), naming=st.sampled_from(["same", "same", "other"]), **common)
    )
    def replay(self, call: Call) -> None:
        self.lake.do(call)

    @rule(writer=writers)
    def append_nothing(self, writer: int) -> None:
        self.lake.do(Call("append", writer))

    @rule(call=st.builds(Call, st.just("merge"), naming=namings, **common))
    def merge(self, call: Call) -> None:
        self.lake.do(call)

    @rule(call=st.builds(Call, st.just("overwrite"), naming=namings, where=wheres, **common))
    def overwrite(self, call: Call) -> None:
        self.lake.do(call)

    @rule(call=st.builds(Call, st.just("misfit"), **common))
    def append_what_does_not_fit(self, call: Call) -> None:
        self.lake.do(call)

    @rule(call=st.builds(Call, st.sampled_from(["resolve", "checkpoint"]), **common))
    def look_after(self, call: Call) -> None:
        self.lake.do(call)

    @rule(call=st.builds(Call, st.just("maintain"), **common))
    def put_together(self, call: Call) -> None:
        self.lake.do(call)

    @rule(
        call=st.builds(
            Call, st.sampled_from(["reopen", "expire", "peer"]), writer=writers, pick=picks, rows=rows
        )
    )
    def live_on(self, call: Call) -> None:
        self.lake.do(call)

    def teardown(self) -> None:
        if hasattr(self, "lake") and not self.lake.broken:
            with tempfile.TemporaryDirectory() as folder:
                self.lake.oracle.check_with_deltalake(Path(folder))


class TestHistories(Histories.TestCase):
    """A part of the profile's histories."""

    settings = settings(Histories.TestCase.settings, max_examples=max(5, settings().max_examples // 5))


@pytest.mark.long
class TestManyHistories(Histories.TestCase):
    """All of them."""
