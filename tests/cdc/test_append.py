"""Tables of which each record is a row of its own: events of any shape, and changes with what they did."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

import safewrite as sw
from safewrite.cdc.landing.dead_letters import DeadLetters
from safewrite.cdc.records.change import KafkaRecord
from safewrite.cdc.status import status
from safewrite.changes.members.shared_jobs import SharedRows
from tests.cdc.events import event, postgres, record
from tests.cdc.jobs import FORM_AND_SCHEMAS, Job, Source, change, cut
from tests.cdc.on_executors import Executors, work_of

FORMS = ("delta", "iceberg")
_OF_WAYS = ("_ms", "one_by_one", "by_executors")
"""Of a line of the ledger, what tells who landed it, and when."""
WHERE = {"k_topic": "topic", "k_part": "partition", "k_at": "offset", "k_time": "timestamp", "k_key": "key", "k_headers": "headers"}  # fmt: skip


def click(at: int, **row: Any) -> KafkaRecord:
    """An event, whose key is no JSON and whose user agent comes in a header."""
    value = json.dumps(row).encode()
    headers = (("agent", b"\xff"), ("none", None)) if at % 2 else ()
    return KafkaRecord("topic", at % 2, at, b"\xfe%d" % at, value, headers, 1_714_000_000_000 + at)


def job_of(folder: Path, form: str = "delta", **more: Any) -> Job:
    table = {"table": "clicks", "source": "topic", "mode": "append", "metadata": WHERE, **more}
    return Job(folder, [table], form, {"envelope": "events-json"}, schemas=False)


def rows(job: Job) -> list[dict[str, Any]]:
    """The rows in the order of their records, by a reader that is not ours."""
    found = job.read("clicks").to_pylist()
    return sorted(found, key=lambda row: (row["k_part"], row["k_at"]))


@pytest.mark.sweep("iceberg", "one by one")
@pytest.mark.parametrize("fewest", [1, 1000], ids=["by columns", "one by one"])
@pytest.mark.parametrize("form", FORMS)
def test_events_of_any_shape_are_rows_with_their_records(tmp_path: Path, form: str, fewest: int) -> None:
    job = job_of(tmp_path, form)
    landing = job.landing()
    landing.decoder.fewest = fewest
    given = [
        click(0, user="Zoë", n=1, tags=["a", "b"]),
        click(1, user=None, price=1.5),
        click(2, n=2**40, deep={"b": [1, {"c": None}], "a": 1.50}),
        click(3),
        KafkaRecord("topic", 0, 4, None, None),
        KafkaRecord("topic", 0, 6, None, b"[1]"),
        KafkaRecord("topic", 0, 8, None, b"\xff"),
    ]
    lines = job.land(*given, landing=landing)
    assert [(one.table, one.records, one.ignored, one.dead, one.applied) for one in lines] == [
        (None, 3, 1, 2, 0),
        ("db.clicks", 4, 0, 0, 4),
    ]
    found = rows(job)
    assert [(one["k_part"], one["k_at"], one["k_topic"]) for one in found] == [
        (at % 2, at, "topic") for at in (0, 2, 1, 3)
    ]
    assert found[2] == {
        "user": None, "n": None, "tags": None, "price": 1.5, "deep": None, "k_topic": "topic", "k_part": 1, "k_at": 1,
        "k_time": datetime.fromtimestamp(1_714_000_000.001, UTC), "k_key": b"\xfe1",
        "k_headers": [{"key": "agent", "value": b"\xff"}, {"key": "none", "value": None}],
    }  # fmt: skip
    first, second = found[0], found[1]
    assert (first["user"], first["n"], first["tags"], first["k_headers"]) == ("Zoë", 1, '["a","b"]', [])
    assert (second["n"], second["deep"]) == (2**40, '{"b":[1,{"c":null}],"a":1.5}')
    assert job.verdict().faults == ()


def test_both_ways_of_reading_and_executors_land_the_same(tmp_path: Path) -> None:
    given = [
        click(at, n=at, text=str(at) if at % 3 else None, **({"x": 0.5} if at % 5 else {}))
        for at in range(90)
    ]
    given[17] = click(17, n="no number")
    found = []
    for name, fewest, there in (("columns", 1, None), ("rows", 1000, None), ("there", 1, Executors())):
        (tmp_path / name).mkdir()
        job = job_of(tmp_path / name)
        landing = job.landing()
        landing.decoder.fewest = fewest
        lines = []
        for number, part in enumerate(cut(given, 30)):
            lines += landing.land(job.batch(part, number), work_of(there))
        told = [
            {name: at for name, at in asdict(one).items() if not name.endswith(_OF_WAYS)} for one in lines
        ]
        ways = [line.by_executors == line.records for line in lines if line.table is not None]
        assert ways == [False, there is not None, there is not None], (
            "the first batch has a value that does not fit"
        )
        found.append((rows(job), told, [(one["offset"], one["reason"]) for one in job.letters()]))
    assert found[0] == found[1] == found[2]
    assert len(found[0][0]) == 89
    assert [offset for offset, _ in found[0][2]] == [17]


def test_executors_filter_events_and_compute_columns_of_them(tmp_path: Path) -> None:
    """The filter lets no row of the last batch pass: nothing is committed, and the records are accounted for."""
    more = {"filter": "n % 3 > 0", "computed": {"half": "n / 2"}}
    for name, there in (("here", None), ("there", Executors())):
        (tmp_path / name).mkdir()
        job = job_of(tmp_path / name, **more)
        landing, lines = job.landing(), []
        for number, part in enumerate([range(9), range(9, 18), range(18, 30, 3)]):
            given = [click(at, n=at) for at in part]
            lines += landing.land(job.batch(given, number), work_of(there))
        counted = [
            (line.records, line.applied, line.ignored, line.version, line.by_executors)
            for line in lines
            if line.table
        ]
        by = 0 if there is None else 1
        assert counted == [(9, 6, 3, 1, 9 * by), (9, 6, 3, 2, 9 * by), (4, 0, 4, None, 4 * by)]
        assert sorted((row["n"], row["half"]) for row in rows(job)) == [
            (n, n / 2) for n in range(18) if n % 3
        ]
        assert job.verdict().faults == ()


def test_events_are_written_again_where_the_table_was_partitioned_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(tmp_path, "iceberg")
    landing, executors, done = job.landing(), Executors(), list[int]()
    landing.land(job.batch([click(0, n=0)]), executors.work)
    written = SharedRows.written

    def between(given: SharedRows, writer: Any) -> Any:
        found = written(given, writer)
        if not done:
            table = load_catalog(**job.catalog()).load_table("db.clicks")
            with table.update_spec() as update:
                update.add_identity("k_part")
            (clicks,) = landing.config.tables
            seen = landing.targets.seen(clicks)
            assert seen is not None
            seen.refresh()
        done.append(1)
        return found

    monkeypatch.setattr(SharedRows, "written", between)
    (_, line) = landing.land(job.batch([click(at, n=at) for at in range(1, 5)], 1), executors.work)
    assert (len(done), line.applied, line.by_executors) == (2, 4, 4)
    assert sorted(row["n"] for row in rows(job)) == [*range(5)]


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("form", FORMS)
def test_a_batch_that_comes_again_adds_no_row(tmp_path: Path, form: str) -> None:
    """A driver dies before the ledger; the next one has other batches, and another configuration of the columns."""
    job = job_of(tmp_path, form)
    first = [click(at, n=at) for at in range(6)]
    job.land_and_die(*first)
    job.tables[0]["name_mapping"] = {"n": "m"}
    job.land(*first)
    job.land(*first, *(click(at, n=at) for at in range(6, 9)))
    assert [row["k_at"] for row in rows(job)] == [0, 2, 4, 6, 8, 1, 3, 5, 7]
    assert [(row["n"], row.get("m")) for row in rows(job)] == [
        (0, None), (2, None), (4, None), (None, 6), (None, 8), (1, None), (3, None), (5, None), (None, 7),
    ]  # fmt: skip
    verdict = job.verdict()
    assert verdict.faults == ()
    assert [(one.table, one.totals["records"], one.totals["applied"]) for one in verdict.accounts] == [
        (None, 0, 0),
        ("db.clicks", 9, 9),
    ]


@pytest.mark.long
def test_a_dead_letter_is_mended_and_replayed_once(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    job.land(click(0, n=1))
    job.land(click(1, n="x"), click(2, n=3))
    assert [row["k_at"] for row in rows(job)] == [0, 2]
    job.tables[0]["on_misfit"] = {"n": "null"}
    dying = job.landing()
    dying.ledger.write_replay = lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        DeadLetters(dying).replay()
    assert DeadLetters(job.landing()).replay().landed == 1
    assert [(row["k_at"], row["n"]) for row in rows(job)] == [(0, 1), (2, 3), (1, None)]
    assert job.verdict().faults == ()
    (table,) = status(
        job.landing(), job.read("job_ledger", "cdc"), None, pa.Table.from_pylist(job.letters())
    ).tables
    assert (table.rows, table.applied, table.dead_waiting, table.state) == (3, 3, 0, "ok")
    assert table.valid_through == "2024-04-24T23:06:40.002+00:00"


def told(job: Job) -> Counter[tuple[Any, ...]]:
    """The rows of a table of changes, as often as they are there."""
    return Counter(
        (row["op"], row["id"], row["name"], row["n"], row["part"], row["at"])
        for row in job.read("a").to_pylist()
    )


@pytest.mark.sweep("iceberg")
@FORM_AND_SCHEMAS
def test_changes_are_kept_each_with_what_it_did(tmp_path: Path, form: str, schemas: bool) -> None:
    """A random source, against what its records say; each batch comes twice."""
    metadata = {"op": "op", "part": "partition", "at": "offset", "lsn": "position", "seen": "source_time"}
    job = Job(tmp_path, [{"table": "a", "mode": "append", "metadata": metadata}], form, schemas=schemas)
    source = Source(11, tables=("a",))
    for number, part in enumerate(cut(source.run(120), 50)):
        job.land(*part, number=number)
        job.land(*part, number=number)
    assert told(job) == Counter(_expected(source.records))
    assert not job.letters()
    assert job.verdict().faults == ()
    found = job.read("a")
    assert {"_cdc_epoch", "_cdc_sequence"}.isdisjoint(found.schema.names)
    assert set(found["seen"].to_pylist()) == {datetime.fromtimestamp(1_714_000_000, UTC)}
    places = sorted(
        zip(found["lsn"].to_pylist(), found["part"].to_pylist(), found["at"].to_pylist(), strict=True)
    )
    assert all(
        one[2] < other[2]
        for part in (0, 1)
        for one, other in pairwise([row for row in places if row[1] == part])
    )


def _expected(records: Sequence[KafkaRecord]) -> list[tuple[Any, ...]]:
    found = []
    for one in records:
        if one.value is None:
            continue
        given, key = json.loads(one.value), json.loads(one.key or b"null")
        row = given["after"] or given["before"] or key
        op = "delete" if given["op"] == "d" else "upsert"
        found.append((op, row["id"], row.get("name"), row.get("n"), one.partition, one.offset))
    return found


def test_a_delete_keeps_what_it_tells_of_its_row_and_a_truncate_that_it_was(tmp_path: Path) -> None:
    job = Job(tmp_path, [{"table": "a", "mode": "append", "metadata": {"op": "op"}}], schemas=False)
    before = event("d", None, {"id": 1, "s": "old"}, source=postgres(2, "a"))
    job.land(
        change("c", "a", 1, {"id": 1, "s": "old"}, lsn=1, offset=0),
        record(before, {"id": 1}, offset=1),
        change("d", "a", 2, lsn=3, offset=2),
        record(event("t", source=postgres(4, "a")), offset=3),
        change("u", "a", 3, {"id": 3, "s": "__debezium_unavailable_value"}, lsn=5, offset=4),
    )
    found = Counter(tuple(row.values()) for row in job.read("a").select(["op", "id", "s"]).to_pylist())
    assert found == Counter(
        [("upsert", 1, "old"), ("delete", 1, "old"), ("delete", 2, None), ("truncate", None, None)]
    )
    (letter,) = job.letters()
    assert "left out s" in letter["reason"]


@pytest.mark.sweep("iceberg")
@FORM_AND_SCHEMAS
def test_rows_that_have_keys_tell_of_the_record_that_they_are_from(
    tmp_path: Path, form: str, schemas: bool
) -> None:
    metadata = {"part": "partition", "at": "offset", "from": "topic"}
    job = Job(tmp_path, [{"table": "a", "metadata": metadata}], form, schemas=schemas)
    source = Source(12, tables=("a",))
    for part in cut(source.run(80), 30):
        job.land(*part)
    last = {json.loads(one.key or b"")["id"]: one for one in source.records if one.value is not None}
    assert {key: (row["from"], row["part"], row["at"]) for key, row in job.rows("a").items()} == {
        key: ("topic", last[key].partition, last[key].offset) for key in source.rows["a"]
    }


def test_a_table_of_keys_becomes_no_table_of_events_nor_the_other_way_round(tmp_path: Path) -> None:
    job = Job(tmp_path, [{"table": "a"}], schemas=False)
    job.land(change("c", "a", 1, {"id": 1}, lsn=1, offset=0))
    job.tables = [
        {"table": "a", "mode": "append", "metadata": {"op": "op"}},
        {"table": "b", "mode": "append", "metadata": {"op": "op"}},
    ]
    with pytest.raises(sw.InvalidInputError, match="created with mode upsert"):
        job.land(change("c", "a", 2, {"id": 2}, lsn=2, offset=1))
    job.land(change("c", "b", 2, {"id": 2}, lsn=2, offset=1))
    job.tables = [{"table": "b"}]
    with pytest.raises(sw.InvalidInputError, match="created with mode append"):
        job.land(change("c", "b", 2, {"id": 2}, lsn=3, offset=2))


def test_a_column_of_the_source_is_not_written_over(tmp_path: Path) -> None:
    for fewest in (1, 1000):
        (tmp_path / str(fewest)).mkdir()
        job = job_of(tmp_path / str(fewest))
        landing = job.landing()
        landing.decoder.fewest = fewest
        job.land(click(0, n=1), click(2, n=1, k_at=7), landing=landing)
        assert [row["k_at"] for row in rows(job)] == [0]
        assert "columns that the job keeps (k_at)" in job.letters()[0]["reason"]


@pytest.mark.sweep("one by one")
@pytest.mark.parametrize("schemas", [True, False], ids=["by columns", "one by one"])
def test_executors_tell_of_records_as_the_driver_does(tmp_path: Path, schemas: bool) -> None:
    metadata = {**WHERE, "seen": "source_time", "lsn": "position"}
    source, found = Source(13, tables=("a",)), []
    source.run(60)
    for name, there in (("here", None), ("there", Executors())):
        (tmp_path / name).mkdir()
        job = Job(tmp_path / name, [{"table": "a", "metadata": metadata}], schemas=schemas)
        landing, lines = job.landing(), []
        for number, part in enumerate(cut(source.records, 20)):
            lines += landing.land(job.batch(part, number), work_of(there))
        assert job.verdict().faults == ()
        found.append(job.rows("a"))
        if there is not None:
            assert sum(line.by_executors for line in lines) > 0
    assert found[0] == found[1]
    assert {"Zoë", "Ada"} & {row["name"] for row in found[0].values()}


BOTH_WAYS = pytest.mark.parametrize("fewest", [1, 1000], ids=["by columns", "one by one"])
FORM_AND_WAY = pytest.mark.parametrize(("form", "fewest"), [("delta", 1), ("iceberg", 1000)])


def plain(at: int, **row: Any) -> KafkaRecord:
    return KafkaRecord("topic", 0, at, None, json.dumps(row).encode())


def landed(job: Job, fewest: int, *records: KafkaRecord, number: int = 0) -> list[tuple[int, str]]:
    """The dead letters of the job once the records have landed; its accounts are right."""
    landing = job.landing()
    landing.decoder.fewest = fewest
    job.land(*records, landing=landing, number=number)
    assert job.verdict().faults == ()
    return sorted((one["offset"], one["reason"]) for one in job.letters())


@pytest.mark.sweep("one by one", "by executors")
@pytest.mark.parametrize("fewest", [1, 1000, 0], ids=["by columns", "one by one", "by executors"])
def test_a_field_names_the_table_of_each_record_of_a_topic(tmp_path: Path, fewest: int) -> None:
    """By its text, with the topic or without; what has no table is a dead letter or passed over, and so is what has no text."""
    of = {"mode": "append", "metadata": {"k_at": "offset"}}
    tables = [
        {"table": "clicks", "source": "click", **of},
        {"table": "visits", "source": "topic.visit", **of},
    ]
    routed = {"envelope": "events-json", "route_field": "kind", "ignored_tables": ["debug*"]}
    job = Job(tmp_path, tables, settings=routed, schemas=False)
    kinds = ["click", "visit", "debug-1", "other", "", None, 7]
    given = [plain(at, kind=kinds[at % 7], n=str(at) if at % 7 else at) for at in range(28)]
    given += [plain(at, kind="click", n=at) for at in range(28, 34)] + [plain(34, n=1)]
    landing = job.landing()
    landing.decoder.fewest = fewest or 1
    lines = landing.land(job.batch(given), work_of(None if fewest else Executors()))
    assert sorted(row["k_at"] for row in job.read("clicks").to_pylist()) == [0, 7, 14, 21, *range(28, 34)]
    assert {row["kind"] for row in job.read("visits").to_pylist()} == {"visit"}
    assert job.read("visits").num_rows == 4
    assert [(one.records, one.ignored, one.dead) for one in lines if one.table is None] == [(21, 4, 17)]
    why = {one["offset"]: one["reason"] for one in job.letters()}
    assert why[3] == "no table of the configuration takes rows of topic.other"
    assert {why[at] for at in (4, 5, 6, 34)} == {
        "its field 'kind', which names the table (route_field), has no text"
    }
    assert job.verdict().faults == ()


@pytest.mark.sweep("metadata")
@BOTH_WAYS
@pytest.mark.parametrize("metadata", [{"k_at": "offset"}, {}], ids=["metadata", "none"])
def test_a_name_that_the_first_batch_cannot_have_makes_one_dead_letter(
    tmp_path: Path, metadata: dict[str, str], fewest: int
) -> None:
    job = job_of(tmp_path, metadata=metadata)
    ((offset, why),) = landed(job, fewest, plain(0, b=1), plain(1, **{"c d": 1}))
    assert offset == 1
    assert "column 'c d'" in why
    row = {"b": 1} | dict.fromkeys(metadata, 0)
    assert job.read("clicks").to_pylist() == [row]


@pytest.mark.sweep("iceberg")
@FORM_AND_WAY
def test_a_record_waits_for_a_table_without_a_column(tmp_path: Path, form: str, fewest: int) -> None:
    job = job_of(tmp_path, form, metadata={}, leave_out=["x"])
    letters = landed(job, fewest, plain(0), plain(1, a=None), plain(2, x=1), plain(3, **{"\0": 1}))
    assert [offset for offset, _ in letters] == [0, 1, 2, 3]
    assert all("no column yet" in why for _, why in letters[:3])
    assert "has NUL" in letters[3][1]
    assert landed(job, fewest, plain(4, a=1), plain(5), number=1) == letters
    assert DeadLetters(job.landing()).replay().landed == 3
    assert job.verdict().faults == ()
    assert Counter(row["a"] for row in job.read("clicks").to_pylist()) == Counter({None: 4, 1: 1})


@pytest.mark.sweep("iceberg", "metadata", "name_mapping")
@FORM_AND_WAY
@pytest.mark.parametrize(
    "named",
    [
        {"metadata": {"url": "offset"}},
        {"metadata": {}, "column_types": {"url": "int64"}},
        {"metadata": {}, "name_mapping": {"u": "url"}},
    ],
    ids=lambda one: [*one][-1],
)
def test_columns_that_the_configuration_names_go_before_those_of_rows(
    tmp_path: Path, form: str, fewest: int, named: dict[str, Any]
) -> None:
    """One record has such a name in other letters, and comes first."""
    source = {"column_types": "url", "name_mapping": "u"}.get([*named][-1])
    job = job_of(tmp_path, form, **named)
    rest = [plain(at, n=at, **({} if source is None else {source: at})) for at in range(1, 6)]
    ((offset, why),) = landed(job, fewest, plain(0, URL="x"), *rest)
    assert offset == 0
    assert "the table has 'url'" in why
    assert sorted((row["n"], row["url"]) for row in job.read("clicks").to_pylist()) == [
        (at, at) for at in range(1, 6)
    ]


def test_a_column_of_the_key_goes_before_one_of_a_row(tmp_path: Path) -> None:
    job = Job(tmp_path, [{"table": "a", "primary_key": ["id"]}], schemas=False)
    job.land(
        change("c", "a", 1, {"ID": "x", "id": 1}, lsn=1, offset=0),
        change("c", "a", 2, {"id": 2}, lsn=2, offset=1),
    )
    assert job.rows("a") == {2: {"id": 2}}
    assert [one["offset"] for one in job.letters()] == [0]
