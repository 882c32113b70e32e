"""Changes that are read one by one land by tasks as by the driver: rows, letters, the ledger; and the driver says why it lands others."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.cdc.ledger.ledger import LedgerEntry
from safewrite.cdc.records.change import KafkaRecord
from safewrite.cdc.table import decode_task
from tests.cdc.events import event, postgres, record
from tests.cdc.jobs import Job, cut
from tests.cdc.on_executors import Executors
from tests.cdc.test_by_tasks import by_executors, job_of, landed, told

GONE = "__debezium_unavailable_value"
CLOCK = 1_714_000_000_000
Row = dict[str, Any]


@dataclass
class Odd:
    """A random source of one table, which does what executors do not read by columns."""

    seed: int
    table: str = "a"
    partitions: int = 2
    rows: dict[int, Row] = field(default_factory=dict)
    records: list[KafkaRecord] = field(default_factory=list)
    at: int = 100
    crossing: bool = False
    """Whether a row may go to another partition with its key."""

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.offsets = [0] * self.partitions

    def run(self, count: int, ways: Sequence[str]) -> list[KafkaRecord]:
        """So many changes, each in one of these ways; their records."""
        before = len(self.records)
        for _ in range(count):
            self.change(self.draw.choice(ways))
        return self.records[before:]

    def change(self, way: str) -> None:
        """One change; of a row that is there, if the way needs one."""
        self.at += 1
        if way != "write" and not self.rows:
            way = "write"
        if way in {"write", "poison", "keyless", "stray"}:
            key = self.draw.randrange(20)
            row = {"id": key, "body": self.draw.choice(["x", "yy", ""]), "n": self.at}
            if way == "poison":
                self.add(key, event("u", row | {"n": "no number"}, source=self.told()))
            elif way == "keyless":
                self.add(None, event("u", row | {"id": None}, source=self.told()))
            elif way == "stray":
                self.add(key, event("c", row, source=self.told(db="other")))
            else:
                self.add(key, event("u" if key in self.rows else "c", row, source=self.told()))
                self.rows[key] = row
            return
        old = self.draw.choice(sorted(self.rows))
        row = self.rows[old]
        getattr(self, way)(old, row)

    def delete(self, old: int, row: Row) -> None:
        self.add(old, event("d", None, row, source=self.told()))
        self.add(old, None)
        del self.rows[old]

    def keep(self, old: int, row: Row) -> None:
        """An update that leaves a large value out."""
        self.rows[old] = {**row, "n": self.at}
        self.add(old, event("u", self.rows[old] | {"body": GONE}, source=self.told()))

    def move(self, old: int, row: Row) -> None:
        """A change of a key in one event."""
        new = self._free(old)
        del self.rows[old]
        self.rows[new] = {**row, "id": new, "n": self.at}
        self.add(new, event("u", self.rows[new], row, source=self.told()))

    def halves(self, old: int, row: Row, *, lacks: bool = False) -> None:
        """A change of a key in two events."""
        new = self._free(old)
        del self.rows[old]
        self.rows[new] = {**row, "id": new, "n": self.at}
        sent = self.rows[new] | ({"body": GONE} if lacks else {})
        source = self.told()
        self.add(old, event("d", None, {"id": old}, source=source), {"__debezium.newkey": {"id": new}})
        self.add(new, event("c", sent, source=source), {"__debezium.oldkey": {"id": old}})

    def take(self, old: int, row: Row) -> None:
        """A change of a key in two events, the second of which leaves a large value out."""
        self.halves(old, row, lacks=True)

    def again(self, old: int, row: Row) -> None:
        """A change that the connector sends once more, at another offset."""
        found = [
            one for one in self.records if one.value is not None and one.partition == old % self.partitions
        ]
        if found:
            one = self.draw.choice(found)
            self.records.append(replace(one, offset=self.offsets[one.partition]))
            self.offsets[one.partition] += 1

    def empty(self, old: int, row: Row) -> None:
        """A truncate."""
        self.rows.clear()
        self.add(None, event("t", None, source=self.told()))

    def told(self, **more: Any) -> Any:
        return postgres(self.at, self.table, ts_ms=CLOCK + self.at, **more)

    def add(self, key: int | None, value: Any, headers: Any = None) -> None:
        where = 0 if key is None else key % self.partitions
        named = None if key is None else {"id": key}
        self.records.append(
            record(value, named, offset=self.offsets[where], partition=where, headers=headers or {})
        )
        self.offsets[where] += 1

    def _free(self, old: int) -> int:
        return self.draw.choice(
            [one for one in range(40) if one not in self.rows and (self.crossing or one % 2 == old % 2)]
        )


WAYS = ("write", "write", "write", "delete", "keep", "move", "halves", "take")
FAULTY = (*WAYS, "again", "poison", "keyless", "stray", "empty")


def at_own_speeds(source: Odd, seed: int) -> list[list[KafkaRecord]]:
    """Batches that take up to three records of each partition."""
    draw = random.Random(seed)
    left = [[one for one in source.records if one.partition == number] for number in range(source.partitions)]
    batches = []
    while any(left):
        counts = [draw.randrange(4) for _ in left]
        batches.append([one for records, count in zip(left, counts, strict=True) for one in records[:count]])
        left = [records[count:] for records, count in zip(left, counts, strict=True)]
    return [batch for batch in batches if batch]


def rows_in(job: Job, name: str) -> list[Row]:
    if job.form == "iceberg":
        return sorted(job.rows(name).values(), key=lambda row: row["id"])
    table = deltalake.DeltaTable(f"{job.folder}/db/{name}")
    query = deltalake.QueryBuilder().register("t", table).execute("SELECT id, body, n FROM t ORDER BY id")
    return list(pa.table(query.read_all()).to_pylist())


def found_in(
    job: Job, batches: list[list[KafkaRecord]], executors: Executors | None, fewest: int = 1
) -> tuple[Any, list[LedgerEntry]]:
    """What batches come to: rows, letters and lines of the ledger."""
    made = job.landing
    job.landing = lambda **more: _with(made(**more), fewest)  # type: ignore[method-assign]
    lines = landed(job, batches, executors)
    letters = sorted((one["partition"], one["offset"], one["table"], one["reason"]) for one in job.letters())
    return (rows_in(job, "a"), letters, told(lines, job.form)), lines


def _with(landing: Any, fewest: int) -> Any:
    landing.decoder.fewest = fewest
    return landing


PRECOMBINE = {"sequence": "precombine", "precombine_key": ["n"]}
KINDS: list[tuple[Sequence[str], dict[str, Any]]] = [
    (WAYS, {}),
    (FAULTY, {"all_late": "count"}),
    (("write", "write", "delete", "poison"), PRECOMBINE),
]


@pytest.mark.long
@pytest.mark.parametrize("fewest", [80, 3])
@pytest.mark.parametrize("kind", range(len(KINDS)))
@pytest.mark.parametrize("seed", range(15))
def test_what_is_read_one_by_one_lands_the_same_by_executors(
    tmp_path: Path, seed: int, kind: int, fewest: int
) -> None:
    """Of what has no oracle it is the one part of this process that says what has to come."""
    ways, how = KINDS[kind]
    source = Odd(seed)
    batches = cut(source.run(20, ["write"]) + source.run(60, ways), 20)
    found = []
    for name, executors in (("here", None),) * (ways is FAULTY) + (("there", Executors()),):
        job = job_of(tmp_path / name, **how)
        job.schemas = seed % 2 == 1
        found.append(found_in(job, batches, executors, fewest))
    there, lines = found[-1]
    assert there == found[0][0]
    assert there[0] == sorted(source.rows.values(), key=lambda row: row["id"]) or ways is FAULTY
    assert sum(line.by_executors for line in lines) > 0


@pytest.mark.sweep("12-iceberg-80")
@pytest.mark.parametrize(
    ("seed", "form", "fewest"),
    [
        (10, "delta", 3),
        (12, "iceberg", 80),
        *(
            pytest.param(seed, form, fewest, marks=pytest.mark.long)
            for seed in range(20)
            for form, fewest in (("delta", 80), ("delta", 3), ("iceberg", 3))
        ),
    ],
)
def test_changed_keys_whose_halves_come_apart_land_the_same_by_executors(
    tmp_path: Path, seed: int, form: str, fewest: int
) -> None:
    """In two batches, and in two tasks of one; all of them by executors, but for truncates that come alone."""
    source = Odd(seed, partitions=1 + seed % 3, crossing=True)
    ways = ("write", "keep", "halves", "halves", "take", "take", "move", "delete", "empty")
    ways = ways if seed % 3 == 0 else ways[:-1]
    batches = cut(source.run(5, ["write"]) + source.run(14, ways), 4 + seed % 5)
    job = job_of(tmp_path / "lake", form)
    job.schemas = seed % 2 == 0
    there, lines = found_in(job, batches, Executors(), fewest)
    assert there[0] == sorted(source.rows.values(), key=lambda row: row["id"])
    assert seed % 3 == 0 or all(one == all_of for one, all_of in by_executors(lines).values())


@pytest.mark.long
@pytest.mark.parametrize("form", ["delta", "iceberg"])
@pytest.mark.parametrize("seed", range(20))
def test_changed_keys_land_the_same_by_executors_whichever_half_comes_first(
    tmp_path: Path, seed: int, form: str
) -> None:
    """Partitions are read at speeds of their own."""
    source, found = Odd(seed, partitions=2, crossing=True), []
    source.run(5, ["write"])
    source.run(20, ["write", "keep", "halves", "halves", "take", "delete"])
    for name, executors in (("here", None), ("there", Executors())):
        job = job_of(tmp_path / name, form)
        job.schemas = seed % 2 == 0
        found.append(found_in(job, at_own_speeds(source, seed), executors, 80)[0])
    assert found[0] == found[1]


@pytest.mark.parametrize("is_set_back", [False, True])
def test_a_delete_whose_insert_has_landed_is_by_executors(tmp_path: Path, is_set_back: bool) -> None:
    """The row that it takes to its new key is late, which says nothing of the source; another late change does."""
    source = Odd(4, partitions=2, crossing=True)
    for key in (2, 4):
        source.rows[key] = {"id": key, "body": "", "n": 1}
        source.add(key, event("c", source.rows[key], source=source.told()))
    source.at += 1
    source._free = lambda old: 3  # type: ignore[method-assign]
    source.halves(2, source.rows[2])
    *first, delete, insert = source.records
    source.at += 1
    source.add(4, event("u", source.rows[4], source=source.told() | ({"lsn": 99} if is_set_back else {})))
    batches = [first, [insert], [delete, source.records[-1]]]
    job = job_of(tmp_path / "lake")
    if is_set_back:
        with pytest.raises(sw.InvalidInputError, match="lower log positions"):
            found_in(job, batches, Executors(), 80)
    else:
        lines = found_in(job, batches, Executors(), 80)[1]
        assert [(line.by_executors, line.late) for line in lines if line.table] == [(2, 0), (1, 0), (2, 1)]


def test_a_changed_key_takes_values_of_changes_that_were_read_by_columns(tmp_path: Path) -> None:
    """Of one that wrote the value, and of none that is of another key."""
    source = Odd(4, partitions=1)
    first = source.run(6, ["write"])
    old = min(source.rows)
    for key, body in ((old, "new"), (max(source.rows), "other")):
        source.at += 1
        source.rows[key] = {"id": key, "body": body, "n": source.at}
        source.add(key, event("u", source.rows[key], source=source.told()))
    source.at += 1
    source.halves(old, source.rows[old], lacks=True)
    job = job_of(tmp_path / "lake")
    (rows, _, _), lines = found_in(job, [first, source.records[len(first) :]], Executors(), 1)
    assert rows == sorted(source.rows.values(), key=lambda row: row["id"])
    assert [(line.by_executors, line.one_by_one) for line in lines if line.table] == [(6, 0), (4, 2)]


@pytest.mark.parametrize("where", [0, 1])
def test_a_changed_key_in_several_partitions_is_the_drivers(tmp_path: Path, where: int) -> None:
    """Its task has not all of the row that the new key takes a value of."""
    source = Odd(4, partitions=2, crossing=True)
    source.add(2, event("c", {"id": 2, "body": "old", "n": 1}, source=source.told()))
    source.at += 1
    source.add(2 + where, event("u", {"id": 2, "body": "new", "n": 2}, source=source.told()))
    source.at += 1
    source.rows[2] = {"id": 2, "body": "new", "n": 2}
    source.halves(2, source.rows[2], lacks=True)
    first, *rest = source.records
    job = job_of(tmp_path / "lake")
    (rows, _, _), lines = found_in(job, [[first], rest], Executors(), 80)
    assert rows == [*source.rows.values()]
    assert [line.by_executors for line in lines if line.table] == [1, 0 if where else 3]


@pytest.mark.parametrize("way", ["keep", "move", "halves", "keyless", "stray", "again", "empty"])
def test_executors_land_what_is_read_one_by_one(tmp_path: Path, way: str) -> None:
    """None of these sends a table to the driver."""
    source = Odd(4, partitions=1)
    batches = [source.run(6, ["write"]), source.run(2, ["write"]) + source.run(2, [way])]
    job = job_of(tmp_path / "lake", all_late="error")
    lines = found_in(job, batches, Executors(), 80)[1]
    ((one, all_of),) = by_executors(lines).values()
    assert one == all_of > 0
    assert way in {"keyless", "stray"} or not job.letters()


def test_columns_that_order_changes_do_so_in_tasks(tmp_path: Path) -> None:
    """But for deletes, whose place the driver looks for."""
    source = Odd(5)
    batches = [source.run(6, ["write"]), source.run(6, ["write"]), source.run(3, ["delete", "write"])]
    job = job_of(tmp_path / "lake", sequence="precombine", precombine_key=["n"])
    there, lines = found_in(job, batches, Executors(), 80)
    assert there[0] == sorted(source.rows.values(), key=lambda row: row["id"])
    assert [line.by_executors for line in lines if line.table] == [6, 6, 0]


def test_a_job_says_why_a_table_lands_in_one_part(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a batch; and with the next batch it lands in parts again."""
    source = Odd(5)
    batches = [source.run(6, ["write"])]
    batches += [source.run(1, ["delete" if number in {0, 1, 4} else "write"]) for number in range(6)]
    caplog.set_level(logging.INFO, "safewrite")
    job = job_of(tmp_path / "lake", sequence="precombine", precombine_key=["n"])
    lines = found_in(job, batches, Executors(), 80)[1]
    assert [line.by_executors for line in lines if line.table] == [6, 0, 0, 1, 1, 0, 1]
    said = [one.message for one in caplog.records if "landed in one part" in one.message]
    assert len(said) == 3
    assert said[0].startswith(
        "batch 1: 1 records of 1 tables (db.a) landed in one part, because the place of deletes is looked for"
    )


def test_dead_letters_that_are_too_many_for_a_report_come_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of all tasks; the other records of the table stay with executors."""
    monkeypatch.setattr(decode_task, "LETTERS_MAX", 1)
    monkeypatch.setattr(decode_task, "_CHANGES", 2)
    source = Odd(3, partitions=2)
    batches = [source.run(6, ["write"]), source.run(9, ["poison", "write"]), source.run(1, ["poison"])]
    job = job_of(tmp_path / "lake")
    there, lines = found_in(job, batches, Executors(), 80)
    assert there[0] == sorted(source.rows.values(), key=lambda row: row["id"])
    assert len(job.letters()) == sum(line.dead for line in lines if line.table) > 3
    assert [line.by_executors for line in lines if line.table] == [6, 9, 1]
