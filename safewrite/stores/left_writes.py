"""Says of writes that wait to share a commit, and whose writers have left them behind, what they are and what became of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from safewrite.findings import WARNING, Finding, Findings, Step, Steps
from safewrite.protocol.ask import Limits, ask
from safewrite.protocol.effects import Delete, List, Ok
from safewrite.protocol.member_queue import CHANGES, Waiting, waiting
from safewrite.stores.world import Performer, run

LEFT_S = 60
"""A member that is so old, by the store's clock, was left behind: who waits gives up sooner, or looks again."""


OF_ANOTHER = "it is of a table that was there before"
"""The end of a member whose table was dropped since: the table in its place never commits it."""


@dataclass(frozen=True, slots=True)
class Left:
    """A member that was left behind; ``end`` says what the table makes of it, "" where it may still be committed."""

    member: Waiting
    age_s: float
    end: str


def left_in(
    folder: str, world: Performer, limits: Limits, at_ms: Callable[[], int]
) -> list[tuple[Waiting, float]]:
    """The members of a queue that no one seems to wait for, with their ages, the oldest first; none where it may not be listed."""
    answer = run(ask(List(folder, name="survey.list_queue"), limits), world)
    there = waiting(answer) if isinstance(answer, Ok) else []
    now_ms = at_ms() if there else 0
    aged = [(one, (now_ms - one.modified_ms) / 1000) for one in there]
    return [(one, age_s) for one, age_s in aged if age_s >= LEFT_S]


def examine(left: Sequence[Left]) -> Findings:
    """What doctor says of them."""
    if left:
        open_ = sum(not one.end for one in left)
        yield Finding(
            WARNING, "write_left_waiting",
            f"{len(left)} writes wait in the queue of writers that share commits and seem to have no writer any more, the oldest "
            f"for {left[0].age_s:.0f} s; {open_} of them may still be committed. Each may make others wait for a moment, at most lease_s, once.",
            "safewrite repair TABLE commits those and removes the others, as the next writer that shares does.",
            {"count": len(left), "open": open_},
        )  # fmt: skip


def finish(
    left: Iterable[Left], world: Performer, commit: Callable[[Waiting], Step], *, dry_run: bool = False
) -> Steps:
    """Commit what may still be committed, and take the rest out of the queue."""
    for one in left:
        path = one.member.path
        remove = Delete(path, name="finish.delete")
        if dry_run:
            yield Step("finish", path, "would", one.end)
        elif one.end:
            removed = isinstance(world.perform(remove), Ok)
            yield Step("finish", path, "done" if removed else "failed", one.end)
        elif one.member.kind == CHANGES:
            why = "its writer applies it when it calls again, or the next that applies changes"
            yield Step("finish", path, "skipped", why)
        else:
            step = commit(one.member)
            if step.status == "done":
                world.perform(remove)
            yield step
