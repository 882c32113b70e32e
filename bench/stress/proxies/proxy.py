"""Sets faults by plan, in front of S3, DynamoDB, Glue and Iceberg's REST catalog.

It loses answers, refuses, delays and corrupts.  It works for any client, deltalake's Rust one included.  The
client's endpoint is the proxy's URL, and the ``Host`` header goes upstream unchanged, so signatures hold.
Whole messages are read, decided upon and forwarded, each in one piece and never twice.  Run it as a process::

    python -m bench.stress.proxies.proxy --upstream URL [--dynamodb-upstream URL] [--catalog-upstream URL]
        [--plan FILE] [--events FILE]

which prints its port, or use :class:`FaultProxy`, which does so.  ``/__faults__`` is the proxy's
own: GET counts, POST a plan, DELETE the plan, PUT an extra latency.
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from safewrite.testing.faults import (
    GLUE_PREFIX,
    PERFORMED,
    Fault,
    FaultKind,
    FaultPlan,
    Faults,
    Request,
    RequestStep,
    classify,
)
from safewrite.testing.replies import corrupt, error_reply

from ...servers import servers
from .http1 import BUFFER_BYTES, Message, Upstream, make_reply, read_request

if TYPE_CHECKING:
    from types import TracebackType

    from safewrite.testing.faults import Service

CONTROL_PATH = "/__faults__"
_MODULE = __spec__.name  # below `bench` in a checkout, below `safewrite_bench` in the wheel
_RUN = (sys.executable, "-m", _MODULE)
_ROOT = Path(__file__).resolve().parents[_MODULE.count(".")]

_PERFORMED_FIRST = PERFORMED | {FaultKind.DELAY}
_CORRUPTING = frozenset({FaultKind.TRUNCATE_BODY, FaultKind.FLIP_BIT})


def facts_of(request: Message) -> Request:
    """The part of a request that the fault plan may see."""
    path, _, query = request.target.partition("?")
    operation = request.fields.get(b"x-amz-target", b"").decode("latin-1")
    return Request(
        method=request.method,
        path=path,
        query=query,
        target=_target(operation),
        body=request.body,
        create_only=b"if-none-match" in request.fields,
    )


def _target(operation: str) -> str:
    """The operation of DynamoDB or Glue; S3 has none, and those of other services are not told apart."""
    if operation.startswith("DynamoDB_"):
        return operation.partition(".")[2]
    return operation if operation.startswith(GLUE_PREFIX) else ""


# --- the proxy --------------------------------------------------------------------------------
class Proxy:
    """The proxy's state: the plan being applied, what it has done, and where requests go."""

    def __init__(
        self,
        upstream: str,
        *,
        dynamodb_upstream: str | None,
        catalog_upstream: str | None,
        plan: FaultPlan,
        events: IO[str] | None,
    ) -> None:
        s3 = Upstream(upstream)
        catalog = Upstream(catalog_upstream) if catalog_upstream else s3
        dynamodb = Upstream(dynamodb_upstream) if dynamodb_upstream else s3
        self._upstreams: dict[Service, Upstream] = {
            "s3": s3,
            "dynamodb": dynamodb,
            "glue": catalog,
            "rest": catalog,
        }
        self._faults = Faults(plan)
        self._events = events
        self._late: set[asyncio.Task[None]] = set()
        self.extra_latency_s = 0.0
        self.fired: Counter[tuple[RequestStep, FaultKind]] = Counter()
        self.requests: Counter[RequestStep] = Counter()
        self.upstream_failures = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one client connection until either side ends it."""
        try:
            while (request := await read_request(reader, writer)) is not None:
                reply = await self._answer(request)
                if reply is None:
                    writer.transport.abort()
                    return
                writer.write(reply.encode())
                await writer.drain()
                if request.close:
                    return
        except (OSError, EOFError):
            pass  # the client is gone
        finally:
            writer.close()

    async def _answer(self, request: Message) -> Message | None:
        """The reply to a request, or None where the connection is to be cut."""
        facts = facts_of(request)
        if facts.path == CONTROL_PATH:
            return self._control(request)
        step = classify(facts)
        self.requests[step] += 1
        fault = self._faults.decide(facts, step)
        if self.extra_latency_s:
            await asyncio.sleep(self.extra_latency_s)
        if fault is None:
            return await self._forward(request, facts)
        return await self._hit(fault, request, facts)

    async def _hit(self, fault: Fault, request: Message, facts: Request) -> Message | None:
        self.fired[fault.step, fault.kind] += 1
        kind = fault.kind
        if kind is FaultKind.LATE:
            self._log(fault, facts, None)
            task = asyncio.create_task(self._forward_late(request, facts, fault.delay_s))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
            return None
        if kind in _CORRUPTING:
            return await self._corrupt(fault, request, facts)
        reply = None
        if kind in _PERFORMED_FIRST:
            if kind is FaultKind.DELAY:
                await asyncio.sleep(fault.delay_s)
            reply = await self._forward(request, facts)
        self._log(fault, facts, reply)
        if kind is FaultKind.DELAY:
            return reply
        made = error_reply(kind, facts.service)
        if made is None:  # LOST_ANSWER, CUT
            return None
        return make_reply(made.status, made.content_type, made.body, head_only=facts.method == "HEAD")

    async def _corrupt(self, fault: Fault, request: Message, facts: Request) -> Message | None:
        upload = facts.method in ("PUT", "POST")
        if upload:
            request = request.with_body(corrupt(fault.kind, request.body))
        reply = await self._forward(request, facts)
        self._log(fault, facts, reply)
        if reply is None or upload or facts.method == "HEAD":
            return reply
        return reply.with_body(corrupt(fault.kind, reply.body))

    async def _forward(self, request: Message, facts: Request) -> Message | None:
        """The server's reply; None, so a cut, where the server itself failed to give one."""
        try:
            return await self._upstreams[facts.service].ask(request)
        except (OSError, EOFError) as error:
            self.upstream_failures += 1
            print(f"upstream failed: {request.start!r}: {error!r}", file=sys.stderr, flush=True)
            return None

    async def _forward_late(self, request: Message, facts: Request, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        await self._forward(request, facts)

    def _log(self, fault: Fault, facts: Request, reply: Message | None) -> None:
        if self._events is None:
            return
        event = {
            "t": time.time_ns() // 1_000_000,
            "step": fault.step,
            "kind": fault.kind,
            "method": facts.method,
            "path": facts.path,
            "target": facts.target,
            "rule": fault.rule,
            "seq": fault.seq,
            "status": None if reply is None else reply.status,
        }
        self._events.write(json.dumps(event) + "\n")
        self._events.flush()

    def _control(self, request: Message) -> Message:
        method, body = request.method, request.body
        try:
            if method == "POST":
                self._faults = Faults(FaultPlan.from_json(body))
            elif method == "DELETE":
                self._faults = Faults(FaultPlan())
            elif method == "PUT":
                self.extra_latency_s = float(body)
        except (ValueError, TypeError) as error:
            return make_reply(400, "text/plain", str(error).encode())
        answer: dict[str, Any] = {
            "faults": [[step, kind, count] for (step, kind), count in sorted(self.fired.items())],
            "requests": dict(self.requests),
            "upstream_failures": self.upstream_failures,
        }
        return make_reply(200, "application/json", json.dumps(answer).encode())


async def run(proxy: Proxy, *, port: int) -> None:
    """Serve on loopback for ever; prints the port."""
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", port, limit=BUFFER_BYTES, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="HTTP fault proxy for S3, DynamoDB and Iceberg catalogs")
    parser.add_argument("--upstream", required=True, help="where requests go: http://host:port")
    parser.add_argument("--dynamodb-upstream", help="where DynamoDB's requests go, if elsewhere")
    parser.add_argument(
        "--catalog-upstream", help="where Glue's or a REST catalog's requests go, if elsewhere"
    )
    parser.add_argument("--plan", type=Path, help="a JSON file with the fault plan")
    parser.add_argument("--events", type=Path, help="append each fault that fires, as a JSON line")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--extra-latency-s", type=float, default=0.0, help="added to every request")
    options = parser.parse_args()
    plan = FaultPlan.from_json(options.plan.read_bytes()) if options.plan else FaultPlan()
    with contextlib.ExitStack() as stack:
        events = stack.enter_context(options.events.open("a")) if options.events else None
        proxy = Proxy(
            options.upstream,
            dynamodb_upstream=options.dynamodb_upstream,
            catalog_upstream=options.catalog_upstream,
            plan=plan,
            events=events,
        )
        proxy.extra_latency_s = options.extra_latency_s
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(run(proxy, port=options.port))


# --- the handle -------------------------------------------------------------------------------
class FaultProxy:
    """A fault proxy in a process of its own; a context manager.

    Counts are of the proxy's whole life: neither :meth:`set_plan` nor :meth:`clear` resets them.
    ``run_dir`` receives ``<name>.log`` and ``<name>-events.jsonl``.
    """

    def __init__(
        self,
        upstream: str,
        run_dir: Path | str,
        *,
        dynamodb_upstream: str | None = None,
        catalog_upstream: str | None = None,
        plan: FaultPlan | None = None,
        extra_latency_s: float = 0.0,
        name: str = "proxy",
    ) -> None:
        self.run_dir = Path(run_dir).resolve()
        self.events_path = self.run_dir / f"{name}-events.jsonl"
        self.port = 0
        self._log_path = self.run_dir / f"{name}.log"
        self._plan = plan
        self._arguments = ["--upstream", upstream, "--extra-latency-s", str(extra_latency_s)]
        if dynamodb_upstream is not None:
            self._arguments += ["--dynamodb-upstream", dynamodb_upstream]
        if catalog_upstream is not None:
            self._arguments += ["--catalog-upstream", catalog_upstream]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint_url(self) -> str:
        """The endpoint of a client's S3, DynamoDB and catalog."""
        return f"http://127.0.0.1:{self.port}"

    def storage_options(self) -> dict[str, str]:
        """deltalake's ``AWS_*`` keys for both services through the proxy."""
        return servers.storage_options(self.endpoint_url, dynamodb_url=self.endpoint_url)

    def boto3_client(self, service: str, /) -> Any:
        """A boto3 client through the proxy, without retries."""
        return servers.boto3_client(service, self.endpoint_url)

    def set_plan(self, plan: FaultPlan) -> None:
        """Apply ``plan`` from now on, from its beginning, instead of the one before."""
        self._control("POST", plan.to_json().encode())

    def clear(self) -> None:
        """Let everything through from now on."""
        self._control("DELETE")

    def set_extra_latency(self, seconds: float) -> None:
        """Hold every request for ``seconds`` before anything else happens to it."""
        self._control("PUT", str(seconds).encode())

    def counts(self) -> Counter[tuple[RequestStep, FaultKind]]:
        """How often each fault has fired at each step."""
        fired = self._control("GET")["faults"]
        return Counter({(RequestStep(step), FaultKind(kind)): count for step, kind, count in fired})

    def requests(self) -> Counter[RequestStep]:
        """How many requests there were for each step, faulty or not."""
        return Counter({RequestStep(step): count for step, count in self._control("GET")["requests"].items()})

    def upstream_failures(self) -> int:
        """How often a server gave no answer by itself: faults that nobody planned."""
        return int(self._control("GET")["upstream_failures"])

    def events(self) -> list[dict[str, Any]]:
        """Every fault that has fired: ``t`` (wall ms), step, kind, method, path, target, rule, seq, status.

        ``status`` is what the server answered, None where it was not asked.
        """
        if not self.events_path.exists():
            return []
        return [json.loads(line) for line in self.events_path.read_text().splitlines()]

    def start(self) -> Self:
        """Start the proxy; ``ServerError`` where it does not come up."""
        self.run_dir.mkdir(parents=True, exist_ok=True)
        command = [*_RUN, *self._arguments, "--events", str(self.events_path)]
        if self._plan is not None:
            plan_path = self.events_path.with_suffix(".plan.json")
            plan_path.write_text(self._plan.to_json())
            command += ["--plan", str(plan_path)]
        path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
        with self._log_path.open("ab") as log:
            self._process = servers.spawn(
                command, log, env={**os.environ, "PYTHONPATH": path}, cwd=self.run_dir, stdout=subprocess.PIPE
            )
        atexit.register(self.stop)
        assert self._process.stdout is not None
        with self._process.stdout as said:
            line = said.readline()
        if not line.strip().isdigit():
            self.stop()
            raise servers.ServerError(f"the fault proxy did not start; its log is {self._log_path}")
        self.port = int(line)
        return self

    def stop(self) -> None:
        """End the proxy; stopping twice is no error."""
        atexit.unregister(self.stop)
        if self._process is not None:
            servers.end(self._process)
            self._process = None

    def _control(self, method: str, body: bytes | None = None) -> dict[str, Any]:
        request = urllib.request.Request(self.endpoint_url + CONTROL_PATH, data=body, method=method)
        # No proxy from the environment between us and loopback.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=30) as reply:
            plain: dict[str, Any] = json.loads(reply.read())
        return plain

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


if __name__ == "__main__":
    main()
