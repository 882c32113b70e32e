"""The types of each source, as its connector writes them to Kafka, and what a table has of them: docs/values.md in values.

Written from the documentation of Debezium's connectors ("data type mappings"), under their default settings unless the row
says otherwise (``test_debezium_converters.py`` has events of the connectors' own code); expected values are written out, none is made by the code that reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

TIME, CONNECT, DATA = "io.debezium.time.", "org.apache.kafka.connect.data.", "io.debezium.data."


def of(kind: str, name: str | None = None, **more: Any) -> dict[str, Any]:
    """A schema of Connect."""
    return {"type": kind, "optional": True, **({} if name is None else {"name": name}), **more}


def decimals(precision: int | None, scale: int) -> dict[str, Any]:
    digits = {} if precision is None else {"connect.decimal.precision": str(precision)}
    return of("bytes", f"{CONNECT}Decimal", parameters={"scale": str(scale), **digits})


def stamp(*parts: int) -> datetime:
    return datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001 - a time without a zone


TEXT, FLAG, BYTES, LONG, DOUBLE = of("string"), of("boolean"), of("bytes"), of("int64"), of("double")
VARIABLE = of("struct", f"{DATA}VariableScaleDecimal", fields=[{"field": "scale", "type": "int32"}, {"field": "value", "type": "bytes"}])  # fmt: skip
DATE, ZONED = of("int32", f"{TIME}Date"), of("string", f"{TIME}ZonedTimestamp")
MILLIS, MICROS, NANOS = (of("int64", f"{TIME}{unit}Timestamp") for unit in ("", "Micro", "Nano"))
MILLI_CLOCK, CLOCK, NANO_CLOCK = of("int32", f"{TIME}Time"), of("int64", f"{TIME}MicroTime"), of("int64", f"{TIME}NanoTime")  # fmt: skip
POINT = of(
    "struct",
    f"{DATA}geometry.Point",
    fields=[{"field": "x", "type": "double"}, {"field": "y", "type": "double"}],
)
GEOMETRY = of("struct", f"{DATA}geometry.Geometry", fields=[{"field": "wkb", "type": "bytes"}, {"field": "srid", "type": "int32"}])  # fmt: skip
INFINITY = 9_223_372_036_825_200_000
STAMP, TIMESTAMP, INSTANT = 1_709_251_199_123_456, stamp(2024, 2, 29, 23, 59, 59, 123456), datetime(2024, 2, 29, 23, 59, 59, 123456, UTC)  # fmt: skip


@dataclass(frozen=True)
class Misfit:
    """A value that the column cannot hold, what it is called on the page, and what lands under each setting."""

    name: str
    wire: Any
    text: str
    floor: Any = None

    @property
    def lands(self) -> str:
        modes = ["`floor`"] if self.floor is not None else []
        return " or ".join([*modes, "`text`", "`null`"])


@dataclass(frozen=True)
class SourceType:
    """Types of a source that come alike, and the column that a table gets."""

    types: str
    column: str
    schema: Mapping[str, Any]
    fits: Sequence[tuple[Any, Any]]
    misfits: Sequence[Misfit] = ()
    note: str = ""

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """The row of the page."""
        unfit = ", ".join(one.name for one in self.misfits)
        lands = dict.fromkeys(one.lands for one in self.misfits)
        return self.types, self.column, unfit, "; ".join([*lands, *([self.note] if self.note else [])])


NO_TIME = "is a text in Delta"
FINE = Misfit("more than six digits of a second", 1_648_811_502_929_775_100, "2022-04-01T11:11:42.9297751", stamp(2022, 4, 1, 11, 11, 42, 929775))  # fmt: skip
FINE_ZONED = Misfit("more than six digits of a second", "2024-01-01T00:00:00.1234567+01:00", "2023-12-31T23:00:00.1234567Z", datetime(2023, 12, 31, 23, 0, 0, 123456, UTC))  # fmt: skip
BEYOND_38 = "more than 38 digits: the column is a `string`"
WIDE = SourceType("", "`string`", decimals(60, 2), [("AQ==", "0.01")])

POSTGRESQL: tuple[SourceType, ...] = (
    SourceType("`boolean`, `bit(1)`", "`bool`", FLAG, [(True, True)]),
    SourceType("`smallint`, `integer`, `bigint`, `oid`, serials", "`int64`", LONG, [(-(2**63), -(2**63)), (7, 7)]),
    SourceType("`real`, `double precision`", "`float64`", DOUBLE, [(0.1, 0.1), ("NaN", float("nan")), ("-Infinity", float("-inf"))], note="NaN and infinities land"),
    SourceType("`numeric(p, s)`, `money`", "`decimal(p, s)`", decimals(10, 2), [("MDk=", Decimal("123.45"))], note=BEYOND_38),
    SourceType("`numeric` without precision", "`string`", VARIABLE, [({"scale": 3, "value": "MDk="}, "12.345")], note="exact, however many digits"),
    SourceType("`char`, `varchar`, `text`, `citext`, `uuid`, `json`, `jsonb`, `xml`, enums, `inet`, `cidr`, `macaddr`, ranges, `ltree`, `tsvector`, `timetz`, `hstore` as JSON", "`string`", TEXT, [("Zoë", "Zoë"), ("", "")]),
    SourceType("`bytea`, `bit(n)`, `bit varying`", "`binary`", BYTES, [("AP8=", b"\x00\xff")]),
    SourceType("`date`", "`date`", DATE, [(0, date(1970, 1, 1)), (-719_162, date(1, 1, 1))], [Misfit("`infinity`", 2**31 - 1, "infinity"), Misfit("BC", -735_160, "-0043-03-15"), Misfit("years above 9999", 2_932_897, "+10000-01-01")]),
    SourceType("`time`", "`time`", CLOCK, [(1, "00:00:00.000001")], [Misfit("`24:00:00`", 86_400_000_000, "24:00:00")], NO_TIME),
    SourceType("`timestamp`", "`timestamp`", MICROS, [(STAMP, TIMESTAMP)], [Misfit("`infinity`", INFINITY, "infinity"), Misfit("BC", -63_517_824_000_000_000, "-0043-03-15T00:00:00"), Misfit("years above 9999", 253_402_300_800_000_000, "+10000-01-01T00:00:00")]),
    SourceType("`timestamptz`", "`timestamptz`", ZONED, [("2024-02-29T23:59:59.123456Z", INSTANT)], [Misfit("`infinity`", "infinity", "infinity"), Misfit("BC and years above 9999", "-0043-03-15T00:00:00Z", "-0043-03-15T00:00:00Z")]),
    SourceType("`interval`", "`int64`", of("int64", f"{TIME}MicroDuration"), [(3_600_000_000, 3_600_000_000)], note="microseconds; a text with `interval.handling.mode=string`"),
    SourceType("arrays", "a list of the item's type", of("array", items=of("int32")), [([1, None], [1, None]), ([], [])], [Misfit("an item that does not fit", [2**70], f"[{2**70}]")]),
    SourceType("`timestamp[]`, `date[]`", "a list of times", of("array", items=MICROS), [([STAMP, None], [TIMESTAMP, None])], [Misfit("an item of `infinity`", [INFINITY], '["infinity"]')]),
    SourceType("`point`, `geometry`, `geography`", "a struct", GEOMETRY, [({"wkb": "AQ==", "srid": 4326}, {"wkb": b"\x01", "srid": 4326})]),
    SourceType("`vector`, `halfvec`", "a list of `float64`", of("array", f"{DATA}DoubleVector", items=of("double")), [([0.5, 1.0], [0.5, 1.0])]),
)  # fmt: skip
MYSQL: tuple[SourceType, ...] = (
    SourceType("`BOOLEAN`, `BIT(1)`", "`bool`", FLAG, [(False, False)]),
    SourceType("`TINYINT` to `BIGINT`, `YEAR`", "`int64`", LONG, [(2**63 - 1, 2**63 - 1)]),
    SourceType("`BIGINT UNSIGNED`", "`int64`", LONG, [(5, 5)], note="the connector makes negative numbers of those from 2^63 on; set its `bigint.unsigned.handling.mode` to `precise`, and the column is `decimal(20, 0)`"),
    SourceType("`BIGINT UNSIGNED` as `precise`", "`decimal(20, 0)`", decimals(20, 0), [("AP//////////", Decimal(2**64 - 1))]),
    SourceType("`FLOAT`, `DOUBLE`", "`float64`", DOUBLE, [(1.5, 1.5)]),
    SourceType("`DECIMAL(p, s)`", "`decimal(p, s)`", decimals(12, 4), [("MDk=", Decimal("1.2345"))], note=BEYOND_38),
    SourceType("`CHAR` to `LONGTEXT`, `JSON`, `ENUM`, `SET`", "`string`", TEXT, [("x,y", "x,y")]),
    SourceType("`BINARY`, `VARBINARY`, `BLOB`, `BIT(n)`", "`binary`", BYTES, [("AA==", b"\x00")]),
    SourceType("`DATE`", "`date`", DATE, [(19_782, date(2024, 2, 29))], note="the connector makes NULL or 1970 of zero dates"),
    SourceType("`TIME`", "`time`", CLOCK, [(86_399_999_999, "23:59:59.999999")], [Misfit("a day and more", 3_020_399_000_000, "838:59:59"), Misfit("negative ones", -3_600_000_000, "-01:00:00")], NO_TIME),
    SourceType("`DATETIME` to `DATETIME(3)`", "`timestamp`", MILLIS, [(1_709_251_199_123, stamp(2024, 2, 29, 23, 59, 59, 123000))]),
    SourceType("`DATETIME(4)` to `DATETIME(6)`", "`timestamp`", MICROS, [(STAMP, TIMESTAMP)]),
    SourceType("`TIMESTAMP`", "`timestamptz`", ZONED, [("2024-02-29T23:59:59.123456Z", INSTANT)]),
    SourceType("`GEOMETRY` and its kinds", "a struct", POINT, [({"x": 1.0, "y": 2.0}, {"x": 1.0, "y": 2.0})]),
)  # fmt: skip
SQL_SERVER: tuple[SourceType, ...] = (
    SourceType("`bit`", "`bool`", FLAG, [(True, True)]),
    SourceType("`tinyint` to `bigint`", "`int64`", LONG, [(255, 255)]),
    SourceType("`real`, `float`", "`float64`", DOUBLE, [(1e-300, 1e-300)]),
    SourceType("`decimal(p, s)`, `numeric(p, s)`, `money`, `smallmoney`", "`decimal(p, s)`", decimals(19, 4), [("MDk=", Decimal("1.2345"))]),
    SourceType("`char` to `nvarchar(max)`, `text`, `xml`, `uniqueidentifier`", "`string`", TEXT, [("", "")]),
    SourceType("`binary`, `varbinary`, `image`, `rowversion`", "`binary`", BYTES, [("/w==", b"\xff")]),
    SourceType("`date`", "`date`", DATE, [(2_932_896, date(9999, 12, 31))]),
    SourceType("`time(0)` to `time(3)`", "`time`", MILLI_CLOCK, [(1, "00:00:00.001000")], note=NO_TIME),
    SourceType("`time(4)` to `time(6)`", "`time`", CLOCK, [(1, "00:00:00.000001")], note=NO_TIME),
    SourceType("`time(7)`, `time`", "`time`", NANO_CLOCK, [(1000, "00:00:00.000001")], [Misfit("more than six digits of a second", 100, "00:00:00.0000001", "00:00:00")], NO_TIME),
    SourceType("`datetime`, `smalldatetime`, `datetime2(0)` to `datetime2(3)`", "`timestamp`", MILLIS, [(-62_135_596_800_000, stamp(1, 1, 1))]),
    SourceType("`datetime2(4)` to `datetime2(6)`", "`timestamp`", MICROS, [(STAMP, TIMESTAMP)]),
    SourceType("`datetime2(7)`, `datetime2`", "`timestamp`", NANOS, [(STAMP * 1000, TIMESTAMP)], [FINE], "nine of ten values of the default precision"),
    SourceType("`datetimeoffset`", "`timestamptz`", ZONED, [("2024-03-01T00:59:59.123456+01:00", INSTANT)], [FINE_ZONED]),
)  # fmt: skip
ORACLE: tuple[SourceType, ...] = (
    SourceType("`NUMBER(p)` up to 18 digits, `INTEGER` of the connector", "`int64`", LONG, [(10**18 - 1, 10**18 - 1)]),
    SourceType("`NUMBER(p, s)`", "`decimal(p, s)`", decimals(38, 10), [("MDk=", Decimal("0.0000012345"))]),
    SourceType("`NUMBER`, `FLOAT`", "`string`", VARIABLE, [({"scale": -2, "value": "AQ=="}, "100"), ({"scale": 1, "value": "/w=="}, "-0.1")], note="exact, however many digits"),
    SourceType("`BINARY_FLOAT`, `BINARY_DOUBLE`", "`float64`", DOUBLE, [("Infinity", float("inf"))], note="NaN and infinities land"),
    SourceType("`CHAR` to `NVARCHAR2`, `CLOB`, `XMLTYPE`, `ROWID`", "`string`", TEXT, [("x", "x")], note="`CLOB`: the connector leaves unchanged ones out (`lob.enabled`), and they are carried on"),
    SourceType("`RAW`, `BLOB`", "`binary`", BYTES, [("AA==", b"\x00")]),
    SourceType("`DATE`, `TIMESTAMP(0)` to `TIMESTAMP(3)`", "`timestamp`", MILLIS, [(0, stamp(1970, 1, 1))], [Misfit("BC", -63_517_824_000_000, "-0043-03-15T00:00:00")]),
    SourceType("`TIMESTAMP(4)` to `TIMESTAMP(6)`, `TIMESTAMP`", "`timestamp`", MICROS, [(STAMP, TIMESTAMP)], [Misfit("BC", -63_517_824_000_000_000, "-0043-03-15T00:00:00")]),
    SourceType("`TIMESTAMP(7)` to `TIMESTAMP(9)`", "`timestamp`", NANOS, [(STAMP * 1000, TIMESTAMP)], [FINE]),
    SourceType("`TIMESTAMP WITH TIME ZONE`, `WITH LOCAL TIME ZONE`", "`timestamptz`", ZONED, [("2024-02-29T23:59:59.123456Z", INSTANT)], [FINE_ZONED]),
    SourceType("`INTERVAL`", "`int64`", of("int64", f"{TIME}MicroDuration"), [(1, 1)], note="microseconds"),
)  # fmt: skip
DEBEZIUM: Mapping[str, Sequence[SourceType]] = {
    "PostgreSQL": POSTGRESQL, "MySQL and MariaDB": MYSQL, "SQL Server": SQL_SERVER, "Oracle": ORACLE,
}  # fmt: skip


# --- AWS DMS --------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Value:
    """What a record of JSON, or a file, has for a value: the field of the configuration that reads it, and the column."""

    kind: str
    column: str
    settings: Mapping[str, Any]
    fits: Sequence[tuple[Any, Any]]
    unfit: Sequence[tuple[str, Any]] = ()
    note: str = ""
    shown: str = field(default="", kw_only=True)

    @property
    def cells(self) -> tuple[str, str, str, str]:
        return self.kind, self.column, ", ".join(name for name, _ in self.unfit), self.note or self.shown


DMS_JSON: tuple[Value, ...] = (
    Value("whole numbers", "`int64`", {}, [(7, 7), (-(2**63), -(2**63))], [("65 bits and more", 2**63)], "`null`, `text`; or `decimal_fields`"),
    Value("numbers with a point", "`float64`", {}, [(0.5, 0.5)], [("more than 17 digits", "0.12345678901234567890")], "`decimal_fields`"),
    Value("numbers and texts of numbers", "`decimal(p, s)`", {"decimal_fields": {"v": [10, 2]}}, [(12.5, Decimal("12.5")), ('"12.50"', Decimal("12.50"))], [("digits beyond the scale", "1.005"), ("too many digits", "123456789012.5")], "`null`; or other digits in `decimal_fields`"),
    Value("texts, and dates and times without a setting", "`string`", {}, [('"x"', "x"), ('"2024-02-29"', "2024-02-29")]),
    Value("texts of times", "`timestamptz`", {"timestamp_fields": {"v": "iso8601"}}, [('"2024-02-29T23:59:59.123456Z"', INSTANT), ('"2024-02-29 23:59:59.123456"', INSTANT)], [("more than six digits of a second", '"2024-01-01T00:00:00.1234567Z"'), ("years outside 1 to 9999", '"0000-01-01"')], "`floor` (digits of a second), `null`"),
    Value("`true`, `false`", "`bool`", {}, [("true", True)]),
    Value("lists and objects", "`string` of JSON", {}, [("[1,2]", "[1,2]"), ('{"a":1}', '{"a":1}')]),
)  # fmt: skip
FILES: tuple[Value, ...] = (
    Value("`int8` to `int64`", "the declared type", {"type": "int32", "unfit": "does not fit"}, [("7", 7), ("-7", -7)], [("a fraction", "7.5"), ("more bits", "9999999999"), ("`0x1F`", "0x1F")]),
    Value("`float32`, `float64`", "the declared type", {"type": "float64"}, [("0.5", 0.5), ("1e3", 1000.0)], [("what is too large or too near to zero", "1e999"), ("digits that it does not have", "0.33333333333333333333"), ("no number", "x")]),
    Value("`decimal(p,s)`", "the declared type", {"type": "decimal(10,2)"}, [("12.50", Decimal("12.50"))], [("digits beyond the scale", "1.005"), ("too many digits", "12345678901.5")]),
    Value("`string`", "the declared type", {"type": "string"}, [("é", "é")], [], "a text that is no UTF-8 goes to quarantine; times of a day and UUIDs of Parquet are texts (`01:02:00`)"),
    Value("`date`", "the declared type", {"type": "date"}, [("2024-02-29", date(2024, 2, 29))], [("days that no calendar has", "2023-02-29")]),
    Value("`timestamp`", "the declared type", {"type": "timestamp"}, [("2024-02-29 23:59:59.123456", TIMESTAMP)], [("a time with a zone in CSV", "2024-02-29 23:59:59+01:00"), ("more than six digits of a second", "2024-02-29 23:59:59.1234567")], "INT96 of Parquet too, in all years"),
    Value("`timestamptz`", "the declared type", {"type": "timestamptz"}, [("2024-02-29 23:59:59.123456", INSTANT)], [("more than six digits of a second", "2024-02-29 23:59:59.1234567")], "a time without a zone is taken for UTC"),
    Value("`bool`", "the declared type", {"type": "bool"}, [("true", True), ("0", False)], [("other words and numbers", "maybe")], "1 and 0 are true and false, in CSV (`1.000` too) and as numbers of Parquet (`tinyint(1)`, `NUMBER(1)`)"),
    Value("`binary`", "the declared type", {"type": "binary"}, [("00ff", b"\x00\xff")], [("what is not hexadecimal", "xyz")], "hexadecimal digits in CSV"),
)  # fmt: skip
