"""Makes the console that a bench prints to."""

from __future__ import annotations

from rich.console import Console

_FILE_WIDTH = 200
"""Columns of a log file, which has no width of its own; rich takes 80, and cuts the words of a wide table."""


def screen(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal, or as a log file can be."""
    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=_FILE_WIDTH)
