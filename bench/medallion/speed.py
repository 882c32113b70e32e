"""``python -m bench.medallion.speed``: what a medallion job costs without news, and against plain code that does the same."""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from bench.medallion.plain import Place, PlainDelta, PlainIceberg, run, same
from bench.medallion.spark import PlainSpark, session
from bench.perf.harness import Harness
from bench.screen import screen
from safewrite.medallion import Pipeline

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
COLUMNS = {"id": "int64", "name": "string", "price": "decimal(12,2)", "at": "timestamp"}
WORKERS = 2
FORMATS = ("delta", "iceberg")
OURS, PYTHON, SPARK = "safewrite", "plain Python", "plain Spark"
REQUESTS_MAX, SECONDS_MAX = 5, 1.0


def load_file(folder: Path, draw: random.Random, rows: int) -> Path:
    """A full load."""
    path = folder / "LOAD00000001.csv"
    lines = [f"{n},{_values(draw)}" for n in range(rows)]
    path.write_text("\n".join(["id,name,price,at", *lines]) + "\n")
    return path


def change_file(folder: Path, draw: random.Random, number: int, rows: int, keys: int) -> Path:
    """Updates, deletes and inserts, each with its place in the order."""
    path = folder / f"20261101-0000{number:02}000.csv"
    lines = []
    for n in range(rows):
        op, key = draw.choice("UUUUDI"), draw.randrange(keys)
        key = keys + number * 10**6 + n if op == "I" else key
        lines.append(f"{op},{key},{_values(draw)},{number * 10**6 + n}")
    path.write_text("\n".join(["Op,id,name,price,at,seq", *lines]) + "\n")
    return path


def _values(draw: random.Random) -> str:
    return f"name {draw.randrange(10**6)},{draw.randrange(10**6)}.{draw.randrange(10, 100)},2026-11-01 00:00:00.{draw.randrange(10**5, 10**6)}"


def config(folder: Path, raw: str, table_format: str, tables: int, **more: Any) -> dict[str, Any]:
    """A job of tables t0, t1 and so on."""
    iceberg = table_format == "iceberg"
    root = more.pop("root", str(folder))
    defaults = {
        "format": table_format, "keys": ["id"], "columns": COLUMNS, "files": {"kind": "csv", "header": True, "change_seq": "seq"},
        **{layer: f"{layer}.{{table}}" if iceberg else f"{root}/{layer}/{{table}}" for layer in ("bronze", "silver")},
    }  # fmt: skip
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"{folder}/warehouse"}
    return {
        "job": "speed", "raw": {"location": raw}, "state": f"{root}/state", "workers": WORKERS, "defaults": defaults,
        "quarantine": "aside.records" if iceberg else f"{root}/aside", "quarantine_format": table_format,
        **({"catalog": catalog} if iceberg else {}), "tables": {f"db.t{n}": {} for n in range(tables)}, **more,
    }  # fmt: skip


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and the answer."""
    started_s = time.monotonic()
    found = call()
    return time.monotonic() - started_s, found


class Race:
    """safewrite and plain code on the same files: a full load, then rounds of changes, in turns.

    ``spark`` is a session of ``bench.medallion.spark``; without it plain Python code is the only rival.
    """

    def __init__(self, folder: Path, table_format: str, tables: int, rows: int, spark: Any = None) -> None:
        self.names = [f"t{n}" for n in range(tables)]
        self.draw, self.rows, self.raw = random.Random(1), rows, folder / "raw"
        for name in self.names:
            (self.raw / "db" / name).mkdir(parents=True)
        (folder / "ours").mkdir()
        self.pipeline = Pipeline(config(folder / "ours", str(self.raw), table_format, tables))
        make = PlainDelta if table_format == "delta" else PlainIceberg
        self.rivals: dict[str, Place] = {PYTHON: make(folder / "plain")}
        if spark is not None:
            self.rivals[SPARK] = PlainSpark(spark, folder / "spark", table_format)

    def round(self, number: int) -> tuple[dict[str, float], int]:
        """Seconds of ours and of each rival, and rows of the files."""
        files = {name: self._files(self.raw / "db" / name, number) for name in self.names}
        rows = len(self.names) * (self.rows if number == 0 else 2 * (self.rows // 10))

        def ours() -> None:
            done = self.pipeline.run()
            assert done.ok, [one.error for one in done.tables]

        calls: dict[str, Callable[[], Any]] = {OURS: ours}
        calls |= {name: partial(run, place, files, WORKERS) for name, place in self.rivals.items()}
        names = [*calls]
        first = (number + 1) % len(names)  # each is first in its turn
        seconds = {name: timed(calls[name])[0] for name in (*names[first:], *names[:first])}
        return {name: seconds[name] for name in names}, rows

    def _files(self, place: Path, number: int) -> list[Path]:
        if number == 0:
            return [load_file(place, self.draw, self.rows)]
        some = self.rows // 10
        return [change_file(place, self.draw, 2 * number + n, some, self.rows) for n in (0, 1)]

    def unlike(self) -> list[str]:
        """Tables of rivals whose rows differ from ours."""
        found = []
        for name in self.names:
            settings = self.pipeline.config.tables[f"db.{name}"]
            silver = self.pipeline.places.foreign(settings.silver, settings.format)
            silver.look()
            rows = silver.read(silver.schema.names)
            found += [
                f"{name}: {rival}" for rival, place in self.rivals.items() if not same(rows, place.rows(name))
            ]
        return found


def lines(figures: Sequence[tuple[dict[str, float], int]], tables: int) -> list[list[str]]:
    """Of rounds, one line for each code: its name, seconds, rows/s, tables/min, and our time as a multiple of its time."""
    count = sum(rows for _, rows in figures)
    seconds = {name: sum(round_s[name] for round_s, _ in figures) for name in figures[0][0]}
    found = []
    for name, one_s in seconds.items():
        multiple = "" if name == OURS else f"{seconds[OURS] / one_s:.2f}"
        minutes = 60 * tables * len(figures) / one_s
        found.append([name, f"{one_s:.1f}", f"{count / one_s:,.0f}", f"{minutes:,.0f}", multiple])
    return found


def warm_up(folder: Path, spark: Any) -> None:
    """One small table in each format, so that no round pays for classes that Spark loads at first."""
    for table_format in FORMATS:
        place = folder / "warm-up" / table_format
        place.mkdir(parents=True)
        draw, rival = random.Random(3), PlainSpark(spark, place, table_format)
        rival.table("warm_up", [load_file(place, draw, 10)])
        rival.table("warm_up", [change_file(place, draw, 1, 10, 10)])


def without_news(folder: Path, tables: int) -> tuple[float, float]:
    """Requests and seconds of each table in a process that knows nothing, on S3 behind a counting proxy."""
    with Harness(folder) as lab:
        assert lab.cloud is not None
        s3 = lab.cloud.boto3_client("s3")
        s3.create_bucket(Bucket="speed")
        draw = random.Random(2)
        for n in range(tables):
            s3.put_object(
                Bucket="speed",
                Key=f"raw/db/t{n}/LOAD00000001.csv",
                Body=load_file(folder, draw, 10).read_bytes(),
            )
        options = lab.proxy.storage_options()
        job = config(
            folder,
            "s3://speed/raw",
            "delta",
            tables,
            root="s3://speed",
            storage_options=options,
            arbiter="object-store",
        )
        for _ in range(2):
            done = Pipeline(job).run()
            assert done.ok, [one.error for one in done.tables]
        before = lab.proxy.requests()
        elapsed_s, done = timed(lambda: Pipeline(job).run())
        assert not any(one.news for one in done.tables)
        asked = sum((lab.proxy.requests() - before).values())
    return (asked - 2) / tables, elapsed_s / tables


@app.command()
def speed(
    tables: Annotated[int, typer.Option(help="Tables.")] = 20,
    rows: Annotated[int, typer.Option(help="Rows of each full load; change files have a tenth.")] = 20_000,
    rounds: Annotated[int, typer.Option(help="Rounds of changes.")] = 4,
    quiet_tables: Annotated[int, typer.Option(help="Tables without news; 0 leaves them out.")] = 80,
    spark: Annotated[bool, typer.Option(help="Plain Spark code too.")] = True,
) -> None:
    """Exit 0 only if silver is the same and a table without news costs at most 5 requests and 1 s."""
    console = screen()
    grid = Table(title=f"{tables} tables, {rows} rows of each full load, {WORKERS} at once, on a local disk")
    for name in ("format", "round", "code", "s", "rows/s", "tables/min", "multiple"):
        grid.add_column(name, no_wrap=True)
    folder = Path(tempfile.mkdtemp(prefix="medallion-speed-"))
    unlike: list[str] = []
    with ExitStack() as stack:
        started = stack.enter_context(session(folder / "spark", WORKERS)) if spark else None
        if started is not None:
            warm_up(folder, started)
        for table_format in FORMATS:
            race = Race(folder / table_format, table_format, tables, rows, started)
            figures = [race.round(number) for number in range(rounds + 1)]
            unlike += [f"{table_format} {name}" for name in race.unlike()]
            for name, some in (("full load", figures[:1]), ("changes", figures[1:])):
                for cells in lines(some, tables) if some else []:
                    grid.add_row(table_format, name, *cells)
            rival = race.rivals.get(SPARK)
            if isinstance(rival, PlainSpark):
                console.print(f"{table_format}: silver of plain Spark has {rival.count(race.names):,} rows")
    console.print(grid)
    is_cheap = quiet_tables == 0 or _quiet(console, folder / "quiet", quiet_tables)
    shutil.rmtree(folder)
    if unlike:
        console.print(f"silver differs from the plain code's: {unlike}")
    sys.exit(1 if unlike or not is_cheap else 0)


def _quiet(console: Console, folder: Path, tables: int) -> bool:
    """Print what tables without news cost; whether it is within the bounds."""
    folder.mkdir()
    requests, seconds = without_news(folder, tables)
    console.print(
        f"{tables} tables without news on S3 (ministack), a new process's view: {requests:.1f} requests and {seconds:.3f} s a table"
    )
    return requests <= REQUESTS_MAX and seconds <= SECONDS_MAX


if __name__ == "__main__":
    app()
