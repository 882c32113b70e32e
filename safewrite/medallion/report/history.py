"""Keeps a short record of a job's runs in its state folder, for the page of a run."""

from __future__ import annotations

import datetime as dt
import json
import logging
from dataclasses import asdict

from safewrite.errors import SafewriteError
from safewrite.medallion.files.storage import Storage
from safewrite.medallion.report.run import PastRun, Run

log = logging.getLogger("safewrite")
RUNS_MAX = 50
"""At most this many runs are kept, the newest of those that had news or a failure."""


def note_run(storage: Storage, run: Run) -> None:
    """Give a run the record of those before it, and add it if it had news or a failure.

    The record is for the eye: of two runs that end at one moment one may be missing, and a record that cannot be read is empty.
    """
    name = f"{run.job}/_runs.json"
    try:
        run.earlier = _runs_of(storage.get(name))
        if run.errors or any(one.news or not one.ok for one in run.tables):
            kept = [run.summed(dt.datetime.now(dt.UTC)), *run.earlier][:RUNS_MAX]
            storage.put(name, json.dumps([asdict(one) for one in kept], separators=(",", ":")).encode())
    except SafewriteError as error:
        log.warning("medallion: the record of the runs of %s was not kept: %s", run.job, error.message)


def _runs_of(content: bytes | None) -> list[PastRun]:
    try:
        return [PastRun(**one) for one in json.loads(content or b"[]")][:RUNS_MAX]
    except (ValueError, TypeError):
        return []
