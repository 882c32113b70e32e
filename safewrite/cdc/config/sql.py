"""Reads SQL of a row: which names it has, and whether it gives the same for the same row at any time; else it is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from safewrite.intake.duck import closed_duckdb

PLACE = "_cdc_place"
"""The name of the rows that DuckDB computes, and of the column of their places there."""
_OF_THE_SESSION = frozenset([
    "current_catalog", "current_date", "current_role", "current_schema", "current_time", "current_timestamp", "current_user",
    "localtime", "localtimestamp", "session_user", "user", PLACE,
])  # fmt: skip
"""Names that are values of the moment, of the session or of the batch, and are written as columns are."""
_UNSTABLE = frozenset(["current_localtime", "current_localtimestamp", "hash", "version"])
"""Functions of DuckDB that it calls consistent, and that tell the time, or something else in another version of it."""
_SCHEMAS = frozenset(["main", "pg_catalog", "system", "system.main", "information_schema"])
"""Where DuckDB keeps functions of its own."""
_NOT_ONE = "has more than one expression, or a part of a query"
_NOT_OF_A_ROW = {
    "SUBQUERY": "a subquery", "WINDOW": "a window function", "STAR": "a star", "PARAMETER": "a parameter",
    "POSITIONAL_REFERENCE": "a column by its number", "DEFAULT": "DEFAULT",
}  # fmt: skip


@cache
def names_read(text: str) -> frozenset[str]:
    """The names that an expression reads, in small letters: columns, and perhaps fields or names of lambdas.

    Raises:
        ValueError: it is not SQL of one row, or its value may be another one when it is computed again.
    """
    with closed_duckdb("SQL of a row is read", "sql", "any table") as connection:
        names, functions = set[str](), set[str]()
        found = _expression(connection, text)
        if found[0].get("function_name") == "row":  # so DuckDB reads nothing at all, and several values
            raise ValueError(f"{text!r} has not one value")
        for part in _parts(found):
            kind = part.get("class")
            if kind in _NOT_OF_A_ROW:
                raise ValueError(f"{text!r} has {_NOT_OF_A_ROW[kind]}, and SQL of a row has none")
            if kind == "COLUMN_REF":
                names.add(str(part["column_names"][0]).lower())
            elif kind == "FUNCTION":
                functions.add(str(part["function_name"]).lower())
                _refuse_dot(text, part)
                if part["function_name"].lower() == "age" and len(_arguments(part)) == 1:
                    raise ValueError(
                        f"{text!r} has age of one time, which is another one every day: give it two"
                    )
        if asked := sorted(names & _OF_THE_SESSION):
            raise ValueError(_unstable(text, asked[0]))
        for name in sorted(functions):
            _check_function(connection, text, name, frozenset())
    return frozenset(names)


def _refuse_dot(text: str, part: dict[str, Any]) -> None:
    """Refuse a function behind a dot: DuckDB's parser takes the column in front of it for a schema, so it would not count as read."""
    before = ".".join(filter(None, (part.get("catalog"), part.get("schema"))))
    if before:
        name = part["function_name"]
        given = ["..."] if before.lower() in _SCHEMAS else [before, *(["..."] if _arguments(part) else [])]
        raise ValueError(
            f"{text!r} calls {name} behind a dot, where DuckDB's parser takes a column for a schema: write {name}({', '.join(given)}) for "
            f"{before}.{name}(...)"
        )


def _expression(connection: Any, text: str) -> Any:
    """The tree of an expression that stands alone."""
    # As a comment could swallow the bracket, the expression stands on a line of its own.
    given, bare = (_statement(connection, f"SELECT (\n{one}\n)") for one in (text, "1"))
    trees = given.pop("select_list"), bare.pop("select_list")
    if len(trees[0]) != 1 or _without_places(given) != _without_places(bare):
        raise ValueError(f"{text!r} {_NOT_ONE}")
    return trees[0]


def _statement(connection: Any, query: str) -> dict[str, Any]:
    (answer,) = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchone()
    read = json.loads(answer)
    if read["error"]:
        raise ValueError(f"DuckDB cannot read {query[8:-1].strip()!r}: {read['error_message']}")
    if len(read["statements"]) != 1 or "select_list" not in read["statements"][0]["node"]:
        raise ValueError(f"{query[8:-1].strip()!r} {_NOT_ONE}")
    found: dict[str, Any] = read["statements"][0]["node"]
    return found


def _without_places(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_without_places(one) for one in tree]
    if isinstance(tree, dict):
        return {
            name: _without_places(one) for name, one in tree.items() if not name.startswith("query_location")
        }
    return tree


def _parts(tree: Any) -> Iterator[dict[str, Any]]:
    """All expressions in a tree."""
    if isinstance(tree, dict):
        if "class" in tree:
            yield tree
        for one in tree.values():
            yield from _parts(one)
    elif isinstance(tree, list):
        for one in tree:
            yield from _parts(one)


def _arguments(function: dict[str, Any]) -> Any:
    return function.get("arguments", function.get("children", ()))


def _check_function(connection: Any, text: str, name: str, seen: frozenset[str]) -> None:
    """Refuse a function that is not of one row, or not the same for the same row."""
    found = connection.execute(
        "SELECT DISTINCT function_type, stability, macro_definition FROM duckdb_functions() WHERE lower(function_name) = ?", [name]
    ).fetchall()  # fmt: skip
    kinds = {kind for kind, _, _ in found}
    if not found or not kinds <= {"scalar", "macro"}:
        raise ValueError(f"{text!r} has {name}, which is not a function of one row")
    if name in _UNSTABLE or any(
        kind == "scalar" and stability != "CONSISTENT" for kind, stability, _ in found
    ):
        raise ValueError(_unstable(text, name))
    for _, _, definition in found:
        if definition is None or name in seen:
            continue
        for part in _parts(_expression(connection, definition)):
            if part.get("class") == "FUNCTION":
                _check_function(connection, text, str(part["function_name"]).lower(), seen | {name})
            elif part.get("class") in _NOT_OF_A_ROW or _OF_THE_SESSION & {
                str(one).lower() for one in part.get("column_names", ())
            }:
                raise ValueError(_unstable(text, name))


def _unstable(text: str, name: str) -> str:
    return (
        f"{text!r} has {name}, which is not sure to give the same value again: a batch that lands a second time, or a dead letter "
        "that is replayed, would make another row"
    )
