"""Random batches in which what goes wrong comes together: misfits, changes that are sent again, truncates in any partition of a first
batch, and columns of every type that come later, also in structs.  The driver, tasks and an oracle must agree, letters by their texts."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import safewrite as sw
from safewrite.cdc.records.change import KafkaRecord
from tests.cdc.events import event, postgres, record, struct, with_schema
from tests.cdc.jobs import Job
from tests.cdc.on_executors import Executors
from tests.cdc.test_by_tasks import landed
from tests.cdc.test_column_batches import ID, PLACEHOLDER, VALUES

Place = tuple[int, int]
_PARTITIONS, _KEYS = 3, 12


@dataclass
class World:
    """The log of one table, cut in batches; ``living`` are the keys that a change leaves, by the place of its record."""

    seed: int
    fields: list[dict[str, Any]] = field(
        default_factory=lambda: [ID, {"type": "int64", "optional": True, "field": "n"}]
    )
    columns: dict[str, tuple[list[Any], list[Any]]] = field(default_factory=dict)
    log: list[tuple[int, int | None, KafkaRecord]] = field(default_factory=list)
    """Of each record the position, and the key; None of a truncate."""
    lsn: int = 10

    def __post_init__(self) -> None:
        self.draw = random.Random(f"misfits {self.seed}")
        self.offsets = [0] * _PARTITIONS

    def batches(self) -> list[list[KafkaRecord]]:
        return [self._batch(number) for number in range(3)]

    def _batch(self, number: int) -> list[KafkaRecord]:
        draw, start = self.draw, len(self.log)
        if number:
            for at in range(draw.randrange(1, 3)):
                self._column(f"c{number}{at}")
        for at in range(draw.randrange(3, 9)):
            kind = draw.random()
            if at and kind < 0.15:
                self._add("t", None)
            elif kind < 0.35 and self.log:
                self._again()
            else:
                self._add("u" if at % 2 else "c", draw.randrange(_KEYS))
        return [one for _, _, one in self.log[start:]]

    def _column(self, name: str) -> None:
        """Another column of a type that is drawn, or a struct with a field of it."""
        what, schema, plain, strange = self.draw.choice([one for one in VALUES if one[2]])
        if self.draw.random() < 0.4 and "nobody" not in what:
            kept = [{"f": value} for value in plain], [{"f": value} for value in strange]
            self.fields.append(
                {**struct([{**schema, "field": "f", "optional": True}], f"v.{name}"), "field": name}
            )
        else:
            kept = plain, strange
            self.fields.append({**schema, "field": name, "optional": True})
        self.columns[name] = kept

    def _add(self, op: str, key: int | None) -> None:
        self.lsn += 1
        row = None
        if key is not None:
            row = {"id": key, "n": self.lsn}
            for name, (plain, strange) in self.columns.items():
                misfits = [one for one in strange if PLACEHOLDER not in str(one)]
                row[name] = self.draw.choice(misfits if misfits and self.draw.random() < 0.2 else plain)
        source = postgres(self.lsn, "a", ts_ms=1714000000000 + self.lsn)
        given = None if key is None else {"schema": struct([ID], "a.Key"), "payload": {"id": key}}
        content = with_schema(event(op, row, None, source=source), self.fields)
        self._put(self.lsn, key, record(content, given))

    def _again(self) -> None:
        """A change is sent again, as after a connector that died."""
        lsn, key, one = self.draw.choice(self.log)
        self._put(lsn, key, one)

    def _put(self, lsn: int, key: int | None, one: KafkaRecord) -> None:
        number = self.draw.randrange(_PARTITIONS)
        offset, self.offsets[number] = self.offsets[number], self.offsets[number] + 1
        self.log.append((lsn, key, KafkaRecord(one.topic, number, offset, one.key, one.value)))

    def rows(self, dead: set[Place]) -> dict[int, int]:
        """The rows that are left, and the position of each, without the records at these places."""
        told = [one for one in self.log if (one[2].partition, one[2].offset) not in dead]
        cut = max((lsn for lsn, key, _ in told if key is None), default=0)
        return {
            key: lsn for lsn, key, _ in sorted(told, key=lambda one: one[0]) if key is not None and lsn > cut
        }


def check(seed: int, folder: Path, form: str) -> list[str]:
    """What is wrong with a world, by the driver and by tasks."""
    world = World(seed)
    folder.mkdir(parents=True)
    job = Job(folder, [{"table": "a"}], form, schemas=False)
    try:
        landed(job, world.batches(), Executors())
    except (sw.SafewriteError, AssertionError) as error:
        return [f"{type(error).__name__}: {error}"]
    letters = {(one["partition"], one["offset"]): one["reason"] for one in job.letters()}
    rows = {key: row["n"] for key, row in job.rows("a").items()}
    wanted, faults = world.rows({*letters}), []
    if rows != wanted:
        faults.append(f"rows {rows}, and the log says {wanted}")
    if any(key is None and (one.partition, one.offset) in letters for _, key, one in world.log):
        faults.append("a truncate is a dead letter")
    return faults


@pytest.mark.parametrize(
    ("form", "first", "end"),
    [
        ("delta", 0, 2),
        pytest.param("delta", 2, 60, marks=pytest.mark.long),
        pytest.param("iceberg", 0, 40, marks=pytest.mark.long),
    ],
)
def test_t4_b_what_goes_wrong_together_lands_alike(tmp_path: Path, form: str, first: int, end: int) -> None:
    """Seeds are fixed; another range is another world: ``check(seed, folder, form)``."""
    faults = {seed: told for seed in range(first, end) if (told := check(seed, tmp_path / str(seed), form))}
    assert not faults, faults
