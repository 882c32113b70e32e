"""Draws what jobs report as HTML pages of one kind: a sentence at the top, what is late or failed in colour, plots of earlier runs.

A page is one file, without scripts and without links to anything outside.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from safewrite.errors import MissingExtraError

Verdict = Literal["good", "warn", "bad"]
ORDER: Mapping[Verdict, int] = {"bad": 0, "warn": 1, "good": 2}
"""The worst first."""
Point: TypeAlias = tuple[str, float, str, bool]
"""A value of a plot: its label, the value, the value as text, and whether it is bad."""


def page(
    template: Path, *, verdict: Verdict, sentence: str, about: str, at: dt.datetime, extra: str, **values: Any
) -> str:
    """A page by a template that extends ``page.html.j2``.

    Args:
        verdict: colours the badge at the top.
        sentence: says how things stand.
        about: what the page is about.
        at: when that was.
        extra: the extra that brings Jinja to who draws the page.

    Raises:
        MissingExtraError: Jinja is not installed.
    """
    return drawn(
        template,
        extra,
        {"age": age, "count": counted},
        title=f"{about}: {sentence}",
        verdict=verdict,
        sentence=sentence,
        about=about,
        at=at.isoformat(sep=" ", timespec="seconds"),
        **values,
    )


def drawn(template: Path, extra: str, filters: Mapping[str, Any], *, title: str, **values: Any) -> str:
    """A page by a template that extends ``page.html.j2``, and has a head of its own where it is not given what that one shows.

    Raises:
        MissingExtraError: Jinja is not installed.
    """
    try:
        import jinja2
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"The page needs Jinja: {MissingExtraError.command(extra)}. All else is done."
        ) from error
    folders = [template.parent, Path(__file__).parent / "templates"]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= filters
    return environment.get_template(template.name).render(title=title, **values)


def age(seconds: float) -> str:
    """An age in its greatest unit; empty for none."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds else ""


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number and what it counts: ``1 table``, ``2 tables``."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def sentence(said: Iterable[str]) -> str:
    """Parts of a sentence as one."""
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}."


def age_or_none(seconds: float) -> str:
    """An age as the text of a plot's value."""
    return age(seconds) or "none"


whole = "{:,.0f}".format
"""A number without a fraction as the text of a plot's value."""
