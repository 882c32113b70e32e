"""The differential machine: sound code passes its seeds, and each fault that is put back is found within 300."""

from __future__ import annotations

import datetime as dt
import hashlib
import logging
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.delta.format import DeltaFormat
from safewrite.delta.log.stamps import last_row_id
from safewrite.delta.write.stamped import Stamper
from safewrite.frames.columns import ExtensionColumn
from safewrite.testing import crosscheck
from safewrite.testing.crosscheck import Column, DisagreementError, Program, Step, Where
from safewrite.testing.crosscheck.conditions import holds
from safewrite.testing.crosscheck.draw import Format
from safewrite.testing.crosscheck.frames import RAW, frame
from safewrite.testing.crosscheck.meaning import given, meaning, read
from safewrite.testing.crosscheck.oracle import ProgramOracle

SEEDS_MAX = 300
Patch = pytest.MonkeyPatch

pytestmark = pytest.mark.filterwarnings("ignore")  # the other engines' own


@pytest.mark.sweep("delta-7", "iceberg-5")
@pytest.mark.parametrize(
    ("format_", "seeds"),
    [
        ("delta", 7),
        ("iceberg", 5),
        pytest.param("delta", 15, marks=pytest.mark.long),
        pytest.param("iceberg", 10, marks=pytest.mark.long),
    ],
)
def test_fixed_seeds_end_without_an_unexplained_disagreement(format_: Format, seeds: int) -> None:
    verdict = crosscheck.check(format_, seeds=range(seeds), shrink=False)
    assert [str(failed) for failed in verdict.failed] == []
    assert verdict.tally["read by polars"] > seeds


@pytest.mark.long
def test_a_schema_of_ones_own_is_crosschecked() -> None:
    schema = pa.schema({"id": pa.int64(), "at": pa.timestamp("us", "UTC"), "tags": pa.list_(pa.string())})
    verdict = crosscheck.check("delta", schema=schema, seeds=range(5), shrink=False)
    assert (verdict.seeds, verdict.failed) == (5, [])


@pytest.mark.long
def test_the_layouts_of_polars_and_pandas_are_taken_for_the_types_that_a_table_gets() -> None:
    category = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema(
        {"id": pa.int64(), "text": pa.large_string(), "kind": category, "view": pa.string_view()}
    )
    tags = pa.field("tags", pa.large_list(pa.large_binary()))
    verdict = crosscheck.check("delta", schema=schema.append(tags), seeds=range(1), shrink=False)
    assert (verdict.seeds, verdict.failed) == (1, [])


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("x", "pyarrow.Schema"),
        (pa.schema([]), "no column 'id' of int64"),
        (pa.schema({"x": pa.int64()}), "no column 'id' of int64"),
        (pa.schema({"id": pa.int32()}), "no column 'id' of int64"),
        (pa.schema({"id": pa.int64(), "ID": pa.int64()}), "differs only in case"),
        (pa.schema({"id": pa.int64(), "n": pa.uint64()}), "'n': values of type uint64 are not drawn; those"),
        (pa.schema({"id": pa.int64(), "s": pa.struct({"a,b": pa.int64()})}), "'a,b'"),
    ],
)
def test_a_schema_that_cannot_be_drawn_is_refused_with_what_can_be(schema: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        crosscheck.check("delta", schema=schema, seeds=range(1), shrink=False)


@pytest.mark.sweep("iceberg-4")
@pytest.mark.parametrize(
    ("format_", "seeds"),
    [
        ("delta", 3),
        ("iceberg", 4),
        pytest.param("delta", 40, marks=pytest.mark.long),
        pytest.param("iceberg", 60, marks=pytest.mark.long),
    ],
)
def test_change_logs_and_changes_of_columns_end_without_an_unexplained_disagreement(
    format_: Format, seeds: int
) -> None:
    verdict = crosscheck.check(format_, seeds=range(seeds), changes=True, shrink=False)
    assert [str(failed) for failed in verdict.failed] == []
    assert verdict.tally["safewrite change"] > seeds


@pytest.mark.long
@pytest.mark.parametrize(
    ("format_", "seeds"),
    [
        ("delta", 4),
        pytest.param("iceberg", 3, marks=pytest.mark.long),
        pytest.param("delta", 60, marks=pytest.mark.long),
        pytest.param("iceberg", 30, marks=pytest.mark.long),
    ],
)
def test_what_other_makers_set_is_kept_or_refused_before_a_file_is_there(format_: Format, seeds: int) -> None:
    verdict = crosscheck.check(format_, seeds=range(seeds), kept=True, shrink=False)
    assert [str(failed) for failed in verdict.failed] == []
    assert verdict.tally["read by promises"] > 0


@pytest.mark.parametrize("seeds", [4, pytest.param(60, marks=pytest.mark.long)])
def test_delta_tables_with_sets_of_features_end_without_an_unexplained_disagreement(seeds: int) -> None:
    verdict = crosscheck.check("delta", seeds=range(seeds), features=True, shrink=False)
    assert [str(failed) for failed in verdict.failed] == []
    assert verdict.tally["read by commits"] > seeds


def test_texts_that_are_no_utf8_are_drawn_at_any_depth() -> None:
    kinds = "string", "list<string>", "struct<a:string,b:int32>", "map<string,string>"
    values = "\udcff", ["a", "\udcff"], {"a": "\udcff", "b": 1}, [("k", "\udcff")]
    columns = tuple(Column(f"c{at}", kind) for at, kind in enumerate(kinds))
    rows = [{f"c{at}": value for at, value in enumerate(values)}, dict.fromkeys(one.name for one in columns)]
    table = frame(RAW, rows, columns)
    assert [one.null_count for one in table.columns] == [1, 1, 1, 1]
    for column in table.columns:
        with pytest.raises(pa.ArrowInvalid, match="UTF8"):
            column.validate(full=True)


# --- faults that are put back ----------------------------------------------------------------------------
def _vectors_unseen(patch: Patch) -> None:
    patch.setattr("safewrite.delta.data.rows.live", lambda _, rows: np.ones(rows, np.bool_))


def _ids_given_twice(patch: Patch) -> None:
    patch.setattr("safewrite.delta.write.stamped.last_row_id", lambda state: min(last_row_id(state), 0))


def _times_gone_back(patch: Patch) -> None:
    own = Stamper._after
    patch.setattr(
        Stamper, "_after", lambda stamper, state, began: own(stamper, state, began)._replace(time_ms=5)
    )


@dataclass(frozen=True)
class Fault:
    """A fault of docs/faults.md: how it is put back, and which programs come by it."""

    name: str
    format: Format
    put_back: Callable[[Patch], None]
    concerns: Callable[[Program], bool]
    changes: bool = False
    features: bool = False
    first_seed: int = 0
    """Of a fault that one program in hundreds meets: a seed shortly before one that does."""


def does(who: str, *verbs: str, by: str | None = None) -> Callable[[Program], bool]:
    return lambda program: any(
        step.who == who and step.what in verbs and by in (None, step.by) for step in program.steps
    )


def _repeats_at_once(program: Program) -> bool:
    """A name that the held table knows, and the table made anew before it is repeated."""
    for number, step in enumerate(program.steps[:-1]):
        before = [one for one in program.steps[:number] if one.who == "safewrite" and one.name and one.rows]
        if step.what == "recreate" and before and program.steps[number + 1].what == "repeat":
            return True
    return False


def both(*conditions: Callable[[Program], bool]) -> Callable[[Program], bool]:
    return lambda program: all(condition(program) for condition in conditions)


def nothing(*_: Any, **__: Any) -> Generator[Any, Any, None]:
    yield from ()


def always(*_: Any, **__: Any) -> Generator[Any, Any, bool]:
    yield from ()
    return True


def _recreated_table(patch: Patch) -> None:
    patch.setattr("safewrite.delta.format.check_same", lambda *_: None)
    patch.setattr("safewrite.delta.log.snapshot._is_same_log", always)
    patch.setattr("safewrite.protocol.delta.catch_up._prove", nothing)
    patch.setattr("safewrite.protocol.delta.commit.prove", nothing)


def _unchecked_refresh(patch: Patch) -> None:
    patch.setattr("safewrite.delta.format.check_table", lambda _: None)


def _categories(patch: Patch) -> None:
    from safewrite.frames import source

    known = source._pandas_column

    def column(name: str, series: Any, target: Any) -> Any:
        categories = isinstance(series.dtype, pd.CategoricalDtype)
        return ExtensionColumn(name, series) if categories else known(name, series, target)

    patch.setattr(source, "_pandas_column", column)


def _nanoseconds(patch: Patch) -> None:
    from safewrite.frames import where

    known = where._plain
    patch.setattr(
        where, "_plain", lambda value: value.to_pydatetime() if hasattr(value, "nanosecond") else known(value)
    )


def _ragged(patch: Patch) -> None:
    patch.setattr("safewrite.frames.source._ragged", lambda _: None)


def _after_the_commit(patch: Patch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise ValueError("dictionary update sequence element #0")

    known = DeltaFormat.after

    def after(table: DeltaFormat, *rest: Any) -> None:
        known(table, *rest)
        if table.version > 1 and table.version % 2 == 0:
            fail()

    patch.setattr(DeltaFormat, "after", after)
    patch.setattr("safewrite.table.writer.after_ack", unguarded)


class unguarded:  # noqa: N801 - stands for a function
    """What guards the steps after a commit, taken away."""

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def _folders_of_partitions(patch: Patch) -> None:
    import re

    patch.setattr("safewrite.delta.data.partitions._NO_FOLDER", re.compile(r"[^A-Za-z0-9._~-]"))


def _void_partition(patch: Patch) -> None:
    for module in ("data.datafiles", "data.manifests", "data.pruning"):
        patch.setattr(f"safewrite.iceberg.{module}.typed", lambda spec, _: spec)


def _resolve_without_looking(patch: Patch) -> None:
    from safewrite.iceberg.format import IcebergFormat

    patch.setattr(IcebergFormat, "_is_there", lambda _: False)


def _dropped_tables_answer(patch: Patch) -> None:
    def newest(known: Any, limits: Any) -> Generator[Any, Any, Any]:
        from safewrite.protocol.iceberg.commit import load

        return (yield from load(limits))

    patch.setattr("safewrite.iceberg.write.write.newest", newest)
    patch.setattr("safewrite.iceberg.current.FRESH_S", 3600.0)  # on a slow machine the second would be over


def _names_of_columns(patch: Patch) -> None:
    """T3-A1 and A2: what is remembered goes by names."""
    from safewrite.changes.meaning.memory import Memory

    empty = Memory.empty

    def without_ids(*columns: Any, **how: Any) -> Memory:
        how.pop("ids", None)
        return empty(*columns, **how)

    patch.setattr(Memory, "empty", without_ids)


def _nested_by_pyiceberg(patch: Patch) -> None:
    """T3-A3: PyIceberg reads nested columns."""
    patch.setattr("safewrite.iceberg.data.nested.is_nested", lambda _: False)


FAULTS = [
    Fault("a table made anew under a held object", "delta", _recreated_table, does("deltalake", "recreate")),
    Fault("features that came with a refresh", "delta", _unchecked_refresh, does("deltalake", "constrain")),
    Fault(
        "categories of objects",
        "delta",
        _categories,
        does("safewrite", "append", by="pandas categories"),
        first_seed=1030,
    ),
    Fault("nanoseconds in where", "delta", _nanoseconds, does("safewrite", "delete")),
    Fault(
        "keys that only some dicts have",
        "delta",
        _ragged,
        lambda program: any(
            isinstance(value, dict) and "b" not in value
            for step in program.steps
            for row in step.rows
            for value in row.values()
        ),
    ),
    Fault("an error after the commit", "delta", _after_the_commit, does("safewrite", "append")),
    Fault(
        "folders that polars does not find",
        "delta",
        _folders_of_partitions,
        lambda program: any(not name.isascii() for name in program.partition_by),
    ),
    Fault(
        "void fields of dropped columns",
        "iceberg",
        _void_partition,
        both(does("pyiceberg", "drop partition"), does("pyiceberg", "drop column")),
    ),
    Fault(
        "resolve that does not look",
        "iceberg",
        _resolve_without_looking,
        both(does("safewrite", "resolve"), lambda program: any(s.object_ == "early" for s in program.steps)),
    ),
    Fault("what dropped tables answer", "iceberg", _dropped_tables_answer, _repeats_at_once),
    Fault(
        "names of remembered columns",
        "iceberg",
        _names_of_columns,
        does("pyiceberg", "swap columns", "rename column", "make column again"),
        changes=True,
    ),
    Fault(
        "NULL lists of structs",
        "iceberg",
        _nested_by_pyiceberg,
        lambda program: any("list<struct<" in one.kind for one in program.columns),
        changes=True,
    ),
    Fault(
        "rows that vectors took away",
        "delta",
        _vectors_unseen,
        does("deltalake", "mark"),
    ),
    Fault(
        "row ids that are given twice",
        "delta",
        _ids_given_twice,
        lambda program: "row tracking" in program.features,
        features=True,
    ),
    Fault(
        "a time of a commit that goes back",
        "delta",
        _times_gone_back,
        lambda program: "commit times" in program.features,
        features=True,
    ),
]


@pytest.mark.sweep(
    "a table made anew under a held object",
    "keys that only some dicts have",
    "names of remembered columns",
    "resolve that does not look",
    "categories of objects",
    "folders that polars",
)
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, id=fault.name, marks=pytest.mark.long if at % 2 else ())
        for at, fault in enumerate(FAULTS)
    ],
)
def test_a_fault_that_is_put_back_is_found(fault: Fault, monkeypatch: Patch) -> None:
    logging.getLogger("pyiceberg").setLevel(logging.CRITICAL)
    fault.put_back(monkeypatch)
    verdict = crosscheck.check(
        fault.format,
        seeds=range(fault.first_seed, fault.first_seed + SEEDS_MAX),
        concerns=fault.concerns,
        changes=fault.changes,
        features=fault.features,
        shrink=False,
    )
    assert verdict.failed, f"{verdict.seeds} seeds and nothing was found"


# --- its parts -------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def failed() -> Iterator[crosscheck.FailedSeed]:
    with pytest.MonkeyPatch.context() as patch:
        _nanoseconds(patch)
        concerns = does("safewrite", "delete")
        found = crosscheck.check("delta", seeds=range(20, SEEDS_MAX), concerns=concerns, shrink=False).failed
        assert found, "the first that fails is 23, and earlier ones take long"
        yield found[0]


def test_a_failing_program_prints_itself_and_runs_again(failed: crosscheck.FailedSeed) -> None:
    scope: dict[str, Any] = {}
    source = failed.program.source()
    with pytest.raises(DisagreementError):
        exec(compile(source, "program", "exec"), scope)  # what the machine printed
    assert scope["program"] == failed.program


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (1, 1.0, True),
        (2**53 + 1, float(2**53), False),
        (True, 1, False),
        (dt.date(2020, 1, 1), dt.datetime(2020, 1, 1), False),  # noqa: DTZ001
        (dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, tzinfo=dt.UTC), False),  # noqa: DTZ001
        (pd.Timestamp(1500), dt.datetime(1970, 1, 1, 0, 0, 0, 1), False),  # noqa: DTZ001
        (0.0, -0.0, False),
        (float("nan"), float("nan"), True),
        ("a", b"a", False),
        ({"a": 1}, {"a": 1, "b": None}, False),
    ],
)
def test_two_values_are_the_same_exactly_if_they_mean_the_same(left: Any, right: Any, same: bool) -> None:
    assert (meaning(left) == meaning(right)) is same


def test_an_empty_map_is_no_empty_list() -> None:
    kind = pa.map_(pa.string(), pa.int32())
    assert given([], kind) == read([], kind) != given([], pa.list_(pa.int32()))


def test_conditions_have_three_values() -> None:
    row = {"id": meaning(1), "v": None}
    assert holds(Where("=", "v", 1), row) is None
    assert holds(Where("not", parts=(Where("=", "v", 1),)), row) is None
    assert holds(Where("or", parts=(Where("=", "v", 1), Where("=", "id", 1))), row) is True
    assert holds(Where("and", parts=(Where("=", "v", 1), Where("=", "id", 2))), row) is False


def test_the_oracle_names_what_a_reader_sees_otherwise() -> None:
    oracle = ProgramOracle((Column("id", "int64"), Column("v", "string")))
    oracle.add(oracle.meant([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 3, "v": "c"}]))
    found = [
        {"id": meaning(1), "v": meaning("A")},
        {"id": meaning(2), "v": meaning("b")},
        {"id": meaning(2), "v": meaning("b")},
        {"id": meaning(4), "v": None},
    ]
    said = "\n".join(oracle.compare("reader", found, None))
    for text in ("row 1, column 'v'", "row 2 is there twice", "row 3 is missing", "row 4 is too much"):
        assert text in said
    oracle.below = 5
    with pytest.raises(DisagreementError, match="constraint"):
        oracle.check(oracle.meant([{"id": 9, "v": "x"}]))


def test_a_refusal_of_rows_as_good_as_any_is_a_fault(monkeypatch: Patch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise sw.StorageError("no")

    monkeypatch.setattr("safewrite.table.writer.Writer._receipt", refuse)
    program = Program(
        "delta", "safewrite", (Column("id", "int64"),), (Step("safewrite", "append", ({"id": 1},)),)
    )
    with pytest.raises(DisagreementError, match="as good as any"):
        crosscheck.run(program)


def test_programs_of_one_seed_are_the_same_everywhere() -> None:
    def digest() -> str:
        seen = hashlib.sha256()
        crosscheck.check(
            "delta", seeds=range(20), shrink=False, concerns=lambda p: bool(seen.update(repr(p).encode()))
        )
        return seen.hexdigest()

    assert digest() == digest()
