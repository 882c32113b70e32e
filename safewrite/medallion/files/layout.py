"""Reads from the path of a file what DMS wrote in it: whose table, full load or changes, and its place in the order."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from safewrite.medallion.config.job import Config, plain
from safewrite.medallion.files.storage import RawFile
from safewrite.medallion.files.text_parsing import stamp_number

_SUFFIX = re.compile(r"\.(?P<kind>csv|parquet)(?P<gz>\.gz)?$", re.IGNORECASE)
_LOAD = re.compile(r"LOAD([0-9A-Fa-f]{5}|[0-9A-Fa-f]{8})(?:_(?:[A-Za-z][A-Za-z_]*)?[0-9]{1,5})?$")
"""Full loads by segments have the segment in a folder or behind the number; names that end otherwise are those of copies."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A raw file that is understood.  ``number`` orders files of one kind; ``kind`` is ``csv`` or ``parquet``."""

    raw: RawFile
    kind: str
    is_load: bool
    number: int
    is_mixed: bool = False

    @property
    def path(self) -> str:
        return self.raw.path

    @property
    def order(self) -> tuple[bool, int, str]:
        """Full loads first, then changes as DMS wrote them."""
        return (not self.is_load, self.number, self.path)


@dataclass
class SortedFiles:
    """What a listing holds: files of each configured table, mixed files, and paths that say nothing."""

    tables: dict[str, list[SourceFile]] = field(default_factory=dict)
    mixed: list[SourceFile] = field(default_factory=list)
    unknown: list[RawFile] = field(default_factory=list)

    def of(self, name: str) -> list[SourceFile]:
        """Where records of a table may be; nowhere for one whose bronze others write."""
        return [*self.tables[name], *self.mixed] if name in self.tables else []


def sort_out(files: Iterable[RawFile], config: Config) -> SortedFiles:
    """Give each file to its table; other names that begin with a dot or underscore are other tools' notes."""
    found = SortedFiles({name: [] for name in config.landed})
    mixed = (config.raw.mixed_folder or "").strip("/") + "/"
    for raw in files:
        parts = raw.path.split("/")
        in_mixed = mixed != "/" and raw.path.startswith(mixed)
        is_of_table = len(parts) > 2 and f"{parts[0]}.{parts[1]}" in found.tables
        named = raw.path.removeprefix(mixed).split("/") if in_mixed else parts[2:] if is_of_table else parts
        if any(part.startswith((".", "_")) for part in named):
            continue
        if _is_marker(raw) or (not is_of_table and not in_mixed and config.ignores(_owner(raw.path))):
            continue
        source = _source(raw, is_mixed=in_mixed)
        if source is None or (source.is_load and in_mixed):
            found.unknown.append(raw)
        elif in_mixed:
            found.mixed.append(source)
        elif is_of_table:
            found.tables[f"{parts[0]}.{parts[1]}"].append(source)
        else:
            found.unknown.append(raw)
    for sources in (*found.tables.values(), found.mixed):
        sources.sort(key=lambda source: source.order)
    return found


def _is_marker(raw: RawFile) -> bool:
    """Whether it is an empty object that EMR, Glue and Hadoop leave for a folder."""
    return raw.name.endswith("_$folder$") and not raw.size


def _owner(path: str) -> str:
    """The table that a file is of by its folders; of one that lies elsewhere its path, with points."""
    parts = path.split("/")
    return ".".join(parts[:2] if len(parts) > 2 else parts)


def odd(path: str, config: Config) -> tuple[str, str]:
    """Why a file is not understood, and what may be done."""
    parts = path.split("/")
    in_mixed = config.raw.mixed_folder is not None and path.startswith(
        config.raw.mixed_folder.strip("/") + "/"
    )
    if in_mixed or (len(parts) > 2 and ".".join(parts[:2]) in config.landed):
        return (
            "its name is none that DMS gives (LOAD00000001, LOAD00000001_segment1 or yyyymmdd-hhmmssfff, and .csv, .csv.gz or .parquet), as with a copy",
            "Take it away, or give it such a name",
        )
    named = ".".join(parts[:2]).lower()
    alike = next((one for one in config.landed if len(parts) > 2 and one.lower() == named), None)
    if alike is not None:
        return (
            f"its folder is {'/'.join(parts[:2])}, and {alike} is configured: names of S3 and of this configuration differ by case",
            f"Call the table {'.'.join(parts[:2])} in the configuration",
        )
    return (
        "its name or folder is that of no configured table",
        f"Configure the table, name it in ignored_tables ({_owner(path)}, or a pattern)",
    )


def tables_of(addresses: Iterable[str], config: Config) -> set[str] | None:
    """The tables that new files belong to; None where one may be of any table, or of none that is configured.

    Files that are not below ``raw.location`` are no news.
    """
    root = plain(config.raw.location)
    found = set()
    for address in addresses:
        path = plain(address)
        if not path.startswith(f"{root}/"):
            continue
        parts = path.removeprefix(f"{root}/").split("/")
        name = ".".join(parts[:2])
        if len(parts) > 2 and name in config.landed:
            found.add(name)
        elif not path.endswith("_$folder$") and not config.ignores(_owner(path.removeprefix(f"{root}/"))):
            return None
    return found


def order_of_path(path: str) -> tuple[bool, int, str] | None:
    """The place of a file among those of its table, as :attr:`SourceFile.order`; None for a name that DMS does not give."""
    source = _source(RawFile(path, 0, "", 0), is_mixed=False)
    return None if source is None else source.order


def _source(raw: RawFile, *, is_mixed: bool) -> SourceFile | None:
    suffix = _SUFFIX.search(raw.name)
    if suffix is None:
        return None
    stem, kind = raw.name[: suffix.start()], suffix["kind"].lower()
    if suffix["gz"] and kind != "csv":
        return None
    load = _LOAD.fullmatch(stem)
    if load is not None:
        return SourceFile(raw, kind, True, int(load[1], 16), is_mixed)
    try:
        return SourceFile(raw, kind, False, stamp_number(stem), is_mixed)
    except ValueError:
        return None
