"""What users of other libraries type first leads them to the right call, in one sentence (T4-E6)."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import pytest

import safewrite as sw
from safewrite.boundary.habits import ARGUMENTS, METHODS, MISSING
from safewrite.cli.app import show_help
from safewrite.table.verbs import Table
from safewrite.tables import create
from safewrite.tables import open as open_table

CALLS = [
    open_table,
    create,
    *(getattr(Table, name) for name in ("append", "overwrite", "delete", "apply_changes", "sink")),
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> sw.Table:
    table = sw.open(tmp_path_factory.mktemp("habits") / "t", create=True)
    table.append([{"id": 1, "name": "a"}], key="first")
    return table


def test_names_of_other_libraries_lead_to_ours(table: sw.Table) -> None:
    """None of them is a name that safewrite has; it stays an AttributeError, for ``hasattr``."""
    for name, hint in METHODS.items():
        for owner in (table, sw):
            if not hasattr(owner, name):
                with pytest.raises(AttributeError) as told:
                    getattr(owner, name)
                assert str(told.value).endswith(f"has no attribute {name!r}: {hint}")
    assert not [name for name in METHODS if hasattr(Table, name)]
    with pytest.raises(AttributeError, match=r"has no attribute 'strange'$"):
        table.strange  # noqa: B018
    assert pickle.loads(pickle.dumps(table)).version == table.version


def test_files_that_nothing_needs_are_removed_by_our_own_verb(table: sw.Table) -> None:
    for name in ("vacuum", "expire_snapshots", "remove_orphan_files", "optimize"):
        with pytest.raises(AttributeError, match=r"use maintain\("):
            getattr(table, name)


def test_arguments_of_other_libraries_lead_to_ours(table: sw.Table) -> None:
    ours = {name for call in CALLS for name in inspect.signature(call).parameters}
    for name, hint in ARGUMENTS.items():
        if name not in ours:
            with pytest.raises(TypeError) as told:
                table.append([{"id": 2, "name": "b"}], **{name: "x"})
            assert str(told.value).endswith(f"unexpected keyword argument {name!r}. {name}=: {hint}")
    with pytest.raises(TypeError, match=r"app_id=.*names the stream"):
        table.sink("append")  # type: ignore[call-arg]
    assert {*MISSING} <= ours
    with pytest.raises(TypeError, match=r"'strange'$"):
        sw.open("t", strange=1)  # type: ignore[call-overload]
    assert table.row_count() == 1


@pytest.mark.parametrize(
    ("where", "way_out"),
    [
        ("id > 1 & name = 'a'", "AND and OR"),
        ("(id > 1) | (id < 0)", "AND and OR"),
        ("name LIKE 'a%'", "name >= 'ab'"),
        ("name NOT ILIKE 'a%'", "name >= 'ab'"),
        ("name = current_date", "the moment itself"),
        ("name > now()", "the moment itself"),
        ("upper(name) = 'A'", "with IN"),
        ("id + 1 = 2", "with IN"),
    ],
)
def test_a_condition_that_is_refused_says_what_to_write(table: sw.Table, where: str, way_out: str) -> None:
    for call in (lambda: table.rows(where=where), lambda: table.delete(where)):
        with pytest.raises(sw.InvalidInputError) as told:
            call()
        assert "Nothing was written." in str(told.value)
        assert way_out in str(told.value)


def test_a_stream_is_sent_to_a_sink(table: sw.Table) -> None:
    frame: Any = type("DataFrame", (), {"isStreaming": True, "__module__": "pyspark.sql.dataframe"})()
    for call in (table.append, table.overwrite):
        with pytest.raises(sw.InvalidInputError, match=r"is a stream.*foreachBatch"):
            call(frame)


@pytest.mark.parametrize("words", [["-h"], ["doctor", "-h"], ["cdc", "status", "-h"]])
def test_a_short_option_asks_for_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert show_help(words)
    assert capsys.readouterr().out.startswith(" ".join(["Usage: safewrite", *words[:-1]]))


def test_a_property_that_raises_is_not_taken_for_one_that_is_missing() -> None:
    with pytest.raises(AttributeError, match="has no attribute '_format'"):
        sw.Table.__new__(sw.Table).version  # noqa: B018
