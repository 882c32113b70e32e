"""Runs one arm's writer processes: forked from a warm parent, held at a start line, for a fixed time.

Run as a module with its configuration as JSON on stdin; prints one line of JSON.  Forking after the
imports spares 31 times their cost; no thread, client or runtime exists yet at that point.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import struct
import sys
import time
import traceback
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

from .contest import module_of
from .writers import Append

ERRORS_MAX = 1_000
"""A writer that fails at once, again and again, stops here."""


def main() -> None:
    """Fork the writers, start them together, and collect their answers."""
    _end_with_parent(os.getppid())
    config = json.load(sys.stdin)
    frame = _import_and_make_frame(config)
    ready_in, ready_out = os.pipe()
    start_in, start_out = os.pipe()
    folder, parent = Path(config["folder"]), os.getpid()
    children = []
    for number in range(config["processes"]):
        pid = os.fork()
        if pid == 0:
            _be_a_writer(config, frame, number, parent, (ready_out, start_in))
        children.append(pid)
    os.close(ready_out)
    ready = 0
    while ready < len(children) and (more := os.read(ready_in, 64)):
        ready += len(more)
    before = _requests(config)
    start_at = time.monotonic() + 0.1
    os.write(start_out, struct.pack("d", start_at) * len(children))
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    if any(codes):
        sys.exit(f"writers ended with {codes}")
    found = [json.loads((folder / f"{number}.json").read_text()) for number in range(len(children))]
    print(json.dumps(_summary(found, config["window_s"], _requests(config) - before)))


def _end_with_parent(parent: int) -> None:
    """Ask Linux to end us with our parent, so that an interrupted bench leaves no writers behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(1)


def _import_and_make_frame(config: dict[str, Any]) -> Any:
    import pyarrow as pa

    writers = module_of(config["writers"])
    writers.preload(config["arm"])
    # Built without a conversion from pandas: that would start pyarrow's threads before the fork.
    rows = range(config["rows"])
    columns = [list(rows), [1_000_000 * r for r in rows], [f"sensor-{r % 97}" for r in rows]]
    columns += [[r / 7 for r in rows], [r % 5 for r in rows]]
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, writers.schema(), strict=True)], schema=writers.schema()
    )


def _be_a_writer(
    config: dict[str, Any], frame: Any, number: int, parent: int, pipes: tuple[int, int]
) -> None:
    code, (ready, start) = 0, pipes
    answer = Path(config["folder"]) / f"{number}.json"
    try:
        _end_with_parent(parent)
        writers = module_of(config["writers"])
        append = _opened(writers, config, number)
        os.write(ready, b".")
        (start_at,) = struct.unpack("d", os.read(start, 8))
        # Writers that gather for a while do not do so in step.
        begin_at = start_at + config.get("every_s", 0.0) * random.Random(number).random()
        time.sleep(max(0.0, begin_at - time.monotonic()))
        answer.write_text(json.dumps(_append_until(append, frame, begin_at, start_at, config)))
    except BaseException:  # noqa: BLE001  (a child must never run on into its parent's code)
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)  # the interpreter's exit does not end deltalake's runtime


def _opened(writers: Any, config: dict[str, Any], number: int) -> Append:
    """One append a call, or a commit of so many events with a key each."""
    place = writers.Place(**config["place"])
    if "events" not in config:
        return writers.opened(config["arm"], place)  # type: ignore[no-any-return]
    return writers.opened_many(config["arm"], place, config["events"], f"writer-{number}")  # type: ignore[no-any-return]


def _append_until(
    append: Append, frame: Any, begin_at: float, start_at: float, config: dict[str, Any]
) -> dict[str, Any]:
    """Begin appends until the window is over, and finish the last one.

    With ``every_s`` one is due so often, and its latency counts from when it was due: who is late makes the
    next one wait.  Else the next one begins when the last has ended.
    """
    acks: list[tuple[float, float, int | None]] = []
    errors: Counter[str] = Counter()
    every_s, end_at, due = config.get("every_s", 0.0), start_at + config["window_s"], begin_at
    while time.monotonic() < end_at and errors.total() < ERRORS_MAX:
        if every_s:
            began, due = due, due + every_s
            if began > end_at:
                break
            time.sleep(max(0.0, began - time.monotonic()))
        else:
            began = time.monotonic()
        try:
            attempts = append(frame)
        except Exception as error:  # noqa: BLE001  (counted, by name: that is what is measured)
            errors[f"{type(error).__name__}: {str(error)[:120]}"] += 1
            continue
        ended = time.monotonic()
        acks.append((ended - start_at, ended - began, attempts))
    return {"acks": acks, "errors": dict(errors)}


def _requests(config: dict[str, Any]) -> Counter[str]:
    """What the slow way has counted so far; nothing where there is none."""
    if not config.get("proxy"):
        return Counter()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(config["proxy"], timeout=30) as reply:
        return Counter(json.loads(reply.read())["requests"])


def _summary(found: list[dict[str, Any]], window_s: float, requests: Counter[str]) -> dict[str, Any]:
    acks = [ack for writer in found for ack in writer["acks"]]
    errors: Counter[str] = Counter()
    for writer in found:
        errors.update(writer["errors"])
    return {
        "acked": len(acks),
        "acked_in_window": sum(ended <= window_s for ended, _, _ in acks),
        "last_s": max((ended for ended, _, _ in acks), default=0.0),
        "latencies_s": sorted(elapsed for _, elapsed, _ in acks),
        "attempts": [attempts for _, _, attempts in acks if attempts is not None],
        "fewest": min((len(writer["acks"]) for writer in found), default=0),
        "errors": dict(errors),
        "requests": dict(requests),
    }


if __name__ == "__main__":
    main()
