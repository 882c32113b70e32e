"""Ends every public call in a result or a SafewriteError, and allows one call at a time on an object."""

from __future__ import annotations

import inspect
import logging
import os
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from safewrite.boundary.habits import of_call
from safewrite.errors import InternalError, Kind, SafewriteError, hide_causes
from safewrite.text.rendering import said

P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger("safewrite")


class Turn:
    """A lock for the threads of one process; a forked child has its own, for it has none of those threads."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self.lock = threading.RLock()
        """To be used itself in ``with``: a signal could break off a method of Python's that has just taken it."""

    def is_anothers(self) -> bool:
        """Whether this is a forked child's copy; True once."""
        if self._process == os.getpid():
            return False
        self.__init__()  # type: ignore[misc]
        return True


class _Shared(Protocol):
    @property
    def turn(self) -> Turn: ...

    @property
    def uri(self) -> str: ...

    def after_fork(self) -> None: ...


S = TypeVar("S", bound=_Shared)


def let_go(error: BaseException) -> None:
    """Let go of what the calls held that an error broke off.

    Ctrl-C may break off the very end of a ``with`` block.  What that was to end (a transaction of a database, a turn) ends
    when nothing holds it any more, and whoever keeps the error (a notebook does) holds all that its frames hold.
    """
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            traceback.clear_frames(one.__traceback__)
            left += [one.__context__, one.__cause__]


def public(call: Callable[P, T]) -> Callable[P, T]:
    """Let a function raise nothing but SafewriteErrors.

    Raises:
        InternalError: for what a library raised and safewrite did not expect.
    """

    @wraps(call)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except SafewriteError as error:
            hide_causes(error)
            raise
        except Exception as error:
            if isinstance(error, TypeError) and not _can_be_called(call, args, kwargs):
                # As Python refuses arguments that are not there, and what they are called here.
                error.args = (of_call(said(error), kwargs),)
                raise
            if isinstance(error, MemoryError):
                let_go(error)
            told = _unexpected(call.__name__, error)
            told.__cause__ = error
        except BaseException as error:
            let_go(error)
            raise
        # Raised out here: within the handler Python would hang the library's error on it again.
        hide_causes(told)
        raise told

    return guarded


@contextmanager
def naming(uri: object) -> Iterator[None]:
    """Let errors that send to ``safewrite doctor`` name the table."""
    try:
        yield
    except SafewriteError as error:
        error.name_table(uri)
        raise


def verb(call: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """As :func:`public`, for a method of a table: the threads of a process call it one after the other."""
    checked = public(call)

    @wraps(call)
    def taking_turns(table: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if table.turn.is_anothers():
            public(table.after_fork)()
        with table.turn.lock, naming(table.uri):
            return checked(table, *args, **kwargs)

    return taking_turns


@contextmanager
def after_ack(uri: str) -> Iterator[None]:
    """Log, and do not raise, what goes wrong once rows are in the table: nothing takes an ack back."""
    try:
        yield
    except Exception as error:
        kind = error.kind if isinstance(error, SafewriteError) else Kind.INTERNAL
        with suppress(Exception):  # handlers and filters of logs are the user's, and may have raised it
            unforeseen = kind is Kind.INTERNAL  # who reads the log needs to know where
            log.warning(
                "after the commit: %s",
                said(error),
                extra={"table": uri, "kind": kind.value},
                exc_info=unforeseen,
            )


def _can_be_called(call: Callable[..., object], args: Any, kwargs: Any) -> bool:
    try:
        inspect.signature(call).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _unexpected(name: str, error: Exception) -> InternalError:
    if isinstance(error, MemoryError):
        return InternalError(
            f"{name}() ran out of memory. If it was to write, the same call with the same key, or resolve(key), tells whether the rows "
            "are in the table. Give the process more memory, or fewer rows at once."
        )
    return InternalError(
        f"{name}() met an error that safewrite did not expect: {type(error).__name__}: {said(error)}. If it was to write, the "
        "same call with the same key, or resolve(key), tells whether the rows are in the table. Please report it."
    )
