"""Iceberg: whatever is removed between two calls, and wherever a publisher dies, each key is decided and there once (T4-A3, T4-A4).

What must not be removed is named in docs/promise.md: here it is removed only while the snapshots that tell of keys are kept.
"""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.stateful.yard import SIDE, Branch, Ending, Thing, Yard

branches = st.sampled_from([SIDE, SIDE, "main"])
numbers = st.integers(0, 5)
endings = st.none() | st.tuples(st.sampled_from(Ending.__args__), st.integers(0, 9))  # type: ignore[attr-defined]
things = st.sampled_from([*Thing.__args__, "snapshots", "snapshots", "snapshots"])  # type: ignore[attr-defined]


class BranchJanitor(RuleBasedStateMachine):
    """Each rule is one call, or a removal between two; the yard looks at both branches after it."""

    def __init__(self) -> None:
        super().__init__()
        self.yard = Yard()

    @rule(branch=branches, number=numbers, ends=endings)
    def append(self, branch: Branch, number: int, ends: tuple[Ending, int] | None) -> None:
        self.yard.append(branch, number, ends)

    @rule(ends=endings)
    def publish(self, ends: tuple[Ending, int] | None) -> None:
        self.yard.publish(ends)

    @rule(ends=endings, forgets=st.booleans())
    def publish_in_vain(self, ends: tuple[Ending, int] | None, forgets: bool) -> None:
        """A publisher dies, or main is faster; then the branch is begun again, as the docs say, and what the publisher saw expires."""
        self.yard.append(SIDE, len(self.yard.keys))
        self.yard.publish(ends)
        self.yard.make_again()
        if forgets:
            self.yard.append("main", len(self.yard.keys))
            self.yard.remove("snapshots")

    @rule()
    def make_again(self) -> None:
        self.yard.make_again()

    @rule(thing=things)
    def remove(self, thing: Thing) -> None:
        self.yard.remove(thing)

    def teardown(self) -> None:
        try:
            self.yard.decide_all()
        finally:
            self.yard.close()


TestBranchJanitor = BranchJanitor.TestCase
TestBranchJanitor.settings = settings(
    deadline=None,
    max_examples=1,
    stateful_step_count=10,
    derandomize=True,
    print_blob=True,
    phases=(Phase.explicit, Phase.generate),
)


@pytest.mark.long
class TestManyBranchRemovals(BranchJanitor.TestCase):
    """Many more of them."""

    settings = settings(deadline=None, max_examples=400, stateful_step_count=14)


@pytest.mark.sweep("before-4", "after-3", "rival-2", "rival-4", "after-4", "rival-3")
@pytest.mark.parametrize(
    ("how", "at"),
    [("before", 3), ("before", 4), ("after", 3), ("after", 4), ("rival", 2), ("rival", 3), ("rival", 4)],
)
def test_t4_a4_each_key_is_decided_wherever_a_publisher_ended(how: Ending, at: int) -> None:
    """Killed before its commit or after it, or another write of main came between: by main's line, once what it saw has expired."""
    yard = Yard()
    try:
        yard.append(SIDE, 1)
        yard.publish((how, at))
        published = 1 in yard.there["main"]
        yard.make_again()
        yard.append("main", len(yard.keys))
        yard.remove("snapshots")
        assert yard.append(SIDE, 1) == ("already_committed" if published else "committed")
        yard.decide_all()
    finally:
        yard.close()
