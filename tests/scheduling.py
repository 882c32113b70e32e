"""Deals the tests of a whole run to the workers of pytest-xdist, and the work of compiling them."""

from __future__ import annotations

import importlib
import sys
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis.internal.constants_ast import constants_from_module, is_local_module_file
from xdist.scheduler import LoadGroupScheduling

ROOT = Path(__file__).parents[1]
LONG = (
    "stress",
    "stress-changes",
    "stress-lambda",
    "tests/mutants/test_mutants.py",
    "tests/stateful/test_machine.py",
    "tests/stateful/test_iceberg.py",
    "tests/stateful/test_groups.py",
    "tests/stateful/test_traces.py",
    "tests/medallion/test_kills.py",
    "tests/medallion/test_truth.py",
    "tests/medallion/test_bench.py",
    "tests/medallion/test_stories.py",
    "tests/medallion/test_example.py",
    "tests/medallion/test_s3.py",
    "tests/cdc/test_kills.py",
    "tests/cdc/test_worlds.py",
    "tests/cdc/test_option_worlds.py",
    "tests/cdc/test_by_tasks.py",
    "tests/cdc/test_by_tasks_rows.py",
    "tests/iceberg/test_crowds.py",
    "tests/iceberg/test_versions.py",
    "tests/iceberg/test_branches_lost_answers.py",
    "tests/integration/test_groups.py",
    "tests/integration/test_prefork.py",
    "tests/bench/test_generator.py",
    "tests/test_broken_off.py",
)
"""Groups and files of few tests that take long: begun last, one would keep one worker when the others have ended."""


class FilesOfTests(LoadGroupScheduling):
    """A file's tests go to one worker, as a group's do.

    What they share is made once, and not on every worker; and the controller, which looks through what a worker
    has been given whenever a test ends, looks through hundreds of files and not through thousands of tests.
    What has most tests begins first, behind it what takes long though it has few.
    """

    def schedule(self) -> None:
        """Deal the tests of a worker that has told of them; the first time the queue is made."""
        is_first = self.collection is None
        super().schedule()
        if is_first:
            long_first(self.workqueue)

    def _split_scope(self, nodeid: str) -> str:
        group: str = super()._split_scope(nodeid)
        return nodeid.partition("::")[0] if group == nodeid else group


def long_first(queue: OrderedDict[str, dict[str, bool]]) -> None:
    """Move to the front what takes long, in the order of the list."""
    for scope in reversed(LONG):
        if scope in queue:
            queue.move_to_end(scope, last=False)


def tell_only_news(plugins: pytest.PytestPluginManager) -> None:
    """Let a worker send the controller what a test came to, and not five messages for each that passes.

    Of a test that passes the controller prints a dot; that it begins, is set up, is torn down and ends changes nothing.
    """
    (worker,) = (one for one in plugins.get_plugins() if type(one).__name__ == "WorkerInteractor")
    send = worker.sendevent

    def news(name: str, **said: Any) -> None:
        if name in ("logstart", "logfinish"):
            return
        report = said.get("data", {})
        if name != "testreport" or report["when"] == "call" or report["outcome"] != "passed":
            send(name, **said)

    worker.sendevent = news


def import_from(share: int, shares: int) -> None:
    """Import all modules of tests, beginning at a share of them and going round.

    In a new clone pytest rewrites each of them, which takes as long as to collect its tests: all workers begin at
    once, so each would rewrite every one if all began with the first.  So it is with the constants of our modules,
    which Hypothesis draws: what one worker has read, the others find in its folder.
    """
    modules = sorted((ROOT / "tests").rglob("test_*.py"))
    for path in from_share(modules, share, shares):
        with suppress(Exception, pytest.skip.Exception):  # who collects them tells
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    ours = {
        file: module for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))
    }
    for file in from_share(sorted(filter(is_local_module_file, ours)), share, shares):
        constants_from_module(ours[file])


def from_share(things: list[Any], share: int, shares: int) -> list[Any]:
    """All of them, from the beginning of a share on."""
    first = len(things) * share // shares
    return things[first:] + things[:first]
