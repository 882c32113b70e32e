"""Makes the checkpoints that are due while no caller waits: after the ack, in a thread of the process.

A thread that a fork, a kill or the end of the process breaks off leaves no checkpoint, or a whole one: the file is created by
one conditional request.  A Lambda function is frozen when it has returned, so there a checkpoint is made during the next write.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from queue import Empty
from typing import Any

from safewrite.boundary.public import after_ack
from safewrite.boundary.workers import Background, Pending
from safewrite.delta.log.checkpoint import LONGEST_S, SHARE, due, is_affordable, is_behind, write_checkpoint
from safewrite.delta.log.segment import Checkpoint
from safewrite.delta.log.snapshot import Snapshot
from safewrite.errors import Kind, SafewriteError
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.stores import call_limit
from safewrite.stores.events import Event
from safewrite.stores.world import Performer, monotonic_s, run

log = logging.getLogger("safewrite")

LIMITS = Limits(timeout_s=30.0)
"""How long one checkpoint may be tried for; a process that ends waits for no longer."""
_LAMBDA = "AWS_LAMBDA_FUNCTION_NAME"


@lru_cache(maxsize=1)
def _thread_of(process: int) -> Background:
    """One for all tables of a process; a forked child has its own, for it has none of its parent's threads."""
    return Background("safewrite-upkeep")


def finish() -> None:
    """Wait until the checkpoints are made that this process has begun."""
    _thread_of(os.getpid()).submit(lambda: None).waited(2 * LIMITS.timeout_s)


class Checkpointing:
    """Makes the checkpoints of one table that this process writes."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._due: deque[Snapshot] = deque(maxlen=1)
        """The newest version whose checkpoint is to be made."""
        self._made: tuple[str | None, Checkpoint] | None = None
        self.after_fork()

    def after_fork(self) -> None:
        """Leave to the parent what it has begun."""
        self._due.clear()
        self._left: Snapshot | None = None

    def note(self, state: Snapshot | None, version: int, left_s: float, world: Performer) -> Snapshot | None:
        """Let the checkpoint of ``version`` be made, which this process has just committed, if it is due; do not wait for it.

        The caller, who has ``left_s`` left, makes it himself where the world has no threads, and in a Lambda function
        where too many were left.  Returns the snapshot, which knows the checkpoint that was made last.
        """
        state = self.seen(state)
        if state is None or state.version != version or not due(state, version):
            return state
        has_threads, is_lambda = getattr(world, "threads", 1) > 1, bool(os.environ.get(_LAMBDA))
        makes_here = not has_threads or (is_lambda and is_behind(state, version))
        if not is_affordable(state, left_s if makes_here or is_lambda else None):
            log.info(
                "no time is left for the checkpoint of version %d: a later write makes one, or `safewrite checkpoint`",
                version,
                extra={"table": self._uri},
            )
        elif makes_here:
            self._make(state, world)
        elif is_lambda:
            self._left = state
        else:
            self._due.append(state)
            _thread_of(os.getpid()).submit(partial(self._make_due, world))
        return self.seen(state)

    def seen(self, state: Snapshot | None) -> Snapshot | None:
        """A snapshot that knows the checkpoint that was made last."""
        table_id, made = self._made or (None, None)
        if state is None or made is None or table_id != state.table_id or made.version > state.version:
            return state
        if state.checkpoint is not None and state.checkpoint.version >= made.version:
            return state
        return state.with_checkpoint(made)

    @contextmanager
    def during(self, limits: Limits, world: Performer) -> Iterator[None]:
        """In a Lambda function, make what the write before left while this one is under way.

        At its end it is waited for, for a share of the time that is left; then it stops at its next request.
        """
        left, self._left = self._left, None
        if left is None:
            yield
            return
        stopping = _Stopping(world)
        work = _thread_of(os.getpid()).submit(partial(self._make, left, stopping))
        try:
            yield
        finally:
            if not _ended(work, _share_s(limits, world)):
                stopping.stopped, self._left = True, left

    def _make_due(self, world: Performer) -> None:
        with suppress(IndexError):  # one call makes the newest, and those before it have nothing left to do
            state = self.seen(self._due.pop())
            assert state is not None
            self._make(state, world)

    def _make(self, state: Snapshot, world: Performer) -> None:
        with after_ack(self._uri):
            started_s = monotonic_s(world)
            tell = partial(self._tell, world, state.version, started_s)
            try:
                with call_limit.within(LIMITS.timeout_s):
                    made = run(write_checkpoint(state, limits=LIMITS), world)
            except _StoppedError:
                log.info("the checkpoint of version %d is left to the next write", state.version)
                return
            except Exception as error:
                kind = error.kind if isinstance(error, SafewriteError) else Kind.INTERNAL
                tell(f"No checkpoint of version {state.version} was made: {kind.value}", error=kind.value)
                raise
            if made is not None:
                self._made = (state.table_id, made)
                tell(f"The checkpoint of version {made.version} was made", bytes=made.size)

    def _tell(self, world: Performer, version: int, started_s: float, text: str, **details: Any) -> None:
        listener: Callable[[Event], object] | None = getattr(world, "listener", None)
        if listener is not None:
            elapsed_s = monotonic_s(world) - started_s
            listener(
                Event("checkpoint", self._uri, text, {"version": version, "elapsed_s": elapsed_s, **details})
            )


class _StoppedError(Exception):
    """There is no time left for the checkpoint now."""


class _Stopping:
    """A world that performs nothing more once it is stopped."""

    def __init__(self, world: Performer) -> None:
        self._world, self.stopped = world, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def perform(self, effect: Effect) -> Outcome:
        """As the world does it."""
        if self.stopped:
            raise _StoppedError
        return self._world.perform(effect)


def _share_s(limits: Limits, world: Performer) -> float:
    """How long a call may wait for a checkpoint."""
    left_s = min(limits.timeout_s, limits.until_s - monotonic_s(world))
    return max(0.0, min(LONGEST_S, left_s * SHARE))


def _ended(work: Pending[None], within_s: float) -> bool:
    try:
        work.waited(within_s)
    except Empty:
        return False
    return True
