"""One test for all cases of a rule: each is tried, and each that fails is shown by its name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def each(
    names: str | tuple[str, ...],
    cases: Iterable[Any],
    *,
    ids: Iterable[str] | Callable[[Any], str] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """``@pytest.mark.parametrize`` as a loop, for small cases that share their fixtures and leave them as they were.

    A test of pytest costs more than most refusals do, and every worker collects all of them.
    """
    columns = (names,) if isinstance(names, str) else names
    rows = [(case,) if isinstance(names, str) else tuple(case) for case in cases]
    texts = [ids(row[0]) for row in rows] if callable(ids) else list(ids or [repr(row) for row in rows])
    assert rows, "a rule without a case holds for nothing"
    assert len(texts) == len(rows)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        asked = [one for one in inspect.signature(test).parameters.values() if one.name not in columns]
        inner = any(one.name == "subtests" for one in asked)

        @functools.wraps(test)
        def loop(subtests: pytest.Subtests, **given: Any) -> None:
            if inner:
                given["subtests"] = subtests
            for text, row in zip(texts, rows, strict=True):
                with subtests.test(text):
                    test(**given, **dict(zip(columns, row, strict=True)))

        for_subtests = inspect.Parameter("subtests", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        loop.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [for_subtests, *(one for one in asked if one.name != "subtests")]
        )
        return loop

    return decorate
