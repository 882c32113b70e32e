"""Builds the log segment from a listing: which commits and complete checkpoints there are."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from safewrite.delta.log import actions
from safewrite.protocol.effects import List
from safewrite.protocol.values import Listed

FROM_START = f"{actions.LOG}/"
"""Sorts after ``.tmp/`` and before every digit: staged commits and temp files are not listed."""


class HoleError(Exception):
    """A listing has no version ``missing`` although version ``standing`` stands.

    A folder is no list of one moment: both may have come while it was read, and the second only was seen.
    """

    def __init__(self, missing: int, standing: int) -> None:
        super().__init__(missing, standing)
        self.missing, self.standing = missing, standing


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint: its version, the paths of all its parts, and their bytes (0 if not known).

    Of a V2 checkpoint the one part tells which sidecars it has; any single file may be one, whatever its name.
    """

    version: int
    paths: tuple[str, ...]
    size: int = field(default=0, compare=False)

    @property
    def is_json(self) -> bool:
        """Whether it is a V2 checkpoint in JSON, one action a line."""
        return self.paths[0].endswith(".json")


@dataclass(frozen=True, slots=True)
class LogSegment:
    """Commits and checkpoints found after some point of the log (``whole``: from its start)."""

    commits: tuple[int, ...]
    checkpoints: tuple[Checkpoint, ...]
    """By version; of one version several may stand, and any of them will do."""
    whole: bool
    files: Mapping[str, Listed] = field(default_factory=dict, repr=False)
    """What was listed, by path."""

    def newest_checkpoint(self, at: int | None, unusable: Collection[Checkpoint]) -> Checkpoint | None:
        """The newest complete checkpoint at or before ``at`` that has not proved unusable."""
        for checkpoint in reversed(self.checkpoints):
            if (at is None or checkpoint.version <= at) and checkpoint not in unusable:
                return checkpoint
        return None

    def commits_after(self, version: int, at: int | None) -> tuple[int, ...]:
        """Versions of the commits after ``version`` up to ``at``.

        Raises:
            HoleError: one of them is missing (E8).
        """
        found = tuple(v for v in self.commits if v > version and (at is None or v <= at))
        for expected, standing in enumerate(found, start=version + 1):
            if standing != expected:
                raise HoleError(expected, standing)
        return found


def effect(after: int | None) -> List:
    """List the log from version ``after`` on, that version included; None: from its start."""
    start_after = FROM_START if after is None else f"{actions.LOG}{after:020d}"
    return List(actions.LOG, start_after=start_after, name="state.list")


def read(listed: Iterable[Listed], *, whole: bool) -> LogSegment:
    """Sort a listing into commits and checkpoints; parts of an incomplete checkpoint are ignored."""
    files = {entry.path: entry for entry in listed}
    commits: list[int] = []
    parts: dict[tuple[int, int], set[int]] = {}
    checkpoints: list[Checkpoint] = []
    for entry in files.values():
        version = actions.version_of(entry.path)
        if version is not None:
            commits.append(version)
            continue
        part = actions.checkpoint_part_of(entry.path)
        if part is None:
            version = actions.v2_checkpoint_of(entry.path)
            if version is not None:
                checkpoints.append(Checkpoint(version, (entry.path,), entry.size))
        else:
            parts.setdefault((part[0], part[2]), set()).add(part[1])
    complete = {v: total for (v, total), have in sorted(parts.items(), reverse=True) if len(have) == total}
    checkpoints += [_checkpoint(version, total, files) for version, total in complete.items()]
    # Of a Parquet file the ranges that are needed are read, of JSON all: it comes last among those of one version.
    ordered = sorted(checkpoints, key=lambda one: (one.version, not one.is_json, one.paths))
    return LogSegment(tuple(sorted(commits)), tuple(ordered), whole, files)


def _checkpoint(version: int, parts: int, files: Mapping[str, Listed]) -> Checkpoint:
    paths = actions.checkpoint_paths(version, parts)
    return Checkpoint(version, paths, sum(files[path].size for path in paths))


def hint(body: bytes) -> Checkpoint | None:
    """The checkpoint that ``_last_checkpoint`` names; None if it cannot be read (B3).

    It is a hint only: a torn, old or dangling one costs a listing and no more.
    """
    try:
        said = json.loads(body)
        version, parts = said["version"], said.get("parts") or 1
        own = (said.get("v2Checkpoint") or {}).get("path")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if type(version) is not int or type(parts) is not int or version < 0 or not 1 <= parts <= 10_000:
        return None
    if isinstance(own, str) and actions.checkpoint_version_of(actions.LOG + own) == version:
        return Checkpoint(version, (actions.LOG + own,))
    return Checkpoint(version, actions.checkpoint_paths(version, parts))
