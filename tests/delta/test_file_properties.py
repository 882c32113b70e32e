"""T4-A12: a table's properties of its data files are kept by every verb, and a value that cannot be is refused at creation."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import safewrite

ROWS = pa.table({"id": range(40_000), "n": [1] * 40_000, "s": [str(one * 7919) for one in range(40_000)]})


def codecs(at: Path) -> set[str]:
    files = [*at.glob("*.parquet")]
    return {pq.read_metadata(file).row_group(0).column(0).compression for file in files}


@pytest.mark.sweep("zstd", "none")
@pytest.mark.parametrize(("value", "found"), [("zstd", "ZSTD"), ("GZIP", "GZIP"), ("none", "UNCOMPRESSED")])
def test_the_compression_is_kept_by_appends_rewrites_and_changes(tmp_path: Path, value: str, found: str):
    at = tmp_path / "t"
    table = safewrite.create(str(at), ROWS.schema, properties={"delta.parquet.compression.codec": value})
    table.append(ROWS.slice(0, 10))
    table.delete("id = 3")
    table.apply_changes([{"id": 4, "n": 2, "s": "x"}], keys=["id"], sequence_by=["n"])
    table.overwrite([{"id": 5, "n": 2, "s": "y"}], where="id = 5")
    assert codecs(at) == {found}


@pytest.mark.parametrize("size", ["100000", "0.1", "100kb"])
def test_the_size_of_files_is_kept_unless_the_caller_gives_another(tmp_path: Path, size: str):
    properties = {"delta.targetFileSize": size}
    if size == "0.1":
        with pytest.raises(safewrite.InvalidInputError, match="targetFileSize"):
            safewrite.create(str(tmp_path / "t"), ROWS.schema, properties=properties)
        return
    table = safewrite.create(str(tmp_path / "t"), ROWS.schema, properties=properties)
    assert (table.append(ROWS).files or 0) > 1
    assert safewrite.open(str(tmp_path / "t"), target_file_size=10**8).append(ROWS).files == 1


@pytest.mark.parametrize("codec", ["lzo", "brotli", "lz4", "fast"])
def test_a_compression_that_is_not_written_is_refused(tmp_path: Path, codec: str):
    with pytest.raises(safewrite.InvalidInputError, match=r"compression\.codec"):
        safewrite.create(
            str(tmp_path / "t"), ROWS.schema, properties={"delta.parquet.compression.codec": codec}
        )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("write.format.default", "orc"),
        ("write.delete.format.default", "avro"),
        ("write.metadata.compression-codec", "gzip"),
        ("write.location-provider.impl", "org.example.Places"),
    ],
)
def test_what_iceberg_asks_of_each_writer_and_is_not_done_is_refused(tmp_path: Path, name: str, value: str):
    catalog = {
        "name": "c",
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/c.db",
        "warehouse": tmp_path.as_uri(),
    }
    schema = pa.schema([("id", pa.int64())])
    with pytest.raises(safewrite.InvalidInputError, match=name):
        safewrite.create("db.t", schema, catalog=catalog, create_namespace=True, properties={name: value})
    kept = {"write.format.default": "PARQUET", "write.metadata.compression-codec": "none"}
    safewrite.create("db.t", schema, catalog=catalog, create_namespace=True, properties=kept)
