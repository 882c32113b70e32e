"""What a write costs grows with the number of columns as the columns do, not as their square (T3-A8)."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import safewrite as sw
from tests.counted import calls, lines

pytestmark = pytest.mark.usefixtures("no_aws_settings")

PACKAGE = Path(sw.__file__).parent
FEW, MANY = 50, 200
"""Columns."""


# --- lists of names are not searched in loops --------------------------------------------------------------
_LISTS = {"names", "column_names"}
"""Attributes of Arrow that make a list of all names each time they are asked for."""


def searches(tree: ast.AST) -> Iterator[str]:
    """Looks for a name in a list of names, from within a loop or comprehension: the square of the columns."""
    yield from _searches(tree, looped=False, lists=frozenset())


def _searches(node: ast.AST, *, looped: bool, lists: frozenset[str]) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        looped = False
        lists |= frozenset(_assigned_lists(node))
    if looped and isinstance(node, ast.Compare):
        for operator, where in zip(node.ops, node.comparators, strict=True):
            named = isinstance(where, ast.Name) and where.id in lists
            if isinstance(operator, ast.In | ast.NotIn) and (named or _is_list(where)):
                yield f"{node.lineno}: {ast.unparse(node)}"
    for inner, again in _within(node):
        yield from _searches(inner, looped=looped or again, lists=lists)


def _within(node: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    """What a node consists of, and whether it runs once for each round of the node."""
    if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
        for number, generator in enumerate(node.generators):
            yield generator.iter, number > 0
            yield from ((one, True) for one in generator.ifs)
        values = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        yield from ((one, True) for one in values)
    elif isinstance(node, ast.For | ast.While):
        yield (node.iter, False) if isinstance(node, ast.For) else (node.test, True)
        yield from ((one, True) for one in node.body)
        yield from ((one, False) for one in node.orelse)
    else:
        yield from ((one, False) for one in ast.iter_child_nodes(node))


def _is_list(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in _LISTS


def _assigned_lists(function: ast.AST) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and _is_list(node.value):
            yield from (one.id for one in node.targets if isinstance(one, ast.Name))


def test_no_loop_of_the_package_looks_for_names_in_a_list_of_names() -> None:
    """Make a set of them before the loop; Arrow makes a new list each time it is asked."""
    found = [
        f"{path.relative_to(PACKAGE.parent)}:{one}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if "testing" not in path.relative_to(PACKAGE).parts
        for text in [path.read_text()]
        if any(f".{name}" in text for name in _LISTS)  # a tree is made and walked where there may be one
        for one in searches(ast.parse(text))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "[n for n in a if n in schema.names]",
        "for n in a:\n  if n not in table.column_names: pass",
        "def f(table):\n  there = table.column_names\n  return {n: 1 for n in a if n in there}",
        "{n: n in schema.names for n in a}",
    ],
)
def test_such_a_search_is_found(text: str) -> None:
    assert list(searches(ast.parse(text)))


# --- what runs ---------------------------------------------------------------------------------------------
def rows_of(columns: int, at: int, order: int) -> pa.Table:
    return pa.table({"id": [at], "q": [order]} | {f"c{number}": [number] for number in range(columns)})


def table_of(format_: str, folder: Path, schema: pa.Schema) -> Any:
    if format_ == "delta":
        return sw.create(folder / "t", schema)
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": str(folder / "w")}
    return sw.create("db.t", schema, catalog=catalog)


VERBS: dict[str, Callable[[Any, pa.Table], Any]] = {
    "append": lambda table, rows: table.append(rows),
    "append of dicts": lambda table, rows: table.append(rows.to_pylist()),
    "append of fewer columns": lambda table, rows: table.append(rows.select([0, 1]), schema_mode="merge"),
    "append with a new column": lambda table, rows: table.append(
        rows.append_column("more", pa.array([1])), schema_mode="merge"
    ),
    "overwrite": lambda table, rows: table.overwrite(rows, where="id = 1"),
    "apply_changes": lambda table, rows: table.apply_changes(rows, keys=["id"], sequence_by=["q"]),
    "deletes": lambda table, rows: table.apply_changes(
        rows.append_column("op", pa.array(["d"])), keys=["id"], sequence_by=["q"], delete_when="op = 'd'"
    ),
    "unchanged values": lambda table, rows: table.apply_changes(
        rows.append_column("u", pa.array([["c1"]])), keys=["id"], sequence_by=["q"], unchanged="u"
    ),
    "a frame with too many columns": lambda table, rows: _refused(
        table, rows.rename_columns([f"x{n}" for n in range(rows.num_columns)])
    ),
}


def _refused(table: Any, rows: pa.Table) -> None:
    with pytest.raises(sw.WouldAlterError, match="columns"):
        table.append(rows)


SHORT = {"append of dicts", "apply_changes", "a frame with too many columns"}


@pytest.mark.sweep("iceberg", "append of dicts-delta")
@pytest.mark.parametrize("format_", ["delta", "iceberg"])
@pytest.mark.parametrize(
    "verb", [pytest.param(verb, marks=() if verb in SHORT else pytest.mark.long) for verb in VERBS]
)
def test_four_times_the_columns_are_four_times_the_work(tmp_path: Path, format_: str, verb: str) -> None:
    """Lines that ran are counted, each round of a loop as one; imports are made by the call before."""
    counts = []
    for columns in (2, FEW, MANY):
        folder = tmp_path / str(len(counts))
        folder.mkdir()
        table = table_of(format_, folder, rows_of(columns, 1, 1).schema)
        table.append(rows_of(columns, 1, 1))
        rows = rows_of(columns, 1, 2)
        counts.append(lines(lambda table=table, rows=rows: VERBS[verb](table, rows)))  # type: ignore[misc]
    assert counts[2] < 1.15 * MANY / FEW * counts[1]


def test_the_schema_of_a_wide_table_is_not_looked_through_by_each_write(tmp_path: Path) -> None:
    """One of more than 50,000 letters was: then each write asks for all its fields some ten times."""
    table = table_of("delta", tmp_path, rows_of(1000, 1, 1).schema)
    table.append(rows_of(1000, 1, 1))
    found = calls(lambda: table.apply_changes(rows_of(1000, 1, 2), keys=["id"], sequence_by=["q"]))
    assert found["safewrite.delta.log.features:_fields"] == 0
