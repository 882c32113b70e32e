"""Lays out answers for people: no name and no word is broken, however narrow the terminal is.

Rich breaks a word that is wider than its column, and a wide table has narrow columns at 80.  Here a table that does not fit leaves
out the columns that are 0 or empty in every row, and says so; if that is not enough, each row becomes a record of lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions
from rich.table import Table
from rich.text import Text

PIPE_WIDTH = 160
"""Of tables where no terminal is, for a pipe has no width of its own."""
_FRAME = 3
"""Characters that a table takes for each column, and one more for all."""
_BARE = frozenset({"", "0"})


class WholeWords(Console):
    """A console that breaks lines between words only; in a pipe, a paragraph is a line."""

    def print(self, *objects: Any, **how: Any) -> None:
        """Print as rich does, but leave a word whole that is wider than the terminal: who copies it gets all of it."""
        texts = [Text.from_markup(one, emoji=False) if isinstance(one, str) else one for one in objects]
        if self.is_terminal:
            texts = [
                Text("\n").join(_lines(one, self.width)) if isinstance(one, Text) else one for one in texts
            ]
        super().print(*texts, **{"soft_wrap": True, **how})


def console(*, stderr: bool = False) -> WholeWords:
    """The terminal, or a pipe."""
    made = WholeWords(stderr=stderr, highlight=False)
    return made if made.is_terminal else WholeWords(stderr=stderr, highlight=False, width=PIPE_WIDTH)


class Grid:
    """Rows under headings: a table where it fits, else a record of lines for each row."""

    def __init__(self, *columns: str) -> None:
        self.columns = columns
        self.rows: list[list[Text]] = []

    def add_row(self, *cells: str) -> None:
        """Add a row of texts in rich's markup, as many as there are columns."""
        row = [Text.from_markup(cell, emoji=False) for cell in cells]
        assert len(row) == len(self.columns)
        self.rows.append(row)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        every = range(len(self.columns))
        told = [at for at in every if at == 0 or not all(row[at].plain in _BARE for row in self.rows)]
        for shown in (every, told):
            widths = self._widths(shown, options.max_width)
            if widths is not None:
                yield self._table(shown, widths)
                left_out = ", ".join(self.columns[at] for at in every if at not in shown if self.columns[at])
                if left_out:
                    yield Text(f"0 or empty in every row: {left_out}", style="dim")
                return
        for row in self.rows:
            yield from self._record(row, options.max_width)
        yield Text("What is 0 or empty is left out.", style="dim")

    def _widths(self, shown: Sequence[int], width: int) -> list[int] | None:
        """The width of each column, of at least its longest word; None where they do not fit."""
        cells = [[Text(self.columns[at]), *(row[at] for row in self.rows)] for at in shown]
        found = [max(map(_longest, column)) for column in cells]
        whole = [max(_widest_line(cell) for cell in column) for column in cells]
        spare = width - 1 - _FRAME * len(found) - sum(found)
        if spare < 0:
            return None
        wanting = [at for at in range(len(found)) if found[at] < whole[at]]
        while spare and wanting:  # every column gets the same, until it has all that it can use
            for at in wanting[:spare]:
                found[at] += 1
                spare -= 1
            wanting = [at for at in wanting if found[at] < whole[at]]
        return found

    def _table(self, shown: Sequence[int], widths: Sequence[int]) -> Table:
        table = Table(show_lines=False, header_style="bold")
        for at, width in zip(shown, widths, strict=True):
            table.add_column(self.columns[at], width=width, overflow="fold")  # no word is wider
        for row in self.rows:
            table.add_row(*(row[at] for at in shown))
        return table

    def _record(self, row: Sequence[Text], width: int) -> Iterator[Text]:
        """The first cell as a heading, and a line for each that says something."""
        yield Text.assemble((self.columns[0], "dim"), " ", Text.assemble(row[0], style="bold"))
        said = [
            (name, cell) for name, cell in zip(self.columns, row, strict=True) if cell.plain not in _BARE
        ][1:]
        names = max((len(name) for name, _ in said), default=0)
        for name, cell in said:
            indent = next((one for one in (names + 4, 4) if _longest(cell) <= width - one), 0)
            lines = _lines(cell, width - indent)
            head = Text(f"  {name:{names}}  ", style="dim")
            if indent == names + 4:
                yield Text.assemble(head, lines.pop(0))
            elif name:
                yield Text(f"  {name}", style="dim")
            for line in lines:
                yield Text.assemble(" " * indent, line)


def _lines(text: Text, width: int) -> list[Text]:
    """A text in lines that are broken between words; one that is wider has a line of its own."""
    found = []
    for line in text.split("\n", allow_blank=True):
        breaks, column = [], 0
        for word in re.finditer(r"\s*\S+", line.plain):
            size = Text(word[0]).cell_len
            if column and column + size > width:
                breaks.append(word.end() - len(word[0].lstrip()))
                size = Text(word[0].lstrip()).cell_len
                column = 0
            column += size
        for part in line.divide(breaks):
            part.rstrip()
            found.append(part)
    return found


def _longest(text: Text) -> int:
    """Cells of the longest word."""
    return max((Text(word).cell_len for word in text.plain.split()), default=0)


def _widest_line(text: Text) -> int:
    return max((Text(line).cell_len for line in text.plain.splitlines()), default=0)
