"""Secrets that are planted, and a look at everything that comes out of a call: none may be found in it."""

from __future__ import annotations

import base64
import io
import json
import logging
import pickle
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import safewrite as sw

SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "with a line break at its end": lambda text: f"{text}\n",
    "with a line break in it": lambda text: f"{text}\nsecond-line-of-{text}",
    "with a quote": lambda text: f"{text}'\"{text}",
    "with characters that addresses encode": lambda text: f"{text}/+=@{text}",
}


def canary() -> str:
    """A secret that nothing else contains."""
    return f"Canary{uuid.uuid4().hex}"


@dataclass
class Seen:
    """What came out of calls, by where it was seen."""

    texts: list[tuple[str, str]] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)
    """Errors that are none of safewrite's."""
    calls: int = 0

    def note(self, where: str, text: object) -> None:
        self.texts.append((where, str(text)))

    def thing(self, where: str, thing: Any) -> None:
        """An object that a user may print, log, send or keep."""
        for name, show in (("repr", repr), ("str", str)):
            self.note(f"{name} of {where}", show(thing))
        with suppress(Exception):
            self.note(f"pickle of {where}", pickle.dumps(thing).decode("latin-1"))
        with suppress(Exception):
            self.note(f"dict of {where}", json.dumps(thing.to_dict(), default=str))

    def error(self, error: BaseException) -> None:
        if not isinstance(error, sw.SafewriteError):
            self.raw.append(f"{type(error).__name__}: {error}")
        self.thing(f"{type(error).__name__}", error)
        self.note("traceback", "".join(traceback.format_exception(error)))
        self.note("traceback with locals hidden", _chain(error))

    def folder(self, folder: Path) -> None:
        for path in folder.rglob("*"):
            if path.is_file():
                self.note(f"file {path.name}", path.read_bytes().decode("latin-1"))

    def found(self, secret: str) -> list[str]:
        """Where a secret is to be seen, in any of the forms in which texts show values."""
        core = secret.split("\n", maxsplit=1)[0].split("/", maxsplit=1)[0].split("'", maxsplit=1)[0]
        forms = {core, quote(core, safe=""), base64.b64encode(core.encode()).decode().rstrip("=")[:-2]}
        return sorted({where for where, text in self.texts for form in forms if form in text})


def _chain(error: BaseException) -> str:
    """All errors that hang on one, also those that a traceback leaves out."""
    texts, left, seen = [], [error], set()
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        texts.append(f"{type(one).__name__}: {one} {one.args!r} {getattr(one, '__notes__', '')}")
        left += [other for other in (one.__cause__, one.__context__) if other is not None]
    return "\n".join(texts)


class _Collector(logging.Handler):
    def __init__(self, seen: Seen) -> None:
        super().__init__(logging.DEBUG)
        self.seen = seen
        self.setFormatter(logging.Formatter("%(levelname)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.note(f"log at {record.levelname}", self.format(record))
        self.seen.note(
            "fields of a log record",
            {name: value for name, value in vars(record).items() if name not in _PLAIN},
        )


_PLAIN = frozenset(vars(logging.makeLogRecord({}))) - {"msg", "args", "exc_text"}


@contextmanager
def watched() -> Iterator[Seen]:
    """What safewrite logs, prints and warns of meanwhile."""
    import contextlib
    import warnings

    seen, log = Seen(), logging.getLogger("safewrite")
    handler, level = _Collector(seen), log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    out, err = io.StringIO(), io.StringIO()
    try:
        with (
            warnings.catch_warnings(record=True) as warned,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            yield seen
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        seen.note("stdout", out.getvalue())
        seen.note("stderr", err.getvalue())
        for one in warned:
            seen.note("warning", one.message)


def call(seen: Seen, what: Callable[[], Any]) -> None:
    """Make a call, and note its result or its error."""
    seen.calls += 1
    try:
        result = what()
    except BaseException as error:  # noqa: BLE001 - whatever it is: its text is looked at
        seen.error(error)
    else:
        seen.thing("the result", result)
