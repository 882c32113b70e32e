"""Runs a Lambda function: warm environments up to its concurrency, one invocation at a time in each."""

from __future__ import annotations

import atexit
import json
import math
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .runtime_api import Request
from .sandbox import Ending, Sandbox, Setup, Status, deadline_ms


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one invocation.

    ``limit_s`` stands in for the function's own time limit; after ``kill_after_s`` its environment is killed;
    after its answer the environment stays frozen for at least ``frozen_s``.
    """

    limit_s: float | None = None
    kill_after_s: float = math.inf
    frozen_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Invocation:
    """One invocation and its end: ``result``, ``error`` (an exception, a crash, a failed start) or ``timeout``."""

    request_id: str
    status: Status
    body: bytes
    environment: int
    cold: bool
    duration_ns: int = 0
    init_ns: int = 0
    """How long its environment took to start, if it was started for this invocation."""

    @property
    def billed_ms(self) -> int:
        """The billed duration, as in Lambda's REPORT line: of start and invocation together, rounded up.

        Lambda bills the start of an environment of every kind since August 2025
        (https://aws.amazon.com/blogs/compute/aws-lambda-standardizes-billing-for-init-phase/).
        """
        return -(-(self.init_ns + self.duration_ns) // 1_000_000)

    @property
    def value(self) -> Any:
        """What the handler returned, or the error as Lambda reports it: ``errorType``, ``errorMessage``."""
        return json.loads(self.body)

    @property
    def error_type(self) -> str:
        """The type of the error; empty for a result."""
        return "" if self.status == "result" else str(self.value.get("errorType", ""))


class Function:
    """A function that can be invoked from many threads; a context manager.

    ``concurrency`` is how many environments there may be; of these at most ``starting_max`` start and
    ``serving_max`` serve at once (None: all), where one machine does not carry more.  The others wait as they
    are: frozen, or not yet started.  ``faults`` gives the fault of the n-th invocation.  ``counts`` has how often what happened: ``result``,
    ``error``, ``timeout``, ``kill``, ``exit``, ``init``, ``cold start``, ``freeze`` and ``long freeze``.
    """

    def __init__(
        self,
        setup: Setup,
        run_dir: Path | str,
        *,
        concurrency: int = 1,
        starting_max: int | None = None,
        serving_max: int | None = None,
        freezes: bool = True,
        faults: Callable[[int], Fault] = lambda number: Fault(),
    ) -> None:
        self.setup = setup
        self.concurrency = concurrency
        self.counts: Counter[str] = Counter()
        self._run_dir = Path(run_dir)
        self._freezes = freezes
        self._faults = faults
        self._may_start = threading.Semaphore(starting_max or concurrency)
        self._may_serve = threading.Semaphore(serving_max or concurrency)
        self._changed = threading.Condition()
        self._alive: list[Sandbox] = []
        self._idle: list[Sandbox] = []
        self._started = 0
        self._invoked = 0
        self._stopped = False
        # An environment dies with the thread that started it, so one thread starts them all.
        self._starter = ThreadPoolExecutor(1)

    def __enter__(self) -> Self:
        self._run_dir.mkdir(parents=True, exist_ok=True)
        atexit.register(self.stop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def environments(self) -> list[Sandbox]:
        """The environments that are alive."""
        with self._changed:
            return list(self._alive)

    def stop(self) -> None:
        """Kill all environments; invocations under way end as errors, later ones raise ``RuntimeError``."""
        atexit.unregister(self.stop)
        with self._changed:
            self._stopped = True
            left, self._alive, self._idle = self._alive, [], []
            self._changed.notify_all()
        for sandbox in left:
            sandbox.kill()
        self._starter.shutdown()

    def start_all(self) -> None:
        """Start every environment that there may be, before the first invocation; each bills it with its first.

        Raises ``RuntimeError`` with its log, where one does not start.
        """
        with self._changed:
            new = [self._add() for _ in range(self.concurrency - len(self._alive))]
        with ThreadPoolExecutor(max(1, len(new))) as pool:
            endings = list(pool.map(self._start, new))
        for sandbox, ending in zip(new, endings, strict=True):
            if ending is not None:
                raise RuntimeError(f"an environment did not start: {ending.body.decode()}\n{sandbox.log()}")
            if self._freezes:
                sandbox.freeze()
            self._give_back(sandbox, Fault())

    def invoke(self, event: Any) -> Invocation:
        """Invoke with an event of JSON values; waits for an environment and for the end."""
        payload = json.dumps(event).encode()
        with self._changed:
            number = self._invoked
            self._invoked += 1
        fault = self._faults(number)
        sandbox = self._take()
        cold = not sandbox.served
        request_id = str(uuid.uuid4())
        ending = None if sandbox.is_ready else self._start(sandbox)
        if ending is None:
            with self._may_serve:
                ending = self._serve(sandbox, request_id, payload, fault)
        self._give_back(sandbox, fault)
        self._count(ending, cold=cold)
        return Invocation(
            request_id, ending.status, ending.body, sandbox.number, cold,
            duration_ns=ending.duration_ns, init_ns=sandbox.init_ns if cold else 0,
        )  # fmt: skip

    def _serve(self, sandbox: Sandbox, request_id: str, payload: bytes, fault: Fault) -> Ending:
        limit_s = self.setup.timeout_s if fault.limit_s is None else fault.limit_s
        trace_id = f"Root=1-{int(time.time()):08x}-{uuid.uuid4().hex[:24]};Sampled=0"
        request = Request(request_id, payload, deadline_ms(limit_s), self.setup.arn, trace_id)
        return sandbox.serve(request, limit_s=limit_s, kill_after_s=fault.kill_after_s)

    # --- environments -----------------------------------------------------------------------------
    def _take(self) -> Sandbox:
        """The environment that has waited longest, or a new one while there may be more."""
        with self._changed:
            while not self._stopped:
                self._bury_the_dead()
                now = time.monotonic()
                rested = [sandbox for sandbox in self._idle if sandbox.rests_until <= now]
                if rested:
                    self._idle.remove(rested[0])
                    return rested[0]
                if len(self._alive) < self.concurrency:
                    return self._add()
                soonest = min((sandbox.rests_until for sandbox in self._idle), default=math.inf)
                self._changed.wait(None if soonest == math.inf else soonest - now)
        raise RuntimeError("the function was stopped")

    def _add(self) -> Sandbox:
        self._started += 1
        log = self._run_dir / f"{self.setup.name}-{self._started}.log"
        sandbox = Sandbox(self.setup, self._started, log, freezes=self._freezes)
        self._alive.append(sandbox)
        return sandbox

    def _start(self, sandbox: Sandbox) -> Ending | None:
        with self._may_start:
            self._starter.submit(sandbox.start).result()
            return sandbox.wait_until_ready()

    def _give_back(self, sandbox: Sandbox, fault: Fault) -> None:
        with self._changed:
            if self._stopped:
                sandbox.kill()
                return
            if sandbox.is_alive:
                self._idle.append(sandbox)
                self.counts["freeze"] += sandbox.is_frozen
                if sandbox.is_frozen and fault.frozen_s:
                    sandbox.rests_until = time.monotonic() + fault.frozen_s
                    self.counts["long freeze"] += 1
            else:
                self._alive.remove(sandbox)
            self._changed.notify_all()

    def _bury_the_dead(self) -> None:
        """Forget environments that ended while they waited."""
        for sandbox in [one for one in self._idle if not one.is_alive]:
            sandbox.kill()
            self._idle.remove(sandbox)
            self._alive.remove(sandbox)

    def _count(self, ending: Ending, *, cold: bool) -> None:
        with self._changed:
            self.counts["cold start"] += cold
            self.counts[ending.status] += 1
            if ending.fault and ending.fault != ending.status:
                self.counts[ending.fault] += 1
