"""Calls that Ctrl-C or a lack of memory breaks off leave nothing locked, though their errors are kept (T3-A12)."""

from __future__ import annotations

import contextlib
import linecache
import subprocess
import sys
import textwrap
import time
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from safewrite.boundary.public import let_go
from safewrite.boundary.workers import Workers
from safewrite.protocol.effects import Effect, Ok, Outcome, PassTurn, TakeTicket
from safewrite.protocol.values import Queue
from safewrite.stores.memory import MemoryLedger, MemoryObjects
from safewrite.stores.world import World, run

pytestmark = pytest.mark.usefixtures("no_aws_settings")

CHILD = """
import faulthandler, os, random, signal, sys, threading, time
import pyarrow as pa, safewrite as sw

format_, folder, seed, tries = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rng, kept, broken = random.Random(seed), [], 0
schema = pa.schema({"id": pa.int64(), "p": pa.string()})
settings = {"partition_by": ["p"]}
if format_ == "iceberg":
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}/w"}
    table = sw.create("db.t", schema, catalog=catalog, **settings)
else:
    table = sw.create(f"{folder}/t", schema, **settings)
rows = [{"id": n, "p": str(n % 8)} for n in range(16)]
table.append(rows, key="first")
began_s = time.monotonic()
table.append(rows, key="second")
took_s = time.monotonic() - began_s


def after(number, answers):
    answers.append(table.append(rows, key=f"after-{number}").outcome)


for number in range(tries):
    try:
        signal.setitimer(signal.ITIMER_REAL, max(rng.random() * took_s * 1.2, 1e-5))
        table.append(rows, key=f"broken-{number}")
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt as error:
        kept.append(error)
        broken += 1
    except sw.SafewriteError as error:  # a library took the signal for an error of its own
        signal.setitimer(signal.ITIMER_REAL, 0)
        kept.append(error)
    answers = []
    thread = threading.Thread(target=after, args=(number, answers), daemon=True)
    thread.start()
    thread.join(60)
    if answers != ["committed"]:
        faulthandler.dump_traceback(all_threads=True, file=sys.stdout)
        sys.stdout.flush()
        os._exit(3)
for number in range(tries):  # each is decided: its rows are there once, or are written now
    table.append(rows, key=f"broken-{number}")
print(broken, flush=True)
os._exit(0)
"""
SIGNALS = "import signal\nsignal.signal(signal.SIGALRM, signal.default_int_handler)\n"


def broken_off(format_: str, folder: Path, *, seed: int, tries: int) -> int:
    """How many calls signals broke off, in a process whose other threads went on to write after each of them."""
    command = [
        sys.executable,
        "-c",
        SIGNALS + textwrap.dedent(CHILD),
        format_,
        str(folder),
        str(seed),
        str(tries),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return int(done.stdout.split()[-1])


@pytest.mark.long
@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_a_write_that_a_signal_breaks_off_leaves_nothing_locked(tmp_path: Path, format_: str) -> None:
    assert broken_off(format_, tmp_path, seed=1, tries=6) > 1
    found = _ids(format_, tmp_path)
    assert len(found) == 16 * (2 + 6 + 6), "each key once"


def _ids(format_: str, folder: Path) -> list[Any]:
    import deltalake
    from pyiceberg.catalog import load_catalog

    if format_ == "delta":
        return deltalake.DeltaTable(folder / "t").to_pyarrow_table()["id"].to_pylist()
    settings = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}/w"}
    return load_catalog("default", **settings).load_table("db.t").scan().to_arrow()["id"].to_pylist()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_many_writes_that_signals_break_off(tmp_path: Path, format_: str, seed: int) -> None:
    assert broken_off(format_, tmp_path, seed=seed, tries=150) > 20


# --- its parts ---------------------------------------------------------------------------------------------
def test_workers_keep_the_order_and_raise_what_calls_raised() -> None:
    workers = Workers(2, "test")
    begun = [workers.submit(lambda n=n: n * n) for n in range(50)]  # type: ignore[misc]
    assert [one.result() for one in begun] == [n * n for n in range(50)]
    with pytest.raises(ZeroDivisionError):
        workers.submit(lambda: 1 // 0).result()
    cancelled = workers.submit(lambda: None)
    cancelled.cancel()


def test_who_asks_makes_the_call_where_no_thread_is_free() -> None:
    """Calls that wait for calls of their own do not wait for ever."""
    workers = Workers(1, "test")

    def outer() -> int:
        return sum(one.result() for one in [workers.submit(lambda: 1) for _ in range(5)])

    assert sum(one.result() for one in [workers.submit(outer) for _ in range(5)]) == 25


def test_an_error_that_is_kept_holds_nothing_of_the_frames_that_it_broke_off() -> None:
    class Held:
        alive = 0

        def __init__(self) -> None:
            Held.alive += 1

        def __del__(self) -> None:
            Held.alive -= 1

    def call() -> None:
        held = Held()
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise RuntimeError(str(held)) from error

    try:
        call()
    except RuntimeError as error:
        kept = error
    assert Held.alive == 1
    let_go(kept)
    assert Held.alive == 0


# --- a ticket ----------------------------------------------------------------------------------------------
class Counter:
    """A queue of one table whose tickets are counted."""

    def __init__(self) -> None:
        self.serving = self.next = 1

    def take(self) -> Outcome:
        self.next += 1
        return Ok((self.next - 1, Queue(self.serving, self.next)))

    def read(self) -> Outcome:
        return Ok(Queue(self.serving, self.next))

    def pass_turn(self, ticket: int) -> Outcome:
        self.serving = max(self.serving, ticket + 1)
        return Ok()

    def hold_turn(self, ticket: int, hold_s: float) -> Outcome:
        return Ok()


STEPS = {"waited", "_take_ticket", "_ask_arbiter", "_ask_stores", "perform", "run"}


def test_a_ticket_that_was_taken_when_a_signal_came_is_passed_on() -> None:
    """T4-A5: the answer had left its queue and was not returned: the thread that was to give it up waited for it, for ever."""
    number = 1
    while _broken_off_at(number):
        number += 1
    assert number > 5


def _broken_off_at(number: int) -> bool:
    """Break a run off at its nth step with a ticket in hand, which is to be passed on; False if it has fewer."""
    queue, hits = Counter(), 0
    world = World(MemoryObjects(), ledger=MemoryLedger(), queue=queue)

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal hits
        if frame.f_code.co_name not in STEPS:
            return None
        # Python raises no signal at a "try:", which is not within the handlers around it.
        is_step = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip() != "try:"
        if event == "line" and is_step and queue.next > queue.serving:  # a ticket is held
            hits += 1
            if hits == number:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            run(_taking(), world)
    finally:
        sys.settrace(before)
    until_s = time.monotonic() + 5
    while queue.serving < queue.next and time.monotonic() < until_s:
        time.sleep(0.001)
    assert queue.serving == queue.next, f"step {number} loses the ticket"
    return hits >= number


def _taking() -> Generator[Effect, Outcome, None]:
    taken = yield TakeTicket()
    assert isinstance(taken, Ok)
    assert isinstance(taken.value, tuple)
    yield PassTurn(taken.value[0])
