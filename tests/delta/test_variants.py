"""Variants are carried as the bytes that files have of them, through every verb that writes rows again; no frame brings one (H1)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import safewrite as sw
from safewrite.delta.data.vectors import decoded, path_of
from safewrite.testing.steps import At
from tests.changes.tasked import by_tasks
from tests.each import each

PARTS = pa.struct(
    [pa.field("value", pa.binary(), nullable=False), pa.field("metadata", pa.binary(), nullable=False)]
)
INSIDE = pa.struct([pa.field("a", pa.int64()), pa.field("y", PARTS)])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("seq", pa.int64()),
        ("v", pa.string()),
        ("p", pa.string()),
        ("x", PARTS),
        ("s", INSIDE),
    ]
)
FED = {"delta.enableChangeDataFeed": "true"}
KINDS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "copied": ({}, ()),
    "vectors": ({"delta.enableDeletionVectors": "true"}, ()),
    "tracked": ({"delta.enableRowTracking": "true"}, ()),
    "fed": (FED, ()),
    "parted": (FED | {"delta.enableDeletionVectors": "true"}, ("p",)),
    "mapped": ({}, ()),
}
Row: TypeAlias = tuple[str, bytes | None, bytes | None]
"""What a row has of ``v``, and of the bytes of ``x`` and of ``s.y``."""


def bytes_of(number: int) -> dict[str, bytes] | None:
    return None if number % 5 == 4 else {"value": b"\x00V%d" % number, "metadata": b"\x01\x00\x00"}


def rows_of(numbers: list[int]) -> pa.Table:
    columns: dict[str, Any] = {"id": numbers, "seq": [0] * len(numbers), "v": ["a"] * len(numbers)}
    columns["p"] = [f"p{one % 2}" for one in numbers]
    columns["x"] = [bytes_of(one) for one in numbers]
    columns["s"] = [{"a": one, "y": bytes_of(one + 1)} for one in numbers]
    return pa.table(columns, schema=SCHEMA)


def frame(numbers: list[int], seq: int, value: str, **more: Any) -> pa.Table:
    kept = pa.schema([one for one in SCHEMA if one.name not in ("x", "s")])
    rows = (
        rows_of(numbers).select(kept.names).set_column(1, kept.field("seq"), pa.array([seq] * len(numbers)))
    )
    rows = rows.set_column(2, kept.field("v"), pa.array([value] * len(numbers)))
    for name, one in more.items():
        rows = rows.append_column(name, pa.array([one] * len(numbers), pa.string()))
    return rows


def actions(root: Path) -> Iterator[dict[str, Any]]:
    for path in sorted((root / "_delta_log").glob("*[0-9].json")):
        yield from (json.loads(line) for line in path.read_text().splitlines())


def declared(root: Path, *, mapped: bool = False, **of_x: Any) -> None:
    """Commit what an engine that has the type would have said of the table's columns of two texts."""
    found = [*actions(root)]
    meta = [one["metaData"] for one in found if "metaData" in one][-1]
    protocol = [one["protocol"] for one in found if "protocol" in one][-1]
    schema = json.loads(meta["schemaString"])
    by_name = {field["name"]: field for field in schema["fields"]}
    by_name["x"].update({"type": "variant"} | of_x)
    by_name["s"]["type"]["fields"][1]["type"] = "variant"
    configuration = meta["configuration"]
    if mapped:  # mapping came later, and then columns were renamed: files have the names of before
        for number, field in enumerate([*schema["fields"], *by_name["s"]["type"]["fields"]], 1):
            own = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": field["name"]}
            field["metadata"] = {**field["metadata"], **own}
        by_name["x"]["name"], by_name["s"]["type"]["fields"][1]["name"] = "w x", "why"
        configuration |= {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "20"}
    names = ["variantType", *["columnMapping"] * mapped]
    reading = {*(protocol.get("readerFeatures") or ()), *names}
    writing = {*(protocol.get("writerFeatures") or ("appendOnly", "invariants", "changeDataFeed")), *names}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    protocol |= {"readerFeatures": sorted(reading), "writerFeatures": sorted(writing)}
    meta |= {"schemaString": json.dumps(schema), "configuration": configuration}
    version = len([*(root / "_delta_log").glob("*[0-9].json")])
    lines = [json.dumps({"protocol": protocol}), json.dumps({"metaData": meta})]
    (root / "_delta_log" / f"{version:020d}.json").write_text("\n".join(lines) + "\n")


def made(root: Path, kind: str = "copied", **of_x: Any) -> sw.Table:
    """A table whose rows have variants, but for some."""
    properties, by = KINDS[kind]
    sw.create(root, SCHEMA, partition_by=by, properties=properties).append(rows_of([*range(12)]))
    declared(root, mapped=kind == "mapped", **of_x)
    return sw.open(root)


def live(root: Path) -> dict[str, dict[str, Any]]:
    adds: dict[str, dict[str, Any]] = {}
    for path in sorted((root / "_delta_log").glob("*[0-9].json")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for one in lines:
            if "remove" in one:
                adds.pop(one["remove"]["path"])
        adds |= {one["add"]["path"]: one["add"] for one in lines if "add" in one}
    return adds


def seen(root: Path) -> dict[int, Row]:
    """The live rows by key, by a reader that is not the writer."""
    found: dict[int, Row] = {}
    for add in live(root).values():
        vector, gone = add.get("deletionVector"), frozenset[int]()
        if vector:
            path = path_of(vector, str(root))
            gone = frozenset(decoded(vector, None if path is None else (root / path).read_bytes()))
        for place, row in enumerate(pq.read_table(root / add["path"], partitioning=None).to_pylist()):
            if place not in gone:
                assert row["id"] not in found
                found[row["id"]] = told(row)
    return found


def told(row: dict[str, Any]) -> Row:
    inside = (row.get("s") or {}).get("y")
    for one in (row.get("x"), inside):
        assert one is None or one["metadata"] == b"\x01\x00\x00"
    return row["v"], (row.get("x") or {}).get("value"), (inside or {}).get("value")


def value_of(number: int) -> bytes | None:
    return (bytes_of(number) or {}).get("value")


def fed(root: Path, before: int) -> list[tuple[int, str, Row]]:
    """The rows of change files of the commits after one."""
    found: list[tuple[int, str, Row]] = []
    for version, path in enumerate(sorted((root / "_delta_log").glob("*[0-9].json"))):
        for one in map(json.loads, path.read_text().splitlines() if version > before else ()):
            if "cdc" in one:
                rows = pq.read_table(root / one["cdc"]["path"], partitioning=None).to_pylist()
                found += [(row["id"], row["_change_type"], told(row)) for row in rows]
    return found


@each(("kind", "tasks"), [("copied", True), ("mapped", False), ("parted", True)])
def test_every_verb_carries_variants_as_they_are(tmp_path: Path, kind: str, tasks: bool) -> None:
    with by_tasks() if tasks else nullcontext():
        program(tmp_path / f"{kind}-{tasks}", kind)


@pytest.mark.long
@each(("kind", "tasks"), product(KINDS, [False, True]))
def test_every_verb_carries_variants_as_they_are_for_long(tmp_path: Path, kind: str, tasks: bool) -> None:
    with by_tasks() if tasks else nullcontext():
        program(tmp_path / f"{kind}-{tasks}", kind)


def program(root: Path, kind: str) -> None:
    table = made(root, kind)
    known: dict[int, Row] = {one: ("a", value_of(one), value_of(one + 1)) for one in range(12)}

    def step(act: Callable[[], Any], came: dict[int, Row], went: tuple[int, ...] = ()) -> None:
        nonlocal known
        version, was = table.version, known
        act()
        known = {key: one for key, one in {**known, **came}.items() if key not in went or key in came}
        assert seen(root) == known
        if "delta.enableChangeDataFeed" in KINDS[kind][0] and went:
            feed = fed(root, version)
            kinds = ("delete", "update_preimage")
            assert {key: row for key, how, row in feed if how in kinds} == {key: was[key] for key in went}
            assert {key: row for key, how, row in feed if how not in kinds} == came

    def changed(numbers: list[int], value: str) -> dict[int, Row]:
        return {one: (value, *known.get(one, ("", None, None))[1:]) for one in numbers}

    how: dict[str, Any] = {"keys": ["id"], "sequence_by": ["seq"], "delete_when": "op = 'd'"}
    step(lambda: table.append(frame([20, 21], 1, "b")), {20: ("b", None, None), 21: ("b", None, None)})
    step(lambda: table.delete("id = 3"), {}, (3,))
    step(lambda: table.overwrite(frame([4], 1, "c"), where="id = 4"), {4: ("c", None, None)}, (4,))
    some = pa.concat_tables([frame([0, 5, 30], 2, "d", op="u"), frame([6], 2, "d", op="d")])
    step(lambda: table.apply_changes(some, **how), changed([0, 5, 30], "d"), (0, 5, 6))
    some = frame([0, 30, 20], 3, "e", op="u")
    step(lambda: table.apply_changes(some, **how), changed([0, 30, 20], "e"), (0, 30, 20))
    many = [("m1", frame([1, 0], 4, "f", op="u")), ("m2", frame([1, 40], 5, "g", op="u"))]
    after = changed([0], "f") | changed([1, 40], "g")
    step(lambda: table.apply_changes_many(many, **how), after, (0, 1))
    step(table.maintain, {})
    assert sw.open(root).rows(where="true", columns=["id"]).num_rows == len(known)


def test_rows_that_change_take_the_variant_that_a_rival_gave_them_meanwhile(tmp_path: Path) -> None:
    """An engine that has the type wrote rows again between our plan and our try: its values stand."""
    root = tmp_path / "t"
    table = made(root)

    def rival() -> None:
        (path,) = live(root)
        rows = pq.read_table(root / path)
        changed = [
            {"value": b"theirs", "metadata": b"\x01\x00\x00"} if one == 0 else x
            for one, x in zip(rows["id"].to_pylist(), rows["x"].to_pylist(), strict=True)
        ]
        pq.write_table(
            rows.set_column(4, SCHEMA.field("x"), pa.array(changed, PARTS)), root / "theirs.parquet"
        )
        add = live(root)[path]
        lines = [
            {"remove": {"path": path, "deletionTimestamp": 0, "dataChange": True}},
            {"add": {**add, "path": "theirs.parquet", "size": (root / "theirs.parquet").stat().st_size}},
        ]
        text = "\n".join(map(json.dumps, lines)) + "\n"
        (root / "_delta_log" / f"{table.version + 1:020d}.json").write_text(text)

    table.world = At(table.world, "commit.put_commit", "before", rival)
    table.apply_changes(frame([0, 1], 2, "b"), keys=["id"], sequence_by=["seq"])
    assert seen(root)[0] == ("b", b"theirs", value_of(1))
    assert seen(root)[1] == ("b", value_of(1), value_of(2))


def test_what_reads_or_gives_a_variant_is_refused_by_its_column(tmp_path: Path) -> None:
    root = tmp_path / "t"
    table = made(root)
    one = {"id": 1, "seq": 9, "v": "z", "p": "p1"}
    how: dict[str, Any] = {"keys": ["id"], "sequence_by": ["seq"]}
    files = {*root.rglob("*.parquet")}
    calls: dict[str, Callable[[], Any]] = {
        "append": lambda: table.append([{**one, "x": "{}"}]),
        "merge": lambda: table.append([{**one, "x": "{}"}], schema_mode="merge"),
        "overwrite": lambda: table.overwrite([{**one, "x": "{}"}]),
        "changes": lambda: table.apply_changes([{**one, "x": "{}"}], **how, schema_mode="merge"),
        "key": lambda: table.apply_changes([{**one, "x": "{}"}], keys=["x"], sequence_by=["seq"]),
        "where": lambda: table.delete("x IS NULL"),
        "rows where": lambda: table.rows(where="x IS NULL", columns=["id"]),
        "keys": lambda: table.rows({"x": ["{}"]}, columns=["id"]),
        "rows": lambda: table.rows(where="true"),
        "changes since": table.changes_since,
    }
    failed = {}
    for name, call in calls.items():
        try:
            call()
            failed[name] = "no error"
        except sw.SafewriteError as error:
            if not ("'x'" in error.message and "variant" in error.message):
                failed[name] = error.message
    assert failed == {}
    assert {*root.rglob("*.parquet")} == files
    assert table.check_writable()


def test_changes_come_with_the_columns_that_are_named(tmp_path: Path) -> None:
    """A row of which the variant alone changed differs in no other column, and gives no change of these."""
    root = tmp_path / "t"
    table = made(root, "vectors")
    at = table.changes_since(columns=["id", "v"])
    assert at.read().num_rows == 12
    table.apply_changes(frame([0], 2, "b"), keys=["id"], sequence_by=["seq"])
    found = table.changes_since(at.position, columns=["id", "v"]).read().select(["id", "v", "_change_type"])
    assert found.to_pylist() == [
        {"id": 0, "v": "a", "_change_type": "update_preimage"},
        {"id": 0, "v": "b", "_change_type": "update_postimage"},
    ]


@each(
    ("of_x", "says"),
    [
        ({"nullable": False}, "must be there"),
        ({"metadata": {"CURRENT_DEFAULT": "parse_json('1')"}}, "must be there"),
    ],
)
def test_a_variant_that_rows_cannot_do_without_closes_the_table(
    tmp_path: Path, of_x: dict[str, Any], says: str
) -> None:
    """New rows would have NULL where the column takes none, or where engines write its default."""
    table = made(tmp_path / str(len(of_x)) / next(iter(of_x)), **of_x)
    with pytest.raises(sw.UnsupportedTableError, match=rf"{says} \(x\)"):
        table.append(frame([20], 1, "b"))


@each("kind", ["copied", "vectors"])
def test_shredded_variants_are_marked_as_gone_and_not_written_again(tmp_path: Path, kind: str) -> None:
    """Their values are in typed columns besides: two texts alone would be other values."""
    root = tmp_path / kind
    table = made(root, kind)
    (path,) = live(root)
    rows = pq.read_table(root / path)
    parts = [pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary())]
    shredded = pa.struct([*parts, pa.field("typed_value", pa.int64())])
    values = [{"metadata": b"\x01\x00\x00", "value": None, "typed_value": one} for one in range(12)]
    pq.write_table(rows.set_column(4, "x", pa.array(values, shredded)), root / path)
    if kind == "vectors":
        table.delete("id = 3")
        table.apply_changes(frame([20], 2, "b"), keys=["id"], sequence_by=["seq"])
        assert pq.read_table(root / path)["x"].type == shredded
    before = live(root)
    calls: list[Callable[[], Any]] = [
        lambda: table.apply_changes(frame([0], 3, "b"), keys=["id"], sequence_by=["seq"])
    ]
    calls += [lambda: table.delete("id = 4")] if kind == "copied" else []
    for call in calls:
        with pytest.raises(sw.UnsupportedTableError, match="'x' are shredded"):
            call()
    assert live(root) == before
