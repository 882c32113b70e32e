"""Reads the table mappings of a DMS task: which tables its files are of, under which names, and with which columns besides."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from safewrite.errors import InvalidInputError

_SEQ, _TIMES = "$AR_H_CHANGE_SEQ", ("$AR_H_COMMIT_TIMESTAMP", "$AR_H_TIMESTAMP")
_CASES = {"convert-lowercase": str.lower, "convert-uppercase": str.upper}


@dataclass
class MappedTable:
    """A table of the task: its names at the source and in the files, and what rules do to its columns."""

    source: tuple[str, str]
    target: tuple[str, str]
    filtered: bool = False
    rules: list[Mapping[str, Any]] = field(default_factory=list)
    """The rules for its columns, in their order."""

    @property
    def name(self) -> str:
        """The name in files, as ``schema.table``."""
        return ".".join(self.target)

    def column(self, name: str) -> str | None:
        """The name of a source's column in files; None for one that they lack."""
        for rule in self.rules:
            named = str(rule["object-locator"].get("column-name", "%"))
            if rule["rule-action"] == "remove-column" and _is_like(name, named):
                return None
            if rule["rule-action"] == "include-column" and not any(
                _is_like(name, str(one["object-locator"].get("column-name", "%")))
                for one in self.rules
                if one["rule-action"] == "include-column"
            ):
                return None
        for rule in self.rules:
            if _is_like(name, str(rule["object-locator"].get("column-name", "%"))):
                name = _renamed(name, rule)
        return name

    def added(self) -> Iterator[tuple[str, str]]:
        """Columns that rules add, and the expression of each."""
        for rule in self.rules:
            if rule["rule-action"] == "add-column":
                yield str(rule.get("value")), str(rule.get("expression", ""))

    @property
    def change_seq(self) -> str | None:
        """The column of AR_H_CHANGE_SEQ."""
        return next((name for name, said in self.added() if said == _SEQ), None)

    @property
    def commit_time(self) -> str | None:
        """A column of the commit time that a rule adds."""
        return next((name for name, said in self.added() if said in _TIMES), None)

    @property
    def before_image(self) -> Mapping[str, Any] | None:
        """How columns with the values before an update are called; None without."""
        found = (one for one in self.rules if one["rule-action"] == "add-before-image-columns")
        rule = next(found, None)
        return None if rule is None else dict(rule.get("before-image-def") or {})

    @property
    def declared_key(self) -> list[str]:
        """The key that a rule gives the table in the target."""
        for rule in self.rules:
            given = rule.get("primary-key-def")
            if rule["rule-action"] == "define-primary-key" and isinstance(given, Mapping):
                return [str(one) for one in given.get("columns", ())]
        return []


@dataclass
class Mappings:
    """The rules of a task."""

    rules: Sequence[Mapping[str, Any]]

    def tables(self, known: Sequence[str]) -> tuple[list[MappedTable], list[str]]:
        """The tables that rules select, of those that they name and of those that are known; and patterns that select none."""
        included = [rule for rule in self._of("selection") if rule["rule-action"] in ("include", "explicit")]
        excluded = [rule for rule in self._of("selection") if rule["rule-action"] == "exclude"]
        found: dict[tuple[str, str], MappedTable] = {}
        open_patterns = []
        for rule in included:
            schema, table = _named(rule)
            names = [(one.partition(".")[0], one.partition(".")[2]) for one in known]
            if "%" not in schema + table:
                names.append((schema, table))
            fits = [one for one in names if _is_like(one[0], schema) and _is_like(one[1], table)]
            fits = [one for one in fits if not any(_selects(other, one) for other in excluded)]
            if not fits:
                open_patterns.append(f"{schema}.{table}")
            for one in fits:
                mapped = found.setdefault(one, self._mapped(one))
                mapped.filtered |= bool(rule.get("filters"))
        return sorted(found.values(), key=lambda one: one.name), open_patterns

    def _of(self, kind: str) -> list[Mapping[str, Any]]:
        return [rule for rule in self.rules if rule.get("rule-type") == kind]

    def _mapped(self, source: tuple[str, str]) -> MappedTable:
        schema, table = source
        mapped = MappedTable(source, source)
        for rule in self._of("transformation"):
            if not _selects(rule, source):
                continue
            target = rule.get("rule-target")
            if target == "schema":
                schema = _renamed(schema, rule)
            elif target == "table" and rule["rule-action"] != "define-primary-key":
                table = _renamed(table, rule)
            else:
                mapped.rules.append(rule)
        mapped.target = schema, table
        return mapped


def mappings(given: Any) -> Mappings:
    """The rules of a document of table mappings.

    Raises:
        InvalidInputError: it is none.
    """
    rules = given.get("rules") if isinstance(given, Mapping) else None
    if not isinstance(rules, list) or not all(
        isinstance(one, Mapping)
        and (one.get("rule-type") == "table-settings" or "rule-action" in one)
        and isinstance(one.get("object-locator"), Mapping)
        for one in rules
    ):
        raise InvalidInputError(
            'The table mappings are not an object with "rules", each with rule-type, rule-action and object-locator. Nothing was written. Give what '
            "`aws dms describe-replication-tasks` says of the task."
        )
    return Mappings(rules)


def _named(rule: Mapping[str, Any]) -> tuple[str, str]:
    where = rule["object-locator"]
    return str(where.get("schema-name", "%")), str(where.get("table-name", "%"))


def _selects(rule: Mapping[str, Any], name: tuple[str, str]) -> bool:
    schema, table = _named(rule)
    return _is_like(name[0], schema) and _is_like(name[1], table)


def _is_like(name: str, pattern: str) -> bool:
    """DMS's patterns: % stands for any letters, _ for one, [_] for itself."""
    parts = re.split(r"(\[_\]|%|_)", pattern)
    letters = {"%": ".*", "_": ".", "[_]": "_"}
    return (
        re.fullmatch("".join(letters.get(one) or re.escape(one) for one in parts), name, re.DOTALL)
        is not None
    )


def _renamed(name: str, rule: Mapping[str, Any]) -> str:
    action, value, old = str(rule["rule-action"]), str(rule.get("value", "")), str(rule.get("old-value", ""))
    if action in _CASES:
        return _CASES[action](name)
    changed = {
        "rename": value,
        "add-prefix": value + name,
        "add-suffix": name + value,
        "remove-prefix": name.removeprefix(value),
        "remove-suffix": name.removesuffix(value),
        "replace-prefix": value + name.removeprefix(old) if name.startswith(old) else name,
        "replace-suffix": name.removesuffix(old) + value if name.endswith(old) else name,
    }
    return changed.get(action, name)
