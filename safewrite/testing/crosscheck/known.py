"""Lists known faults of readers, each with its source: what they misread is no fault of the writer."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from safewrite.testing.crosscheck.oracle import ProgramOracle
from safewrite.testing.crosscheck.program import Program


@dataclass(frozen=True)
class KnownFault:
    """A fault of a reader: ``fits`` gets the disagreement's text, the program and the oracle."""

    name: str
    reader: str
    source: str
    fits: Callable[[str, Program, ProgramOracle], bool]


def _asks_for_later_column(text: str, program: Program, oracle: ProgramOracle) -> bool:
    first = {column.name for column in program.columns}
    later = [column.name for column in oracle.columns if column.name not in first]
    return " of Where(" in text and any(f"column={name!r}" in text for name in later)


def _decimal_statistics(text: str, program: Program, oracle: ProgramOracle) -> bool:
    wide = [one for one in oracle.columns if one.kind == "decimal38" and f"column={one.name!r}" in text]
    return bool(wide) and _others_wrote(program)


def _others_wrote(program: Program) -> bool:
    return any(step.who != "safewrite" for step in program.steps)


def _two_spellings(text: str, program: Program, oracle: ProgramOracle) -> bool:
    instants = [
        one.name for one in oracle.columns if one.kind == "instant" and one.name in program.partition_by
    ]
    return bool(instants) and "could not parse" in text and _others_wrote(program)


def _null_in_negated_list(text: str, program: Program, oracle: ProgramOracle) -> bool:
    return "is too much" in text and "op='not', parts=(Where(op='in'" in text


def _null_partition(text: str, program: Program, oracle: ProgramOracle) -> bool:
    return "not supported between instances of 'NoneType'" in text


def _escaped_folder(text: str, program: Program, oracle: ProgramOracle) -> bool:
    named = "column not present in the given Hive schema" in text or "not found: Error performing GET" in text
    return named and "%" in text and "s3://" in text


def _nan(text: str, program: Program, oracle: ProgramOracle) -> bool:
    floats = [one.name for one in oracle.columns if one.kind.startswith("float")]
    return any(f"column={name!r}" in text for name in floats)


def holds_structs(kind: str) -> bool:
    """Whether a kind of column has lists or maps of structs."""
    return any(
        f"{outer}<" in kind and "struct<" in kind.split(f"{outer}<", 1)[1] for outer in ("list", "map")
    )


def _null_list_of_structs(text: str, program: Program, oracle: ProgramOracle) -> bool:
    named = [one for one in oracle.columns if f"column {one.name!r}:" in text and holds_structs(one.kind)]
    seen = text.partition(", and not ")[0]
    return bool(named) and ("('list', ())" in seen or "('map', frozenset())" in seen)


def _null_of_hive(text: str, program: Program, oracle: ProgramOracle) -> bool:
    return ": None, and not ('text', '__HIVE_DEFAULT_PARTITION__')" in text and _others_wrote(program)


def _marks_in_escaped_folders(text: str, program: Program, oracle: ProgramOracle) -> bool:
    marked = any(step.what == "mark" for step in program.steps)
    return marked and bool(program.partition_by) and "is too much" in text


def _small_negative_decimal(text: str, program: Program, oracle: ProgramOracle) -> bool:
    decimals = [
        one for one in oracle.columns if one.kind.startswith("decimal") and one.name in program.partition_by
    ]
    return bool(decimals) and re.search(r"The string '0\.0*-\d+' is not a valid decimal", text) is not None


FAULTS = [
    KnownFault(
        "deltalake's dataset by a column that old files lack",
        "deltalake",
        "delta-io/delta-rs #1496; deltalake 1.6.6 does so with tables that it wrote alone: `is_null()` finds no row of "
        "files without the column, and `~(c < x)` finds all of them",
        _asks_for_later_column,
    ),
    KnownFault(
        "polars' one pattern for all values of a partition",
        "polars",
        "polars 2.1 takes the pattern of the first partition value for all: it cannot read a table some of whose instants "
        "deltalake spelled without a zone and others with one, as the protocol has it",
        _two_spellings,
    ),
    KnownFault(
        "deltalake's missing bounds",
        "deltalake",
        "deltalake 1.6.6 takes a bound that a file does not have (there is a NaN) for NULL, and its dataset passes over "
        "the file; delta-io/delta-rs #1496",
        _nan,
    ),
    KnownFault(
        "deltalake's statistics of wide decimals",
        "*",
        "deltalake 1.6.6 takes the bounds of decimals for doubles, and passes over files whose rounded bounds do not fit "
        "the condition: of a table that it wrote alone `d = 12345678901234567890.123456789012345678` finds no row",
        _decimal_statistics,
    ),
    KnownFault(
        "PyIceberg's negated conditions on a column that old files lack",
        "pyiceberg",
        "PyIceberg 0.12.0 takes `c != x`, `c NOT IN ...` and `NOT c < x` for true in files without the column, in tables "
        "that it wrote alone",
        _asks_for_later_column,
    ),
    KnownFault(
        "PyIceberg's NOT IN",
        "pyiceberg",
        "PyIceberg 0.12.0 takes `NOT c IN (x, y)` for true where c is NULL (with one value, `c != x`, it does not), in tables "
        "that it wrote alone",
        _null_in_negated_list,
    ),
    KnownFault(
        "PyIceberg's comparisons with a NULL partition value",
        "pyiceberg",
        "PyIceberg 0.12.0 raises TypeError where a condition's OR compares an identity partition column and a partition's "
        "value is NULL, in tables that it wrote alone",
        _null_partition,
    ),
    KnownFault(
        "polars' folders on object stores",
        "polars",
        "polars 2.1 does not find the partition columns or files of a Delta table in S3 whose folders have escaped "
        "characters, also where deltalake or Spark wrote it alone",
        _escaped_folder,
    ),
    KnownFault(
        "deltalake's Hive name of NULL",
        "*",
        "deltalake 1.6.6 writes the text `__HIVE_DEFAULT_PARTITION__` of a partition column as NULL; safewrite refuses it by row",
        _null_of_hive,
    ),
    KnownFault(
        "deltalake's small negative decimals of partitions",
        "deltalake",
        "deltalake 1.6.6 spells a partition value between -1 and 0 as `0.0-5`: it can neither append one nor read it, "
        "whoever wrote it",
        _small_negative_decimal,
    ),
    KnownFault(
        "polars' deletion vectors in folders with escaped characters",
        "polars",
        "polars 2.1 does not apply the deletion vector of a file whose path the log escapes, such as that of a partition "
        "column `größe`: deleted rows come back; safewrite marks no row of such a file (A17 of docs/faults.md)",
        _marks_in_escaped_folders,
    ),
    KnownFault(
        "PyIceberg's empty lists of structs",
        "pyiceberg",
        "PyIceberg 0.12.0 reads a list or map of structs that is NULL as an empty one, in tables that it wrote alone; "
        "safewrite.iceberg.data.nested reads such columns instead",
        _null_list_of_structs,
    ),
]


def explained(text: str, program: Program, oracle: ProgramOracle) -> str | None:
    """The name of the known fault behind a disagreement; None if there is none."""
    reader = text.partition(":")[0]
    for fault in FAULTS:
        if fault.reader in ("*", reader) and fault.fits(text, program, oracle):
            return fault.name
    return None
