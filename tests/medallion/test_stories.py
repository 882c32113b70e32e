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
from safewrite.medallion.config.stored_names import stored
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
    path: str = ""


class Model:
    """What silver is to hold."""

    def __init__(self) -> None:
        self.seen: dict[str, Seen] = {}
        self.deliveries: list[Delivery] = []
        self.floors: list[tuple[int, int]] = []

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
            self.deliveries.append(Delivery(epoch, (at, number_of(path)) if is_load else None, lines, path))

    def refuses(self, files: dict[str, tuple[tuple[Line, ...], int]], epoch: int) -> bool:
        """Whether a load came again with other rows, in a task that has changes."""
        has_changes = any(one.rank is None and one.epoch == epoch for one in self.deliveries)
        was_truncated = any(of == epoch for of, _ in self.floors)
        for path, (lines, _) in files.items():
            seen = self.seen.get(path)
            is_new = "LOAD" in path and (seen is None or seen.lines != lines)
            if is_new and (was_truncated or (has_changes and seen is not None and seen.epoch == epoch)):
                return True
        return False

    def truncate(self, files: dict[str, tuple[tuple[Line, ...], int]], epoch: int) -> bool:
        """The source is truncated: what files brought that are gone by now, goes; False where nothing did."""
        gone = [one for one in self.deliveries if one.path not in files]
        self.floors += [(epoch, len(self.deliveries))] if gone else []
        return bool(gone)

    def silver(self, reload: dict[str, str]) -> dict[int, str]:
        first = max((int(one) for one, word in reload.items() if word == "truncate"), default=0)
        taken = self.deliveries[max((at for _, at in self.floors), default=0) :]
        last: dict[int, tuple[tuple[Any, ...], Line]] = {}
        for one in taken:
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
            self.new_task, self.reset, self.hurt, self.refused_and_back, self.taken_and_back, self.truncate_source, self.empty_load,
        )  # fmt: skip
        for part in self.draw.choices(parts, (4, 3, 4, 2, 1, 1, 2, 2, 1, 2, 2, 2, 2, 1), k=STEPS):
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
        for number in range(self.draw.randint(1, 3)):
            self.seq += (
                not number or self.draw.random() < 0.8
            )  # within a file the place decides between equal ones (T3-C8)
            lines.append(
                Line(self.draw.choice("IUD"), self.draw.choice(KEYS), f"{self.seq}.{number}0", self.seq)
            )
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

    def new_task(self, reload: str | None = None, *, is_first_run: bool = True) -> None:
        """All files of the old task have landed before."""
        if is_first_run:
            self.work(lambda pipeline: pipeline.run())
        self.epoch, self.seq = self.epoch + 1, 0
        self.reload[str(self.epoch)] = reload or self.draw.choice(("truncate", "keep"))
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
            where = f"{self._file} = '{path}'" + self.draw.choice(("", " and _line = 1"))
            self.told.append(f"  {where}")
            self._bronze().delete(where)
            self.work(lambda pipeline: pipeline.replay([TABLE]))

    def refused_and_back(self) -> None:
        """A rule refuses silver; bronze, which has the new files by then, goes back to before them (T3-C1)."""
        mark = self._mark()
        self.change()
        if mark is not None and not self.model.refuses(self.files, self.epoch):
            self.job.config["tables"][TABLE]["quality"] = {
                "result": {"queries": ["SELECT false FROM result"]}
            }
            self.job.run()
            del self.job.config["tables"][TABLE]["quality"]
            self._go_back(mark)

    def taken_and_back(self) -> None:
        """Bronze goes back though silver took its commits, and grows again: that is told, or does no harm (T3-C1)."""
        mark = self._mark()
        if mark is None or set(self.model.seen) - set(self.files):
            return  # what is gone from bronze and from the folder stays in silver
        self.change()
        self.work(Pipeline.run)
        self._go_back(mark)
        self.change()
        if not Pipeline(self.job.config).run().ok:
            self.work(lambda pipeline: pipeline.replay([TABLE]))

    def truncate_source(self) -> None:
        """DMS removes the files of a table that is truncated, and writes those of later changes (T3-C3)."""
        self.work(Pipeline.run)
        if not self.files or any(one.epoch != self.epoch for one in self.model.deliveries[-1:]):
            return
        for path in sorted(self.files):
            (self.folder / "raw" / path).unlink()
        self.files.clear()
        self.seq += 1  # the truncate has a place of its own
        self.change()
        self.job.run()
        if self.model.truncate(self.files, self.epoch):
            self.work(lambda pipeline: pipeline.truncate([TABLE]))

    def empty_load(self) -> None:
        """A new task loads a table that is empty (T3-C2)."""
        self.new_task("truncate")
        self.draw.choice((lambda: None, lambda: self._write("shop/orders/LOAD00000001.csv", ())))()

    def _mark(self) -> Any:
        if not self.model.seen:
            return None
        self.work(Pipeline.run)
        if self.table_format == "iceberg":
            return self._bronze().current_snapshot().snapshot_id
        shutil.rmtree(self.folder / "before", ignore_errors=True)
        shutil.copytree(self.folder / "bronze", self.folder / "before")
        return "before"

    def _go_back(self, mark: Any) -> None:
        if self.table_format == "iceberg":
            with self._bronze().manage_snapshots() as snapshots:
                snapshots.rollback_to_snapshot(mark)
            return
        shutil.rmtree(self.folder / "bronze")
        shutil.copytree(self.folder / mark, self.folder / "bronze")

    def _bronze(self) -> Any:
        if self.table_format == "delta":
            return deltalake.DeltaTable(str(self.folder / "bronze/orders"))
        return load_catalog("default", **self.job.config["catalog"]).load_table("bronze.orders")

    @property
    def _file(self) -> str:
        return stored("_file", self.table_format)

    def _bronze_tags(self) -> dict[str, list[str]]:
        if not self.model.seen:
            return {}
        table = self._bronze()
        rows = pa.table(table.to_pyarrow_table() if self.table_format == "delta" else table.scan().to_arrow())
        found = rows.group_by(self._file).aggregate([("_tag", "distinct")]).to_pylist()
        return {one[self._file]: one["_tag_distinct"] for one in found}

    def work(self, how: Callable[[Pipeline], Any]) -> None:
        if self.model.refuses(self.files, self.epoch):  # T3-C6: nothing lands, and the advice is followed
            (told,) = Pipeline(self.job.config).run().tables
            assert "rows of a full load are older than" in str(told.error), "\n".join(self.told)
            for path in sorted(self.files):
                if (
                    "LOAD" not in path and path not in self.model.seen
                ):  # from before the load, and of the old task
                    (self.folder / "raw" / path).unlink()
                    del self.files[path]
            self.new_task("truncate", is_first_run=False)
        done = how(Pipeline(self.job.config))
        assert done.ok, "\n".join([*self.told, str(done.tables[0].error)])
        self.model.run(self.files, self.epoch)
        silver = {key: str(row["price"]) for key, row in rows_of(self.job, "silver").items()}
        assert silver == self.model.silver(self.reload), "\n".join(self.told)
        audits = verify(Pipeline(self.job.config))
        assert [(one.flaws, one.error) for one in audits] == [([], None)], "\n".join(self.told)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_silver_is_what_a_story_says(seed: int, tmp_path: Path) -> None:
    Story(tmp_path, "delta", seed).tell()


@pytest.mark.long
@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
@pytest.mark.parametrize("first", range(0, 30, 5))
def test_silver_is_what_many_stories_say(table_format: str, first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 5):
        folder = tmp_path / str(seed)
        folder.mkdir()
        Story(folder, table_format, seed).tell()
