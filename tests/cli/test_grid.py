"""How answers are laid out: no name and no word is broken, and nothing is left out unsaid."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safewrite.cli.grid import Grid, WholeWords

RUN = ("table", "files", "rows", "landed", "quarantined", "silver took", "what became of them", "lag, s", "")
CUSTOMERS = ("shop.customers", "1", "2", "2", "0", "2", "2 inserted", "0", "")


def shown(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int = 80) -> str:
    grid = Grid(*columns)
    for row in rows:
        grid.add_row(*row)
    out = io.StringIO()
    WholeWords(file=out, width=width, force_terminal=True, color_system=None).print(grid)
    return out.getvalue()


def words(text: str) -> list[str]:
    return re.sub(r"[┏━┳┓┃┡╇┩│└─┴┘]", " ", text).split()


def test_t4_e4_a_table_that_fits_is_shown_whole() -> None:
    printed = shown(("table", "rows"), [("shop.orders", "0")])
    assert [*words(printed)] == ["table", "rows", "shop.orders", "0"]


def test_t4_e4_columns_of_zeros_give_way_to_names_and_are_named() -> None:
    """T4-E4: at 80 columns the table's name was broken in three."""
    printed = shown(RUN, [CUSTOMERS])
    assert {"shop.customers", "inserted"} <= set(words(printed))
    assert "0 or empty in every row: quarantined, lag, s\n" in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_t4_e4_a_column_that_says_something_in_one_row_is_there_for_all() -> None:
    printed = shown(RUN, [CUSTOMERS, (*CUSTOMERS[:4], "7", *CUSTOMERS[5:])], width=86)
    assert {"quarantined", "7"} <= set(words(printed))


def test_t4_e4_rows_that_fit_in_no_table_become_records() -> None:
    key = "medallion/shop/shop.customers/bronze/0943e131-aec5-4704-bb02-bfb95ecb815e/None/new/1/0"
    printed = shown(
        ("version", "operation", "removed", "writes"), [("7", "MERGE", "0", key), ("6", "WRITE", "2", "k")]
    )
    assert printed.splitlines() == [
        "version 7",
        "  operation  MERGE",
        "  writes",
        key,
        "version 6",
        "  operation  WRITE",
        "  removed    2",
        "  writes     k",
        "What is 0 or empty is left out.",
    ]


@given(
    st.lists(st.lists(st.text("ab:/ ", max_size=40), min_size=3, max_size=3), max_size=4),
    st.integers(min_value=1, max_value=60),
)
def test_t4_e4_no_word_is_broken_at_any_width(rows: list[list[str]], width: int) -> None:
    columns = ("first one", "second", "third")
    said = {
        *[
            "0",
            "or",
            "empty",
            "in",
            "every",
            "row:",
            "What",
            "is",
            "left",
            "out.",
            "first",
            "one",
            "second,",
            "second",
            "third",
        ]
    }
    said |= {word for row in rows for cell in row for word in cell.split()}
    assert set(words(shown(columns, rows, width))) <= said


@given(st.text("ab [:]\n", max_size=200), st.integers(min_value=1, max_value=60))
def test_t4_e4_prose_is_broken_between_words_only(text: str, width: int) -> None:
    from rich.text import Text

    out = io.StringIO()
    WholeWords(file=out, width=width, force_terminal=True, color_system=None).print(Text(text))
    assert out.getvalue().split() == text.split()
    assert all(len(line) <= width or " " not in line.strip() for line in out.getvalue().splitlines())


@pytest.mark.parametrize("width", [20, 400])
def test_a_paragraph_in_a_pipe_is_one_line(width: int) -> None:
    out = io.StringIO()
    WholeWords(file=out, width=width).print("[bold]a[/] word :bug: " * 40)
    assert len(out.getvalue().splitlines()) == 1
    assert ":bug:" in out.getvalue()
