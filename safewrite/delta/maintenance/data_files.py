"""Finds what is wrong with data files: missing, unnamed, of other columns, misread by some readers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from safewrite.changes.meaning.row_vectors import VectorError
from safewrite.delta import nested
from safewrite.delta.data import footers
from safewrite.delta.data import julian_dates as calendar
from safewrite.delta.data.footers import Footer, Leaf
from safewrite.delta.data.vectors import path_of
from safewrite.delta.log import actions, column_names, stamps
from safewrite.delta.log.actions import Action, stats_of
from safewrite.delta.log.features import unwritable
from safewrite.delta.log.replay import load_files
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.maintenance import vanished, zoneless
from safewrite.delta.maintenance.inspection import ASKS, Inspection
from safewrite.delta.write.compaction import listed
from safewrite.errors import SafewriteError, UnsupportedTableError
from safewrite.findings import DANGER, EXAMPLES, INFO, WARNING, Finding, Findings, some
from safewrite.progress import watched
from safewrite.protocol.effects import GetTail, Missing, Ok, Outcome
from safewrite.protocol.values import Tail
from safewrite.stores.world import run
from safewrite.upkeep import shape

SAMPLE = 64
"""How many data files are looked at, newest first, unless ``deep`` asks for all."""
FOOTERS_MAX = 10_000
"""Most data files whose footers ``deep`` reads, newest first."""
READ_BYTES, READ_BYTES_DEEP = 32 * 1024 * 1024, 1024 * 1024 * 1024
"""Most bytes of INT96 columns that are read."""
INT96_US = (-(2**63) // 1000 + 1, (2**63 - 1) // 1000)
"""1677-09-21 to 2262-04-11: what 64 bits of nanoseconds hold, in microseconds."""
_TRACKED = "delta.rowTracking.materialized"


def examine(found: Inspection, *, deep: bool) -> Findings:
    """Judge the live files, by the store's sizes of them and by their footers."""
    if found.state is None:
        return
    try:
        files = run(load_files(found.state, limits=ASKS), found.world)
    except UnsupportedTableError as error:
        yield Finding(
            DANGER, "unsupported_files", error.message,
            "Appends go on; no other write does. Correct the log with the engine that wrote it, or restore it from a versioned copy.",
        )  # fmt: skip
        return
    except SafewriteError as error:
        yield Finding(DANGER, "unreadable_log", error.message, "Restore the log from a versioned copy.")
        return
    live = {key[0]: action for key, action in files.adds.items() if _relative(key[0])}
    newest = list(live)[-(FOOTERS_MAX if deep else SAMPLE) :]
    ends: Iterable[tuple[str, Outcome]] = footers.tails(found.world, newest)
    if deep:
        ends = watched(ends, "footers", len(newest))
        sizes = _listed(found)
        looked_for = live
    else:
        ends = list(ends)
        sizes = _sizes(ends)
        looked_for = {path: live[path] for path in newest}
    if not unwritable(found.state):
        yield from shape.examine(listed(files), found.address.uri)
    yield from zoneless.examine(found.state, files.adds.values())
    yield from _missing(looked_for, sizes)
    yield from _vectors(found, files.adds.values(), sizes if deep else None)
    yield from _row_ids(found.state, files.adds.values())
    if deep:
        within = _tables_within(sizes)
        yield from _within(within)
        own = {
            path: size
            for path, size in sizes.items()
            if not path.startswith(tuple(f"{one}/" for one in within))
        }
        yield from _unreferenced(found, files.adds, files.tombstones, own)
    yield from _footers(found, live, ends, deep=deep)
    yield from _outer(next(nested.above(found.address, found.world.objects), None))


# --- files --------------------------------------------------------------------------------------------
def _listed(found: Inspection) -> dict[str, int]:
    objects = found.world.objects.list("", "", 0)
    return {i.path: i.size for i in objects.value} if isinstance(objects, Ok) else {}  # type: ignore[attr-defined]


def _sizes(ends: Iterable[tuple[str, Outcome]]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for path, answer in ends:
        if isinstance(answer, Ok) and isinstance(answer.value, Tail):
            sizes[path] = answer.value.size
        elif not isinstance(answer, Missing):
            sizes[path] = -1  # no clear answer: taken for changed, not for missing
    return sizes


def _relative(path: str) -> bool:
    return "://" not in path and not path.startswith("/")


def _missing(live: Mapping[str, Action], sizes: Mapping[str, int]) -> Findings:
    missing = [path for path in live if path not in sizes]
    changed = [path for path in live if path in sizes and sizes[path] != live[path]["size"]]
    if missing or changed:
        yield Finding(
            DANGER, "data_files_missing",
            f"Of {len(live)} data files that were looked for, {len(missing)} are missing and {len(changed)} have another "
            "size than the log says: reads fail.",
            "Restore them from a versioned copy, or remove them from the log with FSCK REPAIR and write their rows "
            "again; find the VACUUM or lifecycle rule that took them.",
            {"missing": missing[:EXAMPLES], "changed": changed[:EXAMPLES], "checked": len(live)},
        )  # fmt: skip


def _vectors(found: Inspection, adds: Iterable[Action], listed: Mapping[str, int] | None) -> Findings:
    """Look for the files of deletion vectors: all among the ``listed`` ones, or else a sample."""
    paths: set[str] = set()
    for add in adds:
        with suppress(VectorError):
            if add.get("deletionVector") and (path := path_of(add["deletionVector"], found.address.uri)):
                paths.add(path)
    named = sorted(paths)
    if listed is None:
        named = named[:SAMPLE]
        answers = [found.world.perform(GetTail(path, 1, name="doctor.look")) for path in named]
        missing = [path for path, answer in zip(named, answers, strict=True) if isinstance(answer, Missing)]
    else:
        missing = [path for path in named if path not in listed]
    if missing:
        yield Finding(
            DANGER, "deletion_vectors_missing",
            f"Of {len(named)} files of deletion vectors that were looked for, {len(missing)} are missing: reads fail, and which "
            "rows of their data files are deleted nobody knows.",
            "Restore them from a versioned copy; find the VACUUM, clean-up of orphan files or lifecycle rule that took them.",
            {"missing": missing[:EXAMPLES], "checked": len(named)},
        )  # fmt: skip


def _row_ids(state: Snapshot, adds: Iterable[Action]) -> Findings:
    """Look for rows with ids above the one that was given last: the next writer gives them a second time."""
    if not stamps.stamping(state).numbered:
        return
    last, above = stamps.last_row_id(state), dict[str, int]()
    for add in adds:
        # A file that does not say how many rows it has, has one at least.
        first, count = add.get("baseRowId"), stats_of(add).get("numRecords", 1)
        if type(first) is int and type(count) is int and count and first + count - 1 > last:
            above[add["path"]] = first + count - 1
    if above:
        yield Finding(
            DANGER, "row_ids_again",
            f"The log says that the row id {last} was given last ({stamps.ROW_IDS}), and {len(above)} live files have ids up to "
            f"{max(above.values())}: it was set back or removed, and new rows get ids that others have.",
            "Stop the writers. Restore the log from a versioned copy; or turn row tracking off, and on again, with the engine that keeps "
            "the table, which gives ids anew.",
            {"last": last, "highest": max(above.values()), "files": [*above][:EXAMPLES], "count": len(above)},
        )  # fmt: skip


def _tables_within(sizes: Mapping[str, int]) -> list[str]:
    """The folders in the table's folder that have a log of their own."""
    mark = f"/{actions.LOG}"
    return sorted({path.partition(mark)[0] for path in sizes if mark in path})


def _within(folders: list[str]) -> Findings:
    if folders:
        yield Finding(
            WARNING, "table_within",
            f"Other Delta tables are within this table's folder: {', '.join(folders[:EXAMPLES])}. A full VACUUM of this table (of "
            "Spark, or vacuum(full=True) of deltalake) takes their files, for its log names none of them.",
            "Move them to places of their own, and never clean this table up meanwhile.",
            {"tables": folders[:EXAMPLES], "count": len(folders)},
        )  # fmt: skip


def _outer(outer: str | None) -> Findings:
    if outer is not None:
        yield Finding(
            WARNING, "table_within",
            f"The table is within the folder of another Delta table, {outer}: a full VACUUM there (of Spark, or vacuum(full=True) of "
            "deltalake) takes the files of this one.",
            "Move it to a place of its own, and never clean the outer table up meanwhile.",
            {"outer": outer},
        )  # fmt: skip


def _unreferenced(
    found: Inspection,
    adds: Mapping[actions.FileKey, Any],
    tombstones: Mapping[actions.FileKey, Any],
    sizes: Mapping[str, int],
) -> Findings:
    named = {key[0] for key in (*adds, *tombstones)} | vanished.LogIndex(found.commits.values()).paths
    loose = [p for p in sizes if p.endswith(".parquet") and not p.startswith(("_", ".")) and p not in named]
    if loose:
        yield Finding(
            INFO, "unreferenced_files",
            f"{len(loose)} data files are named by no commit: writes that failed or are under way, or commits that "
            "were overwritten.",
            "If rows are missed, look here before VACUUM removes them.",
            {"files": loose[:EXAMPLES], "count": len(loose)},
        )  # fmt: skip


# --- footers ------------------------------------------------------------------------------------------
@dataclass
class _Seen:
    """What the footers tell, by the paths of their files; columns by file."""

    live: int
    checked: int = 0
    out_of_range: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    old_days: list[str] = field(default_factory=list)
    perhaps_old: list[str] = field(default_factory=list)
    unknown: dict[str, list[str]] = field(default_factory=dict)
    lacking: dict[str, list[str]] = field(default_factory=dict)

    @property
    def looked(self) -> str:
        return f"Footers of {self.checked} of {self.live} data files were read."


def _footers(
    found: Inspection, live: Mapping[str, Action], ends: Iterable[tuple[str, Outcome]], *, deep: bool
) -> Findings:
    """Read the footers, and the INT96 columns whose values nothing else tells, up to a limit."""
    seen, names = _Seen(len(live)), _Names(found)
    left = READ_BYTES_DEEP if deep else READ_BYTES
    for path, answer in ends:
        tail = answer.value if isinstance(answer, Ok) else None
        end = footers.footer(found.world, path, tail, live[path]) if isinstance(tail, Tail) else None
        if end is None:
            continue
        seen.checked += 1
        if end.unknown():
            left -= footers.read_instants(found.world, end, left)
        _judge_values(seen, end)
        seen.unknown |= names.unknown(end, live[path])
        seen.lacking |= names.lacking(end, live[path])
    yield from _columns(seen, names)
    yield from _instants(seen)
    yield from _old_calendar(seen)


def _judge_values(seen: _Seen, end: Footer) -> None:
    instants = [leaf for leaf in end.leaves if leaf.int96]
    if any(_outside(leaf, *INT96_US) for leaf in instants):
        seen.out_of_range.append(end.path)
    elif end.unknown():
        seen.unread.append(end.path)
    if calendar.is_old(end.metadata) and end.leaves:
        if any(_is_old(leaf) for leaf in end.leaves):
            seen.old_days.append(end.path)
        elif not all(leaf.known for leaf in end.leaves):
            seen.perhaps_old.append(end.path)


def _outside(leaf: Leaf, least: int, greatest: int) -> bool:
    return leaf.span is not None and (leaf.span[0] < least or leaf.span[1] > greatest)


def _is_old(leaf: Leaf) -> bool:
    first = calendar.FIRST_DAY * footers.DAY_US if leaf.is_date else calendar.FIRST_US
    return leaf.span is not None and leaf.span[0] < first


def _instants(seen: _Seen) -> Findings:
    if seen.out_of_range:
        yield Finding(
            WARNING, "instants_out_of_range",
            f"{len(seen.out_of_range)} data files hold timestamps before 1677-09-21 or after 2262-04-11 as INT96, which "
            "Spark writes unless told otherwise. Spark, other Java readers, DuckDB and safewrite read them right; polars "
            "and deltalake count INT96 in nanoseconds and show other years, or fail. " + seen.looked,
            "Do not compact the table with deltalake: it would write the other years. Set "
            "spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS for every Spark session that writes "
            "(safewrite.spark.conf() does), then let Spark read these rows and overwrite them.",
            {"files": seen.out_of_range[:EXAMPLES], "count": len(seen.out_of_range), "checked": seen.checked},
        )  # fmt: skip
    if seen.unread:
        yield Finding(
            INFO, "instants_unread",
            f"{len(seen.unread)} data files hold timestamps as INT96 without statistics, more of them than were read: "
            "if some are before 1677-09-21 or after 2262-04-11, polars and deltalake show other years. " + seen.looked,
            "Look again with --deep, or query the least and the greatest timestamp with Spark.",
            {"files": seen.unread[:EXAMPLES], "count": len(seen.unread), "checked": seen.checked},
        )  # fmt: skip


def _old_calendar(seen: _Seen) -> Findings:
    files = [*seen.old_days, *seen.perhaps_old]
    if not files:
        return
    sure = bool(seen.old_days)
    yield Finding(
        WARNING if sure else INFO, "old_calendar",
        f"{len(files)} data files are marked as written in the calendar before 1582 (Spark 2, or a session with "
        f"datetimeRebaseModeInWrite=LEGACY){'' if sure else ', and nothing tells the range of their days'}. Spark reads "
        "their days before 1582-10-15, and times before 1900, right; polars, deltalake and DuckDB show them up to 10 days "
        "off. safewrite refuses to rewrite rows with such days and leaves them as they are. " + seen.looked,
        "Set spark.sql.parquet.datetimeRebaseModeInWrite and int96RebaseModeInWrite to CORRECTED in every session that "
        "writes, then let Spark (3.1 or later) read these rows and overwrite them: it translates them.",
        {"files": files[:EXAMPLES], "count": len(files), "known": len(seen.old_days), "checked": seen.checked},
    )  # fmt: skip


# --- columns ------------------------------------------------------------------------------------------
class _Names:
    """The columns that a file may have, and must have, by the schema of the version that added it."""

    def __init__(self, found: Inspection) -> None:
        assert found.state is not None
        self._versions: dict[str, int] = {}
        self._metadata: dict[int, Action] = {}
        self._commits = found.commits
        self._now = found.state.metadata
        now: Action | None = None
        for version in sorted(found.commits):
            commit = found.commits[version]
            now = commit.metadata or now
            for action in commit.adds():
                self._versions.setdefault(actions.file_key(action)[0], version)
            if now is not None:
                self._metadata[version] = now

    def unknown(self, end: Footer, add: Action) -> dict[str, list[str]]:
        """Columns of a file, and of its folder, that the table did not have when the file was added."""
        metadata = self._at(end.path)
        mode = _mapping(metadata or self._now)
        if mode == "id" or (metadata is None and mode):
            return {}  # columns go by number, or may have been dropped since
        known = {name.casefold() for name in _physical(metadata or self._now)}
        known |= {name.casefold() for name in _extra(self._now)}
        has = [*end.columns, *(add.get("partitionValues") or {})]
        names = [name for name in has if name.casefold() not in known]
        return {end.path: names} if names else {}

    def lacking(self, end: Footer, add: Action) -> dict[str, list[str]]:
        """Columns that a file lacks though the log says that it has values of them."""
        stats = stats_of(add)
        rows, nulls = stats.get("numRecords"), stats.get("nullCount")
        has = {name.casefold() for name in (*end.columns, *(add.get("partitionValues") or {}))}
        names = [
            name
            for name, count in (nulls.items() if isinstance(nulls, dict) else ())
            if isinstance(count, int) and isinstance(rows, int) and count < rows and name.casefold() not in has
        ]  # fmt: skip
        return {end.path: names} if names and _mapping(self._at(end.path) or self._now) != "id" else {}

    def writes(self, paths: Iterable[str]) -> tuple[list[int], list[str]]:
        """Versions that added these files, and the keys of their writes."""
        versions = sorted({self._versions[path] for path in paths if path in self._versions})
        return versions, [key for version in versions for key in vanished.keys_of(self._commits[version])]

    def _at(self, path: str) -> Action | None:
        """The table's metadata when a file was added; None where the log was cleaned up since."""
        version = self._versions.get(path)
        return None if version is None else self._metadata.get(version)


def _columns(seen: _Seen, names: _Names) -> Findings:
    if seen.unknown:
        versions, keys = names.writes(seen.unknown)
        columns = sorted({name for found in seen.unknown.values() for name in found})
        yield Finding(
            DANGER, "unknown_columns",
            f"{len(seen.unknown)} data files hold columns that the table did not have when they were added "
            f"({', '.join(columns[:5])}; versions {some(versions)}): no reader shows these values. A writer held another "
            "table that stood here before, or did not see that columns had got other names. " + seen.looked,
            "Nothing is lost yet: read the values from these files (pyarrow.parquet.read_table) before VACUUM or a "
            "compaction removes them. Delete the rows of these files and write them again under new keys. Upgrade "
            "safewrite, which refuses such writes now, wherever it writes this table.",
            _details(seen.unknown, versions, keys, seen.checked),
        )  # fmt: skip
    if seen.lacking:
        versions, keys = names.writes(seen.lacking)
        yield Finding(
            DANGER, "missing_columns",
            f"{len(seen.lacking)} data files lack columns of which the log says that they have values (versions "
            f"{some(versions)}): every reader shows NULL. " + seen.looked,
            "Restore the files from versioned copies if they were replaced; else delete their rows and write them again "
            "under new keys. Find out who wrote these versions (commitInfo).",
            _details(seen.lacking, versions, keys, seen.checked),
        )  # fmt: skip


def _details(
    files: Mapping[str, list[str]], versions: list[int], keys: list[str], checked: int
) -> dict[str, Any]:
    return {
        "files": dict(list(files.items())[:EXAMPLES]), "count": len(files), "versions": versions[:EXAMPLES],
        "keys": keys[:EXAMPLES], "checked": checked,
    }  # fmt: skip


def _mapping(metadata: Action) -> str:
    return column_names.mode(metadata.get("configuration") or {})


def _physical(metadata: Action) -> list[str]:
    """Names of the top-level columns as files spell them."""
    try:
        fields = json.loads(metadata["schemaString"])["fields"]
    except (KeyError, TypeError, ValueError):
        return []
    if not _mapping(metadata):
        return [one["name"] for one in fields]
    return [
        (one.get("metadata") or {}).get("delta.columnMapping.physicalName", one["name"]) for one in fields
    ]


def _extra(metadata: Action) -> list[str]:
    """Columns that Delta itself keeps in files, such as row ids."""
    configuration = metadata.get("configuration") or {}
    return [value for name, value in configuration.items() if name.startswith(_TRACKED)]
