"""Names the files of the Delta log, and encodes commits as actions (PROTOCOL.md, "Delta Log Entries")."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias
from urllib.parse import unquote

from safewrite.errors import Kind, StorageError
from safewrite.protocol.delta.catch_up import digest_of
from safewrite.protocol.delta.claim import LOG, commit_path, file_name
from safewrite.protocol.held_version import held_s_of
from safewrite.text.rendering import said

__all__ = [
    "HELD",
    "LAST_CHECKPOINT",
    "LOG",
    "Action",
    "Commit",
    "FileKey",
    "checkpoint_part_of",
    "checkpoint_paths",
    "checkpoint_version_of",
    "checksum_path",
    "commit_path",
    "corrupt",
    "file_key",
    "file_name",
    "parse",
    "rows_of",
    "sidecar_path",
    "v2_checkpoint_of",
    "version_of",
]

HELD = "heldS"
"""What ``commitInfo`` calls for how many seconds a version holds the table."""
Action: TypeAlias = dict[str, Any]
"""The content of one action, without its name: ``{"path": ..., "size": ...}`` for an ``add``."""

FileKey: TypeAlias = tuple[str, str | None]
"""A logical file: its decoded path, and the unique id of its deletion vector, if it has one."""

LAST_CHECKPOINT = f"{LOG}_last_checkpoint"
SIDECARS = f"{LOG}_sidecars/"
"""Where files stand that hold a part of a V2 checkpoint."""

_COMMIT = re.compile(re.escape(LOG) + r"(\d{20})\.json")
_CHECKPOINT = re.compile(re.escape(LOG) + r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
_V2_CHECKPOINT = re.compile(re.escape(LOG) + r"(\d{20})\.checkpoint\.[0-9a-fA-F-]{36}\.(?:json|parquet)")


def version_of(path: str) -> int | None:
    """The version of a commit file; None for any other file of the log."""
    match = _COMMIT.fullmatch(path)
    return int(match[1]) if match else None


def checkpoint_version_of(path: str) -> int | None:
    """The version of a checkpoint file, of any kind; None for any other file of the log."""
    match = _CHECKPOINT.fullmatch(path) or _V2_CHECKPOINT.fullmatch(path)
    return int(match[1]) if match else None


def v2_checkpoint_of(path: str) -> int | None:
    """The version of a V2 checkpoint that has a name of its own; None for any other file of the log."""
    match = _V2_CHECKPOINT.fullmatch(path)
    return int(match[1]) if match else None


def sidecar_path(action: Mapping[str, Any]) -> str:
    """The file of a ``sidecar`` action, which names it in full or, mostly, by its last part (PROTOCOL.md, "Sidecar File Information").

    Raises:
        StorageError: CORRUPT_LOG; it names no file.
    """
    name = unquote(str(action.get("path", ""))).rpartition("/")[2]
    if name in {"", ".", ".."}:
        raise corrupt(f"A checkpoint names {action.get('path')!r} as a file of its own.")
    return SIDECARS + name


def checkpoint_part_of(path: str) -> tuple[int, int, int] | None:
    """``(version, part, parts)`` of a classic (1 of 1) or multi-part checkpoint file, else None."""
    match = _CHECKPOINT.fullmatch(path)
    if match is None:
        return None
    return int(match[1]), int(match[2] or 1), int(match[3] or 1)


def checkpoint_paths(version: int, parts: int = 1) -> tuple[str, ...]:
    """Paths of a checkpoint in one file, or in ``parts`` files if more than one."""
    stem = f"{LOG}{version:020d}.checkpoint"
    if parts == 1:
        return (f"{stem}.parquet",)
    return tuple(f"{stem}.{part:010d}.{parts:010d}.parquet" for part in range(1, parts + 1))


def checksum_path(version: int) -> str:
    """Path of a version's checksum file (PROTOCOL.md, "Version Checksum File"), which engines may write."""
    return f"{LOG}{version:020d}.crc"


def corrupt(message: str) -> StorageError:
    """The error for a log that breaks its own rules; reading on would show wrong rows."""
    return StorageError(
        f"{message} Nothing was committed. Run `safewrite doctor` on the table.", kind=Kind.CORRUPT_LOG
    )


def file_key(action: Mapping[str, Any]) -> FileKey:
    """The primary key of an ``add`` or ``remove`` (PROTOCOL.md, "Add File and Remove File").

    Paths are compared decoded: engines escape one and the same file name differently.
    """
    path: str = action["path"]
    vector = action.get("deletionVector")
    return (unquote(path) if "%" in path else path), vector_id(vector) if vector else None


def vector_id(vector: Mapping[str, Any]) -> str:
    """The unique id of a deletion vector (PROTOCOL.md, "Derived Fields")."""
    base = f"{vector['storageType']}{vector['pathOrInlineDv']}"
    offset = vector.get("offset")
    return base if offset is None else f"{base}@{offset}"


def stats_of(file: Mapping[str, Any]) -> dict[str, Any]:
    """The statistics of an ``add`` or ``remove``; {} where there are none that can be read."""
    try:
        found = json.loads(file.get("stats") or "{}")
    except (TypeError, ValueError, RecursionError):  # other engines may write anything there
        return {}
    return found if isinstance(found, dict) else {}


def rows_of(file: Mapping[str, Any]) -> int | None:
    """Rows of an ``add`` or ``remove`` by its statistics, deleted ones subtracted; None where there are none."""
    try:
        rows = int(stats_of(file)["numRecords"])
        return rows - int((file.get("deletionVector") or {}).get("cardinality") or 0)
    except (AttributeError, KeyError, TypeError, ValueError):  # other engines may write anything there
        return None


@dataclass(frozen=True)
class Commit:
    """One entry of the log.

    ``actions`` are all actions but most ``add``s, each ``{name: content}``; ``raw_adds`` are lines of ``add``
    actions that are not parsed yet.  ``digest`` is the MD5 of its bytes in hexadecimal digits.
    """

    version: int
    actions: tuple[dict[str, Action], ...]
    raw_adds: tuple[bytes, ...] = ()
    digest: str = ""

    def of(self, name: str) -> list[Action]:
        """Contents of the actions called ``name``, as parsed so far (use ``adds`` for files)."""
        return [action[name] for action in self.actions if action.get(name) is not None]

    def _last(self, name: str) -> Action | None:
        found = self.of(name)
        return found[-1] if found else None

    @property
    def metadata(self) -> Action | None:
        """The ``metaData`` action, if this commit changes it."""
        return self._last("metaData")

    @property
    def protocol(self) -> Action | None:
        """The ``protocol`` action, if this commit changes it."""
        return self._last("protocol")

    @property
    def txns(self) -> list[Action]:
        """``txn`` actions: ``appId``, ``version``."""
        return self.of("txn")

    @property
    def commit_info(self) -> Action | None:
        """The ``commitInfo`` action: its writer, and the key."""
        return self._last("commitInfo")

    @property
    def held_s(self) -> float:
        """For how many seconds it asks others to wait for the next version (``safewrite.protocol.held_version``)."""
        ours = (self.commit_info or {}).get("safewrite")
        return held_s_of(ours.get(HELD)) if isinstance(ours, dict) else 0.0

    @property
    def domain_metadata(self) -> list[Action]:
        """``domainMetadata`` actions, tombstones (``removed``) among them; one without a name says nothing."""
        return [one for one in self.of("domainMetadata") if isinstance(one.get("domain"), str)]

    @cached_property
    def _adds(self) -> tuple[Action, ...]:
        lazy = tuple(_action(line, self.version) for line in self.raw_adds)
        return (*(action["add"] for action in lazy if action.get("add") is not None), *self.of("add"))

    def adds(self) -> tuple[Action, ...]:
        """``add`` actions.  Raises StorageError (CORRUPT_LOG) if one cannot be read."""
        return self._adds

    def removes(self) -> list[Action]:
        """``remove`` actions."""
        return self.of("remove")


def parse(body: bytes, version: int) -> Commit:
    """Read a commit file: newline-delimited JSON, one action a line.

    Lines of ``add`` actions are kept unread, which makes it cheap to examine a foreign append.  The last line
    is always read, because a torn entry (A19) ends there.

    Raises:
        StorageError: CORRUPT_LOG; the body is empty, or a line is no JSON object.
    """
    lines = [line for line in body.splitlines() if line.strip()]
    if not lines:
        raise corrupt(f"Version {version} of the log is an empty file.")
    raw_adds: list[bytes] = []
    actions: list[dict[str, Action]] = []
    for line in lines[:-1]:
        if line.startswith(b'{"add"') and line.endswith(b"}"):
            raw_adds.append(line)
        else:
            actions.append(_action(line, version))
    actions.append(_action(lines[-1], version))
    return Commit(version, tuple(actions), tuple(raw_adds), digest_of(body))


NAMES = frozenset(
    [
        "add",
        "remove",
        "metaData",
        "protocol",
        "txn",
        "commitInfo",
        "cdc",
        "domainMetadata",
        "checkpointMetadata",
        "sidecar",
    ]
)
"""The actions that PROTOCOL.md has; others mean nothing unless a table feature says so, and unknown features are refused."""


def _action(line: bytes, version: int) -> dict[str, Action]:
    try:
        action = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise corrupt(
            f"Version {version} of the log holds a torn or garbled line ({said(error)})."
        ) from error
    if not isinstance(action, dict):
        raise corrupt(f"Version {version} of the log holds a line that is no action.")
    if all(isinstance(part, dict | None) for part in action.values()):
        return action
    known = {name: part for name, part in action.items() if name in NAMES}
    if not all(isinstance(part, dict | None) for part in known.values()):
        raise corrupt(f"Version {version} of the log holds a line that is no action.")
    return known  # actions of later versions are passed over, whatever they are made of
