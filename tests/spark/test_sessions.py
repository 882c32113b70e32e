"""T3-E: settings of people's Spark sessions, and what they cache, neither lose nor alter a row; programs are drawn."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import safewrite as sw
from bench.servers.catalogs import CatalogKind
from safewrite.frames.spark.computed_frame import HELD, held
from tests.spark.changed import made
from tests.spark.ends import delta
from tests.spark.hooked import HookedTable
from tests.spark.lake import Lake
from tests.spark.session import Spark
from tests.spark.session_machine import SETTINGS, Bench, Program, Step, drawn, pairs, run

Hooked = Callable[[str], HookedTable]
Lakes = Callable[[CatalogKind], Lake]
FORMATS = ("delta", "iceberg")


@pytest.fixture
def bench(spark: Spark, hooked: Hooked, lakes: Lakes) -> Callable[[Program], Bench]:
    """``bench(program)``: a new table for it."""

    def make(program: Program) -> Bench:
        if program.format_ == "delta":
            return Bench(spark, program, hooked=hooked("object-store"))
        return Bench(spark, program, lake=lakes("sql"))

    return make


def test_each_two_settings_come_together_in_some_set() -> None:
    found = [set(one.items()) for one in pairs(1)]
    for first in SETTINGS:
        for second in SETTINGS:
            alike = first.keys() & second.keys()
            if all(first[name] == second[name] for name in alike):
                assert any({*first.items(), *second.items()} <= one for one in found), (first, second)


SHORT = [("delta", 0), ("delta", 1), ("iceberg", 0)]


@pytest.mark.sweep("delta-0", "delta-1", "iceberg-0")
@pytest.mark.parametrize(("format_", "number"), SHORT)
def test_all_settings_in_few_sets_keep_every_row(
    format_: str, number: int, bench: Callable[[Program], Bench]
) -> None:
    """Two sets of settings have nearly all of them; every verb runs under both."""
    sets = pairs(1)[:2]
    steps = [
        (Step("append", (6,)), Step("apply_changes", (1, 7)), Step("overwrite where", (2,), "torn")),
        (Step("overwrite part", (0,)), Step("delete", (3,)), Step("sink", (5,)), Step("overwrite", (4,))),
    ][number]
    maker = "deltalake" if format_ == "delta" else "spark"
    program = Program(number, format_, maker, ("k", "p") if number else ("k",), sets[number], True, steps)
    assert run(bench(program)) == []


@pytest.mark.long
@pytest.mark.parametrize("format_", FORMATS)
def test_programs_under_each_two_settings_keep_every_row(
    format_: str, bench: Callable[[Program], Bench]
) -> None:
    wrong = []
    for seed, settings in enumerate(pairs(1)):
        wrong += run(bench(drawn(seed, format_, settings)))
    assert wrong == []


@pytest.mark.long
@pytest.mark.parametrize("format_", FORMATS)
def test_random_programs_keep_every_row(format_: str, bench: Callable[[Program], Bench]) -> None:
    wrong = []
    for seed in range(100, 140):
        wrong += run(bench(drawn(seed, format_)))
    assert wrong == []


# --- the copy of the session ---------------------------------------------------------------------------------
def test_settings_hold_in_a_copy_while_other_threads_of_the_session_keep_theirs(spark: Spark) -> None:
    """T3-E1 to E5: a thread pool of foreachBatch shares one session, and SQLConf is the session's."""
    zone, seen = "spark.sql.session.timeZone", []
    meet = threading.Barrier(2, timeout=60)

    def write() -> None:
        with held(spark.session.range(1)) as ours:
            meet.wait()
            seen.append((ours.session.conf.get(zone), spark.session.conf.get(zone)))
            meet.wait()

    with spark.careless(), spark.setting(zone, "Asia/Kolkata"):
        before = spark.session.getActiveSession()
        threads = [threading.Thread(target=write) for _ in range(2)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(60)
        with held(spark.session.range(1)) as ours:
            assert {name: ours.session.conf.get(name) for name in HELD} == dict(HELD)
        after = spark.session.getActiveSession()
        spark.session.conf.set(zone, "UTC")
    assert seen == [("UTC", "Asia/Kolkata")] * 2
    assert before is not None
    assert after is not None
    assert after._jsparkSession.equals(before._jsparkSession)


# --- what cannot be written ----------------------------------------------------------------------------------
VARIANT = "SELECT id, 1L AS seq, parse_json('{\"a\": 1}') AS v FROM range(2)"
NESTED = "SELECT id, 1L AS seq, array(parse_json('1')) AS v FROM range(2)"
STRUCT = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])
HOW: dict[str, Any] = {"keys": ["id"], "sequence_by": ["seq"]}
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "append": lambda table, frame: table.append(frame),
    "overwrite": lambda table, frame: table.overwrite(frame),
    "where": lambda table, frame: table.overwrite(frame, where="id >= 0"),
    "merge": lambda table, frame: table.append(frame, schema_mode="merge"),
    "apply_changes": lambda table, frame: table.apply_changes(frame, **HOW),
    "sink": lambda table, frame: table.sink(app_id="a")(frame, 0),
}


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("kind", FORMATS)
def test_variant_is_refused_by_name_by_every_verb(
    kind: str, spark: Spark, lakes: Lakes, hooked: Hooked, tmp_path: Any
) -> None:
    """T3-E6: a cast of it to the struct of its parts, as which a table was made for it, is NULL."""
    schema = pa.schema([("id", pa.int64()), ("seq", pa.int64()), ("v", STRUCT)])
    if kind == "delta":
        table = delta(hooked("object-store"), schema).open()
    else:
        table = made(kind, spark, lakes("sql"), tmp_path, schema).open()
    before = table.version
    with spark.careless():
        for query in (VARIANT, NESTED):
            for call in CALLS.values():
                with pytest.raises(sw.InvalidInputError, match=r"'v.*variant"):
                    call(table, spark.session.sql(query))
    assert table.refresh().version == before


@pytest.mark.sweep("failure-iceberg", "value-iceberg", "variant-delta", "variant-iceberg")
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("what", ["variant", "value", "failure"])
def test_a_first_write_that_is_refused_leaves_no_table(
    kind: str, what: str, spark: Spark, lakes: Lakes, hooked: Hooked
) -> None:
    """T3-E6, T3-A10 by Spark: the corrected write would meet a table with the refused frame's schema."""
    query = {
        "variant": VARIANT,
        "value": "SELECT id, 1L AS seq, '' AS v FROM range(2)",
        "failure": "SELECT id, 1L AS seq, raise_error('no') AS v FROM range(2)",
    }[what]
    lake, place = lakes("sql"), hooked("object-store").place
    name = lake.new() if kind == "iceberg" else place.uri
    parts = ["v"] if what == "value" else []

    def opened() -> Any:
        if kind == "iceberg":
            return sw.open(name, catalog=lake.load(), create=True)
        options = dict(place.storage_options)
        return sw.open(name, create=True, arbiter="object-store", storage_options=options, partition_by=parts)

    with spark.careless():
        where = (
            "id > 5" if what == "value" else None
        )  # Iceberg takes '' as a partition; no row satisfies this
        with pytest.raises(sw.SafewriteError):
            opened().overwrite(spark.session.sql(query), where=where)
        assert opened().append(spark.session.sql("SELECT id, 2 AS seq, 'x' AS v FROM range(2)")).rows == 2


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize(("kind", "odd"), [("delta", "_metadata"), ("iceberg", "_metadata")])
def test_a_column_called_as_sparks_own_is_a_column(  # noqa: PLR0917 - fixtures
    kind: str, odd: str, spark: Spark, lakes: Lakes, hooked: Hooked, tmp_path: Any
) -> None:
    """T3-E9: Spark tells the file of a row in ``_metadata``, and a data column of that name hid it."""
    schema = pa.schema([("id", pa.int64()), ("seq", pa.int64()), (odd, pa.string())])
    table = made(kind, spark, lakes("sql"), tmp_path, schema)
    for seq in (1, 2):
        table.apply_rows(pa.table({"id": [1], "seq": [seq], odd: [f"v{seq}"]}, schema=schema), **HOW)
    assert table.found() == [{"id": 1, "seq": 2, odd: "v2"}]
