"""Random tables with the options of a configuration drawn together over a random source, and what the lake must hold of it.

``python -m tests.cdc.option_worlds 200`` runs so many by executors, and by a driver that is killed, and prints the seeds that end wrong.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField

from safewrite.cdc.config.own_columns import OwnNames
from safewrite.cdc.ledger.ledger import LedgerEntry
from safewrite.cdc.records.change import KafkaRecord
from tests.cdc.events import event, postgres, record
from tests.cdc.jobs import Job
from tests.cdc.on_executors import Executors, work_of
from tests.cdc.worlds import main

GONE = "__debezium_unavailable_value"
ODD, WIDE = "no number", 2**40
KEYS = 10
Row = dict[str, Any]
Make = Callable[[Row], Any]


class DeadError(Exception):
    """A row that SQL cannot compute."""


def _small(number: int | None) -> int | None:
    """60 times a number, which one byte has to hold."""
    if number is not None and not -128 <= 60 * number <= 127:
        raise DeadError
    return None if number is None else 60 * number


FILTERS: Sequence[tuple[str, Make]] = (
    ("{n} % 2 = 0 OR {n} IS NULL", lambda row: row["n"] is None or row["n"] % 2 == 0),
    ("s <> 'x' OR s IS NULL", lambda row: row["s"] != "x"),
    ("s <> 'x'", lambda row: row["s"] is not None and row["s"] != "x"),
    ("length(body) <> 3", lambda row: len(row["body"]) != 3),
    (
        "({n} * 60)::tinyint % 100 <> 60",
        lambda row: (made := _small(row["n"])) is not None and made != 60,
    ),
    ("coalesce(w::varchar, '-') NOT LIKE '%1'", lambda row: not _text(row["w"]).endswith("1")),
)
COMPUTED: Mapping[str, tuple[str, Make]] = {
    "c_upper": ("upper(s)", lambda row: None if row["s"] is None else row["s"].upper()),
    "c_size": ("length(body)", lambda row: len(row["body"])),
    "c_small": ("({n}::tinyint * 60::tinyint)::int", lambda row: _small(row["n"])),
    "c_w": ("coalesce(w::varchar, '-')", lambda row: _text(row["w"])),
    "c_part": ("coalesce({n}, 0) // 4 + id", lambda row: int((row["n"] or 0) / 4) + row["id"]),
}


def _text(value: Any) -> str:
    return "-" if value is None else str(value)


@dataclass
class Options:
    """The table of one seed."""

    seed: int

    def __post_init__(self) -> None:
        draw = random.Random(f"options {self.seed}")
        self.form = draw.choice(["delta", "iceberg"])
        self.mode = draw.choice(["upsert"] * 5 + ["append", "history", "marked"])
        self.schemas = draw.random() < 0.5
        self.fewest = draw.choice([1, 3, 80])
        self.partitions = draw.choice([1, 2, 3])
        self.filter = draw.choice([None, *FILTERS, *FILTERS]) if self.mode != "marked" else None
        self.computed = {name: COMPUTED[name] for name in draw.sample([*COMPUTED], draw.choice([0, 1, 1, 2]))}
        self.is_there = self.mode == "upsert" and draw.random() < 0.4
        """Another engine made the table, with a narrow column."""
        misfits = ["dead-letter", {"w": "null"}, "null"] + ([] if self.is_there else [{"w": "text"}])
        self.on_misfit: Any = draw.choice(misfits)
        self.widen = draw.choice([None, False, *([True] if self.form == "iceberg" else [])])
        self.mapped = draw.random() < 0.3
        self.left_out = draw.random() < 0.3
        self.named = draw.random() < 0.4 and self.mode != "append"
        self.tells = draw.random() < 0.4 or self.mode == "append"
        self.parted = "c_part" in self.computed and not self.is_there and draw.random() < 0.5
        self.marks_rows = self.form == "iceberg" and self.mode in {"upsert", "marked"} and draw.random() < 0.3

    @property
    def table(self) -> dict[str, Any]:
        """What the configuration says of the table."""
        names = {"n": "Number" if self.mapped else "n"}
        found: dict[str, Any] = {"table": "a", "on_misfit": self.on_misfit, "widen": self.widen}
        found["computed"] = {name: sql.format(**names) for name, (sql, _) in self.computed.items()}
        if self.filter is not None:
            found["filter"] = self.filter[0].format(**names)
        if self.mapped:
            found["name_mapping"] = {"n": "Number"}
        if self.left_out:
            found["leave_out"] = ["s"]
        if self.named:
            found["own_names"] = {"_cdc_epoch": "source_epoch", "_cdc_sequence": "source_position"}
            if self.mode == "history":
                found["own_names"]["_cdc_until_sequence"] = "until_position"
        if self.tells:
            found["metadata"] = {"at_partition": "partition", "at_offset": "offset"}
        if self.parted:
            found["partition_by"] = ["c_part"]
        if self.marks_rows:
            found["write_mode"] = "merge-on-read"
        if self.mode == "marked":
            return found | {"deleted_column": "gone", "all_late": "count"}
        if self.mode == "append":
            found["metadata"] |= {"op": "op"}
            return found | {"mode": "append"}
        return found | ({"mode": "history"} if self.mode == "history" else {}) | {"all_late": "count"}

    @property
    def own(self) -> OwnNames:
        return OwnNames.chosen(self.table.get("own_names", {}))

    @property
    def widens(self) -> bool:
        """Whether a narrow column takes wide numbers."""
        return not self.is_there or (self.form == "iceberg" and self.widen is not False)

    def read(self, row: Row) -> Row:
        """A row of the source as SQL reads it.

        Raises:
            DeadError: a value does not fit.
        """
        w, mode = row["w"], self.on_misfit if isinstance(self.on_misfit, str) else self.on_misfit["w"]
        if mode == "text":
            return row | {"w": None if w is None else str(w)}
        if w == ODD or (w == WIDE and not self.widens):
            if mode != "null":
                raise DeadError
            return row | {"w": None}
        return row

    def passes(self, row: Row) -> bool:
        """Whether the filter lets a row of the source pass; what it does not read need not fit.

        Raises:
            DeadError: it gives nothing.
        """
        if self.filter is None:
            return True
        return bool(self.filter[1](self.read(row) if "w::" in self.filter[0] else row))

    def lands(self, row: Row) -> Row:
        """The row of the lake."""
        made = {**row, **{name: make(row) for name, (_, make) in self.computed.items()}}
        if self.mapped:
            made["Number"] = made.pop("n")
        if self.left_out:
            del made["s"]
        return made


@dataclass
class World:
    """A source of one table, what it writes to Kafka, and what a lake with these options must hold."""

    options: Options
    is_wild: bool = False
    """Whether the source leaves out values that the lake may not have: then nobody says what the rows must be."""
    source: dict[int, Row] = field(default_factory=dict)
    lake: dict[int, tuple[Row, Row]] = field(default_factory=dict)
    """The rows that pass: as SQL reads them, and as they land."""
    log: dict[tuple[int, int], tuple[str, int, Row | None]] = field(default_factory=dict)
    """By partition and offset what a table that appends has: what the change does, its key and its row."""
    keys: set[int] = field(default_factory=set)
    """Keys of rows that ever landed."""
    dead: set[tuple[int, int]] = field(default_factory=set)
    records: list[KafkaRecord] = field(default_factory=list)
    again: bool = False
    """Whether the connector sends some changes a second time."""
    at: int = 100

    def __post_init__(self) -> None:
        self.draw = random.Random(f"world {self.options.seed}")
        self.offsets = [0] * self.options.partitions

    def run(self, count: int) -> None:
        """So many changes; the first row says the types of all columns."""
        self._write(0, {"id": 0, "s": "y", "n": 0, "w": 7, "body": "long"})
        ways = ["write"] * 4 + ["delete", "move"]
        if self.options.mode in {"upsert", "marked"}:
            ways += ["keep", "keep", "halves", "take"]
        if self.options.mode == "upsert":
            ways += ["again", "again"]
            ways += ["empty"] if self.draw.random() < 0.2 else []
        for _ in range(count):
            self.at += 1
            getattr(self, f"_{self.draw.choice(ways)}")()

    # --- changes ------------------------------------------------------------------------------------
    def _row(self, key: int, *, sure: bool = False) -> Row:
        """A row of the source; one that is sure lands."""
        draw = self.draw
        odd = [] if sure else [ODD, WIDE]
        numbers = [-2, -1, 0, 1, 2] + ([] if sure else [3, 17, None])
        return {
            "id": key, "s": draw.choice(["x", "y", "zz", "É", None]), "n": draw.choice(numbers),
            "w": draw.choice([0, 1, 11, -5, None, *odd]), "body": draw.choice(["", "abc", "four", "x" * 30]),
        }  # fmt: skip

    def _write(self, key: int | None = None, row: Row | None = None) -> None:
        key = self.draw.randrange(KEYS) if key is None else key
        row = self._row(key) if row is None else row
        place = self._tell("u" if key in self.source else "c", key, row)
        self.source[key] = row
        self._land(place, key, row)

    def _keep(self) -> None:
        """An update that leaves the large value out."""
        if (key := self._known()) is None:
            return
        row = self._row(key) | {"body": self.source[key]["body"]}
        place = self._tell("u", key, row | {"body": GONE})
        self.source[key] = row
        self._land(place, key, row | {"body": self._body(key)})

    def _delete(self) -> None:
        if not self.source:
            return
        key = self.draw.choice(sorted(self.source))
        row, is_whole = self.source.pop(key), self.draw.random() < 0.5
        place = self._tell("d", key, None, row if is_whole else {"id": key})
        # Where keys have a schema in some batches alone, a tombstone's may be another one than its delete's.
        if not self.options.schemas:
            self._add(key, None)
        try:  # of a log it is a row, as far as the source tells of it
            if is_whole and self.options.mode == "append":
                self.options.lands(self.options.read(row))
        except DeadError:
            self.dead.add(place)
        else:
            self._gone(place, key)

    def _move(self) -> None:
        """A change of a key in one event."""
        if (pair := self._pair(sorted(self.source))) is None:
            return
        old, new = pair
        row = self._row(new)
        place = self._tell("u", new, row, self.source.pop(old))
        self.source[new] = row
        before = self.lake.pop(old, None)
        if self._land(place, new, row):
            self.keys.add(old)
        elif before is not None:
            self.lake[old] = before

    def _halves(self, *, lacks: bool = False) -> None:
        """A change of a key in two events."""
        if (pair := self._pair(sorted(self.lake))) is None:
            return
        old, new = pair
        row = self._row(new, sure=True) | {"body": self.source[old]["body"]}
        body = self._body(old)
        del self.source[old]
        self.source[new] = row
        gone = self._tell("d", old, None, {"id": old}, headers={"__debezium.newkey": {"id": new}})
        self._gone(gone, old)
        sent = row | ({"body": GONE} if lacks else {})
        place = self._tell("c", new, sent, headers={"__debezium.oldkey": {"id": old}})
        self._land(place, new, row | ({"body": body} if lacks else {}))

    def _take(self) -> None:
        self._halves(lacks=True)

    def _again(self) -> None:
        """A change that comes once more, at another offset."""
        found = [one for one in self.records if one.value is not None]
        one = self.draw.choice(found)
        place = one.partition, self.offsets[one.partition]
        if (one.partition, one.offset) in self.dead:
            self.dead.add(place)
        self.again = True
        self.records.append(KafkaRecord(one.topic, *place, one.key, one.value, one.headers))
        self.offsets[one.partition] += 1

    def _empty(self) -> None:
        """A truncate."""
        self.source.clear()
        self.lake.clear()
        self._add(None, event("t", None, source=postgres(self.at, "a")))

    # --- what there is ------------------------------------------------------------------------------
    def _known(self) -> int | None:
        """A key of whose large value the lake knows, or any."""
        keys = sorted(self.source if self.is_wild else self.source.keys() & self.lake.keys())
        return self.draw.choice(keys) if keys else None

    def _body(self, key: int) -> str:
        """The large value that the lake has: that of the source, unless a change of it was a dead letter."""
        return str(self.lake[key][0]["body"]) if key in self.lake else ""

    def _pair(self, olds: Sequence[int]) -> tuple[int, int] | None:
        free = [key for key in range(2 * KEYS) if key not in self.source]
        olds = [key for key in olds if key in self.source]
        return (self.draw.choice(olds), self.draw.choice(free)) if olds and free else None

    def _gone(self, place: tuple[int, int], key: int) -> None:
        self.lake.pop(key, None)
        self.log[place] = "delete", key, None
        self.keys.add(key)

    def _land(self, place: tuple[int, int], key: int, row: Row) -> bool:
        """What a change makes of a row; False of a dead letter."""
        options = self.options
        try:
            if not options.passes(row):
                self.lake.pop(key, None)
                return True
            read = options.read(row)
            landed = options.lands(read)
        except DeadError:
            self.dead.add(place)
            return False
        self.lake[key] = read, landed
        self.log[place] = "upsert", key, landed
        self.keys.add(key)
        return True

    # --- records ------------------------------------------------------------------------------------
    def _tell(
        self, op: str, key: int, after: Row | None, before: Row | None = None, headers: Any = None
    ) -> tuple[int, int]:
        given = event(op, after, before, source=postgres(self.at, "a", ts_ms=1_714_000_000_000 + self.at))
        return self._add(key, given, headers)

    def _add(self, key: int | None, value: Any, headers: Any = None) -> tuple[int, int]:
        where = 0 if key is None else key % self.options.partitions
        place = where, self.offsets[where]
        named = None if key is None else {"id": key}
        self.records.append(record(value, named, offset=place[1], partition=where, headers=headers or {}))
        self.offsets[where] += 1
        return place


# --- the job -----------------------------------------------------------------------------------------
def job_of(options: Options, folder: Path) -> Job:
    """A job of the table, which may be there already."""
    folder.mkdir(parents=True)
    job = Job(folder, [options.table], options.form, schemas=options.schemas)
    if options.is_there and options.form == "delta":
        schema = pa.schema([("id", pa.int64()), ("w", pa.int32())])
        deltalake.write_deltalake(f"{folder}/db/a", schema.empty_table())
    elif options.is_there:
        catalog = load_catalog(**job.catalog())
        catalog.create_namespace("db")
        fields = NestedField(1, "id", LongType()), NestedField(2, "w", IntegerType())
        catalog.create_table("db.a", Schema(*fields))
    return job


def batches_of(world: World) -> list[list[KafkaRecord]]:
    draw, left, found = random.Random(f"batches {world.options.seed}"), list(world.records), []
    while left:
        count = draw.choice([1, 3, 8, 20])
        found.append(left[:count])
        left = left[count:]
    return found


def landed(world: World, job: Job, executors: Executors | None, *, dies: bool) -> list[LedgerEntry]:
    """Land the records in batches; a driver that dies does so behind the commit of every third."""
    lines: list[LedgerEntry] = []
    for number, records in enumerate(batches_of(world)):
        landing = job.landing()
        landing.decoder.fewest = world.options.fewest
        if dies and number % 3 == 1:
            job.land_and_die(*records, number=number)
        lines += landing.land(job.batch(records, number), work_of(executors))
    return lines


def read(job: Job) -> list[Row]:
    """All rows of the table, by a reader that is not ours."""
    if job.form == "iceberg":
        return list(job.read("a").to_pylist())
    table = deltalake.DeltaTable(f"{job.folder}/db/a")
    found = deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
    return list(pa.table(found).to_pylist())


def faults_of(world: World, job: Job) -> list[str]:
    """What is wrong in a lake."""
    options, rows = world.options, read(job)
    found = list(job.verdict().faults)
    letters = {(one["partition"], one["offset"]): one["reason"] for one in job.letters()}
    if not world.again and {*letters} != world.dead:
        surplus = {place: letters[place] for place in {*letters} - world.dead}
        found.append(f"dead letters: {surplus} are too many, {sorted(world.dead - {*letters})} missing")
    if options.mode == "append":
        return [*found, *_of_log(world, rows)]
    if options.mode == "history":
        ended = [row for row in rows if row[options.own.until] is not None]
        whole = [row for row in ended if row[options.own.until] != row[options.own.sequence]]
        rows = [row for row in rows if row[options.own.until] is None]
        upserts = sum(op == "upsert" for op, *_ in world.log.values())
        if len(whole) + len(rows) != upserts:
            found.append(f"{len(whole) + len(rows)} versions, not {upserts}")
    if options.mode == "marked":
        if (keys := sorted(row["id"] for row in rows)) != sorted(world.keys):
            found.append(f"rows {keys}, not {sorted(world.keys)}")
        rows = [row for row in rows if not row["gone"]]
    by_key = {row["id"]: row for row in rows}
    if len(by_key) < len(rows):
        found.append(f"{len(rows) - len(by_key)} rows are doubled")
    lost, more = sorted({*world.lake} - {*by_key}), sorted({*by_key} - {*world.lake})
    if lost or more:
        found.append(f"lost {lost}, revived {more}")
    for key in sorted({*world.lake} & {*by_key}):
        found += _differences(world.lake[key][1], by_key[key])
    return found


def _of_log(world: World, rows: Sequence[Row]) -> Iterator[str]:
    """What is wrong in a table of which each row is a record."""
    there = {(row["at_partition"], row["at_offset"]): row for row in rows}
    if len(there) < len(rows):
        yield f"{len(rows) - len(there)} rows are doubled"
    if lost := sorted({*world.log} - {*there}):
        yield f"lost {lost}"
    for place, row in there.items():
        if place not in world.log:
            yield f"{place} never was"
            continue
        op, key, wanted = world.log[place]
        if (row["op"], row["id"]) != (op, key):
            yield f"{place} is {row['op']} of {row['id']}, not {op} of {key}"
        yield from () if wanted is None else _differences(wanted, row)


def _differences(wanted: Row, found: Row) -> list[str]:
    return [
        f"row {wanted['id']}: {name} is {found.get(name)!r}, not {value!r}"
        for name, value in wanted.items()
        if found.get(name) != value or type(found.get(name)) is not type(value)
    ] + [f"row {wanted['id']} has {name}" for name in ("s", "n") if name in found and name not in wanted]


def told(job: Job) -> list[Any]:
    """Rows and letters, however they landed: in one part or in several, at once or after a kill."""
    letters = sorted((one["partition"], one["offset"], one["reason"]) for one in job.letters())
    return [sorted(str(sorted(row.items())) for row in read(job)), letters]


def wrong_of(seed: int, folder: Path, changes: int = 40) -> list[str]:
    """What is wrong with the lakes of a seed; an error that stops a job is wrong too."""
    options = Options(seed)
    found, both = list[str](), []
    world = World(options, is_wild=seed % 4 == 3)
    world.run(changes)
    for name, executors, dies in (("executors", Executors(), False), ("killed", None, True)):
        try:
            job = job_of(options, folder / name)
            landed(world, job, executors, dies=dies)
            if not world.is_wild:
                found += [f"{name}: {fault}" for fault in faults_of(world, job)]
            both.append(told(job))
        except Exception as error:  # noqa: BLE001 - whatever it is, it stops the job at each start
            found.append(f"{name}: the job stops: {type(error).__name__}: {str(error)[:300]}")
    if len(both) == 2:
        found += [
            f"{which} differ"
            for which, one, other in zip(("rows", "letters"), *both, strict=True)
            if one != other
        ]
    return found


if __name__ == "__main__":
    sys.exit(main(wrong_of) > 0)
