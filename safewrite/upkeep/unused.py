"""Removes files of a table's folder that nothing needs any more, in two runs: one lists them, and one of a later day removes them.

A file goes only if a list of the day before or earlier has it, with its size and time, and it is unused still: no version that the table keeps names
it, and it is older than a removed file is kept.  What time it is a small object tells that the run has just written, by the store's clock, or
this process's clock if that is earlier.
A file's name alone decides, in whatever folder: a path can be spelled in several ways, and a file too many stays for ever at worst.
What is removed is written down first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Container, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from safewrite.errors import SafewriteError
from safewrite.protocol import member_queue
from safewrite.protocol.ask import Limits, wall_ms
from safewrite.protocol.effects import Delete, Effect, Get, List, NewId, Ok, Outcome, Put, Together
from safewrite.protocol.fetch import fetch_one
from safewrite.protocol.values import Listed

DAY_MS = 24 * 3600 * 1000
KEPT_MS = 7 * DAY_MS
"""No file goes that is younger, whatever a table says: no write takes longer."""
BETWEEN_MS = DAY_MS
"""So long a list must have stood before what it has is removed."""
AT_ONCE = 500
REMOVED_MAX = 20_000
"""A run removes no more; the next ones go on."""
FOLDER = "_safewrite/unused/"
LEFT_WAITING = "writes were left in the table's queue: safewrite repair finishes them"
LIST, CLOCK = f"{FOLDER}list.json", f"{FOLDER}clock"


@dataclass(frozen=True, slots=True)
class Unused:
    """What a run came to: how many files it removed, how many are listed for a later run; ``kept`` says why nothing may go."""

    removed: int = 0
    listed: int = 0
    kept: str = ""


NOTHING = Unused()


@dataclass(frozen=True)
class Folder:
    """A table's folder as a format knows it.

    ``root`` is what its paths begin with.  ``named`` reads the names of all files that versions of the table need, those since
    a time among them; it has what is in the folder.  ``is_ours`` says
    whether a path, within the root, is of a data or metadata file of the table.  ``stands`` says whether the table is the same still.
    ``refuses`` says why nothing in the folder may go, or "".
    """

    table_id: str
    root: str
    kept_ms: int
    named: Callable[[Sequence[Listed], int], Generator[Effect, Outcome, Container[str]]] = field(repr=False)
    is_ours: Callable[[str], bool] = field(repr=False)
    stands: Callable[[], Generator[Effect, Outcome, bool]] = field(repr=False)
    refuses: Callable[[Sequence[Listed]], Generator[Effect, Outcome, str]] = field(repr=False)


def name_of(path: str) -> str:
    """The last part of a path."""
    return path.rpartition("/")[2]


def remove(folder: Folder, limits: Limits, *, dry_run: bool) -> Generator[Effect, Outcome, Unused]:
    """Remove what was listed a day ago or earlier and is unused still, and list the rest; with ``dry_run`` only say how much that is.

    Where nobody knows what is needed, none goes.
    """
    try:
        return (yield from _run(folder, limits, dry_run=dry_run))
    except SafewriteError as error:
        return Unused(kept=error.message)


def _run(folder: Folder, limits: Limits, *, dry_run: bool) -> Generator[Effect, Outcome, Unused]:
    if not dry_run:
        yield from fetch_one(Put(folder.root + CLOCK, b"", name="unused.clock"), limits)
    answer = yield from fetch_one(List(folder.root, name="unused.list"), limits)
    there = answer.value if isinstance(answer, Ok) else ()
    assert isinstance(there, tuple)
    within = [_within(folder.root, one) for one in there]
    now_ms = yield from wall_ms()
    if not dry_run:  # which writes nothing, and decides nothing
        now_ms = min(now_ms, next((one.modified_ms for one in within if one.path == CLOCK), 0))
    before_ms = now_ms - max(folder.kept_ms, KEPT_MS)
    inner = inner_tables([one.path for one in within])
    old = [
        one for one in within
        if one.modified_ms < before_ms and not one.path.startswith(inner) and folder.is_ours(one.path)
    ]  # fmt: skip
    if not old:
        return NOTHING
    waits = any(one.path.startswith(member_queue.FOLDER) and one.modified_ms < before_ms for one in within)
    if why := LEFT_WAITING if waits else (yield from folder.refuses(within)):
        return Unused(kept=why)
    named = yield from folder.named(within, before_ms)
    unused = [one for one in old if name_of(one.path) not in named]
    listed_ms = next((one.modified_ms for one in within if one.path == LIST), None)
    known = (yield from _listed(folder, limits)) if listed_ms is not None else frozenset()
    is_due = listed_ms is not None and listed_ms <= now_ms - BETWEEN_MS
    due = [one for one in unused if _mark(one) in known][:REMOVED_MAX] if is_due else []
    gone = due if dry_run else (yield from _removed(folder, due, limits))
    left = len(unused) - len(gone)
    if not dry_run and (is_due or not known):
        yield from _list(folder, [one for one in unused if one not in {*gone}], limits)
    return Unused(len(gone), left)


def inner_tables(paths: Collection[str]) -> tuple[str, ...]:
    """The folders, each with a slash at its end, that lie within this one and have a log or metadata of their own."""
    found: set[str] = set()
    for path in paths:
        for mark in ("/_delta_log/", "/metadata/"):
            inner, is_there, name = path.partition(mark)
            if is_there and (mark != "/metadata/" or ".metadata.json" in name):
                found.add(f"{inner}/")
    return tuple(found)


def _within(root: str, one: Listed) -> Listed:
    return Listed(one.path.removeprefix(root), one.size, one.modified_ms, one.etag)


def _mark(one: Listed) -> tuple[str, int, int]:
    return one.path, one.size, one.modified_ms


def _listed(folder: Folder, limits: Limits) -> Generator[Effect, Outcome, frozenset[tuple[str, int, int]]]:
    """What the run of before listed; nothing where it was of another table, or cannot be read."""
    answer = yield from fetch_one(Get(folder.root + LIST, name="unused.get_list"), limits)
    try:
        found: Mapping[str, Any] = json.loads(answer.value) if isinstance(answer, Ok) else {}  # type: ignore[arg-type]
        if found["table"] != folder.table_id:
            return frozenset()
        return frozenset((str(path), int(size), int(at_ms)) for path, size, at_ms in found["files"])
    except (ValueError, TypeError, KeyError):
        return frozenset()


def _list(folder: Folder, unused: Sequence[Listed], limits: Limits) -> Generator[Effect, Outcome, None]:
    body = json.dumps({"table": folder.table_id, "files": [_mark(one) for one in unused]}).encode()
    yield from fetch_one(Put(folder.root + LIST, body, name="unused.put_list"), limits)


def _removed(
    folder: Folder, due: Sequence[Listed], limits: Limits
) -> Generator[Effect, Outcome, list[Listed]]:
    """Remove files while the table is the one that was read (A17); each is written down before it goes."""
    done: list[Listed] = []
    for start in range(0, len(due), AT_ONCE):
        if not (yield from folder.stands()):
            break
        some = due[start : start + AT_ONCE]
        number = yield NewId()
        assert isinstance(number, Ok)
        body = json.dumps({"table": folder.table_id, "removed": [_mark(one) for one in some]}).encode()
        path = f"{folder.root}{FOLDER}removed-{number.value}.json"
        yield from fetch_one(Put(path, body, name="unused.put_removed"), limits)
        deletes = tuple(Delete(folder.root + one.path, name="unused.delete") for one in some)
        answer = yield Together(deletes, name="unused.delete")
        answers = answer.value if isinstance(answer, Ok) else ()
        assert isinstance(answers, tuple)
        done += [one for one, told in zip(some, answers, strict=False) if isinstance(told, Ok)]
    return done
