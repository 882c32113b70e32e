"""Files that tasks read in parts, and whose rows they write elsewhere, compared with the same files and the rows in this process."""

from __future__ import annotations

import copy
import gzip
import io
import json
import logging
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog

import safewrite as sw
from bench.medallion.engines import Away
from safewrite.engine.abc import ExecutorsLackPythonError, TaskAttempt
from safewrite.engine.choice import Cost
from safewrite.engine.task_files import WrittenRows
from safewrite.errors import InternalError, StorageError
from safewrite.frames.task_files import MemberWriter, WrittenGroup
from safewrite.medallion import Pipeline, verify
from safewrite.medallion.bronze import landing, tasks
from safewrite.medallion.files import parts
from safewrite.medallion.silver import apply
from safewrite.medallion.silver import tasks as silver_tasks
from safewrite.medallion.tables.engine import by_executors
from tests.medallion.test_jobs import Shop, set_in

LOAD, CHANGES = "shop/orders/LOAD00000001", "shop/orders/20261101-000000001"
VALUES = ["plain", '"a,b"', '"line\nbreak"', '"q""uote"', "NULL", '""', "é", "x" * 60]
ODD = [*VALUES, 'in"side']
"""With a quote within a value that is not in quotes, which misleads whoever counts quotes."""


@dataclass
class Twin:
    """One folder of raw files, and two jobs on it: ``plain`` has the rows in this process, ``tasks`` elsewhere."""

    folder: Path
    plain: Shop
    tasks: Shop

    def put(self, path: str, content: bytes) -> None:
        place = self.folder / "raw" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)

    def pipelines(self) -> tuple[Pipeline, Pipeline]:
        return Pipeline(self.plain.config), by_tasks(self.tasks.config)

    def same(self) -> Any:
        """Run both, and compare all that they left; the run by tasks."""
        runs = [one.run() for one in self.pipelines()]
        one, other = (run.to_dict()["tables"][0] for run in runs)
        if "catalog" in self.plain.config:  # there the commits that silver took have names of chance
            other["refined"]["position"] = one["refined"]["position"]
        for name in ("landed", "refined", "error"):
            assert one[name] == other[name]
        assert tables(self.plain) == tables(self.tasks)
        assert remembered(self.plain) == remembered(self.tasks)
        assert keys(self.plain) == keys(self.tasks)
        return runs[1]


def by_tasks(config: dict[str, Any]) -> Pipeline:
    pipeline = Pipeline(config)
    pipeline.places.work = by_executors(Away())
    return pipeline


def read(job: Shop, name: str) -> list[dict[str, Any]]:
    """The rows of a table, by another reader than safewrite; none where there is no table."""
    if "catalog" not in job.config:
        place = job.folder / name
        return pa.table(deltalake.DeltaTable(place).to_pyarrow_table()).to_pylist() if place.exists() else []
    catalog = load_catalog("default", **job.config["catalog"])
    iceberg = name.replace("/", ".") if "/" in name else str(job.config["quarantine"])
    return catalog.load_table(iceberg).scan().to_arrow().to_pylist() if catalog.table_exists(iceberg) else []


def tables(job: Shop) -> dict[str, list[str]]:
    """The rows of all tables, bronze's own columns too."""
    return {name: sorted(map(repr, read(job, name))) for name in ("bronze/orders", "silver/orders", "aside")}


def remembered(job: Shop) -> Any:
    found = json.loads((job.folder / "state/shop/shop.orders.json").read_text())
    return {name: found[name] for name in ("files", "orders", "epoch", "truncated")}


def bronze(job: Shop) -> sw.Table:
    if "catalog" not in job.config:
        return sw.open(job.folder / "bronze/orders")
    return sw.open("bronze.orders", catalog=job.config["catalog"])


def keys(job: Shop) -> dict[str, tuple[str, int]]:
    """The files of bronze with their fingerprints, from the commits that brought them."""
    entries = bronze(job).history()
    found = {one.key: (one.fingerprint, one.rows) for entry in entries for one in entry.writes}
    return {key: value for key, value in found.items() if not key.startswith("sw~")}


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of some kilobytes are cut."""
    monkeypatch.setattr(tasks, "PART_BYTES", 2000)
    monkeypatch.setattr(tasks, "_OVERHEAD_BYTES", 0)
    monkeypatch.setattr(tasks, "SMALL_BYTES", 0)
    monkeypatch.setattr(parts, "PIECE_BYTES", 320)
    monkeypatch.setattr(parts, "_FETCHED", 128)
    monkeypatch.setattr(parts, "_PIECE_ROWS", 7)
    monkeypatch.setattr(apply, "SMALL_ROWS", 0)
    monkeypatch.setattr(silver_tasks, "PIECE_ROWS", 50)


@pytest.fixture
def twins(tmp_path: Path, small_parts: None) -> Callable[..., Twin]:
    def made(files: dict[str, Any], columns: dict[str, str] | None = None) -> Twin:
        jobs = []
        for name in ("plain", "tasks"):
            (tmp_path / name).mkdir()
            job = Shop(tmp_path / name, columns or {"id": "int64", "name": "string"})
            set_in(job, "raw", "location", to=str(tmp_path / "raw"))
            set_in(job, "defaults", "files", to=files)
            jobs.append(job)
        return Twin(tmp_path, *jobs)

    return made


def lines(
    draw: random.Random, values: list[str], count: int, *, op: bool, seq: bool, first: int = 0
) -> Iterator[str]:
    for number in range(first, first + count):
        first = [draw.choice("IIUDQ")] if op else []
        own = [draw.choice([str(number % 37), str(number), "x"]), draw.choice(values)]
        yield ",".join([*first, *own, *([str(number)] if seq else []), *draw.choice([[], [], [], ["more"]])])


@pytest.mark.sweep("0", "1", "2")
@pytest.mark.parametrize("seed", range(4))
def test_the_same_files_give_the_same_tables_and_receipts(
    twins: Callable[..., Twin], seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """CSV with and without header, ordered by a column and by lines, packed and not, with quotes that mislead."""
    draw = random.Random(seed)
    header, seq, values = seed % 2 == 0, seed % 3 > 0, ODD if seed == 3 else VALUES
    names = ["Op", "id", "name", *(["seq"] if seq else [])]
    files: dict[str, Any] = {"kind": "csv", "header": header}
    files |= {"change_seq": "seq"} if seq else {}
    files |= {} if header else {"order": ["Op", "*", *(["seq"] if seq else [])]}
    files |= {"rfc4180": True} if seed % 2 else {}
    twin = twins(files)
    for number, (path, count) in enumerate([(f"{CHANGES}.csv", 400), ("shop/orders/20261102-000000001.csv.gz", 200),
                         (f"{LOAD}.csv", 300), ("shop/orders/20261103-000000001.csv", 3)]):  # fmt: skip
        is_load = path.startswith(LOAD)
        head = ",".join(names[1 if is_load else 0 :]) + "\n" if header else ""
        text = "\n".join(lines(draw, values, count, op=not is_load, seq=seq))
        body = ("\ufeff" * (number == 0) + head + text + "\n" * (number % 2)).encode()
        twin.put(path, gzip.compress(body) if path.endswith(".gz") else body)
    caplog.set_level(logging.INFO, "safewrite")
    run = twin.same()
    assert (run.ok, run.tables[0].landed.files) == (True, 4)
    assert ("is read at once" in caplog.text) == (values is ODD)
    assert len(deltalake.DeltaTable(twin.tasks.folder / "bronze/orders").file_uris()) > 1
    assert run.tables[0].landed.rows > 100
    assert run.tables[0].landed.quarantined > 50
    assert [one.clean for one in verify(Pipeline(twin.tasks.config))] == [True]


@pytest.mark.parametrize("lacking", ["ReadParts", "ReadMade"])
def test_a_run_goes_on_here_where_an_executor_turns_out_to_lack_python(
    twins: Callable[..., Twin], monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    """One that came after the others were asked; where executors were asked for by name the table fails."""

    class Lacks(Away):
        def map(self, source: Any, task: Any, rows_a_batch: int | None = None) -> Any:
            if type(task).__name__ == lacking:
                raise ExecutorsLackPythonError("Install safewrite on every node.")
            return super().map(source, task, rows_a_batch)

    monkeypatch.setattr(tasks, "SMALL_BYTES", 0)
    monkeypatch.setattr(apply, "SMALL_ROWS", 0)
    twin = twins({"kind": "csv", "header": True, "change_seq": "seq"}, {"id": "int64", "name": "string"})
    twin.put("shop/orders/20261101-000000001.csv", b"Op,id,name,seq\nI,1,a,1\nI,2,b,2\n")
    pipeline = Pipeline(twin.tasks.config)
    pipeline.places.work = by_executors(Lacks())
    (failed,) = pipeline.run().tables
    assert "Install safewrite on every node." in str(failed.error)
    work, costs = pipeline.places.work, (Cost(1.0, 1.0, 1), Cost(0.0, 0.0, 1))
    work.executors.is_forced, work.files.costs, work.rows.costs = False, costs, costs
    run = pipeline.run()
    assert (run.ok, run.engine.startswith("Install safewrite")) == (True, True)
    assert Pipeline(twin.plain.config).run().ok
    assert tables(twin.plain) == tables(twin.tasks)


def test_small_files_are_landed_without_a_job_of_the_engine(
    twins: Callable[..., Twin], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is on what a table has new, together."""
    twin = twins({"kind": "csv", "header": True, "change_seq": "seq"})
    read = list[str]()

    class Counted(Away):
        def map(self, source: Any, task: Any, rows_a_batch: int | None = None) -> Any:
            read.append(type(task).__name__)
            return super().map(source, task, rows_a_batch)

    monkeypatch.setattr(tasks, "SMALL_BYTES", 50)
    for day, count in enumerate((1, 1, 2), 1):
        for number in range(count):
            twin.put(
                f"shop/orders/2026110{day}-00000000{number}.csv", b"Op,id,name,seq\nI,1,a name,%d\n" % day
            )
        pipeline = by_tasks(twin.tasks.config)
        pipeline.places.work = by_executors(Counted())
        assert pipeline.run().ok
        assert ("ReadParts" in read) == (count > 1)
    assert Pipeline(twin.plain.config).run().ok
    assert tables(twin.plain)["bronze/orders"] == tables(twin.tasks)["bronze/orders"]


@pytest.mark.long
def test_carriage_returns_of_a_part_mean_what_they_mean_in_one_process(twins: Callable[..., Twin]) -> None:
    """They are of values, wherever a part or a piece of the file ends."""
    twin = twins({"kind": "csv", "header": True})
    text = "".join(f"I,{number},a\rname{chr(13) * (number % 2)}\n" for number in range(700))
    twin.put(f"{CHANGES}.csv", f"Op,id,name\n{text}I,700,\r".encode())
    run = twin.same()
    assert (run.ok, run.tables[0].landed.rows) == (True, 701)


def test_a_large_commit_of_bronze_goes_to_silver_in_parts(
    twins: Callable[..., Twin], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later one too, not the first alone; silver's position is that of the whole, so what breaks off between comes again."""
    twin = twins({"kind": "csv", "header": True, "change_seq": "seq"})
    draw, made, taken = random.Random(5), silver_tasks.changes_of, list[int]()

    def counted(rows: pa.Table, *given: Any) -> Any:
        if len(taken) == 2:
            raise StorageError("The store is gone.")
        taken.extend([rows.num_rows] if rows.num_rows else [])
        return made(rows, *given)

    for number, count in enumerate((5, 900)):
        text = "\n".join(lines(draw, VALUES, count, op=True, seq=True))
        twin.put(f"shop/orders/2026110{number + 1}-000000001.csv", f"Op,id,name,seq\n{text}\n".encode())
        assert Pipeline(twin.plain.config).run().ok
        taken.clear()
        with monkeypatch.context() as patch:
            patch.setattr(apply, "ROWS_MAX", 100)
            patch.setattr(silver_tasks, "changes_of", counted)
            run = by_tasks(twin.tasks.config).run()
    assert len(taken) == 2
    assert max(taken) <= 100
    assert "is gone" in str(run.tables[0].error)
    assert by_tasks(twin.tasks.config).run().ok
    assert tables(twin.plain) == tables(twin.tasks)
    assert [one.clean for one in verify(Pipeline(twin.tasks.config))] == [True]


def test_parquet_is_read_by_row_groups(twins: Callable[..., Twin]) -> None:
    twin = twins(
        {"kind": "parquet", "change_seq": "seq"}, {"id": "int64", "name": "string", "price": "decimal(10,2)"}
    )
    draw = random.Random(1)
    for number, count in enumerate((900, 0, 5)):
        rows = pa.table({
            "Op": pa.array([draw.choice("IUDQ") for _ in range(count)], pa.string()),
            "id": pa.array([draw.choice([row % 50, None]) for row in range(count)], pa.int32()),
            "name": pa.array([draw.choice(VALUES) for _ in range(count)], pa.string()).dictionary_encode(),
            "price": pa.array([row / 4 for row in range(count)], pa.float64()),
            "seq": pa.array([f"{1000 * number + row}" for row in range(count)], pa.string()),
        })  # fmt: skip
        sink = io.BytesIO()
        pq.write_table(rows, sink, row_group_size=100)
        twin.put(f"shop/orders/2026110{number + 1}-000000001.parquet", sink.getvalue())
    run = twin.same()
    assert (run.ok, run.tables[0].landed.rows_in_files) == (True, 905)
    assert run.tables[0].landed.rows > 200
    assert len(deltalake.DeltaTable(twin.tasks.folder / "bronze/orders").file_uris()) > 2


@pytest.mark.long
def test_a_job_may_change_its_engine(twins: Callable[..., Twin]) -> None:
    """What one engine landed the other knows, with and without its memory; a file that was written again is refused by both."""
    twin = twins({"kind": "csv", "header": True, "change_seq": "seq"})
    draw = random.Random(2)
    engines = [by_tasks, Pipeline, by_tasks]
    for number, engine in enumerate(engines):
        text = "Op,id,name,seq\n" + "\n".join(lines(draw, VALUES, 200, op=True, seq=True))
        twin.put(f"shop/orders/2026110{number + 1}-000000001.csv", text.encode())
        assert engine(twin.tasks.config).run().tables[0].landed.files == 1
        shutil.rmtree(twin.tasks.folder / "state")
        for other in engines[:2]:
            assert other(twin.tasks.config).run().tables[0].landed.files == 0
    assert [one.clean for one in verify(Pipeline(twin.tasks.config))] == [True]
    twin.put(f"{CHANGES}.csv", b"Op,id,name,seq\nI,1,other,1\n")
    errors = [engine(twin.tasks.config).run().tables[0].error for engine in engines[:2]]
    assert errors[0] == errors[1]
    assert "was written again with other content" in str(errors[0])


def test_a_file_that_another_run_landed_meanwhile_is_left_out(
    twins: Callable[..., Twin], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows shared a data file with those of other files, which are written once more without it."""
    twin = twins({"kind": "csv", "header": True, "change_seq": "seq"})
    run_while_another_lands(twin, monkeypatch)
    assert len(tables(twin.tasks)["bronze/orders"]) == 3


def run_while_another_lands(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the job by tasks on three files, of which another run lands one before its commit."""
    paths = [f"shop/orders/2026110{number}-000000001.csv" for number in (1, 2, 3)]
    for number, path in enumerate(paths):
        twin.put(path, f"Op,id,name,seq\nI,{number},a,{number}\nI,x,a,{number}\n".encode())
    other = copy.deepcopy(twin.tasks.config)
    other["raw"]["location"], other["state"] = f"{twin.folder}/raw2", f"{twin.folder}/state2"
    place = twin.folder / "raw2" / paths[1]
    place.parent.mkdir(parents=True)
    shutil.copy2(twin.folder / "raw" / paths[1], place)
    check = landing._check_share

    def meanwhile(*given: Any) -> None:
        monkeypatch.undo()
        assert Pipeline(other).run().tables[0].landed.files == 1
        check(*given)

    monkeypatch.setattr(landing, "_check_share", meanwhile)
    run = by_tasks(twin.tasks.config).run()
    assert (run.ok, run.tables[0].landed.files) == (True, 3)
    assert [one.clean for one in verify(Pipeline(twin.tasks.config))] == [True]


@pytest.mark.parametrize(
    ("what", "said"),
    [("columns", "other columns"), ("share", "quarantined_share_max"), ("kind", "files.kind says")],
)
def test_what_is_refused_is_refused_before_bronze_is_made(
    twins: Callable[..., Twin], what: str, said: str
) -> None:
    twin = twins({"kind": "csv", "header": True, "change_seq": "seq"})
    head = "Op,id,name,more,seq\n" if what == "columns" else "Op,id,name,seq\n"
    draw = random.Random(3)
    text = head + "\n".join(lines(draw, VALUES, 200, op=True, seq=True))
    twin.put(f"{CHANGES}.{'parquet' if what == 'kind' else 'csv'}", text.encode())
    set_in(twin.tasks, "defaults", "quality", "quarantined_share_max", to=0.01)
    assert said in str(by_tasks(twin.tasks.config).run().tables[0].error)
    assert not (twin.tasks.folder / "bronze").exists()
    assert tables(twin.tasks)["aside"] == []


def test_rows_that_change_between_two_writes_are_committed_by_neither(small_parts: None) -> None:
    """The second write of a group, without members that are there, must be of the same rows."""
    schema = pa.schema([("id", pa.int64())])

    class Files:
        def write(self, tables: Any, at: Any) -> tuple[Any, ...]:
            list(tables)
            return ()

    writer = MemberWriter(schema, (), Files())

    def written(*ids: int) -> Any:
        return writer.write([("a", pa.table({"id": ids}, schema=schema))], TaskAttempt(0, 0)).members

    group = WrittenGroup(
        schema, None, lambda names: [WrittenRows((), {})], (), {"a": written(1)["a"], "b": written(2)["a"]}
    )
    with pytest.raises(InternalError, match="other rows of"):
        group.of(["a"])
