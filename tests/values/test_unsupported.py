"""Variants of Delta and of Iceberg are refused with the reason of one file."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw
from safewrite.delta.log.schema import to_arrow
from safewrite.values.unsupported import reason

WHY = "cannot write variant values: Arrow has no type for it"


def test_a_variant_of_delta_is_refused_with_its_reason() -> None:
    field = {"name": "v", "type": "variant", "nullable": True, "metadata": {}}
    with pytest.raises(sw.UnsupportedTableError, match=rf"'v' has the Delta type 'variant': safewrite {WHY}"):
        to_arrow(json.dumps({"type": "struct", "fields": [field]}))


def test_a_variant_of_iceberg_is_read_without_and_refused_with_its_reason(tmp_path: Path) -> None:
    """PyIceberg by itself does not read the table at all."""
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    try:
        catalog.create_namespace("a")
        table = catalog.create_table("a.t", pa.schema([("id", pa.int64()), ("v", pa.string())]))
        place = Path(table.metadata_location.removeprefix("file://"))
        place.write_text(place.read_text().replace('"type":"string"', '"type":"variant"'))
        opened = sw.open("a.t", catalog=catalog)
        assert opened.rows(where="id = 1", columns=["id"]).num_rows == 0
        with pytest.raises(
            sw.UnsupportedTableError,
            match="values of v would have to be carried along, of a type that is not known",
        ):
            opened.apply_changes([{"id": 1, "n": 1}], keys=["id"], sequence_by=["n"])
    finally:
        catalog.close()


def test_a_type_without_a_reason_is_refused_by_its_name() -> None:
    assert reason("novel") == "safewrite does not know the type novel"
