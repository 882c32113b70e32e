"""``python -m bench.stress.upkeep``: writers of all kinds, maintainers that are killed, compaction, vacuum and expiry by others, readers of old versions.

Each writer writes down what was acknowledged.  At the end the table has to say the same: no row lost, doubled, revived or altered.
The clock of one of two maintainers is a day ahead.  Files grow old in a third of the run, at most in five minutes (Delta's log in five): what is older was written more than a
month ago, so that maintainers remove what nothing needs, and a long run needs no more room than a short one.  No call takes half as long: it looks for its files again after a minute only, where they could be old already.  Two engines read each version, and the same
one later.  Each half minute a line tells what was acknowledged, and what room and memory it takes.
Maintainers and deltalake's compaction take turns: deltalake lets a compaction land whose files another one took (`doctor`: `compacted_twice`).
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
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
DAY_S = 24 * 3600
AGED_S, OLD_DAYS = 300.0, 40
"""After so long at most a file is so many days old; of Delta's log, after so long."""
TELL_S = 30.0
SNAPSHOTS = 50
"""PyIceberg's expiry leaves so many."""
PROPERTIES = {
    "delta": {
        "delta.enableDeletionVectors": "true",
        "delta.logRetentionDuration": "interval 15 days",
        "delta.deletedFileRetentionDuration": "interval 5 minutes",
    },
    "iceberg": {"write.merge.mode": "merge-on-read", "history.expire.max-snapshot-age-ms": "3600000"},
}
Rows = dict[int, int]
Pairs = pa.Table
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
    roles = [("writer", number) for number in range(asked.writers)]
    roles += [("reader", 0), ("other", 0), ("time", 0)]
    running = [_start(asked, role, number, folder) for role, number in roles]
    killed, failed = _kill_maintainers(asked, folder, running)
    failed += [one.args for one in running if _code(one) != 0]
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


def _opened(kind: str, folder: Path, seconds: float) -> Table:
    """The table in a run of so many seconds: a call ends before its files are old, for those go that no commit names."""
    limits = {"timeout_s": _aged_s(seconds) / 2}
    if kind == "delta":
        return sw.open(str(folder / "t"), **limits)
    return sw.open("b.t", catalog=_catalog(folder), **limits)


def _aged_s(seconds: float) -> float:
    """After how long data files are old, in a run of so many seconds; versions are read again before."""
    return min(seconds / 3, AGED_S)


def _start(asked: argparse.Namespace, role: str, number: int, folder: str) -> subprocess.Popen[bytes]:
    words = ["--format", asked.format, "--seconds", str(asked.seconds), "--role", role, str(number), folder]
    return subprocess.Popen([sys.executable, "-W", "ignore", "-m", f"{__package__}.upkeep", *words])


def _code(process: subprocess.Popen[bytes]) -> int:
    """How a process ended; one that does not is ended."""
    with suppress(subprocess.TimeoutExpired):
        return process.wait(300)
    process.kill()
    return process.wait()


def _kill_maintainers(
    asked: argparse.Namespace, folder: str, running: list[subprocess.Popen[bytes]]
) -> tuple[int, list[Any]]:
    """Two maintainers at a time, each killed after a while and begun again; how many were, and those that ended by themselves."""
    draw, began, told_s = random.Random(asked.seed), time.monotonic(), 0.0
    kills = sorted(draw.uniform(0, asked.seconds) for _ in range(asked.kills))
    both, failed, killed = [_start(asked, "maintainer", number, folder) for number in range(2)], [], 0
    while (now_s := time.monotonic() - began) < asked.seconds:
        failed += [one.args for one in both if one.poll() is not None]
        dead = [number for number, one in enumerate(both) if one.poll() is not None]
        if killed < len(kills) and now_s > kills[killed]:
            killed += 1
            dead += [number] if (number := draw.randrange(2)) not in dead else []
        for number in dead:
            both[number].send_signal(signal.SIGKILL)
            both[number].wait()
            both[number] = _start(asked, "maintainer", number, folder)
        if now_s > told_s:
            told_s += TELL_S
            _tell(now_s, killed, Path(folder), [*running, *both])
        time.sleep(0.2)
    for one in both:
        one.kill()
        one.wait()
    return killed, failed


def _tell(now_s: float, killed: int, folder: Path, processes: list[subprocess.Popen[bytes]]) -> None:
    """How far the run is."""
    acked = sum(place.read_bytes().count(b"\n") for place in folder.glob("acked-*"))
    sizes = list[int]()
    for place in folder.rglob("*"):
        with suppress(OSError):
            sizes += [place.stat().st_size] if place.is_file() else []
    memory = [_memory_mb(one.pid) for one in processes]
    print(
        f"{now_s:.0f} s: {acked:,} calls acknowledged, {killed} maintainers killed; {len(sizes):,} files of {sum(sizes) / 1e6:.0f} MB; "
        f"{len(memory)} processes of {max(memory):.0f} MB at most",
        flush=True,
    )


def _memory_mb(process: int) -> float:
    """What a process has in memory; 0 where nobody says."""
    with suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return 0.0


# --- who takes part ---------------------------------------------------------------------------------------
def _writer(kind: str, folder: Path, number: int, seconds: float) -> None:
    what, draw = KINDS[number % len(KINDS)], random.Random(number)
    table, first = _opened(kind, folder, seconds), number * OWN
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
    if number:
        _set_ahead(DAY_S)
    table, until = _opened(kind, folder, seconds), time.monotonic() + seconds
    while time.monotonic() < until:
        with suppress(SafewriteError):
            with _turn(folder, alone=False):
                report = table.refresh().maintain(remove_unused=True)
            done, lost, gone = report.groups, sum(report.dropped.values()), report.removed
            if done or lost or gone:
                _say(folder, f"maintainer {number}: {done} groups done, {lost} left out, {gone} removed")
        time.sleep(0.2)


def _set_ahead(shift_s: int) -> None:
    """Let this process believe that it is later."""
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + shift_s
    time.time_ns = lambda: now_ns() + shift_s * 10**9


@contextmanager
def _turn(folder: Path, *, alone: bool) -> Iterator[None]:
    """All maintainers, or the other compaction; who is killed gives its turn back."""
    with (folder / "door").open("w") as door, (folder / "room").open("w") as room:
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        if not alone:  # who is alone keeps the door shut while it waits, so that the others do not starve it
            fcntl.flock(door, fcntl.LOCK_UN)
        yield


def _other(kind: str, folder: Path, number: int, seconds: float) -> None:
    """Another library's upkeep: compaction, and vacuum of Delta or expiry of Iceberg."""
    from deltalake.exceptions import DeltaError
    from pyiceberg.exceptions import CommitFailedException, ValidationException

    until, counts = time.monotonic() + seconds, Counter[str]()
    while time.monotonic() < until:
        for work in (_compact, _vacuum) if kind == "delta" else (_rewrite, _expire):
            try:
                work(folder)
                counts[f"{work.__name__[1:]} landed"] += 1
            except (DeltaError, CommitFailedException, ValidationException):
                counts[f"{work.__name__[1:]} lost"] += 1
        time.sleep(2.0)
    _say(folder, f"{'deltalake' if kind == 'delta' else 'PyIceberg'}: {dict(counts)}")


def _compact(folder: Path) -> None:
    from deltalake import DeltaTable

    with _turn(folder, alone=True):
        DeltaTable(folder / "t").optimize.compact()


def _vacuum(folder: Path) -> None:
    """Remove all files that were taken out, but for those of versions that are read again."""
    from deltalake import DeltaTable

    with _held(folder, alone=True) as held:
        DeltaTable(folder / "t").vacuum(
            retention_hours=0, enforce_retention_duration=False, dry_run=False, keep_versions=held
        )


def _rewrite(folder: Path) -> None:
    """Put the rows of a writer in one file, as PyIceberg can: they go, and come again in the same commit."""
    table, first = _iceberg(folder), random.randrange(len(KINDS)) * OWN
    where = f"id >= {first} and id < {first + OWN}"
    table.overwrite(table.scan(where).to_arrow(), where)


def _expire(folder: Path) -> None:
    table = _iceberg(folder)
    named = {one.snapshot_id for one in table.metadata.refs.values()}
    old = [one.snapshot_id for one in table.snapshots()][:-SNAPSHOTS]
    if gone := [one for one in old if one not in named]:
        table.maintenance.expire_snapshots().by_ids(gone).commit()


def _time(kind: str, folder: Path, number: int, seconds: float) -> None:
    """Lets files of a while ago be older than all is kept, and the list of those that nothing needs older than a day."""
    until, root = time.monotonic() + seconds, folder / ("t" if kind == "delta" else "b")
    while time.monotonic() < until:
        for place in root.rglob("*"):
            with suppress(FileNotFoundError):
                now, is_list = time.time(), place.name == "list.json"
                if place.is_file():
                    age = now - place.stat().st_mtime
                    most_s = AGED_S if "_delta_log" in place.parts else _aged_s(seconds)
                    if most_s < age < DAY_S or (is_list and 1 < age < DAY_S):
                        os.utime(place, (now - (2 if is_list else OLD_DAYS) * DAY_S,) * 2)
        time.sleep(1.0)


@contextmanager
def _held(folder: Path, *, alone: bool) -> Iterator[list[int]]:
    """The versions that the reader reads again; while it chooses one, nobody vacuums."""
    with (folder / "held").open("a+") as place:
        fcntl.flock(place, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        place.seek(0)
        held = json.loads(place.read() or "[]")
        yield held
        if not alone:
            place.truncate(0)
            place.write(json.dumps(held))


def _reader(kind: str, folder: Path, number: int, seconds: float) -> None:
    """Reads a version, and the same one later."""
    until, looks = time.monotonic() + seconds, list[tuple[int, Pairs, float]]()
    counts = Counter[str]()
    while time.monotonic() < until or looks:
        if time.monotonic() < until:
            with _held(folder, alone=False) as held:
                version = _opened(kind, folder, seconds).version
                held[:] = [*(one for one, _, _ in looks), version]
            if (rows := _seen(kind, folder, version)) is not None:
                looks.append((version, rows, time.monotonic()))
        time.sleep(1.0)
        while looks and time.monotonic() - looks[0][2] > LOOKS_APART_S:
            version, rows, _ = looks.pop(0)
            again = _seen(kind, folder, version)
            assert again is None or again.equals(rows), (
                f"version {version} changed: {_differences(rows, again)}"
            )
            counts["had expired" if again is None else "were the same"] += 1
    _say(folder, f"versions {LOOKS_APART_S:.0f} s later, by two engines: {dict(counts)}")


def _seen(kind: str, folder: Path, version: int) -> Pairs | None:
    """A version by both engines; None where it expired."""
    try:
        first, second = (read(kind, folder, version) for read in (_pairs, _pairs_of_polars))
    except (ValueError, OSError):
        if kind == "iceberg" and _iceberg(folder).snapshot_by_id(version) is None:
            return None
        raise
    assert first.equals(second), f"version {version} by two engines: {_differences(first, second)}"
    return first


def _differences(before: Pairs, after: Pairs) -> str:
    """What is not the same in two readings, as often as it is there."""
    was, now = (
        Counter(zip(one["id"].to_pylist(), one["s"].to_pylist(), strict=True)) for one in (before, after)
    )
    gone, new = was - now, now - was
    return f"gone {sorted(gone.elements())}, new {sorted(new.elements())}"


def _say(folder: Path, text: str) -> None:
    with (folder / "said").open("a") as said:
        said.write(f"{text}\n")


ROLES = {"writer": _writer, "maintainer": _maintainer, "other": _other, "time": _time, "reader": _reader}


# --- the verdict ------------------------------------------------------------------------------------------
def _pairs(kind: str, folder: Path, version: int | None) -> Pairs:
    """Rows as another library reads them."""
    if kind == "delta":
        from deltalake import DeltaTable, QueryBuilder

        query = QueryBuilder().register("t", DeltaTable(folder / "t", version=version))
        found = pa.table(query.execute("SELECT id, s FROM t").read_all())
    else:
        found = _iceberg(folder).scan(snapshot_id=version).to_arrow()
    return _in_order(found)


def _in_order(found: pa.Table) -> Pairs:
    return (
        found.select(["id", "s"])
        .cast(SCHEMA)
        .sort_by([("id", "ascending"), ("s", "ascending")])
        .combine_chunks()
    )


def _pairs_of_polars(kind: str, folder: Path, version: int) -> Pairs:
    import polars as pl

    if kind == "delta":
        found = pl.scan_delta(str(folder / "t"), version=version)
    else:
        found = pl.scan_iceberg(_iceberg(folder), snapshot_id=version, reader_override="native")
    return _in_order(found.select("id", "s").collect().to_arrow())


def _iceberg(folder: Path) -> Any:
    """The Iceberg table as PyIceberg loads it."""
    from pyiceberg.catalog import load_catalog

    return load_catalog(**_catalog(folder)).load_table("b.t")


def _judge(kind: str, folder: Path) -> Counter[str]:
    """What is not as it was acknowledged, counted by kind."""
    wanted: Rows = {}
    for place in sorted(folder.glob("acked-*")):
        for line in map(json.loads, place.read_text().splitlines()):
            wanted |= dict.fromkeys(range(*line.get("added", (0,))), 0)
            wanted |= dict.fromkeys(line.get("changed", ()), line.get("s", 0))
            wanted.pop(line.get("deleted"), None)
    pairs = _pairs(kind, folder, None)
    found, faults = dict(zip(pairs["id"].to_pylist(), pairs["s"].to_pylist(), strict=True)), Counter[str]()
    faults["doubled"] = pairs.num_rows - len(found)
    faults["lost"] = len(wanted.keys() - found.keys())
    faults["revived"] = len(found.keys() - wanted.keys())
    faults["altered"] = sum(found[one] != s for one, s in wanted.items() if one in found)
    print(f"{len(wanted):,} rows")
    return +faults


if __name__ == "__main__":
    main()
