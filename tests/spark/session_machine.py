"""Draws programs of one Spark session: its settings, a table that some engine made, one frame after another brought to it.

After each call the table is read by a library that is not Spark and compared with an oracle, and the session's own view of
the table, which may be cached, with both.  A setting that Spark would lose, double or alter rows by is found so, whatever
its name.
"""

from __future__ import annotations

import datetime as dt
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc

import safewrite as sw
from safewrite.errors import SafewriteError
from tests.integration.places import Place
from tests.spark.hooked import HookedTable
from tests.spark.lake import Lake
from tests.spark.session import Spark

Row = tuple[Any, ...]
UTC = dt.UTC
_PARQUET, _DELTA = "spark.sql.parquet.", "spark.databricks.delta."

SETTINGS: tuple[dict[str, str], ...] = (
    {"spark.sql.files.ignoreCorruptFiles": "true"},
    {"spark.sql.files.ignoreMissingFiles": "true"},
    {"spark.sql.sources.partitionOverwriteMode": "dynamic"},
    {"spark.sql.session.timeZone": "America/New_York"},
    {"spark.sql.session.timeZone": "Asia/Kolkata", f"{_DELTA}write.utcTimestampPartitionValues": "false"},
    {f"{_PARQUET}datetimeRebaseModeInRead": "LEGACY", f"{_PARQUET}int96RebaseModeInRead": "LEGACY"},
    {f"{_PARQUET}datetimeRebaseModeInWrite": "LEGACY", f"{_PARQUET}int96RebaseModeInWrite": "LEGACY"},
    {f"{_PARQUET}outputTimestampType": "INT96"},
    {f"{_PARQUET}outputTimestampType": "TIMESTAMP_MILLIS"},
    {f"{_PARQUET}writeLegacyFormat": "true", f"{_PARQUET}int96TimestampConversion": "true"},
    {f"{_DELTA}replaceWhere.dataColumns.enabled": "false"},
    {f"{_DELTA}stats.collect": "false"},
    {f"{_DELTA}commitInfo.enabled": "false"},
    {f"{_DELTA}schema.autoMerge.enabled": "true", f"{_DELTA}optimizeWrite.enabled": "true"},
    {"spark.sql.caseSensitive": "true", "spark.sql.parser.escapedStringLiterals": "true"},
    {"spark.sql.ansi.enabled": "false", "spark.sql.storeAssignmentPolicy": "LEGACY"},
    {"spark.sql.ansi.enabled": "true", "spark.sql.ansi.doubleQuotedIdentifiers": "true"},
    {"spark.sql.files.maxRecordsPerFile": "1", f"{_PARQUET}enableVectorizedReader": "false"},
    {
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
        "spark.sql.execution.arrow.useLargeVarTypes": "true",
    },
    {"spark.sql.legacy.timeParserPolicy": "LEGACY", "spark.sql.adaptive.enabled": "false"},
)
"""Settings of sessions of others, some of them in pairs that belong together."""
MAKERS = {"delta": ("safewrite", "deltalake", "spark"), "iceberg": ("safewrite", "spark")}
VERBS = ("append", "overwrite", "overwrite where", "overwrite part", "apply_changes", "delete", "sink")
DAMAGES = (None, None, None, "torn", "missing")
"""What becomes of the oldest data file while a call runs; afterwards it is as it was."""

SCHEMA = pa.schema([
    ("id", pa.int64()), ("seq", pa.int64()), ("d", pa.date32()), ("ts", pa.timestamp("us", "UTC")),
    ("text", pa.string()), ("p", pa.string()), ("k", pa.timestamp("us", "UTC")),
])  # fmt: skip
PARTS = ((), ("p",), ("k",))
DAYS = (dt.date(1, 1, 1), dt.date(1500, 2, 28), dt.date(2020, 3, 1), dt.date(9999, 12, 31))
TIMES = (
    dt.datetime(1500, 1, 1, tzinfo=UTC), dt.datetime(1899, 12, 31, 23, 59, 59, 999_999, UTC),
    dt.datetime(2026, 11, 1, 5, 30, tzinfo=UTC), dt.datetime(9999, 12, 31, tzinfo=UTC),
)  # fmt: skip
MOMENTS = (dt.datetime(2026, 1, 1, tzinfo=UTC), dt.datetime(2026, 11, 1, 6, 30, tzinfo=UTC), None)
"""Of partitions; the second is an hour that New York has twice."""
TEXTS = ("plain", 'it\'s \\ "odd"', "", None)


@dataclass(frozen=True)
class Step:
    """One call: what is brought, and what is done to a file meanwhile."""

    verb: str
    ids: tuple[int, ...]
    damage: str | None = None


@dataclass(frozen=True)
class Program:
    """A table and a session, and the calls on it."""

    seed: int
    format_: str
    maker: str
    partition_by: tuple[str, ...]
    settings: Mapping[str, str]
    cached: bool
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        steps = "; ".join(f"{one.verb} {list(one.ids)} {one.damage or ''}".strip() for one in self.steps)
        return (
            f"seed {self.seed}: {self.format_} by {self.maker}, by {self.partition_by}, cached={self.cached}, "
            f"{dict(self.settings)}: {steps}"
        )


def pairs(seed: int) -> list[dict[str, str]]:
    """Sets of settings in which each two that do not contradict each other come together."""
    draw = random.Random(seed)
    left = {(a, b) for a, b in itertools.combinations(range(len(SETTINGS)), 2) if _agree(a, b)}
    found = []
    while left:
        chosen: list[int] = []
        for one in draw.sample(range(len(SETTINGS)), len(SETTINGS)):
            if all(_agree(one, other) for other in chosen):
                chosen.append(one)
        left -= {(a, b) for a, b in itertools.product(chosen, chosen)}
        found.append({name: value for one in chosen for name, value in SETTINGS[one].items()})
    return found


def _agree(one: int, other: int) -> bool:
    first, second = SETTINGS[one], SETTINGS[other]
    return all(first[name] == second[name] for name in first.keys() & second.keys())


def drawn(seed: int, format_: str, settings: Mapping[str, str] | None = None) -> Program:
    """A program of a seed."""
    draw = random.Random(f"{seed} {format_}")
    if settings is None:
        some = [draw.choice(SETTINGS) for _ in range(draw.randint(1, 4))]
        settings = {name: value for one in some for name, value in one.items()}
    steps = tuple(
        Step(
            draw.choice(VERBS), tuple(sorted(draw.sample(range(8), draw.randint(0, 3)))), draw.choice(DAMAGES)
        )
        for _ in range(3)
    )
    maker, parts = draw.choice(MAKERS[format_]), draw.choice(PARTS)
    return Program(seed, format_, maker, parts, settings, draw.random() < 0.5, steps)


def row(number: int, seq: int) -> Row:
    """The row of an id as of a sequence."""
    pick = lambda values, at: values[(number * 3 + at) % len(values)]  # noqa: E731
    return (
        number, seq, pick(DAYS, seq), pick(TIMES, seq), pick(TEXTS, seq), "ab"[number % 2], MOMENTS[number % 3],
    )  # fmt: skip


def table_of(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, one, strict=True)) for one in rows], schema=SCHEMA)


# --- the table and the session ---------------------------------------------------------------------------
@dataclass
class Bench:
    """One table under test, and what must be in it."""

    spark: Spark
    program: Program
    hooked: HookedTable | None = None
    lake: Lake | None = None
    rows: list[Row] = field(default_factory=list)
    name: str = ""
    seq: int = 0

    @property
    def place(self) -> Place:
        assert self.hooked is not None
        return self.hooked.place

    def make(self) -> None:
        """Make the table with some rows, as its maker does under Spark's defaults."""
        self.rows = [row(number, 0) for number in range(6)]
        parts, rows = list(self.program.partition_by), table_of(self.rows)
        if self.lake is not None:
            self.name = self.lake.create(SCHEMA, partition_by=parts).uri
        else:
            self.name = self.place.uri
        match self.program.maker:
            case "deltalake":
                options = dict(self.place.storage_options)
                deltalake.write_deltalake(
                    self.name, rows, partition_by=parts or None, storage_options=options
                )
            case "spark" if self.lake is None:
                frame = self.frame(rows).coalesce(1).write.format("delta")
                with settings_of(self.spark, {f"{_PARQUET}outputTimestampType": "TIMESTAMP_MICROS"}):
                    (frame.partitionBy(*parts) if parts else frame).save(self.path)
            case "spark":
                self.frame(rows).coalesce(1).writeTo(self.source).append()
            case _:
                if self.lake is None:
                    sw.create(self.name, SCHEMA, partition_by=parts, **self.opening())
                self.open().append(rows)

    def opening(self) -> dict[str, Any]:
        return {"storage_options": dict(self.place.storage_options), "arbiter": "object-store"}

    def open(self) -> Any:
        return sw.open(self.name, **self.opening()) if self.lake is None else self.lake.open(self.name)

    @property
    def path(self) -> str:
        return self.name.replace("s3://", "s3a://")

    @property
    def source(self) -> str:
        return f"delta.`{self.path}`" if self.lake is None else self.lake.sql(self.name)

    def frame(self, rows: pa.Table) -> Any:
        """A DataFrame whose values do not depend on the session: by numbers and texts alone."""
        days = pc.cast(rows["d"], pa.int32())
        us = {name: pc.cast(pc.cast(rows[name], pa.timestamp("us")), pa.int64()) for name in ("ts", "k")}
        plain = pa.table(
            [rows["id"], rows["seq"], days, us["ts"], rows["text"], rows["p"], us["k"]], SCHEMA.names
        )
        schema = "id long, seq long, d int, ts long, text string, p string, k long"
        made = self.spark.session.createDataFrame([tuple(one.values()) for one in plain.to_pylist()], schema)
        return made.selectExpr(
            "id", "seq", "date_from_unix_date(d) AS d", "timestamp_micros(ts) AS ts", "text", "p",
            "timestamp_micros(k) AS k",
        )  # fmt: skip

    # --- readers ------------------------------------------------------------------------------------------
    def found(self) -> list[Row]:
        """The rows by deltalake or PyIceberg."""
        if self.lake is None:
            read = deltalake.DeltaTable(
                self.name, storage_options=dict(self.place.storage_options)
            ).to_pyarrow_table()
        else:
            read = self.lake.load().load_table(self.name).scan().to_arrow()
        return ordered(tuple(one[name] for name in SCHEMA.names) for one in read.to_pylist())

    def ids_in_session(self) -> list[int]:
        """The ids that a new query of the session sees."""
        return sorted(one[0] for one in self.spark.session.table(self.source).select("id").collect())

    def damaged(self, how: str | None) -> Callable[[], None]:
        """Damage the oldest data file of a Delta table; what is returned heals it."""
        if how is None or self.lake is not None:
            return lambda: None
        objects = self.place.objects()
        live = self.place.live(objects)
        if not live:
            return lambda: None
        path = min(live)
        if how == "missing":
            self.place.delete(path)
        else:
            self.place.put(path, objects[path][:4] + b"\0" * 300 + objects[path][304:])
        return lambda: self.place.put(path, objects[path])

    # --- calls --------------------------------------------------------------------------------------------
    def call(self, step: Step) -> str | None:
        """Make a call and move the oracle on; the kind of the refusal, if it was refused."""
        self.seq += 1
        new = [row(number, self.seq) for number in step.ids]
        after, act = self._meant(step.verb, new)
        heal = self.damaged(step.damage)
        try:
            act(self.open(), self.frame(table_of(new)))
        except SafewriteError as error:
            doubled = step.verb == "apply_changes" and self._twice(step.ids)
            if not doubled and (step.damage is None or self.lake is not None):
                raise
            return type(error).__name__
        finally:
            heal()
        self.rows = after
        return None

    def _twice(self, ids: Sequence[int]) -> bool:
        """Whether the table has two rows of one of these ids: an append brought it again."""
        there = [one[0] for one in self.rows]
        return any(there.count(number) > 1 for number in ids)

    def _meant(self, verb: str, new: list[Row]) -> tuple[list[Row], Callable[[Any, Any], Any]]:
        ids = {one[0] for one in new}
        match verb:
            case "overwrite":
                return new, lambda table, frame: table.overwrite(frame)
            case "overwrite where":
                stays = [one for one in self.rows if one[0] not in ids]
                where = [("id", "in", sorted(ids))] if ids else "id < 0"
                return [*stays, *new], lambda table, frame: table.overwrite(frame, where=where)
            case "overwrite part":
                mine = [one for one in new if one[5] == "a"]
                stays = [one for one in self.rows if one[5] != "a"]
                return [*stays, *mine], lambda table, frame: table.overwrite(
                    frame.where("p = 'a'"), where="p = 'a'"
                )
            case "apply_changes":
                stays = [one for one in self.rows if one[0] not in ids]
                how = {"keys": ["id"], "sequence_by": ["seq"]}
                return [*stays, *new], lambda table, frame: table.apply_changes(frame, **how)
            case "delete":
                stays = [one for one in self.rows if one[0] not in ids]
                return stays, lambda table, _: table.delete([("id", "in", sorted(ids))] if ids else "id < 0")
            case "sink":
                return [*self.rows, *new], lambda table, frame: table.sink(app_id=f"s{self.seq}")(
                    frame, self.seq
                )
        return [*self.rows, *new], lambda table, frame: table.append(frame)


def ordered(rows: Any) -> list[Row]:
    return sorted(rows, key=repr)


@contextmanager
def settings_of(spark: Spark, given: Mapping[str, str]) -> Iterator[None]:
    """Settings of the session, for a while."""
    conf = spark.session.conf
    before = {name: conf.get(name, None) for name in given}
    for name, value in given.items():
        conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                conf.unset(name)
            else:
                conf.set(name, value)


def run(bench: Bench) -> list[str]:
    """Run a program; what went wrong, in words."""
    program, spark, wrong = bench.program, bench.spark, []
    bench.make()
    session = spark.session
    with settings_of(spark, program.settings), spark.careless():
        kept = session.table(bench.source).cache() if program.cached else None
        if kept is not None:
            kept.count()
        before = {name: session.conf.get(name) for name in program.settings}
        for number, step in enumerate(program.steps):
            try:
                refused = bench.call(step)
            except SafewriteError as error:
                wrong.append(f"step {number} ({step.verb}) was refused: {error!r}")
                break
            if bench.found() != ordered(bench.rows):
                wrong.append(
                    f"step {number} ({step.verb}, {refused}): {bench.found()} is not {ordered(bench.rows)}"
                )
                break
            seen = bench.ids_in_session()
            if seen != sorted(one[0] for one in bench.rows):
                wrong.append(f"after step {number} ({step.verb}) the session sees {seen}")
                break
        if {name: session.conf.get(name) for name in program.settings} != before:
            wrong.append("the session has other settings than before")
        if kept is not None:
            kept.unpersist()
    return [f"{program}: {one}" for one in wrong]
