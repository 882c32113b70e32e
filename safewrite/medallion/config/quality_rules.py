"""Defines the quality rules of a table: for the rows of a batch, and for what silver would become."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from safewrite.intake.settings import Strict, Text


def _function(given: Any) -> Any:
    """A function, or the one that ``package.module:function`` names."""
    if not isinstance(given, str):
        if not callable(given):
            raise ValueError("it is neither a function nor the text 'package.module:function'")
        return given
    module, _, name = given.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{given!r} cannot be imported as package.module:function: {error}") from error
    return found


Function = Annotated[Callable[..., Any], BeforeValidator(_function)]
Share = Annotated[float, Field(ge=0, le=1)]


class Result(Strict):
    """What the rows that a commit would write to silver must be like; else the table fails, and silver stays as it was."""

    conditions: list[Text] = Field(default_factory=list)
    """SQL of a row."""
    failed_share_max: Share = 0.0
    """So large a share of the rows may break a condition."""
    null_share_max: dict[Text, Share] = Field(default_factory=dict)
    deleted_max: Annotated[int, Field(ge=0)] | None = None
    """One commit may delete at most this many rows."""
    queries: list[Text] = Field(default_factory=list)
    """SQL that answers with true, over the table ``result``."""
    functions: list[Function] = Field(default_factory=list)
    """Called with an Arrow table and the counts of the commit; a text says why not."""


class Quality(Strict):
    """What a batch must be like before silver takes it."""

    not_null: list[Text] = Field(default_factory=list)
    ranges: dict[Text, Annotated[list[float | None], Field(min_length=2, max_length=2)]] = Field(
        default_factory=dict
    )
    """Lowest and highest value of a column; null for no bound."""
    conditions: list[Text] = Field(default_factory=list)
    """SQL, as DuckDB reads it, such as ``price >= 0``: a row for which it is false is quarantined."""
    functions: list[Function] = Field(default_factory=list)
    """Called with an Arrow table of new rows; says of each whether it is good."""
    result: Result = Result()
    null_share_max: dict[Text, Share] = Field(default_factory=dict)
    """So large a share of a batch may have NULL in a column; beyond it the table fails."""
    quarantined_share_max: Share = 0.1
    """So large a share of a batch may be quarantined; beyond it the table fails and nothing is written."""
