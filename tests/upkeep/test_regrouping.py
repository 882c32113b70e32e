"""Rows of old files are found in the new ones that they were put together in."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safewrite.errors import InternalError
from safewrite.table.regrouping import Regrouped


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[int], list[int], list[list[int]]]:
    """The rows of old files and of new ones, and which rows of each old file are gone."""
    counts = draw(st.lists(st.integers(0, 6), max_size=5))
    cuts = sorted(draw(st.lists(st.integers(0, sum(counts)), max_size=4)))
    ends = [0, *cuts, sum(counts)]
    gone = [sorted(draw(st.sets(st.integers(0, count - 1)))) if count else [] for count in counts]
    return counts, [after - before for before, after in pairwise(ends)], gone


@given(groups())
def test_a_row_is_where_the_rows_before_it_leave_it(
    made: tuple[list[int], list[int], list[list[int]]],
) -> None:
    """The oracle numbers each row, and deals the numbers out."""
    counts, sizes, gone = made
    names = [(file, row) for file, count in enumerate(counts) for row in range(count)]
    wanted, first = {}, 0
    for number, size in enumerate(sizes):
        places = [at for at, (file, row) in enumerate(names[first : first + size]) if row in gone[file]]
        wanted |= {number: places} if places else {}
        first += size
    one: Regrouped[str, str, None] = Regrouped((), (), tuple(counts), tuple(sizes))
    asked = {file: np.array(rows, np.int64) for file, rows in enumerate(gone) if rows}
    assert {number: places.tolist() for number, places in one.moved(asked).items()} == wanted


def test_files_with_other_rows_than_were_read_are_refused() -> None:
    with pytest.raises(InternalError, match="3 rows were read to be put together, and 2 written"):
        Regrouped((), (), (1, 2), (2,))
