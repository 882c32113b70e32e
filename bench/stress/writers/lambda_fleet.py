"""Runs a Lambda function on the table, fed by SQS: its environments are killed, cut off at deadlines, and frozen.

Each message is one append of the ledger: invoked when it is sent, acknowledged when the function has answered
that it succeeded.  Poison messages, which no table can take, must end as dead letters and nowhere else.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import random
import statistics
import sys
import threading
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import common
from common import history
from lambda_common import Traps, body_of

# In a wheel the package has another name.
_LAMBDA = f"{Path(__file__).resolve().parents[2].name}.servers.aws_lambda"
function = importlib.import_module(f"{_LAMBDA}.function")
mapping = importlib.import_module(f"{_LAMBDA}.mapping")
sandbox = importlib.import_module(f"{_LAMBDA}.sandbox")
sqs = importlib.import_module(f"{_LAMBDA}.sqs")
servers = importlib.import_module(f"{Path(__file__).resolve().parents[2].name}.servers.servers")

ENDS = {
    "kill": (history.EventKind.KILL, "any-moment"),
    "timeout": (history.EventKind.KILL, "time-limit"),
    "long freeze": (history.EventKind.PAUSE, "between-invocations"),
}
"""What a function counts, as the ledger and the plan call it."""
_OUTSIDE = tuple(step for _, step in ENDS.values())
LOOK_EVERY_S = 0.1
FAULT_SHARE = 0.4
"""Of the invocations, while some planned fault is still to come."""
MOMENT_MAX_S = 0.6
"""Kills and short deadlines come within this time of an invocation's start, or within that of a usual one."""
URGENT_MAX_S = 0.1
ALONE = 3
"""Messages that come last, one at a time."""
KEPT_BACK = 0.25
"""Of the messages, until every trap is armed."""
FIRED = ("redelivery", "repeat", "overlap", "regrouped", "reported", "failed batch")
"""What a mapping must have done for a run to prove anything."""


class Faults:
    """Draws faults of invocations until each kind has come as often as the plan wants."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._seed = config["seed"]
        self._wanted = config["faults"]
        self._frozen_s = config["frozen_s"]
        self.counts: Counter[str] = Counter()
        self.lengths_s: deque[float] = deque([MOMENT_MAX_S], maxlen=50)
        """Of the last invocations that ended by themselves."""
        self._drawn: Counter[str] = Counter()
        self._mine = threading.local()
        self._lock = threading.Lock()
        self.is_urgent = False
        """The last messages are on their way: every invocation gets a fault that is still to come, and early."""

    def draw(self, number: int) -> Any:
        """The fault of the n-th invocation."""
        rng = random.Random(f"{self._seed}/{number}/fault")
        usual_s = max(MOMENT_MAX_S, statistics.median(self.lengths_s))
        longest_s, share = (URGENT_MAX_S, 1.0) if self.is_urgent else (usual_s, FAULT_SHARE)
        moment_s, is_faulty = rng.uniform(0.02, longest_s), rng.random() < share
        with self._lock:
            missing = [kind for kind in ENDS if self.counts[kind] + self._drawn[kind] < self._wanted]
            if not missing or not is_faulty:
                return function.Fault()
            self._mine.kind = kind = rng.choice(missing)
            self._drawn[kind] += 1
        match kind:
            case "kill":
                return function.Fault(kill_after_s=moment_s)
            case "timeout":
                return function.Fault(limit_s=moment_s)
            case _:
                return function.Fault(frozen_s=self._frozen_s)

    def end(self, length_s: float | None) -> None:
        """Of the invocation for which this thread drew last: it is over, and took so long if it ended by itself."""
        with self._lock:
            if kind := getattr(self._mine, "kind", ""):
                self._drawn[kind] -= 1
                self._mine.kind = ""
        if length_s is not None:
            self.lengths_s.append(length_s)


class _Timed(function.Function):
    """A function that tells its faults when an invocation is over."""

    def __init__(self, setup: Any, run_dir: Path, faults: Faults, **options: Any) -> None:
        super().__init__(setup, run_dir, faults=faults.draw, **options)
        self._end = faults.end

    def invoke(self, event: Any) -> Any:
        """Invoke, and note how long it took."""
        invocation = super().invoke(event)
        self._end(invocation.duration_ns / 1e9 if invocation.status == "result" else None)
        return invocation


class Run:
    """All messages of one function."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.writer = common.Writer(config)
        self.folder = Path(config["history"]).with_name(f"writer-{config['writer']}.lambda")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.traps = Traps(self.folder)
        self.flaws: list[str] = []
        self._faults = Faults(config)
        self._seq: dict[str, int] = {}
        self._repeats: dict[str, int] = {}
        self._poison: set[str] = set()
        self._poisoned = 0
        self._acked: set[str] = set()
        self._to_arm = [trap for trap in config["traps"] if trap["step"] not in _OUTSIDE]
        self._armed: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        client = servers.boto3_client("sqs", config["sqs_url"])
        self.queue = sqs.Queue(
            client, f"lambda-{config['writer']}-{os.getpid()}",
            visibility_s=math.ceil(6 * config["limit_s"]), received_max=config["received_max"],
        )  # fmt: skip
        self.function = _Timed(
            self._setup(), self.folder, self._faults, concurrency=config["functions"],
            starting_max=config["starting_max"], serving_max=config["serving_max"],
        )  # fmt: skip
        self._faults.counts = self.function.counts

    def _setup(self) -> Any:
        path = self.folder / "config.json"
        path.write_text(json.dumps({**self.config, "traps_folder": str(self.folder)}))
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TOKIO_WORKER_THREADS")
        threads = {name: os.environ[name] for name in names if name in os.environ}
        return sandbox.Setup(
            self.config["handler"], Path(__file__).resolve().parent, sys.executable, name=f"writer{self.writer.number}",
            timeout_s=self.config["limit_s"], variables={**threads, "STRESS_CONFIG": str(path)},
        )  # fmt: skip

    def work(self) -> None:
        """Send all messages, feed the function until the queue is empty, and write down what happened."""
        self.writer.wait_for_the_start()
        bodies = self._bodies()
        # Some steps are met by a batch of one message alone: those of several are one request.
        alone = [body for body in bodies if body[0] is not None][:ALONE] if self._to_arm else []
        bodies = [body for body in bodies if body not in alone]
        kept_back = math.ceil(KEPT_BACK * len(bodies)) if self._to_arm else 0
        self._send(bodies[kept_back:])
        feed = mapping.Feed(retry_s=0, uneven=True, early=0.5, seed=self.config["seed"])
        with self.function:
            feeding = mapping.EventSourceMapping(
                self.queue, self.function, feed, deliveries=self._deliveries,
                succeeded=self._succeeded, failed=self._failed,
            )  # fmt: skip
            over = threading.Event()
            watch = threading.Thread(target=self._watch, args=(over,), daemon=True)
            watch.start()
            with feeding:
                is_done = self._wait_until_armed(feeding)
                self._faults.is_urgent = True
                self._send(bodies[:kept_back])
                is_done = is_done and feeding.wait_until_empty(self.config["time_limit_s"])
                for body in alone:
                    self._send([body])
                    is_done = is_done and feeding.wait_until_empty(self.config["time_limit_s"])
            over.set()
            watch.join()
        if feeding.errors:
            raise RuntimeError("\n".join(feeding.errors))
        if is_done:
            self._judge_dead_letters()
            self._end(feeding.counts)

    def _bodies(self) -> list[tuple[int | None, str]]:
        """All messages, poison among the good ones; the ledger knows an append before its message is in the queue."""
        bodies: list[tuple[int | None, str]] = []
        for seq in range(self.config["appends"]):
            rows = history.make_rows(
                self.config["seed"], self.writer.number, seq, self.config["rows"], key=f"message {seq}"
            )
            self.writer.ledger.invoke(rows, kind=self.writer.kind, attempt=1)
            bodies.append((seq, body_of(rows)))
        rng = random.Random(f"{self.config['seed']}/{self.writer.number}/poison")
        for number in range(self.config["poison"]):
            bodies.insert(rng.randrange(len(bodies)), (None, self._poison_body(number)))
        return bodies

    def _send(self, bodies: list[tuple[int | None, str]]) -> None:
        rng = random.Random(f"{self.config['seed']}/{self.writer.number}/{len(self._seq)}/repeats")
        with self._lock:  # nobody is told of a message before its id is known
            ids = self.queue.send([body for _, body in bodies])
            for message_id, (sent, _) in zip(ids, bodies, strict=True):
                if sent is None:
                    self._poison.add(message_id)
                else:
                    self._seq[message_id] = sent
                    self._repeats[message_id] = rng.randint(1, self.config["deliveries_max"])

    def _deliveries(self, message_id: str) -> int:
        with self._lock:
            return self._repeats.get(message_id, 1)

    def _wait_until_armed(self, feeding: Any) -> bool:
        """Wait until every trap is armed: the messages that are sent then pass each step, and spring those left."""
        deadline = time.monotonic() + self.config["time_limit_s"]
        while self._to_arm:
            if feeding.errors or time.monotonic() > deadline:
                return False
            time.sleep(LOOK_EVERY_S)
        return True

    def _poison_body(self, number: int) -> str:
        """In turn: no JSON at all, and good rows with a column that the table does not have."""
        seq = self.config["appends"] + number
        rows = history.make_rows(self.config["seed"], self.writer.number, seq, self.config["rows"])
        return "no JSON" if number % 2 else body_of(rows, stranger=1)

    # --- what comes of a delivery, from the threads of the mapping -------------------------------------
    def _succeeded(self, message_id: str) -> None:
        with self._lock:
            if message_id in self._poison:
                self.flaws.append(f"poison message {message_id} was acknowledged")
            if message_id in self._acked or message_id in self._poison:
                return
            self._acked.add(message_id)
            seq = self._seq[message_id]
            self.writer.ledger.record(
                history.EventKind.OK, kind=self.writer.kind, writer=self.writer.number, seq=seq
            )
            self.writer.say("ok", seq, self.config["rows"])

    def _failed(self, message_id: str) -> None:
        with self._lock:
            self._poisoned += message_id in self._poison

    # --- kills and freezes --------------------------------------------------------------------------
    def _watch(self, over: threading.Event) -> None:
        """Arm traps as messages are acknowledged; write down each kill and each long freeze."""
        seen: Counter[str] = Counter()
        while not over.wait(LOOK_EVERY_S):
            self._look(seen)
        self._look(seen)

    def _look(self, seen: Counter[str]) -> None:
        for trap in [trap for trap in self._armed if self.traps.is_sprung(trap["step"], trap["when"])]:
            self._armed.remove(trap)
            self._mark(history.EventKind.KILL, trap["step"], trap["when"])
        for kind, (event, step) in ENDS.items():
            for _ in range(self.function.counts[kind] - seen[kind]):
                self._mark(event, step, "during")
            seen[kind] = self.function.counts[kind]
        # All are armed when half are acknowledged; more than that were sent.
        share = 2 * len(self._acked) / self.config["appends"]
        left = math.floor(max(0.0, 1 - share) * len(self.config["traps"]))
        while len(self._to_arm) > left and self.traps.arm(self._to_arm[0]["step"], self._to_arm[0]["when"]):
            self._armed.append(self._to_arm.pop(0))

    def _mark(self, event: str, step: str, when: str) -> None:
        self.writer.ledger.record(
            event, kind=self.writer.kind, writer=self.writer.number, step=step, when=when
        )
        if event == history.EventKind.KILL:
            self.writer.say(event, 0, step, when, 0)

    # --- the end --------------------------------------------------------------------------------------
    def _judge_dead_letters(self) -> None:
        dead = set(self.queue.dead_ids())
        self.flaws += [f"poison message {one} is no dead letter" for one in sorted(self._poison - dead)]
        given_up = [self._seq[one] for one in dead - self._poison if one not in self._acked]
        self.flaws += [f"message {seq} could be written and is a dead letter" for seq in sorted(given_up)]

    def _end(self, counts: Counter[str]) -> None:
        fired = {name: counts[name] for name in FIRED}
        fired |= {"poison": self._poisoned, "freeze": self.function.counts["freeze"]}
        print(json.dumps({**counts, **self.function.counts}), file=sys.stderr)
        self.writer.ledger.record(
            history.EventKind.DONE,
            kind=self.writer.kind,
            writer=self.writer.number,
            fired=fired,
            flaws=self.flaws,
        )
        self.writer.say("done")


def main() -> None:
    """Run the function that the configuration names."""
    config = common.read_config()
    common.leave_after(lambda: Run(config).work())


if __name__ == "__main__":
    main()
