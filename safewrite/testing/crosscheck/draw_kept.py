"""Draws programs of what other makers set: documented properties, names that formats keep, texts that are no UTF-8.

The verbs are safewrite's own: each write is right by every reader and by what the table's properties promise, or is
refused before a file is there.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from safewrite.testing.crosscheck import frames, kinds
from safewrite.testing.crosscheck.oracle import ID
from safewrite.testing.crosscheck.program import Column, Program, Row, Step, Where
from safewrite.values import kept_names

_KINDS = ("string", "int64", "list<string>", "struct<a:string,b:int32>", "map<string,string>")
_NO_TEXTS = ("\udcff", "a\udcc3", "\udced\udca0\udc80")
"""Texts that are no UTF-8, as Python escapes their bytes."""
_KEPT = {
    "delta": sorted(kept_names.DELTA_FEED | kept_names.DELTA_VECTORS),
    "iceberg": sorted(kept_names.ICEBERG),
}
_MAKERS = {"delta": "deltalake", "iceberg": "pyiceberg"}
_PROPERTIES: dict[str, dict[str, tuple[str, ...]]] = {
    "delta": {
        "delta.enableChangeDataFeed": ("true", "TRUE", "false"),
        "delta.enableDeletionVectors": ("true", "false"),
        "delta.compatibility.symlinkFormatManifest.enabled": ("true", "false"),
        "delta.universalFormat.enabledFormats": ("iceberg", "hudi"),
        "delta.parquet.compression.codec": ("zstd", "GZIP", "none", "snappy", "lzo", "brotli", "lz4"),
        "delta.targetFileSize": ("100kb", "1000", "0.1"),
        "delta.appendOnly": ("true", "TRUE"),
        "delta.dataSkippingNumIndexedCols": ("0", "1", "-1"),
        "delta.dataSkippingStatsColumns": ("id",),
        "delta.checkpoint.writeStatsAsStruct": ("true",),
        "delta.checkpoint.writeStatsAsJson": ("false",),
        "delta.checkpointInterval": ("1",),
        "delta.randomizeFilePrefixes": ("true",),
    },
    "iceberg": {
        "write.format.default": ("parquet", "PARQUET", "orc", "avro"),
        "write.delete.format.default": ("parquet", "avro"),
        "write.merge.mode": ("merge-on-read", "copy-on-write"),
        "write.metadata.compression-codec": ("none", "gzip"),
        "write.location-provider.impl": ("org.example.Places",),
        "write.parquet.compression-codec": ("zstd", "GZIP", "uncompressed", "snappy", "lz4", "brotli"),
        "write.parquet.compression-level": ("3",),
        "write.target-file-size-bytes": ("1000",),
        "write.metadata.metrics.default": ("none", "counts", "full", "truncate(1)"),
        "write.object-storage.enabled": ("true",),
    },
}
"""The tables' documented properties, with values that their engines take."""


@st.composite
def kept_programs(draw: st.DrawFn, format_: str, *, steps_max: int = 4) -> Program:
    """Programs on a table whose properties, columns or texts are another maker's."""
    columns = [Column(ID, "int64"), Column(_name(draw, format_, "v"), draw(st.sampled_from(_KINDS)))]
    second = _name(draw, format_, "w")
    if second.lower() != columns[1].name.lower():
        columns.append(Column(second, "string"))
    maker = draw(st.sampled_from(["safewrite", "safewrite", _MAKERS[format_]]))
    texts = [one.name for one in columns if one.kind == "string"]
    partition_by = (draw(st.sampled_from(texts)),) if texts and draw(st.integers(0, 3)) == 3 else ()
    listed, at = tuple(columns), [0]
    steps = [_step(draw, format_, columns, at) for _ in range(draw(st.integers(1, steps_max)))]
    return Program(
        format_, maker, listed, tuple(steps), partition_by, _properties(draw, format_), promises=True
    )


def _name(draw: st.DrawFn, format_: str, plain: str) -> str:
    if draw(st.integers(0, 3)):
        return plain
    name = draw(st.sampled_from(_KEPT[format_]))
    return name.upper() if draw(st.integers(0, 3)) == 3 else name


def _properties(draw: st.DrawFn, format_: str) -> tuple[tuple[str, str], ...]:
    known = _PROPERTIES[format_]
    names = draw(st.lists(st.sampled_from(sorted(known)), max_size=2, unique=True))
    return tuple((name, draw(st.sampled_from(known[name]))) for name in names)


def _step(draw: st.DrawFn, format_: str, columns: list[Column], at: list[int]) -> Step:
    what = draw(st.sampled_from(["append", "append", "append", "overwrite", "delete", "merge"]))
    if what == "delete":
        return Step("safewrite", what, where=Where(">=", ID, draw(st.integers(0, at[0] + 1))))
    added: tuple[tuple[str, str], ...] = ()
    if what == "merge":
        name = _name(draw, format_, f"n{len(columns)}")
        if name.lower() not in {one.name.lower() for one in columns}:
            added = ((name, draw(st.sampled_from(["string", "int64"]))),)
    brought = [*columns, *(Column(*one) for one in added)]
    no_text = draw(st.integers(0, 3)) == 3
    rows = _rows(draw, brought, at, no_text=no_text)
    by = frames.RAW if no_text else draw(st.sampled_from(["arrow", "dicts", "views", "large"]))
    # A column that is refused stays in what later steps bring, or goes: both are drawn.
    if added and not no_text and draw(st.booleans()):
        columns[:] = brought
    return Step("safewrite", what, rows, by, detail=added)


def _rows(draw: st.DrawFn, columns: list[Column], at: list[int], *, no_text: bool) -> tuple[Row, ...]:
    rows: list[Row] = []
    for _ in range(draw(st.integers(1, 3))):
        at[0] += 1
        values = {one.name: draw(kinds.values(one.kind)) for one in columns if one.name != ID}
        rows.append({ID: at[0], **values})
    column = draw(st.sampled_from(columns))
    if no_text and "string" in column.kind:
        rows[-1] = {**rows[-1], column.name: _no_text(draw(st.sampled_from(_NO_TEXTS)), column.kind)}
    return tuple(rows)


def _no_text(text: str, kind: str) -> Any:
    forms = {"list<string>": ["a", text], "struct<a:string,b:int32>": {"a": text, "b": 1}}
    return text if kind == "string" else forms.get(kind, [("k", text)])
