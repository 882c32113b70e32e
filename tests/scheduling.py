"""Deals the tests of a whole run to the workers of pytest-xdist, and the work of compiling them."""

from __future__ import annotations

import importlib
from contextlib import suppress
from pathlib import Path

import pytest
from xdist.scheduler import LoadGroupScheduling

ROOT = Path(__file__).parents[1]


class FilesOfTests(LoadGroupScheduling):
    """A file's tests go to one worker, as a group's do.

    What they share is made once, and not on every worker; and the controller, which looks through what a worker
    has been given whenever a test ends, looks through hundreds of files and not through thousands of tests.
    """

    def _split_scope(self, nodeid: str) -> str:
        group: str = super()._split_scope(nodeid)
        return nodeid.partition("::")[0] if group == nodeid else group


def import_from(share: int, shares: int) -> None:
    """Import all modules of tests, beginning at a share of them and going round.

    In a new clone pytest rewrites each of them, which takes as long as to collect its tests: all workers begin at
    once, so each would rewrite every one if all began with the first.
    """
    modules = sorted((ROOT / "tests").rglob("test_*.py"))
    first = len(modules) * share // shares
    for path in modules[first:] + modules[:first]:
        with suppress(Exception, pytest.skip.Exception):  # who collects them tells
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
