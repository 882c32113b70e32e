"""Chooses the columns that a table wants statistics of: by its properties for data skipping, and those that it is clustered by.

Spark's ``StatisticsCollection`` says what the properties mean; PROTOCOL.md does not.  Too few statistics are no
small matter: deltalake (1.6.6) takes those that a table's properties promise, and that a file lacks, for NULL,
and its PyArrow dataset then leaves the file out.  Files of a clustered table have statistics of the clustering columns, wherever
these stand (PROTOCOL.md, "Clustered Table").
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType

import pyarrow as pa

from safewrite.delta.log.column_names import paths_in_files

NUM_INDEXED_COLS = "delta.dataSkippingNumIndexedCols"
STATS_COLUMNS = "delta.dataSkippingStatsColumns"
DEFAULT = 32
CLUSTERING = "delta.clustering"
"""The domain that names the columns by which a table is clustered."""

Path = tuple[str, ...]
_NONE: Mapping[str, str] = MappingProxyType({})

_INTEGER = re.compile(r"[+-]?[0-9]{1,10}")
_INT_MAX = 2**31 - 1
_IDENTIFIER = re.compile(r"\s*(?:`((?:[^`]|``)*)`|(\w+))\s*")
_NUMBER = re.compile(r"[0-9]+(?:[LSYDF]|BD|E[0-9]+[DF]?)?", re.IGNORECASE)
"""What SQL reads as a number, though it consists of letters and digits."""


@dataclass(frozen=True, slots=True)
class Indexed:
    """Columns with statistics: the first ``count`` leaves of the schema (below 0: all) or those under ``named``, and the ``clustered``.

    Leaves are the columns without their structs; a list or a map is one leaf.  Partition columns do not count.
    """

    count: int = DEFAULT
    named: tuple[Path, ...] | None = None
    clustered: tuple[Path, ...] = ()
    """Columns with statistics whatever else is chosen."""

    def leaves(self, schema: pa.Schema) -> frozenset[Path]:
        """Paths of the leaves with statistics; ``schema`` is the table's, without its partition columns."""
        by_cluster = _under(schema, _lowered(self.clustered), ())
        if self.named is not None:
            return frozenset(_under(schema, _lowered(self.named), ())).union(by_cluster)
        every = (leaf for field in schema for leaf in _leaves(field, ()))
        return frozenset(every if self.count < 0 else islice(every, self.count)).union(by_cluster)


def of(
    properties: Mapping[str, str], domains: Mapping[str, str] = _NONE, mapped: pa.Schema | None = None
) -> Indexed:
    """The columns that a table's properties and domains choose, as files name them; ``mapped`` is as in ``FileLayout``.

    Raises:
        ValueError: one has a value that Spark cannot read either; the text says why.
    """
    clustered = clustering_of(domains)
    text = properties.get(STATS_COLUMNS)
    if text is not None:
        named = _parsed(text)
        named = named if mapped is None else tuple(paths_in_files(named, mapped))
        return Indexed(named=named, clustered=clustered)
    return Indexed(_number(properties.get(NUM_INDEXED_COLS, str(DEFAULT))), clustered=clustered)


def clustering_of(domains: Mapping[str, str]) -> tuple[Path, ...]:
    """The columns by which a table is clustered, as files name them; () where it is not.

    Spark writes each as a list of the parts of its name; PROTOCOL.md's example has plain names.

    Raises:
        ValueError: the domain names no columns.
    """
    text = domains.get(CLUSTERING)
    if text is None:
        return ()
    try:
        named = json.loads(text)["clusteringColumns"]
        paths = [(one,) if isinstance(one, str) else tuple(one) for one in named]
    except (ValueError, KeyError, TypeError, RecursionError):
        named, paths = None, []
    if not isinstance(named, list) or not all(
        path and all(isinstance(part, str) for part in path) for path in paths
    ):
        raise ValueError(f"the domain {CLUSTERING} is {text!r}, which names no columns")
    return tuple(paths)


def check(properties: Mapping[str, str], schema: pa.Schema, partition_by: Sequence[str]) -> str | None:
    """Why the columns that a new table names cannot have statistics, or None; Spark refuses the same."""
    if STATS_COLUMNS not in properties:
        return None
    seen: set[Path] = set()
    for path in _parsed(properties[STATS_COLUMNS]):
        shown = ".".join(path)
        if shown.lower() in {name.lower() for name in partition_by}:
            return f"{shown} is a partition column, whose values are known of each file"
        field = _find(list(schema), path)
        if field is None:
            return f"the table has no column {shown}"
        if len(path) == 1 and _has_no_bounds(field.type):
            return f"there are no bounds of column {shown} ({field.type})"
        leaves = {tuple(part.lower() for part in leaf) for leaf in _leaves(field, path[:-1])}
        if seen & leaves:
            return f"{shown} is named twice"
        seen |= leaves
    return None


# --- the properties -------------------------------------------------------------------------------------
def _number(text: str) -> int:
    if not _INTEGER.fullmatch(text) or not -_INT_MAX - 1 <= int(text) <= _INT_MAX:
        raise ValueError(
            f"{NUM_INDEXED_COLS} is {text!r}, which is no whole number; Spark cannot read it either"
        )
    return int(text)


def _parsed(text: str) -> tuple[Path, ...]:
    """Paths of columns, from a list in SQL: ``a, s.b, `odd.name```."""
    paths: list[Path] = []
    parts: list[str] = []
    at = 0
    while text.strip():
        match = _IDENTIFIER.match(text, at)
        if match is None or (match[2] is not None and _NUMBER.fullmatch(match[2])):
            raise _unreadable(text)
        parts.append(match[2] if match[2] is not None else match[1].replace("``", "`"))
        at = match.end()
        after = text[at : at + 1]
        if after not in ("", ",", "."):
            raise _unreadable(text)
        if after != ".":
            paths.append(tuple(parts))
            parts = []
        if not after:
            break
        at += 1
    return tuple(paths)


def _unreadable(text: str) -> ValueError:
    return ValueError(
        f"{STATS_COLUMNS} is {text!r}, which is no list of columns (odd names in backticks); Spark cannot read it either"
    )


def _lowered(paths: Iterable[Path]) -> list[Path]:
    return [tuple(part.lower() for part in path) for path in paths]


# --- the schema -----------------------------------------------------------------------------------------
def _leaves(field: pa.Field, above: Path) -> Iterator[Path]:
    path = (*above, field.name)
    if not pa.types.is_struct(field.type):
        yield path
        return
    for child in field.type.fields:
        yield from _leaves(child, path)


def _under(fields: Iterable[pa.Field], wanted: Sequence[Path], above: Path) -> Iterator[Path]:
    """Leaves of the columns with these paths in lower case.  As in Spark a field that is named beside its
    struct stands for itself: then the struct has statistics of it, and of no other field.
    """
    for field in fields:
        tails = [path[1:] for path in wanted if path[0] == field.name.lower()]
        if not tails:
            continue
        if not any(tails):
            yield from _leaves(field, above)
        elif pa.types.is_struct(field.type):
            yield from _under(field.type.fields, [tail for tail in tails if tail], (*above, field.name))


def _find(fields: Sequence[pa.Field], path: Path) -> pa.Field | None:
    found = next((field for field in fields if field.name.lower() == path[0].lower()), None)
    if found is None or len(path) == 1:
        return found
    return _find(found.type.fields, path[1:]) if pa.types.is_struct(found.type) else None


def _has_no_bounds(kind: pa.DataType) -> bool:
    """Spark's types of columns that files cannot be skipped by."""
    nested = pa.types.is_nested(kind) and not pa.types.is_struct(kind)
    return nested or any(
        test(kind) for test in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_boolean)
    )
