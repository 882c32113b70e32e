"""Measures what keys of their own cost: many events in one commit against one append of the same rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import safewrite as sw

from .contest import DELTA, Contest
from .figures import Aim, Line, Scenario, at_most, interleave, paired
from .scale import Scale

RATIO_MAX = 1.3
OBJECTS_NEAR_MAX, OBJECTS_AWAY_MAX = 3.0, 2.0
"""The bounds where each key's intent is an object of its own."""
_PLAIN, _KEYED = "append", "append, keyed"


def run(scale: Scale, folder: Path, contest: Contest = DELTA) -> Scenario:
    """Time ``append_many`` and ``append`` of the same rows, each on a warm table of its own, in turn."""
    rows = scale.members * scale.member_rows
    frame = _arrow(contest.calls.frame_of(rows), contest.calls.schema())
    parts = [frame.slice(number * scale.member_rows, scale.member_rows) for number in range(scale.members)]
    lines: list[Line] = []
    broken: list[str] = []
    with contest.ground(folder, scale.delay_s) as lab:
        forms = {
            "dicts": (frame.to_pylist(), [part.to_pylist() for part in parts]),
            "Arrow": (frame, parts),
        }
        for slow, arm, form in product((False, True), contest.safe, forms):
            calls = {
                name: _call(name, _opened(contest, lab, arm, slow=slow), *forms[form], broken)
                for name in (_PLAIN, _KEYED, "append_many")
            }
            for call in calls.values():
                call()  # connects and loads
            away = f", {scale.delay_s * 1000:.0f} ms away" if slow else ""
            lines += _lines(f"{arm}, {form}{away}", interleave(calls, scale.member_rounds))
    return Scenario(
        name="members",
        title="Many events in one commit",
        measures=f"Milliseconds of one call on a warm table: append_many of {scale.members} members of {scale.member_rows} rows, "
        "each with its own key, against one append of all the rows in one piece. Ratios are of the same round.",
        lines=tuple(lines),
        aims=tuple(_aims(lines)),
        notes=(
            "A member has an entry in the ledger of keys before the commit and after it, as a keyed append has.",
            "On this machine the CPU of both sides is compared; away, each request waits as it does on its way to AWS.",
        ),
        broken=tuple(broken),
    )


def _opened(contest: Contest, lab: Any, arm: str, *, slow: bool) -> sw.Table:
    place = lab.place(arm, slow=slow)
    contest.calls.create(arm, place, contest.calls.schema())
    return sw.open(getattr(place, "uri", None) or place.name, **contest.calls.settings(arm, place))


def _call(
    name: str, table: sw.Table, whole: Any, members: list[Any], broken: list[str]
) -> Callable[[], float]:
    calls = 0

    def once() -> float:
        nonlocal calls
        calls += 1
        pairs = [(f"event-{calls}-{number}", member) for number, member in enumerate(members)]
        began = time.perf_counter()
        if name == "append_many":
            answers: list[Any] = table.append_many(pairs)
        else:
            answers = [table.append(whole, **({"key": f"event-{calls}"} if name == _KEYED else {}))]
        elapsed_s = time.perf_counter() - began
        broken.extend(str(one) for one in answers if not isinstance(one, sw.Receipt))
        return elapsed_s * 1000

    return once


def _lines(case: str, found: dict[str, list[float]]) -> list[Line]:
    lines = [Line(case=case, arm=name, unit="ms", values=tuple(values)) for name, values in found.items()]
    many = tuple(found["append_many"])
    beside = [
        Line(
            case=case, arm="append_many", unit="ms", values=many, peer=peer, ratios=paired(many, found[peer])
        )
        for peer in (_PLAIN, _KEYED)
    ]
    return [*lines[:2], *beside]


def _aims(lines: list[Line]) -> list[Aim]:
    return [
        at_most(f"{line.arm}, {line.case} : {line.peer}", _bound(line.case), line.ratio.median)
        for line in lines
        if line.ratio is not None
    ]


def _bound(case: str) -> float:
    if "object-store" not in case:
        return RATIO_MAX
    return OBJECTS_AWAY_MAX if "away" in case else OBJECTS_NEAR_MAX


def _arrow(frame: Any, schema: Any) -> Any:
    import pyarrow as pa

    return (
        frame
        if isinstance(frame, pa.Table)
        else pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
    )
