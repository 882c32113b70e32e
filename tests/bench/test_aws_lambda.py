"""Lambda on this machine: AWS's runtime in environments that stay warm, freeze, time out and are killed."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bench.servers.aws_lambda.function import Fault, Function, Invocation
from bench.servers.aws_lambda.mapping import EventSourceMapping, Feed
from bench.servers.aws_lambda.responses import failed_ids
from bench.servers.aws_lambda.runtime_api import Request, RuntimeApi
from bench.servers.aws_lambda.sandbox import Sandbox, Setup
from bench.servers.aws_lambda.sqs import Message, Queue
from bench.servers.servers import Ministack
from tests.bench.processes import is_alive, until_gone

HERE = Path(__file__).resolve().parent
LONG_S = 60.0

Start = Callable[..., Function]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """``start("count")`` is a function on that handler; everything of it ends with the test."""
    with ExitStack() as stack:

        def started(handler: str, *, timeout_s: float = LONG_S, **options: Any) -> Function:
            variables = {"DELIVERIES": str(tmp_path / "deliveries")}
            setup = Setup(
                f"lambda_handlers.{handler}", HERE, sys.executable, timeout_s=timeout_s, variables=variables
            )
            return stack.enter_context(Function(setup, tmp_path / "function", **options))

        yield started


def state(pid: int) -> str:
    """A process's state, as the kernel names it: ``T`` is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def until(condition: Callable[[], bool]) -> bool:
    """Whether a condition comes true within half a minute."""
    for _ in range(600):
        if condition():
            return True
        time.sleep(0.05)
    return False


# --- one invocation -------------------------------------------------------------------------------
def test_a_handler_gets_its_event_and_a_context_and_its_response_comes_back(start: Start) -> None:
    function = start("count")
    invocation = function.invoke({"text": "naïve 東京", "numbers": [1, 2.5, None]})
    answer = invocation.value
    assert invocation.status == "result"
    assert answer["event"] == {"text": "naïve 東京", "numbers": [1, 2.5, None]}
    assert answer["request_id"] == invocation.request_id
    assert (answer["arn"], answer["memory"]) == (function.setup.arn, str(function.setup.memory_mb))
    assert (answer["task_root"], answer["handler"]) == (str(HERE), "lambda_handlers.count")
    assert 0 < answer["remaining_ms"] <= LONG_S * 1000


def test_an_exception_is_an_error_and_the_environment_stays_warm(start: Start) -> None:
    function = start("fail")
    first, second = function.invoke({"text": "no"}), function.invoke({"text": "never"})
    assert (first.status, first.error_type, first.value["errorMessage"]) == ("error", "ValueError", "no")
    assert (second.value["errorMessage"], second.cold) == ("never", False)
    assert function.counts["cold start"] == 1


def test_a_handler_that_cannot_be_imported_is_an_error_of_the_start(start: Start) -> None:
    function = start("no_such_function")
    invocation = function.invoke({})
    assert (invocation.status, invocation.error_type) == ("error", "Runtime.HandlerNotFound")
    assert (function.counts["init"], function.environments) == (1, [])


def test_a_process_that_ends_in_an_invocation_is_an_error_and_the_next_one_starts_anew(start: Start) -> None:
    function = start("leave")
    invocation = function.invoke({})
    assert (invocation.status, invocation.error_type) == ("error", "Runtime.ExitError")
    assert function.counts["exit"] == 1
    assert function.invoke({}).cold


def test_at_its_deadline_an_environment_is_killed_and_another_serves_the_next(start: Start) -> None:
    function = start("sleep", faults=lambda number: Fault(limit_s=0.5) if number == 1 else Fault())
    victim = function.invoke({}).value
    late = function.invoke({"seconds": 600})
    assert (late.status, late.error_type) == ("timeout", "Sandbox.Timedout")
    assert "Task timed out after 0.50 seconds" in late.value["errorMessage"]
    assert not is_alive(victim)
    again = function.invoke({})
    assert (again.status, again.cold) == ("result", True)
    assert again.value != victim
    assert (function.counts["timeout"], function.counts["cold start"]) == (1, 2)


def test_an_environment_can_be_killed_at_any_moment_of_an_invocation(start: Start) -> None:
    function = start("sleep", faults=lambda number: Fault(kill_after_s=0.2) if number == 0 else Fault())
    invocation = function.invoke({"seconds": 600})
    assert (invocation.status, invocation.error_type) == ("error", "Runtime.ExitError")
    assert (function.counts["kill"], function.counts["timeout"]) == (1, 0)
    assert function.invoke({}).status == "result"


# --- environments ---------------------------------------------------------------------------------
def test_a_warm_environment_keeps_the_state_of_its_module(start: Start) -> None:
    function = start("count")
    answers = [function.invoke({}).value for _ in range(3)]
    assert [answer["calls"] for answer in answers] == [1, 2, 3]
    assert len({answer["loaded"] for answer in answers}) == 1


def test_between_invocations_an_environment_is_frozen_and_thawed_for_the_next(start: Start) -> None:
    function = start("sleep")
    for _ in range(2):
        pid = function.invoke({}).value
        assert until(lambda pid=pid: state(pid) == "T")  # type: ignore[misc]
    assert function.counts == {"cold start": 1, "result": 2, "freeze": 2}


def test_a_long_freeze_keeps_an_environment_from_the_next_invocation(start: Start) -> None:
    faults = {0: Fault(frozen_s=math.inf)}
    function = start("sleep", concurrency=2, faults=lambda number: faults.get(number, Fault()))
    frozen, other, again = (function.invoke({}).value for _ in range(3))
    assert other == again != frozen
    assert (state(frozen), function.counts["long freeze"]) == ("T", 1)


def test_what_a_handler_has_started_ends_with_its_environment(start: Start) -> None:
    function = start("parent")
    child = function.invoke({}).value
    assert until(lambda: state(child) == "T")
    function.stop()
    assert until_gone(child)


def test_an_environment_outlives_the_thread_whose_invocation_started_it(start: Start) -> None:
    function = start("sleep")
    with ThreadPoolExecutor(1) as caller:
        pid = caller.submit(function.invoke, {}).result().value
    again = function.invoke({})
    assert (again.value, again.cold) == (pid, False)


def test_an_environment_that_ended_while_it_was_frozen_is_replaced(start: Start) -> None:
    function = start("sleep")
    pid = function.invoke({}).value
    os.kill(pid, signal.SIGKILL)
    assert until(lambda: not any(one.is_alive for one in function.environments))
    assert function.invoke({}).status == "result"
    assert function.counts["error"] == 0


def test_environments_die_with_the_process_that_runs_the_function(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from bench.servers.aws_lambda.function import Function\n"
        "from bench.servers.aws_lambda.sandbox import Setup\n"
        "setup = Setup('lambda_handlers.sleep', Path(sys.argv[2]), sys.executable, timeout_s=60)\n"
        "with Function(setup, sys.argv[1]) as function:\n"
        "    print(function.invoke({}).value, flush=True); function.invoke({'seconds': 50})"
    )
    command = [sys.executable, "-c", program, str(tmp_path), str(HERE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=HERE.parents[1]) as parent:
        assert parent.stdout is not None
        environment = int(parent.stdout.readline())
        # At work: what is frozen, or waits for work, ends by itself when its parent is gone.
        assert until(lambda: state(environment) != "T")
        parent.kill()
    gone = until_gone(environment)
    if not gone:
        os.kill(environment, signal.SIGKILL)
    assert gone


def test_an_answer_to_another_invocation_is_refused() -> None:
    api = RuntimeApi()
    api.hand(Request("mine", b"{}", 1, "arn", "trace"))
    base = f"http://{api.address}/2018-06-01/runtime/invocation"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{base}/next") as reply:
        assert reply.headers["Lambda-Runtime-Aws-Request-Id"] == "mine"
    with pytest.raises(urllib.error.HTTPError, match="400"):
        opener.open(f"{base}/yours/response", data=b"1")
    assert opener.open(f"{base}/mine/response", data=b"2").status == 202
    with pytest.raises(urllib.error.HTTPError, match="400"):
        opener.open(f"{base}/mine/response", data=b"3")
    assert [api.heard.get().said, api.heard.get().body] == ["idle", b"2"]
    assert api.heard.empty()
    api.close()


# --- many environments on one machine -------------------------------------------------------------
class Most:
    """The most callers that were inside a call at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = self.most = 0

    def counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def inner(*args: Any, **options: Any) -> Any:
            with self._lock:
                self._now += 1
                self.most = max(self.most, self._now)
            try:
                return call(*args, **options)
            finally:
                with self._lock:
                    self._now -= 1

        return inner


@pytest.mark.long
def test_of_all_environments_only_so_many_start_and_serve_at_once(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    starting, serving = Most(), Most()
    monkeypatch.setattr(Sandbox, "wait_until_ready", starting.counted(Sandbox.wait_until_ready))
    monkeypatch.setattr(Sandbox, "serve", serving.counted(Sandbox.serve))
    function = start("sleep", concurrency=4, starting_max=1, serving_max=2)
    function.start_all()
    with ThreadPoolExecutor(4) as callers:
        pids = {one.value for one in callers.map(function.invoke, [{"seconds": 0.5}] * 4)}
    assert (starting.most, len(pids)) == (1, 4)
    assert serving.most <= 2


def test_environments_that_are_started_before_serve_warm_and_are_billed_with_their_first_invocation(
    start: Start,
) -> None:
    function = start("count", concurrency=2)
    function.start_all()
    assert len(function.environments) == 2
    assert until(lambda: all(state(one.pid) == "T" for one in function.environments))
    first, other, again = (function.invoke({}) for _ in range(3))
    assert [one.cold for one in (first, other, again)] == [True, True, False]
    assert [one.init_ns > 0 for one in (first, other, again)] == [True, True, False]
    assert all(one.duration_ns > 0 for one in (first, other, again))
    assert len(function.environments) == 2


def test_an_environment_that_does_not_start_is_told_before_the_first_invocation(start: Start) -> None:
    with pytest.raises(RuntimeError, match="no_such_function"):
        start("no_such_function").start_all()


@pytest.mark.parametrize(
    ("init_ms", "duration_ms", "billed"),
    [(0, 1, 1), (0, 0.001, 1), (0, 7.0, 7), (0, 7.000001, 8), (1293.83, 1049.63, 2344), (0.4, 0.4, 1)],
)
def test_start_and_duration_are_billed_together_rounded_up_to_a_millisecond(
    init_ms: float, duration_ms: float, billed: int
) -> None:
    """The pair of four figures is from a REPORT line of AWS's Lambda."""
    init_ns, duration_ns = round(init_ms * 1e6), round(duration_ms * 1e6)
    invocation = Invocation("id", "result", b"", 1, cold=True, duration_ns=duration_ns, init_ns=init_ns)
    assert invocation.billed_ms == billed


# --- what a batch answers -------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("answer", "failed"),
    [
        ("null", ""),
        ("", ""),
        ("{}", ""),
        ('{"batchItemFailures": null}', ""),
        ('{"batchItemFailures": []}', ""),
        ('{"batchItemFailures": [{"itemIdentifier": "b"}]}', "b"),
        ('{"batchItemFailures": [{"itemIdentifier": "b"}, {"itemIdentifier": "b"}]}', "b"),
        ('{"batchItemFailures": [{"itemIdentifier": "a"}, {"itemIdentifier": null}]}', "abc"),
        ('{"batchItemFailures": [{"itemIdentifier": ""}]}', "abc"),
        ('{"batchItemFailures": [{"itemIdentifier": "stranger"}]}', "abc"),
        ('{"batchItemFailures": [{"messageId": "a"}]}', "abc"),
        ('{"batchItemFailures": ["a"]}', "abc"),
        ('{"batchItemFailures": {"itemIdentifier": "a"}}', "abc"),
        ('"done"', "abc"),
        ("{", "abc"),
    ],
)
def test_the_failed_messages_of_an_answer_are_those_that_lambda_takes_for_failed(
    answer: str, failed: str
) -> None:
    assert failed_ids(answer.encode(), "abc", report=True) == set(failed)
    assert failed_ids(answer.encode(), "abc", report=False) == set()


def test_an_identifier_that_is_no_text_fails_the_whole_batch() -> None:
    answer = json.dumps({"batchItemFailures": [{"itemIdentifier": ["a"]}, {"itemIdentifier": {"b": 1}}]})
    assert failed_ids(answer.encode(), "ab", report=True) == {"a", "b"}


# --- a queue's messages ---------------------------------------------------------------------------
class Run:
    """One function on the ``batch`` handler and its queue."""

    def __init__(self, ministack: Ministack, function: Function, deliveries: Path, **queue: Any) -> None:
        self.queue = Queue(ministack.boto3_client("sqs"), f"queue-{uuid.uuid4().hex}", **queue)
        self.function = function
        self.succeeded: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self._deliveries = deliveries

    def feed(self, *bodies: str, times: int = 1, **feed: Any) -> list[str]:
        """Send messages and feed the function until none is left; returns their ids."""
        ids = self.queue.send([json.dumps(body) for body in bodies])
        mapping = EventSourceMapping(
            self.queue,
            self.function,
            Feed(**feed),
            deliveries=lambda message_id: times,
            succeeded=lambda message_id: self.succeeded.update([message_id]),
            failed=lambda message_id: self.failed.update([message_id]),
        )
        with mapping:
            assert mapping.wait_until_empty(LONG_S), mapping.errors
        self.counts = mapping.counts
        return ids

    @property
    def groups(self) -> list[list[str]]:
        """The messages of each invocation, in the order of the invocations."""
        return [json.loads(line) for line in self._deliveries.read_text().splitlines()]


@pytest.fixture
def run(start: Start, ministack: Ministack, tmp_path: Path) -> Callable[..., Run]:
    """``run(received_max=3)`` is a function on the handler ``batch``, and its queue."""

    def made(*, concurrency: int = 1, **queue: Any) -> Run:
        return Run(ministack, start("batch", concurrency=concurrency), tmp_path / "deliveries", **queue)

    return made


def test_only_the_reported_messages_of_a_batch_come_again(run: Callable[..., Run]) -> None:
    here = run()
    good, bad, other = here.feed("good", "fail once", "good", retry_s=0)
    assert here.succeeded == {good: 1, bad: 1, other: 1}
    assert here.failed == {bad: 1}
    assert here.groups == [[good, bad, other], [bad]]
    assert (here.counts["reported"], here.counts["redelivery"]) == (1, 1)


def test_all_messages_of_a_batch_that_failed_come_again(run: Callable[..., Run]) -> None:
    here = run()
    ids = here.feed("good", "raise once", "good", retry_s=0)
    assert here.failed == here.succeeded == dict.fromkeys(ids, 1)
    assert (here.counts["failed batch"], here.counts["redelivery"]) == (1, 3)


def test_an_answer_about_a_message_of_no_such_batch_fails_the_batch(run: Callable[..., Run]) -> None:
    here = run()
    ids = here.feed("good", "stranger once", retry_s=0)
    assert here.failed == here.succeeded == dict.fromkeys(ids, 1)


def test_without_report_batch_item_failures_a_failed_message_is_deleted_as_done(
    run: Callable[..., Run],
) -> None:
    here = run()
    good, bad = here.feed("good", "fail", report=False)
    assert here.succeeded == {good: 1, bad: 1}
    assert here.queue.dead_ids() == []


def test_a_poison_message_ends_as_a_dead_letter_and_the_others_do_not(run: Callable[..., Run]) -> None:
    here = run(received_max=3)
    good, poison, other = here.feed("good", "fail", "good", retry_s=0)
    assert here.failed == {poison: 3}
    assert here.succeeded == {good: 1, other: 1}
    assert here.queue.dead_ids() == [poison]


def test_a_failed_message_is_left_to_its_visibility_timeout(
    run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    def show(queue: Queue, message: Message, *, after_s: int = 0) -> bool:
        raise AssertionError("nobody asked for an earlier retry")

    here = run(visibility_s=1)
    monkeypatch.setattr(Queue, "show", show)
    (message,) = here.feed("fail once")
    assert (here.failed, here.succeeded) == ({message: 1}, {message: 1})


@pytest.mark.long
def test_messages_that_succeeded_are_delivered_again_in_other_groups(run: Callable[..., Run]) -> None:
    here = run(concurrency=2, received_max=50)
    ids = here.feed(*["good"] * 12, times=3, uneven=True, early=0.5)
    assert set(here.succeeded) == set(ids)
    assert all(count == 3 for count in here.succeeded.values())
    assert here.counts["repeat"] + here.counts["overlap"] >= 24
    assert here.counts["regrouped"] > 0
    assert len({tuple(group) for group in here.groups}) > 3
    assert here.queue.dead_ids() == []


def test_a_failed_delivery_is_none_of_those_that_are_wanted(run: Callable[..., Run]) -> None:
    here = run()
    (message,) = here.feed("fail once", times=2, retry_s=0)
    assert (here.failed, here.succeeded) == ({message: 1}, {message: 2})


@pytest.mark.long
def test_a_message_may_come_while_an_earlier_delivery_is_under_way(run: Callable[..., Run]) -> None:
    here = run(concurrency=2, visibility_s=600)
    (message,) = here.feed("wait for another", times=2, early=1.0)
    assert here.counts["overlap"] == 1
    assert here.groups == [[message], [message]]


@pytest.mark.long
def test_batches_of_uneven_size_are_drawn_from_the_seed(run: Callable[..., Run]) -> None:
    here = run()
    here.feed(*["good"] * 40, uneven=True, seed=3)
    rng = random.Random("3/0/poll")
    assert [len(group) for group in here.groups][:4] == [rng.randint(1, 10) for _ in range(4)]


@pytest.mark.long
def test_a_batch_may_be_larger_than_one_call_of_sqs_if_there_is_a_window(run: Callable[..., Run]) -> None:
    here = run()
    ids = here.feed(*["good"] * 25, batch_size=25, window_s=LONG_S)
    assert [sorted(group) for group in here.groups] == [sorted(ids)]
    with pytest.raises(ValueError, match="window_s"):
        EventSourceMapping(here.queue, here.function, Feed(batch_size=11))
