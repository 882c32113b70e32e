"""Tables with CHECK constraints and invariants: what breaks one is refused before it is written, whoever lays out the files."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any
from unittest import mock

import deltalake
import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.delta.data.datafiles import encoded, layout_of
from safewrite.delta.format import DeltaFormat
from safewrite.delta.log.row_rules import rules_of
from safewrite.delta.log.snapshot import Snapshot
from safewrite.frames.prepare import prepare
from tests.changes.tasked import by_tasks
from tests.each import each

SCHEMA = pa.schema([("id", pa.int64()), ("seq", pa.int64()), ("v", pa.string())])
FEW = {"few": "id < 10"}
HOW: dict[str, Any] = {"keys": ["id"], "sequence_by": ["seq"]}
BROKEN = r"the check constraint 'few' \(id < 10\): id is"


def rows(*ids: int | None, seq: int = 1) -> pa.Table:
    return pa.Table.from_pylist([{"id": one, "seq": seq, "v": f"v{one}"} for one in ids], SCHEMA)


def table(folder: Path, rules: dict[str, str] = FEW, **how: Any) -> sw.Table:
    deltalake.DeltaTable.create(str(folder / "t"), SCHEMA, **how)
    if rules:
        add(folder, rules)
    return sw.open(str(folder / "t"))


def add(folder: Path, rules: dict[str, str]) -> None:
    """Give a table constraints, also such as deltalake cannot read, or that rows break."""
    given = {f"delta.constraints.{name}": text for name, text in rules.items()}
    try:
        deltalake.DeltaTable(str(folder / "t")).alter.add_constraint(rules)
    except Exception:  # noqa: BLE001 - of many kinds
        deltalake.DeltaTable(str(folder / "t")).alter.set_table_properties(given, raise_if_not_exists=False)


def ids(folder: Path) -> list[int]:
    found: list[int] = deltalake.DeltaTable(str(folder / "t")).to_pyarrow_table()["id"].to_pylist()
    return sorted(found)


def known(place: sw.Table) -> Snapshot:
    """The newest version of a table."""
    table: Any = place.refresh()
    found: Snapshot = table._format._state
    return found


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_rows_that_keep_a_constraint_are_written_and_engines_write_on(tmp_path: Path) -> None:
    place = table(tmp_path, partition_by=["v"])
    place.append(rows(1, 2))
    place.overwrite(rows(3), where="id = 3 OR id = 2")
    place.append_many([("a", rows(4)), ("b", rows(5))])
    place.apply_changes(rows(1, 6, seq=2), **HOW)
    place.delete("id = 4")
    place.maintain()
    assert ids(tmp_path) == [1, 3, 5, 6]
    deltalake.write_deltalake(str(tmp_path / "t"), rows(7), mode="append")
    with pytest.raises(Exception, match="validation check"):
        deltalake.write_deltalake(str(tmp_path / "t"), rows(17), mode="append")
    assert place.refresh().row_count() == 5


@each("bad", [17, None])
def test_a_row_that_breaks_a_constraint_is_refused_before_anything_is_uploaded(
    bad: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """FALSE and NULL break it; the row is named by its number, or where keys decide by its key."""
    folder = tmp_path_factory.mktemp("lake")
    place = table(folder)
    place.append(rows(1))
    before = files(folder)
    with pytest.raises(sw.WouldAlterError, match=f"Row 1 breaks {BROKEN} {bad or 'NULL'}"):
        place.append(rows(2, bad))
    with pytest.raises(sw.WouldAlterError, match=BROKEN):
        place.overwrite(rows(bad))
    if bad is not None:
        with pytest.raises(sw.WouldAlterError, match=rf"The row whose id is 17 breaks {BROKEN} 17"):
            place.apply_changes(rows(1, bad, seq=2), **HOW)
    assert {name for name in files(folder) - before if name.endswith(".parquet")} == set()
    assert ids(folder) == [1]


def test_of_many_members_only_the_one_that_breaks_a_constraint_is_refused(tmp_path: Path) -> None:
    place = table(tmp_path)
    answers = place.append_many([("a", rows(1)), ("b", rows(17)), ("c", rows(2))])
    assert [isinstance(one, sw.Receipt) for one in answers] == [True, False, True]
    changes = place.apply_changes_many([("d", rows(3)), ("e", rows(18)), ("f", rows(4))], **HOW)
    assert [isinstance(one, sw.Receipt) for one in changes] == [True, False, True]
    assert ids(tmp_path) == [1, 2, 3, 4]


def test_tasks_judge_the_rows_that_will_stand(tmp_path: Path) -> None:
    place = table(tmp_path, {"short": "length(v) < 5 OR v IS NULL"})
    place.append(rows(1, 2))
    with by_tasks():
        place.apply_changes(rows(1, seq=2), **HOW)
        with pytest.raises(
            sw.WouldAlterError, match=r"The row whose id is 1 breaks .*'short'.*v is 'much too long'"
        ):
            place.apply_changes([{"id": 1, "seq": 3, "v": "much too long"}], **HOW)
        late = [{"id": 1, "seq": 1, "v": "much too long"}, {"id": 1, "seq": 4, "v": "v"}]
        place.apply_changes(late, all_late="count", **HOW)  # of a late change nothing is written
    assert ids(tmp_path) == [1, 2]


def test_rows_that_are_copied_are_not_judged(tmp_path: Path) -> None:
    """As by engines: a rule is for new and changed rows, and who adds it looks at those that are there."""
    place = table(tmp_path, {})
    place.append(rows(1, 17, 18))
    add(tmp_path, FEW)
    assert rules_of(known(place)) is not None
    place.delete("id = 18")
    place.append(rows(2))
    place.maintain()
    place.apply_changes(rows(1, seq=2), **HOW)
    assert ids(tmp_path) == [1, 2, 17]


WRITES: dict[str, Any] = {
    "append": lambda place: place.append(rows(17)),
    "overwrite": lambda place: place.overwrite(rows(17)),
    "apply": lambda place: place.apply_changes(rows(17), **HOW),
    "many": lambda place: refused(place.append_many([("a", rows(17))])[0]),
}


def refused(answer: sw.Receipt | sw.SafewriteError) -> None:
    """Raise what a member was answered."""
    if isinstance(answer, sw.SafewriteError):
        raise answer


@each("name", WRITES)
def test_a_constraint_that_a_rival_adds_meanwhile_is_kept(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Between the check of the rows and their commit: the commit is given up, and they are checked by the newest metadata."""
    folder = tmp_path_factory.mktemp("lake")
    place = table(folder, {})
    place.append(rows(1))
    run, rivals = DeltaFormat._run, [folder]

    def late(self: DeltaFormat, steps: Any) -> Any:
        if steps.__name__ in {"write", "write_many", "apply", "overwrite"} and rivals:
            add(rivals.pop(), FEW)
        return run(self, steps)

    with mock.patch.object(DeltaFormat, "_run", late), pytest.raises(sw.WouldAlterError, match=BROKEN):
        WRITES[name](place)
    assert not rivals
    assert ids(folder) == [1]


def test_a_key_that_was_committed_before_its_constraint_came_is_known(tmp_path: Path) -> None:
    place = table(tmp_path, {})
    place.append(rows(17), key="k")
    place.delete("id = 17")
    deltalake.DeltaTable(str(tmp_path / "t")).alter.add_constraint(FEW)
    again = sw.open(str(tmp_path / "t")).append(rows(17), key="k")
    assert again.outcome == sw.Outcome.ALREADY_COMMITTED


def test_no_layout_of_a_table_with_rules_takes_rows_that_were_not_judged(tmp_path: Path) -> None:
    state = known(table(tmp_path))
    unchecked = prepare(rows(17), state.schema)
    with pytest.raises(sw.WouldAlterError, match=BROKEN):
        encoded(unchecked, layout_of(state, state.schema, (), "w"))
    assert [*encoded(unchecked, layout_of(state, state.schema, (), "w").copying())]


def test_an_invariant_of_a_column_is_kept_as_a_constraint(tmp_path: Path) -> None:
    rule = {"delta.invariants": json.dumps({"expression": {"expression": "id < 10"}})}
    schema = pa.schema([SCHEMA.field("id").with_metadata(rule), *list(SCHEMA)[1:]])
    deltalake.DeltaTable.create(str(tmp_path / "t"), schema)
    place = sw.open(str(tmp_path / "t"))
    place.append(rows(1))
    with pytest.raises(sw.WouldAlterError, match=r"the invariant of column 'id' \(id < 10\)"):
        place.append(rows(17))


@each(
    "text",
    ["upper(v) = 'A'", "v RLIKE 'a'", "nosuch > 1", "id > 'a'", 'v = "a"', "id = 1 = (seq = 1)", "length(v) > rand()"],
)  # fmt: skip
def test_what_cannot_be_evaluated_as_spark_does_is_refused_by_name(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("lake")
    place = table(folder, {"odd": text, "even": "id > 0"})
    assert place.row_count() == 0
    with pytest.raises(sw.UnsupportedTableError, match=r"checkConstraints: the check constraint 'odd' \("):
        place.append(rows(1))


# --- generated columns and defaults -----------------------------------------------------------------------
AT = dt.datetime(2026, 1, 1, 23, tzinfo=dt.UTC)
COMPUTED = pa.schema([
    pa.field("id", pa.int64()), pa.field("seq", pa.int64()), pa.field("at", pa.timestamp("us", "UTC")),
    pa.field("day", pa.date32(), metadata={"delta.generationExpression": "CAST(at AS DATE)"}),
    pa.field("next", pa.int64(), metadata={"delta.generationExpression": "id + few"}),
    pa.field("few", pa.int32(), metadata={"CURRENT_DEFAULT": "7"}),
    pa.field("v", pa.string(), metadata={"CURRENT_DEFAULT": "'none'"}),
    pa.field("w", pa.string(), metadata={"CURRENT_DEFAULT": "NULL"}),
])  # fmt: skip


def computing(folder: Path, schema: pa.Schema = COMPUTED, **how: Any) -> sw.Table:
    deltalake.DeltaTable.create(str(folder / "t"), schema, **how)
    return sw.open(str(folder / "t"))


def row(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "seq": 1, "at": AT, "w": None, **more}


def whole(number: int, **more: Any) -> dict[str, Any]:
    return row(number, day=AT.date(), few=7, v="none", next=number + 7) | more


def test_columns_that_a_frame_lacks_are_computed_before_it_is_known_by_its_rows(tmp_path: Path) -> None:
    place = computing(tmp_path, partition_by=["day"])
    place.append([row(1)], key="a")
    assert place.append([whole(1)], key="a").outcome == sw.Outcome.ALREADY_COMMITTED
    place.append([row(2, few=1, v=None), row(3, few=2, v="x")])
    place.append_many([("b", [row(4)]), ("c", [row(5)]), ("d", [row(6, v="y")])])
    place.append([{"id": 8, "seq": 1, "v": "z"}], schema_mode="merge")
    place.overwrite([row(4)], where="id = 4")
    place.apply_changes([whole(5, seq=2, few=9, next=14)], **HOW)
    found = place.rows(where="true").sort_by("id").to_pylist()
    assert found == [
        whole(1), whole(2, few=1, next=3, v=None), whole(3, few=2, next=5, v="x"), whole(4),
        whole(5, seq=2, few=9, next=14), whole(6, v="y"), whole(8, at=None, day=None, next=15, v="z"),
    ]  # fmt: skip


def test_a_given_value_of_a_generated_column_is_that_of_its_expression(tmp_path: Path) -> None:
    place = computing(tmp_path)
    with pytest.raises(
        sw.WouldAlterError, match=r"Row 1 breaks the generated column 'next' \(id \+ few\): .*next is 9"
    ):
        place.append([whole(1), whole(3, next=9)])
    with pytest.raises(sw.WouldAlterError, match=r"The row whose id is 3 breaks the generated column 'next'"):
        place.apply_changes([whole(3, next=9)], **HOW)
    with pytest.raises(sw.WouldAlterError, match="Row 1: column 'next' cannot be computed"):
        place.append([row(1), row(2**63 - 1)])
    assert place.row_count() == 0


@each(
    ("feature", "key", "text"),
    [
        ("generatedColumns", "delta.generationExpression", "upper(s)"),
        ("generatedColumns", "delta.generationExpression", "id"),  # of another type
        ("allowColumnDefaults", "CURRENT_DEFAULT", "current_date()"),
        ("allowColumnDefaults", "CURRENT_DEFAULT", "5"),
    ],
)
def test_what_cannot_be_computed_is_refused_by_name(
    feature: str, key: str, text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    schema = pa.schema([("id", pa.int64()), pa.field("s", pa.string(), metadata={key: text})])
    with pytest.raises(sw.UnsupportedTableError, match=f"{feature}: .* 's' "):
        computing(tmp_path_factory.mktemp("lake"), schema).append([{"id": 1}])


def test_a_column_that_a_rule_goes_by_gets_no_wider(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int32()), ("few", pa.int32())])
    how = {"delta.enableTypeWidening": "true"}
    place = sw.create(str(tmp_path / "t"), schema, properties=how)
    place.append([{"id": 1, "few": 1}])
    path = tmp_path / "t" / "_delta_log" / f"{place.version:020}.json"
    metadata = json.loads((tmp_path / "t" / "_delta_log" / f"{0:020}.json").read_text().splitlines()[2])[
        "metaData"
    ]
    metadata["configuration"]["delta.constraints.few"] = "few < 10"
    path.with_name(f"{place.version + 1:020}.json").write_text(json.dumps({"metaData": metadata}) + "\n")
    narrow = pa.array([1], pa.int32())
    place.append(pa.table({"id": [2**40], "few": narrow}), schema_mode="widen")
    with pytest.raises(sw.InvalidInputError, match=r"'few' cannot become wider: the check constraint 'few'"):
        place.append(pa.table({"id": [1], "few": [2**40]}), schema_mode="widen")


# --- identity columns -------------------------------------------------------------------------------------
def numbering(folder: Path, *, given: object) -> sw.Table:
    """A table of Spark's with an identity column, as its log has it."""
    sw.create(folder / "t", pa.schema([("id", pa.int64()), ("seq", pa.int64()), ("v", pa.string())]))
    log = folder / "t" / "_delta_log"
    actions = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
    metadata = next(one["metaData"] for one in actions if "metaData" in one)
    schema = json.loads(metadata["schemaString"])
    told = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.allowExplicitInsert": given}
    schema["fields"][0]["metadata"] = told
    metadata["schemaString"] = json.dumps(schema)
    lines = [{"metaData": metadata}, {"protocol": {"minReaderVersion": 1, "minWriterVersion": 6}}]
    (log / f"{1:020}.json").write_text("".join(json.dumps(one) + "\n" for one in lines))
    return sw.open(folder / "t")


@pytest.mark.parametrize("given", [True, "true"])
def test_identity_columns_are_written_by_rows_that_bring_their_values(tmp_path: Path, given: object) -> None:
    """Those that are GENERATED BY DEFAULT, which deltalake says by a text: the table's own numbers stay as they are, as Spark leaves them."""
    place = numbering(tmp_path, given=given)
    place.append(rows(7, 8))
    place.apply_changes(rows(7, 9, seq=2), **HOW)
    place.delete("id = 8")
    with pytest.raises(
        sw.WouldAlterError, match=r"breaks the identity column 'id' \(`id` IS NOT NULL\): id is NULL"
    ):
        place.append(rows(None))
    for mode in (None, "merge"):
        with pytest.raises(sw.WouldAlterError, match=r"'id' .*must not be NULL.* Add it to the data\.$"):
            place.append([{"seq": 1, "v": "x"}], schema_mode=mode)
    assert ids(tmp_path) == [7, 9]
    assert "highWaterMark" not in known(place).schema_string


@pytest.mark.parametrize("given", [False, "false", None])
def test_identity_columns_that_only_the_table_numbers_are_refused_by_name(
    tmp_path: Path, given: object
) -> None:
    place = numbering(tmp_path, given=given)
    with pytest.raises(
        sw.UnsupportedTableError,
        match=r"values would have to be drawn for id \(GENERATED ALWAYS AS IDENTITY\)",
    ):
        place.append(rows(1))
