"""What the workers of the test suite do first, and what they send to the controller."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

from tests.conftest import together
from tests.scheduling import LONG, ROOT, from_share, long_first, tell_only_news


def test_what_takes_long_goes_first_and_the_others_keep_their_order() -> None:
    queue: OrderedDict[str, dict[str, bool]] = OrderedDict(
        (name, {}) for name in ("many", "few", LONG[2], LONG[0])
    )
    long_first(queue)
    assert list(queue) == [LONG[0], LONG[2], "many", "few"]


def test_each_file_and_group_that_takes_long_is_there() -> None:
    files = [name for name in LONG if name.endswith(".py")]
    assert [name for name in files if not (ROOT / name).is_file()] == []
    places = [ROOT / "tests" / "conftest.py", *(ROOT / "tests" / "bench").glob("test_*.py")]
    texts = "".join(path.read_text() for path in places)
    assert [name for name in LONG if name not in files and f'xdist_group("{name}")' not in texts] == []


def test_files_of_one_folder_are_collected_together() -> None:
    """pytest finds no fixture of ``tests/iceberg/conftest.py`` for the second file of a folder else."""
    asked = ["tests/iceberg/test_a.py", "tests/test_b.py", "tests/iceberg/test_c.py::test_d", "tests/cdc"]
    assert together(asked) == [asked[0], asked[2], asked[1], asked[3]]


class WorkerInteractor:
    """As pytest-xdist's: it sends what happens."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def sendevent(self, name: str, **said: Any) -> None:
        data = said.get("data", {})
        self.sent.append(" ".join((name, *data.values())))


def test_workers_begin_at_their_share_and_leave_nothing_out() -> None:
    things = list(range(7))
    assert [from_share(things, share, 3)[0] for share in range(3)] == [0, 2, 4]
    assert all(sorted(from_share(things, share, 3)) == things for share in range(3))


def test_of_a_test_that_passes_one_message_is_sent_and_of_others_each_that_says_why() -> None:
    worker, plugins = WorkerInteractor(), pytest.PytestPluginManager()
    plugins.register(worker)
    tell_only_news(plugins)
    worker.sendevent("logstart", nodeid="one")
    for when in ("setup", "call", "teardown"):
        for outcome in ("passed", "failed", "skipped"):
            worker.sendevent("testreport", data={"when": when, "outcome": outcome})
    worker.sendevent("logfinish", nodeid="one")
    worker.sendevent("runtest_protocol_complete", item_index=0)
    assert worker.sent == [
        "testreport setup failed",
        "testreport setup skipped",
        "testreport call passed",
        "testreport call failed",
        "testreport call skipped",
        "testreport teardown failed",
        "testreport teardown skipped",
        "runtest_protocol_complete",
    ]
