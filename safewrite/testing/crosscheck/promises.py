"""Checks what a table's properties and format promise of its files and columns to readers that are not here.

Spark, Trino, Athena and Hudi's readers go by these promises; each is checked by what lies in the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import deltalake
import pyarrow.parquet as pq

from safewrite.testing.crosscheck.oracle import ID
from safewrite.testing.crosscheck.program import Program
from safewrite.testing.crosscheck.readers import Found, Reader, Types, meanings
from safewrite.values import kept_names


class BrokenPromiseError(Exception):
    """A table is not as its properties say, or has a column of its format's own."""


def must(holds: bool, otherwise: str) -> None:
    """Raise BrokenPromiseError where something does not hold that must."""
    if not holds:
        raise BrokenPromiseError(otherwise)


def delta_promises(uri: str, program: Program) -> dict[str, Reader]:
    """Readers of a local Delta table that check its promises, and the replayed change data feed where there is one."""
    properties = dict(program.properties)

    def promises(types: Types) -> None:
        table = deltalake.DeltaTable(uri)
        _names(types, program)
        files = [Path(one.removeprefix("file://")) for one in table.file_uris()]
        _codecs(files, properties.get("delta.parquet.compression.codec"))
        if (
            files
            and properties.get("delta.compatibility.symlinkFormatManifest.enabled", "").lower() == "true"
        ):
            found = sum(len(one.read_text().split()) for one in Path(uri).rglob("manifest"))
            must(found == len(files), "the manifest does not list the table's files")
        if files and properties.get("delta.universalFormat.enabledFormats"):
            must(any(Path(uri).glob("metadata/*")), "there is no metadata of the other format")
        if properties.get("delta.appendOnly", "").lower() == "true":
            must(not any(_removed(Path(uri))), "rows of a table of appends were removed")

    def feed(types: Types) -> Found:
        """What ``SELECT *`` of the feed leaves, change by change."""
        changes: Any = deltalake.DeltaTable(uri).load_cdf(starting_version=0).read_all()
        rows = sorted(meanings(changes, types), key=lambda row: row["_commit_version"])
        left: dict[Any, dict[str, Any]] = {}
        for version in dict.fromkeys(row["_commit_version"] for row in rows):
            some = [row for row in rows if row["_commit_version"] == version]
            for row in [one for one in some if one["_change_type"] in ("delete", "update_preimage")]:
                must(left.pop(row[ID], None) is not None, "the feed deletes a row that was not there")
            for row in [one for one in some if one["_change_type"] in ("insert", "update_postimage")]:
                left[row[ID]] = {name: row.get(name) for name in types}
        return list(left.values())

    checks: dict[str, Reader] = {"promises": _checked(promises, lambda types: _rows(uri, types))}
    if properties.get("delta.enableChangeDataFeed", "").lower() == "true":
        checks["feed"] = lambda types, where: feed(types)
    return checks


def iceberg_promises(load: Any, program: Program) -> dict[str, Reader]:
    """A reader of an Iceberg table that checks its promises."""
    properties = dict(program.properties)

    def promises(types: Types) -> None:
        table = load()
        _names(types, program)
        files = [Path(task.file.file_path.removeprefix("file://")) for task in table.scan().plan_files()]
        if (
            program.maker != "safewrite"
        ):  # readers find files of any form and place; the maker's wish is theirs
            return
        wanted = properties.get("write.format.default", "parquet").lower()
        must(all(one.suffix == f".{wanted}" for one in files), f"the files are not in {wanted}")
        if wanted == "parquet":
            _codecs(files, properties.get("write.parquet.compression-codec"))
        must(not (files and "write.location-provider.impl" in properties), "the files are in other places")
        if files and properties.get("write.metadata.compression-codec") == "gzip":
            must(".gz." in table.metadata_location, "the metadata is not compressed")

    return {"promises": _checked(promises, lambda types: meanings(load().scan().to_arrow(), types))}


def _checked(promises: Any, rows: Any) -> Reader:
    def read(types: Types, where: Any) -> Found:
        promises(types)
        found: Found = rows(types)
        return found

    return read


def _rows(uri: str, types: Types) -> Found:
    """``SELECT *``."""
    engine = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(uri))
    import pyarrow as pa

    return meanings(pa.table(engine.execute("SELECT * FROM t").read_all()), types)


def _names(types: Mapping[str, Any], program: Program) -> None:
    theirs = {one.name for one in program.columns} if program.maker != "safewrite" else set[str]()
    kept = kept_names.of_table(program.format, dict(program.properties))
    found = kept_names.among((name for name in types if name not in theirs), kept)
    must(not found, f"engines take {found} for columns of their own")


_SPELLINGS = {"none": "uncompressed"}


def _codecs(files: Iterable[Path], wanted: str | None) -> None:
    if wanted is None:
        return
    codec = _SPELLINGS.get(wanted.lower(), wanted.lower())
    for file in files:
        metadata = pq.read_metadata(file)
        if metadata.num_row_groups:
            found = metadata.row_group(0).column(0).compression.lower()
            must(found == codec, f"a file is compressed by {found}, and not {codec}")


def _removed(folder: Path) -> Iterable[bool]:
    for log in sorted(folder.glob("_delta_log/*.json")):
        yield from ("remove" in json.loads(line) for line in log.read_text().splitlines() if line)
