"""Reads the configuration of a job; every error names its field, and an unknown one the field that was meant."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.json_schema import GenerateJsonSchema

from safewrite.errors import InvalidInputError

Text = Annotated[str, Field(min_length=1)]


class Strict(BaseModel):
    """A part of a configuration: unknown fields are refused, and no value is taken for another kind."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )


ConfigT = TypeVar("ConfigT", bound=Strict)
NameT = TypeVar("NameT", str, tuple[str, str])


def read(
    given: Any, model: type[ConfigT], check: Callable[[dict[str, Any]], ConfigT], *, more: str
) -> ConfigT:
    """A configuration of a dict, of JSON text (it begins with a brace), or of a file's path.

    Args:
        check: makes a configuration of what was read.
        more: where a user finds all fields.

    Raises:
        InvalidInputError: each field that is wrong, and why.
    """
    path = path_of(given)
    try:
        if path is not None:
            given = path.read_text("utf-8-sig")
        if isinstance(given, str | bytes):
            given = json.loads(given, object_pairs_hook=_once)
        if not isinstance(given, Mapping):
            raise TypeError(f"it is not a JSON object but a {type(given).__name__}")
        return check(dict(given))
    except ValidationError as error:
        faults = [f"{_field(one['loc'])}: {_why(one, model)}" for one in error.errors()]
        raise refused(faults, more) from error
    except (OSError, TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"The configuration{f' {path}' if path else ''} cannot be read ({error}). Nothing was read or written. Give a file of JSON."
        ) from error


class _Schema(GenerateJsonSchema):
    """A function stands in JSON as the text that names it."""

    def callable_schema(self, schema: Any) -> dict[str, Any]:
        return {"type": "string"}


def json_schema_of(model: type[Strict]) -> dict[str, Any]:
    """The JSON schema of a configuration."""
    found = model.model_json_schema(schema_generator=_Schema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


def twice(names: Sequence[NameT]) -> list[NameT]:
    """What stands more than once in a list that has each thing once."""
    return sorted({one for one in names if names.count(one) > 1})


def path_of(given: object) -> Path | None:
    """The path that a configuration is given by; None where it is given itself."""
    is_json = isinstance(given, str) and given.lstrip().startswith("{")
    return Path(given) if isinstance(given, str | Path) and not is_json else None


def refused(faults: Sequence[str], more: str) -> InvalidInputError:
    """The error that lists all faults of a configuration."""
    lines = "".join(f"\n  {one}" for one in faults)
    return InvalidInputError(
        f"The configuration has {len(faults)} fault{'s' * (len(faults) > 1)}:{lines}\nNothing was read or written. Correct these "
        f"fields; {more}."
    )


def from_environment(value: str, name: str) -> str:
    """The value itself, or of ``env:NAME`` what the environment has.

    Raises:
        InvalidInputError: the variable is not set.
    """
    variable = value.removeprefix("env:")
    if variable == value:
        return value
    if variable not in os.environ:
        raise InvalidInputError(
            f"{name} is in the environment variable {variable}, which is not set. Nothing was read or written. Set it."
        )
    return os.environ[variable]


def resolved(given: Mapping[str, str], field: str) -> dict[str, str]:
    """Settings with what the environment has in the place of each ``env:NAME``.  Raises as :func:`from_environment`."""
    return {name: from_environment(value, f"{field}.{name}") for name, value in given.items()}


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON lets a name come twice, and readers keep the last: a table would be left out in silence."""
    if again := twice([name for name, _ in pairs]):
        raise ValueError(f"{again} comes twice in one object")
    return dict(pairs)


def _field(where: tuple[int | str, ...]) -> str:
    # A field of several kinds has one fault for each, named after it in brackets.
    return ".".join(str(part) for part in where if "[" not in str(part)) or "(whole)"


def _why(fault: Any, model: type[BaseModel]) -> str:
    *place, name = fault["loc"] or [""]
    if fault["type"] != "extra_forbidden":
        return str(fault["msg"]).removeprefix("Value error, ").rstrip(".")
    return f"there is no such field{meant(str(name), _fields_at(model, place))}"


def meant(name: str, known: Iterable[str]) -> str:
    """What an error about an unknown name says of the known one that was probably meant; empty where none is near."""
    near = get_close_matches(name, sorted(known), 1)
    return f"; did you mean {near[0]}?" if near else ""


def _fields_at(model: type[BaseModel], place: Sequence[int | str]) -> list[str]:
    """The fields of the part of a configuration that stands at a place."""
    for part in place:
        field = model.model_fields.get(str(part))
        model = model if field is None else next(_parts(field.annotation), model)
    return [field.alias or name for name, field in model.model_fields.items()]


def _parts(kind: Any) -> Iterator[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for one in get_args(kind):
        yield from _parts(one)
