"""Whatever people and lifecycle rules remove between two calls, no row is lost or doubled, and no repeat is committed again (T4-A3).

Kills and lost answers among the calls too: what a dead writer left is finished by the next one, whose ledger may be empty by then.
What must not be removed is named in docs/promise.md.
"""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.stateful.calls import Call
from tests.stateful.lake import Lake
from tests.stateful.test_machine import WRITERS, common, faults, wheres

A_MOMENT_S = 2.0
"""Longer than a writer relies on the ledger's mark that it has seen."""
Thing = Literal["ledger", "queue", "temp files", "_last_checkpoint", "checkpoints", "probe"]
INSIDE: dict[Thing, str] = {
    "queue": "_safewrite/queue/",
    "temp files": "_delta_log/.tmp/",
    "probe": "_safewrite/probe/",
    "_last_checkpoint": "_delta_log/_last_checkpoint",
}


def remove(lake: Lake, thing: Thing) -> int:
    """Remove a thing, as by hand, a moment before the next call; how much there was."""
    blobs, records = lake.objects.blobs, getattr(lake.world.ledger, "records", None)
    if thing == "ledger" and records is not None:
        gone, _ = len(records), records.clear()
    else:
        names = [name for name in blobs if _is_of(thing, name)]
        # A temp file is in use for as long as its commit is not finished.
        names = [] if thing == "temp files" and lake.locks is not None else names
        gone = len(names)
        for name in names:
            del blobs[name]
    lake.clock.sleep(A_MOMENT_S)
    return gone


def _is_of(thing: Thing, name: str) -> bool:
    if thing == "ledger":
        return name.startswith("_safewrite/ledger/")
    return ".checkpoint." in name if thing == "checkpoints" else name.startswith(INSIDE[thing])


class Janitor(RuleBasedStateMachine):
    """Each rule is one call, or a removal between two; ``Lake.do`` checks every promise after a call."""

    @initialize(arbiter=st.sampled_from(["dynamodb", "object-store"]))
    def open(self, arbiter: Literal["dynamodb", "object-store"]) -> None:
        self.lake = Lake(arbiter, writers=WRITERS)

    @rule(call=st.builds(Call, st.just("append"), naming=st.sampled_from(["key", "key", "txn"]), **common))
    def append(self, call: Call) -> None:
        self.lake.do(call)

    @rule(call=st.builds(Call, st.just("overwrite"), naming=st.just("key"), where=wheres, **common))
    def overwrite(self, call: Call) -> None:
        self.lake.do(call)

    @rule(
        thing=st.sampled_from(Thing.__args__),  # type: ignore[attr-defined]
        call=st.builds(Call, st.just("append"), naming=st.sampled_from(["same", "same", "other"]), **common),
    )
    def remove_and_replay(self, thing: Thing, call: Call) -> None:
        remove(self.lake, thing)
        self.lake.do(call)

    @rule(
        thing=st.sampled_from(Thing.__args__),  # type: ignore[attr-defined]
        call=st.builds(Call, st.sampled_from(["append", "overwrite"]), naming=st.just("key"), faults=faults, writer=common["writer"], rows=common["rows"]),
    )  # fmt: skip
    def remove_and_go_on(self, thing: Thing, call: Call) -> None:
        remove(self.lake, thing)
        self.lake.do(call)

    @rule(call=st.builds(Call, st.sampled_from(["resolve", "checkpoint", "reopen"]), **common))
    def look_after(self, call: Call) -> None:
        self.lake.do(call)


TestJanitor = Janitor.TestCase
TestJanitor.settings = settings(
    deadline=None,
    max_examples=12,
    stateful_step_count=12,
    derandomize=True,
    print_blob=True,
    phases=(Phase.explicit, Phase.generate),
)


@pytest.mark.long
class TestManyRemovals(Janitor.TestCase):
    """Many more of them."""

    settings = settings(deadline=None, max_examples=1500, stateful_step_count=16)


@pytest.mark.parametrize("arbiter", ["dynamodb", "object-store"])
def test_a_repeat_after_the_ledger_was_emptied_is_a_repeat(arbiter: Any) -> None:
    """T4-A3: the redelivery was committed again, while ``resolve`` of the same key found the first commit."""
    lake = Lake(arbiter)
    rows = (("a", "x", 1.5),)
    for verb in ("append", "append", "overwrite"):
        assert lake.do(Call(verb, 0, "key", rows=rows)) == "committed"
    assert remove(lake, "ledger") > 3
    for pick in range(3):
        for writer in (0, 1):
            assert lake.do(Call("append", writer, "same", pick, rows=rows)) == "already_committed"
    assert lake.do(Call("append", 0, "other", rows=rows)) == "replay_mismatch"
