"""The list of table features in the docs is that of the code."""

from __future__ import annotations

import re
from pathlib import Path

from safewrite.delta.log import features as known
from safewrite.iceberg import features as iceberg

PAGE = Path(__file__).parents[2] / "docs" / "refused.md"
NO_FEATURES = {"types", "statistics", "coordinatedCommits", "char and varchar", "copies for other readers"}
"""Rules that rest on the metadata alone."""


def listed() -> dict[str, tuple[str, str]]:
    """What the code does with each feature: read, written."""
    found = {}
    for name in sorted({*known.REFUSED, *known.HONOURED, *known.READ} - NO_FEATURES):
        if name in known.CLOSED:
            read = "refused"
        else:
            read = "unless a reason above holds" if name in known.READING_RULES else "yes"
        if name in known.REFUSED:
            written = "refused"
        else:
            written = "unless a reason above holds" if name in {*known.RULES, *known.BY_COLUMN} else "yes"
        found[name] = (read, written)
    return found


def test_y5_the_list_of_delta_features_is_that_of_the_code() -> None:
    section = PAGE.read_text().partition("### Feature by feature")[2].partition("\n## ")[0]
    told: dict[str, tuple[str, str]] = {}
    for names, read, written in re.findall(r"^\| (`.*?`) \| (.*?) \| (.*?) \|$", section, re.MULTILINE):
        told |= dict.fromkeys(re.findall(r"`([^`]+)`", names), (read, written))
    assert told == listed()


def test_y5_each_reason_of_iceberg_has_a_way_out() -> None:
    assert {*iceberg.READING_RULES, *iceberg.RULES} == {*iceberg.WAYS_OUT}
