"""What every engine must do: the same cases for threads and for Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.engine.abc import Engine, bodies
from tests.engine.tasks import IDS, Alone, Count, Deal, Gather, Numbers, Refuse

SourceOf = Callable[[Sequence[range]], Any]
"""Makes a source: an input for each range of ids."""


def batches(ids: range) -> list[pa.RecordBatch]:
    """The ids in batches of three."""
    return [
        pa.record_batch({"a.b": pa.array(ids[at : at + 3], pa.int64())}, schema=IDS)
        for at in range(0, len(ids), 3)
    ]


def one_report_for_each_input(engine: Engine[Any], source_of: SourceOf) -> None:
    """Also of an input without rows."""
    with engine.map(source_of([range(5), range(5, 5), range(5, 12)]), Count()) as mapped:
        assert mapped.bodies() == [(0, 5, 10), (1, 0, 0), (2, 7, sum(range(5, 12)))]
        assert len({report.at.number for report in mapped.reports}) == 3


def rows_stay_and_are_the_next_source(engine: Engine[Any], source_of: SourceOf) -> None:
    """Through an exchange each part comes to the input of its number, and no row is lost or doubled."""
    with engine.map(source_of([range(100), range(100, 131)]), Deal(7)) as dealt:
        assert dealt.bodies() == [100, 31]
        assert sorted(engine.taken(dealt.rows)) == [b"100", b"31"]
        with engine.map(engine.exchange(dealt.rows, 7), Gather()) as gathered:
            found = gathered.bodies()
    assert [(part, parts) for part, parts, _ in found] == [(part, {part}) for part in range(7)]
    assert sorted(id_ for _, _, ids in found for id_ in ids) == [*range(131)]


def fewer_parts_than_were_dealt_to_take_them_by_their_remainder(
    engine: Engine[Any], source_of: SourceOf
) -> None:
    """Of several sources together, whose rows were dealt before it was known how many parts there are."""
    sources = [source_of([range(60)]), source_of([range(60, 90), range(90, 100)])]
    with (
        engine.map(engine.together(sources), Deal(8)) as dealt,
        engine.map(engine.exchange(dealt.rows, 2), Gather()) as gathered,
    ):
        found = gathered.bodies()
    assert [ids for _, _, ids in found] == [
        [id_ for id_ in range(100) if id_ % 2 == part] for part in range(2)
    ]


def numbers_come_one_to_each_input(engine: Engine[Any], source_of: SourceOf) -> None:
    with engine.map(engine.numbers(3), Numbers()) as mapped:
        assert mapped.bodies() == [[0], [1], [2]]


def an_error_of_ours_keeps_its_kind(engine: Engine[Any], source_of: SourceOf) -> None:
    with engine.map(source_of([range(4), range(4, 9)]), Refuse(6)) as mapped:
        assert [report.error is None for report in sorted(mapped.reports, key=lambda one: one.at.part)] == [
            True,
            False,
        ]
        with pytest.raises(sw.WouldAlterError, match="6 is refused"):
            mapped.bodies()


def tasks_without_input_report_in_their_order(engine: Engine[Any], source_of: SourceOf) -> None:
    values = [f"task {number}" for number in range(5)]
    assert bodies(engine.run([Alone(value) for value in values])) == [*enumerate(values)]
    assert engine.run([]) == []


CASES = [
    one_report_for_each_input,
    rows_stay_and_are_the_next_source,
    fewer_parts_than_were_dealt_to_take_them_by_their_remainder,
    numbers_come_one_to_each_input,
    an_error_of_ours_keeps_its_kind,
    tasks_without_input_report_in_their_order,
]
