"""``python -m bench.perf.starving``: one large write alone, then beside a writer of few other keys that never stops.

With ``--writers``: many processes that change other keys of the same files, while deltalake, or safewrite, compacts these all the while.
Their calls are compared with those of one writer alone, and with those of as many writers that take turns and nobody compacts: then the
table grows by as many commits, each writer reads those of the others, and none loses a try.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from . import change_tables, starving_places
from .change_tables import SCATTERED, TABLE, Load, catalog, rows_of
from .changes_child import (
    MERGE,
    ON_DELTA,
    OURS_DELTA,
    OURS_ICEBERG,
    OURS_MARKED,
    OURS_VECTORS,
    SPARK_MERGE,
    UPSERT,
    merge,
    opened,
)
from .spark_append import cpu_of_all_s, measured
from .spark_changes import merging
from .spark_changes import session as spark_session
from .starving_places import PLACES, Place

OURS_V3 = "safewrite on Iceberg version 3, merge-on-read"
ARMS = {
    "vectors": OURS_VECTORS,
    "delta": OURS_DELTA,
    "marked": OURS_MARKED,
    "marked-v3": OURS_V3,
    "iceberg": OURS_ICEBERG,
    "merge": MERGE,
    "spark": SPARK_MERGE,
    "upsert": UPSERT,
}
"""What is measured, by what the command line calls it."""
PEERS = (MERGE, SPARK_MERGE, UPSERT)
DELTA_ARMS = (*ON_DELTA, MERGE, SPARK_MERGE)
RIVAL_KEYS = 50
VERBS = ("apply_changes", "delete", "overwrite")
"""What the large write is: changes by key, or a condition that a fifth of the rows satisfy, scattered over all files."""
WHERE = "amount < 285.9"
CALLS_MAX = 50
"""A MERGE or an upsert is called again so often."""
GROUPS = ("never", "auto")
COMPACTORS = ("deltalake", "safewrite")
TARGET_BYTES = 128 * 2**20
"""What the compactor makes of files: one of all of them."""
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def compare(
    *,
    rows: Annotated[int, typer.Option(help="Rows of the table.")] = 1_000_000,
    files: Annotated[int, typer.Option(help="Files of the table.")] = 8,
    changes: Annotated[int, typer.Option(help="Changes of the large batch.")] = 200_000,
    pause_s: Annotated[float, typer.Option(help="Between two calls of the small writer.")] = 0.2,
    verb: Annotated[str, typer.Option(help=f"What the large write is, of: {', '.join(VERBS)}.")] = VERBS[0],
    equal: Annotated[
        bool, typer.Option(help="Half of the small writer's keys are the large batch's.")
    ] = False,
    arms: Annotated[str, typer.Option(help=f"Comma-separated, of: {', '.join(ARMS)}.")] = "vectors,marked",
    writers: Annotated[
        str, typer.Option(help="Comma-separated: so many small writers at once, and no large one.")
    ] = "",
    calls: Annotated[int, typer.Option(help="Calls of each of the many writers.")] = 6,
    compactor: Annotated[
        str, typer.Option(help=f"Who compacts beside the many writers, of: {', '.join(COMPACTORS)}.")
    ] = COMPACTORS[0],
    group: Annotated[
        str,
        typer.Option(help=f"Of the two, or of many writers (then comma-separated), of: {', '.join(GROUPS)}."),
    ] = "never",
    place: Annotated[str, typer.Option(help=f"Where the large write is, of: {', '.join(PLACES)}.")] = "local",
    frame: Annotated[bool, typer.Option(help="The large batch is a frame of Spark on two cores.")] = False,
) -> None:
    """Print tries, seconds and CPU of the batch, alone and beside the small writer, and how often that one landed.

    Of many writers: how many calls landed, plans were made again and were re-based, and the CPU of a call, alone and among the others.
    """
    if writers:
        plan = {"load": Load(rows=rows, files=files, changes=0, rounds=1, keys=SCATTERED).to_dict()}
        plan |= {"calls": calls, "equal": equal, "compactor": compactor}
        _crowds(plan, arms.split(","), [int(one) for one in writers.split(",")], group.split(","))
        return
    load = Load(rows=rows, files=files, changes=changes, rounds=2, keys=SCATTERED)
    large = f"{changes:,} changes" if verb == VERBS[0] else f"{verb} where {WHERE}"
    print(f"{large} in {rows:,} rows of {files} files; {RIVAL_KEYS} other keys every {pause_s} s")
    if not all(starving_places.fits(place, is_delta=ARMS[arm] in DELTA_ARMS) for arm in arms.split(",")):
        raise typer.BadParameter(f"{arms} cannot be at {place}")
    if frame and verb != VERBS[0]:
        raise typer.BadParameter("--frame is for changes by key")
    how = {"verb": verb, "equal": equal, "group": group, "frame": frame}
    print(f"at {place}, group={group}{', a frame of Spark' * frame}")
    print(f"{'arm':8} {'':7} {'tries':>5} {'rebased':>7} {'wall s':>7} {'CPU s':>6}  rival: calls, wall s")
    for arm in arms.split(","):
        found = []
        for name, pause in (("alone", None), ("beside", pause_s)):
            took, rival = _run(arm, load, pause, place, how)
            found.append(took)
            told = "" if pause is None else f"{rival['calls']}, {rival['wall_s']:.3f}"
            print(
                f"{arm:8} {name:7} {took['attempts']:5} {took['rebased']:7} {took['wall_s']:7.2f} {took['cpu_s']:6.2f}  {told}",
                flush=True,
            )
        alone, beside = found
        print(
            f"{arm:8} ratio   {'':13} {beside['wall_s'] / alone['wall_s']:7.2f} {beside['cpu_s'] / alone['cpu_s']:6.2f}"
        )


def _crowds(plan: dict[str, Any], arms: list[str], sizes: list[int], groups: list[str]) -> None:
    load = Load(**plan["load"])
    keys = "the same" if plan["equal"] else "other"
    print(
        f"{RIVAL_KEYS} {keys} keys a call, {plan['calls']} calls each, {load.rows:,} rows of {load.files} files"
    )
    print(
        f"{'arm':8} {'group':6} writers landed again rebased again/call CPU s/call  of alone of turns wall s  compactor: landed, lost, groups done, left out  rows"
    )
    for arm in arms:
        for group in groups if ARMS[arm] not in PEERS else groups[:1]:
            mine = {**plan, "arm": ARMS[arm], "group": group}
            alone = turns = _crowd(mine, load, 1)
            for size, in_turns in [(1, False), *((size, one) for size in sizes for one in (True, False))]:
                it = alone if size == 1 else _crowd({**mine, "in_turns": in_turns}, load, size)
                turns = it if in_turns else turns
                name = f"{size} turns" if in_turns else f"{size}"
                print(
                    f"{arm:8} {group:6} {name:>7} {it['landed']:3}/{size * plan['calls']:3} {it['again']:5} {it['rebased']:7} "
                    f"{it['again'] / size / plan['calls']:10.2f} {it['cpu_s']:10.3f} {it['cpu_s'] / alone['cpu_s']:9.2f} {it['cpu_s'] / turns['cpu_s']:8.2f} {it['wall_s']:6.2f}  "
                    f"{it['compacted']:>17} {it['compactions_lost']:5} {it['groups']:12} {it['left_out']:9}  {it['wrong'] or 'as they should be'}",
                    flush=True,
                )


def _crowd(plan: dict[str, Any], load: Load, size: int) -> dict[str, Any]:
    """What so many writers took for a call; beside one alone, or writers that take turns, nobody compacts."""
    with tempfile.TemporaryDirectory() as here:
        plan |= {"folder": str(Path(here) / "first"), "size": size}
        plan["place"] = {"name": "local", "folder": plan["folder"], "v3": plan["arm"] == OURS_V3}
        _make(load, plan["place"], Path(here), plan["arm"])
        members = []
        for number in range(size):
            members.append(_child("member", plan | {"number": number}))
            members[-1].stdout.readline()  # one after another: each warms up by a write
        in_turns = plan.get("in_turns", False)
        compacts = (
            not in_turns and size > 1 and (plan["compactor"] == COMPACTORS[1] or plan["arm"] in DELTA_ARMS)
        )
        compactor = _child("compactor", plan) if compacts else None
        for _ in range(plan["calls"] if in_turns else 1):
            for one in members:
                one.stdin.write("go\n")
                one.stdin.flush()
                if in_turns:
                    one.stdout.readline()
        took = [call for one in members for call in json.loads(one.stdout.readline())]
        compacted = [0, 0, 0, 0]
        if compactor is not None:
            compactor.stdin.close()
            compacted = json.loads(compactor.stdout.readline())
            compactor.wait()
        for one in members:
            one.wait()
        wrong = _wrong(plan, load)
    landed = [one for one in took if one["landed"]]
    return {
        "landed": len(landed),
        "again": sum(one["again"] for one in took),
        "rebased": sum(one["rebased"] for one in took),
        "cpu_s": sum(one["cpu_s"] for one in took) / max(len(landed), 1),
        "wall_s": sorted(one["wall_s"] for one in took)[len(took) // 2],
        "compacted": compacted[0],
        "compactions_lost": compacted[1],
        "groups": compacted[2],
        "left_out": compacted[3],
        "wrong": wrong,
    }


def _ids(plan: dict[str, Any], number: int, call: int) -> Any:
    """The keys of a call of one writer: its own, or the same as those of all others; in all files."""
    import numpy as np

    apart = 1 if plan["equal"] else plan["size"]
    mine = np.arange(0 if plan["equal"] else number, plan["load"]["rows"], apart)
    return np.sort(np.random.default_rng([call, apart]).choice(mine, RIVAL_KEYS, replace=False))


def _sequence(plan: dict[str, Any], number: int, call: int) -> int:
    """No two calls have the same; the writers of equal keys come in no order."""
    return 2 + call * plan["size"] + (number * 5 + call * 3) % plan["size"]


def _wrong(plan: dict[str, Any], load: Load) -> str:
    """What is wrong with the table by what all calls should have made of it; empty if nothing is."""
    import numpy as np

    wanted = np.ones(load.rows, np.int64)
    for call in range(-2, plan["calls"]):
        for number in range(plan["size"]):
            ids = _ids(plan, number, call + 2)
            wanted[ids] = np.maximum(wanted[ids], _sequence(plan, number, call + 2))
    ids, sequences = _table(plan["folder"], plan["arm"] in DELTA_ARMS)
    order = np.argsort(ids)
    if not np.array_equal(ids[order], np.arange(load.rows)):
        return f"{len(ids)} rows of {len(np.unique(ids))} keys"
    differ = int((sequences[order] != wanted).sum())
    return f"{differ} rows are not the last change" if differ else ""


def _table(folder: str, is_delta: bool) -> tuple[Any, Any]:
    import pyarrow as pa

    if is_delta:
        from deltalake import DeltaTable, QueryBuilder

        asked = QueryBuilder().register("t", DeltaTable(folder)).execute("SELECT id, lsn FROM t")
        rows = pa.table(asked.read_all())
    else:
        rows = catalog(Path(folder)).load_table(TABLE).scan(selected_fields=("id", "lsn")).to_arrow()
    return rows["id"].to_numpy(), rows["lsn"].to_numpy()


def _make(load: Load, place: Place, folder: Path, arm: str) -> None:
    marks = arm in {OURS_VECTORS, OURS_MARKED, OURS_V3}
    starving_places.make(load, place, folder, is_delta=arm in DELTA_ARMS, marks=marks)


def _run(
    arm: str, load: Load, pause_s: float | None, place: str, how: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the large batch took, on a new table, and of the small writer how many calls landed and their median."""
    with tempfile.TemporaryDirectory() as here, starving_places.at(place, Path(here)) as there:
        there["v3"] = ARMS[arm] == OURS_V3
        _make(load, there, Path(here), ARMS[arm])
        plan = {"arm": ARMS[arm], "load": load.to_dict(), "folder": there["folder"], "place": there}
        return _timed(plan | {"pause_s": pause_s} | how)


def _timed(plan: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    pause_s = plan["pause_s"]
    large = _child("large", plan)
    assert large.stdin is not None
    assert large.stdout is not None
    large.stdout.readline()  # it has opened the table and written to it once
    rival = None if pause_s is None else _child("rival", plan)
    if rival is not None:
        assert rival.stdout is not None
        rival.stdout.readline()
    large.stdin.write("go\n")
    large.stdin.flush()
    took = json.loads(large.stdout.readline())
    large.wait()
    calls = [0.0]
    if rival is not None:
        assert rival.stdin is not None
        assert rival.stdout is not None
        rival.stdin.close()
        calls = json.loads(rival.stdout.readline())
        rival.wait()
    return took, {"calls": len(calls), "wall_s": sorted(calls)[len(calls) // 2]}


def _child(role: str, plan: dict[str, Any]) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        __name__ if __name__ != "__main__" else "bench.perf.starving",
        role,
        json.dumps(plan),
    ]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


# --- the children -------------------------------------------------------------------------------------
def _opened(plan: dict[str, Any]) -> Any:
    """What writes, by its verb; one of deltalake is called again until it lands."""
    folder = Path(plan["folder"])
    if plan["arm"] == MERGE:
        return _merging(folder)
    if plan["arm"] == UPSERT:
        return _upserting(folder)
    if plan["arm"] == SPARK_MERGE:
        return _merging_by_spark(folder)
    table = _table_of(plan)
    keyed: dict[str, Any] = {
        "keys": ["id"],
        "sequence_by": ["lsn"],
        "delete_when": [("op", "=", "d")],
        "all_late": "count",
    }

    def write(rows: Any, verb: str = VERBS[0]) -> dict[str, Any]:
        if verb == "delete":
            receipt = table.delete(WHERE)
        elif verb == "overwrite":
            receipt = table.overwrite(rows.drop_columns("op"), where=WHERE)
        else:
            receipt = table.apply_changes(rows, **keyed)
        return receipt.to_dict()

    return write


def _table_of(plan: dict[str, Any]) -> Any:
    is_delta = plan["arm"] in DELTA_ARMS
    return starving_places.opened(plan["place"], is_delta=is_delta, group=plan["group"])


def _merging(folder: Path) -> Any:
    from deltalake import DeltaTable, write_deltalake
    from deltalake.exceptions import DeltaError

    def apply(rows: Any, verb: str = VERBS[0]) -> dict[str, Any]:
        for attempt in range(1, CALLS_MAX + 1):
            try:
                if verb == "delete":
                    DeltaTable(str(folder)).delete(WHERE)
                elif verb == "overwrite":
                    write_deltalake(str(folder), rows.drop_columns("op"), mode="overwrite", predicate=WHERE)
                else:
                    merge(DeltaTable(str(folder)), rows)
            except DeltaError:
                continue
            return {"attempts": attempt}
        return {"attempts": CALLS_MAX}

    return apply


def _upserting(folder: Path) -> Any:
    from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

    upsert = opened(UPSERT, folder)

    def apply(rows: Any, verb: str = VERBS[0]) -> dict[str, Any]:
        for attempt in range(1, CALLS_MAX + 1):
            try:
                upsert(rows)
            except (CommitFailedException, CommitStateUnknownException):
                continue
            return {"attempts": attempt}
        raise RuntimeError(f"no ack in {CALLS_MAX} calls")

    return apply


def _merging_by_spark(folder: Path) -> Any:
    """In a Spark of its own, as each job has; its Java ends with this process."""
    session = spark_session(Path(tempfile.mkdtemp(dir=folder.parent)), memory="1g")
    merge = merging(session, f"delta.`{folder}`")

    def apply(rows: Any, verb: str = VERBS[0]) -> dict[str, Any]:
        changes = session.createDataFrame(rows)
        for attempt in range(1, CALLS_MAX + 1):
            try:
                merge(changes)
            except Exception as error:
                if "DELTA_CONCURRENT" not in str(error):
                    raise
                continue
            return {"attempts": attempt}
        raise RuntimeError(f"no ack in {CALLS_MAX} calls")

    return apply


def _large(plan: dict[str, Any]) -> None:
    """The first batch of the load: scattered even ids; those that satisfy the condition, where there is one."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    apply, load, receipts = _opened(plan), Load(**plan["load"]), list[dict[str, Any]]()
    apply(rows_of(np.array([-1]), 1).append_column("op", pa.array(["c"])))
    rows = change_tables.batch(load, 0)
    if plan["verb"] != VERBS[0]:
        rows = rows.filter(pc.less(rows["amount"], 285.9))
    with _frames() if plan["frame"] else nullcontext(lambda same: same) as given:
        if plan["frame"]:  # as many changes that come too late: they warm tasks up, and change no row
            apply(
                given(
                    rows.set_column(
                        rows.column_names.index("lsn"), "lsn", pa.nulls(len(rows), pa.int64()).fill_null(0)
                    )
                )
            )
        data = given(rows)
        print("ready", flush=True)
        sys.stdin.readline()
        cpu_s, wall_s = measured(lambda: receipts.append(apply(data, plan["verb"])))()
    told = {"attempts": receipts[0]["attempts"], "rebased": receipts[0].get("rebased", 0)}
    print(json.dumps({"wall_s": wall_s, "cpu_s": cpu_s} | told), flush=True)


@contextmanager
def _frames() -> Iterator[Callable[[Any], Any]]:
    """What makes frames of rows, in a Spark of its own."""
    with tempfile.TemporaryDirectory() as here:
        session = spark_session(Path(here))
        yield lambda rows: session.createDataFrame(rows).localCheckpoint()
        session.stop()


def _rival(plan: dict[str, Any]) -> None:
    """Updates of few odd ids, again and again until stdin ends."""
    import select

    import numpy as np
    import pyarrow as pa

    apply, load, calls, number = _opened(plan), Load(**plan["load"]), list[float](), 2
    rng = np.random.default_rng(7)
    for _ in range(2):  # after the second it has indexes of all files
        number += 1
        apply(
            rows_of(np.arange(1, load.rows, 2)[:: max(1, load.rows // 100)], number).append_column(
                "op", pa.array(["u"] * 50)
            )
        )
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], plan["pause_s"])[0]:
        ids = np.unique(rng.integers(0, load.rows // 2, RIVAL_KEYS) * 2 + 1)
        if plan["equal"]:
            ids = np.unique(ids - np.arange(len(ids)) % 2)
        began, number = time.monotonic(), number + 1
        apply(rows_of(ids, number).append_column("op", pa.array(["u"] * len(ids))))
        calls.append(time.monotonic() - began)
    print(json.dumps(calls or [0.0]), flush=True)


def _member(plan: dict[str, Any]) -> None:
    """One of many writers: two calls to warm up, then those that count."""
    import pyarrow as pa

    apply, took = _opened(plan), list[dict[str, Any]]()
    used_s = cpu_of_all_s if plan["arm"] == SPARK_MERGE else _cpu_s
    for call in range(plan["calls"] + 2):
        if call == 2 or (call > 2 and plan.get("in_turns")):
            print("ready", flush=True)
            sys.stdin.readline()
        rows = rows_of(_ids(plan, plan["number"], call), _sequence(plan, plan["number"], call))
        began, cpu_s, landed, told = time.monotonic(), used_s(), True, {"attempts": 1}
        try:
            told = apply(rows.append_column("op", pa.array(["u"] * rows.num_rows)))
        except Exception as error:  # noqa: BLE001 - whatever a library raises, its call did not land
            print(f"{type(error).__name__}: {error}"[:300], file=sys.stderr, flush=True)
            landed = False
        rebased = told.get("rebased", 0)
        again = max(told["attempts"] - 1 - rebased, 0)
        used = {"wall_s": time.monotonic() - began, "cpu_s": used_s() - cpu_s}
        took.append(used | {"landed": landed, "rebased": rebased, "again": again})
    if plan.get("in_turns"):
        print("ready", flush=True)
    print(json.dumps(took[2:]), flush=True)


def _compactor(plan: dict[str, Any]) -> None:
    """A compaction again and again until stdin ends: how often it landed, how often it lost, and of ours the groups that did."""
    import select

    counts = [0, 0, 0, 0]
    compact = _upkeep(plan) if plan["compactor"] == COMPACTORS[1] else _optimize(plan)
    while not select.select([sys.stdin], [], [], 0.0)[0]:
        done, left_out = compact()
        counts[0] += bool(done)
        counts[1] += bool(left_out) and not done
        counts[2] += done
        counts[3] += left_out
    print(json.dumps(counts), flush=True)


def _upkeep(plan: dict[str, Any]) -> Callable[[], tuple[int, int]]:
    """A run of ``maintain``: how many groups were put together, and how many left out."""
    table = _table_of(plan)

    def run() -> tuple[int, int]:
        report = table.refresh().maintain()
        time.sleep(0 if report.groups else 0.05)
        return report.groups, sum(report.dropped.values()) + sum(report.left.values())

    return run


def _optimize(plan: dict[str, Any]) -> Callable[[], tuple[int, int]]:
    """deltalake's compaction: whether it landed, or lost."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    def run() -> tuple[int, int]:
        try:
            DeltaTable(plan["folder"]).optimize.compact(target_size=TARGET_BYTES)
        except DeltaError:
            return 0, 1
        return 1, 0

    return run


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    roles = {"large": _large, "rival": _rival, "member": _member, "compactor": _compactor}
    if len(sys.argv) > 1 and sys.argv[1] in roles:
        roles[sys.argv[1]](json.loads(sys.argv[2]))
    else:
        app()
