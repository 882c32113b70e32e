"""Writes what the schema says of each field into the pages of configuration: ``make config-docs``.

Each field has a heading, and below it a paragraph that is made from the schema.  What follows up to the next heading is
written by hand, and stays.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safewrite.intake.settings import Strict, json_schema_of
from safewrite.intake.tables import TableAccess

DOCS = Path(__file__).parent.parent / "docs"
START, END = "<!-- fields -->", "<!-- end of fields -->"
_PLAIN = {"string": "text", "integer": "whole number", "number": "number", "boolean": "`true` or `false`"}
_TABLE = "table."
"""Stands before the fields of one of the job's tables."""


def schemas() -> dict[Path, dict[str, Any]]:
    """The JSON schema behind each page."""
    from safewrite.cdc.config import Config as ChangeData
    from safewrite.medallion.config import Config as Medallion

    pages: dict[str, type[Strict]] = {"cdc": ChangeData, "medallion": Medallion}
    return {DOCS / name / "configuration.md": json_schema_of(model) for name, model in pages.items()}


def fields(schema: dict[str, Any]) -> dict[str, dict[str, str]]:
    """The heading of each field and its paragraph, by section, in the order of the schema."""
    found = dict(_walk(schema, schema["$defs"], ""))
    job = {name: text for name, text in found.items() if not name.startswith(_TABLE)}
    table = {name.removeprefix(_TABLE): text for name, text in found.items() if name.startswith(_TABLE)}
    return {"Fields of the job": job, "Fields of a table": table}


def _walk(node: dict[str, Any], models: dict[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    access = [name for name in TableAccess.model_fields if name in node["properties"]]
    of_job = {name: field for name, field in node["properties"].items() if name not in access}
    for name, field in (of_job | {name: node["properties"][name] for name in access}).items():
        inner = _table_of(field, models) if name == "tables" else _model_of(field, models)
        if inner is not None:
            below = _TABLE if name == "tables" else f"{prefix}{name}."
            yield from _walk(inner, models, below)
        else:
            yield f"{prefix}{name}", _paragraph(field, models, needed=name in node.get("required", ()))


def _model_of(field: dict[str, Any], models: dict[str, Any]) -> dict[str, Any] | None:
    """The model of a field that is an object with fields of its own; what ``defaults`` holds stands under the tables."""
    named = [one["$ref"] for one in (field, *field.get("anyOf", ())) if "$ref" in one]
    model: dict[str, Any] | None = models[named[0].rpartition("/")[2]] if named else None
    return None if model is None or model.get("title") == "TableOptions" else model


def _table_of(field: dict[str, Any], models: dict[str, Any]) -> dict[str, Any] | None:
    inner = field.get("items") or next(
        iter(field.get("patternProperties", {"": field.get("additionalProperties")}).values())
    )
    return _model_of(inner, models)


def _paragraph(field: dict[str, Any], models: dict[str, Any], *, needed: bool) -> str:
    default = field.get("default")
    rest = "required" if needed else "" if default in (None, [], {}, "") else f"default {_shown(default)}"
    said = " ".join(field.get("description", "").replace("``", "`").split())
    said = said[0].upper() + said[1:] if re.match(r"[a-z]+ ", said) else said
    said = f" {said.rstrip('.')}." if said else ""
    return f"*{', '.join(filter(None, (_kind(field, models), rest)))}.*{said}"


def _kind(field: dict[str, Any], models: dict[str, Any]) -> str:
    """What a value of the field is, in words."""
    if "$ref" in field:
        return "the fields of a table but those that say which"
    if "anyOf" in field:
        kinds = dict.fromkeys(_kind(one, models) for one in field["anyOf"] if one.get("type") != "null")
        return ", or ".join(kinds)
    values = field.get("enum") or ([field["const"]] if "const" in field else None)
    if values is not None:
        *most, last = (f"`{value}`" for value in values)
        return f"{', '.join(most)} or {last}" if most else last
    if field.get("type") == "array":
        parts = field.get("prefixItems")
        inner = (
            ", ".join(_kind(one, models) for one in parts) if parts else _kind(field.get("items", {}), models)
        )
        return f"list of {inner}" if inner else "list"
    if field.get("type") == "object":
        value = field.get("additionalProperties") or next(
            iter(field.get("patternProperties", {}).values()), {}
        )
        inner = _kind(value, models) if isinstance(value, dict) else ""
        return f"object of {inner}" if inner else "object"
    return _PLAIN[field["type"]] + _bounds(field) if "type" in field else ""


def _bounds(field: dict[str, Any]) -> str:
    low, high = field.get("minimum"), field.get("maximum")
    if field.get("exclusiveMinimum") is not None:
        return f" above {field['exclusiveMinimum']}"
    if low is not None and high is not None and high < 2**62:
        return f" from {low} to {high}"
    return "" if low is None else f" from {low} on"


def _shown(value: object) -> str:
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def written(page: str, schema: dict[str, Any]) -> str:
    """The page with the paragraphs of today; text by hand of a field that is gone is kept under its heading, and told of by the test."""
    head, _, rest = page.partition(START)
    middle, _, tail = rest.partition(END)
    by_hand = {
        heading: text.strip().partition("\n\n")[2].strip()
        for heading, text in re.findall(r"^### `([^`]+)`\n(.*?)(?=^##|\Z)", middle, re.MULTILINE | re.DOTALL)
    }
    parts = []
    for section, found in fields(schema).items():
        parts.append(f"## {section}")
        for name, paragraph in found.items():
            parts.append("\n\n".join(filter(None, (f"### `{name}`", paragraph, by_hand.pop(name, "")))))
    left = [f"### `{name}`\n\n{text}" for name, text in by_hand.items() if text]
    return "\n\n".join([head + START, *parts, *left, END + tail])


def main() -> None:
    for path, schema in schemas().items():
        page = path.read_text()
        new = written(page, schema)
        if new != page:
            path.write_text(new)
            sys.stdout.write(f"{path.relative_to(DOCS.parent)}\n")


if __name__ == "__main__":
    main()
