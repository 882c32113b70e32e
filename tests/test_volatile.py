"""``volatile=``: rows that change by themselves are recognised, and a mismatch names the columns that differ."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import safewrite as sw
from safewrite.delta.write.members import INLINE_BYTES_MAX
from safewrite.iceberg.write.members import INLINE_CHARS_MAX
from tests.test_append_many import Place, told

pytestmark = pytest.mark.sweep("iceberg")  # both formats go one way

START = pd.Timestamp("2026-11-22T10:00:00Z")
attempts = iter(range(1_000_000))


def rows(*ids: int, **columns: Any) -> pd.DataFrame:
    """The rows of an event with a load time that is another in each attempt."""
    frame = pd.DataFrame({"id": list(ids) or [1, 2], "x": 1.5})
    return frame.assign(loaded_at=START + pd.Timedelta(seconds=next(attempts)), **columns)


def without_load_time(place: Place) -> list[dict[str, Any]]:
    kept = [{k: v for k, v in row.items() if k != "loaded_at"} for row in place.rows()]
    return sorted(kept, key=lambda row: row["id"])


@pytest.fixture(params=["delta", "iceberg"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path, request.param)


def mismatch(call: Callable[[], Any]) -> sw.ReplayMismatchError:
    with pytest.raises(sw.ReplayMismatchError, match=r"none of these were written\.") as caught:
        call()
    return caught.value


# --- repeats ------------------------------------------------------------------------------------------
WAYS: dict[str, Callable[[Any, Any], sw.Receipt]] = {
    "key": lambda table, data: table.append(data, key="a", volatile=["loaded_at"]),
    "txn": lambda table, data: table.append(data, txn=("app", 1), volatile=["loaded_at"]),
    "many": lambda table, data: table.append_many([("a", data)], volatile={"loaded_at"})[0],
    "batch of many": lambda table, data: table.append_many([(("app", 1), data)], volatile=["loaded_at"])[0],
    "overwrite": lambda table, data: table.overwrite(data, key="a", volatile=("loaded_at",)),
    "where": lambda table, data: table.overwrite(data, key="a", where="id < 9", volatile=["loaded_at"]),
}


@pytest.mark.sweep("delta-overwrite")
@pytest.mark.parametrize("way", WAYS)
def test_a_repeat_with_another_load_time_is_recognised(place: Place, way: str) -> None:
    write, table = WAYS[way], place.open()
    table.append(rows(9))
    first = rows(1, 2)
    done = write(table, first)
    for again in (table, place.open()):
        repeat = write(again, rows(2, 1))
        assert (repeat.outcome, repeat.version) == ("already_committed", done.version)
    times = {row["loaded_at"] for row in place.rows() if row["id"] != 9}
    assert times == {first["loaded_at"][0].to_pydatetime()}
    answer = told_or_raised(lambda: write(place.open(), rows(1, 3)))
    assert isinstance(answer, sw.ReplayMismatchError)
    assert answer.columns == ("id",)


def told_or_raised(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except sw.SafewriteError as error:
        return error


def test_a_sink_leaves_out_what_is_volatile(place: Place) -> None:
    place.open().append(rows(9))
    sink = place.open().sink(app_id="stream", volatile=["loaded_at"])
    for expected in ("committed", "already_committed"):
        sink(rows(1), 0)
        assert sink.last_receipt is not None
        assert sink.last_receipt.outcome == expected


def test_members_are_recognised_in_another_group_and_alone(place: Place) -> None:
    table = place.open()
    table.append_many([("a", rows(1)), ("b", rows(2))], volatile=["loaded_at"])
    answers = place.open().append_many(
        [("b", rows(2)), ("c", rows(3)), ("a", rows(4))], volatile=["loaded_at"]
    )
    assert told(answers) == ["already_committed", "committed", "replay_mismatch"]
    assert "column 'id' differs" in str(answers[2])
    assert table.append(rows(1), key="a", volatile=["loaded_at"]).outcome == "already_committed"
    assert place.ids() == [1, 2, 3]


def test_a_key_that_comes_twice_in_a_call_counts_once_though_its_load_time_differs(place: Place) -> None:
    members = [("a", rows(1)), ("a", rows(1))]
    assert told(place.open().append_many(members, volatile=["loaded_at"])) == [
        "committed",
        "already_committed",
    ]
    answers = place.open().append_many([("b", rows(1)), ("b", rows(1))])
    assert told(answers) == ["committed", "replay_mismatch"]
    assert "column 'loaded_at' differs: it is probably made in each attempt" in str(answers[1])
    assert "pass volatile=['loaded_at']" in str(answers[1])


def test_a_repeat_is_recognised_after_another_writer_added_a_column(place: Place) -> None:
    table = place.open()
    table.append(rows(1), key="a", volatile=["loaded_at"])
    place.open().append(rows(2, more="new"), schema_mode="merge")
    assert place.open().append(rows(1), key="a", volatile=["loaded_at"]).outcome == "already_committed"


# --- never a match by what was left out ---------------------------------------------------------------
@pytest.mark.parametrize("name", [{"key": "a"}, {"txn": ("app", 1)}])
def test_null_where_the_first_write_left_a_column_out_is_no_repeat(
    place: Place, name: dict[str, Any]
) -> None:
    """NULL adds nothing to a hash of rows, so the names that are left out must be in the fingerprint (promise 6)."""
    table = place.open()
    table.append(rows(1), **name, volatile=["loaded_at"])
    bare = rows(1).assign(loaded_at=pd.Series([None], dtype="datetime64[us, UTC]"))
    assert "with volatile=['loaded_at'], and this call has no volatile=" in str(
        mismatch(lambda: table.append(bare, **name))
    )
    table.append(bare, key="b")
    error = mismatch(lambda: table.append(rows(1), key="b", volatile=["loaded_at"]))
    assert "without volatile=" in str(error)
    assert len(place.rows()) == 2


def test_a_repeat_that_leaves_out_other_columns_is_told_so(place: Place) -> None:
    table = place.open()
    table.append(rows(1), key="a", volatile=["loaded_at"])
    for given in (None, ["x"], ["loaded_at", "x"]):
        error = mismatch(lambda given=given: table.append(rows(1), key="a", volatile=given))
        assert "Repeat the write with volatile=['loaded_at']" in str(error)


def test_a_first_write_without_volatile_has_no_repeat_with_it(place: Place) -> None:
    """The digests of columns agree, also where values have changed places: they prove nothing (decision 0024)."""
    table = place.open()
    table.append(rows(1, 2, y=[3, 4]), key="a")
    same = mismatch(lambda: table.append(rows(1, 2, y=[3, 4]), key="a", volatile=["loaded_at"]))
    moved = mismatch(lambda: table.append(rows(1, 2, y=[4, 3]), key="a", volatile=["loaded_at"]))
    other = mismatch(lambda: table.append(rows(1, 5, y=[3, 4]), key="a", volatile=["loaded_at"]))
    assert "the other columns seem the same" in str(same)
    assert str(moved) == str(same)
    assert "column 'id' differs" in str(other)
    for error in (same, moved, other):
        assert "do not write them again under another key" in str(error)
    assert place.ids() == [1, 2]


# --- wrong arguments ----------------------------------------------------------------------------------
WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "where": (lambda t: t.overwrite(rows(1), where="id < 9", volatile=["id"]), "where= is on 'id'"),
    "tuples": (lambda t: t.overwrite(rows(1), where=[("id", "<", 9)], volatile=["id"]), "where= is on 'id'"),
    "no column": (lambda t: t.overwrite(rows(1), volatile=["loadd_at"]), "'loadd_at', which is no column"),
    "another case": (lambda t: t.append(rows(1), volatile=["ID"]), "'ID', which is no column"),
    "all": (lambda t: t.append(rows(1), volatile=["id", "x", "loaded_at"]), "names all columns"),
    "all that come": (
        lambda t: t.append(rows(1)[["id"]], volatile=["id"], schema_mode="merge"),
        "names all columns",
    ),
    "half of a pair": (lambda t: t.append(rows(1), volatile=["\ud800"]), "list of column names"),
    "a batch": (lambda t: t.sink(app_id="s", volatile=["no"])(rows(1), 0), "which is no column"),
    "a group": (lambda t: t.append_many([("v", rows(1))], volatile="at"), "list of texts"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_left_out_is_refused_before_anything_is_uploaded(place: Place, case: str) -> None:
    call, said = WRONG[case]
    table = place.open()
    table.append(rows(5))
    before = sorted(place.folder.rglob("*"))
    with pytest.raises(sw.InvalidInputError, match="Nothing was written") as caught:
        call(table)
    assert said in str(caught.value)
    assert sorted(place.folder.rglob("*")) == before


def test_a_member_that_lacks_the_column_gets_its_own_error(place: Place) -> None:
    answers = place.open().append_many(
        [("a", [{"id": 1}]), ("b", [{"id": 2, "at": 5}])], schema_mode="merge", volatile=["at"]
    )
    assert told(answers) == ["invalid_input", "committed"]
    assert place.ids() == [2]


# --- what the error says ------------------------------------------------------------------------------
MADE: dict[str, tuple[Callable[[], Any], str]] = {
    "a time": (lambda: START + pd.Timedelta(next(attempts), "s"), "a time"),
    "a time as text": (lambda: f"{START + pd.Timedelta(next(attempts), 'ms')}", "a time"),
    "ids": (lambda: str(uuid.uuid4()), "drawn ids"),
    "ids without dashes": (lambda: uuid.uuid4().hex, "drawn ids"),
}


@pytest.mark.parametrize("kind", MADE)
def test_a_column_that_each_attempt_makes_is_named_with_what_to_do(place: Place, kind: str) -> None:
    made, look = MADE[kind]
    frame = lambda: pd.DataFrame({"id": [1, 2], "made": [made(), made()]})  # noqa: E731
    place.open().append(frame(), key="a")
    error = mismatch(lambda: place.open().append(frame(), key="a"))
    assert f"column 'made' differs: it is probably made in each attempt ({look})" in str(error)
    assert "pass volatile=['made'] from a key's first write on" in str(error)
    assert "If this is the same event, its rows are in the table" in str(error)
    assert (error.columns, error.key) == (("made",), "a")
    assert error.version == place.open().version


def test_other_columns_are_named_without_a_guess(place: Place) -> None:
    table = place.open()
    table.append(rows(1, 2, price=2, text="a"), key="a")
    error = mismatch(lambda: table.append(rows(1, 2, price=3, text="b"), key="a"))
    assert error.columns == ("loaded_at", "price", "text")
    assert "columns 'loaded_at', 'price', 'text' differ: 'loaded_at' is probably made" in str(error)
    assert "If these are new data, give them a key of their own" in str(error)
    count = mismatch(lambda: table.append(rows(1, 2, 3, price=2, text="a"), key="a"))
    assert "2 then, 3 in this call" in str(count)
    assert count.columns == ()


def test_times_that_lie_far_apart_are_not_taken_for_load_times(place: Place) -> None:
    table = place.open()
    at = lambda year: pd.DataFrame({"id": [1, 2], "at": [START, START.replace(year=year)]})  # noqa: E731
    table.append(at(2000), key="a")
    assert "probably made" not in str(mismatch(lambda: table.append(at(2001), key="a")))


def test_values_that_changed_places_are_told(place: Place) -> None:
    table = place.open()
    table.append([{"id": 1, "y": 3}, {"id": 2, "y": 4}], key="a")
    error = mismatch(lambda: table.append([{"id": 1, "y": 4}, {"id": 2, "y": 3}], key="a"))
    assert "each column has the same values, in other rows" in str(error)


def test_a_column_that_this_call_lacks_is_told(place: Place) -> None:
    table = place.open()
    table.append([{"id": 1, "y": 3}], key="a")
    error = mismatch(lambda: table.append([{"id": 1}], key="a", schema_mode="merge"))
    assert "column 'y' differs" in str(error)


def test_less_is_said_where_the_history_tells_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits of before digests, rows of too many columns, and commits that cannot be read."""
    table = place.open()
    with monkeypatch.context() as patched:
        patched.setattr("safewrite.frames.column_digests.COLUMNS_MAX", 2)
        table.append(rows(1), key="a")
    error = mismatch(lambda: table.append(rows(1), key="a"))
    assert error.columns == ()
    assert "name it in volatile= from a key's first write on" in str(error)
    assert "only the whole rows were recorded" in str(
        mismatch(lambda: table.append(rows(1), key="a", volatile=["loaded_at"]))
    )
    table.append(rows(2), key="b")

    def gone(version: int) -> Any:
        raise OSError("cut")

    monkeypatch.setattr(table._format, "recorded", gone)
    error = mismatch(lambda: table.append(rows(2), key="b"))
    assert "with other rows" in str(error)
    assert error.columns == ()
    assert "OSError" in error.__notes__[0]


@pytest.mark.long
def test_few_versions_are_read_to_explain_many_mismatches(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safewrite.table.mismatch.VERSIONS_MAX", 2)
    table = place.open()
    table.append_many([(f"m{n}", rows(n)) for n in range(20)])
    for n in range(3):
        table.append(rows(n), key=f"k{n}")
    read: list[int] = []
    recorded = table._format.recorded
    monkeypatch.setattr(table._format, "recorded", lambda version: read.append(version) or recorded(version))
    answers = table.append_many([(f"{kind}{n}", rows(n)) for kind in "mk" for n in range(3)])
    assert told(answers) == ["replay_mismatch"] * 6
    assert len(read) == 2
    assert [one.columns for one in answers] == [("loaded_at",)] * 4 + [()] * 2


# --- what is recorded ---------------------------------------------------------------------------------
def entries(place: Place) -> list[dict[str, Any]]:
    """What other engines see of the newest write or group of writes."""
    if place.format == "delta":
        body = max((Path(place.name) / "_delta_log").glob("*.json")).read_text()
        return list(json.loads(body.splitlines()[0])["commitInfo"]["safewrite"].get("writes", []))
    summary = place.open().iceberg.current_snapshot().summary.additional_properties
    if "safewrite.key" in summary:
        return [{name.removeprefix("safewrite."): value for name, value in summary.items()}]
    found = json.loads(summary["safewrite.members"])
    return found if isinstance(found, list) else []


def test_the_history_says_what_was_left_out_and_stays_short(place: Place) -> None:
    table = place.open()
    table.append(rows(1), key="a", volatile=["x", "loaded_at", "x"])
    (entry,) = entries(place)
    volatile = entry["volatile"] if place.format == "delta" else json.loads(entry["volatile"])
    assert volatile == ["loaded_at", "x"]
    assert entry.get("columns", "") == ({"delta": entry.get("columns"), "iceberg": ""}[place.format])
    if place.format == "delta":
        assert len(entry["columns"]) == 8
    table.append(rows(1))
    assert not {"columns", "volatile"} & entries(place)[0].keys()
    columns = {f"c{n}": n for n in range(20)}
    table.append_many([(f"k{n}", rows(n, **columns)) for n in range(10)], schema_mode="merge")
    listed = entries(place)
    assert len(listed) == 10
    assert len(json.dumps(listed)) < (INLINE_BYTES_MAX if place.format == "delta" else INLINE_CHARS_MAX)


@pytest.mark.sweep("delta")
@pytest.mark.parametrize("place", ["delta"], indirect=True)
def test_digests_make_no_list_too_long_to_stand_in_the_commit(place: Place) -> None:
    """A list that is too long for the commit costs a request more, so then the digests are left out."""
    columns = {f"c{n}": n for n in range(30)}
    table = place.open()
    table.append_many([(f"k{n}", rows(n, **columns)) for n in range(150)])
    listed = entries(place)
    assert len(listed) == 150
    assert not any("columns" in entry for entry in listed)
    assert not (Path(place.name) / "_safewrite" / "members").exists()
    error = table.append_many([("k3", rows(3, **columns))])[0]
    assert "name it in volatile=" in str(error)
    table.append_many([(f"l{n}", rows(n, **columns)) for n in range(400)])
    assert entries(place) == []
    assert table.append_many([("l3", rows(3, **columns))])[0].columns == ("loaded_at",)


@pytest.mark.parametrize("place", ["delta"], indirect=True)
def test_a_rival_learns_from_the_lock_entry_no_digests(place: Place) -> None:
    from safewrite.protocol.keys import Identity
    from safewrite.table import planning
    from safewrite.table.operation import Operation

    table = place.open()
    table.append(rows(1))
    planner, state = table._format.planner, table._format._state
    candidate, _ = planning.plan(planner, rows(2), Operation("append"), Identity("a"), state)
    assert candidate.write.columns
    summary = candidate.summary(1)
    assert '"key":"a"' in summary
    assert candidate.write.columns not in summary
