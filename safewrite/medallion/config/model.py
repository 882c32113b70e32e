"""What all parts of a configuration share: unknown fields are refused, and no value is taken for another kind."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from safewrite.errors import InvalidInputError

Text = Annotated[str, Field(min_length=1)]
STRICT = ConfigDict(
    extra="forbid",
    frozen=True,
    strict=True,
    allow_inf_nan=False,
    hide_input_in_errors=True,
    use_attribute_docstrings=True,
)
"""The ``model_config`` of every part."""


def resolved(given: Mapping[str, str], field: str) -> dict[str, str]:
    """Settings with what the environment has in the place of each ``env:NAME``.

    Raises:
        InvalidInputError: a variable is not set.
    """
    found = {}
    for name, value in given.items():
        variable = value.removeprefix("env:")
        if variable != value and variable not in os.environ:
            raise InvalidInputError(
                f"{field}.{name} is in the environment variable {variable}, which is not set. Nothing was read or written. Set it."
            )
        found[name] = value if variable == value else os.environ[variable]
    return found


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON lets a name come twice, and readers keep the last: a table would be left out in silence."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"{twice} comes twice in one object")
    return found
