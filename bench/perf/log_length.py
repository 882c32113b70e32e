"""Measures latency over the length of the log: a table of ten versions against one of five thousand."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from . import writers
from .figures import Aim, Line, Scenario, at_most, interleave, paired
from .harness import Harness
from .scale import Scale

INTERVAL = "10"
"""Versions between two checkpoints, the same for all: safewrite's default (deltalake's is 100)."""
ROWS = 100


def run(scale: Scale, folder: Path) -> Scenario:
    """Time appends to a short and to a long log, turn by turn."""
    lines: list[Line] = []
    short, long = scale.log_versions
    with Harness(folder, seaweed=True) as lab:
        frame = writers.make_frame(ROWS)
        for temperature, opener in (("warm", writers.opened), ("cold", writers.opening)):
            arms: dict[str, Callable[[], float]] = {}
            for arm in writers.ARMS:
                for versions in (short, long):
                    append = opener(arm, make_table(lab, arm, versions))
                    append(frame)
                    arms[f"{arm}/{versions}"] = _timed(append, frame)
            found = interleave(arms, scale.log_rounds)
            lines += [line for arm in writers.ARMS for line in _pair(arm, temperature, short, long, found)]
    return Scenario(
        name="log-length",
        title="The length of the log",
        measures="Milliseconds of an append of "
        f"{ROWS} rows to a table at version {short:,} and at version {long:,}, each with all its commits, a "
        f"checkpoint at the last, and delta.checkpointInterval = {INTERVAL}; SeaweedFS for S3. Ratios are long to "
        "short, in the same round.",
        lines=tuple(lines),
        aims=tuple(_aims(lines)),
        notes=(
            (
                "Every tenth append of safewrite lets a thread write a checkpoint of all files, which grows with the log; deltalake's "
                "writes it itself. The median leaves it out, the mean of the ratios and max do not. `mean ratio` is mean to mean."
            ),
            (
                "The long log is made of copies of one real commit, their data files left out: no append reads them. "
                "The lock table holds entries for the versions of this run only, as its TTL leaves it."
            ),
        ),
    )


def make_table(lab: Harness, arm: str, versions: int) -> writers.Place:
    """A table at version ``versions``: one real append, copies of its commit, and a checkpoint at the end."""
    place = lab.place(arm)
    writers.create(arm, place, writers.schema(), properties={"delta.checkpointInterval": INTERVAL})
    writers.opened(arm, place)(writers.make_frame(ROWS))
    s3 = lab.s3()
    bucket, _, prefix = place.uri.removeprefix("s3://").partition("/")
    log = f"{prefix}/_delta_log/"
    first = s3.get_object(Bucket=bucket, Key=f"{log}{1:020d}.json")["Body"].read()
    if arm == writers.DYNAMODB:
        _forget_entries(lab, place)

    def copy(version: int) -> None:
        s3.put_object(Bucket=bucket, Key=f"{log}{version:020d}.json", Body=_copied(first, version))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(copy, range(2, versions + 1)))
    _checkpoint(arm, place)
    return place


def _copied(body: bytes, version: int) -> bytes:
    """The commit again under other names: its own id, key and data file."""
    lines = []
    for text in body.decode().splitlines():
        action: dict[str, Any] = json.loads(text)
        if "add" in action:
            action["add"]["path"] = f"copy-{version:06d}-" + action["add"]["path"]
        if "commitInfo" in action:
            info = action["commitInfo"]
            for name in ("txnId", "commitId"):
                if name in info:
                    info[name] = f"{version}-{info[name]}"
            ours = info.get("safewrite", {})
            if ours:
                ours["commitId"] = info["txnId"]
                ours["writes"] = [{**write, "key": f"{version}-{write['key']}"} for write in ours["writes"]]
        lines.append(json.dumps(action, separators=(",", ":")))
    return ("\n".join(lines) + "\n").encode()


def _forget_entries(lab: Harness, place: writers.Place) -> None:
    """Remove entries for versions before the copies: they would show writers that bypass the lock table."""
    from safewrite.stores.dynamodb import DynamoDBLocks, spark_path

    assert lab.cloud is not None
    locks = DynamoDBLocks(lab.cloud.boto3_client("dynamodb"), place.lock_table, spark_path(place.uri))
    for entry in locks.entries():
        locks.remove(entry)


def _checkpoint(arm: str, place: writers.Place) -> None:
    if arm == writers.DELTALAKE:
        from deltalake import DeltaTable

        DeltaTable(place.uri, storage_options=dict(place.storage_options)).create_checkpoint()
        return
    import safewrite as sw

    table = sw.open(place.uri, **writers.settings(arm, place))
    table.checkpoint()


def _timed(append: writers.Append, frame: Any) -> Callable[[], float]:
    def once() -> float:
        began = time.perf_counter()
        append(frame)
        return (time.perf_counter() - began) * 1000

    return once


def _pair(arm: str, temperature: str, short: int, long: int, found: dict[str, list[float]]) -> list[Line]:
    few, many = found[f"{arm}/{short}"], found[f"{arm}/{long}"]
    means = round(sum(many) / sum(few), 2)
    return [
        Line(case=f"version {short:,}, {temperature}", arm=arm, unit="ms", values=tuple(few)),
        Line(
            case=f"version {long:,}, {temperature}", arm=arm, unit="ms", values=tuple(many),
            peer=f"version {short:,}", ratios=paired(many, few), extra={"mean ratio": means},
        ),
    ]  # fmt: skip


def _aims(lines: list[Line]) -> list[Aim]:
    aims = []
    for line in lines:
        if line.arm in writers.SAFE and line.ratio is not None:
            case = f"{line.case} : {line.peer}, {line.arm}"
            aims.append(at_most(case, 1.1, line.ratio.median))
            aims.append(at_most(f"{case}, mean", 1.1, line.extra["mean ratio"]))
    return aims
