"""``python -m bench.stress.upkeep``: writers of all kinds, maintainers that are killed, another engine's compaction, readers of old versions.

Each writer writes down what was acknowledged.  At the end the table has to say the same: no row lost, doubled, revived or altered.
Maintainers and deltalake's compaction take turns: deltalake lets a compaction land whose files another one took (`doctor`: `compacted_twice`).
"""

from __future__ import annotations

import argparse
import fcntl
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

import safewrite as sw
from safewrite.errors import SafewriteError
from safewrite.table.verbs import Table

SCHEMA = pa.schema({"id": pa.int64(), "s": pa.int64()})
OWN = 10**6
"""So many ids are a writer's own."""
ROWS, KEPT = 20, 100
KINDS = ("append", "upsert", "delete")
LOOKS_APART_S = 10.0
PROPERTIES = {
    "delta": {"delta.enableDeletionVectors": "true"},
    "iceberg": {"write.merge.mode": "merge-on-read"},
}
Rows = dict[int, int]
Pairs = list[tuple[int, int]]
"""Ids and their values in order, one that is there twice too."""


def main() -> None:
    """Run all of them for some seconds, and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--format", choices=[*PROPERTIES], default="delta")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--role", nargs=3, metavar=("ROLE", "NUMBER", "FOLDER"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.role is not None:
        role, number, folder = asked.role
        ROLES[role](asked.format, Path(folder), int(number), asked.seconds)
        return
    folder = tempfile.mkdtemp()
    _create(asked.format, Path(folder))
    roles = [("writer", number) for number in range(asked.writers)] + [("reader", 0)]
    roles += [("compactor", 0)] if asked.format == "delta" else []
    running = [_start(asked, role, number, folder) for role, number in roles]
    killed = _kill_maintainers(asked, folder)
    failed = [one.args for one in running if one.wait(asked.seconds + 300) != 0]
    for line in (Path(folder) / "said").read_text().splitlines():
        print(line)
    faults = _judge(asked.format, Path(folder))
    print(
        f"{killed} maintainers killed; {len(failed)} processes failed; {dict(faults) or 'all rows are as they should be'}"
    )
    if faults or failed:
        sys.exit(f"The table is kept: {folder}")
    shutil.rmtree(folder)


def _create(kind: str, folder: Path) -> None:
    if kind == "delta":
        sw.create(str(folder / "t"), SCHEMA, properties=PROPERTIES[kind])
    else:
        sw.create("b.t", SCHEMA, catalog=_catalog(folder), create_namespace=True, properties=PROPERTIES[kind])
    (folder / "said").touch()


def _catalog(folder: Path) -> dict[str, str]:
    return {"name": "soak", "type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": folder.as_uri()}


def _opened(kind: str, folder: Path) -> Table:
    return sw.open(str(folder / "t")) if kind == "delta" else sw.open("b.t", catalog=_catalog(folder))


def _start(asked: argparse.Namespace, role: str, number: int, folder: str) -> subprocess.Popen[bytes]:
    words = ["--format", asked.format, "--seconds", str(asked.seconds), "--role", role, str(number), folder]
    return subprocess.Popen([sys.executable, "-W", "ignore", "-m", f"{__package__}.upkeep", *words])


def _kill_maintainers(asked: argparse.Namespace, folder: str) -> int:
    """Two maintainers at a time, each killed after a while and begun again."""
    draw, killed, until = random.Random(asked.seed), 0, time.monotonic() + asked.seconds
    both = [_start(asked, "maintainer", number, folder) for number in range(2)]
    while time.monotonic() < until:
        time.sleep(draw.uniform(0.5, 2.0) * asked.seconds / max(asked.kills, 1))
        if killed < asked.kills:
            number = draw.randrange(2)
            both[number].send_signal(signal.SIGKILL)
            both[number].wait()
            killed += 1
            both[number] = _start(asked, "maintainer", number, folder)
    for one in both:
        one.kill()
        one.wait()
    return killed


# --- who takes part ---------------------------------------------------------------------------------------
def _writer(kind: str, folder: Path, number: int, seconds: float) -> None:
    what, draw = KINDS[number % len(KINDS)], random.Random(number)
    table, first = _opened(kind, folder), number * OWN
    until, sequence, last = time.monotonic() + seconds, 0, first
    with (folder / f"acked-{number}").open("w") as acked:

        def note(**rows: Any) -> None:
            acked.write(f"{json.dumps(rows)}\n")
            acked.flush()

        while time.monotonic() < until:
            sequence += 1
            if what == "append" or last < first + KEPT:
                rows = [{"id": one, "s": 0} for one in range(last, last + ROWS)]
                _until_known(table.append, rows)
                note(added=[last, last + ROWS])
                last += ROWS
            elif what == "upsert":
                ids = draw.sample(range(first, last), 5)
                changes = [{"id": one, "s": sequence, "op": "u"} for one in ids]
                how = {"keys": ["id"], "sequence_by": ["s"], "delete_when": "op = 'd'"}
                _until_known(table.apply_changes, changes, **how)
                note(changed=ids, s=sequence)
            else:
                gone = draw.randrange(first, last)
                _until_known(table.delete, f"id = {gone}")
                note(deleted=gone)


def _until_known(call: Callable[..., Any], *given: Any, **how: Any) -> None:
    """Call again with the same key until the caller has a receipt."""
    key = uuid.uuid4().hex
    while True:
        try:
            call(*given, key=key, **how)
        except SafewriteError:
            time.sleep(0.05)
        else:
            return


def _maintainer(kind: str, folder: Path, number: int, seconds: float) -> None:
    table, until = _opened(kind, folder), time.monotonic() + seconds
    while time.monotonic() < until:
        with suppress(SafewriteError):
            with _turn(folder, alone=False):
                report = table.refresh().maintain(remove_unused=True)
            done, lost = report.groups, sum(report.dropped.values())
            if done or lost:
                _say(folder, f"maintainer {number}: {done} groups done, {lost} left out")
        time.sleep(0.2)


@contextmanager
def _turn(folder: Path, *, alone: bool) -> Iterator[None]:
    """All maintainers, or the other compaction; who is killed gives its turn back."""
    with (folder / "door").open("w") as door, (folder / "room").open("w") as room:
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        if not alone:  # who is alone keeps the door shut while it waits, so that the others do not starve it
            fcntl.flock(door, fcntl.LOCK_UN)
        yield


def _compactor(kind: str, folder: Path, number: int, seconds: float) -> None:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    until, counts = time.monotonic() + seconds, Counter[str]()
    while time.monotonic() < until:
        try:
            with _turn(folder, alone=True):
                DeltaTable(folder / "t").optimize.compact()
            counts["landed"] += 1
        except DeltaError:
            counts["lost"] += 1
        time.sleep(2.0)
    _say(folder, f"deltalake's compaction: {dict(counts)}")


def _reader(kind: str, folder: Path, number: int, seconds: float) -> None:
    """Reads a version, and the same one later."""
    until, looks = time.monotonic() + seconds, list[tuple[int, Pairs, float]]()
    same = 0
    while time.monotonic() < until or looks:
        if time.monotonic() < until:
            version = _opened(kind, folder).version
            looks.append((version, sorted(_pairs(kind, folder, version)), time.monotonic()))
        time.sleep(1.0)
        while looks and time.monotonic() - looks[0][2] > LOOKS_APART_S:
            version, rows, _ = looks.pop(0)
            again = sorted(_pairs(kind, folder, version))
            assert again == rows, f"version {version} changed: {_differences(rows, again)}"
            same += 1
    _say(folder, f"{same} versions were the same {LOOKS_APART_S:.0f} s later")


def _differences(before: Pairs, after: Pairs) -> str:
    """What is not the same in two readings, as often as it is there."""
    gone, new = Counter(before) - Counter(after), Counter(after) - Counter(before)
    return f"gone {sorted(gone.elements())}, new {sorted(new.elements())}"


def _say(folder: Path, text: str) -> None:
    with (folder / "said").open("a") as said:
        said.write(f"{text}\n")


ROLES = {"writer": _writer, "maintainer": _maintainer, "compactor": _compactor, "reader": _reader}


# --- the verdict ------------------------------------------------------------------------------------------
def _pairs(kind: str, folder: Path, version: int | None) -> Iterator[tuple[int, int]]:
    """Rows as another library reads them."""
    if kind == "delta":
        from deltalake import DeltaTable, QueryBuilder

        query = QueryBuilder().register("t", DeltaTable(folder / "t", version=version))
        found = pa.table(query.execute("SELECT id, s FROM t").read_all())
    else:
        from pyiceberg.catalog import load_catalog

        found = load_catalog(**_catalog(folder)).load_table("b.t").scan(snapshot_id=version).to_arrow()
    yield from zip(found["id"].to_pylist(), found["s"].to_pylist(), strict=True)


def _judge(kind: str, folder: Path) -> Counter[str]:
    """What is not as it was acknowledged, counted by kind."""
    wanted: Rows = {}
    for place in sorted(folder.glob("acked-*")):
        for line in map(json.loads, place.read_text().splitlines()):
            wanted |= dict.fromkeys(range(*line.get("added", (0,))), 0)
            wanted |= dict.fromkeys(line.get("changed", ()), line.get("s", 0))
            wanted.pop(line.get("deleted"), None)
    pairs = [*_pairs(kind, folder, None)]
    found, faults = dict(pairs), Counter[str]()
    faults["doubled"] = len(pairs) - len(found)
    faults["lost"] = len(wanted.keys() - found.keys())
    faults["revived"] = len(found.keys() - wanted.keys())
    faults["altered"] = sum(found[one] != s for one, s in wanted.items() if one in found)
    print(f"{len(wanted):,} rows")
    return +faults


if __name__ == "__main__":
    main()
