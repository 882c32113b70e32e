"""Stories drawn by a seed: loads and changes that come, come again and go, tasks that begin anew, a bronze that loses rows.

A model of a few lines says what silver is to be: what a file brought, each time that it brought something, folded by epoch
and place.  Contents are drawn from few, so that they come back.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from safewrite.medallion import Pipeline, verify
from tests.medallion.test_evolution import rows as rows_of
from tests.medallion.test_evolution import shop
from tests.medallion.test_jobs import HEAD, set_in

START_S = 1_790_000_000
KEYS = range(1, 7)
STEPS = 14
TABLE = "shop.orders"


@dataclass(frozen=True)
class Line:
    """A row of a load, or a change."""

    op: str
    key: int
    price: str
    seq: int = 0


@dataclass
class Seen:
    """What a file held when it was last looked at."""

    lines: tuple[Line, ...]
    epoch: int
    at: int


@dataclass(frozen=True)
class Delivery:
    """What a file brought: ``rank`` orders loads, None changes."""

    epoch: int
    rank: tuple[int, int] | None
    lines: tuple[Line, ...]


class Model:
    """What silver is to hold."""

    def __init__(self) -> None:
        self.seen: dict[str, Seen] = {}
        self.deliveries: list[Delivery] = []

    def run(self, files: dict[str, tuple[tuple[Line, ...], int]], epoch: int) -> None:
        """Take what is new in the files that are there."""
        for path, (lines, at) in sorted(files.items()):
            known = self.seen.get(path)
            is_load = "LOAD" in path
            if known is not None and not is_load:
                continue
            if known is not None and known.lines == lines and not (known.epoch < epoch and at > known.at):
                known.at = max(known.at, at)
                continue
            self.seen[path] = Seen(lines, epoch, at)
            self.deliveries.append(Delivery(epoch, (at, number_of(path)) if is_load else None, lines))

    def silver(self, reload: dict[str, str]) -> dict[int, str]:
        loads = {one.epoch for one in self.deliveries if one.rank is not None}
        first = max((one for one in loads if reload.get(str(one)) == "truncate"), default=0)
        last: dict[int, tuple[tuple[Any, ...], Line]] = {}
        for one in self.deliveries:
            for number, line in enumerate(one.lines):
                place = (one.epoch, 1, line.seq) if one.rank is None else (one.epoch, 0, (*one.rank, number))
                if line.key not in last or last[line.key][0] <= place:
                    last[line.key] = place, line
        return {
            key: line.price for key, (place, line) in last.items() if line.op != "D" and place[0] >= first
        }


def number_of(path: str) -> int:
    return int(path[-12:-4], 16)


class Story:
    """A job, what happens to it, and the model beside it."""

    def __init__(self, folder: Path, table_format: str, seed: int) -> None:
        self.folder, self.table_format, self.draw = folder, table_format, random.Random(seed)
        self.job = shop(folder, table_format)
        set_in(self.job, "defaults", "restarted_load", to="fold")
        self.model = Model()
        self.files: dict[str, tuple[tuple[Line, ...], int]] = {}
        self.epoch, self.at, self.seq, self.changes = 1, 0, 0, 0
        self.reload: dict[str, str] = {}
        self.told: list[str] = []

    def tell(self) -> None:
        parts = (
            self.whole_load, self.part_of_load, self.change, self.touch, self.take_away, self.deliver_again, self.forget,
            self.new_task, self.reset, self.hurt,
        )  # fmt: skip
        for part in self.draw.choices(parts, (4, 3, 4, 2, 1, 1, 2, 2, 1, 2), k=STEPS):
            self.told.append(part.__name__)
            part()
            if self.draw.random() < 0.75:
                self.work(lambda pipeline: pipeline.run())

    # --- files ----------------------------------------------------------------------------------------
    def whole_load(self) -> None:
        for number in (1, 2):
            self._load(number)

    def part_of_load(self) -> None:
        self._load(self.draw.choice((1, 2)))

    def _load(self, number: int) -> None:
        price = self.draw.choice(("1.00", "2.00"))
        keys = [key for key in KEYS if key % 2 == number % 2 and self.draw.random() < 0.7]
        if keys:
            self._write(f"shop/orders/LOAD{number:08X}.csv", tuple(Line("L", key, price) for key in keys))

    def change(self) -> None:
        self.changes += 1
        lines = []
        for _ in range(self.draw.randint(1, 3)):
            self.seq += 1
            lines.append(Line(self.draw.choice("IUD"), self.draw.choice(KEYS), f"{self.seq}.50", self.seq))
        self._write(f"shop/orders/20261101-{self.changes:09}.csv", tuple(lines))

    def touch(self) -> None:
        if self.files:
            path = self.draw.choice(sorted(self.files))
            self._write(path, self.files[path][0])

    def take_away(self) -> None:
        if self.files:
            path = self.draw.choice(sorted(self.files))
            (self.folder / "raw" / path).unlink()
            del self.files[path]

    def deliver_again(self) -> None:
        if self.model.seen:
            path = self.draw.choice(sorted(self.model.seen))
            self._write(path, self.model.seen[path].lines)

    def _write(self, path: str, lines: tuple[Line, ...]) -> None:
        self.at += 1
        if "LOAD" in path:
            text = "id,price\n" + "".join(f"{one.key},{one.price}\n" for one in lines)
        else:
            text = HEAD + "".join(f"{one.op},{one.key},{one.price},{one.seq}\n" for one in lines)
        self.job.put(path, text)
        os.utime(self.folder / "raw" / path, (START_S + 100 * self.at,) * 2)
        self.files[path] = (lines, self.at)
        self.told.append(f"  {path} at {self.at}: {text!r}")

    # --- the job --------------------------------------------------------------------------------------
    def forget(self) -> None:
        shutil.rmtree(self.folder / "state", ignore_errors=True)

    def new_task(self) -> None:
        """All files of the old task have landed before."""
        self.work(lambda pipeline: pipeline.run())
        self.epoch, self.seq = self.epoch + 1, 0
        self.reload[str(self.epoch)] = self.draw.choice(("truncate", "keep"))
        self.told.append(f"  {self.reload}")
        self.job.config["tables"][TABLE] |= {"epoch": self.epoch, "reload": dict(self.reload)}

    def reset(self) -> None:
        self.work(lambda pipeline: pipeline.reset([TABLE]))

    def hurt(self) -> None:
        """Bronze loses all rows of a file or the first; the file is there still, and never held anything else."""
        tags = self._bronze_tags()
        whole = [path for path, (lines, _) in sorted(self.files.items())
                 if len(tags.get(path, ())) == 1 and self.model.seen[path].lines == lines]  # fmt: skip
        if whole:
            path = self.draw.choice(whole)
            where = f"_file = '{path}'" + self.draw.choice(("", " and _line = 1"))
            self.told.append(f"  {where}")
            self._bronze().delete(where)
            self.work(lambda pipeline: pipeline.replay([TABLE]))

    def _bronze(self) -> Any:
        if self.table_format == "delta":
            return deltalake.DeltaTable(str(self.folder / "bronze/orders"))
        return load_catalog("default", **self.job.config["catalog"]).load_table("bronze.orders")

    def _bronze_tags(self) -> dict[str, list[str]]:
        if not self.model.seen:
            return {}
        table = self._bronze()
        rows = pa.table(table.to_pyarrow_table() if self.table_format == "delta" else table.scan().to_arrow())
        found = rows.group_by("_file").aggregate([("_tag", "distinct")]).to_pylist()
        return {one["_file"]: one["_tag_distinct"] for one in found}

    def work(self, how: Callable[[Pipeline], Any]) -> None:
        done = how(Pipeline(self.job.config))
        assert done.ok, "\n".join([*self.told, str(done.tables[0].error)])
        self.model.run(self.files, self.epoch)
        silver = {key: str(row["price"]) for key, row in rows_of(self.job, "silver").items()}
        assert silver == self.model.silver(self.reload), "\n".join(self.told)
        audits = verify(Pipeline(self.job.config))
        assert [(one.flaws, one.error) for one in audits] == [([], None)], "\n".join(self.told)


@pytest.mark.parametrize("seed", [1, 2])
def test_silver_is_what_a_story_says(seed: int, tmp_path: Path) -> None:
    Story(tmp_path, "delta", seed).tell()


@pytest.mark.long
@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
@pytest.mark.parametrize("first", range(0, 30, 15))
def test_silver_is_what_many_stories_say(table_format: str, first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 15):
        folder = tmp_path / str(seed)
        folder.mkdir()
        Story(folder, table_format, seed).tell()
