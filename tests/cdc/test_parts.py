"""A batch that is too large for the driver lands in parts: each within the limit, each found again by a replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import safewrite as sw
from safewrite.cdc.kafka.batch_split import Cell, Limit, cut, part_of_heap
from safewrite.cdc.landing.landing import Landing
from safewrite.cdc.records.batch import Batch, Partition, Range, Ranges
from safewrite.cdc.records.records import KafkaRecords
from tests.cdc.jobs import Job, Source
from tests.cdc.test_landing import CrashError, dying, equal
from tests.sampling import some

FEW = Limit(16, 10**9)
PLACES = [Partition("topic", number, "id-1") for number in range(3)]


def cells_of(weights: dict[tuple[Partition, int], int], limit: Limit) -> list[Cell]:
    """The cells of records at these places, of so many bytes each."""
    found: dict[tuple[Partition, int], tuple[int, int]] = {}
    for (where, offset), size in weights.items():
        records, total = found.get((where, offset // limit.cell), (0, 0))
        found[where, offset // limit.cell] = (records + 1, total + size)
    return [Cell(where, number, *sums) for (where, number), sums in found.items()]


@given(
    starts=st.lists(st.integers(0, 5_000), min_size=3, max_size=3),
    spans=st.lists(st.integers(1, 400), min_size=3, max_size=3),
    gap=st.integers(1, 7),
    limit=st.builds(Limit, st.integers(1, 2_000), st.integers(1, 5_000)),
)
def test_parts_cover_all_offsets_once_in_order_and_within_the_limit(
    starts: list[int], spans: list[int], gap: int, limit: Limit
) -> None:
    ranges = {
        where: Range(start, start + span) for where, start, span in zip(PLACES, starts, spans, strict=True)
    }
    weights = {(where, at): at % 97 for where, one in ranges.items() for at in range(one.start, one.end, gap)}
    cells = cells_of(weights, limit)
    parts = cut(ranges, cells, limit)
    at = {where: given.start for where, given in ranges.items()}
    for part in parts:
        assert part
        for where, one in part.items():
            assert at[where] == one.start < one.end
            at[where] = one.end
        inside = [
            size
            for (where, one), size in weights.items()
            if where in part and part[where].start <= one < part[where].end
        ]
        one_cell = (
            len(
                {
                    (where, one // limit.cell)
                    for (where, one) in weights
                    if where in part and part[where].start <= one < part[where].end
                }
            )
            <= 1
        )
        assert one_cell or (len(inside) <= limit.records and sum(inside) <= limit.size)
    assert at == {where: given.end for where, given in ranges.items()}
    assert parts == cut(dict(reversed(ranges.items())), list(reversed(cells)), limit)


def test_partitions_go_on_beside_each_other() -> None:
    """Changes of one time are in parts of one time: the two halves of a changed key may be in two partitions."""
    limit = Limit(100, 10**9)
    ranges = {where: Range(0, 1_000 * (where.number + 1)) for where in PLACES}
    cells = cells_of({(where, at): 1 for where, one in ranges.items() for at in range(*one)}, limit)
    at = dict.fromkeys(PLACES, 0)
    for part in cut(ranges, cells, limit):
        at |= {where: given.end for where, given in part.items()}
        done = [at[where] / ranges[where].end for where in PLACES]
        assert max(done) - min(done) < 0.1


def test_a_batch_within_the_limit_is_one_part_and_an_empty_one_none() -> None:
    ranges = {PLACES[0]: Range(5, 50), PLACES[1]: Range(7, 9)}
    assert cut(ranges, [Cell(PLACES[0], 1, 3, 10)], Limit(100, 100)) == [ranges]
    assert cut(ranges, [], Limit(1, 1)) == [ranges]
    of_task = Limit(10**9, 10**9, (100, 50))
    cells = [Cell(where, at, 10, 5) for where in PLACES for at in range(11)]
    whole = {where: Range(0, 11 * of_task.cell) for where in PLACES}
    first, rest = cut(whole, cells, of_task)
    assert {one.end for one in first.values()} == {10 * of_task.cell}
    assert {one.start for one in rest.values()} == {10 * of_task.cell}, (
        "a task has at most ten of the eleven cells of a partition"
    )
    assert cut({}, [], Limit(1, 1)) == []


@pytest.mark.parametrize(
    ("heap", "size"), [(1 << 30, 64 << 20), (4 << 30, 256 << 20), (64 << 30, 256 << 20), (7, 1)]
)
def test_parts_fit_the_heap_that_spark_has_by_default(heap: int, size: int) -> None:
    """T3-B14: neither 256 nor 128 MiB at once fit a heap of 1 GB, Spark's default."""
    assert part_of_heap(heap) == size


# --- parts that land --------------------------------------------------------------------------------------
def parts_of(job: Job, records: Any, number: int, limit: Limit) -> list[Batch]:
    """The parts of a batch, as a micro-batch of Spark is taken."""
    whole = job.batch(records, number)
    weights = {
        (Partition(one.topic, one.partition, job.topic_id), one.offset): len(one.value or b"")
        for one in whole.records
    }
    return [
        Batch(
            number, KafkaRecords.of(one for one in whole.records if _has(part, one)), part, joined=number > 0
        )
        for part in cut(whole.ranges, cells_of(weights, limit), limit)
    ]


def _has(part: Ranges, record: Any) -> bool:
    given = part.get(Partition(record.topic, record.partition, "id-1"))
    return given is not None and given.start <= record.offset < given.end


def land(job: Job, landing: Landing, records: Any, limit: Limit = FEW) -> None:
    for part in parts_of(job, records, 1, limit):
        landing.land(part)


STEPS = [(after, step) for after in (0, 1, 4, 8) for step in ("_apply", "ledger")]
DEATHS = [(form, one, again) for form in ("delta", "iceberg") for one in STEPS for again in ("alike", "otherwise", "whole")]  # fmt: skip


@pytest.mark.sweep(
    "delta-death12",
    "delta-death18",
    "iceberg-death28",
    "delta-death21",
    "delta-death0",
    "delta-death15",
    "delta-death9-alike",
)
@pytest.mark.parametrize(("form", "death", "again"), some(DEATHS, every=24))
def test_a_driver_that_died_between_parts_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, death: tuple[int, str], again: str
) -> None:
    """E1, E2: the replay reads the same offsets and cuts them alike, or under another limit, or not at all."""
    (tmp_path / "lake").mkdir()
    after, step = death
    job, source = Job(tmp_path, [{"table": name} for name in "abc"], form), Source(after + 5)
    job.land(*source.run(20))
    before = len(source.records)
    source.run(60)
    records = source.records[before:]
    landing = job.landing(parallel_tables=1)
    if step == "_apply":
        dying(landing, monkeypatch, after)
    else:
        write, closed = landing.ledger.write, list[int]()

        def dies(*given: Any) -> None:
            if len(closed) == after // 2:
                raise CrashError
            closed.append(1)
            write(*given)

        monkeypatch.setattr(landing.ledger, "write", dies)
    with pytest.raises(CrashError):
        land(job, landing, records)
    if again == "alike":
        land(job, job.landing(), records)
    elif again == "otherwise":
        land(job, job.landing(), records, limit=Limit(7, 900))
    else:
        job.land(*records, number=1)
    equal(job, source)
    if again == "alike":  # each part was found by its name, with the counts that it had
        assert sum(one.totals["earlier"] for one in job.verdict().accounts) == 0


def test_a_part_that_was_never_landed_stops_the_next_one(tmp_path: Path) -> None:
    job, source = Job(tmp_path, [{"table": name} for name in "abc"]), Source(2)
    job.land(*source.run(10))
    before = len(source.records)
    source.run(60)
    first, _, third, *_ = parts_of(job, source.records[before:], 1, FEW)
    landing = job.landing()
    landing.land(first)
    with pytest.raises(sw.ConflictError, match="never landed"):
        landing.land(third)
