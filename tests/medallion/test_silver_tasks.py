"""Silver by tasks elsewhere, compared with tasks of this process: what rows say, rules, quarantine, counts and refusals."""

from __future__ import annotations

import logging
import pickle
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from bench.medallion.harness import mixed_lab
from safewrite.changes.members import task_changes
from safewrite.engine.local import LocalEngine
from safewrite.errors import StorageError
from safewrite.medallion import Pipeline, verify
from safewrite.medallion.audit import accounting, dealt_rows
from safewrite.medallion.lineage.lineage import Lineage
from safewrite.medallion.silver import apply
from safewrite.medallion.silver import tasks as silver_tasks
from safewrite.medallion.tables.engine import Workplace, by_executors
from tests.medallion import test_tasks
from tests.medallion.test_jobs import set_in
from tests.medallion.test_tasks import Twin, by_tasks, tables

small_parts, twins = test_tasks.small_parts, test_tasks.twins
FILES = {"kind": "csv", "header": True, "change_seq": "seq", "before_image": "BI_", "no_sup_value": "?"}
COLUMNS = {"id": "int64", "name": "string", "price": "float64"}
RULES = {
    "not_null": ["name"],
    "ranges": {"price": [0, 900]},
    "conditions": ["price <> 13"],
    "quarantined_share_max": 0.9,
}


class Source:
    """A table whose changes are written as DMS does: with keys from before, and without values that the log lacks."""

    def __init__(self, draw: random.Random) -> None:
        self.draw, self.seq, self.lacks = draw, 0, 0.2
        self.keys = set[int]()
        """Those that come and go; others are loaded and stay, and the log lacks values of theirs alone."""

    def change(self) -> str:
        draw, self.seq = self.draw, self.seq + 1
        name, price = draw.choice(["a", "b", "NULL", '"x,y"']), str(draw.choice([1, 2.5, -1, 13, 950, 7, 8]))
        new = draw.randrange(120)
        if draw.random() < self.lacks:
            lacks = draw.choice(["name", "price"])
            key = 200 + draw.randrange(20)
            return f"U,{key},{'?' if lacks == 'name' else name},{'?' if lacks == 'price' else price},{key},{self.seq}"
        if not self.keys or (draw.random() < 0.4 and new not in self.keys):
            self.keys.add(new)
            return f"I,{new},{name},{price},NULL,{self.seq}"
        key = draw.choice(sorted(self.keys))
        if draw.random() < 0.25:
            self.keys.remove(key)
            return f"D,{key},NULL,NULL,NULL,{self.seq}"
        if draw.random() < 0.3 and new not in self.keys:
            self.keys ^= {key, new}
            return f"U,{new},{name},{draw.choice([price, price, '?'])},{key},{self.seq}"
        return f"U,{key},{name},{price},{key},{self.seq}"

    def file(self, count: int) -> bytes:
        lines = [self.change() for _ in range(count)]
        return "\n".join(["Op,id,name,price,BI_id,seq", *lines, ""]).encode()

    def load(self) -> bytes:
        self.keys = {*range(0, 100, 3)}
        return "\n".join(
            ["id,name,price", *(f"{key},load,8" for key in (*sorted(self.keys), *range(200, 220))), ""]
        ).encode()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pieces of bronze tasks were asked for, commit by commit."""
    found, read = list[int](), silver_tasks.SilverTasks.read

    def counted(tasks: Any, *given: Any) -> Any:
        made = read(tasks, *given)
        if tasks.reader is not None:
            found.append(len(made.make.pieces))
        return made

    monkeypatch.setattr(silver_tasks.SilverTasks, "read", counted)
    return found


def set_up(twins: Callable[..., Twin], **rules: Any) -> Twin:
    twin = twins(FILES, COLUMNS)
    for job in (twin.plain, twin.tasks):
        set_in(job, "defaults", "quality", to={**RULES, **rules})
    return twin


@pytest.mark.sweep("0")
@pytest.mark.parametrize("seed", range(2))
def test_the_same_bronze_gives_the_same_silver(
    twins: Callable[..., Twin],
    asked: list[int],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    caplog.set_level(logging.INFO, "safewrite")
    if seed:  # too many keys for their hashes to be sent about
        monkeypatch.setattr(task_changes, "HASHES_MAX", 10)
    source, twin = Source(random.Random(seed)), set_up(twins)
    twin.put("shop/orders/LOAD00000001.csv", source.load())
    for number, count in enumerate((150, 250)):
        twin.put(f"shop/orders/2026110{number + 1}-000000001.csv", source.file(count))
        run = twin.same()
        assert run.ok
    assert min(asked) > 1
    for pipeline in twin.pipelines():
        assert pipeline.reset(["shop.orders"]).ok
    assert tables(twin.plain) == tables(twin.tasks)
    for job in (twin.plain, twin.tasks):
        job.config["tables"]["shop.orders"] |= {"epoch": 2, "reload": "truncate"}
    source.lacks = 0
    twin.put("shop/orders/20261103-000000001.csv", source.file(80))
    assert twin.same().ok
    assert len(asked) == 4
    assert "one task has all rows" not in caplog.text
    assert len(tables(twin.tasks)["aside"]) > 20
    assert [one.clean for one in verify(Pipeline(twin.tasks.config))] == [True]


class Sent(LocalEngine):
    """Sends tasks as bytes, and reports too; a test may do something before."""

    def __init__(self, before: Callable[[], Any] = lambda: None) -> None:
        self.before, self.parts = before, [0]

    @contextmanager
    def map(self, source: Any, task: Any) -> Iterator[Any]:
        self.parts.append(len(source))
        self.before()
        with super().map(source, pickle.loads(pickle.dumps(task))) as mapped:
            yield replace(mapped, reports=pickle.loads(pickle.dumps(mapped.reports)))


def test_a_table_that_is_verified_in_shares_is_found_as_at_once(
    twins: Callable[..., Twin], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Keys that change, values that the log lacks, rows in quarantine; then rows that are lost, old, too many, or there twice."""
    source, twin = Source(random.Random(3)), set_up(twins)
    twin.put("shop/orders/LOAD00000001.csv", source.load())
    twin.put("shop/orders/20261101-000000001.csv", source.file(400))
    assert twin.pipelines()[0].run().ok

    def audits() -> list[dict[str, Any]]:
        found = []
        for rows, kept, engine in ((100_000, 2**25, None), (13, 100, None), (13, 2**25, Sent())):
            monkeypatch.setattr(accounting, "SHARE_ROWS", rows)
            monkeypatch.setattr(dealt_rows, "_MEMORY_BYTES", kept)
            pipeline = Pipeline(twin.plain.config)
            pipeline.places.work = Workplace() if engine is None else by_executors(engine)
            found.append(verify(pipeline)[0].to_dict())
            assert engine is None or engine.parts.pop() > 5
        return found

    caplog.set_level(logging.INFO, "safewrite")
    monkeypatch.setattr(accounting, "TASK_SHARES", 6)
    at_once, in_shares, by_tasks = audits()
    assert at_once == in_shares == by_tasks
    assert at_once["clean"]
    assert "this process does" not in caplog.text
    silver, bronze = (
        deltalake.DeltaTable(twin.plain.folder / name / "orders") for name in ("silver", "bronze")
    )
    rows = pa.table(silver.to_pyarrow_table())
    silver.delete(f"id in ({', '.join(map(str, rows['id'][:9].to_pylist()))})")
    silver.update({"name": "'other'"}, predicate="id > 80 AND id < 210")
    others = rows.slice(20, 3).set_column(0, rows.schema[0], pa.array([1001, 1002, 1003]))
    deltalake.write_deltalake(silver, pa.concat_tables([others, rows.slice(40, 2)]), mode="append")
    twice = pa.table(bronze.to_pyarrow_table()).slice(0, 30)
    deltalake.write_deltalake(bronze, twice.filter(pa.array([n % 3 > 0 for n in range(30)])), mode="append")
    monkeypatch.setattr(Lineage, "since", lambda *given: [])
    at_once, in_shares, by_tasks = audits()
    assert at_once == in_shares == by_tasks
    assert len(at_once["flaws"]) == 5
    assert "this process does" not in caplog.text


@pytest.mark.sweep("it was written")
@pytest.mark.parametrize("why", ["it was written", "a task fails"])
def test_what_tasks_cannot_verify_this_process_does(
    twins: Callable[..., Twin], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, why: str
) -> None:
    source, twin = Source(random.Random(3)), set_up(twins)
    twin.put("shop/orders/LOAD00000001.csv", source.load())
    assert twin.pipelines()[0].run().ok
    monkeypatch.setattr(accounting, "SHARE_ROWS", 13)
    monkeypatch.setattr(accounting, "TASK_SHARES", 1)
    caplog.set_level(logging.INFO, "safewrite")

    def write() -> None:
        twin.put("shop/orders/20261101-000000001.csv", source.file(30))
        assert twin.pipelines()[0].run().ok

    def fail() -> None:
        raise StorageError("no executors")

    pipeline = Pipeline(twin.plain.config)
    pipeline.places.work = by_executors(Sent(fail if why == "a task fails" else write))
    (audit,) = verify(pipeline)
    assert audit.clean
    assert "this process does" in caplog.text


@pytest.mark.parametrize(
    ("rules", "what"),
    [
        ({"quarantined_share_max": 0.01}, "quarantined_share_max is 0.01"),
        ({"null_share_max": {"name": 0.01}}, "have NULL in name"),
        ({"conditions": ["nothing > 1"]}, "conditions: 'nothing > 1' cannot be applied"),
    ],
)
def test_what_rules_refuse_is_not_put_aside(
    twins: Callable[..., Twin],
    rules: dict[str, Any],
    what: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "safewrite")
    twin = set_up(twins, **rules)
    source = Source(random.Random(4))
    twin.put("shop/orders/LOAD00000001.csv", source.load())
    twin.put("shop/orders/20261101-000000001.csv", source.file(300))
    assert what in str(by_tasks(twin.tasks.config).run().tables[0].error)
    assert tables(twin.tasks)["silver/orders"] == tables(twin.tasks)["aside"] == []
    assert "one task has all rows" not in caplog.text


@pytest.mark.sweep("lacks", "result")
@pytest.mark.parametrize("why", ["ties", "result", "lacks"])
def test_what_needs_all_rows_of_a_commit_is_one_task(
    twins: Callable[..., Twin],
    why: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Changes with one place in the order, and values that nothing has; rules of what silver would become are given its rows."""
    caplog.set_level(logging.INFO, "safewrite")
    result = {"conditions": ["price > -5"]} if why == "result" else {}
    source, twin = Source(random.Random(5)), set_up(twins, result=result)
    twin.put("shop/orders/LOAD00000001.csv", source.load())
    content = source.file(300)
    if why == "ties":  # far apart: those in one piece the task of that piece decides about
        head, _, others = content.partition(b"\n")
        content = head + b"\nI,500,a,1,NULL,900\n" + others + b"U,500,b,1,500,900\n"
    content += b"U,501,?,1,501,900\n" if why == "lacks" else b""
    twin.put("shop/orders/20261101-000000001.csv", content)
    run = twin.same()
    assert run.ok
    assert ("one task has all rows" in caplog.text) == (why != "result")
    assert verify(Pipeline(twin.tasks.config))[0].flaws == []
    for job in (twin.plain, twin.tasks):
        job.config["tables"]["shop.orders"] |= {"epoch": 2, "reload": "truncate"}
    twin.put("shop/orders/20261102-000000001.csv", b"Op,id,name,price,BI_id,seq\nU,200,?,1,200,901\n")
    assert twin.same().ok
    for pipeline in twin.pipelines():
        assert pipeline.reset(["shop.orders"]).ok
    assert tables(twin.plain) == tables(twin.tasks)


def test_rows_that_are_all_in_quarantine_move_silver_on(twins: Callable[..., Twin]) -> None:
    twin = set_up(twins, quarantined_share_max=1.0)
    twin.put(
        "shop/orders/20261101-000000001.csv",
        b"Op,id,name,price,BI_id,seq\nI,1,NULL,1,NULL,1\nI,2,NULL,1,NULL,2\n",
    )
    run = twin.same()
    assert (run.ok, run.tables[0].refined.quarantined, run.tables[0].lag_commits) == (True, 2, 0)


@pytest.mark.long
def test_a_table_whose_changes_are_in_files_of_all_tables_lands_by_tasks_too(tmp_path: Path) -> None:
    job = mixed_lab(tmp_path, "delta", tables=4)  # with and without the names of columns in files
    for table in job.tables:
        job.dms.fill(table, 5)
        job.dms.load(table)
    assert by_tasks(job.config).run().ok
    job.go_on(5)
    assert by_tasks(job.config).run().ok
    assert (job.wrong(), job.flaws()) == ({}, [])


def test_a_few_rows_are_worth_no_job(
    twins: Callable[..., Twin],
    asked: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(apply, "SMALL_ROWS", 10)
    twin = set_up(twins, quarantined_share_max=1.0)
    twin.put("shop/orders/20261101-000000001.csv", Source(random.Random(6)).file(10))
    assert by_tasks(twin.tasks.config).run().ok
    assert asked == []


@pytest.mark.long
def test_partitions_and_the_time_of_a_commit_are_the_same(
    twins: Callable[..., Twin], asked: list[int]
) -> None:
    twin = twins({"kind": "csv", "header": True, "change_seq": "seq", "timestamp": "at"}, COLUMNS)
    by = {"bronze": ["_commit_date"], "silver": ["_commit_date", "name"]}
    for job in (twin.plain, twin.tasks):
        job.config["tables"]["shop.orders"] |= {"commit_time": "changed_at", "partition_by": by}
    for number in range(2):
        lines = [
            f"{'UD'[row % 7 == 0]},{row % 30},{'abc'[row % 3]},{row},2026-11-{10 + row % 5} 10:00:00,{row + 200 * number}"
            for row in range(120)
        ]
        twin.put(
            f"shop/orders/2026110{number + 1}-000000001.csv",
            "\n".join(["Op,id,name,price,at,seq", *lines, ""]).encode(),
        )
        assert twin.same().ok
    assert len(asked) == 2
    assert "changed_at" in tables(twin.tasks)["silver/orders"][0]
