"""CHECK constraints beside Spark: expressions are judged as it judges them, and each goes on with what the other wrote."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import safewrite as sw
from safewrite.frames.expressions import NotEvaluatedError, condition
from safewrite.frames.row_rules import held
from tests.spark.session import Spark

# --- random expressions ---------------------------------------------------------------------------------
SCHEMA = pa.schema([
    ("tiny", pa.int8()), ("i", pa.int32()), ("n", pa.int64()), ("most", pa.int64()), ("f", pa.float64()), ("g", pa.float32()),
    ("m", pa.decimal128(9, 2)), ("w", pa.decimal128(20, 5)), ("s", pa.string()), ("t", pa.string()), ("y", pa.bool_()),
    ("d", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("z", pa.timestamp("us")),
])  # fmt: skip
NUMBERS = ["0", "1", "-1", "2", "7", "-3", "100", "1.5", "-0.5", "2.50", "0.1", "3000000000"]
TEXTS = ["", "a", "ab", "A", "b%", "é", "ß", "z\n", "𝄞", "a b", "10", "9"]
PATTERNS = ["a%", "%b", "_", "%", "a_", "b%%", "é", "z_", ".", "%(%"]
DAYS = ["1969-12-31", "1970-01-01", "2024-02-29", "0001-01-01", "9999-12-31"]
TIMES = ["1969-12-31 23:59:59.999999", "2024-02-29 12:30:00", "1970-01-01 00:00:00", "1582-10-15 00:00:00"]


class Drawn:
    """Conditions and rows, from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def one(self, *of: str) -> str:
        return self.random.choice(of)

    def number(self, depth: int = 2) -> str:
        """Sums stay small: ``most`` is only compared."""
        kinds = ["column", "literal", "sum", "sign", "part", "length"]
        match self.one(*kinds[: 6 if depth else 2]):
            case "column":
                return self.one("tiny", "i", "n", "f", "g", "m", "w", "`N`")
            case "literal":
                return self.one(*NUMBERS)
            case "sum":
                sign = self.one("+", "-", "*", "/", "%")
                return f"({self.number(depth - 1)} {sign} {self.number(depth - 1)})"
            case "sign":
                return f"-{self.one('n', 'i', 'm', 'f')}"
            case "part":
                part, of = (
                    self.one("year", "month", "day", "dayofmonth", "hour", "minute"),
                    self.one("d", "at", "z"),
                )
                return f"{part}({of})"
        return f"{self.one('length', 'char_length')}({self.text()})"

    def text(self) -> str:
        column = self.one("s", "t", f"'{self.one(*TEXTS)}'")
        return self.one(
            column, column, f"substring({column}, {self.random.randint(1, 3)}, {self.random.randint(0, 2)})"
        )

    def day(self) -> str:
        return self.one(
            "d",
            f"'{self.one(*DAYS)}'",
            f"DATE '{self.one(*DAYS)}'",
            "CAST(at AS DATE)",
            "to_date(z)",
            "date(z)",
        )

    def moment(self) -> str:
        return self.one(
            "at",
            "z",
            "d",
            f"TIMESTAMP '{self.one(*TIMES)}'",
            f"'{self.one(*TIMES)}'",
            f"TIMESTAMP_NTZ '{self.one(*TIMES)}'",
        )

    def pair(self) -> tuple[str, str]:
        kind = self.one("number", "number", "most", "text", "day", "moment", "bool")
        if kind == "most":
            return "most", self.one(
                "n", "most", "i", "f", "w", *NUMBERS, "9223372036854775807", "9223372036854775808"
            )
        if kind == "bool":
            return "y", self.one("y", "TRUE", "FALSE")
        draw = getattr(self, kind)
        return draw(), draw()

    def condition(self, depth: int = 2) -> str:
        kinds = ["compare", "compare", "null", "in", "between", "like", "bool", "both", "either", "not"]
        match self.one(*kinds[: 10 if depth else 7]):
            case "compare":
                one, other = self.pair()
                return f"{one} {self.one('=', '==', '<>', '!=', '<', '<=', '>', '>=', '<=>')} {other}"
            case "null":
                return f"{self.pair()[0]} IS {self.one('', 'NOT ')}NULL"
            case "in":
                one, other = self.pair()
                return f"{one} {self.one('', 'NOT ')}IN ({other}, {other})"
            case "between":
                one, other = self.pair()
                return f"{one} {self.one('', 'NOT ')}BETWEEN {other} AND {other}"
            case "like":
                return f"{self.text()} {self.one('', 'NOT ')}LIKE '{self.one(*PATTERNS)}'"
            case "bool":
                return self.one("y", "NOT y", "y IS TRUE", "y IS NOT FALSE", "TRUE")
            case "not":
                return f"NOT ({self.condition(depth - 1)})"
            case joined:
                sign = "AND" if joined == "both" else "OR"
                return f"({self.condition(depth - 1)} {sign} {self.condition(depth - 1)})"

    def row(self) -> dict[str, Any]:
        draw = self.random
        found: dict[str, Any] = {
            "tiny": draw.choice([0, 1, -3, 100]), "i": draw.choice([0, 1, -1, 7, 2**31 - 2]), "n": draw.choice([0, 2, -5, 10**6]),
            "most": draw.choice([0, 2**63 - 1, -(2**63), 2**53 + 1, 3_000_000_000]),
            "f": draw.choice([0.0, -0.0, 1.5, 0.1, float("nan"), float("inf"), -2.0]),
            "g": draw.choice([0.0, 0.1, 1.5, float("nan"), -0.0]), "m": draw.choice([Decimal("0.10"), Decimal("1.50"), Decimal(-3), Decimal("9999999.99")]),
            "w": draw.choice([Decimal("0.10000"), Decimal(2), Decimal("123456789012345.12345")]), "s": draw.choice(TEXTS),
            "t": draw.choice(TEXTS), "y": draw.choice([True, False]), "d": dt.date.fromisoformat(draw.choice(DAYS)),
            "at": dt.datetime.fromisoformat(draw.choice(TIMES)).replace(tzinfo=dt.UTC),
            "z": dt.datetime.fromisoformat(draw.choice(TIMES)),
        }  # fmt: skip
        return {name: None if draw.random() < 0.15 else value for name, value in found.items()}


def evaluated(drawn: Drawn, count: int) -> dict[str, Any]:
    """So many conditions that are evaluated; those that are refused are drawn and left."""
    found: dict[str, Any] = {}
    tries = 0
    while len(found) < count:
        tries += 1
        text = drawn.condition()
        try:
            found[text] = condition(text, SCHEMA)
        except NotEvaluatedError:
            continue
    assert tries < 4 * count, "hardly any condition is evaluated"
    return found


def judged_by_spark(spark: Spark, frame: Any, texts: list[str]) -> dict[str, list[bool]]:
    """What Spark holds of each row; of a condition that fails as a whole, each row alone, and FALSE where it fails."""
    names = [f"coalesce(({text}), false) AS c{number}" for number, text in enumerate(texts)]
    try:
        with spark.careless():
            rows = frame.selectExpr("row", *names).orderBy("row").collect()
    except PySparkException:
        if len(texts) > 1:
            half = len(texts) // 2
            return judged_by_spark(spark, frame, texts[:half]) | judged_by_spark(spark, frame, texts[half:])
        return {}
    return {text: [bool(row[number]) for row in rows] for number, text in enumerate(texts, 1)}


def compare(spark: Spark, seed: int, count: int, rows: int) -> None:
    drawn = Drawn(seed)
    table = pa.Table.from_pylist([drawn.row() for _ in range(rows)], SCHEMA)
    conditions = evaluated(drawn, count)
    ours = {text: held(one, table).to_pylist() for text, one in conditions.items()}
    unlike: dict[Any, Any] = {}
    for ansi in ("true", "false"):
        with (
            spark.setting("spark.sql.ansi.enabled", ansi),
            spark.setting("spark.sql.session.timeZone", "UTC"),
        ):
            with spark.careless():
                numbered = table.append_column("row", pa.array(range(rows)))
                frame = spark.session.createDataFrame(numbered).coalesce(1)
            texts = [*conditions]
            theirs: dict[str, list[bool]] = {}
            for at in range(0, count, 40):
                theirs |= judged_by_spark(spark, frame, texts[at : at + 40])
            assert len(theirs) > 0.9 * count
            unlike |= {
                (text, ansi): [(row, one, other) for row, (one, other) in enumerate(zip(ours[text], found, strict=True)) if one != other]
                for text, found in theirs.items() if found != ours[text]
            }  # fmt: skip
    assert unlike == {}, f"seed {seed}"


def test_random_conditions_are_judged_as_spark_judges_them(spark: Spark) -> None:
    compare(spark, seed=7, count=40, rows=20)


@pytest.mark.long
def test_many_random_conditions_are_judged_as_spark_judges_them(spark: Spark) -> None:
    for _ in range(10):
        compare(spark, seed=random.randrange(2**32), count=200, rows=20)


# --- a table of Spark -----------------------------------------------------------------------------------
def test_a_table_with_a_constraint_is_written_by_all_frames_while_spark_goes_on(
    spark: Spark, tmp_path: Path
) -> None:
    with spark.careless():  # from its first frame to its last refusal
        written_by_all(spark, tmp_path / "t")


def written_by_all(spark: Spark, root: Path) -> None:
    """Every verb with frames of this process and of Spark, rows that are refused, and Spark's own statements in between."""
    source = f"delta.`{root}`"
    spark.run(
        f"CREATE TABLE {source} (id BIGINT, seq BIGINT, v STRING, n BIGINT GENERATED ALWAYS AS (id + seq), w STRING DEFAULT 'w') "
        "USING delta TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    )
    spark.run(f"ALTER TABLE {source} ADD CONSTRAINT few CHECK (id < 100 AND v <> '')")

    def rows(*ids: int, v: str | None = "v", seq: int = 1) -> pa.Table:
        columns = {"id": pa.array(ids, pa.int64()), "seq": pa.array([seq] * len(ids), pa.int64())}
        return pa.table(columns | {"v": pa.array([v] * len(ids), pa.string())})

    def frame(table: pa.Table) -> Any:
        with spark.careless():
            return spark.session.createDataFrame(table)

    def changes(*ids: int, v: str = "v", seq: int) -> Any:
        found = rows(*ids, v=v, seq=seq).append_column("n", pa.array([one + seq for one in ids], pa.int64()))
        return frame(found.append_column("w", pa.array(["w"] * len(ids))))

    how: dict[str, Any] = {"keys": ["id"], "sequence_by": ["seq"]}
    table = sw.open(root)
    table.append(rows(1, 2))
    table.append(frame(rows(3, 4)))
    table.apply_changes(changes(1, 5, seq=2), **how)
    table.overwrite(frame(rows(2, v="new")), where="id = 2")
    spark.run(f"INSERT INTO {source} (id, seq, v) VALUES (6, 1, 'spark')")
    spark.run(f"UPDATE {source} SET v = 'spark' WHERE id = 5")
    broken: list[tuple[Callable[[Any], object], Any]] = [
        (table.append, rows(7, 100)),
        (table.append, frame(rows(8, v=None))),
        (table.overwrite, frame(rows(9, v=""))),
        (partial(table.apply_changes, **how), changes(1, 10, v="", seq=3)),
    ]
    for write, given in broken:
        with pytest.raises(sw.WouldAlterError, match=r"constraint 'few' \(id < 100 AND v <> ''\)"):
            write(given)
    with pytest.raises(Exception, match="DELTA_VIOLATE_CONSTRAINT"):  # of py4j or of PySpark
        spark.run(f"INSERT INTO {source} (id, seq, v) VALUES (100, 1, 'spark')")
    with pytest.raises(sw.WouldAlterError, match=r"1 of 1 rows break the generated column 'n' \(id \+ seq\)"):
        table.append(frame(rows(11).append_column("n", pa.array([11], pa.int64()))))
    table.delete("id = 4")
    found = spark.read(root).to_pylist()
    assert [one["id"] for one in found] == [1, 2, 3, 5, 6]
    assert all(one["n"] == one["id"] + one["seq"] and one["w"] == "w" for one in found)
