"""A group that is delivered again costs in proportion to its members: what lists them is decoded once (T3-A7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.protocol.effects import Effect, LedgerCommit, LedgerGet, LedgerIntend, Now, Outcome, Together
from safewrite.stores.world import Performer
from tests.counted import calls

pytestmark = pytest.mark.usefixtures("no_aws_settings")

FEW, MANY = 40, 160
"""Members of a group; with such long keys a commit of either format keeps the list of so many in a file."""
DECODERS = {
    "json.decoder:raw_decode",
    "safewrite.protocol.members:unpacked",
    "safewrite.delta.log.actions:parse",
}
UNCOUNTED = (LedgerCommit, LedgerGet, LedgerIntend, Now)
CHANGES = pa.schema({"id": pa.int64(), "q": pa.int64()})


class Counting(Performer):
    """Counts the requests of a table, but for looks at the clock and those of its ledger: each member has some."""

    def __init__(self, world: Performer) -> None:
        self.world, self.requests = world, Counter[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.world, name)

    def perform(self, effect: Effect) -> Outcome:
        parts = effect.effects if isinstance(effect, Together) else (effect,)
        self.requests.update(part.name for part in parts if not isinstance(part, UNCOUNTED))
        return self.world.perform(effect)


def table_of(format_: str, folder: Path) -> Any:
    if format_ == "delta":
        return sw.create(folder / "t", CHANGES)
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": str(folder / "w")}
    return sw.create("db.t", CHANGES, catalog=catalog)


def members(count: int) -> list[tuple[str, list[dict[str, int]]]]:
    return [(f"{count}-{n}-".ljust(900, "x"), [{"id": n, "q": 1}]) for n in range(count)]


VERBS: dict[str, Callable[[Any, int], Any]] = {
    "append_many": lambda table, count: table.append_many(members(count)),
    "apply_changes_many": lambda table, count: table.apply_changes_many(
        members(count), keys=["id"], sequence_by=["q"]
    ),
}


def again(table: Any, verb: str, count: int) -> tuple[Counter[str], Counter[str]]:
    """What a repeat of a group decodes and asks for."""
    outcomes = {one.outcome for one in VERBS[verb](table, count)}
    assert outcomes == {"committed"}
    world, table.world = table.world, Counting(table.world)
    found = calls(lambda: outcomes.update(one.outcome for one in VERBS[verb](table, count)))
    requests, table.world = table.world.requests, world
    assert outcomes == {"committed", "already_committed"}
    return found, requests


@pytest.mark.sweep("apply_changes_many-iceberg", "append_many-iceberg", "apply_changes_many")
@pytest.mark.parametrize("format_", ["delta", "iceberg"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_repeat_of_a_group_decodes_its_list_as_often_for_many_members_as_for_few(
    tmp_path: Path, format_: str, verb: str
) -> None:
    table = table_of(format_, tmp_path)
    few, asked_by_few = again(table, verb, FEW)
    many, asked_by_many = again(table, verb, MANY)
    for decoder in DECODERS:
        assert many[decoder] < few[decoder] + 40, decoder
    assert asked_by_many == asked_by_few
    assert sum(many.values()) < 1.2 * MANY / FEW * sum(few.values()), "more than in proportion"
