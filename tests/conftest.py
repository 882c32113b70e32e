"""Settings that every test shares: Hypothesis profiles and the local servers; and what saves all of them time."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import resource
import sys
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import botocore.session
import pytest
import typer.testing
from botocore.loaders import Loader, create_loader
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from safewrite.protocol.ask import Limits

pytest_plugins = ["tests.servers"]

# No deadlines: the machine is shared, and a slow example is no finding.
settings.register_profile(
    "random", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
# The gate's: few, and what passes on one day passes on any.  What random ones find in the sweep becomes an ``@example``.
settings.register_profile(
    "default", settings.get_profile("random"), derandomize=True, database=None, max_examples=12
)
settings.register_profile(
    "nightly", settings.get_profile("random"), max_examples=5_000, stateful_step_count=200
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
if settings().derandomize:
    # Else draws follow the numbers and texts of whatever modules of this repository are loaded by then.
    providers._get_local_constants = lambda: providers._local_constants


WORKERS_MB: list[tuple[int, int]] = []
"""Resident memory of each worker of pytest-xdist when it had run its tests, and its peak."""


class OneLoader(Loader):
    """Reads each of botocore's models once; by itself each session reads them again."""

    @property
    def search_paths(self) -> list[str]:
        """A copy, for every session of boto3 adds its folder."""
        return list(super().search_paths)


@cache
def one_loader(search_path: str | None = None) -> OneLoader:
    paths = [*create_loader(search_path).search_paths, str(Path(boto3.__file__).parent / "data")]
    return OneLoader(paths, include_default_search_paths=False)


botocore.session.create_loader = one_loader
# How long a try takes on a busy machine decides no test: those that are about it say what is long.
assert fields(Limits)[-1].name == "long_s"
Limits.__init__.__defaults__ = (*(Limits.__init__.__defaults__ or ())[:-1], math.inf)
# Each call of a command would build all commands first, in a tenth of a second.
typer.testing._get_command = cache(typer.testing._get_command)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Who runs what; where tests are dealt in another way, pytest-xdist decides."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from tests.scheduling import FilesOfTests  # not above: an environment may be without pytest-xdist

    return FilesOfTests(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Workers tell of a test only what it came to; those that collect all tests share what there is to compile.

    Files of one folder stand together: pytest finds no fixture of a folder's conftest where files of another one are between.
    """
    session.config.args = together(session.config.args)
    worker = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    from tests.scheduling import import_from, tell_only_news

    if session.config.option.verbose <= 0 and session.config.option.durations is None:
        tell_only_news(session.config.pluginmanager)
    if is_whole(session.config):
        import_from(int(worker["workerid"].removeprefix("gw")), worker["workercount"])


def together(args: list[str]) -> list[str]:
    """The tests that were asked for, by folder, each folder where its first test stands."""
    folders = [str(Path(arg.partition("::")[0]).parent) for arg in args]
    return sorted(args, key=lambda arg: folders.index(str(Path(arg.partition("::")[0]).parent)))


def is_whole(config: pytest.Config) -> bool:
    """Whether all tests are asked for."""
    return [Path(arg) for arg in config.args] == [Path("tests")]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what the sweep has for itself as ``long`` before ``-m`` chooses."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if needs_spark(item) and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group("spark"))
        if item.get_closest_marker("sweep"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(
                f"an address is in the name of {item.nodeid}: workers could not agree on it"
            )
    for test, of_it in cases.items():
        leave_to_the_sweep(test, of_it, is_all=is_whole(config))


def leave_to_the_sweep(test: str, items: list[pytest.Item], *, is_all: bool) -> None:
    """Mark as ``long`` the cases that a test names in its ``sweep`` marker: by a name, its beginning, or a parameter in it.

    A module's marker is that of its tests that have such cases, and leaves each of them a case.
    """
    named = {item.nodeid.partition("[")[2].removesuffix("]"): item for item in items}
    of_test = {text for mark in items[0].own_markers if mark.name == "sweep" for text in mark.args}
    for beginning in (text for mark in items[0].iter_markers("sweep") for text in mark.args):
        found = (
            [beginning]
            if beginning in named
            else [name for name in named if name.startswith(beginning) or f"-{beginning}-" in f"-{name}-"]
        )
        if is_all and not found and beginning in of_test:
            raise pytest.UsageError(
                f"no case of {test} begins with {beginning!r}, which it leaves to the sweep"
            )
        if beginning not in of_test and not any(is_short(named[name]) for name in named.keys() - found):
            continue
        for name in found:
            named[name].add_marker(pytest.mark.long)


def is_short(item: pytest.Item) -> bool:
    return item.get_closest_marker("long") is None


def needs_spark(item: pytest.Item) -> bool:
    """Whether a test asks Spark, or Iceberg's REST catalog: their JVMs start once, on one worker."""
    if "spark" in getattr(item, "fixturenames", ()):
        return True
    params = getattr(getattr(item, "callspec", None), "params", {})
    return any(isinstance(value, str) and value == "rest" for value in params.values())


def pytest_configure() -> None:
    """Imports and cases of ten thousand tests are no garbage: a tenth of the time of collecting them went into looking."""
    gc.disable()


def pytest_collection_finish() -> None:
    """What is there now is there to the end: no collection of garbage need look at it."""
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Else libraries find their objects leaked when the interpreter ends, and say so."""
    gc.unfreeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker tells what memory it ends with."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        output["memory_mb"] = (pages * resource.getpagesize() // 2**20, peak_kb // 2**10)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """The memory of a worker that has ended."""
    WORKERS_MB.extend(
        [tuple(memory)] if (memory := getattr(node, "workeroutput", {}).get("memory_mb")) else []
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what memory the workers ended with: a suite that leaks is slow long before it fails."""
    if WORKERS_MB:
        said = ", ".join(f"{end} MB (peak {peak})" for end, peak in WORKERS_MB)
        terminalreporter.write_line(f"workers' memory at the end: {said}")


@pytest.fixture(scope="module", autouse=True)
def _give_memory_back() -> Iterator[None]:
    """What a module's tests have freed goes back to the system; allocators keep it else, and two workers share the machine."""
    yield
    if pyarrow := sys.modules.get("pyarrow"):
        pyarrow.default_memory_pool().release_unused()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture
def no_aws_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings for AWS come from the machine."""
    for name in (
        "AWS_PROFILE",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_REGION",
    ):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
