"""Tables with CHECK constraints and invariants: what breaks one is refused before it is written, whoever lays out the files."""

from __future__ import annotations

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
from safewrite.frames import prepare
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
