"""Gives every writer program its configuration, ledger, start line and main loop.

A writer runs in the environment of its own library, where safewrite may not be installed: the
ledger module is therefore loaded by its path.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[3]


def _load_history() -> ModuleType:
    path = ROOT / "safewrite" / "testing" / "history.py"
    spec = importlib.util.spec_from_file_location("stress_history", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["stress_history"] = module
    spec.loader.exec_module(module)
    return module


history = _load_history()


def of_stress(name: str) -> Any:
    """A module of the stress run, whose package is ``bench`` in a checkout and ``safewrite_bench`` in the wheel."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    return importlib.import_module(f"{Path(__file__).resolve().parents[2].name}.stress.{name}")


OPEN_TRIES_MAX = 20
MORE_APPENDS_MAX = 4
"""A writer with a kill or a pause to come makes at most so many times the appends of the plan."""
ICEBERG_MODULES = {
    "sql": ("pyiceberg.catalog.sql", "pyiceberg.io.pyarrow", "psycopg2"),
    "rest": ("pyiceberg.catalog.rest", "pyiceberg.io.pyarrow"),
    "glue": ("pyiceberg.catalog.glue", "pyiceberg.io.pyarrow"),
}
"""The imports of a writer of Iceberg before its work begins, by the type of its catalog."""


class NotWrittenError(Exception):
    """The library promises that nothing of this call is or will be in the table."""

    def __init__(self, error: BaseException, *, retriable: bool = True) -> None:
        super().__init__(describe(error))
        self.retriable = retriable


def describe(error: BaseException) -> str:
    """One short line for the ledger."""
    kind = getattr(error, "kind", "")
    return f"{type(error).__name__}{f'[{kind}]' if kind else ''}: {error}"[:600]


class Writer:
    """One writer process: appends ``appends`` times and writes down each answer.

    ``on_error`` (known not to be written), ``on_unknown`` and ``on_restart`` are the caller's habits:
    ``"retry"`` calls again (with the same key, where there is one), ``"give up"`` goes on to the next.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.kind: str = config["kind"]
        self.number: int = config["writer"]
        self.calls_max: int = config.get("calls_max", 1)
        self.current: tuple[int, str] | None = None
        self.ledger = history.HistoryFile(config["history"])
        self._trapping = threading.Lock()
        self._before = list(history.read_events(config["history"]))

    def say(self, *words: object) -> None:
        """Tell the orchestrator."""
        print(*words, flush=True)

    def wait_for_the_start(self) -> None:
        """Say ``ready`` and wait for the start line, so that all begin to contend at once."""
        self.ledger.record(history.EventKind.START, kind=self.kind, writer=self.number)
        self.say("ready")
        deadline = time.monotonic() + self.config.get("start_wait_s", 300)
        while not Path(self.config["start_file"]).exists():
            if time.monotonic() > deadline:
                raise TimeoutError("the start signal did not come")
            time.sleep(0.02)

    def run(self, append: Callable[[list[Any], str | None], dict[str, Any]]) -> NoReturn:
        """Append all that is still to do, and leave."""
        leave_after(lambda: self._run(append))

    def _run(self, append: Callable[[list[Any], str | None], dict[str, Any]]) -> None:
        self.wait_for_the_start()
        stop_at = time.time() + self.config["time_limit_s"]
        rng = random.Random(f"{self.config['seed']}/{self.number}/think")
        for seq in self.seqs():
            # A peer that thinks between its appends is there for the whole run, not its first seconds.
            # Once killed and started again, it does not think again of what it had begun before.
            if not any(event.get("seq") == seq for event in self._before):
                time.sleep(rng.uniform(0, 2 * self.config.get("think_s", 0)))
            if time.time() > stop_at:
                self.say("late", seq)
                break
            self._one(seq, append)
        self.ledger.record(history.EventKind.DONE, kind=self.kind, writer=self.number)
        self.say("done")

    def seqs(self) -> Iterable[int]:
        """The numbers of the appends to make.

        Others may commit a writer's rows, and then it does not come by the steps of a commit.  While a kill or a pause
        of the plan is still to come, the writer therefore appends more, at most so many times as often: alone at last,
        it commits by itself.
        """
        planned: int = self.config["appends"]
        yield from range(planned)
        begun = max((event.get("seq") or 0 for event in self._before), default=0)
        for seq in range(planned, planned * MORE_APPENDS_MAX):
            if seq > begun and not self._to_come():
                return
            yield seq

    def _to_come(self) -> bool:
        """Whether a kill or a pause that the plan has for one of the appends has not happened yet."""
        return any(
            trap["seq"] is not None and not trap.get("lucky") and not self._happened(trap)
            for trap in self.config.get("traps", ())
        )

    def _happened(self, planned: dict[str, Any]) -> bool:
        """Once each, also over restarts: the ledger remembers which are done."""
        done = {
            "event": history.EventKind(planned["action"]), "step": planned["step"], "when": planned["when"],
            "planned_seq": planned["seq"],
        }  # fmt: skip
        return any(done.items() <= known.items() for known in self._before)

    def run_chore(self, chore: str, do: Callable[[int], str | None]) -> NoReturn:
        """Do a chore as many times as the plan says, and leave; a failed one is written down and does not end it."""
        leave_after(lambda: self._run_chore(chore, do))

    def _run_chore(self, chore: str, do: Callable[[int], str | None]) -> None:
        self.wait_for_the_start()
        stop_at = time.time() + self.config["time_limit_s"]
        rounds = self.config["appends"]
        # At first there is nothing to do, and rivals and faults come in between.
        for round_ in range(30 * rounds):
            time.sleep(self.config["think_s"])
            done = self._chore(chore, round_, do)
            rounds -= done
            if not rounds or time.time() > stop_at:
                break
        self.ledger.record(history.EventKind.DONE, kind=self.kind, writer=self.number)
        self.say("done")

    def _chore(self, chore: str, round_: int, do: Callable[[int], str | None]) -> bool:
        """Do it once and note its result; None says that there was nothing to do."""
        head = {"kind": self.kind, "writer": self.number, "chore": chore, "round": round_}
        try:
            what = do(round_)
        except Exception as error:  # noqa: BLE001 - every error is an answer, and goes into the ledger
            self.ledger.record(history.EventKind.CHORE, **head, done=False, what=describe(error))
            traceback.print_exc()
            return False
        if what is None:
            return False
        self.ledger.record(history.EventKind.CHORE, **head, done=True, what=what)
        return True

    def _one(self, seq: int, append: Callable[[list[Any], str | None], dict[str, Any]]) -> None:
        answers = (history.EventKind.OK, history.EventKind.FAIL, history.EventKind.INFO)
        mine = [
            e
            for e in self._before
            if e.get("seq") == seq and e["event"] in (*answers, history.EventKind.INVOKE)
        ]
        if any(event["event"] == history.EventKind.OK for event in mine):
            return
        if mine and (self.config.get("on_restart", "retry") != "retry" or mine[-1]["event"] in answers):
            return  # given up before, or never to be repeated
        rows, key = self.rows_of(seq)
        for call in range(self.calls_max):
            self.current = (seq, key or "")
            self.intend(seq, rows, key, attempt=len(mine) + call)
            began = time.monotonic()
            again = self._call(append, rows, key, began)
            self.current = None
            if not again:
                return
            time.sleep(min(2.0, 0.1 * 2**call))

    def rows_of(self, seq: int) -> tuple[list[Any], str | None]:
        """The rows of an append, and its key."""
        key = f"{self.config['arm']}-{self.number}-{seq}" if self.config.get("keyed") else None
        return history.make_rows(self.config["seed"], self.number, seq, self.config["rows"], key=key), key

    def intend(self, seq: int, rows: list[Any], key: str | None, *, attempt: int) -> None:
        """Write down what is about to be called."""
        self.ledger.invoke(rows, kind=self.kind, attempt=attempt)

    def _call(self, append: Any, rows: list[Any], key: str | None, began: float) -> bool:
        """Call once and record the answer; True if the caller's habit is to call again."""
        assert self.current is not None
        seq, _ = self.current
        head = {"kind": self.kind, "writer": self.number, "seq": seq}
        retry = self.config.get("on_error", "give up") == "retry"
        try:
            receipt = append(rows, key)
        except NotWrittenError as error:
            self.ledger.record(history.EventKind.FAIL, **head, error=str(error))
            self.say("fail", seq)
            return retry and error.retriable
        except Exception as error:  # noqa: BLE001 - every error is an answer, and goes into the ledger
            self.ledger.record(history.EventKind.INFO, **head, error=describe(error))
            self.say("info", seq)
            traceback.print_exc()
            return self.config.get("on_unknown", "give up") == "retry"
        self.trap(seq, "caller.record_ack", "before")
        elapsed_s = time.monotonic() - began
        self.ledger.record(history.EventKind.OK, **{"elapsed_s": elapsed_s, **head, **receipt})
        self.say("ok", seq, len(rows))
        return False

    def trap(self, seq: int, step: str, when: str) -> None:
        """Kill or pause this process here, if the plan says so and it was not yet done."""
        with self._trapping:  # parts of one Together come in several threads
            self._trap(seq, step, when)

    def _trap(self, seq: int, step: str, when: str) -> None:
        for planned in self.config.get("traps", ()):
            # At the first append from the planned one on that reaches this step at all.
            if (planned["step"], planned["when"]) != (step, when) or seq < (planned["seq"] or 0):
                continue
            if self._happened(planned):
                continue
            event = history.EventKind(planned["action"])
            fields = {"kind": self.kind, "writer": self.number, "seq": seq, "step": step, "when": when}
            self.ledger.record(event, **fields, planned_seq=planned["seq"])
            self._before.append({**fields, "event": event, "planned_seq": planned["seq"]})
            self.say(event, seq, step, when, os.getpid())
            if event == history.EventKind.KILL:
                os.kill(os.getpid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGSTOP)
            self.ledger.record(history.EventKind.RESUME, **fields)


def leave_after(work: Callable[[], None]) -> NoReturn:
    """Do ``work``, then leave by ``os._exit`` (deltalake may abort at exit): with 0, or with 3 where it failed."""
    code = 0
    try:
        work()
    except BaseException:  # noqa: BLE001 - whatever it is, the exit code and the log tell it
        traceback.print_exc()
        code = 3
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def in_children(work: Callable[[], None]) -> None:
    """Do ``work`` in a child process, and again in a new one each time the child is killed by SIGKILL.

    Call it after the heavy imports and before any thread or connection is made: a killed writer is
    then back in milliseconds instead of the second or two that its imports take.  Each child is a
    process of its own that knows of its predecessors only what their ledger says.
    """
    while True:
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            # Ask Linux to end us with our parent, also while we are stopped.
            ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))
            if os.getppid() == parent:
                work()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code != -signal.SIGKILL:
            os._exit(code if code >= 0 else 1)
        print("restart", flush=True)


def open_by_safewrite(config: dict[str, Any]) -> Any:
    """Open the table; faults may hit an open too, and nothing is at stake then."""
    import safewrite as sw

    options: dict[str, Any] = {"lease_s": config["lease_s"]}
    options |= {
        name: config[name] for name in ("catalog", "storage_options", "timeout_s", "group") if name in config
    }
    if config.get("arbiter") == "object-store":
        options["arbiter"] = "object-store"
    elif config.get("lock_table"):
        options["lock_table"] = config["lock_table"]
    for attempt in range(OPEN_TRIES_MAX):
        try:
            return sw.open(config["table"], **options)
        except (sw.StorageError, sw.CommitUnknownError):
            if attempt == OPEN_TRIES_MAX - 1:
                raise
            time.sleep(0.1 * (attempt + 1))
    raise AssertionError("the loop returns or raises")


def set_traps(world: Any, writer: Writer) -> None:
    """Make the world kill or pause this process before or after the effects that the plan names."""
    perform = world.perform
    read = threading.Event()  # what others wait with, since our last member was put: a commit may carry it

    def steps(name: str) -> list[str]:
        if name == "share.put_member":
            read.clear()
        elif name == "share.get_member":
            read.set()
        leads = read.is_set() and name.startswith(("commit.", "swap."))
        return [name, f"lead.{name.partition('.')[2]}"] if leads else [name]

    def trapped(effect: Any) -> Any:
        names = steps(effect.name) if writer.current is not None and effect.name else []
        for name in names:
            writer.trap(writer.current[0], name, "before")
        outcome = perform(effect)
        for name in names:
            writer.trap(writer.current[0], name, "after")
        return outcome

    # On the instance, so that the parts of a Together, which the world performs itself, pass it too.
    world.perform = trapped


def spark_folder(config: dict[str, Any]) -> Path:
    """The folder of a Spark writer's files, among them a stream's source and checkpoint."""
    return Path(config["history"]).with_name(f"writer-{config['writer']}.spark")


def to_arrow(rows: list[Any]) -> Any:
    """Rows as a ``pyarrow.Table`` with the schema of the stress tables."""
    import pyarrow as pa

    types = [
        pa.int64(),
        pa.int64(),
        pa.int64(),
        pa.string(),
        pa.float64(),
        pa.string(),
        pa.date32(),
        pa.int64(),
    ]
    schema = pa.schema(list(zip(history.COLUMNS, types, strict=True)))
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, type_) for column, type_ in zip(columns, types, strict=True)]
    return pa.table(arrays, schema=schema)


def read_config() -> dict[str, Any]:
    """The configuration named by the first argument."""
    config: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    os.environ.update(config.get("environment", {}))
    return config
