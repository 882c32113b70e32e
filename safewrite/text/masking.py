"""Keeps secrets out of texts: values that were given as credentials, passwords in addresses, settings that look like one.

Errors mask their texts, and so do log records of the logger ``safewrite``; a cause that names a secret is replaced where a
public call ends.  What is known: values under names like ``AWS_SECRET_ACCESS_KEY`` or ``s3.session-token``, of
``storage_options=``, of ``catalog=`` and of the environment, and those of boto3 sessions.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import re
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote, urlsplit
from weakref import WeakSet

from safewrite.text.rendering import encodable, mask_with

HIDDEN = "***"
_SHORTEST = 8
"""A shorter value is masked by its name only: it may be any word of a sentence."""
_KNOWN_MAX = 512

_WORDS = r"secret|passw(?:or)?d|passphrase|token|credential|authorization|api[-_]?key|private[-_]?key|account[-_]?key|jaas[-_.]?config"
_NAME = re.compile(
    rf"(?:^|[-_.])(?:[a-z0-9]*)(?:{_WORDS}|secret[-_.]?(?:access[-_.]?)?key|userinfo)s?$", re.IGNORECASE
)
# Each begins with a fixed word, and what follows is bounded: a text of a library's may be long, and must not take minutes.
_PATTERNS = (
    # scheme://user:password@host, up to the last @ before the path
    (re.compile(r"(?<=://)[^\s/'\"<>]+@"), f"{HIDDEN}@"),
    # 'AWS_SECRET_ACCESS_KEY': 'value', as a dict, JSON or bytes show it
    (
        re.compile(
            rf"((?:{_WORDS})[\w.-]{{0,40}}\\?['\"]\s{{0,3}}:\s{{0,3}}b?\\?(['\"]))(?!env:)[^'\"\\]*",
            re.IGNORECASE,
        ),
        rf"\1{HIDDEN}",
    ),
    # password=value of a query, a DSN or a JAAS configuration
    (
        re.compile(
            r"((?:passw(?:or)?d|passphrase|secret|token|signature|api[-_]?key|access[-_]?key|\bsig)=\\?['\"]?)(?!env:|=)[^\s'\"&;,\\)]+",
            re.IGNORECASE,
        ),
        rf"\1{HIDDEN}",
    ),
    (re.compile(r"\b(Bearer|Basic) (?=[^\s'\"]*[\d+/=_.-])[\w+/=.~-]{8,}"), rf"\1 {HIDDEN}"),
)


class _Known:
    """Values of this process that no text may show; the oldest are forgotten."""

    def __init__(self) -> None:
        self.values: dict[str, None] = {}
        self.lenders: WeakSet[Any] = WeakSet()
        self.lock = threading.Lock()

    def note(self, value: str) -> None:
        with self.lock:
            self.values.pop(value, None)
            self.values[value] = None
            while len(self.values) > _KNOWN_MAX:
                del self.values[next(iter(self.values))]


_known = _Known()
# A forked child has none of the threads that may hold the lock.
os.register_at_fork(after_in_child=lambda: setattr(_known, "lock", threading.Lock()))


def note(settings: object) -> None:
    """Remember the secrets among settings: values under names of credentials, and passwords in addresses."""
    if not isinstance(settings, Mapping):
        return
    for value in _secrets_of(settings):
        _known.note(value)


def note_credentials(credentials: object) -> None:
    """Remember where a client's credentials are; they may change, and are read when a text is masked."""
    with suppress(TypeError):  # no weak references to it
        _known.lenders.add(credentials)


def _secrets_of(settings: Mapping[Any, Any]) -> Iterator[str]:
    with suppress(Exception):  # a mapping of the user's may raise anything
        for name, value in settings.items():
            text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
            if isinstance(value, Mapping):
                yield from _secrets_of(value)
            elif _is_secret(str(name)) and len(text) >= _SHORTEST and not text.startswith("env:"):
                yield text
            elif "://" in text and (password := _password(text)):
                yield password


@lru_cache(maxsize=4096)
def _is_secret(name: str) -> bool:
    return len(name) <= 200 and _NAME.search(name) is not None


def _password(address: str) -> str | None:
    with suppress(ValueError):
        found = urlsplit(address).password
        if found and len(found) >= _SHORTEST:
            return unquote(found)
    return None


def _all_secrets() -> set[str]:
    found = {*_known.values, *_secrets_of(os.environ)}
    for one in list(_known.lenders):
        for name in ("secret_key", "token"):
            # Credentials that renew themselves do so when they are asked; what they hold is behind an underscore.
            value = vars(one).get(name) or vars(one).get(f"_{name}")
            if isinstance(value, str) and len(value) >= _SHORTEST:
                found.add(value)
    return found


@lru_cache(maxsize=256)
def _spellings(secret: str) -> tuple[str, ...]:
    return tuple(_spelled(secret))


def _spelled(secret: str) -> Iterator[str]:
    yield secret
    yield repr(secret)[1:-1]
    yield json.dumps(secret)[1:-1]
    yield quote(secret, safe="")
    yield base64.b64encode(secret.encode(errors="replace")).decode()
    yield from (line for line in secret.splitlines() if len(line) >= _SHORTEST)


def masked(text: str) -> str:
    """A text without secrets."""
    spelled = {one for secret in _all_secrets() for one in _spellings(secret) if one in text}
    for one in sorted(spelled, key=len, reverse=True):
        text = text.replace(one, HIDDEN)
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text


class _LogFilter(logging.Filter):
    """Masks records: their messages and tracebacks.  Half a surrogate pair, which no handler can write, is spelled out."""

    def filter(self, record: logging.LogRecord) -> bool:
        with suppress(
            Exception
        ):  # a record that cannot be read goes on as it is: logging itself then says why
            told = record.getMessage()
            if (hidden := encodable(masked(told))) != told:
                record.msg, record.args = hidden, ()
            if record.exc_info and record.exc_info[1] is not None:
                shown = "".join(traceback.format_exception(record.exc_info[1]))
                if (hidden := encodable(masked(shown))) != shown:
                    record.exc_info, record.exc_text = None, hidden.rstrip("\n")
        return True


def install() -> None:
    """Mask the texts of errors, and what the logger ``safewrite`` is given."""
    mask_with(masked)
    logger = logging.getLogger("safewrite")
    if not any(isinstance(one, _LogFilter) for one in logger.filters):
        logger.addFilter(_LogFilter())
