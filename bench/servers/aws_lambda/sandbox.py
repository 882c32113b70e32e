"""Runs one environment of a function: a process group that is started, frozen, thawed and killed."""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Literal, TypeAlias

from ..servers import spawn
from .runtime_api import Request, RuntimeApi, Word

Status: TypeAlias = Literal["result", "error", "timeout"]


@dataclass(frozen=True, slots=True)
class Setup:
    """A function's configuration.  ``handler`` is ``module.function``, found in the folder ``root``."""

    handler: str
    root: Path
    python: str
    """The interpreter of the environments; it must have awslambdaric."""
    name: str = "function"
    timeout_s: float = 3.0
    init_timeout_s: float = 120.0
    """Lambda itself allows ten seconds; a loaded machine may need more for the same imports."""
    memory_mb: int = 1024
    region: str = "us-east-1"
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def arn(self) -> str:
        """The function's ARN."""
        return f"arn:aws:lambda:{self.region}:000000000000:function:{self.name}"

    def environment(self, api: str, number: int) -> dict[str, str]:
        """The variables of an environment: Lambda's and the user's, and of this process only where things are."""
        kept = ("PATH", "LANG", "HOME", "LD_LIBRARY_PATH", "PYTHONPATH")
        here = {name: os.environ[name] for name in kept if name in os.environ}
        return {
            **here,
            "PYTHONUNBUFFERED": "1",
            "AWS_LAMBDA_RUNTIME_API": api,
            "AWS_LAMBDA_FUNCTION_NAME": self.name,
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(self.memory_mb),
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{self.name}",
            "AWS_LAMBDA_LOG_STREAM_NAME": f"[$LATEST]{number}",
            "AWS_EXECUTION_ENV": "AWS_Lambda_python3.11",
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "LAMBDA_TASK_ROOT": str(self.root),
            "LAMBDA_RUNTIME_DIR": str(self.root),
            "_HANDLER": self.handler,
            "TZ": ":UTC",
            **self.variables,
        }


@dataclass(frozen=True, slots=True)
class Ending:
    """How an invocation ended; ``body`` is what the handler returned, or the error, as JSON."""

    status: Status
    body: bytes
    fault: Literal["", "timeout", "kill", "exit", "init"] = ""
    duration_ns: int = 0
    """Of an invocation: from the event's handing over to the answer, or to the kill."""


class Sandbox:
    """One environment.  It serves one invocation at a time and stays warm until it is killed or ends."""

    def __init__(self, setup: Setup, number: int, log_path: Path, *, freezes: bool = True) -> None:
        self.setup = setup
        self.number = number
        self.served = 0
        self.is_ready = False
        """Whether it has started."""
        self.init_ns = 0
        """From the start of the process until it asked for its first invocation, or failed to."""
        self.is_frozen = False
        self.rests_until = -math.inf
        """In monotonic seconds: not thawed before."""
        self._log_path = log_path
        self._freezes = freezes
        self._api = RuntimeApi()
        self._log: IO[bytes] = log_path.open("ab")
        self._process: subprocess.Popen[bytes] | None = None
        self._began_ns = 0

    @property
    def pid(self) -> int:
        """The id of the process, and of its group."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether its process runs, or is frozen."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process.  It dies with the calling thread: call it from one that lives as long as the function."""
        command = [self.setup.python, "-m", "awslambdaric", self.setup.handler]
        environment = self.setup.environment(self._api.address, self.number)
        self._began_ns = time.monotonic_ns()
        self._process = spawn(
            command,
            self._log,
            env=environment,
            cwd=self.setup.root,
            stdout=self._log.fileno(),
            own_group=True,
        )
        threading.Thread(target=self._watch, daemon=True).start()

    def wait_until_ready(self) -> Ending | None:
        """Wait until it asks for its first invocation; how it failed, if it did, and then it is dead."""
        word = self._hear(self.setup.init_timeout_s)
        self.init_ns = time.monotonic_ns() - self._began_ns
        self.is_ready = word is not None and word.said == "idle"
        if self.is_ready:
            return None
        self.kill()
        if word is None:
            return _error("Sandbox.Timedout", f"no start within {self.setup.init_timeout_s} s", "init")
        if word.said == "init error":
            return Ending("error", word.body, "init")
        return _error("Runtime.ExitError", "the runtime ended while it started", "init")

    def serve(self, request: Request, *, limit_s: float, kill_after_s: float = math.inf) -> Ending:
        """Run one invocation; at its time limit, or the moment of a kill, the whole group is killed."""
        self.thaw()
        self.served += 1
        began_ns = time.monotonic_ns()
        self._api.hand(request)
        word = self._hear(min(limit_s, kill_after_s))
        duration_ns = time.monotonic_ns() - began_ns
        ending = self._ending(word, request.request_id, limit_s=limit_s, kill_after_s=kill_after_s)
        if not ending.fault:
            self._settle()
        return replace(ending, duration_ns=duration_ns)

    def _ending(self, word: Word | None, request_id: str, *, limit_s: float, kill_after_s: float) -> Ending:
        """What an invocation's last word makes of it; without an answer the environment is killed."""
        if word is None:
            self.kill()
            # An answer that was on its way when the time was over is none.
            if kill_after_s < limit_s:
                return _error("Runtime.ExitError", "the environment was killed", "kill")
            return _timeout(request_id, limit_s)
        if word.said == "exit":
            self.kill()  # whatever it has started
            return _error("Runtime.ExitError", "the runtime ended without an answer", "exit")
        return Ending("result" if word.said == "response" else "error", word.body)

    def _settle(self) -> None:
        """After an answer: frozen as soon as it asks for more work, dead if it does not."""
        word = self._hear(self.setup.init_timeout_s)
        if word is None or word.said != "idle":
            self.kill()
        elif self._freezes:
            self.freeze()

    def freeze(self) -> None:
        """Stop every process of the group, as Lambda does between invocations."""
        self.is_frozen = self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them run again."""
        if self.is_frozen:
            self._signal(signal.SIGCONT)
            self.is_frozen = False

    def kill(self) -> None:
        """Kill every process of the group, and end its API; twice is no error."""
        if self._log.closed:
            return
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
        self._api.close()
        self._log.close()

    def log(self) -> str:
        """What it has written."""
        return self._log_path.read_text(errors="replace")

    def _signal(self, number: signal.Signals) -> bool:
        """Send a signal to the group; False if nobody is left in it."""
        if self._process is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
            return True
        return False

    def _hear(self, limit_s: float) -> Word | None:
        """The next word, or None when the time is over."""
        try:
            return self._api.heard.get(timeout=limit_s)
        except queue.Empty:
            return None

    def _watch(self) -> None:
        assert self._process is not None
        self._process.wait()
        self._api.heard.put(Word("exit"))


def deadline_ms(limit_s: float) -> int:
    """The deadline that an invocation is told, in epoch milliseconds."""
    return int((time.time() + limit_s) * 1000)


def _error(kind: str, text: str, fault: Literal["kill", "exit", "init"]) -> Ending:
    return Ending("error", json.dumps({"errorType": kind, "errorMessage": text}).encode(), fault)


def _timeout(request_id: str, limit_s: float) -> Ending:
    text = f"{request_id} Task timed out after {limit_s:.2f} seconds"
    body = json.dumps({"errorType": "Sandbox.Timedout", "errorMessage": text}).encode()
    return Ending("timeout", body, "timeout")
