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
    "spark",
    "stress",
    "tests/cli/test_matrix.py",
    "tests/mutants/test_mutants.py",
    "tests/upkeep/test_delta.py",
    "tests/iceberg/test_kill_points.py",
    "tests/cdc/test_column_batches.py",
    "tests/test_every_call.py",
    "tests/changes/test_where_beside_rivals.py",
    "tests/test_row_changes.py",
    "tests/bench/test_proxy.py",
    "tests/bench/test_aws_lambda.py",
    "tests/medallion/test_tasks.py",
    "tests/integration/test_lost_answers.py",
    "tests/medallion/test_lead_over.py",
    "tests/iceberg/test_v3_appends.py",
    "tests/cdc/test_column_batches_bare.py",
    "tests/testing/test_crosscheck.py",
    "tests/bench/test_perf_iceberg.py",
    "tests/mutants/test_protections.py",
    "tests/medallion/test_silver_tasks.py",
    "tests/testing/test_explorer.py",
    "tests/medallion/test_kills.py",
    "tests/iceberg/test_late_and_gone.py",
    "tests/upkeep/test_iceberg.py",
    "tests/cdc/test_schemas.py",
    "tests/iceberg/test_v3_changes.py",
    "tests/test_repository.py",
    "tests/medallion/test_summary.py",
    "tests/bench/test_catalogs.py",
    "tests/medallion/test_outside.py",
    "tests/changes/test_tables.py",
    "tests/cdc/test_landing.py",
    "tests/medallion/test_sync.py",
    "tests/aws_lambda/test_examples.py",
    "tests/medallion/test_jobs.py",
    "tests/cdc/test_unavailable_values.py",
    "tests/medallion/test_gaps.py",
    "tests/test_cli_help.py",
    "tests/medallion/test_truth.py",
    "tests/test_canaries.py",
    "tests/integration/test_kill_points.py",
    "tests/delta/test_row_ids.py",
)
"""Groups and files that take longer than others, the longest first: begun last, one would keep one worker when the others have ended."""


class FilesOfTests(LoadGroupScheduling):
    """A file's tests go to one worker, as a group's do.

    What they share is made once, and not on every worker; and the controller, which looks through what a worker
    has been given whenever a test ends, looks through hundreds of files and not through thousands of tests.
    What takes longest begins first, then what has most tests.
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
