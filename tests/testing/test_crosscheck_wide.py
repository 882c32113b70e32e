"""The differential machine on wide tables: sound code passes, and work that grows as the square of the columns is found."""

from __future__ import annotations

from typing import Any

import pytest

from safewrite.delta.log import features
from safewrite.testing.crosscheck.draw import Format
from safewrite.testing.crosscheck.wide import check_wide

pytestmark = pytest.mark.filterwarnings("ignore")  # the other engines' own


@pytest.mark.parametrize(
    ("format_", "seeds", "columns"),
    [
        ("delta", range(1, 2), 200),
        pytest.param("iceberg", range(1, 2), 40, marks=pytest.mark.long),
        pytest.param("delta", range(1, 12), 1000, marks=pytest.mark.long),
        pytest.param("iceberg", range(1, 12), 1000, marks=pytest.mark.long),
    ],
)
def test_programs_on_wide_tables_agree_and_work_in_proportion_to_the_columns(
    format_: Format, seeds: range, columns: int
) -> None:
    verdict = check_wide(format_, seeds=seeds, columns=columns)
    assert [str(failed) for failed in verdict.failed] == []
    assert verdict.tally.total() > 2 * len(seeds)


@pytest.mark.long
def test_work_that_grows_as_the_square_of_the_columns_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    known = features._columns

    def again(state: Any) -> Any:
        for _ in known(state):
            for _ in known(state):
                known(state)
        return known(state)

    monkeypatch.setattr(features, "_columns", again)
    (failed,) = check_wide("delta", seeds=[1], columns=60).failed
    assert "4 times the columns are" in failed.said
    assert "features" in failed.said
